"""The wrapper that scores every episode of a vector environment."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from numpy.typing import NDArray

from rapid_wrappers.counts import StateCounter
from rapid_wrappers.episode import Episode, map_arrays
from rapid_wrappers.wrappers.episodes_in_flight import EpisodesInFlight
from rapid_wrappers.wrappers.local_and_global import EpisodeScorer
from rapid_wrappers.wrappers.recorded_spaces import ArrayForm
from rapid_wrappers.wrappers.running_deviation import RunningDeviation
from rapid_wrappers.wrappers.scoring_wrapper import (
    DISCARDED,
    ScoringWrapper,
    by_name,
    check_free,
    check_unscored,
)

__all__ = ["VectorEpisodeScoringWrapper"]


class VectorEpisodeScoringWrapper(ScoringWrapper, VectorWrapper):  # not generic in Gymnasium 1.1
    """Score every episode of a vector environment, and report the scores in ``infos`` on the episode's last step.

    Works with any ``gymnasium.vector.VectorEnv``: sync, async or native, in every autoreset mode. For each episode the
    scores and the record are the ones that :class:`.EpisodeScoringWrapper` gives around each single environment, with
    one counter for all, in the process that calls ``step``. When episodes end, ``infos`` holds at its top level, in
    every mode,

    * ``"episode_scores"``: ``{"extrinsic": (num_envs,), "local": (num_envs,), "global": (num_envs,)}`` of float64;
    * ``"episode_record"``: ``(num_envs,)`` of :class:`.Episode` or None, unless ``record=False``;

    with Gymnasium's masks ``"_episode_scores"`` and ``"_episode_record"``. ``finished_episodes`` reads them.

    The wrapper does not record the action that ``NEXT_STEP`` ignores after an end. Under ``DISABLED`` it ignores what
    an environment does between its end and its reset. A reset in mid-episode discards the fragments of the
    environments it restarts, with a warning the first time. For each environment the wrapper holds memory for the
    longest episode so far, in whole pages.

    Floats count in units of their running deviation over the observations of all environments so far, those of
    episodes in flight included.

    Args:
        envs: Observations and actions as in :class:`.EpisodeScoringWrapper`; not yet scored. Its autoreset mode is
            ``envs.metadata["autoreset_mode"]``. If that is missing, the wrapper concludes it from the first end, and
            says so: infos with ``final_obs`` or ``final_info`` mean ``SAME_STEP``, others ``NEXT_STEP``.
        local: As in :class:`.EpisodeScoringWrapper`; the default follows the space of one environment.
        count: As in :class:`.EpisodeScoringWrapper`.
        counter: As in :class:`.EpisodeScoringWrapper`.
        state: What to score instead of all of the observation: the name of an entry of a Dict space, or a function
            ``(observations, infos) -> (num_envs, *state_shape)`` (or nested arrays). The wrapper calls it with what
            each reset and step returned. State that only an environment knows must be in its info, also in the info of
            ``reset``. The wrapper ignores the rows of environments that a partial reset leaves alone.
        record: As in :class:`.EpisodeScoringWrapper`.
        normalize: As in :class:`.EpisodeScoringWrapper`.

    Raises:
        TypeError: If ``envs`` is no vector environment, a space is not supported (the message names the wrapper that
            makes it so), or an argument has another type.
        ValueError: If ``envs`` is scored already, ``local`` is unknown, or no entry has the name ``state``.

    >>> import gymnasium as gym
    >>> envs = VectorEpisodeScoringWrapper(gym.make_vec("CartPole-v1", 2, "sync"))
    >>> observations, infos = envs.reset(seed=0)
    >>> while "episode_scores" not in infos:
    ...     observations, rewards, terminations, truncations, infos = envs.step([1, 0])
    >>> infos["episode_scores"]["extrinsic"], infos["_episode_scores"]
    (array([8., 0.]), array([ True, False]))
    """

    def __init__(
        self,
        envs: VectorEnv[Any, Any, Any],
        *,
        local: str | Callable[[Any], float] | None = None,
        count: bool | None = None,
        counter: StateCounter | None = None,
        state: Callable[[Any, dict[str, Any]], Any] | str | None = None,
        record: bool = True,
        normalize: bool | RunningDeviation | None = None,
    ) -> None:
        if not isinstance(envs, VectorEnv):
            raise TypeError(f"expected a vector environment, got {envs}: wrap a single one with EpisodeScoringWrapper")
        super().__init__(envs)
        check_unscored(envs)
        self._scorer = EpisodeScorer(local=local, count=count, counter=counter, state=state, normalize=normalize)
        mode = getattr(envs.unwrapped, "autoreset_mode", None)  # first, as Gymnasium 1.1 shares the metadata
        mode = envs.metadata.get("autoreset_mode") if mode is None else mode
        self._mode = None if mode is None else AutoresetMode(mode)  # None: not known before the first end
        # Gymnasium's wrappers of vector environments refuse SAME_STEP; those of single ones belong inside then.
        remedies = "gymnasium.wrappers" + ("" if self._mode is AutoresetMode.SAME_STEP else ".vector")
        self._spaces = self._choose_spaces(
            envs.single_observation_space, envs.single_action_space, state, record, remedies
        )
        self._batch = (envs.num_envs,)
        self._started = False  # whether all were reset, and no step failed since
        self._warned = False
        self._in_flight = EpisodesInFlight(envs.num_envs)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all environments, or those of ``options["reset_mask"]``. Their episodes in flight are discarded."""
        mask = (options or {}).get("reset_mask")  # read first: some environments take it out of the dictionary
        ready, self._started = self._started, False  # as in `step`
        observations, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        restarted = np.ones(self._batch, bool) if mask is None else np.array(mask, bool)
        if ready:
            self._warn_of_fragments(self._in_flight.lengths[restarted & self._in_flight.active], seed)
        self._in_flight.begin(restarted)
        self._receive(observations, infos, restarted)
        self._started = ready or bool(restarted.all())
        return observations, infos

    def step(self, actions: Any) -> tuple[Any, NDArray, NDArray, NDArray, dict[str, Any]]:
        """Step the environments. When episodes end, ``infos`` also holds their scores and records.

        Raises:
            ResetNeeded: Before a reset of all environments, and after a step that failed.
            ValueError: If the actions do not fit the dtype and shape of their space; no environment then takes a step.
                If a return is not a finite number, or the observations do not fit their space; all episodes in flight
                are then discarded. An exception from an environment discards them too, as others may have moved.
                If infos contradict the autoreset mode that the environments declare.
        """
        if not self._started:
            raise ResetNeeded("expected `reset()` of all environments before `step()`")
        forms = self._spaces.forms
        taken = self._spaces.as_recorded("action", actions, self._batch) if "action" in forms else None
        self._started = False  # after a failure below no episode can be continued
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        episodes = self._in_flight
        acted = episodes.active
        paid, done = np.asarray(rewards), np.asarray(terminations, bool) | np.asarray(truncations, bool)
        if not paid.shape == done.shape == self._batch:
            raise ValueError(f"expected rewards and ends of shape {self._batch}, got {paid.shape} and {done.shape}")
        with np.errstate(over="ignore"):  # the next check finds it
            episodes.returns[acted] += paid[acted]
        if not np.isfinite(episodes.returns).all():
            raise ValueError(f"expected rewards with finite sums, got {episodes.returns} with the rewards {rewards}")
        if taken is not None:
            episodes.keep("actions", taken, acted)
        episodes.lengths[acted] += 1
        ended = acted & done
        if ended.any():
            self._check_mode(infos)
            infos = {**infos, **self._finish(ended, infos)}
        episodes.active = acted & ~done
        if self._mode is AutoresetMode.SAME_STEP:
            episodes.begin(done)
        elif self._mode is not AutoresetMode.DISABLED and not acted.all():
            episodes.begin(~acted)
        self._receive(observations, infos, episodes.active)
        self._started = True
        return observations, rewards, terminations, truncations, infos

    def state_dict(self) -> dict[str, Any]:
        """The episodes in flight and the running deviations, as copied arrays.

        Of each episode the observations, actions and return so far. The state of the environments is not included, nor
        are the counts (see ``counter.state_dict()``).
        """
        episodes = self._in_flight if self._started else EpisodesInFlight(*self._batch)
        statistics = self.statistics.state_dict()
        return {"started": np.array(self._started), "statistics": statistics, **episodes.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume the episodes of a :meth:`state_dict`. The environments must be in the state they had then.

        Raises:
            ValueError: If ``state`` has another form, or does not fit these environments. Nothing changes then.
        """
        forms = {f"{name}s": form for name, form in self._spaces.forms.items()}
        forms |= {"states": None} if callable(self._state) else {}
        try:
            if set(state) != set(self.state_dict()):
                raise ValueError(f"expected the keys of a `state_dict()`, got {list(state)}")
            started, states, statistics = bool(state["started"]), state["kept"].get("states"), RunningDeviation()
            in_flight = EpisodesInFlight.from_state_dict(state, *self._batch, forms)
            statistics.load_state_dict(state["statistics"], self._scorer.form)
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            raise ValueError("expected `state` to be a `state_dict()` of a VectorEpisodeScoringWrapper") from error
        if states is not None:
            self._scorer.resolve_defaults(map_arrays(lambda a: ArrayForm("state", a.dtype, a.shape[1:]), states))
        self.statistics.load_state_dict(state["statistics"])
        self._started, self._in_flight = started, in_flight

    def _check_mode(self, infos: dict[str, Any]) -> None:
        """Conclude an undeclared autoreset mode from the ``infos`` of an end; refuse ones that contradict it."""
        mark = next((key for key in ("final_obs", "final_info", "final_observation") if key in infos), None)
        if self._mode is None:
            self._mode = AutoresetMode.NEXT_STEP if mark is None else AutoresetMode.SAME_STEP
            warnings.warn(
                f"The vector environment does not declare metadata['autoreset_mode']. Its infos have "
                f"{mark or 'no final_obs'} at an end, so {self._mode.name} is assumed.",
                stacklevel=3,
            )
        elif mark is not None and self._mode is not AutoresetMode.SAME_STEP:
            raise ValueError(f"expected infos without {mark!r} from environments that declare {self._mode}: "
                             "correct envs.metadata['autoreset_mode']")  # fmt: skip

    def _receive(self, observations: Any, infos: dict[str, Any], mask: NDArray[np.bool_]) -> None:
        """Keep the observations that agents will act on, and their states, of those in ``mask``; others may be void."""
        states = None
        if "observation" in self._spaces.forms:
            copied = self._spaces.as_recorded("observation", self._recorded(observations), self._batch)
            self._in_flight.keep("observations", copied, mask)
            states = self._scored_part(copied)
        if callable(self._state):
            states = self._states_of(self._state(observations, infos), self._batch)
            self._in_flight.keep("states", states, mask)
        if self._scorer.learns and mask.any():
            self._scorer.observe(states if mask.all() else map_arrays(lambda rows: rows[mask], states))

    def _finish(self, ended: NDArray[np.bool_], infos: dict[str, Any]) -> dict[str, Any]:
        """The entries of ``infos`` for the episodes that just ended."""
        for info in (infos, infos.get("final_info", {})):
            check_free(info)
        scores = np.zeros((3, *self._batch))
        records = np.full(self._batch, None, object)
        lengths, returns, kept = self._in_flight.lengths, self._in_flight.returns, self._in_flight.copies(ended)
        states = kept["states"] if callable(self._state) else [*map(self._scored_part, kept["observations"])]
        all_ids = self._scorer.identify(map_arrays(_concatenate, *states)) if self.count else None
        ends = np.cumsum(lengths[ended])
        for k, i in enumerate(np.flatnonzero(ended)):
            ids = None if all_ids is None else all_ids[ends[k] - lengths[i] : ends[k]].copy()
            episode_scores = self._scorer.score(float(returns[i]), states[k], ids)
            scores[:, i] = episode_scores
            if self._record:
                records[i] = Episode(kept["observations"][k], kept["actions"][k], episode_scores, ids)
        named = by_name(scores)
        entries: dict[str, Any] = {"episode_scores": named | {f"_{name}": ended.copy() for name in named}}
        if self._record:
            entries["episode_record"] = records
        return entries | {f"_{name}": ended.copy() for name in entries}

    def _warn_of_fragments(self, lengths: NDArray[np.int_], seed: Any) -> None:
        longest = int(lengths.max(initial=0))
        if longest and not (self._warned or (seed is not None and longest <= 2)):
            self._warned = True
            warnings.warn(DISCARDED.format(longest), stacklevel=3)


def _concatenate(*rows: NDArray) -> NDArray:
    return np.concatenate(rows)
