"""Wrappers that score every episode of an environment."""

import math
import warnings
from collections.abc import Callable
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import ArrayLike, NDArray

from rapid_wrappers.counts import StateCounter
from rapid_wrappers.episode import Episode, EpisodeScores
from rapid_wrappers.scores import LOCAL_SCORES

__all__ = ["EpisodeScoringWrapper"]

_ACTION_SPACES = (spaces.Discrete, spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)
_OBSERVATION_SPACES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class EpisodeScoringWrapper(gym.Wrapper[NDArray, Any, NDArray, Any], RecordConstructorArgs):
    """Score every episode, and report it in ``info`` on the episode's last step.

    On that step (terminated or truncated), and only then, ``info`` holds

    * ``"episode_scores"``: ``{"extrinsic": float, "local": float, "global": float}`` (undiscounted return; Eq. 1 or
      Eq. 2; Eq. 3, the episode's own visits counted first);
    * ``"episode_record"``: an :class:`Episode`, ready for ``RankingBuffer.add``, unless ``record=False``.

    Scored are the states acted on: T states for T actions, without the terminal observation. Observations, states
    and actions are copied as they come, observations and actions in their space's dtype, and an episode in flight is
    held in memory until it ends.

    A reset in mid-episode discards the fragment, which is neither scored nor counted, with a warning the first time.
    Its usual cause is a ``TimeLimit`` outside this wrapper: it belongs inside. For continuous control the order is,
    outermost first, observation and reward normalisation, this wrapper, ``ClipAction``: so raw observations, raw
    rewards and unclipped actions are recorded.

    In the workers of an ``AsyncVectorEnv`` each wrapper counts for itself.

    Args:
        env: Array observations; Discrete, Box, MultiDiscrete or MultiBinary actions; not yet scored.
        local: ``"distinct"`` (Eq. 1), ``"std"`` (Eq. 2) or ``"distance"`` (the authors' continuous form). ``None``
            follows the space: a uint8 Box (H, W, C) with min(H, W) >= 32 is pixels and takes ``"std"``, other
            integer spaces take ``"distinct"``, float spaces ``"std"``. Of pixels ``"std"`` is that of values scaled
            to [0, 1]; ``"distance"`` is left in 0-255, the unit of the authors' weight.
        count: Whether states are counted for the global score, which is 0.0 otherwise. ``None`` follows the space:
            integer spaces are counted, pixels and float spaces, where states hardly ever repeat, are not.
        counter: Shared with other wrappers of this process; its own by default.
        state: ``(env, obs) -> array`` to score something else than the observation, such as an agent's position.
            Called for each observation acted on, with the environment inside this wrapper. The record still holds
            the observations. ``local`` and ``count`` then follow the dtype and shape of the first state.
        record: Whether to put the episode itself into ``info``.

    Raises:
        TypeError: If the observations are not arrays or the action space is not supported.
        ValueError: If ``env`` is scored already or ``local`` is unknown.

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
        local: str | None = None,
        count: bool | None = None,
        counter: StateCounter | None = None,
        state: Callable[[gym.Env, NDArray], ArrayLike] | None = None,
        record: bool = True,
    ) -> None:
        # Recorded without a deep copy, so that an environment rebuilt from the spec shares the counter.
        RecordConstructorArgs.__init__(
            self, local=local, count=count, counter=counter, state=state, record=record, _disable_deepcopy=True
        )
        gym.Wrapper.__init__(self, env)
        _check_spaces(env.observation_space, env.action_space)
        _check_options(local, counter, state)
        _check_unscored(env)
        # Needed at every step, and slow to look up through a stack of wrappers.
        self._spaces = {
            name: (np.dtype(space.dtype), space.shape or ())
            for name, space in (("observation", env.observation_space), ("action", env.action_space))
        }
        self.local = local
        self.count = count
        self.counter = StateCounter() if counter is None else counter
        self._state = state
        self._record = record
        self._scale: float | None = None  # of the states; None until their kind is known
        if state is None:
            self._follow(env.observation_space.dtype, env.observation_space.shape)
        self._active = False  # whether an episode is in flight
        self._warned = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray, dict[str, Any]]:
        """Reset the environment; an episode in flight is discarded."""
        # Gymnasium's `check_env` restarts with a seed after a step or two, and is not to be warned of it.
        if self._active and self._actions and not (self._warned or (seed is not None and len(self._actions) <= 2)):
            self._warned = True
            warnings.warn(
                f"reset() after {len(self._actions)} steps of an unfinished episode: it is discarded, neither scored "
                "nor counted. If a TimeLimit is outside EpisodeScoringWrapper, put it inside.",
                stacklevel=2,
            )
        self._active = False
        obs, info = self.env.reset(seed=seed, options=options)
        self._observations: list[NDArray] = []
        self._states: list[NDArray] = []
        self._actions: list[NDArray] = []
        self._return = 0.0
        self._receive(obs)
        self._active = True
        return obs, info

    def step(self, action: Any) -> tuple[NDArray, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step the environment; on the last step of an episode add its scores and record to ``info``.

        Raises:
            ResetNeeded: If no episode is in flight.
            ValueError: If the action does not fit its space's shape and dtype: the step is then not taken. If the
                return is not a finite number, or the observation does not fit its space: the episode is discarded.
        """
        if not self._active:
            raise ResetNeeded("expected `reset()` before `step()`: no episode is in flight")
        taken = self._copy("action", action)
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._active = False  # what is refused below ends the episode; it cannot be scored any more
        if not isinstance(reward, (float, int)):
            reward = _scalar(reward)
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
        """Copy an observation to act on, and its state."""
        copied = self._copy("observation", obs)
        if self._record:
            self._observations.append(copied)
        if self._state is not None:
            copied = np.array(self._state(self.env, obs))
            if self._scale is None:
                self._follow(copied.dtype, copied.shape)
        if self._state is not None or not self._record:
            self._states.append(copied)

    def _copy(self, name: str, value: Any) -> NDArray:
        """A copy in the shape and dtype of the space, as a vector environment would hand it on."""
        dtype, shape = self._spaces[name]
        array = np.array(value)
        if array.dtype != dtype:
            if array.dtype.kind not in "biuf" or (dtype.kind != "f" and not np.array_equal(array, array.astype(dtype))):
                raise ValueError(f"expected each {name} to fit the dtype {dtype} of its space, got {value!r}")
            array = array.astype(dtype)
        if array.shape != shape:
            if array.size != math.prod(shape):
                raise ValueError(f"expected each {name} of shape {shape} as its space has it, got {array.shape}")
            array = array.reshape(shape)
        return array

    def _follow(self, dtype: Any, shape: tuple[int, ...] | None) -> None:
        """Fill in what was left to ``None`` by the kind of states."""
        pixels = dtype == np.uint8 and shape is not None and len(shape) == 3 and min(shape[:2]) >= 32
        continuous = pixels or np.issubdtype(dtype, np.inexact)
        self._scale = 255.0 if pixels else 1.0
        self.local = self.local or ("std" if continuous else "distinct")
        self.count = (not continuous) if self.count is None else self.count

    def _finish(self, info: dict[str, Any]) -> dict[str, Any]:
        """The entries of ``info`` for the episode that just ended."""
        for key in ("episode_scores", "episode_record"):
            if key in info:
                raise ValueError(f"expected an environment that leaves info[{key!r}] free, but it is taken")
        actions = np.array(self._actions)
        observations = np.array(self._observations) if self._record else None
        states = np.array(self._states) if self._states else observations
        assert states is not None and self.local is not None and self._scale is not None
        local = LOCAL_SCORES[self.local](states)
        if self.local == "std":
            local /= self._scale
        ids = self.counter.visit(states) if self.count else None
        global_ = 0.0 if ids is None else self.counter.bonus(ids)
        scores = EpisodeScores(self._return, local, global_)
        entries: dict[str, Any] = {"episode_scores": {"extrinsic": self._return, "local": local, "global": global_}}
        if observations is not None:
            entries["episode_record"] = Episode(observations, actions, scores, ids)
        return entries


