"""Engines and environments by id, on the real libraries."""

import os
import sys
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode

from rapid_wrappers.envs.headless import import_miniworld
from rapid_wrappers.training.environments import (
    choose_engine,
    draw_without_display,
    make_env,
    make_envs,
    make_eval_envs,
)
from rapid_wrappers.training.spaces import array_observations
from tests.scripted_env import SCRIPTED

MAZE, ROOM = "rapid/MazeS5-v0", "MiniWorld-OneRoomS6Fast-v0"


def choose(env_id, engine=None, num_envs=2, **more):
    args = SimpleNamespace(env_id=env_id, engine=engine, num_envs=num_envs, seed=1, capture_video=False)
    vars(args).update(more)
    return choose_engine(args, array_observations)


def hide_numba(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("rapid_wrappers.envs.native")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "numba", None)


@pytest.mark.parametrize(
    ("env_id", "options", "engine"),
    [
        ("rapid/MultiRoom-N7-S4-v0", {}, "native"),
        ("rapid/KeyCorridorS3R1-v0", {}, "native"),
        ("rapid/MultiRoom-N7-S4-v0", {"engine": "native"}, "native"),
        ("rapid/MultiRoom-N7-S4-v0", {"engine": "sync"}, "sync"),
        ("rapid/MultiRoom-N7-S4-v0", {"engine": "async"}, "async"),
        ("rapid/MultiRoom-N7-S4-v0", {"capture_video": True}, "sync"),
        ("MiniGrid-KeyCorridorS3R1-v0", {}, "sync"),
        ("CartPole-v1", {}, "sync"),
    ],
)
def test_the_native_engine_is_the_default_where_there_is_one(env_id, options, engine):
    assert choose(env_id, **options) == (engine, "")


def test_without_numba_the_default_is_sync_and_a_remark_names_the_extra(monkeypatch):
    hide_numba(monkeypatch)
    engine, remark = choose("rapid/MultiRoom-N2-S4-v0")
    assert engine == "sync"
    assert "rapid-wrappers[native]" in remark
    with pytest.raises(ImportError, match=r"rapid-wrappers\[native\]"):
        choose("rapid/MultiRoom-N2-S4-v0", "native")


@pytest.mark.parametrize(("env_id", "more"), [("CartPole-v1", {}), ("rapid/KeyCorridorS3R1-v0", {"capture_video": 1})])
def test_the_native_engine_is_refused_where_it_cannot_run(env_id, more):
    with pytest.raises(ValueError, match="expected `engine` to be sync or async"):
        choose(env_id, "native", **more)


def test_miniworlds_environments_get_a_process_each_because_they_disturb_each_other(monkeypatch):
    import_miniworld()
    monkeypatch.setitem(gym.registry, "MyRoom-v0", EnvSpec("MyRoom-v0", "miniworld.envs:OneRoom"))  # somebody's own
    assert choose("MyRoom-v0") == choose(ROOM) == ("async", "")
    assert choose(ROOM, num_envs=1) == choose(MAZE) == ("sync", "")
    with pytest.raises(ValueError, match="expected `engine` to be async"):
        choose(ROOM, "sync")


def test_an_entry_that_the_info_lacks_is_refused_with_those_it_has(scripted):
    scripted(info={"cell": 3, "room": 1})
    assert choose(SCRIPTED, score_info="cell") == ("sync", "")
    with pytest.raises(ValueError, match=r"expected `score_info` to be one of \['cell', 'room'\], got 'place'"):
        choose(SCRIPTED, score_info="place")


@pytest.mark.filterwarnings("ignore:.*share an object")
@pytest.mark.filterwarnings("ignore:.*reward returned by `step")
def test_an_environment_gives_observations_of_their_own_and_rewards_that_are_numbers(scripted):
    scripted(reuse=True, rewards=[np.array([0.5])])
    env = make_env(SCRIPTED, lambda env: env)()
    first, _ = env.reset()
    second, reward, *_ = env.step(0)
    assert (first.tolist(), second.tolist(), type(reward)) == ([0, 0], [0, 1], float)


def test_arguments_and_the_scripts_wrapper_reach_the_environment():
    env = make_env("CartPole-v1", gym.wrappers.FlattenObservation, render_mode="rgb_array")()
    assert env.render_mode == "rgb_array"
    assert isinstance(env.env, gym.wrappers.FlattenObservation)


