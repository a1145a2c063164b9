"""Local and global score: what is scored, and whether it is counted."""

import functools

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

import rapid_wrappers.envs  # noqa: F401
from rapid_wrappers import (
    EpisodeScoringWrapper,
    StateCounter,
    VectorEpisodeScoringWrapper,
)
from tests.scripted_env import ScriptedEnv, play
from tests.wrappers.vector_episodes import DISABLED, SAME_STEP, run, scripted


def test_the_default_scores_follow_the_space():
    def defaults(low, high, shape, dtype):
        env = ScriptedEnv()
        env.observation_space = spaces.Box(low, high, shape, dtype)
        wrapped = EpisodeScoringWrapper(env)
        return wrapped.local, wrapped.count

    assert defaults(0, 255, (7, 7, 3), np.uint8) == ("distinct", True)
    assert defaults(0, 255, (31, 99, 3), np.uint8) == ("distinct", True)
    assert defaults(0, 255, (32, 32, 3), np.uint8) == ("std", False)
    assert defaults(0, 9, (60, 80, 3), np.int64) == ("distinct", True)
    assert defaults(-1, 1, (4,), np.float32) == ("std", False)
    env = ScriptedEnv()
    for space in (spaces.Discrete(4), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(4)):
        env.observation_space = space
        assert EpisodeScoringWrapper(env).local == "distinct"


def test_float_states_are_not_counted_and_score_zero_globally():
    env = EpisodeScoringWrapper(gym.make("CartPole-v1"), normalize=False)
    env.reset(seed=0)
    terminated = False
    while not terminated:
        _, _, terminated, _, info = env.step(0)
    assert info["episode_scores"]["global"] == 0.0
    assert info["episode_record"].state_ids is None
    assert len(env.counter) == 0
    assert info["episode_scores"]["local"] == pytest.approx(info["episode_record"].observations.std(axis=0).mean())


class Pixels(ScriptedEnv):
    def __init__(self):
        super().__init__([2])
        self.observation_space = spaces.Box(0, 255, (32, 40, 3), np.uint8)

    def observe(self):
        return np.full((32, 40, 3), 255 * (self.t % 2), np.uint8)


def test_pixels_count_from_zero_to_one_for_the_std_score_and_in_bytes_for_the_distance():
    assert play(EpisodeScoringWrapper(Pixels()))["episode_scores"] == {"extrinsic": 2.0, "local": 0.5, "global": 0.0}
    distance = play(EpisodeScoringWrapper(Pixels(), local="distance"))["episode_scores"]["local"]
    assert distance == pytest.approx(127.5 * np.sqrt(32 * 40 * 3))


