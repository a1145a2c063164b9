import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.wrappers.vector import DictInfoToList, NormalizeObservation, NormalizeReward, RecordEpisodeStatistics

import rapid_wrappers.envs  # noqa: F401
from rapid_wrappers import (
    Episode,
    VectorEpisodeScoringWrapper,
    finished_episodes,
)
from tests.wrappers.vector_episodes import (
    DISABLED,
    NEXT_STEP,
    Native,
    each_mode,
    run,
    scripted,
)


@each_mode
def test_episodes_mix_no_environments_and_miss_no_step(mode):
    found = run(VectorEpisodeScoringWrapper(scripted([3], [5], [1, 4], mode=mode)), 60)
    for step, i, episode in found:
        assert episode.observations.tolist() == [[i, t] for t in range(len(episode))]
        # each action is the number of its step
        assert episode.actions.tolist() == list(range(step - len(episode) + 1, step + 1))
    pause = int(mode is NEXT_STEP)
    assert [len(e) for _, i, e in found if i == 2][:4] == [1, 4, 1, 4]
    assert sum(i == 0 for _, i, _ in found) == 60 // (3 + pause)
    assert sum(i == 1 for _, i, _ in found) == 60 // (5 + pause)


@each_mode
def test_infos_hold_floats_at_their_top_level_with_masks_on_the_last_step_only(mode):
    envs = VectorEpisodeScoringWrapper(scripted([2], [2], [3], mode=mode, rewards=[0, 1]))
    envs.reset()
    assert "episode_scores" not in envs.step([0, 0, 0])[4]
    infos = envs.step([0, 0, 0])[4]
    scores = infos["episode_scores"]
    for name, expected in (("extrinsic", [1, 1, 0]), ("local", [1, 1, 0]), ("global", [1, 1, 0])):
        assert scores[name].dtype == np.float64
        assert scores[name].tolist() == expected
        assert scores[f"_{name}"].tolist() == [True, True, False]
    assert infos["_episode_scores"].tolist() == infos["_episode_record"].tolist() == [True, True, False]
    assert [type(record) for record in infos["episode_record"]] == [Episode, Episode, type(None)]


@pytest.mark.parametrize("ends", [(True, False), (False, True), (True, True)])
@each_mode
def test_every_way_to_end_an_episode_scores_it_once(ends, mode):
    found = run(VectorEpisodeScoringWrapper(scripted([2], [4], mode=mode, ends=ends)), 12)
    assert [len(episode) for _, i, episode in found if i == 0] == [2] * (4 if mode is NEXT_STEP else 6)


def test_steps_between_an_end_and_a_late_reset_are_not_recorded():
    class GoesOn(gym.vector.VectorEnv):
        """Ends after two steps, and reports an end ever after."""

        metadata = {"autoreset_mode": DISABLED}  # noqa: RUF012
        num_envs = 2
        single_observation_space = spaces.Discrete(9)
        single_action_space = spaces.Discrete(9)

        def reset(self, *, seed=None, options=None):
            self.t = 0
            return np.zeros(2, int), {}

        def step(self, actions):
            self.t += 1
            return np.full(2, self.t), np.ones(2), np.full(2, self.t >= 2), np.zeros(2, bool), {}

    envs = VectorEpisodeScoringWrapper(GoesOn())
    envs.reset()
    found = [len(list(finished_episodes(envs.step(np.zeros(2, int))[4]))) for _ in range(5)]
    assert found == [0, 2, 0, 0, 0]
    envs.reset()
    assert [len(list(finished_episodes(envs.step(np.zeros(2, int))[4]))) for _ in range(2)] == [0, 2]


def test_a_partial_reset_discards_only_the_fragments_it_restarts_and_warns_once():
    envs = VectorEpisodeScoringWrapper(scripted([4], [4], mode=DISABLED))
    envs.reset()
    envs.step([0, 0])
    with pytest.warns(UserWarning, match="after 1 steps of an unfinished episode"):
        envs.reset(options={"reset_mask": np.array([True, False])})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        envs.step([0, 0])
        envs.reset(options={"reset_mask": np.array([True, False])})
    envs.step([0, 0])
    (index, episode), *others = finished_episodes(envs.step([0, 0])[4])
    assert (index, others, len(episode)) == (1, [], 4)
    assert len(envs.counter) == 4


@pytest.mark.parametrize("seed", [None, 3])
def test_a_whole_reset_discards_what_is_in_flight(seed):
    envs = VectorEpisodeScoringWrapper(scripted([4], [9]))
    envs.reset(seed=3)
    for _ in range(3):
        envs.step([0, 0])
    with pytest.warns(UserWarning, match="after 3 steps"):
        envs.reset(seed=seed)
    episodes = [list(finished_episodes(envs.step([0, 0])[4])) for _ in range(4)]
    assert [len(x) for x in episodes] == [0, 0, 0, 1]
    assert len(episodes[3][0][1]) == 4
    assert episodes[3][0][1].scores == (4.0, 1.0, 1.0)


