"""Levels of MiniGrid's ``KeyCorridorEnv`` (``minigrid/envs/keycorridor.py``, ``minigrid/core/roomgrid.py``)."""

from functools import partial

import numpy as np

from rapid_wrappers.envs.minigrid import key_corridor
from rapid_wrappers.envs.native.constants import (
    BALL,
    CLOSED,
    DIR_TO_VEC,
    DOOR,
    DOWN,
    EMPTY,
    KEY,
    LEFT,
    LOCKED,
    RIGHT,
    TYPE,
    UP,
    WALL,
)
from rapid_wrappers.envs.native.jit import njit
from rapid_wrappers.envs.native.rng import rand_int
from rapid_wrappers.envs.native.world import (
    MAX_SIZE,
    Task,
    clear,
    find_empty,
    place_agent,
    rand_color,
    set_cell,
    wall_rect,
)

__all__ = ["key_corridor_task"]

COLUMNS = 3


def key_corridor_task(room_size: int, num_rows: int) -> Task:
    """Make the task: a corridor between two columns of rooms of ``room_size`` cells a side, shared walls included.

    Raises:
        ValueError: If ``room_size`` or ``num_rows`` is smaller than MiniGrid allows, or the grid is too large.
    """
    width, height = (room_size - 1) * COLUMNS + 1, (room_size - 1) * num_rows + 1
    if room_size < 3 or num_rows < 1 or max(width, height) > MAX_SIZE:
        raise ValueError(
            f"expected `room_size` to be at least 3, `num_rows` at least 1 and the grid at most {MAX_SIZE}x{MAX_SIZE}, "
            f"got {room_size}, {num_rows} and {width}x{height}: for larger grids, pass vectorization_mode='sync'"
        )
    reference = partial(key_corridor, room_size, num_rows)
    return Task(_generate, (room_size, num_rows), width, height, 30 * room_size**2, BALL, reference)


@njit
def _draw_door_positions(rng, size, rows):
    """``RoomGrid._gen_grid``: the place of a possible door, (columns, rows, 4 sides, 2); -1 at the outer walls."""
    positions = np.full((COLUMNS, rows, 4, 2), -1)
    for j in range(rows):
        for i in range(COLUMNS):
            x, y = i * (size - 1), j * (size - 1)
            if i < COLUMNS - 1:
                positions[i, j, RIGHT] = (x + size - 1, rand_int(rng, y + 1, y + size - 1))
                positions[i + 1, j, LEFT] = positions[i, j, RIGHT]
            if j < rows - 1:
                positions[i, j, DOWN] = (rand_int(rng, x + 1, x + size - 1), y + size - 1)
                positions[i, j + 1, UP] = positions[i, j, DOWN]
    return positions


@njit
def _connect(connected, i, j, side):
    """Record a passage for the rooms on both of its sides, ``connected`` (columns, rows, 4 sides)."""
    connected[i, j, side] = True
    connected[i + DIR_TO_VEC[side, 0], j + DIR_TO_VEC[side, 1], (side + 2) % 4] = True


@njit
def _place_object(world, i, j, size, type, color):
    """``RoomGrid.place_in_room``: on an empty cell, but not where the agent provisionally stands or next to it."""
    x, y = find_empty(world, i * (size - 1), j * (size - 1), size, size, 2)
    set_cell(world, x, y, type, color)


@njit
def _place_agent(world, i, j, size):
    """``RoomGrid.place_agent``: facing a wall or an empty cell."""
    while True:
        place_agent(world, i * (size - 1), j * (size - 1), size, size)
        x, y = world.agent_pos + DIR_TO_VEC[world.agent_dir]
        if world.grid[x, y, TYPE] == EMPTY or world.grid[x, y, TYPE] == WALL:
            return


@njit
def _all_reachable(connected, i, j):
    """``find_reach`` in ``RoomGrid.connect_all``: whether passages lead from room (i, j) to all others."""
    rows = connected.shape[1]
    reached = np.zeros((COLUMNS, rows), np.bool_)
    reached[i, j] = True
    for _ in range(COLUMNS * rows):
        for i in range(COLUMNS):
            for j in range(rows):
                for side in range(4):
                    if reached[i, j] and connected[i, j, side]:
                        reached[i + DIR_TO_VEC[side, 0], j + DIR_TO_VEC[side, 1]] = True
    return reached.all()


@njit
def _connect_all(world, size, positions, connected, locked_row):
    """``RoomGrid.connect_all``: add random doors, none to the locked room, until every room can be reached.

    MiniGrid gives up after 5000 tries here, and after 1000 for each object; these limits are never reached.
    """
    rows = connected.shape[1]
    start_i, start_j = world.agent_pos // (size - 1)
    while not _all_reachable(connected, start_i, start_j):
        i = rand_int(world.rng, 0, COLUMNS)
        j = rand_int(world.rng, 0, rows)
        side = rand_int(world.rng, 0, 4)
        x, y = positions[i, j, side]
        if x < 0 or connected[i, j, side]:
            continue
        beyond_i, beyond_j = i + DIR_TO_VEC[side, 0], j + DIR_TO_VEC[side, 1]
        if (i == 2 and j == locked_row) or (beyond_i == 2 and beyond_j == locked_row):
            continue
        set_cell(world, x, y, DOOR, rand_color(world), CLOSED)
        _connect(connected, i, j, side)


@njit
def _generate(world, size, rows):
    """``KeyCorridorEnv._gen_grid``."""
    clear(world, (size - 1) * COLUMNS + 1, (size - 1) * rows + 1)
    for j in range(rows):
        for i in range(COLUMNS):
            wall_rect(world, i * (size - 1), j * (size - 1), size, size)
    positions = _draw_door_positions(world.rng, size, rows)
    connected = np.zeros((COLUMNS, rows, 4), np.bool_)
    world.agent_pos[0] = (COLUMNS // 2) * (size - 1) + size // 2  # provisional, until `_place_agent`
    world.agent_pos[1] = (rows // 2) * (size - 1) + size // 2
    for j in range(1, rows):  # the rooms in the middle become a corridor
        for i in range(1, size - 1):
            set_cell(world, size - 1 + i, j * (size - 1), EMPTY)
        _connect(connected, 1, j, UP)
    locked_row = rand_int(world.rng, 0, rows)
    key_color = rand_color(world)
    x, y = positions[2, locked_row, LEFT]
    set_cell(world, x, y, DOOR, key_color, LOCKED)
    _connect(connected, 2, locked_row, LEFT)
    _place_object(world, 2, locked_row, size, BALL, rand_color(world))
    _place_object(world, 0, rand_int(world.rng, 0, rows), size, KEY, key_color)
    _place_agent(world, 1, rows // 2, size)
    _connect_all(world, size, positions, connected, locked_row)
    return True
