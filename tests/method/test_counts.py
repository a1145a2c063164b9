import math
import os
import pickle
import subprocess
import sys
from collections import Counter
from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rapid_wrappers import StateCounter
from rapid_wrappers.scores import distinct_score
from tests.method.test_buffer import AUTHORS

BATCHES = st.lists(
    hnp.arrays(np.int16, st.tuples(st.integers(0, 30), st.just(2)), elements=st.integers(0, 5)), max_size=8
)


@settings(max_examples=40, deadline=None)
@given(BATCHES)
def test_counts_are_those_of_a_dictionary_and_ids_come_in_the_order_of_first_visits(batches):
    counter, expected = StateCounter(), Counter()
    for batch in batches:
        ids = counter.visit(batch)
        expected.update(row.tobytes() for row in batch)
        keys = list(expected)
        assert [keys[i] for i in ids] == [row.tobytes() for row in batch]
        assert list(counter.counts) == list(expected.values())
        assert len(counter) == len(expected)


def test_a_hundred_thousand_states_get_different_ids_and_find_them_again():
    counter = StateCounter()
    states = np.arange(100_000)[:, None]
    for block in np.split(states, 100):
        counter.visit(block)
    assert np.array_equal(counter.visit(states), np.arange(100_000))
    assert (counter.counts == 2).all()


def test_bonus_is_the_mean_of_the_inverse_square_root_with_the_current_counts():
    counter = StateCounter()
    ids = counter.visit([[1], [2], [1], [1], [1]])
    assert counter.bonus(ids[:2]) == (0.5 + 1) / 2
    counter.visit([[2]] * 3)
    assert counter.bonus(ids[:2]) == 0.5


def test_bonus_of_an_episode_just_visited_equals_the_authors_global_score():
    counter = StateCounter()
    episodes = np.split(AUTHORS["observations"], np.cumsum(AUTHORS["lengths"])[:-1])
    bonuses = [counter.bonus(counter.visit(episode)) for episode in episodes]
    np.testing.assert_allclose(bonuses, AUTHORS["global_at_insertion"], rtol=1e-12)


def test_dtype_and_shape_are_part_of_a_state():
    counter = StateCounter()
    kinds = [((4,), np.uint8), ((4,), np.int8), ((2, 2), np.uint8), ((1,), np.float32), ((), np.int32)]
    assert [int(counter.visit(np.zeros((1, *shape), dtype))[0]) for shape, dtype in kinds] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("size", "quiet", "signalling"),
    [(2, 0x7E00, 0x7C01), (4, 0x7FC00000, 0x7F800001), (8, 0x7FF8000000000000, 0x7FF0000000000001)],
)
def test_a_signalling_nan_is_nan_without_a_warning(size, quiet, signalling):
    states = np.array([quiet, signalling], f"u{size}").view(f"f{size}")
    assert StateCounter().visit(states).tolist() == [0, 0]
    assert distinct_score(states) == 0.5


def test_the_digest_is_the_same_in_a_process_with_another_hash_seed():
    code = ("from rapid_wrappers import StateCounter as S; c = S(); c.visit([[1.5, 2], [3, 4]]); "
            "print(c.state_dict()['digests'].tolist())")  # fmt: skip
    out = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(out) == 1


@pytest.mark.parametrize("copy", [deepcopy, lambda c: pickle.loads(pickle.dumps(c))])
def test_a_copy_counts_for_itself(copy):
    counter = StateCounter()
    counter.visit([[1]])
    other = copy(counter)
    other.visit([[1], [2]])
    assert list(counter.counts) == [1]
    assert list(other.counts) == [2, 1]


