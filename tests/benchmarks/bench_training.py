"""Frames a second of training, on one core with one torch thread, and the share of matrix arithmetic in its time.

pytest tests/benchmarks/bench_training.py -o python_files='bench_*.py' -o python_functions='bench_*' -s

The script in each regime, a plain loop, and Stable-Baselines3's PPO if it is installed (``plain_ppo.py``) take turns,
each in its own process. The table shows medians over rounds. "Solved" resumes a run of 0.4M frames.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

SCRIPT = Path(__file__).parents[2] / "cleanrl_scripts" / "ppo_rapid.py"
PLAIN = Path(__file__).with_name("plain_ppo.py")
N7S4, S4R3 = "rapid/MultiRoom-N7-S4-v0", "rapid/KeyCorridorS4R3-v0"
SOLVED, FRAMES, ROUNDS = 409_600, 81_920, int(os.environ.get("ROUNDS", 5))
SMALL = ("--hidden-size", "64")  # the paper's network, which the plain loop and Stable-Baselines3 have too
RAW = (*SMALL, "--no-one-hot", "--learning-rate", "3e-4")
INPUTS = {"raw input": RAW, "one-hot input": SMALL, "default": ()}
REGIMES = {
    "N7-S4, episodes of 140 steps": ("--env-id", N7S4),
    "N7-S4, --no-rapid": ("--env-id", N7S4, "--no-rapid"),
    "KeyCorridorS4R3, episodes of 480 steps": ("--env-id", S4R3),
}


def run(cwd, *command):
    one_core = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *map(str, command)], cwd=cwd, env=one_core, capture_output=True, text=True, check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
    )  # fmt: skip


def script(cwd, *flags):
    """Run the script; return the frames a second that its progress bar shows at the end."""
    return int(re.findall(r"SPS=(\d+)", run(cwd, SCRIPT, *flags).stderr)[-1])


def plain(cwd, *arguments):
    return float(run(cwd, PLAIN, *arguments).stdout.splitlines()[-1])


def milliseconds(function, repeats=200, blocks=15):
    spent = []
    for _ in range(blocks):
        started = time.perf_counter()
        for _ in range(repeats // blocks + 1):
            function()
        spent.append((time.perf_counter() - started) / (repeats // blocks + 1) * 1e3)
    return float(np.median(spent))


def matrix_products(batch, outputs, backward):
    """Time only the matrix products of a 147-64-64-outputs network: forward and, if asked for, both gradients."""
    sizes = (147, 64, 64, outputs)
    x = [torch.randn(batch, n) for n in sizes]
    w = [torch.randn(m, n) for m, n in pairwise(sizes)]
    y, dw, dx = ([torch.empty_like(t) for t in ts] for ts in (x, w, x))

    def products():
        for i, weight in enumerate(w):
            torch.mm(x[i], weight, out=y[i + 1])
            if backward:
                torch.mm(x[i].T, x[i + 1], out=dw[i])
                if i:  # the observations need no gradient
                    torch.mm(x[i + 1], weight.T, out=dx[i])

    return milliseconds(products)


def arithmetic(length, imitate):
    """Sum the milliseconds of matrix products for 2048 frames in episodes of ``length`` steps."""
    acting = 128 * matrix_products(16, 7, False) + matrix_products(2048, 1, False)
    update = 16 * (matrix_products(512, 7, True) + matrix_products(512, 1, True))
    return acting + update + (2048 / length * 5 * matrix_products(256, 7, True) if imitate else 0)


def take_turns(benchmark, contenders):
    """Run all ``contenders`` once in each round; return what each of them measured."""
    rates = {contender: [] for contender in contenders}

    def all_in_turn():
        for _ in range(ROUNDS):
            for contender, measure in contenders.items():
                rates[contender].append(measure())

    benchmark.pedantic(all_in_turn, rounds=1)
    print()
    return rates


def bench_training(benchmark, tmp_path):
    torch.set_num_threads(1)
    contenders = {}
    for name, flags in INPUTS.items():
        for regime, arguments in REGIMES.items():
            command = (*arguments, *flags, "--total-timesteps", FRAMES)
            contenders[regime, name] = lambda command=command: script(tmp_path, *command)
        solved = Path(
            re.search(r"--logdir (\S+)", run(tmp_path, SCRIPT, "--total-timesteps", SOLVED, *flags).stdout)[1]
        )

        def resume(*flags, solved=tmp_path / solved):
            shutil.copytree(solved, tmp_path / "copy")
            rate = script(tmp_path, "--resume", "copy", "--total-timesteps", SOLVED + FRAMES // 2, *flags)
            shutil.rmtree(tmp_path / "copy")
            return rate

        contenders["N7-S4, solved: episodes of 35 steps", name] = resume
        contenders["N7-S4, solved, imitating at each end", name] = partial(resume, "--bc-target-loss", "0")
    for name, kind in (("plain loop", "loop"), ("Stable-Baselines3", "sb3")):
        if kind == "loop" or find_spec("stable_baselines3"):
            for regime, env_id in (("N7-S4, --no-rapid", N7S4), ("KeyCorridorS4R3, PPO alone", S4R3)):
                contenders[regime, name] = lambda kind=kind, env_id=env_id: plain(tmp_path, kind, env_id, FRAMES // 4)
    rates = take_turns(benchmark, contenders)
    lengths = {
        "N7-S4, episodes of 140 steps": 140,
        "N7-S4, solved, imitating at each end": 35,
        "N7-S4, --no-rapid": 140,
    }
    for (regime, name), found in sorted(rates.items()):
        line = f"{regime:40}{name:18}{np.median(found):>9,.0f} frames/s ({min(found):,.0f}-{max(found):,.0f})"
        if name == "raw input" and "35" not in regime:  # there, imitation pauses most of the time
            length = lengths.get(regime, 480)
            share = arithmetic(length, "--no-rapid" not in regime) / (2048 / np.median(found) * 1e3)
            line += f", {share:.0%} of the time matrix products"
        print(line)
