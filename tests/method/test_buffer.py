import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rapid_wrappers import RankingBuffer, StateCounter

# Results of the authors' code for 400 random episodes and 300 rows, w0=1, w1=0.1, w2=0.001. One change: a stable sort,
# as theirs leaves open which pairs of equal score survive.
with np.load(Path(__file__).parents[1] / "data" / "authors_buffer.npz") as data:
    AUTHORS = dict(data)


def add(buffer, score, length, start=0, ids=None):
    """An episode whose only score is extrinsic, its actions numbered from ``start``."""
    actions = np.arange(start, start + length)
    buffer.add(actions[:, None], actions, (score, 0.0, 0.0), ids)


def kept(buffer):
    return sorted(buffer.state_dict()["rows"]["actions"].tolist())


def test_scores_ranking_and_survivors_equal_those_of_the_authors_code():
    counter = StateCounter()
    buffer = RankingBuffer(300, 1.0, 0.1, 0.001, counter=counter)
    starts = np.cumsum(AUTHORS["lengths"]) - AUTHORS["lengths"]
    for episode, (start, length) in enumerate(zip(starts, AUTHORS["lengths"], strict=True)):
        observations = AUTHORS["observations"][start : start + length]
        ids = counter.visit(observations)
        scores = (AUTHORS["returns"][episode], AUTHORS["local"][episode], counter.bonus(ids))
        buffer.add(observations, np.arange(start, start + length), scores, ids)
        if episode in AUTHORS["snapshots"]:
            assert kept(buffer) == sorted(AUTHORS[f"actions_{episode}"])
            np.testing.assert_allclose(buffer.scores, AUTHORS[f"scores_{episode}"][::-1], rtol=1e-12)
    rows = buffer.state_dict()["rows"]
    assert np.array_equal(rows["observations"], AUTHORS["observations"][rows["actions"]])


class PlainBuffer:
    """The documented rule in its shortest form: sort all pairs, keep the best."""

    def __init__(self, capacity, whole_episodes, rank, age_penalty):
        self.options, self.pairs, self.scores = (capacity, whole_episodes, rank, age_penalty), [], []

    def add(self, score, actions):
        capacity, whole, rank, age = self.options
        self.scores.append(score)
        penalty = age * max(1.0, max(self.scores) - min(self.scores)) / 1000
        self.pairs += [(score, len(self.scores), step, action) for step, action in enumerate(actions)]
        self.pairs.sort(key=lambda p: (p[0] + penalty * p[1] if rank else 0, *p[1:]), reverse=True)
        last = self.pairs[:capacity][-1][:2]
        self.pairs = [p for i, p in enumerate(self.pairs) if i < capacity or (whole and p[:2] == last)]


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.tuples(st.sampled_from([-2.0, 0.0, 0.5, 1.0]), st.integers(1, 12)), min_size=1, max_size=40),
    st.integers(1, 30),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.0, 60.0, 1e6]),
)
def test_any_sequence_keeps_the_same_pairs_as_a_plain_sort(episodes, capacity, whole, rank, age):
    buffer = RankingBuffer(capacity, age_penalty=age, whole_episodes=whole, rank=rank, seed=0)
    plain = PlainBuffer(capacity, whole, rank, age)
    start = 0
    for score, length in episodes:
        add(buffer, score, length, start)
        plain.add(score, range(start, start + length))
        start += length
        assert kept(buffer) == sorted(p[3] for p in plain.pairs)
        assert buffer.scores.tolist() == sorted((p[0] for p in plain.pairs), reverse=True)
        assert len(buffer) == len(plain.pairs)
        assert whole or len(buffer) <= capacity
        observations, actions = buffer.sample(20)
        assert np.array_equal(observations[:, 0], actions)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3)), min_size=1, max_size=30),
    st.integers(1, 25),
    st.booleans(),
)
def test_live_global_scores_are_the_mean_over_all_states_with_the_current_counts(episodes, capacity, whole):
    counter = StateCounter()
    buffer = RankingBuffer(capacity, 1.0, 0.0, 1.0, counter=counter, whole_episodes=whole)
    rng = np.random.default_rng(0)
    all_ids, start = [], 0
    for length, high in episodes:
        ids = counter.visit(rng.integers(0, high + 1, (length, 1)))
        all_ids.append(ids)
        add(buffer, 0.0, length, start, ids)
        start += length
        state = buffer.state_dict()["episodes"]
        np.testing.assert_allclose(state["global_"], [counter.bonus(all_ids[i]) for i in state["index"]])
        assert whole or len(buffer) == min(capacity, start)


