"""The running deviation of states, the unit in which the spread of floats is scored."""

from typing import Any

import numpy as np
from gymnasium.wrappers.utils import RunningMeanStd
from numpy.typing import NDArray

from rapid_wrappers.episode import map_arrays

__all__ = ["RunningDeviation"]

_CLIP = 10.0  # deviations, as in the authors' normalization: one reading that is far out cannot beat a return


class RunningDeviation:
    """Mean and deviation of each number of the states seen so far.

    Several wrappers can share one: the result is the same as of all their states together.
    """

    def __init__(self) -> None:
        self._moments: Any = None  # nested as the states are, from the first states on

    def update(self, states: Any) -> None:
        """Add ``states (n, *state_shape)``, or nested arrays of them.

        Raises:
            ValueError: If one is not finite or beyond 1e150, or shapes or entries differ from earlier ones. Nothing
                changes then.
        """
        before = self._moments
        if before is None:
            before = map_arrays(lambda rows: RunningMeanStd(0.0, rows.shape[1:]), states)

        def moments(of: RunningMeanStd, rows: NDArray) -> tuple[RunningMeanStd, NDArray, NDArray]:
            if rows.shape[1:] != of.mean.shape:
                raise ValueError(f"expected states of shape {of.mean.shape} as before, got {rows.shape[1:]}")
            numbers = rows.astype(np.float64)
            with np.errstate(over="ignore", invalid="ignore"):  # the next check finds it
                mean = numbers.sum(axis=0) / len(numbers)
                numbers -= mean
                var = (numbers * numbers).sum(axis=0) / len(numbers)
            if not ((np.abs(mean) < 1e150) & (var < 1e300)).all():  # false for NaN
                raise ValueError(f"expected finite states to score their spread, got {rows[:9]!r:.300}")
            return of, mean, var

        found: list[Any] = []  # all are checked before any changes
        map_arrays(lambda of, rows: found.append((*moments(of, rows), len(rows))), before, states)
        for of, mean, var, count in found:
            of.update_from_moments(mean, var, count)
        self._moments = before

    def scale(self, states: Any) -> Any:
        """Each number of the ``states`` minus its mean, in deviations, clipped to 10 of them."""

        def scaled(of: RunningMeanStd, rows: NDArray) -> NDArray[np.float64]:
            deviation = np.sqrt(of.var)
            constant = deviation <= 1e-9 * np.abs(of.mean)  # apart from rounding
            centred = rows - of.mean
            result: NDArray[np.float64] = (centred / np.where(constant, 1.0, deviation)).clip(-_CLIP, _CLIP)
            return result

        return map_arrays(scaled, self._moments, states)

    def state_dict(self) -> dict[str, Any]:
        """``mean``, ``var`` and ``count``, nested as the states are; empty before the first states."""
        if self._moments is None:
            return {}
        return {
            name: map_arrays(lambda of: np.array(getattr(of, name), np.float64), self._moments)  # noqa: B023
            for name in ("mean", "var", "count")
        }

    def load_state_dict(self, state: dict[str, Any], form: Any = None) -> None:
        """Replace everything with a :meth:`state_dict`.

        Args:
            state: What :meth:`state_dict` returned.
            form: What one state looks like, nested objects with a ``shape``; None if any will do.

        Raises:
            ValueError: If ``state`` has another form. Nothing changes then.
        """
        if state == {}:
            self._moments = None
            return
        if set(state) != {"mean", "var", "count"}:
            raise ValueError(f"expected the keys mean, var and count, got {list(state)}")

        def moments(mean: NDArray, var: NDArray, count: NDArray) -> RunningMeanStd:
            for array in (mean, var, count):
                if not isinstance(array, np.ndarray) or array.dtype != np.float64 or not np.isfinite(array).all():
                    raise ValueError(f"expected arrays of finite float64, got {array!r:.200}")
            if mean.shape != var.shape or count.shape != () or count <= 0 or (var < 0).any():
                raise ValueError(f"expected statistics of one form, got {mean.shape}, {var.shape}, {count!r:.50}")
            of = RunningMeanStd(0.0, mean.shape)
            of.mean, of.var, of.count = mean.copy(), var.copy(), float(count)
            return of

        loaded = map_arrays(moments, state["mean"], state["var"], state["count"])
        if form is not None:
            map_arrays(_check_shape, form, loaded)
        self._moments = loaded


def _check_shape(form: Any, of: RunningMeanStd) -> None:
    if form.shape != of.mean.shape:
        raise ValueError(f"expected statistics of states of shape {form.shape}, got {of.mean.shape}")
