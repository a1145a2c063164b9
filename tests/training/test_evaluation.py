import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from rapid_wrappers.training.evaluation import mean_interval, play, success_interval
from tests.scripted_env import ScriptedEnv


def vector(*lengths, mode=AutoresetMode.SAME_STEP):
    return gym.vector.SyncVectorEnv(
        [lambda own=own: ScriptedEnv(own, rewards=(2.0,)) for own in lengths], autoreset_mode=mode
    )


def test_every_environment_plays_its_share_and_short_episodes_count_no_more_than_long_ones():
    seen, ended = [], []
    envs = vector([2], [7, 3, 4])
    returns, lengths = play(envs, lambda obs: seen.append(obs.copy()) or [0, 1], 5, 3, lambda: ended.append(1))
    assert lengths.tolist() == [2, 2, 2, 7, 3]
    assert returns.tolist() == [4, 4, 4, 14, 6]
    assert len(ended) == 5
    assert len(seen) == 10 and seen[0].shape == (2, 2)


def test_the_seed_is_that_of_the_first_reset():
    envs = vector([3], [3])
    seeds = []
    reset = envs.reset
    envs.reset = lambda seed: seeds.append(seed) or reset(seed=seed)
    play(envs, lambda obs: [0, 0], 2, 11)
    assert seeds == [11]


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_environments_whose_steps_are_not_all_steps_are_refused(mode):
    with pytest.raises(ValueError, match="expected autoreset_mode SAME_STEP"):
        play(vector([3], mode=mode), lambda obs: [0], 1)
    with pytest.raises(ValueError, match="expected `episodes` to be positive"):
        play(vector([3]), lambda obs: [0], 0)


@pytest.mark.parametrize(  # Wilson's, as in Brown, Cai and DasGupta (2001), and by hand
    ("successes", "episodes", "low", "high"),
    [(5, 10, 0.2366, 0.7634), (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (81, 100, 0.7222, 0.8749)],
)
def test_the_interval_of_a_success_rate_is_wilsons(successes, episodes, low, high):
    assert success_interval(successes, episodes) == pytest.approx((low, high), abs=1e-3)


def test_the_interval_of_a_mean_covers_it_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        low, high = mean_interval(rng.exponential(size=60))
        assert low < high
        covered += low <= 1 <= high
    assert 0.87 <= covered / 200 <= 0.99
    assert mean_interval(np.ones(5)) == (1, 1)
