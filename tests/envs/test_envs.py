import re
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from minigrid.core.world_object import Door
from minigrid.envs import KeyCorridorEnv, MultiRoomEnv
from minigrid.wrappers import ImgObsWrapper

import rapid_wrappers.envs  # noqa: F401

MULTI_ROOMS = [id for id in gym.registry if id.startswith("rapid/MultiRoom")]
KEY_CORRIDORS = [id for id in gym.registry if id.startswith("rapid/KeyCorridor")]
OTHERS = [id for id in gym.registry if id.startswith("rapid/") and id not in MULTI_ROOMS + KEY_CORRIDORS]
PAPER = [f"rapid/MultiRoom-{name}-v0" for name in ("N7-S4", "N10-S4", "N7-S8", "N10-S10", "N12-S10")]


def test_every_advertised_id_is_registered():
    assert len(MULTI_ROOMS) == 29 * 33
    sizes_and_rows = [re.findall(r"\d", id)[:2] for id in KEY_CORRIDORS]
    assert len(OTHERS) == 6 + 1  # MuJoCo's tasks and the maze
    assert sizes_and_rows == [["3", "1"], ["3", "2"], ["3", "3"], ["4", "3"], ["5", "3"], ["6", "3"]]


@pytest.mark.parametrize(
    ("env_id", "seeds"),
    [("rapid/MultiRoom-N2-S4-v0", 20), ("rapid/MultiRoom-N4-S5-v0", 20), ("rapid/MultiRoom-N7-S8-v0", 5)]
    + [pytest.param(id, 30, marks=pytest.mark.slow) for id in ("rapid/MultiRoom-N4-S36-v0", *PAPER)],
)
def test_a_multi_room_id_builds_exactly_the_rooms_and_sizes_it_names(env_id, seeds):
    rooms, size = map(int, re.findall(r"-[NS](\d+)", env_id))
    env = gym.make(env_id)
    sizes = set()
    for seed in range(seeds):
        env.reset(seed=seed)
        base = env.unwrapped
        assert len(base.rooms) == rooms
        assert sum(isinstance(cell, Door) for cell in base.grid.grid) == rooms - 1
        sizes |= {side for room in base.rooms for side in room.size}
    assert type(base) is MultiRoomEnv
    assert min(sizes) == 4
    assert max(sizes) <= size
    assert (base.width, base.height, base.max_steps) == (25, 25, 20 * rooms)


def test_each_multi_room_id_passes_its_own_numbers_on():
    for env_id in MULTI_ROOMS:
        assert list(gym.spec(env_id).kwargs.values()) == list(map(int, re.findall(r"-[NS](\d+)", env_id)))


@pytest.mark.parametrize("env_id", KEY_CORRIDORS)
def test_a_key_corridor_is_minigrids_own(env_id):
    env, upstream = gym.make(env_id), ImgObsWrapper(gym.make(env_id.replace("rapid/", "MiniGrid-")))
    assert type(env.unwrapped) is KeyCorridorEnv
    assert env.unwrapped.max_steps == upstream.unwrapped.max_steps
    for seed in range(5):
        assert np.array_equal(env.reset(seed=seed)[0], upstream.reset(seed=seed)[0])
        assert env.unwrapped.grid == upstream.unwrapped.grid


@pytest.mark.parametrize("env_id", ["rapid/MultiRoom-N4-S5-v0", "rapid/KeyCorridorS3R2-v0"])
def test_the_observation_is_the_7x7x3_view_of_codes_that_the_paper_uses(env_id):
    env = gym.make(env_id)
    assert env.observation_space == gym.spaces.Box(0, 255, (7, 7, 3), np.uint8)
    assert env.action_space == gym.spaces.Discrete(7)
    obs, _ = env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(30):
        assert obs.dtype == np.uint8
        assert (obs.max(axis=(0, 1)) < [11, 6, 4]).all()
        obs, *_ = env.step(env.action_space.sample())


@pytest.mark.parametrize(
    ("env_id", "error", "hint"),
    [
        ("rapid/MultiRoom-N7S4-v0", gym.error.NameNotFound, "MultiRoom-N7-S4"),
        ("rapid/MultiRoom-N31-S4-v0", gym.error.NameNotFound, "MultiRoom-N3"),
        ("rapid/KeyCorridor-S3R3-v0", gym.error.NameNotFound, "KeyCorridorS3R3"),
        ("rapid/MultiRoom-N7-S4-v1", gym.error.VersionNotFound, "v0"),
        ("rapids/MultiRoom-N7-S4-v0", gym.error.NamespaceNotFound, "rapid"),
    ],
)
def test_a_malformed_id_gets_a_hint(env_id, error, hint):
    with pytest.raises(error, match=hint):
        gym.make(env_id)


def test_registering_again_changes_nothing_and_upstream_ids_are_left_alone():
    code = """
import importlib, warnings
warnings.simplefilter("error")
import gymnasium as gym, minigrid
before = dict(gym.registry)
import rapid_wrappers.envs
importlib.reload(rapid_wrappers.envs)
assert all(gym.registry[id] is spec for id, spec in before.items())
print(len(gym.registry) - len(before))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(out) == len(MULTI_ROOMS) + len(KEY_CORRIDORS) + len(OTHERS)


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_our_ids_work_in_the_workers_of_an_async_vector_environment(context):
    envs = gym.make_vec(PAPER[0], num_envs=2, vectorization_mode="async", vector_kwargs={"context": context})
    obs, _ = envs.reset(seed=3)
    envs.step(np.array([2, 2]))
    envs.close()
    assert np.array_equal(obs[1], gym.make(PAPER[0]).reset(seed=4)[0])


def test_a_spec_round_trip_gives_the_same_environment():
    env = gym.make(gym.make(PAPER[0]).spec)
    assert isinstance(env.unwrapped, MultiRoomEnv)
    assert env.reset(seed=1)[0].shape == (7, 7, 3)
