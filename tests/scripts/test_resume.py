"""Runs that are stopped in any way and gone on with, against the same run without a stop."""

import multiprocessing
import os
import random
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from rapid_wrappers.training.checkpoint import load_checkpoint, save_checkpoint
from tests.conftest import assert_equal

SCRIPT = str(Path(__file__).parents[2] / "cleanrl_scripts" / "ppo_rapid.py")
RUN = ("--env-id", "rapid/KeyCorridorS3R1-v0", "--num-envs", "4", "--num-steps", "32", "--bc-batch-size", "32")
ROLLOUT = 4 * 32
LONG = (*RUN, "--anneal-lr", "--total-timesteps", str(100 * ROLLOUT), "--save-every", "1")


def run_script(cwd, argv):
    """The script in this process, with what it prints in the file `out`."""
    os.chdir(cwd)
    sys.argv = [SCRIPT, *argv]
    with open("out", "a") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    runpy.run_path(SCRIPT, run_name="__main__")


@pytest.fixture(scope="module")
def start():
    """Start the script as a process of its own, forked where all that it imports is there already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["torch._dynamo", "torch.utils.tensorboard", "tyro", "rapid_wrappers.envs.native", "tests.scripts.test_resume"]
    )

    def start(cwd, *argv):
        process = context.Process(target=run_script, args=(str(cwd), list(map(str, argv))))
        process.start()
        return process

    return start


@pytest.fixture(scope="module")
def finish(start):
    """Run the script to its end, and return its folder."""

    def finish(cwd, *argv, exitcode=0):
        process = start(cwd, *argv)
        process.join()
        assert process.exitcode == exitcode, (Path(cwd) / "out").read_text()[-2000:]
        return next((Path(cwd) / "runs").iterdir())

    return finish


def points(run):
    """Every point of the run's event files but the speed."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run), size_guidance={"scalars": 0})
    events.Reload()
    tags = set(events.Tags()["scalars"]) - {"charts/SPS"}
    return {tag: [(e.step, repr(e.value)) for e in events.Scalars(tag)] for tag in tags}


def assert_same_run(run, reference):
    assert points(run) == points(reference)
    states = [load_checkpoint(folder / "checkpoint.pt") for folder in (run, reference)]
    for state in states:
        state["args"].pop("resume")
    assert_equal(*states)


@pytest.fixture(scope="module")
def reference(finish, tmp_path_factory):
    """A run that nothing stops."""
    return finish(tmp_path_factory.mktemp("reference"), *LONG)


def wait_for_checkpoint(process, cwd):
    while process.is_alive() and not list(Path(cwd).glob("runs/*/checkpoint.pt")):
        time.sleep(0.005)
    assert process.is_alive(), (Path(cwd) / "out").read_text()[-2000:]


def kill_at_random_moments(start, finish, cwd, kills):
    """The run, killed so often and gone on with each time, and how often it was in the middle of a checkpoint."""
    rng = random.Random(kills)
    process, in_the_middle = start(cwd, *LONG), 0
    for _ in range(kills):
        wait_for_checkpoint(process, cwd)
        time.sleep(rng.uniform(0, 0.5))
        process.kill()
        process.join()
        run = next((Path(cwd) / "runs").iterdir())
        in_the_middle += (run / "checkpoint.pt.tmp").exists()
        process = start(cwd, "--resume", run)
    process.join()
    if "frames already" not in (Path(cwd) / "out").read_text():
        assert process.exitcode == 0
    return run, in_the_middle


def test_a_run_killed_at_random_moments_equals_the_one_that_was_not(start, finish, reference, tmp_path):
    run, _ = kill_at_random_moments(start, finish, tmp_path, 6)
    assert_same_run(run, reference)


@pytest.mark.slow
def test_a_run_killed_at_very_many_moments_equals_the_one_that_was_not(start, finish, reference, tmp_path):
    in_the_middle = 0
    for i in range(10):
        cwd = tmp_path / str(i)
        cwd.mkdir()
        run, times = kill_at_random_moments(start, finish, cwd, 10 + i)
        assert_same_run(run, reference)
        in_the_middle += times
    assert in_the_middle > 0


