"""The paper's tasks under our own ids. Importing this package registers them and loads no environment family.

``rapid/MultiRoom-N{X}-S{Y}-v0`` has X rooms (2 to 30) of sizes up to Y (4 to 36); ``rapid/KeyCorridorS{X}R{Y}-v0`` has
rooms of size X in Y rows. ``gymnasium.make`` makes MiniGrid's own environment. ``gymnasium.make_vec`` makes the native
engine if Numba is installed, and otherwise MiniGrid's environments.

``rapid/Sparse{Walker2d,Hopper,InvertedPendulum,Swimmer}-v0`` are Gymnasium's v5 tasks, with the whole return paid on
the last step. ``rapid/DensitySwimmer-v0`` and ``rapid/ViscositySwimmer-v0`` are the sparse Swimmer with a new fluid in
each episode.

``rapid/MazeS5-v0`` is MiniWorld's maze of 5 x 5 rooms, with start and goal in opposite corners.
"""

from importlib.util import find_spec
from typing import Any

import gymnasium as gym

from rapid_wrappers.envs.episodic_reward import EpisodicRewardWrapper

__all__ = ["KEY_CORRIDORS", "EpisodicRewardWrapper"]

KEY_CORRIDORS = ((3, 1), (3, 2), (3, 3), (4, 3), (5, 3), (6, 3))
"""``(room size, rows)`` of the six that MiniGrid registers."""


_FLUID_SWIMMER = "rapid_wrappers.envs.swimmer:FluidSwimmerEnv"


def _register(id: str, entry_point: Any, **options: Any) -> None:
    if id not in gym.registry:  # this module may be reloaded
        gym.register(id, entry_point=entry_point, **options)


def _register_grid(id: str, function: str, **kwargs: int) -> None:
    """Register a function of ``minigrid`` and, for ``make_vec``, the function of that name in ``native``."""
    native = f"rapid_wrappers.envs.native:{function}" if find_spec("numba") else None
    _register(id, f"rapid_wrappers.envs.minigrid:{function}", vector_entry_point=native, kwargs=kwargs)


def _register_sparse(id: str, dense: str, entry_point: str | None = None, **kwargs: tuple[float, float]) -> None:
    """Register Gymnasium's ``dense`` task with its return paid at the end, around its time limit."""
    spec = gym.spec(dense)
    _register(
        id,
        entry_point or spec.entry_point,
        reward_threshold=spec.reward_threshold,
        max_episode_steps=spec.max_episode_steps,
        additional_wrappers=(EpisodicRewardWrapper.wrapper_spec(),),
        kwargs=kwargs,
    )


for _rooms in range(2, 31):
    for _size in range(4, 37):
        _register_grid(f"rapid/MultiRoom-N{_rooms}-S{_size}-v0", "multi_room", num_rooms=_rooms, max_room_size=_size)
for _size, _rows in KEY_CORRIDORS:
    _register_grid(f"rapid/KeyCorridorS{_size}R{_rows}-v0", "key_corridor", room_size=_size, num_rows=_rows)

for _name in ("Walker2d", "Hopper", "InvertedPendulum", "Swimmer"):
    _register_sparse(f"rapid/Sparse{_name}-v0", f"{_name}-v5")
_register_sparse("rapid/DensitySwimmer-v0", "Swimmer-v5", _FLUID_SWIMMER, density=(2000.0, 4000.0))
_register_sparse("rapid/ViscositySwimmer-v0", "Swimmer-v5", _FLUID_SWIMMER, viscosity=(0.1, 0.5))

_register("rapid/MazeS5-v0", "rapid_wrappers.envs.maze:MazeS5")
