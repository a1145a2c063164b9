"""The maze's rules, and how its episodes are scored. The real MiniWorld is the reference."""

import math
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
from tests.envs.mazes import FORWARD, LEFT, MAZE, RIGHT, walk

import_miniworld()

from miniworld.envs.maze import Maze  # noqa: E402
from miniworld.params import DEFAULT_PARAMS  # noqa: E402

from rapid_wrappers.envs.maze import MazeS5  # noqa: E402


@pytest.fixture
def maze():
    env = gym.make(MAZE)
    yield env
    env.close()


def walls(env):
    """The walls of a world, as a set of segments."""
    return {tuple(np.round(segment, 3).ravel().tolist()) for segment in env.unwrapped.wall_segs}


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


def test_sizes_and_parameters_can_be_chosen():
    env = gym.make(MAZE, num_rows=2, num_cols=3, obs_width=96, obs_height=64, params=DEFAULT_PARAMS, domain_rand=True)
    frames = walk(env, 20, seed=0)
    assert frames.shape == (21, 64, 96, 3)
    assert env.unwrapped.max_episode_steps == 2 * 3 * 24
    assert env.unwrapped.box.pos.tolist() == [2 * 3.25 + 1.5, 0, 3.25 + 1.5]
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


def test_the_info_names_the_square_metre_in_which_the_agent_stands(maze):
    _, info = maze.reset(seed=3)
    cells = [info["cell"]]
    for action in [FORWARD, FORWARD, FORWARD, LEFT] * 25:
        cells.append(maze.step(action)[-1]["cell"])
        x, _, z = maze.unwrapped.agent.pos
        assert cells[-1].dtype == np.int64 and cells[-1].tolist() == [math.floor(x), math.floor(z)]
    assert len({tuple(cell) for cell in cells}) > 3


def explore(env, seed, steps):
    """Walk straight on until a wall is in the way, then turn."""
    rng = np.random.default_rng(seed)
    frames = [env.reset(seed=seed)[0]]
    for _ in range(steps - 1):
        agent = env.unwrapped.agent
        free = not env.unwrapped.intersect(agent, agent.pos + 0.4 * agent.dir_vec, agent.radius)
        frames.append(env.step(FORWARD if free else rng.choice([LEFT, RIGHT]))[0])
    return np.array(frames)


def test_hashed_states_tell_new_rooms_from_standing_still(maze):
    counter = StateCounter(hash_bits=16)
    counter.visit(walk(maze, 299, seed=0))
    for seed in (1, 2):
        still = counter.visit(walk(maze, 149, seed, choices=[LEFT]))
        moving = counter.visit(explore(maze, seed, steps=150))
        assert len(set(moving.tolist())) > 2 * len(set(still.tolist()))
        assert counter.bonus(moving) > 1.2 * counter.bonus(still)


def test_hashed_states_are_counted_through_the_wrapper():
    envs = gym.make_vec(MAZE, 2, "sync", vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
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


def test_upstreams_id_is_left_alone():
    assert gym.spec(MAZE).entry_point == "rapid_wrappers.envs.maze:MazeS5"
    assert gym.spec("MiniWorld-Maze-v0").entry_point == "miniworld.envs.maze:Maze"