def test_a_kept_episode_falls_when_its_states_are_visited_again():
    counter = StateCounter()
    buffer = RankingBuffer(4, 0.0, 0.0, 1.0, counter=counter)
    add(buffer, 0.0, 2, 0, counter.visit([[0], [1]]))
    add(buffer, 0.0, 2, 2, counter.visit([[2], [2]]))
    assert buffer.scores == pytest.approx([1, 1, 0.5**0.5, 0.5**0.5])
    for _ in range(9):
        counter.visit([[0], [1]])
    add(buffer, 0.0, 1, 4, counter.visit([[3]]))
    assert kept(buffer) == [1, 2, 3, 4]


def test_without_a_counter_global_scores_stay_as_they_were_added():
    buffer = RankingBuffer(4, 0.0, 0.0, 1.0)
    buffer.add([[0]], [0], (0, 0, 0.5))
    buffer.add([[1]], [1], (0, 0, 0.25))
    assert buffer.scores.tolist() == [0.5, 0.25]


def test_the_first_episode_is_scored_and_trimmed_like_any_other():
    buffer = RankingBuffer(10)
    add(buffer, 0.5, 25)
    assert kept(buffer) == list(range(15, 25))
    assert (buffer.scores == 0.5).all()
    add(buffer, 1.0, 4, 25)
    assert kept(buffer) == [*range(19, 25), *range(25, 29)]


def test_a_penalty_on_age_replaces_old_episodes_by_slightly_worse_new_ones():
    for age_penalty, expected in ((0.0, [0, 1]), (1.0, [2, 3])):
        buffer = RankingBuffer(2, age_penalty=age_penalty)
        add(buffer, 0.5, 2, 0)
        for _ in range(100):
            add(buffer, -9.0, 1, 9)
        add(buffer, 0.45, 2, 2)
        assert kept(buffer) == expected


def test_the_stored_dtypes_are_those_given():
    buffer = RankingBuffer(5)
    buffer.add(np.zeros((3, 60, 80, 3), np.uint8), np.zeros((3, 2), np.float32), (0, 0, 0))
    observations, actions = buffer.sample(4)
    assert (observations.dtype, observations.shape) == (np.uint8, (4, 60, 80, 3))
    assert (actions.dtype, actions.shape) == (np.float32, (4, 2))


def test_a_buffer_that_grows_beyond_its_capacity_keeps_the_byte_order_given():
    buffer = RankingBuffer(1, whole_episodes=True)
    buffer.add(np.zeros(3, ">f4"), np.arange(3, dtype=">i4"), (0, 0, 0))
    assert [array.dtype for array in buffer.sample(4)] == [np.dtype(">f4"), np.dtype(">i4")]


def test_pairs_do_not_change_when_the_caller_overwrites_added_or_sampled_arrays():
    buffer = RankingBuffer(5)
    observations, actions = np.zeros((3, 2)), np.zeros(3)
    buffer.add(observations, actions, (0, 0, 0))
    observations += 1
    actions += 1
    sampled = buffer.sample(8)
    sampled[0][:] = 7
    assert not any(array.any() for array in buffer.sample(8)[:1])
    assert not buffer.sample(8)[1].any()


def test_sampling_is_uniform_over_pairs_and_with_replacement():
    buffer = RankingBuffer(10, seed=0)
    add(buffer, 0.0, 3, 0)
    add(buffer, 1.0, 7, 3)
    _, actions = buffer.sample(20_000)
    share = np.bincount(actions, minlength=10) / 20_000
    assert np.abs(share - 0.1).max() < 5 * np.sqrt(0.1 * 0.9 / 20_000)


def test_a_seed_fixes_the_samples_and_the_global_generator_is_not_touched():
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    draws = []
    for seed in (3, 3, 4):
        buffer = RankingBuffer(50, seed=seed)
        add(buffer, 0.0, 50)
        draws.append(buffer.sample(30)[1].tolist())
    assert draws[0] == draws[1] != draws[2]
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


