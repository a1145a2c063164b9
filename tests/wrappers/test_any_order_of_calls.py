"""The wrappers against models in plain Python, in any order of calls that Hypothesis finds."""

import copy
import functools
import math
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
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

import rapid_wrappers as rw
from tests.method.test_any_order_of_calls import few_or_many_examples, mean_bonus, pickled

NEXT_STEP, SAME_STEP, DISABLED = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED
ENDS = st.sampled_from([(False, False)] * 9 + [(True, False), (False, True), (True, True)])
EVENT = st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from([0, 1, -2.5, 0.1]), ENDS)
EVENTS = st.tuples(EVENT, EVENT, EVENT)
BAD_REWARD = st.sampled_from([math.nan, -math.inf, 1e308])  # the last only if it comes twice
SEEN = st.sampled_from([np.int64, np.uint8, np.float32, np.float64])


class Puppet(gym.Env):
    """Does what it was told last. It shows ``[tag, cell]``, after a reset ``[tag, start]``, in one array."""

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
    """What to expect from finished episodes, by hand. Steps are ``(observation, action, reward)``."""

    given = ()  # episodes that the wrapper returned, and what they must contain

    def expect(self, dtype, record):
        self.dtype, self.record, self.warned = np.dtype(dtype), record, False
        self.visits, self.ids, self.given, self.action = Counter(), {}, [], 0
        self.acted_on = []  # states that are in the running deviation

    def check_finished(self, scores, episode, steps):
        states, actions, rewards = map(list, zip(*steps, strict=True))
        if self.dtype.kind == "f":
            local, global_, ids = self.spread(states), 0.0, None
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

    def spread(self, states):
        """Eq. 2 in running deviations, with numbers beyond ten of them cut off."""
        deviations = []
        for of_one, of_all in zip(zip(*states, strict=True), zip(*self.acted_on, strict=True), strict=True):
            mean, unit = statistics.fmean(of_all), statistics.pstdev(of_all) or 1.0
            deviations.append(statistics.pstdev([min(max((x - mean) / unit, -10), 10) for x in of_one]))
        return statistics.fmean(deviations)

    def checked_reset(self, lengths, seed=None, options=None):
        """Reset, and expect a warning if it is the first to discard fragments. They have these ``lengths``."""
        due = max(lengths) > (0 if seed is None else 2) and not self.warned
        self.warned |= due
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            returned = self.env.reset(seed=seed, options=options)
        assert len(caught) == due
        return returned

    @invariant()
    def states_are_counted_once_and_the_last_episode_is_right(self):
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
    """The model: the steps since the last reset, or None if no episode is in flight."""

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

    @rule(event=EVENT, reward=BAD_REWARD)
    def step_with_an_bad_reward_or_without_a_reset(self, event, reward):
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
            self.acted_on += [state for state, *_ in self.episode]
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
    def continue_after_an_action_that_is_refused_or_raises(self, action, event, error):
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
    def discard_the_episode_if_the_environment_returns_something_wrong(self, told):
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
    def continue_with_a_copy(self, copier):
        original, self.env = self.env, copier(self.env)
        if self.episode is not None:
            original.unwrapped.tell((9, 9, 9.0, (True, False)))
            original.step(9)


@few_or_many_examples
def test_each_episode_is_scored_once_and_as_by_hand_in_any_order_of_calls(examples):
    run_machine(SingleMachine, settings=settings(max_examples=examples, stateful_step_count=30, deadline=None))


class VectorMachine(WrapperMachine):
    """The model: for each environment the steps since its reset, or None if it waits for one."""

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
        self.started, self.episodes, self.seen, self.acted_on = False, None, [None] * self.number, []

    def wrap(self, envs, counter):
        self.env, self.warned = rw.VectorEpisodeScoringWrapper(envs, counter=counter, record=self.record), False

    def tell(self, events, error=None):
        """The error, if any, comes from the last environment, after the others have moved."""
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

    @rule(events=EVENTS, reward=BAD_REWARD, of=st.integers(0, 2))
    def step_with_an_bad_reward_or_without_a_reset(self, events, reward, of):
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
        actions[:] = 0  # the caller may overwrite its array
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
        self.acted_on += [seen for seen, steps in zip(self.seen, self.episodes, strict=True) if steps is not None]
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
            self.acted_on.append(self.seen[i])
            assert tuple(observations[i].tolist()) == self.seen[i]
            assert seed is None or self.env.env.envs[i].np_random_seed == seed + i
        self.started |= len(chosen) == self.number

    @rule()
    def continue_from_the_saved_state(self):
        state = self.env.state_dict()
        self.wrap(self.env.env, self.env.counter)
        self.env.load_state_dict(pickled(state))
        in_flight = [step for steps in self.episodes or () for step in steps or () if self.started]
        kept = self.env.state_dict()["kept"].get("actions", np.empty(0))
        assert kept.tolist() == [action for _, action, _ in in_flight]

    @rule(copier=st.sampled_from([copy.deepcopy, pickled]))
    def continue_with_a_copy(self, copier):
        original, self.env = self.env, copier(self.env)
        if self.started:
            original.load_state_dict(rw.VectorEpisodeScoringWrapper(original.env, record=self.record).state_dict())
            original.reset()

    @rule()
    def close_and_build_again(self):
        self.env.close()
        self.env.close()
        self.build(self.env.counter)


@few_or_many_examples
def test_each_episode_of_many_environments_is_scored_once_and_as_by_hand_in_any_order_of_calls(examples):
    run_machine(VectorMachine, settings=settings(max_examples=examples, stateful_step_count=30, deadline=None))
