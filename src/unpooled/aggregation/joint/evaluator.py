"""The helper's side: it expands its shares from seeds, recomputes all coins from blinded digests, and gives the judge three numbers.

The helper sees uniform seeds and digests that it cannot test; nothing that it receives depends on the rows (Theorem J.9).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unpooled.aggregation.joint import coins
from unpooled.aggregation.joint.claims import claim, folded, helpers_factor
from unpooled.aggregation.joint.polynomials import minus, pairs, plus, value_at
from unpooled.aggregation.joint.short_rows import DIGEST_BYTES, LAST_WORDS, ROOTS, SUMS, Evaluation, bytes_of
from unpooled.kernels.field import fold, subtract
from unpooled.kernels.proof_sums import weighted_squares
from unpooled.privacy.field_words import SEED_BYTES, derived, masks, uniform_words

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.aggregation.joint.short_rows import BlockShape, ProofPlace, ToHelper

    Words = NDArray[np.uint64]


def helpers_rows(shape: BlockShape, mask_seed: bytes, seed: bytes) -> Words:
    """Return the helper's shares of the completed rows: minus the masks, and its shares of the roots."""
    of_rows = masks(mask_seed, shape.rows, shape.columns)
    roots = uniform_words(derived(seed, "roots"), shape.rows * ROOTS).reshape(shape.rows, ROOTS)
    return np.concatenate((subtract(np.zeros_like(of_rows), of_rows), roots), axis=1)


def evaluate(place: ProofPlace, shape: BlockShape, mask_seed: bytes, to_helper: ToHelper) -> Evaluation:
    """Return the helper's numbers for the judge: the value of its factor, and its shares of the sum and of the product (Theorem J.7).

    ``mask_seed`` is the one that the prover sent first, and that the helper's term of the masked product uses. A helper answers the first message of
    a prover for a place and no other: two answers under one seed would be two openings under one random third.
    """
    shape.check()
    bytes_of("the seed of the masks", mask_seed, SEED_BYTES)
    to_helper.check(shape)
    of_seeds, seed = coins.helper_digest(mask_seed, to_helper.seed), to_helper.seed
    of_rows, of_bits, *of_halvings, of_last = (
        to_helper.digests[at : at + DIGEST_BYTES] for at in range(0, len(to_helper.digests), DIGEST_BYTES)
    )
    rows = helpers_rows(shape, mask_seed, seed)
    bits = uniform_words(derived(seed, "bits"), SUMS * shape.bits).reshape(SUMS, shape.bits)
    coin = coins.first_coin(place, shape, of_seeds, of_rows)
    sums = coins.sums(coin, rows)
    coin = coins.next_coin(coin, of_bits)
    weights = coins.EquationWeights.of(coin, shape)
    squares = plus(
        *pairs(
            np.stack(
                (
                    weighted_squares(rows.ravel(), weights.rows, shape.width),
                    weighted_squares(bits.ravel(), weights.bits.reshape(-1, 2), 1),
                )
            )
        )
    )
    of_sum, v = claim(weights, squares, sums, bits), helpers_factor(rows, bits)
    shares = uniform_words(derived(seed, "halvings"), 4 * shape.halvings).reshape(-1, 2, 2)
    for step, digest in enumerate(of_halvings):
        coin = coins.next_coin(coin, digest)
        at = coins.point(coin)
        of_sum, v = folded(of_sum, shares[step], at), fold(v, at, 1 << (shape.halvings - step))
    coin = coins.next_coin(coin, of_last)
    return Evaluation(_opened(seed, v, of_sum, coin), of_seeds, coin)


def _opened(seed: bytes, v: Words, of_sum: tuple[int, int], coin: bytes) -> Words:
    """Return the value of the helper's polynomial at the last coin, and its shares of the sum and of the product there, of shape (3, 2)."""
    at = coins.last_point(coin)
    factor = pairs(np.vstack((uniform_words(derived(seed, "third"), 2), v)))
    shares = pairs(uniform_words(derived(seed, "last"), 2 * (LAST_WORDS - 1)).reshape(-1, 2))
    of_ends = minus(plus(shares[1], shares[2]), of_sum)
    return np.array([value_at(factor, at), of_ends, value_at(shares, at)], dtype=np.uint64)
