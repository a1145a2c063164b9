"""Both wrappers refuse bad input, with a remedy, and stay usable."""

import functools
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics
from gymnasium.wrappers.vector import RecordEpisodeStatistics as VectorRecordEpisodeStatistics

import rapid_wrappers.envs  # noqa: F401
from rapid_wrappers import (
    EpisodeScoringWrapper,
    VectorEpisodeScoringWrapper,
    finished_episodes,
)
from tests.scripted_env import ScriptedEnv, play
from tests.wrappers.vector_episodes import DISABLED, NEXT_STEP, SAME_STEP, Native, scripted


@pytest.mark.parametrize("score", [np.nan, np.inf, None, "0.5", [1.0, 2.0]])
def test_a_local_function_that_returns_no_finite_number_is_refused(score):
    env = EpisodeScoringWrapper(ScriptedEnv([1]), local=lambda states: score)
    with pytest.raises(ValueError, match="expected `local` to return"):
        play(env)
    assert env.counter.counts.sum() == 0


@pytest.mark.parametrize("reward", [np.nan, np.inf, np.array([1.0, 2.0]), "1"])
def test_a_reward_that_is_not_one_finite_number_is_refused_and_discards_the_episode(reward):
    env = EpisodeScoringWrapper(ScriptedEnv([3], rewards=[0.0, reward, 0.0]))
    env.reset()
    env.step(0)
    with pytest.raises(ValueError, match="reward"):
        env.step(0)
    with pytest.raises(ResetNeeded):
        env.step(0)


def test_an_exception_of_the_environment_loses_only_that_step():
    env = EpisodeScoringWrapper(gym.make("CartPole-v1"))
    env.reset(seed=0)
    env.step(0)
    with pytest.raises(AssertionError):
        env.step(7)
    terminated, steps = False, 1
    while not terminated:
        *_, terminated, _, info = env.step(0)
        steps += 1
    assert len(info["episode_record"]) == steps


def test_a_return_that_overflows_is_refused():
    env = EpisodeScoringWrapper(ScriptedEnv([3], rewards=[1e308]))
    env.reset()
    env.step(0)
    with pytest.raises(ValueError, match="finite sum"):
        env.step(0)


def test_an_observation_that_its_dtype_cannot_hold_is_refused():
    for observation in ([0.5, 1.0], [0.0, 300.0], [np.nan, 0.0], [np.inf, 0.0], [-1, 0]):
        env = ScriptedEnv(dtype=np.uint8)
        env.observe = lambda observation=observation: np.array(observation)
        with pytest.raises(ValueError, match="uint8"):
            EpisodeScoringWrapper(env).reset()


def test_an_episode_that_saw_nan_is_refused_when_it_ends_and_the_next_is_scored():
    env = ScriptedEnv([2], dtype=np.float32)
    env.observe = lambda: np.array([0.0, np.nan if env.episode == 0 else env.t], np.float32)
    wrapped = EpisodeScoringWrapper(env)
    with pytest.raises(ValueError, match="finite"):
        play(wrapped)
    assert play(wrapped)["episode_scores"]["local"] == 0.5


@pytest.mark.parametrize("action", [np.array([1, 2]), 1.5, np.nan, None, "left"])
def test_an_action_that_does_not_fit_its_space_is_refused_and_the_episode_continues(action):
    env = EpisodeScoringWrapper(ScriptedEnv([2]))
    env.reset()
    env.step(3)
    with pytest.raises(ValueError, match="action"):
        env.step(action)
    assert env.step(4)[4]["episode_record"].actions.tolist() == [3, 4]


def test_observations_of_another_shape_than_the_space_are_refused():
    env = ScriptedEnv()
    env.observation_space = spaces.Box(0, 1, (3,))
    with pytest.raises(ValueError, match="shape"):
        EpisodeScoringWrapper(env).reset()


def test_a_step_before_any_reset_is_refused():
    with pytest.raises(ResetNeeded):
        EpisodeScoringWrapper(ScriptedEnv()).step(0)


