"""Floats are scored in units of their running deviation, so that no unit of measurement drowns a return."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from rapid_wrappers import EpisodeScoringWrapper, RankingBuffer, VectorEpisodeScoringWrapper, finished_episodes
from tests.scripted_env import ScriptedEnv, play
from tests.wrappers.vector_episodes import SAME_STEP, run, scripted


class Account(gym.Env):
    """Action 1 pays; action 0 only makes the observation large."""

    observation_space, action_space = spaces.Box(-np.inf, np.inf, (1,)), spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.money, self.t = 1000.0, 0
        return np.float32([self.money]), {}

    def step(self, action):
        self.money += 500.0 * (action == 0)
        self.t += 1
        return np.float32([self.money]), float(action == 1), self.t == 10, False, {}


class Walk(gym.Env):
    """Shows a random walk around an offset of the episode's own, in a unit of its own."""

    action_space = spaces.Discrete(2)

    def __init__(self, unit, seed, length=20):
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.unit, self.rng, self.length = np.asarray(unit, float), np.random.default_rng(seed), length

    def reset(self, seed=None, options=None):
        self.place, self.t = self.rng.normal(size=2) * 5, 0
        return self.place * self.unit, {}

    def step(self, action):
        self.place, self.t = self.place + self.rng.normal(size=2), self.t + 1
        return self.place * self.unit, 0.0, self.t == self.length, False, {}


def test_a_large_unit_does_not_beat_a_return():
    env, buffer = EpisodeScoringWrapper(Account()), RankingBuffer(20)
    for action in (0, 1):
        for _, episode in finished_episodes(play(env, [action] * 10)):
            buffer.add(episode.observations, episode.actions, episode.scores)
    first, second = buffer.episodes()
    assert (first["extrinsic"], second["extrinsic"]) == (10.0, 0.0)
    assert second["local"] == pytest.approx(1.0)
    assert first["local"] == pytest.approx(0.0)


@pytest.mark.parametrize("local", [None, "std", "distance"])
def test_the_local_score_does_not_depend_on_units_and_offsets(local):
    def scores(unit):
        env = EpisodeScoringWrapper(Walk(unit, 0), local=local)
        return [play(env, [0] * 20)["episode_scores"]["local"] for _ in range(10)]

    expected = scores(1.0)
    assert np.std(expected) > 0.01
    for unit in (1e6, 1e-6, (1e5, 1e-4), (1.0, -1.0)):
        assert scores(unit) == pytest.approx(expected)


def test_normalize_false_is_eq_2_to_the_letter():
    raw = EpisodeScoringWrapper(Walk(1000.0, 0), normalize=False)
    info = play(raw, [0] * 20)
    assert info["episode_scores"]["local"] == pytest.approx(info["episode_record"].observations.std(axis=0).mean())
    assert raw.statistics.state_dict() == {}
    assert "own units" in raw.scored


def test_integers_are_scaled_only_on_demand():
    for normalize, expected in ((None, 1.0), (False, 1.0), (True, 1.0)):
        env = EpisodeScoringWrapper(ScriptedEnv([3]), normalize=normalize)
        assert play(env)["episode_scores"]["local"] == expected and env.local == "distinct"
    raw, scaled = (EpisodeScoringWrapper(ScriptedEnv([3]), local="std", normalize=n) for n in (None, True))
    assert play(raw)["episode_scores"]["local"] == pytest.approx(np.std([0, 1, 2]) / 2)
    assert play(scaled)["episode_scores"]["local"] == pytest.approx(0.5)  # one of two entries is constant


def test_a_constant_entry_scores_zero_whatever_its_size():
    class Constant(Walk):
        def reset(self, **kwargs):
            return super().reset(**kwargs)[0] * [0, 1] + [0.1 + 1e7, 0], {}

        def step(self, action):
            obs, *rest = super().step(action)
            return obs * [0, 1] + [0.1 + 1e7, 0], *rest

    env = EpisodeScoringWrapper(Constant(1.0, 0))
    assert play(env, [0] * 20)["episode_scores"]["local"] == pytest.approx(0.5)


