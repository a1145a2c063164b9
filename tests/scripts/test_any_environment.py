"""Scripts on environments of every kind: what they take, what they refuse, and what they say."""

import re
from pathlib import Path

import gymnasium as gym
import minigrid  # noqa: F401  (registers its ids)
import numpy as np
import pytest
from gymnasium import spaces

from rapid_wrappers.training.checkpoint import load_checkpoint
from tests.conftest import run_script, scalars
from tests.scripted_env import SCRIPTED, ScriptedEnv
from tests.scripts.small_envs import PICTURE

DISCRETE, IMAGES, CONTINUOUS = "ppo_rapid.py", "ppo_rapid_cnn.py", "ppo_rapid_continuous_action.py"
SMALL = ["--num-envs", "2", "--num-steps", "32", "--update-epochs", "1", "--bc-batch-size", "32"]
LEARN = ["--num-envs", "4", "--num-steps", "64", "--total-timesteps", "6144", "--learning-rate", "0.005"]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def lines(capsys, *names):
    out = capsys.readouterr().out
    return [re.search(rf"^{name}: (.*)$", out, re.M)[1] for name in names]


class Levers(gym.Env):
    """One step; the observation says which actions pay, one by one."""

    def __init__(self, observations, actions):
        self.observation_space, self.action_space = observations, actions
        self.sizes = [2] * actions.n if isinstance(actions, spaces.MultiBinary) else actions.nvec.ravel().tolist()
        starts = getattr(actions, "start", None)
        self.starts = np.zeros(len(self.sizes), int) if starts is None else starts.ravel()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.wanted = [int(self.np_random.integers(size)) for size in self.sizes]
        return self.observe(), {}

    def observe(self):
        if isinstance(self.observation_space, spaces.Dict):
            return {"a": self.wanted[0], "rest": np.array(self.wanted[1:])}
        return np.array(self.wanted)

    def step(self, action):
        assert self.action_space.contains(action)
        right = np.mean((np.ravel(action) - self.starts) == self.wanted)
        return self.observe(), float(right), True, False, {}


LEVERS = [
    (spaces.MultiDiscrete([3, 4]), spaces.MultiDiscrete([3, 4])),
    (spaces.Dict(a=spaces.Discrete(3), rest=spaces.MultiDiscrete([4])), spaces.MultiDiscrete([3, 4], start=[2, -1])),
    (spaces.MultiBinary(3), spaces.MultiBinary(3)),
    (spaces.MultiDiscrete([2, 3, 2, 2]), spaces.MultiDiscrete([[2, 3], [2, 2]])),
]


@pytest.mark.parametrize(("observations", "actions"), LEVERS, ids=["multi", "dict and start", "binary", "2-d"])
def test_several_discrete_actions_are_learnt(scripted, observations, actions):
    scripted(lambda: Levers(observations, actions))
    run = run_script(DISCRETE, "--env-id", SCRIPTED, *LEARN, "--buffer-size", 100)
    assert run["actions"].shape == (64, 4, int(np.prod(actions.shape)))
    assert np.mean(run["run"].log.returns) > 0.85  # by chance 0.25 to 0.5
    played = run["agent"].act(run["next_obs"].numpy())
    assert played.shape == (4, *actions.shape)
    run_script("enjoy.py", run["run"].folder, "--episodes", 3)


def test_plain_ppo_learns_several_discrete_actions(scripted):
    scripted(lambda: Levers(*LEVERS[0]))
    run = run_script(DISCRETE, "--env-id", SCRIPTED, *LEARN, "--no-rapid")
    assert np.mean(run["run"].log.returns) > 0.85


def test_several_discrete_actions_go_with_images_too():
    class Screen(ScriptedEnv):
        def __init__(self):
            super().__init__(action_space=spaces.MultiDiscrete([3, 4]))
            self.observation_space = spaces.Box(0, 255, (40, 40), np.uint8)

        def observe(self):
            return np.full((40, 40), self.t, np.uint8)

    gym.register(SCRIPTED, Screen)
    run = run_script(IMAGES, "--env-id", SCRIPTED, *SMALL, "--total-timesteps", 64)
    gym.registry.pop(SCRIPTED)
    assert run["actions"].shape == (32, 2, 2)
    assert np.isfinite(float(run["bc_loss"]))


class Rooms(gym.Env):
    """A ring of rooms. The goal is in another room each episode, and only its number is shown with the agent's."""

    action_space = spaces.Discrete(3)

    def __init__(self, observation_space):
        self.observation_space = observation_space

    def observe(self):
        if isinstance(self.observation_space, spaces.MultiDiscrete):
            return np.array([self.place, self.goal])
        return {"goal": self.goal, "place": self.place}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.goal = (int(x) for x in self.np_random.integers(6, size=2))
        return self.observe(), {"place": self.place}

    def step(self, action):
        if action == 2:
            return self.observe(), float(self.place == self.goal), True, False, {"place": self.place}
        self.place = (self.place + (1, -1)[action]) % 6
        return self.observe(), 0.0, False, False, {"place": self.place}


