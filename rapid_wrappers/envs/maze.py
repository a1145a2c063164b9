"""The maze of the paper's MiniWorld experiment (Appendix B): MiniWorld's, with start and goal in opposite corners."""

import contextlib
import ctypes
import functools
import io
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rapid_wrappers.envs.headless import import_miniworld

import_miniworld()

import pyglet.window  # noqa: E402
from miniworld.envs.maze import Maze  # noqa: E402
from miniworld.miniworld import Room  # noqa: E402
from miniworld.opengl import FrameBuffer  # noqa: E402
from miniworld.params import DEFAULT_PARAMS, DomainParams  # noqa: E402
from pyglet import gl  # noqa: E402

__all__ = ["MazeS5"]

_Point = tuple[float, float]  # (x, z), on the ground
_PROCESS = os.getpid()  # whose OpenGL this is


class MazeS5(Maze):
    """A maze of 5 x 5 rooms, another one each episode; the goal, a red box, stands in the corner across from the start.

    Observations are 60 x 80 x 3 pixels, uint8; actions are turn left, turn right (by 22.5 degrees) and forward (0.4 m);
    the reward is ``1 - 0.2 * steps / 600`` at the box and 0 elsewhere; the time limit is 600 steps. ``info["cell"]`` is
    the square metre in which the agent stands, ``(x, z)`` of int64, by which exploration can be scored. As in the
    authors' ``rapid/maze.py``, but that MiniWorld's default parameters, which all its environments share, stay as they
    are, and for ``cell``.

    What is seen is what MiniWorld draws, in half the time: of the rooms, only those in view are drawn (pixels are the
    same but for a rare one in a doorway). As in MiniWorld, all mazes of a process are to be used in one thread.
    Each maze has display lists of its own (MiniWorld's all share one: in one process, each shows the world that was
    reset last), and all in one process share a hidden window and its frame buffers, whose memory MiniWorld never frees.

    Args:
        num_rows: Rooms from north to south.
        num_cols: Rooms from west to east.
        room_size: Length of a room's side in metres.
        max_episode_steps: Time limit; 24 steps a room by default.
        antialias: Whether edges are smoothed by multisampling, as MiniWorld does. Without, a step takes three fifths
            of the time, and edges and far textures look a little different.
        params: MiniWorld's simulation parameters; by default its own with the step sizes above.
        kwargs: As of ``MiniWorldEnv``.

    Raises:
        ImportError: If MiniWorld or OpenGL is missing.
        RuntimeError: In a process forked from one that has loaded this module, where OpenGL would hang.
    """

    obs_fb: FrameBuffer
    shadow_window: Any
    vis_fb: FrameBuffer

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
        if os.getpid() != _PROCESS:
            raise RuntimeError("expected a process of its own for OpenGL, got one forked from a process that has it: "
                               "use AsyncVectorEnv(..., context='spawn') or SyncVectorEnv")  # fmt: skip
        if params is None:
            params = DEFAULT_PARAMS.copy()
            params.set("forward_step", 0.4)
            params.set("turn_step", 22.5)
        if kwargs.get("render_mode") is None:  # the frame buffer for `render` would take 30 MB
            kwargs = {"window_width": 80, "window_height": 60} | kwargs
        self._lists = self._num_lists = 0  # the first display list, and their number: the light, then each room
        self._drawn: Sequence[int] = ()
        with contextlib.redirect_stdout(io.StringIO()):  # how many samples a pixel it falls back to, twice
            super().__init__(num_rows, num_cols, room_size, max_episode_steps, params=params, **kwargs)
        self._ezpickle_kwargs["antialias"] = antialias
        self._share_canvas(antialias)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start in another maze."""
        obs, info = super().reset(seed=seed, options=options)
        return obs, info | {"cell": self._cell()}

    def step(self, action: int) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Turn or move, and look."""
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated, truncated, info | {"cell": self._cell()}

    def _cell(self) -> NDArray[np.int64]:
        return np.floor(self.agent.pos[[0, 2]]).astype(np.int64)

    def close(self) -> None:
        """Free what OpenGL keeps of the maze."""
        super().close()
        if self._lists:
            self.shadow_window.switch_to()
            gl.glDeleteLists(self._lists, self._num_lists)
            self._lists = 0

    def render_obs(self, frame_buffer: FrameBuffer | None = None) -> NDArray[np.uint8]:
        """What the agent sees, (H, W, 3): MiniWorld's, drawn of the rooms in view."""
        shape = frame_buffer or self.obs_fb
        self._drawn = self._rooms_in_view(shape.width / shape.height)
        try:
            image: NDArray[np.uint8] = super().render_obs(frame_buffer)
        finally:
            self._drawn = range(len(self.rooms))  # all, for the view from above
        return image

    def _gen_world(self) -> None:
        super()._gen_world()
        tile = self.room_size + self.gap_size
        start = np.array([self.room_size / 2, 0.0, self.room_size / 2])
        self.agent.pos, self.agent.dir = start, 0.0
        self.box.pos = start + np.array([self.num_cols - 1, 0, self.num_rows - 1]) * tile

    def _share_canvas(self, antialias: bool) -> None:
        """Draw into the window and the frame buffers of all mazes in this process, instead of those of its own."""
        sizes = [(buffer.width, buffer.height) for buffer in (self.obs_fb, self.vis_fb)]
        for buffer in (self.obs_fb, self.vis_fb):
            _delete(buffer)
        self.shadow_window.close()
        self.shadow_window = _window()
        self.shadow_window.switch_to()
        kind = FrameBuffer if antialias else _AliasedFrameBuffer
        self.obs_fb, self.vis_fb = _frame_buffer(kind, *sizes[0], 8), _frame_buffer(FrameBuffer, *sizes[1], 16)

    def _render_static(self) -> None:
        """Compile the display lists; MiniWorld calls this at each reset."""
        self.shadow_window.switch_to()
        if self._lists:
            gl.glDeleteLists(self._lists, self._num_lists)
        self._num_lists = 1 + len(self.rooms)
        self._lists = gl.glGenLists(self._num_lists)
        gl.glNewList(self._lists, gl.GL_COMPILE)
        self._light()
        gl.glEndList()
        for index, room in enumerate(self.rooms):
            gl.glNewList(self._lists + 1 + index, gl.GL_COMPILE)
            gl.glEnable(gl.GL_TEXTURE_2D)
            room._render()
            for entity in self.entities:
                if entity is not self.agent and room.point_inside(entity.pos):
                    entity.render()  # none but the agent ever moves
            gl.glEndList()
        self._portals = _find_portals(self.rooms)

    def _light(self) -> None:
        # MiniWorld adds its fourth coordinate, 1, to the other three instead of appending it, and so lights from afar
        gl.glLightfv(gl.GL_LIGHT0, gl.GL_POSITION, (gl.GLfloat * 4)(*(self.light_pos + 1)))
        gl.glLightfv(gl.GL_LIGHT0, gl.GL_AMBIENT, (gl.GLfloat * 4)(*self.light_ambient, 1))
        gl.glLightfv(gl.GL_LIGHT0, gl.GL_DIFFUSE, (gl.GLfloat * 4)(*self.light_color, 1))
        gl.glEnable(gl.GL_LIGHTING)
        gl.glEnable(gl.GL_LIGHT0)
        gl.glShadeModel(gl.GL_SMOOTH)
        gl.glEnable(gl.GL_COLOR_MATERIAL)
        gl.glColorMaterial(gl.GL_FRONT_AND_BACK, gl.GL_AMBIENT_AND_DIFFUSE)

    def _render_world(self, frame_buffer: FrameBuffer, render_agent: bool) -> NDArray[np.uint8]:
        gl.glCallList(self._lists)
        for room in self._drawn:
            gl.glCallList(self._lists + 1 + room)
        if render_agent:
            gl.glDisable(gl.GL_TEXTURE_2D)  # as the box, which MiniWorld draws just before, leaves it
            gl.glNormal3f(0, -1, 0)
            self.agent.render()
        image: NDArray[np.uint8] = frame_buffer.resolve()
        return image

    def _rooms_in_view(self, aspect: float) -> Sequence[int]:
        """Indices of the rooms that can be seen, nearest first: through each opening, what lies in the part of the view
        that the opening leaves. Rooms are convex and the maze is a tree, so each is come to once."""
        x, _, z = self.agent.cam_pos.tolist()
        dx, _, dz = self.agent.cam_dir.tolist()
        here = [i for i, r in enumerate(self.rooms) if r.min_x <= x <= r.max_x and r.min_z <= z <= r.max_z]
        if not here or self.agent.cam_pitch:
            return range(len(self.rooms))
        spread = 1.02 * math.tan(math.radians(self.agent.cam_fov_y) / 2) * aspect
        right, left = (dx + spread * dz, dz - spread * dx), (dx - spread * dz, dz + spread * dx)
        seen = []
        ahead: list[tuple[int, int, _Point, _Point]] = [(here[0], -1, right, left)]
        for room, before, right, left in ahead:
            seen.append(room)
            for neighbor, (px, pz), (qx, qz) in self._portals[room]:
                if neighbor != before:
                    wedge = _narrow((px - x, pz - z), (qx - x, qz - z), right, left)
                    if wedge is not None:
                        ahead.append((neighbor, room, *wedge))
        return seen


