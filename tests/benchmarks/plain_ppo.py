"""Two PPOs to compare the script's speed with: the same one as a plain loop, and Stable-Baselines3's.

``python tests/benchmarks/plain_ppo.py {loop,sb3} ENV_ID FRAMES`` prints frames a second.
"""

import sys
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
from torch.distributions.categorical import Categorical

import rapid_wrappers.envs  # noqa: F401

NUM_ENVS, NUM_STEPS, EPOCHS, MINIBATCHES = 16, 128, 4, 4
BATCH = NUM_ENVS * NUM_STEPS
START = []  # the time at which training began


def make_env(env_id):
    return gym.wrappers.FlattenObservation(gym.make(env_id))


def mlp(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))


def loop(env_id, frames):
    """PPO in its most common form: everything in torch, a value with each action, minibatches by index."""
    envs = gym.vector.SyncVectorEnv([lambda: gym.wrappers.RecordEpisodeStatistics(make_env(env_id))] * NUM_ENVS)
    inputs, outputs = envs.single_observation_space.shape[0], envs.single_action_space.n
    actor, critic = mlp(inputs, outputs), mlp(inputs, 1)
    parameters = [*actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-4, eps=1e-5)
    obs = torch.zeros((NUM_STEPS, NUM_ENVS, inputs))
    actions, logprobs, rewards, dones, values = torch.zeros((5, NUM_STEPS, NUM_ENVS))
    next_obs = torch.Tensor(envs.reset(seed=1)[0])
    next_done = torch.zeros(NUM_ENVS)
    START.append(time.perf_counter())
    for _ in range(frames // BATCH):
        for step in range(NUM_STEPS):
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                probs = Categorical(logits=actor(next_obs))
                action = probs.sample()
                values[step] = critic(next_obs).flatten()
            actions[step], logprobs[step] = action, probs.log_prob(action)
            new_obs, reward, terminated, truncated, _ = envs.step(action.numpy())
            rewards[step] = torch.tensor(reward)
            next_obs, next_done = torch.Tensor(new_obs), torch.Tensor(np.logical_or(terminated, truncated))
        with torch.no_grad():
            next_value, advantages, last = critic(next_obs).flatten(), torch.zeros_like(rewards), 0
            for t in reversed(range(NUM_STEPS)):
                alive = 1.0 - (next_done if t == NUM_STEPS - 1 else dones[t + 1])
                following = next_value if t == NUM_STEPS - 1 else values[t + 1]
                last = rewards[t] + 0.99 * following * alive - values[t] + 0.99 * 0.95 * alive * last
                advantages[t] = last
        batch = [x.flatten(0, 1) for x in (obs, actions, logprobs, advantages, advantages + values, values)]
        indices = np.arange(BATCH)
        for _ in range(EPOCHS):
            np.random.shuffle(indices)  # noqa: NPY002
            for chosen in np.split(indices, MINIBATCHES):
                b_obs, b_actions, b_logprobs, b_advantages, b_returns, b_values = (x[chosen] for x in batch)
                probs, value = Categorical(logits=actor(b_obs)), critic(b_obs).flatten()
                ratio = (probs.log_prob(b_actions) - b_logprobs).exp()
                b_advantages = (b_advantages - b_advantages.mean()) / (b_advantages.std() + 1e-8)
                policy_loss = torch.max(-b_advantages * ratio, -b_advantages * ratio.clamp(0.8, 1.2)).mean()
                clipped = b_values + (value - b_values).clamp(-0.2, 0.2)
                value_loss = 0.5 * torch.max((value - b_returns) ** 2, (clipped - b_returns) ** 2).mean()
                optimizer.zero_grad()
                (policy_loss - 0.01 * probs.entropy().mean() + 0.5 * value_loss).backward()
                nn.utils.clip_grad_norm_(parameters, 0.5)
                optimizer.step()


def sb3(env_id, frames):
    """Stable-Baselines3's PPO with the same network, batch and epochs."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    envs = make_vec_env(lambda: make_env(env_id), NUM_ENVS, seed=1)
    network = {"net_arch": {"pi": [64, 64], "vf": [64, 64]}, "activation_fn": nn.Tanh}
    model = PPO(
        "MlpPolicy", envs, learning_rate=1e-4, n_steps=NUM_STEPS, batch_size=BATCH // MINIBATCHES, n_epochs=EPOCHS,
        clip_range_vf=0.2, ent_coef=0.01, policy_kwargs=network, device="cpu",
    )  # fmt: skip
    START.append(time.perf_counter())
    model.learn(frames)


if __name__ == "__main__":
    torch.set_num_threads(1)
    frames = int(sys.argv[3])
    {"loop": loop, "sb3": sb3}[sys.argv[1]](sys.argv[2], frames)
    print(frames / (time.perf_counter() - START[0]))