@pytest.mark.parametrize(
    "space", [spaces.MultiDiscrete([6, 6]), spaces.Dict(goal=spaces.Discrete(6), place=spaces.Discrete(6))], ids=str
)
def test_codes_reach_the_network_one_hot(scripted, space, capsys):
    scripted(lambda: gym.wrappers.TimeLimit(Rooms(space), 20))
    run = run_script(DISCRETE, "--env-id", SCRIPTED, *SMALL, "--total-timesteps", 64, "--score-info", "place")
    seen, scored = lines(capsys, "seen", "scored")
    assert run["agent"].actor[0].in_features == 12
    assert "12 one-hot inputs" in seen or "12 numbers" in seen
    assert scored == "info['place'] by the share of distinct ones (Eq. 1); counted"
    assert set(run["buffer"].episodes()[0]) >= {"observations", "actions"}
    assert len(run["counter"]) == 6  # places, not pairs of place and goal


def test_the_continuous_script_makes_codes_one_hot_too(scripted, capsys):
    class Place(ScriptedEnv):
        def __init__(self):
            super().__init__(action_space=spaces.Box(-1, 1, (1,)))
            self.observation_space = spaces.Discrete(6)

        def observe(self):
            return self.t

    scripted(Place)
    run = run_script(CONTINUOUS, "--env-id", SCRIPTED, "--num-envs", 2, "--num-steps", 32, "--total-timesteps", 64)
    assert run["agent"].actor_mean[0].in_features == 6
    assert lines(capsys, "seen") == ["int64 of shape (6,), as 6 standardized numbers"]


def test_what_is_left_out_of_minigrid_is_said_and_can_be_put_in(capsys):
    flags = ("--env-id", "BabyAI-GoToRedBallGrey-v0", *SMALL, "--total-timesteps", 64)
    run_script(DISCRETE, *flags)
    assert lines(capsys, "seen")[0].endswith("as 1029 one-hot inputs; left out: direction, mission")
    run = run_script(DISCRETE, *flags, "--mission", "--direction")
    (seen,) = lines(capsys, "seen")
    assert re.fullmatch(r"uint8 of shape \(212,\), as \d+ one-hot inputs", seen)
    assert run["obs"].shape == (32, 2, 212)
    run_script("enjoy.py", run["run"].folder, "--episodes", 2)
    run_script(IMAGES, *flags)
    assert "left out: direction, mission" in lines(capsys, "seen")[0]


def test_the_updates_to_expect_and_the_plain_method_are_said(capsys):
    flags = ("--env-id", "MiniGrid-Empty-5x5-v0", *SMALL, "--total-timesteps", 64)
    run_script(DISCRETE, *flags)
    run_script(DISCRETE, *flags, "--no-rapid")
    found = re.findall(r"^imitation: (.*)$", capsys.readouterr().out, re.M)
    assert found == ["5 updates after each episode: 0.05 to 0.062 updates a frame until its loss is low",
                     "none: plain PPO"]  # fmt: skip


def test_endless_episodes_are_told_while_it_runs_and_can_be_cut_off(scripted, capsys):
    scripted(lengths=[10**9])
    flags = ("--env-id", SCRIPTED, "--num-envs", 1, "--num-steps", 256, "--total-timesteps", 1280)
    run_script(DISCRETE, *flags)
    out = capsys.readouterr().out
    assert "warning: no episode has ended in 1280 steps of each environment" in out and "--max-episode-steps" in out
    run = run_script(DISCRETE, *flags, "--max-episode-steps", 100)
    assert len(run["run"].log.returns) == 12
    assert "warning: no episode" not in capsys.readouterr().out


class Fragile(gym.Env):
    """Fails where it is told to."""

    observation_space, action_space = spaces.Box(0, 1, (2,)), spaces.Discrete(2)

    def __init__(self, fails="reset"):
        self.fails = fails
        if fails == "making":
            raise RuntimeError("Could not load the map:\n  maps/one.txt\nno such file: maps/one.txt")

    def reset(self, *, seed=None, options=None):
        if self.fails == "reset":
            raise KeyError("start")
        return np.zeros(2, np.float32), {}


