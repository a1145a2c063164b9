import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rapid_wrappers import RankingBuffer, StateCounter
from rapid_wrappers.scores import distance_score, distinct_score, episode_score, global_score, std_score
from tests.method.test_buffer import AUTHORS

EPISODES = hnp.arrays(np.uint8, hnp.array_shapes(min_dims=2, max_dims=3, max_side=6), elements=st.integers(0, 2))
FLOATS = hnp.arrays(np.float32, st.tuples(st.integers(1, 9), st.integers(1, 4)), elements=st.floats(-9, 9, width=32))


def test_distinct_score_by_hand():
    assert distinct_score([[1], [2], [1], [3]]) == 0.75
    assert distinct_score(np.zeros((7, 7, 7, 3), np.uint8)) == 1 / 7
    assert distinct_score(np.zeros((4, 0))) == 0.25


def test_std_score_by_hand_is_the_population_deviation_averaged_over_dimensions():
    # dimension 0: 0, 3, 6 has variance 6; dimension 1 is constant
    assert std_score([[0, 1], [3, 1], [6, 1]]) == pytest.approx(np.sqrt(6) / 2)
    assert std_score([[5.0, 1.0]]) == 0.0


def test_std_score_of_uint8_does_not_overflow():
    assert std_score(np.array([[0], [255]], np.uint8)) == 127.5


def test_distance_score_by_hand():
    assert distance_score([[0, 0], [0, 6], [0, 0], [8, 6]]) == pytest.approx(
        np.mean([np.hypot(2, 3), np.hypot(2, 3), np.hypot(2, 3), np.hypot(6, 3)])
    )


def test_global_score_by_hand():
    assert global_score([1, 1, 4, 16]) == (1 + 1 + 0.5 + 0.25) / 4


def test_the_three_implementations_of_the_global_score_agree():
    counter = StateCounter()
    buffer = RankingBuffer(10, 0.0, 0.0, 1.0, counter=counter)
    ids = counter.visit([[0], [1], [2], [1]])
    counter.visit([[0]] * 5)
    buffer.add(np.zeros((4, 1)), np.zeros(4), (0.0, 0.0, 0.0), ids)
    expected = (6**-0.5 + 2**-0.5 + 1 + 2**-0.5) / 4
    assert global_score(counter.counts[ids]) == pytest.approx(expected, rel=1e-15)
    assert counter.bonus(ids) == pytest.approx(expected, rel=1e-15)
    assert buffer.scores == pytest.approx([expected] * 4, rel=1e-15)


def test_episode_score_is_the_weighted_sum_of_the_paper():
    assert episode_score(0.7, 0.5, 0.25) == pytest.approx(0.7 + 0.05 + 0.00025)
    assert episode_score(1, 2, 3, w0=4, w1=5, w2=6) == 32


def test_local_scores_equal_those_of_the_authors_code():
    episodes = np.split(AUTHORS["observations"], np.cumsum(AUTHORS["lengths"])[:-1])
    assert [distinct_score(e) for e in episodes] == list(AUTHORS["local"])
    continuous = np.split(AUTHORS["continuous_states"], np.cumsum(AUTHORS["continuous_lengths"])[:-1])
    np.testing.assert_allclose([distance_score(e) for e in continuous], AUTHORS["continuous_local"], rtol=1e-12)


@settings(max_examples=50, deadline=None)
@given(EPISODES, st.randoms(use_true_random=False))
def test_distinct_score_does_not_depend_on_the_order(states, random):
    order = list(range(len(states)))
    random.shuffle(order)
    assert distinct_score(states) == distinct_score(states[order])
    assert 0 < distinct_score(states) <= 1


@settings(max_examples=50, deadline=None)
@given(FLOATS)
def test_spread_scores_ignore_a_shift_and_scale_with_the_states(states):
    for score in (std_score, distance_score):
        assert score(states + np.float64(10)) == pytest.approx(score(states), abs=1e-6)
        assert score(states * np.float64(2)) == pytest.approx(2 * score(states), abs=1e-9)


def test_equal_arrays_are_one_state_for_both_score_and_counter():
    states = np.array([[0.0], [-0.0], [np.nan], [-np.nan], [1.0]])
    states.view(np.uint64)[3] ^= 1  # another NaN
    assert distinct_score(states) == 3 / 5
    assert len(StateCounter().visit(states)) == 5
    counter = StateCounter()
    assert list(counter.visit(states)) == [0, 0, 1, 1, 2]


@pytest.mark.parametrize("score", [distinct_score, std_score, distance_score])
@pytest.mark.parametrize("states", [np.zeros((0, 3)), 1.0])
def test_an_episode_without_states_is_refused(score, states):
    with pytest.raises(ValueError, match="T >= 1"):
        score(states)


@pytest.mark.parametrize("score", [distinct_score, std_score, distance_score])
def test_states_that_are_not_numbers_are_refused(score):
    with pytest.raises(TypeError, match="numbers"):
        score([{"image": 1}])


@pytest.mark.parametrize("score", [std_score, distance_score])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_the_spread_of_states_that_are_not_finite_is_refused(score, bad):
    with pytest.raises(ValueError, match="finite"):
        score([[0.0], [bad]])


@pytest.mark.parametrize("counts", [[], [1, 0], [np.nan], [1, np.inf]])
def test_counts_below_one_or_not_finite_are_refused(counts):
    with pytest.raises(ValueError, match="count"):
        global_score(counts)
