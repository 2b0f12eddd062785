"""Arithmetic in the field of p = 2^61 - 1 elements on arrays of unsigned words, and in its quadratic extension.

A residue is an unsigned 64-bit word below p. Since p leaves the remainder 3 modulo 4, -1 has no square root, and the pairs (x, y), read as x + iy with
i^2 = -1, are a field of p^2 elements; an array of n of them has the shape (n, 2).

The second half holds the steps of a proof about an inner product that two sides hold a factor of each (Theorem J.6): a vector is folded to half its
length, and the inner product of the halves is a polynomial of degree 2 in the point at which it is folded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.kernels.compiled import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]
    Integers = NDArray[np.int64]

#: The number of elements of the field, a Mersenne prime.
MODULUS = (1 << 61) - 1
_P = np.uint64(MODULUS)
_LOW31, _LOW30 = np.uint64(2**31 - 1), np.uint64(2**30 - 1)
_1, _30, _31, _61, _63 = (np.uint64(k) for k in (1, 30, 31, 61, 63))
_0 = np.uint64(0)


@njit(inline="always")
def reduced(word: Any) -> Any:  # noqa: ANN401 - a word that numba types
    """Return any 64-bit word modulo p."""
    word = (word & _P) + (word >> _61)
    return word - _P if word >= _P else word


@njit(inline="always")
def product(a: Any, b: Any) -> Any:  # noqa: ANN401 - words that numba types
    """Return the product of two residues: 2^62 and 2^61 are 2 and 1 modulo p, and the four parts add up to less than 2^64."""
    high_a, low_a, high_b, low_b = a >> _31, a & _LOW31, b >> _31, b & _LOW31
    middle = low_a * high_b + high_a * low_b
    return reduced(((high_a * high_b) << _1) + (middle >> _30) + ((middle & _LOW30) << _31) + low_a * low_b)


@njit(inline="always")
def pair_product(a0: Any, a1: Any, b0: Any, b1: Any) -> Any:  # noqa: ANN401 - words that numba types
    """Return the product (a0 + i a1)(b0 + i b1) with three products of residues."""
    real, imaginary = product(a0, b0), product(a1, b1)
    both = product(reduced(a0 + a1), reduced(b0 + b1))
    return reduced(real + _P - imaginary), reduced(both + (_P - real) + (_P - imaginary))


@njit()
def _encode(values: Integers) -> Words:
    out = np.empty(values.size, np.uint64)
    for i in range(values.size):
        word = np.uint64(values[i])
        if values[i] >= 0:
            out[i] = reduced(word)
        else:
            out[i] = reduced(_P - reduced(_0 - word))
    return out


@njit()
def _decode(words: Words) -> Integers:
    out = np.empty(words.size, np.int64)
    for i in range(words.size):
        value = np.int64(words[i])
        out[i] = value - np.int64(MODULUS) if value > np.int64(MODULUS // 2) else value
    return out


@njit()
def _add(a: Words, b: Words) -> Words:
    out = np.empty(a.size, np.uint64)
    for i in range(a.size):
        out[i] = reduced(a[i] + b[i])
    return out


@njit()
def _subtract(a: Words, b: Words) -> Words:
    out = np.empty(a.size, np.uint64)
    for i in range(a.size):
        out[i] = reduced(a[i] + (_P - b[i]))
    return out


@njit()
def _multiply(a: Words, b: Words) -> Words:
    out = np.empty(a.size, np.uint64)
    for i in range(a.size):
        out[i] = product(a[i], b[i])
    return out


@njit()
def _total(words: Words) -> Any:  # noqa: ANN401 - a word that numba types
    total = _0
    for i in range(words.size):
        total = reduced(total + words[i])
    return total


@njit()
def _multiply_pairs(a: Words, b: Words) -> Words:
    out = np.empty_like(a)
    for i in range(a.shape[0]):
        out[i, 0], out[i, 1] = pair_product(a[i, 0], a[i, 1], b[i, 0], b[i, 1])
    return out


@njit()
def _fold(values: Words, r0: Any, r1: Any, half: int) -> Words:  # noqa: ANN401 - words that numba types
    out = np.empty((half, 2), np.uint64)
    both = max(0, values.shape[0] - half)
    for i in range(both):
        x, y = values[i, 0], values[i, 1]
        step0, step1 = reduced(values[half + i, 0] + (_P - x)), reduced(values[half + i, 1] + (_P - y))
        real, imaginary = pair_product(step0, step1, r0, r1)
        out[i, 0], out[i, 1] = reduced(x + real), reduced(y + imaginary)
    # Beyond the end of the vector there are zeros: what is left of x + r (0 - x) is (1 - r) x.
    s0, s1 = reduced(_1 + (_P - r0)), reduced(_P - r1)
    for i in range(both, half):
        if i < values.shape[0]:
            out[i, 0], out[i, 1] = pair_product(values[i, 0], values[i, 1], s0, s1)
        else:
            out[i, 0], out[i, 1] = _0, _0
    return out


@njit()
def _fold_words(words: Words, r0: Any, r1: Any, half: int) -> Words:  # noqa: ANN401 - words that numba types
    out = np.empty((half, 2), np.uint64)
    for i in range(half):
        x = words[i] if i < words.size else _0
        step = reduced((words[half + i] if half + i < words.size else _0) + (_P - x))
        out[i, 0], out[i, 1] = reduced(x + product(step, r0)), product(step, r1)
    return out


@njit()
def _end_values(u: Words, v: Words, half: int) -> Words:
    out = np.zeros((2, 2), np.uint64)
    for i in range(min(half, u.shape[0])):
        a0, a1, b0, b1 = u[i, 0], u[i, 1], v[i, 0], v[i, 1]
        real, imaginary = pair_product(a0, a1, b0, b1)
        out[0, 0], out[0, 1] = reduced(out[0, 0] + real), reduced(out[0, 1] + imaginary)
        c0 = c1 = d0 = d1 = _0
        if half + i < u.shape[0]:
            c0, c1, d0, d1 = u[half + i, 0], u[half + i, 1], v[half + i, 0], v[half + i, 1]
        real, imaginary = pair_product(
            reduced(c0 + c0 + (_P - a0)),
            reduced(c1 + c1 + (_P - a1)),
            reduced(d0 + d0 + (_P - b0)),
            reduced(d1 + d1 + (_P - b1)),
        )
        out[1, 0], out[1, 1] = reduced(out[1, 0] + real), reduced(out[1, 1] + imaginary)
    return out


@njit()
def _end_values_words(u: Words, v: Words, half: int) -> Words:
    out = np.zeros((2, 2), np.uint64)
    for i in range(min(half, u.shape[0])):
        a0, a1, b = u[i, 0], u[i, 1], v[i]
        out[0, 0], out[0, 1] = reduced(out[0, 0] + product(a0, b)), reduced(out[0, 1] + product(a1, b))
        c0 = c1 = d = _0
        if half + i < u.shape[0]:
            c0, c1, d = u[half + i, 0], u[half + i, 1], v[half + i]
        e = reduced(d + d + (_P - b))
        out[1, 0] = reduced(out[1, 0] + product(reduced(c0 + c0 + (_P - a0)), e))
        out[1, 1] = reduced(out[1, 1] + product(reduced(c1 + c1 + (_P - a1)), e))
    return out


def encode(values: Integers) -> Words:
    """Return the residues of an array of signed integers, in its shape."""
    return _encode(np.ascontiguousarray(values, dtype=np.int64).ravel()).reshape(values.shape)


def decode(words: Words) -> Integers:
    """Return the representatives of residues between -(p - 1)/2 and (p - 1)/2, in the array's shape."""
    return _decode(np.ascontiguousarray(words).ravel()).reshape(words.shape)


