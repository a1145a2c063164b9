"""The paper's tasks under ids of our own; importing this package registers them and loads no environment family.

``rapid/MultiRoom-N{X}-S{Y}-v0`` (X rooms, 2 to 30; sizes up to Y, 4 to 36) and ``rapid/KeyCorridorS{X}R{Y}-v0``.
``gymnasium.make`` gives MiniGrid itself; so does ``gymnasium.make_vec``, or the native engine where Numba is installed.
"""

from importlib.util import find_spec

import gymnasium as gym

__all__ = ["KEY_CORRIDORS"]

KEY_CORRIDORS = ((3, 1), (3, 2), (3, 3), (4, 3), (5, 3), (6, 3))
"""(room size, rows), the six that MiniGrid registers."""


def _register(id: str, function: str, **kwargs: object) -> None:
    if id not in gym.registry:  # importing twice, or reloading, is harmless
        gym.register(
            id,
            entry_point=f"rapid_wrappers.envs.minigrid:{function}",
            vector_entry_point=f"rapid_wrappers.envs.native:{function}" if find_spec("numba") else None,
            kwargs=kwargs,
        )


for _rooms in range(2, 31):
    for _size in range(4, 37):
        _register(
            f"rapid/MultiRoom-N{_rooms}-S{_size}-v0",
            "multi_room",
            num_rooms=_rooms,
            max_room_size=_size,
        )
for _size, _rows in KEY_CORRIDORS:
    _register(
        f"rapid/KeyCorridorS{_size}R{_rows}-v0",
        "key_corridor",
        room_size=_size,
        num_rows=_rows,
    )
