"""Running statistics, against NumPy's and Gymnasium's."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rapid_wrappers.training.normalize import ObservationNormalizer, RewardNormalizer, UpdateStatistics
from tests.scripted_env import ScriptedEnv


def filled(shape=(3,), dtype=np.float64):
    normalizer = ObservationNormalizer(shape)
    rows = np.random.default_rng(0).normal(20, 2, (200, *shape)).astype(dtype)
    for part in np.split(rows, 20):
        normalizer.update(part)
    return normalizer, rows


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8])
def test_observations_are_standardized_by_the_statistics_of_all_that_were_seen(shape, dtype):
    normalizer, rows = filled(shape, dtype)
    expected = (rows - rows.mean(axis=0, dtype=float)) / rows.std(axis=0, dtype=float)
    found = normalizer(rows)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found, expected.reshape(200, -1), atol=2e-3)


def test_extreme_observations_are_clipped_to_ten_deviations():
    normalizer, _ = filled()
    assert normalizer(np.array([[1e9, -1e9, 20]])).tolist()[0][:2] == [10, -10]


def test_observations_in_half_precision_do_not_overflow_the_statistics():
    normalizer = ObservationNormalizer((2,))
    normalizer.update(np.random.default_rng(0).normal(0, 400, (500, 2)).astype(np.float16))
    assert 350**2 < normalizer.rms.var.min() < 450**2


def test_observations_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"expected observations \(n, \*\(3,\)\), got shape \(3,\)"):
        filled()[0](np.zeros(3))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_observation_that_is_no_number_names_its_environment(value):
    normalizer, _ = filled()
    with (
        np.errstate(invalid="ignore"),
        pytest.raises(ValueError, match=r"expected finite observations, got .*(nan|inf).* from environment 1"),
    ):
        normalizer.update(np.array([[1, 2, 3], [1, 2, value]]))


def test_a_networks_weights_carry_the_statistics():
    normalizer, rows = filled()
    state = torch.nn.Sequential(normalizer).state_dict()
    other = torch.nn.Sequential(ObservationNormalizer((3,)))
    other.load_state_dict(state)
    assert torch.equal(other(rows), normalizer(rows))
    normalizer.update(rows + 1)
    other[0].update(rows + 1)
    assert torch.equal(other(rows), normalizer(rows))
    with pytest.raises(RuntimeError, match="extra_state"):
        other.load_state_dict({})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mean", torch.zeros(4, dtype=torch.float64)),
        ("mean", torch.zeros(3)),
        ("var", torch.zeros(4, dtype=torch.float64)),
        ("var", torch.zeros(3)),
    ],
)
def test_statistics_of_another_shape_or_dtype_are_refused(name, value):
    normalizer, _ = filled()
    with pytest.raises(ValueError, match="expected statistics of observations of shape"):
        normalizer.set_extra_state(normalizer.get_extra_state() | {name: value})


def vector(**options):
    return SyncVectorEnv([lambda: ScriptedEnv([5], **options)] * 2, autoreset_mode=AutoresetMode.SAME_STEP)


def test_every_observation_updates_the_statistics_and_is_passed_on_raw():
    normalizer = ObservationNormalizer((2,))
    envs = UpdateStatistics(vector(), normalizer)
    seen = [envs.reset(seed=0)[0]]
    assert seen[0].tolist() == [[0, 0], [0, 0]]
    for _ in range(7):
        seen.append(envs.step([0, 0])[0])
    np.testing.assert_allclose(normalizer.rms.mean, np.concatenate(seen).mean(axis=0), rtol=1e-3)
    assert seen[-1].tolist() == [[0, 2], [0, 2]]


def test_rewards_are_divided_by_the_spread_of_discounted_returns_as_gymnasium_does():
    rewards = [1.0, -2.0, 3.0]
    oracle = gym.wrappers.vector.NormalizeReward(vector(rewards=rewards, ends=(False, True)), gamma=0.99)
    oracle.reset()
    normalize, envs = RewardNormalizer(2, 0.99), vector(rewards=rewards)
    envs.reset()
    for t in range(64):
        _, reward, terminated, _, _ = envs.step([0, 0])
        found, expected = normalize(reward, terminated), oracle.step([0, 0])[1]
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        if t % 5 == 4:
            oracle.accumulated_reward[:] = 0  # as Gymnasium has it from 1.3 on
    np.testing.assert_allclose(normalize.rms.var, oracle.return_rms.var, rtol=1e-6)


def test_the_spread_of_returns_is_saved_and_loaded():
    normalize, other = (RewardNormalizer(2, 0.9) for _ in range(2))
    for i in range(10):
        normalize(np.array([i, -2.0 * i]), np.ones(2, bool))
    other.load_state_dict(normalize.state_dict())
    rewards, dones = np.array([1.0, 2.0]), np.zeros(2, bool)
    assert other(rewards, dones).tolist() == normalize(rewards, dones).tolist()
    with pytest.raises(ValueError, match="expected finite statistics"):
        other.load_state_dict(normalize.state_dict() | {"var": float("nan")})
