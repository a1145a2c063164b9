"""The native engine as a Gymnasium vector environment: seeds, resets, actions, saved states and bad input."""

import _thread

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode

from tests.envs.native_and_minigrid import assert_same_levels, assert_same_state, make

MODES = list(AutoresetMode)


def test_seeds_mean_what_they_mean_to_gymnasium():
    native, sync = make("rapid/KeyCorridorS3R2-v0", 3)
    for seed in (7, None, [3, 1, 2], [None, 9, None], np.int64(4).item()):
        np.testing.assert_array_equal(native.reset(seed=seed)[0], sync.reset(seed=seed)[0])
        assert_same_levels(native, sync, f"seed {seed}")
    assert native.np_random_seed == sync.np_random_seed
    for ours, theirs in zip(native.np_random, sync.np_random, strict=True):
        assert ours.bit_generator.state == theirs.bit_generator.state


def test_without_a_seed_every_environment_draws_its_own():
    grids = [gym.make_vec("rapid/MultiRoom-N4-S5-v0", 3) for _ in range(2)]
    for envs in grids:
        envs.reset()
    levels = {grid.tobytes() for envs in grids for grid in envs.state_dict()["grid"]}
    assert len(levels) == 6


@pytest.mark.parametrize(
    ("seed", "error"),
    [
        ([1, 2], ValueError),
        (-1, gym.error.Error),
        ("abc", TypeError),
        (1.5, TypeError),
        ([1, 2, 0.5], TypeError),
        ({0: 1}, TypeError),
        ([1, 2, -3], gym.error.Error),
    ],
)
def test_bad_seeds_are_refused_and_nothing_changes(seed, error):
    native, _ = make("rapid/KeyCorridorS3R1-v0", 3)
    native.reset(seed=1)
    before = native.state_dict()
    with pytest.raises(error):
        native.reset(seed=seed)
    assert_same_state(native, before)


@pytest.mark.parametrize(
    ("mask", "error"),
    [
        ([True, False], TypeError),
        (np.ones(2), TypeError),
        (np.ones(3, bool), ValueError),
        (np.zeros(2, bool), ValueError),
    ],
)
def test_bad_masks_are_refused_as_gymnasium_refuses_them(mask, error):
    for envs in make("rapid/KeyCorridorS3R1-v0", 2, AutoresetMode.DISABLED):
        envs.reset(seed=1)
        with pytest.raises((error, AssertionError)):  # the latter from Gymnasium 1.1
            envs.reset(options={"reset_mask": mask})


@pytest.mark.parametrize("actions", [[0, 7], [-1, 0], [0], [[0], [0]], [0.0, 1.0], ["a", "b"], None])
def test_bad_actions_are_refused_and_nothing_changes(actions):
    native, _ = make("rapid/KeyCorridorS3R1-v0", 2)
    native.reset(seed=1)
    before = native.state_dict()
    with pytest.raises(ValueError, match="expected"):
        native.step(actions)
    assert_same_state(native, before)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, list])
def test_actions_of_any_integer_type_and_layout_are_taken(dtype):
    native, _ = make("rapid/KeyCorridorS3R1-v0", 3)
    native.reset(seed=1)
    actions = [0, 1, 2] if dtype is list else np.array([0, 9, 1, 9, 2], dtype)[::2]
    native.step(actions)
    again, _ = make("rapid/KeyCorridorS3R1-v0", 3)
    again.reset(seed=1)
    again.step(np.array([0, 1, 2]))
    assert_same_state(native, again.state_dict())


def test_a_step_needs_a_reset_before_it():
    native, _ = make("rapid/KeyCorridorS3R1-v0", 2, AutoresetMode.DISABLED, max_steps=1)
    with pytest.raises(ResetNeeded):
        native.step([0, 0])
    with pytest.raises(ResetNeeded):
        native.reset(options={"reset_mask": np.array([True, False])})
    native.reset()
    native.step([0, 0])
    with pytest.raises(ResetNeeded, match="have ended"):
        native.step([0, 0])


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_the_caller_may_overwrite_what_is_returned(mode):
    native, _ = make("rapid/MultiRoom-N2-S4-v0", 2, mode, max_steps=3)
    reference, _ = make("rapid/MultiRoom-N2-S4-v0", 2, mode, max_steps=3)
    kept = []
    for envs in (native, reference):
        kept.append([envs.reset(seed=0)[0]])
        for _ in range(3):
            *arrays, infos = envs.step([1, 1])
            kept[-1] += [*arrays, *infos.get("final_obs", [])]
            if envs is native:
                for array in kept[0]:
                    array[:] = 99 if array.dtype == np.uint8 else 1
                kept[0] = [np.copy(x) for x in kept[0]]
    assert_same_state(native, reference.state_dict())


def test_a_saved_state_resumes_exactly(tmp_path):
    rng = np.random.default_rng(0)
    for mode in MODES[:2]:
        native, _ = make("rapid/KeyCorridorS3R2-v0", 4, mode, max_steps=20)
        native.reset(seed=3)
        for _ in range(19 + (mode == AutoresetMode.NEXT_STEP)):
            last = native.step(rng.integers(7, size=4))[0]
        np.savez(tmp_path / "state.npz", **native.state_dict())
        again, _ = make("rapid/KeyCorridorS3R2-v0", 4, mode, max_steps=20)
        with np.load(tmp_path / "state.npz", allow_pickle=False) as state:
            seen = again.load_state_dict(dict(state))
        np.testing.assert_array_equal(seen, last)
        for _ in range(50):
            actions = rng.integers(7, size=4)
            for x, y in zip(native.step(actions)[:4], again.step(actions)[:4], strict=True):
                np.testing.assert_array_equal(x, y)
        assert_same_state(again, native.state_dict())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("grid", None), ("extra", 0), ("ended", np.zeros(2)), ("rng", np.zeros((2, 5), np.uint64)), ("grid", 11),
        ("carrying", 9), ("agent_pos", 25), ("agent_pos", 7), ("agent_pos", -1), ("agent_dir", 4), ("agent_dir", -1),
        ("rng", 2**64 - 1),
    ],
)  # fmt: skip
def test_a_state_of_another_form_is_refused_and_nothing_changes(name, value):
    native, _ = make("rapid/KeyCorridorS3R1-v0", 2)
    native.reset(seed=1)
    before = native.state_dict()
    state = native.state_dict()
    if value is None:
        del state[name]
    elif isinstance(value, int) and name in state:
        state[name][0] = np.array(value).astype(state[name].dtype)
    else:
        state[name] = value
    with pytest.raises(ValueError, match="expected"):
        native.load_state_dict(state)
    assert_same_state(native, before)


