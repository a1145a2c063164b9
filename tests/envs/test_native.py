"""The native engine against the installed MiniGrid."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode
from minigrid.core import constants as minigrid
from minigrid.core.actions import Actions

import rapid_wrappers.envs
from tests.envs.minigrid_solver import Solver

MULTI_ROOMS = [(2, 4), (3, 5), (4, 36), (6, 20), (7, 4), (7, 8), (10, 4), (10, 10), (12, 10), (20, 4)]
IDS = [f"rapid/MultiRoom-N{n}-S{s}-v0" for n, s in MULTI_ROOMS]
IDS += [f"rapid/KeyCorridorS{s}R{r}-v0" for s, r in rapid_wrappers.envs.KEY_CORRIDORS]
MODES = list(AutoresetMode)


def make(env_id, num_envs, mode=AutoresetMode.NEXT_STEP, **kwargs):
    """The native engine, and MiniGrid in a SyncVectorEnv."""
    native = gym.make_vec(env_id, num_envs, "vector_entry_point", autoreset_mode=mode, **kwargs)
    return native, gym.make_vec(env_id, num_envs, "sync", vector_kwargs={"autoreset_mode": mode}, **kwargs)


def assert_same_levels(native, sync, where, only=None):
    """The whole state: grid, agent, what it carries."""
    state = native.state_dict()
    for i, env in enumerate(sync.envs):
        if only is not None and not only[i]:
            continue
        env = env.unwrapped
        context = f"{where}, environment {i}"
        np.testing.assert_array_equal(state["grid"][i, : env.width, : env.height], env.grid.encode(), context)
        assert tuple(state["agent_pos"][i]) == tuple(env.agent_pos), context
        assert (state["agent_dir"][i], state["step_count"][i]) == (env.agent_dir, env.step_count), context
        assert tuple(state["carrying"][i]) == (env.carrying.encode() if env.carrying else (1, 0, 0)), context


def assert_same_infos(ours, theirs, where):
    assert ours.keys() == theirs.keys(), where
    for key, value in theirs.items():
        if key == "final_obs":
            assert [x is None for x in ours[key]] == [x is None for x in value], where
            for x, y in zip(ours[key], value, strict=True):
                np.testing.assert_array_equal(x, y, where)
        else:
            np.testing.assert_equal(ours[key], value, where)


def compare(env_id, seed, steps, epsilon, num_envs=4, mode=AutoresetMode.NEXT_STEP, **kwargs):
    """Step both with the same actions, random where `epsilon` is 1; number of episodes and of those solved."""
    native, sync = make(env_id, num_envs, mode, **kwargs)
    rng = np.random.default_rng(seed)
    solvers = [Solver(env, rng, epsilon) for env in sync.envs]
    where = f"{env_id}, seed {seed}, reset"
    np.testing.assert_array_equal(native.reset(seed=seed)[0], sync.reset(seed=seed)[0], where)
    assert_same_levels(native, sync, where)
    ended = solved = 0
    done = np.zeros(num_envs, bool)
    for step in range(steps):
        where = f"{env_id}, seed {seed}, epsilon {epsilon}, step {step}"
        actions = np.array([0 if done[i] else solvers[i].action() for i in range(num_envs)])
        ours, theirs = native.step(actions), sync.step(actions)
        for name, x, y in zip(("observations", "rewards", "terminations", "truncations"), ours, theirs, strict=False):
            assert x.dtype == y.dtype, where
            np.testing.assert_array_equal(x, y, f"{where}, {name}")
        assert_same_infos(ours[4], theirs[4], where)
        begun = done  # NEXT_STEP has reset them now
        done = theirs[2] | theirs[3]
        ended, solved = ended + done.sum(), solved + theirs[2].sum()
        if mode == AutoresetMode.SAME_STEP:
            begun, done = done, np.zeros(num_envs, bool)
        elif mode == AutoresetMode.DISABLED:
            if (begun := done).any():
                where += ", reset"
                x, y = (envs.reset(options={"reset_mask": done.copy()})[0] for envs in (native, sync))
                np.testing.assert_array_equal(x, y, where)
            done = np.zeros(num_envs, bool)
        if begun.any() or step % 50 == 49:
            assert_same_levels(native, sync, where, begun if step % 50 != 49 else None)
    return ended, solved


@pytest.mark.parametrize("env_id", IDS)
def test_random_actions_give_what_minigrid_gives(env_id):
    ended, _ = compare(env_id, seed=1, steps=600, epsilon=1.0, max_steps=150)
    assert ended >= 12


@pytest.mark.parametrize("env_id", IDS)
def test_solving_the_levels_gives_what_minigrid_gives(env_id):
    ended, solved = compare(env_id, seed=2, steps=500, epsilon=0.1)
    assert ended == solved >= 15


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize("env_id", ["rapid/MultiRoom-N4-S5-v0", "rapid/KeyCorridorS3R2-v0"])
def test_every_autoreset_mode_is_that_of_a_sync_vector_env(env_id, mode):
    native, _ = make(env_id, 2, mode)
    assert native.metadata["autoreset_mode"] is mode
    ended, solved = compare(env_id, seed=3, steps=400, epsilon=0.3, num_envs=3, mode=mode, max_steps=45)
    assert ended > solved > 0


@pytest.mark.parametrize("env_id", IDS)
def test_levels_are_those_of_minigrid(env_id):
    native, sync = make(env_id, 1)
    for seed in range(5 if "N12" in env_id or "S36" in env_id else 40):
        native.reset(seed=seed)
        sync.reset(seed=seed)
        assert_same_levels(native, sync, f"{env_id}, seed {seed}")


def test_numbers_are_minigrids():
    from rapid_wrappers.envs.native import constants as ours

    for names in (minigrid.OBJECT_TO_IDX, minigrid.COLOR_TO_IDX, minigrid.STATE_TO_IDX):
        for name, number in names.items():
            assert getattr(ours, name.upper(), number) == number
    assert [minigrid.IDX_TO_COLOR[color] for color in ours.COLORS] == minigrid.COLOR_NAMES
    np.testing.assert_array_equal(ours.DIR_TO_VEC, minigrid.DIR_TO_VEC)
    assert len(Actions) == ours.NUM_ACTIONS
    for action in Actions:
        name = action.name.upper()
        assert getattr(ours, f"TURN_{name}" if name in ("LEFT", "RIGHT") else name) == action


def test_a_seed_an_environment_none_and_one_for_all_mean_what_they_mean_to_gymnasium():
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


def assert_same_state(native, state):
    for name, array in native.state_dict().items():
        np.testing.assert_array_equal(array, state[name], name)


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
def test_what_is_returned_is_the_callers(mode):
    native, _ = make("rapid/MultiRoom-N2-S4-v0", 2, mode, max_steps=3)
    reference, _ = make("rapid/MultiRoom-N2-S4-v0", 2, mode, max_steps=3)
    kept = []
    for envs in (native, reference):
        kept.append([envs.reset(seed=0)[0]])
        for _ in range(3):
            *arrays, infos = envs.step([1, 1])
            kept[-1] += [*arrays, *infos.get("final_obs", [])]
            if envs is native:  # the caller scribbles on them
                for array in kept[0]:
                    array[:] = 99 if array.dtype == np.uint8 else 1
                kept[0] = [np.copy(x) for x in kept[0]]
    assert_same_state(native, reference.state_dict())


def test_a_saved_state_goes_on_exactly_in_another_process_of_the_same_task(tmp_path):
    rng = np.random.default_rng(0)
    for mode in MODES[:2]:
        native, _ = make("rapid/KeyCorridorS3R2-v0", 4, mode, max_steps=50)
        native.reset(seed=3)
        for _ in range(49 + (mode == AutoresetMode.NEXT_STEP)):
            last = native.step(rng.integers(7, size=4))[0]
        np.savez(tmp_path / "state.npz", **native.state_dict())
        again, _ = make("rapid/KeyCorridorS3R2-v0", 4, mode, max_steps=50)
        with np.load(tmp_path / "state.npz", allow_pickle=False) as state:
            seen = again.load_state_dict(dict(state))
        np.testing.assert_array_equal(seen, last)
        for _ in range(120):
            actions = rng.integers(7, size=4)
            for x, y in zip(native.step(actions)[:4], again.step(actions)[:4], strict=True):
                np.testing.assert_array_equal(x, y)
        assert_same_state(again, native.state_dict())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("grid", 11), ("agent_pos", 25), ("agent_pos", -1), ("agent_dir", 4), ("step_count", -1), ("carrying", 9),
        ("grid", None), ("extra", 0), ("grid", 3), ("agent_pos", 7), ("step_count", 271), ("carrying", 4), ("rng", 0),
        ("rng", 2**64 - 1), ("rng", np.zeros((2, 5), np.uint64)), ("ended", np.zeros(2)),
    ],
)  # fmt: skip
def test_a_state_that_minigrid_could_not_have_is_refused_and_nothing_changes(name, value):
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


@pytest.mark.parametrize("arguments", [{}, {"tile_size": 8, "highlight": False}, {"agent_pov": True}])
@pytest.mark.parametrize("env_id", ["rapid/MultiRoom-N4-S5-v0", "rapid/KeyCorridorS3R2-v0"])
def test_pictures_are_minigrids(env_id, arguments):
    native, sync = make(env_id, 2, render_mode="rgb_array", **arguments)
    native.reset(seed=2)
    sync.reset(seed=2)
    solvers = [Solver(env, np.random.default_rng(i), 0.1) for i, env in enumerate(sync.envs)]
    for _ in range(30):
        actions = np.array([solver.action() for solver in solvers])
        native.step(actions)
        sync.step(actions)
        for x, y in zip(native.render(), sync.render(), strict=True):
            np.testing.assert_array_equal(x, y)


def test_arguments_that_only_minigrid_takes_are_refused_with_the_way_to_it():
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


@pytest.mark.parametrize(
    ("env_id", "size"), [("KeyCorridorS3R1", {"room_size": 9}), ("MultiRoom-N2-S4", {"num_rooms": 1})]
)
def test_sizes_of_ones_own_are_minigrids_too(env_id, size):
    compare(f"rapid/{env_id}-v0", seed=0, steps=100, epsilon=0.2, num_envs=2, **size)


def test_the_state_of_another_task_is_refused():
    native, _ = make("rapid/KeyCorridorS3R1-v0", 2)
    other, _ = make("rapid/MultiRoom-N2-S4-v0", 2)
    other.reset(seed=0)
    for state in (other.state_dict(), None, {1: 2, "a": 3}):
        with pytest.raises(ValueError, match="expected"):
            native.load_state_dict(state)


def test_an_end_that_waits_for_its_reset_is_not_gone_on_with_in_another_mode():
    native, _ = make("rapid/MultiRoom-N2-S4-v0", 2, AutoresetMode.NEXT_STEP, max_steps=1)
    native.reset(seed=0)
    native.step([0, 0])
    other, _ = make("rapid/MultiRoom-N2-S4-v0", 2, AutoresetMode.SAME_STEP, max_steps=1)
    other.load_state_dict(native.state_dict())
    with pytest.raises(ResetNeeded, match="have ended"):
        other.step([0, 0])
    assert other.np_random_seed == (-1, -1)


@pytest.mark.parametrize("mode", MODES[:2], ids=lambda mode: mode.name)
def test_a_search_that_is_interrupted_leaves_no_episode_going_on_after_its_end(mode, monkeypatch):
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


def test_spaces_and_metadata_are_those_of_minigrid_in_a_sync_vector_env():
    native, sync = make("rapid/MultiRoom-N2-S4-v0", 3)
    for name in ("single_observation_space", "observation_space", "single_action_space", "action_space"):
        assert getattr(native, name) == getattr(sync, name)
    assert native.metadata["autoreset_mode"] is sync.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert native.spec.id == "rapid/MultiRoom-N2-S4-v0"


def test_ctrl_c_is_heard_while_a_level_is_searched_for():
    code = (
        "import _thread, threading, gymnasium as gym, rapid_wrappers.envs\n"
        "envs = gym.make_vec('rapid/MultiRoom-N30-S36-v0', 1)\n"
        "threading.Timer(1.0, _thread.interrupt_main).start()\n"
        "try: envs.reset()\n"
        "except KeyboardInterrupt: print('stopped')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "stopped\n"


@pytest.fixture
def probe(tmp_path):
    """Run, in a process of its own and a copy of the package, a compiled function that calls one of another file."""
    native = tmp_path / "rapid_wrappers" / "envs" / "native"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(rapid_wrappers.__file__).parent, tmp_path / "rapid_wrappers", ignore=ignore)
    head = "from rapid_wrappers.envs.native.jit import njit\n"
    (native / "inner.py").write_text(head + "@njit\ndef inner(x): return x + 1\n")
    import_inner = "from rapid_wrappers.envs.native.inner import inner\n"
    (native / "outer.py").write_text(head + import_inner + "@njit\ndef outer(x): return 2 * inner(x)\n")
    code = (
        "from rapid_wrappers.envs.native import outer\n"
        "print(outer.outer(1), sum(outer.outer.stats.cache_misses.values()), outer.__file__)"
    )

    def run(before="", **environment):
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), **environment}
        done = subprocess.run([sys.executable, "-c", before + code], cwd=tmp_path, env=environment, text=True,
                              capture_output=True, check=True)  # fmt: skip
        result, misses, file = done.stdout.split()
        assert file.startswith(str(tmp_path))
        return int(result), int(misses)

    return run, native


def test_machine_code_is_kept_until_any_file_of_the_engine_changes(probe):
    """Numba itself would keep `outer` when only `inner`, whose code it holds, has changed."""
    run, native = probe
    assert run() == (4, 1)
    assert run() == (4, 0)
    inner = native / "inner.py"
    inner.write_text(inner.read_text().replace("x + 1", "x + 2"))
    assert run() == (6, 1)
    assert run() == (6, 0)


@pytest.mark.parametrize("damage", [b"", b"nothing that could be loaded" * 100])
def test_damaged_machine_code_is_compiled_anew(probe, damage, tmp_path):
    run, _ = probe
    cache = tmp_path / "cache"
    run(NUMBA_CACHE_DIR=str(cache))
    kept = [*cache.rglob("*.nbi"), *cache.rglob("*.nbc")]
    assert kept
    for file in kept:
        file.write_bytes(damage)
    assert run(NUMBA_CACHE_DIR=str(cache))[0] == 4
    assert run(NUMBA_CACHE_DIR=str(cache)) == (4, 0)


def test_where_nothing_can_be_kept_the_engine_runs_all_the_same(probe, tmp_path):
    run, _ = probe
    (tmp_path / "file").touch()
    assert run(NUMBA_CACHE_DIR=str(tmp_path / "file" / "cache"))[0] == 4
    full_disk = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))\n"
    assert run(full_disk, NUMBA_CACHE_DIR=str(tmp_path / "cache"))[0] == 4


def test_without_numbas_compiler_the_engine_says_so():
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([sys.executable, "-c", "import rapid_wrappers.envs.native"], env=environment, text=True,
                          capture_output=True, check=False)  # fmt: skip
    assert "unset NUMBA_DISABLE_JIT" in done.stderr


def test_without_numba_make_vec_gives_minigrid_itself(tmp_path):
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "import gymnasium as gym, rapid_wrappers.envs\n"
        "print(type(gym.make_vec('rapid/MultiRoom-N2-S4-v0', 2)).__name__)\n"
        "try: import rapid_wrappers.envs.native\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "SyncVectorEnv",
        "the native engine needs Numba: pip install 'rapid-wrappers[native]'",
    ]


def minigrid_is_quick(env_id):
    """Whether it finds a level within about two seconds, judged by the engine, some 300 times as fast."""
    native = gym.make_vec(env_id, 8)
    started = time.perf_counter()
    for seed in range(8):
        native._seed([0], [seed])
        while not native._task.generate(native._worlds[0], *native._task.parameters):
            if time.perf_counter() - started > 0.05:
                return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("env_id", sorted(id for id in gym.registry if id.startswith(("rapid/Multi", "rapid/Key"))))
def test_sweep_over_every_id(env_id):
    """Half an hour; for each id that MiniGrid itself can generate in reasonable time. -rP shows what was compared."""
    if not minigrid_is_quick(env_id):
        pytest.skip("MiniGrid takes longer than two seconds a level")
    native, sync = make(env_id, 1)
    for seed in range(8):
        native.reset(seed=seed)
        sync.reset(seed=seed)
        assert_same_levels(native, sync, f"{env_id}, seed {seed}")
    steps = 1500 if "Key" in env_id else 300
    ended, _ = compare(env_id, seed=10, steps=steps, epsilon=1.0, max_steps=100, mode=AutoresetMode.SAME_STEP)
    also_ended, solved = compare(env_id, seed=20, steps=steps, epsilon=0.1)
    print(f"{env_id}: 8 levels, {ended + also_ended} episodes, {solved} solved")
    assert ended and solved
