"""A small environment whose every step is scripted."""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

SCRIPTED = "scripted/Env-v0"  # the id under which a test registers one


class ScriptedEnv(gym.Env):
    """Observation ``[tag, t]``; episode e takes ``lengths[e % len(lengths)]`` steps.

    Step t pays ``rewards[t - 1]``, which repeat in a longer episode.
    ``ends`` is the pair (terminated, truncated) of the last step.
    With ``reuse`` each observation overwrites the one before. A given ``info`` is returned every time.
    """

    def __init__(
        self,
        lengths: Sequence[int] = (5,),
        *,
        tag: int = 0,
        rewards: Sequence[Any] = (1.0,),
        ends: tuple[bool, bool] = (True, False),
        reuse: bool = False,
        dtype: Any = np.int64,
        action_space: spaces.Space | None = None,
        info: dict[str, Any] | None = None,
    ) -> None:
        self.observation_space = spaces.Box(0, 255, (2,), dtype)
        self.action_space = spaces.Discrete(100) if action_space is None else action_space
        self.lengths, self.tag, self.rewards, self.ends = lengths, tag, rewards, ends
        self.reuse, self.info = reuse, info
        self.episode = -1
        self.options: list[Any] = []
        self.shared = np.zeros(2, dtype)

    def observe(self):
        obs = self.shared if self.reuse else np.zeros_like(self.shared)
        obs[:] = self.tag, self.t
        return obs

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.options.append(options)
        self.episode += 1
        self.t = 0
        return self.observe(), {} if self.info is None else self.info

    def step(self, action):
        self.t += 1
        done = self.t >= self.lengths[self.episode % len(self.lengths)]
        reward = self.rewards[(self.t - 1) % len(self.rewards)]
        info = {} if self.info is None else self.info
        return self.observe(), reward, done and self.ends[0], done and self.ends[1], info


def make_grid() -> gym.Env:
    """One of our environments, in a module that spawned workers import quickly."""
    return gym.make("rapid_wrappers.envs:rapid/MultiRoom-N2-S4-v0")


def play(env: gym.Env, actions: Any = None) -> dict[str, Any]:
    """Play one episode from a reset and return its last info."""
    env.reset()
    done, t = False, 0
    while not done:
        _, _, terminated, truncated, info = env.step(t if actions is None else actions[t])
        done, t = terminated or truncated, t + 1
    return info
