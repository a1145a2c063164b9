"""An agent that sees the whole level and solves it, with a random action now and then."""

from collections import deque

from minigrid.core.actions import Actions
from minigrid.core.constants import DIR_TO_VEC

SIDES = [(int(dx), int(dy)) for dx, dy in DIR_TO_VEC]


class Solver:
    """Solves MiniGrid's own MultiRoom and KeyCorridor: it opens doors, fetches the key, drops it and ends the episode.

    Args:
        env: MiniGrid's environment.
        rng: Generator of the random actions.
        epsilon: Share of random actions.
    """

    def __init__(self, env, rng, epsilon):
        self.env, self.rng, self.epsilon = env.unwrapped, rng, epsilon

    def action(self):
        if self.rng.random() < self.epsilon:
            return int(self.rng.integers(7))
        found = {}  # positions by type; locked doors are under "locked"
        for k, thing in enumerate(self.env.grid.grid):
            if thing:
                kind = "locked" if thing.type == "door" and thing.is_locked else thing.type
                found[kind] = divmod(k, self.env.grid.width)[::-1]
        here, carrying = self._here(), self.env.carrying
        if carrying and carrying.type == "ball":
            return Actions.done  # the episode has ended
        if carrying and "locked" not in found:
            return self._drop(here, found["ball"])
        target = found.get("goal") or (
            found["locked"] if carrying else found.get("key" if "locked" in found else "ball")
        )
        # a dropped key may block the way: fetch it again
        cell = self._next(here, target) or ("key" in found and self._next(here, found["key"]))
        return self._go(cell) if cell else int(self.rng.integers(7))

    def _here(self):
        return tuple(int(x) for x in self.env.agent_pos)

    def _go(self, cell):
        """Turn to the neighbouring cell; then enter it, open its door or pick up its object."""
        x, y = self._here()
        turn = (SIDES.index((cell[0] - x, cell[1] - y)) - self.env.agent_dir) % 4
        if turn:
            return Actions.left if turn == 3 else Actions.right
        thing = self.env.grid.get(*cell)
        if thing and thing.type == "door" and not thing.is_open:
            return Actions.toggle
        return Actions.pickup if thing and thing.can_pickup() else Actions.forward

    def _drop(self, here, target):
        """Go to a place where the carried object does not block the way to the target, and drop it there."""
        for cell in self._reach(here):
            for side in SIDES:
                front = (cell[0] + side[0], cell[1] + side[1])
                if self.env.grid.get(*front) is None and front != here and self._next(cell, target, blocked=front):
                    if cell != here:
                        return self._go(self._next(here, cell))
                    action = self._go(front)
                    return Actions.drop if action == Actions.forward else action
        return int(self.rng.integers(7))

    def _passable(self, cell):
        thing = self.env.grid.get(*cell)
        return thing is None or (thing.type == "door" and not thing.is_locked)

    def _reach(self, start, blocked=None):
        """Yield the cells that can be walked to, nearest first."""
        queue, seen = deque([start]), {start}
        while queue:
            x, y = queue.popleft()
            yield x, y
            for dx, dy in SIDES:
                cell = (x + dx, y + dy)
                inside = 0 <= cell[0] < self.env.grid.width and 0 <= cell[1] < self.env.grid.height
                if inside and cell not in seen and cell != blocked and self._passable(cell):
                    seen.add(cell)
                    queue.append(cell)

    def _next(self, start, target, blocked=None):
        """Return the neighbour of `start` on a shortest path to `target`, or None."""
        for x, y in self._reach(target, blocked):
            if abs(x - start[0]) + abs(y - start[1]) == 1:
                return x, y
        return None
