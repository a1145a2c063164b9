"""The maze of the paper's MiniWorld experiment (Appendix B): MiniWorld's, with start and goal in opposite corners."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rapid_wrappers.envs.headless import import_miniworld
from rapid_wrappers.envs.maze_rendering import FastMaze

import_miniworld()

from miniworld.params import DEFAULT_PARAMS, DomainParams  # noqa: E402

__all__ = ["MazeS5"]


class MazeS5(FastMaze):
    """A maze of 5 x 5 rooms with a new layout each episode; the goal, a red box, is in the corner opposite the start.

    Observations are 60 x 80 x 3 pixels, uint8. Actions are turn left, turn right (by 22.5 degrees) and forward (0.4 m).
    The reward is ``1 - 0.2 * steps / 600`` at the box and 0 elsewhere. The time limit is 600 steps. ``info["cell"]`` is
    the square metre in which the agent stands, ``(x, z)`` of int64, for scoring exploration.

    The task follows the authors' ``rapid/maze.py`` with two differences: MiniWorld's default parameters, which all its
    environments share, stay unchanged, and ``info`` holds ``cell``.

    ``rapid_wrappers.envs.maze_rendering`` draws what MiniWorld would draw, in half the time. Use all mazes of a process
    in one thread.

    Args:
        num_rows: Rooms from north to south.
        num_cols: Rooms from west to east.
        room_size: Length of a room's side in metres.
        max_episode_steps: Time limit; 24 steps a room by default.
        antialias: Whether to smooth edges by multisampling, as MiniWorld does. Without it, a step takes three fifths
            of the time, and edges and distant textures look slightly different.
        params: MiniWorld's simulation parameters; by default MiniWorld's own with the step sizes above.
        kwargs: Further arguments of ``MiniWorldEnv``.

    Raises:
        ImportError: If MiniWorld or OpenGL is missing.
        RuntimeError: In a process forked from one that has loaded this module, where OpenGL would hang.
    """

    def __init__(
        self,
        num_rows: int = 5,
        num_cols: int = 5,
        room_size: float = 3,
        max_episode_steps: int | None = None,
        *,
        antialias: bool = True,
        params: DomainParams | None = None,
        **kwargs: Any,
    ) -> None:
        if params is None:
            params = DEFAULT_PARAMS.copy()
            params.set("forward_step", 0.4)
            params.set("turn_step", 22.5)
        super().__init__(num_rows, num_cols, room_size, max_episode_steps, antialias=antialias, params=params, **kwargs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start in a new maze."""
        obs, info = super().reset(seed=seed, options=options)
        return obs, info | {"cell": self._cell()}

    def step(self, action: int) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Turn or move, and look."""
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated, truncated, info | {"cell": self._cell()}

    def _cell(self) -> NDArray[np.int64]:
        cell: NDArray[np.int64] = np.floor(self.agent.pos[[0, 2]]).astype(np.int64)
        return cell

    def _gen_world(self) -> None:
        super()._gen_world()
        tile = self.room_size + self.gap_size
        start = np.array([self.room_size / 2, 0.0, self.room_size / 2])
        self.agent.pos, self.agent.dir = start, 0.0
        self.box.pos = start + np.array([self.num_cols - 1, 0, self.num_rows - 1]) * tile
