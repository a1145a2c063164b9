"""Episode scores of RAPID (Zha et al., ICLR 2021, Eq. 1-4) as pure functions.

The file needs only NumPy and works when copied alone.
Throughout, ``states`` has shape ``(T, *state_shape)``: the T states an agent acted on in one episode.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "LOCAL_SCORES",
    "distance_score",
    "distinct_score",
    "episode_score",
    "global_score",
    "returns_differ",
    "std_score",
]


def distinct_score(states: ArrayLike) -> float:
    """Share of distinct states in an episode (Eq. 1), the local score for discrete state spaces.

    Equal arrays are one state: 0.0 equals -0.0, and NaN equals NaN.

    Args:
        states: ``(T, *state_shape)``, T >= 1.

    Returns:
        A float in (0, 1]; 1 when no state was visited twice.

    Raises:
        ValueError: If there is no state.
        TypeError: If the states are not numbers.

    >>> distinct_score([[0, 0], [0, 1], [0, 0], [0, 0]])
    0.5
    """
    rows = _episode(states)
    if rows.dtype.kind in "fc":
        rows = (np.where(np.isnan(rows), np.nan, rows) + 0.0).astype(rows.dtype)  # all NaN equal, and no -0.0
    data, width = rows.tobytes(), rows[0].nbytes
    distinct = {data[i * width : (i + 1) * width] for i in range(len(rows))}
    return len(distinct) / len(rows)


def std_score(states: ArrayLike) -> float:
    """Standard deviation of each state dimension over the episode, averaged over dimensions (Eq. 2).

    The local score for continuous state spaces. It is the population deviation (divided by T), so an episode of one
    step scores 0.

    Args:
        states: ``(T, *state_shape)``, T >= 1, finite.

    Returns:
        A float >= 0, in the units of the states.

    Raises:
        ValueError: If there is no state, or one is not finite.

    >>> std_score([[0.0, 5.0], [2.0, 5.0]])
    0.5
    """
    rows = _finite(_episode(states))
    rows = rows.reshape(len(rows), -1)
    blocks = range(0, rows.shape[1], 1024)  # of dimensions, as images would make large temporary arrays
    return float(np.concatenate([rows[:, i : i + 1024].std(axis=0, dtype=np.float64) for i in blocks]).mean())


def distance_score(states: ArrayLike) -> float:
    """Mean Euclidean distance of the states to the episode's mean state.

    The authors' code uses it for continuous spaces instead of Eq. 2 (``get_local_bonus`` in their ``rapid/buffer.py``).
    It grows with the square root of the number of dimensions and so needs a smaller ``w1``: the authors take 0.001 on
    MuJoCo and 1e-5 on 0-255 pixels.

    Args:
        states: ``(T, *state_shape)``, T >= 1, finite.

    Returns:
        A float >= 0, in the units of the states.

    Raises:
        ValueError: If there is no state, or one is not finite.

    >>> distance_score([[0.0, 0.0], [6.0, 8.0]])
    5.0
    """
    rows = _finite(_episode(states))
    deviations = rows.reshape(len(rows), -1) - rows.reshape(len(rows), -1).mean(axis=0, dtype=np.float64)
    return float(np.linalg.norm(deviations, axis=1).mean())


def global_score(counts: ArrayLike) -> float:
    """Mean of ``1/sqrt(N(s))`` over an episode's states (Eq. 3).

    Eq. 3 is also in ``counts.py`` and ``buffer.py``, as each file works alone.

    Args:
        counts: ``(T,)``, N(s) of each state, the visits of the episode itself included (as in the authors' code).

    Returns:
        A float in (0, 1]; 1 when every state was seen for the first time.

    Raises:
        ValueError: If there is no count, or one is below 1.

    >>> global_score([1, 4])
    0.75
    """
    visits = np.asarray(counts)
    if visits.size == 0 or not (np.isfinite(visits).all() and visits.min() >= 1):
        raise ValueError(f"expected `counts` to hold at least one count, each >= 1 and finite, got {counts!r}")
    return float((1.0 / np.sqrt(visits)).mean())


def episode_score(
    extrinsic: float, local: float, global_: float, w0: float = 1.0, w1: float = 0.1, w2: float = 0.001
) -> float:
    """Weighted sum of the three scores (Eq. 4). The default weights are from the paper's Appendix A.

    >>> episode_score(1.0, 0.5, 0.1)
    1.0501
    """
    return w0 * extrinsic + w1 * local + w2 * global_


def returns_differ(returns: ArrayLike) -> bool:
    """Whether fewer than half of all episodes have the most common return.

    Before a success most episodes of a task with sparse rewards have the same return. Where they differ from the start,
    the best ones may be luck, and are worth imitating only as long as they are new.

    Args:
        returns: ``(E,)`` of E >= 1 episodes.

    >>> returns_differ([0.0, 0.0, 0.0, 0.9]), returns_differ([-12.0, 3.0, 7.5])
    (False, True)
    """
    _, counts = np.unique(np.asarray(returns), return_counts=True)
    return bool(2 * counts.max() < counts.sum())


LOCAL_SCORES: dict[str, Callable[[ArrayLike], float]] = {
    "distinct": distinct_score,
    "std": std_score,
    "distance": distance_score,
}
"""The local scores by name."""


def _episode(states: ArrayLike) -> NDArray:
    rows = np.ascontiguousarray(states)
    if np.ndim(states) == 0 or len(rows) == 0:
        raise ValueError(f"expected `states` to be (T, *state_shape) with T >= 1, got shape {np.shape(states)}")
    if rows.dtype.kind not in "biufc" or rows.dtype.char in "gG":  # long double has undefined padding bytes
        raise TypeError(f"expected `states` to hold numbers of at most 64 bits, got dtype {rows.dtype}")
    return rows


def _finite(rows: NDArray) -> NDArray:
    if rows.dtype.kind in "fc" and not np.isfinite(rows).all():
        raise ValueError("expected `states` to be finite for a score of their spread, got NaN or infinity")
    if rows.size == 0:
        raise ValueError(f"expected `states` with elements for a score of their spread, got shape {rows.shape}")
    return rows
