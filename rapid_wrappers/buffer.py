"""The ranking buffer of RAPID (Algorithm 1): the best state-action pairs seen so far.

NumPy only, nothing else of this package: the file works when copied alone.
"""

import math
import operator
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["RankingBuffer"]

# What is remembered of each kept episode. `length` counts all its states, cut ones included; `rows` the kept pairs.
_EPISODE = np.dtype([("index", "i8"), ("length", "i8"), ("rows", "i8"),
                     ("extrinsic", "f8"), ("local", "f8"), ("global_", "f8")])  # fmt: skip
_NUMBERS = "biufc"  # kinds of dtype: bool, signed, unsigned, float, complex


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
            0 is the paper; more forgets old episodes (the second limitation of its Section 5). The attribute may be
            set anew between insertions, such as to a share of the highest score: the next one ranks by it.
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

    def episodes(self) -> list[dict[str, Any]]:
        """What is kept of each episode, best first by Eq. 4, for looking at.

        ``observations`` and ``actions`` are copies of its kept pairs in order; ``length`` counts all its steps, cut
        ones included; ``score`` is Eq. 4 of ``extrinsic``, ``local`` and ``global``; ``age`` is how many came after it.
        """
        if not self._size:
            return []
        order = np.lexsort([self._rows[name][: self._size] for name in ("step", "index")])  # oldest episode first
        scores = self._score(self._episodes)
        starts = np.cumsum(self._episodes["rows"]) - self._episodes["rows"]
        return [
            {
                "observations": self._rows["observations"][order[start : start + episode["rows"]]],
                "actions": self._rows["actions"][order[start : start + episode["rows"]]],
                "length": int(episode["length"]),
                "extrinsic": float(episode["extrinsic"]),
                "local": float(episode["local"]),
                "global": float(episode["global_"]),
                "score": float(score),
                "age": int(self._num_added - 1 - episode["index"]),
            }
            for episode, start, score in (
                (self._episodes[i], starts[i], scores[i]) for i in np.argsort(-scores, kind="stable")
            )
        ]

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
            TypeError: If a dtype is not numeric or does not fit in that of the pairs already kept.
                In either case the buffer stays as it was.
        """
        obs, act = self._check_rows("observations", observations), self._check_rows("actions", actions)
        if len(obs) != len(act):
            raise ValueError(f"expected as many `actions` as `observations`, got {len(act)} and {len(obs)}")
        ids = self._check_ids(state_ids, len(obs))
        episodes = np.concatenate([self._episodes, self._check_scores(scores, len(obs))])
        state_ids = np.concatenate([self._state_ids, ids])
        self._refresh_global_scores(episodes, state_ids)
        keep = self._rows_to_keep(episodes)

        rows = {"observations": obs, "actions": act, "step": np.arange(len(obs))}
        rows["index"] = np.full(len(obs), self._num_added)
        if not self._rows:
            self._rows = {name: np.empty((self.capacity, *row.shape[1:]), row.dtype) for name, row in rows.items()}
        first_kept = len(obs) - keep[-1]
        dropped = self._dropped(episodes, episodes["rows"] - keep)
        self._write({name: row[first_kept:] for name, row in rows.items()}, dropped)
        episodes["rows"] = keep
        alive = keep > 0
        if self.counter is not None:
            self._state_ids = state_ids[np.repeat(alive, episodes["length"])]
        self._episodes = episodes[alive]
        self._num_added += 1

    def sample(self, batch_size: int) -> tuple[NDArray, NDArray]:
        """Draw pairs uniformly with replacement.

        Args:
            batch_size: Number of pairs, >= 1; it may exceed ``len(self)``.

        Returns:
            ``observations (batch_size, *obs_shape)`` and ``actions (batch_size, *act_shape)``, copies in the dtypes
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
        try:
            loaded = self._parse(state)
        except (AttributeError, IndexError, KeyError, OverflowError, TypeError) as error:
            raise ValueError("expected `state` to be a `state_dict()` of a RankingBuffer") from error
        vars(self).update(loaded)

    def _check_rows(self, name: str, value: ArrayLike) -> NDArray:
        array = np.asarray(value)
        if array.dtype.kind not in _NUMBERS:
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

    def _check_scores(self, scores: Sequence[float], length: int) -> NDArray:
        """The new episode's entry among ``_episodes``."""
        try:
            extrinsic, local, global_ = map(float, scores)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"expected `scores` to be (extrinsic, local, global), three numbers, got {scores!r}"
            ) from error
        new = np.array([(self._num_added, length, length, extrinsic, local, global_)], dtype=_EPISODE)
        if not np.isfinite([extrinsic, local, global_, *self._score(new)]).all():
            raise ValueError(f"expected `scores` to be finite, and their weighted sum, got {scores!r}")
        return new

    def _check_ids(self, state_ids: ArrayLike | None, length: int) -> NDArray[np.int64]:
        if self.counter is None:
            return np.empty(0, dtype=np.int64)
        if state_ids is None:
            raise ValueError("expected `state_ids`, since this buffer has a `counter`, got None: episodes without them "
                             "(states not counted, or counted in a worker process) go to a buffer without")  # fmt: skip
        ids = np.asarray(state_ids)
        if ids.dtype.kind not in "iu" or ids.shape != (length,):
            raise ValueError(f"expected `state_ids` to be {length} integers, got {ids.dtype} of shape {ids.shape}")
        if ids.min() < 0 or ids.max() >= len(self.counter.counts):
            raise ValueError(f"expected `state_ids` to be states of `counter`, in [0, {len(self.counter.counts)}), "
                             f"got {ids.min()} to {ids.max()}")  # fmt: skip
        return ids.astype(np.int64)

    def _parse(self, state: dict[str, Any]) -> dict[str, Any]:
        """The attributes that ``state`` describes, copied and checked."""
        if set(state) != set(self.state_dict()):
            raise ValueError(f"expected the keys of a `state_dict()`, got {list(state)}")
        episodes = np.empty(len(state["episodes"]["index"]), dtype=_EPISODE)
        for name in _EPISODE.names or ():
            episodes[name] = _column(name, state["episodes"][name], len(episodes), _EPISODE[name])
        num_added, size = operator.index(state["num_added"]), int(episodes["rows"].sum())
        num_ids, num_states = (0, 0) if self.counter is None else (episodes["length"].sum(), len(self.counter.counts))
        ids = _column("state_ids", state["state_ids"], num_ids, _EPISODE["index"])
        if num_ids and not 0 <= ids.min() <= ids.max() < num_states:
            raise ValueError(
                f"expected `state_ids` in [0, {num_states}), of this buffer's `counter`: load that one first"
            )
        excess = episodes["rows"].max(initial=1) - 1 if self.whole_episodes else 0
        if size > self.capacity + excess:
            raise ValueError(f"expected at most `capacity`={self.capacity} pairs, got {size}")
        rows = {name: np.asarray(row) for name, row in state["rows"].items()}
        if set(rows) != ({"observations", "actions", "index", "step"} if size else set()):
            raise ValueError(f"expected observations, actions, index and step of {size} pairs, got {sorted(rows)}")
        for name, row in rows.items():
            if row.dtype.kind not in _NUMBERS or len(row) != size:
                raise ValueError(f"expected {size} numeric `{name}`, got {row.dtype} of shape {row.shape}")
        owner, step = (_column(name, rows.get(name, []), size, _EPISODE["index"]) for name in ("index", "step"))
        rows.update({"index": owner, "step": step} if size else {})
        index, num_rows = np.unique(owner, return_counts=True)
        if not (np.array_equal(index, episodes["index"]) and np.array_equal(num_rows, episodes["rows"])):
            raise ValueError("expected a consistent `state_dict()`: its episodes and its pairs do not agree")
        if num_added < 0 or (size and not 0 <= index[0] <= index[-1] < num_added):
            raise ValueError(f"expected episodes numbered from 0 to `num_added`, got {index} and {num_added}")
        lengths = episodes["length"][np.searchsorted(index, owner)]
        if np.unique([owner, step], axis=1).shape[1] != size or not ((step >= 0) & (step < lengths)).all():
            raise ValueError("expected each `step` of an episode once, and within its length")
        if not np.isfinite(self._score(episodes)).all():
            raise ValueError("expected the scores of all episodes to be finite")
        rng = np.random.Generator(type(self.rng.bit_generator)())
        rng.bit_generator.state = state["rng"]
        if rng.bit_generator.state["state"].get("inc", 1) % 2 == 0:  # PCG64 would repeat one number for ever
            raise ValueError("expected the state of a generator, got one with an even increment")
        allocated = {
            name: np.empty((max(size, self.capacity), *row.shape[1:]), row.dtype) for name, row in rows.items()
        }
        for name, row in rows.items():
            allocated[name][:size] = row
        return {"_rows": allocated, "_size": size, "_episodes": episodes, "_state_ids": ids, "rng": rng,
                "_num_added": num_added}  # fmt: skip

    def _score(self, episodes: NDArray) -> NDArray[np.float64]:
        with np.errstate(over="ignore", invalid="ignore"):  # who may get infinite scores refuses them
            return self.w0 * episodes["extrinsic"] + self.w1 * episodes["local"] + self.w2 * episodes["global_"]

    def _refresh_global_scores(self, episodes: NDArray, state_ids: NDArray[np.int64]) -> None:
        """Eq. 3 of every episode with the counts of now, in one gather over all their states."""
        if self.counter is None or self.w2 == 0:
            return
        counts, lengths = np.asarray(self.counter.counts), episodes["length"]
        visits = counts.take(state_ids, mode="clip")  # checked below: clipping is the fast way
        if len(counts) <= state_ids.max() or not visits.min() >= 1:
            raise ValueError("expected `counter` to hold a count of at least 1 for each state of the kept episodes, "
                             "but some are gone: it was replaced, or loaded without this buffer")  # fmt: skip
        episodes["global_"] = np.add.reduceat(1.0 / np.sqrt(visits), np.cumsum(lengths) - lengths) / lengths

    def _rows_to_keep(self, episodes: NDArray) -> NDArray[np.int64]:
        """Pairs each episode may keep, ranked best first, newer first among equals."""
        rows = episodes["rows"]
        # Every later episode costs all earlier ones the same, so a bonus fixed at insertion gives the same order.
        rank_by = self._score(episodes) + self.age_penalty * episodes["index"] / 1000
        best_first = np.argsort(rank_by if self.rank else np.zeros(len(rows)), kind="stable")[::-1]
        above = np.cumsum(rows[best_first]) - rows[best_first]
        keep = np.empty_like(rows)
        if self.whole_episodes:
            keep[best_first] = np.where(above < self.capacity, rows[best_first], 0)
        else:
            keep[best_first] = np.minimum(np.maximum(self.capacity - above, 0), rows[best_first])
        return keep

    def _dropped(self, episodes: NDArray, surplus: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows of older episodes that are no longer kept, the earliest steps of each."""
        dropped = [np.empty(0, dtype=np.int64)]
        for episode in np.flatnonzero(surplus[:-1]):
            rows = np.flatnonzero(self._rows["index"][: self._size] == episodes["index"][episode])
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
                more = np.empty((size - len(row), *row.shape[1:]), row.dtype)
                row = self._rows[name] = np.concatenate([row, more], dtype=row.dtype)  # else in native byte order
            row[target] = new[name]
            row[holes] = row[tail]
        self._size = size


def _column(name: str, value: ArrayLike, length: int, dtype: np.dtype) -> NDArray:
    """``value`` as ``length`` numbers of ``dtype``, copied; integers stay integers."""
    array = np.asarray(value)
    if array.shape != (length,) or (length and not np.can_cast(array.dtype, dtype)):
        raise ValueError(f"expected `{name}` to be {length} of {dtype}, got {array.dtype} of shape {array.shape}")
    return array.astype(dtype)
