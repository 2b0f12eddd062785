"""The equation that a proof is about, as shares of an inner product: what the judge and the helper each compute from their own shares alone.

With x = x_a + x_h for every word, the equations |x_i|^2 = L^2 of all rows, y + 2^t = (its bits) of all sums and t^2 = t of all bits, each times a weight of
its own, add up to: parts of x_a alone, plus parts of x_h alone, plus 2 <u, v> with u = (weights times x_a) and v = x_h (Theorem J.6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unpooled.aggregation.joint.polynomials import ZERO, minus, pairs, plus, times, value_at
from unpooled.aggregation.joint.short_rows import SUMS
from unpooled.kernels.field import MODULUS, total
from unpooled.kernels.proof_sums import linear_part, scaled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.aggregation.joint.coins import EquationWeights
    from unpooled.aggregation.joint.polynomials import Pair
    from unpooled.aggregation.joint.short_rows import BlockShape

    Words = NDArray[np.uint64]

_MINUS_HALF: Pair = (-pow(2, -1, MODULUS) % MODULUS, 0)


def judges_factor(weights: EquationWeights, rows: Words, bits: Words) -> tuple[Words, Pair]:
    """Return the judge's vector u of the inner product, of shape (entries, 2), and the weighted sum of the squares of its shares."""
    out = np.empty((rows.size + bits.size, 2), dtype=np.uint64)
    of_rows = scaled(rows.ravel(), weights.rows, rows.shape[1], out[: rows.size])
    of_bits = scaled(bits.ravel(), weights.bits.reshape(-1, 2), 1, out[rows.size :])
    return out, plus(*pairs(np.stack((of_rows, of_bits))))


def helpers_factor(rows: Words, bits: Words) -> Words:
    """Return the helper's vector v of the inner product: its shares, of shape (entries,)."""
    return np.concatenate((rows.ravel(), bits.ravel()))


def constants(weights: EquationWeights, shape: BlockShape) -> Pair:
    """Return the part of the equation that holds no share: -L^2 times the rows' weights, and 2^t times the sums' weights."""
    of_rows = [-shape.square * total(weights.rows[:, part]) for part in range(2)]
    of_sums = [total(weights.sums[:, part]) << shape.wrap for part in range(2)]
    return (of_rows[0] + of_sums[0]) % MODULUS, (of_rows[1] + of_sums[1]) % MODULUS


def claim(weights: EquationWeights, squares: Pair, sums: Words, bits: Words, constant: Pair = ZERO) -> Pair:
    """Return a share of what <u, v> must be: minus half of the part of the equation that one side computes alone."""
    linear = pairs(linear_part(sums, bits.reshape(SUMS, -1), weights.sums, weights.bits)[None])[0]
    return times(plus(plus(squares, linear), constant), _MINUS_HALF)


def folded(of_sum: Pair, ends: Words, at: Pair) -> Pair:
    """Return a share of the inner product of folded vectors, from shares of that of the whole ones and of the values at the points 0 and 2."""
    start, end = pairs(ends)
    return value_at((start, minus(of_sum, start), end), at)
