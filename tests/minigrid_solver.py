"""An agent that sees the whole level and solves it, but for random actions now and then."""

from collections import deque

import numpy as np
from minigrid.core.actions import Actions
from minigrid.core.constants import DIR_TO_VEC


class Solver:
    """Acts in MiniGrid's own MultiRoom or KeyCorridor: opens doors, fetches the key, drops it, reaches the end."""

    def __init__(self, env, rng, epsilon):
        self.env, self.rng, self.epsilon = env.unwrapped, rng, epsilon

    def action(self):
        if self.rng.random() < self.epsilon:
            return int(self.rng.integers(7))
        env = self.env
        front = env.grid.get(*env.front_pos)
        objects = {type(o).__name__: o for o in env.grid.grid if o and type(o).__name__ in ("Goal", "Ball", "Key")}
        locked = next((o for o in env.grid.grid if o and o.type == "door" and o.is_locked), None)
        if env.carrying and not locked and front is None:
            return Actions.drop
        if env.carrying and locked:
            target = locked
        elif locked:
            target = objects["Key"]
        else:
            target = objects.get("Goal") or objects["Ball"]
        # A key that was dropped may block the way, and is then fetched again.
        cell = self._next_cell(target) or ("Key" in objects and self._next_cell(objects["Key"]))
        if not cell:
            return int(self.rng.integers(7))
        turn = (self._direction(cell) - env.agent_dir) % 4
        if turn:
            return Actions.left if turn == 3 else Actions.right
        if front and front.type == "door" and not front.is_open:
            return Actions.toggle
        return Actions.pickup if front and front.can_pickup() else Actions.forward

    def _direction(self, cell):
        step = np.subtract(cell, self.env.agent_pos)
        return next(d for d, vector in enumerate(DIR_TO_VEC) if np.array_equal(step, vector))

    def _next_cell(self, target):
        """The neighbour on a shortest path to `target`, or None."""
        grid = self.env.grid
        goal = next(divmod(k, grid.width)[::-1] for k, o in enumerate(grid.grid) if o is target)
        start = tuple(int(x) for x in self.env.agent_pos)
        queue, seen = deque([goal]), {goal}
        while queue:
            x, y = queue.popleft()
            for dx, dy in DIR_TO_VEC:
                cell = (x + int(dx), y + int(dy))
                if cell == start:
                    return x, y
                if cell in seen or not (0 <= cell[0] < grid.width and 0 <= cell[1] < grid.height):
                    continue
                found = grid.get(*cell)
                if found is None or (found.type == "door" and not found.is_locked):
                    seen.add(cell)
                    queue.append(cell)
        return None
