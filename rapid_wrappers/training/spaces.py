"""Observations and actions in the form that a script's network takes; each script picks two of these functions.

They take a single environment, or one that is vectorized by itself.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from rapid_wrappers.counts import image_axes
from rapid_wrappers.training.environments import make_env
from rapid_wrappers.training.minigrid_codes import VIEW, MiniGridCodes, is_minigrid
from rapid_wrappers.training.vector_engine import TransformEach

__all__ = [
    "action_sizes",
    "code_sizes",
    "continuous_actions",
    "discrete_actions",
    "flat_observations",
    "image_observations",
    "scored_info",
]

_SMALLEST = 36  # height and width that the convolutions take


def flat_observations(env: Any, args: Any, codes: bool = False) -> Any:
    """Bring observations into one array of numbers, or of codes.

    A Dict or a Tuple is flattened in Gymnasium's order: its Discrete and MultiDiscrete entries one-hot, its texts by
    the code of each character. Of MiniGrid's observation only the view is kept, and what ``args`` add to it.

    Args:
        env: The environment.
        args: The script's arguments, of which ``one_hot``, ``direction`` and ``mission`` are about MiniGrid.
        codes: Whether to keep Discrete and MultiDiscrete observations as codes from 0, for a network that makes them
            one-hot itself. Otherwise they become one-hot here.

    Raises:
        TypeError: If they are images, or have no fixed size, as in a Sequence or a Graph.
        ValueError: If ``direction`` or ``mission`` are asked for where there are none.
    """
    direction, mission = getattr(args, "direction", False), getattr(args, "mission", False)
    one_hot = getattr(args, "one_hot", False)
    if is_minigrid(env):
        space = _space_of(env)
        view = space["image"] if isinstance(space, spaces.Dict) else space
        _refuse_images(view)
        if one_hot and (isinstance(space, spaces.Dict) or len(view.shape or ()) == 3):
            return MiniGridCodes(env, direction, mission)
        if isinstance(space, spaces.Dict):
            env = gym.wrappers.TransformObservation(env, lambda observation: observation["image"], view)
            env.left_out = ("direction", "mission")
    if direction or mission:
        raise ValueError("expected `direction` and `mission` only for MiniGrid's view, with `one_hot`")
    space = _space_of(env)
    _refuse_images(space)
    if codes and isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        start = space.start
        return _transform(env, lambda code: code - start, _from_zero(space)) if np.any(start) else env
    if isinstance(space, spaces.Box):
        return env
    flat = spaces.flatten_space(space) if _flattens(space) else None
    if not isinstance(flat, spaces.Box):
        raise TypeError(f"expected observations that flatten to one array, got {space}: make an array of them with "
                        "gymnasium.wrappers.TransformObservation")  # fmt: skip
    return _transform(env, partial(spaces.flatten, space), flat)


def code_sizes(space: spaces.Space, args: Any) -> list[int] | None:
    """Number of values of each code in an observation, or None if it consists of other numbers.

    Args:
        space: Of one observation, as :func:`flat_observations` brought it into form.
        args: The script's arguments; an environment is made of them to see whether it is one of MiniGrid's.
    """
    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        return [int(size) for size in space.nvec.ravel()]
    shape = space.shape or ()
    if not args.one_hot or len(shape) != 3 or shape[2] != len(VIEW) or args.engine == "vector":
        return None
    env = make_env(args, flat_observations)()
    try:
        return [*VIEW] * (shape[0] * shape[1]) if is_minigrid(env) else None
    finally:
        env.close()


def image_observations(env: Any) -> Any:
    """Bring images into the form (height, width, channels), and draw MiniGrid in pixels.

    Height and width are the two longest axes. Grey images get one channel; stacked or channel-first images get all
    other axes as channels. Of a Dict with one image only that is kept.

    Raises:
        TypeError: If observations are no uint8 arrays.
        ValueError: If they are too small, or, at a reset, if an observation does not fit its space.
    """
    space = _space_of(env)
    if is_minigrid(env) and isinstance(space, spaces.Dict) and not _is_image(space["image"]):
        from minigrid.wrappers import RGBImgPartialObsWrapper

        env = RGBImgPartialObsWrapper(env)
        space = env.observation_space
    if isinstance(space, spaces.Dict):
        images = [name for name, entry in space.items() if _is_image(entry)]
        if len(images) == 1:
            (name,) = images
            left_out = tuple(other for other in space if other != name)
            env, space = _transform(env, lambda observation: observation[name], space[name]), space[name]
            env.left_out = left_out
    height, width = _check_images(space)
    shape = space.shape
    channels = int(np.prod(shape)) // (shape[height] * shape[width])
    form = (shape[height], shape[width], channels)

    def arrange(obs: Any) -> NDArray:
        image: NDArray = np.asarray(obs)
        if image.shape != shape or image.dtype != space.dtype:
            raise ValueError(f"expected observations of {space.dtype} of shape {shape}, as their space says, got "
                             f"{image.dtype} of shape {image.shape}")  # fmt: skip
        return np.moveaxis(image, (height, width), (0, 1)).reshape(form)

    return _transform(env, arrange, spaces.Box(0, 255, form, np.uint8))


def discrete_actions(env: Any) -> Any:
    """Check that actions are discrete, and count them from 0.

    Raises:
        TypeError: If they are not.
    """
    space: Any = _actions_of(env)
    if not isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        raise TypeError("expected a Discrete, MultiDiscrete or MultiBinary action space (continuous actions: "
                        f"ppo_rapid_continuous_action.py), got {space}")  # fmt: skip
    start = getattr(space, "start", 0)
    if not np.any(start):
        return env
    return _transform_actions(env, lambda action: action + start, _from_zero(space))


def action_sizes(space: spaces.Space) -> list[int]:
    """Number of choices of each action, of a space that :func:`discrete_actions` takes."""
    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        return [int(size) for size in space.nvec.ravel()]
    return [2] * int(np.prod(space.shape or ()))


def continuous_actions(env: Any) -> Any:
    """Check that actions are floats, and clip them to their box: the wrappers outside record them unclipped.

    Raises:
        TypeError: If they are not.
    """
    space = _actions_of(env)
    if not isinstance(space, spaces.Box) or np.dtype(space.dtype).kind != "f":
        raise TypeError(f"expected a Box action space of floats (discrete actions: ppo_rapid.py), got {space}")
    return gym.wrappers.vector.ClipAction(env) if isinstance(env, VectorEnv) else gym.wrappers.ClipAction(env)


def scored_info(args: Any) -> Callable[[Any, dict[str, Any]], Any] | None:
    """The ``state`` of a scoring wrapper: the entry ``args.score_info`` of the infos, or None to score observations."""
    name = args.score_info
    return None if name is None else lambda observations, infos: infos[name]


def _space_of(env: Any) -> Any:
    return env.single_observation_space if isinstance(env, VectorEnv) else env.observation_space


def _actions_of(env: Any) -> Any:
    return env.single_action_space if isinstance(env, VectorEnv) else env.action_space


def _transform(env: Any, function: Callable[[Any], Any], space: spaces.Space) -> Any:
    wrapper: Any = TransformEach if isinstance(env, VectorEnv) else gym.wrappers.TransformObservation
    return wrapper(env, function, space)


def _transform_actions(env: Any, function: Callable[[Any], Any], space: spaces.Space) -> Any:
    wrapper = gym.wrappers.TransformAction
    if isinstance(env, VectorEnv):
        return gym.wrappers.vector.VectorizeTransformAction(env, wrapper, func=function, action_space=space)
    return wrapper(env, function, space)


def _from_zero(space: Any) -> spaces.Space:
    """A Discrete or MultiDiscrete space without its ``start``."""
    return spaces.Discrete(space.n) if isinstance(space, spaces.Discrete) else spaces.MultiDiscrete(space.nvec)


def _flattens(space: spaces.Space) -> bool:
    try:
        return space.is_np_flattenable and spaces.flatdim(space) > 0
    except (NotImplementedError, ValueError):  # a space of somebody's own, or without a fixed size
        return False


def _is_image(space: spaces.Space) -> bool:
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and image_axes(space.shape) is not None


def _refuse_images(space: spaces.Space, where: str = "observations") -> None:
    """Raise a TypeError if the space is an image, or has one in it."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for name, entry in dict(space.items() if isinstance(space, spaces.Dict) else enumerate(space)).items():
            _refuse_images(entry, f"entry {name!r}")
    elif (
        isinstance(space, spaces.Box) and image_axes(space.shape) and (space.dtype == np.uint8 or len(space.shape) == 3)
    ):
        remedy = "ppo_rapid_cnn.py takes images"
        if where != "observations":
            remedy = f"gymnasium.wrappers.FilterObservation leaves entries out, and {remedy} alone"
        raise TypeError(f"expected {where} other than images, got {space.dtype} of shape {space.shape}: {remedy}")


def _check_images(space: spaces.Space) -> tuple[int, int]:
    """The axes of height and width. What the network does not take is refused, with the remedy."""
    shape = space.shape or ()
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8:
        raise TypeError(f"expected observations to be a Box of uint8 images, got {space}: gymnasium.wrappers."
                        "TransformObservation(env, function, space) scales floats, (255 * x).astype(np.uint8), or "
                        "selects one of several images of a Dict")  # fmt: skip
    axes = image_axes(shape)
    if axes is None or min(shape[axis] for axis in axes) < _SMALLEST or 0 in shape:
        raise ValueError(f"expected images of at least {_SMALLEST} x {_SMALLEST} pixels, got {shape}: MiniGrid's codes "
                         "are for ppo_rapid.py, or drawn by minigrid.wrappers.RGBImgPartialObsWrapper; small images "
                         "are enlarged by gymnasium.wrappers.ResizeObservation (it needs opencv-python)")  # fmt: skip
    return axes
