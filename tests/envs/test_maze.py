"""The maze against the real MiniWorld, whose drawing and rules are the reference. All tests here draw with OpenGL."""

import gc
import math
import os
import pickle
import re
import subprocess
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import rapid_wrappers.envs  # noqa: F401
from rapid_wrappers import EpisodeScoringWrapper, StateCounter, VectorEpisodeScoringWrapper, finished_episodes
from rapid_wrappers.envs.headless import import_miniworld
from rapid_wrappers.scores import std_score
from tests.conftest import SCRIPTS

import_miniworld()

from miniworld.envs.maze import Maze  # noqa: E402
from miniworld.miniworld import MiniWorldEnv  # noqa: E402
from miniworld.params import DEFAULT_PARAMS  # noqa: E402

from rapid_wrappers.envs.maze import MazeS5  # noqa: E402

MAZE = "rapid/MazeS5-v0"
LEFT, RIGHT, FORWARD = range(3)


@pytest.fixture
def maze():
    env = gym.make(MAZE)
    yield env
    env.close()


def walls(env):
    """The walls of a world, as a set of segments."""
    return {tuple(np.round(segment, 3).ravel().tolist()) for segment in env.unwrapped.wall_segs}


def walk(env, steps, seed, choices=(LEFT, RIGHT, FORWARD, FORWARD, FORWARD)):
    """Reset, walk at random, and return the observations."""
    rng = np.random.default_rng(seed)
    observations = [env.reset(seed=seed)[0]]
    observations += [env.step(int(rng.choice(choices)))[0] for _ in range(steps)]
    return np.array(observations)


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


def test_it_is_the_papers_task(maze):
    assert maze.observation_space == gym.spaces.Box(0, 255, (60, 80, 3), np.uint8)
    assert maze.action_space == gym.spaces.Discrete(3)
    env = maze.unwrapped
    assert env.max_episode_steps == 600
    for seed in range(3):
        maze.reset(seed=seed)
        assert len(env.rooms) == 25 + 24  # MiniWorld counts the openings as rooms; 24 of them make a tree
        assert (env.agent.pos.tolist(), env.agent.dir) == ([1.5, 0, 1.5], 0)
        assert env.box.pos.tolist() == [4 * 3.25 + 1.5, 0, 4 * 3.25 + 1.5]
    maze.step(LEFT)
    assert env.agent.dir == pytest.approx(math.radians(22.5))
    maze.step(RIGHT)
    maze.step(FORWARD)
    assert env.agent.pos.tolist() == pytest.approx([1.9, 0, 1.5])


def test_mazes_differ_between_episodes_and_repeat_for_a_seed(maze):
    maze.reset(seed=3)
    one = walls(maze)
    maze.reset()
    two = walls(maze)
    maze.reset(seed=4)
    other = walls(maze)
    assert len({frozenset(x) for x in (one, two, other)}) == 3
    maze.reset(seed=3)
    assert walls(maze) == one
    maze.reset()
    assert walls(maze) == two
    np.testing.assert_array_equal(walk(maze, 20, seed=5), walk(maze, 20, seed=5))


def test_the_box_ends_the_episode_and_pays_less_the_later(maze):
    maze.reset(seed=0)
    for _ in range(9):
        assert maze.step(LEFT)[1:4] == (0, False, False)
    env = maze.unwrapped
    env.agent.pos = env.box.pos - [1.3, 0, 0]
    _, reward, terminated, truncated, _ = maze.step(LEFT)
    assert (reward, terminated, truncated) == (pytest.approx(1 - 0.2 * 10 / 600), True, False)


def test_the_time_limit_truncates_without_a_reward():
    maze = MazeS5(max_episode_steps=20)
    maze.reset(seed=0)
    ends = [maze.step(LEFT)[1:4] for _ in range(20)]
    assert ends == [(0, False, False)] * 19 + [(0, False, True)]


def test_the_only_way_to_the_box_can_be_walked(maze):
    maze.reset(seed=1)
    env = maze.unwrapped
    neighbors = [[other for other, _, _ in portals] for portals in env._portals]
    goal = next(i for i, room in enumerate(env.rooms) if room.point_inside(env.box.pos))
    before = {0: None}
    for room in (queue := [0]):
        for other in neighbors[room]:
            if other not in before:
                before[other] = room
                queue.append(other)
    path = [goal]
    while before[path[-1]] is not None:
        path.append(before[path[-1]])
    terminated = False
    for room in path[::-1]:
        target = np.array([env.rooms[room].mid_x, 0, env.rooms[room].mid_z])
        while not terminated and np.linalg.norm(target - env.agent.pos) > 0.3:
            to = target - env.agent.pos
            angle = (math.atan2(-to[2], to[0]) - env.agent.dir + math.pi) % (2 * math.pi) - math.pi
            action = FORWARD if abs(angle) <= math.radians(11.3) else LEFT if angle > 0 else RIGHT
            _, reward, terminated, truncated, _ = maze.step(action)
            assert not truncated
    assert terminated
    assert 0.8 < reward < 1


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
        return np.random.default_rng(seed).integers(3, size=25)

    singles = []
    for seed in (5, 6, 7):
        env = gym.make(MAZE)
        singles.append([env.reset(seed=seed)[0]] + [env.step(a)[0] for a in actions(seed)])
        env.close()
    envs = gym.make_vec(MAZE, 3, vectorization_mode="sync")
    together = [envs.reset(seed=5)[0].copy()]
    together += [envs.step(a)[0].copy() for a in np.stack([actions(seed) for seed in (5, 6, 7)], axis=1)]
    envs.close()
    np.testing.assert_array_equal(np.stack(together, axis=1), singles)


