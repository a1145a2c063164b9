"""RapidCallback in the real Stable-Baselines3: its PPO and A2C, its vector environments and wrappers."""

import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    SubprocVecEnv,
    VecEnvWrapper,
    VecFrameStack,
    VecNormalize,
    VecTransposeImage,
)

import rapid_wrappers.envs  # noqa: F401
from rapid_wrappers import EpisodeScoringWrapper, RankingBuffer, StateCounter
from rapid_wrappers.sb3 import RapidCallback
from rapid_wrappers.sb3_observations import as_seen

MULTIROOM = "rapid/MultiRoom-N2-S4-v0"


class Told(gym.Env):
    """Episodes of given lengths. The observation tells environment, episode and step; each step pays 1."""

    def __init__(self, number=0, lengths=(3, 5, 2), space=None, action_space=None):
        self.number, self.lengths, self.episode = number, lengths, -1
        self.observation_space = space or spaces.Box(0, 1000, (3,), np.float32)
        self.action_space = action_space or spaces.Box(-0.1, 0.1, (2,), np.float32)
        self.received = {}

    def _obs(self):
        if self.observation_space.dtype == np.uint8:  # an image of no symmetry
            image = np.zeros(self.observation_space.shape, np.uint8)
            image[0, :, 0], image[:, 1, 1], image[2, 3] = self.number + 1, self.episode + 1, self.t + 1
            return image
        return np.array([self.number, self.episode, self.t], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.t = self.episode + 1, 0
        return self._obs(), {}

    def step(self, action):
        self.received[self.number, self.episode, self.t] = np.array(action)
        self.t += 1
        return self._obs(), 1.0, self.t == self.lengths[self.episode % len(self.lengths)], False, {}


def told(num_envs, monitor=True, vec=DummyVecEnv, **kwargs):
    def thunk(i):
        env = EpisodeScoringWrapper(Told(i, **kwargs))
        return Monitor(env) if monitor else env

    return vec([lambda i=i: thunk(i) for i in range(num_envs)])


class Doubled(VecEnvWrapper):
    """Changes observations in a way of its own."""

    def reset(self):
        return 2 * self.venv.reset()

    def step_wait(self):
        observations, *rest = self.venv.step_wait()
        return 2 * observations, *rest


def ppo(envs, cls=PPO, **kwargs):
    if cls is PPO:
        kwargs = {"batch_size": 16, "n_epochs": 1, **kwargs}
    return cls(
        kwargs.pop("policy", "MlpPolicy"), envs, n_steps=kwargs.pop("n_steps", 16), seed=1, device="cpu", **kwargs
    )


@pytest.mark.parametrize("monitor", [False, True])
@pytest.mark.parametrize("cls", [PPO, A2C])
def test_each_episode_is_ranked_once_with_what_the_policy_drew(cls, monitor):
    envs = told(3, monitor)
    callback = RapidCallback(RankingBuffer(10_000, w1=0.0, w2=0.0), bc_steps=1, bc_batch_size=8)
    drawn = {}

    class Spy(RapidCallback):
        def _on_step(self):
            for obs, action in zip(self.model._last_obs, self.locals["actions"], strict=True):
                drawn[tuple(obs)] = action
            return RapidCallback._on_step(self)

    callback.__class__ = Spy
    ppo(envs, cls).learn(96, callback)
    rows = callback.buffer._rows
    observations = rows["observations"][: len(callback.buffer)]
    assert len({tuple(x) for x in observations}) == len(observations)  # none twice
    steps = 96 // 3
    finished, lengths = 0, (3, 5, 2)
    for _ in range(3):
        t = k = 0
        while t + lengths[k % 3] <= steps:
            t, k = t + lengths[k % 3], k + 1
        finished += t
    assert len(observations) == finished  # none lost
    for obs, action in zip(observations, rows["actions"], strict=False):
        assert np.array_equal(drawn[tuple(obs)], action)
    assert np.abs(rows["actions"][: len(observations)]).max() > 0.5  # unclipped, of a box of 0.1


def test_sampled_observations_take_the_form_that_the_policy_sees_now():
    envs = VecNormalize(told(2), norm_reward=True)
    callback = RapidCallback(RankingBuffer(100, w1=0.0, w2=0.0), bc_batch_size=8)
    model = ppo(envs)
    model.learn(64, callback)
    raw = callback.buffer._rows["observations"][:5]
    assert raw.dtype == np.float32 and raw[:, 2].max() >= 1  # as the environment returned them
    assert np.array_equal(as_seen(model.env, raw), envs.normalize_obs(raw))
    assert callback.buffer.scores.max() == 5  # raw rewards


@pytest.mark.parametrize("outside", [False, True])
def test_an_asymmetric_image_reaches_the_policy_in_the_same_form_as_for_acting(outside):
    space = spaces.Box(0, 255, (36, 40, 3), np.uint8)
    envs = told(2, space=space, action_space=spaces.Discrete(3))
    if outside:  # the model puts VecTransposeImage outermost; a user may put it further in
        envs = VecNormalize(VecTransposeImage(envs), norm_obs=True, norm_reward=False)
    policy = "MlpPolicy" if outside else "CnnPolicy"
    model = ppo(envs, policy=policy, policy_kwargs={"normalize_images": False} if outside else None)
    seen = {}

    class Spy(RapidCallback):
        def _on_step(self):
            number = [int(x) for x in self.training_env.get_attr("t")]
            seen.setdefault(len(seen), (number, self.model._last_obs.copy()))
            return super()._on_step()

    callback = Spy(RankingBuffer(100, w1=0.0, w2=0.0), bc_steps=1, bc_batch_size=4)
    model.learn(32, callback)
    raw = callback.buffer._rows["observations"][: len(callback.buffer)]
    assert raw.dtype == np.uint8 and raw.shape[1:] == (36, 40, 3)
    last = np.stack([np.concatenate([x]) for x in model._last_obs])
    unseen = as_seen(model.env, raw)
    assert unseen.shape[1:] == last.shape[1:] == (3, 36, 40)
    if not outside:
        acted = {x.tobytes() for _, obs in seen.values() for x in obs}
        assert all(x.tobytes() in acted for x in unseen)


@pytest.mark.parametrize(
    "action_space", [spaces.Discrete(4), spaces.MultiDiscrete([3, 4]), spaces.MultiBinary(3), spaces.Box(-1, 1, (2,))]
)
def test_imitation_makes_kept_actions_likelier(action_space):
    envs = told(2, action_space=action_space, lengths=(200,))
    model = ppo(envs, policy_kwargs={"use_expln": False})
    callback = RapidCallback(RankingBuffer(100, w1=0.0, w2=0.0), bc_steps=0)
    model.learn(16, callback)
    observations = np.array([[0, 0, t] for t in range(20)], np.float32)
    draw = [action_space.sample() for _ in range(20)]
    callback.buffer.add(observations, np.stack(draw), (1.0, 0.0, 0.0))
    callback.bc_steps, losses = 20, []
    callback._imitate, callback._bc_left = True, np.inf
    for _ in range(5):
        callback._clone()
        losses.append(callback.bc_loss)
    assert losses[-1] < losses[0]
    obs, actions = model.policy.obs_to_tensor(observations)[0], torch.as_tensor(np.stack(draw))
    binary = isinstance(action_space, spaces.MultiBinary)
    _, log_prob, _ = model.policy.evaluate_actions(obs, actions.float() if binary else actions)
    assert -log_prob.mean().item() < losses[0]


@pytest.mark.parametrize("kwargs", [{"use_sde": True}, {"use_sde": True, "policy_kwargs": {"squash_output": True}}])
def test_it_works_with_state_dependent_noise(kwargs):
    callback = RapidCallback(RankingBuffer(100, w1=0.0, w2=0.0), bc_steps=2, bc_batch_size=8)
    ppo(told(2), **kwargs).learn(64, callback)
    assert np.isfinite(callback.bc_loss)


@pytest.mark.parametrize("vec", [DummyVecEnv, SubprocVecEnv])
def test_states_of_all_environments_are_counted_in_one_counter(vec):
    kwargs = {"start_method": "fork"} if vec is SubprocVecEnv else {}
    envs = make_vec_env(
        MULTIROOM, 2, seed=0, wrapper_class=EpisodeScoringWrapper, vec_env_cls=vec, vec_env_kwargs=kwargs
    )
    callback = RapidCallback(bc_steps=1)
    model = ppo(envs, policy_kwargs={"normalize_images": False}, n_steps=64)
    model.learn(256, callback)
    envs.close()
    assert isinstance(callback.buffer.counter, StateCounter)
    assert callback.buffer.counter.counts.sum() == len(callback.buffer) > 0
    assert callback.buffer.scores[0] > 0


def test_it_is_saved_with_the_model_and_continues(tmp_path):
    def envs():
        return make_vec_env(MULTIROOM, 2, seed=0, wrapper_class=EpisodeScoringWrapper)

    callback = RapidCallback(bc_steps=1, bc_batch_size=8)
    model = ppo(envs(), policy_kwargs={"normalize_images": False}, n_steps=64)
    model.learn(256, callback)
    callback.save(tmp_path / "run.zip")  # like Stable-Baselines3, with or without the ending
    scores = callback.buffer.scores
    assert sorted(x.name for x in tmp_path.iterdir()) == ["run.rapid.pt", "run.zip"]
    again = PPO.load(tmp_path / "run", env=envs(), device="cpu")
    loaded = RapidCallback(bc_steps=1, bc_batch_size=8).load(tmp_path / "run")
    at_start = {}

    class Spy(BaseCallback):
        def _on_training_start(self):
            at_start["scores"] = loaded.buffer.scores

        def _on_step(self):
            return True

    again.learn(128, CallbackList([loaded, Spy()]), reset_num_timesteps=False)
    assert again.num_timesteps == 384
    assert np.array_equal(at_start["scores"], scores)
    assert loaded.buffer.counter.counts.sum() > callback.buffer.counter.counts.sum()


def test_a_second_learn_continues_the_episodes_in_flight():
    envs = told(1, lengths=(20,))
    callback = RapidCallback(RankingBuffer(1000, w1=0.0, w2=0.0), bc_steps=1, bc_batch_size=8)
    model = ppo(envs)
    model.learn(16, callback)
    model.learn(16, callback, reset_num_timesteps=False)
    assert len(callback.buffer) == 20
    other = RapidCallback(RankingBuffer(1000, w1=0.0, w2=0.0), bc_steps=1, bc_batch_size=8)
    with pytest.warns(UserWarning, match="leaves out an episode"):
        model.learn(16, other, reset_num_timesteps=False)
    model.learn(16, other, reset_num_timesteps=False)
    assert len(other.buffer) == 20


@pytest.mark.parametrize("evaluate", [False, True])
def test_an_evaluation_on_the_same_environments_between_two_calls_of_learn_mixes_no_actions(evaluate):
    callback = RapidCallback(RankingBuffer(10_000, w1=0.0, w2=0.0), bc_steps=0)
    lengths = ((5, 7), (8, 4), (6, 3))  # an evaluation then ends in the middle of some episodes
    envs = DummyVecEnv([lambda i=i: Monitor(EpisodeScoringWrapper(Told(i, lengths[i]))) for i in range(3)])
    model = ppo(envs)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(6):
            model.learn(48, callback, reset_num_timesteps=False)
            if evaluate:
                evaluate_policy(model, envs, n_eval_episodes=4, warn=False)
    taken = {key: action for received in envs.get_attr("received") for key, action in received.items()}
    kept = callback.buffer.episodes()
    assert len(kept) > 20
    for episode in kept:
        assert episode["observations"][:, 2].tolist() == list(range(len(episode["actions"])))
        for obs, action in zip(episode["observations"], episode["actions"], strict=True):
            assert np.array_equal(taken[tuple(obs)], np.clip(action, -0.1, 0.1))
    assert any("leaves out an episode" in str(warning.message) for warning in found) == evaluate


def test_imitation_pauses_below_the_target_loss_until_the_next_rollout():
    assert imitation_updates(bc_steps=3, bc_target_loss=1e9) == 2  # in two rollouts


def test_short_episodes_do_not_make_imitation_outweigh_the_algorithm():
    assert imitation_updates(bc_steps=3, bc_frames_per_step=8) == 2 * (16 // 8)
    assert imitation_updates(bc_steps=3, bc_frames_per_step=0) > 20


def imitation_updates(**kwargs):
    """The number of updates in two rollouts of 16 steps, in which eight episodes or more end."""
    callback = RapidCallback(RankingBuffer(100, w1=0.0, w2=0.0), **kwargs)
    updates = []
    model = ppo(told(1, action_space=spaces.Discrete(2)))
    step = model.policy.optimizer.step
    model.policy.optimizer.step = lambda *args, **kwargs: (updates.append(1), step(*args, **kwargs))
    model.learn(32, callback)
    return len(updates) - 2  # without a minibatch of PPO in each


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: ppo(DummyVecEnv([Told])), ValueError, "wrapper_class=EpisodeScoringWrapper"),
        (lambda: ppo(Doubled(told(1))), ValueError, "no Doubled around"),
        (lambda: ppo(VecFrameStack(VecNormalize(told(1)), 2)), ValueError, "VecNormalize around VecFrameStack"),
        (lambda: DQN("MlpPolicy", told(1, action_space=spaces.Discrete(2))), TypeError, "on-policy"),
    ],
)
def test_unsupported_models_and_environments_are_refused_before_training(make, error, match):
    with pytest.raises(error, match=match):
        make().learn(16, RapidCallback())


