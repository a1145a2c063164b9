"""Scripted vector environments, and the episodes that the wrappers find in them."""

import functools

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import rapid_wrappers.envs  # noqa: F401
from rapid_wrappers import (
    EpisodeScoringWrapper,
    StateCounter,
    finished_episodes,
)
from tests.scripted_env import ScriptedEnv

MODES = list(AutoresetMode)
NEXT_STEP, SAME_STEP, DISABLED = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED
each_mode = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)


def scripted(*lengths, mode=NEXT_STEP, **kwargs):
    """One ScriptedEnv for each of `lengths`, with its index as tag."""
    makers = [functools.partial(ScriptedEnv, length, tag=i, **kwargs) for i, length in enumerate(lengths)]
    return SyncVectorEnv(makers, autoreset_mode=mode)


def run(envs, steps, actions=None, seed=None):
    """The episodes of this number of steps, as (step, env_index, Episode). DISABLED is reset with masks."""
    _, infos = envs.reset(seed=seed)
    assert not list(finished_episodes(infos))
    found = []
    for step in range(steps):
        taken = np.full(envs.num_envs, step) if actions is None else actions[step]
        *_, terminations, truncations, infos = envs.step(taken)
        found += [(step, i, episode) for i, episode in finished_episodes(infos)]
        done = terminations | truncations
        if envs.metadata["autoreset_mode"] is DISABLED and done.any():
            assert not list(finished_episodes(envs.reset(options={"reset_mask": done})[1]))
    return found


def run_singly(make_env, num_envs, mode, steps, actions, seed):
    """The same with an EpisodeScoringWrapper around each environment, stepped by hand, with one counter."""
    counter = StateCounter()
    envs = [EpisodeScoringWrapper(make_env(), counter=counter, normalize=False) for _ in range(num_envs)]
    for i, env in enumerate(envs):
        env.reset(seed=seed + i)
    ended, found = [False] * num_envs, []
    for step in range(steps):
        for i, env in enumerate(envs):
            if ended[i]:
                env.reset()
                ended[i] = False
                if mode is NEXT_STEP:
                    continue
            *_, terminated, truncated, info = env.step(actions[step][i])
            ended[i] = terminated or truncated
            found += [(step, i, episode) for _, episode in finished_episodes(info)]
    return found


def assert_same_episodes(ours, theirs):
    assert [x[:2] for x in ours] == [x[:2] for x in theirs]
    assert ours
    for (*_, x), (*_, y) in zip(ours, theirs, strict=True):
        assert x.scores == y.scores
        for a, b in ((x.observations, y.observations), (x.actions, y.actions), (x.state_ids, y.state_ids)):
            assert (a is None) == (b is None)
            if a is not None:
                assert a.dtype == b.dtype
                np.testing.assert_array_equal(a, b)


class Native(gym.vector.VectorEnv):
    """Two environments whose observation is t; they end after 2 and 3 steps, in the ``form`` given."""

    metadata = {"autoreset_mode": DISABLED}  # noqa: RUF012
    num_envs = 2
    single_observation_space = spaces.Box(0, 9, (1,), np.float32)
    single_action_space = spaces.Discrete(9)

    def __init__(self, form):
        self.form = form

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros((2, 1), np.float32), {}

    def step(self, actions):
        self.t += 1
        step = {
            "observations": np.full((2, 1), self.t, np.float32),
            "rewards": np.ones(2),
            "terminations": self.t >= np.array([2, 3]),
            "truncations": np.zeros(2, bool),
        }
        return *(self.form.get(name, lambda x: x)(value) for name, value in step.items()), {f"key {self.t}": self.t}
