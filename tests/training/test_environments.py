"""Engines and environments by id, on the real libraries."""

import os
import sys

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
from rapid_wrappers.training.spaces import discrete_actions, flat_observations
from tests.scripted_env import SCRIPTED, ScriptedEnv
from tests.training.environment_args import arguments

MAZE, ROOM = "rapid/MazeS5-v0", "MiniWorld-OneRoomS6Fast-v0"


def as_it_is(env, args):
    return env


def flattened(env, args):
    return gym.wrappers.FlattenObservation(env)


def flat(env, args):
    return flat_observations(env, args, codes=True)


def choose(env_id, engine=None, **more):
    """The engine that is chosen, and the remark on it."""
    wrap_env = as_it_is if env_id in (MAZE, ROOM, "MyRoom-v0") else flat
    return choose_engine(arguments(env_id, engine=engine, **more), wrap_env)[:2]


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
    env = make_env(arguments(SCRIPTED), as_it_is)()
    first, _ = env.reset()
    second, reward, *_ = env.step(0)
    assert (first.tolist(), second.tolist(), type(reward)) == ([0, 0], [0, 1], float)


class Configured(ScriptedEnv):
    """Keeps its arguments."""

    def __init__(self, size=1, goals=(), **more):
        super().__init__(**more)
        self.given = size, goals


def test_arguments_limits_and_wrappers_reach_the_environment_in_their_order(monkeypatch):
    monkeypatch.setitem(gym.registry, SCRIPTED, EnvSpec(SCRIPTED, Configured, kwargs={"lengths": [9]}))
    args = arguments(SCRIPTED, env_kwargs=("size=3", "goals=[[0, 1]]"), max_episode_steps=4, wrapper=(
        "gymnasium.wrappers:TransformReward(func=None)", "gymnasium.wrappers:FlattenObservation"))  # fmt: skip
    env = make_env(args, flattened)()
    assert env.unwrapped.given == (3, [[0, 1]])
    assert env.spec.max_episode_steps == 4
    kinds = [env.env, env.env.env, env.env.env.env, env.env.env.env.env]
    assert [type(env).__name__ for env in kinds] == [
        "FlattenObservation", "FlattenObservation", "TransformReward", "TimeLimit"
    ]  # fmt: skip
    env = make_env(arguments("CartPole-v1"), flattened, render_mode="rgb_array")()
    assert env.render_mode == "rgb_array"


def test_arguments_and_wrappers_reach_worker_processes(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyglet", sys.modules.get("pyglet"))  # new processes
    args = arguments("CartPole-v1", max_episode_steps=3, wrapper=("gymnasium.wrappers:FrameStackObservation(2)",))
    envs = make_envs(args, flat, 2, "async")
    observations, _ = envs.reset(seed=[1, 2])
    ends = [envs.step(np.zeros(2, int))[3].tolist() for _ in range(3)]
    envs.close()
    assert observations.shape == (2, 2, 4)
    assert ends == [[False, False], [False, False], [True, True]]


def test_the_native_engine_is_refused_with_what_it_does_not_have_and_not_chosen():
    for more in ({"env_kwargs": ("max_steps=5",)}, {"max_episode_steps": 5}, {"direction": True, "mission": False},
                 {"wrapper": ("gymnasium.wrappers:ClipReward",)}):  # fmt: skip
        with pytest.raises(ValueError, match="expected `engine` to be sync or async with `env_kwargs`, `wrapper`"):
            choose("rapid/MultiRoom-N2-S4-v0", "native", **more)
    assert choose("rapid/MultiRoom-N2-S4-v0", max_episode_steps=5) == ("sync", "")


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
    envs = make_envs(arguments("Careless-v0"), as_it_is, 2, engine)
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


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_observation_that_is_no_number_is_refused_before_training(value, monkeypatch):
    monkeypatch.setitem(gym.registry, "Careless-v0", EnvSpec("Careless-v0", Careless))
    monkeypatch.setattr(Careless, "observation_space", spaces.Box(-np.inf, np.inf, (2,), np.float32))
    monkeypatch.setattr(Careless, "shown", np.array([0.5, value], np.float32))
    with pytest.raises(ValueError, match=r"expected finite observations, got .*TransformObservation"):
        choose("Careless-v0")


class Twins(gym.vector.VectorEnv):
    """A vector form of its own: environment i ends its episodes after i + 2 steps, and shows the step."""

    def __init__(self, num_envs=1, autoreset_mode=AutoresetMode.NEXT_STEP, max_episode_steps=100):
        self.num_envs, self.metadata = num_envs, {"autoreset_mode": autoreset_mode}
        self.limit = max_episode_steps
        self.single_observation_space = spaces.Discrete(101, start=1)
        self.single_action_space = spaces.MultiDiscrete([2, 3], start=[1, 0])
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed=None, options=None):
        self.t = np.ones(self.num_envs, np.int64)
        return self.t.copy(), {"place": self.t.copy()}

    def step(self, actions):
        self.actions = actions
        self.t += 1
        final = np.empty(self.num_envs, object)
        final[:] = list(self.t)
        done, cut = self.t - 1 >= np.arange(self.num_envs) + 2, self.t > self.limit
        ended = done | cut
        self.t[ended] = 1
        infos = {"final_obs": final, "_final_obs": ended} if ended.any() else {}
        return self.t.copy(), np.ones(self.num_envs), done, cut & ~done, infos | {"place": self.t.copy()}


