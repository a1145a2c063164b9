"""How long a frame of the maze takes, in each way of drawing it and of computing on it.

pytest tests/benchmarks/bench_maze.py -o python_files='bench_*.py' -o python_functions='bench_*' -s

The rows are: steps a second with random actions, resets included; frames a second of the network, updating on 1024 and
acting on 8; frames a second of the script. All take turns, each in its own process. The table shows medians over
rounds. Each has one core, except the rows with worker processes or all cores.
"""

import os
import subprocess
import sys
import time
from functools import partial

import gymnasium as gym
import numpy as np
import torch

import rapid_wrappers.envs
from tests.benchmarks.bench_continuous import script as frames_per_second
from tests.benchmarks.bench_training import run, take_turns
from tests.conftest import SCRIPTS, import_script

SCRIPT = SCRIPTS / "ppo_rapid_cnn.py"
STEPS, FRAMES = 3_000, 24_576


def stock():
    """Make MiniWorld's own maze of the same size."""
    from rapid_wrappers.envs.headless import import_miniworld

    import_miniworld()
    from miniworld.envs.maze import Maze

    return Maze(num_rows=5, num_cols=5)


def single(env):
    actions = np.random.default_rng(0).integers(3, size=STEPS)
    env.reset(seed=0)
    start = time.perf_counter()
    for action in actions:
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()
    return STEPS / (time.perf_counter() - start)


def vector(mode, **kwargs):
    envs = gym.make_vec("rapid/MazeS5-v0", 8, mode, vector_kwargs=kwargs)
    actions = np.random.default_rng(0).integers(3, size=(STEPS // 8, 8))
    envs.reset(seed=0)
    start = time.perf_counter()
    for action in actions:
        envs.step(action)
    rate = STEPS / (time.perf_counter() - start)
    envs.close()
    return rate


def network(kind, size):
    torch.set_num_threads(1)
    space = gym.spaces.Box(0, 255, (60, 80, 3), np.uint8)
    envs = type("Envs", (), {"single_observation_space": space, "single_action_space": gym.spaces.Discrete(3)})
    script = import_script("ppo_rapid_cnn.py")
    agent = script.make_agent(envs, script.Args(bf16=kind == "bf16"))
    if kind == "contiguous":
        agent.network.to(memory_format=torch.contiguous_format)
    images = torch.randint(256, (size, 60, 80, 3), dtype=torch.uint8)
    if kind == "contiguous":  # channels first, as a frame stack or an Atari wrapper returns images
        images = images.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1)
    spent = []
    for _ in range(8):
        start = time.perf_counter()
        if size > 8:
            agent.get_logits(images).square().mean().backward()
        else:
            with torch.no_grad():
                agent.get_logits(images)
        spent.append(time.perf_counter() - start)
    return size / np.median(spent[2:])


KINDS = {
    "MiniWorld's own maze": lambda: single(stock()),
    "MazeS5": lambda: single(gym.make("rapid/MazeS5-v0").unwrapped),
    "MazeS5, not antialiased": lambda: single(gym.make("rapid/MazeS5-v0", antialias=False).unwrapped),
    "8 in a SyncVectorEnv": lambda: vector("sync"),
    "8 in an AsyncVectorEnv": lambda: vector("async", context="spawn"),
    **{
        f"{'update' if size > 8 else 'acting'}, {kind}": partial(network, kind, size)
        for size in (1024, 8)
        for kind in ("contiguous", "channels last", "bf16")
    },
}


def bench_maze(benchmark, tmp_path):
    contenders = {}
    for kind in KINDS:
        contenders[kind] = lambda kind=kind: float(run(tmp_path, __file__, kind).stdout.split()[-1])
    threads = {**os.environ, "LP_NUM_THREADS": str(os.cpu_count())}
    for kind in ("MazeS5", "8 in an AsyncVectorEnv"):
        name = f"{kind}, all cores" + (", Mesa's threads" if kind == "MazeS5" else "")
        env = threads if kind == "MazeS5" else None
        contenders[name] = lambda kind=kind, env=env: float(
            subprocess.run(
                [sys.executable, __file__, kind], capture_output=True, text=True, check=True, env=env
            ).stdout.split()[-1]
        )
    for flags in ((), ("--bf16",), ("--no-rapid",), ("--no-rapid", "--bf16")):
        name = " ".join(("script", *flags))
        contenders[name] = partial(frames_per_second, tmp_path, *flags, path=SCRIPT, frames=FRAMES)
    for name, rates in take_turns(benchmark, contenders).items():
        print(f"{name:36}{np.median(rates):>8,.0f} ({min(rates):,.0f}-{max(rates):,.0f}) a second, "
              f"{1e3 / np.median(rates):.3f} ms")  # fmt: skip


if __name__ == "__main__":
    assert rapid_wrappers.envs
    print(KINDS[sys.argv[1]]())
