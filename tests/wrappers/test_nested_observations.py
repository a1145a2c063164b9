"""Dict and Tuple observations, and what to do with spaces that hold no arrays."""

import copy
import functools
import re

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from rapid_wrappers import (
    EpisodeScoringWrapper,
    RankingBuffer,
    StateCounter,
    VectorEpisodeScoringWrapper,
    finished_episodes,
)
from rapid_wrappers.episode import map_arrays
from tests.scripted_env import play
from tests.wrappers.vector_episodes import NEXT_STEP, SAME_STEP, each_mode, run

DEEP = spaces.Dict(
    view=spaces.Box(0, 9, (2, 2), np.uint8),
    inner=spaces.Tuple(
        [spaces.Discrete(5), spaces.Dict(bits=spaces.MultiBinary(3), wheel=spaces.MultiDiscrete([4, 3]))]
    ),
)
MIXED = spaces.Dict(
    screen=spaces.Box(0, 255, (1, 32, 40), np.uint8), price=spaces.Box(-np.inf, np.inf, (2,)), gear=spaces.Discrete(3)
)


class Samples(gym.Env):
    """Shows samples of its space; an episode ends after a number of steps of its own."""

    def __init__(self, space, lengths=(4, 7), overwrite=False):
        self.observation_space, self.action_space = (
            copy.deepcopy(space),
            spaces.Discrete(9),
        )  # with a generator of its own
        self.overwrite = overwrite
        self.lengths, self.episode, self.shared = lengths, -1, None

    def observe(self):
        sample = self.observation_space.sample()
        if not self.overwrite or self.shared is None:
            self.shared = sample
            return sample

        def copied(old, new):
            if not isinstance(old, np.ndarray):
                return new
            np.copyto(old, new)
            return old

        self.shared = map_arrays(copied, self.shared, sample)
        return self.shared

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.episode, self.t = self.episode + 1, 0
        return self.observe(), {}

    def step(self, action):
        self.t += 1
        return self.observe(), 1.0, self.t == self.lengths[self.episode % len(self.lengths)], False, {}


def by_hand(env, seed, episodes):
    """The observations acted on, flattened by Gymnasium, of some episodes."""
    found = []
    for _ in range(episodes):
        obs, _ = env.reset(seed=seed)
        seed, done, rows = None, False, []
        while not done:
            rows.append(spaces.flatten(env.observation_space, obs).copy())
            obs, _, done, *_ = env.step(0)
        found.append(np.stack(rows))
    return found


def flat(space, observations):
    """Nested arrays (T, ...) as Gymnasium flattens each of their rows."""
    length = len(leaves(observations)[0])
    return np.stack([spaces.flatten(space, map_arrays(lambda a: a[t], observations)) for t in range(length)])  # noqa: B023


def leaves(tree):
    found = []
    map_arrays(found.append, tree)
    return found


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("space", [DEEP, MIXED, spaces.Tuple([DEEP, spaces.Box(-1, 1, ())])], ids=lambda s: str(s)[:9])
def test_a_record_is_nested_as_the_space_and_holds_the_observations_acted_on(space, overwrite):
    env = EpisodeScoringWrapper(Samples(space, overwrite=overwrite))
    expected = by_hand(Samples(space), 3, 5)
    env.reset(seed=3)
    records = []
    while len(records) < 5:
        *_, done, _, info = env.step(0)
        records += [episode for _, episode in finished_episodes(info)]
        if done:
            env.reset()
    for record, rows in zip(records, expected, strict=True):
        np.testing.assert_array_equal(flat(space, record.observations), rows)
    for row, entry in zip(leaves(records[0].observations), leaves(space.sample()), strict=True):
        assert row.dtype == np.asarray(entry).dtype and row.shape[1:] == np.shape(entry)


@each_mode
@pytest.mark.parametrize("engine", [SyncVectorEnv, AsyncVectorEnv])
@pytest.mark.parametrize("space", [DEEP, MIXED], ids=["deep", "mixed"])
def test_each_nested_episode_of_a_vector_environment_is_the_one_of_a_single_environment(space, mode, engine):
    makers = [functools.partial(Samples, space, lengths) for lengths in ((4, 7), (3,))]
    envs = engine(makers, autoreset_mode=mode)
    found = run(VectorEpisodeScoringWrapper(envs), 24, seed=5)
    envs.close()
    for i, make in enumerate(makers):
        ours = [episode for _, index, episode in found if index == i]
        assert len(ours) >= 3
        for episode, rows in zip(ours, by_hand(make(), 5 + i, len(ours)), strict=True):
            np.testing.assert_array_equal(flat(space, episode.observations), rows)


