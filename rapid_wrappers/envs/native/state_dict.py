"""Checks of a saved state, before compiled code, which checks no index, works on it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rapid_wrappers.envs.native.constants import COLOR, COLORS, GOAL, LOCKED, STATE, TYPE
from rapid_wrappers.envs.native.world import Task

__all__ = ["check_state"]


def check_state(state: Any, expected: dict[str, NDArray], task: Task) -> dict[str, NDArray]:
    """Check the keys, dtypes, shapes and index ranges of a saved state.

    Args:
        state: What the caller wants to load.
        expected: A state of the environments that are to load it.
        task: Their task.

    Returns:
        The arrays of ``state``.

    Raises:
        ValueError: If ``state`` is not of the form of ``expected``, or an index in it is out of range.
    """
    if not isinstance(state, dict) or set(state) != set(expected):
        raise ValueError(f"expected `state` to be a dictionary with the keys {sorted(expected)}, got {state!r:.200}")
    arrays = {name: np.asarray(value) for name, value in state.items()}
    for name, array in expected.items():
        given = arrays[name]
        if given.dtype != array.dtype or given.shape != array.shape:
            raise ValueError(
                f"expected `{name}` to be {array.shape} of {array.dtype}, got {given.shape} of {given.dtype}"
            )
    ready = arrays["ready"]  # the others have no level yet
    for name, valid in (
        ("grid", _are_cells(arrays["grid"][ready])),
        ("carrying", _are_cells(arrays["carrying"][ready])),
        ("agent_pos", _is_within(arrays["agent_pos"][ready], (task.width, task.height))),
        ("agent_dir", _is_within(arrays["agent_dir"], 4)),
        ("rng", _is_within(arrays["rng"][:, -1], 2**32)),  # half a draw, which becomes a position
    ):
        if not valid:
            raise ValueError(
                f"expected `{name}` to fit this task, got values out of range: load a state of the same task"
            )
    return arrays


def _are_cells(cells: NDArray[np.uint8]) -> bool:
    """Whether type, colour and state, the last axis of ``(..., 3)``, are MiniGrid's numbers."""
    bounds = np.zeros(3, np.int64)
    bounds[[TYPE, COLOR, STATE]] = GOAL + 1, len(COLORS), LOCKED + 1
    return _is_within(cells, bounds)


def _is_within(indices: NDArray, bounds: Any) -> bool:
    return bool(((indices >= 0) & (indices < bounds)).all())
