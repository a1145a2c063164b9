"""Observations and actions in the form of the networks, and what is refused with which remedy."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import rapid_wrappers.envs  # noqa: F401
from rapid_wrappers.training.spaces import (
    array_observations,
    continuous_actions,
    discrete_actions,
    flat_observations,
    image_observations,
    is_minigrid_view,
)
from tests.scripted_env import SCRIPTED, ScriptedEnv


class Shaped(ScriptedEnv):
    """Observations of any space."""

    def __init__(self, space, value=None):
        super().__init__(action_space=spaces.Discrete(2))
        self.observation_space, self.value = space, value

    def observe(self):
        return self.observation_space.sample() if self.value is None else self.value


def box(*shape, dtype=np.uint8):
    return spaces.Box(0, 1 if dtype == np.float32 else 255, shape, dtype)


@pytest.mark.parametrize("space", [box(2), box(7, 7, 3), box(dtype=np.float32), spaces.Discrete(5),
                                   spaces.MultiDiscrete([3, 4]), spaces.MultiBinary(3)])  # fmt: skip
def test_arrays_are_taken_as_they_are(space):
    env = Shaped(space)
    assert array_observations(env) is env


@pytest.mark.parametrize("space", [spaces.Dict(a=box(2)), spaces.Tuple([box(2)]), spaces.Text(3)])
def test_observations_that_are_no_arrays_are_refused_with_what_to_do(space):
    with pytest.raises(TypeError, match=r"expected array observations, got .*TransformObservation.*FlattenObservation"):
        array_observations(Shaped(space))


def test_minigrids_ids_give_their_view_or_are_drawn_in_pixels():
    import minigrid  # noqa: F401

    for env_id in ("MiniGrid-Empty-5x5-v0", "rapid/KeyCorridorS3R1-v0"):
        env = array_observations(gym.make(env_id))
        assert env.observation_space.shape == (7, 7, 3)
        assert env.reset(seed=0)[0].shape == (7, 7, 3)
        assert is_minigrid_view(env_id, env.observation_space)
    env = image_observations(gym.make("MiniGrid-Empty-5x5-v0"))
    image, _ = env.reset(seed=0)
    assert (image.shape, image.dtype) == ((56, 56, 3), np.uint8)
    assert image.std() > 10
    assert not is_minigrid_view("MiniGrid-Empty-5x5-v0", env.observation_space)


def test_a_small_image_that_is_not_minigrids_is_not_taken_for_its_codes(scripted):
    scripted(lambda: Shaped(box(7, 7, 3)))
    assert not is_minigrid_view(SCRIPTED, box(7, 7, 3))


class Nested(ScriptedEnv):
    def __init__(self):
        super().__init__(dtype=np.float32)
        self.observation_space = spaces.Dict(near=self.observation_space, far=spaces.Box(-1, 1, (3,)))

    def observe(self):
        return {"near": super().observe(), "far": np.ones(3, np.float32)}


def test_other_observations_are_flattened_for_continuous_control():
    env = flat_observations(Nested())
    assert env.observation_space.shape == (5,)
    assert env.reset()[0].tolist() == [0, 0, 1, 1, 1]
    env = Shaped(box(2, 3, dtype=np.float32))
    assert flat_observations(env) is env


@pytest.mark.parametrize("shape", [(210, 160, 3), (84, 84, 4), (84, 84, 1), (36, 40, 3), (64, 64, 12)])
def test_images_of_other_shapes_are_taken(shape):
    env = image_observations(Shaped(box(*shape)))
    assert env.reset()[0].shape == env.observation_space.shape == shape


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (box(84, 84), r"expected images \(height, width, channels\), got \(84, 84\): add a channel"),
        (box(4, 84, 84), r"got \(4, 84, 84\): move the channels .* to the end"),
        (box(4, 84, 84, 3), r"got \(4, 84, 84, 3\): move the channels"),
        (box(84, 84, 0), "move the channels"),
        (box(7, 7, 3), r"at least 36 x 36 pixels, got \(7, 7, 3\): MiniGrid's codes are for ppo_rapid.py"),
        (box(35, 80, 3), "at least 36 x 36"),
        (box(84, 84, 3, dtype=np.float32), "expected observations to be a Box of uint8 images"),
        (spaces.Dict(image=box(84, 84, 3)), "selects the entry of a Dict"),
        (spaces.Discrete(4), "expected observations to be a Box of uint8 images"),
    ],
)
def test_images_that_the_network_cannot_take_are_refused_with_what_to_do(space, message):
    with pytest.raises((TypeError, ValueError), match=message):
        image_observations(Shaped(space))


@pytest.mark.parametrize("value", [np.zeros((40, 40, 3), np.float32), np.zeros((41, 40, 3), np.uint8)])
def test_an_environment_that_returns_what_its_space_does_not_say_is_refused(value):
    env = image_observations(Shaped(box(40, 40, 3), value))
    with pytest.raises(ValueError, match=r"expected observations of uint8 of shape \(40, 40, 3\), as their space says"):
        env.reset()


def test_gymnasiums_atari_wrappers_give_what_the_message_asks_for():
    env = gym.wrappers.FrameStackObservation(Shaped(box(84, 84, 1)), 4)  # (4, 84, 84, 1)
    with pytest.raises(ValueError, match="move the channels of stacked"):
        image_observations(env)
    env = gym.wrappers.TransformObservation(env, lambda x: np.moveaxis(x[..., 0], 0, -1), box(84, 84, 4))
    assert image_observations(env).reset()[0].shape == (84, 84, 4)


class Recording(ScriptedEnv):
    """Remembers its actions."""

    def step(self, action):
        self.action = action
        return super().step(action)


def test_actions_that_do_not_start_at_zero_are_shifted():
    env = Recording(action_space=spaces.Discrete(3, start=5))
    shifted = discrete_actions(env)
    assert shifted.action_space == spaces.Discrete(3)
    shifted.reset()
    shifted.step(2)
    assert env.action == 7
    env = Recording(action_space=spaces.Discrete(3))
    assert discrete_actions(env) is env


FLOATS = spaces.Box(-1, 1, (2,), np.float32)
OTHERS = [spaces.MultiDiscrete([3, 4]), spaces.MultiBinary(3), spaces.Tuple([spaces.Discrete(2)]),
          spaces.OneOf([spaces.Discrete(2)])]  # fmt: skip


@pytest.mark.parametrize("space", [FLOATS, *OTHERS])
def test_other_than_discrete_actions_are_refused(space):
    with pytest.raises(TypeError, match=r"expected a Discrete action space .*ppo_rapid_continuous_action.py"):
        discrete_actions(ScriptedEnv(action_space=space))


@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.Box(0, 5, (2,), np.int64), *OTHERS])
def test_other_than_continuous_actions_are_refused(space):
    with pytest.raises(TypeError, match=r"expected a Box action space of floats .*ppo_rapid.py"):
        continuous_actions(ScriptedEnv(action_space=space))


def test_continuous_actions_are_clipped_inside():
    env = Recording(action_space=FLOATS)
    clipped = continuous_actions(env)
    clipped.reset()
    clipped.step(np.array([-3, 0.5], np.float32))
    assert env.action.tolist() == [-1, 0.5]


def test_observations_of_no_fixed_size_are_refused():
    class Words(gym.Env):
        observation_space = gym.spaces.Sequence(gym.spaces.Discrete(5))
        action_space = gym.spaces.Box(-1, 1, (1,))

    with pytest.raises(TypeError, match="flatten to one array"):
        flat_observations(Words())
