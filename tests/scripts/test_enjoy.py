"""enjoy.py on real runs; the suite opens a run of each script in it."""

import contextlib
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from rapid_wrappers.training.checkpoint import load_checkpoint, save_checkpoint
from rapid_wrappers.training.environments import make_eval_envs
from tests.conftest import SCRIPTS, import_script, run_script
from tests.scripts.small_envs import MAZE, SWIMMER

enjoy = import_script("enjoy.py")
GRID = "rapid/MultiRoom-N2-S4-v0"
SMALL = ("--num-envs", 2, "--num-steps", 48, "--update-epochs", 1, "--bc-batch-size", 32)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Folder of a run of ppo_rapid.py."""
    with contextlib.chdir(tmp_path_factory.mktemp("runs")):
        folder = run_script("ppo_rapid.py", "--env-id", GRID, *SMALL, "--total-timesteps", 192)["run"].folder
        return Path(folder).resolve()


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def load(run, num_envs=3):
    script, args, state = enjoy.load(run, None, None)
    envs = make_eval_envs(args, script.wrap_env, num_envs, args.engine)
    agent = script.make_agent(envs, args)
    agent.load_state_dict(state["parts"]["agent"])
    return envs, agent


def test_it_tells_return_length_and_success_of_a_run_or_a_checkpoint(run, capsys):
    for path, how in ((run, "sampled"), (run / "checkpoint.pt", "greedy")):
        run_script("enjoy.py", path, "--episodes", 5, "--greedy" if how == "greedy" else "--no-greedy")
        out = capsys.readouterr().out
        assert f"{GRID}, 192 frames of training, 5 episodes, {how} (95 % intervals):" in out
        for name in ("return", "length", "success"):
            assert re.search(rf"^{name} +[\d.]+ \([\d.]+ to [\d.]+\)", out, re.M)


def test_pictures_of_episodes_and_of_the_buffer_show_something(run, capsys):
    import matplotlib.image

    run_script("enjoy.py", run, "--episodes", 1, "--sheet", "s.png", "--sheet-rows", 1, "--sheet-columns", 2,
               "--buffer", "b.png")  # fmt: skip
    out = capsys.readouterr().out
    assert "sheet:   s.png" in out and "buffer:  b.png" in out
    for name in ("s.png", "b.png"):
        assert matplotlib.image.imread(name)[..., :3].std() > 0.05
    assert {path.suffix for path in run.iterdir()} <= {"", ".pt", ".cleanrl_model"} | {
        path.suffix for path in run.glob("events*")
    }


def test_the_same_seed_plays_the_same(run):
    envs, agent = load(run)
    played = []
    for greedy, seed in ((False, 5), (False, 5), (False, 6), (True, 5), (True, 6)):
        act = enjoy.make_policy(agent, greedy, seed)
        observations, _ = envs.reset(seed=1)
        actions = []
        for _ in range(30):
            actions.append(act(observations))
            observations = envs.step(actions[-1])[0]
        played.append(np.array(actions))
    assert np.array_equal(played[0], played[1]) and not np.array_equal(played[0], played[2])
    assert np.array_equal(played[3], played[4]) and not np.array_equal(played[0], played[3])
    assert envs.action_space.contains(actions[-1])
    envs.close()


def test_it_plays_in_another_environment_with_the_same_spaces(run, capsys):
    run_script("enjoy.py", run, "--episodes", 2, "--env-id", "MiniGrid-Empty-5x5-v0")
    assert "MiniGrid-Empty-5x5-v0, 192 frames of training, 2 episodes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--sheet", "nowhere/s.png"), "expected a PNG file in an existing folder"),
        (("--buffer", "b.jpg"), "expected a PNG file"),
        (("--episodes", 0), "expected `episodes` to be positive"),
        (("--env-id", "rapid/Nothing-v0"), "doesn't exist"),
        (("--env-id", "CartPole-v1"), "expected an environment with the spaces of the run's, got CartPole-v1"),
    ],
)
def test_bad_input_ends_with_one_clear_line(run, argv, message):
    with pytest.raises(SystemExit, match=rf"^error: .*{message}"):
        run_script("enjoy.py", run, *argv)
    assert os.listdir() == []


def test_a_missing_checkpoint_is_said():
    with pytest.raises(SystemExit, match="error: no checkpoint at nowhere"):
        run_script("enjoy.py", "nowhere")


def test_a_module_named_by_a_checkpoint_is_imported_only_if_the_user_names_it_too(run, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "this", raising=False)
    state = load_checkpoint(run / "checkpoint.pt")
    state["args"]["env_id"] = f"this:{GRID}"
    save_checkpoint(tmp_path / "checkpoint.pt", state)
    with pytest.raises(ValueError, match="expected `env_id`, because the run's imports a module"):
        enjoy.load(tmp_path, None, None)
    assert "this" not in sys.modules
    assert enjoy.load(tmp_path, None, f"this:{GRID}")[1].env_id == f"this:{GRID}"


@pytest.mark.parametrize("name", ["other.py", "../ppo_rapid.py", "enjoy", None, 3])
def test_a_checkpoint_of_a_script_that_is_not_there_asks_for_it(run, tmp_path, name):
    state = load_checkpoint(run / "checkpoint.pt")
    save_checkpoint(tmp_path / "checkpoint.pt", state | {"script": name})
    with pytest.raises(ValueError, match="expected `script`, because"):
        enjoy.load(tmp_path, None, None)
    script, args, _ = enjoy.load(tmp_path, SCRIPTS / "ppo_rapid.py", None)
    assert (script.__name__, args.env_id) == ("ppo_rapid", GRID)


def test_a_script_without_a_network_is_refused(run):
    Path("other.py").touch()
    with pytest.raises(ValueError, match="expected a script with `make_agent`"):
        enjoy.load(run, Path("other.py"), None)


def test_a_checkpoint_of_another_version_of_the_script_opens(run, tmp_path):
    state = load_checkpoint(run / "checkpoint.pt")
    state["args"].pop("w1")
    state["args"]["gone"] = 3
    save_checkpoint(tmp_path / "checkpoint.pt", state)
    _, args, _ = enjoy.load(tmp_path, None, None)
    assert args.w1 == 0.1
    assert not hasattr(args, "gone")


@pytest.mark.slow
def test_a_video_is_recorded_and_shows_something(run, tmp_path):
    run_script("enjoy.py", run, "--episodes", 1, "--video")
    (video,) = tmp_path.glob("videos/*-enjoy-*/*.mp4")
    assert video.stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "env_id"), [("ppo_rapid_cnn.py", MAZE), ("ppo_rapid_continuous_action.py", SWIMMER)]
)
def test_pictures_are_drawn_in_three_dimensions(script, env_id):
    import matplotlib.image

    folder = run_script(script, "--env-id", env_id, *SMALL, "--total-timesteps", 96)["run"].folder
    run_script("enjoy.py", folder, "--episodes", 1, "--sheet", "s.png", "--sheet-rows", 1, "--sheet-columns", 3)
    assert matplotlib.image.imread("s.png").std() > 0.05
