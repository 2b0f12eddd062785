"""Arithmetic in the field of p = 2^61 - 1 elements and its quadratic extension, and what proofs and masked products compute there."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import UsageError
from unpooled.kernels.compiled import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]
    Integers = NDArray[np.int64]
    Reals = NDArray[np.float64]
    Bytes = NDArray[np.uint8]


# --- Field -----------------------------------------------------------------------------------------------------------------
# Arithmetic in the field of p = 2^61 - 1 elements on arrays of unsigned words, and in its quadratic extension.
#
# A residue is an unsigned 64-bit word below p. Since p leaves the remainder 3 modulo 4, -1 has no square root, and the pairs (x, y), read as x + iy with
# i^2 = -1, are a field of p^2 elements; an array of n of them has the shape (n, 2).
#
# The second half holds the steps of a proof about an inner product that two sides hold a factor of each (Theorem J.6): a vector is folded to half its
# length, and the inner product of the halves is a polynomial of degree 2 in the point at which it is folded.

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


# --- Masked product --------------------------------------------------------------------------------------------------------
# Exact products of matrices modulo p = 2^61 - 1 at the speed of matrix products in double precision, and the three terms of a masked product.
#
# A residue is cut into three limbs of 21 bits. Limbs of the columns lie next to each other, so that a block of rows is one product of matrices; a block is
# short enough that every sum is an integer below 2^53, which double precision adds up exactly in any order. Integers below 2^20 in absolute value are one
# limb with a sign, larger ones a limb and above it one with the sign.

#: Integers of one limb lie strictly between minus this and this, and those of two limbs between minus the second and it.
LARGEST_INTEGER, LARGEST_PRODUCT = 1 << 20, 1 << 41
_BITS = 21
_LIMBS = 3
_LIMB = np.uint64((1 << _BITS) - 1)
#: Rows of one product: 2^11 products of two limbs of 21 bits stay below 2^53.
_ROWS = 1 << 11
#: Sums below 2^53 that are added up in 64-bit integers before they are reduced.
_SUMS = 1 << 9


@njit()
def _cut(words: Words, limbs: Reals) -> None:
    """Write the three limbs of a block of words, each as columns of their own; a word of p or more stands for its residue."""
    columns = words.shape[1]
    for i in range(words.shape[0]):
        for j in range(columns):
            word = reduced(words[i, j])
            limbs[i, j] = np.float64(np.int64(word & _LIMB))
            limbs[i, columns + j] = np.float64(np.int64((word >> np.uint64(_BITS)) & _LIMB))
            limbs[i, 2 * columns + j] = np.float64(np.int64(word >> np.uint64(2 * _BITS)))


class _Limbs:
    """Cuts blocks of a matrix into limbs, in memory for one block."""

    def __init__(self, matrix: Words | Integers) -> None:
        self._matrix, self._signed = matrix, matrix.dtype == np.int64
        largest = max(-int(matrix.min()), int(matrix.max())) if self._signed and matrix.size else 0
        if largest >= LARGEST_PRODUCT:
            raise UsageError("rows of a masked product hold an integer of 2^41 or more: choose a coarser grid")
        self.number = (1 if largest < LARGEST_INTEGER else 2) if self._signed else _LIMBS
        self.columns = matrix.shape[1]
        self._room = np.empty((_ROWS, self.number * self.columns))

    def block(self, begin: int, end: int) -> Reals:
        """Return the limbs of rows begin to end, of shape (rows, limbs * columns)."""
        block, room = self._matrix[begin:end], self._room[: end - begin]
        if self._signed:
            room[:, : self.columns] = block if self.number == 1 else block & ((1 << _BITS) - 1)
            if self.number > 1:
                room[:, self.columns :] = block >> _BITS
        else:
            _cut(block.view(np.uint64), room)
        return room


def masked_product(left: Words | Integers, right: Words) -> Words:
    """Return ``left' right`` modulo p, of shape (columns of left, columns of right).

    ``right`` holds words (uint64); ``left`` holds words, or integers below 2^41 in absolute value (int64).
    """
    if left.dtype not in {np.dtype(np.uint64), np.dtype(np.int64)} or right.dtype != np.uint64:
        raise UsageError("a product modulo p takes unsigned words, and on the left also signed integers")
    if left.ndim != 2 or right.ndim != 2 or left.shape[0] != right.shape[0]:  # noqa: PLR2004 - matrices
        raise UsageError("a product modulo p takes two matrices with the same number of rows")
    a, b = _Limbs(left), _Limbs(right)
    total = np.zeros((a.columns, b.columns), dtype=np.uint64)
    sums = np.zeros((a.number * a.columns, b.number * b.columns), dtype=np.int64)
    for number, begin in enumerate(range(0, left.shape[0], _ROWS), 1):
        end = min(begin + _ROWS, left.shape[0])
        sums += (a.block(begin, end).T @ b.block(begin, end)).astype(np.int64)
        if number % _SUMS == 0:
            total, sums[:] = add(total, _joined(sums, a, b)), 0
    return add(total, _joined(sums, a, b))


def _joined(sums: Integers, a: _Limbs, b: _Limbs) -> Words:
    """Return the products of residues that the sums of products of limbs stand for."""
    parts = encode(sums).reshape(a.number, a.columns, b.number, b.columns)
    total = np.zeros((a.columns, b.columns), dtype=np.uint64)
    for j in range(a.number):
        for k in range(b.number):
            weight = np.full_like(total, pow(2, _BITS * (j + k), MODULUS))
            total = add(total, multiply(np.ascontiguousarray(parts[j, :, k]), weight))
    return total


def term_of_rows(rows: Integers, masked: Words) -> Words:
    """Return ``A'(B + R_b)``: the term of the party that has the rows A and received the masked rows of the other one (Theorem J.1)."""
    return masked_product(rows, masked)


