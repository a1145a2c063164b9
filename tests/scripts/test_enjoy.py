"""enjoy.py on real runs of all three scripts, as a user calls it."""

import os
import re
import subprocess
import sys
from dataclasses import replace

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rapid_wrappers.training.checkpoint import load_checkpoint, save_checkpoint
from tests.conftest import SCRIPTS, import_script

enjoy = import_script("enjoy.py")
RUNS = {
    "ppo_rapid.py": ("--env-id", "rapid/MultiRoom-N2-S4-v0", "--total-timesteps", "20480"),
    "ppo_rapid_cnn.py": ("--num-envs", "2", "--num-steps", "64", "--total-timesteps", "128"),
    "ppo_rapid_continuous_action.py": ("--env-id", "rapid/SparseInvertedPendulum-v0", "--total-timesteps", "4096"),
}


def call(script, *argv, cwd):
    result = subprocess.run(
        [sys.executable, str(SCRIPTS / script), *map(str, argv)], cwd=cwd, capture_output=True, text=True, timeout=180
    )
    return result.returncode, result.stdout + result.stderr


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for script, argv in RUNS.items():
        code, out = call(script, *argv, cwd=folder)
        assert code == 0, out
    return {script: next((folder / "runs").glob(f"*__{script[:-3]}__*")) for script in RUNS}


@pytest.mark.parametrize("script", list(RUNS))
def test_it_plays_the_policy_of_each_script(runs, script, tmp_path):
    code, out = call("enjoy.py", runs[script], "--episodes", 4, "--sheet", tmp_path / "s.png", "--sheet-rows", 1,
                     "--sheet-columns", 3, cwd=tmp_path)  # fmt: skip
    assert code == 0, out
    assert re.search(r"frames of training, 4 episodes, sampled \(95 % intervals\)", out)
    assert re.search(r"^return   [\d.]+ \([\d.]+ to [\d.]+\)$", out, re.M)
    assert re.search(r"^success  [\d.]+ \([\d.]+ to [\d.]+\)", out, re.M)
    picture = plt.imread(tmp_path / "s.png")
    assert picture.std() > 0.05
    assert not (runs[script] / "s.png").exists()


def test_a_video_is_recorded_and_shows_something(runs, tmp_path):
    code, out = call("enjoy.py", runs["ppo_rapid.py"], "--episodes", 1, "--video", cwd=tmp_path)
    assert code == 0, out
    (video,) = tmp_path.glob("videos/*-enjoy-*/*.mp4")
    assert video.stat().st_size > 1000


def load(run):
    script, args, state = enjoy.load(run)
    envs = script.make_eval_envs(replace(args, num_envs=3))
    return state, envs, enjoy.make_agent(script, args, state, envs)


@pytest.mark.parametrize("script", list(RUNS))
def test_the_network_is_that_of_the_run_and_the_same_seed_plays_the_same(runs, script):
    state, envs, agent = load(runs[script])
    for name, value in agent.state_dict().items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, state["agent"][name])
    played = []
    for greedy, seed in ((False, 5), (False, 5), (False, 6), (True, 5), (True, 6)):
        act = enjoy.make_policy(agent, envs.single_action_space, greedy, seed)
        observations, _ = envs.reset(seed=1)
        actions = []
        for _ in range(30):
            actions.append(act(observations))
            observations = envs.step(actions[-1])[0]
        played.append(np.array(actions))
    assert np.array_equal(played[0], played[1]) and not np.array_equal(played[0], played[2])
    assert np.array_equal(played[3], played[4]) and not np.array_equal(played[0], played[3])
    assert envs.action_space.contains(actions[-1].astype(envs.action_space.dtype)) or script.endswith("action.py")
    envs.close()


