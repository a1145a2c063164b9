"""The unfinished episodes of a vector environment: their rows in memory, and how they are saved and loaded."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rapid_wrappers.episode import map_arrays
from rapid_wrappers.wrappers.recorded_spaces import ArrayForm

__all__ = ["EpisodesInFlight"]

_FIRST_STEPS = 64  # rows allocated for each environment at first


class EpisodesInFlight:
    """One episode at most for each of ``num_envs`` environments.

    Rows have names, such as ``"observations"`` and ``"actions"``. At step t of an episode its rows are number t.
    """

    def __init__(self, num_envs: int) -> None:
        self.active = np.zeros(num_envs, bool)
        """Whether an episode is in flight, ``(num_envs,)``."""
        self.lengths = np.zeros(num_envs, int)
        """Number of actions taken in each, ``(num_envs,)``."""
        self.returns = np.zeros(num_envs)
        """Undiscounted return of each so far, ``(num_envs,)``."""
        self._all = np.arange(num_envs)
        self._rows: dict[str, Any] = {}  # by name: (num_envs, steps, ...), or nested arrays of that shape

    def begin(self, mask: NDArray[np.bool_]) -> None:
        """Begin an episode in each environment of ``mask (num_envs,)``."""
        self.active = self.active | mask
        self.lengths[mask] = 0
        self.returns[mask] = 0.0

    def keep(self, name: str, values: Any, mask: NDArray[np.bool_]) -> None:
        """Copy the ``values (num_envs, ...)`` of those in ``mask`` to the rows of the step each episode is at.

        Args:
            name: Of the rows.
            values: An array, or nested arrays.
            mask: ``(num_envs,)``.

        Raises:
            ValueError: If entries, dtype or shape differ from those kept before under this name.
        """
        if name not in self._rows:
            shape = (len(self._all), _FIRST_STEPS)
            self._rows[name] = map_arrays(lambda new: np.empty(shape + new.shape[1:], new.dtype), values)
        rows = self._rows[name]
        if isinstance(rows, np.ndarray):
            self._rows[name] = self._write(name, rows, values, mask)
        else:
            self._rows[name] = map_arrays(lambda array, new: self._write(name, array, new, mask), rows, values)

    def copies(self, mask: NDArray[np.bool_]) -> dict[str, list[Any]]:
        """By name, the rows ``(T, ...)`` of each episode in ``mask``, one for each action taken."""

        def of(i: int, rows: Any) -> Any:
            return map_arrays(lambda array: array[i, : self.lengths[i]].copy(), rows)

        return {name: [of(int(i), rows) for i in np.flatnonzero(mask)] for name, rows in self._rows.items()}

    def _write(self, name: str, rows: NDArray, new: NDArray, mask: NDArray[np.bool_]) -> NDArray:
        """Write ``new`` into ``rows``, or into a larger copy where they are full; return the one that was written."""
        if new.dtype != rows.dtype or new.shape[1:] != rows.shape[2:]:
            raise ValueError(
                f"expected {name} of the same dtype and shape each time, {rows.dtype} {rows.shape[2:]}, "
                f"got {new.dtype} {new.shape[1:]}"
            )
        if self.lengths.max() >= rows.shape[1]:
            grown = np.empty((len(self._all), 2 * rows.shape[1], *new.shape[1:]), rows.dtype)
            for i, length in enumerate(self.lengths):  # only rows in use: pages that nothing touches take no memory
                grown[i, :length] = rows[i, :length]
            rows = grown
        if mask.all():
            rows[self._all, self.lengths] = new
        else:
            rows[self._all[mask], self.lengths[mask]] = new[mask]
        return rows

    def state_dict(self) -> dict[str, Any]:
        """The episodes as copied arrays: ``active``, ``lengths`` and ``returns``, ``(num_envs,)`` each, and ``kept``.

        ``kept`` has the rows by name, one episode after the other.
        """
        kept = {}
        for name, rows in self._rows.items():
            numbers = _num_rows(name, self.active, self.lengths)
            kept[name] = map_arrays(lambda a: np.concatenate([a[i, :n] for i, n in enumerate(numbers)]), rows)  # noqa: B023
        return {
            "active": self.active.copy(),
            "lengths": np.where(self.active, self.lengths, 0),
            "returns": np.where(self.active, self.returns, 0.0),
            "kept": kept,
        }

    @classmethod
    def from_state_dict(
        cls,
        state: dict[str, Any],
        num_envs: int,
        forms: dict[str, Any],
    ) -> "EpisodesInFlight":
        """The episodes of a :meth:`state_dict`.

        Args:
            state: What :meth:`state_dict` returned.
            num_envs: Number of environments.
            forms: Nested :class:`.ArrayForm` of one row, by name; None if any will do.

        Raises:
            ValueError: If names, entries, dtypes, shapes or numbers of rows are others.
        """
        episodes = cls(num_envs)
        for name in ("active", "lengths", "returns"):
            array, own = np.array(state[name]), getattr(episodes, name)
            if array.shape != own.shape or array.dtype != own.dtype:
                raise ValueError(f"expected `{name}` to be {own.shape} of {own.dtype}, got {array.shape} {array.dtype}")
            setattr(episodes, name, array)
        if episodes.lengths.min() < 0 or not np.isfinite(episodes.returns).all():
            raise ValueError(
                f"expected non-negative lengths, finite returns, got {episodes.lengths}, {episodes.returns}"
            )
        episodes.lengths[~episodes.active] = 0
        expected = set(forms) - (set() if episodes.lengths.any() or "actions" in state["kept"] else {"actions"})
        if set(state["kept"]) != expected and (episodes.active.any() or state["kept"]):
            raise ValueError(f"expected {sorted(expected)} of the episodes, got {sorted(state['kept'])}")
        for name, packed in state["kept"].items():
            numbers = _num_rows(name, episodes.active, episodes.lengths)

            def unpack(packed: NDArray, form: ArrayForm | None = None) -> NDArray:
                rows = np.asarray(packed)
                dtype, shape = (rows.dtype, rows.shape[1:]) if form is None else (form.dtype, form.shape)
                if rows.dtype != dtype or rows.shape != (numbers.sum(), *shape):  # noqa: B023
                    raise ValueError(f"expected `{name}` to be {(numbers.sum(), *shape)} of {dtype}, "  # noqa: B023
                                     f"got {rows.shape} of {rows.dtype}")  # fmt: skip
                own = np.empty((num_envs, max(_FIRST_STEPS, numbers.max() + 1), *shape), dtype)  # noqa: B023
                for i, (end, number) in enumerate(zip(numbers.cumsum(), numbers, strict=True)):  # noqa: B023
                    own[i, :number] = rows[end - number : end]
                return own

            form = forms[name]
            episodes._rows[name] = map_arrays(unpack, packed) if form is None else map_arrays(unpack, packed, form)
        return episodes


def _num_rows(name: str, active: NDArray[np.bool_], lengths: NDArray[np.int_]) -> NDArray[np.int_]:
    """Number of rows in use for each episode: an observation was kept for each action, and one to act on next."""
    return np.where(active, lengths + (name != "actions"), 0)
