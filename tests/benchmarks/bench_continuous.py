"""Frames a second of the continuous script, on one core with one torch thread, compared with the environments alone.

pytest tests/benchmarks/bench_continuous.py -o python_files='bench_*.py' -o python_functions='bench_*' -s

The bare environment and 16 in a ``SyncVectorEnv`` (random actions, resets included), the script, and
Stable-Baselines3's PPO if it is installed (``plain_ppo.py``) take turns, each in its own process. The table shows
medians over rounds.
"""

import os
import sys
import time
from functools import partial
from importlib.util import find_spec

import gymnasium as gym
import numpy as np

import rapid_wrappers.envs  # noqa: F401
from tests.benchmarks.bench_training import PLAIN, run, take_turns
from tests.conftest import SCRIPTS

SCRIPT = SCRIPTS / "ppo_rapid_continuous_action.py"
TASKS = ("rapid/SparseSwimmer-v0", "rapid/SparseHopper-v0")
FRAMES = 81_920


def one(env_id, frames):
    env = gym.make(env_id)
    actions = np.random.default_rng(0).uniform(-1, 1, (frames, *env.action_space.shape)).astype(np.float32)
    env.reset(seed=0)
    start = time.perf_counter()
    for action in actions:
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()
    return frames / (time.perf_counter() - start)


def many(env_id, frames):
    envs = gym.make_vec(env_id, 16, "sync")
    actions = np.random.default_rng(0).uniform(-1, 1, (frames // 16, *envs.action_space.shape)).astype(np.float32)
    envs.reset(seed=0)
    start = time.perf_counter()
    for action in actions:
        envs.step(action)
    return frames / (time.perf_counter() - start)


def script(cwd, *flags, path=SCRIPT, frames=FRAMES):
    """Run a script; return the frames a second that it last writes to its event file."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out = run(cwd, path, "--total-timesteps", frames, *flags).stdout
    events = EventAccumulator(str(cwd / out.split("--logdir ")[1].strip()))
    events.Reload()
    return events.Scalars("charts/SPS")[-1].value


def alone(cwd, kind, env_id):
    return float(run(cwd, __file__, kind, env_id, FRAMES // 4).stdout)


def bench_continuous(benchmark, tmp_path):
    contenders = {}
    for env_id in TASKS:
        contenders[env_id, "one environment"] = partial(alone, tmp_path, "one", env_id)
        contenders[env_id, "16 in a SyncVectorEnv"] = partial(alone, tmp_path, "many", env_id)
        contenders[env_id, "script"] = partial(script, tmp_path, "--env-id", env_id)
        contenders[env_id, "script --no-rapid"] = partial(script, tmp_path, "--env-id", env_id, "--no-rapid")
        if find_spec("stable_baselines3"):
            contenders[env_id, "Stable-Baselines3's PPO"] = lambda env_id=env_id: float(
                run(tmp_path, PLAIN, "sb3", env_id, FRAMES // 4).stdout.splitlines()[-1]
            )
    rates = take_turns(benchmark, contenders)
    for (env_id, name), found in rates.items():
        envs = np.array(rates[env_id, "16 in a SyncVectorEnv"])
        print(f"{env_id:26}{name:26}{np.median(found):>8,.0f} frames/s ({min(found):,.0f}-{max(found):,.0f}), "
              f"{np.median(np.array(found) / envs):.2f} of the SyncVectorEnv")  # fmt: skip


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    print({"one": one, "many": many}[sys.argv[1]](sys.argv[2], int(sys.argv[3])))
