"""The effects of actions (``MiniGridEnv.step``; ``toggle``, ``can_overlap``, ``can_pickup`` in ``world_object.py``)."""

from rapid_wrappers.envs.native.constants import (
    BALL,
    CLOSED,
    COLOR,
    DIR_TO_VEC,
    DOOR,
    DROP,
    EMPTY,
    FORWARD,
    GOAL,
    KEY,
    LOCKED,
    NUM_ACTIONS,
    OPEN,
    PICKUP,
    STATE,
    TOGGLE,
    TURN_LEFT,
    TURN_RIGHT,
    TYPE,
)
from rapid_wrappers.envs.native.jit import njit
from rapid_wrappers.envs.native.view import observe
from rapid_wrappers.envs.native.world import MAX_SIZE

__all__ = ["observe_one", "step_all"]


@njit
def _toggle(cell, carrying):
    """``Door.toggle``: a locked door opens with the key of its colour; any other door opens or closes."""
    if cell[TYPE] != DOOR:
        return
    if cell[STATE] == LOCKED:
        if carrying[TYPE] == KEY and carrying[COLOR] == cell[COLOR]:
            cell[STATE] = OPEN
    else:
        cell[STATE] = CLOSED if cell[STATE] == OPEN else OPEN


@njit
def _act(world, action, target):
    """Change the world; return whether the task is done."""
    if action == TURN_LEFT:
        world.agent_dir = (world.agent_dir + 3) % 4
        return False
    if action == TURN_RIGHT:
        world.agent_dir = (world.agent_dir + 1) % 4
        return False
    x = world.agent_pos[0] + DIR_TO_VEC[world.agent_dir, 0]
    y = world.agent_pos[1] + DIR_TO_VEC[world.agent_dir, 1]
    if not (0 <= x < MAX_SIZE and 0 <= y < MAX_SIZE):
        return False
    front, carrying = world.grid[x, y], world.carrying
    type = front[TYPE]
    if action == FORWARD:
        if type in (EMPTY, GOAL) or (type == DOOR and front[STATE] == OPEN):
            world.agent_pos[0], world.agent_pos[1] = x, y
        return type == GOAL
    if action == PICKUP and (type in (KEY, BALL)) and carrying[TYPE] == EMPTY:
        carrying[:] = front
        front[:] = (EMPTY, 0, 0)
        return type == target
    if action == DROP and type == EMPTY and carrying[TYPE] != EMPTY:
        front[:] = carrying
        carrying[:] = (EMPTY, 0, 0)
    elif action == TOGGLE:
        _toggle(front, carrying)
    return False


@njit
def step_all(worlds, acting, actions, max_steps, target, observations, rewards, terminations, truncations):
    """Take one step in each of the ``acting`` worlds; if an action does not exist, change nothing and return False."""
    for i in range(len(worlds)):
        if acting[i] and not 0 <= actions[i] < NUM_ACTIONS:
            return False
    for i in range(len(worlds)):
        rewards[i], terminations[i], truncations[i] = 0.0, False, False
        if acting[i]:
            world = worlds[i]
            world.step_count += 1
            if _act(world, actions[i], target):
                terminations[i] = True
                rewards[i] = 1 - 0.9 * (world.step_count / max_steps)
            truncations[i] = world.step_count >= max_steps
            observe(world, observations[i])
    return True


@njit
def observe_one(worlds, i, observations):
    """Write the view of one world."""
    observe(worlds[i], observations[i])
