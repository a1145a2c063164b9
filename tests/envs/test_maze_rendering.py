"""The maze's pictures against MiniWorld's own, and mazes in several processes."""

import gc
import multiprocessing
import os
import pickle
import sys
from concurrent.futures import ProcessPoolExecutor

import gymnasium as gym
import numpy as np
import pytest

import rapid_wrappers.envs  # noqa: F401
from rapid_wrappers.envs.headless import import_miniworld
from tests.envs.mazes import DISPLAY_VARIABLES, MAZE, RIGHT, walk

import_miniworld()

from miniworld.miniworld import MiniWorldEnv  # noqa: E402

from rapid_wrappers.envs.maze import MazeS5  # noqa: E402


class Stock(MazeS5):
    """The same world, drawn by MiniWorld itself."""

    render_obs = MiniWorldEnv.render_obs
    _render_static = MiniWorldEnv._render_static
    _render_world = MiniWorldEnv._render_world


def assert_same_walk(seeds, steps):
    ours, stock = MazeS5(), Stock()
    for seed in seeds:
        np.testing.assert_array_equal(walk(ours, steps, seed), walk(stock, steps, seed))
    np.testing.assert_array_equal(ours.render_top_view(), stock.render_top_view())
    np.testing.assert_array_equal(ours.render_depth(), stock.render_depth())


def assert_rooms_in_view_suffice(seeds, places):
    """From any place, in any direction: at most one pixel in half a million is rounded differently."""
    ours, stock = MazeS5(), Stock()
    rng = np.random.default_rng(0)
    drawn, different = [], 0
    for seed in seeds:
        ours.reset(seed=seed)
        stock.reset(seed=seed)
        for _ in range(places):
            room = ours.rooms[rng.integers(len(ours.rooms))]
            x, z = rng.uniform([room.min_x + 0.05, room.min_z + 0.05], [room.max_x - 0.05, room.max_z - 0.05])
            for env in (ours, stock):
                env.agent.pos = np.array([x, 0, z])
            ours.agent.dir = stock.agent.dir = rng.uniform(-7, 7)
            different += (ours.render_obs() != stock.render_obs()).any(axis=-1).sum()
            drawn.append(len(ours._rooms_in_view(80 / 60)))
    assert different <= len(drawn) * 60 * 80 / 500_000
    assert np.mean(drawn) < 10


def test_the_picture_is_miniworlds():
    assert_same_walk(range(2), steps=60)


@pytest.mark.slow
def test_the_picture_is_miniworlds_in_many_mazes():
    assert_same_walk(range(20), steps=300)


def test_drawing_only_the_rooms_in_view_leaves_no_visible_room_out():
    assert_rooms_in_view_suffice(range(2), places=50)


@pytest.mark.slow
def test_drawing_only_the_rooms_in_view_leaves_no_visible_room_out_in_many_mazes():
    assert_rooms_in_view_suffice(range(20), places=200)


def test_mazes_in_one_process_each_show_their_own_world():
    """MiniWorld's own mazes all show the world that was reset last."""
    one, two = MazeS5(), MazeS5()
    walk(one, 20, seed=1)
    before = one.render_obs()
    walk(two, 20, seed=2)
    two.reset()
    np.testing.assert_array_equal(one.render_obs(), before)
    two.close()
    np.testing.assert_array_equal(one.render_obs(), before)


def test_a_vector_environment_shows_the_pictures_of_single_ones():
    def actions(seed):
        return np.random.default_rng(seed).integers(3, size=20)

    seeds = (5, 6)
    singles = []
    for seed in seeds:
        env = gym.make(MAZE)
        singles.append([env.reset(seed=seed)[0]] + [env.step(a)[0] for a in actions(seed)])
        env.close()
    envs = gym.make_vec(MAZE, len(seeds), "sync")
    together = [envs.reset(seed=5)[0].copy()]
    together += [envs.step(a)[0].copy() for a in np.stack([actions(seed) for seed in seeds], axis=1)]
    envs.close()
    np.testing.assert_array_equal(np.stack(together, axis=1), singles)


def first_pictures(*arguments, **kwargs):
    """Observations of a reset and of a step."""
    envs = gym.make_vec(MAZE, 1, *arguments, **kwargs)
    try:
        return envs.reset(seed=5)[0].copy(), envs.step(np.array([RIGHT]))[0].copy()
    finally:
        envs.close()


def test_a_spawned_worker_draws_the_same_pictures_without_a_display(monkeypatch):
    expected = first_pictures("sync")
    for variable in DISPLAY_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    np.testing.assert_array_equal(first_pictures("async", vector_kwargs={"context": "spawn"}), expected)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")
def test_a_forked_process_gets_an_error_that_names_the_way_out():
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as executor:
        error = executor.submit(MazeS5).exception()
    assert "use AsyncVectorEnv(..., context='spawn')" in str(error)


def resident():
    """Memory of this process in MB."""
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("render_mode", "megabytes"), [(None, 10), ("rgb_array", 80)])
def test_closed_mazes_leave_no_memory_behind(render_mode, megabytes):
    def cycle():
        env = gym.make(MAZE, render_mode=render_mode)
        frames = walk(env, 3, seed=1)
        env.close()
        return frames

    first = cycle()
    for _ in range(2):
        cycle()
    gc.collect()
    before = resident()
    for _ in range(5):
        last = cycle()
    gc.collect()
    assert resident() - before < megabytes  # MiniWorld's own mazes take 42 MB each
    np.testing.assert_array_equal(first, last)


def test_a_closed_maze_can_be_closed_again_and_even_reset():
    env = MazeS5()
    expected = env.reset(seed=1)[0]
    env.close()
    env.close()
    np.testing.assert_array_equal(env.reset(seed=1)[0], expected)
    env.close()


def test_without_antialiasing_the_picture_is_nearly_the_same_and_a_copy_has_none_either():
    smooth, plain = MazeS5(), MazeS5(antialias=False)
    a, b = (walk(env, 30, seed=0) for env in (smooth, plain))
    assert 0 < abs(a.astype(int) - b.astype(int)).mean() < 4
    copy = pickle.loads(pickle.dumps(plain))
    np.testing.assert_array_equal(walk(copy, 30, seed=0), b)
    np.testing.assert_array_equal(walk(smooth, 30, seed=0), a)


@pytest.mark.parametrize("view", ["agent", "top"])
def test_render_draws_a_large_picture_and_leaves_observations_unchanged(view):
    env = gym.make(MAZE, render_mode="rgb_array", view=view)
    env.reset(seed=0)
    picture = env.render()
    assert picture.shape == (600, 800, 3)
    assert picture.std() > 10
    before = env.unwrapped.render_obs()
    env.render()
    np.testing.assert_array_equal(env.unwrapped.render_obs(), before)
    env.close()
