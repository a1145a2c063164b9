"""Pictures of a buffer; MiniGrid itself says whether a level was put together rightly."""

import gymnasium as gym
import numpy as np
import pytest

import rapid_wrappers.envs  # noqa: F401
from rapid_wrappers import RankingBuffer
from rapid_wrappers.training.pictures import draw_buffer, stitch_views


def play(env_id, seed, steps=150):
    """Random steps, more of them forward: views, actions, and where the agent really stood."""
    env = gym.make(env_id)
    rng = np.random.default_rng(seed)
    view, _ = env.reset(seed=seed)
    world = env.unwrapped
    start, views, actions, cells = world.agent_dir, [], [], []
    for _ in range(steps):
        actions.append(rng.choice([0, 1, 2, 2, 2, 3, 4, 5, 5]))
        views.append(view)
        cells.append(world.agent_pos)
        view, _, terminated, truncated, _ = env.step(actions[-1])
        if terminated or truncated:
            break
    return world, start, np.array(views), np.array(actions), np.array(cells)


@pytest.mark.parametrize("env_id", ["rapid/MultiRoom-N4-S5-v0", "rapid/KeyCorridorS3R2-v0"])
@pytest.mark.parametrize("seed", range(8))
def test_the_level_is_minigrids_own(env_id, seed):
    world, start, views, actions, cells = play(env_id, seed)
    level, path = stitch_views(views, actions)
    # from MiniGrid's x (right) and y (down) to rows and columns with the agent's first direction up
    turns = {0: 1, 1: 2, 2: 3, 3: 0}[start]
    grid = np.rot90(world.grid.encode()[..., 0].T, turns)
    marks = np.zeros((world.height, world.width, len(cells)), bool)
    marks[cells[:, 1], cells[:, 0], np.arange(len(cells))] = True
    real = np.argwhere(np.rot90(marks, turns).transpose(2, 0, 1))[:, 1:]
    offset = real[0] - path[0]
    np.testing.assert_array_equal(path + offset, real)
    seen = np.argwhere(level) + offset
    walls = {tuple(x - offset) for x in np.argwhere(grid == 2)}
    assert {tuple(x) for x in np.argwhere(level == 2)} <= walls  # walls do not move
    same = grid[tuple(seen.T)] == level[level != 0]
    assert same.mean() > (0.99 if "MultiRoom" in env_id else 0.9)  # a key or a ball may have been carried since


def test_what_was_never_seen_stays_unknown_and_the_agents_cell_is_free():
    view = np.zeros((1, 7, 7, 3), np.uint8)
    view[0, 3, 6] = 5, 1, 0  # it carries a key
    view[0, 3, 5] = 2
    level, path = stitch_views(view, np.array([2]))
    assert level.tolist() == [[2], [1]] and path.tolist() == [[1, 0]]


def filled(observations, episodes=9, **kwargs):
    buffer = RankingBuffer(100, **kwargs)
    rng = np.random.default_rng(0)
    for i in range(episodes):
        buffer.add(observations(10 + i), rng.integers(0, 3, 10 + i), (i, 0.5, 0.0))
    return buffer


def views(n):
    return np.random.default_rng(n).integers(1, 3, (n, 7, 7, 3), np.uint8)


@pytest.mark.parametrize(
    ("observations", "episodes"),
    [
        (views, 9),
        (views, 1),
        (lambda n: np.random.default_rng(n).integers(0, 256, (n, 60, 80, 3), np.uint8), 3),
        (lambda n: np.random.default_rng(n).integers(0, 256, (n, 36, 36, 1), np.uint8), 1),
        (lambda n: np.random.default_rng(n).normal(size=(n, 17)), 3),
        (lambda n: np.arange(n), 1),
        (lambda n: np.random.default_rng(n).integers(0, 256, (n, 4, 36, 40), np.uint8), 2),  # a stack of grey frames
        (lambda n: np.random.default_rng(n).integers(0, 256, (n, 2, 36, 40, 3), np.uint8), 2),
        (lambda n: np.random.default_rng(n).integers(0, 256, (n, 36, 40), np.uint8), 2),
        (lambda n: {"direction": np.arange(n), "image": views(n)}, 4),
        (lambda n: (np.arange(n), {"speed": np.random.default_rng(n).normal(size=(n, 3))}), 2),
    ],
)
def test_a_buffer_of_any_observations_is_drawn(observations, episodes, tmp_path):
    import matplotlib.image

    figure = draw_buffer(filled(observations, episodes), frames=4)
    figure.savefig(tmp_path / "buffer.png", dpi=40)
    assert matplotlib.image.imread(tmp_path / "buffer.png")[..., :3].std() > 0.05
    texts = [text.get_text() for sub in figure.subfigs for text in sub.findobj(lambda x: hasattr(x, "get_text"))]
    assert any("0 episodes ago" in text for text in texts)


def test_an_empty_buffer_is_refused():
    with pytest.raises(ValueError, match="expected a buffer with pairs in it"):
        draw_buffer(RankingBuffer(10))
