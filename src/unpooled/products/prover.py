"""The three sides of a proof that rows are short: the prover writes it, the helper evaluates its shares, the judge compares."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import UsageError
from unpooled.kernels.field import decode, end_values, fold, subtract
from unpooled.privacy.masks import SEED_BYTES, derived, length_prefixed, masked, masks, uniform_words
from unpooled.products import short_rows as coins
from unpooled.products.short_rows import (
    DIGEST_BYTES,
    LAST_WORDS,
    SUMS,
    ZERO,
    Evaluation,
    ToHelper,
    ToJudge,
    Verdict,
    bytes_of,
    claim,
    folded,
    minus,
    pairs,
    plus,
    residues,
    times,
    value_at,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.products.short_rows import BlockShape, Pair, ProofPlace

    Words = NDArray[np.uint64]
    Integers = NDArray[np.int64]


# --- Prover ----------------------------------------------------------------------------------------------------------------
# The prover's side: complete the rows, share all words, and write the whole proof without hearing a word from the verifiers.
#
# Every random word comes from a key that depends on the secret, the place, the shape, the masks, the block and the attempt, so that nothing random is used
# under two coins: two numbers opened under one random third would give a linear form of the rows (Theorem J.8).

#: Fair rows need a second attempt with probability 2^-64, so that nobody meets the last one.
_ATTEMPTS = 16


@dataclass(frozen=True, slots=True, repr=False)
class Seeds:
    """Holds the seeds of one attempt: of the helper's shares, of the judge's random third, and the blind that only the judge gets."""

    shares: bytes
    third: bytes
    blind: bytes


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Opening:
    """Holds the shares of completed rows in one attempt, the digests that fix them, and the first coin."""

    place: ProofPlace
    shape: BlockShape
    seeds: Seeds
    completed: Words
    of_judge: Words
    helper_digest: bytes
    judge_digest: bytes
    coin: bytes


def prove(
    place: ProofPlace, shape: BlockShape, rows: Integers, mask_seed: bytes, secret: bytes, foreign: Words | None = None
) -> tuple[ToJudge, ToHelper]:
    """Return the two messages that prove to judge and helper together what the shape says of the rows (Theorems J.4 and H.3).

    ``rows`` is the block whose masked form the judge has, int64 of shape (rows, columns), and ``mask_seed`` the seed of its masks, which the helper has;
    ``foreign`` is 1 for rows at places that are not the prover's, where the shape is of places. Equal arguments give equal messages.
    """
    shape.check()
    shape.check_foreign(foreign)
    words = shape.completed(rows)
    at_judge = masked(rows, mask_seed)
    for attempt in range(_ATTEMPTS):
        seeds = seeds_of(place, shape, rows, mask_seed, secret, attempt, foreign)
        opening = opened(place, shape, words, at_judge, mask_seed, seeds)
        sums = coins.sums(opening.coin, shape.bounded(words))
        if in_range(shape, sums):
            return finished(opening, sums, foreign)
    raise AssertionError  # pragma: no cover - 16 times a chance of 2^-64


def seeds_of(
    place: ProofPlace,
    shape: BlockShape,
    rows: Integers,
    mask_seed: bytes,
    secret: bytes,
    attempt: int,
    foreign: Words | None = None,
) -> Seeds:
    """Return the seeds of one attempt, each keyed with the secret by everything that the coins depend on."""
    if len(secret) != SEED_BYTES:
        raise UsageError("the secret of a proof has 32 bytes")
    block = hashlib.sha256(length_prefixed(*rows.shape))
    block.update(np.ascontiguousarray(rows, dtype="<i8").data)
    masks = hashlib.sha256(length_prefixed("masks", mask_seed)).digest()
    whose = () if foreign is None else (foreign.astype("<u1").tobytes(),)
    parts = (place.bytes(), shape.bytes(), attempt, block.digest(), masks, *whose)
    return Seeds(*(derived(secret, name, *parts) for name in ("shares of the helper", "third of the judge", "blind")))


def opened(place: ProofPlace, shape: BlockShape, words: Words, at_judge: Words, mask_seed: bytes, seeds: Seeds) -> Opening:
    """Return the shares of completed rows, and the first coin, which depends on all of them."""
    roots = words[:, shape.columns :]
    share = uniform_words(derived(seeds.shares, "roots"), roots.size).reshape(roots.shape)
    of_judge = np.concatenate((at_judge, subtract(roots, share)), axis=1)
    of_seeds = coins.helper_digest(mask_seed, seeds.shares)
    of_words = coins.words_digest(seeds.blind, "rows", of_judge)
    coin = coins.first_coin(place, shape, of_seeds, of_words)
    return Opening(place, shape, seeds, words, of_judge, of_seeds, of_words, coin)


def in_range(shape: BlockShape, sums: Words) -> bool:
    """Return whether every sum lies in [-2^t, 2^t)."""
    values = decode(sums)
    return -(1 << shape.wrap) <= int(values.min()) and int(values.max()) < 1 << shape.wrap


def finished(opening: Opening, sums: Words, foreign: Words | None = None) -> tuple[ToJudge, ToHelper]:
    """Return both messages from the shares and the sums: bits, halvings and the last polynomial, each before the coin that it meets."""
    shape, seeds = opening.shape, opening.seeds
    bits = coins.bits_of(sums, shape)
    bits_of_helper = uniform_words(derived(seeds.shares, "bits"), bits.size).reshape(bits.shape)
    bits_of_judge = subtract(bits, bits_of_helper)
    digests = [opening.judge_digest, coins.words_digest(seeds.blind, "bits", bits_of_judge)]
    coin = coins.next_coin(opening.coin, digests[-1])
    weights = shape.weights(coin)
    u, _ = shape.factor(weights, opening.of_judge, bits_of_judge)
    v = shape.opposite(subtract(opening.completed, opening.of_judge), bits_of_helper, foreign)
    shares = uniform_words(derived(seeds.shares, "halvings"), 4 * shape.halvings).reshape(-1, 2, 2)
    halvings = np.empty_like(shares)
    for step in range(shape.halvings):
        half = 1 << (shape.halvings - step)
        halvings[step] = subtract(end_values(u, v, half), shares[step])
        digests.append(coins.words_digest(seeds.blind, f"halving {step}", halvings[step]))
        coin = coins.next_coin(coin, digests[-1])
        at = coins.point(coin)
        u, v = fold(u, at, half), fold(v, at, half)
    last = last_words(seeds, u, v)
    digests.append(coins.words_digest(seeds.blind, "last", last))
    roots = np.ascontiguousarray(opening.of_judge[:, shape.columns :])
    message = ToJudge(seeds.blind, opening.helper_digest, roots, bits_of_judge, halvings, last)
    return message, ToHelper(seeds.shares, b"".join(digests))


def last_words(seeds: Seeds, u: Words, v: Words) -> Words:
    """Return the judge's random third, and its shares of the product of both factors' polynomials at 0 to 4, of shape (6, 2)."""
    third_of_judge = uniform_words(derived(seeds.third, "third"), 2)
    third_of_helper = uniform_words(derived(seeds.shares, "third"), 2)
    of_judge, of_helper = pairs(np.vstack((third_of_judge, u))), pairs(np.vstack((third_of_helper, v)))
    values = [times(value_at(of_judge, (k, 0)), value_at(of_helper, (k, 0))) for k in range(LAST_WORDS - 1)]
    shares = uniform_words(derived(seeds.shares, "last"), 2 * len(values)).reshape(-1, 2)
    return np.vstack((third_of_judge, subtract(np.array(values, dtype=np.uint64), shares)))


# --- Evaluator -------------------------------------------------------------------------------------------------------------
# The helper's side: it expands its shares from seeds, recomputes all coins from blinded digests, and gives the judge three numbers.
#
# The helper sees uniform seeds and digests that it cannot test; nothing that it receives depends on the rows (Theorem J.9).


def helpers_rows(shape: BlockShape, mask_seed: bytes, seed: bytes) -> Words:
    """Return the helper's shares of the completed rows: minus the masks, and its shares of the roots."""
    of_rows = masks(mask_seed, shape.rows, shape.columns)
    roots = uniform_words(derived(seed, "roots"), shape.rows * shape.roots).reshape(shape.rows, shape.roots)
    return np.concatenate((subtract(np.zeros_like(of_rows), of_rows), roots), axis=1)


