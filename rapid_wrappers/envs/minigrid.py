"""MiniGrid's own environments behind ``ImgObsWrapper``: the 7x7x3 view alone, uint8 codes (type, colour, state)."""

from typing import Any

try:
    from minigrid.envs import KeyCorridorEnv, MultiRoomEnv
    from minigrid.wrappers import ImgObsWrapper
except ModuleNotFoundError as error:
    raise ImportError("this environment needs MiniGrid: pip install 'rapid-wrappers[minigrid]'") from error

__all__ = ["key_corridor", "multi_room"]


def multi_room(num_rooms: int, max_room_size: int, **kwargs: Any) -> ImgObsWrapper:
    """Exactly ``num_rooms`` rooms of sizes 4 to ``max_room_size`` on a 25x25 grid, 20 steps a room.

    MiniGrid draws rooms until they fit. That takes a few milliseconds for 7 rooms of size 4, 0.2 s for N12-S10, and
    seconds from 28 rooms on.
    """
    return ImgObsWrapper(MultiRoomEnv(num_rooms, num_rooms, maxRoomSize=max_room_size, **kwargs))


def key_corridor(room_size: int, num_rows: int, **kwargs: Any) -> ImgObsWrapper:
    """Fetch the key, open the locked door, pick up the ball, in ``30 * room_size**2`` steps."""
    return ImgObsWrapper(KeyCorridorEnv(room_size=room_size, num_rows=num_rows, **kwargs))
