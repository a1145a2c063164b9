"""Pictures of the engine's worlds, drawn by MiniGrid itself."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rapid_wrappers.envs.native.world import Task

__all__ = ["Renderer"]


class Renderer:
    """Copies a world into MiniGrid's own environment, which draws it.

    Args:
        task: The task of the worlds.
        kwargs: Arguments of MiniGrid's environment, ``render_mode`` among them.
    """

    def __init__(self, task: Task, **kwargs: Any) -> None:
        self._size = task.width, task.height
        self._env = task.reference(**kwargs).unwrapped

    def render(self, world: np.void) -> NDArray[np.uint8]:
        """Draw one element of an array of ``WORLD``; the picture is ``(H, W, 3)``."""
        from minigrid.core.grid import Grid
        from minigrid.core.world_object import WorldObj

        width, height = self._size
        env = self._env
        env.grid, _ = Grid.decode(world["grid"][:width, :height])
        env.carrying = WorldObj.decode(*world["carrying"])
        env.agent_pos = tuple(world["agent_pos"].tolist())
        env.agent_dir = int(world["agent_dir"])
        env.step_count = int(world["step_count"])
        picture: NDArray[np.uint8] = env.render()
        return picture