def _narrow(p: _Point, q: _Point, right: _Point, left: _Point) -> tuple[_Point, _Point] | None:
    """The part of the view between the directions `right` and `left` that the opening from p to q leaves, if any."""
    area = _cross(p, q)
    if abs(area) < 0.05 * math.dist(p, q):  # the eye is in the opening, which hides nothing
        return right, left
    if area < 0:
        p, q = q, p
    start, end = 0.0, 1.0  # the part of the opening that is in view
    for at_p, at_q in ((_cross(right, p), _cross(right, q)), (_cross(p, left), _cross(q, left))):
        if at_p < 0:
            start = max(start, at_p / (at_p - at_q)) if at_q > 0 else 1.0
        elif at_q < 0:
            end = min(end, at_p / (at_p - at_q))
    if start >= end:
        return None
    dx, dz = q[0] - p[0], q[1] - p[1]
    return (p[0] + start * dx, p[1] + start * dz), (p[0] + end * dx, p[1] + end * dz)


def _cross(a: _Point, b: _Point) -> float:
    return a[0] * b[1] - a[1] * b[0]


def _find_portals(rooms: Sequence[Room]) -> list[list[tuple[int, _Point, _Point]]]:
    """For each room the openings in its walls: the room behind, and both ends."""
    sides: dict[Any, list[tuple[int, _Point, _Point]]] = {}
    for index, room in enumerate(rooms):
        for edge, portals in enumerate(room.portals):
            for portal in portals:
                ends = [room.outline[edge] + room.edge_dirs[edge] * portal[name] for name in ("start_pos", "end_pos")]
                p, q = ((float(end[0]), float(end[2])) for end in ends)
                key = frozenset((round(x, 3), round(z, 3)) for x, z in (p, q))
                sides.setdefault(key, []).append((index, p, q))
    found: list[list[tuple[int, _Point, _Point]]] = [[] for _ in rooms]
    for (one, p, q), (other, _, _) in sides.values():
        found[one].append((other, p, q))
        found[other].append((one, p, q))
    return found


