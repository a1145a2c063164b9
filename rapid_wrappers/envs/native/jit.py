"""Compilation of the engine with Numba."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

try:
    import numba
except ModuleNotFoundError as error:
    if error.name != "numba":
        raise
    raise ImportError("the native engine needs Numba: pip install 'rapid-wrappers[native]'") from error

__all__ = ["njit"]

_SOURCES = b"".join(file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py")))
_STAMP = (hashlib.sha256(_SOURCES).hexdigest(), len(_SOURCES))


def njit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile at the first call, and keep the machine code on disk until a file of the engine changes.

    Numba drops what it has kept when the function's own file changes; but a function holds the code of those it calls,
    wherever they are. Where no place can be written to, or Numba's cache has another form, nothing is kept.
    """
    compiled = numba.njit(function)
    try:
        compiled.enable_caching()
        cache_file = compiled._cache._cache_file  # type: ignore[attr-defined]
        assert hasattr(cache_file, "_source_stamp")
        cache_file._source_stamp = _STAMP
    except (RuntimeError, AttributeError, AssertionError):
        compiled = numba.njit(function)
    return compiled
