"""RapidCallback keeps the right pairs inside other wrappers, and if others step the environments."""

import functools
import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import BaseCallback, CallbackList, EvalCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack, VecNormalize, VecTransposeImage

from rapid_wrappers import EpisodeScoringWrapper, RankingBuffer
from rapid_wrappers.episode import map_arrays
from rapid_wrappers.sb3 import RapidCallback
from rapid_wrappers.sb3_observations import as_seen


class Echo(gym.Env):
    """The observation is the number of the environment and the action taken last. Lengths are drawn from 5 to 40."""

    def __init__(self, number=0, action_space=None):
        self.number, self.action_space = number, action_space or spaces.Discrete(1000)
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.length = 0, int(self.np_random.integers(5, 41))
        return np.float32([self.number, -1]), {}

    def step(self, action):
        self.t += 1
        return np.float32([self.number, np.ravel(action)[0]]), 1.0, self.t == self.length, False, {}


class Counts(gym.Wrapper):
    """A wrapper of somebody's own, with names that ours has, too."""

    def __init__(self, env):
        super().__init__(env)
        self.count = self.local = self.counter = self.progress = self.scored = self.statistics = 0


def learn(envs, callbacks, steps=600, cls=PPO, policy="MlpPolicy", **kwargs):
    kwargs = {"n_steps": 50, "batch_size": 50, "n_epochs": 1, "seed": 1, "device": "cpu", **kwargs}
    if cls is A2C:
        kwargs = {name: value for name, value in kwargs.items() if name not in ("batch_size", "n_epochs")}
    model = cls(policy, envs, **kwargs)
    model.learn(steps, CallbackList(callbacks) if isinstance(callbacks, list) else callbacks)
    return model


class At(BaseCallback):
    """Evaluates in the training environments at one event of each rollout."""

    def __init__(self, event, envs):
        super().__init__()
        setattr(self, event, lambda: evaluate_policy(self.model, envs, n_eval_episodes=3, warn=False))

    def _on_step(self):
        return True


@pytest.mark.parametrize("num_envs", [1, 2, 4])
@pytest.mark.parametrize("order", ["behind", "before", "rollout start", "rollout end"])
def test_an_evaluation_in_the_training_environments_shifts_no_pairs(order, num_envs):
    envs = DummyVecEnv([lambda i=i: Monitor(EpisodeScoringWrapper(Echo(i))) for i in range(num_envs)])
    rapid = RapidCallback(RankingBuffer(10_000, w1=0.0, w2=0.0), bc_steps=0)
    evaluation = EvalCallback(envs, eval_freq=70, n_eval_episodes=3, verbose=0, warn=False)
    callbacks = {
        "behind": [rapid, evaluation],
        "before": [evaluation, rapid],
        "rollout start": [rapid, At("_on_rollout_start", envs)],
        "rollout end": [rapid, At("_on_rollout_end", envs)],
    }[order]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        learn(envs, callbacks, 1200)
    episodes = rapid.buffer.episodes()
    assert len(episodes) > 5
    for episode in episodes:
        observations, actions = episode["observations"], episode["actions"]
        assert observations[0, 1] == -1
        assert observations[1:, 1].tolist() == actions[:-1].tolist()  # each action is the one that was taken
        assert len(set(observations[:, 0])) == 1
    assert sum("leaves out an episode" in str(warning.message) for warning in caught) == 1


@pytest.mark.parametrize("vec", [DummyVecEnv, functools.partial(SubprocVecEnv, start_method="fork")])
@pytest.mark.parametrize("counted", [True, False])
def test_attributes_of_a_wrapper_outside_mislead_nobody(vec, counted):
    envs = vec([lambda: Counts(EpisodeScoringWrapper(Echo(), count=counted)) for _ in range(2)])
    rapid = RapidCallback(bc_steps=1, bc_batch_size=8)
    learn(envs, rapid)
    envs.close()
    assert (rapid.buffer.counter is not None) == counted
    assert len(rapid.buffer) > 300
    assert not counted or rapid.buffer.counter.counts.sum() == len(rapid.buffer)


class Pictures(gym.Env):
    """Frames that all differ, alone or in a dictionary."""

    def __init__(self, shape=(36, 40, 1), nested=False, actions=None):
        image, self.nested = spaces.Box(0, 255, shape, np.uint8), nested
        vector = spaces.Box(-10, 10, (3,))
        self.observation_space = spaces.Dict(image=image, vector=vector) if nested else image
        self.action_space = actions or spaces.Discrete(3)
        self.rng = np.random.default_rng(0)

    def observe(self):
        image = self.rng.integers(0, 256, spaces.flatdim(spaces.Box(0, 1, self.shape())), np.uint8).reshape(
            self.shape()
        )
        return {"image": image, "vector": self.rng.normal(size=3).astype(np.float32)} if self.nested else image

    def shape(self):
        return (self.observation_space["image"] if self.nested else self.observation_space).shape

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self.observe(), {}

    def step(self, action):
        self.t += 1
        return self.observe(), 1.0, self.t == 7, False, {}


class Watch(RapidCallback):
    """Remembers what the policy saw before each action, in environment 0."""

    def _on_step(self):
        self.__dict__.setdefault("seen", []).append(map_arrays(lambda a: a[0].copy(), self.model._last_obs))
        return super()._on_step()


def leaves(tree):
    found = []
    map_arrays(found.append, tree)
    return found