def _elementwise(kernel: Any, a: Words, b: Words) -> Words:  # noqa: ANN401 - a compiled kernel
    if a.shape != b.shape:
        a, b = np.broadcast_arrays(a, b)
    out: Words = kernel(np.ascontiguousarray(a).ravel(), np.ascontiguousarray(b).ravel())
    return out.reshape(a.shape)


def add(a: Words, b: Words) -> Words:
    """Return the sums of two arrays of residues."""
    return _elementwise(_add, a, b)


def subtract(a: Words, b: Words) -> Words:
    """Return the differences of two arrays of residues."""
    return _elementwise(_subtract, a, b)


def multiply(a: Words, b: Words) -> Words:
    """Return the products of two arrays of residues."""
    return _elementwise(_multiply, a, b)


def total(words: Words) -> int:
    """Return the sum of all residues of an array."""
    return int(_total(np.ascontiguousarray(words).ravel()))


def multiply_pairs(a: Words, b: Words) -> Words:
    """Return the products of two arrays of n elements of the quadratic extension, both of shape (n, 2)."""
    return _multiply_pairs(a, b)


def fold(values: Words, point: tuple[int, int], half: int) -> Words:
    """Return the vector x + r (y - x) of a vector's halves x and y at the point r, of shape (half, 2).

    ``values`` holds at most ``2 * half`` elements and is continued by zeros: residues, or elements of the extension in shape (n, 2).
    """
    r0, r1 = np.uint64(point[0]), np.uint64(point[1])
    return _fold_words(values, r0, r1, half) if values.ndim == 1 else _fold(values, r0, r1, half)


def end_values(u: Words, v: Words, half: int) -> Words:
    """Return the inner product of two folded vectors for the points 0 and 2, as two elements of the extension.

    ``v`` may be residues. Both vectors have the same length, at most ``2 * half``, and are continued by zeros.
    """
    return _end_values_words(u, v, half) if v.ndim == 1 else _end_values(u, v, half)