def test_integer_entries_together_are_one_state():
    env = Samples(spaces.Dict(a=spaces.Discrete(4), b=spaces.Tuple([spaces.MultiBinary(2)])), [4])
    shown = iter([(1, 0, 0), (1, 0, 1), (2, 0, 0), (1, 0, 1), (0, 0, 0)])
    env.observe = lambda: (lambda a, *b: {"a": a, "b": (np.array(b, np.int8),)})(*next(shown))
    scored = EpisodeScoringWrapper(env)
    info = play(scored)
    assert (scored.local, scored.count) == ("distinct", True)
    assert info["episode_scores"]["local"] == 0.75
    assert info["episode_record"].state_ids.tolist() == [0, 1, 2, 1]
    assert scored.counter.counts.tolist() == [1, 2, 1]
    assert "observation['a'], observation['b'][0]" in scored.scored and "counted" in scored.scored


def test_beside_floats_or_pixels_each_entry_scores_its_deviation_and_they_are_averaged():
    scored = EpisodeScoringWrapper(Samples(MIXED, [30]))
    scored.reset(seed=0)
    seen = {name: [] for name in MIXED}
    for _ in range(3):
        for t in range(30):
            info = scored.step(t % 9)[4]
        episode = info["episode_record"].observations
        unit = {}
        for name, rows in episode.items():
            seen[name].append(rows.astype(float))
            unit[name] = np.concatenate(seen[name]).std(axis=0) if name != "screen" else 255
        parts = [(episode[name].std(axis=0) / unit[name]).mean() for name in MIXED]
        assert info["episode_scores"]["local"] == pytest.approx(np.mean(parts), rel=1e-6)
        assert info["episode_scores"]["global"] == 0.0
        scored.reset()
    assert (scored.local, scored.count) == ("std", False)
    assert "pixels" in scored.scored and "running deviation" in scored.scored and "not counted" in scored.scored


def test_an_entry_without_numbers_is_left_out_of_the_score():
    space = spaces.Dict(none=spaces.Box(-1, 1, (0,)), some=spaces.Box(-1, 1, (2,)))
    assert play(EpisodeScoringWrapper(Samples(space, [20])))["episode_scores"]["local"] == pytest.approx(1.0)


def test_large_integers_beside_pixels_drown_nothing():
    space = spaces.Dict(screen=spaces.Box(0, 255, (32, 40), np.uint8), money=spaces.Box(0, 10**6, (1,), np.int64))
    assert play(EpisodeScoringWrapper(Samples(space, [20])))["episode_scores"]["local"] < 1
    raw = EpisodeScoringWrapper(Samples(space, [20]), normalize=False)
    assert play(raw)["episode_scores"]["local"] > 10_000


def test_nested_states_can_be_counted_by_codes_and_scored_as_distinct():
    scored = EpisodeScoringWrapper(Samples(MIXED, [9]), counter=StateCounter(hash_bits=12), local="distinct")
    info = play(scored)
    assert scored.count and 0 < info["episode_scores"]["local"] <= 1
    assert len(info["episode_record"].state_ids) == 9
    exact = EpisodeScoringWrapper(Samples(MIXED, [9]), count=True)
    assert play(exact)["episode_scores"]["global"] == 1.0


@pytest.mark.parametrize("record", [True, False])
def test_an_entry_by_name_is_scored_alone(record):
    scored = EpisodeScoringWrapper(Samples(DEEP, [6]), state="inner", record=record)
    around = VectorEpisodeScoringWrapper(
        SyncVectorEnv([functools.partial(Samples, DEEP, [6])], autoreset_mode=SAME_STEP), state="inner", record=record
    )
    obs, _ = scored.reset(seed=1)
    around.reset(seed=1)
    seen = set()
    for _ in range(6):
        seen.add(spaces.flatten(DEEP["inner"], obs["inner"]).tobytes())
        obs, *_, info = scored.step(0)
        infos = around.step([0])[4]
    assert info["episode_scores"]["local"] == infos["episode_scores"]["local"][0] == len(seen) / 6
    assert ("episode_record" in info) == ("episode_record" in infos) == record
    assert "'inner'" in scored.scored


