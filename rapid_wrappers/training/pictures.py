"""Pictures of a ranking buffer: the episodes that the agent imitates, and how good, old and varied they are."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rapid_wrappers.buffer import RankingBuffer
from rapid_wrappers.counts import image_axes
from rapid_wrappers.episode import map_arrays

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_buffer", "stitch_views"]

# Colours of MiniGrid's object types (`minigrid.core.constants.OBJECT_TO_IDX`)
_COLORS = {
    0: "#444444",  # not seen
    1: "#eeeeee",  # empty
    2: "#888888",  # wall
    3: "#dddddd",  # floor
    4: "#b5651d",  # door
    5: "#f2c200",  # key
    6: "#3465a4",  # ball
    7: "#75507b",  # box
    8: "#4e9a06",  # goal
    9: "#ff7f0e",  # lava
}
_DOOR, _OPEN = 4, 0
_PASSABLE = (1, 3, 8, 9)
_LEFT, _RIGHT, _FORWARD = 0, 1, 2


def draw_buffer(buffer: RankingBuffer, episodes: int = 6, frames: int = 8) -> "Figure":
    """Draw the best kept episodes, one per row, and histograms of all kept ones.

    Images appear as a strip of frames. MiniGrid's views are stitched to the level that they saw, with the path through
    it. Other observations appear as curves of their first numbers. Of the entries of a Dict or Tuple space an image or
    a view is drawn, or else the first entry.

    Args:
        buffer: A buffer that holds at least one pair.
        episodes: Maximum number of rows, >= 1.
        frames: Frames in a strip, >= 1.

    Raises:
        ImportError: If matplotlib is missing.
        ValueError: If the buffer is empty.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ImportError("pictures need matplotlib: pip install 'rapid-wrappers[report]'") from error
    if not len(buffer):
        raise ValueError("expected a buffer with pairs in it, got an empty one")
    kept = buffer.episodes()
    best = kept[:episodes]
    shown = [_entry_to_draw(episode["observations"]) for episode in best]
    is_view, is_image = _is_view(shown[0]), _is_image(shown[0])
    columns = min(3, len(best)) if is_view else 1
    rows = -(-len(best) // columns)
    figure = Figure(figsize=(12, (2.6 if is_view else 1.7) * rows + 2.6), layout="constrained")
    upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=[(2.6 if is_view else 1.7) * rows, 2.6])[:, 0]
    places = np.ravel(upper.subfigures(rows, columns, squeeze=False))
    for place, episode, observations in zip(places, best, shown, strict=False):
        place.suptitle("score {score:.3f} (return {extrinsic:.2f}, local {local:.3f}, global {global:.3f}),\n"
                       "{length} steps, {age} episodes ago".format(**episode), fontsize="small")  # fmt: skip
        if is_view:
            _draw_level(place.subplots(), *stitch_views(observations, episode["actions"]))
        elif is_image:
            _draw_frames(place, observations, frames)
        else:
            axes = place.subplots()
            axes.plot(observations.reshape(len(observations), -1)[:, :8], lw=0.8)
            axes.set_xlabel("step", fontsize="x-small")
    names = {"score": "score", "extrinsic": "return", "length": "length (steps)", "age": "age (episodes)"}
    *histograms, over_time = lower.subplots(1, len(names) + 1)
    for axes, (name, label) in zip(histograms, names.items(), strict=True):
        axes.hist([episode[name] for episode in kept], bins=20)
        axes.set_xlabel(label)
    over_time.scatter([-episode["age"] for episode in kept], [episode["score"] for episode in kept], s=8)
    over_time.set(xlabel="when added (episodes)", ylabel="score")
    first = {
        b"".join(rows[0].tobytes() for rows in _arrays(episode["observations"]))
        for episode in kept
        if len(episode["actions"]) == episode["length"]
    }
    lower.suptitle(f"{len(buffer)} pairs of {len(kept)} episodes with {len(first)} different first observations")
    return figure