def term_of_masked_rows(masked: Words, masks: Words) -> Words:
    """Return ``-(A + R_a)'R_b``: the term of the party that received the masked rows A + R_a and masked its own rows with R_b (Theorem J.1)."""
    found = masked_product(masked, masks)
    return subtract(np.zeros_like(found), found)


def term_of_masks(masks: Words, others: Words) -> Words:
    """Return ``R_a'R_b``: the term of the helper, which has the masks of both parties and no rows (Theorem J.1)."""
    return masked_product(masks, others)


# --- Proof sums ------------------------------------------------------------------------------------------------------------
# Sums over the shares of a block of rows, for the proof that rows are short: with random signs, and of weighted squares.
#
# A random sign is 0 with probability 1/2, and 1 or -1 with 1/4 each: the difference of two random bits. Eight entries and a random byte for each sum pick one
# of 256 sums of the entries, which are computed once for all sums, so that an entry costs a quarter of an addition for each sum.

#: Entries that share a random byte.
GROUP = 8
#: Sums of residues below 2^61 + 8 that are added up before they are reduced.
_HELD = 6


@njit()
def signed_sums(words: Words, picks: Bytes, held: Words) -> None:
    """Add sums of entries with random signs to ``held``, of shape (2, sums): entries that count positively, and negatively.

    ``picks`` has the shape (groups, 2, sums); the entries of group k are ``words[8 k : 8 k + 8]``, continued by zeros.
    """
    table, sums = np.zeros(1 << GROUP, np.uint64), held.shape[1]
    since = 0
    for k in range(picks.shape[0]):
        for bit in range(GROUP):
            at, size = k * GROUP + bit, 1 << bit
            word = words[at] if at < words.size else _0
            for j in range(size):
                table[size + j] = table[j] + word
        for j in range(1 << GROUP):
            table[j] = (table[j] & _P) + (table[j] >> np.uint64(61))
        for side in range(2):
            for c in range(sums):
                held[side, c] += table[picks[k, side, c]]
        since += 1
        if since == _HELD or k == picks.shape[0] - 1:
            since = 0
            for side in range(2):
                for c in range(sums):
                    held[side, c] = reduced(held[side, c])