@pytest.mark.parametrize("flags", [(), ("--bc-anneal-until", str(13 * ROLLOUT)), ("--no-rapid",), ("--no-one-hot",)])
def test_a_run_resumed_at_any_checkpoint_equals_the_one_that_was_not_stopped(finish, tmp_path, flags):
    def make(name):
        (tmp_path / name).mkdir()
        return tmp_path / name

    total = 20
    whole = finish(make("whole"), *RUN, *flags, "--total-timesteps", total * ROLLOUT)
    for stop in (1, 9, 15):
        cwd = make(f"stop-{stop}")
        run = finish(cwd, *RUN, *flags, "--total-timesteps", stop * ROLLOUT)
        finish(cwd, "--resume", run, "--total-timesteps", total * ROLLOUT)
        assert_same_run(run, whole)
        assert f"total_timesteps: {total * ROLLOUT} from here on, {stop * ROLLOUT} before" in (cwd / "out").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_stops_and_the_run_goes_on_from_its_folder_or_file(finish, reference, tmp_path, number):
    argv = [*LONG[:-1], "1000000"]  # no checkpoint but that of the signal
    with subprocess.Popen([sys.executable, SCRIPT, *argv], cwd=tmp_path, stdout=-1, stderr=-1, text=True) as process:
        for line in process.stdout:
            if "resetting" in line:
                break
        time.sleep(2)
        process.send_signal(number)
        out, err = process.communicate()
    assert process.returncode == 128 + number, err
    assert f"{number.name}: saving" in out
    assert "Traceback" not in err
    resume = re.search(r"--resume (\S+)", out).group(1)
    run = finish(tmp_path, "--resume", resume, "--save-every", 1)
    shutil.copy(run / "checkpoint.pt", tmp_path / "copy.pt")
    finish(tmp_path, "--resume", run / "checkpoint.pt", exitcode=1)
    assert f"{100 * ROLLOUT} frames already: raise --total-timesteps" in (tmp_path / "out").read_text()
    assert_same_run(run, reference)


@pytest.mark.parametrize("engine", ["sync", "async"])
def test_other_engines_restart_their_episodes_and_say_so(finish, tmp_path, engine):
    flags = ("--engine", engine, "--total-timesteps", 20 * ROLLOUT)
    run = finish(tmp_path, *RUN, *flags)
    finish(tmp_path, "--resume", run, "--total-timesteps", 40 * ROLLOUT)
    assert "episodes in flight start anew" in (tmp_path / "out").read_text()
    steps = [step for step, _ in points(run)["charts/episodic_return"]]
    assert steps == sorted(steps)
    assert steps[0] < 20 * ROLLOUT < steps[-1]
    state = load_checkpoint(run / "checkpoint.pt")
    assert state["global_step"] == 40 * ROLLOUT
    assert state["buffer"]["num_added"] == len(steps)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_workers_too_still_saves(tmp_path, number):
    argv = [sys.executable, SCRIPT, *LONG, "--engine", "async"]
    with subprocess.Popen(argv, cwd=tmp_path, stdout=-1, stderr=-1, text=True, start_new_session=True) as process:
        for line in process.stdout:
            if "resetting" in line:
                break
        time.sleep(3)
        os.killpg(process.pid, number)
        out, err = process.communicate()
    assert process.returncode == 128 + number, err
    assert "Traceback" not in err
    assert "--resume" in out


def test_an_error_ends_the_workers_too(finish, tmp_path):
    run = finish(tmp_path, *RUN, "--engine", "async", "--total-timesteps", 20 * ROLLOUT)
    finish(tmp_path, "--resume", run, exitcode=1)
    assert "frames already" in (tmp_path / "out").read_text()


def test_the_speed_after_a_resume_is_that_of_the_frames_since(finish, tmp_path, monkeypatch):
    run = finish(tmp_path, *RUN, "--total-timesteps", 50 * ROLLOUT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [SCRIPT, "--resume", str(run), "--total-timesteps", str(51 * ROLLOUT)])
    rng = torch.get_rng_state()
    variables = runpy.run_path(SCRIPT, run_name="__main__")
    torch.set_rng_state(rng)
    assert variables["start_step"] == 50 * ROLLOUT
    assert variables["sps"] * (time.time() - variables["start_time"]) >= 0.5 * ROLLOUT
    assert variables["sps"] <= ROLLOUT / (time.time() - variables["start_time"]) * 5


