"""Wrappers that score every episode of an environment, or of many at once."""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from numpy.typing import ArrayLike, NDArray

from rapid_wrappers.counts import StateCounter
from rapid_wrappers.episode import Episode
from rapid_wrappers.scorer import EpisodeScorer, check_free

__all__ = ["EpisodeScoringWrapper", "VectorEpisodeScoringWrapper"]

_DISCARDED = (
    "reset() after {} steps of an unfinished episode: it is discarded, neither scored nor counted. "
    "If a TimeLimit is outside the scoring wrapper, put it inside."
)


class _Scored:
    """What both wrappers show of how they score."""

    _scorer: EpisodeScorer

    @property
    def local(self) -> str | None:
        """Which local score is taken; None until a ``state`` function has shown what it gives."""
        return self._scorer.local

    @property
    def count(self) -> bool | None:
        """Whether states are counted; None until a ``state`` function has shown what it gives."""
        return self._scorer.count

    @property
    def counter(self) -> StateCounter:
        """The visit counts."""
        return self._scorer.counter


class EpisodeScoringWrapper(_Scored, gym.Wrapper[NDArray, Any, NDArray, Any], RecordConstructorArgs):
    """Score every episode, and report it in ``info`` on the episode's last step.

    On that step (terminated or truncated), and only then, ``info`` holds

    * ``"episode_scores"``: ``{"extrinsic": float, "local": float, "global": float}`` (undiscounted return; Eq. 1 or
      Eq. 2; Eq. 3, the episode's own visits counted first);
    * ``"episode_record"``: an :class:`.Episode`, ready for ``RankingBuffer.add``, unless ``record=False``.

    Scored are the states acted on: T states for T actions, without the terminal observation. Observations, states
    and actions are copied as they come, observations and actions in their space's dtype, and an episode in flight is
    held in memory until it ends.

    A reset in mid-episode discards the fragment, which is neither scored nor counted, with a warning the first time.
    Its usual cause is a ``TimeLimit`` outside this wrapper: it belongs inside. For continuous control the order is,
    outermost first, observation and reward normalisation, this wrapper, ``ClipAction``: so raw observations, raw
    rewards and unclipped actions are recorded.

    In the workers of an ``AsyncVectorEnv`` each wrapper counts for itself: there :class:`VectorEpisodeScoringWrapper`,
    around it, is the right one.

    Args:
        env: Array observations; Discrete, Box, MultiDiscrete or MultiBinary actions; not yet scored.
        local: ``"distinct"`` (Eq. 1), ``"std"`` (Eq. 2) or ``"distance"`` (the authors' continuous form). ``None``
            follows the space: a uint8 Box (H, W, C) with min(H, W) >= 32 is pixels and takes ``"std"``, other
            integer spaces take ``"distinct"``, float spaces ``"std"``. Of pixels ``"std"`` is that of values scaled
            to [0, 1]; ``"distance"`` is left in 0-255, the unit of the authors' weight.
        count: Whether states are counted for the global score, which is 0.0 otherwise. ``None`` follows the space:
            integer spaces are counted; pixels and float spaces, where states hardly ever repeat, only by a ``counter``
            with ``hash_bits``.
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
        if isinstance(env, VectorEnv):
            raise TypeError(f"expected a single environment, got {env}: it takes VectorEpisodeScoringWrapper")
        # Recorded without a deep copy, so that an environment rebuilt from the spec shares the counter.
        RecordConstructorArgs.__init__(
            self, local=local, count=count, counter=counter, state=state, record=record, _disable_deepcopy=True
        )
        gym.Wrapper.__init__(self, env)
        _check_unscored(env)
        self._scorer = EpisodeScorer(
            env.observation_space, env.action_space, local=local, count=count, counter=counter, state=state
        )
        self._state = state
        self._record = record
        self._active = False  # whether an episode is in flight
        self._begun = 0
        self._warned = False

    @property
    def progress(self) -> tuple[int, int]:
        """Episodes begun, and steps taken in the one in flight, by which to notice that somebody else has stepped."""
        return self._begun, len(self._actions) if self._active else 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray, dict[str, Any]]:
        """Reset the environment; an episode in flight is discarded."""
        # Gymnasium's `check_env` restarts with a seed after a step or two, and is not to be warned of it.
        if self._active and self._actions and not (self._warned or (seed is not None and len(self._actions) <= 2)):
            self._warned = True
            warnings.warn(_DISCARDED.format(len(self._actions)), stacklevel=2)
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
        """Step the environment; on the last step of an episode add its scores and record to ``info``.

        Raises:
            ResetNeeded: If no episode is in flight.
            ValueError: If the action does not fit its space's shape and dtype: the step is then not taken. If the
                return is not a finite number, or the observation does not fit its space: the episode is discarded.
        """
        if not self._active:
            raise ResetNeeded("expected `reset()` before `step()`: no episode is in flight")
        taken = self._scorer.copy("action", action)
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
        copied = self._scorer.copy("observation", obs)
        if self._record:
            self._observations.append(copied)
        if self._state is not None:
            copied = np.array(self._state(self.env, obs))
            self._scorer.follow(copied.dtype, copied.shape)
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
        entries: dict[str, Any] = {"episode_scores": _named(scores)}
        if observations is not None:
            entries["episode_record"] = Episode(observations, actions, scores, ids)
        return entries


class VectorEpisodeScoringWrapper(_Scored, VectorWrapper):  # not generic in Gymnasium 1.1
    """Score every episode of a vector environment, and report it in ``infos`` on the episode's last step.

    For any ``gymnasium.vector.VectorEnv``: sync, async or native, in every autoreset mode. Episode for episode it gives
    what :class:`EpisodeScoringWrapper` gives around each single environment, with one counter for all, in the process
    that calls ``step``. On a step with which episodes end, ``infos`` holds at its top level, in every mode,

    * ``"episode_scores"``: ``{"extrinsic": (num_envs,), "local": (num_envs,), "global": (num_envs,)}`` of float64;
    * ``"episode_record"``: ``(num_envs,)`` of :class:`.Episode` or None, unless ``record=False``;

    with Gymnasium's masks ``"_episode_scores"`` and ``"_episode_record"``; ``finished_episodes`` reads them.

    The action that ``NEXT_STEP`` ignores after an end is not recorded; nor is, under ``DISABLED``, what an environment
    does between its end and its reset. A reset in mid-episode discards the fragments of the environments it restarts,
    with a warning the first time. In memory is, for each environment, its longest episode yet, in whole pages.

    Args:
        envs: Array observations; Discrete, Box, MultiDiscrete or MultiBinary actions; not yet scored. Its autoreset
            mode is ``envs.metadata["autoreset_mode"]``, or ``NEXT_STEP`` where it does not say.
        local: As of :class:`EpisodeScoringWrapper`, by the space of one environment.
        count: As there.
        counter: As there.
        state: ``(observations, infos) -> (num_envs, *state_shape)`` to score something else than the observations.
            Called with what each reset and step returned: what only an environment knows must be in its info, that of
            ``reset`` too. Rows of environments that a partial reset leaves alone are not looked at.
        record: As there.

    Raises:
        TypeError: If ``envs`` is no vector environment, its observations are not arrays or its action space is not
            supported.
        ValueError: If ``envs`` is scored already or ``local`` is unknown.

    >>> envs = VectorEpisodeScoringWrapper(gym.make_vec("CartPole-v1", 2, "sync"))
    >>> observations, infos = envs.reset(seed=0)
    >>> while "episode_scores" not in infos:
    ...     observations, rewards, terminations, truncations, infos = envs.step([1, 0])
    >>> infos["episode_scores"]["extrinsic"], infos["_episode_scores"]
    (array([8., 0.]), array([ True, False]))
    """

    def __init__(
        self,
        envs: VectorEnv[NDArray, ArrayLike, NDArray],
        *,
        local: str | None = None,
        count: bool | None = None,
        counter: StateCounter | None = None,
        state: Callable[[NDArray, dict[str, Any]], ArrayLike] | None = None,
        record: bool = True,
    ) -> None:
        if not isinstance(envs, VectorEnv):
            raise TypeError(f"expected a vector environment, got {envs}: a single one takes EpisodeScoringWrapper")
        super().__init__(envs)
        _check_unscored(envs)
        self._scorer = EpisodeScorer(
            envs.single_observation_space, envs.single_action_space,
            local=local, count=count, counter=counter, state=state,
        )  # fmt: skip
        self._state = state
        self._record = record
        mode = envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self._mode = AutoresetMode(getattr(envs.unwrapped, "autoreset_mode", mode))  # Gymnasium 1.1 shares the metadata
        self._batch = (envs.num_envs,)
        self._rows = np.arange(envs.num_envs)
        self._started = False
        self._warned = False
        self._active = np.zeros(envs.num_envs, bool)  # whether an episode is in flight
        self._lengths = np.zeros(envs.num_envs, int)
        self._returns = np.zeros(envs.num_envs)
        self._kept: dict[str, NDArray] = {}  # of the episodes in flight, each (num_envs, steps, ...)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray, dict[str, Any]]:
        """Reset the environments, or those of ``options["reset_mask"]``; their episodes in flight are discarded."""
        mask = (options or {}).get("reset_mask")  # some environments take it out of the dictionary
        ready, self._started = self._started, False  # as in `step`
        observations, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        restarted = np.ones(self._batch, bool) if mask is None else np.array(mask, bool)
        if ready:
            self._warn_of_fragments(self._lengths[restarted & self._active], seed)
        self._begin(restarted)
        self._receive(observations, infos, restarted)
        self._started = ready or bool(restarted.all())
        return observations, infos

    def step(self, actions: ArrayLike) -> tuple[NDArray, NDArray, NDArray, NDArray, dict[str, Any]]:
        """Step the environments; for the episodes that end add scores and records to ``infos``.

        Raises:
            ResetNeeded: Before a reset of all environments.
            ValueError: If the actions do not fit their space's shape and dtype: the step is then not taken. If a
                return is not a finite number, or the observations do not fit their space: the episodes in flight are
                discarded, as they are by whatever the environments raise, since some of them may have moved.
        """
        if not self._started:
            raise ResetNeeded("expected `reset()` of all environments before `step()`")
        taken = self._scorer.copy("action", actions, self._batch)
        self._started = False  # what fails below leaves no episode that could be gone on with
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        acted = self._active
        paid, done = np.asarray(rewards), np.asarray(terminations, bool) | np.asarray(truncations, bool)
        if not paid.shape == done.shape == self._batch:
            raise ValueError(f"expected rewards and ends of shape {self._batch}, got {paid.shape} and {done.shape}")
        with np.errstate(over="ignore"):  # refused here
            self._returns[acted] += paid[acted]
        if not np.isfinite(self._returns).all():
            raise ValueError(f"expected rewards with finite sums, got {self._returns} with the rewards {rewards}")
        self._keep("actions", taken, acted)
        self._lengths[acted] += 1
        ended = acted & done
        if ended.any():
            infos = {**infos, **self._finish(ended, infos)}
        self._active = acted & ~done
        if self._mode is AutoresetMode.SAME_STEP:
            self._begin(done)
        elif self._mode is AutoresetMode.NEXT_STEP and not acted.all():
            self._begin(~acted)
        self._receive(observations, infos, self._active)
        self._started = True
        return observations, rewards, terminations, truncations, infos

    def state_dict(self) -> dict[str, Any]:
        """The episodes in flight, as arrays: what was seen and done in each, one after the other, and what it returned.

        The environments' own state is not in, nor are the counts (``counter.state_dict()``).
        """
        active = self._active & self._started  # what failed left no episode that could be gone on with
        state = {"started": self._started, "active": active}
        state |= {"lengths": np.where(active, self._lengths, 0), "returns": np.where(active, self._returns, 0.0)}
        kept = {
            name: np.concatenate([values[i, :n] for i, n in enumerate(self._num_kept(name, active, self._lengths))])
            for name, values in self._kept.items()
            if self._started
        }
        return {name: np.array(value) for name, value in state.items()} | {"kept": kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with the episodes of a :meth:`state_dict`, with environments in the state they had then.

        Raises:
            ValueError: If ``state`` is not of that form, or does not fit these environments; nothing changes then.
        """
        try:
            loaded, kept = self._parse(state)
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            raise ValueError("expected `state` to be a `state_dict()` of a VectorEpisodeScoringWrapper") from error
        if "states" in kept:
            self._scorer.follow(kept["states"].dtype, kept["states"].shape[2:])
        vars(self).update(loaded, _kept=kept)

    def _parse(self, state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """The attributes that ``state`` describes, copied and checked, and what is kept of the episodes."""
        if set(state) != {"started", "active", "lengths", "returns", "kept"}:
            raise ValueError(f"expected the keys of a `state_dict()`, got {list(state)}")
        active, lengths, returns = (np.array(state[name]) for name in ("active", "lengths", "returns"))
        for name, array, own in (
            ("active", active, self._active), ("lengths", lengths, self._lengths), ("returns", returns, self._returns)
        ):  # fmt: skip
            if array.shape != own.shape or array.dtype != own.dtype:
                raise ValueError(f"expected `{name}` to be {own.shape} of {own.dtype}, got {array.shape} {array.dtype}")
        if lengths.min() < 0 or not np.isfinite(returns).all():
            raise ValueError(f"expected lengths from 0 and finite returns, got {lengths} and {returns}")
        lengths[~active], started = 0, bool(state["started"])
        if self._mode is AutoresetMode.SAME_STEP and started and not active.all():
            raise ValueError(f"expected an episode in flight in each environment under SAME_STEP, got {active}")
        names = {"states"} if self._state is not None else set()
        names |= {"observations"} if self._record or self._state is None else set()
        names |= {"actions"} if lengths.any() or "actions" in state["kept"] else set()
        if set(state["kept"]) != (names if started or state["kept"] else set()):
            raise ValueError(f"expected {sorted(names)} of the episodes, got {sorted(state['kept'])}")
        kept = {}
        for name, packed in state["kept"].items():
            rows, numbers = np.asarray(packed), self._num_kept(name, active, lengths)
            dtype, shape = rows.dtype, rows.shape[1:]
            if name != "states":
                dtype, shape = self._scorer.form(name.removesuffix("s"))
            if rows.dtype != dtype or rows.shape != (numbers.sum(), *shape):
                raise ValueError(f"expected `{name}` to be {(numbers.sum(), *shape)} of {dtype}, "
                                 f"got {rows.shape} of {rows.dtype}")  # fmt: skip
            kept[name] = np.empty((*self._batch, max(64, numbers.max() + 1), *shape), dtype)
            for i, (end, number) in enumerate(zip(numbers.cumsum(), numbers, strict=True)):
                kept[name][i, :number] = rows[end - number : end]
        return {"_started": started, "_active": active, "_lengths": lengths, "_returns": returns}, kept

    @staticmethod
    def _num_kept(name: str, active: NDArray[np.bool_], lengths: NDArray[np.int_]) -> NDArray[np.int_]:
        """Rows in use for each episode in flight: one more than actions where there is one to act on."""
        return np.where(active, lengths + (name != "actions"), 0)

    def _begin(self, mask: NDArray[np.bool_]) -> None:
        self._active = self._active | mask
        self._lengths[mask] = 0
        self._returns[mask] = 0.0

    def _receive(self, observations: NDArray, infos: dict[str, Any], mask: NDArray[np.bool_]) -> None:
        """Keep the observations to act on, and their states, of those in ``mask``; of others they may be void."""
        if self._record or self._state is None:
            self._keep("observations", self._scorer.copy("observation", observations, self._batch), mask)
        if self._state is not None:
            states = np.asarray(self._state(observations, infos))
            if states.shape[:1] != self._batch:
                raise ValueError(f"expected `state` to give an array of {self._batch} states, got {states.shape}")
            self._scorer.follow(states.dtype, states.shape[1:])
            self._keep("states", states, mask)

    def _keep(self, name: str, values: NDArray, mask: NDArray[np.bool_]) -> None:
        """Write those in ``mask`` of ``values (num_envs, ...)`` at the step their environments are at."""
        kept = self._kept.get(name)
        if kept is None:
            kept = self._kept[name] = np.empty((*self._batch, 64, *values.shape[1:]), values.dtype)
        if values.dtype != kept.dtype or values.shape[1:] != kept.shape[2:]:
            raise ValueError(
                f"expected {name} of the same dtype and shape each time, {kept.dtype} {kept.shape[2:]}, "
                f"got {values.dtype} {values.shape[1:]}"
            )
        if self._lengths.max() >= kept.shape[1]:
            grown = np.empty((*self._batch, 2 * kept.shape[1], *values.shape[1:]), kept.dtype)
            for i, length in enumerate(self._lengths):  # no more than is in use, as pages not touched take no memory
                grown[i, :length] = kept[i, :length]
            kept = self._kept[name] = grown
        if mask.all():
            kept[self._rows, self._lengths] = values
        else:
            kept[self._rows[mask], self._lengths[mask]] = values[mask]

    def _finish(self, ended: NDArray[np.bool_], infos: dict[str, Any]) -> dict[str, Any]:
        """The entries of ``infos`` for the episodes that just ended."""
        for info in (infos, infos.get("final_info", {})):
            check_free(info)
        scores = np.zeros((3, *self._batch))
        records = np.full(self._batch, None, object)
        kept = {
            name: [values[i, : self._lengths[i]].copy() for i in np.flatnonzero(ended)]
            for name, values in self._kept.items()
        }
        states = kept["observations" if self._state is None else "states"]
        all_ids = self._scorer.identify(np.concatenate(states)) if self.count else None
        ends = np.cumsum(self._lengths[ended])
        for k, i in enumerate(np.flatnonzero(ended)):
            ids = None if all_ids is None else all_ids[ends[k] - self._lengths[i] : ends[k]].copy()
            episode_scores = self._scorer.score(float(self._returns[i]), states[k], ids)
            scores[:, i] = episode_scores
            if self._record:
                records[i] = Episode(kept["observations"][k], kept["actions"][k], episode_scores, ids)
        named = _named(scores)
        entries: dict[str, Any] = {"episode_scores": named | {f"_{name}": ended.copy() for name in named}}
        if self._record:
            entries["episode_record"] = records
        return entries | {f"_{name}": ended.copy() for name in entries}

    def _warn_of_fragments(self, lengths: NDArray[np.int_], seed: Any) -> None:
        longest = int(lengths.max(initial=0))
        if longest and not (self._warned or (seed is not None and longest <= 2)):
            self._warned = True
            warnings.warn(_DISCARDED.format(longest), stacklevel=3)


def _named(scores: Any) -> dict[str, Any]:
    return dict(zip(("extrinsic", "local", "global"), scores, strict=True))


def _scalar(reward: Any) -> float:
    """The reward as a float where it came as an array, which vector environments cannot take."""
    array = np.asarray(reward)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise ValueError(f"expected the environment to return one number as reward, got {reward!r}")
    return float(array.item())


def _check_unscored(env: gym.Env | VectorEnv) -> None:
    if isinstance(env, (EpisodeScoringWrapper, VectorEpisodeScoringWrapper)):
        raise ValueError(f"expected an environment that is not scored yet, got one inside a {type(env).__name__}")
    if isinstance(env, (gym.Wrapper, VectorWrapper)):
        _check_unscored(env.env)
    elif isinstance(env, gym.vector.SyncVectorEnv):
        for single in env.envs:
            _check_unscored(single)