@njit()
def scaled(words: Words, weights: Words, width: int, out: Words) -> Words:
    """Write the entries times the weight of their row, an element of the extension, to ``out``; return the sum of the weighted squares.

    ``words`` holds rows of ``width`` residues, ``weights`` has the shape (rows, 2), ``out`` the shape (entries, 2), and what is returned the shape (2,).
    """
    squares = np.zeros(2, np.uint64)
    for i in range(weights.shape[0]):
        w0, w1 = weights[i, 0], weights[i, 1]
        for j in range(i * width, i * width + width):
            word = words[j]
            a, b = product(w0, word), product(w1, word)
            out[j, 0], out[j, 1] = a, b
            squares[0] = reduced(squares[0] + product(a, word))
            squares[1] = reduced(squares[1] + product(b, word))
    return squares


@njit()
def weighted_squares(words: Words, weights: Words, width: int) -> Words:
    """Return the sum of the squares of all entries, each times the weight of its row, as in :func:`scaled`."""
    squares = np.zeros(2, np.uint64)
    for i in range(weights.shape[0]):
        of_row = _0
        for j in range(i * width, i * width + width):
            of_row = reduced(of_row + product(words[j], words[j]))
        squares[0] = reduced(squares[0] + product(weights[i, 0], of_row))
        squares[1] = reduced(squares[1] + product(weights[i, 1], of_row))
    return squares


@njit()
def quadratic(words: Words, form: Words, diagonal: Words, weights: Words, out: Words) -> Words:
    """Write the rows times a symmetric form and their own weight to ``out``; return the sum of the rows' values of the form, so weighted.

    The form is that of shape (q, q, 2) on the first q entries of a row, and a diagonal of shape (width - q, 2) on the rest. ``words`` has the shape
    (rows, width), ``weights`` (rows, 2) and ``out`` (rows, width, 2).
    """
    squares, full, width = np.zeros(2, np.uint64), form.shape[0], words.shape[1]
    for i in range(words.shape[0]):
        w0, w1 = weights[i, 0], weights[i, 1]
        for j in range(width):
            word = words[i, j]
            if j < full:
                a = b = _0
                for k in range(full):
                    a = reduced(a + product(form[j, k, 0], words[i, k]))
                    b = reduced(b + product(form[j, k, 1], words[i, k]))
            else:
                a, b = product(diagonal[j - full, 0], word), product(diagonal[j - full, 1], word)
            a, b = pair_product(w0, w1, a, b)
            out[i, j, 0], out[i, j, 1] = a, b
            squares[0] = reduced(squares[0] + product(a, word))
            squares[1] = reduced(squares[1] + product(b, word))
    return squares


@njit()
def linear_form(words: Words, form: Words, weights: Words) -> Words:
    """Return the sum of the rows' values of a linear form of shape (width, 2), each times the weight of its row."""
    sums = np.zeros(2, np.uint64)
    for i in range(words.shape[0]):
        a = b = _0
        for j in range(words.shape[1]):
            a = reduced(a + product(form[j, 0], words[i, j]))
            b = reduced(b + product(form[j, 1], words[i, j]))
        a, b = pair_product(weights[i, 0], weights[i, 1], a, b)
        sums[0], sums[1] = reduced(sums[0] + a), reduced(sums[1] + b)
    return sums


