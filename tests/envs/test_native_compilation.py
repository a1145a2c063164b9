"""Numba's machine code on disk, and the engine without Numba."""

import importlib
import resource
import runpy
import shutil
import subprocess
import sys
from contextlib import nullcontext

import numba
import pytest

from rapid_wrappers.envs.native import jit

HEAD = "from engine.jit import njit\n"
INNER = HEAD + "@njit\ndef inner(x): return x + 1\n"
OUTER = HEAD + "from engine.inner import inner\n@njit\ndef outer(x): return 2 * inner(x)\n"


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """A folder with the engine's ``jit.py`` and, in two files, a compiled function that calls another one."""
    folder = tmp_path / "engine"
    folder.mkdir()
    shutil.copy(jit.__file__, folder)
    for name, text in (("__init__", ""), ("inner", INNER), ("outer", OUTER)):
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield folder
    forget()


def forget():
    for name in [name for name in sys.modules if name.partition(".")[0] == "engine"]:
        del sys.modules[name]


def call(limit=None):
    """Import the engine as a new process would and call `outer`; return its result and the number of compilations."""
    forget()
    importlib.invalidate_caches()
    outer = importlib.import_module("engine.outer").outer
    with limit or nullcontext():
        result = outer(1)
    return result, sum(outer.stats.cache_misses.values())


def test_machine_code_is_kept_until_any_file_of_the_engine_changes(engine):
    """Numba itself would keep `outer` when only `inner` has changed, whose code `outer` contains."""
    assert call() == (4, 1)
    assert call() == (4, 0)
    (engine / "inner.py").write_text(INNER.replace("x + 1", "x + 2"))
    assert call() == (6, 1)
    assert call() == (6, 0)


@pytest.mark.parametrize("damage", [b"", b"nothing that could be loaded" * 100])
@pytest.mark.parametrize("kind", ["nbi", "nbc"])  # Numba's index, and its machine code
def test_damaged_machine_code_is_compiled_again(engine, kind, damage):
    call()
    kept = [*engine.rglob(f"*.{kind}")]
    assert kept
    for file in kept:
        file.write_bytes(damage)
    assert call() == (4, 1)
    assert call() == (4, 0)


class FullDisk:
    """No file can grow beyond two KB."""

    def __enter__(self):
        self.limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2048, self.limits[1]))

    def __exit__(self, *_):
        resource.setrlimit(resource.RLIMIT_FSIZE, self.limits)


def test_the_engine_runs_if_the_disk_is_full(engine):
    assert call(FullDisk()) == (4, 1)
    assert call() == (4, 1)


def test_the_engine_runs_if_no_folder_can_be_written_to(engine, monkeypatch):
    (engine / "file").touch()
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(engine / "file" / "cache"))
    assert call()[0] == 4


def test_without_numbas_compiler_the_engine_says_so(monkeypatch):
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    with pytest.raises(ImportError, match="unset NUMBA_DISABLE_JIT"):
        runpy.run_path(jit.__file__)


def test_without_numba_make_vec_gives_minigrid_itself():
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "import gymnasium as gym, rapid_wrappers.envs\n"
        "print(type(gym.make_vec('rapid/MultiRoom-N2-S4-v0', 2)).__name__)\n"
        "try: import rapid_wrappers.envs.native\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "SyncVectorEnv",
        "the native engine needs Numba: pip install 'rapid-wrappers[native]'",
    ]
