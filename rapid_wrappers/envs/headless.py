"""MiniWorld's import, which opens OpenGL, with or without a display."""

import os
import sys

__all__ = ["import_miniworld"]

_PACKAGES = "libegl1 libgl1 libglu1-mesa libgl1-mesa-dri"  # Debian's and Ubuntu's


def import_miniworld() -> None:
    """Import MiniWorld, which registers its ids; where there is no display, it will draw through EGL.

    Software rendering (Mesa's llvmpipe) then stays in the calling thread, which for images of this size is faster than
    threads of its own; ``LP_NUM_THREADS`` set beforehand decides otherwise.

    Raises:
        ImportError: If MiniWorld is not installed, or OpenGL does not work; the message names what to install or set.
    """
    try:
        import pyglet
    except ModuleNotFoundError as error:
        raise ImportError("this environment needs MiniWorld: pip install 'rapid-wrappers[miniworld]'") from error
    opened = any(name.startswith(("pyglet.canvas", "pyglet.gl", "pyglet.window")) for name in sys.modules)
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        pyglet.options["headless"] = True  # only pyglet's first import of OpenGL looks at it
    os.environ.setdefault("LP_NUM_THREADS", "0")  # Mesa reads it where it starts to draw
    try:
        import miniworld  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "miniworld":
            raise
        raise ImportError("this environment needs MiniWorld: pip install 'rapid-wrappers[miniworld]'") from error
    except Exception as error:  # of pyglet's own types, which cannot be imported without OpenGL
        remedy = f"OpenGL is missing or incomplete; on Debian and Ubuntu: apt-get install {_PACKAGES}"
        if opened:
            remedy = (
                "pyglet has tried before and is to be imported anew: restart, and import MiniWorld by this function"
            )
        elif not (pyglet.options["headless"] or isinstance(error, ImportError)):
            remedy = f"no window can be opened on DISPLAY={os.environ.get('DISPLAY')}; restart without it to need none"
        raise ImportError(f"MiniWorld cannot draw ({type(error).__name__}: {error}): {remedy}") from error
