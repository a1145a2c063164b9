import gc
import importlib.util
import runpy
import signal
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from tests.scripted_env import SCRIPTED, ScriptedEnv

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell script's background; tests send it
    signal.signal(signal.SIGINT, signal.default_int_handler)

SCRIPTS = Path(__file__).parents[1] / "cleanrl_scripts"


def import_script(name):
    """The script as a module, without running it."""
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


@pytest.fixture
def train(request, tmp_path, monkeypatch):
    """Run the test module's SCRIPT as a user does, and return its variables with the points of its event file in
    ``tags``."""
    import torch
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    script = request.module.SCRIPT
    monkeypatch.chdir(tmp_path)

    def run(*argv):
        monkeypatch.setattr(sys, "argv", [script, *map(str, argv)])
        rng = torch.get_rng_state()
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            variables = runpy.run_path(str(SCRIPTS / script), run_name="__main__")
        except BaseException:  # its writer's thread would go on, and miss the run's folder in a later test
            for writer in [x for x in gc.get_objects() if type(x) is SummaryWriter]:
                writer.close()
            raise
        finally:
            torch.set_rng_state(rng)
            for number, handler in handlers.items():
                signal.signal(number, handler)
        events = EventAccumulator(f"runs/{variables['run_name']}", size_guidance={"scalars": 0})
        events.Reload()
        variables["tags"] = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
        return variables

    return run


@pytest.fixture
def scripted():
    """Register a scripted environment for a script to train on."""

    def register(env=ScriptedEnv, **arguments):
        gym.register(SCRIPTED, lambda: env(**arguments))

    yield register
    gym.registry.pop(SCRIPTED)
