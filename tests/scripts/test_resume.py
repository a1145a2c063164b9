"""Runs stopped from outside, as processes of their own, and checkpoints that somebody changed."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

from rapid_wrappers.training.checkpoint import load_checkpoint
from tests.conftest import SCRIPTS, assert_equal, import_script, run_script, scalars
from tests.scripted_env import SCRIPTED

SCRIPT = "ppo_rapid.py"
GRID = "rapid/MultiRoom-N2-S4-v0"
RUN = ("--env-id", GRID, "--num-envs", 4, "--num-steps", 32, "--update-epochs", 1, "--bc-batch-size", 32)
ROLLOUT = 4 * 32
ENDLESS = (*RUN, "--total-timesteps", 10**9)


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def start():
    """Start the script as a process of its own; its output goes to the files ``out`` and ``err``."""
    processes = []

    def start(*argv, **options):
        with open("out", "w") as out, open("err", "w") as err:
            options = {"stdout": out, "stderr": err} | options
            command = [sys.executable, str(SCRIPTS / SCRIPT), *map(str, argv)]
            processes.append(subprocess.Popen(command, **options))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()


def wait_for(process, condition):
    """Wait, as long as the process runs."""
    while not condition():
        assert process.poll() is None, Path("err").read_text()[-2000:]
        time.sleep(0.01)


def has_trained():
    return "SPS=" in Path("err").read_text()


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")
@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_to_the_script_and_its_workers_saves_and_stops_all_and_the_run_resumes(start, number):
    process = start(*ENDLESS, "--engine", "async", start_new_session=True)
    wait_for(process, has_trained)
    os.killpg(process.pid, number)
    assert process.wait() == 128 + number
    out = Path("out").read_text()
    assert f"{number.name}: saving" in out
    assert "Traceback" not in Path("err").read_text()
    (folder,) = Path("runs").iterdir()
    assert f"resume:  python {SCRIPTS / SCRIPT} --resume {folder}\n" in out
    frames = load_checkpoint(folder / "checkpoint.pt")["global_step"]
    run_script(SCRIPT, "--resume", folder, "--total-timesteps", frames + ROLLOUT)
    assert load_checkpoint(folder / "checkpoint.pt")["global_step"] == frames + ROLLOUT


@pytest.mark.slow
@pytest.mark.usefixtures("forked_workers")
def test_an_error_ends_the_workers_too(start):
    argv = (*RUN, "--engine", "async", "--total-timesteps", ROLLOUT)
    folder = run_script(SCRIPT, *argv)["run"].folder
    process = start("--resume", folder)
    assert process.wait() == 1
    assert f"error: {folder}/checkpoint.pt has {ROLLOUT} frames already" in Path("err").read_text()


@pytest.mark.slow
def test_a_closed_output_does_not_keep_a_signal_from_saving(start):
    process = start(*ENDLESS, stdout=subprocess.PIPE)
    wait_for(process, has_trained)
    process.stdout.close()
    process.send_signal(signal.SIGTERM)
    process.wait()
    assert list(Path("runs").glob("*/checkpoint.pt"))


def test_ctrl_c_during_start_up_leaves_no_empty_folder(start):
    process = start(*ENDLESS)
    wait_for(process, lambda: list(Path().glob("runs/*")))
    process.send_signal(signal.SIGINT)
    assert process.wait() != 0
    assert os.listdir("runs") == []


@pytest.mark.slow
def test_a_run_killed_at_random_moments_equals_the_one_that_was_not(start):
    rng = random.Random(0)
    argv = (*RUN, "--anneal-lr", "--total-timesteps", 200 * ROLLOUT, "--save-every", 1)
    os.mkdir("whole")
    with contextlib.chdir("whole"):
        whole = Path(run_script(SCRIPT, *argv)["run"].folder).resolve()
    process = start(*argv)
    for _ in range(8):
        wait_for(process, has_trained)
        time.sleep(rng.uniform(0, 0.3))  # the moment
        process.kill()
        process.wait()
        (folder,) = Path("runs").iterdir()
        process = start("--resume", folder) if (folder / "checkpoint.pt").exists() else start(*argv)
    code = process.wait()
    assert code == 0 or "frames already" in Path("err").read_text()
    assert scalars(folder) == scalars(whole)
    states = [load_checkpoint(run / "checkpoint.pt") for run in (folder, whole)]
    for state in states:
        state["args"].pop("resume")
    assert_equal(*states)


def test_engines_that_cannot_be_saved_start_their_episodes_again(capsys):
    folder = run_script(SCRIPT, *RUN, "--engine", "sync", "--total-timesteps", 3 * ROLLOUT)["run"].folder
    run_script(SCRIPT, "--resume", folder, "--total-timesteps", 6 * ROLLOUT)
    assert "episodes in flight start again" in capsys.readouterr().out
    steps = [step for step, _ in scalars(folder)["charts/episodic_return"]]
    assert steps == sorted(steps)
    assert steps[0] < 3 * ROLLOUT < steps[-1]
    state = load_checkpoint(Path(folder, "checkpoint.pt"))
    assert state["global_step"] == 6 * ROLLOUT
    assert state["parts"]["buffer"]["num_added"] == len(steps)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """The checkpoint of a run on the native engine, which holds the environments, too."""
    with contextlib.chdir(tmp_path_factory.mktemp("checkpoint")):
        folder = run_script(SCRIPT, *RUN, "--total-timesteps", 3 * ROLLOUT)["run"].folder
        return Path(folder, "checkpoint.pt").read_bytes()


def update(*keys, **values):
    """A function that changes entries of a part of a checkpoint."""

    def change(state):
        part = state["parts"]
        for key in keys:
            part = part[key]
        part.update(values)

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state["parts"].pop("envs"),
        lambda state: state["parts"].pop("episodes"),
        update(envs=None),
        update("envs", rng=np.zeros((4, 5), np.uint64)),
        update("envs", grid=np.zeros((4, 3), np.uint8)),
        update("envs", ready=np.zeros(4, bool)),
        update("episodes", returns=np.zeros(3)),
        update("episodes", lengths=np.zeros(4)),
        update("counter", counts=np.zeros(3)),
        update("buffer", "rows", step=np.zeros(3)),
        update("buffer", state_ids=np.full(3, 10**6)),
        update("buffer", num_added=0),
        update("agent", **{"actor.2.weight": torch.zeros(1)}),
        update("optimizer", state={0: {"step": torch.tensor(1.0), "exp_avg": torch.zeros(1)}}),
        lambda state: state["numbers"].pop("bc_next"),
        lambda state: state["numbers"].update(bc_next=None),
    ],
)
def test_a_checkpoint_that_somebody_changed_is_refused_with_one_line(checkpoint, monkeypatch, change):
    os.makedirs("runs/changed")
    path = Path("runs/changed/checkpoint.pt")
    path.write_bytes(checkpoint)
    state = load_checkpoint(path)
    args = import_script(SCRIPT).Args(**state["args"])
    change(state)
    args = replace(args, resume=str(path), total_timesteps=4 * ROLLOUT)
    monkeypatch.setattr("rapid_wrappers.training.args.read_args", lambda *_: (args, state))
    with pytest.raises(SystemExit, match=rf"^error: {path} does not fit this run: \S"):
        run_script(SCRIPT)
    assert set(os.listdir(path.parent)) == {"checkpoint.pt", ".lock"}


def test_a_buffer_that_became_too_small_is_refused(checkpoint):
    os.makedirs("runs/small")
    Path("runs/small/checkpoint.pt").write_bytes(checkpoint)
    with pytest.raises(SystemExit, match=r"does not fit this run: .* 10 pairs"):
        run_script(SCRIPT, "--resume", "runs/small", "--total-timesteps", 4 * ROLLOUT, "--buffer-size", 10)


def test_a_run_does_not_resume_in_an_environment_whose_spaces_have_changed(train, scripted):
    scripted(lengths=[4], dtype=np.float32)
    flags = "--num-envs 2 --num-steps 16 --total-timesteps"
    run = train("--env-id", SCRIPTED, *flags.split(), 32)["run"]
    gym.registry.pop(SCRIPTED)
    scripted(lengths=[4], dtype=np.float64)
    with pytest.raises(SystemExit, match=r"does not fit this run: expected observations and actions of .*float32"):
        train("--resume", run.folder, "--total-timesteps", 64)
