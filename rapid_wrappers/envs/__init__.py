"""The paper's tasks under ids of our own; importing this package registers them and loads no environment family.

``rapid/MultiRoom-N{X}-S{Y}-v0`` (X rooms, 2 to 30; sizes up to Y, 4 to 36) and ``rapid/KeyCorridorS{X}R{Y}-v0``.
``gymnasium.make`` gives MiniGrid itself; so does ``gymnasium.make_vec``, or the native engine where Numba is installed.

``rapid/Sparse{Walker2d,Hopper,InvertedPendulum,Swimmer}-v0``: Gymnasium's v5, the whole return paid on the last step.
``rapid/DensitySwimmer-v0`` and ``rapid/ViscositySwimmer-v0``: the same Swimmer in another fluid each episode.

``rapid/MazeS5-v0``: MiniWorld's maze of 5 x 5 rooms, with start and goal in opposite corners.
"""

from importlib.util import find_spec

import gymnasium as gym

from rapid_wrappers.envs.episodic_reward import EpisodicRewardWrapper

__all__ = ["KEY_CORRIDORS", "EpisodicRewardWrapper"]

KEY_CORRIDORS = ((3, 1), (3, 2), (3, 3), (4, 3), (5, 3), (6, 3))
"""(room size, rows), the six that MiniGrid registers."""


def _register_grid(id: str, function: str, **kwargs: object) -> None:
    if id not in gym.registry:  # importing twice, or reloading, is harmless
        gym.register(
            id,
            entry_point=f"rapid_wrappers.envs.minigrid:{function}",
            vector_entry_point=f"rapid_wrappers.envs.native:{function}" if find_spec("numba") else None,
            kwargs=kwargs,
        )


for _rooms in range(2, 31):
    for _size in range(4, 37):
        _register_grid(
            f"rapid/MultiRoom-N{_rooms}-S{_size}-v0",
            "multi_room",
            num_rooms=_rooms,
            max_room_size=_size,
        )
for _size, _rows in KEY_CORRIDORS:
    _register_grid(
        f"rapid/KeyCorridorS{_size}R{_rows}-v0",
        "key_corridor",
        room_size=_size,
        num_rows=_rows,
    )


def _register_sparse(id: str, dense: str, entry_point: str | None = None, **kwargs: object) -> None:
    spec = gym.spec(dense)
    if id not in gym.registry:
        gym.register(
            id,
            entry_point=entry_point or spec.entry_point,
            reward_threshold=spec.reward_threshold,
            max_episode_steps=spec.max_episode_steps,
            additional_wrappers=(EpisodicRewardWrapper.wrapper_spec(),),  # around the time limit
            kwargs=kwargs,
        )


for _name in ("Walker2d", "Hopper", "InvertedPendulum", "Swimmer"):
    _register_sparse(f"rapid/Sparse{_name}-v0", f"{_name}-v5")
_FLUID = "rapid_wrappers.envs.swimmer:FluidSwimmerEnv"
_register_sparse("rapid/DensitySwimmer-v0", "Swimmer-v5", _FLUID, density=(2000.0, 4000.0))
_register_sparse("rapid/ViscositySwimmer-v0", "Swimmer-v5", _FLUID, viscosity=(0.1, 0.5))

if "rapid/MazeS5-v0" not in gym.registry:
    gym.register("rapid/MazeS5-v0", entry_point="rapid_wrappers.envs.maze:MazeS5")
