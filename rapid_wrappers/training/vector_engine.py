"""Environments that are vectorized by themselves: those with a ``vector_entry_point``, and EnvPool's."""

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space, iterate
from numpy.typing import NDArray

from rapid_wrappers.training.user_code import parse_keywords

__all__ = ["TransformEach", "make_vector"]


def make_vector(args: Any, num_envs: int) -> VectorEnv:
    """Make the environment's own vector form, which restarts in the step that ends an episode.

    Args:
        args: The script's arguments. ``envpool:ID`` is one of EnvPool's environments.
        num_envs: Number of environments.

    Raises:
        ValueError: If it has no such form, or restarts in another step.
        Exception: Any that making it raises.
    """
    kwargs = parse_keywords(args.env_kwargs)
    if args.max_episode_steps is not None:
        kwargs["max_episode_steps"] = args.max_episode_steps
    if args.env_id.startswith("envpool:"):
        try:
            import envpool  # type: ignore[import-not-found,import-untyped,unused-ignore]
        except ImportError as error:
            raise ImportError(f"{error}: pip install 'rapid-wrappers[envpool]'") from error
        name = args.env_id.removeprefix("envpool:")
        return _RestartInSameStep(envpool.make(name, env_type="gymnasium", num_envs=num_envs, seed=args.seed, **kwargs))
    module, _, name = args.env_id.rpartition(":")
    if module:
        importlib.import_module(module)
    if gym.spec(name).vector_entry_point is None:
        raise ValueError("expected `engine` to be sync or async: this environment has no vector form of its own")
    mode = AutoresetMode.SAME_STEP
    try:
        envs = gym.make_vec(name, num_envs, "vector_entry_point", autoreset_mode=mode, **kwargs)
    except TypeError as error:
        if "autoreset_mode" not in str(error):
            raise
        envs = gym.make_vec(name, num_envs, "vector_entry_point", **kwargs)
    if envs.metadata.get("autoreset_mode") != mode:
        envs.close()
        raise ValueError("expected `engine` to be sync or async: the vector form of this environment does not restart "
                         "in the step that ends an episode (AutoresetMode.SAME_STEP)")  # fmt: skip
    return _TakesSeeds(envs)


class TransformEach(VectorWrapper):
    """Transforms each observation, the last one of an episode, too.

    Gymnasium's ``VectorizeTransformObservation`` refuses environments that restart in the same step.

    Args:
        envs: Any vector environment.
        function: Maps one observation to an array.
        space: Of what ``function`` returns.
    """

    def __init__(self, envs: VectorEnv, function: Callable[[Any], NDArray], space: gym.Space) -> None:
        super().__init__(envs)
        self._function = function
        self.single_observation_space = space
        self.observation_space = batch_space(space, self.num_envs)

    def _each(self, observations: Any) -> NDArray:
        return np.stack([np.asarray(self._function(row)) for row in iterate(self.env.observation_space, observations)])

    def reset(self, **kwargs: Any) -> tuple[NDArray, dict[str, Any]]:
        """Reset the environments."""
        observations, infos = self.env.reset(**kwargs)
        return self._each(observations), infos

    def step(self, actions: Any) -> tuple[NDArray, NDArray, NDArray, NDArray, dict[str, Any]]:
        """Step the environments."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        if "final_obs" in infos:
            final = np.empty(self.num_envs, object)
            for i in np.flatnonzero(np.asarray(terminated) | np.asarray(truncated)):  # Atari gives no mask
                final[i] = np.asarray(self._function(infos["final_obs"][i]))
            infos = {**infos, "final_obs": final}
        return self._each(observations), rewards, terminated, truncated, infos


class _TakesSeeds(VectorWrapper):
    """Takes a list of seeds where the environments want an array (Atari) or one number."""

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray, dict[str, Any]]:
        if not isinstance(seed, Sequence):
            return self.env.reset(seed=seed, options=options)
        array = np.array(seed) % 2**31
        for form in (list(seed), array, int(array[0])):
            try:
                return self.env.reset(seed=form, options=options)  # type: ignore[arg-type]
            except (TypeError, ValueError) as error:
                refused = error
        raise refused


class _RestartInSameStep(VectorWrapper):
    """Restarts EnvPool's environments in the step that ends an episode, by one more step of only these."""

    def __init__(self, envs: VectorEnv) -> None:
        super().__init__(envs)
        self.metadata = {**envs.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray, dict[str, Any]]:
        observations, infos = self.env.reset()  # EnvPool takes its seed when it is made
        return observations, _arrays(infos)

    def step(self, actions: NDArray) -> tuple[NDArray, NDArray, NDArray, NDArray, dict[str, Any]]:
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        infos, done = _arrays(infos), np.asarray(terminated) | np.asarray(truncated)
        if not done.any():
            return observations, rewards, terminated, truncated, infos
        ids = np.flatnonzero(done).astype(np.int32)
        final, observations = np.empty(self.num_envs, object), np.array(observations)
        for i in ids:
            final[i] = observations[i].copy()
        observations[ids], first = self.env.reset(env_id=ids)  # type: ignore[call-arg]
        infos = {name: value.copy() for name, value in infos.items()}
        for name, value in _arrays(first).items():
            if name in infos and len(value) == len(ids):
                infos[name][ids] = value
        return observations, rewards, terminated, truncated, infos | {"final_obs": final, "_final_obs": done}


def _arrays(infos: dict[str, Any]) -> dict[str, NDArray]:
    """The entries with one number or array for each environment."""
    return {name: value for name, value in infos.items() if isinstance(value, np.ndarray)}
