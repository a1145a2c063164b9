"""Unfinished episodes: memory, and saving and loading."""

import functools
import tracemalloc

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.vector import SyncVectorEnv

import rapid_wrappers.envs  # noqa: F401
from rapid_wrappers import (
    EpisodeScores,
    RankingBuffer,
    StateCounter,
    VectorEpisodeScoringWrapper,
    finished_episodes,
)
from tests.scripted_env import ScriptedEnv
from tests.wrappers.vector_episodes import (
    DISABLED,
    SAME_STEP,
    assert_same_episodes,
    each_mode,
    run,
    scripted,
)


def resident():
    """Bytes of memory that this process uses."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.parametrize("max_states", [None, 15_000])
@pytest.mark.parametrize("frames", [300_000, pytest.param(10_000_000, marks=pytest.mark.slow)])
def test_memory_stays_flat_except_for_seventy_bytes_a_state(frames, max_states):
    envs = gym.make_vec("rapid/KeyCorridorS6R3-v0", num_envs=64, vectorization_mode="vector_entry_point")
    envs = VectorEpisodeScoringWrapper(envs, counter=StateCounter(max_states=max_states))
    buffer = RankingBuffer(counter=envs.counter, seed=0)
    rng = np.random.default_rng(0)
    tracemalloc.start(1)  # the process's own size depends on the allocator
    try:
        envs.reset(seed=0)
        for step in range(frames // 64):
            for _, e in finished_episodes(envs.step(rng.integers(0, 7, 64))[4]):
                buffer.add(e.observations, e.actions, e.scores, e.state_ids)
            if step == 2500:  # episodes of 1080 steps have ended twice, the buffer is full
                before, known = tracemalloc.get_traced_memory()[0], len(envs.counter)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(envs.counter) == max_states or max_states is None
    assert len(envs.counter) > known
    assert grown < 70 * (len(envs.counter) - known) + 1e6


def test_each_environment_takes_memory_for_its_own_longest_episode_only():
    lengths = [[1100]] + [[4]] * 15
    envs = VectorEpisodeScoringWrapper(scripted(*lengths, mode=SAME_STEP), count=False)
    envs.reset()
    row = {name: np.zeros((16, 16384), np.uint8) for name in ("observations",)}  # 16 KiB a step, far over a page
    envs._spaces.as_recorded = lambda name, value, batch: row.get(name + "s", np.zeros(16, int))
    envs._scorer.score = lambda *args: EpisodeScores(0.0, 0.0, 0.0)
    envs._in_flight._rows.clear()
    before = resident()
    for _ in range(1099):
        envs.step(np.zeros(16, int))
    kept = envs._in_flight._rows["observations"]
    assert kept.nbytes == 16 * 2048 * 16384  # address space, mostly untouched
    assert resident() - before < 16 * 1100 * 16384 / 2  # 18 MB, and up to 4 MB an environment in huge pages


def test_a_long_episode_beside_short_ones_is_kept_whole():
    found = run(VectorEpisodeScoringWrapper(scripted([200], [3], mode=SAME_STEP)), 200)
    long = found[-1][2]
    assert long.observations.tolist() == [[0, t] for t in range(200)]
    assert sum(len(episode) for *_, episode in found) == 200 + 66 * 3


def test_returned_episodes_never_change():
    envs = VectorEpisodeScoringWrapper(scripted([3], [3], mode=SAME_STEP))
    first = run(envs, 3)[0][2]
    before = (first.observations.copy(), first.actions.copy(), first.state_ids.copy())
    for _ in range(9):
        envs.step([7, 7])
    for a, b in zip(before, (first.observations, first.actions, first.state_ids), strict=True):
        np.testing.assert_array_equal(a, b)


@each_mode
def test_overwritten_arrays_are_recorded_with_their_earlier_values(mode):
    makers = [functools.partial(ScriptedEnv, [n], tag=n, reuse=True) for n in (3, 4)]
    envs = VectorEpisodeScoringWrapper(SyncVectorEnv(makers, copy=False, autoreset_mode=mode))
    actions = np.zeros(2, int)
    envs.reset()
    found = []
    for step in range(12):
        actions[:] = step
        *_, terminations, truncations, infos = envs.step(actions)
        found += [episode for _, episode in finished_episodes(infos)]
        if mode is DISABLED and (done := terminations | truncations).any():
            envs.reset(options={"reset_mask": done})
    for episode in found:
        assert episode.observations[:, 1].tolist() == list(range(len(episode)))
        assert np.diff(episode.actions).tolist() == [1] * (len(episode) - 1)
        assert episode.scores.local == 1.0


def native(mode, num_envs=3):
    envs = gym.make_vec("rapid/KeyCorridorS3R1-v0", num_envs, "vector_entry_point", autoreset_mode=mode, max_steps=20)
    return VectorEpisodeScoringWrapper(envs)


def continued(envs, actions, ended):
    """The episodes of these actions, from the current state of `envs`, as (step, env_index, Episode)."""
    found = []
    for step, taken in enumerate(actions):
        if envs.metadata["autoreset_mode"] is DISABLED and ended.any():
            envs.reset(options={"reset_mask": ended})
        *_, terminations, truncations, infos = envs.step(taken)
        ended = terminations | truncations
        found += [(step, i, episode) for i, episode in finished_episodes(infos)]
    return found


@each_mode
@pytest.mark.parametrize("at", [0, 1, 19, 20, 21, 47])
def test_episodes_in_flight_continue_in_another_wrapper_from_their_saved_state(mode, at):
    actions = np.random.default_rng(0).integers(0, 7, (100, 3))
    envs = native(mode)
    envs.reset(seed=0)
    ended = np.zeros(3, bool)
    for taken in actions[:at]:
        if mode is DISABLED and ended.any():
            envs.reset(options={"reset_mask": ended})
        *_, terminations, truncations, _ = envs.step(taken)
        ended = terminations | truncations
    states = [part.state_dict() for part in (envs.env, envs, envs.counter)]
    copy = native(mode)
    for part, state in zip((copy.env, copy, copy.counter), states, strict=True):
        part.load_state_dict(state)
    assert_same_episodes(continued(copy, actions[at:], ended), continued(envs, actions[at:], ended))


def test_a_saved_state_is_a_copy_and_includes_what_a_state_function_returned():
    def make(record=True):
        return VectorEpisodeScoringWrapper(
            scripted([100], [100]), state=lambda observations, infos: observations[:, 1:] / 2, record=record
        )

    envs = make()
    envs.reset()
    for _ in range(70):
        envs.step([0, 0])
    state = envs.state_dict()
    before = [state["lengths"].copy(), state["kept"]["states"].copy()]
    envs.step([0, 0])
    np.testing.assert_array_equal(state["lengths"], before[0])
    np.testing.assert_array_equal(state["kept"]["states"], before[1])
    other = make()
    other.load_state_dict(state)
    assert other.local == "std"
    assert not other.count
    with pytest.raises(ValueError, match=r"expected \['actions', 'states'\]"):
        make(record=False).load_state_dict(state)


def test_the_state_before_the_first_reset_can_be_saved_too():
    envs = native(SAME_STEP)
    envs.load_state_dict(native(SAME_STEP).state_dict())
    with pytest.raises(ResetNeeded):
        envs.step([0, 0, 0])


@pytest.mark.parametrize("steps", [0, 63])  # 64 are allocated at first
@pytest.mark.parametrize("fault", [{"reward": np.nan}, {"info": {"episode_scores": 0.0}}, {"state": np.zeros(3)}])
def test_the_state_after_a_failed_step_can_be_saved_too_and_asks_for_a_reset(steps, fault):
    faults = {"state": np.zeros((2, 1))}

    def make():
        return VectorEpisodeScoringWrapper(scripted([65], [65]), state=lambda observations, infos: faults["state"])

    envs = make()
    envs.reset()
    for _ in range(steps):
        envs.step([0, 0])
    faults |= fault
    envs.env.envs[0].rewards, envs.env.envs[0].info = [fault.get("reward", 1.0)], fault.get("info")
    envs.env.envs[1].lengths = [steps + 1]
    with pytest.raises(ValueError, match="expected"):
        envs.step([0, 0])
    other = make()
    other.load_state_dict(envs.state_dict())
    with pytest.raises(ResetNeeded):
        other.step([0, 0])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda state: state.pop("active"), "keys"),
        (lambda state: state.update(active=np.ones(2, bool)), "`active`"),
        (lambda state: state.update(lengths=np.ones(3)), "`lengths`"),
        (lambda state: state.update(lengths=np.full(3, -1)), "non-negative"),
        (lambda state: state.update(lengths=np.full(3, 2**60)), "to be"),
        (lambda state: state.update(returns=np.zeros(3, int)), "`returns`"),
        (lambda state: state["kept"].pop("actions"), "of the episodes"),
        (lambda state: state["kept"].update(actions=state["kept"]["actions"][1:]), "`actions`"),
        (lambda state: state["kept"].update(actions=state["kept"]["actions"] / 2), "`actions`"),
        (lambda state: state["kept"].update(observations=state["kept"]["observations"][:, 1:]), "`observations`"),
        (lambda state: state.update(kept=3), "state_dict"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(spoil, message):
    envs = native(SAME_STEP)
    envs.reset(seed=0)
    for _ in range(5):
        envs.step([0, 1, 2])
    state, before = envs.state_dict(), envs.state_dict()
    spoil(state)
    with pytest.raises(ValueError, match=message):
        envs.load_state_dict(state)
    for name, value in envs.state_dict()["kept"].items():
        np.testing.assert_array_equal(value, before["kept"][name])