def evaluate(
    place: ProofPlace, shape: BlockShape, mask_seed: bytes, to_helper: ToHelper, foreign: Words | None = None
) -> Evaluation:
    """Return the helper's numbers for the judge: the value of its factor, and its shares of the sum and of the product (Theorem J.7).

    ``mask_seed`` is the one that the prover sent first, and that the helper's term of the masked product uses. A helper answers the first message of
    a prover for a place and no other: two answers under one seed would be two openings under one random third.
    """
    shape.check()
    shape.check_foreign(foreign)
    bytes_of("the seed of the masks", mask_seed, SEED_BYTES)
    to_helper.check(shape)
    of_seeds, seed = coins.helper_digest(mask_seed, to_helper.seed), to_helper.seed
    of_rows, of_bits, *of_halvings, of_last = (
        to_helper.digests[at : at + DIGEST_BYTES] for at in range(0, len(to_helper.digests), DIGEST_BYTES)
    )
    rows = helpers_rows(shape, mask_seed, seed)
    bits = uniform_words(derived(seed, "bits"), SUMS * shape.bits).reshape(SUMS, shape.bits)
    coin = coins.first_coin(place, shape, of_seeds, of_rows)
    sums = coins.sums(coin, shape.bounded(rows))
    coin = coins.next_coin(coin, of_bits)
    weights = shape.weights(coin)
    of_sum = claim(weights, shape.local(weights, rows, bits, foreign), sums, bits)
    v = shape.opposite(rows, bits, foreign)
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


# --- Judge -----------------------------------------------------------------------------------------------------------------
# The judge's side: it recomputes all coins from the words that it received, folds its own factor, and compares with the helper's numbers.


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
    sums = coins.sums(coin, shape.bounded(rows))
    coin = coins.next_coin(coin, coins.words_digest(to_judge.blind, "bits", bits))
    weights = shape.weights(coin)
    u, local = shape.factor(weights, rows, bits)
    of_sum = claim(weights, local, sums, bits, shape.constant(weights))
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
