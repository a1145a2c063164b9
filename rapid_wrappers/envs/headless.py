"""Importing MiniWorld, which opens OpenGL, with or without a display."""

import os
import sys
from typing import Any

__all__ = ["import_miniworld", "shares_display_list"]

_PACKAGES = "libegl1 libgl1 libglu1-mesa libgl1-mesa-dri"  # Debian's and Ubuntu's


def import_miniworld() -> None:
    """Import MiniWorld, which registers its ids. Without a display, it will draw through EGL.

    Software rendering (Mesa's llvmpipe) then stays in the calling thread, which is faster than threads of its own for
    images of this size. To choose otherwise, set ``LP_NUM_THREADS`` beforehand.

    Raises:
        ImportError: If MiniWorld is not installed or OpenGL does not work; the message says what to install or set.
    """
    try:
        import pyglet
    except ModuleNotFoundError as error:
        raise ImportError("this environment needs MiniWorld: pip install 'rapid-wrappers[miniworld]'") from error
    opened = any(name.startswith(("pyglet.canvas", "pyglet.gl", "pyglet.window")) for name in sys.modules)
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        pyglet.options["headless"] = True  # pyglet reads this only when it first imports OpenGL
    os.environ.setdefault("LP_NUM_THREADS", "0")  # Mesa reads this when it starts to draw
    try:
        import miniworld  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "miniworld":
            raise
        raise ImportError("this environment needs MiniWorld: pip install 'rapid-wrappers[miniworld]'") from error
    except Exception as error:  # pyglet raises types of its own, which cannot be imported without OpenGL
        remedy = f"OpenGL is missing or incomplete; on Debian and Ubuntu: apt-get install {_PACKAGES}"
        if opened:
            remedy = "pyglet has already tried to open it: restart, and import MiniWorld through this function first"
        elif not (pyglet.options["headless"] or isinstance(error, ImportError)):
            remedy = (
                f"no window can be opened on DISPLAY={os.environ.get('DISPLAY')}; unset DISPLAY to draw without one"
            )
        raise ImportError(f"MiniWorld cannot draw ({type(error).__name__}: {error}): {remedy}") from error


def shares_display_list(env: Any) -> bool:
    """Whether ``env`` compiles its world into the one display list that MiniWorld's environments share.

    In one process, each of these shows the world that was reset last, whichever it was. ``MazeS5`` has its own lists.
    """
    miniworld = sys.modules.get("miniworld.miniworld")
    maze = sys.modules.get("rapid_wrappers.envs.maze")
    return (
        miniworld is not None
        and isinstance(env.unwrapped, miniworld.MiniWorldEnv)
        and (maze is None or not isinstance(env.unwrapped, maze.MazeS5))
    )
