import numpy as np
import pandas as pd
import pytest
from rliable import metrics

from rapid_wrappers.reporting.statistics import (
    bootstrap,
    compare,
    curve_at,
    estimate,
    interquartile_mean,
    long_enough,
    mean_return,
    probability_of_improvement,
)


def seeds(values, env_id="A-v0", experiment="ours", start=1_280, every=1_280):
    """Curves of several seeds, a list of mean returns each."""
    return pd.concat([
        pd.DataFrame({"env_id": env_id, "experiment": experiment, "seed": seed,
                      "frames": start + every * np.arange(len(curve)), "mean_return": curve})
        for seed, curve in enumerate(values)
    ])  # fmt: skip


def test_a_mean_return_is_that_of_the_last_hundred_episodes():
    returns = np.random.default_rng(0).random(250)
    frames, means = mean_return(np.arange(1, 251) * 7, returns)
    assert frames.tolist() == [7 * n for n in range(100, 251)]
    np.testing.assert_allclose(means, [returns[n - 100 : n].mean() for n in range(100, 251)])


def test_a_curve_has_the_value_of_the_last_episode_that_had_ended():
    assert [x.tolist() for x in curve_at(np.array([100, 120, 290]), np.array([1, 2, 3]), 100)] == [[100, 200], [1, 2]]
    assert curve_at(np.array([101, 150]), np.array([1, 2]), 100)[0].tolist() == []


def test_of_two_seeds_the_interval_reaches_from_one_to_the_other():
    # A draw has the mean 0, 0.5 or 1, each end a quarter of the time.
    assert estimate(lambda x: np.array([x.mean()]), np.array([[0.0], [1.0]])) == (0.5, 0, 1)
    assert estimate(lambda x: np.array([x.mean()]), np.array([[0.5], [0.5]])) == (0.5, 0.5, 0.5)


def test_a_bootstrap_is_repeatable_and_leaves_the_global_generator_alone():
    scores = np.random.default_rng(0).random((3, 1, 4))  # (seeds, 1, points)
    before = np.random.get_state()  # noqa: NPY002
    first, second = (bootstrap(lambda x: x.mean(axis=(0, 1)), scores) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_equal(np.random.get_state(), before)  # noqa: NPY002
    value, low, high = first
    assert value.shape == (4,) and np.all((low < value) & (value < high))


def test_the_probability_of_improvement_is_rliables():
    rng = np.random.default_rng(0)
    for first_seeds, second_seeds, tasks in [(1, 1, 1), (2, 5, 3), (4, 3, 2)]:
        x, y = (
            rng.integers(4, size=(n, tasks)) / 4 for n in (first_seeds, second_seeds)
        )  # so few that ties are common
        assert probability_of_improvement(x, y)[0] == pytest.approx(metrics.probability_of_improvement(x, y), abs=1e-12)


def test_experiments_are_compared_on_the_tasks_that_both_have_with_as_many_seeds_of_each():
    curves = pd.concat([
        seeds([[0.9] * 9, [0.7] * 9, [0.8] * 9], "A-v0", "ours"), seeds([[0.2] * 9, [0.5] * 9], "B-v0", "ours"),
        seeds([[0.1] * 9, [0.75] * 9], "A-v0", "theirs"), seeds([[0.4] * 9, [0.1] * 9], "B-v0", "theirs"),
        seeds([[0.4] * 9, [0.1] * 9], "C-v0", "theirs"), seeds([[1.0] * 9], "A-v0", "one seed"),
    ])  # fmt: skip
    (found,) = compare(curves, "ours")
    assert found[:5] == ("ours", "theirs", ("A-v0", "B-v0"), (9 * 1_280, 9 * 1_280), (2, 2))
    ours, theirs = np.array([[0.9, 0.2], [0.7, 0.5]]), np.array([[0.1, 0.4], [0.75, 0.1]])  # (seeds, tasks)
    assert found.iqm == (estimate(interquartile_mean, ours), estimate(interquartile_mean, theirs))
    assert found.probability == estimate(probability_of_improvement, ours, theirs)


def test_a_longer_run_is_compared_in_the_frames_and_at_the_checks_that_the_shorter_one_has():
    start = np.random.default_rng(0).random((2, 30)).cumsum(axis=1) / 30
    curves = pd.concat([
        seeds(start[:, 3::4], experiment="short and coarse", start=4 * 1_280, every=4 * 1_280),
        seeds([[*curve, *[9] * 300] for curve in start], experiment="long and fine"),
        seeds([[1.0] * 9] * 2, experiment="later", start=10**6),
    ])  # fmt: skip
    (found,) = compare(curves, "short and coarse")
    assert found.second == "long and fine" and found.frames == (28 * 1_280,)
    assert found.iqm[0] == found.iqm[1] and found.probability.value == 0.5


def test_returns_of_different_scales_have_no_common_mean():
    curves = pd.concat([seeds([[scale] * 9] * 2, env_id, name) for env_id, scale in (("A-v0", 900.0), ("B-v0", 1.0))
                        for name in ("ours", "theirs")])  # fmt: skip
    (found,) = compare(curves, "ours")
    assert found.iqm is None and found.probability == (0.5, 0.5, 0.5)
    assert compare(curves[curves.env_id == "A-v0"], "ours")[0].iqm[0].value == 900


def test_a_run_is_long_enough_with_half_the_frames_of_the_longest_seed_of_its_experiment():
    names = [("A", "x"), ("A", "x"), ("A", "x"), ("A", "y"), ("B", "x")]
    runs = pd.DataFrame(names, columns=["env_id", "experiment"]).assign(frames=[100, 50, 49, 10, 20])
    assert long_enough(runs).tolist() == [True, True, False, True, True]
