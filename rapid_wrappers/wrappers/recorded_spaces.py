"""Which observation and action spaces the wrappers record, and in which dtypes and shapes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

__all__ = ["ArrayForm", "RecordedSpaces", "is_array_space"]


def is_array_space(space: spaces.Space) -> bool:
    """Whether elements of ``space`` are arrays of a fixed shape."""
    return isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary)


@dataclass(frozen=True)
class ArrayForm:
    """What an array has to look like."""

    name: str
    """How error messages call it, such as ``"observation['image']"``."""
    dtype: np.dtype
    shape: tuple[int, ...]
    """Of one observation or action, without the axes of a batch."""

    def copy(self, value: Any, batch: tuple[int, ...]) -> NDArray:
        """Copy ``value``, as in :meth:`RecordedSpaces.as_recorded`."""
        shape = batch + self.shape
        array = np.array(np.asarray(value))  # in two steps: torch tensors do not support `copy=True`
        if array.dtype != self.dtype:
            with np.errstate(invalid="ignore"):  # NaN becomes some integer, which differs from it
                fits = array.dtype.kind in "biuf" and (
                    self.dtype.kind == "f" or np.array_equal(array, array.astype(self.dtype))
                )
            if not fits:
                raise ValueError(f"expected each {self.name} to fit the dtype {self.dtype} of its space, got {value!r}")
            array = array.astype(self.dtype)
        if array.shape != shape:
            if [n for n in array.shape if n != 1] != [n for n in shape if n != 1]:  # (N, 1) and (N,) are both right
                raise ValueError(
                    f"expected each {self.name} of shape {shape}, the shape of its space, got {array.shape}"
                )
            array = array.reshape(shape)
        return array


def _form_of(space: spaces.Space, name: str) -> Any:
    """The forms of the arrays of a ``space``, nested as it is. It holds no other spaces than array spaces."""
    if isinstance(space, spaces.Dict):
        return {key: _form_of(entry, f"{name}[{key!r}]") for key, entry in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_form_of(entry, f"{name}[{key}]") for key, entry in enumerate(space))
    return ArrayForm(name, np.dtype(space.dtype), space.shape or ())


class RecordedSpaces:
    """The observations and actions of one environment, as episodes record them.

    Args:
        observation_space: Box, Discrete, MultiDiscrete or MultiBinary, or Dict and Tuple of these, as deep as they go,
            of one environment (not batched). None if observations are not recorded.
        action_space: Box, Discrete, MultiDiscrete or MultiBinary, of one environment. None if actions are not recorded.
        wrappers: Module of the wrappers that error messages name.

    Raises:
        TypeError: If a space is of another kind. The message names the wrapper that makes it one of these.
    """

    def __init__(
        self,
        observation_space: spaces.Space | None,
        action_space: spaces.Space | None,
        wrappers: str = "gymnasium.wrappers",
    ) -> None:
        self.forms: dict[str, Any] = {}
        """Nested :class:`ArrayForm` by name, ``"observation"`` and ``"action"``."""
        if observation_space is not None:
            _check_arrays(observation_space, wrappers)
            self.forms["observation"] = _form_of(observation_space, "observation")
        if action_space is not None:
            if not is_array_space(action_space):
                raise TypeError(
                    "expected a Discrete, Box, MultiDiscrete or MultiBinary action space, "
                    f"got {action_space}: convert it with {wrappers}.TransformAction"
                )
            self.forms["action"] = _form_of(action_space, "action")

    def as_recorded(self, name: str, value: Any, batch: tuple[int, ...] = ()) -> Any:
        """Copy ``value`` in the dtypes and shapes of its space.

        Args:
            name: ``"observation"`` or ``"action"``.
            value: One of them, or a batch. Its dtype may differ if no value changes, and so may axes of length 1.
                Entries that the space does not have are left out.
            batch: Shape in front of the space's, ``(num_envs,)`` for a batch.

        Returns:
            A copy of shape ``(*batch, *space.shape)``, nested as the space is.

        Raises:
            ValueError: If it does not fit.
        """
        form = self.forms[name]
        return form.copy(value, batch) if isinstance(form, ArrayForm) else _copy(form, value, batch, name)


def _copy(form: Any, value: Any, batch: tuple[int, ...], name: str) -> Any:
    if isinstance(form, ArrayForm):
        return form.copy(value, batch)
    if isinstance(form, dict):
        if not isinstance(value, Mapping) or not form.keys() <= value.keys():
            raise ValueError(f"expected each {name} to have the entries {list(form)} of its space, got {value!r:.200}")
        return {key: _copy(entry, value[key], batch, f"{name}[{key!r}]") for key, entry in form.items()}
    if not isinstance(value, tuple | list) or len(value) != len(form):
        raise ValueError(f"expected each {name} to be a tuple of {len(form)} entries, as its space, got {value!r:.200}")
    entries = enumerate(zip(form, value, strict=True))
    return tuple(_copy(entry, given, batch, f"{name}[{key}]") for key, (entry, given) in entries)


def _check_arrays(space: spaces.Space, wrappers: str) -> None:
    """Raise a TypeError that names the remedy, if observations of ``space`` are no (nested) arrays."""
    if _has_arrays_only(space):
        return
    remedies = []
    if isinstance(space, spaces.Dict | spaces.Tuple):
        entries = dict(space.items() if isinstance(space, spaces.Dict) else enumerate(space))
        usable = [key for key, entry in entries.items() if _has_arrays_only(entry)]
        if usable:
            remedies.append(f"keep the others with {wrappers}.FilterObservation(env, {usable})")
    if _flattens(space):
        remedies.append(f"make one array of all with {wrappers}.FlattenObservation(env)")
    if not remedies:
        remedies.append(f"make arrays of them with {wrappers}.TransformObservation")
    raise TypeError(
        f"expected observations that are arrays, or a Dict or Tuple of arrays, got {space}: {', or '.join(remedies)}. "
        "Without records, any space will do: record=False and a function as `state`"
    )


def _flattens(space: spaces.Space) -> bool:
    try:
        return space.is_np_flattenable and spaces.flatdim(space) > 0
    except NotImplementedError:  # a space of somebody's own, such as MiniGrid's missions
        return False


def _has_arrays_only(space: spaces.Space) -> bool:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        entries = space.values() if isinstance(space, spaces.Dict) else space
        return len(space) > 0 and all(map(_has_arrays_only, entries))
    return is_array_space(space)
