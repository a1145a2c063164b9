"""Environments by id and engine: in this process, in worker processes, compiled, or vectorized by themselves."""

import os
import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from numpy.typing import NDArray

from rapid_wrappers.episode import map_arrays
from rapid_wrappers.training.signals import ignore_signals_in_workers
from rapid_wrappers.training.user_code import load_wrapper, parse_keywords
from rapid_wrappers.training.vector_engine import make_vector
from rapid_wrappers.wrappers.recorded_spaces import RecordedSpaces

__all__ = ["Choice", "choose_engine", "draw_without_display", "make_env", "make_envs", "make_eval_envs"]

WrapEnv = Callable[[Any, Any], Any]
"""A script's function that brings observations and actions of ``env`` into the form of its network, by ``args``."""

_NATIVE = ("rapid/MultiRoom-", "rapid/KeyCorridor")


class Choice(NamedTuple):
    """The engine, and what was learnt of the environment."""

    engine: str
    remark: str
    """Why it is not the native one, to print."""
    left_out: tuple[str, ...]
    """Parts of MiniGrid's observation that the agent does not see."""
    max_steps: int | None
    """Longest episode, where it is known."""


def make_env(args: Any, wrap_env: WrapEnv, *, video_folder: str | None = None, **kwargs: Any) -> Callable[[], Any]:
    """A function that makes the environment, in a worker process too.

    Args:
        args: The script's arguments; those of :class:`.EnvironmentArgs` say what to make.
        wrap_env: The script's function that brings observations and actions into the form of its network.
        video_folder: Where to record videos, if at all.
        kwargs: More arguments of the environment.

    Raises:
        ImportError: If a wrapper cannot be imported.
        ValueError: If ``env_kwargs`` or ``wrapper`` have another form than theirs.
    """
    kwargs |= parse_keywords(args.env_kwargs)
    for text in args.wrapper:
        load_wrapper(text)
    if args.max_episode_steps is not None:
        kwargs["max_episode_steps"] = args.max_episode_steps
    if video_folder is not None:
        kwargs["render_mode"] = "rgb_array"

    def thunk() -> gym.Env:
        import rapid_wrappers.envs  # noqa: F401  (registers our ids, in a worker too)

        ignore_signals_in_workers()
        name = args.env_id.rpartition(":")[2]
        if name.startswith(("MiniGrid-", "BabyAI-")):
            import minigrid  # noqa: F401  (registers its ids)
        if name.startswith("MiniWorld-"):
            from rapid_wrappers.envs.headless import import_miniworld

            import_miniworld()  # registers its ids
        env = gym.make(args.env_id, **kwargs)
        if video_folder is not None:
            with warnings.catch_warnings():  # the async engine makes this environment twice
                warnings.filterwarnings("ignore", ".*Overwriting existing videos")
                env = gym.wrappers.RecordVideo(env, video_folder)
        for text in args.wrapper:
            env = load_wrapper(text)(env)
        return _AsDeclared(wrap_env(env, args))

    return thunk


class _AsDeclared(gym.Wrapper):
    """Copies observations and checks them against their space; turns reward and end flags into plain numbers.

    Some environments overwrite the observation they returned, or return flags in arrays. Worker processes hand
    observations over in the dtype of the space, whatever they lose by it.
    """

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self._spaces = RecordedSpaces(env.observation_space, None)

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(**kwargs)
        return self._checked(obs), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, *outcome, info = self.env.step(action)
        reward, terminated, truncated = (np.asarray(value).item() for value in outcome)
        return self._checked(obs), reward, bool(terminated), bool(truncated), info

    def _checked(self, obs: Any) -> Any:
        return map_arrays(_finite, self._spaces.as_recorded("observation", obs))


def _finite(array: NDArray) -> NDArray:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"expected finite observations, got {array}: a --wrapper with gymnasium.wrappers."
                         "TransformObservation can replace other numbers, by numpy.nan_to_num or clip")  # fmt: skip
    return array


