"""Any order of calls, as Hypothesis finds it, against models in plain Python."""

import copy
import functools
import math
import pickle
import statistics
import warnings
from collections import Counter

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

import rapid_wrappers as rw

SETTINGS = settings(max_examples=120, stateful_step_count=30, deadline=None)
NEXT_STEP, SAME_STEP, DISABLED = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED
DTYPES = st.sampled_from(["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"])


def pickled(x):
    return pickle.loads(pickle.dumps(x))


def mean_bonus(counts):
    """Eq. 3."""
    return sum(1 / math.sqrt(n) for n in counts) / len(counts)


# --- StateCounter ---


@st.composite
def batches(draw):
    """States of a few values that come again or of any, in any layout in memory, or very many."""
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
        never_given_out = [len(self.counts)], [*self.last, -1]
        for ids in never_given_out if counts and all(counts) else (self.last, *never_given_out):
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
    def go_on_with_a_copy(self, copier):
        original, self.counter = self.counter, (copier or self.reloaded)(self.counter)
        original.count(np.arange(len(original)))
        if self.hash_bits is None:
            original.visit(np.full((2, 9), 7))

    @invariant()
    def counts_are_those_of_the_model(self):
        assert self.counter.counts.tolist() == self.counts
        assert len(self.counter) == len(self.counts) <= 2 ** (self.hash_bits or 64)


def test_a_counter_counts_as_a_dictionary_does_in_any_order_of_calls():
    run_machine(CounterMachine, settings=SETTINGS)


# --- RankingBuffer ---

SHAPES = st.sampled_from([(), (1,), (3,), (2, 2), (0,)])
FORMS = st.tuples(DTYPES.map(np.dtype), SHAPES)
SCORES = st.one_of(*[st.sampled_from([0.0, 0.5, 1.0, -1.0])] * 5, st.floats(allow_nan=False, allow_infinity=False))
WEIGHTS = st.sampled_from([(1.0, 0.1, 0.001), (0.0, 0.0, 1.0), (1.0, 0.0, 0.0), (10.0, 10.0, 10.0), (-1.0, 0.5, 0.0)])


class Visits:
    """Counts that are powers of four, so that Eq. 3 is exact in whatever order it is added up."""

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
        self.pairs, self.episodes, self.serial = [], [], 0
        self.buffer = rw.RankingBuffer(capacity, *weights, counter=Visits() if live else None, **options)

    def episode(self, length):
        """Rows that differ from all before, as far as dtype and shape can tell, and state ids."""
        rows = []
        for dtype, shape in self.forms:
            size = length * math.prod(shape)
            rows.append(np.arange(self.serial, self.serial + size).reshape(length, *shape).astype(dtype))
            self.serial += size
        return *rows, [(self.serial + i) % 6 for i in range(length)] if self.buffer.counter else None

    def eq4(self, scores):
        return self.weights[0] * scores[0] + self.weights[1] * scores[1] + self.weights[2] * scores[2]

    def rank_by(self, pair):
        score = self.eq4(self.episodes[pair[0]]) + self.age * pair[0] / 1000
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
            array[:] = 0  # they are the caller's
        rows = zip(observations.astype(stored), actions, strict=True)
        self.pairs += [(len(self.episodes), t, o.tobytes(), a.tobytes()) for t, (o, a) in enumerate(rows)]
        self.episodes.append([*scores, ids])
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
    def go_on_with_a_copy(self, copier):
        original, self.buffer = self.buffer, (copier or self.reloaded)(self.buffer)
        if self.pairs:
            for drawn, expected in zip(self.buffer.sample(9), original.sample(9), strict=True):
                assert drawn.tobytes() == expected.tobytes()
        original.add(*self.episode(3)[:2], (1e9, 0.0, 0.0), [0, 0, 0])  # which the copy must not show

    @invariant()
    def what_is_kept_is_what_the_model_keeps(self):
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


def test_a_buffer_keeps_what_a_sorted_list_keeps_in_any_order_of_calls():
    run_machine(BufferMachine, settings=SETTINGS)


# --- The wrappers ---

ENDS = st.sampled_from([(False, False)] * 9 + [(True, False), (False, True), (True, True)])
EVENT = st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from([0, 1, -2.5, 0.1]), ENDS)
EVENTS = st.tuples(EVENT, EVENT, EVENT)
UNDUE = st.sampled_from([math.nan, -math.inf, 1e308])  # rewards; the last only if it comes twice
SEEN = st.sampled_from([np.int64, np.uint8, np.float32, np.float64])