@pytest.mark.parametrize(
    "space", [spaces.Tuple([spaces.Discrete(2)]), spaces.Dict(a=spaces.Discrete(2)), spaces.OneOf([spaces.Discrete(2)])]
)
def test_unsupported_action_spaces_are_refused_before_any_step(space):
    with pytest.raises(TypeError, match="action space"):
        EpisodeScoringWrapper(ScriptedEnv(action_space=space))


def test_scoring_twice_is_refused_also_with_wrappers_in_between():
    env = RecordEpisodeStatistics(EpisodeScoringWrapper(ScriptedEnv()))
    with pytest.raises(ValueError, match="not scored yet"):
        EpisodeScoringWrapper(env)


def test_an_info_key_already_taken_is_refused():
    env = EpisodeScoringWrapper(ScriptedEnv([1], info={"episode_scores": 1}))
    env.reset()
    with pytest.raises(ValueError, match="episode_scores"):
        env.step(0)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"local": "median"}, ValueError),
        ({"counter": {}}, TypeError),
        ({"state": "position"}, ValueError),
        ({"state": 3}, TypeError),
        ({"normalize": "yes"}, TypeError),
    ],
)
def test_wrong_arguments_are_refused(arguments, error):
    with pytest.raises(error, match=next(iter(arguments))):
        EpisodeScoringWrapper(ScriptedEnv(), **arguments)


@pytest.mark.parametrize(
    "form",
    [
        {"observations": lambda x: np.zeros((2, 3))},
        {"observations": lambda x: x[:1]},
        {"observations": lambda x: x.astype(str)},
        {"rewards": lambda x: x[:, None]},
        {"rewards": lambda x: x[:1]},
        {"terminations": lambda x: x[:, None]},
        {"terminations": lambda x: x[:1], "truncations": lambda x: x[:1]},
    ],
)
def test_a_step_that_returns_other_shapes_is_refused(form):
    envs = VectorEpisodeScoringWrapper(Native(form))
    envs.reset()
    with pytest.raises(ValueError, match="expected "):
        envs.step([0, 0])
    with pytest.raises(ResetNeeded):
        envs.step([0, 0])


def test_a_state_function_must_give_one_state_for_each_environment():
    envs = VectorEpisodeScoringWrapper(scripted([4], [5], [6]), state=lambda observations, infos: observations[0])
    with pytest.raises(ValueError, match="expected `state` to return an array of"):
        envs.reset()