def test_a_reset_right_after_an_end_discards_nothing():
    envs = VectorEpisodeScoringWrapper(scripted([2], [2]))
    envs.reset()
    envs.step([0, 0])
    envs.step([0, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        envs.reset()


@each_mode
def test_episodes_that_end_on_their_first_step_are_each_scored(mode):
    found = run(VectorEpisodeScoringWrapper(scripted([1], [1, 2], mode=mode)), 6)
    steps = {i: [(step, len(episode)) for step, j, episode in found if i == j] for i in range(2)}
    if mode is NEXT_STEP:
        assert steps == {0: [(0, 1), (2, 1), (4, 1)], 1: [(0, 1), (3, 2), (5, 1)]}
    else:
        assert steps == {0: [(step, 1) for step in range(6)], 1: [(0, 1), (2, 2), (3, 1), (5, 2)]}


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"observations": lambda x: x.astype(np.float64).reshape(2)},
        {"rewards": list},
        {"rewards": np.float32, "terminations": np.uint8},
        {"terminations": np.float64, "truncations": np.int64},
    ],
)
def test_equal_values_in_another_form_are_scored_the_same(form):
    envs = VectorEpisodeScoringWrapper(Native(form))
    envs.reset()
    found = [[(i, len(x), x.scores.extrinsic) for i, x in finished_episodes(envs.step([0, 0])[4])] for _ in range(4)]
    assert found == [[], [(0, 2, 2.0)], [(1, 3, 3.0)], []]


def test_a_reset_mask_of_numbers_restarts_the_environments_that_are_not_zero():
    envs = VectorEpisodeScoringWrapper(Native({}))
    envs.reset()
    envs.step([0, 0])
    with pytest.warns(UserWarning, match="after 1 steps"):
        envs.reset(options={"reset_mask": [1, 0]})
    assert envs.state_dict()["lengths"].tolist() == [0, 1]


def test_observations_outside_the_range_of_their_space_are_recorded_unchanged():
    envs = VectorEpisodeScoringWrapper(Native({"observations": lambda x: x * -1e6}))
    envs.reset()
    found = [x for _ in range(3) for _, x in finished_episodes(envs.step([0, 0])[4])]
    assert [x.observations[:, 0].tolist() for x in found] == [[0, -1e6], [0, -1e6, -2e6]]


def test_without_records_only_scores_are_given():
    envs = VectorEpisodeScoringWrapper(scripted([1], [2]), record=False)
    envs.reset()
    infos = envs.step([0, 0])[4]
    assert infos["episode_scores"]["local"].tolist() == [1.0, 0.0]
    assert "episode_record" not in infos


def test_an_environment_of_tensors_can_be_scored():
    class Tensors(gym.vector.VectorWrapper):
        def reset(self, **kwargs):
            observations, infos = self.env.reset(**kwargs)
            return torch.as_tensor(observations), infos

        def step(self, actions):
            *arrays, infos = self.env.step(actions.numpy())
            return *(torch.as_tensor(array) for array in arrays), infos

    envs = VectorEpisodeScoringWrapper(Tensors(scripted([2], [3])))
    envs.reset()
    found = []
    for step in range(3):
        found += list(finished_episodes(envs.step(torch.full((2,), step))[4]))
    assert [(i, episode.actions.tolist()) for i, episode in found] == [(0, [0, 1]), (1, [0, 1, 2])]


@pytest.mark.parametrize(
    ("space", "actions"),
    [
        (spaces.Discrete(5, start=2), np.array([2, 6])),
        (spaces.MultiDiscrete([3, 2]), np.array([[2, 1], [0, 0]])),
        (spaces.MultiBinary(3), np.array([[1, 0, 1], [0, 0, 0]], np.int8)),
        (spaces.Box(-1, 1, (2, 2)), np.full((2, 2, 2), 1.5, np.float32)),
    ],
)
def test_supported_actions_are_recorded_as_they_were_taken(space, actions):
    found = run(VectorEpisodeScoringWrapper(scripted([2], [2], action_space=space)), 2, [actions, actions])
    for _, i, episode in found:
        np.testing.assert_array_equal(episode.actions, [actions[i]] * 2)
        assert episode.actions.dtype == space.dtype


def test_seed_and_options_reach_the_environments():
    envs = VectorEpisodeScoringWrapper(scripted([2], [2]))
    envs.reset(seed=4, options={"level": 1})
    assert envs.env.np_random_seed == (4, 5)
    assert [env.options for env in envs.env.envs] == [[{"level": 1}]] * 2


def test_without_metadata_the_mode_is_next_step():
    envs = scripted([2], [3])
    envs.metadata = {}
    found = []
    wrapped = VectorEpisodeScoringWrapper(envs)
    wrapped.reset()
    for step in range(12):
        found += [(step, i) for i, _ in finished_episodes(wrapped.step(np.full(2, step))[4])]
    assert found == [(1, 0), (2, 1), (4, 0), (6, 1), (7, 0), (10, 0), (10, 1)]


def test_gymnasiums_vector_wrappers_work_on_either_side():
    inner = RecordEpisodeStatistics(scripted([3], [4], mode=NEXT_STEP, dtype=np.float32, rewards=[10.0]))
    envs = NormalizeReward(NormalizeObservation(VectorEpisodeScoringWrapper(inner)))
    found = run(envs, 30)
    for _, i, episode in found:
        assert episode.observations.tolist() == [[i, t] for t in range(len(episode))]  # raw, below normalisation
        assert episode.scores.extrinsic == 10.0 * len(episode)
    envs = DictInfoToList(VectorEpisodeScoringWrapper(scripted([1], [2])))
    envs.reset()
    infos = envs.step(np.zeros(2, int))[4]
    assert [(i, len(episode)) for i, episode in finished_episodes(infos)] == [(0, 1)]
    assert infos[0]["episode_scores"] == {"extrinsic": 1.0, "local": 1.0, "global": 1.0}
