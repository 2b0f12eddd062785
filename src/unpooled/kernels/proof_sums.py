"""Sums over the shares of a block of rows, for the proof that rows are short: with random signs, and of weighted squares.

A random sign is 0 with probability 1/2, and 1 or -1 with 1/4 each: the difference of two random bits. Eight entries and a random byte for each sum pick one
of 256 sums of the entries, which are computed once for all sums, so that an entry costs a quarter of an addition for each sum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unpooled.kernels.compiled import njit
from unpooled.kernels.field import MODULUS, product, reduced

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]
    Bytes = NDArray[np.uint8]

_P = np.uint64(MODULUS)
_0 = np.uint64(0)
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
