import json
import pickle
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.wrappers import (
    ClipAction,
    FlattenObservation,
    FrameStackObservation,
    NormalizeReward,
    RecordEpisodeStatistics,
    TimeLimit,
)

import rapid_wrappers.envs  # noqa: F401
from rapid_wrappers import Episode, EpisodeScoringWrapper, StateCounter
from tests.scripted_env import ScriptedEnv, play

IDS = ("rapid/MultiRoom-N4-S5-v0", "rapid/KeyCorridorS3R2-v0", "CartPole-v1", "Pendulum-v1")


def test_scores_and_record_of_an_episode_by_hand():
    env = EpisodeScoringWrapper(ScriptedEnv([4], tag=3, rewards=[1.0, -0.5]))
    info = play(env, actions=[7, 8, 9, 10])
    assert info["episode_scores"] == {"extrinsic": 1.0, "local": 1.0, "global": 1.0}
    record = info["episode_record"]
    assert isinstance(record, Episode)
    assert record.observations.tolist() == [[3, 0], [3, 1], [3, 2], [3, 3]]
    assert record.actions.tolist() == [7, 8, 9, 10]
    assert record.scores == (1.0, 1.0, 1.0)
    assert record.state_ids.tolist() == [0, 1, 2, 3]
    assert play(env)["episode_scores"]["global"] == pytest.approx(0.5**0.5)


def test_only_the_last_step_of_an_episode_has_scores():
    env = EpisodeScoringWrapper(ScriptedEnv([3]))
    _, info = env.reset()
    assert not info
    assert ["episode_scores" in env.step(0)[4] for _ in range(3)] == [False, False, True]


@pytest.mark.parametrize("ends", [(True, False), (False, True), (True, True)])
def test_every_way_to_end_an_episode_scores_it_once(ends):
    env = EpisodeScoringWrapper(ScriptedEnv([2], ends=ends))
    assert "episode_scores" in play(env)
    with pytest.raises(ResetNeeded):
        env.step(0)


def test_scores_are_always_python_floats():
    for rewards in ([0], [1], [np.float32(1)], [np.int64(0)]):
        scores = play(EpisodeScoringWrapper(ScriptedEnv([1], rewards=rewards)))["episode_scores"]
        assert [type(s) for s in scores.values()] == [float] * 3


@pytest.mark.parametrize("mode", [gym.vector.AutoresetMode.SAME_STEP, gym.vector.AutoresetMode.NEXT_STEP])
@pytest.mark.parametrize("vector", [gym.vector.SyncVectorEnv, gym.vector.AsyncVectorEnv])
def test_vector_infos_truncate_no_score_and_survive_unequal_lengths(mode, vector):
    # Both episodes end on the same vector step, the first with whole numbers only.
    fast, slow = [3], [6 if mode is gym.vector.AutoresetMode.SAME_STEP else 7]
    envs = vector(
        [lambda: EpisodeScoringWrapper(ScriptedEnv(fast, rewards=[0])),
         lambda: EpisodeScoringWrapper(ScriptedEnv(slow, tag=1, rewards=[0.125]))], autoreset_mode=mode,
    )  # fmt: skip
    envs.reset()
    for _ in range(slow[0]):
        infos = envs.step(np.zeros(2, np.int64))[4]
    envs.close()
    infos = infos.get("final_info", infos)
    assert infos["_episode_record"].all()
    assert infos["episode_scores"]["extrinsic"].tolist() == [0.0, 0.125 * slow[0]]
    assert [len(record) for record in infos["episode_record"]] == [3, slow[0]]


def test_an_overwritten_observation_is_recorded_with_its_earlier_values():
    env = EpisodeScoringWrapper(ScriptedEnv([5], reuse=True))
    first = play(env)
    assert first["episode_record"].observations[:, 1].tolist() == [0, 1, 2, 3, 4]
    assert first["episode_scores"]["local"] == 1.0
    play(env)
    assert first["episode_record"].observations[:, 1].tolist() == [0, 1, 2, 3, 4]


def test_the_final_observation_survives_the_reset_that_overwrites_it():
    env = EpisodeScoringWrapper(ScriptedEnv([2], reuse=True))
    env.reset()
    env.step(0)
    final = env.step(0)[0]
    env.reset()
    assert final.tolist() == [0, 2]


def test_an_overwritten_action_is_recorded_with_its_earlier_values():
    env = EpisodeScoringWrapper(ScriptedEnv([2], action_space=spaces.Box(-1, 1, (2,))))
    env.reset()
    action = np.zeros(2, np.float32)
    env.step(action)
    action += 5  # also out of bounds: the record holds the chosen action, not the clipped one
    record = env.step(action)[4]["episode_record"]
    assert record.actions.tolist() == [[0, 0], [5, 5]]


