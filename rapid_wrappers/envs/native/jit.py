"""Compilation of the engine with Numba."""

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

try:
    import numba
except ModuleNotFoundError as error:
    if error.name != "numba":
        raise
    raise ImportError("the native engine needs Numba: pip install 'rapid-wrappers[native]'") from error

__all__ = ["inlined", "njit"]

_SOURCES = b"".join(file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py")))
_STAMP = (hashlib.sha256(_SOURCES).hexdigest(), len(_SOURCES))


def njit(function: Callable[..., Any], inline: bool = False) -> Callable[..., Any]:
    """Compile at the first call, and keep the machine code on disk until a file of the engine changes.

    Numba drops what it has kept when the function's own file changes; but a function holds the code of those it calls,
    wherever they are. Where no place can be written to, or Numba's cache has another form, nothing is kept.
    """
    compiled: Any = numba.njit(function, forceinline=inline)
    try:
        compiled.enable_caching()
        cache_file = compiled._cache._cache_file
        if not hasattr(cache_file, "_source_stamp"):
            raise AttributeError("another form of cache")
        cache_file._source_stamp = _STAMP
    except (RuntimeError, AttributeError):
        return numba.njit(function, forceinline=inline)
    return compiled  # type: ignore[no-any-return]


inlined = partial(njit, inline=True)
"""The same for what is called ten thousands of times a level and LLVM would not inline: 1.5 times as fast."""
