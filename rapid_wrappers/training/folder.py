"""The folder of a training run: a unique name, one process at a time, and how to resume after a crash."""

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
    """Create a folder and return its path, with a number appended if the name is taken."""
    for number in itertools.count(2):
        try:
            os.makedirs(path)
            return path
        except FileExistsError:
            path = f"{path.split('~')[0]}~{number}"
    raise AssertionError


def claim_folder(folder: str, checkpoint: str) -> int:
    """Claim a run's folder until this process ends; other processes cannot claim it in the meantime.

    At the end the folder is removed if nothing was written to it. If the process ends with an error, it says whether
    ``checkpoint``, a file in the folder, exists to resume from. A full disk is reported without a traceback.

    Returns:
        A file descriptor. ``os.close`` gives up the claim early.

    Raises:
        OSError: If another process has claimed the folder, or it cannot be written to.
    """
    atexit.register(remove_if_empty, folder)  # first, so that Ctrl-C leaves no empty folder behind
    lock = os.open(Path(folder) / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            atexit.unregister(remove_if_empty)  # the folder belongs to the other process
            raise OSError(f"another process writes to {folder}") from error
    sys.excepthook = partial(_last_words, Path(folder) / checkpoint)
    return lock


def remove_if_empty(folder: str) -> None:
    """Remove the folder of a run that ended before it wrote anything."""
    if os.path.isdir(folder) and set(os.listdir(folder)) <= {_LOCK}:
        shutil.rmtree(folder)


def describe_process() -> dict[str, str]:
    """Return what belongs beside a result: the command, the script's commit and the machine.

    The commit ends in "-dirty" if tracked files have changed, and is empty outside a Git checkout.
    """
    script = Path(sys.argv[0]).resolve()
    git = ["git", "-C", str(script.parent), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        commit = subprocess.run(git, capture_output=True, text=True, timeout=10).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        commit = ""
    processor = platform.processor() or platform.machine()
    with suppress(OSError, StopIteration):  # on Linux Python knows only the architecture
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    return {"command": shlex.join(["python", script.name, *sys.argv[1:]]), "commit": commit, "machine": processor}


def _last_words(checkpoint: Path, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, OSError) and error.errno in _DISK:
        print(f"error: {error}", file=sys.stderr)
    elif isinstance(error, KeyboardInterrupt):
        print("interrupted" + ("" if checkpoint.exists() else " before there was anything to save"), file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)
    if checkpoint.exists():
        print(f"resume from the last checkpoint: --resume {shlex.quote(str(checkpoint.parent))}", file=sys.stderr)