def test_other_arguments_are_named_and_those_of_another_run_refused(finish, tmp_path):
    run = finish(tmp_path, *RUN, "--total-timesteps", 12 * ROLLOUT)
    before = (run / "checkpoint.pt").read_bytes()
    for flags, message in (
        (("--seed", 2), "expected `seed` to be 1 as before, got 2"),
        (("--env-id", "CartPole-v1"), "expected `env_id` to be 'rapid/KeyCorridorS3R1-v0' as before"),
        (("--num-envs", 8), "expected `num_envs` to be 4 as before"),
        (("--no-one-hot",), "expected `one_hot` to be True as before, got False"),
        (("--hidden-size", 64), "expected `hidden_size` to be 128 as before, got 64"),
        (("--engine", "sync"), "expected `engine` to be 'native' as before"),
        (("--buffer-size", 10), "does not fit this run: expected at most `capacity`=10 pairs"),
    ):
        finish(tmp_path, "--resume", run, "--total-timesteps", 13 * ROLLOUT, *flags, exitcode=1)
        out = (tmp_path / "out").read_text()
        assert message in out
        assert "Traceback" not in out
        assert (run / "checkpoint.pt").read_bytes() == before
    finish(tmp_path, "--resume", run, "--total-timesteps", 13 * ROLLOUT, "--learning-rate", 1e-3, "--age-penalty", 0)
    out = (tmp_path / "out").read_text()
    assert "learning_rate: 0.001 from here on, 0.0003 before" in out
    assert "age_penalty: 0.0 from here on, 0.05 before" in out
    assert points(run)["charts/learning_rate"][-1][1] == repr(float(np.float32(1e-3)))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: state.pop("args"),
        lambda state: state["args"].update(unknown=1),
        lambda state: state["args"].update(gamma="much"),
        lambda state: state.update(global_step=1.5),
        lambda state: state.update(global_step=ROLLOUT - 1),
        lambda state: state.update(recent_returns="none"),
        lambda state: state["agent"].update({"actor.2.weight": torch.zeros(1)}),
        lambda state: state["agent"].pop("actor.2.weight"),
        lambda state: state["optimizer"]["state"][0].update(exp_avg=torch.zeros(1)),
        lambda state: state["counter"].update(counts=np.zeros(3)),
        lambda state: state["buffer"]["rows"].update(step=np.zeros(3)),
        lambda state: state["shuffler"].update(bit_generator="MT19937"),
        lambda state: state["envs"].update(rng=np.zeros((4, 6), np.uint64)),
        lambda state: state["envs"].update(grid=state["envs"]["grid"][:, :3]),
        lambda state: state.update(envs=None),
        lambda state: state["episodes"].update(returns=np.zeros(3)),
        lambda state: state.pop("random"),
        lambda state: state["random"].update(torch=torch.zeros(3)),
        lambda state: state.update(bc_next=None),
        lambda state: state["args"].update(seed=None),
        lambda state: state["args"].update(num_steps=32.0),
        lambda state: state["args"].update(engine="other"),
        lambda state: state["args"].update(exp_name="../../escaped"),
        lambda state: state["args"].update(env_id="this:rapid/KeyCorridorS3R1-v0"),
        lambda state: state["shuffler"]["state"].update(inc=2),
        lambda state: state["shuffler"]["state"].update(state=2**300),
        lambda state: state["buffer"]["rng"]["state"].update(inc=2),
        lambda state: state["buffer"]["rows"].update(observations=state["buffer"]["rows"]["observations"][:, :3]),
        lambda state: state["optimizer"]["state"][0].pop("exp_avg_sq"),
        lambda state: state["optimizer"]["state"][0]["step"].fill_(-1),
        lambda state: state["envs"].update(ready=np.zeros(4, bool)),
        lambda state: state["envs"].update(ended=np.ones(4, bool)),
        lambda state: state["episodes"].update(started=False),
        lambda state: state["episodes"].update(active=np.zeros(4, bool)),
        lambda state: state["random"].update(numpy=("MT19937", np.zeros(624, np.uint32), 10**9, 0, 0.0)),
        lambda state: state["random"]["torch"][8:24].fill_(1),
        lambda state: state["random"].update(numpy=()),
        lambda state: state.update(recent_returns=[10**400]),
    ],
)
def test_a_crafted_checkpoint_is_refused_with_a_clear_error(finish, crafted, tmp_path, spoil):
    (tmp_path / "runs" / "crafted").mkdir(parents=True)
    state = load_checkpoint(crafted)
    spoil(state)
    save_checkpoint(tmp_path / "runs/crafted/checkpoint.pt", state)
    finish(tmp_path, "--resume", "runs/crafted", "--total-timesteps", 13 * ROLLOUT, exitcode=1)
    out = (tmp_path / "out").read_text()
    assert "error: " in out
    assert "Traceback" not in out
    assert set(os.listdir(tmp_path / "runs" / "crafted")) <= {"checkpoint.pt", ".lock"}