class Careless(gym.Env):
    """Declares uint8, and shows what it is told; its reward and end flags are arrays."""

    observation_space, action_space = spaces.Box(0, 255, (2,), np.uint8), spaces.Discrete(2)
    shown = np.array([1, 2])

    def reset(self, *, seed=None, options=None):
        return self.shown, {}

    def step(self, action):
        return self.shown, np.array([0.5]), np.array([True]), np.array([False]), {}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ["sync", "async"])
def test_end_flags_in_arrays_become_plain_numbers_in_each_engine(engine, monkeypatch):
    monkeypatch.setitem(gym.registry, "Careless-v0", EnvSpec("Careless-v0", Careless))
    monkeypatch.delitem(sys.modules, "pyglet", raising=False)  # else new processes would start, without this id
    envs = make_envs("Careless-v0", lambda env: env, 2, engine)
    envs.reset()
    observations, rewards, terminations, truncations, _ = envs.step(np.zeros(2, int))
    envs.close()
    assert (observations.dtype, rewards.tolist()) == (np.uint8, [0.5, 0.5])
    assert (terminations.tolist(), truncations.tolist()) == ([True, True], [False, False])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ["sync", "async"])
@pytest.mark.parametrize("shown", [np.array([0.7, 0.0]), np.array([-1, 0]), np.zeros(3, np.uint8)])
def test_an_observation_that_does_not_fit_its_space_is_refused_before_training(engine, shown, monkeypatch):
    monkeypatch.setitem(gym.registry, "Careless-v0", EnvSpec("Careless-v0", Careless))
    monkeypatch.setattr(Careless, "shown", shown)
    with pytest.raises(ValueError, match="expected each observation"):
        choose("Careless-v0", engine)


@pytest.mark.parametrize("engine", ["native", "sync"])
def test_environments_restart_in_the_step_that_ends_an_episode(engine):
    envs = make_envs("rapid/MultiRoom-N2-S4-v0", array_observations, 3, engine)
    assert (envs.num_envs, envs.metadata["autoreset_mode"]) == (3, AutoresetMode.SAME_STEP)
    assert envs.single_observation_space == spaces.Box(0, 255, (7, 7, 3), np.uint8)
    envs.close()


def test_evaluations_play_one_environment_where_several_would_disturb_each_other():
    for engine, num_envs in (("native", 3), ("sync", 3), ("async", 1)):
        envs = make_eval_envs("rapid/MultiRoom-N2-S4-v0", array_observations, 3, engine)
        assert envs.num_envs == num_envs
        assert not isinstance(envs, gym.vector.AsyncVectorEnv)
        envs.close()


def test_ids_are_registered_in_a_worker_that_starts_from_nothing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyglet", sys.modules.get("pyglet"))  # as if OpenGL were in use
    envs = make_envs("rapid/SparseInvertedPendulum-v0", gym.wrappers.FlattenObservation, 1, "async")
    observations, _ = envs.reset(seed=1)
    envs.close()
    assert observations.shape == (1, 4)


@pytest.mark.slow
@pytest.mark.parametrize("env_id", [MAZE, ROOM])
def test_miniworlds_ids_and_the_maze_run_in_workers(env_id):
    import_miniworld()
    envs = make_envs(env_id, lambda env: env, 2, "async")
    first, _ = envs.reset(seed=1)
    second, *_ = envs.step(np.zeros(2, int))
    envs.close()
    assert first.dtype == second.dtype == np.uint8
    assert first[0].std() > 1


@pytest.mark.parametrize("display", [":0", None])
def test_without_a_display_environments_draw_through_egl(monkeypatch, display):
    for name in ("DISPLAY", "PYGLET_HEADLESS", "MUJOCO_GL"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    if display:
        monkeypatch.setenv("DISPLAY", display)
    draw_without_display(render=False)
    assert [os.environ.get(name) for name in ("PYGLET_HEADLESS", "MUJOCO_GL")] == [None if display else "true", None]
    monkeypatch.setenv("PYGLET_HEADLESS", "set before")
    draw_without_display(render=True)
    assert os.environ.get("MUJOCO_GL") == (None if display else "egl")
    assert os.environ["PYGLET_HEADLESS"] == "set before"