def test_an_unknown_entry_is_refused_with_the_names_there_are():
    for space, names in ((DEEP, "inner"), (spaces.Discrete(3), r"\[\]")):
        with pytest.raises(ValueError, match=f"expected `state` to be one of the entries .*{names}"):
            EpisodeScoringWrapper(Samples(space), state="view2")


UNACCEPTED = {
    "Text": spaces.Text(3),
    "Graph": spaces.Graph(spaces.Box(0, 1, (2,)), spaces.Discrete(3)),
    "Sequence": spaces.Sequence(spaces.Discrete(2)),
    "OneOf": spaces.OneOf([spaces.Discrete(2), spaces.Box(0, 1, (2,))]),
}
REMEDIES = {
    **{
        name: (space, "FlattenObservation(env)" if space.is_np_flattenable else None)
        for name, space in UNACCEPTED.items()
    },
    **{
        f"Dict with {name}": (
            spaces.Dict(a=spaces.Discrete(3), b=DEEP, odd=space),
            "FilterObservation(env, ['a', 'b'])",
        )
        for name, space in UNACCEPTED.items()
    },
    "Tuple with Graph": (spaces.Tuple([UNACCEPTED["Graph"], spaces.Discrete(3)]), "FilterObservation(env, [1])"),
    "Dict of Text": (spaces.Dict(odd=spaces.Text(3)), "FlattenObservation(env)"),
}