def _arrays(observations: Any) -> list[NDArray]:
    found: list[NDArray] = []
    map_arrays(found.append, observations)
    return found


def _is_view(rows: NDArray) -> bool:
    return rows.dtype == np.uint8 and rows.shape[1:] == (7, 7, 3)


def _is_image(rows: NDArray) -> bool:
    return rows.dtype == np.uint8 and image_axes(rows.shape[1:]) is not None


def _entry_to_draw(observations: Any) -> NDArray:
    arrays = _arrays(observations)
    return next((rows for rows in arrays if _is_view(rows) or _is_image(rows)), arrays[0])


def _draw_frames(place: Any, observations: NDArray[np.uint8], frames: int) -> None:
    height, width = image_axes(observations.shape[1:]) or (0, 1)
    images = np.moveaxis(observations, (height + 1, width + 1), (1, 2)).reshape(len(observations), *np.take(
        observations.shape[1:], (height, width)), -1)  # fmt: skip
    steps = np.linspace(0, len(images) - 1, min(frames, len(images))).round().astype(int)
    for axes, t in zip(np.ravel(place.subplots(1, len(steps), squeeze=False)), steps, strict=True):
        axes.imshow(images[t] if images.shape[-1] == 3 else images[t, ..., -1], cmap="gray")  # of a stack the newest
        axes.axis("off")


def stitch_views(views: NDArray[np.uint8], actions: NDArray) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Stitch views to the part of the level that MiniGrid's agent saw.

    Positions come from dead reckoning: a step forward moves the agent if the way is free.

    Args:
        views: ``(T, 7, 7, 3)``, as ``ImgObsWrapper`` returns them. The agent stands in the middle of the lower edge and
            looks up.
        actions: ``(T,)``, MiniGrid's.

    Returns:
        Object types ``(height, width)``, 0 where the agent saw nothing, with the agent looking up at first; and the
        cells ``(T, 2)`` in which it stood, as row and column.
    """
    size = views.shape[1]
    ahead = size - 1 - np.arange(size)  # of each column of a view, in front of the agent
    beside = np.arange(size) - size // 2  # of each row, to its right
    position, heading = np.zeros(2, np.int64), np.array([-1, 0])
    seen: dict[tuple[int, int], int] = {}
    path = []
    for view, action in zip(views, actions, strict=True):
        path.append(position.copy())
        right = np.array([heading[1], -heading[0]])
        for i, j in np.argwhere(view[..., 0] != 0):
            if (i, j) != (size // 2, size - 1):  # the agent's own cell shows what it carries
                row, column = position + ahead[j] * heading + beside[i] * right
                seen[row, column] = int(view[i, j, 0])
        if action in (_LEFT, _RIGHT):
            heading = right if action == _RIGHT else -right
        elif action == _FORWARD:
            kind, _, state = view[size // 2, size - 2]
            if kind in _PASSABLE or (kind == _DOOR and state == _OPEN):
                position = position + heading
    for row, column in path:
        seen.setdefault((int(row), int(column)), 1)
    cells = np.array(list(seen))
    low = cells.min(axis=0)
    level = np.zeros(cells.max(axis=0) - low + 1, np.uint8)
    level[tuple((cells - low).T)] = list(seen.values())
    return level, np.array(path) - low


def _draw_level(axes: "Axes", level: NDArray[np.uint8], path: NDArray[np.int64]) -> None:
    from matplotlib.colors import ListedColormap

    axes.imshow(level, cmap=ListedColormap(list(_COLORS.values())), vmin=0, vmax=len(_COLORS) - 1)
    jitter = np.random.default_rng(0).uniform(-0.2, 0.2, path.shape)  # otherwise the way back hides the way there
    rows, columns = (path + jitter).T
    axes.plot(columns, rows, color="C3", lw=0.8)
    axes.plot(columns[0], rows[0], "o", color="C3", ms=4)
    axes.axis("off")
