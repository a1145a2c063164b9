"""MiniGrid's MultiRoom and KeyCorridor as one compiled vector environment, equal to MiniGrid step for step.

``world`` holds a level and how objects are placed in it, ``multiroom`` and ``keycorridor`` draw levels, ``dynamics`` is
what actions do, ``view`` what the agent sees, ``rng`` NumPy's random stream, ``vector_env`` all of it for Gymnasium.
Another task of MiniGrid with such objects, on at most 25x25 cells, is another file beside those two, with its generator
and its ``Task``, and an id.
"""

from typing import Any

from rapid_wrappers.envs.native.keycorridor import key_corridor_task
from rapid_wrappers.envs.native.multiroom import multi_room_task
from rapid_wrappers.envs.native.vector_env import NativeVectorEnv

__all__ = ["NativeVectorEnv", "key_corridor", "multi_room"]


def multi_room(num_rooms: int, max_room_size: int, num_envs: int = 1, **kwargs: Any) -> NativeVectorEnv:
    """Many of :func:`rapid_wrappers.envs.minigrid.multi_room`."""
    return NativeVectorEnv(multi_room_task(num_rooms, max_room_size), num_envs, **kwargs)


def key_corridor(room_size: int, num_rows: int, num_envs: int = 1, **kwargs: Any) -> NativeVectorEnv:
    """Many of :func:`rapid_wrappers.envs.minigrid.key_corridor`."""
    return NativeVectorEnv(key_corridor_task(room_size, num_rows), num_envs, **kwargs)
