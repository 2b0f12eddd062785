"""The coins of a proof: a chain of digests that nobody chooses, and what they expand to.

The first coin is the digest of the place, the shape and two digests that fix what the prover has shared; each later coin is the digest of the coin before
and of the prover's next words. The helper computes the same chain from digests alone. They are keyed with a blind that the helper does not have:
otherwise it, who knows all masks, could test guesses of rows against them.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unpooled.aggregation.joint.short_rows import SUMS
from unpooled.kernels.field import decode, subtract
from unpooled.kernels.proof_sums import GROUP, signed_sums
from unpooled.privacy.field_words import derived, length_prefixed, uniform_words
from unpooled.privacy.noise import Stream

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.aggregation.joint.polynomials import Pair
    from unpooled.aggregation.joint.short_rows import BlockShape, ProofPlace

    Words = NDArray[np.uint64]
    Integers = NDArray[np.int64]

#: Groups of eight entries whose random bytes are drawn at a time: they stay in the second-level cache.
_GROUPS = 1 << 11


def helper_digest(mask_seed: bytes, seed: bytes) -> bytes:
    """Return the digest of the two seeds that the helper has: nobody can guess them, so it needs no blind."""
    return hashlib.sha256(length_prefixed("seeds of the helper", mask_seed, seed)).digest()


def words_digest(blind: bytes, name: str, *words: Words) -> bytes:
    """Return the digest of words that the judge has, keyed with the blind (HMAC-SHA-256)."""
    found = hmac.new(blind, length_prefixed("words of the judge", name), "sha256")
    for array in words:
        found.update(length_prefixed(*array.shape))
        found.update(np.ascontiguousarray(array, dtype="<u8").data)
    return found.digest()


def first_coin(place: ProofPlace, shape: BlockShape, of_helper: bytes, of_judge: bytes) -> bytes:
    """Return the first coin: the digest of the place, the shape, and the digests of the helper's seeds and of the judge's first words."""
    return hashlib.sha256(length_prefixed("first coin", place.bytes(), shape.bytes(), of_helper, of_judge)).digest()


def next_coin(coin: bytes, digest: bytes) -> bytes:
    """Return the coin that follows a coin and the digest of the judge's next words."""
    return hashlib.sha256(length_prefixed("next coin", coin, digest)).digest()


def sums(coin: bytes, words: Words) -> Words:
    """Return 128 sums of all entries with random signs, as residues; a sign is 0, 1 or -1 with probabilities 1/2, 1/4 and 1/4."""
    stream, held = Stream(derived(coin, "signs")), np.zeros((2, SUMS), dtype=np.uint64)
    groups, flat = -(-words.size // GROUP), words.ravel()
    of_group = 2 * SUMS // 8  # words of random bits
    for begin in range(0, groups, _GROUPS):
        end = min(begin + _GROUPS, groups)
        picks = stream.words(begin * of_group, (end - begin) * of_group).astype("<u8", copy=False).view(np.uint8)
        signed_sums(flat[begin * GROUP : end * GROUP], picks.reshape(-1, 2, SUMS), held)
    return subtract(held[0], held[1])


def bits_of(sums_of_rows: Words, shape: BlockShape) -> Words:
    """Return the bits of each sum plus 2^t, lowest first, of shape (128, t + 1)."""
    shifted: Integers = decode(sums_of_rows) + (1 << shape.wrap)
    return ((shifted[:, None] >> np.arange(shape.bits)) & 1).astype(np.uint64)


@dataclass(frozen=True, slots=True, eq=False)
class EquationWeights:
    """Holds the independent weights of all equations, in the extension: one for each row, each sum and each bit."""

    rows: Words
    sums: Words
    bits: Words

    @classmethod
    def of(cls, coin: bytes, shape: BlockShape) -> EquationWeights:
        """Return the weights that a coin expands to, of shapes (rows, 2), (128, 2) and (128, bits, 2)."""

        def drawn(name: str, *size: int) -> Words:
            return uniform_words(derived(coin, name), 2 * int(np.prod(size))).reshape(*size, 2)

        return cls(drawn("rows", shape.rows), drawn("sums", SUMS), drawn("bits", SUMS, shape.bits))


def point(coin: bytes) -> Pair:
    """Return the uniform element of the extension that a coin expands to."""
    real, imaginary = uniform_words(derived(coin, "point"), 2).tolist()
    return real, imaginary


def last_point(coin: bytes) -> Pair:
    """Return a uniform element that is no residue: at 1 or 2 the random third would not hide the value that is opened (Theorem J.8)."""
    count, imaginary = 1, 0
    while imaginary == 0:
        count += 1
        words = uniform_words(derived(coin, "last point"), count)
        imaginary = int(words[-1])
    return int(words[0]), imaginary
