import functools
import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import DictInfoToList, NormalizeObservation, NormalizeReward, RecordEpisodeStatistics

import rapid_wrappers.envs  # noqa: F401
from rapid_wrappers import (
    Episode,
    EpisodeScores,
    EpisodeScoringWrapper,
    RankingBuffer,
    StateCounter,
    VectorEpisodeScoringWrapper,
    finished_episodes,
)
from tests.scripted_env import ScriptedEnv

MODES = list(AutoresetMode)
NEXT_STEP, SAME_STEP, DISABLED = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED
each_mode = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)


def scripted(*lengths, mode=NEXT_STEP, **kwargs):
    """One ScriptedEnv for each of `lengths`, with its index as tag."""
    makers = [functools.partial(ScriptedEnv, length, tag=i, **kwargs) for i, length in enumerate(lengths)]
    return SyncVectorEnv(makers, autoreset_mode=mode)


def run(envs, steps, actions=None, seed=None):
    """The episodes of so many steps, as (step, env_index, Episode); DISABLED is reset with masks."""
    _, infos = envs.reset(seed=seed)
    assert not list(finished_episodes(infos))
    found = []
    for step in range(steps):
        taken = np.full(envs.num_envs, step) if actions is None else actions[step]
        *_, terminations, truncations, infos = envs.step(taken)
        found += [(step, i, episode) for i, episode in finished_episodes(infos)]
        done = terminations | truncations
        if envs.metadata["autoreset_mode"] is DISABLED and done.any():
            assert not list(finished_episodes(envs.reset(options={"reset_mask": done})[1]))
    return found


def run_singly(make_env, num_envs, mode, steps, actions, seed):
    """The same by EpisodeScoringWrapper around each environment, stepped by hand, with one counter."""
    counter = StateCounter()
    envs = [EpisodeScoringWrapper(make_env(), counter=counter) for _ in range(num_envs)]
    for i, env in enumerate(envs):
        env.reset(seed=seed + i)
    ended, found = [False] * num_envs, []
    for step in range(steps):
        for i, env in enumerate(envs):
            if ended[i]:
                env.reset()
                ended[i] = False
                if mode is NEXT_STEP:
                    continue
            *_, terminated, truncated, info = env.step(actions[step][i])
            ended[i] = terminated or truncated
            found += [(step, i, episode) for _, episode in finished_episodes(info)]
    return found


def assert_same_episodes(ours, theirs):
    assert [x[:2] for x in ours] == [x[:2] for x in theirs]
    assert ours
    for (*_, x), (*_, y) in zip(ours, theirs, strict=True):
        assert x.scores == y.scores
        for a, b in ((x.observations, y.observations), (x.actions, y.actions), (x.state_ids, y.state_ids)):
            assert (a is None) == (b is None)
            if a is not None:
                assert a.dtype == b.dtype
                np.testing.assert_array_equal(a, b)


@each_mode
@pytest.mark.parametrize(
    "env_id", ["rapid/MultiRoom-N2-S4-v0", "rapid/KeyCorridorS3R1-v0", "CartPole-v1", "Pendulum-v1", "FrozenLake-v1"]
)
def test_episode_for_episode_it_is_the_single_wrapper(env_id, mode):
    make_env = functools.partial(gym.make, env_id)
    envs = VectorEpisodeScoringWrapper(SyncVectorEnv([make_env] * 3, autoreset_mode=mode))
    envs.action_space.seed(0)
    actions = [envs.action_space.sample() for _ in range(500)]
    assert_same_episodes(run(envs, 500, actions, seed=5), run_singly(make_env, 3, mode, 500, actions, seed=5))


@each_mode
def test_around_the_native_engine_it_is_the_single_wrapper_around_minigrid(mode):
    env_id = "rapid/KeyCorridorS3R1-v0"
    envs = VectorEpisodeScoringWrapper(gym.make_vec(env_id, 3, "vector_entry_point", autoreset_mode=mode))
    envs.action_space.seed(0)
    actions = [envs.action_space.sample() for _ in range(600)]
    theirs = run_singly(functools.partial(gym.make, env_id), 3, mode, 600, actions, seed=5)
    assert_same_episodes(run(envs, 600, actions, seed=5), theirs)


