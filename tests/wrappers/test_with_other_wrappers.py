"""The scoring wrapper between Gymnasium's and MiniGrid's wrappers, compared with a twin environment without it."""

import gymnasium as gym
import minigrid.wrappers as mw
import numpy as np
import pytest
from gymnasium import wrappers as gw

import rapid_wrappers.envs  # noqa: F401
from rapid_wrappers import EpisodeScoringWrapper, finished_episodes
from rapid_wrappers.scores import distinct_score, std_score

GRID, CART, PENDULUM = "rapid/MultiRoom-N2-S4-v0", "CartPole-v1", "Pendulum-v1"


def dictionary(env):
    space = gym.spaces.Dict(image=env.observation_space, mission=gym.spaces.Text(9))
    return gw.TransformObservation(env, lambda obs: {"image": obs, "mission": "go"}, space)


def one_hot(env):
    return mw.ImgObsWrapper(mw.OneHotPartialObsWrapper(env))


INSIDE = {
    "RecordEpisodeStatistics": (GRID, gw.RecordEpisodeStatistics),
    "TimeLimit": (CART, lambda env: gw.TimeLimit(env, 7)),
    "FrameStackObservation": (CART, lambda env: gw.FrameStackObservation(env, 4)),
    "FlattenObservation": (GRID, gw.FlattenObservation),
    "TimeAwareObservation": (CART, lambda env: gw.TimeAwareObservation(gw.TimeLimit(env, 9))),
    "NormalizeObservation": (PENDULUM, gw.NormalizeObservation),
    "NormalizeReward": (PENDULUM, gw.NormalizeReward),
    "RescaleAction": (PENDULUM, lambda env: gw.RescaleAction(env, np.float32(-1), np.float32(1))),
    "StickyAction": (GRID, lambda env: gw.StickyAction(env, 0.5)),
    "DtypeObservation": (CART, lambda env: gw.DtypeObservation(env, np.float64)),
    "a key of a Dict": (GRID, lambda env: mw.ImgObsWrapper(dictionary(env))),
    "all of a Dict": (CART, lambda env: gw.FlattenObservation(gw.TimeAwareObservation(env, flatten=False))),
    "a key of MiniGrid's Dict": ("MiniGrid-KeyCorridorS3R1-v0", mw.ImgObsWrapper),
    "MiniGrid's one-hot view": ("MiniGrid-KeyCorridorS3R1-v0", one_hot),
    "MiniGrid's pixels": ("MiniGrid-Empty-5x5-v0", lambda env: mw.ImgObsWrapper(mw.RGBImgPartialObsWrapper(env))),
    "MiniGrid's flat view": ("MiniGrid-KeyCorridorS3R1-v0", mw.FlatObsWrapper),
}  # fmt: skip
OUTSIDE = {
    "RecordEpisodeStatistics": (GRID, gw.RecordEpisodeStatistics),
    "FrameStackObservation": (CART, lambda env: gw.FrameStackObservation(env, 4)),
    "FlattenObservation": (GRID, gw.FlattenObservation),
    "TimeAwareObservation": (CART, gw.TimeAwareObservation),
    "NormalizeObservation": (PENDULUM, gw.NormalizeObservation),
    "NormalizeReward": (PENDULUM, gw.NormalizeReward),
    "ClipReward": (PENDULUM, lambda env: gw.ClipReward(env, -1.0, 1.0)),
}


def episodes(env, seed, steps=300):
    """Observations acted on, actions, rewards and last info of each episode of seeded random play."""
    rng = np.random.default_rng(seed)
    done, found = True, []
    for step in range(steps):
        if done:
            obs, _ = env.reset(seed=seed + step)
            found.append(([], [], [], None))
        action = draw(env.action_space, rng)
        found[-1][0].append(np.array(obs))
        found[-1][1].append(action)
        obs, reward, terminated, truncated, info = env.step(action)
        found[-1][2].append(float(reward))
        done = terminated or truncated
        if done:
            found[-1] = (*found[-1][:3], info)
    assert found[0][3] is not None
    return [episode for episode in found if episode[3] is not None]


def draw(space, rng):
    return rng.integers(space.n) if isinstance(space, gym.spaces.Discrete) else rng.uniform(space.low, space.high)


def check(ours, twins):
    assert len(ours) == len(twins)
    for (*_, info), (observations, actions, rewards, _) in zip(ours, twins, strict=True):
        ((_, record),) = finished_episodes(info)
        np.testing.assert_array_equal(record.observations, np.stack(observations))
        np.testing.assert_allclose(record.actions, np.stack(actions), rtol=1e-6)
        assert record.scores.extrinsic == pytest.approx(sum(rewards), abs=1e-9)
        image = record.observations.ndim == 4 and min(record.observations.shape[1:3]) >= 32
        score = std_score if image or record.observations.dtype.kind == "f" else distinct_score
        assert record.scores.local == pytest.approx(score(np.stack(observations)) / (255 if image else 1))


@pytest.mark.parametrize("name", INSIDE)
def test_scores_and_record_are_of_the_output_of_a_wrapper_inside(name):
    env_id, wrapper = INSIDE[name]
    with EpisodeScoringWrapper(wrapper(gym.make(env_id)), normalize=False) as env, wrapper(gym.make(env_id)) as twin:
        ours = episodes(env, seed=3)
        check(ours, episodes(twin, seed=3))
    if name == "RecordEpisodeStatistics":
        assert all(info["episode"]["r"] == pytest.approx(sum(rewards)) for *_, rewards, info in ours)


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_wrapper_outside_changes_neither_scores_nor_record(name):
    env_id, wrapper = OUTSIDE[name]
    with wrapper(EpisodeScoringWrapper(gym.make(env_id), normalize=False)) as env, gym.make(env_id) as twin:
        check(episodes(env, seed=3), episodes(twin, seed=3))


def test_autoreset_outside_loses_no_episode_and_its_reset_step_is_not_recorded():
    env = gw.Autoreset(EpisodeScoringWrapper(gym.make(CART)))
    env.reset(seed=5)
    env.action_space.seed(5)
    start, lengths = 0, []
    for step in range(1, 200):
        *_, info = env.step(env.action_space.sample())
        for _, record in finished_episodes(info):
            lengths.append((len(record), step - start))
            start = step + 1  # the next step only resets
    assert len(lengths) > 3
    assert all(recorded == counted for recorded, counted in lengths)


@pytest.mark.parametrize("inside", [True, False])
def test_videos_are_recorded_on_either_side(inside, tmp_path):
    def record(env):
        return gw.RecordVideo(
            env, str(tmp_path / "videos"), episode_trigger=lambda episode: episode < 2, disable_logger=True
        )

    make = gym.make(GRID, render_mode="rgb_array")
    with EpisodeScoringWrapper(record(make)) if inside else record(EpisodeScoringWrapper(make)) as env:
        check(episodes(env, seed=1, steps=90), episodes(gym.make(GRID), seed=1, steps=90))
    videos = list(tmp_path.glob("videos/*.mp4"))
    assert len(videos) == 2
    assert all(video.stat().st_size > 1000 for video in videos)
