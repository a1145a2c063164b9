"""The native engine beside MiniGrid itself: what the tests of the engine share."""

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

import rapid_wrappers.envs  # noqa: F401
from tests.envs.minigrid_solver import Solver


def make(env_id, num_envs, mode=AutoresetMode.NEXT_STEP, **kwargs):
    """The native engine, and MiniGrid in a SyncVectorEnv."""
    native = gym.make_vec(env_id, num_envs, "vector_entry_point", autoreset_mode=mode, **kwargs)
    return native, gym.make_vec(env_id, num_envs, "sync", vector_kwargs={"autoreset_mode": mode}, **kwargs)


def assert_same_levels(native, sync, where, only=None):
    """Compare the whole state: grid, agent, carried object."""
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


def assert_same_state(native, state):
    for name, array in native.state_dict().items():
        np.testing.assert_array_equal(array, state[name], name)


def compare(env_id, seed, steps, epsilon, num_envs=4, mode=AutoresetMode.NEXT_STEP, **kwargs):
    """Take the same actions in both, all random if `epsilon` is 1; return the numbers of episodes ended and solved."""
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
        begun = done  # NEXT_STEP resets these in this step
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