@each_mode
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_around_an_async_environment_it_is_that_around_a_sync_one(mode, context):
    makers = [functools.partial(ScriptedEnv, length, tag=i) for i, length in enumerate([(3,), (5, 2)])]
    envs = AsyncVectorEnv(makers, autoreset_mode=mode, context=context)
    ours = run(VectorEpisodeScoringWrapper(envs), 20)
    envs.close()
    assert_same_episodes(ours, run(VectorEpisodeScoringWrapper(SyncVectorEnv(makers, autoreset_mode=mode)), 20))


def make_grid():
    return gym.make("rapid_wrappers.envs:rapid/MultiRoom-N2-S4-v0")  # imported in a spawned worker, too


def test_our_ids_run_in_spawned_workers_with_one_counter_in_the_learner():
    envs = VectorEpisodeScoringWrapper(AsyncVectorEnv([make_grid] * 2, context="spawn"))
    envs.action_space.seed(0)
    found = run(envs, 90, [envs.action_space.sample() for _ in range(90)], seed=0)
    ids = np.concatenate([episode.state_ids for *_, episode in found])
    assert len(envs.counter) == len(np.unique(ids)) == ids.max() + 1
    envs.close()


@each_mode
def test_no_row_is_mixed_between_environments_ignored_or_lost(mode):
    found = run(VectorEpisodeScoringWrapper(scripted([3], [5], [1, 4], mode=mode)), 60)
    for step, i, episode in found:
        assert episode.observations.tolist() == [[i, t] for t in range(len(episode))]
        # actions are numbered by the step they were taken in
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


def test_infos_have_the_form_gymnasium_gives_those_of_single_wrappers():
    makers = [functools.partial(ScriptedEnv, [n], tag=n) for n in (2, 2, 3)]
    counter = StateCounter()
    inside = SyncVectorEnv([lambda make=make: EpisodeScoringWrapper(make(), counter=counter) for make in makers])
    around = VectorEpisodeScoringWrapper(SyncVectorEnv(makers))
    for envs in (inside, around):
        envs.reset()
        envs.step([0, 0, 0])
    theirs, ours = (envs.step([0, 0, 0])[4] for envs in (inside, around))
    assert ours.keys() == theirs.keys()
    assert ours["episode_scores"].keys() == theirs["episode_scores"].keys()
    for key in ("extrinsic", "local", "global", "_extrinsic", "_local", "_global"):
        np.testing.assert_array_equal(ours["episode_scores"][key], theirs["episode_scores"][key])


@pytest.mark.parametrize("ends", [(True, False), (False, True), (True, True)])
@each_mode
def test_every_way_to_end_an_episode_scores_it_once(ends, mode):
    found = run(VectorEpisodeScoringWrapper(scripted([2], [4], mode=mode, ends=ends)), 12)
    assert [len(episode) for _, i, episode in found if i == 0] == [2] * (4 if mode is NEXT_STEP else 6)


def test_steps_after_an_end_that_nothing_resets_are_not_recorded():
    class GoesOn(gym.vector.VectorEnv):
        """Has ended after two steps, and says so ever after."""

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


