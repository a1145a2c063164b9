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
    """Numba's cache on disk, emptied when any file of the engine changes, and done without where it cannot be used.

    Numba itself empties a function's when the function's own file changes; but machine code holds that of the
    functions it calls, wherever they are.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file._source_stamp = _STAMP

    def load_overload(self, *args: Any) -> Any:
        try:
            return super().load_overload(*args)
        except Exception:  # whatever unpickling a damaged file leads to
            with suppress(OSError):
                self.flush()
            return None

    def save_overload(self, *args: Any) -> None:
        with suppress(OSError):  # such as a full disk
            super().save_overload(*args)


def njit(function: Callable[..., Any], inline: bool = False) -> Callable[..., Any]:
    """Compile at the first call, and keep the machine code on disk where there is a place to write to."""
    compiled: Any = numba.njit(function, forceinline=inline)
    with suppress(RuntimeError):  # there is none
        compiled._cache = _Cache(function)
    return compiled  # type: ignore[no-any-return]


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same for what is called ten thousands of times a level and LLVM would not inline: 1.5 times as fast."""
    return njit(function, inline=True)
