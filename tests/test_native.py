"""The native engine against the installed MiniGrid."""

import time

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import rapid_wrappers.envs
from tests.minigrid_solver import Solver

pytest.importorskip("numba")

MULTI_ROOMS = [(2, 4), (3, 5), (4, 36), (6, 20), (7, 4), (7, 8), (10, 4), (10, 10), (12, 10), (20, 4)]
IDS = [f"rapid/MultiRoom-N{n}-S{s}-v0" for n, s in MULTI_ROOMS]
IDS += [f"rapid/KeyCorridorS{s}R{r}-v0" for s, r in rapid_wrappers.envs.KEY_CORRIDORS]
MODES = list(AutoresetMode)


def make(env_id, num_envs, mode=AutoresetMode.NEXT_STEP, **kwargs):
    """The native engine, and MiniGrid in a SyncVectorEnv."""
    native = gym.make_vec(env_id, num_envs, "vector_entry_point", autoreset_mode=mode, **kwargs)
    return native, gym.make_vec(env_id, num_envs, "sync", vector_kwargs={"autoreset_mode": mode}, **kwargs)


def assert_same_levels(native, minigrid, where, only=None):
    """The whole state: grid, agent, what it carries."""
    state = native.state_dict()
    for i, env in enumerate(minigrid.envs):
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
    native, minigrid = make(env_id, num_envs, mode, **kwargs)
    rng = np.random.default_rng(seed)
    solvers = [Solver(env, rng, epsilon) for env in minigrid.envs]
    where = f"{env_id}, seed {seed}, reset"
    np.testing.assert_array_equal(native.reset(seed=seed)[0], minigrid.reset(seed=seed)[0], where)
    assert_same_levels(native, minigrid, where)
    ended = solved = 0
    done = np.zeros(num_envs, bool)
    for step in range(steps):
        where = f"{env_id}, seed {seed}, epsilon {epsilon}, step {step}"
        actions = np.array([0 if done[i] else solvers[i].action() for i in range(num_envs)])
        ours, theirs = native.step(actions), minigrid.step(actions)
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
                x, y = (envs.reset(options={"reset_mask": done.copy()})[0] for envs in (native, minigrid))
                np.testing.assert_array_equal(x, y, where)
            done = np.zeros(num_envs, bool)
        if begun.any() or step % 50 == 49:
            assert_same_levels(native, minigrid, where, begun if step % 50 != 49 else None)
    return ended, solved


@pytest.mark.parametrize("env_id", IDS)
def test_random_actions_give_what_minigrid_gives(env_id):
    ended, _ = compare(env_id, seed=1, steps=600, epsilon=1.0, max_steps=150)
    assert ended >= 12


@pytest.mark.parametrize("env_id", IDS)
def test_solving_the_levels_gives_what_minigrid_gives(env_id):
    _, solved = compare(env_id, seed=2, steps=500, epsilon=0.1)
    assert solved


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize("env_id", ["rapid/MultiRoom-N4-S5-v0", "rapid/KeyCorridorS3R2-v0"])
def test_every_autoreset_mode_is_that_of_a_sync_vector_env(env_id, mode):
    native, _ = make(env_id, 2, mode)
    assert native.metadata["autoreset_mode"] is mode
    ended, solved = compare(env_id, seed=3, steps=400, epsilon=0.3, num_envs=3, mode=mode, max_steps=45)
    assert ended > solved > 0


@pytest.mark.parametrize("env_id", IDS)
def test_levels_are_those_of_minigrid(env_id):
    native, minigrid = make(env_id, 1)
    for seed in range(5 if "N12" in env_id or "S36" in env_id else 40):
        native.reset(seed=seed)
        minigrid.reset(seed=seed)
        assert_same_levels(native, minigrid, f"{env_id}, seed {seed}")


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
    """Hours: what the tests above do, for each id that MiniGrid itself can generate in reasonable time."""
    if not minigrid_is_quick(env_id):
        pytest.skip("MiniGrid takes longer than two seconds a level")
    native, minigrid = make(env_id, 1)
    for seed in range(8):
        native.reset(seed=seed)
        minigrid.reset(seed=seed)
        assert_same_levels(native, minigrid, f"{env_id}, seed {seed}")
    steps = 1500 if "Key" in env_id else 300
    ended, _ = compare(env_id, seed=10, steps=steps, epsilon=1.0, max_steps=100, mode=AutoresetMode.SAME_STEP)
    _, solved = compare(env_id, seed=20, steps=steps, epsilon=0.1)
    assert ended and solved