@pytest.mark.parametrize("with_counter", [False, True])
@pytest.mark.parametrize("filled", [0, 1, 30])
def test_a_loaded_buffer_continues_like_the_saved_one(with_counter, filled):
    counter = StateCounter() if with_counter else None
    buffer, loaded = (RankingBuffer(20, counter=counter, whole_episodes=True, seed=s) for s in (0, 1))
    rng = np.random.default_rng(0)

    def more(*buffers):
        states = rng.integers(0, 3, (rng.integers(1, 9), 1))
        ids = counter.visit(states) if with_counter else None
        scores = (rng.random(), 0.0, 0.0)
        for b in buffers:
            b.add(states, np.arange(len(states)), scores, ids)

    for _ in range(filled):
        more(buffer)
    loaded.load_state_dict(buffer.state_dict())
    for _ in range(10):
        more(buffer, loaded)
        assert np.array_equal(buffer.sample(9)[0], loaded.sample(9)[0])
        assert buffer.scores.tolist() == loaded.scores.tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"more": 1}, "keys"),
        ({"rows": {}}, "agree"),
        ({"rows": None}, "state_dict"),
        ({"rows": {"actions": None}}, "`actions`"),
        ({"rows": {"actions": np.zeros(2, np.int64)}}, "`actions`"),
        ({"rows": {"actions": np.zeros(6, object)}}, "`actions`"),
        ({"rows": {"index": np.zeros((6, 1), np.int64)}}, "`index`"),
        ({"rows": {"index": np.zeros(6, np.int64)}}, "agree"),
        ({"rows": {"step": np.zeros(6)}}, "`step`"),
        ({"episodes": None}, "state_dict"),
        ({"episodes": {"extrinsic": 5.0}}, "`extrinsic`"),
        ({"episodes": {"extrinsic": np.array([np.nan, 1.0])}}, "finite"),
        ({"episodes": {"rows": np.array([2, 4])}}, "agree"),
        ({"episodes": {"rows": np.array([3.0, 3.0])}}, "`rows`"),
        ({"state_ids": np.arange(6)}, "no `counter`"),
        ({"num_added": 1}, "before 1"),
        ({"num_added": 3.7}, "state_dict"),
        ({"rng": None}, "state_dict"),
        ({"rng": {"bit_generator": "PCG64"}}, "state_dict"),
    ],
)
def test_a_malformed_state_is_refused_and_changes_nothing(change, message):
    source, buffer = RankingBuffer(20), RankingBuffer(20)
    for score in (1.0, 2.0):
        add(source, score, 3)
    add(buffer, 3.0, 2)
    state, before = source.state_dict(), buffer.state_dict()
    for name, value in change.items():
        state[name] = {**state[name], **value} if isinstance(value, dict) and value and name != "rng" else value
    with pytest.raises(ValueError, match=message):
        buffer.load_state_dict(state)
    np.testing.assert_equal(buffer.state_dict(), before)


def test_a_state_of_more_pairs_than_the_capacity_is_refused():
    source = RankingBuffer(20)
    add(source, 1.0, 6)
    with pytest.raises(ValueError, match="at most 5 pairs"):
        RankingBuffer(5).load_state_dict(source.state_dict())


def test_a_state_with_ids_that_the_counter_does_not_know_is_refused():
    source = RankingBuffer(20, counter=StateCounter())
    add(source, 1.0, 2, ids=source.counter.visit([[0], [1]]))
    with pytest.raises(ValueError, match="`state_ids` of `counter`"):
        RankingBuffer(20, counter=StateCounter()).load_state_dict(source.state_dict())


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"scores": (np.nan, 0, 0)}, ValueError, "finite"),
        ({"scores": (0, np.inf, 0)}, ValueError, "finite"),
        ({"scores": (0, 0, -np.inf)}, ValueError, "finite"),
        ({"scores": (0, 0)}, ValueError, "scores"),
        ({"scores": {"extrinsic": 0.0, "local": 0.0, "global": 0.0}}, ValueError, "scores"),
        ({"scores": 1.0}, ValueError, "scores"),
        ({"scores": (1.7e308, 1.7e308, 0)}, ValueError, "weighted sum"),
        ({"observations": np.zeros((0, 1)), "actions": np.zeros(0)}, ValueError, "T >= 1"),
        ({"actions": np.zeros(2, np.int64)}, ValueError, "as many"),
        ({"observations": np.zeros((3, 2))}, ValueError, "as before"),
        ({"actions": np.zeros((3, 1), np.int64)}, ValueError, "as before"),
        ({"observations": np.zeros((3, 1), np.complex128)}, TypeError, "dtype"),
        ({"actions": np.zeros(3)}, TypeError, "dtype"),
        ({"observations": [{"image": 0}] * 3}, TypeError, "Dict"),
    ],
)
def test_a_bad_episode_is_refused_and_changes_nothing(arguments, error, message):
    buffer = RankingBuffer(5, seed=0)
    add(buffer, 1.0, 3)
    good = {"observations": np.zeros((3, 1), np.int64), "actions": np.zeros(3, np.int64), "scores": (0, 0, 0)}
    before = buffer.state_dict()
    with pytest.raises(error, match=message):
        buffer.add(**{**good, **arguments})
    after = buffer.state_dict()
    np.testing.assert_equal(after, before)
    buffer.add(**good)
    assert len(buffer) == 5