def test_the_state_of_another_task_is_refused():
    native, _ = make("rapid/KeyCorridorS3R1-v0", 2)
    other, _ = make("rapid/MultiRoom-N2-S4-v0", 2)
    other.reset(seed=0)
    for state in (other.state_dict(), None, {1: 2, "a": 3}):
        with pytest.raises(ValueError, match="expected"):
            native.load_state_dict(state)


def test_another_mode_does_not_step_on_after_an_end_that_waits_for_its_reset():
    native, _ = make("rapid/MultiRoom-N2-S4-v0", 2, AutoresetMode.NEXT_STEP, max_steps=1)
    native.reset(seed=0)
    native.step([0, 0])
    other, _ = make("rapid/MultiRoom-N2-S4-v0", 2, AutoresetMode.SAME_STEP, max_steps=1)
    other.load_state_dict(native.state_dict())
    with pytest.raises(ResetNeeded, match="have ended"):
        other.step([0, 0])
    assert other.np_random_seed == (-1, -1)


@pytest.mark.parametrize("mode", MODES[:2], ids=lambda mode: mode.name)
def test_an_interrupted_search_lets_no_ended_episode_continue(mode, monkeypatch):
    native, _ = make("rapid/MultiRoom-N2-S4-v0", 2, mode, max_steps=2)
    native.reset(seed=0)
    native.step([0, 0])
    generate, interrupted = native._generate, []

    def interrupt(i):
        if not interrupted:
            interrupted.append(i)
            raise KeyboardInterrupt
        generate(i)

    monkeypatch.setattr(native, "_generate", interrupt)
    if mode == AutoresetMode.NEXT_STEP:
        native.step([0, 0])
    with pytest.raises(KeyboardInterrupt):
        native.step([0, 0])
    if mode == AutoresetMode.NEXT_STEP:
        native.step([0, 0])
        assert native.state_dict()["step_count"].tolist() == [0, 0]
    else:
        with pytest.raises(ResetNeeded):
            native.step([0, 0])
    interrupted.clear()
    with pytest.raises(KeyboardInterrupt):
        native.reset()
    with pytest.raises(ResetNeeded):
        native.step([0, 0])


def test_arguments_that_only_minigrid_takes_are_refused_with_the_remedy():
    with pytest.raises(TypeError, match="vectorization_mode='sync'"):
        gym.make_vec("rapid/MultiRoom-N2-S4-v0", 2, agent_view_size=5)
    for name, number in (("max_steps", 2.5), ("max_steps", "5"), ("num_envs", 2.0), ("max_steps", float("nan"))):
        with pytest.raises(TypeError, match=name):
            gym.make_vec("rapid/MultiRoom-N2-S4-v0", **{"num_envs": 2, name: number})
    for arguments in ({"render_mode": "human"}, {"max_steps": 0}, {"max_steps": 2**63}, {"autoreset_mode": "never"}):
        with pytest.raises(ValueError, match=r"expected|valid"):
            gym.make_vec("rapid/MultiRoom-N2-S4-v0", 2, **arguments)
    with pytest.raises(ValueError, match="num_envs"):
        gym.make_vec("rapid/MultiRoom-N2-S4-v0", 0)


@pytest.mark.parametrize(
    ("env_id", "arguments"),
    [
        ("rapid/MultiRoom-N2-S4-v0", {"num_rooms": 0}),
        ("rapid/MultiRoom-N2-S4-v0", {"max_room_size": 3}),
        ("rapid/KeyCorridorS3R1-v0", {"room_size": 2}),
        ("rapid/KeyCorridorS3R1-v0", {"room_size": 10}),
        ("rapid/KeyCorridorS3R1-v0", {"num_rows": 0}),
        ("rapid/KeyCorridorS3R1-v0", {"num_rows": 13}),
    ],
)
def test_sizes_that_do_not_fit_are_refused_before_anything_is_compiled(env_id, arguments):
    with pytest.raises(ValueError, match="expected `"):
        gym.make_vec(env_id, 2, **arguments)


def test_spaces_and_metadata_are_those_of_minigrid_in_a_sync_vector_env():
    native, sync = make("rapid/MultiRoom-N2-S4-v0", 3)
    for name in ("single_observation_space", "observation_space", "single_action_space", "action_space"):
        assert getattr(native, name) == getattr(sync, name)
    assert native.metadata["autoreset_mode"] is sync.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert native.spec.id == "rapid/MultiRoom-N2-S4-v0"


def test_ctrl_c_ends_a_search_that_finds_no_level():
    envs = gym.make_vec("rapid/MultiRoom-N30-S36-v0", 1)
    generate = envs._task.generate

    def generate_and_press_ctrl_c(*arguments):
        found = generate(*arguments)  # returns in between, although it would search for ever
        _thread.interrupt_main()
        return found

    envs._task = envs._task._replace(generate=generate_and_press_ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        envs.reset()
