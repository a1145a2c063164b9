"""Environments by id and engine: in this process, in worker processes, or in compiled code."""

import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from rapid_wrappers.training.signals import ignore_signals_in_workers
from rapid_wrappers.wrappers.recorded_spaces import RecordedSpaces

__all__ = ["choose_engine", "draw_without_display", "make_env", "make_envs", "make_eval_envs"]

WrapEnv = Callable[[gym.Env], gym.Env]

_NATIVE = ("rapid/MultiRoom-", "rapid/KeyCorridor")


def make_env(env_id: str, wrap_env: WrapEnv, *, video_folder: str | None = None, **kwargs: Any) -> Callable[[], Any]:
    """A function that makes the environment, in a worker process too.

    Args:
        env_id: Id of the environment, ``MODULE:ID`` included.
        wrap_env: The script's function that brings observations and actions into the form of its network.
        video_folder: Where to record videos, if at all.
        kwargs: Arguments of the environment.
    """

    def thunk() -> gym.Env:
        import rapid_wrappers.envs  # noqa: F401  (registers our ids, in a worker too)

        ignore_signals_in_workers()
        name = env_id.rpartition(":")[2]
        if name.startswith(("MiniGrid-", "BabyAI-")):
            import minigrid  # noqa: F401  (registers its ids)
        if name.startswith("MiniWorld-"):
            from rapid_wrappers.envs.headless import import_miniworld

            import_miniworld()  # registers its ids
        if video_folder is None:
            env = gym.make(env_id, **kwargs)
        else:
            env = gym.make(env_id, **kwargs, render_mode="rgb_array")
            with warnings.catch_warnings():  # the async engine makes this environment twice
                warnings.filterwarnings("ignore", ".*Overwriting existing videos")
                env = gym.wrappers.RecordVideo(env, video_folder)
        return _AsDeclared(wrap_env(env))

    return thunk


class _AsDeclared(gym.Wrapper):
    """Copies observations, checks that they fit their space, and turns reward and end flags into plain numbers.

    Some environments overwrite the observation they returned, or return flags in arrays. Worker processes hand
    observations over in the dtype of the space, whatever they lose by it.
    """

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self._spaces = RecordedSpaces(env.observation_space, None)

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(**kwargs)
        return self._spaces.as_recorded("observation", obs), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, *outcome, info = self.env.step(action)
        reward, terminated, truncated = (np.asarray(value).item() for value in outcome)
        return self._spaces.as_recorded("observation", obs), reward, bool(terminated), bool(truncated), info


def choose_engine(args: Any, wrap_env: WrapEnv) -> tuple[str, str]:
    """Check the environment by making one, and choose the engine.

    Returns:
        The engine, and a remark on it for the run's first line.

    Raises:
        ValueError: If the engine asked for cannot run this environment.
        Exception: Any that making or resetting the environment raises.
    """
    has_native = args.env_id.startswith(_NATIVE)
    if args.engine == "native" and not has_native:
        raise ValueError("expected `engine` to be sync or async: only rapid/MultiRoom and rapid/KeyCorridor are native")
    if args.engine == "native" and args.capture_video:
        raise ValueError("expected `engine` to be sync or async with `capture_video`")
    remark = ""
    env = make_env(args.env_id, wrap_env)()
    try:
        if has_native and args.engine in (None, "native") and not args.capture_video:
            try:
                import rapid_wrappers.envs.native  # noqa: F401

                return "native", ""
            except ImportError as error:
                if args.engine == "native":
                    raise
                remark = f" ({error}; it is many times as fast)"
        _, info = env.reset(seed=args.seed)
        score_info = getattr(args, "score_info", None)
        if score_info is not None and score_info not in info:
            raise ValueError(f"expected `score_info` to be one of {sorted(info)}, got {score_info!r}")
        disturbed = args.num_envs > 1 and _shares_display_list(env)
        if args.engine == "sync" and disturbed:
            raise ValueError(
                "expected `engine` to be async: MiniWorld's environments disturb each other in one process"
            )
        return args.engine or ("async" if disturbed else "sync"), remark
    finally:
        env.close()


def _shares_display_list(env: gym.Env) -> bool:
    from rapid_wrappers.envs.headless import shares_display_list

    return shares_display_list(env)


def make_envs(
    env_id: str, wrap_env: WrapEnv, num_envs: int, engine: str, *, video_folder: str | None = None
) -> VectorEnv:
    """Environments that restart in the step that ends an episode, so that each row of a rollout is a real step.

    Args:
        env_id: Id of the environments.
        wrap_env: As of :func:`make_env`.
        num_envs: Number of environments.
        engine: ``"native"``, ``"sync"`` or ``"async"``.
        video_folder: Where to record videos of the first one, if at all.
    """
    mode = AutoresetMode.SAME_STEP
    if engine == "native":
        return gym.make_vec(env_id, num_envs, "vector_entry_point", autoreset_mode=mode)
    thunks = [make_env(env_id, wrap_env, video_folder=video_folder if i == 0 else None) for i in range(num_envs)]
    if engine == "sync":
        return SyncVectorEnv(thunks, autoreset_mode=mode)
    context = "spawn" if "pyglet" in sys.modules else None  # OpenGL does not survive a fork
    return AsyncVectorEnv(thunks, context=context, autoreset_mode=mode)


def make_eval_envs(env_id: str, wrap_env: WrapEnv, num_envs: int, engine: str) -> VectorEnv:
    """Environments for evaluations, all in this process; only one where several would disturb each other."""
    return make_envs(env_id, wrap_env, *((1, "sync") if engine == "async" else (num_envs, engine)))


def draw_without_display(render: bool) -> None:
    """Have MiniWorld, and MuJoCo if it is to ``render``, draw through EGL if there is no display."""
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        os.environ.setdefault("PYGLET_HEADLESS", "true")
        if render:
            os.environ.setdefault("MUJOCO_GL", "egl")
