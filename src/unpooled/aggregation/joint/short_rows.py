"""The statement that every row of a block is short, and the messages of its proof: numbers only, for one block of rows and one direction.

A prover has rows B of integers, and sent B + R to the judge and the seed of the masks R to the helper. It proves to the two of them that every row has a
squared length of at most ``BlockShape.square``. The prover sends one message to each of them (``prover.py``), the helper three numbers to the judge
(``evaluator.py``), and the judge alone decides (``judge.py``). THEORY.md next to this file says why it holds and what each of them learns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import ProtocolError, UsageError
from unpooled.kernels.field import MODULUS
from unpooled.privacy.field_words import SEED_BYTES, length_prefixed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]

#: Sums with random signs: an entry that is too large passes all of them with probability 2^-128 (Theorem J.5).
SUMS = 128
#: Integers that complete a row to the full length: their squares add up to what the row's square lacks.
ROOTS = 4
DIGEST_BYTES = 32
#: Rows of a block: its words stay in memory a few times over.
LARGEST_BLOCK = 1 << 14
#: Values of the last polynomial, of degree 4, and the random third of the judge's factor.
LAST_WORDS = 6


@dataclass(frozen=True, slots=True)
class ProofPlace:
    """Names the one proof that random words belong to: plan, run, the three members, the round, the part of a row, and the block of rows with its direction."""

    plan: str
    run: str
    prover: str
    judge: str
    helper: str
    block: int
    part: str = ""
    round: int = 0

    def bytes(self) -> bytes:
        """Return the place as bytes that no other place has."""
        members = self.prover, self.judge, self.helper
        return length_prefixed("place", self.plan, self.run, *members, self.round, self.part, self.block)


@dataclass(frozen=True, slots=True)
class BlockShape:
    """Holds the size of a block and the largest squared length of a row, which are public."""

    rows: int
    columns: int
    square: int

    @property
    def width(self) -> int:
        """Entries of a completed row."""
        return self.columns + ROOTS

    @property
    def wrap(self) -> int:
        """The smallest t with 2^t >= 10 L sqrt(rows/2): sums of fair rows lie in [-2^t, 2^t) but for a chance of 2^-64 (Theorems J.4 and J.10)."""
        least = 50 * self.square * self.rows
        return (max(0, least - 1).bit_length() + 1) // 2

    @property
    def bits(self) -> int:
        """Bits of a sum."""
        return self.wrap + 1

    @property
    def entries(self) -> int:
        """Length of the vectors whose inner product is proven: completed rows, and the bits of all sums."""
        return self.rows * self.width + SUMS * self.bits

    @property
    def halvings(self) -> int:
        """Number of times that the vectors are halved until two elements are left."""
        return (self.entries - 1).bit_length() - 1

    def check(self) -> None:
        """Raise UsageError unless the squares of rows whose sums are in range add up to less than p, so that no square wraps (Theorem J.5).

        Integers of NumPy are refused: they would wrap in the range of the sums.
        """
        sizes = (self.rows, self.columns, self.square)
        if any(type(size) is not int for size in sizes) or min(self.rows, self.columns) < 1 or self.square < 0:
            raise UsageError(
                "a block has at least one row and one column, and a largest squared length of 0 or more, all plain integers"
            )
        if self.width * 4 ** (self.wrap + 1) >= MODULUS:
            msg = f"a proof about rows of {self.columns} columns needs fewer than {self.rows} rows in a block, or a coarser grid"
            raise UsageError(msg)

    def bytes(self) -> bytes:
        """Return the shape as bytes that no other shape has."""
        return length_prefixed("shape", self.rows, self.columns, self.square, self.wrap, SUMS)


@dataclass(frozen=True, slots=True, eq=False)
class ToJudge:
    """The prover's message to the judge: its shares of all words, the key of their digests, and the digest of the helper's seeds."""

    blind: bytes = field(repr=False)
    helper_digest: bytes
    #: Shares of the four roots of each row, of shape (rows, 4); of the bits of each sum (128, bits); of the values at 0 and 2 of each halving
    #: (halvings, 2, 2); the random third of the judge's factor and shares of the values at 0 to 4 of the last polynomial (6, 2).
    roots: Words = field(repr=False)
    bits: Words = field(repr=False)
    halvings: Words = field(repr=False)
    last: Words = field(repr=False)

    def check(self, shape: BlockShape) -> None:
        """Raise ProtocolError unless every part has the size that the shape asks for, and every word is below p."""
        bytes_of("the key of the digests", self.blind, SEED_BYTES)
        bytes_of("the digest of the helper's seeds", self.helper_digest, DIGEST_BYTES)
        residues("shares of roots", self.roots, (shape.rows, ROOTS))
        residues("shares of bits", self.bits, (SUMS, shape.bits))
        residues("shares of halvings", self.halvings, (shape.halvings, 2, 2))
        residues("shares of the last polynomial", self.last, (LAST_WORDS, 2))


@dataclass(frozen=True, slots=True)
class ToHelper:
    """The prover's message to the helper: the seed of its shares, and the blinded digests of all words that the judge receives, one after the other."""

    seed: bytes = field(repr=False)
    digests: bytes

    def check(self, shape: BlockShape) -> None:
        """Raise ProtocolError unless both parts have the size that the shape asks for."""
        bytes_of("the seed of the shares", self.seed, SEED_BYTES)
        bytes_of("the digests", self.digests, DIGEST_BYTES * (shape.halvings + 3))


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """The helper's message to the judge: the value of its factor, its shares of the sum and of the product, and what the two of them compare."""

    #: Three elements of the extension, of shape (3, 2).
    opened: Words
    helper_digest: bytes
    coin: bytes

    def check(self) -> None:
        """Raise ProtocolError unless every part has its size, and every word is below p."""
        residues("the helper's numbers", self.opened, (3, 2))
        bytes_of("the digest of the helper's seeds", self.helper_digest, DIGEST_BYTES)
        bytes_of("the last coin", self.coin, DIGEST_BYTES)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judge's decision, with the parts of the digest that all members sign: of the judge's words, of the helper's seeds, and the last coin."""

    accepted: bool
    judge_digest: bytes
    helper_digest: bytes
    coin: bytes


def rows_of_blocks(columns: int, square: int) -> int:
    """Return the number of rows of a full block: 2^14, or the largest smaller power of two for which :meth:`BlockShape.check` passes.

    Raises UsageError where not even one row can be proven.
    """
    rows = LARGEST_BLOCK
    while rows > 1:
        try:
            BlockShape(rows, columns, square).check()
        except UsageError:
            rows //= 2
        else:
            return rows
    BlockShape(rows, columns, square).check()
    return rows


def bytes_of(name: str, value: object, size: int) -> None:
    """Raise ProtocolError unless a part of a message is bytes of this size."""
    if not isinstance(value, bytes) or len(value) != size:
        msg = f"{name}: not {size} bytes"
        raise ProtocolError(msg)


def residues(name: str, value: object, shape: tuple[int, ...]) -> None:
    """Raise ProtocolError unless a part of a message is an array of this shape of unsigned words below p."""
    if not isinstance(value, np.ndarray) or value.dtype != np.uint64 or value.shape != shape:
        msg = f"{name}: not unsigned words of shape {shape}"
        raise ProtocolError(msg)
    if value.size and int(value.max()) >= MODULUS:
        msg = f"{name}: a word that is not below 2^61 - 1"
        raise ProtocolError(msg)
