"""Ctrl-C and SIGTERM: the script saves and stops at the end of its rollout; workers leave both to it."""

import multiprocessing
import signal
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

__all__ = ["StopSignal", "ignore_signals_in_workers"]


class StopSignal:
    """True once SIGINT (Ctrl-C) or SIGTERM has arrived, so that a loop can save and stop; a second one interrupts.

    A signal that the process ignored before stays ignored, as the terminal's is for a background process.

    Args:
        notice: Called with the signal's name when the first one arrives. If it cannot print, nothing happens.
    """

    def __init__(self, notice: Callable[[str], None] = lambda name: None) -> None:
        self.number: int | None = None  # of the signal, once it has arrived
        self._notice = notice
        heard = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
        self._previous = {number: signal.signal(number, self._handle) for number in heard}

    def __bool__(self) -> bool:
        """Whether a signal has arrived."""
        return self.number is not None

    def restore(self) -> None:
        """Give the signals back to their previous handlers."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        self.restore()
        with suppress(OSError, ValueError):  # the output may be closed
            self._notice(signal.Signals(number).name)


def ignore_signals_in_workers() -> None:
    """Ignore both signals if this is a worker: one sent to the whole group would end it before the script has saved."""
    if multiprocessing.parent_process() is not None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