def first_pictures(*arguments, **kwargs):
    """Observations of a reset and of a step in two mazes."""
    envs = gym.make_vec(MAZE, 2, *arguments, **kwargs)
    try:
        return envs.reset(seed=5)[0].copy(), envs.step(np.array([0, 2]))[0].copy()
    finally:
        envs.close()


def test_spawned_workers_show_the_same_pictures_as_this_process():
    spawned = first_pictures("async", vector_kwargs={"context": "spawn"})
    np.testing.assert_array_equal(spawned, first_pictures("sync"))


@pytest.mark.skipif(sys.platform == "win32", reason="forks")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")
def test_a_forked_process_gets_an_error_that_names_the_way_out():
    with pytest.raises(RuntimeError, match=r"use AsyncVectorEnv\(..., context='spawn'\)"):
        first_pictures("async", vector_kwargs={"context": "fork"})


def test_gymnasiums_checker_passes(maze):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(different from the unwrapped|render_mode)")
        check_env(maze.unwrapped, skip_render_check=True)


def test_miniworlds_own_environments_keep_their_steps(maze):
    stock = gym.make("MiniWorld-Maze-v0")
    stock.reset(seed=0)
    env = stock.unwrapped
    before = env.agent.dir
    stock.step(LEFT)
    assert env.agent.dir - before == pytest.approx(math.radians(15))
    assert env.params.get_max("forward_step") == 0.17
    assert (DEFAULT_PARAMS.sample(None, "forward_step"), DEFAULT_PARAMS.sample(None, "turn_step")) == (0.15, 15)
    assert isinstance(env, Maze)
    stock.close()


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
    for _ in range(8):
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


def test_sizes_and_parameters_can_be_chosen():
    env = gym.make(MAZE, num_rows=2, num_cols=3, obs_width=96, obs_height=64, params=DEFAULT_PARAMS, domain_rand=True)
    frames = walk(env, 20, seed=0)
    assert frames.shape == (21, 64, 96, 3)
    assert env.unwrapped.max_episode_steps == 2 * 3 * 24
    assert env.unwrapped.box.pos.tolist() == [2 * 3.25 + 1.5, 0, 3.25 + 1.5]
    env.close()


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


def test_episodes_are_scored_by_the_spread_of_their_pixels_and_not_counted():
    env = EpisodeScoringWrapper(gym.make(MAZE, max_episode_steps=20))
    frames = [env.reset(seed=1)[0]]
    for t in range(20):
        obs, *_, info = env.step(t % 3)
        frames.append(obs)
    scores = info["episode_scores"]
    assert scores == {"extrinsic": 0.0, "local": pytest.approx(std_score(np.array(frames[:-1])) / 255), "global": 0.0}
    assert 0 < scores["local"] < 1
    assert info["episode_record"].observations.dtype == np.uint8
    assert len(env.counter) == 0
    env.close()


def explore(env, seed, steps):
    """Walk straight on until a wall is in the way, then turn."""
    rng = np.random.default_rng(seed)
    frames = [env.reset(seed=seed)[0]]
    for _ in range(steps - 1):
        agent = env.unwrapped.agent
        free = not env.unwrapped.intersect(agent, agent.pos + 0.4 * agent.dir_vec, agent.radius)
        frames.append(env.step(FORWARD if free else rng.choice([LEFT, RIGHT]))[0])
    return np.array(frames)


def test_the_info_names_the_square_metre_in_which_the_agent_stands(maze):
    _, info = maze.reset(seed=3)
    cells = [info["cell"]]
    for action in [FORWARD, FORWARD, FORWARD, LEFT] * 25:
        cells.append(maze.step(action)[-1]["cell"])
        x, _, z = maze.unwrapped.agent.pos
        assert cells[-1].dtype == np.int64 and cells[-1].tolist() == [math.floor(x), math.floor(z)]
    assert len({tuple(cell) for cell in cells}) > 3