@pytest.mark.parametrize("scores", [(np.inf, 0, 0), (-np.inf, np.inf, 0), (0, 0, np.inf), (1e308, -1e308, 0)])
def test_scores_with_an_undefined_weighted_sum_are_refused_without_a_warning(scores):
    buffer = RankingBuffer(5, 10.0, 10.0, 0.0)
    with pytest.raises(ValueError, match="finite"):
        buffer.add([0], [0], scores)
    buffer.add([0], [0], (0, 0, 0))
    state = buffer.state_dict()
    for name, score in zip(("extrinsic", "local", "global_"), scores, strict=True):
        state["episodes"][name][:] = score
    with pytest.raises(ValueError, match="finite"):
        buffer.load_state_dict(state)


@pytest.mark.parametrize("counts", [[], [0, 5, 5, 5], [np.nan, 5, 5, 5], [5, 5, 5]])
def test_a_counter_that_lost_states_of_kept_episodes_is_refused_before_anything_changes(counts):
    class Lost:
        counts = np.array([1, 1, 1, 1])

    counter = Lost()
    buffer = RankingBuffer(5, counter=counter)
    add(buffer, 0.0, 4, 0, [0, 1, 2, 3])
    before = buffer.state_dict()
    counter.counts = counts
    with pytest.raises(ValueError, match="counter"):
        add(buffer, 0.0, 1, 4, [0])
    np.testing.assert_equal(buffer.state_dict(), before)


@pytest.mark.parametrize("ids", [None, [0], [0, 2], [-1, 0], [0.0, 1.0], [[0, 1]]])
def test_with_a_counter_state_ids_are_required_and_checked(ids):
    counter = StateCounter()
    counter.visit([[0], [1]])
    buffer = RankingBuffer(5, counter=counter)
    with pytest.raises(ValueError, match="state_ids"):
        buffer.add(np.zeros((2, 1)), np.zeros(2), (0, 0, 0), ids)
    assert len(buffer) == 0


