"""The world of one environment, and the steps that all level generators share.

Sources: MiniGrid's ``grid.py`` and ``minigrid_env.py``.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rapid_wrappers.envs.native.constants import COLOR, COLORS, EMPTY, GREY, STATE, TYPE, WALL
from rapid_wrappers.envs.native.jit import njit
from rapid_wrappers.envs.native.rng import RNG_SIZE, rand_int

__all__ = [
    "MAX_SIZE", "WORLD", "Task", "clear", "find_empty", "place_agent", "rand_color", "set_cell", "wall_rect",
]  # fmt: skip

MAX_SIZE = 25
"""Width and height of the grid in memory. Around a smaller level lie walls, as in MiniGrid's view of the outside."""
WORLD = np.dtype(
    [
        ("rng", np.uint64, (RNG_SIZE,)),
        ("agent_pos", np.int64, (2,)),
        ("agent_dir", np.int64),
        ("step_count", np.int64),
        ("carrying", np.uint8, (3,)),  # a cell; EMPTY means nothing
        ("grid", np.uint8, (MAX_SIZE, MAX_SIZE, 3)),  # [x, y], in the order of `Grid.encode`
    ],
    align=True,
)


class Task(NamedTuple):
    """One MiniGrid environment: how it differs from the common rules."""

    generate: Callable[..., bool]
    """``generate(world, *parameters)``, compiled, draws a new level from ``world.rng`` as ``_gen_grid`` does. It
    returns False if it has not found one yet, so that a long search can be interrupted; call it again then."""
    parameters: tuple[int, ...]
    width: int
    height: int
    max_steps: int
    target: int
    """Type of the object whose pickup ends the episode with a reward; ``UNSEEN`` for none. A goal always ends it."""
    reference: Callable[..., Any]
    """``reference(**kwargs)`` makes MiniGrid's own environment."""


@njit
def set_cell(world, x, y, type, color=0, state=0):
    """``Grid.set``."""
    world.grid[x, y, TYPE] = type
    world.grid[x, y, COLOR] = color
    world.grid[x, y, STATE] = state


@njit
def clear(world, width, height):
    """Empty a grid of this size; the agent carries nothing and has no position yet."""
    for x in range(MAX_SIZE):
        for y in range(MAX_SIZE):
            if x < width and y < height:
                set_cell(world, x, y, EMPTY)
            else:
                set_cell(world, x, y, WALL, GREY)
    world.carrying[:] = (EMPTY, 0, 0)
    world.step_count = 0
    world.agent_pos[:] = -1


@njit
def wall_rect(world, x, y, width, height):
    """``Grid.wall_rect``."""
    for i in range(width):
        set_cell(world, x + i, y, WALL, GREY)
        set_cell(world, x + i, y + height - 1, WALL, GREY)
    for j in range(height):
        set_cell(world, x, y + j, WALL, GREY)
        set_cell(world, x + width - 1, y + j, WALL, GREY)


@njit
def rand_color(world):
    """``MiniGridEnv._rand_color``."""
    return COLORS[rand_int(world.rng, 0, len(COLORS))]


@njit
def find_empty(world, x, y, width, height, distance=1):
    """Search as ``MiniGridEnv.place_obj``: an empty cell of a room, at least ``distance`` steps from the agent."""
    while True:
        pos_x = rand_int(world.rng, x, x + width)
        pos_y = rand_int(world.rng, y, y + height)
        steps = abs(world.agent_pos[0] - pos_x) + abs(world.agent_pos[1] - pos_y)
        if world.grid[pos_x, pos_y, TYPE] == EMPTY and steps >= distance:
            return pos_x, pos_y


@njit
def place_agent(world, x, y, width, height):
    """``MiniGridEnv.place_agent``."""
    world.agent_pos[:] = -1
    world.agent_pos[:] = find_empty(world, x, y, width, height)
    world.agent_dir = rand_int(world.rng, 0, 4)
