"""The local and the global score of a finished episode, with defaults that follow the kind of states."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rapid_wrappers.counts import StateCounter, image_axes, image_features
from rapid_wrappers.episode import EpisodeScores, map_arrays
from rapid_wrappers.scores import LOCAL_SCORES
from rapid_wrappers.wrappers.recorded_spaces import ArrayForm
from rapid_wrappers.wrappers.running_deviation import RunningDeviation

__all__ = ["EpisodeScorer", "as_one_array", "is_pixels", "one_number"]


class EpisodeScorer:
    """Computes the scores of finished episodes; its arguments are those of :class:`.EpisodeScoringWrapper`.

    States come as arrays, or nested as the entries of a Dict or Tuple space.

    Raises:
        TypeError: If ``counter`` is no ``StateCounter``, or ``state`` or ``normalize`` have another type.
        ValueError: If ``local`` is unknown.
    """

    def __init__(
        self,
        *,
        local: str | Callable[[Any], float] | None,
        count: bool | None,
        counter: StateCounter | None,
        state: Callable[..., Any] | str | None,
        normalize: bool | RunningDeviation | None,
    ) -> None:
        if not (local is None or callable(local) or local in list(LOCAL_SCORES)):
            raise ValueError(f"expected `local` to be one of {sorted(LOCAL_SCORES)}, a function or None, got {local!r}")
        if counter is not None and not isinstance(counter, StateCounter):
            raise TypeError(f"expected `counter` to be a StateCounter, got {type(counter).__name__}")
        if not (state is None or callable(state) or isinstance(state, str)):
            raise TypeError("expected `state` to be a function that returns an array, or the name of an entry, "
                            f"got {type(state).__name__}")  # fmt: skip
        if not isinstance(normalize, bool | RunningDeviation | None):
            raise TypeError(f"expected `normalize` to be a boolean or None, got {type(normalize).__name__}")
        self.local = local
        self.count = count
        self.counter = StateCounter() if counter is None else counter
        self.statistics = normalize if isinstance(normalize, RunningDeviation) else RunningDeviation()
        self.scored: str | None = None
        self.form: Any = None  # of states; None until it is known
        self._what = f"entry {state!r}" if isinstance(state, str) else "result of `state`" if state else "observations"
        self._normalize = normalize
        self._units: Any = None  # of each array of the states, in words; None until the kind of states is known
        self.learns = False  # whether states go into the statistics

    def resolve_defaults(self, form: Any) -> None:
        """Fill in what was left to ``None``, from the nested ``ArrayForm`` of states. Only the first call counts."""
        if self._units is not None:
            return
        self.form, arrays = form, _leaves(form)
        spread = any(array.dtype.kind in "fc" or is_pixels(array.dtype, array.shape) for array in arrays)
        if self.local is None:
            self.local = "std" if spread else "distinct"
        if self.count is None:
            self.count = not spread or self.counter.hash_bits is not None
        running = spread if self._normalize is None else self._normalize is not False

        def unit(array: ArrayForm) -> str:
            if is_pixels(array.dtype, array.shape):
                return _PIXELS
            return _RUNNING if running and array.dtype.kind != "c" else _RAW

        self._units = map_arrays(unit, form)
        self.learns = self.local in ("std", "distance") and _RUNNING in _leaves(self._units)
        self.scored = self._describe(arrays)

    def observe(self, states: Any) -> None:
        """Add ``states (n, *state_shape)`` to the running statistics, where the local score uses them.

        Raises:
            ValueError: If one is not finite.
        """
        if self.learns:
            self.statistics.update(states)

    def identify(self, states: Any) -> NDArray[np.int64] | None:
        """Ids of the states of one or more episodes, or None where states are not counted."""
        return self.counter.identify(as_one_array(states, self.counter)) if self.count else None

    def score(self, extrinsic: float, states: Any, ids: NDArray[np.int64] | None) -> EpisodeScores:
        """Score one episode, and count its states.

        Args:
            extrinsic: Its undiscounted return.
            states: ``(T, *state_shape)``.
            ids: ``(T,)`` as :meth:`identify` returned them.

        Raises:
            ValueError: If the local score is not a finite number.
        """
        local = self._local_score(states, ids)
        if ids is None:
            return EpisodeScores(extrinsic, local, 0.0)
        self.counter.count(ids)
        return EpisodeScores(extrinsic, local, self.counter.bonus(ids))

    def _local_score(self, states: Any, ids: NDArray[np.int64] | None) -> float:
        assert self.local is not None and self._units is not None
        if callable(self.local):
            score = one_number(self.local(states), "`local` to return one number")
            if not math.isfinite(score):
                raise ValueError(f"expected `local` to return a finite score, got {score}")
            return score
        if self.local == "distinct":
            if ids is not None and self.counter.max_states is None:
                return len(set(ids.tolist())) / len(ids)  # Eq. 1: the counter tells states apart as it does
            return LOCAL_SCORES["distinct"](as_one_array(states))
        score_of = LOCAL_SCORES[self.local]
        scaled = self.statistics.scale(states) if self.learns else states

        def entry_score(unit: str, rows: NDArray, scaled_rows: NDArray) -> float | None:
            if rows.size == 0 and nested:  # an entry without numbers has no deviation
                return None
            if unit == _RUNNING:
                return score_of(scaled_rows)
            return score_of(rows) / (255.0 if unit == _PIXELS and self.local == "std" else 1.0)

        nested = not isinstance(states, np.ndarray)
        scores = [x for x in _leaves(map_arrays(entry_score, self._units, states, scaled)) if x is not None]
        return float(sum(scores) / max(1, len(scores)))

    def _describe(self, arrays: list[ArrayForm]) -> str:
        assert self.local is not None
        units = dict.fromkeys(_leaves(self._units))  # each once, in their order
        how = getattr(self.local, "__name__", "a function of your own") if callable(self.local) else _NAMES[self.local]
        if self.local in ("std", "distance"):
            how += " " + " and ".join(units)
        names = dict.fromkeys(array.name for array in arrays)
        entries = f" ({', '.join(names)})" if len(names) > 1 else ""
        if len(arrays) > 1 and self.local in ("std", "distance"):
            how += ", averaged over the entries"
        bits = self.counter.hash_bits
        counted = "not counted" if not self.count else f"counted by codes of {bits} bits" if bits else "counted"
        return f"{self._what}{entries} by {how}; {counted}"


def is_pixels(dtype: np.dtype, shape: tuple[int, ...]) -> bool:
    """Whether arrays of this form are pixels: uint8 with two axes of at least 32, in any order."""
    return dtype == np.uint8 and image_axes(shape) is not None


_PIXELS, _RUNNING, _RAW = "of pixels from 0 to 1", "in units of the running deviation", "in their own units"
_NAMES = {
    "distinct": "the share of distinct ones (Eq. 1)",
    "std": "their deviation (Eq. 2)",
    "distance": "their mean distance to the mean",
}


def _leaves(tree: Any) -> list[Any]:
    found: list[Any] = []
    map_arrays(found.append, tree)
    return found


def as_one_array(states: Any, counter: StateCounter | None = None) -> NDArray:
    """One array of nested ``states``, in the form in which ``counter`` tells them apart.

    Returns:
        ``(T, bytes)`` of uint8, equal where all entries are; for a counter with ``hash_bits``, ``(T, numbers)`` of
        float64. States that are one array already stay as they are.
    """
    if isinstance(states, np.ndarray):
        return states
    if counter is not None and counter.hash_bits is not None:
        return np.concatenate([image_features(rows)[0] for rows in _leaves(states)], axis=1)
    columns = []
    for rows in _leaves(states):
        if rows.dtype.kind in "fc":
            rows = (np.where(np.isnan(rows), np.nan, rows) + 0.0).astype(rows.dtype)  # all NaN equal, and no -0.0
        columns.append(np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.uint8))
    return np.concatenate(columns, axis=1)


def one_number(value: Any, expected: str) -> float:
    """``value`` as a float, also from an array of one number; the error says what was ``expected``."""
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise ValueError(f"expected {expected}, got {value!r}")
    return float(array.item())
