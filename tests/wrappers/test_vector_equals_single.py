"""Episode for episode the vector wrapper gives the same as the single one."""

import functools
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

import rapid_wrappers.envs  # noqa: F401
from rapid_wrappers import (
    EpisodeScoringWrapper,
    StateCounter,
    VectorEpisodeScoringWrapper,
    finished_episodes,
)
from tests.scripted_env import ScriptedEnv, make_grid
from tests.wrappers.vector_episodes import (
    DISABLED,
    NEXT_STEP,
    SAME_STEP,
    assert_same_episodes,
    each_mode,
    run,
    run_singly,
)


@each_mode
@pytest.mark.parametrize(
    "env_id", ["rapid/MultiRoom-N2-S4-v0", "rapid/KeyCorridorS3R1-v0", "CartPole-v1", "Pendulum-v1", "FrozenLake-v1"]
)
def test_each_episode_is_the_same_as_with_the_single_wrapper(env_id, mode):
    make_env = functools.partial(gym.make, env_id, max_episode_steps=25)
    envs = VectorEpisodeScoringWrapper(SyncVectorEnv([make_env] * 3, autoreset_mode=mode), normalize=False)
    envs.action_space.seed(0)
    actions = [envs.action_space.sample() for _ in range(120)]
    assert_same_episodes(run(envs, 120, actions, seed=5), run_singly(make_env, 3, mode, 120, actions, seed=5))


@each_mode
def test_each_episode_of_the_native_engine_is_the_same_as_with_the_single_wrapper_around_minigrid(mode):
    env_id = "rapid/KeyCorridorS3R1-v0"
    envs = VectorEpisodeScoringWrapper(gym.make_vec(env_id, 3, "vector_entry_point", autoreset_mode=mode))
    envs.action_space.seed(0)
    actions = [envs.action_space.sample() for _ in range(300)]
    theirs = run_singly(functools.partial(gym.make, env_id), 3, mode, 300, actions, seed=5)
    assert_same_episodes(run(envs, 300, actions, seed=5), theirs)


@pytest.mark.parametrize(
    ("mode", "context"), [(NEXT_STEP, "fork"), (SAME_STEP, "fork"), (DISABLED, "fork"), (NEXT_STEP, "spawn")]
)
def test_each_episode_of_an_async_environment_is_the_same_as_of_a_sync_one(mode, context):
    makers = [functools.partial(ScriptedEnv, length, tag=i) for i, length in enumerate([(3,), (5, 2)])]
    envs = AsyncVectorEnv(makers, autoreset_mode=mode, context=context)
    ours = run(VectorEpisodeScoringWrapper(envs), 20)
    envs.close()
    assert_same_episodes(ours, run(VectorEpisodeScoringWrapper(SyncVectorEnv(makers, autoreset_mode=mode)), 20))


def test_our_ids_run_in_spawned_workers_while_one_counter_in_this_process_counts_them_all():
    envs = VectorEpisodeScoringWrapper(AsyncVectorEnv([make_grid] * 2, context="spawn"))
    envs.action_space.seed(0)
    found = run(envs, 90, [envs.action_space.sample() for _ in range(90)], seed=0)
    ids = np.concatenate([episode.state_ids for *_, episode in found])
    assert len(envs.counter) == len(np.unique(ids)) == ids.max() + 1
    envs.close()


def test_infos_have_the_same_form_as_those_of_single_wrappers_in_a_gymnasium_vector_environment():
    makers = [functools.partial(ScriptedEnv, [n], tag=n) for n in (2, 2, 3)]
    counter = StateCounter()
    inside = SyncVectorEnv([lambda make=make: EpisodeScoringWrapper(make(), counter=counter) for make in makers])
    around = VectorEpisodeScoringWrapper(SyncVectorEnv(makers))
    for envs in (inside, around):
        envs.reset()
        envs.step([0, 0, 0])
    theirs, ours = (envs.step([0, 0, 0])[4] for envs in (inside, around))
    assert ours.keys() == theirs.keys()
    assert ours["episode_scores"].keys() == theirs["episode_scores"].keys()
    for key in ("extrinsic", "local", "global", "_extrinsic", "_local", "_global"):
        np.testing.assert_array_equal(ours["episode_scores"][key], theirs["episode_scores"][key])


@pytest.mark.slow
@pytest.mark.parametrize("num_envs", [1, 5])
def test_around_envpool_each_episode_is_whole(num_envs):
    envpool = pytest.importorskip("envpool")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        envs = envpool.make("MiniGrid-KeyCorridorS3R1-v0", env_type="gymnasium", num_envs=num_envs, seed=3)
    wrapped = VectorEpisodeScoringWrapper(envs)
    seen, _ = wrapped.reset()
    rng = np.random.default_rng(0)
    rows = [[] for _ in range(num_envs)]
    episodes = 0
    for _ in range(1500):
        actions = rng.integers(7, size=num_envs).astype(np.int32)
        for i in range(num_envs):
            rows[i].append((seen["image"][i].copy(), actions[i]))
        seen, _, terminations, truncations, infos = wrapped.step(actions)
        found = dict(finished_episodes(infos))
        assert list(found) == np.flatnonzero(terminations | truncations).tolist()
        for i, episode in found.items():
            episodes += 1
            assert len(episode) <= 270
            np.testing.assert_array_equal(episode.observations["image"], [obs for obs, _ in rows[i]][-len(episode) :])
            np.testing.assert_array_equal(episode.actions, [action for _, action in rows[i]][-len(episode) :])
            # between two episodes there is one row, the action that EnvPool ignores
            assert len(rows[i]) - len(episode) == (0 if episodes <= num_envs and len(rows[i]) == len(episode) else 1)
            rows[i] = []
    assert episodes >= 5 * num_envs