def test_hashed_states_tell_new_rooms_from_standing_still(maze):
    counter = StateCounter(hash_bits=16)
    counter.visit(walk(maze, 299, seed=0))
    for seed in (1, 2):
        still = counter.visit(walk(maze, 149, seed, choices=[LEFT]))
        moving = counter.visit(explore(maze, seed, steps=150))
        assert len(set(moving.tolist())) > 2 * len(set(still.tolist()))
        assert counter.bonus(moving) > 1.2 * counter.bonus(still)


def test_hashed_states_are_counted_through_the_wrapper():
    envs = gym.make_vec(MAZE, 2, vectorization_mode="sync", vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
                        max_episode_steps=20)  # fmt: skip
    counter = StateCounter(hash_bits=12)
    envs = VectorEpisodeScoringWrapper(envs, local="distinct", counter=counter)  # a hashing counter counts images too
    envs.reset(seed=1)
    episodes = []
    for t in range(40):
        *_, infos = envs.step(np.array([LEFT, (FORWARD, LEFT, FORWARD)[t % 3]]))
        episodes += finished_episodes(infos)
    envs.close()
    assert len(episodes) == 4
    for _, episode in episodes:
        assert episode.scores.local == len(set(episode.state_ids.tolist())) / 20
        assert 0 < episode.scores.global_ <= 1
    assert counter.counts.sum() == 80
    assert len(counter) < 60


BARE = {key: value for key, value in os.environ.items() if key not in ("DISPLAY", "PYGLET_HEADLESS", "LP_NUM_THREADS")}
MAKE = f"import gymnasium as gym, rapid_wrappers.envs; print(gym.make('{MAZE}').reset(seed=0)[0].mean() > 10)"


INSTALL = "apt-get install libegl1 libgl1 libglu1-mesa libgl1-mesa-dri"


def python(program, **environment):
    """Run a program in a fresh process, without a display unless the environment names one."""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=BARE | environment)


def last_error(result):
    return result.stderr.strip().splitlines()[-1]


def test_it_draws_without_a_display():
    assert python(MAKE).stdout.strip() == "True"


def test_a_display_that_cannot_be_opened_is_named():
    result = python(MAKE, DISPLAY=":77")
    assert "no window can be opened on DISPLAY=:77; unset DISPLAY" in last_error(result)


@pytest.mark.parametrize(
    "library", ["EGL", pytest.param("GL", marks=pytest.mark.slow), pytest.param("GLU", marks=pytest.mark.slow)]
)
def test_missing_opengl_names_the_packages_to_install(library):
    hide = f"""
import ctypes.util
find, load = ctypes.util.find_library, ctypes.CDLL.__init__
def is_hidden(name):
    return str(name).split(".")[0].removeprefix("lib") == "{library}"
def cdll(self, name, *args, **kwargs):
    if is_hidden(str(name).split("/")[-1]):
        raise OSError(f"{{name}}: cannot open shared object file")
    load(self, name, *args, **kwargs)
ctypes.util.find_library = lambda name: None if is_hidden(name) else find(name)
ctypes.CDLL.__init__ = cdll
"""
    assert INSTALL in last_error(python(hide + MAKE))


def test_opengl_without_a_driver_names_the_packages_to_install():
    assert INSTALL in last_error(python(MAKE, __EGL_VENDOR_LIBRARY_FILENAMES="/nonexistent"))


@pytest.mark.parametrize("missing", ["miniworld", "pyglet"])
def test_a_missing_miniworld_is_named_with_the_extra_to_install(missing, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=r"pip install 'rapid-wrappers\[miniworld\]'"):
        import_miniworld()


def test_upstreams_id_is_left_alone():
    assert gym.spec(MAZE).entry_point == "rapid_wrappers.envs.maze:MazeS5"
    assert gym.spec("MiniWorld-Maze-v0").entry_point == "miniworld.envs.maze:Maze"


def test_scripts_need_no_display_and_only_the_maze_loads_opengl(tmp_path):
    few = ["--num-envs", "2", "--num-steps", "64", "--total-timesteps", "128"]
    commands = [["ppo_rapid.py", *few], ["ppo_rapid_cnn.py", "--help"], ["ppo_rapid_cnn.py", *few]]
    result = python(
        f"import os, runpy, sys; os.chdir({str(tmp_path)!r})\n"
        f"for command in {commands!r}:\n"
        "    sys.argv = command\n"
        f"    try: runpy.run_path(os.path.join({str(SCRIPTS)!r}, command[0]), run_name='__main__')\n"
        "    except SystemExit as end: assert not end.code\n"
        "    print('OpenGL:', 'pyglet' in sys.modules)"
    )
    assert result.returncode == 0, result.stderr
    assert re.findall("^OpenGL: (.*)$", result.stdout, re.M) == ["False", "False", "True"]
