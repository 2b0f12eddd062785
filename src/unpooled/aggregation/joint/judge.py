"""The judge's side: it recomputes all coins from the words that it received, folds its own factor, and compares with the helper's numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unpooled.aggregation.joint import coins
from unpooled.aggregation.joint.claims import claim, constants, folded, judges_factor
from unpooled.aggregation.joint.polynomials import ZERO, minus, pairs, plus, times, value_at
from unpooled.aggregation.joint.short_rows import Verdict, residues
from unpooled.kernels.field import fold

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.aggregation.joint.polynomials import Pair
    from unpooled.aggregation.joint.short_rows import BlockShape, Evaluation, ProofPlace, ToJudge

    Words = NDArray[np.uint64]


def judge(place: ProofPlace, shape: BlockShape, masked_rows: Words, to_judge: ToJudge, evaluation: Evaluation) -> Verdict:
    """Return the judge's decision about the rows behind the masked rows that it stored (Theorem J.7).

    ``masked_rows`` are residues of shape (rows, columns), the same that the judge's term of the masked product uses. A message of another size raises
    ProtocolError; one that proves nothing is rejected.
    """
    shape.check()
    residues("masked rows", masked_rows, (shape.rows, shape.columns))
    to_judge.check(shape)
    evaluation.check()
    rows, bits = (
        np.concatenate((masked_rows, to_judge.roots), axis=1),
        to_judge.bits.copy(),
    )  # messages are read-only, kernels write
    of_rows = coins.words_digest(to_judge.blind, "rows", rows)
    coin = coins.first_coin(place, shape, to_judge.helper_digest, of_rows)
    sums = coins.sums(coin, rows)
    coin = coins.next_coin(coin, coins.words_digest(to_judge.blind, "bits", bits))
    weights = coins.EquationWeights.of(coin, shape)
    u, squares = judges_factor(weights, rows, bits)
    of_sum = claim(weights, squares, sums, bits, constants(weights, shape))
    for step in range(shape.halvings):
        ends = to_judge.halvings[step]
        coin = coins.next_coin(coin, coins.words_digest(to_judge.blind, f"halving {step}", ends))
        at = coins.point(coin)
        of_sum, u = folded(of_sum, ends, at), fold(u, at, 1 << (shape.halvings - step))
    coin = coins.next_coin(coin, coins.words_digest(to_judge.blind, "last", to_judge.last))
    same = evaluation.helper_digest == to_judge.helper_digest and evaluation.coin == coin
    holds = same and _equations(to_judge.last, u, of_sum, evaluation, coins.last_point(coin))
    return Verdict(holds, of_rows, to_judge.helper_digest, coin)


def _equations(last: Words, u: Words, of_sum: Pair, evaluation: Evaluation, at: Pair) -> bool:
    """Return whether the shares of the sum add up to 0, and the product of both factors is the value of the last polynomial."""
    third, *shares = pairs(last)
    value, of_ends, of_product = pairs(evaluation.opened)
    ends = plus(minus(plus(shares[1], shares[2]), of_sum), of_ends)
    factor = value_at([third, *pairs(u)], at)
    return ends == ZERO and times(factor, value) == plus(value_at(shares, at), of_product)
