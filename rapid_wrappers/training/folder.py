"""The folder of a training run: a name of its own, one process at a time, and a word on how to go on after a crash."""

import atexit
import errno
import itertools
import os
import platform
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType

__all__ = ["claim_folder", "describe_process", "make_folder", "remove_if_empty"]

_LOCK = ".lock"
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


def make_folder(path: str) -> str:
    """Create a folder, with a number behind its name where that is taken, and return its path."""
    for number in itertools.count(2):
        try:
            os.makedirs(path)
            return path
        except FileExistsError:
            path = f"{path.split('~')[0]}~{number}"
    raise AssertionError


def claim_folder(folder: str, checkpoint: str) -> int:
    """Keep other processes that claim it out of a run's folder, until this one ends.

    From here on the folder is removed at the end if nothing was written to it. Where the process ends by an error, it
    says whether ``checkpoint``, a file in the folder, is there to go on from; of a full disk without a traceback.

    Returns:
        What ``os.close`` takes to give the claim back before the end.

    Raises:
        OSError: If another process has it, or the folder cannot be written to.
    """
    atexit.register(remove_if_empty, folder)  # first, so that Ctrl-C from here on leaves no empty folder either
    lock = os.open(Path(folder) / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            atexit.unregister(remove_if_empty)  # it is the other's
            raise OSError(f"another process writes to {folder}") from error
    sys.excepthook = partial(_last_words, Path(folder) / checkpoint)
    return lock


def remove_if_empty(folder: str) -> None:
    """Leave no folder behind where a run ended before it began."""
    if os.path.isdir(folder) and set(os.listdir(folder)) <= {_LOCK}:
        shutil.rmtree(folder)


def describe_process() -> dict[str, str]:
    """What to state beside a result: the command, the commit that the script is of ("-dirty" with changes to tracked
    files; empty where Git knows none) and the machine."""
    script = Path(sys.argv[0]).resolve()
    git = ["git", "-C", str(script.parent), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        commit = subprocess.run(git, capture_output=True, text=True, timeout=10).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        commit = ""
    processor = platform.processor() or platform.machine()
    with suppress(OSError, StopIteration):  # Linux, where Python knows the architecture only
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    return {"command": shlex.join(["python", script.name, *sys.argv[1:]]), "commit": commit, "machine": processor}


def _last_words(checkpoint: Path, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, OSError) and error.errno in _DISK:
        print(f"error: {error}", file=sys.stderr)
    elif isinstance(error, KeyboardInterrupt):
        print("interrupted" + ("" if checkpoint.exists() else ", before there was anything to save"), file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)
    if checkpoint.exists():
        print(f"the last checkpoint is still there: --resume {shlex.quote(str(checkpoint.parent))}", file=sys.stderr)