def test_a_reset_after_the_end_that_was_still_to_be_reset_is_no_fragment():
    envs = VectorEpisodeScoringWrapper(scripted([2], [2]))
    envs.reset()
    envs.step([0, 0])
    envs.step([0, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        envs.reset()


@each_mode
def test_arrays_that_are_overwritten_are_recorded_as_they_were(mode):
    makers = [functools.partial(ScriptedEnv, [n], tag=n, reuse=True) for n in (3, 4)]
    envs = VectorEpisodeScoringWrapper(SyncVectorEnv(makers, copy=False, autoreset_mode=mode))
    actions = np.zeros(2, int)
    envs.reset()
    found = []
    for step in range(12):
        actions[:] = step
        *_, terminations, truncations, infos = envs.step(actions)
        found += [episode for _, episode in finished_episodes(infos)]
        if mode is DISABLED and (done := terminations | truncations).any():
            envs.reset(options={"reset_mask": done})
    for episode in found:
        assert episode.observations[:, 1].tolist() == list(range(len(episode)))
        assert np.diff(episode.actions).tolist() == [1] * (len(episode) - 1)
        assert episode.scores.local == 1.0


def test_a_long_episode_beside_short_ones_is_kept_whole():
    found = run(VectorEpisodeScoringWrapper(scripted([200], [3], mode=SAME_STEP)), 200)
    long = found[-1][2]
    assert long.observations.tolist() == [[0, t] for t in range(200)]
    assert sum(len(episode) for *_, episode in found) == 200 + 66 * 3


def test_what_was_given_out_never_changes():
    envs = VectorEpisodeScoringWrapper(scripted([3], [3], mode=SAME_STEP))
    first = run(envs, 3)[0][2]
    before = (first.observations.copy(), first.actions.copy(), first.state_ids.copy())
    for _ in range(9):
        envs.step([7, 7])
    for a, b in zip(before, (first.observations, first.actions, first.state_ids), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_score_can_be_that_of_another_state_while_the_record_keeps_the_observations():
    def tag_only(observations, infos):
        assert isinstance(infos, dict)
        return observations[:, :1]

    found = run(VectorEpisodeScoringWrapper(scripted([4], [5]), state=tag_only), 5)
    assert [episode.scores.local for *_, episode in found] == [1 / 4, 1 / 5]
    assert [episode.observations.shape for *_, episode in found] == [(4, 2), (5, 2)]


def test_a_partial_reset_leaves_the_states_of_the_others_alone():
    class Tells(ScriptedEnv):
        """Has its state in its info alone."""

        def reset(self, **kwargs):
            return super().reset(**kwargs)[0], {"t": 10 + self.t}

        def step(self, action):
            return *super().step(action)[:4], {"t": 10 + self.t}

    makers = [functools.partial(Tells, [length]) for length in (2, 5)]
    envs = SyncVectorEnv(makers, autoreset_mode=DISABLED)
    seen = []

    def state(observations, infos):
        seen.append(infos["t"].tolist())
        return infos["t"]

    wrapped = VectorEpisodeScoringWrapper(envs, state=state)
    found = run(wrapped, 5)
    assert [0, 13] not in seen
    assert any(0 in row for row in seen)  # Gymnasium fills in zeros for those it does not reset
    assert [episode.scores.local for _, i, episode in found if i == 1] == [1.0]
    assert len(wrapped.counter) == 5  # 10 to 14, and no 0


@each_mode
def test_episodes_that_end_on_their_first_step_are_each_scored(mode):
    found = run(VectorEpisodeScoringWrapper(scripted([1], [1, 2], mode=mode)), 6)
    steps = {i: [(step, len(episode)) for step, j, episode in found if i == j] for i in range(2)}
    if mode is NEXT_STEP:
        assert steps == {0: [(0, 1), (2, 1), (4, 1)], 1: [(0, 1), (3, 2), (5, 1)]}
    else:
        assert steps == {0: [(step, 1) for step in range(6)], 1: [(0, 1), (2, 2), (3, 1), (5, 2)]}


class Native(gym.vector.VectorEnv):
    """Two environments whose observation is t; they end after 2 and 3 steps, in the ``form`` given."""

    metadata = {"autoreset_mode": DISABLED}  # noqa: RUF012
    num_envs = 2
    single_observation_space = spaces.Box(0, 9, (1,), np.float32)
    single_action_space = spaces.Discrete(9)

    def __init__(self, form):
        self.form = form

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros((2, 1), np.float32), {}

    def step(self, actions):
        self.t += 1
        step = {
            "observations": np.full((2, 1), self.t, np.float32),
            "rewards": np.ones(2),
            "terminations": self.t >= np.array([2, 3]),
            "truncations": np.zeros(2, bool),
        }
        return *(self.form.get(name, lambda x: x)(value) for name, value in step.items()), {f"key {self.t}": self.t}


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
def test_what_means_the_same_in_another_form_is_scored_the_same(form):
    envs = VectorEpisodeScoringWrapper(Native(form))
    envs.reset()
    found = [[(i, len(x), x.scores.extrinsic) for i, x in finished_episodes(envs.step([0, 0])[4])] for _ in range(4)]
    assert found == [[], [(0, 2, 2.0)], [(1, 3, 3.0)], []]


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
def test_what_the_environments_return_in_another_shape_is_refused(form):
    envs = VectorEpisodeScoringWrapper(Native(form))
    envs.reset()
    with pytest.raises(ValueError, match="expected "):
        envs.step([0, 0])
    with pytest.raises(ResetNeeded):
        envs.step([0, 0])


def test_a_mask_of_numbers_that_the_environment_takes_resets_those_that_are_not_zero():
    envs = VectorEpisodeScoringWrapper(Native({}))
    envs.reset()
    envs.step([0, 0])
    with pytest.warns(UserWarning, match="after 1 steps"):
        envs.reset(options={"reset_mask": [1, 0]})
    assert envs.state_dict()["lengths"].tolist() == [0, 1]


def test_observations_outside_the_range_of_their_space_are_recorded_as_they_are():
    envs = VectorEpisodeScoringWrapper(Native({"observations": lambda x: x * -1e6}))
    envs.reset()
    found = [x for _ in range(3) for _, x in finished_episodes(envs.step([0, 0])[4])]
    assert [x.observations[:, 0].tolist() for x in found] == [[0, -1e6], [0, -1e6, -2e6]]


def test_a_state_function_must_give_one_state_for_each_environment():
    envs = VectorEpisodeScoringWrapper(scripted([4], [5], [6]), state=lambda observations, infos: observations[0])
    with pytest.raises(ValueError, match="expected `state` to give an array of"):
        envs.reset()


def test_without_records_only_scores_are_given():
    envs = VectorEpisodeScoringWrapper(scripted([1], [2]), record=False)
    envs.reset()
    infos = envs.step([0, 0])[4]
    assert infos["episode_scores"]["local"].tolist() == [1.0, 0.0]
    assert "episode_record" not in infos


def test_the_default_scores_follow_the_space_of_one_environment():
    def kind(space):
        envs = SyncVectorEnv([lambda: gym.wrappers.TransformObservation(ScriptedEnv(), lambda obs: obs, space)] * 2)
        wrapped = VectorEpisodeScoringWrapper(envs)
        return wrapped.local, wrapped.count

    assert kind(spaces.Box(0, 255, (7, 7, 3), np.uint8)) == ("distinct", True)
    assert kind(spaces.Box(0, 255, (60, 80, 3), np.uint8)) == ("std", False)
    assert kind(spaces.Box(-1, 1, (3,), np.float64)) == ("std", False)
    assert kind(spaces.Discrete(5)) == ("distinct", True)


@pytest.mark.parametrize("rewards", [[0.0, np.nan], [0.0, np.inf], [1e308, 1e308]])
def test_a_return_that_is_not_finite_is_refused_and_the_episodes_with_it(rewards):
    envs = VectorEpisodeScoringWrapper(scripted([4], [4], rewards=rewards))
    envs.reset()
    envs.step([0, 0])
    with pytest.raises(ValueError, match="expected rewards with finite sums"):
        envs.step([0, 0])
    with pytest.raises(ResetNeeded):
        envs.step([0, 0])
    assert len(envs.counter) == 0


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_what_an_environment_raises_discards_the_episodes_as_others_may_have_moved(error):
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


def resident():
    """Bytes of memory this process has."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.parametrize("max_states", [None, 20_000])
@pytest.mark.parametrize("frames", [1_000_000, pytest.param(10_000_000, marks=pytest.mark.slow)])
def test_memory_over_millions_of_steps_is_flat_but_for_seventy_bytes_a_state(frames, max_states):
    envs = gym.make_vec("rapid/KeyCorridorS6R3-v0", num_envs=64, vectorization_mode="vector_entry_point")
    envs = VectorEpisodeScoringWrapper(envs, counter=StateCounter(max_states=max_states))
    buffer = RankingBuffer(counter=envs.counter, seed=0)
    rng = np.random.default_rng(0)
    envs.reset(seed=0)
    for step in range(frames // 64):
        for _, e in finished_episodes(envs.step(rng.integers(0, 7, 64))[4]):
            buffer.add(e.observations, e.actions, e.scores, e.state_ids)
        if step == 2500:  # episodes of 1080 steps have ended twice, the buffer is full
            before, known = resident(), len(envs.counter)
    assert len(envs.counter) == max_states or max_states is None
    assert len(envs.counter) > known
    assert resident() - before < 70 * (len(envs.counter) - known) + 4e6


def test_memory_is_that_of_each_environments_longest_episode_however_long_anothers_is():
    lengths = [[1100]] + [[4]] * 15
    envs = VectorEpisodeScoringWrapper(scripted(*lengths, mode=SAME_STEP), count=False)
    envs.reset()
    row = {name: np.zeros((16, 16384), np.uint8) for name in ("observations",)}  # 16 KiB a step, far over a page
    envs._scorer.copy = lambda name, value, batch: row.get(name + "s", np.zeros(16, int))
    envs._scorer.score = lambda *args: EpisodeScores(0.0, 0.0, 0.0)
    envs._kept.clear()
    before = resident()
    for _ in range(1099):
        envs.step(np.zeros(16, int))
    kept = envs._kept["observations"]
    assert kept.nbytes == 16 * 2048 * 16384  # address space, most of which nothing was written to
    assert resident() - before < 16 * 1100 * 16384 / 2  # 18 MB, and up to 4 MB an environment in huge pages


@pytest.mark.parametrize(
    "state", [lambda o, _: o[:, 1] * 0.5 if o.any() else o[:, 1], lambda o, _: o[:, : 1 + o.max()]]
)
def test_a_state_function_must_give_the_same_dtype_and_shape_each_time(state):
    envs = VectorEpisodeScoringWrapper(scripted([4], [4]), state=state)
    envs.env.envs[1].tag = 0
    envs.reset()
    with pytest.raises(ValueError, match="same dtype and shape"):
        envs.step([0, 0])


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


def test_actions_of_another_shape_are_refused_before_any_environment_moves():
    space = spaces.Box(-1, 1, (2, 3))
    envs = VectorEpisodeScoringWrapper(scripted([4], [4], action_space=space))
    envs.reset()
    for shape in ((4, 3), (2, 3, 2), (12,)):
        with pytest.raises(ValueError, match="expected each action of shape"):
            envs.step(np.zeros(shape, np.float32))
    assert [env.t for env in envs.env.envs] == [0, 0]


@pytest.mark.parametrize("actions", [[0.5, 0.0], [0], [0, 0, 0], ["a", "b"]])
def test_actions_that_do_not_fit_are_refused_and_the_episodes_go_on(actions):
    envs = VectorEpisodeScoringWrapper(scripted([2], [2]))
    envs.reset()
    envs.step([1, 2])
    with pytest.raises(ValueError, match="expected each action"):
        envs.step(actions)
    assert len(list(finished_episodes(envs.step([1, 2])[4]))) == 2


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


def test_a_step_before_a_reset_of_all_is_refused():
    envs = VectorEpisodeScoringWrapper(scripted([2], [2], mode=DISABLED))
    with pytest.raises(ResetNeeded):
        envs.step([0, 0])


@pytest.mark.parametrize("options", [{"reset_mask": [True, False]}, {"reset_mask": np.zeros(2, bool)}])
def test_a_mask_that_the_environment_refuses_asks_for_another_reset(options):
    envs = VectorEpisodeScoringWrapper(scripted([2], [2], mode=DISABLED))
    envs.reset()
    with pytest.raises((TypeError, ValueError, AssertionError)):  # the last from Gymnasium 1.1
        envs.reset(options=options)
    with pytest.raises(ResetNeeded):
        envs.step([0, 0])


def test_seed_and_options_reach_the_environments():
    envs = VectorEpisodeScoringWrapper(scripted([2], [2]))
    envs.reset(seed=4, options={"level": 1})
    assert envs.env.np_random_seed == (4, 5)
    assert [env.options for env in envs.env.envs] == [[{"level": 1}]] * 2


def test_scoring_twice_is_refused_wherever_the_other_wrapper_is():
    inside = SyncVectorEnv([lambda: gym.wrappers.OrderEnforcing(EpisodeScoringWrapper(ScriptedEnv()))] * 2)
    around = RecordEpisodeStatistics(VectorEpisodeScoringWrapper(scripted([2], [2])))
    for envs in (inside, around):
        with pytest.raises(ValueError, match="not scored yet"):
            VectorEpisodeScoringWrapper(envs)


@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP])
def test_an_info_key_already_taken_is_refused(mode):
    envs = VectorEpisodeScoringWrapper(scripted([1], mode=mode, info={"episode_scores": 1.0}))
    envs.reset()
    with pytest.raises(ValueError, match="leaves info"):
        envs.step([0])


def test_wrong_environments_are_refused_with_the_wrapper_to_use():
    with pytest.raises(TypeError, match="EpisodeScoringWrapper"):
        VectorEpisodeScoringWrapper(ScriptedEnv())
    with pytest.raises(TypeError, match="VectorEpisodeScoringWrapper"):
        EpisodeScoringWrapper(scripted([2]))
    with pytest.raises(TypeError, match="array observations"):
        VectorEpisodeScoringWrapper(gym.make_vec("Blackjack-v1", 2))
    with pytest.raises(ValueError, match="expected `local`"):
        VectorEpisodeScoringWrapper(scripted([2]), local="mean")


def test_minigrids_missions_are_refused_with_a_remedy_that_works():
    from minigrid.wrappers import ImgObsWrapper

    make = functools.partial(gym.make, "MiniGrid-KeyCorridorS3R1-v0")
    with pytest.raises(TypeError, match="ImgObsWrapper"):
        VectorEpisodeScoringWrapper(SyncVectorEnv([make] * 4))
    envs = VectorEpisodeScoringWrapper(SyncVectorEnv([lambda: ImgObsWrapper(make())] * 4))
    found = run(envs, 270, [np.zeros(4, int)] * 270, seed=0)
    assert [len(episode) for *_, episode in found] == [270] * 4


def test_an_environment_that_does_not_name_its_mode_is_taken_for_next_step():
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


@pytest.mark.slow
@pytest.mark.parametrize("num_envs", [1, 5])
def test_around_envpool_each_episode_is_whole(num_envs):
    envpool = pytest.importorskip("envpool")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        envs = envpool.make("MiniGrid-KeyCorridorS3R1-v0", env_type="gymnasium", num_envs=num_envs, seed=3)
    with pytest.raises(TypeError, match="array observations"):
        VectorEpisodeScoringWrapper(envs)
    image = envs.observation_space["image"]
    images = gym.wrappers.vector.TransformObservation(envs, lambda obs: obs["image"], single_observation_space=image)
    wrapped = VectorEpisodeScoringWrapper(images)
    seen, _ = wrapped.reset()
    rng = np.random.default_rng(0)
    rows = [[] for _ in range(num_envs)]
    episodes = 0
    for _ in range(1500):
        actions = rng.integers(7, size=num_envs).astype(np.int32)
        for i in range(num_envs):
            rows[i].append((seen[i].copy(), actions[i]))
        seen, _, terminations, truncations, infos = wrapped.step(actions)
        found = dict(finished_episodes(infos))
        assert list(found) == np.flatnonzero(terminations | truncations).tolist()
        for i, episode in found.items():
            episodes += 1
            assert len(episode) <= 270
            np.testing.assert_array_equal(episode.observations, [obs for obs, _ in rows[i]][-len(episode) :])
            np.testing.assert_array_equal(episode.actions, [action for _, action in rows[i]][-len(episode) :])
            # the row between two episodes is the action that EnvPool ignores
            assert len(rows[i]) - len(episode) == (0 if episodes <= num_envs and len(rows[i]) == len(episode) else 1)
            rows[i] = []
    assert episodes >= 5 * num_envs


def native(mode, num_envs=3):
    envs = gym.make_vec("rapid/KeyCorridorS3R1-v0", num_envs, "vector_entry_point", autoreset_mode=mode, max_steps=20)
    return VectorEpisodeScoringWrapper(envs)


def go_on(envs, actions, ended):
    """The episodes of these actions from where `envs` is, as (step, env_index, Episode)."""
    found = []
    for step, taken in enumerate(actions):
        if envs.metadata["autoreset_mode"] is DISABLED and ended.any():
            envs.reset(options={"reset_mask": ended})
        *_, terminations, truncations, infos = envs.step(taken)
        ended = terminations | truncations
        found += [(step, i, episode) for i, episode in finished_episodes(infos)]
    return found


@each_mode
@pytest.mark.parametrize("at", [0, 1, 19, 20, 21, 47, 60])
def test_episodes_in_flight_go_on_from_their_state_in_another_process_to_be(mode, at):
    actions = np.random.default_rng(0).integers(0, 7, (100, 3))
    envs = native(mode)
    envs.reset(seed=0)
    ended = np.zeros(3, bool)
    for taken in actions[:at]:
        if mode is DISABLED and ended.any():
            envs.reset(options={"reset_mask": ended})
        *_, terminations, truncations, _ = envs.step(taken)
        ended = terminations | truncations
    states = [part.state_dict() for part in (envs.env, envs, envs.counter)]
    copy = native(mode)
    for part, state in zip((copy.env, copy, copy.counter), states, strict=True):
        part.load_state_dict(state)
    assert_same_episodes(go_on(copy, actions[at:], ended), go_on(envs, actions[at:], ended))


def test_a_state_is_a_copy_and_scores_something_else_than_observations_too():
    def make(record=True):
        return VectorEpisodeScoringWrapper(
            scripted([100], [100]), state=lambda observations, infos: observations[:, 1:] / 2, record=record
        )

    envs = make()
    envs.reset()
    for _ in range(70):
        envs.step([0, 0])
    state = envs.state_dict()
    before = [state["lengths"].copy(), state["kept"]["states"].copy()]
    envs.step([0, 0])
    np.testing.assert_array_equal(state["lengths"], before[0])
    np.testing.assert_array_equal(state["kept"]["states"], before[1])
    other = make()
    other.load_state_dict(state)
    assert other.local == "std"
    assert not other.count
    with pytest.raises(ValueError, match=r"expected \['actions', 'states'\]"):
        make(record=False).load_state_dict(state)


def test_the_state_before_the_first_reset_is_one_too():
    envs = native(SAME_STEP)
    envs.load_state_dict(native(SAME_STEP).state_dict())
    with pytest.raises(ResetNeeded):
        envs.step([0, 0, 0])


@pytest.mark.parametrize("steps", [0, 63])  # 64 are allocated at first
@pytest.mark.parametrize("fault", [{"reward": np.nan}, {"info": {"episode_scores": 0.0}}, {"state": np.zeros(3)}])
def test_the_state_after_a_step_that_failed_is_one_too_and_asks_for_a_reset(steps, fault):
    faults = {"state": np.zeros((2, 1))}

    def make():
        return VectorEpisodeScoringWrapper(scripted([65], [65]), state=lambda observations, infos: faults["state"])

    envs = make()
    envs.reset()
    for _ in range(steps):
        envs.step([0, 0])
    faults |= fault
    envs.env.envs[0].rewards, envs.env.envs[0].info = [fault.get("reward", 1.0)], fault.get("info")
    envs.env.envs[1].lengths = [steps + 1]
    with pytest.raises(ValueError, match="expected"):
        envs.step([0, 0])
    other = make()
    other.load_state_dict(envs.state_dict())
    with pytest.raises(ResetNeeded):
        other.step([0, 0])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda state: state.pop("active"), "keys"),
        (lambda state: state.update(active=np.ones(2, bool)), "`active`"),
        (lambda state: state.update(lengths=np.ones(3)), "`lengths`"),
        (lambda state: state.update(lengths=np.full(3, -1)), "lengths from 0"),
        (lambda state: state.update(lengths=np.full(3, 2**60)), "to be"),
        (lambda state: state.update(returns=np.full(3, np.nan)), "finite returns"),
        (lambda state: state["kept"].pop("actions"), "of the episodes"),
        (lambda state: state["kept"].update(actions=state["kept"]["actions"][1:]), "`actions`"),
        (lambda state: state["kept"].update(actions=state["kept"]["actions"] / 2), "`actions`"),
        (lambda state: state["kept"].update(observations=state["kept"]["observations"][:, 1:]), "`observations`"),
        (lambda state: state.update(kept=3), "state_dict"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(spoil, message):
    envs = native(SAME_STEP)
    envs.reset(seed=0)
    for _ in range(5):
        envs.step([0, 1, 2])
    state, before = envs.state_dict(), envs.state_dict()
    spoil(state)
    with pytest.raises(ValueError, match=message):
        envs.load_state_dict(state)
    for name, value in envs.state_dict()["kept"].items():
        np.testing.assert_array_equal(value, before["kept"][name])
