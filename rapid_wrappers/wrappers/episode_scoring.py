"""The wrapper that scores every episode of one environment."""

import math
import warnings
from collections.abc import Callable
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike, NDArray

from rapid_wrappers.counts import StateCounter
from rapid_wrappers.episode import Episode
from rapid_wrappers.wrappers.local_and_global import (
    DISCARDED,
    EpisodeScorer,
    ScoringWrapper,
    by_name,
    check_free,
    check_unscored,
    one_number,
)
from rapid_wrappers.wrappers.recorded_spaces import RecordedSpaces

__all__ = ["EpisodeScoringWrapper"]


class EpisodeScoringWrapper(ScoringWrapper, gym.Wrapper[NDArray, Any, NDArray, Any], RecordConstructorArgs):
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

    Args:
        env: Array observations; Discrete, Box, MultiDiscrete or MultiBinary actions; not yet scored.
        local: ``"distinct"`` (Eq. 1), ``"std"`` (Eq. 2), ``"distance"`` (the authors' continuous form), or a function
            of your own. ``None`` follows the space: a uint8 Box (H, W, C) with min(H, W) >= 32 holds pixels and takes
            ``"std"``, other integer spaces take ``"distinct"``, float spaces ``"std"``. For pixels, ``"std"`` is
            computed on values scaled to [0, 1], ``"distance"`` on 0-255, the unit of the authors' weight.
            A function takes the episode's states, ``(T, *state_shape)``, and returns a finite number. The wrapper calls
            it once for each episode, on the last step. The record shares the array, so the function must not change it.
        count: Whether to count states for the global score, which is 0.0 otherwise. ``None`` follows the space, not
            ``local``: integer states are counted; pixels and float states, which hardly ever repeat, only if
            ``counter`` has ``hash_bits``.
        counter: A counter to share with other wrappers of this process. By default the wrapper makes its own.
        state: ``(env, obs) -> array``, to score something other than the observation, such as an agent's position.
            The wrapper calls it for each observation acted on, with the environment inside this wrapper. The record
            still holds the observations. ``local`` and ``count`` then follow the dtype and shape of the first state.
        record: Whether to put the episode itself into ``info``.

    Raises:
        TypeError: If observations are not arrays, the action space is not supported, or an argument has another type.
        ValueError: If ``env`` is scored already or ``local`` is unknown.

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
        env: gym.Env[NDArray, Any],
        *,
        local: str | Callable[[NDArray], float] | None = None,
        count: bool | None = None,
        counter: StateCounter | None = None,
        state: Callable[[gym.Env, NDArray], ArrayLike] | None = None,
        record: bool = True,
    ) -> None:
        if isinstance(env, VectorEnv):
            raise TypeError(f"expected a single environment, got {env}: wrap it with VectorEpisodeScoringWrapper")
        # Recorded without a deep copy, so that an environment rebuilt from the spec shares the counter.
        RecordConstructorArgs.__init__(
            self, local=local, count=count, counter=counter, state=state, record=record, _disable_deepcopy=True
        )
        gym.Wrapper.__init__(self, env)
        check_unscored(env)
        self._spaces = RecordedSpaces(env.observation_space, env.action_space)
        self._scorer = EpisodeScorer(local=local, count=count, counter=counter, state=state)
        if state is None:
            self._scorer.resolve_defaults(env.observation_space.dtype, env.observation_space.shape)
        self._state = state
        self._record = record
        self._active = False  # whether an episode is in flight
        self._begun = 0
        self._warned = False

    @property
    def progress(self) -> tuple[int, int]:
        """Number of episodes begun, and of steps taken in the current one. It shows whether others have stepped."""
        return self._begun, len(self._actions) if self._active else 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray, dict[str, Any]]:
        """Reset the environment. An episode in flight is discarded."""
        # No warning for Gymnasium's `check_env`, which restarts with a seed after one or two steps.
        if self._active and self._actions and not (self._warned or (seed is not None and len(self._actions) <= 2)):
            self._warned = True
            warnings.warn(DISCARDED.format(len(self._actions)), stacklevel=2)
        self._active = False
        obs, info = self.env.reset(seed=seed, options=options)
        self._observations: list[NDArray] = []
        self._states: list[NDArray] = []
        self._actions: list[NDArray] = []
        self._return = 0.0
        self._begun += 1
        self._receive(obs)
        self._active = True
        return obs, info

    def step(self, action: Any) -> tuple[NDArray, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step the environment. On the last step of an episode ``info`` also holds its scores and record.

        Raises:
            ResetNeeded: If no episode is in flight.
            ValueError: If the action does not fit the dtype and shape of its space; the environment then takes no step.
                If the return is not a finite number, or the observation does not fit its space; the episode is then
                discarded.
        """
        if not self._active:
            raise ResetNeeded("expected `reset()` before `step()`: no episode is in flight")
        taken = self._spaces.as_recorded("action", action)
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._active = False  # an error below ends the episode, which can no longer be scored
        if not isinstance(reward, (float, int)):  # vector environments cannot take an array
            reward = one_number(reward, "the environment to return one number as reward")
        self._return += float(reward)
        if not math.isfinite(self._return):
            raise ValueError(f"expected rewards with a finite sum, got {self._return} with the reward {reward}")
        self._actions.append(taken)
        if terminated or truncated:
            if isinstance(obs, np.ndarray):  # vector environments hold it across a reset that may overwrite it
                obs = obs.copy()
            return obs, reward, terminated, truncated, {**info, **self._finish(info)}
        self._receive(obs)
        self._active = True
        return obs, reward, terminated, truncated, info

    def _receive(self, obs: NDArray) -> None:
        """Copy an observation that the agent will act on, and its state."""
        copied = self._spaces.as_recorded("observation", obs)
        if self._record:
            self._observations.append(copied)
        if self._state is not None:
            copied = np.array(self._state(self.env, obs))
            self._scorer.resolve_defaults(copied.dtype, copied.shape)
        if self._state is not None or not self._record:
            self._states.append(copied)

    def _finish(self, info: dict[str, Any]) -> dict[str, Any]:
        """The entries of ``info`` for the episode that just ended."""
        check_free(info)
        actions = np.array(self._actions)
        observations = np.array(self._observations) if self._record else None
        states = np.array(self._states) if self._states else observations
        assert states is not None
        ids = self._scorer.identify(states)
        scores = self._scorer.score(self._return, states, ids)
        entries: dict[str, Any] = {"episode_scores": by_name(scores)}
        if observations is not None:
            entries["episode_record"] = Episode(observations, actions, scores, ids)
        return entries