def test_a_state_function_decides_what_is_scored_while_the_record_keeps_the_observations():
    env = EpisodeScoringWrapper(ScriptedEnv([4]), state=lambda env, obs: obs[1:] // 2)
    info = play(env)
    assert info["episode_scores"]["local"] == 0.5
    assert info["episode_record"].observations[:, 1].tolist() == [0, 1, 2, 3]
    assert info["episode_record"].state_ids.tolist() == [0, 0, 1, 1]
    env = gym.make("rapid/MultiRoom-N4-S5-v0")
    grid = EpisodeScoringWrapper(env, state=lambda env, obs: np.array(env.unwrapped.agent_pos))
    grid.reset(seed=0)
    for _ in range(80):
        info = grid.step(0)[4]
    assert info["episode_scores"]["local"] == 1 / 80


@pytest.mark.parametrize("explicit", [{}, {"local": "std", "count": False}])
def test_the_defaults_follow_the_dtype_and_shape_that_a_state_function_returns(explicit):
    floats = EpisodeScoringWrapper(ScriptedEnv([3]), state=lambda env, obs: obs / 2, normalize=False, **explicit)
    assert play(floats)["episode_scores"]["local"] == pytest.approx(np.std([0, 0.5, 1]) / 2)
    pixels = EpisodeScoringWrapper(
        ScriptedEnv([2]), state=lambda env, obs: np.full((32, 32, 3), 255 * obs[1], np.uint8), **explicit
    )
    assert play(pixels)["episode_scores"]["local"] == 0.5


def test_a_local_function_scores_each_episode_once_when_it_ends():
    calls = []

    def local(states):
        calls.append(states.copy())
        return np.float32(states[-1, 1])

    env = EpisodeScoringWrapper(ScriptedEnv([3, 4]), local=local)
    assert env.local is local
    for length in (3, 4):
        info = play(env)
        assert info["episode_scores"]["local"] == info["episode_record"].scores.local == length - 1
        assert type(info["episode_scores"]["local"]) is float
        assert np.array_equal(calls[-1], info["episode_record"].observations)
    assert len(calls) == 2


@pytest.mark.parametrize(("dtype", "counted"), [(np.uint8, True), (np.float32, False)])
def test_with_a_local_function_counting_still_follows_the_space(dtype, counted):
    env = EpisodeScoringWrapper(ScriptedEnv([2], dtype=dtype), local=lambda states: 0.25)
    assert env.count is counted
    assert play(env)["episode_scores"] == {"extrinsic": 2.0, "local": 0.25, "global": float(counted)}


def test_an_environment_rebuilt_from_its_spec_has_the_same_local_function():
    def local(states):
        return float(len(states))

    env = EpisodeScoringWrapper(gym.make("CartPole-v1", max_episode_steps=4), local=local)
    assert gym.make(env.spec).local is local


def test_a_capped_counter_does_not_change_the_local_score():
    info = play(EpisodeScoringWrapper(ScriptedEnv([5]), counter=StateCounter(max_states=2)))
    assert info["episode_scores"]["local"] == 1.0
    assert info["episode_record"].state_ids.tolist() == [0, 1, 1, 1, 1]


def test_wrappers_of_one_process_can_share_a_counter():
    counter = StateCounter()
    envs = [EpisodeScoringWrapper(ScriptedEnv([2]), counter=counter) for _ in range(2)]
    assert [play(env)["episode_scores"]["global"] for env in envs] == pytest.approx([1.0, 0.5**0.5])
    assert envs[0].counter is envs[1].counter is counter


def test_a_state_function_decides_what_is_scored_while_the_record_keeps_the_observations_in_each_environment():
    def tag_only(observations, infos):
        assert isinstance(infos, dict)
        return observations[:, :1]

    found = run(VectorEpisodeScoringWrapper(scripted([4], [5]), state=tag_only), 5)
    assert [episode.scores.local for *_, episode in found] == [1 / 4, 1 / 5]
    assert [episode.observations.shape for *_, episode in found] == [(4, 2), (5, 2)]


def test_a_partial_reset_leaves_the_states_of_the_others_alone():
    class Tells(ScriptedEnv):
        """Has its state only in its info."""

        def reset(self, **kwargs):
            return super().reset(**kwargs)[0], {"t": 10 + self.t}

        def step(self, action):
            return *super().step(action)[:4], {"t": 10 + self.t}

    makers = [functools.partial(Tells, [length]) for length in (2, 5)]
    envs = SyncVectorEnv(makers, autoreset_mode=DISABLED)
    seen = []

    def state(observations, infos):
        seen.append(infos["t"].tolist())
        return infos["t"]

    wrapped = VectorEpisodeScoringWrapper(envs, state=state)
    found = run(wrapped, 5)
    assert [0, 13] not in seen
    assert any(0 in row for row in seen)  # Gymnasium fills in zeros for environments that it does not reset
    assert [episode.scores.local for _, i, episode in found if i == 1] == [1.0]
    assert len(wrapped.counter) == 5  # 10 to 14, and no 0


def test_the_default_scores_follow_the_space_of_one_environment():
    def kind(space):
        envs = SyncVectorEnv([lambda: gym.wrappers.TransformObservation(ScriptedEnv(), lambda obs: obs, space)] * 2)
        wrapped = VectorEpisodeScoringWrapper(envs)
        return wrapped.local, wrapped.count

    assert kind(spaces.Box(0, 255, (7, 7, 3), np.uint8)) == ("distinct", True)
    assert kind(spaces.Box(0, 255, (60, 80, 3), np.uint8)) == ("std", False)
    assert kind(spaces.Box(-1, 1, (3,), np.float64)) == ("std", False)
    assert kind(spaces.Discrete(5)) == ("distinct", True)


def test_a_local_function_scores_each_episode_once_when_it_ends_in_each_environment():
    calls = []

    def local(states):
        calls.append(states.tolist())
        return float(states.sum())

    envs = VectorEpisodeScoringWrapper(scripted([2], [3], mode=SAME_STEP), local=local)
    assert envs.local is local
    assert envs.count
    found = run(envs, 6)
    assert len(calls) == len(found) == 5
    assert [episode.scores.local for *_, episode in found] == [1.0, 6.0, 1.0, 1.0, 6.0]
    assert calls == [episode.observations.tolist() for *_, episode in found]


def test_a_local_function_takes_what_the_state_function_returned():
    envs = VectorEpisodeScoringWrapper(
        scripted([4], [5]), local=lambda states: states.shape[1], state=lambda observations, infos: observations[:, :1]
    )
    assert [episode.scores.local for *_, episode in run(envs, 5)] == [1.0, 1.0]


class Frames(gym.Env):
    """Shows black frames, and in each second step one with a white half."""

    action_space = spaces.Discrete(2)

    def __init__(self, shape, axes):
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        self.white = np.zeros(shape, np.uint8)
        np.moveaxis(self.white, axes, (0, 1))[:20] = 255

    def reset(self, seed=None, options=None):
        self.t = 0
        return self.white * 0, {}

    def step(self, action):
        self.t += 1
        return self.white * (action * self.t % 2), 0.0, self.t == 8, False, {}


FRAMES = {
    (40, 50): (0, 1),
    (40, 50, 3): (0, 1),
    (3, 40, 50): (1, 2),
    (4, 40, 50): (1, 2),
    (4, 40, 50, 3): (1, 2),
    (40, 50, 4, 3): (0, 1),
    (40, 3, 50): (0, 2),
}


@pytest.mark.parametrize("shape", FRAMES)
def test_pixels_are_known_in_any_order_of_their_axes(shape):
    env = EpisodeScoringWrapper(Frames(shape, FRAMES[shape]))
    assert (env.local, env.count) == ("std", False)
    assert "pixels from 0 to 1" in env.scored
    still, moving = (play(env, [action] * 8)["episode_scores"]["local"] for action in (0, 1))
    assert (still, moving) == (0.0, pytest.approx(0.5 * 20 / 40))


@pytest.mark.parametrize("shape", FRAMES)
def test_the_codes_of_pixels_do_not_depend_on_the_order_of_their_axes(shape):
    def counts(shape, axes):
        env = EpisodeScoringWrapper(Frames(shape, axes), counter=StateCounter(hash_bits=16))
        for action in (1, 0):
            play(env, [action] * 8)
        return env.count, env.counter.counts.tolist()

    assert counts(shape, FRAMES[shape]) == (True, [12, 4])


def test_small_grids_are_no_pixels():
    assert EpisodeScoringWrapper(Frames((31, 99, 3), (0, 1))).local == "distinct"
    assert EpisodeScoringWrapper(Frames((9, 20, 20), (1, 2))).local == "distinct"
