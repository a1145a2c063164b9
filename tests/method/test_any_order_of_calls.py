"""Counter and buffer against models in plain Python, in any order of calls that Hypothesis finds."""

import copy
import math
import pickle

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

import rapid_wrappers as rw

DTYPES = st.sampled_from(["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"])
few_or_many_examples = pytest.mark.parametrize("examples", [40, pytest.param(400, marks=pytest.mark.slow)])


def pickled(x):
    return pickle.loads(pickle.dumps(x))


def mean_bonus(counts):
    """Eq. 3."""
    return sum(1 / math.sqrt(n) for n in counts) / len(counts)


# --- StateCounter ---


@st.composite
def batches(draw):
    """States of a few values, which repeat, or of any values, in any memory layout, or a large number of states."""
    dtype = np.dtype(draw(DTYPES | st.sampled_from([">i4", ">f8"])))
    shape = draw(st.sampled_from([(4,), (4,), (2, 2), (3,), (), (0,)]))
    few = [0.0, -0.0, 1.0, math.nan] if dtype.kind == "f" else [0, 1]
    elements = st.sampled_from(few) | hnp.from_dtype(dtype)
    states = draw(hnp.arrays(dtype, (draw(st.integers(0, 5)), *shape), elements=elements))
    layouts = [states, np.asfortranarray(states), np.repeat(states, 2, axis=0)[::-2]]
    return draw(st.sampled_from([*layouts, np.zeros_like(states), np.arange(-99, 99)]))


class CounterMachine(RuleBasedStateMachine):
    """The model: a dictionary of ids and a list of counts. With ``hash_bits`` several states may share an id."""

    @initialize(hash_bits=st.none() | st.integers(1, 32))
    def start(self, hash_bits):
        self.hash_bits, self.counter = hash_bits, rw.StateCounter(hash_bits)
        self.ids, self.counts, self.last = {}, [], np.empty(0, int)
        self.size = None  # of the states that can be hashed

    def key(self, state):
        numbers = state.ravel().tolist()
        if self.hash_bits is not None:
            return tuple(map(float, numbers))
        return state.dtype.str, state.shape, tuple("nan" if x != x else x for x in numbers)

    @rule(states=batches(), visit=st.booleans())
    def look_up(self, states, visit):
        look_up = self.counter.visit if visit else self.counter.identify
        if self.hash_bits is not None:
            size = math.prod(states.shape[1:])
            finite = all(abs(x) < 1e150 for x in states.ravel().tolist())
            if not (finite and states.size and self.size in (None, size)):
                with pytest.raises(ValueError, match="expected `states`"):
                    look_up(states)
                return
            self.size = size
        before = states.tobytes()
        self.last = look_up(states)
        assert states.tobytes() == before
        for i, state in zip(self.last.tolist(), states, strict=True):
            key = self.key(np.asarray(state, states.dtype))
            if key not in self.ids:
                assert i == len(self.counts) or (self.hash_bits is not None and 0 <= i < len(self.counts))
                self.counts += [0] * (i == len(self.counts))
                self.ids[key] = i
            assert self.ids[key] == i
            self.counts[i] += visit

    @rule()
    def count(self):
        self.counter.count(self.last)
        for i in self.last:
            self.counts[i] += 1

    @rule()
    def bonus(self):
        counts = [self.counts[i] for i in self.last]
        unknown = [len(self.counts)], [*self.last, -1]
        for ids in unknown if counts and all(counts) else (self.last, *unknown):
            with pytest.raises(ValueError, match="expected `ids`"):
                self.counter.bonus(ids)
        if counts and all(counts):
            assert self.counter.bonus(self.last) == pytest.approx(mean_bonus(counts))

    def reloaded(self, counter):
        other = rw.StateCounter(self.hash_bits)
        other.visit([[1.0, 2.0], [3.0, 3.0]])
        other.load_state_dict(counter.state_dict())
        return other

    @rule(copier=st.sampled_from([copy.deepcopy, pickled, None]))
    def continue_with_a_copy(self, copier):
        original, self.counter = self.counter, (copier or self.reloaded)(self.counter)
        original.count(np.arange(len(original)))
        if self.hash_bits is None:
            original.visit(np.full((2, 9), 7))

    @invariant()
    def counter_and_model_count_the_same(self):
        assert self.counter.counts.tolist() == self.counts
        assert len(self.counter) == len(self.counts) <= 2 ** (self.hash_bits or 64)