class Puppet(gym.Env):
    """Does what it was told last. It shows ``[tag, cell]``, after a reset ``[tag, start]``, in one array for ever."""

    def __init__(self, tag=0, dtype=np.int64):
        self.observation_space, self.action_space = spaces.Box(0, 255, (2,), dtype), spaces.Discrete(10**6)
        self.tag, self.steps, self.shared = tag, 0, np.zeros(2, dtype)
        self.tell()

    def tell(self, event=(0, 0, 0.0, (False, False)), error=None, info=(), observation=None):
        self.cell, self.start, self.reward, self.ends = event
        self.error, self.info, self.observation = error, dict(info), observation

    def observe(self, cell):
        if self.error:
            raise self.error
        self.shared[:] = self.tag, cell
        return self.shared if self.observation is None else self.observation

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observe(self.start), dict(self.info)

    def step(self, action):
        self.steps += 1
        return self.observe(self.cell), self.reward, *self.ends, dict(self.info)


class WrapperMachine(RuleBasedStateMachine):
    """What to expect of finished episodes, by hand. Steps are ``(observation, action, reward)``."""

    given = ()  # what was

    def expect(self, dtype, record):
        self.dtype, self.record, self.warned = np.dtype(dtype), record, False
        self.visits, self.ids, self.given, self.action = Counter(), {}, [], 0

    def check_finished(self, scores, episode, steps):
        states, actions, rewards = map(list, zip(*steps, strict=True))
        if self.dtype.kind == "f":
            local, global_, ids = statistics.fmean(map(statistics.pstdev, zip(*states, strict=True))), 0.0, None
        else:
            self.visits.update(states)
            ids = [self.ids.setdefault(state, len(self.ids)) for state in states]
            local, global_ = len(set(states)) / len(states), mean_bonus([self.visits[state] for state in states])
        assert scores == pytest.approx({"extrinsic": sum(rewards), "local": local, "global": global_})
        assert (episode is not None) == self.record
        if episode is not None:
            assert (episode.observations.dtype, episode.actions.dtype) == (self.dtype, np.int64)
            assert list(episode.scores) == [scores[name] for name in ("extrinsic", "local", "global")]
            self.given.append((episode, states, actions, ids))

    def checked_reset(self, lengths, seed=None, options=None):
        """Reset, with the warning that is due the first time that fragments, of such ``lengths``, are discarded."""
        due = max(lengths) > (0 if seed is None else 2) and not self.warned
        self.warned |= due
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            returned = self.env.reset(seed=seed, options=options)
        assert len(caught) == due
        return returned

    @invariant()
    def states_are_counted_once_and_what_was_given_out_last_is_right(self):
        assert self.env.counter.counts.tolist() == [self.visits[state] for state in self.ids]
        self.check_given(-1)

    def check_given(self, first=0):
        for episode, states, actions, ids in self.given[first:]:
            assert list(map(tuple, episode.observations.tolist())) == states
            assert episode.actions.tolist() == actions
            assert (episode.state_ids if ids is None else episode.state_ids.tolist()) == ids

    def teardown(self):
        self.check_given()


