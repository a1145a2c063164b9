"""The ranking buffer of RAPID (Algorithm 1): the best state-action pairs seen so far.

NumPy only, nothing else of this package: the file works when copied alone.
"""

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["RankingBuffer"]

# What is remembered of each kept episode. `length` counts all its states, cut ones included; `rows` the kept pairs.
_EPISODE = np.dtype([("index", "i8"), ("length", "i8"), ("rows", "i8"),
                     ("extrinsic", "f8"), ("local", "f8"), ("global_", "f8")])  # fmt: skip


class Counts(Protocol):
    """Anything with visit counts by state id, such as a ``StateCounter``."""

    @property
    def counts(self) -> NDArray[np.integer]: ...


class RankingBuffer:
    """Keeps the ``capacity`` best state-action pairs, every pair scored by its episode (Algorithm 1, Eq. 4).

    All pairs of an episode share its score S = w0 * extrinsic + w1 * local + w2 * global. Pairs are dropped one by
    one, so the lowest kept episode may be cut. Ties have one rule: what came later ranks higher. A newer episode is
    kept before an older one of the same score, and a cut episode loses its earliest steps.
    (The authors' code sorts unstably, and neither scores nor trims its first episode.)

    Args:
        capacity: Pairs kept at most, >= 1. Appendix A: 10 000.
        w0: Weight of the extrinsic score.
        w1: Weight of the local score.
        w2: Weight of the global score.
        counter: If given, the global score of every kept episode is computed anew at each insertion from
            ``counter.counts`` of that moment (the authors' behaviour), over all its states, cut ones included.
            If not, it stays as it was when the episode was added (Algorithm 1).
        age_penalty: How much score an episode loses for every 1000 episodes added after it, in units of S.
            0 is the paper; more forgets old episodes (the second limitation of its Section 5).
        whole_episodes: Never cut an episode; the last one kept may exceed ``capacity`` (Appendix H).
        rank: ``False`` keeps the latest pairs instead of the best (the paper's ablation "w/o ranking").
        seed: Of the generator behind :meth:`sample`, anything ``numpy.random.default_rng`` takes.

    Raises:
        ValueError: If an argument is out of its range.

    >>> buffer = RankingBuffer(capacity=3)
    >>> buffer.add([[0.0], [1.0]], [0, 1], scores=(0.0, 1.0, 0.0))
    >>> buffer.add([[2.0], [3.0]], [0, 1], scores=(1.0, 1.0, 0.0))
    >>> buffer.scores
    array([1.1, 1.1, 0.1])
    >>> observations, actions = buffer.sample(256)
    >>> observations.shape, actions.shape
    ((256, 1), (256,))
    """

    def __init__(
        self,
        capacity: int = 10_000,
        w0: float = 1.0,
        w1: float = 0.1,
        w2: float = 0.001,
        *,
        counter: Counts | None = None,
        age_penalty: float = 0.0,
        whole_episodes: bool = False,
        rank: bool = True,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        if not isinstance(capacity, int | np.integer) or isinstance(capacity, bool) or capacity < 1:
            raise ValueError(f"expected `capacity` to be a positive integer, got {capacity!r}")
        for name, value in {"w0": w0, "w1": w1, "w2": w2, "age_penalty": age_penalty}.items():
            if not math.isfinite(value):
                raise ValueError(f"expected `{name}` to be finite, got {value!r}")
        if age_penalty < 0:
            raise ValueError(f"expected `age_penalty` to be non-negative, got {age_penalty!r}")
        if counter is not None and not hasattr(counter, "counts"):
            raise TypeError(f"expected `counter` to have an attribute `counts`, got {type(counter).__name__}")
        self.capacity = int(capacity)
        self.w0, self.w1, self.w2 = float(w0), float(w1), float(w2)
        self.counter = counter
        self.age_penalty = float(age_penalty)
        self.whole_episodes = whole_episodes
        self.rank = rank
        self.rng = np.random.default_rng(seed)
        self._num_added = 0
        self._size = 0
        self._episodes = np.empty(0, dtype=_EPISODE)  # oldest first
        self._state_ids = np.empty(0, dtype=np.int64)  # of all their states, one episode after the other
        # Arrays with a row for each kept pair, the first `_size` in use, in no order; allocated by the first `add`:
        # "observations", "actions", and whose they are: the "index" of the episode and the "step" in it.
        self._rows: dict[str, NDArray] = {}

    def __len__(self) -> int:
        """Number of pairs kept."""
        return self._size

    @property
    def scores(self) -> NDArray[np.float64]:
        """Eq. 4 for each kept pair, best first, shape ``(len(self),)``.

        Global scores are those of the last insertion; ``age_penalty`` is left out.
        """
        return -np.sort(-np.repeat(self._score(self._episodes), self._episodes["rows"]))

    def add(
        self,
        observations: ArrayLike,
        actions: ArrayLike,
        scores: Sequence[float],
        state_ids: ArrayLike | None = None,
    ) -> None:
        """Rank one episode among those kept, and drop what falls below the best ``capacity`` pairs.

        Args:
            observations: ``(T, *obs_shape)``, T >= 1; copied, in the dtype given.
            actions: ``(T, *act_shape)``; copied, in the dtype given.
            scores: ``(extrinsic, local, global)`` of the episode, finite.
            state_ids: ``(T,)`` ids into ``counter.counts``; required with a ``counter``, else not used.

        Raises:
            ValueError: If lengths, shapes or ranges are off, or a score is NaN or infinite.
            TypeError: If a dtype is not numeric or not that of the pairs already kept.
                In either case the buffer stays as it was.
        """
        obs, act = self._check_rows("observations", observations), self._check_rows("actions", actions)
        if len(obs) != len(act):
            raise ValueError(f"expected as many `actions` as `observations`, got {len(act)} and {len(obs)}")
        ids = self._check_ids(state_ids, len(obs))
        if len(scores) != 3 or not all(math.isfinite(score) for score in scores):
            raise ValueError(f"expected `scores` to be three finite numbers (extrinsic, local, global), got {scores!r}")
        new = np.array([(self._num_added, len(obs), len(obs), *scores)], dtype=_EPISODE)
        if not np.isfinite(self._score(new)).all():
            raise ValueError(f"expected a finite weighted score, got {self._score(new)[0]} from {scores!r}")

        rows = {
            "observations": obs,
            "actions": act,
            "index": np.full(len(obs), new["index"]),
            "step": np.arange(len(obs)),
        }
        if not self._rows:
            self._rows = {name: np.empty((self.capacity, *row.shape[1:]), row.dtype) for name, row in rows.items()}
        self._num_added += 1
        self._episodes = np.resize(self._episodes, len(self._episodes) + 1)
        self._episodes[-1:] = new
        self._state_ids = np.concatenate([self._state_ids, ids])
        self._refresh_global_scores()
        keep = self._rows_to_keep()
        first_kept = len(obs) - keep[-1]
        self._write({name: row[first_kept:] for name, row in rows.items()}, self._dropped(keep))
        self._episodes["rows"] = keep
        alive = keep > 0
        if self.counter is not None:
            self._state_ids = self._state_ids[np.repeat(alive, self._episodes["length"])]
        self._episodes = self._episodes[alive]

    def sample(self, batch_size: int) -> tuple[NDArray, NDArray]:
        """Draw pairs uniformly with replacement.

        Args:
            batch_size: Number of pairs, >= 1; it may exceed ``len(self)``.

        Returns:
            ``observations (batch_size, *obs_shape)`` and ``actions (batch_size, *act_shape)``: copies, in the dtypes
            they were added with.

        Raises:
            ValueError: If the buffer is empty or ``batch_size`` is below 1.
        """
        if batch_size < 1:
            raise ValueError(f"expected `batch_size` to be positive, got {batch_size!r}")
        if self._size == 0:
            raise ValueError("expected a buffer with at least one pair, got an empty one: `add` an episode first")
        rows = self.rng.integers(self._size, size=batch_size)
        return self._rows["observations"].take(rows, axis=0), self._rows["actions"].take(rows, axis=0)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on, as copied arrays, numbers and the generator's state; the arguments are not in."""
        return {
            "rows": {name: row[: self._size].copy() for name, row in self._rows.items()},
            "episodes": {name: self._episodes[name].copy() for name in _EPISODE.names or ()},
            "state_ids": self._state_ids.copy(),
            "num_added": self._num_added,
            "rng": self.rng.bit_generator.state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replace all content by that of a :meth:`state_dict`; weights and other arguments stay this buffer's own.

        Raises:
            ValueError: If ``state`` is not consistent, or does not fit this buffer; the buffer then stays as it was.
        """
        if set(state) != set(self.state_dict()) or set(state["episodes"]) != set(_EPISODE.names or ()):
            raise ValueError(f"expected the keys of a `state_dict()`, got {sorted(state)}")
        episodes = np.empty(len(state["episodes"]["index"]), dtype=_EPISODE)
        for name in _EPISODE.names or ():
            episodes[name] = state["episodes"][name]
        rows = {name: np.asarray(row) for name, row in state["rows"].items()}
        ids = np.asarray(state["state_ids"], dtype=np.int64)
        self._check_state(rows, episodes, ids, int(state["num_added"]))
        rng = np.random.Generator(type(self.rng.bit_generator)())
        rng.bit_generator.state = state["rng"]

        self._rows, self._size = {}, int(episodes["rows"].sum())
        for name, row in rows.items():
            self._rows[name] = np.empty((max(self._size, self.capacity), *row.shape[1:]), row.dtype)
            self._rows[name][: self._size] = row
        self._episodes, self._num_added, self.rng = episodes, int(state["num_added"]), rng
        self._state_ids = ids.copy()

    def _check_rows(self, name: str, value: ArrayLike) -> NDArray:
        array = np.asarray(value)
        if array.dtype.kind not in "biufc":
            raise TypeError(f"expected `{name}` to be one numeric array, got dtype {array.dtype}: of a Dict or Tuple "
                            "space select or flatten the entries first")  # fmt: skip
        if array.ndim == 0 or len(array) == 0:
            raise ValueError(f"expected `{name}` of shape (T, ...) with T >= 1, got {array.shape}")
        kept = self._rows.get(name, array)
        if array.shape[1:] != kept.shape[1:]:
            raise ValueError(f"expected each of `{name}` of shape {kept.shape[1:]} as before, got {array.shape[1:]}")
        if not np.can_cast(array.dtype, kept.dtype):
            raise TypeError(f"expected `{name}` of dtype {kept.dtype} as before, got {array.dtype}")
        return array

    def _check_ids(self, state_ids: ArrayLike | None, length: int) -> NDArray[np.int64]:
        if self.counter is None:
            return np.empty(0, dtype=np.int64)
        if state_ids is None:
            raise ValueError("expected `state_ids`, since this buffer has a `counter`, got None")
        ids = np.asarray(state_ids)
        if ids.dtype.kind not in "iu" or ids.shape != (length,):
            raise ValueError(f"expected `state_ids` to be {length} integers, got {ids.dtype} of shape {ids.shape}")
        counts = self.counter.counts
        if ids.min() < 0 or ids.max() >= len(counts) or counts.take(ids).min() < 1:
            raise ValueError(f"expected `state_ids` to be visited states of `counter`, in "
                             f"[0, {len(counts)}), got {ids.min()} to {ids.max()}")  # fmt: skip
        return ids.astype(np.int64)

    def _check_state(self, rows: dict[str, NDArray], episodes: NDArray, ids: NDArray, num_added: int) -> None:
        index, size = episodes["index"], int(episodes["rows"].sum())
        excess = episodes["rows"].max(initial=1) - 1 if self.whole_episodes else 0
        if size > self.capacity + excess:
            raise ValueError(f"expected at most `capacity`={self.capacity} pairs, got {size}")
        num_ids, num_states = (0, 0) if self.counter is None else (episodes["length"].sum(), len(self.counter.counts))
        if len(ids) != num_ids or (num_ids and not 0 <= ids.min() <= ids.max() < num_states):
            raise ValueError(f"expected {num_ids} `state_ids` in [0, {num_states}): those of the kept episodes' states "
                             "in this buffer's `counter`, which has to be loaded first")  # fmt: skip
        if size == 0 and not rows and len(episodes) == 0:
            return
        if set(rows) != {"observations", "actions", "index", "step"} or {len(row) for row in rows.values()} != {size}:
            raise ValueError(f"expected {size} of each of observations, actions, index and step in `rows`")
        owners, num_rows = np.unique(rows["index"], return_counts=True)
        agree = np.array_equal(owners, index) and np.array_equal(num_rows, episodes["rows"]) and index[-1] < num_added
        if not (agree and np.isfinite(self._score(episodes)).all() and (episodes["length"] >= num_rows).all()):
            raise ValueError("expected a consistent `state_dict()`: its episodes and its pairs do not agree")

    def _score(self, episodes: NDArray) -> NDArray[np.float64]:
        return self.w0 * episodes["extrinsic"] + self.w1 * episodes["local"] + self.w2 * episodes["global_"]

    def _refresh_global_scores(self) -> None:
        """Eq. 3 of every kept episode with the counts of now, in one gather over all their states."""
        if self.counter is None or self.w2 == 0:
            return
        lengths = self._episodes["length"]
        bonus = 1.0 / np.sqrt(self.counter.counts.take(self._state_ids))
        self._episodes["global_"] = np.add.reduceat(bonus, np.cumsum(lengths) - lengths) / lengths

    def _rows_to_keep(self) -> NDArray[np.int64]:
        """Pairs each episode may keep, ranked best first, newer first among equals."""
        rows = self._episodes["rows"]
        # Every later episode costs all earlier ones the same, so a bonus fixed at insertion gives the same order.
        rank_by = self._score(self._episodes) + self.age_penalty * self._episodes["index"] / 1000
        best_first = np.argsort(rank_by if self.rank else np.zeros(len(rows)), kind="stable")[::-1]
        above = np.cumsum(rows[best_first]) - rows[best_first]
        keep = np.empty_like(rows)
        if self.whole_episodes:
            keep[best_first] = np.where(above < self.capacity, rows[best_first], 0)
        else:
            keep[best_first] = np.minimum(np.maximum(self.capacity - above, 0), rows[best_first])
        return keep

    def _dropped(self, keep: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows of older episodes that are no longer kept, the earliest steps of each."""
        surplus = self._episodes["rows"] - keep
        dropped = [np.empty(0, dtype=np.int64)]
        for episode in np.flatnonzero(surplus[:-1]):
            rows = np.flatnonzero(self._rows["index"][: self._size] == self._episodes["index"][episode])
            dropped.append(rows[np.argsort(self._rows["step"][rows])][: surplus[episode]])
        return np.concatenate(dropped)

    def _write(self, new: dict[str, NDArray], free: NDArray[np.int64]) -> None:
        """Put new pairs into the ``free`` rows, and the rest behind all others."""
        num_new = len(new["step"])
        size = self._size + num_new - len(free)
        target = np.concatenate([free, np.arange(self._size, size)])[:num_new]
        holes = tail = free[num_new:]
        if len(holes):  # more pairs were dropped than came: the last ones move into the holes
            tail = np.setdiff1d(np.arange(size, self._size), holes)
            holes = holes[holes < size]
        for name, row in self._rows.items():
            if size > len(row):  # only `whole_episodes` exceeds the capacity
                row = self._rows[name] = np.concatenate([row, np.empty((size - len(row), *row.shape[1:]), row.dtype)])
            row[target] = new[name]
            row[holes] = row[tail]
        self._size = size