@pytest.mark.parametrize(
    ("fails", "text"),
    [("making", "RuntimeError: no such file: maps/one.txt"), ("reset", "KeyError: 'start'")],
)
@pytest.mark.parametrize("script", [DISCRETE, IMAGES])
def test_what_a_third_party_raises_is_one_line_unless_the_traceback_is_asked_for(monkeypatch, script, fails, text):
    monkeypatch.setitem(gym.registry, SCRIPTED, gym.envs.registration.EnvSpec(SCRIPTED, Fragile))
    monkeypatch.setattr(Fragile, "observation_space", spaces.Box(0, 255, (40, 40), np.uint8))
    if script == DISCRETE:
        monkeypatch.setattr(Fragile, "observation_space", spaces.Box(0, 1, (2,)))
    argv = ("--env-id", SCRIPTED, "--env-kwargs", f"fails={fails}")
    with pytest.raises(SystemExit) as error:
        run_script(script, *argv)
    assert error.value.code == f"error: {SCRIPTED}: {text} (--traceback shows where)"
    with pytest.raises(ValueError, match=text) as shown:
        run_script(script, *argv, "--traceback")
    assert isinstance(shown.value.__cause__, RuntimeError | KeyError)
    assert not list(Path("runs").glob("*"))


def test_a_failure_while_the_run_resets_is_one_line_too(monkeypatch):
    class SecondReset(Fragile):
        made = 0

        def __init__(self):
            SecondReset.made += 1
            self.fails = "reset" if SecondReset.made > 1 else None

    monkeypatch.setitem(gym.registry, SCRIPTED, gym.envs.registration.EnvSpec(SCRIPTED, SecondReset))
    with pytest.raises(SystemExit, match=r"^error: scripted/Env-v0: KeyError: 'start' \(--traceback"):
        run_script(DISCRETE, "--env-id", SCRIPTED)


def test_a_run_with_arguments_and_wrappers_resumes_and_plays_but_imports_only_what_is_named_again(capsys):
    wrapper = "gymnasium.wrappers:FrameStackObservation(2)"
    flags = ("--env-id", "CartPole-v1", *SMALL, "--max-episode-steps", 12)
    folder = run_script(DISCRETE, *flags, "--wrapper", wrapper, "--total-timesteps", 64)["run"].folder
    assert load_checkpoint(f"{folder}/checkpoint.pt")["args"]["wrapper"] == (wrapper,)
    resume = ("--resume", folder, "--total-timesteps", 128)
    with pytest.raises(SystemExit, match="expected `wrapper` beside `resume`, because it imports a module"):
        run_script(DISCRETE, *resume)
    with pytest.raises(SystemExit, match="expected `wrapper` as in the run, which imports a module"):
        run_script("enjoy.py", folder)
    run = run_script(DISCRETE, *resume, "--wrapper", wrapper)
    assert max(length for _, length in scalars(folder)["charts/episodic_length"]) == 12
    assert run["obs"].shape == (32, 2, 2, 4)
    capsys.readouterr()
    run_script("enjoy.py", folder, "--wrapper", wrapper, "--episodes", 2)
    assert re.search(r"^length +1?\d\.", capsys.readouterr().out, re.M)


class Drawn(ScriptedEnv):
    """One-step episodes, drawn or not."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 1}  # noqa: RUF012
    picture = np.zeros((8, 8, 3), np.uint8)

    def __init__(self, render_mode=None):
        super().__init__(lengths=[1], dtype=np.float32)
        self.render_mode = render_mode

    def render(self):
        return self.picture


def test_episodes_of_one_step_are_drawn_and_what_cannot_be_drawn_is_said_before_playing(monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.setitem(gym.registry, SCRIPTED, gym.envs.registration.EnvSpec(SCRIPTED, Drawn))
    folder = run_script(DISCRETE, "--env-id", SCRIPTED, *SMALL, "--total-timesteps", 64)["run"].folder
    run_script("enjoy.py", folder, "--episodes", 2, "--sheet", "s.png")
    assert Path("s.png").stat().st_size > 1000
    for picture, words in ((None, "NoneType"), ("text", "str")):
        monkeypatch.setattr(Drawn, "picture", picture)
        capsys.readouterr()
        with pytest.raises(SystemExit, match=f"^error: {SCRIPTED} draws no pictures.*{words}"):
            run_script("enjoy.py", folder, "--sheet", "t.png")
        assert "return" not in capsys.readouterr().out
    assert not Path("t.png").exists()


def test_an_id_without_its_package_is_told_to_name_it():
    with pytest.raises(SystemExit, match=r"^error: ALE/Pong-v5: .*PACKAGE:ID, such as ale_py:ALE/Pong-v5\.$"):
        run_script(IMAGES, "--env-id", "ALE/Pong-v5")


@pytest.mark.parametrize("script", [DISCRETE, CONTINUOUS])
def test_images_are_sent_to_their_script(script):
    with pytest.raises(SystemExit, match=r"^error: .*ppo_rapid_cnn\.py takes images$"):
        run_script(script, "--env-id", PICTURE)