def test_an_info_dictionary_that_is_reused_is_left_alone():
    env = ScriptedEnv([1], info={"key": 1})
    wrapped = EpisodeScoringWrapper(env)
    assert set(play(wrapped)) == {"key", "episode_scores", "episode_record"}
    assert env.info == {"key": 1}
    assert set(wrapped.reset()[1]) == {"key"}


def test_a_reset_in_mid_episode_discards_the_fragment_and_warns_once():
    env = EpisodeScoringWrapper(ScriptedEnv([5]))
    env.reset()
    env.step(0)
    env.step(0)
    with pytest.warns(UserWarning, match="TimeLimit"):
        info = play(env)
    assert len(info["episode_record"]) == 5
    assert info["episode_scores"] == {"extrinsic": 5.0, "local": 1.0, "global": 1.0}  # the fragment adds nothing
    env.reset()
    env.step(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.reset()
        assert "episode_scores" not in env.reset()[1]


@pytest.mark.parametrize(("seed", "steps", "warned"), [(None, 1, True), (0, 2, False), (0, 3, True)])
def test_a_seeded_restart_after_a_step_or_two_gives_no_warning_as_check_env_does_it(seed, steps, warned):
    env = EpisodeScoringWrapper(ScriptedEnv([9]))
    env.reset()
    for _ in range(steps):
        env.step(0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        env.reset(seed=seed)
    assert bool(caught) == warned


def test_a_time_limit_belongs_inside():
    inside = EpisodeScoringWrapper(TimeLimit(ScriptedEnv([9]), 4))
    assert len(play(inside)["episode_record"]) == 4
    outside = TimeLimit(EpisodeScoringWrapper(ScriptedEnv([9])), 4)
    assert "episode_scores" not in play(outside)
    with pytest.warns(UserWarning, match="inside"):
        outside.reset()


def test_seed_and_options_reach_the_environment():
    stub = ScriptedEnv()
    EpisodeScoringWrapper(stub).reset(seed=1, options={"level": 2})
    assert stub.options == [{"level": 2}]
    env, bare = EpisodeScoringWrapper(gym.make(IDS[0])), gym.make(IDS[0])
    for _ in range(3):
        assert np.array_equal(env.reset(seed=42)[0], bare.reset(seed=42)[0])


@pytest.mark.parametrize("env_id", IDS)
def test_wrapped_dynamics_equal_bare_dynamics(env_id):
    bare, wrapped = (
        gym.make(env_id, max_episode_steps=60),
        EpisodeScoringWrapper(gym.make(env_id, max_episode_steps=60)),
    )
    bare.action_space.seed(0)
    assert data_equivalence(bare.reset(seed=5), wrapped.reset(seed=5))
    for _ in range(300):
        action = bare.action_space.sample()
        one, two = bare.step(action), wrapped.step(action)
        two[4].pop("episode_scores", None), two[4].pop("episode_record", None)
        assert data_equivalence(one, two)
        assert type(one[1]) is type(two[1])
        if one[2] or one[3]:
            assert data_equivalence(bare.reset(), wrapped.reset())
    assert bare.unwrapped.np_random.bit_generator.state == wrapped.unwrapped.np_random.bit_generator.state


@pytest.mark.parametrize("env_id", IDS)
def test_gymnasiums_checker_reports_only_that_the_environment_is_wrapped(env_id):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*is different from the unwrapped version.*")
        warnings.filterwarnings("ignore", message=".*observation space .* (infinity|too low|too high).*")
        warnings.filterwarnings("ignore", message=".*For Box action spaces, we recommend using a symmetric.*")
        check_env(EpisodeScoringWrapper(gym.make(env_id)), skip_render_check=True)


def test_an_environment_rebuilt_from_its_spec_has_the_same_arguments_and_shares_the_counter():
    counter = StateCounter()
    env = EpisodeScoringWrapper(gym.make(IDS[0]), local="std", count=True, counter=counter, record=False)
    rebuilt = gym.make(env.spec)
    assert (rebuilt.local, rebuilt.count, rebuilt.counter) == ("std", True, counter)
    rebuilt.reset(seed=0)
    done = False
    while not done:
        *_, terminated, truncated, info = rebuilt.step(0)
        done = terminated or truncated
    assert "episode_record" not in info
    assert counter.counts.sum() == 80


def test_a_spec_without_counter_or_function_goes_through_json():
    env = EpisodeScoringWrapper(gym.make("CartPole-v1"), local="distance")
    text = env.spec.to_json()
    json.loads(text)
    assert gym.make(EnvSpec.from_json(text)).local == "distance"


def test_rewards_that_come_as_arrays_become_numbers():
    for reward in (np.array([2.0]), np.array(2.0), np.float32(2.0)):
        env = EpisodeScoringWrapper(ScriptedEnv([2], rewards=[reward]))
        env.reset()
        assert np.ndim(env.step(0)[1]) == 0
        assert env.step(0)[4]["episode_scores"]["extrinsic"] == 4.0


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_observations_and_actions_are_recorded_in_the_dtype_of_their_space(dtype):
    class Careless(ScriptedEnv):
        def observe(self):
            return np.array([self.tag, self.t], np.float64) if self.t % 2 else [self.tag, self.t]

    env = EpisodeScoringWrapper(Careless([4], dtype=dtype, action_space=spaces.Box(-1, 1, (1,))))
    record = play(env, [[0], [0.5], np.array([1.0]), np.array([1])])["episode_record"]
    assert record.observations.dtype == dtype
    assert record.observations.tolist() == [[0, 0], [0, 1], [0, 2], [0, 3]]
    assert record.actions.dtype == np.float32
    assert record.actions.tolist() == [[0], [0.5], [1], [1]]


def test_an_observation_outside_the_range_of_its_space_is_recorded_unchanged():
    env = ScriptedEnv([3], dtype=np.float32)
    env.observe = lambda: np.array([-7.5, 1e6 * env.t], np.float32)
    assert play(EpisodeScoringWrapper(env))["episode_record"].observations.tolist() == [
        [-7.5, 1e6 * t] for t in range(3)
    ]


def test_info_keys_may_change_from_step_to_step():
    class Talks(ScriptedEnv):
        def step(self, action):
            *step, _ = super().step(action)
            return *step, {f"key {self.t}": self.t}

    env = EpisodeScoringWrapper(Talks([3]))
    env.reset()
    keys = [set(env.step(0)[4]) for _ in range(3)]
    assert keys == [{"key 1"}, {"key 2"}, {"key 3", "episode_scores", "episode_record"}]


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(5, start=2),
        spaces.MultiDiscrete([3, 4]),
        spaces.MultiBinary(3),
        spaces.Box(-1, 1, (2, 2)),
        spaces.Box(-1, 1, ()),
    ],
)
def test_supported_actions_are_recorded_as_they_were_taken(space):
    env = EpisodeScoringWrapper(ScriptedEnv([6], action_space=space))
    space.seed(0)
    actions = [space.sample() for _ in range(6)]
    record = play(env, actions)["episode_record"]
    assert np.array_equal(record.actions, actions)
    assert record.actions.dtype == space.dtype
    assert record.actions.shape == (6, *space.shape)