@few_or_many_examples
def test_a_counter_counts_like_a_dictionary_in_any_order_of_calls(examples):
    run_machine(CounterMachine, settings=settings(max_examples=examples, stateful_step_count=30, deadline=None))


# --- RankingBuffer ---

SHAPES = st.sampled_from([(), (1,), (3,), (2, 2), (0,)])
FORMS = st.tuples(DTYPES.map(np.dtype), SHAPES)
SCORES = st.one_of(*[st.sampled_from([0.0, 0.5, 1.0, -1.0])] * 5, st.floats(allow_nan=False, allow_infinity=False))
WEIGHTS = st.sampled_from([(1.0, 0.1, 0.001), (0.0, 0.0, 1.0), (1.0, 0.0, 0.0), (10.0, 10.0, 10.0), (-1.0, 0.5, 0.0)])


class Visits:
    """Counts that are powers of four, so that Eq. 3 is exact in any order of summation."""

    def __init__(self):
        self.counts = np.ones(6, np.int64)


class BufferMachine(RuleBasedStateMachine):
    """The model: a list of pairs ``(index, step, observation, action)``, sorted and cut at each insertion."""

    @initialize(
        capacity=st.integers(1, 20), weights=WEIGHTS, live=st.booleans(),
        options=st.fixed_dictionaries({"whole_episodes": st.booleans(), "rank": st.booleans()}),
        forms=st.lists(FORMS, min_size=2, max_size=2),
    )  # fmt: skip
    def start(self, capacity, weights, live, options, forms):
        self.weights, self.options, self.forms, self.age = weights, options, forms, 0.0
        self.pairs, self.episodes, self.serial, self.low, self.high = [], [], 0, math.inf, -math.inf
        self.buffer = rw.RankingBuffer(capacity, *weights, counter=Visits() if live else None, **options)

    def episode(self, length):
        """Rows that differ from all earlier ones, as far as dtype and shape allow, and state ids."""
        rows = []
        for dtype, shape in self.forms:
            size = length * math.prod(shape)
            rows.append(np.arange(self.serial, self.serial + size).reshape(length, *shape).astype(dtype))
            self.serial += size
        return *rows, [(self.serial + i) % 6 for i in range(length)] if self.buffer.counter else None

    def eq4(self, scores):
        return self.weights[0] * scores[0] + self.weights[1] * scores[1] + self.weights[2] * scores[2]

    def unit(self):
        return min(max(1.0, self.high - self.low), 1e300)

    def rank_by(self, pair):
        score = self.eq4(self.episodes[pair[0]]) + self.age * self.unit() * pair[0] / 1000
        return (score if self.options["rank"] else 0.0), *pair

    @rule(
        length=st.integers(1, 6), scores=st.tuples(SCORES, SCORES, SCORES), dtype=st.none() | DTYPES,
        visited=st.sets(st.integers(0, 5)), age=st.none() | st.sampled_from([0.0, 300.0, 700.0]),
    )  # fmt: skip
    def add(self, length, scores, dtype, visited, age):
        if age is not None:
            self.buffer.age_penalty = self.age = age
        if self.buffer.counter:
            self.buffer.counter.counts[list(visited)] *= 4
        observations, actions, ids = self.episode(length)
        stored = self.forms[0][0]
        if dtype is not None and self.episodes:
            observations = observations.astype(dtype)
        given = [observations.copy(), actions.copy()]
        if not (np.can_cast(observations.dtype, stored) and math.isfinite(self.eq4(scores))):
            with pytest.raises((TypeError, ValueError), match="expected `"):
                self.buffer.add(*given, scores, ids)
            return
        self.buffer.add(*given, scores, ids)
        for array in given:
            array[:] = 0  # the caller may overwrite its arrays
        rows = zip(observations.astype(stored), actions, strict=True)
        self.pairs += [(len(self.episodes), t, o.tobytes(), a.tobytes()) for t, (o, a) in enumerate(rows)]
        self.episodes.append([*scores, ids])
        self.low, self.high = min(self.low, scores[0]), max(self.high, scores[0])
        if ids and self.weights[2]:
            for episode in (self.episodes[index] for index in {pair[0] for pair in self.pairs}):
                episode[2] = mean_bonus(self.buffer.counter.counts[episode[3]].tolist())
        self.pairs.sort(key=self.rank_by, reverse=True)
        capacity, whole = self.buffer.capacity, self.options["whole_episodes"]
        last = self.pairs[:capacity][-1][0]
        self.pairs = [pair for i, pair in enumerate(self.pairs) if i < capacity or (whole and pair[0] == last)]

    @precondition(lambda self: self.pairs)
    @rule(
        spoil=st.sampled_from([
            lambda o, a, s, i: (o, a, (math.nan, *s[1:]), i),
            lambda o, a, s, i: (o, a, (*s[:2], -math.inf), i),
            lambda o, a, s, i: (o, a, s[:2], i),
            lambda o, a, s, i: (o[:-1], a, s, i),
            lambda o, a, s, i: (o[:0], a[:0], s, i and []),
            lambda o, a, s, i: (np.zeros((3, 5), o.dtype), a, s, i),
            lambda o, a, s, i: (o, a.astype(object), s, i),
            lambda o, a, s, i: (o, a, s, i[:-1] if i else []) if i else (o, a, "abc", i),
            lambda o, a, s, i: (o, a, s, [*i[:-1], 6]) if i else (o, a, 1.0, i),
            lambda o, a, s, i: (o, a, s, None) if i else (o, a[..., None], s, i),
        ])
    )  # fmt: skip
    def refuse(self, spoil):
        observations, actions, ids = self.episode(3)
        with pytest.raises((TypeError, ValueError), match="expected "):
            self.buffer.add(*spoil(observations, actions, (1e9, 0.0, 0.0), ids))

    def reloaded(self, buffer):
        options = self.options | {"counter": buffer.counter, "age_penalty": self.age}
        other = rw.RankingBuffer(buffer.capacity, *self.weights, **options)
        other.add([1.0, 2.0], [3, 4], (1e9, 0.0, 0.0), [0, 0])
        other.load_state_dict(pickled(buffer.state_dict()))
        return other

    @rule(copier=st.sampled_from([copy.deepcopy, pickled, None]))
    def continue_with_a_copy(self, copier):
        original, self.buffer = self.buffer, (copier or self.reloaded)(self.buffer)
        if self.pairs:
            for drawn, expected in zip(self.buffer.sample(9), original.sample(9), strict=True):
                assert drawn.tobytes() == expected.tobytes()
        original.add(*self.episode(3)[:2], (1e9, 0.0, 0.0), [0, 0, 0])  # the copy must not see it

    @invariant()
    def buffer_and_model_keep_the_same(self):
        assert len(self.buffer) == len(self.pairs)
        assert self.options["whole_episodes"] or len(self.buffer) <= self.buffer.capacity
        scores = [self.eq4(self.episodes[pair[0]]) for pair in self.pairs]
        assert self.buffer.scores.tolist() == sorted(scores, reverse=True)
        kept, found = self.buffer.episodes(), []
        assert [x["score"] for x in kept] == sorted((x["score"] for x in kept), reverse=True)
        for x in kept:
            index = len(self.episodes) - 1 - x["age"]
            assert [x["extrinsic"], x["local"], x["global"]] == self.episodes[index][:3]
            rows = zip(x["observations"], x["actions"], strict=True)
            first = x["length"] - len(x["actions"])
            found += [(index, t, o.tobytes(), a.tobytes()) for t, (o, a) in enumerate(rows, first)]
        assert sorted(found) == sorted(self.pairs)
        if found:
            samples = self.buffer.sample(9)
            assert [(x.dtype, x.shape[1:]) for x in samples] == self.forms
            drawn = {(o.tobytes(), a.tobytes()) for o, a in zip(*samples, strict=True)}
            assert drawn <= {pair[2:] for pair in self.pairs}


@few_or_many_examples
def test_a_buffer_keeps_the_same_pairs_as_a_sorted_list_in_any_order_of_calls(examples):
    run_machine(BufferMachine, settings=settings(max_examples=examples, stateful_step_count=30, deadline=None))
