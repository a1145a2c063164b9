"""RAPID for Stable-Baselines3's PPO and A2C, as a callback."""

import os
import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rapid_wrappers.bc import bc_step
from rapid_wrappers.buffer import RankingBuffer
from rapid_wrappers.counts import StateCounter
from rapid_wrappers.episode import Episode, finished_episodes
from rapid_wrappers.training.checkpoint import load_checkpoint, save_checkpoint
from rapid_wrappers.wrappers import EpisodeScoringWrapper

try:
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.distributions import BernoulliDistribution
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
    from stable_baselines3.common.policies import ActorCriticPolicy
    from stable_baselines3.common.vec_env import (
        VecCheckNan,
        VecEnv,
        VecEnvWrapper,
        VecMonitor,
        VecNormalize,
        VecTransposeImage,
        VecVideoRecorder,
    )
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
    buffer keeps observations as the environments return them, and actions as the policy drew them, before clipping.
    Sampled observations pass through ``VecNormalize``, with its current statistics, and ``VecTransposeImage``, in the
    order in which these are around the environments.

    Args:
        buffer: Ranks the episodes. By default a buffer of 10 000 pairs with the weights of Appendix A. It has a counter
            if the wrappers count states, as they do by default for integer observations.
            If the buffer has a counter, a ``StateCounter``, the callback counts the observations of all environments
            in it. It ignores the counts of the wrappers, since a wrapper in a worker sees only one environment.
        bc_steps: Number of updates after each episode, >= 0. Appendix A: 5.
        bc_batch_size: Number of pairs in each update, >= 1. Appendix A: 256.
        bc_target_loss: Imitation pauses until the next rollout when its loss falls below this value, >= 0. 0 never
            pauses, as in the paper.
        verbose: As in Stable-Baselines3.

    Raises:
        ValueError: If an argument is out of range. When training starts, if an environment is not scored, or if the
            observations in the buffer cannot be brought into the form that the policy sees.
        TypeError: When training starts, if the model is no on-policy algorithm whose policy has its own optimizer, or
            if the policy is recurrent.
    """

    def __init__(
        self,
        buffer: RankingBuffer | None = None,
        *,
        bc_steps: int = 5,
        bc_batch_size: int = 256,
        bc_target_loss: float = 0.0,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        if buffer is not None and not isinstance(buffer, RankingBuffer):
            raise TypeError(f"expected `buffer` to be a RankingBuffer, got {type(buffer).__name__}")
        if buffer is not None and not isinstance(buffer.counter, StateCounter | None):
            raise TypeError(f"expected the buffer's counter to be a StateCounter, got {type(buffer.counter).__name__}")
        if bc_steps < 0 or bc_batch_size < 1 or not bc_target_loss >= 0:
            raise ValueError("expected `bc_steps` >= 0, `bc_batch_size` >= 1 and `bc_target_loss` >= 0, "
                             f"got {bc_steps}, {bc_batch_size} and {bc_target_loss}")  # fmt: skip
        self.buffer = buffer
        self.bc_steps, self.bc_batch_size, self.bc_target_loss = bc_steps, bc_batch_size, bc_target_loss
        self.bc_loss = float("nan")
        """Loss of the last update, NaN before the first."""
        self._imitate = True
        self._pending: dict[str, Any] | None = None  # a state that was loaded before the buffer existed
        self._actions: list[list[NDArray]] = []  # one list for the episode in flight of each environment
        self._progress: list[tuple[int, int]] = []  # of each environment at the end of the last rollout

    # What Stable-Baselines3 calls

    def _init_callback(self) -> None:
        if not isinstance(self.model, OnPolicyAlgorithm) or not isinstance(self.model.policy, ActorCriticPolicy):
            raise TypeError(f"expected PPO or A2C with an ActorCriticPolicy, got {type(self.model).__name__}: "
                            "off-policy algorithms and recurrent policies are not supported")  # fmt: skip
        if hasattr(self.model.policy, "lstm_actor"):
            raise TypeError("expected a policy without memory: RapidCallback imitates single pairs, not sequences")
        env = self.training_env
        if not all(env.env_is_wrapped(EpisodeScoringWrapper)):
            raise ValueError("expected every environment to be scored: "
                             "make_vec_env(..., wrapper_class=EpisodeScoringWrapper)")  # fmt: skip
        raw = _innermost(env).observation_space
        seen = _as_seen(env, np.zeros((1, *(raw.shape or ())), raw.dtype))
        if seen.shape[1:] != self.model.policy.observation_space.shape:
            raise ValueError(f"expected observations of {self.model.policy.observation_space}, the space of the "
                             f"policy, got {seen.shape[1:]} from {raw}")  # fmt: skip
        if self.buffer is None:
            self.buffer = RankingBuffer(
                counter=StateCounter() if all(env.get_attr("count")) else None, seed=self.model.seed
            )
        if self._pending is not None:
            self.load_state_dict(self._pending)
        if len(self._actions) != env.num_envs:
            self._actions = [[] for _ in range(env.num_envs)]

    def _on_rollout_start(self) -> None:
        self._imitate = self.bc_steps > 0
        progress = self.training_env.get_attr("progress")
        for actions, before, now in zip(self._actions, self._progress, progress, strict=False):
            if now != before:  # someone reset or stepped it without the callback, such as an evaluation
                actions.clear()

    def _on_step(self) -> bool:
        for actions, action in zip(self._actions, self.locals["actions"], strict=True):
            actions.append(np.array(action))
        for index, episode in finished_episodes(self.locals["infos"]):
            self._add(index, episode)
            self._clone()
        for actions, done in zip(self._actions, self.locals["dones"], strict=True):
            if done:
                actions.clear()
        return True

    def _on_rollout_end(self) -> None:
        assert self.buffer is not None
        self._progress = self.training_env.get_attr("progress")
        if isinstance(self.buffer.counter, StateCounter):
            self.logger.record("rapid/distinct_states", len(self.buffer.counter))
        if len(self.buffer):
            scores = self.buffer.scores
            self.logger.record("rapid/bc_loss", self.bc_loss)
            self.logger.record("rapid/buffer_size", len(self.buffer))
            self.logger.record("rapid/lowest_score", float(scores[-1]))
            self.logger.record("rapid/mean_score", float(scores.mean()))

    # Its steps

    def _add(self, index: int, episode: Episode) -> None:
        assert self.buffer is not None
        raw = _innermost(self.training_env).observation_space
        if episode.observations.shape[1:] != raw.shape:
            raise ValueError(f"expected recorded observations of shape {raw.shape}, as the environments return them, "
                             f"got {episode.observations.shape[1:]}: the scoring wrapper belongs around wrappers that "
                             "change observations")  # fmt: skip
        actions = self._actions[index][-len(episode) :]
        if len(actions) < len(episode):
            warnings.warn(
                "RapidCallback skips an episode because it saw only its end, and does not know its first actions",
                stacklevel=2,
            )
            return
        scores, ids = episode.scores, None
        if isinstance(self.buffer.counter, StateCounter):
            ids = self.buffer.counter.visit(episode.observations)
            scores = scores._replace(global_=self.buffer.counter.bonus(ids))
        self.buffer.add(episode.observations, np.stack(actions), scores, ids)
        for name, value in zip(("extrinsic", "local", "global"), scores, strict=True):
            self.logger.record_mean(f"rapid/{name}", value)

    def _clone(self) -> None:
        if self.buffer is None or not len(self.buffer):
            return
        policy = self.model.policy
        assert isinstance(policy, ActorCriticPolicy)
        for _ in range(self.bc_steps if self._imitate else 0):
            observations, actions = self.buffer.sample(self.bc_batch_size)
            seen = policy.obs_to_tensor(_as_seen(self.training_env, observations))[0]
            self.bc_loss = bc_step(
                lambda x: _Actions(policy.get_distribution(x), self.model.action_space.shape or ()),
                policy.optimizer,
                seen,
                actions,
            )["loss"].item()
            if self.bc_loss < self.bc_target_loss:
                self._imitate = False  # until the next rollout, which checks again
                break

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

    def __init__(self, distribution: Any, shape: tuple[int, ...]) -> None:
        self.of = distribution
        parts = distribution.distribution
        first = parts[0] if isinstance(parts, list) else parts
        super().__init__(first.batch_shape[:1], torch.Size(shape), validate_args=False)

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        if isinstance(self.of, BernoulliDistribution):
            value = value.to(self.of.distribution.logits.dtype)
        log_prob: torch.Tensor = self.of.log_prob(value)
        return log_prob


def _wrappers(env: VecEnv) -> list[VecEnvWrapper]:
    """The wrappers around the environments, innermost first."""
    found = []
    while isinstance(env, VecEnvWrapper):
        found.append(env)
        env = env.venv
    return found[::-1]


def _innermost(env: VecEnv) -> VecEnv:
    return _wrappers(env)[0].venv if isinstance(env, VecEnvWrapper) else env


def _as_seen(env: VecEnv, observations: NDArray) -> NDArray:
    """Bring observations ``(N, *obs_shape)`` from the environments into the form that the policy sees."""
    for wrapper in _wrappers(env):
        if isinstance(wrapper, VecNormalize):
            observations = wrapper.normalize_obs(observations)  # type: ignore[assignment]
        elif isinstance(wrapper, VecTransposeImage):
            if not wrapper.skip:
                observations = wrapper.transpose_observations(observations)  # type: ignore[assignment]
        elif not isinstance(wrapper, VecMonitor | VecCheckNan | VecVideoRecorder):
            raise ValueError(f"expected no {type(wrapper).__name__} around the environments: change observations in "
                             "each environment, inside the scoring wrapper, for example with "
                             "gymnasium.wrappers.FrameStackObservation")  # fmt: skip
    return observations
