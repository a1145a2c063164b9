"""Which rooms of a MiniWorld maze the agent can see: plane geometry, without OpenGL."""

import math
from collections.abc import Sequence
from typing import Any

__all__ = ["Portal", "find_portals", "rooms_in_view"]

Point = tuple[float, float]
"""``(x, z)``, on the ground, in metres."""
Portal = tuple[int, Point, Point]
"""An opening in a room's wall: the index of the room behind it, and both of its ends."""


def find_portals(rooms: Sequence[Any]) -> list[list[Portal]]:
    """Find the openings in each room's walls.

    Args:
        rooms: MiniWorld's ``Room`` objects; each opening belongs to exactly two of them.

    Returns:
        One list of portals a room.
    """
    sides: dict[Any, list[Portal]] = {}
    for index, room in enumerate(rooms):
        for edge, portals in enumerate(room.portals):
            for portal in portals:
                ends = [room.outline[edge] + room.edge_dirs[edge] * portal[name] for name in ("start_pos", "end_pos")]
                p, q = ((float(end[0]), float(end[2])) for end in ends)
                key = frozenset((round(x, 3), round(z, 3)) for x, z in (p, q))
                sides.setdefault(key, []).append((index, p, q))
    found: list[list[Portal]] = [[] for _ in rooms]
    for (one, p, q), (other, _, _) in sides.values():
        found[one].append((other, p, q))
        found[other].append((one, p, q))
    return found


def rooms_in_view(
    agent: Any, rooms: Sequence[Any], portals: Sequence[Sequence[Portal]], aspect: float
) -> Sequence[int]:
    """List the rooms that can be seen, nearest first.

    The view starts as the camera's and narrows at each opening that it passes through. Rooms are convex and the maze is
    a tree, so each room is reached once.

    Args:
        agent: MiniWorld's agent, which carries the camera.
        rooms: The rooms of the maze.
        portals: Their openings, from :func:`find_portals`.
        aspect: Width of the picture divided by its height.

    Returns:
        Indices of rooms; all of them if the camera stands outside every room or is tilted.
    """
    x, _, z = agent.cam_pos.tolist()
    dx, _, dz = agent.cam_dir.tolist()
    here = [i for i, r in enumerate(rooms) if r.min_x <= x <= r.max_x and r.min_z <= z <= r.max_z]
    if not here or agent.cam_pitch:
        return range(len(rooms))
    spread = 1.02 * math.tan(math.radians(agent.cam_fov_y) / 2) * aspect  # slightly too wide: rounding hides nothing
    right, left = (dx + spread * dz, dz - spread * dx), (dx - spread * dz, dz + spread * dx)
    seen = []
    ahead: list[tuple[int, int, Point, Point]] = [(here[0], -1, right, left)]
    for room, before, right, left in ahead:
        seen.append(room)
        for neighbor, (px, pz), (qx, qz) in portals[room]:
            if neighbor != before:
                view = _narrow((px - x, pz - z), (qx - x, qz - z), right, left)
                if view is not None:
                    ahead.append((neighbor, room, *view))
    return seen


def _narrow(p: Point, q: Point, right: Point, left: Point) -> tuple[Point, Point] | None:
    """Cut the view between the directions `right` and `left` to the opening from p to q; None if nothing remains."""
    area = _cross(p, q)
    if abs(area) < 0.05 * math.dist(p, q):  # the camera stands in the opening, which hides nothing
        return right, left
    if area < 0:
        p, q = q, p
    start, end = 0.0, 1.0  # the visible part of the opening
    for at_p, at_q in ((_cross(right, p), _cross(right, q)), (_cross(p, left), _cross(q, left))):
        if at_p < 0:
            start = max(start, at_p / (at_p - at_q)) if at_q > 0 else 1.0
        elif at_q < 0:
            end = min(end, at_p / (at_p - at_q))
    if start >= end:
        return None
    dx, dz = q[0] - p[0], q[1] - p[1]
    return (p[0] + start * dx, p[1] + start * dz), (p[0] + end * dx, p[1] + end * dz)


def _cross(a: Point, b: Point) -> float:
    return a[0] * b[1] - a[1] * b[0]
