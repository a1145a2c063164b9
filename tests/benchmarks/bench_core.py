"""The cost of each part.

pytest tests/benchmarks/bench_core.py -o python_files='bench_*.py' -o python_functions='bench_*' -s

Compare medians within one run only.
"""

import itertools
import time
import tracemalloc

import gymnasium as gym
import numpy as np
import pytest

import rapid_wrappers.envs  # noqa: F401
from rapid_wrappers import EpisodeScoringWrapper, RankingBuffer, StateCounter

LENGTH, CAPACITY, SHAPE = 140, 10_000, (7, 7, 3)
rng = np.random.default_rng(0)
rising = itertools.count()


def episodes(number):
    """Yield episodes of LENGTH steps among 20 000 different states, each better than the last, so that all are kept."""
    states = rng.integers(0, 11, (20_000, *SHAPE), dtype=np.uint8)
    for _ in range(number):
        score = next(rising)
        yield states[rng.integers(len(states), size=LENGTH)], rng.integers(7, size=LENGTH), (score, rng.random())


class NaiveBuffer:
    """Algorithm 1 to the letter: a list of pairs, rescored and sorted at each insertion."""

    def __init__(self, counter):
        self.counter, self.pairs, self.ids = counter, [], {}

    def add(self, observations, actions, scores, state_ids):
        episode = len(self.ids)
        self.ids[episode] = state_ids
        self.pairs += [(scores, episode, *pair) for pair in zip(observations, actions, strict=True)]
        bonus = {
            e: np.mean([1 / self.counter.counts[i] ** 0.5 for i in self.ids[e]]) for e in {p[1] for p in self.pairs}
        }
        self.pairs.sort(key=lambda pair: pair[0][0] + 0.1 * pair[0][1] + 0.001 * bonus[pair[1]], reverse=True)
        del self.pairs[CAPACITY:]


def full(make):
    """Return a buffer of 10 000 pairs, and a function that makes the next episode to add to it."""
    counter = StateCounter()
    buffer = make(counter)
    for observations, actions, (extrinsic, local) in episodes(100):
        buffer.add(observations, actions, (extrinsic, local, 0.0), counter.visit(observations))

    def arguments():
        observations, actions, (extrinsic, local) = next(coming)
        return (observations, actions, (extrinsic, local, 0.0), counter.visit(observations)), {}

    coming = episodes(10_000)
    return buffer, arguments


@pytest.mark.benchmark(group="add an episode of 140 steps to 10 000 pairs, with live global scores")
@pytest.mark.parametrize("kind", ["RankingBuffer", "naive"])
def bench_add(benchmark, kind):
    buffer, arguments = full(
        lambda c: RankingBuffer(CAPACITY, counter=c) if kind == "RankingBuffer" else NaiveBuffer(c)
    )
    benchmark.pedantic(buffer.add, setup=arguments, rounds=500 if kind == "RankingBuffer" else 10)


@pytest.mark.benchmark(group="sample 256 of 10 000 pairs")
@pytest.mark.parametrize("kind", ["RankingBuffer", "NumPy gather of given rows"])
def bench_sample(benchmark, kind):
    buffer, _ = full(lambda c: RankingBuffer(CAPACITY, counter=c))
    if kind == "RankingBuffer":
        benchmark(buffer.sample, 256)
    else:
        observations, actions, rows = *buffer.sample(CAPACITY), rng.integers(CAPACITY, size=256)
        benchmark(lambda: (observations[rows], actions[rows]))


@pytest.mark.parametrize("env_id", ["rapid/MultiRoom-N7-S4-v0", "rapid/KeyCorridorS3R2-v0"])
def bench_wrapper(benchmark, env_id):
    """Processor time of a step without resets: the three take turns on the same levels; ratios within each round."""
    wrappers = (lambda env: env, gym.wrappers.RecordEpisodeStatistics, EpisodeScoringWrapper)
    envs = [wrapper(gym.make(env_id)) for wrapper in wrappers]
    actions = rng.integers(7, size=1000)
    spent = np.zeros((40, 3))

    def steps(env, seed):
        total, terminated, truncated = 0, False, False
        env.reset(seed=seed)
        for action in actions:
            start = time.process_time_ns()
            _, _, terminated, truncated, _ = env.step(action)
            total += time.process_time_ns() - start
            if terminated or truncated:
                env.reset()
        while not (terminated or truncated):
            _, _, terminated, truncated, _ = env.step(0)
        return total / 1000

    def all_rounds():
        for number in range(len(spent)):
            for kind in (0, 1, 2) if number % 2 else (2, 1, 0):
                spent[number, kind] = steps(envs[kind], number)

    benchmark.pedantic(all_rounds, rounds=1)
    _, statistics, scoring = np.median(spent / spent[:, :1], axis=0)
    benchmark.extra_info.update(RecordEpisodeStatistics=statistics, EpisodeScoringWrapper=scoring)
    print(f"\n{env_id}: bare {np.median(spent[:, 0]) / 1000:.1f} us a step, with RecordEpisodeStatistics "
          f"{statistics:.3f} times that, with EpisodeScoringWrapper {scoring:.3f} times")  # fmt: skip


@pytest.mark.benchmark(group="count 140 states of 7x7x3")
def bench_visit(benchmark):
    counter = StateCounter()
    coming = episodes(100_000)
    benchmark.pedantic(counter.visit, setup=lambda: ((next(coming)[0],), {}), rounds=1000)


def bench_memory_of_a_million_distinct_states(benchmark):
    """Traced by tracemalloc, to which NumPy reports; printed and stored in the benchmark's extra information."""
    tracemalloc.start()
    counter = StateCounter()
    before = tracemalloc.get_traced_memory()[0]
    states = np.zeros((1000, *SHAPE), dtype=np.uint8)
    for block in range(1000):
        states.reshape(1000, -1)[:, :4] = (
            np.arange(block * 1000, (block + 1) * 1000, dtype="<u4").view(np.uint8).reshape(-1, 4)
        )
        counter.visit(states)
    now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(counter) == 1_000_000
    benchmark.extra_info["MB"] = round((now - before) / 1e6, 1)
    print(f"\n1 000 000 states: {(now - before) / 1e6:.1f} MB, at most {peak / 1e6:.1f} MB while growing")
    benchmark.pedantic(counter.visit, args=(states,), rounds=5)
