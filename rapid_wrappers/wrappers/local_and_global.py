"""The local and the global score of a finished episode, with defaults that follow the kind of states."""

import math
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import SyncVectorEnv, VectorEnv, VectorWrapper
from numpy.typing import NDArray

from rapid_wrappers.counts import StateCounter
from rapid_wrappers.episode import EpisodeScores
from rapid_wrappers.scores import LOCAL_SCORES

__all__ = ["DISCARDED", "EpisodeScorer", "ScoringWrapper", "by_name", "check_free", "check_unscored", "one_number"]

DISCARDED = (
    "reset() after {} steps of an unfinished episode: the episode is discarded, neither scored nor counted. "
    "If a TimeLimit is outside the scoring wrapper, put it inside."
)
"""The warning of a reset in mid-episode, to format with the number of steps."""


class EpisodeScorer:
    """Computes the scores of finished episodes; its arguments are those of :class:`.EpisodeScoringWrapper`.

    Raises:
        TypeError: If ``counter`` is no ``StateCounter`` or ``state`` no function.
        ValueError: If ``local`` is unknown.
    """

    def __init__(
        self,
        *,
        local: str | Callable[[NDArray], float] | None,
        count: bool | None,
        counter: StateCounter | None,
        state: Callable[..., Any] | None,
    ) -> None:
        if not (local is None or callable(local) or local in list(LOCAL_SCORES)):
            raise ValueError(f"expected `local` to be one of {sorted(LOCAL_SCORES)}, a function or None, got {local!r}")
        if counter is not None and not isinstance(counter, StateCounter):
            raise TypeError(f"expected `counter` to be a StateCounter, got {type(counter).__name__}")
        if state is not None and not callable(state):
            raise TypeError(f"expected `state` to be a function that returns an array, got {type(state).__name__}")
        self.local = local
        self.count = count
        self.counter = StateCounter() if counter is None else counter
        self._scale: float | None = None  # divides the "std" score; None until the kind of states is known

    def resolve_defaults(self, dtype: Any, shape: tuple[int, ...] | None) -> None:
        """Fill in what was left to ``None``, from the dtype and shape of one state. Only the first call counts."""
        if self._scale is not None:
            return
        pixels = dtype == np.uint8 and shape is not None and len(shape) == 3 and min(shape[:2]) >= 32
        continuous = pixels or np.issubdtype(dtype, np.inexact)
        self._scale = 255.0 if pixels else 1.0
        if self.local is None:
            self.local = "std" if continuous else "distinct"
        if self.count is None:
            self.count = not continuous or self.counter.hash_bits is not None

    def identify(self, states: NDArray) -> NDArray[np.int64] | None:
        """Ids of the states of one or more episodes, or None where states are not counted."""
        return self.counter.identify(states) if self.count else None

    def score(self, extrinsic: float, states: NDArray, ids: NDArray[np.int64] | None) -> EpisodeScores:
        """Score one episode, and count its states.

        Args:
            extrinsic: Its undiscounted return.
            states: ``(T, *state_shape)``.
            ids: ``(T,)`` as :meth:`identify` returned them.

        Raises:
            ValueError: If the local score is not a finite number.
        """
        local = self._local_score(states, ids)
        if ids is None:
            return EpisodeScores(extrinsic, local, 0.0)
        self.counter.count(ids)
        return EpisodeScores(extrinsic, local, self.counter.bonus(ids))

    def _local_score(self, states: NDArray, ids: NDArray[np.int64] | None) -> float:
        assert self.local is not None and self._scale is not None
        if callable(self.local):
            score = one_number(self.local(states), "`local` to return one number")
            if not math.isfinite(score):
                raise ValueError(f"expected `local` to return a finite score, got {score}")
            return score
        if self.local == "distinct" and ids is not None and self.counter.max_states is None:
            return len(set(ids.tolist())) / len(ids)  # Eq. 1: the counter tells states apart as `distinct_score` does
        score = LOCAL_SCORES[self.local](states)
        return score / self._scale if self.local == "std" else score


class ScoringWrapper:
    """The attributes that both scoring wrappers share."""

    _scorer: EpisodeScorer

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


def one_number(value: Any, expected: str) -> float:
    """``value`` as a float, also from an array of one number; the error says what was ``expected``."""
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise ValueError(f"expected {expected}, got {value!r}")
    return float(array.item())