AROUND = {
    "nothing": lambda envs: envs,
    "stack": lambda envs: VecFrameStack(envs, 4),
    "stack of transposed": lambda envs: VecFrameStack(VecTransposeImage(envs), 3),
    "transposed stack": lambda envs: VecTransposeImage(VecFrameStack(envs, 3)),
    "stack of stacks": lambda envs: VecFrameStack(VecFrameStack(envs, 2), 2),
}


@pytest.mark.parametrize("name", AROUND)
@pytest.mark.parametrize("nested", [False, True])
def test_the_policy_imitates_what_it_saw(name, nested):
    envs = AROUND[name](DummyVecEnv([lambda: EpisodeScoringWrapper(Pictures(nested=nested))]))
    watch = Watch(RankingBuffer(1000, w1=0.0, w2=0.0, rank=False), bc_steps=1, bc_batch_size=5)
    model = learn(envs, watch, 50, policy="MultiInputPolicy" if nested else "CnnPolicy")
    kept = map_arrays(lambda a: a[: len(watch.buffer)], watch.buffer._rows["observations"])
    seen = as_seen(model.env, kept)
    assert len(watch.buffer) == 49
    for mine, *theirs in zip(leaves(seen), *(leaves(x) for x in watch.seen[:49]), strict=True):
        np.testing.assert_array_equal(mine, np.stack(theirs))
    assert np.isfinite(watch.bc_loss)


@pytest.mark.parametrize("stack", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_floats_pass_through_the_current_statistics_of_vecnormalize(stack, nested):
    class Floats(Pictures):
        def __init__(self):
            super().__init__(nested=True)
            if not nested:
                self.observation_space = self.observation_space["vector"]

        def shape(self):
            return (36, 40, 1)

        def observe(self):
            return super().observe() if nested else super().observe()["vector"]

    envs = DummyVecEnv([lambda: EpisodeScoringWrapper(Floats())] * 2)
    envs = VecNormalize(VecFrameStack(envs, 3) if stack else envs, norm_obs_keys=["vector"] if nested else None)
    rapid = RapidCallback(RankingBuffer(1000, w1=0.0, w2=0.0), bc_steps=1, bc_batch_size=5)
    model = learn(envs, rapid, 200, policy="MultiInputPolicy" if nested else "MlpPolicy")
    raw = map_arrays(lambda a: a[:9], rapid.buffer._rows["observations"])
    expected = envs.normalize_obs(raw)
    found = as_seen(model.env, raw)
    vector = found["vector"] if nested else found
    assert vector.shape == (9, 9 if stack else 3)
    np.testing.assert_array_equal(vector, expected["vector"] if nested else expected)
    assert np.isfinite(rapid.bc_loss)


ACTIONS = [spaces.Box(-1, 1, (2, 3)), spaces.MultiDiscrete([3, 4]), spaces.MultiBinary(3), spaces.Box(-1, 1, (2,))]


@pytest.mark.parametrize("actions", ACTIONS, ids=str)
@pytest.mark.parametrize("cls", [PPO, A2C])
def test_actions_of_each_form_are_kept_and_imitated(actions, cls):
    envs = DummyVecEnv([lambda: EpisodeScoringWrapper(Echo(action_space=actions))] * 2)
    rapid = RapidCallback(RankingBuffer(10_000, w1=0.0, w2=0.0), bc_steps=2, bc_batch_size=16)
    model = learn(envs, rapid, cls=cls)
    observations, kept = rapid.buffer.sample(64)
    assert kept.shape[1:] == actions.shape
    if actions.dtype.kind == "f":
        assert np.abs(kept).max() > 1  # as drawn, before clipping
    kept, losses = kept[:1].repeat(64, axis=0), []  # the same action everywhere, which is easily learnt
    rapid.buffer = RankingBuffer(1000)
    rapid.buffer.add(observations, kept, (0, 0, 0))
    for _ in range(2):
        obs = model.policy.obs_to_tensor(observations)[0]
        with torch.no_grad():
            losses.append(
                -model.policy.evaluate_actions(obs, torch.as_tensor(kept).flatten(1).float())[1].mean().item()
            )
        rapid._bc_left, rapid._imitate, rapid.bc_steps = np.inf, True, 100
        rapid._clone()
    assert losses[1] < losses[0]


class Priced(gym.Env):
    """A walk of five places from the middle to a goal; beside the place it shows a price near 10 000."""

    observation_space, action_space = spaces.Box(-np.inf, np.inf, (2,)), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.t, self.price = 0, 0, 10_000.0
        return self.observe(), {}

    def observe(self):
        return np.float32([self.place, self.price])

    def step(self, action):
        self.t += 1
        self.place += 1 if action else -1
        self.price += self.np_random.normal() * 1000 * (action == 0)
        return self.observe(), float(self.place == 5), self.place == 5, self.t == 30, {}


@pytest.mark.slow
def test_a_large_unit_does_no_harm_behind_vecnormalize():
    """Takes about a minute; -rP shows the mean return at the end, without and with the callback."""
    found = {}
    for name in ("without", "with"):
        envs = DummyVecEnv([lambda: EpisodeScoringWrapper(Monitor(Priced())) for _ in range(4)])
        envs = VecNormalize(envs, norm_reward=False)
        envs.seed(1)
        model = learn(
            envs, [RapidCallback()] if name == "with" else [], 40_000, n_steps=128, batch_size=128, n_epochs=4
        )
        found[name] = np.mean([episode["r"] for episode in model.ep_info_buffer])
    print(found)
    assert found["with"] > 0.95
