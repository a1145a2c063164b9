"""The engine's random stream equals NumPy's, draw for draw."""

import numpy as np
import pytest

from rapid_wrappers.envs.native.rng import from_generator, rand_int, to_generator

RANGES = [1, 2, 3, 4, 5, 6, 7, 23, 255, 2**16 - 1, 2**31 - 1, 2**31 + 1, 3 * 2**30, 2**32 - 1]


@pytest.mark.parametrize("seed", [0, 1, 2**63, 123456789012345678901234567890])
def test_bounded_integers_are_numpys_draw_for_draw(seed):
    generator = np.random.default_rng(seed)
    rng = from_generator(generator)
    chosen = np.random.default_rng(7)
    for _ in range(5_000):
        low = int(chosen.integers(-1000, 1000))
        high = low + RANGES[chosen.integers(len(RANGES))]
        assert rand_int(rng, low, high) == generator.integers(low, high)
    np.testing.assert_array_equal(rng, from_generator(generator))


def test_a_range_of_one_draws_nothing():
    rng = from_generator(np.random.default_rng(0))
    before = rng.copy()
    assert rand_int(rng, 5, 6) == 5
    np.testing.assert_array_equal(rng, before)


@pytest.mark.parametrize("range_", [2**31 + 1, 3 * 2**30])
def test_ranges_that_reject_every_other_draw_are_numpys(range_):
    generator = np.random.default_rng(3)
    rng = from_generator(generator)
    assert [rand_int(rng, 0, range_) for _ in range(1000)] == generator.integers(range_, size=1000).tolist()


@pytest.mark.parametrize("draws", [0, 1, 2])
def test_a_generator_survives_the_conversion_with_half_a_draw_left(draws):
    generator = np.random.default_rng(5)
    for _ in range(draws):
        generator.integers(10)
    again = to_generator(from_generator(generator))
    assert again.bit_generator.state == generator.bit_generator.state
    assert again.integers(10, size=9).tolist() == generator.integers(10, size=9).tolist()