def test_sampled_actions_have_the_policys_probabilities(runs):
    _, envs, agent = load(runs["ppo_rapid.py"])
    observations = np.repeat(envs.reset(seed=1)[0][:1], 4000, axis=0)
    act = enjoy.make_policy(agent, envs.single_action_space, False, 0)
    shares = np.bincount(act(observations), minlength=envs.single_action_space.n) / 4000
    with torch.no_grad():
        probabilities = agent.get_logits(torch.as_tensor(observations[:1])).softmax(-1)[0].numpy()
    np.testing.assert_allclose(shares, probabilities, atol=0.03)
    envs.close()


def test_actions_that_do_not_start_at_zero():
    space = gym.spaces.Discrete(3, start=5)

    class Agent:
        def act(self, obs, generator=None):
            return np.ones(len(obs), int)

    assert enjoy.make_policy(Agent(), space, True, 0)(np.zeros((2, 1))).tolist() == [6, 6]


def test_bad_input_ends_with_a_clear_message(runs, tmp_path):
    for argv, message in (
        (("nothing",), "no checkpoint at nothing"),
        ((runs["ppo_rapid.py"], "--sheet", "nowhere/s.png"), "expected a PNG file in a folder that is there"),
        ((runs["ppo_rapid.py"], "--episodes", 0), "expected `episodes` to be positive"),
        ((runs["ppo_rapid.py"], "--env-id", "rapid/Nothing-v0"), "doesn't exist"),
        ((runs["ppo_rapid.py"], "--env-id", "CartPole-v1"), "size mismatch"),
    ):
        code, out = call("enjoy.py", *argv, cwd=tmp_path)
        assert code == 1 and message in out and "Traceback" not in out, out
    state = load_checkpoint(runs["ppo_rapid.py"] / "checkpoint.pt")
    state["args"]["env_id"] = "os:Nothing-v0"
    save_checkpoint(tmp_path / "checkpoint.pt", state)
    with pytest.raises(ValueError, match="as it imports a module"):
        enjoy.load(tmp_path)
    save_checkpoint(tmp_path / "checkpoint.pt", {"args": {"other": 1}})
    with pytest.raises(ValueError, match="expected the checkpoint of a script"):
        enjoy.load(tmp_path)
    assert not os.path.exists(tmp_path / "runs")


@pytest.mark.parametrize("script", list(RUNS))
def test_evaluations_on_the_way_change_nothing_but_their_own_metrics(runs, script, tmp_path):
    code, out = call(script, *RUNS[script], "--eval-every", 64, "--eval-episodes", 3, "--draw-buffer",
                     cwd=tmp_path)  # fmt: skip
    assert code == 0, out
    (run,) = (tmp_path / "runs").glob("*")
    with_, without = (read(folder) for folder in (run, runs[script]))
    evaluations = {tag: with_.pop(tag) for tag in list(with_) if tag.startswith("eval/")}
    assert set(evaluations) == {"eval/episodic_return", "eval/episodic_length", "eval/success_rate"}
    assert all(len(points) >= 1 for points in evaluations.values())
    assert {0 <= rate <= 1 for _, rate in evaluations["eval/success_rate"]} == {True}
    assert with_ == without
    events = EventAccumulator(str(run))
    events.Reload()
    drawn = [events.Tags()[kind] for kind in ("images", "histograms")]
    assert drawn == ([[], []] if script == "ppo_rapid_cnn.py" else [["rapid/buffer"], ["rapid/scores"]])  # none ended
    _, args, state = enjoy.load(run)
    module = sys.modules[script[:-3]]
    envs = module.make_eval_envs(args)
    agent = enjoy.make_agent(module, args, state, envs)
    again = module.evaluate(args, agent, envs)
    assert again["episodic_return"] == pytest.approx(
        evaluations["eval/episodic_return"][-1][1]
    )  # levels, noise: the same
    envs.close()


def read(run):
    events = EventAccumulator(str(run), size_guidance={"scalars": 0})
    events.Reload()
    tags = [tag for tag in events.Tags()["scalars"] if tag != "charts/SPS"]
    return {tag: [(p.step, str(p.value)) if tag[:5] != "eval/" else (p.step, p.value) for p in events.Scalars(tag)]
            for tag in tags}  # fmt: skip
