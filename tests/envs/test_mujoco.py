import pickle
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import rapid_wrappers.envs  # noqa: F401
from rapid_wrappers import EpisodeScoringWrapper
from rapid_wrappers.envs import EpisodicRewardWrapper
from tests.scripted_env import ScriptedEnv, play

SPARSE = {
    "rapid/SparseWalker2d-v0": ("Walker2d-v5", 17, 6),
    "rapid/SparseHopper-v0": ("Hopper-v5", 11, 3),
    "rapid/SparseInvertedPendulum-v0": ("InvertedPendulum-v5", 4, 1),
    "rapid/SparseSwimmer-v0": ("Swimmer-v5", 8, 2),
}
FLUID = {"rapid/DensitySwimmer-v0": ("density", 2000, 4000), "rapid/ViscositySwimmer-v0": ("viscosity", 0.1, 0.5)}
IDS = [*SPARSE, *FLUID]


def fluid(env):
    return env.unwrapped.model.opt.density, env.unwrapped.model.opt.viscosity


@pytest.mark.parametrize("env_id", SPARSE)
def test_a_sparse_task_is_gymnasiums_v5_whose_return_is_paid_on_the_last_step(env_id):
    dense_id, num_obs, num_actions = SPARSE[env_id]
    dense, sparse = gym.make(dense_id), gym.make(env_id)
    assert sparse.spec.max_episode_steps == dense.spec.max_episode_steps == 1000
    assert sparse.spec.reward_threshold == dense.spec.reward_threshold
    dense, sparse = (gym.make(id, max_episode_steps=150) for id in (dense_id, env_id))
    assert (sparse.observation_space, sparse.action_space) == (dense.observation_space, dense.action_space)
    assert (sparse.observation_space.shape, sparse.action_space.shape) == ((num_obs,), (num_actions,))
    sparse.action_space.seed(0)
    for episode in range(2):
        observations = [env.reset(seed=5 if episode == 0 else None)[0] for env in (dense, sparse)]
        np.testing.assert_array_equal(*observations)
        total, done = 0.0, False
        while not done:
            action = sparse.action_space.sample() * (1 if episode else 0.1)
            obs, reward, terminated, truncated, _ = dense.step(action)
            sparse_obs, paid, *ends, _ = sparse.step(action)
            np.testing.assert_array_equal(obs, sparse_obs)
            assert [terminated, truncated] == ends
            total, done = total + reward, terminated or truncated
            assert paid == (total if done else 0.0)
    assert truncated == ("Swimmer" in env_id)


@pytest.mark.parametrize("env_id", IDS)
def test_a_truncated_episode_is_paid_and_a_reset_discards_the_return_so_far(env_id):
    env, whole = (gym.make(env_id, max_episode_steps=4) for _ in range(2))
    whole.reset(seed=2)
    rewards = [float(whole.step(np.zeros(whole.action_space.shape, np.float32))[1]) for _ in range(4)]
    assert rewards[:3] == [0.0, 0.0, 0.0]
    env.reset(seed=1)
    for _ in range(3):
        env.step(env.action_space.sample())
    env.reset(seed=2)
    for t in range(4):
        _, reward, terminated, truncated, _ = env.step(np.zeros(env.action_space.shape, np.float32))
        assert reward == rewards[t]
    assert (terminated, truncated) == (False, True)


@pytest.mark.parametrize("ends", [(True, False), (False, True), (True, True)])
def test_the_episodic_reward_of_a_scripted_episode(ends):
    env = EpisodicRewardWrapper(ScriptedEnv([3, 1], rewards=[1.0, -4.0, 0.5], ends=ends))
    for lengths in ([0.0, 0.0, -2.5], [1.0]) * 2:
        env.reset()
        assert [env.step(0)[1] for _ in lengths] == lengths
    assert env.step(0)[1] == -4.0  # a step after the end pays nothing a second time


def test_rewards_in_arrays_are_paid_as_numbers():
    env = EpisodicRewardWrapper(ScriptedEnv([2], rewards=[np.ones(1), np.array(2)]))
    env.reset()
    assert [env.step(0)[1] for _ in range(2)] == [0.0, 3.0]


def test_the_score_sees_the_episodic_reward_and_the_spec_rebuilds_the_wrapper():
    info = play(EpisodeScoringWrapper(EpisodicRewardWrapper(ScriptedEnv([4], rewards=[2.0]))))
    assert info["episode_scores"]["extrinsic"] == 8.0
    rebuilt = gym.make(EpisodicRewardWrapper(gym.make("CartPole-v1")).spec)
    assert isinstance(rebuilt, EpisodicRewardWrapper)