def test_a_loaded_counter_continues_like_the_saved_one():
    states = np.random.default_rng(0).integers(0, 9, (500, 2))
    counter, loaded = StateCounter(), StateCounter()
    counter.visit(states)
    loaded.visit([[99, 99]])
    loaded.load_state_dict(counter.state_dict())
    for c in (counter, loaded):
        c.visit(states[:50])
    assert np.array_equal(counter.counts, loaded.counts)
    assert np.array_equal(counter.visit(states), loaded.visit(states))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"counts": np.array([1, -1])}, "no count below 0"),
        ({"counts": np.array([1, 1, 1])}, "`digests`"),
        ({"counts": np.array([1.0, 1.0])}, "`counts`"),
        ({"digests": np.zeros((2, 2), np.uint64)}, "duplicates"),
        ({"digests": np.zeros((2, 3), np.uint64)}, "`digests`"),
        ({"more": 1}, "keys"),
        ({"hash_bits": 2}, "keys"),
    ],
)
def test_a_malformed_state_is_refused_and_changes_nothing(change, message):
    counter, other = StateCounter(), StateCounter()
    counter.visit([[1], [2]])
    other.visit([[5]])
    with pytest.raises(ValueError, match=message):
        other.load_state_dict({**counter.state_dict(), **change})
    assert list(other.visit([[5], [6]])) == [0, 1]


def test_the_view_of_the_counts_cannot_be_written():
    counter = StateCounter()
    counter.visit([[1]])
    with pytest.raises(ValueError, match="read-only"):
        counter.counts[0] = 5


@pytest.mark.parametrize("ids", [[], [2], [-1], [0.0]])
def test_the_bonus_of_unknown_ids_is_refused(ids):
    counter = StateCounter()
    counter.visit([[1], [2]])
    with pytest.raises(ValueError, match="ids"):
        counter.bonus(ids)


@pytest.mark.parametrize("states", [[{"image": 1}], ["a"], np.zeros((2, 1), np.longdouble)])
def test_states_without_a_well_defined_key_are_refused(states):
    with pytest.raises(TypeError, match="numbers"):
        StateCounter().visit(states)
    with pytest.raises(ValueError, match="scalar"):
        StateCounter().visit(3)


def test_states_that_differ_in_few_bits_share_no_key():
    base = np.random.default_rng(0).integers(0, 11, (7, 7, 3), dtype=np.uint8)
    near = [base]
    for cell in range(147):
        for value in range(11):
            near.append(base.copy())
            near[-1].flat[cell] = value
    for one in range(0, 147, 3):  # swapped with another: the same bytes in another order
        for other in range(one + 3, 147, 3):
            near.append(base.copy())
            near[-1].flat[one], near[-1].flat[other] = base.flat[other], base.flat[one]
    numbers = [np.full((7, 7, 3), v, np.uint8) for v in range(256)]
    states = np.array(near + numbers)
    assert len(np.unique(StateCounter().visit(states))) == len({state.tobytes() for state in states})