@pytest.mark.parametrize(
    "arguments",
    [{"capacity": 0}, {"capacity": -1}, {"capacity": 2.5}, {"w0": np.nan}, {"w1": np.inf}, {"age_penalty": -1.0}],
)
def test_arguments_out_of_range_are_refused(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        RankingBuffer(**arguments)


def test_an_empty_buffer_and_an_empty_batch_cannot_be_sampled():
    buffer = RankingBuffer()
    with pytest.raises(ValueError, match="empty"):
        buffer.sample(1)
    add(buffer, 0.0, 1)
    with pytest.raises(ValueError, match="batch_size"):
        buffer.sample(0)
    assert len(buffer.sample(256)[0]) == 256


def test_ten_thousand_frames_take_150_mb_also_during_an_insertion():
    episode = np.zeros((600, 60, 80, 3), np.uint8), np.zeros(600, np.int64)
    tracemalloc.start()
    try:
        buffer = RankingBuffer(capacity=10_000, seed=0)
        for score in range(25):  # full from the 17th on
            buffer.add(*episode, (score, 0.0, 0.0))
            buffer.sample(256)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(buffer) == 10_000
    assert peak < 150e6


def test_episodes_returns_the_kept_pairs_best_episode_first():
    buffer = RankingBuffer(7, w1=0.5, w2=0.0)
    assert buffer.episodes() == []
    for i, (length, extrinsic) in enumerate([(3, 1.0), (2, 5.0), (4, 2.0), (1, -1.0)]):
        steps = np.arange(length)
        buffer.add(np.stack([np.full(length, i), steps], axis=1), steps + 10 * i, (extrinsic, 0.5, 0.25))
    episodes = buffer.episodes()
    assert [episode["score"] for episode in episodes] == [5.25, 2.25, 1.25]
    assert [episode["age"] for episode in episodes] == [2, 1, 3]
    assert [episode["length"] for episode in episodes] == [2, 4, 3]  # one pair of the last is kept
    assert [episode["observations"].tolist() for episode in episodes] == [
        [[1, 0], [1, 1]], [[2, 0], [2, 1], [2, 2], [2, 3]], [[0, 2]],
    ]  # fmt: skip
    assert [episode["actions"].tolist() for episode in episodes] == [[10, 11], [20, 21, 22, 23], [2]]
    assert {(e["extrinsic"], e["local"], e["global"]) for e in episodes} == {(x, 0.5, 0.25) for x in (5.0, 2.0, 1.0)}
    assert sum(len(episode["actions"]) for episode in episodes) == len(buffer)
    episodes[0]["observations"][:] = -1
    assert buffer.episodes()[0]["observations"].min() == 0


def test_the_ids_of_dropped_episodes_are_forgotten():
    counter = StateCounter()
    buffer = RankingBuffer(1000, counter=counter, seed=0)
    for episode in range(200):  # each better than the last, with new states
        ids = counter.visit(np.arange(100 * episode, 100 * episode + 100)[:, None])
        add(buffer, episode, 100, ids=ids)
    assert len(buffer.state_dict()["state_ids"]) <= 1000 + 100


def nested(length, start=0):
    """Nested observations and actions whose entries all tell the same number."""
    n = np.arange(start, start + length)
    return {"view": (np.stack([n, n], 1).astype(np.uint8), n), "speed": n.astype(np.float32)}, {"turn": n % 256}


def numbers_of(observations, actions):
    """The number of each pair, after a check that nothing was mixed up or changed its dtype."""
    (view, n), speed, turn = *observations.values(), actions["turn"]
    assert (view.dtype, n.dtype, speed.dtype) == (np.uint8, np.int64, np.float32)
    assert (view == n[..., None]).all() and (speed == n).all() and (turn == n).all()
    return n


def test_a_nested_buffer_keeps_and_draws_the_same_pairs_as_a_flat_one():
    flat, deep = (RankingBuffer(20, 1.0, 0.0, 0.0, seed=3) for _ in range(2))
    rng = np.random.default_rng(0)
    for start in range(0, 200, 8):
        score, length = float(rng.integers(3)), int(rng.integers(1, 9))
        n = np.arange(start, start + length)
        flat.add(n[:, None], n, (score, 0, 0))
        observations, actions = nested(length, start)
        order = reversed(list(observations)) if start else observations
        deep.add({name: observations[name] for name in order}, actions, (score, 0, 0))
        assert np.array_equal(flat.scores, deep.scores)
        assert np.array_equal(flat.sample(9)[1], numbers_of(*deep.sample(9)))
        *pairs, mask = deep.sample_sequences(4, 3)
        assert np.array_equal(flat.sample_sequences(4, 3)[1], numbers_of(*pairs))
        assert not pairs[0]["view"][0][~mask].any()
    for mine, other in zip(deep.episodes(), flat.episodes(), strict=True):
        assert np.array_equal(numbers_of(mine["observations"], mine["actions"]), other["actions"])
    loaded = RankingBuffer(20, 1.0, 0.0, 0.0)
    loaded.load_state_dict(deep.state_dict())
    assert np.array_equal(numbers_of(*loaded.sample(50)), numbers_of(*deep.sample(50)))
    loaded.add(*nested(3), (0, 0, 0))


@pytest.mark.parametrize(
    "change",
    [
        lambda o: {"view": o["view"]},
        lambda o: o | {"more": o["speed"]},
        lambda o: o | {"view": list(o["view"][0])},
        lambda o: o | {"view": (o["view"][0], o["view"][1][:-1])},
        lambda o: o | {"speed": o["speed"][:, None]},
        lambda o: o | {"speed": o["speed"].astype(str)},
        lambda o: o["speed"],
        lambda o: tuple(o.values()),
        lambda o: {},
    ],
)
def test_other_entries_are_refused_and_change_nothing(change):
    buffer = RankingBuffer(20, seed=0)
    buffer.add(*nested(5), (0, 0, 0))
    before = buffer.state_dict()
    observations, actions = nested(5)
    with pytest.raises((TypeError, ValueError), match="observations"):
        buffer.add(change(observations), actions, (1, 0, 0))
    assert repr(buffer.state_dict()) == repr(before)


def test_a_flat_buffer_refuses_entries_and_a_state_of_another_form_is_refused():
    buffer = RankingBuffer(20)
    buffer.add([[1.0]], [0], (0, 0, 0))
    with pytest.raises(ValueError, match="observations"):
        buffer.add(*nested(5), (1, 0, 0))
    state = buffer.state_dict()
    state["rows"]["observations"] = {"a": state["rows"]["observations"], "b": np.zeros((2, 1))}
    with pytest.raises(ValueError, match="observations"):
        buffer.load_state_dict(state)


def test_sequences_are_consecutive_pairs_of_one_episode_drawn_by_their_first_pair():
    buffer = RankingBuffer(12, 1.0, 0.0, 0.0, whole_episodes=True, seed=0)
    for score, numbers in enumerate((range(10, 13), range(20, 25), range(30, 34))):
        buffer.add([[n] for n in numbers], list(numbers), (score, 0, 0))
    observations, actions, mask = buffer.sample_sequences(3000, 4)
    assert observations.shape == (3000, 4, 1) and actions.shape == mask.shape == (3000, 4)
    assert np.array_equal(observations[..., 0], actions)
    runs = {tuple(run[kept].tolist()) for run, kept in zip(actions, mask, strict=True)}
    expected = {
        tuple(range(n, min(n + 4, end))) for start, end in ((10, 13), (20, 25), (30, 34)) for n in range(start, end)
    }
    assert runs == expected
    assert not actions[~mask].any() and (np.diff(mask.astype(int)) <= 0).all()
    starts = np.unique(actions[:, 0], return_counts=True)[1]
    assert starts.min() > 3000 / 12 / 1.5
    for batch_size, length in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="positive"):
            buffer.sample_sequences(batch_size, length)
    with pytest.raises(ValueError, match="empty"):
        RankingBuffer().sample_sequences(1, 1)


