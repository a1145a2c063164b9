"""Which observation and action spaces the wrappers support, and in which dtype and shape they record them."""

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

__all__ = ["RecordedSpaces"]

_ACTION_SPACES = (spaces.Discrete, spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)
_OBSERVATION_SPACES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class RecordedSpaces:
    """The observations and actions of one environment, as episodes record them.

    Args:
        observation_space: Box, Discrete, MultiDiscrete or MultiBinary, of one environment (not batched).
        action_space: Box, Discrete, MultiDiscrete or MultiBinary, of one environment.

    Raises:
        TypeError: If a space is of another kind.
    """

    def __init__(self, observation_space: spaces.Space, action_space: spaces.Space) -> None:
        if not isinstance(observation_space, _OBSERVATION_SPACES):
            raise TypeError(
                f"expected array observations, got {observation_space}: select one entry (of MiniGrid's, with "
                "minigrid.wrappers.ImgObsWrapper; of others, with gymnasium.wrappers.TransformObservation, or for a "
                "vector environment gymnasium.wrappers.vector.TransformObservation) or flatten all entries with "
                "FlattenObservation"
            )
        if not isinstance(action_space, _ACTION_SPACES):
            raise TypeError(
                "expected a Discrete, Box, MultiDiscrete or MultiBinary action space, "
                f"got {action_space}: convert it with gymnasium.wrappers.TransformAction"
            )
        # Kept here because every step needs them, and looking them up through a stack of wrappers is slow.
        self._dtypes_and_shapes = {
            name: (np.dtype(space.dtype), space.shape or ())
            for name, space in (("observation", observation_space), ("action", action_space))
        }

    def dtype_and_shape(self, name: str) -> tuple[np.dtype, tuple[int, ...]]:
        """Dtype and shape of one ``"observation"`` or ``"action"``."""
        return self._dtypes_and_shapes[name]

    def as_recorded(self, name: str, value: Any, batch: tuple[int, ...] = ()) -> NDArray:
        """Copy ``value`` in the dtype and shape of its space.

        Args:
            name: ``"observation"`` or ``"action"``.
            value: One of them, or a batch. Its dtype may differ if no value changes, and so may axes of length 1.
            batch: Shape in front of the space's, ``(num_envs,)`` for a batch.

        Returns:
            A copy of shape ``(*batch, *space.shape)``.

        Raises:
            ValueError: If it does not fit.
        """
        dtype, shape = self._dtypes_and_shapes[name]
        shape = batch + shape
        array = np.array(np.asarray(value))  # in two steps: torch tensors do not support `copy=True`
        if array.dtype != dtype:
            with np.errstate(invalid="ignore"):  # NaN becomes some integer, which differs from it
                fits = array.dtype.kind in "biuf" and (dtype.kind == "f" or np.array_equal(array, array.astype(dtype)))
            if not fits:
                raise ValueError(f"expected each {name} to fit the dtype {dtype} of its space, got {value!r}")
            array = array.astype(dtype)
        if array.shape != shape:
            if [n for n in array.shape if n != 1] != [n for n in shape if n != 1]:  # (N, 1) and (N,) are both right
                raise ValueError(f"expected each {name} of shape {shape}, the shape of its space, got {array.shape}")
            array = array.reshape(shape)
        return array
