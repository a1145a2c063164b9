"""Lifelong visit counts of states, the N(s) of the global score (Eq. 3).

The file needs only NumPy and works when copied alone; so table, digests and SimHash stand in one file.
"""

import math
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["StateCounter", "image_axes", "image_features"]

_NUMBERS = "biufc"  # bool, signed, unsigned, float, complex


class StateCounter:
    """Counts the visits to each state over the whole of training.

    Each distinct state gets an id, 0, 1, 2, ... in the order of first visits. The key of a state is its whole array,
    dtype and shape included, through a 128-bit digest, which is the same in every process. Among a million states two
    share a digest with probability 1e-26. Equal arrays are one state: 0.0 equals -0.0, and NaN equals NaN.

    A NumPy open-addressing table holds the digests, in 40 to 70 bytes a state; a dict of ``bytes`` takes about 150.

    Images and continuous states hardly ever repeat exactly. With ``hash_bits`` similar ones are one state: the key is
    then the signs of that many random projections (SimHash, Tang et al. 2017, Eq. 2). Images of at least 32 x 32, with
    other axes before or behind, are first averaged over 8 x 8 cells. All states are centred before the projection, and
    states other than images are scaled too, each dimension by its deviation. Mean and deviation come from the states of
    the first call and stay the same from then on.

    Args:
        hash_bits: Bits of the code, 1 to 32, or None to count exact states. More bits tell more states apart; there are
            at most ``2**hash_bits``, which bounds the memory.
        max_states: Maximum number of ids, >= 1, or None for no bound. All states that are new after that share the
            last id; known states are counted as before. So anything new soon counts as often visited.

    Raises:
        ValueError: If an argument is out of range, or both are given.

    >>> counter = StateCounter()
    >>> counter.visit([[0, 0], [0, 1], [0, 0]])
    array([0, 1, 0])
    >>> counter.counts
    array([2, 1])
    """

    def __init__(self, hash_bits: int | None = None, max_states: int | None = None) -> None:
        if hash_bits is not None and hash_bits not in range(1, 33):
            raise ValueError(f"expected `hash_bits` to be from 1 to 32 or None, got {hash_bits!r}")
        if max_states is not None and (type(max_states) is not int or max_states < 1 or hash_bits is not None):
            raise ValueError("expected `max_states` to be a positive integer, without `hash_bits`, or None, "
                             f"got {max_states!r} with {hash_bits!r}")  # fmt: skip
        self.hash_bits = hash_bits
        self.max_states = max_states
        self._center = self._scale = np.empty(0)  # for the projection; empty before the first states
        self._size = 0
        self._digests = np.empty((64, 2), dtype=np.uint64)  # by id
        self._counts = np.empty(64, dtype=np.int64)  # by id
        self._table = np.full(256, -1, dtype=np.int32)  # by slot: an id, or -1 where empty

    def __len__(self) -> int:
        """Number of distinct states seen."""
        return self._size

    @property
    def counts(self) -> NDArray[np.int64]:
        """Visits by id, shape ``(len(self),)``: a read-only view, valid until the next :meth:`visit`."""
        view = self._counts[: self._size]
        view.flags.writeable = False
        return view

    def visit(self, states: ArrayLike) -> NDArray[np.int64]:
        """Count one visit to each state.

        Args:
            states: ``(T, *state_shape)``, numbers or booleans.

        Returns:
            ``(T,)`` ids, equal where the states are.

        Raises:
            ValueError: If ``states`` has no leading dimension. With ``hash_bits`` also if there is no state, one is not
                finite, or their size differs from earlier states.
            TypeError: If ``states`` does not hold numbers.
        """
        ids = self.identify(states)
        self.count(ids)
        return ids

    def identify(self, states: ArrayLike) -> NDArray[np.int64]:
        """Look up ids like :meth:`visit`, without counting visits. So one call can serve many episodes."""
        array = np.asarray(states)
        if array.ndim == 0:
            raise ValueError("expected `states` to be (T, *state_shape), got a scalar")
        if array.dtype.kind not in _NUMBERS or array.dtype.char in "gG":  # long double has undefined padding bytes
            raise TypeError(f"expected `states` to hold numbers of at most 64 bits, got dtype {array.dtype}")
        if self.hash_bits is not None:
            array = self._codes(array)
        elif array.dtype.kind in "fc":
            array = (np.where(np.isnan(array), np.nan, array) + 0.0).astype(array.dtype)  # all NaN equal, and no -0.0
        return self._find_or_insert(_digests(array))

    def count(self, ids: NDArray[np.int64]) -> None:
        """Count one visit to each of ``ids (T,)``, as :meth:`identify` returned them.

        Raises:
            ValueError: If an id was never given out.
        """
        if len(ids) and (ids.min() < 0 or ids.max() >= self._size):
            raise ValueError(f"expected `ids` in [0, {self._size}), got {ids!r}")
        np.add.at(self._counts, ids, 1)

    def bonus(self, ids: ArrayLike) -> float:
        """Mean of ``1/sqrt(N(s))`` over an episode's states, with the current counts (Eq. 3).

        Eq. 3 is also in ``scores.py`` and ``buffer.py``, as each file works alone.

        Args:
            ids: ``(T,)`` as :meth:`visit` returned them, T >= 1.

        Returns:
            A float in (0, 1].

        Raises:
            ValueError: If ``ids`` is empty, or an id was never given out or never visited.
        """
        index = np.asarray(ids)
        if index.dtype.kind not in "iu" or index.size == 0 or index.min() < 0 or index.max() >= self._size:
            raise ValueError(f"expected `ids` to be a non-empty integer array of ids in [0, {self._size}), got {ids!r}")
        counts = self._counts[index]
        if not counts.all():
            raise ValueError("expected `ids` of visited states, got some that were only identified")
        return float((1.0 / np.sqrt(counts)).mean())

    def state_dict(self) -> dict[str, Any]:
        """The counts as copied arrays: ``digests (n, 2)`` uint64 and ``counts (n,)`` int64.

        With ``hash_bits`` also that number, and ``center`` and ``scale`` of the projection, float64.
        """
        state: dict[str, Any] = {
            "digests": self._digests[: self._size].copy(),
            "counts": self._counts[: self._size].copy(),
        }
        if self.hash_bits is not None:
            state |= {"hash_bits": self.hash_bits, "center": self._center.copy(), "scale": self._scale.copy()}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replace all counts with a :meth:`state_dict`.

        Raises:
            ValueError: If ``state`` has another form or does not fit this counter. The counter is then unchanged.
        """
        fresh = StateCounter(self.hash_bits, self.max_states)
        if set(state) != set(fresh.state_dict()) or state.get("hash_bits") != self.hash_bits:
            raise ValueError(f"expected `state` to have the keys {list(fresh.state_dict())} and hash_bits="
                             f"{self.hash_bits}, got {list(state)} and {state.get('hash_bits')}")  # fmt: skip
        arrays = {name: np.array(value) for name, value in state.items() if name != "hash_bits"}
        number, size = arrays["counts"].size, arrays.get("center", np.empty(0)).size
        for name, array in arrays.items():
            shape = {"digests": (number, 2), "counts": (number,)}.get(name, (size,))
            own = fresh.state_dict()[name].dtype
            if array.shape != shape or array.dtype != own:
                raise ValueError(f"expected `{name}` to be {shape} of {own}, got {array.shape} of {array.dtype}")
        most = self.max_states or 2 ** (self.hash_bits or 64)
        if number > most or arrays["counts"].min(initial=0) < 0:
            raise ValueError(f"expected at most {most} states, got {number}, and no count below 0")
        fresh._find_or_insert(arrays["digests"])
        if len(fresh) != number:
            raise ValueError("expected `digests` without duplicates")
        fresh._counts[:number] = arrays["counts"]
        if self.hash_bits is not None:
            fresh._center, fresh._scale = arrays["center"], arrays["scale"]
        vars(self).update(vars(fresh))

    def _codes(self, states: NDArray) -> NDArray[np.uint8]:
        """The code of each of ``states (T, *state_shape)``, ``(T, bytes)``."""
        features, is_image = image_features(states)
        if features.size == 0 or not (abs(features) < 1e150).all():  # false for NaN; squares of larger ones overflow
            raise ValueError(f"expected `states` to be finite and below 1e150, at least one, got {states!r:.200}")
        if self._center.size == 0:
            constant = features.min(axis=0) == features.max(axis=0)  # rounding may give them a deviation
            self._center = features.mean(axis=0)
            deviation = features.std(axis=0)  # a tiny one may be rounded to 0, and quotients by it may overflow
            self._scale = np.where(constant | is_image | (deviation < 1e-150), 1.0, deviation)
        if features.shape[1:] != self._center.shape:
            raise ValueError(f"expected `states` of {self._center.size} numbers as before, got {features.shape[1]}")
        projections = ((features - self._center) / self._scale) @ _projection(self._center.size, self.hash_bits or 0)
        return np.packbits(projections > 0, axis=1)

    def _find_or_insert(self, digests: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Ids of ``digests (T, 2)``. New ones get the next ids, in their order."""
        most = self.max_states or self._size + len(digests)
        self._reserve(min(self._size + len(digests), most))
        slots = self._slots(digests)
        ids = self._table[slots].astype(np.int64)
        passed = (ids >= 0) & (self._digests[ids] != digests).any(axis=1)
        while passed.any():  # linear probing, to the digest or to an empty slot
            pending = np.flatnonzero(passed)
            slots[pending] = self._after(slots[pending])
            ids[pending] = found = self._table[slots[pending]]
            passed[pending] = (found >= 0) & (self._digests[found] != digests[pending]).any(axis=1)
        new = np.flatnonzero(ids < 0)
        if len(new):
            keys = digests[new].view("V16").ravel().tolist()
            rank = dict(zip(dict.fromkeys(keys), range(len(keys)), strict=False))  # of each among the distinct ones
            ranks = np.fromiter(map(rank.__getitem__, keys), dtype=np.int64, count=len(keys))
            first = np.empty(len(rank), dtype=np.int64)  # the first position of each
            first[ranks[::-1]] = new[::-1]
            ids[new] = np.minimum(self._size + ranks, most - 1)
            first = first[: most - self._size]  # only these still get an id of their own
            self._append(digests[first])
            self._place(ids[first], slots[first])
        return ids

    def _append(self, digests: NDArray[np.uint64]) -> None:
        """Give new digests the next ids. The arrays must have room for them."""
        end = self._size + len(digests)
        self._digests[self._size : end] = digests
        self._counts[self._size : end] = 0
        self._size = end

    def _place(self, ids: NDArray[np.int64], slots: NDArray[np.int64]) -> None:
        """Put ids that are not in the table yet, each into the first empty slot from ``slots`` on."""
        while len(ids):
            empty = self._table[slots] < 0
            self._table[slots[empty]] = ids[empty]  # of several at one slot the last wins, and the others move on
            left = self._table[slots] != ids
            ids, slots = ids[left], self._after(slots[left])

    def _after(self, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        return (slots + 1) & (len(self._table) - 1)

    def _slots(self, digests: NDArray[np.uint64]) -> NDArray[np.int64]:
        return (digests[:, 0] & np.uint64(len(self._table) - 1)).astype(np.int64)

    def _reserve(self, size: int) -> None:
        """Make room for ``size`` states, with at most a quarter of the table in use."""
        if size > len(self._counts):
            capacity = max(size, len(self._counts) + len(self._counts) // 2)
            self._digests = np.concatenate([self._digests, np.empty((capacity - len(self._digests), 2), np.uint64)])
            self._counts = np.concatenate([self._counts, np.empty(capacity - len(self._counts), np.int64)])
        if 4 * size > len(self._table):
            self._table = np.full(1 << (8 * size - 1).bit_length() - 1, -1, dtype=np.int32)
            self._place(np.arange(self._size), self._slots(self._digests[: self._size]))


def _digests(states: NDArray) -> NDArray[np.uint64]:
    """128 bits ``(T, 2)`` for each of ``states (T, *state_shape)``.

    Zobrist hashing, with random numbers that are computed instead of stored. Each word of a state gives a number that
    depends on the word and its place. The first half is their sum; the second is weighted by random numbers by place.
    """
    rows = np.ascontiguousarray(states).reshape(len(states), math.prod(states.shape[1:])).view(np.uint8)
    keys, weights = _keys(f"{states.dtype.str}{states.shape[1:]}", rows.shape[1])
    digests = np.empty((len(states), 2), dtype=np.uint64)
    block = max(1, 2**15 // (len(keys) + 1))  # so that intermediate results stay in the processor's cache
    for start in range(0, len(states), block):
        some = slice(start, start + block)
        words = np.zeros((len(rows[some]), len(keys)), dtype="<u8")
        words.view(np.uint8)[:, : rows.shape[1]] = rows[some]
        words ^= keys
        numbers = _mix(words)
        numbers.sum(axis=1, out=digests[some, 0])
        numbers *= weights
        numbers.sum(axis=1, out=digests[some, 1])
    return digests


def image_axes(shape: tuple[int, ...]) -> tuple[int, int] | None:
    """The axes of height and width, if a state of this shape is an image: the two longest, of at least 32 each.

    >>> image_axes((4, 84, 84)), image_axes((84, 84, 3)), image_axes((7, 7, 3))
    ((1, 2), (0, 1), None)
    """
    if len(shape) < 2:
        return None
    height, width = sorted(np.argsort([-n for n in shape], kind="stable")[:2].tolist())
    return (height, width) if min(shape[height], shape[width]) >= 32 else None


def image_features(states: NDArray) -> tuple[NDArray[np.float64], bool]:
    """The numbers to project for each of ``states``, ``(T, numbers)``, and whether the states are images."""
    if states.dtype.kind == "c":
        states = np.stack([states.real, states.imag], axis=-1)
    axes = image_axes(states.shape[1:])
    if axes is None:
        return states.reshape(len(states), math.prod(states.shape[1:])).astype(np.float64), False
    states = np.moveaxis(states, (axes[0] + 1, axes[1] + 1), (1, 2))
    count, height, width = states.shape[:3]
    channels = math.prod(states.shape[3:])
    rows, columns = _cells(height), _cells(width)
    bands = rows @ states.reshape(count, height, width * channels).astype(np.float32)  # exact for sums of bytes
    sums = columns @ bands.reshape(count, 8, width, channels)
    areas = rows.sum(axis=1)[:, None, None] * columns.sum(axis=1)[:, None]
    return (sums / areas).reshape(count, -1).astype(np.float64), True


def _cells(size: int) -> NDArray[np.float32]:
    """Membership, 0 or 1, of ``size`` pixels in 8 cells side by side, ``(8, size)``."""
    cell_of = np.arange(size) * 8 // size
    cells: NDArray[np.float32] = (cell_of == np.arange(8)[:, None]).astype(np.float32)
    return cells


@lru_cache(maxsize=16)
def _projection(size: int, bits: int) -> NDArray[np.float64]:
    """Random directions ``(size, bits)``, the same in every process."""
    return np.random.default_rng([size, bits]).standard_normal((size, bits))


@lru_cache(maxsize=16)
def _keys(header: str, size: int) -> NDArray[np.uint64]:
    """A key and an odd weight ``(2, words)`` for each word of ``size`` bytes. They depend on dtype and shape."""
    seed = np.frombuffer(blake2b(header.encode(), digest_size=16).digest(), dtype="<u8")
    words = max(1, -(-size // 8))  # states without elements have one word of zeros, so they differ by dtype and shape
    places = np.arange(1, 2 * words + 1, dtype=np.uint64).reshape(2, -1)
    keys = _mix(places * np.uint64(0x9E3779B97F4A7C15) + seed[:, None])
    keys[1] |= np.uint64(1)
    return keys


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finalizer of SplitMix64 (Steele, Lea and Flood 2014), in place: each bit of a word affects all others."""
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x
