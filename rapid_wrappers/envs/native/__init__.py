"""MiniGrid's MultiRoom and KeyCorridor as one compiled vector environment, equal to MiniGrid step for step.

``world`` holds a level and places objects in it; ``multiroom`` and ``keycorridor`` draw levels; ``dynamics`` applies
actions; ``view`` computes what the agent sees; ``rng`` is NumPy's random stream; ``jit`` compiles all of these.
``vector_env`` offers them to Gymnasium, with ``state_dict`` to check saved states and ``rendering`` to draw pictures.
To add a MiniGrid task with the same objects on at most 25x25 cells, write its generator and its ``Task`` in a file like
``multiroom``, and register an id.
"""

from typing import Any

from rapid_wrappers.envs.native.keycorridor import key_corridor_task
from rapid_wrappers.envs.native.multiroom import multi_room_task
from rapid_wrappers.envs.native.vector_env import NativeVectorEnv

__all__ = ["NativeVectorEnv", "key_corridor", "multi_room"]


def multi_room(num_rooms: int, max_room_size: int, num_envs: int = 1, **kwargs: Any) -> NativeVectorEnv:
    """Make ``num_envs`` of :func:`rapid_wrappers.envs.minigrid.multi_room`."""
    return NativeVectorEnv(multi_room_task(num_rooms, max_room_size), num_envs, **kwargs)


def key_corridor(room_size: int, num_rows: int, num_envs: int = 1, **kwargs: Any) -> NativeVectorEnv:
    """Make ``num_envs`` of :func:`rapid_wrappers.envs.minigrid.key_corridor`."""
    return NativeVectorEnv(key_corridor_task(room_size, num_rows), num_envs, **kwargs)
