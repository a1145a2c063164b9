import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from rapid_wrappers import Episode, EpisodeScores, EpisodeScoringWrapper, RankingBuffer, finished_episodes
from tests.scripted_env import ScriptedEnv, play

LENGTHS = ([3, 1, 4], [5, 2], [1])


def make(tag):
    return lambda: EpisodeScoringWrapper(ScriptedEnv(LENGTHS[tag], tag=tag))


@pytest.mark.parametrize("vector", [gym.vector.SyncVectorEnv, gym.vector.AsyncVectorEnv])
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_every_episode_of_a_vector_environment_comes_once_and_whole(vector, mode):
    envs = vector([make(tag) for tag in range(3)], autoreset_mode=mode)
    envs.reset()
    found = [[] for _ in range(3)]
    ended = np.zeros(3, int)
    for step in range(24):
        _, _, terminated, truncated, infos = envs.step(np.full(3, step))
        ended += terminated | truncated
        for index, episode in finished_episodes(infos):
            found[index].append(episode)
        if mode is AutoresetMode.DISABLED and (terminated | truncated).any():
            envs.reset(options={"reset_mask": terminated | truncated})
    envs.close()
    for tag, episodes in enumerate(found):
        assert len(episodes) == ended[tag] > 1
        for number, episode in enumerate(episodes):
            length = LENGTHS[tag][number % len(LENGTHS[tag])]
            assert episode.observations.tolist() == [[tag, t] for t in range(length)]
            assert np.array_equal(np.diff(episode.actions), np.ones(length - 1))  # no ignored action in between


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_an_episode_from_a_worker_has_no_ids_since_its_counter_stays_there(context):
    envs = gym.vector.AsyncVectorEnv([make(tag) for tag in range(3)], context=context)
    envs.reset()
    infos = envs.step(np.zeros(3, int))[4]
    envs.close()
    ((index, episode),) = finished_episodes(infos)
    assert index == 2
    assert episode.state_ids is None
    assert episode.scores == (1.0, 1.0, 1.0)


def test_an_episode_copied_within_its_process_keeps_its_ids():
    episode = play(EpisodeScoringWrapper(ScriptedEnv([2])))["episode_record"]
    for copied in (copy.deepcopy(episode), pickle.loads(pickle.dumps(episode))):
        assert copied.state_ids.tolist() == [0, 1]
        assert copied.scores == episode.scores


def test_one_environments_info_has_index_zero():
    env = EpisodeScoringWrapper(ScriptedEnv([2]))
    _, info = env.reset()
    assert list(finished_episodes(info)) == []
    ((index, episode),) = finished_episodes(play(env))
    assert index == 0
    assert len(episode) == 2


def test_a_list_of_infos_gives_the_position_in_the_list():
    env = EpisodeScoringWrapper(ScriptedEnv([2]))
    infos = [{}, play(env), {"TimeLimit.truncated": True}, play(env)]
    assert [index for index, _ in finished_episodes(infos)] == [1, 3]
    assert list(finished_episodes([])) == []


def test_an_episode_reported_inside_and_around_a_vector_environment_comes_once():
    record = play(EpisodeScoringWrapper(ScriptedEnv([2])))["episode_record"]
    array = np.array([None, record], dtype=object)
    infos = {"episode_record": array, "final_info": {"episode_record": array.copy()}}
    assert list(finished_episodes(infos)) == [(1, record)]


def test_the_fields_of_an_episode_are_the_arguments_of_the_buffer():
    episode = play(EpisodeScoringWrapper(ScriptedEnv([2])))["episode_record"]
    buffer = RankingBuffer()
    buffer.add(**vars(episode))
    assert len(buffer) == 2


def test_episodes_are_frozen_and_compare_by_identity():
    episode = Episode(np.zeros((1, 2)), np.zeros(1), EpisodeScores(0.0, 0.0, 0.0), None)
    assert episode == episode
    assert episode != Episode(np.zeros((1, 2)), np.zeros(1), EpisodeScores(0.0, 0.0, 0.0), None)
    with pytest.raises(AttributeError):
        episode.actions = 1