class SingleMachine(WrapperMachine):
    """The model: the steps since the last reset, or None where no episode is in flight."""

    @initialize(dtype=SEEN, record=st.booleans())
    def start(self, dtype, record):
        self.expect(dtype, record)
        self.env, self.episode = rw.EpisodeScoringWrapper(Puppet(7, dtype), record=record), None

    @rule(
        events=st.lists(EVENT, min_size=3, max_size=9),
        form=st.sampled_from([float, np.float64, lambda x: np.array([x]), lambda x: np.array(x)]),
        info=st.dictionaries(st.sampled_from("abc"), st.integers()),
    )
    def play(self, events, form, info):
        for event in events:
            if self.episode is None:
                self.reset(start=event[1], seed=None)
            self.step(event, form, info)

    @rule(event=EVENT, reward=UNDUE)
    def step_with_an_undue_reward_or_without_a_reset(self, event, reward):
        self.step((*event[:2], reward, event[3]), float, {})

    def step(self, event, form, info):
        cell, start, reward, ends = event
        puppet, self.action = self.env.unwrapped, self.action + 1
        puppet.tell((cell, start, form(reward), ends), info=info)
        steps = puppet.steps
        if self.episode is None:
            with pytest.raises(ResetNeeded):
                self.env.step(self.action)
            assert puppet.steps == steps
            return
        self.episode.append((self.seen, self.action, reward))
        if not math.isfinite(sum(reward for *_, reward in self.episode)):
            with pytest.raises(ValueError, match="finite sum"):
                self.env.step(self.action)
            self.episode = None
            return
        obs, given, terminated, truncated, found = self.env.step(self.action)
        assert (obs.tolist(), given, terminated, truncated) == ([7, cell], reward, *ends)
        assert np.ndim(given) == 0
        self.seen = (7, cell)
        if any(ends):
            self.check_finished(found.pop("episode_scores"), found.pop("episode_record", None), self.episode)
            self.episode = None
        assert found == info

    @rule(start=st.integers(0, 3), seed=st.none() | st.integers(0, 9))
    def reset(self, start, seed):
        self.env.unwrapped.tell((0, start, 0.0, (False, False)))
        obs, _ = self.checked_reset([len(self.episode or ())], seed)
        assert obs.tolist() == [7, start]
        assert seed is None or self.env.unwrapped.np_random_seed == seed
        self.seen, self.episode = (7, start), []

    @precondition(lambda self: self.episode is not None)
    @rule(
        action=st.sampled_from([0.5, None, np.zeros(2, int), "left", math.nan]),
        event=EVENT, error=st.sampled_from([RuntimeError, KeyboardInterrupt]),
    )  # fmt: skip
    def go_on_after_an_action_that_is_refused_or_raises(self, action, event, error):
        puppet = self.env.unwrapped
        puppet.tell(event, error)
        with pytest.raises(error):
            self.env.step(0)
        steps = puppet.steps
        with pytest.raises(ValueError, match="expected each action"):
            self.env.step(action)
        assert puppet.steps == steps

    @precondition(lambda self: self.episode is not None)
    @rule(
        told=st.sampled_from([
            {"event": (0, 0, np.array([1.0, 2.0]), (False, False))},
            {"event": (0, 0, "1", (True, False))},
            {"event": (0, 0, 1.0, (True, False)), "info": {"episode_scores": 1.0}},
            {"event": (0, 0, 1.0, (False, True)), "info": {"episode_record": None}},
            {"observation": np.zeros(3)},
            {"observation": ["a", "b"]},
        ])
    )  # fmt: skip
    def refuse_what_the_environment_returns_and_the_episode_with_it(self, told):
        self.env.unwrapped.tell(**told)
        with pytest.raises(ValueError, match="expected "):
            self.env.step(0)
        self.episode = None

    @rule(told=st.sampled_from([{"error": OSError}, {"observation": np.zeros(3)}]))
    def fail_to_reset(self, told):
        self.env.unwrapped.tell(**told)
        with pytest.raises((OSError, ValueError)):
            self.checked_reset([len(self.episode or ())])
        self.episode = None

    @rule(copier=st.sampled_from([copy.deepcopy, pickled]))
    def go_on_with_a_copy(self, copier):
        original, self.env = self.env, copier(self.env)
        if self.episode is not None:
            original.unwrapped.tell((9, 9, 9.0, (True, False)))
            original.step(9)


def test_each_episode_is_scored_once_and_as_by_hand_in_any_order_of_calls():
    run_machine(SingleMachine, settings=SETTINGS)


