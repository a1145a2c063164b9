"""Faster drawing for MiniWorld's maze, and several mazes in one process."""

import contextlib
import ctypes
import functools
import io
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rapid_wrappers.envs.headless import import_miniworld
from rapid_wrappers.envs.maze_visibility import find_portals, rooms_in_view

import_miniworld()

import pyglet.window  # noqa: E402
from miniworld.envs.maze import Maze  # noqa: E402
from miniworld.opengl import FrameBuffer  # noqa: E402
from pyglet import gl  # noqa: E402

__all__ = ["FastMaze"]

_PROCESS = os.getpid()  # the process that opened OpenGL


class FastMaze(Maze):
    """MiniWorld's ``Maze``, drawn in half the time.

    Only the rooms in view are drawn. The pixels equal MiniWorld's except for a rare one in a doorway.

    Each maze has its own display lists, where all of MiniWorld's environments share one: in one process, each of those
    shows the world that was reset last. All mazes of a process share one hidden window and its frame buffers, because
    MiniWorld never frees theirs. As in MiniWorld, use all mazes of a process in one thread.

    Args:
        args: Positional arguments of MiniWorld's ``Maze``.
        antialias: Whether to smooth edges by multisampling, as MiniWorld does.
        kwargs: Keyword arguments of MiniWorld's ``Maze``.

    Raises:
        RuntimeError: In a process forked from one that has loaded this module, where OpenGL would hang.
    """

    obs_fb: FrameBuffer
    shadow_window: Any
    vis_fb: FrameBuffer

    def __init__(self, *args: Any, antialias: bool = True, **kwargs: Any) -> None:
        if os.getpid() != _PROCESS:
            raise RuntimeError("expected a process of its own for OpenGL, got one forked from a process that has it: "
                               "use AsyncVectorEnv(..., context='spawn') or SyncVectorEnv")  # fmt: skip
        if kwargs.get("render_mode") is None:  # saves the 30 MB of the frame buffer that only `render` needs
            kwargs = {"window_width": 80, "window_height": 60} | kwargs
        self._lists = self._num_lists = 0  # the first display list and their number: one for the light, one a room
        self._drawn: Sequence[int] = ()
        with _quiet():
            super().__init__(*args, **kwargs)
        self._ezpickle_kwargs["antialias"] = antialias
        self._share_canvas(antialias)

    def close(self) -> None:
        """Free the display lists."""
        super().close()
        if self._lists:
            self.shadow_window.switch_to()
            gl.glDeleteLists(self._lists, self._num_lists)
            self._lists = 0

    def render_obs(self, frame_buffer: FrameBuffer | None = None) -> NDArray[np.uint8]:
        """Draw what the agent sees, ``(H, W, 3)``, from the rooms in view."""
        shape = frame_buffer or self.obs_fb
        self._drawn = self._rooms_in_view(shape.width / shape.height)
        try:
            image: NDArray[np.uint8] = super().render_obs(frame_buffer)
        finally:
            self._drawn = range(len(self.rooms))  # the view from above shows all
        return image

    def _rooms_in_view(self, aspect: float) -> Sequence[int]:
        return rooms_in_view(self.agent, self.rooms, self._portals, aspect)

    def _share_canvas(self, antialias: bool) -> None:
        """Replace this maze's window and frame buffers by those that all mazes of the process share."""
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
                    entity.render()  # only the agent ever moves
            gl.glEndList()
        self._portals = find_portals(self.rooms)

    def _light(self) -> None:
        # MiniWorld adds the fourth coordinate, 1, to the other three instead of appending it: its light is distant.
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
            gl.glDisable(gl.GL_TEXTURE_2D)  # MiniWorld draws the box just before, which leaves OpenGL in this state
            gl.glNormal3f(0, -1, 0)
            self.agent.render()
        image: NDArray[np.uint8] = frame_buffer.resolve()
        return image


def _quiet() -> contextlib.redirect_stdout[io.StringIO]:
    """Hide the notice that a frame buffer prints when the driver offers fewer samples a pixel."""
    return contextlib.redirect_stdout(io.StringIO())


@functools.cache
def _window() -> Any:
    """Open the hidden window that all mazes of this process share."""
    window = pyglet.window.Window(width=1, height=1, visible=False)
    gl.glEnable(gl.GL_CULL_FACE)
    return window


@functools.cache
def _frame_buffer(kind: type[FrameBuffer], width: int, height: int, num_samples: int) -> FrameBuffer:
    """Make the shared frame buffer of this kind and size, in the hidden window."""
    with _quiet():
        return kind(width, height, num_samples)


def _delete(buffer: FrameBuffer) -> None:
    """Free what a frame buffer holds; the window that it belongs to must be the current one."""
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
    """MiniWorld's frame buffer with one sample a pixel."""

    def bind(self) -> None:
        gl.glBindFramebuffer(gl.GL_FRAMEBUFFER, self.final_fbo)
        gl.glViewport(0, 0, self.width, self.height)

    def resolve(self) -> NDArray[np.uint8]:
        pixels = self.img_array.ctypes.data_as(ctypes.POINTER(gl.GLubyte))
        gl.glPixelStorei(gl.GL_PACK_ALIGNMENT, 1)
        gl.glReadPixels(0, 0, self.width, self.height, gl.GL_RGB, gl.GL_UNSIGNED_BYTE, pixels)
        gl.glBindFramebuffer(gl.GL_FRAMEBUFFER, 0)
        return self.img_array[::-1].copy()