@pytest.mark.parametrize("number", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_each_half_of_a_key_alone_tells_all_states_apart(number):
    counter = StateCounter()
    # states that differ in the lowest bits of a word, and in its highest
    for low in np.array_split(np.arange(number // 2, dtype=np.uint64), 10):
        counter.visit(np.stack([low, np.zeros_like(low)], axis=1))
        counter.visit(np.stack([low << np.uint64(44), low], axis=1))
    digests = counter.state_dict()["digests"]
    assert len(counter) == number - 1  # the very first comes twice
    assert [len(np.unique(half)) for half in digests.T] == [number - 1] * 2


def test_bits_of_a_key_are_even_and_change_by_half_with_each_bit_of_a_state():
    counter = StateCounter()
    state = np.zeros(20, np.uint8)
    flipped = np.array([state, *(np.packbits(row) for row in np.eye(160, dtype=np.uint8))])
    counter.visit(flipped)
    bits = np.unpackbits(counter.state_dict()["digests"].view(np.uint8), axis=1)
    changed = (bits[1:] != bits[0]).sum(axis=1)
    assert changed.min() > 40
    assert changed.max() < 88  # of 128; 64 with a deviation of 5.7
    assert abs(bits.mean() - 0.5) < 0.02


def test_states_without_elements_are_told_apart_by_dtype_and_shape():
    counter = StateCounter()
    for states in (np.zeros((2, 0)), np.zeros((2, 0, 3)), np.zeros((2, 0), int), np.zeros((2, 0))):
        counter.visit(states)
    assert counter.counts.tolist() == [4, 2, 2]


def test_states_can_be_looked_up_first_and_counted_later():
    counter, other = StateCounter(), StateCounter()
    ids = counter.identify([[1], [2], [1]])
    assert ids.tolist() == [0, 1, 0]
    assert counter.counts.tolist() == [0, 0]
    with pytest.raises(ValueError, match="only identified"):
        counter.bonus(ids)
    other.load_state_dict(counter.state_dict())
    other.count(ids)
    assert other.counts.tolist() == [2, 1]
    for wrong in ([-1], [2]):
        with pytest.raises(ValueError, match="expected `ids`"):
            other.count(np.array(wrong))


def images(count, seed=0):
    """Smooth random images, all different."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (count, 4, 4, 3), dtype=np.uint8)
    return coarse.repeat(12, axis=1).repeat(16, axis=2)


def test_with_hash_bits_similar_images_are_one_state_and_others_are_not():
    counter = StateCounter(hash_bits=32)
    clean = images(50)
    ids = counter.visit(clean)
    assert len(set(ids.tolist())) == 50
    noisy = (clean + np.random.default_rng(1).integers(-9, 10, clean.shape)).clip(0, 255).astype(np.uint8)
    assert (counter.identify(noisy) == ids).mean() > 0.8
    assert (counter.identify(images(50, seed=2)) == ids).mean() < 0.1


def test_signs_of_projections_agree_as_often_as_the_angle_says():
    """Charikar 2002: two vectors get the same bit with probability 1 - angle / pi."""
    base = np.array([[1.0, 0, 0, 0], [-1.0, 0, 0, 0]])  # centred on 0
    for angle in (0.3, 1.0, 2.0):
        turned = np.array([[math.cos(angle), math.sin(angle), 0, 0]])
        agree = []
        for bits in range(1, 33):
            counter = StateCounter(hash_bits=bits)
            counter.visit(base)
            codes = [np.unpackbits(counter._codes(x), axis=1)[0, :bits] for x in (base[:1], turned)]
            agree.extend(codes[0] == codes[1])
        assert np.mean(agree) == pytest.approx(1 - angle / math.pi, abs=0.06)


@pytest.mark.parametrize("bits", [1, 4, 10])
def test_there_are_never_more_hashed_states_than_codes(bits):
    counter = StateCounter(hash_bits=bits)
    for seed in range(5):
        counter.visit(np.random.default_rng(seed).normal(size=(20_000, 6)))
    assert len(counter) <= 2**bits
    assert counter.counts.sum() == 100_000
    assert sum(np.asarray(x).nbytes for x in counter.state_dict().values()) < 2**bits * 24 + 200


def test_the_unit_of_a_dimension_does_not_change_the_codes_unless_states_are_images():
    states = np.random.default_rng(0).normal(size=(300, 3))
    one, other = StateCounter(hash_bits=8), StateCounter(hash_bits=8)
    assert np.array_equal(one.visit(states), other.visit(states * [1e-3, 1.0, 1e6] + [5, 0, -1e7]))


def test_codes_are_the_same_in_every_process_and_after_loading():
    code = ("import numpy as np; from rapid_wrappers import StateCounter as S; c = S(hash_bits=16); "
            "c.visit(np.random.default_rng(0).normal(size=(50, 4))); "
            "print(c.state_dict()['digests'].tolist())")  # fmt: skip
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    counter, loaded = StateCounter(hash_bits=16), StateCounter(hash_bits=16)
    counter.visit(np.random.default_rng(0).normal(size=(50, 4)))
    assert out.strip() == str(counter.state_dict()["digests"].tolist())
    loaded.load_state_dict(counter.state_dict())
    more = np.random.default_rng(1).normal(5, 2, size=(50, 4))
    assert np.array_equal(counter.visit(more), loaded.visit(more))
    assert np.array_equal(counter.counts, loaded.counts)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"center": np.zeros(3), "scale": np.ones(2)}, "`scale`"),
        ({"scale": np.ones(2, np.float32)}, "`scale`"),
        ({"hash_bits": 3}, "hash_bits=2"),
        ({"digests": np.arange(10, dtype=np.uint64).reshape(5, 2), "counts": np.ones(5, np.int64)}, "at most 4 states"),
    ],
)
def test_a_malformed_state_of_a_hashing_counter_is_refused_and_changes_nothing(change, message):
    counter, other = StateCounter(hash_bits=2), StateCounter(hash_bits=2)
    counter.visit([[1.0, 2.0], [3.0, 1.0]])
    other.visit([[5.0, 5.0]])
    before = other.state_dict()
    with pytest.raises(ValueError, match=message):
        other.load_state_dict({**counter.state_dict(), **change})
    with pytest.raises(ValueError, match="keys"):
        other.load_state_dict(StateCounter().state_dict())
    for name, value in before.items():
        assert np.array_equal(other.state_dict()[name], value)


def test_states_that_cannot_be_hashed_are_refused_and_change_nothing():
    counter = StateCounter(hash_bits=8)
    for states in (np.array([[np.nan, 1.0]]), np.array([[1e200, 1.0]]), np.zeros((2, 0)), np.zeros((0, 2))):
        with pytest.raises(ValueError, match="finite"):
            counter.visit(states)
    counter.visit([[1.0, 2.0]])
    with pytest.raises(ValueError, match="2 numbers as before, got 3"):
        counter.visit([[1.0, 2.0, 3.0]])
    assert counter.counts.tolist() == [1]


def test_a_dimension_that_was_constant_at_first_does_not_drown_the_others():
    rng = np.random.default_rng(0)
    first, later = rng.random((7, 11)), rng.random((2000, 11))
    first[:, 3] = 0.1  # its mean is rounded
    later[:, 3] = 0.1 + rng.normal(size=2000) * 1e-3
    counter = StateCounter(hash_bits=16)
    counter.visit(first)
    assert len(set(counter.visit(later).tolist())) > 500


@pytest.mark.parametrize("tiny", [1e-170, 1e-159, 5e-324])
def test_a_dimension_that_hardly_varied_at_first_counts_as_constant(tiny):
    counter, loaded = StateCounter(hash_bits=16), StateCounter(hash_bits=16)
    counter.visit([[0.0, 0.0], [tiny, 1.0]])
    loaded.load_state_dict(counter.state_dict())
    later = [[1e149, 1.0], [-1e149, 1.0], [0.0, 1.0]]
    assert loaded.visit(later).tolist() == counter.visit(later).tolist()
    assert len(set(counter.visit(later).tolist())) == 3


@pytest.mark.parametrize("bits", [0, -1, 33, 1.5, "16"])
def test_a_number_of_bits_out_of_range_is_refused(bits):
    with pytest.raises((TypeError, ValueError), match="hash_bits"):
        StateCounter(hash_bits=bits)


@settings(max_examples=40, deadline=None)
@given(st.lists(hnp.arrays(np.uint8, st.tuples(st.integers(0, 30), st.just(2)), elements=st.integers(0, 5))),
       st.integers(1, 40))  # fmt: skip
def test_beyond_the_cap_known_states_keep_their_ids_and_all_new_ones_share_the_last(batches, cap):
    capped, free = StateCounter(max_states=cap), StateCounter()
    for states in batches:
        np.testing.assert_array_equal(capped.visit(states), np.minimum(free.visit(states), cap - 1))
    assert len(capped) == min(len(free), cap)
    expected = np.append(free.counts[: cap - 1], free.counts[cap - 1 :].sum())[: len(capped)]
    np.testing.assert_array_equal(capped.counts, expected)
    other = StateCounter(max_states=cap)
    other.load_state_dict(capped.state_dict())
    for states in batches:
        np.testing.assert_array_equal(other.visit(states), capped.visit(states))


def test_a_capped_counter_takes_no_more_memory_for_new_states():
    counter = StateCounter(max_states=1000)
    counter.visit(np.arange(2000))
    arrays = {name: value.nbytes for name, value in vars(counter).items() if isinstance(value, np.ndarray)}
    counter.visit(np.arange(300_000))
    assert arrays == {name: value.nbytes for name, value in vars(counter).items() if isinstance(value, np.ndarray)}


def test_more_states_than_the_cap_are_refused_when_loaded():
    counter = StateCounter()
    counter.visit(np.arange(5))
    with pytest.raises(ValueError, match="at most 4 states, got 5"):
        StateCounter(max_states=4).load_state_dict(counter.state_dict())


@pytest.mark.parametrize(
    "arguments", [{"max_states": 0}, {"max_states": 2.5}, {"max_states": True}, {"max_states": 5, "hash_bits": 3}]
)
def test_a_cap_out_of_range_or_beside_hash_bits_is_refused(arguments):
    with pytest.raises(ValueError, match="expected `max_states`"):
        StateCounter(**arguments)
