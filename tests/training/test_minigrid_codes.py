"""MiniGrid's observations as codes, on MiniGrid's and BabyAI's own environments."""

import gymnasium as gym
import minigrid
import numpy as np
import pytest
from gymnasium import spaces

from rapid_wrappers.training.minigrid_codes import VIEW, MiniGridCodes, is_minigrid


def make(env_id, **flags):
    return MiniGridCodes(gym.make(env_id), **flags)


def test_the_ranges_are_those_of_minigrids_constants():
    constants = minigrid.core.constants
    directions = 4  # of an agent, which MiniGrid writes where doors have their three states
    assert (len(constants.OBJECT_TO_IDX), len(constants.COLOR_TO_IDX), directions) == VIEW
    assert len(constants.STATE_TO_IDX) < directions


def test_the_view_alone_stays_as_it_is():
    env, bare = make("MiniGrid-DoorKey-5x5-v0"), gym.make("MiniGrid-DoorKey-5x5-v0")
    assert env.observation_space == bare.observation_space["image"]
    assert np.array_equal(env.reset(seed=3)[0], bare.reset(seed=3)[0]["image"])
    assert env.left_out == ("direction", "mission")


def test_direction_and_mission_stand_behind_the_view():
    flags = {"direction": True, "mission": True}
    env, bare = make("BabyAI-GoToLocal-v0", **flags), gym.make("BabyAI-GoToLocal-v0")
    assert env.left_out == ()
    missions = {}
    for seed in range(30):
        codes, full = env.reset(seed=seed)[0], bare.reset(seed=seed)[0]
        assert env.observation_space.contains(codes)
        assert np.array_equal(codes[:147], full["image"].ravel())
        assert codes[147] == full["direction"]
        missions.setdefault(full["mission"], set()).add(codes[148:].tobytes())
        assert np.count_nonzero(codes[148:]) == len(full["mission"].split())
    assert len(missions) > 10
    assert all(len(codes) == 1 for codes in missions.values())
    assert len(set().union(*missions.values())) == len(missions)


@pytest.mark.parametrize("env_id", ["rapid/KeyCorridorS3R1-v0", "MiniGrid-KeyCorridorS3R1-v0"])
def test_direction_and_mission_come_from_the_environment_even_where_its_observations_lack_them(env_id):
    import rapid_wrappers.envs  # noqa: F401

    env = make(env_id, direction=True, mission=True)
    first = env.reset(seed=1)[0]
    second = env.step(0)[0]  # turn left
    assert (first[147] - 1) % 4 == second[147]
    assert np.array_equal(first[148:], second[148:]) and first[148:].all()


LEVELS = ("MiniGrid-Fetch-8x8-N3-v0", "MiniGrid-PutNear-6x6-N2-v0", "MiniGrid-Empty-5x5-v0",
          "MiniGrid-GoToObject-8x8-N2-v0", "BabyAI-SynthLoc-v0", "BabyAI-PutNextLocal-v0")  # fmt: skip


@pytest.mark.parametrize("env_id", LEVELS)
def test_every_mission_has_words_of_the_vocabulary(env_id):
    env = make(env_id, mission=True)
    seen = {env.reset(seed=seed)[0][147:].tobytes() for seed in range(20)}
    assert len(seen) > 1 or "Empty" in env_id


class Speaker(gym.Wrapper):
    """Gives another mission than the environment announces."""

    def reset(self, **kwargs):
        result = self.env.reset(**kwargs)
        self.env.unwrapped.mission = "dance"
        return result


def test_a_mission_of_unknown_words_is_refused_with_what_to_do():
    env = MiniGridCodes(Speaker(gym.make("MiniGrid-Fetch-5x5-N2-v0")), mission=True)
    with pytest.raises(ValueError, match=r"expected a mission of at most 6 words .*, got 'dance': --no-mission"):
        env.reset(seed=0)


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (minigrid.wrappers.OneHotPartialObsWrapper, r"expected MiniGrid's view \(height, width, 3\).*--no-one-hot"),
        (lambda env: minigrid.wrappers.RGBImgPartialObsWrapper(env, tile_size=4), "codes, .*got up to .*--no-one-hot"),
        (minigrid.wrappers.SymbolicObsWrapper, "expected MiniGrid's codes, .*--no-one-hot"),
        (minigrid.wrappers.FlatObsWrapper, r"expected MiniGrid's view .*--no-one-hot"),
    ],
)
def test_what_only_looks_like_the_view_is_refused_with_what_to_do(wrap, message):
    with pytest.raises(ValueError, match=message):
        MiniGridCodes(wrap(gym.make("MiniGrid-DoorKey-5x5-v0"))).reset(seed=0)


@pytest.mark.parametrize("wrap", [minigrid.wrappers.FullyObsWrapper, minigrid.wrappers.ViewSizeWrapper])
def test_other_views_of_the_same_codes_are_taken(wrap):
    env = MiniGridCodes(wrap(gym.make("MiniGrid-DoorKey-8x8-v0")))
    assert env.reset(seed=0)[0].shape == env.observation_space.shape != (7, 7, 3) or wrap.__name__ == "ViewSizeWrapper"


def test_an_environment_derived_from_minigrid_is_one_of_its_own():
    class Mine(minigrid.envs.EmptyEnv):
        pass

    assert is_minigrid(gym.wrappers.TimeLimit(Mine(), 5))
    assert not is_minigrid(gym.make("CartPole-v1"))
    assert isinstance(MiniGridCodes(Mine(), direction=True).observation_space, spaces.MultiDiscrete)
