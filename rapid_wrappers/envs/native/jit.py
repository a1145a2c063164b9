"""Compilation of the engine with Numba."""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

try:
    import numba
    from numba.core.caching import FunctionCache
except ModuleNotFoundError as error:
    if error.name != "numba":
        raise
    raise ImportError("the native engine needs Numba: pip install 'rapid-wrappers[native]'") from error
if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
    raise ImportError("the native engine needs Numba's compiler: unset NUMBA_DISABLE_JIT")

__all__ = ["inlined", "njit"]

_SOURCES = b"".join(file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py")))
_STAMP = (hashlib.sha256(_SOURCES).hexdigest(), len(_SOURCES))


class _Cache(FunctionCache):
    """Numba's cache on disk, emptied when any file of the engine changes; without a usable cache, Numba compiles.

    Numba itself empties a function's cache only when the function's own file changes. But its machine code contains the
    code of the functions that it calls, whichever file they are in.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file._source_stamp = _STAMP

    def load_overload(self, *args: Any) -> Any:
        try:
            return super().load_overload(*args)
        except Exception:  # unpickling a damaged file can raise anything
            with suppress(OSError):
                self.flush()
            return None

    def save_overload(self, *args: Any) -> None:
        with suppress(OSError):  # for example, the disk is full
            super().save_overload(*args)


def njit(function: Callable[..., Any], inline: bool = False) -> Callable[..., Any]:
    """Compile at the first call, and keep the machine code on disk if there is a writable place."""
    compiled: Any = numba.njit(function, forceinline=inline)
    with suppress(RuntimeError):  # no writable place
        compiled._cache = _Cache(function)
    return compiled  # type: ignore[no-any-return]


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile as :func:`njit` does, and force inlining, which LLVM would not choose.

    Functions that a level calls tens of thousands of times make it 1.5 times as fast this way.
    """
    return njit(function, inline=True)
