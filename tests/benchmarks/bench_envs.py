"""Steps a second with random actions, resets included, on one core.

pytest tests/benchmarks/bench_envs.py -o python_files='bench_*.py' -o python_functions='bench_*' -s

The native engine, MiniGrid in a ``SyncVectorEnv`` and EnvPool, if it is installed, take turns. The table shows medians
over rounds; ``.benchmarks/native_engine.csv`` holds it too, and ``.benchmarks/native_engine.png`` draws it.
"""

import csv
import os
import subprocess
import sys
import time
import warnings
from importlib.util import find_spec
from pathlib import Path

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

import rapid_wrappers.envs  # noqa: F401
from rapid_wrappers import VectorEpisodeScoringWrapper

OUT = Path(".benchmarks") / "native_engine"
MAX_STEPS = {"MultiRoom-N7-S4": 140, "KeyCorridorS4R3": 480, "MultiRoom-N12-S10": 240}
TASKS = tuple(MAX_STEPS)
NUM_ENVS = (1, 16, 64, 256)
ROOMS = (2, 4, 6, 7, 8, 10, 12, 14, 16, 18, 20)
rng = np.random.default_rng(0)


def native(task, num_envs, **kwargs):
    return gym.make_vec(f"rapid/{task}-v0", num_envs, "vector_entry_point", **kwargs)


def sync(task, num_envs):
    return gym.make_vec(f"rapid/{task}-v0", num_envs, "sync")


def envpool(task, num_envs):
    import envpool

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return envpool.make(f"MiniGrid-{task}-v0", env_type="gymnasium", num_envs=num_envs, num_threads=1, seed=0)


MAKERS = {"native": native, "EnvPool": envpool, "MiniGrid": sync}


def steps_a_second(envs, max_steps, dtype, seconds):
    """Measure over whole episodes, which random actions do not finish early, so that resets have their share."""
    block = rng.integers(0, 7, (max_steps, envs.num_envs)).astype(dtype)
    envs.reset()
    for actions in block:
        envs.step(actions)
    started, steps = time.perf_counter(), 0
    while (spent := time.perf_counter() - started) < seconds:
        for actions in block:
            envs.step(actions)
        steps += block.size
    return steps / spent


def measure(task, num_envs, makers, rounds, seconds=0.5):
    """Let the engines take turns; return the median, least and most steps a second of each."""
    max_steps = MAX_STEPS.get(task) or 20 * int(task.split("-")[1][1:])
    envs = {engine: MAKERS[engine](task, num_envs) for engine in makers}
    rates = {engine: [] for engine in makers}
    for _ in range(rounds):
        for engine, vector_env in envs.items():
            dtype = np.int32 if engine == "EnvPool" else np.int64
            rates[engine].append(steps_a_second(vector_env, max_steps, dtype, seconds))
    for vector_env in envs.values():
        vector_env.close()
    return [(task, engine, num_envs, *(round(f(x)) for f in (np.median, min, max))) for engine, x in rates.items()]


def bench_engines(benchmark):
    rows = []

    def all_engines():
        for task in TASKS:
            engines = ["native"] + ["EnvPool"] * bool(find_spec("envpool") and task.startswith("Key"))
            for num_envs in NUM_ENVS:
                rows.extend(("envs", *row) for row in measure(task, num_envs, engines, rounds=5))
                if num_envs <= 16:  # a step of one environment costs the same with more
                    rows.extend(("envs", *row) for row in measure(task, num_envs, ["MiniGrid"], rounds=1))
        for rooms in ROOMS:
            for engine, num_envs, rounds in (("native", 64, 3), ("MiniGrid", 4, 1)):
                found = measure(f"MultiRoom-N{rooms}-S4", num_envs, [engine], rounds)
                rows.extend(("rooms", *row) for row in found)

    benchmark.pedantic(all_engines, rounds=1)
    print()
    for axis, task, engine, num_envs, median, least, most in rows:
        print(f"{axis:6}{task:19}{engine:9}{num_envs:4} environments {median:>10,} steps/s ({least:,}-{most:,})")
    OUT.parent.mkdir(exist_ok=True)
    with open(OUT.with_suffix(".csv"), "w", newline="") as file:
        csv.writer(file).writerows([("axis", "task", "engine", "num_envs", "median", "least", "most"), *rows])
    draw(rows)
    print(f"{OUT}.csv, {OUT}.png")


def draw(rows):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    styles = {"native": "o-", "EnvPool": "s--", "MiniGrid": "^:"}
    for task, color in zip(TASKS, ("#0072B2", "#D55E00", "#009E73"), strict=True):
        for kind, style in styles.items():
            points = [(row[3], row[4]) for row in rows if row[:3] == ("envs", task, kind)]
            if points:
                left.plot(*zip(*points, strict=True), style, color=color, label=f"{task}, {kind}")
    for kind, style in (("native", "o-"), ("MiniGrid", "^:")):
        points = [(int(row[1][11:-3]), row[4]) for row in rows if row[0] == "rooms" and row[2] == kind]
        right.plot(*zip(*points, strict=True), style, color="black", label=kind)
    left.set(xscale="log", yscale="log", xlabel="environments", ylabel="steps a second, one core", ylim=(1e2, 2e7))
    left.set_xticks(NUM_ENVS, NUM_ENVS)
    right.set(xlabel="rooms of size 4 (native: 64 environments)", xticks=ROOMS[::2])
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=6.5, ncols=2 if axes is left else 1)
    figure.savefig(OUT.with_suffix(".png"), dpi=150)


def bench_vector_wrapper(benchmark):
    """The processor time that scoring adds to a step of one environment; runs with and without it take turns."""

    def cost(task, rounds=7, steps=1000):
        kinds = (lambda envs: envs, VectorEpisodeScoringWrapper)
        envs = [wrap(native(task, 64, autoreset_mode=AutoresetMode.SAME_STEP)) for wrap in kinds]
        actions = rng.integers(0, 7, (steps, 64))
        spent = np.zeros((rounds, 2))
        for vector_env in envs:
            vector_env.reset(seed=0)
        for number in range(rounds):
            for kind, vector_env in enumerate(envs):
                started = time.process_time()
                for taken in actions:
                    vector_env.step(taken)
                spent[number, kind] = time.process_time() - started
        return np.median(np.diff(spent, axis=1)) / steps / 64 * 1e6

    found = benchmark.pedantic(lambda: {task: cost(task) for task in TASKS}, rounds=1)
    for task, microseconds in found.items():
        print(f"\n{task}, 64 environments: scoring adds {microseconds:.2f} us an environment step", end="")
    print()


def bench_compilation(benchmark, tmp_path):
    """Time to make the first native environments of a process, with an empty cache and with a filled one."""
    code = (
        "import time, gymnasium as gym, rapid_wrappers.envs; started = time.perf_counter()\n"
        "for task in ('MultiRoom-N7-S4', 'KeyCorridorS4R3'): gym.make_vec(f'rapid/{task}-v0', 4)\n"
        "print(time.perf_counter() - started)"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}

    def seconds():
        command = [sys.executable, "-c", code]
        return float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)

    first = benchmark.pedantic(seconds, rounds=1)
    print(f"\nboth families: {first:.1f} s with an empty cache, {seconds():.2f} s after that (imports included)")
