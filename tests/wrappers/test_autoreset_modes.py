"""Vector environments that do not declare when they restart, or declare it wrongly."""

import warnings

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorWrapper
from gymnasium.wrappers import TransformObservation

from rapid_wrappers import EpisodeScoringWrapper, VectorEpisodeScoringWrapper, finished_episodes
from tests.scripted_env import ScriptedEnv
from tests.wrappers.vector_episodes import DISABLED, NEXT_STEP, SAME_STEP, assert_same_episodes, run, scripted


class Silent(VectorWrapper):
    """Declares ``mode``, or none."""

    def __init__(self, envs, mode=None, mark=None):
        super().__init__(envs)
        self.metadata, self.mark = {} if mode is None else {"autoreset_mode": mode}, mark

    @property
    def unwrapped(self):
        return self

    def step(self, actions):
        *step, infos = self.env.step(actions)
        if self.mark and "final_obs" in infos:
            infos = {self.mark: infos["final_info" if self.mark == "final_info" else "final_obs"]}
        return *step, infos


def play(envs, steps):
    envs.reset()
    found = []
    for step in range(steps):
        infos = envs.step(np.full(envs.num_envs, step))[4]
        found += [(step, i, episode) for i, episode in finished_episodes(infos)]
    return found


@pytest.mark.parametrize("mark", [None, "final_observation", "final_info"])
def test_a_restart_in_the_same_step_is_known_by_its_mark(mark):
    envs = VectorEpisodeScoringWrapper(Silent(scripted([3], [5], mode=SAME_STEP), mark=mark))
    with pytest.warns(UserWarning, match="SAME_STEP is assumed") as said:
        found = play(envs, 30)
    assert len(said) == 1
    assert_same_episodes(found, run(VectorEpisodeScoringWrapper(scripted([3], [5], mode=SAME_STEP)), 30))


def test_without_the_mark_a_restart_in_the_next_step_is_assumed():
    envs = VectorEpisodeScoringWrapper(Silent(scripted([3], [5], mode=NEXT_STEP)))
    with pytest.warns(UserWarning, match="NEXT_STEP is assumed") as said:
        found = play(envs, 30)
    assert len(said) == 1
    assert_same_episodes(found, run(VectorEpisodeScoringWrapper(scripted([3], [5], mode=NEXT_STEP)), 30))


@pytest.mark.parametrize("declared", [NEXT_STEP, DISABLED])
def test_a_mark_that_contradicts_the_declared_mode_is_an_error(declared):
    envs = VectorEpisodeScoringWrapper(Silent(scripted([3], [5], mode=SAME_STEP), declared))
    with pytest.raises(ValueError, match=r"final_obs.*autoreset_mode"):
        play(envs, 30)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_nothing_is_said_about_a_declared_mode(mode):
    envs = VectorEpisodeScoringWrapper(scripted([3], [5], mode=mode))
    with warnings.catch_warnings(action="error"):
        assert run(envs, 20)


def as_arrays(env):
    """Return reward and end flags in arrays of one number."""
    step = env.step
    env.step = lambda action: (lambda o, *rest, info: (o, *map(np.atleast_1d, rest), info))(*step(action)[:4], info={})
    return env


def test_end_flags_and_rewards_may_come_in_arrays():
    env = EpisodeScoringWrapper(as_arrays(ScriptedEnv([3])))
    env.reset()
    for t in range(3):
        _, reward, terminated, truncated, info = env.step(0)
        assert (reward, terminated, truncated) == (1.0, t == 2, False)
        assert [type(x) for x in (reward, terminated, truncated)] == [float, bool, bool]
    assert info["episode_scores"]["extrinsic"] == 3
    inside = SyncVectorEnv([lambda: EpisodeScoringWrapper(as_arrays(ScriptedEnv([3])))] * 2)  # Gymnasium takes none
    assert [len(episode) for *_, episode in run(inside, 3)] == [3, 3]


@pytest.mark.parametrize("flags", [np.array([True, False]), "yes", None])
def test_end_flags_that_are_not_one_flag_are_refused(flags):
    env = EpisodeScoringWrapper(ScriptedEnv([3], ends=(flags, flags)))
    env.unwrapped.step = lambda action: (np.zeros(2, int), 0.0, flags, False, {})
    env.reset()
    with pytest.raises(ValueError, match="one flag"):
        env.step(0)


def test_an_observation_is_checked_against_its_space_at_the_first_reset():
    env = ScriptedEnv([3], dtype=np.uint8)
    floats = TransformObservation(env, lambda obs: obs + 0.7, env.observation_space)
    with pytest.raises(ValueError, match="uint8"):
        EpisodeScoringWrapper(floats).reset()
