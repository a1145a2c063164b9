"""Observations and actions in the form that a script's network takes; each script picks two of these functions."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

__all__ = [
    "array_observations",
    "continuous_actions",
    "discrete_actions",
    "flat_observations",
    "image_observations",
    "is_minigrid",
    "is_minigrid_view",
]


def is_minigrid(env: gym.Env) -> bool:
    """Whether the environment is one of MiniGrid's, or derived from one."""
    return any(cls.__module__.split(".")[0] == "minigrid" for cls in type(env.unwrapped).__mro__)


def is_minigrid_view(env_id: str, space: spaces.Space) -> bool:
    """Whether observations of this space are MiniGrid's codes (type, colour, state), not pixels drawn of them."""
    shape = space.shape or ()
    if len(shape) != 3 or max(shape) >= 32:
        return False
    env = gym.make(env_id)
    try:
        return is_minigrid(env)
    finally:
        env.close()


def array_observations(env: gym.Env) -> gym.Env:
    """Take MiniGrid's view out of its dictionary; check that other observations are arrays.

    Raises:
        TypeError: If they are not.
    """
    if is_minigrid(env) and isinstance(env.observation_space, spaces.Dict):
        from minigrid.wrappers import ImgObsWrapper

        env = ImgObsWrapper(env)
    space = env.observation_space
    if not isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        raise TypeError(f"expected array observations, got {space}: select one entry with "
                        "gymnasium.wrappers.TransformObservation, or flatten all with FlattenObservation")  # fmt: skip
    return env


def flat_observations(env: gym.Env) -> gym.Env:
    """Flatten observations that are no array.

    Raises:
        TypeError: If they have no fixed size, as in a Sequence or a Graph.
    """
    if isinstance(env.observation_space, spaces.Box):
        return env
    flat = gym.wrappers.FlattenObservation(env)
    if not isinstance(flat.observation_space, spaces.Box):
        raise TypeError(f"expected observations that flatten to one array, got {env.observation_space}: make an array "
                        "of them with gymnasium.wrappers.TransformObservation")  # fmt: skip
    return flat


def image_observations(env: gym.Env) -> gym.Env:
    """Draw MiniGrid in pixels; check that observations are images, uint8 (height, width, channels), of at least 36x36.

    Raises:
        TypeError: If they are no uint8 arrays.
        ValueError: If their shape is no image's, or, at a reset, if an observation does not fit its space.
    """
    if is_minigrid(env) and isinstance(env.observation_space, spaces.Dict):
        from minigrid.wrappers import ImgObsWrapper, RGBImgPartialObsWrapper

        env = ImgObsWrapper(RGBImgPartialObsWrapper(env))
    space = env.observation_space
    _check_images(space)

    def check(obs: Any) -> NDArray:
        image: NDArray = np.asarray(obs)
        if image.shape != space.shape or image.dtype != space.dtype:
            raise ValueError(f"expected observations of {space.dtype} of shape {space.shape}, as their space says, got "
                             f"{image.dtype} of shape {image.shape}")  # fmt: skip
        return image

    return gym.wrappers.TransformObservation(env, check, space)


def _check_images(space: spaces.Space) -> None:
    """Refuse what the network does not take, and name the remedy."""
    shape = space.shape or ()
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8:
        raise TypeError(f"expected observations to be a Box of uint8 images, got {space}: gymnasium.wrappers."
                        "TransformObservation(env, function, space) scales floats, (255 * x).astype(np.uint8), or "
                        "selects the entry of a Dict (MiniGrid: RGBImgPartialObsWrapper, ImgObsWrapper)")  # fmt: skip
    if len(shape) == 2:
        raise ValueError(f"expected images (height, width, channels), got {shape}: add a channel, "
                         "x[..., None], with gymnasium.wrappers.TransformObservation(env, function, space), for Atari "
                         "with AtariPreprocessing(..., grayscale_newaxis=True)")  # fmt: skip
    if len(shape) != 3 or shape[0] < min(shape[1:]) or shape[2] == 0:
        raise ValueError(f"expected images (height, width, channels), got {shape}: move the channels of stacked or "
                         "channel-first images to the end with "
                         "gymnasium.wrappers.TransformObservation(env, function, space)")  # fmt: skip
    if min(shape[:2]) < 36:
        raise ValueError(f"expected images of at least 36 x 36 pixels, got {shape}: MiniGrid's codes are for "
                         "ppo_rapid.py, or drawn by minigrid.wrappers.RGBImgPartialObsWrapper; small images are "
                         "enlarged by gymnasium.wrappers.ResizeObservation (it needs opencv-python)")  # fmt: skip


def discrete_actions(env: gym.Env) -> gym.Env:
    """Check that actions are discrete, and count them from 0.

    Raises:
        TypeError: If they are not.
    """
    space = env.action_space
    if not isinstance(space, spaces.Discrete):
        raise TypeError("expected a Discrete action space (continuous actions: ppo_rapid_continuous_action.py), "
                        f"got {space}")  # fmt: skip
    if space.start == 0:
        return env
    start = space.start
    return gym.wrappers.TransformAction(env, lambda action: action + start, spaces.Discrete(space.n))


def continuous_actions(env: gym.Env) -> gym.Env:
    """Check that actions are floats, and clip them to their box: the wrappers outside record them unclipped.

    Raises:
        TypeError: If they are not.
    """
    space = env.action_space
    if not isinstance(space, spaces.Box) or np.dtype(space.dtype).kind != "f":
        raise TypeError(f"expected a Box action space of floats (discrete actions: ppo_rapid.py), got {space}")
    return gym.wrappers.ClipAction(env)