@pytest.mark.parametrize("name", REMEDIES)
@pytest.mark.parametrize("mode", [None, NEXT_STEP, SAME_STEP], ids=str)
def test_other_spaces_are_refused_with_a_wrapper_that_works(name, mode):
    space, remedy = REMEDIES[name]
    module = gym.wrappers.vector if mode is NEXT_STEP else gym.wrappers

    def wrap(remedy="env", **arguments):
        def change(env):
            return eval(remedy, vars(module), {"env": env})

        if mode is None:
            return EpisodeScoringWrapper(change(Samples(space)), **arguments)
        if mode is NEXT_STEP:
            envs = change(SyncVectorEnv([lambda: Samples(space)] * 2))
        else:
            envs = SyncVectorEnv([lambda: change(Samples(space))] * 2, autoreset_mode=mode)
        return VectorEpisodeScoringWrapper(envs, **arguments)

    def episode_scores(scored):
        scored.reset(seed=0)
        for _ in range(4):
            info = scored.step(0 if mode is None else [0, 0])[4]
        return info["episode_scores"]

    with pytest.raises(TypeError, match=re.escape(f"{module.__name__}.{remedy or 'TransformObservation'}")) as error:
        wrap()
    assert "state" in str(error.value)
    if remedy:
        assert np.all(episode_scores(wrap(remedy))["extrinsic"] == 4)
    state = (lambda env, observation: env.t // 2) if mode is None else (lambda observations, infos: np.zeros(2, int))
    scores = episode_scores(wrap(record=False, state=state))
    assert np.all(np.asarray(scores["local"]) == (0.5 if mode is None else 0.25))


def test_minigrids_mission_is_dropped_by_the_wrapper_that_the_error_names():
    import minigrid  # noqa: F401

    make = functools.partial(gym.make, "MiniGrid-KeyCorridorS3R1-v0")
    with pytest.raises(TypeError, match=re.escape("FilterObservation(env, ['direction', 'image'])")):
        EpisodeScoringWrapper(make())
    env = EpisodeScoringWrapper(gym.wrappers.FilterObservation(make(), ["direction", "image"]))
    env.reset(seed=0)
    for _ in range(270):
        info = env.step(0)[4]
    record = info["episode_record"]
    assert {name: rows.shape for name, rows in record.observations.items()} == {
        "direction": (270,), "image": (270, 7, 7, 3)
    }  # fmt: skip
    assert info["episode_scores"]["local"] == 4 / 270  # it turned on the spot


def test_without_a_record_any_action_space_will_do():
    space = spaces.Dict(move=spaces.Discrete(3), say=spaces.Text(4))

    class Talks(Samples):
        def __init__(self):
            super().__init__(spaces.Discrete(50))
            self.action_space = space

    with pytest.raises(TypeError, match="action space"):
        EpisodeScoringWrapper(Talks())
    env = EpisodeScoringWrapper(Talks(), record=False)
    env.reset(seed=0)
    for _ in range(4):
        info = env.step(space.sample())[4]
    assert info["episode_scores"]["extrinsic"] == 4


@pytest.mark.parametrize(
    "spoil",
    [
        lambda o: {"view": o["view"]},
        lambda o: o | {"inner": o["inner"][:1]},
        lambda o: o | {"inner": {"0": 1}},
        lambda o: o | {"view": o["view"] * 0.3},
        lambda o: o["view"],
    ],
)
def test_observations_that_lack_an_entry_or_do_not_fit_are_refused(spoil):
    env = Samples(DEEP)
    env.observe = lambda: spoil(DEEP.sample() | {"view": np.ones((2, 2), np.uint8)})
    with pytest.raises(ValueError, match="expected each observation"):
        EpisodeScoringWrapper(env).reset(seed=0)


def test_entries_that_the_space_does_not_have_are_left_out():
    env = Samples(spaces.Dict(a=spaces.Discrete(3)))
    env.observe = lambda: {"a": 1, "debug": "a note"}
    assert list(play(EpisodeScoringWrapper(env))["episode_record"].observations) == ["a"]


@pytest.mark.parametrize("space", [DEEP, MIXED], ids=["deep", "mixed"])
def test_nested_episodes_in_flight_are_saved_and_loaded(space, tmp_path):
    from rapid_wrappers.training.checkpoint import load_checkpoint, save_checkpoint

    def envs():
        makers = [functools.partial(Samples, space, lengths) for lengths in ((4, 7), (9,))]
        return VectorEpisodeScoringWrapper(SyncVectorEnv(makers, autoreset_mode=SAME_STEP))

    one = envs()
    one.reset(seed=3)
    buffer = RankingBuffer(counter=one.counter if one.count else None, seed=0)
    for _ in range(7):
        for _, e in finished_episodes(one.step([0, 0])[4]):
            buffer.add(e.observations, e.actions, e.scores, e.state_ids)
    save_checkpoint(tmp_path / "c.pt", {"episodes": one.state_dict(), "buffer": buffer.state_dict()})
    state = load_checkpoint(tmp_path / "c.pt")
    other = VectorEpisodeScoringWrapper(one.env, counter=one.counter)
    other.load_state_dict(state["episodes"])
    loaded = RankingBuffer(counter=buffer.counter, seed=1)
    loaded.load_state_dict(state["buffer"])
    for mine, theirs in zip(buffer.sample(5), loaded.sample(5), strict=True):
        for a, b in zip(leaves(mine), leaves(theirs), strict=True):
            np.testing.assert_array_equal(a, b)
    infos = {}
    while "episode_record" not in infos:
        infos = other.step([0, 0])[4]
    expected = by_hand(Samples(space, (9,)), 4, 1)[0]
    np.testing.assert_array_equal(flat(space, infos["episode_record"][1].observations), expected)
    with pytest.raises(ValueError, match="expected"):
        VectorEpisodeScoringWrapper(
            SyncVectorEnv([functools.partial(Samples, spaces.Discrete(3))] * 2)
        ).load_state_dict(state["episodes"])


def test_a_discarded_or_copied_wrapper_keeps_its_statistics():
    env = EpisodeScoringWrapper(Samples(spaces.Box(-1, 1, (3,)), [5]))
    play(env)
    loaded = EpisodeScoringWrapper(Samples(spaces.Box(-1, 1, (3,)), [5]))
    loaded.load_state_dict(env.state_dict())
    assert repr(loaded.state_dict()) == repr(env.state_dict())
    for bad in ({}, {"statistics": {"mean": 1}}, {"statistics": {"mean": 1.0, "var": 1.0, "count": 2.0}}, 3):
        with pytest.raises(ValueError, match="expected"):
            loaded.load_state_dict(bad)
    assert repr(loaded.state_dict()) == repr(env.state_dict())
