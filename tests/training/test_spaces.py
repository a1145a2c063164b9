"""Observations and actions in the form of the networks, and what is refused with which remedy."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import rapid_wrappers.envs  # noqa: F401
from rapid_wrappers.training.spaces import (
    action_sizes,
    code_sizes,
    continuous_actions,
    discrete_actions,
    flat_observations,
    image_observations,
    scored_info,
)
from tests.scripted_env import SCRIPTED, ScriptedEnv
from tests.training.environment_args import arguments


class Shaped(ScriptedEnv):
    """Observations of any space."""

    def __init__(self, space, value=None):
        super().__init__(action_space=spaces.Discrete(2))
        self.observation_space, self.value = space, value

    def observe(self):
        return self.observation_space.sample() if self.value is None else self.value


def box(*shape, dtype=np.uint8):
    return spaces.Box(0, 1 if dtype == np.float32 else 255, shape, dtype)


def flat(env, codes=True, **more):
    return flat_observations(env, arguments(**more), codes=codes)


@pytest.mark.parametrize("space", [box(2), box(7, 7, 3), box(dtype=np.float32), box(40, 40, dtype=np.float32)])
def test_arrays_of_numbers_are_taken_as_they_are(space):
    env = Shaped(space)
    assert flat(env) is env


def test_codes_are_kept_for_a_network_that_makes_them_one_hot_or_become_one_hot():
    for space, value, sizes, one_hot in (
        (spaces.Discrete(3), np.int64(1), [3], [0, 1, 0]),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 0]), [2, 3], [0, 1, 1, 0, 0]),
    ):
        env = flat(Shaped(space, value))
        assert env.observation_space == space
        assert code_sizes(env.observation_space, arguments()) == sizes
        assert flat(Shaped(space, value), codes=False).reset()[0].tolist() == one_hot


def test_codes_that_do_not_start_at_zero_are_shifted():
    for space, value, shifted, seen in (
        (spaces.Discrete(3, start=5), np.int64(6), spaces.Discrete(3), 1),
        (spaces.MultiDiscrete([2, 3], start=[4, 0]), np.array([5, 2]), spaces.MultiDiscrete([2, 3]), [1, 2]),
    ):
        env = flat(Shaped(space, value))
        assert env.observation_space == shifted
        assert np.array_equal(env.reset()[0], seen)


SEVERAL = spaces.Dict(
    near=spaces.Box(-1, 1, (2,)), place=spaces.Discrete(3),
    pair=spaces.Tuple([spaces.MultiBinary(2), spaces.Discrete(2)]),
)  # fmt: skip


@pytest.mark.parametrize("codes", [True, False])
def test_a_dict_is_flattened_in_gymnasiums_order(codes):
    value = SEVERAL.sample()
    env = flat(Shaped(SEVERAL, value), codes)
    assert env.observation_space == spaces.flatten_space(SEVERAL)
    assert env.reset()[0].tolist() == spaces.flatten(SEVERAL, value).tolist()
    assert code_sizes(env.observation_space, arguments()) is None


def test_a_text_becomes_the_codes_of_its_characters():
    env = flat(Shaped(spaces.Dict(words=spaces.Text(4, charset="ab"), n=spaces.Discrete(2)), {"words": "ab", "n": 1}))
    assert isinstance(env.observation_space, spaces.Box)
    assert env.reset()[0].shape == env.observation_space.shape


@pytest.mark.parametrize(
    "space",
    [spaces.Sequence(spaces.Discrete(5)), spaces.Dict(a=spaces.Sequence(spaces.Discrete(5))),
     spaces.Graph(spaces.Discrete(2), None), spaces.Dict({})],
)  # fmt: skip
def test_observations_of_no_fixed_size_are_refused(space):
    with pytest.raises(TypeError, match=r"flatten to one array, got .*TransformObservation"):
        flat(Shaped(space, None))


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (
            box(84, 84, 3),
            r"expected observations other than images, got uint8 of shape \(84, 84, 3\): ppo_rapid_cnn.py",
        ),
        (box(4, 84, 84), "ppo_rapid_cnn.py takes images"),
        (box(4, 84, 84, 3), "ppo_rapid_cnn.py takes images"),
        (box(84, 84), "ppo_rapid_cnn.py takes images"),
        (box(84, 84, 3, dtype=np.float32), "got float32 of shape .*ppo_rapid_cnn.py takes images"),
        (spaces.Dict(eye=box(64, 64, 3), n=box(2)), "expected entry 'eye' other than images.*FilterObservation"),
    ],
)
def test_images_are_sent_to_their_script(space, message):
    for codes in (True, False):
        with pytest.raises(TypeError, match=message):
            flat(Shaped(space), codes)


GRIDS = ("MiniGrid-Empty-5x5-v0", "rapid/KeyCorridorS3R1-v0")


@pytest.mark.parametrize("env_id", GRIDS)
def test_minigrids_ids_give_their_view_as_codes(env_id):
    import minigrid  # noqa: F401

    env = flat(gym.make(env_id), direction=False)
    assert env.observation_space == spaces.Box(0, 255, (7, 7, 3), np.uint8)
    assert env.reset(seed=0)[0].shape == (7, 7, 3)
    assert env.get_wrapper_attr("left_out") == ("direction", "mission")
    assert code_sizes(env.observation_space, arguments(env_id)) == [11, 6, 4] * 49
    assert code_sizes(env.observation_space, arguments(env_id, one_hot=False)) is None


def test_minigrid_is_drawn_in_pixels_for_the_script_of_images():
    import minigrid

    env = image_observations(gym.make("MiniGrid-Empty-5x5-v0"))
    image, _ = env.reset(seed=0)
    assert (image.shape, image.dtype) == ((56, 56, 3), np.uint8)
    assert image.std() > 10
    assert env.get_wrapper_attr("left_out") == ("direction", "mission")
    drawn = image_observations(minigrid.wrappers.RGBImgObsWrapper(gym.make("MiniGrid-Empty-8x8-v0")))
    assert drawn.reset(seed=0)[0].shape == (64, 64, 3)


def test_a_small_image_that_is_not_minigrids_is_not_taken_for_its_codes(scripted):
    scripted(lambda: Shaped(box(7, 7, 3)))
    assert code_sizes(box(7, 7, 3), arguments(SCRIPTED)) is None


def test_direction_and_mission_are_refused_where_there_are_none():
    import minigrid

    symbols = minigrid.wrappers.FlatObsWrapper(gym.make(GRIDS[0]))
    for env, more in ((Shaped(box(2)), {"mission": True}), (gym.make(GRIDS[0]), {"direction": True, "one_hot": False}),
                      (symbols, {"direction": True})):  # fmt: skip
        with pytest.raises(ValueError, match="expected `direction` and `mission` only for MiniGrid's view"):
            flat(env, **more)


@pytest.mark.parametrize(
    ("shape", "form"),
    [
        ((210, 160, 3), (210, 160, 3)), ((84, 84, 4), (84, 84, 4)), ((84, 84, 1), (84, 84, 1)),
        ((36, 40, 3), (36, 40, 3)), ((64, 64, 12), (64, 64, 12)),
        ((84, 84), (84, 84, 1)), ((4, 84, 84), (84, 84, 4)), ((3, 64, 80), (64, 80, 3)),
        ((4, 84, 84, 3), (84, 84, 12)), ((4, 84, 84, 1), (84, 84, 4)), ((2, 3, 64, 80), (64, 80, 6)),
        ((64, 80, 3, 2), (64, 80, 6)),
    ],
)  # fmt: skip
def test_images_of_any_form_get_height_width_and_channels(shape, form):
    height, width = (axis for axis, size in enumerate(shape) if size in form[:2])
    picture = np.arange(np.prod(shape)).reshape(shape) % 251
    env = image_observations(Shaped(box(*shape), picture.astype(np.uint8)))
    seen = env.reset()[0]
    assert env.observation_space == box(*form)
    assert seen.shape == form
    others = [axis for axis in range(len(shape)) if axis not in (height, width)]
    expected = picture.transpose(height, width, *others).reshape(form)
    assert np.array_equal(seen, expected)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (box(84, 84, 0), "at least 36 x 36"),
        (box(7, 7, 3), r"at least 36 x 36 pixels, got \(7, 7, 3\): MiniGrid's codes are for ppo_rapid.py"),
        (box(35, 80, 3), "at least 36 x 36"),
        (box(9), "at least 36 x 36"),
        (box(84, 84, 3, dtype=np.float32), "expected observations to be a Box of uint8 images"),
        (spaces.Dict(left=box(84, 84, 3), right=box(84, 84, 3)), "selects one of several images of a Dict"),
        (spaces.Dict(near=box(9)), "expected observations to be a Box of uint8 images"),
        (spaces.Discrete(4), "expected observations to be a Box of uint8 images"),
    ],
)
def test_images_that_the_network_cannot_take_are_refused_with_what_to_do(space, message):
    with pytest.raises((TypeError, ValueError), match=message):
        image_observations(Shaped(space))


def test_of_a_dict_with_one_image_only_that_is_seen():
    env = image_observations(Shaped(spaces.Dict(health=box(2), screen=box(3, 40, 50), ammo=spaces.Discrete(3))))
    assert env.reset()[0].shape == (40, 50, 3)
    assert env.get_wrapper_attr("left_out") == ("health", "ammo")


@pytest.mark.parametrize("value", [np.zeros((40, 40, 3), np.float32), np.zeros((41, 40, 3), np.uint8)])
def test_an_environment_that_returns_what_its_space_does_not_say_is_refused(value):
    env = image_observations(Shaped(box(40, 40, 3), value))
    with pytest.raises(ValueError, match=r"expected observations of uint8 of shape \(40, 40, 3\), as their space says"):
        env.reset()


def test_gymnasiums_stacks_of_grey_and_of_coloured_images_are_taken():
    for shape, channels in (((84, 84), 4), ((84, 84, 3), 12)):
        env = gym.wrappers.FrameStackObservation(Shaped(box(*shape)), 4)
        assert image_observations(env).reset()[0].shape == (84, 84, channels)


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


def test_several_actions_that_do_not_start_at_zero_are_shifted():
    env = Recording(action_space=spaces.MultiDiscrete([3, 4], start=[1, -2]))
    shifted = discrete_actions(env)
    assert shifted.action_space == spaces.MultiDiscrete([3, 4])
    shifted.reset()
    shifted.step(np.array([0, 3]))
    assert env.action.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("space", "sizes"),
    [(spaces.Discrete(3), [3]), (spaces.MultiDiscrete([3, 4]), [3, 4]), (spaces.MultiBinary(3), [2, 2, 2]),
     (spaces.MultiDiscrete([[2, 3], [4, 5]]), [2, 3, 4, 5]), (spaces.MultiBinary((2, 2)), [2] * 4)],
)  # fmt: skip
def test_every_action_of_several_has_its_number_of_choices(space, sizes):
    env = ScriptedEnv(action_space=space)
    assert discrete_actions(env) is env
    assert action_sizes(space) == sizes


def test_an_entry_of_the_infos_is_scored_where_one_is_named():
    assert scored_info(arguments()) is None
    assert scored_info(arguments(score_info="cell"))(None, {"cell": 3}) == 3


FLOATS = spaces.Box(-1, 1, (2,), np.float32)
OTHERS = [spaces.Tuple([spaces.Discrete(2)]), spaces.OneOf([spaces.Discrete(2)])]
SEVERAL_ACTIONS = [spaces.MultiDiscrete([3, 4]), spaces.MultiBinary(3)]


@pytest.mark.parametrize("space", [FLOATS, *OTHERS])
def test_other_than_discrete_actions_are_refused(space):
    with pytest.raises(TypeError, match=r"expected a Discrete, Multi.*ppo_rapid_continuous_action.py"):
        discrete_actions(ScriptedEnv(action_space=space))


@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.Box(0, 5, (2,), np.int64), *SEVERAL_ACTIONS, *OTHERS])
def test_other_than_continuous_actions_are_refused(space):
    with pytest.raises(TypeError, match=r"expected a Box action space of floats .*ppo_rapid.py"):
        continuous_actions(ScriptedEnv(action_space=space))


def test_continuous_actions_are_clipped_inside():
    env = Recording(action_space=FLOATS)
    clipped = continuous_actions(env)
    clipped.reset()
    clipped.step(np.array([-3, 0.5], np.float32))
    assert env.action.tolist() == [-1, 0.5]