@pytest.fixture(scope="module")
def crafted(finish, tmp_path_factory):
    return finish(tmp_path_factory.mktemp("crafted"), *RUN, "--total-timesteps", 12 * ROLLOUT) / "checkpoint.pt"


def test_what_is_no_checkpoint_is_refused_with_a_clear_error(finish, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "other").write_bytes(b"something else")
    for path, message in (
        ("runs/other", "to be a checkpoint"),
        ("runs", "no checkpoint"),
        ("nowhere", "no checkpoint"),
    ):
        finish(tmp_path, "--resume", path, exitcode=1)
        out = (tmp_path / "out").read_text()
        assert message in out
        assert "Traceback" not in out


def test_a_signal_in_the_last_rollout_lets_the_run_finish(finish, tmp_path):
    argv = [sys.executable, SCRIPT, *RUN[:-2], "--num-steps", "8192", "--total-timesteps", "32768"]
    with subprocess.Popen(argv, cwd=tmp_path, stdout=-1, stderr=-1, text=True) as process:
        for line in process.stdout:
            if "resetting" in line:
                break
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate()
    assert process.returncode == 0, err
    run = next((tmp_path / "runs").iterdir())
    assert (run / "ppo_rapid.cleanrl_model").exists()
    (run / "ppo_rapid.cleanrl_model").unlink()
    finish(tmp_path, "--resume", run, exitcode=1)  # nothing is left to do, but for the network
    assert (run / "ppo_rapid.cleanrl_model").exists()


def test_a_closed_output_does_not_keep_a_signal_from_saving(finish, tmp_path):
    argv = [*LONG[:-1], "1000000"]
    with subprocess.Popen([sys.executable, SCRIPT, *argv], cwd=tmp_path, stdout=-1, stderr=-1, text=True) as process:
        for line in process.stdout:
            if "resetting" in line:
                break
        process.stdout.close()
        time.sleep(1)
        process.send_signal(signal.SIGTERM)
        process.wait()
        process.stderr.close()
    assert list(tmp_path.glob("runs/*/checkpoint.pt"))


def test_a_second_process_in_the_folder_is_refused(start, finish, tmp_path):
    process = start(tmp_path, *LONG)
    wait_for_checkpoint(process, tmp_path)
    finish(tmp_path, "--resume", next((tmp_path / "runs").iterdir()), exitcode=1)
    assert "error: another process writes to" in (tmp_path / "out").read_text()
    process.kill()
    process.join()


def test_ctrl_c_during_start_up_leaves_no_empty_folder(tmp_path):
    with subprocess.Popen([sys.executable, SCRIPT, *LONG], cwd=tmp_path, stdout=-1, stderr=-1) as process:
        while process.poll() is None and not list(tmp_path.glob("runs/*")):
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode
    assert os.listdir(tmp_path / "runs") == []


def test_a_module_named_by_a_checkpoint_is_imported_only_where_the_user_names_it_too(finish, crafted, tmp_path):
    (tmp_path / "runs" / "crafted").mkdir(parents=True)
    state = load_checkpoint(crafted)
    state["args"].update(env_id="this:rapid/KeyCorridorS3R1-v0", engine="sync")
    save_checkpoint(tmp_path / "runs/crafted/checkpoint.pt", state)
    finish(tmp_path, "--resume", "runs/crafted", exitcode=1)
    out = (tmp_path / "out").read_text()
    assert "expected `env_id` to be given beside `resume`, as it imports a module: this:rapid" in out
    assert "Zen" not in out


def limited(cwd, argv, limit):
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    run_script(cwd, argv)


def test_a_full_disk_ends_the_run_with_a_clear_error_and_keeps_the_last_checkpoint(finish, tmp_path):
    run = finish(tmp_path, *RUN, "--total-timesteps", 12 * ROLLOUT)
    before = (run / "checkpoint.pt").read_bytes()
    context = multiprocessing.get_context("forkserver")
    argv = ["--resume", str(run), "--total-timesteps", str(100 * ROLLOUT), "--save-every", str(10 * ROLLOUT)]
    process = context.Process(target=limited, args=(str(tmp_path), argv, 300_000))
    process.start()
    process.join()
    assert process.exitcode == 1
    out = (tmp_path / "out").read_text()
    assert "error: no checkpoint at 2560 frames, the one before is still there" in out
    assert "File too large" in out
    assert "Traceback" not in out
    assert (run / "checkpoint.pt").read_bytes() == before
