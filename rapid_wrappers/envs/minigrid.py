"""MiniGrid's own environments behind ``ImgObsWrapper``: observations are the 7x7x3 view of uint8 codes."""

from typing import Any

try:
    from minigrid.envs import KeyCorridorEnv, MultiRoomEnv
    from minigrid.wrappers import ImgObsWrapper
except ModuleNotFoundError as error:
    if not str(error.name).startswith("minigrid"):
        raise
    raise ImportError("this environment needs MiniGrid: pip install 'rapid-wrappers[minigrid]'") from error

__all__ = ["key_corridor", "multi_room"]


def multi_room(num_rooms: int, max_room_size: int, **kwargs: Any) -> ImgObsWrapper:
    """Make exactly ``num_rooms`` rooms of sizes 4 to ``max_room_size`` on a 25x25 grid, with 20 steps a room.

    MiniGrid draws rooms until they fit, which takes longer the fuller the grid is: a few milliseconds for N7-S4, 0.2 s
    for N12-S10, seconds for N12-S12, N6-S36 or N28-S4. Too many large rooms (N8-S36, N20-S10, N30-S4) take minutes or
    never fit.
    """
    return ImgObsWrapper(MultiRoomEnv(num_rooms, num_rooms, maxRoomSize=max_room_size, **kwargs))


def key_corridor(room_size: int, num_rows: int, **kwargs: Any) -> ImgObsWrapper:
    """Make the task: fetch the key, open the locked door and pick up the ball, within ``30 * room_size**2`` steps."""
    return ImgObsWrapper(KeyCorridorEnv(room_size=room_size, num_rows=num_rows, **kwargs))
