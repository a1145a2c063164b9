"""Vector forms of other packages: they restart in the step that ends an episode, and give what a network takes."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from rapid_wrappers import VectorEpisodeScoringWrapper, finished_episodes
from rapid_wrappers.training.environments import make_envs
from rapid_wrappers.training.spaces import discrete_actions, flat_observations, image_observations
from tests.training.environment_args import arguments

pytestmark = [pytest.mark.zoo, pytest.mark.filterwarnings("ignore")]


def flat(env, args):
    return discrete_actions(flat_observations(env, args, codes=True))


def images(env, args):
    return discrete_actions(image_observations(env))


def test_envpool_restarts_one_environment_while_the_others_go_on():
    pytest.importorskip("envpool")
    envs = make_envs(arguments("envpool:CartPole-v1", max_episode_steps=60), flat, 4, "vector")
    assert envs.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    before, infos = envs.reset(seed=[1, 2, 3, 4])
    steps, alone = np.zeros(4, int), 0
    rng = np.random.default_rng(0)
    for _ in range(300):
        observations, rewards, terminated, truncated, infos = envs.step(rng.integers(2, size=4))
        ended = terminated | truncated
        steps = np.where(ended, 0, steps + 1)
        assert infos["elapsed_step"].tolist() == steps.tolist()
        assert rewards.tolist() == [1.0] * 4
        assert (np.abs(observations[ended]) <= 0.05).all()  # first observations
        for i in np.flatnonzero(ended):
            final = infos["final_obs"][i]
            assert terminated[i] == (abs(final[0]) > 2.4 or abs(final[2]) > 0.2095)
            assert np.abs(final - before[i]).max() < 1.5  # one step after the observation before
        alone += ended.sum() == 1
        before = observations
    assert alone > 5
    envs.close()


@pytest.mark.parametrize(
    ("package", "env_id"), [("envpool", "envpool:Pong-v5"), ("ale_py", "ale_py:ALE/Pong-v5"),
                            ("ale_py", "ale_py:ALE/Freeway-v5")]
)  # fmt: skip
def test_atari_gives_stacked_frames_with_channels_last_and_whole_episodes(package, env_id):
    pytest.importorskip(package)
    limit = {"max_episode_steps": 30} if package == "envpool" else {"env_kwargs": ("max_num_frames_per_episode=120",)}
    envs = VectorEpisodeScoringWrapper(make_envs(arguments(env_id, **limit), images, 2, "vector"))
    assert envs.single_observation_space == gym.spaces.Box(0, 255, (84, 84, 4), np.uint8)
    observations, _ = envs.reset(seed=[1, 2])
    rows, found = [[], []], []
    for _ in range(80):
        for i in range(2):
            rows[i].append(observations[i].copy())
        observations, *_, infos = envs.step(envs.action_space.sample())
        for i, episode in finished_episodes(infos):
            np.testing.assert_array_equal(episode.observations, rows[i])
            found.append(episode)
            rows[i] = []
    assert len(found) >= 4
    assert all(np.array_equal(now[..., :3], before[..., 1:])
               for episode in found for before, now in zip(episode.observations, episode.observations[1:], strict=False)
               )  # fmt: skip
    envs.close()
