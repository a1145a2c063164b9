"""The native engine equals the installed MiniGrid, step for step."""

import time

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from minigrid.core import constants as minigrid
from minigrid.core.actions import Actions

import rapid_wrappers.envs
from tests.envs.minigrid_solver import Solver
from tests.envs.native_and_minigrid import assert_same_levels, compare, make

FEW = [f"rapid/MultiRoom-{name}-v0" for name in ("N2-S4", "N4-S8", "N7-S4", "N10-S4")]
FEW += [f"rapid/KeyCorridor{name}-v0" for name in ("S3R1", "S3R2", "S4R3")]
MULTI_ROOMS = [(2, 4), (3, 5), (4, 36), (6, 20), (7, 4), (7, 8), (10, 4), (10, 10), (12, 10), (20, 4)]
MANY = [f"rapid/MultiRoom-N{n}-S{s}-v0" for n, s in MULTI_ROOMS]
MANY += [f"rapid/KeyCorridorS{s}R{r}-v0" for s, r in rapid_wrappers.envs.KEY_CORRIDORS]
few_or_many = pytest.mark.parametrize(
    ("env_id", "size"),
    [(id, "short") for id in FEW] + [pytest.param(id, "long", marks=pytest.mark.slow) for id in MANY],
)


@few_or_many
def test_random_actions_give_what_minigrid_gives(env_id, size):
    steps, max_steps = {"short": (200, 50), "long": (600, 150)}[size]
    ended, _ = compare(env_id, seed=1, steps=steps, epsilon=1.0, max_steps=max_steps)
    assert ended >= 12


@few_or_many
def test_solving_the_levels_gives_what_minigrid_gives(env_id, size):
    steps, episodes = {"short": (200, 5), "long": (500, 15)}[size]
    ended, solved = compare(env_id, seed=2, steps=steps, epsilon=0.1)
    assert ended == solved >= episodes


@pytest.mark.parametrize("mode", AutoresetMode, ids=lambda mode: mode.name)
@pytest.mark.parametrize(("env_id", "max_steps"), [("rapid/MultiRoom-N2-S4-v0", 15), ("rapid/KeyCorridorS3R1-v0", 30)])
def test_every_autoreset_mode_is_that_of_a_sync_vector_env(env_id, max_steps, mode):
    native, _ = make(env_id, 2, mode)
    assert native.metadata["autoreset_mode"] is mode
    ended, solved = compare(env_id, seed=3, steps=150, epsilon=0.3, num_envs=3, mode=mode, max_steps=max_steps)
    assert ended > solved > 0


@few_or_many
def test_levels_are_those_of_minigrid(env_id, size):
    native, sync = make(env_id, 1)
    slow = "N12" in env_id or "S36" in env_id
    for seed in range(10 if size == "short" else 5 if slow else 40):
        native.reset(seed=seed)
        sync.reset(seed=seed)
        assert_same_levels(native, sync, f"{env_id}, seed {seed}")


@pytest.mark.parametrize(
    ("env_id", "numbers"), [("KeyCorridorS3R1", {"room_size": 9}), ("MultiRoom-N2-S4", {"num_rooms": 1})]
)
def test_sizes_without_an_id_give_what_minigrid_gives(env_id, numbers):
    compare(f"rapid/{env_id}-v0", seed=0, steps=50, epsilon=0.2, num_envs=2, **numbers)


@pytest.mark.parametrize(
    ("env_id", "arguments"),
    [
        ("rapid/MultiRoom-N2-S4-v0", {}),
        ("rapid/KeyCorridorS3R1-v0", {"tile_size": 8, "highlight": False}),
        ("rapid/KeyCorridorS3R1-v0", {"agent_pov": True}),
    ],
)
def test_pictures_are_minigrids(env_id, arguments):
    native, sync = make(env_id, 1, render_mode="rgb_array", **arguments)
    native.reset(seed=2)
    sync.reset(seed=2)
    solver = Solver(sync.envs[0], np.random.default_rng(0), 0.1)
    for step in range(24):
        action = np.array([solver.action()])
        native.step(action)
        sync.step(action)
        if step % 4 == 0:
            np.testing.assert_array_equal(native.render()[0], sync.render()[0])


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


def minigrid_is_quick(env_id):
    """Whether it finds a level within about two seconds, estimated with the engine, which is some 300 times as fast."""
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
def test_every_id_gives_what_minigrid_gives(env_id):
    """All ids together take half an hour. ``pytest -rP`` shows what each one compared."""
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