def test_the_documented_order_scores_raw_rewards():
    def extrinsic(env):
        env.reset()
        for _ in range(10):
            info = env.step(0)[4]
        return info["episode_scores"]["extrinsic"]

    assert extrinsic(NormalizeReward(EpisodeScoringWrapper(ScriptedEnv([10])))) == 10.0
    assert extrinsic(EpisodeScoringWrapper(NormalizeReward(ScriptedEnv([10])))) != 10.0


def test_actions_are_recorded_unclipped_with_clip_action_inside():
    env = EpisodeScoringWrapper(ClipAction(ScriptedEnv([1], action_space=spaces.Box(-1, 1, (1,)))))
    assert play(env, [np.array([3.0])])["episode_record"].actions.tolist() == [[3.0]]


def test_other_wrappers_inside_and_outside_work():
    inside = EpisodeScoringWrapper(
        FlattenObservation(FrameStackObservation(RecordEpisodeStatistics(ScriptedEnv([3])), 2))
    )
    info = play(inside)
    assert info["episode"]["r"] == info["episode_scores"]["extrinsic"] == 3.0
    assert info["episode_record"].observations.tolist() == [[0, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, 2]]
    assert "episode_record" in play(RecordEpisodeStatistics(EpisodeScoringWrapper(ScriptedEnv([3]))))


def test_a_pickled_wrapper_continues_in_mid_episode():
    env = EpisodeScoringWrapper(ScriptedEnv([3]))
    env.reset()
    env.step(4)
    copy = pickle.loads(pickle.dumps(env))
    for e in (env, copy):
        e.step(5)
        assert e.step(6)[4]["episode_record"].actions.tolist() == [4, 5, 6]
