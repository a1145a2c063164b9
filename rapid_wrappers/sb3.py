"""RAPID for the on-policy algorithms of Stable-Baselines3 and its contrib package, as a callback."""

import math
import os
import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rapid_wrappers.bc import bc_step
from rapid_wrappers.buffer import RankingBuffer
from rapid_wrappers.counts import StateCounter
from rapid_wrappers.episode import Episode, finished_episodes, map_arrays
from rapid_wrappers.training.checkpoint import load_checkpoint, save_checkpoint
from rapid_wrappers.wrappers import EpisodeScoringWrapper
from rapid_wrappers.wrappers.local_and_global import as_one_array

try:
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.distributions import BernoulliDistribution
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

    from rapid_wrappers.sb3_observations import as_kept, as_seen, blank, innermost, leaves, shapes
except ModuleNotFoundError as error:
    if error.name != "stable_baselines3":
        raise
    raise ImportError("RapidCallback needs Stable-Baselines3: pip install 'rapid-wrappers[sb3]'") from error

__all__ = ["RapidCallback"]


class RapidCallback(BaseCallback):
    """Rank finished episodes, and imitate the best while the model collects its rollouts (Algorithm 1).

    Wrap each environment in an :class:`.EpisodeScoringWrapper` before it goes into ``DummyVecEnv`` or
    ``SubprocVecEnv``, with or without ``Monitor`` around it::

        envs = make_vec_env("rapid/MultiRoom-N7-S4-v0", n_envs=8, wrapper_class=EpisodeScoringWrapper)
        PPO("MlpPolicy", envs, policy_kwargs={"normalize_images": False}).learn(1_000_000, RapidCallback())

    (``normalize_images=False`` because MiniGrid's codes are no pixels: divided by 255 they would hardly differ.)
    After every episode the policy makes ``bc_steps`` updates with its own optimizer, learning rate and moments. The
    buffer keeps observations as the environments return them, stacked if there is a ``VecFrameStack``, and actions as
    the policy drew them, before clipping. The policy imitates what it would see: sampled observations pass through
    ``VecTransposeImage``, and through ``VecNormalize`` with its current statistics.

    PPO, A2C and TRPO are supported; MaskablePPO, which imitates without the mask, so that what it learns holds under
    any; and RecurrentPPO, which imitates runs of pairs, each from a zero state, and needs ``whole_episodes=True``.

    An episode is left out, with a warning the first time, if another than the callback stepped or reset its
    environment, such as an evaluation in the training environments.

    Args:
        buffer: Ranks the episodes. By default a buffer of 10 000 pairs with the weights of Appendix A. It has a counter
            if the wrappers count states, as they do by default for integer observations.
            If the buffer has a counter, a ``StateCounter``, the callback counts the observations of all environments
            in it. It ignores the counts of the wrappers, since a wrapper in a worker sees only one environment.
        bc_steps: Number of updates after each episode, >= 0. Appendix A: 5.
        bc_batch_size: Number of pairs in each update, >= 1. Appendix A: 256.
        bc_frames_per_step: Minimum of frames for each update, >= 0, a bound where episodes are short. 0: none (paper).
        bc_sequence_length: RecurrentPPO only: steps in a run of pairs, >= 1. The batch size counts pairs.
        bc_target_loss: Imitation pauses until the next rollout when its loss falls below this value, >= 0. 0 never
            pauses, as in the paper.
        verbose: As in Stable-Baselines3.

    Raises:
        ValueError: If an argument is out of range. When training starts, if an environment is not scored, or if the
            observations in the buffer cannot be brought into the form that the policy sees.
        TypeError: When training starts, if the model is no on-policy algorithm.
    """

    def __init__(
        self,
        buffer: RankingBuffer | None = None,
        *,
        bc_steps: int = 5,
        bc_batch_size: int = 256,
        bc_frames_per_step: int = 16,
        bc_sequence_length: int = 32,
        bc_target_loss: float = 0.0,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        if buffer is not None and not isinstance(buffer, RankingBuffer):
            raise TypeError(f"expected `buffer` to be a RankingBuffer, got {type(buffer).__name__}")
        if buffer is not None and not isinstance(buffer.counter, StateCounter | None):
            raise TypeError(f"expected the buffer's counter to be a StateCounter, got {type(buffer.counter).__name__}")
        for name, value, least in (
            ("bc_steps", bc_steps, 0), ("bc_batch_size", bc_batch_size, 1), ("bc_target_loss", bc_target_loss, 0),
            ("bc_frames_per_step", bc_frames_per_step, 0), ("bc_sequence_length", bc_sequence_length, 1),
        ):  # fmt: skip
            if not value >= least:
                raise ValueError(f"expected `{name}` >= {least}, got {value!r}")
        self.buffer = buffer
        self.bc_steps, self.bc_batch_size, self.bc_target_loss = bc_steps, bc_batch_size, bc_target_loss
        self.bc_frames_per_step, self.bc_sequence_length = bc_frames_per_step, bc_sequence_length
        self.bc_loss = float("nan")
        """Loss of the last update, NaN before the first."""
        self._imitate, self._bc_left = True, math.inf  # for the rest of this rollout
        self._pending: dict[str, Any] | None = None  # a state that was loaded before the buffer existed
        self._actions: list[list[NDArray]] = []  # one list for the episode in flight of each environment
        self._begun: list[int] = []  # number of episodes begun by each environment, without those of others
        self._warned = False

    # What Stable-Baselines3 calls

    def _init_callback(self) -> None:
        if not isinstance(self.model, OnPolicyAlgorithm):
            raise TypeError(f"expected an on-policy algorithm such as PPO, got {type(self.model).__name__}: it has no "
                            "policy whose actions' likelihood could grow")  # fmt: skip
        env = self.training_env
        if not all(env.env_is_wrapped(EpisodeScoringWrapper)):
            raise ValueError("expected every environment to be scored: "
                             "make_vec_env(..., wrapper_class=EpisodeScoringWrapper)")  # fmt: skip
        raw = innermost(env).observation_space
        seen, wanted = shapes(as_seen(env, as_kept(env, blank(raw)))), self.model.policy.observation_space
        if seen != shapes(blank(wanted)):
            raise ValueError(f"expected observations of {wanted}, the space of the policy, got {seen} from {raw}")
        layers = self._ask()
        if self.buffer is None:
            counter = StateCounter() if all(count for count, _ in layers) else None
            recurrent = hasattr(self.model.policy, "lstm_actor")
            self.buffer = RankingBuffer(counter=counter, whole_episodes=recurrent, seed=self.model.seed)
        if self._pending is not None:
            self.load_state_dict(self._pending)
        starts = self.model._last_episode_starts
        if len(self._actions) != env.num_envs or np.all(starts):  # all begin, as after the reset that `learn` makes
            self._actions = [[] for _ in range(env.num_envs)]
            self._begun = [begun for _, begun in layers]

    def _on_rollout_start(self) -> None:
        model: Any = self.model
        self._imitate, frames = self.bc_steps > 0, model.n_steps * model.n_envs
        self._bc_left = frames // self.bc_frames_per_step if self.bc_frames_per_step else math.inf

    def _on_step(self) -> bool:
        for actions, action in zip(self._actions, self.locals["actions"], strict=True):
            actions.append(np.array(action))
        finished = dict(finished_episodes(self.locals["infos"]))
        for index in np.flatnonzero(self.locals["dones"]).tolist():
            ((_, begun),) = self._ask([index])  # the next episode has begun already
            actions, expected = self._actions[index], self._begun[index] + 1
            self._actions[index], self._begun[index] = [], begun
            episode = finished.get(index)
            if episode is None:
                raise ValueError("expected records of episodes: EpisodeScoringWrapper(env, record=True)")
            if begun == expected and len(actions) == len(episode):
                self._add(episode, actions)
            elif not self._warned:
                self._warned = True
                warnings.warn(
                    "RapidCallback leaves out an episode of which others took steps, such as an evaluation in the "
                    "training environments or an earlier training; it does not say so again",
                    stacklevel=2,
                )
            self._clone()
        return True

    def _on_rollout_end(self) -> None:
        assert self.buffer is not None
        if isinstance(self.buffer.counter, StateCounter):
            self.logger.record("rapid/distinct_states", len(self.buffer.counter))
        if len(self.buffer):
            scores = self.buffer.scores
            self.logger.record("rapid/bc_loss", self.bc_loss)
            self.logger.record("rapid/buffer_size", len(self.buffer))
            self.logger.record("rapid/lowest_score", float(scores[-1]))
            self.logger.record("rapid/mean_score", float(scores.mean()))

    # Its steps

    def _ask(self, indices: list[int] | None = None) -> list[tuple[bool, int]]:
        """Whether the scoring layers count, and how many episodes they have begun."""
        layers: list[tuple[bool, int]] = self.training_env.get_attr("episode_scoring_layer", indices)
        return layers

    def _add(self, episode: Episode, actions: list[NDArray]) -> None:
        assert self.buffer is not None
        raw = innermost(self.training_env).observation_space
        if shapes(episode.observations) != shapes(blank(raw)):
            raise ValueError(f"expected recorded observations of {raw}, as the environments return them, got "
                             f"{shapes(episode.observations)}: the scoring wrapper belongs around wrappers that "
                             "change observations")  # fmt: skip
        scores, ids = episode.scores, None
        if isinstance(self.buffer.counter, StateCounter):
            ids = self.buffer.counter.visit(as_one_array(episode.observations, self.buffer.counter))
            scores = scores._replace(global_=self.buffer.counter.bonus(ids))
        self.buffer.add(as_kept(self.training_env, episode.observations), np.stack(actions), scores, ids)
        for name, value in zip(("extrinsic", "local", "global"), scores, strict=True):
            self.logger.record_mean(f"rapid/{name}", value)

    def _clone(self) -> None:
        if self.buffer is None or not len(self.buffer):
            return
        policy: Any = self.model.policy
        for _ in range(int(min(self.bc_steps, self._bc_left)) if self._imitate else 0):
            self._bc_left -= 1
            mask = None
            if hasattr(policy, "lstm_actor"):
                runs = max(1, self.bc_batch_size // self.bc_sequence_length)
                observations, actions, mask = self.buffer.sample_sequences(runs, self.bc_sequence_length)
                batch = mask.shape
            else:
                observations, actions = self.buffer.sample(self.bc_batch_size)
                batch = (self.bc_batch_size,)
            flat = map_arrays(lambda array: array.reshape(-1, *array.shape[len(batch) :]), observations)  # noqa: B023
            seen = policy.obs_to_tensor(as_seen(self.training_env, flat))[0]
            seen = map_arrays(lambda tensor: tensor.reshape(*batch, *tensor.shape[1:]), seen)  # noqa: B023
            self.bc_loss = bc_step(self._distribution, policy.optimizer, seen, actions, mask=mask)["loss"].item()
            if self.bc_loss < self.bc_target_loss:
                self._imitate = False  # until the next rollout, which checks again
                break

    def _distribution(self, seen: Any) -> "_Actions":
        """The policy's distribution for observations ``(N, ...)``, or ``(B, L, ...)`` for a recurrent policy."""
        policy: Any = self.model.policy
        shape = self.model.action_space.shape or ()
        if not hasattr(policy, "lstm_actor"):
            distribution = policy.get_distribution(seen)
            return _Actions(distribution, torch.Size([len(leaves(seen)[0])]), shape)
        runs, length = leaves(seen)[0].shape[:2]
        flat = map_arrays(lambda tensor: tensor.flatten(0, 1), seen)
        lstm = policy.lstm_actor
        zeros = torch.zeros(lstm.num_layers, runs, lstm.hidden_size, device=policy.device)
        starts = torch.zeros(runs * length, device=policy.device)  # each run begins with a zero state anyway
        distribution, _ = policy.get_distribution(flat, (zeros, zeros), starts)
        return _Actions(distribution, torch.Size([runs, length]), shape)

    # Saving

    def state_dict(self) -> dict[str, Any]:
        """Buffer and counter. Episodes in flight are not included, as a loaded model begins new ones."""
        if self.buffer is None:
            raise RuntimeError("expected a buffer to save: training has not begun")
        counter = self.buffer.counter
        return {
            "buffer": self.buffer.state_dict(),
            "counter": counter.state_dict() if isinstance(counter, StateCounter) else None,
            "bc_loss": self.bc_loss,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a :meth:`state_dict`. If training has not made the buffer yet, the callback loads it when it does.

        Raises:
            ValueError: If only one of state and buffer has a counter, or the state does not fit the buffer.
        """
        if self.buffer is None:
            self._pending = state
            return
        counter = self.buffer.counter
        if isinstance(counter, StateCounter) != (state["counter"] is not None):
            has = "no counter" if counter is None else "a counter"
            raise ValueError(
                f"expected a state {'without' if counter is None else 'with'} counts: the buffer has {has}"
            )
        if isinstance(counter, StateCounter):
            counter.load_state_dict(state["counter"])
        self.buffer.load_state_dict(state["buffer"])
        self.bc_loss = float(state["bc_loss"])
        self._pending = None

    def save(self, path: str | os.PathLike) -> None:
        """Write the model to ``<path>.zip`` for ``PPO.load``, and the callback to ``<path>.rapid.pt`` for :meth:`load`.

        Neither contains the statistics of ``VecNormalize``; save those with its own ``save``.

        Raises:
            RuntimeError: If training has not begun.
        """
        path = os.fspath(path).removesuffix(".zip")
        temporary, state = f"{path}.tmp.zip", self.state_dict()
        self.model.save(temporary)
        save_checkpoint(f"{path}.rapid.pt", state)
        os.replace(temporary, f"{path}.zip")

    def load(self, path: str | os.PathLike) -> "RapidCallback":
        """Load buffer and counter from ``<path>.rapid.pt``, without executing anything in it. Returns the callback."""
        self.load_state_dict(load_checkpoint(f"{os.fspath(path).removesuffix('.zip')}.rapid.pt"))
        return self


class _Actions(torch.distributions.Distribution):
    """Makes a distribution of Stable-Baselines3 usable in ``bc_step``."""

    support = torch.distributions.constraints.real  # no check needed: the policy itself drew the actions
    arg_constraints: dict[str, Any] = {}  # noqa: RUF012 (as in torch)

    def __init__(self, distribution: Any, batch_shape: torch.Size, shape: tuple[int, ...]) -> None:
        self.of = distribution
        super().__init__(batch_shape, torch.Size(shape), validate_args=False)

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        rows = value.reshape(self.batch_shape.numel(), *self.event_shape)
        if isinstance(self.of, BernoulliDistribution):
            rows = rows.to(self.of.distribution.logits.dtype)
        log_prob: torch.Tensor = self.of.log_prob(rows.flatten(1) if rows.ndim > 1 else rows)
        return log_prob.reshape(self.batch_shape)
