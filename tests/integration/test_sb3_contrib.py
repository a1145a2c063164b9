"""RapidCallback with sb3_contrib: action masks and recurrent policies."""

import gymnasium as gym
import numpy as np
import sb3_contrib as contrib
import torch
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv

from rapid_wrappers import EpisodeScoringWrapper, RankingBuffer
from rapid_wrappers.sb3 import RapidCallback


class Masked(gym.Env):
    """Only one of four actions is allowed at a time: the one that the observation tells."""

    observation_space, action_space = spaces.Discrete(4), spaces.Discrete(4)

    def action_masks(self):
        return np.arange(4) == self.allowed

    def draw(self):
        self.allowed = int(self.np_random.integers(4))
        return self.allowed

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.draw(), {}

    def step(self, action):
        assert action == self.allowed
        self.t += 1
        return self.draw(), 1.0, self.t == 6, False, {}


def test_maskable_ppo_imitates_without_the_mask():
    envs = DummyVecEnv([lambda: EpisodeScoringWrapper(Masked())] * 2)
    rapid = RapidCallback(RankingBuffer(1000), bc_steps=5, bc_batch_size=64)
    model = contrib.MaskablePPO("MlpPolicy", envs, n_steps=64, batch_size=64, seed=1, device="cpu", learning_rate=1e-2)
    model.learn(1024, rapid)
    kept = rapid.buffer.episodes()
    assert all((episode["observations"] == episode["actions"]).all() for episode in kept)
    obs = model.policy.obs_to_tensor(np.arange(4))[0]
    with torch.no_grad():  # no mask: the policy itself has learnt which action each observation wants
        assert model.policy.get_distribution(obs).distribution.probs.diagonal().min() > 0.9


def test_trpo_imitates_too():
    envs = DummyVecEnv([lambda: EpisodeScoringWrapper(Recall())] * 2)
    rapid = RapidCallback(bc_steps=3, bc_batch_size=16)
    contrib.TRPO("MlpPolicy", envs, n_steps=32, batch_size=32, seed=1, device="cpu").learn(128, rapid)
    assert len(rapid.buffer) >= 100
    assert 0 < rapid.bc_loss < 1


class Recall(gym.Env):
    """The first observation tells the last action to take; in between there is nothing to see."""

    observation_space, action_space = spaces.Discrete(3), spaces.Discrete(2)

    def __init__(self, length=5):
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.secret = 0, int(self.np_random.integers(2))
        return 1 + self.secret, {}

    def step(self, action):
        self.t += 1
        done = self.t == self.length
        return 0, float(done and action == self.secret), done, False, {}


def test_recurrent_ppo_imitates_runs_of_pairs():
    envs = DummyVecEnv([lambda: EpisodeScoringWrapper(Recall())] * 4)
    rapid = RapidCallback(bc_steps=4, bc_batch_size=64, bc_sequence_length=5)
    model = contrib.RecurrentPPO(
        "MlpLstmPolicy", envs, n_steps=40, batch_size=160, n_epochs=1, seed=1, device="cpu", learning_rate=0.0
    )
    model.learn(800, rapid)
    assert rapid.buffer.whole_episodes
    best = RankingBuffer(1000, whole_episodes=True, seed=0)
    for episode in rapid.buffer.episodes():
        if episode["extrinsic"] == 1:
            actions = np.where(np.arange(5) == 4, episode["actions"], 0)  # at the other steps any action will do
            best.add(episode["observations"], actions, (1, 0, 0))
    rapid.buffer = best
    for group in model.policy.optimizer.param_groups:
        group["lr"] = 3e-3
    rapid._bc_left, rapid._imitate, rapid.bc_steps = np.inf, True, 300
    rapid._clone()
    for secret in (0, 1):
        state, starts = None, np.array([True])
        for obs in [1 + secret, 0, 0, 0, 0]:
            action, state = model.predict(np.array([obs]), state=state, episode_start=starts, deterministic=True)
            starts = np.array([False])
        assert int(action[0]) == secret  # it remembers the first observation
