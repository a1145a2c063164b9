"""Environments of other packages: record, score, sample and imitate, checked by an independent naive reading."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rapid_wrappers import (
    EpisodeScoringWrapper,
    RankingBuffer,
    VectorEpisodeScoringWrapper,
    bc_step,
    finished_episodes,
)

pytestmark = [pytest.mark.zoo, pytest.mark.filterwarnings("ignore")]
LIMIT = 40  # steps of an episode


def robotics(env_id, **arguments):
    gym.register_envs(pytest.importorskip("gymnasium_robotics"))
    return gym.make(env_id, max_episode_steps=LIMIT, **arguments)


def atari(env_id, stack=True, grey=True):
    gym.register_envs(pytest.importorskip("ale_py"))
    pytest.importorskip("cv2")
    env = gym.make(env_id, frameskip=1, max_episode_steps=LIMIT * 4)
    env = gym.wrappers.AtariPreprocessing(env, noop_max=0, grayscale_obs=grey)
    return gym.wrappers.FrameStackObservation(env, 4) if stack else env


def vizdoom():
    pytest.importorskip("vizdoom.gymnasium_wrapper")
    return gym.make("VizdoomBasic-v1", max_episode_steps=LIMIT)


def popgym():
    pytest.importorskip("popgym")
    return gym.make("popgym-RepeatPreviousEasy-v0")


def highway():
    gym.register_envs(pytest.importorskip("highway_env"))
    return gym.make("parking-v0", max_episode_steps=LIMIT)


def babyai(env_id):
    pytest.importorskip("minigrid")
    env = gym.make(env_id, max_episode_steps=LIMIT)
    return gym.wrappers.FilterObservation(env, ["direction", "image"])  # without the mission


# Each with what it must be scored by, and whether it is counted.
ENVIRONMENTS = {
    "PointMaze": (lambda: robotics("PointMaze_UMaze-v3", continuing_task=False), "std", False),
    "AntMaze": (lambda: robotics("AntMaze_UMaze-v5", continuing_task=False), "std", False),
    "Freeway, grey stack": (lambda: atari("ALE/Freeway-v5"), "std", False),
    "Freeway, grey": (lambda: atari("ALE/Freeway-v5", stack=False), "std", False),
    "Freeway, stack in colour": (lambda: atari("ALE/Freeway-v5", grey=False), "std", False),
    "MontezumaRevenge, grey stack": (lambda: atari("ALE/MontezumaRevenge-v5"), "std", False),
    "VizDoom": (vizdoom, "std", False),
    "popgym": (popgym, "distinct", True),
    "highway parking": (highway, "std", False),
    "BabyAI": (lambda: babyai("BabyAI-GoToRedBallGrey-v0"), "distinct", True),
    "BabyAI, many rooms": (lambda: babyai("BabyAI-GoTo-v0"), "distinct", True),
}


def entries(observation):
    """The arrays of one observation, in the order of its space."""
    if isinstance(observation, dict):
        return [leaf for name in sorted(observation) for leaf in entries(observation[name])]
    if isinstance(observation, tuple):
        return [leaf for entry in observation for leaf in entries(entry)]
    return [np.array(observation)]


def naive_local(episode, seen, local):
    """The local score of a list of observations, where ``seen`` are all observations so far."""
    if local == "distinct":
        return len({b"".join(leaf.tobytes() for leaf in entries(obs)) for obs in episode}) / len(episode)
    scores = []
    for rows, all_rows in zip(*(zip(*map(entries, part), strict=True) for part in (episode, seen)), strict=True):
        rows = np.stack(rows).astype(float)
        if all_rows[0].dtype == np.uint8 and sum(n >= 32 for n in all_rows[0].shape) >= 2:
            scores.append((rows / 255).std(axis=0).mean())
            continue
        everything = np.stack(all_rows).astype(float)
        unit = everything.std(axis=0)
        unit[unit <= 1e-9 * abs(everything.mean(axis=0))] = 1
        scores.append(((rows - everything.mean(axis=0)) / unit).clip(-10, 10).std(axis=0).mean())
    return np.mean(scores)


class Policy(torch.nn.Module):
    """A linear policy on all entries, flattened."""

    def __init__(self, action_space):
        super().__init__()
        self.discrete = isinstance(action_space, spaces.Discrete)
        self.layer = torch.nn.LazyLinear(action_space.n if self.discrete else int(np.prod(action_space.shape)))

    def forward(self, obs):
        flat = torch.cat([x.float().flatten(1) if x.ndim > 1 else x.float()[:, None] for x in self.leaves(obs)], 1)
        out = self.layer(flat.nan_to_num().clip(-1e3, 1e3) / 1e3)
        return out if self.discrete else torch.distributions.Normal(out, 1.0)

    def leaves(self, obs):
        return [leaf for entry in obs.values() for leaf in self.leaves(entry)] if isinstance(obs, dict) else [obs]


def check(episode, rows, actions, seen, local):
    assert len(episode) == len(rows) == len(actions)
    for t, (obs, action) in enumerate(zip(rows, actions, strict=True)):
        recorded = entries(at(episode.observations, t))
        for mine, theirs in zip(recorded, entries(obs), strict=True):
            assert mine.dtype == theirs.dtype or mine.dtype.kind in "iu"
            np.testing.assert_array_equal(mine, theirs)
        np.testing.assert_allclose(episode.actions[t], action, rtol=1e-6)
    assert episode.scores.local == pytest.approx(naive_local(rows, seen, local), rel=1e-4)


def at(observations, t):
    return {k: at(v, t) for k, v in observations.items()} if isinstance(observations, dict) else observations[t]


def copied(obs):
    return {k: copied(v) for k, v in obs.items()} if isinstance(obs, dict) else np.array(obs)


def imitate(buffer, action_space):
    observations, actions = buffer.sample(32)
    policy = Policy(action_space)
    policy(torch.utils._pytree.tree_map(torch.as_tensor, observations))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-5)
    losses = [bc_step(policy, optimizer, observations, actions)["loss"].item() for _ in range(20)]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_one_environment_is_recorded_and_scored_as_by_hand(name):
    make, local, counted = ENVIRONMENTS[name]
    env = EpisodeScoringWrapper(make())
    assert (env.local, env.count) == (local, counted)
    buffer = RankingBuffer(counter=env.counter if counted else None, seed=0)
    env.action_space.seed(0)
    seen, counts = [], {}
    for _ in range(3):
        obs, _ = env.reset(seed=1)
        rows, actions, rewards, done = [], [], 0.0, False
        while not done:
            rows.append(copied(obs))
            actions.append(env.action_space.sample())
            obs, reward, terminated, truncated, info = env.step(actions[-1])
            rewards, done = rewards + reward, terminated or truncated
        seen += rows
        ((_, episode),) = finished_episodes(info)
        check(episode, rows, actions, seen, local)
        assert episode.scores.extrinsic == pytest.approx(rewards)
        if counted:
            keys = [b"".join(leaf.tobytes() for leaf in entries(obs)) for obs in rows]
            for key in keys:
                counts[key] = counts.get(key, 0) + 1
            assert episode.scores.global_ == pytest.approx(np.mean([counts[key] ** -0.5 for key in keys]))
        else:
            assert episode.scores.global_ == 0.0
        buffer.add(episode.observations, episode.actions, episode.scores, episode.state_ids)
    imitate(buffer, env.action_space)
    env.close()


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_many_environments_are_recorded_and_scored_as_by_hand(name):
    make, local, _ = ENVIRONMENTS[name]
    make().close()  # skip here if a package is missing
    run_vector(SyncVectorEnv([make] * 2, autoreset_mode=AutoresetMode.SAME_STEP), local, AutoresetMode.SAME_STEP)


def test_the_native_vector_environment_of_atari_is_recorded_and_scored_as_by_hand():
    ale = pytest.importorskip("ale_py")
    envs = ale.AtariVectorEnv("breakout", num_envs=2, max_num_frames_per_episode=LIMIT * 4)
    run_vector(envs, "std", envs.metadata["autoreset_mode"])


def run_vector(envs, local, mode):
    scored = VectorEpisodeScoringWrapper(envs)
    assert scored.local == local
    buffer = RankingBuffer(counter=scored.counter if scored.count else None, seed=0)
    scored.action_space.seed(0)
    num = scored.num_envs
    observations, _ = scored.reset(seed=1)
    rows, actions, seen, waits, found = [[] for _ in range(num)], [[] for _ in range(num)], [], [False] * num, 0
    for _ in range(6 * LIMIT):
        acted = scored.action_space.sample()
        for i in range(num):
            if not waits[i]:
                rows[i].append(copied(at(observations, i)))
                seen.append(rows[i][-1])
                actions[i].append(acted[i])
        observations, _, terminations, truncations, infos = scored.step(acted)
        done = terminations | truncations
        episodes = dict(finished_episodes(infos))
        assert sorted(episodes) == [i for i in range(num) if done[i] and not waits[i]]
        for i in range(num):
            if i in episodes:
                check(episodes[i], rows[i], actions[i], seen, local)
                e = episodes[i]
                buffer.add(e.observations, e.actions, e.scores, e.state_ids)
                found += 1
                rows[i], actions[i] = [], []
            waits[i] = mode is AutoresetMode.NEXT_STEP and i in episodes
    assert found >= 2 * num
    imitate(buffer, envs.single_action_space)
    scored.close()


def test_the_mission_of_a_babyai_level_is_dropped_by_the_wrapper_that_the_error_names():
    pytest.importorskip("minigrid")
    env = gym.make("BabyAI-GoToRedBallGrey-v0")
    with pytest.raises(TypeError, match=r"FilterObservation\(env, \['direction', 'image'\]\)"):
        EpisodeScoringWrapper(env)
    entry = EpisodeScoringWrapper(env, state=lambda env, obs: obs["image"], record=False)
    entry.reset(seed=0)
    assert (entry.local, entry.count) == ("distinct", True)


def test_the_goal_reached_can_be_scored_by_name():
    env = EpisodeScoringWrapper(robotics("PointMaze_UMaze-v3", continuing_task=False), state="achieved_goal")
    env.action_space.seed(0)
    obs, _ = env.reset(seed=0)
    rows, done = [], False
    while not done:
        rows.append(obs["achieved_goal"].copy())
        obs, _, terminated, truncated, info = env.step(env.action_space.sample())
        done = terminated or truncated
    assert info["episode_scores"]["local"] == pytest.approx(naive_local(rows, rows, "std"), rel=1e-6)
    assert "'achieved_goal'" in env.scored
