"""NumPy's PCG64 and its bounded integers, draw for draw, on a plain array of state.

A ``numpy.random.Generator`` costs microseconds each time it enters compiled code; an array costs nothing. Sources:
O'Neill (2014), *PCG*; Lemire (2019), *Fast Random Integer Generation in an Interval*; and NumPy's ``pcg64.c`` and
``distributions.c`` for the details that the papers leave open.
"""

import numpy as np
from numpy.typing import NDArray

from rapid_wrappers.envs.native.jit import inlined

__all__ = ["RNG_SIZE", "from_generator", "rand_int", "to_generator"]

RNG_SIZE = 6
"""Words of uint64 in a state: two of state, two of increment (high half first), whether half a draw is left, and it."""
_STATE_HIGH, _STATE_LOW, _INC_HIGH, _INC_LOW, _HAS_UINT32, _UINTEGER = range(RNG_SIZE)

_MULTIPLIER_HIGH = np.uint64(2549297995355413924)
_MULTIPLIER_LOW = np.uint64(4865540595714422341)
_LOW_32 = np.uint64(0xFFFFFFFF)
_32, _58, _63 = np.uint64(32), np.uint64(58), np.uint64(63)
_0, _1, _2, _64 = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(64)


@inlined
def _multiply_high(a, b):
    """Compute the upper 64 bits of the product of two 64-bit numbers."""
    a_high, a_low, b_high, b_low = a >> _32, a & _LOW_32, b >> _32, b & _LOW_32
    middle = a_high * b_low + ((a_low * b_low) >> _32)
    carry = a_low * b_high + (middle & _LOW_32)
    return a_high * b_high + (middle >> _32) + (carry >> _32)


@inlined
def _next_uint64(rng):
    """Advance the 128-bit linear congruential generator; return its state folded by xor and rotated (XSL-RR)."""
    high, low = rng[_STATE_HIGH], rng[_STATE_LOW]
    high = high * _MULTIPLIER_LOW + low * _MULTIPLIER_HIGH + _multiply_high(low, _MULTIPLIER_LOW)
    low = low * _MULTIPLIER_LOW + rng[_INC_LOW]
    high += rng[_INC_HIGH] + (_1 if low < rng[_INC_LOW] else _0)
    rng[_STATE_HIGH], rng[_STATE_LOW] = high, low
    folded, rotation = high ^ low, high >> _58
    return (folded >> rotation) | (folded << ((_64 - rotation) & _63))


@inlined
def _next_uint32(rng):
    """Return the lower half of a 64-bit draw; its upper half comes with the next call."""
    if rng[_HAS_UINT32]:
        rng[_HAS_UINT32] = _0
        return rng[_UINTEGER]
    draw = _next_uint64(rng)
    rng[_HAS_UINT32], rng[_UINTEGER] = _1, draw >> _32
    return draw & _LOW_32


@inlined
def rand_int(rng, low, high):
    """Draw as ``Generator.integers(low, high)`` does, for ranges below 2**32; a range of one takes no draw."""
    span = np.uint64(high - low)
    if span == _1:
        return low
    product = _next_uint32(rng) * span
    if (product & _LOW_32) < span:
        threshold = (_LOW_32 - (span - _1)) % span
        while (product & _LOW_32) < threshold:
            product = _next_uint32(rng) * span
    return low + np.int64(product >> _32)


def from_generator(generator: np.random.Generator) -> NDArray[np.uint64]:
    """Read the state ``(RNG_SIZE,)`` of a generator on PCG64."""
    state = generator.bit_generator.state
    words = [word for key in ("state", "inc") for word in divmod(state["state"][key], 2**64)]
    return np.array([*words, state["has_uint32"], state["uinteger"]], dtype=np.uint64)


def to_generator(rng: NDArray[np.uint64]) -> np.random.Generator:
    """Make a generator that continues from a state ``(RNG_SIZE,)``."""
    words = [int(word) for word in rng]
    bit_generator = np.random.PCG64()
    bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {
            "state": words[_STATE_HIGH] << 64 | words[_STATE_LOW],
            "inc": words[_INC_HIGH] << 64 | words[_INC_LOW],
        },
        "has_uint32": words[_HAS_UINT32],
        "uinteger": words[_UINTEGER],
    }
    return np.random.Generator(bit_generator)
