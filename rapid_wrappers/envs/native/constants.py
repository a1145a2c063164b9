"""MiniGrid's numbers (``minigrid/core/constants.py``, ``minigrid/core/actions.py``)."""

import numpy as np

__all__ = [
    "BALL", "BLUE", "CLOSED", "COLOR", "COLORS", "DIR_TO_VEC", "DONE", "DOOR", "DOWN", "DROP", "EMPTY", "FORWARD",
    "GOAL", "GREEN", "GREY", "KEY", "LEFT", "LOCKED", "NUM_ACTIONS", "OPEN", "PICKUP", "PURPLE", "RED", "RIGHT",
    "STATE", "TOGGLE", "TURN_LEFT", "TURN_RIGHT", "TYPE", "UNSEEN", "UP", "WALL", "YELLOW",
]  # fmt: skip

TYPE, COLOR, STATE = range(3)  # the three entries of a cell
UNSEEN, EMPTY, WALL, _FLOOR, DOOR, KEY, BALL, _BOX, GOAL = range(9)  # these tasks have no floors, boxes or lava
RED, GREEN, BLUE, PURPLE, YELLOW, GREY = range(6)
OPEN, CLOSED, LOCKED = range(3)

COLORS = np.array(
    [BLUE, GREEN, GREY, PURPLE, RED, YELLOW]
)  # sorted by name: MiniGrid draws one by its place in this order

RIGHT, DOWN, LEFT, UP = range(4)  # directions of the agent and sides of a room
DIR_TO_VEC = np.array([(1, 0), (0, 1), (-1, 0), (0, -1)])

NUM_ACTIONS = 7
TURN_LEFT, TURN_RIGHT, FORWARD, PICKUP, DROP, TOGGLE, DONE = range(NUM_ACTIONS)