class Choosy(Twins):
    """Takes no list of seeds."""

    def reset(self, *, seed=None, options=None):
        if not isinstance(seed, self.wanted):
            raise TypeError("another kind of seed, please")
        self.seed = seed
        return super().reset(seed=seed)


@pytest.mark.parametrize("wanted", [list, np.ndarray, int])
def test_a_vector_form_gets_its_seeds_in_the_form_it_takes(wanted, monkeypatch):
    monkeypatch.setitem(gym.registry, SCRIPTED, EnvSpec(SCRIPTED, vector_entry_point=Choosy))
    monkeypatch.setattr(Choosy, "wanted", wanted, raising=False)
    envs = make_envs(arguments(SCRIPTED), flat, 2, "vector")
    envs.reset(seed=[3, 4])
    assert np.array_equal(envs.unwrapped.seed, 3 if wanted is int else [3, 4])


class OldTwins(Twins):
    def __init__(self, num_envs=1):
        super().__init__(num_envs)


def test_a_vector_form_of_its_own_gets_arguments_and_brings_its_spaces_into_form(monkeypatch):
    monkeypatch.setitem(gym.registry, SCRIPTED, EnvSpec(SCRIPTED, vector_entry_point=Twins))
    args = arguments(SCRIPTED, engine="vector", max_episode_steps=3, score_info="place")
    wrap_env = lambda env, args: discrete_actions(flat(env, args))  # noqa: E731
    assert choose_engine(args, wrap_env) == ("vector", "", (), 3)
    envs = make_envs(args, wrap_env, 2, "vector")
    assert envs.single_observation_space == spaces.Discrete(101)
    assert envs.single_action_space == spaces.MultiDiscrete([2, 3])
    assert envs.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    assert envs.reset(seed=[1, 2])[0].tolist() == [0, 0]
    for _ in range(2):
        observations, *_, infos = envs.step(np.array([[0, 0], [1, 2]]))
    assert envs.unwrapped.actions.tolist() == [[1, 0], [2, 2]]
    assert observations.tolist() == [0, 2] and infos["final_obs"][0] == 2


@pytest.mark.parametrize(
    ("spec", "more", "message"),
    [
        ({"vector_entry_point": OldTwins}, {}, "does not restart in the step that ends an episode"),
        ({"entry_point": ScriptedEnv}, {}, "has no vector form of its own"),
        ({"vector_entry_point": Twins}, {"wrapper": ("gymnasium.wrappers:ClipReward",)}, "sync or async with `wrap"),
        ({"vector_entry_point": Twins}, {"capture_video": True}, "sync or async with `capture_video`"),
        ({"vector_entry_point": Twins}, {"score_info": "cell"}, r"`score_info` to be one of \['place'\], got 'cell'"),
    ],
)
def test_a_vector_form_that_cannot_run_is_refused(spec, more, message, monkeypatch):
    monkeypatch.setitem(gym.registry, SCRIPTED, EnvSpec(SCRIPTED, **spec))
    with pytest.raises(ValueError, match=message):
        choose(SCRIPTED, "vector", **more)


def test_without_envpool_its_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    for engine in ("vector", None):
        with pytest.raises(ImportError, match=r"rapid-wrappers\[envpool\]"):
            choose("envpool:CartPole-v1", engine)
    with pytest.raises(ValueError, match="expected `engine` to be vector"):
        choose("envpool:CartPole-v1", "sync")


@pytest.mark.parametrize("engine", ["native", "sync"])
def test_environments_restart_in_the_step_that_ends_an_episode(engine):
    envs = make_envs(arguments("rapid/MultiRoom-N2-S4-v0"), flat, 3, engine)
    assert (envs.num_envs, envs.metadata["autoreset_mode"]) == (3, AutoresetMode.SAME_STEP)
    assert envs.single_observation_space == spaces.Box(0, 255, (7, 7, 3), np.uint8)
    envs.close()


def test_evaluations_play_one_environment_where_several_would_disturb_each_other():
    for engine, num_envs in (("native", 3), ("sync", 3), ("async", 1)):
        envs = make_eval_envs(arguments("rapid/MultiRoom-N2-S4-v0"), flat, 3, engine)
        assert envs.num_envs == num_envs
        assert not isinstance(envs, gym.vector.AsyncVectorEnv)
        envs.close()


def test_ids_are_registered_in_a_worker_that_starts_from_nothing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyglet", sys.modules.get("pyglet"))  # as if OpenGL were in use
    envs = make_envs(arguments("rapid/SparseInvertedPendulum-v0"), flattened, 1, "async")
    observations, _ = envs.reset(seed=1)
    envs.close()
    assert observations.shape == (1, 4)


@pytest.mark.slow
@pytest.mark.parametrize("env_id", [MAZE, ROOM])
def test_miniworlds_ids_and_the_maze_run_in_workers(env_id):
    import_miniworld()
    envs = make_envs(arguments(env_id), as_it_is, 2, "async")
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