def test_wrappers_without_records_are_refused():
    with pytest.raises(ValueError, match="record=True"):
        ppo(DummyVecEnv([lambda: EpisodeScoringWrapper(Told(), record=False)])).learn(16, RapidCallback())


def test_observations_changed_outside_the_scoring_wrapper_are_refused():
    def env():
        return gym.wrappers.FrameStackObservation(EpisodeScoringWrapper(Told()), 2)

    with pytest.raises(ValueError, match="the scoring wrapper belongs around"):
        ppo(DummyVecEnv([env])).learn(16, RapidCallback())


@pytest.mark.parametrize(
    ("kwargs", "error"),
    [
        ({"bc_steps": -1}, ValueError),
        ({"bc_batch_size": 0}, ValueError),
        ({"bc_frames_per_step": -1}, ValueError),
        ({"bc_sequence_length": 0}, ValueError),
        ({"bc_target_loss": float("nan")}, ValueError),
        ({"buffer": 3}, TypeError),
    ],
)
def test_bad_arguments_are_refused(kwargs, error):
    with pytest.raises(error, match="expected"):
        RapidCallback(**kwargs)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_with_the_callback_ppo_solves_a_task_that_it_never_solves_alone(seed):
    """Takes minutes a seed on two cores. -rP shows the mean return of the last 100 episodes, every 50 000 frames."""

    def learn(callbacks):
        class Curve(BaseCallback):
            def _on_step(self):
                if self.num_timesteps % 50_176 == 0:
                    curve.append(float(np.mean([episode["r"] for episode in self.model.ep_info_buffer])))
                return True

        curve = []
        envs = make_vec_env("rapid/MultiRoom-N7-S4-v0", n_envs=8, seed=seed, wrapper_class=EpisodeScoringWrapper)
        model = PPO("MlpPolicy", envs, learning_rate=1e-3, n_steps=128, batch_size=256, n_epochs=4, ent_coef=0.01,
                    seed=seed, device="cpu", policy_kwargs={"normalize_images": False})  # fmt: skip
        model.learn(301_056, CallbackList([*callbacks, Curve()]))
        return curve

    buffer = RankingBuffer(5000, age_penalty=0.05, counter=StateCounter(), seed=seed)
    without, with_it = learn([]), learn([RapidCallback(buffer, bc_target_loss=0.3)])
    print(f"seed {seed}, without: {np.round(without, 3)}, with: {np.round(with_it, 3)}")
    assert max(without) == 0.0
    assert max(with_it) > 0.7
