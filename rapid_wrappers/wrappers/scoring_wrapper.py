"""What both scoring wrappers share: their attributes, and checks of the environments they wrap."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import SyncVectorEnv, VectorEnv, VectorWrapper
from numpy.typing import NDArray

from rapid_wrappers.counts import StateCounter
from rapid_wrappers.episode import map_arrays
from rapid_wrappers.wrappers.local_and_global import EpisodeScorer
from rapid_wrappers.wrappers.recorded_spaces import ArrayForm, RecordedSpaces, is_array_space
from rapid_wrappers.wrappers.running_deviation import RunningDeviation

__all__ = ["DISCARDED", "ScoringWrapper", "by_name", "check_free", "check_unscored"]

DISCARDED = (
    "reset() after {} steps of an unfinished episode: the episode is discarded, neither scored nor counted. "
    "If a TimeLimit is outside the scoring wrapper, put it inside."
)
"""The warning of a reset in mid-episode, to format with the number of steps."""


class ScoringWrapper:
    """What both scoring wrappers share."""

    _scorer: EpisodeScorer
    _record: bool
    _state: Callable[..., Any] | str | None

    @property
    def scored(self) -> str | None:
        """What is scored and how, in words; None until a ``state`` function has returned its first state."""
        return self._scorer.scored

    @property
    def statistics(self) -> RunningDeviation:
        """The running deviation of the states. Give it to other wrappers as ``normalize`` to share it."""
        return self._scorer.statistics

    @property
    def local(self) -> str | Callable[[NDArray], float] | None:
        """The local score, by name or as a function; None until a ``state`` function has returned its first state."""
        return self._scorer.local

    @property
    def count(self) -> bool | None:
        """Whether states are counted; None until a ``state`` function has returned its first state."""
        return self._scorer.count

    @property
    def counter(self) -> StateCounter:
        """The visit counts."""
        return self._scorer.counter

    def _choose_spaces(
        self, observations: gym.Space, actions: gym.Space, state: Callable[..., Any] | str | None, record: bool,
        wrappers: str = "gymnasium.wrappers",
    ) -> RecordedSpaces:  # fmt: skip
        """Decide which part of the observations is recorded, and which is scored."""
        self._state, self._record = state, record
        entries = observations.spaces if isinstance(observations, gym.spaces.Dict) else {}
        if isinstance(state, str) and state not in entries:
            raise ValueError(f"expected `state` to be one of the entries {list(entries)}, got {state!r}: "
                             "a function scores anything else")  # fmt: skip
        kept = None if callable(state) and not record else self._recorded(observations)
        spaces = RecordedSpaces(kept, actions if record or is_array_space(actions) else None, wrappers)
        if not callable(state):
            self._scorer.resolve_defaults(self._scored_part(spaces.forms["observation"]))
        return spaces

    def _recorded(self, observation: Any) -> Any:
        """The part of an observation, or of its space, that is recorded or scored as it is."""
        return observation[self._state] if isinstance(self._state, str) and not self._record else observation

    def _scored_part(self, recorded: Any) -> Any:
        """The part that is scored of what was recorded."""
        return recorded[self._state] if isinstance(self._state, str) and self._record else recorded

    def _states_of(self, result: Any, batch: tuple[int, ...] = ()) -> Any:
        """What a ``state`` function returned, as arrays ``(*batch, *state_shape)``."""
        states = map_arrays(np.array, result)

        def form(array: NDArray) -> ArrayForm:
            if array.shape[: len(batch)] != batch:
                raise ValueError(f"expected `state` to return an array of {batch} states, got {array.shape}")
            return ArrayForm("state", array.dtype, array.shape[len(batch) :])

        self._scorer.resolve_defaults(map_arrays(form, states))
        return states


def by_name(scores: Any) -> dict[str, Any]:
    """The three scores under the names they have in ``info["episode_scores"]``."""
    return dict(zip(("extrinsic", "local", "global"), scores, strict=True))


def check_free(info: Any) -> None:
    """Raise a ValueError if ``info`` already has an entry of a name that the wrappers use."""
    for key in ("episode_scores", "episode_record"):
        if key in info:
            raise ValueError(f"expected an environment that leaves info[{key!r}] free, but it is taken")


def check_unscored(env: gym.Env | VectorEnv) -> None:
    """Raise a ValueError if ``env``, or an environment inside it, is scored already."""
    if isinstance(env, ScoringWrapper):
        raise ValueError(f"expected an environment that is not scored yet, got one inside a {type(env).__name__}")
    if isinstance(env, (gym.Wrapper, VectorWrapper)):
        check_unscored(env.env)
    elif isinstance(env, SyncVectorEnv):
        for single in env.envs:
            check_unscored(single)
