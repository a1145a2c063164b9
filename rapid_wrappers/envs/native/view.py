"""The agent's view (``MiniGridEnv.gen_obs``, ``Grid.process_vis``)."""

from rapid_wrappers.envs.native.constants import CLOSED, COLOR, DIR_TO_VEC, DOOR, GREY, STATE, TYPE, UNSEEN, WALL
from rapid_wrappers.envs.native.jit import njit
from rapid_wrappers.envs.native.world import MAX_SIZE

__all__ = ["VIEW_SIZE", "observe"]

VIEW_SIZE = 7
HALF = VIEW_SIZE // 2


@njit
def _copy_view(world, image):
    """Copy the cells in view, turned so that the agent looks up from the middle of the bottom row."""
    forward_x, forward_y = DIR_TO_VEC[world.agent_dir]
    right_x, right_y = -forward_y, forward_x
    for i in range(VIEW_SIZE):
        for j in range(VIEW_SIZE):
            ahead, aside = VIEW_SIZE - 1 - j, i - HALF
            x = world.agent_pos[0] + ahead * forward_x + aside * right_x
            y = world.agent_pos[1] + ahead * forward_y + aside * right_y
            if 0 <= x < MAX_SIZE and 0 <= y < MAX_SIZE:
                image[i, j, TYPE] = world.grid[x, y, TYPE]
                image[i, j, COLOR] = world.grid[x, y, COLOR]
                image[i, j, STATE] = world.grid[x, y, STATE]
            else:
                image[i, j, TYPE] = WALL
                image[i, j, COLOR] = GREY
                image[i, j, STATE] = 0


@njit
def _see_behind(image, i, j):
    """``WorldObj.see_behind``: only walls and doors that are not open block the sight."""
    type = image[i, j, TYPE]
    return type != WALL and (type != DOOR or image[i, j, STATE] < CLOSED)


@njit
def _hide_unseen(image):
    """``Grid.process_vis``: sight spreads from the agent sideways and upwards, row by row, until it is blocked."""
    seen = 1 << HALF  # one bit for each visible cell of this row; the loop starts at the bottom row
    for j in range(VIEW_SIZE - 1, -1, -1):
        above = 0  # the same for the row above
        for i in range(VIEW_SIZE - 1):
            if seen >> i & 1 and _see_behind(image, i, j):
                seen |= 0b10 << i
                above |= 0b11 << i
        for i in range(VIEW_SIZE - 1, 0, -1):
            if seen >> i & 1 and _see_behind(image, i, j):
                seen |= 0b1 << (i - 1)
                above |= 0b11 << (i - 1)
        for i in range(VIEW_SIZE):
            if not seen >> i & 1:
                image[i, j, TYPE] = UNSEEN
                image[i, j, COLOR] = 0
                image[i, j, STATE] = 0
        seen = above


@njit
def observe(world, image):
    """Write the view ``(7, 7, 3)``; the object that the agent carries appears in the agent's place."""
    _copy_view(world, image)
    _hide_unseen(image)
    image[HALF, VIEW_SIZE - 1] = world.carrying
