"""Observations on their way from Stable-Baselines3's environments to the buffer, and from there to the policy."""

from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import (
    VecCheckNan,
    VecEnv,
    VecEnvWrapper,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
    VecVideoRecorder,
)

from rapid_wrappers.episode import map_arrays

__all__ = ["as_kept", "as_seen", "blank", "innermost", "leaves", "shapes"]


def _wrappers(env: VecEnv) -> list[VecEnvWrapper]:
    """The wrappers around the environments, innermost first."""
    found = []
    while isinstance(env, VecEnvWrapper):
        found.append(env)
        env = env.venv
    return found[::-1]


def innermost(env: VecEnv) -> VecEnv:
    """The environments without wrappers."""
    return _wrappers(env)[0].venv if isinstance(env, VecEnvWrapper) else env


def leaves(tree: Any) -> list[Any]:
    """The arrays or tensors of nested observations."""
    found: list[Any] = []
    map_arrays(found.append, tree)
    return found


def blank(space: spaces.Space) -> Any:
    """One observation of ``space``, as a batch of zeros."""
    if isinstance(space, spaces.Dict):
        return {name: blank(entry) for name, entry in space.items()}
    return np.zeros((1, *(space.shape or ())), space.dtype)


def shapes(observations: Any) -> Any:
    """The shapes of one of the ``observations (N, ...)``."""
    return map_arrays(lambda array: list(np.shape(array)[1:]), observations)


def as_kept(env: VecEnv, observations: Any) -> Any:
    """Bring the observations ``(T, ...)`` of one episode into the form in which the buffer keeps them.

    Frames have to be stacked while the episode is whole; all else is left to :func:`as_seen`.
    """
    wrappers = _wrappers(env)
    for wrapper in wrappers[: _num_kept(wrappers)]:
        if isinstance(wrapper, VecFrameStack):
            observations = _stacked(observations, wrapper.stacked_obs)
        elif isinstance(wrapper, VecNormalize):
            raise ValueError("expected VecNormalize around VecFrameStack, got it inside: the frames of a stack would "
                             "have been normalized by the statistics of other moments")  # fmt: skip
        else:
            observations = _transformed(wrapper, observations)
    return observations


def as_seen(env: VecEnv, observations: Any) -> Any:
    """Bring observations ``(N, ...)`` from the buffer into the form that the policy sees."""
    wrappers = _wrappers(env)
    for wrapper in wrappers[_num_kept(wrappers) :]:
        observations = _transformed(wrapper, observations)
    return observations


def _num_kept(wrappers: list[VecEnvWrapper]) -> int:
    """The number of wrappers, from the innermost, up to the last that stacks frames."""
    return max((i + 1 for i, wrapper in enumerate(wrappers) if isinstance(wrapper, VecFrameStack)), default=0)


def _transformed(wrapper: VecEnvWrapper, observations: Any) -> Any:
    if isinstance(wrapper, VecNormalize):
        return wrapper.normalize_obs(observations)
    if isinstance(wrapper, VecTransposeImage):
        return observations if wrapper.skip else wrapper.transpose_observations(observations)
    if isinstance(wrapper, VecMonitor | VecCheckNan | VecVideoRecorder):
        return observations
    raise ValueError(f"expected no {type(wrapper).__name__} around the environments: change observations in each "
                     "environment, inside the scoring wrapper")  # fmt: skip


def _stacked(frames: Any, of: Any) -> Any:
    """Each of ``frames (T, ...)`` behind those before it, black ones first, as ``StackedObservations`` does."""
    if isinstance(frames, dict):
        return {name: _stacked(entry, of.sub_stacked_observations[name]) for name, entry in frames.items()}
    shifted = [
        np.concatenate([np.zeros_like(frames[:back]), frames[: max(0, len(frames) - back)]])
        for back in reversed(range(of.n_stack))
    ]
    return np.concatenate(shifted, axis=of.stack_dimension)