@pytest.mark.parametrize("rewards", [[0.0, np.nan], [0.0, np.inf], [1e308, 1e308]])
def test_a_return_that_is_not_finite_is_refused_and_discards_the_episodes(rewards):
    envs = VectorEpisodeScoringWrapper(scripted([4], [4], rewards=rewards))
    envs.reset()
    envs.step([0, 0])
    with pytest.raises(ValueError, match="expected rewards with finite sums"):
        envs.step([0, 0])
    with pytest.raises(ResetNeeded):
        envs.step([0, 0])
    assert len(envs.counter) == 0


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_exception_in_one_environment_discards_all_episodes_as_others_may_have_moved(error):
    class Raises(ScriptedEnv):
        def step(self, action):
            if self.tag == 1 and action == 99:
                raise error
            return super().step(action)

    envs = VectorEpisodeScoringWrapper(SyncVectorEnv([functools.partial(Raises, [4], tag=i) for i in range(2)]))
    envs.reset()
    envs.step([0, 0])
    with pytest.raises(error):
        envs.step([99, 99])
    with pytest.raises(ResetNeeded):
        envs.step([0, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        envs.reset()
    assert [len(list(finished_episodes(envs.step([0, 0])[4]))) for _ in range(4)] == [0, 0, 0, 2]


@pytest.mark.parametrize(
    "state", [lambda o, _: o[:, 1] * 0.5 if o.any() else o[:, 1], lambda o, _: o[:, : 1 + o.max()]]
)
def test_a_state_function_must_give_the_same_dtype_and_shape_each_time(state):
    envs = VectorEpisodeScoringWrapper(scripted([4], [4]), state=state)
    envs.env.envs[1].tag = 0
    envs.reset()
    with pytest.raises(ValueError, match="same dtype and shape"):
        envs.step([0, 0])


def test_actions_of_another_shape_are_refused_before_any_environment_moves():
    space = spaces.Box(-1, 1, (2, 3))
    envs = VectorEpisodeScoringWrapper(scripted([4], [4], action_space=space))
    envs.reset()
    for shape in ((4, 3), (2, 3, 2), (12,)):
        with pytest.raises(ValueError, match="expected each action of shape"):
            envs.step(np.zeros(shape, np.float32))
    assert [env.t for env in envs.env.envs] == [0, 0]


@pytest.mark.parametrize("actions", [[0.5, 0.0], [0], [0, 0, 0], ["a", "b"]])
def test_actions_that_do_not_fit_are_refused_and_the_episodes_continue(actions):
    envs = VectorEpisodeScoringWrapper(scripted([2], [2]))
    envs.reset()
    envs.step([1, 2])
    with pytest.raises(ValueError, match="expected each action"):
        envs.step(actions)
    assert len(list(finished_episodes(envs.step([1, 2])[4]))) == 2


def test_a_step_before_a_reset_of_all_is_refused():
    envs = VectorEpisodeScoringWrapper(scripted([2], [2], mode=DISABLED))
    with pytest.raises(ResetNeeded):
        envs.step([0, 0])


@pytest.mark.parametrize("options", [{"reset_mask": [True, False]}, {"reset_mask": np.zeros(2, bool)}])
def test_a_refused_reset_mask_makes_a_whole_reset_necessary(options):
    envs = VectorEpisodeScoringWrapper(scripted([2], [2], mode=DISABLED))
    envs.reset()
    with pytest.raises((TypeError, ValueError, AssertionError)):  # the last from Gymnasium 1.1
        envs.reset(options=options)
    with pytest.raises(ResetNeeded):
        envs.step([0, 0])


def test_scoring_twice_is_refused_both_inside_and_around():
    inside = SyncVectorEnv([lambda: gym.wrappers.OrderEnforcing(EpisodeScoringWrapper(ScriptedEnv()))] * 2)
    around = VectorRecordEpisodeStatistics(VectorEpisodeScoringWrapper(scripted([2], [2])))
    for envs in (inside, around):
        with pytest.raises(ValueError, match="not scored yet"):
            VectorEpisodeScoringWrapper(envs)


@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP])
def test_an_info_key_already_taken_is_refused_in_each_mode(mode):
    envs = VectorEpisodeScoringWrapper(scripted([1], mode=mode, info={"episode_scores": 1.0}))
    envs.reset()
    with pytest.raises(ValueError, match="leaves info"):
        envs.step([0])


def test_wrong_environments_are_refused_with_the_wrapper_to_use():
    with pytest.raises(TypeError, match="EpisodeScoringWrapper"):
        VectorEpisodeScoringWrapper(ScriptedEnv())
    with pytest.raises(TypeError, match="VectorEpisodeScoringWrapper"):
        EpisodeScoringWrapper(scripted([2]))
    with pytest.raises(TypeError, match="FilterObservation"):
        VectorEpisodeScoringWrapper(SyncVectorEnv([functools.partial(gym.make, "MiniGrid-KeyCorridorS3R1-v0")] * 2))
    with pytest.raises(ValueError, match="expected `local`"):
        VectorEpisodeScoringWrapper(scripted([2]), local="mean")


@pytest.mark.parametrize("score", [np.nan, np.inf, None, "0.5", [1.0, 2.0]])
def test_a_local_function_that_returns_no_finite_number_is_refused_and_discards_the_episodes(score):
    envs = VectorEpisodeScoringWrapper(scripted([1], [2]), local=lambda states: score)
    envs.reset()
    with pytest.raises(ValueError, match="expected `local` to return"):
        envs.step([0, 0])
    with pytest.raises(ResetNeeded):
        envs.step([0, 0])
    assert envs.counter.counts.sum() == 0
