"""Statistics of runs: mean returns, bootstrap intervals, and how two experiments compare.

The measure is the paper's: the mean return of the last 100 training episodes, checked every 1280 frames, and its
maximum over all checks (Table 1; the authors' `rapid/agent.py` logs the mean every ten rollouts of 128 frames).
Intervals, interquartile means and probabilities of improvement follow Agarwal et al., "Deep Reinforcement Learning at
the Edge of the Statistical Precipice" (NeurIPS 2021); the bootstrap is that of their library, rliable.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rliable import metrics
from rliable.library import get_interval_estimates

__all__ = [
    "CHECK_EVERY",
    "WINDOW",
    "Comparison",
    "Estimate",
    "bootstrap",
    "compare",
    "curve_at",
    "estimate",
    "interquartile_mean",
    "long_enough",
    "mean_return",
    "probability_of_improvement",
]

WINDOW = 100
"""Episodes in a mean return."""
CHECK_EVERY = 1_280
"""Frames between two checks of the mean return."""
_REPETITIONS = 2_000


def mean_return(frames: NDArray, returns: NDArray) -> tuple[NDArray, NDArray]:
    """Mean of the last 100 returns at the end of each episode, from the hundredth episode on.

    Args:
        frames: Frame at which each episode ended, ascending; shape (E,) with E >= 100.
        returns: Returns of the episodes, shape (E,).

    Returns:
        Frames and mean returns, each of shape (E - 99,).

    >>> mean_return(np.arange(1, 102) * 10, np.arange(101.0))
    (array([1000, 1010]), array([49.5, 50.5]))
    """
    total = np.cumsum(np.concatenate([[0.0], returns]))
    return frames[WINDOW - 1 :], (total[WINDOW:] - total[:-WINDOW]) / WINDOW


def curve_at(frames: NDArray, values: NDArray, every: int) -> tuple[NDArray, NDArray]:
    """A curve at multiples of ``every``: each value is that of the last episode that had ended by then.

    Args:
        frames: Ascending frames, shape (E,).
        values: Values at these frames, shape (E,).
        every: Frames between two points.

    Returns:
        The multiples of ``every`` from the first frame to the last one, and the values there; both may be empty.

    >>> curve_at(np.array([7, 12, 31]), np.array([0.1, 0.2, 0.3]), 10)
    (array([10, 20, 30]), array([0.1, 0.2, 0.2]))
    """
    grid = np.arange(-(-frames[0] // every) * every, frames[-1] + 1, every)
    return grid, values[np.searchsorted(frames, grid, side="right") - 1]


def long_enough(runs: pd.DataFrame) -> pd.Series:
    """Which runs have at least half the frames of the longest seed; shorter ones would distort a mean over seeds."""
    return runs.frames >= 0.5 * runs.groupby(["env_id", "experiment"]).frames.transform("max")


class Estimate(NamedTuple):
    """A statistic and its 95 % interval."""

    value: float
    low: float
    high: float


def bootstrap(statistic: Callable[..., NDArray], *scores: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """A statistic and its 95 % interval by rliable's percentile bootstrap over runs, stratified by task.

    The same scores always give the same interval. NumPy's global generator keeps its state.

    Args:
        statistic: Takes as many arrays as there are ``scores`` and returns an array of shape (K,).
        scores: One or two arrays of shape (runs, tasks, ...); the numbers of runs may differ.

    Returns:
        The statistic, lower and upper bound, each of shape (K,).
    """
    state = np.random.get_state()  # noqa: NPY002  (rliable draws from the global generator)
    np.random.seed(0)  # noqa: NPY002
    try:
        key, values = ("x", scores[0]) if len(scores) == 1 else ("x,y", list(scores))
        value, bounds = get_interval_estimates({key: values}, statistic, reps=_REPETITIONS)
    finally:
        np.random.set_state(state)  # noqa: NPY002
    low, high = bounds[key]
    return value[key], low, high


def estimate(statistic: Callable[..., NDArray], *scores: NDArray) -> Estimate:
    """:func:`bootstrap` for a statistic that returns one number, in an array of shape (1,)."""
    return Estimate(*(float(values[0]) for values in bootstrap(statistic, *scores)))


def interquartile_mean(scores: NDArray) -> NDArray:
    """Mean of the middle half of all ``scores (runs, tasks)``, by rliable, as an array of shape (1,)."""
    return np.array([metrics.aggregate_iqm(scores)])


def probability_of_improvement(first: NDArray, second: NDArray) -> NDArray:
    """Probability that a run of the first is better than one of the second on the same task, mean over tasks.

    A tie counts as half. Equal to rliable's, whose test statistics of SciPy would take minutes for all resamples.

    Args:
        first: Shape (runs of the first, tasks).
        second: Shape (runs of the second, tasks).

    Returns:
        Shape (1,).

    >>> probability_of_improvement(np.array([[1.0], [3.0]]), np.array([[1.0], [2.0]]))
    array([0.625])
    """
    difference = first[:, None] - second[None]  # (runs of the first, runs of the second, tasks)
    return np.array([(0.5 + 0.5 * np.sign(difference)).mean()])


class Comparison(NamedTuple):
    """How two experiments compare on the tasks that both have."""

    first: str
    second: str
    tasks: tuple[str, ...]
    """environment ids"""
    frames: tuple[int, ...]
    """the last frame that all runs have, of each task"""
    num_seeds: tuple[int, int]
    """seeds per task of the first and of the second"""
    iqm: tuple[Estimate, Estimate] | None
    """interquartile mean of the highest mean return of each; None if the tasks have returns of different scales"""
    probability: Estimate
    """that a run of the first is better than one of the second on the same task"""


def compare(curves: pd.DataFrame, main: str) -> list[Comparison]:
    """Compare one experiment with each other one, on the tasks where both have at least two seeds.

    A run's score is its highest mean return at the checks and in the frames that all compared runs of the task have,
    so a longer or more often checked run has no advantage. If a task has more seeds than another, only as many count.

    Args:
        curves: Columns ``env_id, experiment, seed, frames, mean_return``; a run's rows are ascending in frames.
        main: The experiment to compare with the others.

    Returns:
        One comparison for each other experiment that shares such a task with ``main``.
    """
    others = [name for name in curves.experiment.unique() if name != main]
    return [found for other in others if (found := _compare_two(curves, main, other)) is not None]


def _compare_two(curves: pd.DataFrame, first: str, second: str) -> Comparison | None:
    tasks: dict[str, tuple[int, list[float], list[float]]] = {}
    for env_id, task in curves.groupby("env_id", sort=False):
        sides = [[run for _, run in task[task.experiment == name].groupby("seed")] for name in (first, second)]
        checks = _common_checks([run.frames.to_numpy() for runs in sides for run in runs])
        if min(map(len, sides)) >= 2 and len(checks):
            highest = [[np.interp(checks, run.frames, run.mean_return).max() for run in runs] for runs in sides]
            tasks[env_id] = int(checks[-1]), highest[0], highest[1]
    if not tasks:
        return None
    frames, *scores = zip(*tasks.values(), strict=True)
    x, y = (np.array([task[: min(map(len, side))] for task in side]).T for side in scores)  # (seeds, tasks)
    one_scale = len(tasks) == 1 or max(np.abs(x).max(), np.abs(y).max()) <= 1
    return Comparison(
        first, second, tuple(tasks), frames, (len(x), len(y)),
        (estimate(interquartile_mean, x), estimate(interquartile_mean, y)) if one_scale else None,
        estimate(probability_of_improvement, x, y),
    )  # fmt: skip


def _common_checks(frames: list[NDArray]) -> NDArray:
    """Frames within all these curves, as far apart as the points of the coarsest one; empty if they do not overlap."""
    every = max((np.diff(own[-2:]).max(initial=CHECK_EVERY) for own in frames), default=CHECK_EVERY)
    start, end = max((own[0] for own in frames), default=1), min((own[-1] for own in frames), default=0)
    return np.arange(start, end + 1, every)