@njit()
def linear_part(sums: Words, bits: Words, sum_weights: Words, bit_weights: Words) -> Words:
    """Return the sum over c of g_c (y_c - sum over j of 2^j t_cj) - sum over j of b_cj t_cj, for shares of sums y and of their bits t.

    The shapes are (sums,), (sums, width), (sums, 2) for g and (sums, width, 2) for b; what is returned has the shape (2,).
    """
    out = np.zeros(2, np.uint64)
    for c in range(sums.size):
        value, power = sums[c], np.uint64(1)
        for j in range(bits.shape[1]):
            value = reduced(value + (_P - product(power, bits[c, j])))
            power = reduced(power + power)
            for part in range(2):
                out[part] = reduced(out[part] + (_P - product(bit_weights[c, j, part], bits[c, j])))
        for part in range(2):
            out[part] = reduced(out[part] + product(sum_weights[c, part], value))
    return out


# --- Four squares ----------------------------------------------------------------------------------------------------------
# Four integers whose squares add up to a given integer, for arrays of integers.
#
# A number that 8 divides is four times another, with roots twice as large. For the rest, one of the two largest possible first roots leaves 0 or a number
# that is 1, 2, 3, 5 or 6 modulo 8, which is a sum of three squares by Legendre's theorem; the second root is the largest that leaves a sum of two squares.
# So the search ends for every number (Theorem J.3), and what it tries shrinks like the fourth root.

#: Sums of two squares below this are looked up; the table stays in the first-level cache.
_TABLE = 1 << 14
#: The square roots of larger numbers would not be exact in double precision.
LARGEST = 1 << 52


@njit(inline="always")
def _root(number: Any) -> Any:  # noqa: ANN401 - an integer that numba types
    """Return the largest integer whose square is at most a number below 2^52."""
    return np.int64(np.sqrt(np.float64(number)))


@cache
def _first_roots() -> NDArray[np.int16]:
    """Return the larger root of each small sum of two squares, and -1 for numbers that are none."""
    table = np.full(_TABLE, -1, dtype=np.int16)
    for root in range(int(np.sqrt(_TABLE)) + 1):
        sums = root * root + np.arange(root + 1) ** 2
        table[sums[sums < _TABLE]] = root
    return table


@njit()
def _larger_root(number: Any, table: NDArray[np.int16]) -> Any:  # noqa: ANN401 - integers that numba types
    """Return a root r such that number - r^2 is a square, or -1."""
    if number < table.size:
        return np.int64(table[number])
    if number % 4 == 3:  # noqa: PLR2004 - no sum of two squares is 3 modulo 4
        return np.int64(-1)
    root = _root(number)
    while 2 * root * root >= number:
        rest = number - root * root
        other = _root(rest)
        if other * other == rest:
            return root
        root -= 1
    return np.int64(-1)


@njit()
def _search(numbers: Integers, table: NDArray[np.int16], out: Integers) -> None:
    for i in range(numbers.size):
        number, factor = numbers[i], np.int64(1)
        while number > 0 and number % 8 == 0:
            number //= 4
            factor *= 2
        first = _root(number)
        rest = number - first * first
        if rest > 0 and (rest % 4 == 0 or rest % 8 == 7):  # noqa: PLR2004 - not surely a sum of three squares
            first -= 1
            rest = number - first * first
        second = _root(rest)
        third = _larger_root(rest - second * second, table)
        while third < 0:
            second -= 1
            third = _larger_root(rest - second * second, table)
        fourth = _root(rest - second * second - third * third)
        out[i, 0], out[i, 1], out[i, 2], out[i, 3] = factor * first, factor * second, factor * third, factor * fourth


def four_squares(numbers: Integers) -> Integers:
    """Return, for n integers between 0 and 2^52, non-negative integers of shape (n, 4) whose squares add up to them."""
    if numbers.size and not 0 <= int(numbers.min()) <= int(numbers.max()) <= LARGEST:
        raise UsageError("four squares are found for integers between 0 and 2^52")
    out = np.empty((numbers.size, 4), dtype=np.int64)
    _search(np.ascontiguousarray(numbers, dtype=np.int64), _first_roots(), out)
    return out
