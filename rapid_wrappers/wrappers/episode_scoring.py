"""The wrapper that scores every episode of one environment."""

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from rapid_wrappers.counts import StateCounter
from rapid_wrappers.episode import Episode, map_arrays
from rapid_wrappers.wrappers.local_and_global import EpisodeScorer, one_number
from rapid_wrappers.wrappers.running_deviation import RunningDeviation
from rapid_wrappers.wrappers.scoring_wrapper import (
    DISCARDED,
    ScoringWrapper,
    by_name,
    check_free,
    check_unscored,
)

__all__ = ["EpisodeScoringWrapper"]


class EpisodeScoringWrapper(ScoringWrapper, gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Score every episode, and report the scores in ``info`` on the episode's last step.

    On that step (terminated or truncated), and only then, ``info`` holds

    * ``"episode_scores"``: ``{"extrinsic": float, "local": float, "global": float}`` (the undiscounted return; Eq. 1
      or Eq. 2; Eq. 3 after the episode's own visits are counted);
    * ``"episode_record"``: an :class:`.Episode`, ready for ``RankingBuffer.add``, unless ``record=False``.

    The scored states are those the agent acted on: T states for T actions, without the terminal observation. The
    wrapper copies observations and actions as they come, in the dtype of their space, and states in their own dtype.
    It holds an episode in memory until the episode ends.

    A reset in mid-episode discards the fragment: the wrapper neither scores nor counts it, and warns the first time.
    The usual cause is a ``TimeLimit`` outside this wrapper; put it inside. For continuous control the order is,
    outermost first: normalization of observations and rewards, this wrapper, ``ClipAction``. The wrapper then records
    raw observations, raw rewards and unclipped actions.

    In the workers of an ``AsyncVectorEnv`` each wrapper would count for itself. Instead put a
    :class:`.VectorEpisodeScoringWrapper` around the ``AsyncVectorEnv``.

    **What is scored.** The observations, with all entries of a Dict or Tuple space. If all entries are integers, a
    state is all of them together: the local score is the share of distinct states (Eq. 1), and states are counted.
    If an entry holds pixels or floats, the local score is the deviation of each entry over the episode (Eq. 2),
    averaged over the entries, and states are not counted. Pixels are uint8 with two axes of at least 32, in any order
    (grey, channels first, stacked), and count from 0 to 1. Floats, and integers beside floats or pixels, count in units
    of their running deviation over training, so that no unit of measurement can drown a return. A number that is over
    10 deviations from its mean counts as 10. The attribute ``scored`` says it in words.

    Args:
        env: Observations of Box, Discrete, MultiDiscrete or MultiBinary, or Dict and Tuple of them as deep as they go;
            Discrete, Box, MultiDiscrete or MultiBinary actions; not yet scored.
        local: ``"distinct"`` (Eq. 1), ``"std"`` (Eq. 2), ``"distance"`` (the authors' continuous form), or a function
            of your own. ``None`` follows the space, as above. For ``"distance"`` pixels count from 0 to 255, the unit
            of the authors' weight.
            A function takes the episode's states, ``(T, *state_shape)``, and returns a finite number. The wrapper calls
            it once for each episode, on the last step. The record shares the array, so the function must not change it.
        count: Whether to count states for the global score, which is 0.0 otherwise. ``None`` follows the space, not
            ``local``: integer states are counted; pixels and float states, which hardly ever repeat, only if
            ``counter`` has ``hash_bits``.
        counter: A counter to share with other wrappers of this process. By default the wrapper makes its own.
        state: What to score instead of all of the observation: the name of an entry of a Dict space, or a function
            ``(env, obs) -> array`` (or nested arrays), such as an agent's position. The wrapper calls it for each
            observation acted on, with the environment inside this wrapper. The record still holds the observations.
            ``local`` and ``count`` then follow the dtype and shape of the first state.
        record: Whether to put the episode itself into ``info``. Without it the action space may be any, and with a
            function as ``state`` the observation space, too.
        normalize: Whether ``"std"`` and ``"distance"`` count in units of the running deviation (pixels never do).
            ``None``: unless all entries are integers. ``False``: in the states' own units, Eq. 2 to the letter. The
            attribute ``statistics`` of another wrapper: share its statistics.

    Raises:
        TypeError: If a space is not supported (the message names the wrapper that makes it so), or an argument has
            another type.
        ValueError: If ``env`` is scored already, ``local`` is unknown, or no entry has the name ``state``.

    >>> import gymnasium as gym
    >>> env = EpisodeScoringWrapper(gym.make("CartPole-v1"))
    >>> obs, info = env.reset(seed=0)
    >>> terminated = False
    >>> while not terminated:
    ...     obs, reward, terminated, truncated, info = env.step(1)
    >>> info["episode_scores"]["extrinsic"], info["episode_record"].actions.shape
    (8.0, (8,))
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        *,
        local: str | Callable[[Any], float] | None = None,
        count: bool | None = None,
        counter: StateCounter | None = None,
        state: Callable[[gym.Env, Any], Any] | str | None = None,
        record: bool = True,
        normalize: bool | RunningDeviation | None = None,
    ) -> None:
        if isinstance(env, VectorEnv):
            raise TypeError(f"expected a single environment, got {env}: wrap it with VectorEpisodeScoringWrapper")
        # Recorded without a deep copy, so that an environment rebuilt from the spec shares the counter.
        RecordConstructorArgs.__init__(
            self, local=local, count=count, counter=counter, state=state, record=record, normalize=normalize,
            _disable_deepcopy=True,
        )  # fmt: skip
        gym.Wrapper.__init__(self, env)
        check_unscored(env)
        self._scorer = EpisodeScorer(local=local, count=count, counter=counter, state=state, normalize=normalize)
        self._spaces = self._choose_spaces(env.observation_space, env.action_space, state, record)
        self._active = False  # whether an episode is in flight
        self._begun = self._length = 0
        self._warned = False

    @property
    def episode_scoring_layer(self) -> tuple[bool | None, int]:
        """Whether states are counted, and the number of episodes begun: by a name that no other wrapper has."""
        return self.count, self._begun

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment. An episode in flight is discarded."""
        # No warning for Gymnasium's `check_env`, which restarts with a seed after one or two steps.
        if self._active and self._length and not (self._warned or (seed is not None and self._length <= 2)):
            self._warned = True
            warnings.warn(DISCARDED.format(self._length), stacklevel=2)
        self._active = False
        obs, info = self.env.reset(seed=seed, options=options)
        self._observations: list[Any] = []
        self._states: list[Any] = []
        self._actions: list[NDArray] = []
        self._length = 0
        self._return = 0.0
        self._begun += 1
        self._receive(obs)
        self._active = True
        return obs, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step the environment. On the last step of an episode ``info`` also holds its scores and record.

        Raises:
            ResetNeeded: If no episode is in flight.
            ValueError: If the action does not fit the dtype and shape of its space; the environment then takes no step.
                If the return is not a finite number, or the observation does not fit its space; the episode is then
                discarded.
        """
        if not self._active:
            raise ResetNeeded("expected `reset()` before `step()`: no episode is in flight")
        taken = self._spaces.as_recorded("action", action) if "action" in self._spaces.forms else None
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._active = False  # an error below ends the episode, which can no longer be scored
        if not isinstance(reward, (float, int)):  # vector environments cannot take an array
            reward = one_number(reward, "the environment to return one number as reward")
        self._return += float(reward)
        if not math.isfinite(self._return):
            raise ValueError(f"expected rewards with a finite sum, got {self._return} with the reward {reward}")
        if not isinstance(terminated, (bool, np.bool_)) or not isinstance(truncated, (bool, np.bool_)):  # neither here
            terminated = bool(one_number(terminated, "the environment to return one flag as `terminated`"))
            truncated = bool(one_number(truncated, "the environment to return one flag as `truncated`"))
        self._length += 1
        if taken is not None:
            self._actions.append(taken)
        if terminated or truncated:
            obs = copy.deepcopy(obs)  # vector environments hold it across a reset that may overwrite it
            return obs, reward, terminated, truncated, {**info, **self._finish(info)}
        self._receive(obs)
        self._active = True
        return obs, reward, terminated, truncated, info

    def state_dict(self) -> dict[str, Any]:
        """The running deviations of the states, without counts (see ``counter.state_dict()``) and episode in flight."""
        return {"statistics": self.statistics.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a :meth:`state_dict`.

        Raises:
            ValueError: If ``state`` has another form. Nothing changes then.
        """
        if not isinstance(state, dict) or set(state) != {"statistics"}:
            raise ValueError("expected `state` to be a `state_dict()` of an EpisodeScoringWrapper")
        self.statistics.load_state_dict(state["statistics"], self._scorer.form)

    def _receive(self, obs: Any) -> None:
        """Copy an observation that the agent will act on, and its state."""
        if "observation" in self._spaces.forms:
            self._observations.append(self._spaces.as_recorded("observation", self._recorded(obs)))
        if callable(self._state):
            self._states.append(self._states_of(self._state(self.env, obs)))

    def _finish(self, info: dict[str, Any]) -> dict[str, Any]:
        """The entries of ``info`` for the episode that just ended."""
        check_free(info)
        observations = map_arrays(_stack, *self._observations) if self._observations else None
        states = map_arrays(_stack, *self._states) if self._states else self._scored_part(observations)
        self._scorer.observe(states)
        ids = self._scorer.identify(states)
        scores = self._scorer.score(self._return, states, ids)
        entries: dict[str, Any] = {"episode_scores": by_name(scores)}
        if self._record:
            entries["episode_record"] = Episode(observations, np.array(self._actions), scores, ids)
        return entries


def _stack(*rows: NDArray) -> NDArray:
    return np.stack(rows)