@pytest.mark.parametrize("env_id", FLUID)
def test_each_reset_draws_a_new_fluid_into_the_compiled_model(env_id):
    name, low, high = FLUID[env_id]
    env, other = gym.make(env_id), gym.make(env_id)
    assert fluid(env) == (4000.0, 0.1)  # before any reset
    drawn = []
    for episode in range(100):
        env.reset(seed=0 if episode == 0 else None)
        drawn.append(dict(zip(("density", "viscosity"), fluid(env), strict=True)))
        env.step(env.action_space.sample())
        assert dict(zip(("density", "viscosity"), fluid(env), strict=True)) == drawn[-1]
    assert fluid(other) == (4000.0, 0.1)  # instances share nothing
    values = np.array([d[name] for d in drawn])
    assert len(set(values)) == 100
    assert low <= values.min() < low + 0.05 * (high - low)
    assert high >= values.max() > high - 0.05 * (high - low)
    assert {d["density" if name == "viscosity" else "viscosity"] for d in drawn} == {
        4000.0 if name == "viscosity" else 0.1
    }


@pytest.mark.parametrize("env_id", FLUID)
def test_the_fluid_follows_the_seed_and_moves_the_swimmer(env_id):
    ends = []
    for seed in (0, 0, 1):
        env = gym.make(env_id)
        env.reset(seed=seed)
        env.reset()
        env.unwrapped.set_state(env.unwrapped.init_qpos, env.unwrapped.init_qvel)
        for _ in range(50):
            obs = env.step(np.array([1.0, -1.0], np.float32))[0]
        ends.append((*fluid(env), *obs))
    assert ends[0] == ends[1]
    assert ends[0] != ends[2]
    assert not np.allclose(ends[0][2:], ends[2][2:])


def test_a_swimmer_in_the_models_own_fluid_is_gymnasiums():
    ours, theirs = gym.make("rapid/DensitySwimmer-v0", density=(4000, 4000)), gym.make("Swimmer-v5")
    ours.reset(seed=0)
    theirs.reset(seed=0)
    for env in (ours, theirs):
        env.unwrapped.set_state(env.unwrapped.init_qpos, env.unwrapped.init_qvel)
    for t in range(100):
        action = np.array([np.sin(t), np.cos(t)], np.float32)
        np.testing.assert_array_equal(ours.step(action)[0], theirs.step(action)[0])


@pytest.mark.parametrize("bounds", [(3000, 2000), (-1, 5), (0, np.inf), (np.nan, 1), 3000, "x", (1, 2, 3), (None, 3)])
def test_anything_but_a_finite_range_is_refused(bounds):
    with pytest.raises(ValueError, match="expected `density` to be"):
        gym.make("rapid/DensitySwimmer-v0", density=bounds)


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version")
@pytest.mark.filterwarnings("ignore:.*observation space (minimum|maximum) value is")  # of Gymnasium's own spaces
@pytest.mark.filterwarnings("ignore:.*For Box action spaces, we recommend using a symmetric")
@pytest.mark.parametrize("env_id", IDS)
def test_gymnasiums_checker_passes(env_id):
    check_env(gym.make(env_id), skip_render_check=True)


@pytest.mark.parametrize("env_id", FLUID)
def test_a_copy_by_pickle_or_spec_draws_from_the_same_range(env_id):
    env = gym.make(env_id, reset_noise_scale=0.0)
    expected = env.reset(seed=3)[0], fluid(env)
    for copy in (pickle.loads(pickle.dumps(env)), gym.make(env.spec)):
        obs = copy.reset(seed=3)[0]
        np.testing.assert_array_equal(obs, expected[0])
        assert fluid(copy) == expected[1]
        assert not obs[:3].any()  # no reset noise


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_the_ids_work_in_the_workers_of_an_async_vector_environment(context):
    env_id = "rapid/DensitySwimmer-v0"
    kwargs = {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}
    runs = []
    for mode in ("sync", "async"):
        extra = {"context": context} if mode == "async" else {}
        envs = gym.make_vec(env_id, 2, mode, vector_kwargs=kwargs | extra, max_episode_steps=3)
        envs.reset(seed=3)
        runs.append([envs.step(np.full((2, 2), 0.5, np.float32))[:2] for _ in range(6)])
        envs.close()
    np.testing.assert_equal(*runs)
    assert runs[0][2][1].all()
    assert not runs[0][1][1].any()


def test_a_missing_mujoco_is_named_with_the_extra_to_install():
    code = (
        "import sys; sys.modules['mujoco'] = None; import gymnasium as gym, rapid_wrappers.envs\n"
        f"for env_id in {IDS}:\n"
        "    try: gym.make(env_id)\n"
        "    except gym.error.DependencyNotInstalled as e: assert '[mujoco]' in str(e), e\n"
        "    else: raise SystemExit('no error')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_upstream_ids_are_left_alone():
    assert gym.spec("Swimmer-v5").additional_wrappers == ()


def test_seed_and_options_reach_the_environment():
    stub = ScriptedEnv()
    EpisodicRewardWrapper(stub).reset(seed=4, options={"level": 1})
    assert (stub.np_random_seed, stub.options) == (4, [{"level": 1}])