def test_one_reading_that_is_far_out_counts_as_ten_deviations():
    env = EpisodeScoringWrapper(Walk(1.0, 0, length=5))
    for _ in range(400):
        play(env, [0] * 5)
    env.unwrapped.unit = np.array([1e9, 1.0])
    assert play(env, [0] * 5)["episode_scores"]["local"] < 10


def test_the_first_episodes_of_many_environments_score_like_later_ones():
    makers = [lambda i=i: Walk(1.0, i) for i in range(16)]
    envs = VectorEpisodeScoringWrapper(SyncVectorEnv(makers, autoreset_mode=SAME_STEP))
    local = [episode.scores.local for *_, episode in run(envs, 400, [np.zeros(16, int)] * 400)]
    assert len(local) == 320
    assert np.mean(local[:16]) == pytest.approx(np.mean(local[16:]), rel=0.2)
    assert max(local[:16]) < max(local[16:])


def test_wrappers_that_share_their_statistics_score_by_the_states_of_all():
    first = EpisodeScoringWrapper(Walk(1.0, 0))
    second = EpisodeScoringWrapper(Walk(100.0, 1), normalize=first.statistics)
    around = VectorEpisodeScoringWrapper(SyncVectorEnv([lambda: Walk(7.0, 2)] * 2), normalize=first.statistics)
    rows = []
    for env in (first, second, second, first):
        info = play(env, [0] * 20)
        rows.append(info["episode_record"].observations)
        unit = np.concatenate(rows).std(axis=0)
        assert info["episode_scores"]["local"] == pytest.approx((rows[-1].std(axis=0) / unit).mean())
    *_, episode = run(around, 20, [np.zeros(2, int)] * 20)[-1]
    rows += [episode.observations] * 2  # both of its environments show the same
    unit = np.concatenate(rows).std(axis=0)
    assert episode.scores.local == pytest.approx((episode.observations.std(axis=0) / unit).mean())
    with pytest.raises(ValueError, match="shape"):
        play(
            EpisodeScoringWrapper(
                ScriptedEnv([2], dtype=np.float32), state=lambda env, o: o[:1], normalize=first.statistics
            )
        )


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
def test_readings_that_are_not_finite_leave_the_statistics_alone(bad):
    env = EpisodeScoringWrapper(Walk(1.0, 0, length=3))
    play(env)
    before = repr(env.state_dict())
    env.unwrapped.unit = np.array([bad, 1.0])
    with pytest.raises(ValueError, match="finite states"):
        play(env)
    assert repr(env.state_dict()) == before
    env.unwrapped.unit = np.ones(2)
    assert np.isfinite(play(env)["episode_scores"]["local"])


def test_in_a_vector_environment_they_are_refused_at_once():
    envs = VectorEpisodeScoringWrapper(scripted([9], [9], dtype=np.float32))
    envs.reset()
    before = repr(envs.statistics.state_dict())
    envs.env.envs[1].observe = lambda: np.full(2, np.nan, np.float32)
    with pytest.raises(ValueError, match="finite states"):
        envs.step([0, 0])
    assert repr(envs.statistics.state_dict()) == before


def test_a_vector_environment_goes_on_from_its_saved_statistics():
    def envs():
        makers = [lambda i=i: Walk(1.0, i) for i in range(3)]
        return VectorEpisodeScoringWrapper(SyncVectorEnv(makers, autoreset_mode=SAME_STEP))

    whole, half = envs(), envs()
    actions = [np.zeros(3, int)] * 50
    expected = [episode.scores for *_, episode in run(whole, 50, actions)]
    found = [episode.scores for *_, episode in run(half, 30, actions)]
    resumed = VectorEpisodeScoringWrapper(half.env)
    resumed.load_state_dict(half.state_dict())
    for action in actions[30:]:
        found += [episode.scores for _, episode in finished_episodes(resumed.step(action)[4])]
    assert found == expected
    state = half.state_dict()
    other = EpisodeScoringWrapper(ScriptedEnv([2], dtype=np.float32), state=lambda env, obs: {"a": obs, "b": obs[:1]})
    play(other)
    for statistics in (
        other.state_dict()["statistics"],
        {"mean": 1},
        {**state["statistics"], "var": -np.ones(2)},
        {**state["statistics"], "mean": np.zeros(3)},
    ):
        with pytest.raises(ValueError, match="expected"):
            resumed.load_state_dict(state | {"statistics": statistics})
