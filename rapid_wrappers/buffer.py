"""The ranking buffer of RAPID (Algorithm 1). The file needs only NumPy and works when copied alone."""

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["RankingBuffer"]

# What is remembered of each kept episode: `length` counts its steps, cut ones included, `rows` its kept pairs.
_EPISODE = np.dtype([("index", "i8"), ("length", "i8"), ("rows", "i8"),
                     ("extrinsic", "f8"), ("local", "f8"), ("global_", "f8")])  # fmt: skip
_ROWS = {"observations", "actions", "index", "step"}  # of each kept pair; the last two say where it is from
_STATE = {"rows", "episodes", "state_ids", "num_added", "returns", "rng"}
_NUMBERS = "biufc"  # kinds of dtype: bool, signed, unsigned, float, complex
_NO_IDS = np.empty(0, dtype=np.int64)


class Counts(Protocol):
    """Anything with visit counts by state id, such as a ``StateCounter``."""

    @property
    def counts(self) -> NDArray[np.integer]: ...


class RankingBuffer:
    """Keeps the ``capacity`` best state-action pairs, every pair scored by its episode (Algorithm 1, Eq. 4).

    All pairs of an episode share its score S = w0 * extrinsic + w1 * local + w2 * global. The buffer drops pairs one by
    one, so it may cut the lowest kept episode. One rule breaks ties: what came later ranks higher. So of equal episodes
    the newer one stays, and a cut episode loses its earliest steps.
    (The authors' code sorts unstably, and neither scores nor trims its first episode.)

    Observations and actions may be nested: dictionaries and tuples of arrays, as deep as they go. Samples then have the
    same form. A sequence of numbers is a list or an array here, since a tuple stands for the parts of a Tuple space.

    Args:
        capacity: Maximum number of pairs, >= 1. Appendix A: 10 000.
        w0, w1, w2: Weights of the extrinsic, the local and the global score.
        counter: If given, each insertion computes the global scores of all kept episodes again from the current
            ``counter.counts``, over all their states, cut ones included (the authors' behaviour). If not, they stay
            as they were added (Algorithm 1).
        age_penalty: Score that an episode loses for every 1000 episodes added after it, >= 0, as a share of the range
            of all returns so far (highest minus lowest, at least 1). 0 is the paper; more forgets old episodes (the
            second limitation of its Section 5).
        whole_episodes: Never cut an episode. The last one kept may then exceed ``capacity`` (Appendix H).
        rank: ``False`` keeps the latest pairs instead of the best (the paper's ablation "w/o ranking").
        seed: Seed of the generator behind :meth:`sample`, anything ``numpy.random.default_rng`` takes.

    Raises:
        ValueError: If an argument is out of its range.

    >>> buffer = RankingBuffer(capacity=3)
    >>> buffer.add([[0.0], [1.0]], [0, 1], scores=(0.0, 1.0, 0.0))
    >>> buffer.add([[2.0], [3.0]], [0, 1], scores=(1.0, 1.0, 0.0))
    >>> buffer.scores
    array([1.1, 1.1, 0.1])
    >>> [array.shape for array in buffer.sample(256)]
    [(256, 1), (256,)]
    """

    def __init__(
        self, capacity: int = 10_000, w0: float = 1.0, w1: float = 0.1, w2: float = 0.001, *,
        counter: Counts | None = None, age_penalty: float = 0.0, whole_episodes: bool = False, rank: bool = True,
        seed: int | np.random.Generator | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(capacity, int | np.integer) or isinstance(capacity, bool) or capacity < 1:
            raise ValueError(f"expected `capacity` to be a positive integer, got {capacity!r}")
        for name, value in {"w0": w0, "w1": w1, "w2": w2, "age_penalty": age_penalty}.items():
            if not math.isfinite(value):
                raise ValueError(f"expected `{name}` to be finite, got {value!r}")
        if age_penalty < 0:
            raise ValueError(f"expected `age_penalty` to be non-negative, got {age_penalty!r}")
        if counter is not None and not hasattr(counter, "counts"):
            raise TypeError(f"expected `counter` to have an attribute `counts`, got {type(counter).__name__}")
        self.capacity, self.counter, self.age_penalty = int(capacity), counter, float(age_penalty)
        self.w0, self.w1, self.w2 = float(w0), float(w1), float(w2)
        self.whole_episodes, self.rank = whole_episodes, rank
        self.rng = np.random.default_rng(seed)
        self._num_added = self._size = 0
        self._episodes = np.empty(0, dtype=_EPISODE)  # oldest first
        self._state_ids = _NO_IDS  # of all their states, one episode after the other
        self._returns = (math.inf, -math.inf)  # the lowest and the highest so far
        self._rows: dict[str, Any] = {}  # by name, see `_ROWS`; the first `_size` rows are in use, in no order

    def __len__(self) -> int:
        """Number of pairs kept."""
        return self._size

    @property
    def scores(self) -> NDArray[np.float64]:
        """Eq. 4 for each kept pair, ``(len(self),)``, best first, as of the last insertion, without ``age_penalty``."""
        return -np.sort(-np.repeat(self._score(self._episodes), self._episodes["rows"]))

    def episodes(self) -> list[dict[str, Any]]:
        """The kept episodes for inspection, best first by Eq. 4, as dictionaries.

        ``observations`` and ``actions`` are copies of the kept pairs in order, ``length`` is the number of all steps.
        ``score`` is Eq. 4 of ``extrinsic``, ``local`` and ``global``; ``age`` the number of episodes added later.
        """
        scores, found = self._score(self._episodes), []
        for i in np.argsort(-scores, kind="stable"):
            index, length, _, *parts = self._episodes[i].item()
            rows = self._rows_of(index)
            episode = {name: _map(lambda row: row[rows], self._rows[name]) for name in ("observations", "actions")}  # noqa: B023
            episode |= zip(("extrinsic", "local", "global"), parts, strict=True)
            found.append(episode | {"length": length, "score": float(scores[i]), "age": self._num_added - 1 - index})
        return found

    def add(self, observations: Any, actions: Any, scores: Sequence[float], state_ids: ArrayLike | None = None) -> None:
        """Rank one episode among the kept ones, and drop the pairs that fall below the best ``capacity``.

        Args:
            observations: ``(T, *obs_shape)``, T >= 1, or nested arrays of T rows; copied, in the dtypes given.
            actions: ``(T, *act_shape)``, or nested arrays; copied, in the dtypes given.
            scores: ``(extrinsic, local, global)`` of the episode, finite.
            state_ids: ``(T,)`` ids into ``counter.counts``. Required with a ``counter``, otherwise ignored.

        Raises:
            ValueError: If lengths, shapes, ranges or entries are wrong, or a score is NaN or infinite.
            TypeError: If a dtype is not numeric, or cannot be cast safely to the dtype of the kept pairs.
                After either error the buffer is unchanged.
        """
        obs, act = self._check_rows("observations", observations), self._check_rows("actions", actions)
        arrays = _leaves("observations", obs) | _leaves("actions", act)
        length, *others = {len(row) for row in arrays.values()}
        if others:
            lengths = {name: len(row) for name, row in arrays.items()}
            raise ValueError(f"expected as many `actions` as `observations`, and of each entry, got {lengths}")
        ids, new = self._check_ids(state_ids, length), self._check_scores(scores, length)
        episodes = np.empty(len(self._episodes) + 1, dtype=_EPISODE)  # concatenating records would take longer
        episodes[:-1], episodes[-1:] = self._episodes, new
        state_ids = np.concatenate([self._state_ids, ids])
        self._refresh_global_scores(episodes, state_ids)
        extrinsic = new["extrinsic"].item()
        low, high = min(self._returns[0], extrinsic), max(self._returns[1], extrinsic)
        keep = self._rows_to_keep(episodes, self.age_penalty * min(max(1.0, high - low), 1e300))
        surplus, alive = episodes["rows"] - keep, keep > 0
        step, index = np.arange(length, dtype=np.int64), np.full(length, self._num_added, dtype=np.int64)
        rows = {"observations": obs, "actions": act, "index": index, "step": step}
        if not self._rows:
            self._rows = _map(lambda row: row[:0], rows)
        dropped = [self._rows_of(episodes["index"][i])[: surplus[i]] for i in np.flatnonzero(surplus[:-1])]
        self._write(rows, int(surplus[-1]), np.concatenate([_NO_IDS, *dropped]))
        episodes["rows"] = keep
        self._episodes = episodes[alive]
        if self.counter is not None:
            self._state_ids = state_ids[np.repeat(alive, episodes["length"])]
        self._num_added += 1
        self._returns = (low, high)

    def sample(self, batch_size: int) -> tuple[Any, Any]:
        """Draw pairs uniformly with replacement.

        Args:
            batch_size: Number of pairs, >= 1. It may exceed ``len(self)``.

        Returns:
            Copies of ``observations (batch_size, *obs_shape)`` and ``actions (batch_size, *act_shape)``, nested as
            they were added.

        Raises:
            ValueError: If the buffer is empty or ``batch_size`` is below 1.
        """
        return self._take(self._draw(batch_size))

    def sample_sequences(self, batch_size: int, length: int) -> tuple[Any, Any, NDArray[np.bool_]]:
        """Draw runs of consecutive pairs, for policies with memory.

        Each run begins at a pair drawn uniformly with replacement, and ends with its episode or after ``length`` pairs.
        A run from an episode that was cut cannot reach back to the episode's first steps, so use
        ``whole_episodes=True`` where the memory begins with the episode.

        Args:
            batch_size: Number of runs B, >= 1.
            length: Number of pairs L in each, >= 1.

        Returns:
            Copies of ``observations (B, L, *obs_shape)`` and ``actions (B, L, *act_shape)``, nested as they were added,
            and ``mask (B, L)``, True where there is a pair. Behind the end of an episode the rest is zeros.

        Raises:
            ValueError: If the buffer is empty or an argument is below 1.
        """
        if length < 1:
            raise ValueError(f"expected `length` to be positive, got {length!r}")
        index, step = (self._rows[name][: self._size] if self._rows else _NO_IDS for name in ("index", "step"))
        order = np.lexsort((step, index))
        places = self._draw(batch_size)[:, None] + np.arange(length)  # in that order
        rows = order[np.minimum(places, self._size - 1)]
        mask = (places < self._size) & (index[rows] == index[rows[:, :1]])
        observations, actions = self._take(rows)
        for row in [*_leaves("", observations).values(), *_leaves("", actions).values()]:
            row[~mask] = 0
        return observations, actions, mask

    def state_dict(self) -> dict[str, Any]:
        """The content as copied arrays, numbers and the generator's state, without the constructor's arguments."""
        return {
            "rows": _map(lambda row: row[: self._size].copy(), self._rows),
            "episodes": {name: self._episodes[name].copy() for name in _EPISODE.names or ()},
            "state_ids": self._state_ids.copy(),
            "num_added": self._num_added,
            "returns": self._returns,
            "rng": self.rng.bit_generator.state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replace the content with a :meth:`state_dict`, after its ``counter``. Constructor arguments do not change.

        Raises:
            ValueError: If ``state`` has another form or does not fit this buffer. The buffer is then unchanged.
        """
        try:
            loaded = self._parse(state)
        except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError) as error:
            raise ValueError("expected `state` to be a `state_dict()` of a RankingBuffer") from error
        self._rows, self._size, self._episodes, self._state_ids, self._num_added, self._returns, self.rng = loaded

    def _check_rows(self, name: str, value: Any) -> Any:
        """``value`` as nested arrays that can stand among the kept ones."""
        tree = _map(np.asarray, value)
        new, kept = _leaves(name, tree), _leaves(name, self._rows.get(name, tree))
        if new.keys() != kept.keys() or not new:
            raise ValueError(f"expected {list(kept) or 'at least one array'} as before, got {list(new)}")
        for path, array in new.items():
            if array.dtype.kind not in _NUMBERS:
                raise TypeError(f"expected `{path}` to be an array of numbers, or a dictionary or tuple of arrays for "
                                f"a Dict or Tuple space, got {array.dtype}")  # fmt: skip
            if array.ndim == 0 or len(array) == 0:
                raise ValueError(f"expected `{path}` of shape (T, ...) with T >= 1, got {array.shape}: a tuple stands "
                                 "for the entries of a Tuple space, so give rows as a list or an array")  # fmt: skip
            row = kept[path]
            if array.shape[1:] != row.shape[1:]:
                raise ValueError(f"expected rows of `{path}` of shape {row.shape[1:]} as before, got {array.shape[1:]}")
            if not np.can_cast(array.dtype, row.dtype):
                raise TypeError(f"expected `{path}` of dtype {row.dtype} as before, got {array.dtype}")
        return tree

    def _draw(self, batch_size: int) -> NDArray[np.int64]:
        """Numbers of ``batch_size`` kept pairs."""
        if batch_size < 1:
            raise ValueError(f"expected `batch_size` to be positive, got {batch_size!r}")
        if self._size == 0:
            raise ValueError("expected a buffer with at least one pair, got an empty one: `add` an episode first")
        return self.rng.integers(self._size, size=batch_size)

    def _take(self, rows: NDArray[np.int64]) -> tuple[Any, Any]:
        """Copies of the observations and actions of ``rows``."""
        observations, actions = (self._rows[name] for name in ("observations", "actions"))

        def take(row: NDArray) -> NDArray:
            return row.take(rows, axis=0)

        return _map(take, observations), _map(take, actions)

    def _check_scores(self, scores: Sequence[float], length: int) -> NDArray:
        """The new episode's entry among ``_episodes``."""
        try:
            extrinsic, local, global_ = map(float, scores)
        except (TypeError, ValueError) as error:
            raise ValueError(f"expected `scores` to be (extrinsic, local, global), got {scores!r}") from error
        total = self.w0 * extrinsic + self.w1 * local + self.w2 * global_
        if not all(map(math.isfinite, (extrinsic, local, global_, total))):
            raise ValueError(f"expected `scores` and their weighted sum to be finite, got {scores!r}")
        return np.array([(self._num_added, length, length, extrinsic, local, global_)], dtype=_EPISODE)

    def _check_ids(self, state_ids: ArrayLike | None, length: int) -> NDArray[np.int64]:
        if self.counter is None:
            return _NO_IDS
        if state_ids is None:
            raise ValueError("expected `state_ids`, got None: a buffer with a `counter` takes no episode from workers, "
                             "nor one whose states are not counted")  # fmt: skip
        ids, num_states = np.asarray(state_ids), len(self.counter.counts)
        if ids.dtype.kind not in "iu" or ids.shape != (length,):
            raise ValueError(f"expected `state_ids` to be {length} integers, got {ids.dtype} of shape {ids.shape}")
        if length and not 0 <= ids.min() <= ids.max() < num_states:
            raise ValueError(f"expected `state_ids` of `counter`, below {num_states}, got {ids.min()} to {ids.max()}")
        return ids.astype(np.int64)

    def _parse(self, state: dict[str, Any]) -> tuple[Any, ...]:
        """The attributes that ``state`` describes, copied. All checks of a loaded state are here."""
        num_episodes, size = len(state["episodes"]["index"]), len(state["rows"].get("index", ()))
        if set(state) != _STATE or set(state["rows"]) != (_ROWS if size else set()):
            raise ValueError(f"expected the keys of a `state_dict()`, got {list(state)} and {list(state['rows'])}")
        episodes = np.empty(num_episodes, dtype=_EPISODE)
        for name in _EPISODE.names or ():
            episodes[name] = _checked(name, state["episodes"][name], (num_episodes,), _EPISODE[name])
        rows = {
            name: _map(lambda row: _checked(name, row, (size, *np.shape(row)[1:])), tree)  # noqa: B023
            for name, tree in state["rows"].items()
        }
        if size and not all(_leaves(name, rows[name]) for name in ("observations", "actions")):
            raise ValueError("expected `observations` and `actions` with at least one array each")
        index, step = (_checked(name, rows.get(name, _NO_IDS), (size,), _NO_IDS.dtype) for name in ("index", "step"))
        owners, num_rows = np.unique(index, return_counts=True)
        if not (np.array_equal(owners, episodes["index"]) and np.array_equal(num_rows, episodes["rows"])):
            raise ValueError("expected a `state_dict()` whose episodes and pairs agree")
        num_added, lengths = operator.index(state["num_added"]), episodes["length"]
        if owners.min(initial=0) < 0 or owners.max(initial=-1) >= num_added or (num_rows > lengths).any():
            raise ValueError(f"expected episodes numbered before {num_added}, no longer ones than their `length`")
        if step.min(initial=0) < 0 or (step >= lengths[np.searchsorted(owners, index)]).any():
            raise ValueError("expected each `step` to be within its episode")
        limit = self.capacity + (num_rows.max(initial=1) - 1 if self.whole_episodes else 0)
        if size > limit:
            raise ValueError(f"expected at most {limit} pairs, the `capacity` of this buffer, got {size}")
        if not np.isfinite(self._score(episodes)).all():
            raise ValueError("expected finite scores of all episodes")
        low, high = _checked("returns", state["returns"], (2,), np.dtype(float)).tolist()
        if num_added and not (low <= high and ((low <= episodes["extrinsic"]) & (episodes["extrinsic"] <= high)).all()):
            raise ValueError(f"expected `returns` to hold the lowest and the highest of all, got {low} and {high}")
        if self.counter is None and len(state["state_ids"]):
            raise ValueError("expected a state without `state_ids`, as this buffer has no `counter`")
        ids = self._check_ids(state["state_ids"], episodes["length"].sum())
        rng = np.random.Generator(type(self.rng.bit_generator)())
        rng.bit_generator.state = state["rng"]
        return rows, size, episodes, ids, num_added, (low, high), rng

    def _score(self, episodes: NDArray) -> NDArray[np.float64]:
        with np.errstate(over="ignore", invalid="ignore"):  # callers reject non-finite scores
            return self.w0 * episodes["extrinsic"] + self.w1 * episodes["local"] + self.w2 * episodes["global_"]

    def _refresh_global_scores(self, episodes: NDArray, state_ids: NDArray[np.int64]) -> None:
        """Eq. 3 of all episodes, with the current counts. Also in scores.py and counts.py, as each file works alone."""
        if self.counter is None or self.w2 == 0:
            return
        counts, lengths = np.asarray(self.counter.counts), episodes["length"]
        visits = counts.take(state_ids, mode="clip")  # faster than raising; the next line checks the range
        if len(counts) <= state_ids.max() or not visits.min() >= 1:
            raise ValueError("expected `counter` to know the states of all kept episodes: load the one saved with them")
        episodes["global_"] = np.add.reduceat(1.0 / np.sqrt(visits), np.cumsum(lengths) - lengths) / lengths

    def _rows_to_keep(self, episodes: NDArray, penalty: float) -> NDArray[np.int64]:
        """Number of pairs each episode may keep, ranked best first, newer first among equals."""
        # Each later episode costs all earlier ones the same, so a bonus that grows with the number gives that order.
        with np.errstate(over="ignore"):  # beyond the largest float all count as equal
            rank_by = self._score(episodes) + penalty * episodes["index"] / 1000
        best_first = np.argsort(rank_by if self.rank else np.zeros(len(episodes)), kind="stable")[::-1]
        rows = episodes["rows"][best_first]
        room = self.capacity - np.cumsum(rows) + rows  # what better episodes leave to each
        keep = np.empty_like(rows)
        keep[best_first] = (room > 0) * rows if self.whole_episodes else np.minimum(np.maximum(room, 0), rows)
        return keep

    def _rows_of(self, index: int) -> NDArray[np.int64]:
        """Rows of the kept pairs of one episode, in the order of its steps."""
        rows = np.flatnonzero(self._rows["index"][: self._size] == index)
        return rows[np.argsort(self._rows["step"][rows])]

    def _write(self, new: dict[str, Any], skip: int, free: NDArray[np.int64]) -> None:
        """Write new pairs, without the first ``skip``, to the ``free`` rows and then behind all others."""
        num_new = len(new["step"]) - skip
        size = self._size + num_new - len(free)
        target = np.concatenate([free, np.arange(self._size, size)])[:num_new]
        holes = tail = free[num_new:]
        if len(holes):  # more pairs were dropped than added: the last ones move into the holes
            tail = np.setdiff1d(np.arange(size, self._size), holes)
            holes = holes[holes < size]

        def write(row: NDArray, added: NDArray) -> NDArray:
            if size > len(row):
                grown = np.empty((max(size, self.capacity), *row.shape[1:]), row.dtype)
                grown[: self._size] = row[: self._size]
                row = grown
            row[target] = added[skip:]
            if len(holes):
                row[holes] = row[tail]
            return row

        self._rows = _map(write, self._rows, new)
        self._size = size


def _map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Call ``function`` with each array of ``tree``, and those at the same place of ``others``; keep the nesting."""
    if isinstance(tree, dict):
        return {name: _map(function, entry, *(other[name] for other in others)) for name, entry in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_map(function, *entries) for entries in zip(tree, *others, strict=True))
    return function(tree, *others)


def _leaves(name: str, tree: Any) -> dict[str, NDArray]:
    """The arrays of ``tree``, each by the expression that selects it."""
    if not isinstance(tree, (dict, tuple)):
        return {name: tree}
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree)
    return {path: leaf for key, entry in entries for path, leaf in _leaves(f"{name}[{key!r}]", entry).items()}


def _checked(name: str, value: ArrayLike, shape: tuple[int, ...], dtype: np.dtype | None = None) -> NDArray:
    array = np.array(value)
    if array.shape != shape or array.dtype.kind not in _NUMBERS or array.dtype != (dtype or array.dtype):
        raise ValueError(f"expected `{name}` to be {shape} of {dtype or 'numbers'}, got {array.shape} {array.dtype}")
    return array
