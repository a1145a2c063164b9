"""Levels of MiniGrid's ``MultiRoomEnv`` (``minigrid/envs/multiroom.py``)."""

from functools import partial

import numpy as np

from rapid_wrappers.envs.minigrid import multi_room
from rapid_wrappers.envs.native.constants import CLOSED, COLORS, DOOR, DOWN, GOAL, GREEN, LEFT, RIGHT, UNSEEN, UP
from rapid_wrappers.envs.native.jit import inlined, njit
from rapid_wrappers.envs.native.rng import rand_int
from rapid_wrappers.envs.native.world import Task, clear, find_empty, place_agent, set_cell, wall_rect

__all__ = ["multi_room_task"]

SIZE = 25  # of the grid
MIN_ROOM_SIZE = 4
X, Y, WIDTH, HEIGHT, DOOR_X, DOOR_Y = range(6)  # columns of `rooms`; the door is the room's entry
ATTEMPTS = 10_000  # in one call, which takes some milliseconds


def multi_room_task(num_rooms: int, max_room_size: int) -> Task:
    """Make the task with exactly ``num_rooms`` rooms of sizes 4 to ``max_room_size``.

    Raises:
        ValueError: If ``num_rooms`` or ``max_room_size`` is smaller than MiniGrid allows.
    """
    if num_rooms < 1 or max_room_size < MIN_ROOM_SIZE:
        raise ValueError(
            f"expected `num_rooms` to be at least 1 and `max_room_size` to be at least {MIN_ROOM_SIZE}, "
            f"got {num_rooms} and {max_room_size}"
        )
    reference = partial(multi_room, num_rooms, max_room_size)
    return Task(_generate, (num_rooms, max_room_size), SIZE, SIZE, 20 * num_rooms, UNSEEN, reference)


@inlined
def _place_room(rng, rooms, index, max_room_size, entry_wall, entry_x, entry_y):
    """Draw the room behind an entry door; False if it leaves the grid or overlaps a room other than the last one.

    The comparisons treat x and y, and the two sides, differently; MiniGrid's do too.
    """
    width = rand_int(rng, MIN_ROOM_SIZE, max_room_size + 1)
    height = rand_int(rng, MIN_ROOM_SIZE, max_room_size + 1)
    if index == 0:  # the first room has no entry; its corner lies there
        x, y = entry_x, entry_y
    elif entry_wall in (LEFT, RIGHT):
        x = entry_x if entry_wall == LEFT else entry_x - width + 1
        y = entry_y + rand_int(rng, 2 - height, 0)
    else:
        x = entry_x + rand_int(rng, 2 - width, 0)
        y = entry_y if entry_wall == UP else entry_y - height + 1
    if x < 0 or y < 0 or x + width > SIZE or y + height >= SIZE:
        return False
    for k in range(index - 1):
        beside = x + width < rooms[k, X] or rooms[k, X] + rooms[k, WIDTH] <= x
        if not (beside or y + height < rooms[k, Y] or rooms[k, Y] + rooms[k, HEIGHT] <= y):
            return False
    rooms[index] = (x, y, width, height, entry_x, entry_y)
    return True


@njit
def _place_rooms(rng, rooms, max_room_size):
    """Try once to draw a chain of rooms; return the number placed. Each room gets eight tries to find the next."""
    x = rand_int(rng, 0, SIZE - 2)
    y = rand_int(rng, 0, SIZE - 2)
    wall = LEFT
    if not _place_room(rng, rooms, 0, max_room_size, wall, x, y):
        return 0
    for index in range(1, len(rooms)):
        last = index - 1
        for _ in range(8):
            exit_wall = rand_int(rng, 0, 3)  # one of the three walls without the entry
            exit_wall += exit_wall >= wall
            x, y = rooms[last, X], rooms[last, Y]
            if exit_wall in (LEFT, RIGHT):
                x += rooms[last, WIDTH] - 1 if exit_wall == RIGHT else 0
                y += rand_int(rng, 1, rooms[last, HEIGHT] - 1)
            else:
                x += rand_int(rng, 1, rooms[last, WIDTH] - 1)
                y += rooms[last, HEIGHT] - 1 if exit_wall == DOWN else 0
            if _place_room(rng, rooms, index, max_room_size, (exit_wall + 2) % 4, x, y):
                wall = (exit_wall + 2) % 4
                break
        else:
            return index
    return len(rooms)


@njit
def _generate(world, num_rooms, max_room_size):
    """``MultiRoomEnv._gen_grid``; the number of rooms takes no draw, since only one number is possible."""
    rooms = np.empty((num_rooms, 6), np.int64)
    for _ in range(ATTEMPTS):
        if _place_rooms(world.rng, rooms, max_room_size) == num_rooms:
            break
    else:
        return False
    clear(world, SIZE, SIZE)
    color = -1  # index in COLORS, of the last door
    for index in range(num_rooms):
        x, y, width, height, door_x, door_y = rooms[index]
        wall_rect(world, x, y, width, height)
        if index == 1:
            color = rand_int(world.rng, 0, len(COLORS))
        elif index > 1:  # a colour that differs from the last door's
            drawn = rand_int(world.rng, 0, len(COLORS) - 1)
            color = drawn + (drawn >= color)
        if index > 0:
            set_cell(world, door_x, door_y, DOOR, COLORS[color], CLOSED)
    first, last = rooms[0], rooms[-1]
    place_agent(world, first[X], first[Y], first[WIDTH], first[HEIGHT])
    goal_x, goal_y = find_empty(world, last[X], last[Y], last[WIDTH], last[HEIGHT])
    set_cell(world, goal_x, goal_y, GOAL, GREEN)
    return True