def choose_engine(args: Any, wrap_env: WrapEnv) -> Choice:
    """Check the environment by making and resetting one, and choose the engine.

    Raises:
        ValueError: If the engine asked for cannot run this environment.
        Exception: Any that making or resetting the environment raises.
    """
    has_native = args.env_id.startswith(_NATIVE)
    changed = bool(args.env_kwargs or args.wrapper or args.max_episode_steps or args.score_info)
    seen = getattr(args, "direction", False) or getattr(args, "mission", False)
    if args.engine == "native" and not has_native:
        raise ValueError("expected `engine` to be sync or async: only rapid/MultiRoom and rapid/KeyCorridor are native")
    if args.engine == "native" and (changed or seen):
        raise ValueError("expected `engine` to be sync or async with `env_kwargs`, `wrapper`, `max_episode_steps`, "
                         "`score_info`, `direction` or `mission`")  # fmt: skip
    if args.engine in ("native", "vector") and args.capture_video:
        raise ValueError("expected `engine` to be sync or async with `capture_video`")
    pool = args.env_id.startswith("envpool:")
    if pool and args.engine not in (None, "vector"):
        raise ValueError("expected `engine` to be vector, the only form of EnvPool's environments")
    if pool or args.engine == "vector":
        return _choose_vector(args, wrap_env)
    remark = ""
    env = make_env(args, wrap_env)()
    try:
        left_out = env.get_wrapper_attr("left_out") if env.has_wrapper_attr("left_out") else ()
        limit = (env.spec.max_episode_steps if env.spec else None) or getattr(env.unwrapped, "max_steps", None)
        if has_native and args.engine in (None, "native") and not (args.capture_video or changed or seen):
            try:
                import rapid_wrappers.envs.native  # noqa: F401

                return Choice("native", "", left_out, limit)
            except ImportError as error:
                if args.engine == "native":
                    raise
                remark = f" ({error}; it is many times as fast)"
        _, info = env.reset(seed=args.seed)
        _check_score_info(args, info)
        disturbed = args.num_envs > 1 and _shares_display_list(env)
        if args.engine == "sync" and disturbed:
            raise ValueError(
                "expected `engine` to be async: MiniWorld's environments disturb each other in one process"
            )
        return Choice(args.engine or ("async" if disturbed else "sync"), remark, left_out, limit)
    finally:
        env.close()


def _choose_vector(args: Any, wrap_env: WrapEnv) -> Choice:
    if args.wrapper:
        raise ValueError("expected `engine` to be sync or async with `wrapper`")
    envs = wrap_env(make_vector(args, 1), args)
    try:
        _, infos = envs.reset(seed=[args.seed])
        _check_score_info(args, infos)
    finally:
        envs.close()
    return Choice("vector", "", getattr(envs, "left_out", ()), args.max_episode_steps)


def _check_score_info(args: Any, info: dict[str, Any]) -> None:
    if args.score_info is not None and args.score_info not in info:
        raise ValueError(f"expected `score_info` to be one of {sorted(info)}, got {args.score_info!r}")


def _shares_display_list(env: gym.Env) -> bool:
    from rapid_wrappers.envs.headless import shares_display_list

    return shares_display_list(env)


def make_envs(
    args: Any, wrap_env: WrapEnv, num_envs: int, engine: str, *, video_folder: str | None = None
) -> VectorEnv:
    """Environments that restart in the step that ends an episode, so that each row of a rollout is a real step.

    Args:
        args: As of :func:`make_env`.
        wrap_env: As of :func:`make_env`.
        num_envs: Number of environments.
        engine: ``"native"``, ``"sync"``, ``"async"`` or ``"vector"``.
        video_folder: Where to record videos of the first one, if at all.
    """
    mode = AutoresetMode.SAME_STEP
    if engine == "native":
        return gym.make_vec(args.env_id, num_envs, "vector_entry_point", autoreset_mode=mode)
    if engine == "vector":
        envs: VectorEnv = wrap_env(make_vector(args, num_envs), args)
        return envs
    thunks = [make_env(args, wrap_env, video_folder=video_folder if i == 0 else None) for i in range(num_envs)]
    if engine == "sync":
        return SyncVectorEnv(thunks, autoreset_mode=mode)
    context = "spawn" if "pyglet" in sys.modules else None  # OpenGL does not survive a fork
    return AsyncVectorEnv(thunks, context=context, autoreset_mode=mode)


def make_eval_envs(args: Any, wrap_env: WrapEnv, num_envs: int, engine: str) -> VectorEnv:
    """Environments for evaluations, all in this process; only one where several would disturb each other."""
    return make_envs(args, wrap_env, *((1, "sync") if engine == "async" else (num_envs, engine)))


def draw_without_display(render: bool) -> None:
    """Have MiniWorld, and MuJoCo if it is to ``render``, draw through EGL if there is no display."""
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        os.environ.setdefault("PYGLET_HEADLESS", "true")
        if render:
            os.environ.setdefault("MUJOCO_GL", "egl")