class VectorMachine(WrapperMachine):
    """The model: for each environment the steps since its reset, or None where it waits for one."""

    @initialize(
        mode=st.sampled_from([NEXT_STEP, SAME_STEP, DISABLED]), number=st.integers(1, 3), dtype=SEEN,
        record=st.booleans(), copies=st.booleans(),
    )  # fmt: skip
    def start(self, mode, number, dtype, record, copies):
        self.expect(dtype, record)
        self.mode, self.number, self.copies = mode, number, copies
        self.build(rw.StateCounter())

    def build(self, counter):
        makers = [functools.partial(Puppet, tag, self.dtype) for tag in range(self.number)]
        self.wrap(SyncVectorEnv(makers, copy=self.copies, autoreset_mode=self.mode), counter)
        self.started, self.episodes, self.seen = False, None, [None] * self.number

    def wrap(self, envs, counter):
        self.env, self.warned = rw.VectorEpisodeScoringWrapper(envs, counter=counter, record=self.record), False

    def tell(self, events, error=None):
        """An error comes from the last one, when the others have moved."""
        for i, puppet in enumerate(self.env.env.envs):
            puppet.tell(events[i], error if i == self.number - 1 else None, {f"key {events[i][0]}": i})
        self.action += self.number
        return np.arange(self.action, self.action + self.number)

    def steps(self):
        return [puppet.steps for puppet in self.env.env.envs]

    def fail(self, error, actions):
        with pytest.raises(error):
            self.env.step(actions)
        self.started = False

    @rule(steps=st.lists(EVENTS, min_size=3, max_size=9))
    def play(self, steps):
        for events in steps:
            if not self.started:
                self.reset(events, seed=None)
            elif self.mode is DISABLED and None in self.episodes:
                self.restart(events, {i for i in range(self.number) if self.episodes[i] is None})
            self.step(events)

    @rule(events=EVENTS, reward=UNDUE, of=st.integers(0, 2))
    def step_with_an_undue_reward_or_without_a_reset(self, events, reward, of):
        self.step([(*event[:2], reward if i == of else 1.0, event[3]) for i, event in enumerate(events)])

    def step(self, events):
        actions, steps = self.tell(events), self.steps()
        if not self.started:
            self.fail(ResetNeeded, actions)
            assert self.steps() == steps
            return
        acted = [i for i in range(self.number) if self.episodes[i] is not None]
        if self.mode is DISABLED and len(acted) < self.number:
            self.fail(AssertionError, actions)  # Gymnasium's
            return
        for i in acted:
            self.episodes[i].append((self.seen[i], int(actions[i]), events[i][2]))
        if not all(math.isfinite(sum(reward for *_, reward in self.episodes[i])) for i in acted):
            self.fail(ValueError, actions)
            return
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        actions[:] = 0  # they are the caller's
        ended = [i for i in acted if any(events[i][3])]
        self.check_masks(infos, ended)
        found = dict(rw.finished_episodes(infos))
        assert list(found) == (ended if self.record else [])
        for i, (cell, start, reward, ends) in enumerate(events[: self.number]):
            if i in acted:
                assert (rewards[i], terminations[i], truncations[i]) == (reward, *ends)
            if i in ended:
                scores = {name: infos["episode_scores"][name][i] for name in ("extrinsic", "local", "global")}
                self.check_finished(scores, found.get(i), self.episodes[i])
                self.episodes[i] = None
            restarted = i not in acted or (i in ended and self.mode is SAME_STEP)
            self.seen[i] = (i, start if restarted else cell)
            if restarted:
                self.episodes[i] = []
        assert list(map(tuple, observations.tolist())) == self.seen

    def check_masks(self, infos, ended):
        names = ["_episode_scores", "_episode_record"][: 1 + self.record] if ended else []
        assert [name for name in infos if name.startswith("_episode_")] == names
        assert all(infos[name].tolist() == [i in ended for i in range(self.number)] for name in names)

    @precondition(lambda self: self.started and not (self.mode is DISABLED and None in self.episodes))
    @rule(events=EVENTS, error=st.sampled_from([RuntimeError, KeyboardInterrupt]))
    def raise_in_a_step(self, events, error):
        self.fail(error, self.tell(events, error))

    @precondition(lambda self: self.started)
    @rule(events=EVENTS, spoil=st.sampled_from([lambda a: a + 0.5, lambda a: np.append(a, 0), lambda a: a.astype(str)]))
    def refuse_actions(self, events, spoil):
        steps = self.steps()
        with pytest.raises(ValueError, match="expected each action"):
            self.env.step(spoil(self.tell(events)))
        assert self.steps() == steps

    @rule(events=EVENTS, seed=st.none() | st.integers(0, 9))
    def reset(self, events, seed):
        self.restart(events, set(range(self.number)), seed, whole=True)

    @precondition(lambda self: self.episodes)
    @rule(events=EVENTS, chosen=st.sets(st.integers(0, 2), min_size=1))
    def reset_some(self, events, chosen):
        if chosen := chosen & set(range(self.number)):
            self.restart(events, chosen)

    def restart(self, events, chosen, seed=None, whole=False):
        self.tell(events)
        options = None if whole else {"reset_mask": np.array([i in chosen for i in range(self.number)])}
        if not self.started:
            self.episodes = [None] * self.number
        lengths = [len(self.episodes[i] or ()) for i in chosen]
        observations, infos = self.checked_reset(lengths, seed, options)
        self.check_masks(infos, [])
        for i in chosen:
            self.seen[i], self.episodes[i] = (i, events[i][1]), []
            assert tuple(observations[i].tolist()) == self.seen[i]
            assert seed is None or self.env.env.envs[i].np_random_seed == seed + i
        self.started |= len(chosen) == self.number

    @rule()
    def go_on_from_the_saved_state(self):
        state = self.env.state_dict()
        self.wrap(self.env.env, self.env.counter)
        self.env.load_state_dict(pickled(state))
        in_flight = [step for steps in self.episodes or () for step in steps or () if self.started]
        kept = self.env.state_dict()["kept"].get("actions", np.empty(0))
        assert kept.tolist() == [action for _, action, _ in in_flight]

    @rule(copier=st.sampled_from([copy.deepcopy, pickled]))
    def go_on_with_a_copy(self, copier):
        original, self.env = self.env, copier(self.env)
        if self.started:
            original.load_state_dict(rw.VectorEpisodeScoringWrapper(original.env, record=self.record).state_dict())
            original.reset()

    @rule()
    def close_and_build_anew(self):
        self.env.close()
        self.env.close()
        self.build(self.env.counter)


def test_each_episode_of_many_environments_is_scored_once_and_as_by_hand_in_any_order_of_calls():
    run_machine(VectorMachine, settings=SETTINGS)
