"""Environments of the scripts' kinds with short episodes, registered on import."""

import gymnasium as gym
import numpy as np
from gymnasium import spaces

import rapid_wrappers.envs
from tests.scripted_env import ScriptedEnv

MAZE = "short/Maze-v0"  # four rooms, at most 30 steps
SWIMMER = "short/Swimmer-v0"  # 32 steps, paid at the end, all from the same state
PICTURE = "short/Picture-v0"  # 16 steps, all episodes alike
FIRE = "short/FireGrid-v0"  # at most 40 steps; at first most episodes end in a fire


class Picture(ScriptedEnv):
    """A fixed image without any symmetry; its top left corner shows the step and the episode."""

    def __init__(self, shape=(40, 50, 3), alike=False, **arguments):
        super().__init__(**{"action_space": spaces.Discrete(4), **arguments})
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        self.alike = alike
        rng = np.random.default_rng(0)
        self.image = (rng.integers(0, 256, shape) * np.linspace(0.2, 1, shape[0])[:, None, None]).astype(np.uint8)

    def observe(self):
        image = self.image.copy()
        image[0, 0, :2] = self.t, 0 if self.alike else self.episode % 256
        return image


class FireGrid(gym.Env):
    """From one corner of a 4 x 4 grid to the other, with fires in new places each time. Stepping into one ends it."""

    observation_space, action_space = spaces.Box(0, 1, (3, 4, 4), np.uint8), spaces.Discrete(4)

    def observe(self):
        planes = np.zeros((3, 4, 4), np.uint8)  # agent, fires, goal
        planes[0][self.place] = planes[2, 3, 3] = 1
        planes[1] = self.burning
        return planes

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, burning = (0, 0), np.zeros(16, bool)
        burning[1 + self.np_random.permutation(14)[:4]] = True
        self.burning = burning.reshape(4, 4)
        return self.observe(), {}

    def step(self, action):
        row, column = np.clip(np.add(self.place, [(0, 1), (1, 0), (0, -1), (-1, 0)][action]), 0, 3).tolist()
        self.place = (row, column)
        burnt, arrived = bool(self.burning[self.place]), self.place == (3, 3)
        return self.observe(), float(arrived), burnt or arrived, False, {}


gym.register(FIRE, FireGrid, max_episode_steps=40)
gym.register(
    MAZE,
    gym.spec("rapid/MazeS5-v0").entry_point,
    kwargs={"num_rows": 2, "num_cols": 2, "max_episode_steps": 30},
)
gym.register(
    SWIMMER,
    gym.spec("Swimmer-v5").entry_point,
    max_episode_steps=32,
    additional_wrappers=(rapid_wrappers.envs.EpisodicRewardWrapper.wrapper_spec(),),
    kwargs={"reset_noise_scale": 0.0},
)
gym.register(PICTURE, Picture, kwargs={"lengths": [16], "rewards": [0.1], "alike": True})