@functools.cache
def _window() -> Any:
    """A hidden window, for all mazes of this process."""
    window = pyglet.window.Window(width=1, height=1, visible=False)
    gl.glEnable(gl.GL_CULL_FACE)
    return window


@functools.cache
def _frame_buffer(kind: type[FrameBuffer], width: int, height: int, num_samples: int) -> FrameBuffer:
    """The one of this kind and size, in the hidden window."""
    with contextlib.redirect_stdout(io.StringIO()):
        return kind(width, height, num_samples)


def _delete(buffer: FrameBuffer) -> None:
    """Free what a frame buffer holds, in whose window it is."""
    for frame in (buffer.multi_fbo, buffer.final_fbo):
        gl.glBindFramebuffer(gl.GL_FRAMEBUFFER, frame)
        for attachment in (gl.GL_COLOR_ATTACHMENT0, gl.GL_DEPTH_ATTACHMENT):
            kind, name = gl.GLint(), gl.GLint()
            for what, value in ((gl.GL_FRAMEBUFFER_ATTACHMENT_OBJECT_TYPE, kind),
                                (gl.GL_FRAMEBUFFER_ATTACHMENT_OBJECT_NAME, name)):  # fmt: skip
                gl.glGetFramebufferAttachmentParameteriv(gl.GL_FRAMEBUFFER, attachment, what, ctypes.byref(value))
            delete = gl.glDeleteTextures if kind.value == gl.GL_TEXTURE else gl.glDeleteRenderbuffers
            delete(1, ctypes.byref(gl.GLuint(name.value)))
        gl.glBindFramebuffer(gl.GL_FRAMEBUFFER, 0)
        gl.glDeleteFramebuffers(1, ctypes.byref(frame))


class _AliasedFrameBuffer(FrameBuffer):
    """MiniWorld's frame buffer, with one sample a pixel."""

    def bind(self) -> None:
        gl.glBindFramebuffer(gl.GL_FRAMEBUFFER, self.final_fbo)
        gl.glViewport(0, 0, self.width, self.height)

    def resolve(self) -> NDArray[np.uint8]:
        pixels = self.img_array.ctypes.data_as(ctypes.POINTER(gl.GLubyte))
        gl.glPixelStorei(gl.GL_PACK_ALIGNMENT, 1)
        gl.glReadPixels(0, 0, self.width, self.height, gl.GL_RGB, gl.GL_UNSIGNED_BYTE, pixels)
        gl.glBindFramebuffer(gl.GL_FRAMEBUFFER, 0)
        return self.img_array[::-1].copy()
