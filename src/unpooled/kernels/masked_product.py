"""Exact products of matrices modulo p = 2^61 - 1 at the speed of matrix products in double precision, and the three terms of a masked product.

A residue is cut into three limbs of 21 bits. Limbs of the columns lie next to each other, so that a block of rows is one product of matrices; a block is
short enough that every sum is an integer below 2^53, which double precision adds up exactly in any order. Integers below 2^20 in absolute value are one
limb with a sign.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import UsageError
from unpooled.kernels.compiled import njit
from unpooled.kernels.field import MODULUS, add, encode, multiply, reduced, subtract

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]
    Integers = NDArray[np.int64]
    Reals = NDArray[np.float64]

#: Integers of one limb lie strictly between minus this and this.
LARGEST_INTEGER = 1 << 20
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
        self._matrix = matrix
        self.number = 1 if matrix.dtype == np.int64 else _LIMBS
        self.columns = matrix.shape[1]
        self._room = np.empty((_ROWS, self.number * self.columns))

    def block(self, begin: int, end: int) -> Reals:
        """Return the limbs of rows begin to end, of shape (rows, limbs * columns)."""
        block, room = self._matrix[begin:end], self._room[: end - begin]
        if self.number == 1:
            if block.size and max(-int(block.min()), int(block.max())) >= LARGEST_INTEGER:
                raise UsageError("rows of a masked product hold an integer of 2^20 or more: choose a coarser grid")
            room[:] = block
        else:
            _cut(block.view(np.uint64), room)
        return room


def product(left: Words | Integers, right: Words) -> Words:
    """Return ``left' right`` modulo p, of shape (columns of left, columns of right).

    ``right`` holds words (uint64); ``left`` holds words, or integers below 2^20 in absolute value (int64).
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
    return product(rows, masked)


def term_of_masked_rows(masked: Words, masks: Words) -> Words:
    """Return ``-(A + R_a)'R_b``: the term of the party that received the masked rows A + R_a and masked its own rows with R_b (Theorem J.1)."""
    found = product(masked, masks)
    return subtract(np.zeros_like(found), found)


def term_of_masks(masks: Words, others: Words) -> Words:
    """Return ``R_a'R_b``: the term of the helper, which has the masks of both parties and no rows (Theorem J.1)."""
    return product(masks, others)
