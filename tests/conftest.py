import contextlib
import importlib.util
import os
import runpy
import signal
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

from tests.scripted_env import SCRIPTED, ScriptedEnv

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell script's background; tests send it
    signal.signal(signal.SIGINT, signal.default_int_handler)

SCRIPTS = Path(__file__).parents[1] / "cleanrl_scripts"


def import_script(name):
    """Import a script as a module, without running it."""
    spec = importlib.util.spec_from_file_location(Path(name).stem, SCRIPTS / name)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def assert_equal(x, y, at="state"):
    """Compare two checkpoints."""
    import torch

    assert type(x) is type(y), at
    if isinstance(x, dict):
        assert x.keys() == y.keys(), at
        for key in x:
            assert_equal(x[key], y[key], f"{at}/{key}")
    elif isinstance(x, list | tuple):
        assert len(x) == len(y), at
        for i, (a, b) in enumerate(zip(x, y, strict=True)):
            assert_equal(a, b, f"{at}/{i}")
    elif isinstance(x, np.ndarray | torch.Tensor):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y), err_msg=at)
    else:
        assert x == y or x != x, at


@contextlib.contextmanager
def process_of_its_own():
    """Run what a script runs, and put right at the end what it changes in its process."""
    import torch

    from rapid_wrappers.training import folder

    at_exit = []
    rng, threads = torch.get_rng_state(), torch.get_num_threads()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "excepthook", sys.excepthook)
        register = SimpleNamespace(register=lambda *call: at_exit.append(call), unregister=lambda _: at_exit.clear())
        patch.setattr(folder, "atexit", register)
        try:
            yield
        except BaseException as error:
            _close_run(error)
            raise
        finally:
            for function, *arguments in at_exit:
                function(*arguments)
            torch.set_rng_state(rng)
            torch.set_num_threads(threads)
            for number, handler in handlers.items():
                signal.signal(number, handler)


def _close_run(error):
    """Close what the end of a process would close of the run that ended with this error."""
    from rapid_wrappers.training.run import Run

    for frame, _ in traceback.walk_tb(error.__traceback__):
        run = frame.f_locals.get("run")
        if isinstance(run, Run):
            if "envs" in frame.f_locals:
                frame.f_locals["envs"].close()
            if hasattr(run, "log"):
                run.log.writer.close()  # its thread would miss the folder in a later test
            with contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(run._claim), os.stat(Path(run.folder, ".lock"))):
                    os.close(run._claim)


def run_script(script, *argv):
    """Run a script in this process and in the current folder, as a user does; return its variables."""
    with process_of_its_own(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [script, *map(str, argv)])
        return runpy.run_path(str(SCRIPTS / script), run_name="__main__")


def scalars(folder):
    """All points of a run's event files except the speed, by tag: (frames, value)."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    tags = [tag for tag in events.Tags()["scalars"] if tag != "charts/SPS"]
    points = {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in sorted(tags)}
    # Files of a run and of its resumption within the same second may be read in the wrong order.
    return {tag: sorted(pairs, key=lambda pair: pair[0]) for tag, pairs in points.items()}


@pytest.fixture
def train(request, tmp_path, monkeypatch):
    """Run the test module's SCRIPT in an empty folder; return its variables, with its :func:`scalars` in ``tags``."""
    monkeypatch.chdir(tmp_path)

    def train(*argv):
        variables = run_script(request.module.SCRIPT, *argv)
        return variables | {"tags": scalars(variables["run"].folder)}

    return train


@pytest.fixture
def scripted():
    """Register a scripted environment for a script to train on."""

    def register(env=ScriptedEnv, **arguments):
        gym.register(SCRIPTED, lambda: env(**arguments))

    yield register
    gym.registry.pop(SCRIPTED)


@pytest.fixture
def forked_workers(monkeypatch):
    """Fork the workers of the async engine, as is the default as long as OpenGL is not loaded.

    Spawned ones take seconds to import everything.
    """
    from gymnasium.vector import AsyncVectorEnv

    from rapid_wrappers.training import environments

    def fork(*arguments, context, **options):
        return AsyncVectorEnv(*arguments, context="fork", **options)

    monkeypatch.setattr(environments, "AsyncVectorEnv", fork)