def test_the_age_penalty_is_a_share_of_the_range_of_returns_so_far():
    for unit in (1.0, 0.01, 500.0):
        buffer = RankingBuffer(2, 1.0, 0.0, 0.0, age_penalty=100.0)  # 0.1 of the range for each later episode
        buffer.add([[0]], [0], (0.0, 0, 0))
        buffer.add([[1]], [1], (unit, 0, 0))
        for _ in range(9):
            buffer.add([[2]], [2], (0.0, 0, 0))
        assert (1 in buffer.sample(99)[1]) == (unit != 0.01)  # below a range of 1 the penalty stays as it is
        for _ in range(3):
            buffer.add([[2]], [2], (0.0, 0, 0))
        assert 1 not in buffer.sample(99)[1]
        loaded = RankingBuffer(2, 1.0, 0.0, 0.0, age_penalty=100.0)
        loaded.load_state_dict(buffer.state_dict())
        for each in (buffer, loaded):
            each.add([[3]], [3], (0.05 * unit, 0, 0))
            each.add([[4]], [4], (0.0, 0, 0))
        assert np.array_equal(buffer.sample(9)[1], loaded.sample(9)[1])


def test_a_state_without_observations_is_refused():
    buffer = RankingBuffer(5)
    buffer.add(*nested(3), (0, 0, 0))
    for change in ({"observations": {}}, {"actions": ()}):
        state = buffer.state_dict()
        state["rows"] |= change
        with pytest.raises(ValueError, match="at least one array"):
            buffer.load_state_dict(state)
    for returns in ("ab", (1.0,), (2.0, 1.0), (np.nan, 1.0)):
        with pytest.raises(ValueError, match="returns"):
            buffer.load_state_dict(buffer.state_dict() | {"returns": returns})