def _scalar(reward: Any) -> float:
    """The reward as a float where it came as an array, which vector environments cannot take."""
    array = np.asarray(reward)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise ValueError(f"expected the environment to return one number as reward, got {reward!r}")
    return float(array.item())


def _check_spaces(observation_space: spaces.Space, action_space: spaces.Space) -> None:
    if not isinstance(observation_space, _OBSERVATION_SPACES):
        raise TypeError(
            f"expected array observations, got {observation_space}: select one entry (of MiniGrid's, with "
            "minigrid.wrappers.ImgObsWrapper; else with gymnasium.wrappers.TransformObservation) "
            "or flatten all with gymnasium.wrappers.FlattenObservation"
        )
    if not isinstance(action_space, _ACTION_SPACES):
        raise TypeError(
            "expected a Discrete, Box, MultiDiscrete or MultiBinary action space, "
            f"got {action_space}: convert it with gymnasium.wrappers.TransformAction"
        )


def _check_options(local: Any, counter: Any, state: Any) -> None:
    if local is not None and local not in list(LOCAL_SCORES):
        raise ValueError(f"expected `local` to be one of {sorted(LOCAL_SCORES)} or None, got {local!r}")
    if counter is not None and not isinstance(counter, StateCounter):
        raise TypeError(f"expected `counter` to be a StateCounter, got {type(counter).__name__}")
    if state is not None and not callable(state):
        raise TypeError(f"expected `state` to be a function (env, obs) -> array, got {type(state).__name__}")


def _check_unscored(env: gym.Env) -> None:
    while isinstance(env, gym.Wrapper):
        if isinstance(env, EpisodeScoringWrapper):
            raise ValueError("expected an environment that is not scored yet, got one inside an EpisodeScoringWrapper")
        env = env.env
