"""The statement that every row of a block is short, and the messages of its proof: its polynomials, its coins, and the equation that it is about."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import ProtocolError, UsageError
from unpooled.kernels.field import (
    GROUP,
    MODULUS,
    decode,
    encode,
    four_squares,
    linear_part,
    scaled,
    signed_sums,
    subtract,
    total,
    weighted_squares,
)
from unpooled.privacy.masks import SEED_BYTES, derived, length_prefixed, uniform_words
from unpooled.privacy.noise import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Words = NDArray[np.uint64]
    Integers = NDArray[np.int64]


# --- Polynomials -----------------------------------------------------------------------------------------------------------
# Single elements of the quadratic extension as pairs of Python integers, and polynomials by their values at 0, 1, 2 and so on.

Pair = tuple[int, int]
#: A digest of 32 bytes from which the words of a step of a proof are expanded.
Coin = bytes
ZERO: Pair = (0, 0)


def plus(a: Pair, b: Pair) -> Pair:
    """Return the sum of two elements."""
    return (a[0] + b[0]) % MODULUS, (a[1] + b[1]) % MODULUS


def minus(a: Pair, b: Pair) -> Pair:
    """Return the difference of two elements."""
    return (a[0] - b[0]) % MODULUS, (a[1] - b[1]) % MODULUS


def times(a: Pair, b: Pair) -> Pair:
    """Return the product of two elements."""
    return (a[0] * b[0] - a[1] * b[1]) % MODULUS, (a[0] * b[1] + a[1] * b[0]) % MODULUS


def pairs(words: NDArray[np.uint64]) -> list[Pair]:
    """Return the elements of an array of shape (n, 2)."""
    return [(int(real), int(imaginary)) for real, imaginary in words]


@cache
def _inverse(number: int) -> int:
    return pow(number, -1, MODULUS)


def value_at(values: Sequence[Pair], at: Pair) -> Pair:
    """Return the value of the polynomial that has these values at 0, 1, 2 and so on (Lagrange)."""
    out = ZERO
    for i, value in enumerate(values):
        for j in range(len(values)):
            if j != i:
                value = times(times(value, minus(at, (j, 0))), (_inverse(i - j), 0))  # noqa: PLW2901
        out = plus(out, value)
    return out


# --- Short rows ------------------------------------------------------------------------------------------------------------
# The statement that every row of a block is short, and the messages of its proof: numbers only, for one block of rows and one direction.
#
# A prover has rows B of integers, and sent B + R to the judge and the seed of the masks R to the helper. It proves to the two of them that every row has a
# squared length of at most ``BlockShape.square``. The prover sends one message to each of them (``prover.py``), the helper three numbers to the judge
# (``prover.py``), and the judge alone decides (the same file). THEORY.md next to this file says why it holds and what each of them learns.

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
        """Entries of a completed row whose size the signed sums bound."""
        return self.columns + self.roots

    @property
    def roots(self) -> int:
        """Integers that complete a row."""
        return ROOTS

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

    def completed(self, rows: Integers) -> Words:
        """Return each row with four integers whose squares add up to what its own square lacks, as residues of shape (rows, columns + 4)."""
        self.check_rows(rows)
        return encode(np.concatenate((rows, rooted(rows, self.square)), axis=1))

    def check_rows(self, rows: Integers) -> None:
        """Raise UsageError unless rows to be proven have the declared shape."""
        if rows.dtype != np.int64 or rows.shape != (self.rows, self.columns):
            raise UsageError("rows to be proven are not int64, or have another shape than declared")

    def check_foreign(self, foreign: Words | None) -> None:
        """Raise UsageError unless a proof that rows are short is given no places."""
        if foreign is not None:
            raise UsageError("a proof that rows are short knows nothing of places")

    def bounded(self, words: Words) -> Words:
        """Return the entries of completed rows that the signed sums are of: all of them."""
        return words

    def weights(self, coin: Coin) -> EquationWeights:
        """Return the weights of all equations that a coin expands to."""
        return EquationWeights.of(coin, self)

    def factor(self, weights: EquationWeights, rows: Words, bits: Words) -> tuple[Words, Pair]:
        """Return the judge's vector u of the inner product, and the part of the equation that is of its shares of the rows and bits alone."""
        return judges_factor(weights, rows, bits)

    def local(self, weights: EquationWeights, rows: Words, bits: Words, foreign: Words | None) -> Pair:
        """Return the part of the equation that is of the helper's shares of the rows and bits alone."""
        del foreign
        of_rows = weighted_squares(rows.ravel(), weights.rows, self.width)
        of_bits = weighted_squares(bits.ravel(), weights.bits.reshape(-1, 2), 1)
        return plus(*pairs(np.stack((of_rows, of_bits))))

    def opposite(self, rows: Words, bits: Words, foreign: Words | None) -> Words:
        """Return the helper's vector v of the inner product: its shares, of shape (entries,)."""
        del foreign
        return np.concatenate((rows.ravel(), bits.ravel()))

    def constant(self, weights: EquationWeights) -> Pair:
        """Return the part of the equation that holds no share: -L^2 times the rows' weights, and 2^t times the sums' weights."""
        of_rows = [-self.square * total(weights.rows[:, part]) for part in range(2)]
        of_sums = [total(weights.sums[:, part]) << self.wrap for part in range(2)]
        return (of_rows[0] + of_sums[0]) % MODULUS, (of_rows[1] + of_sums[1]) % MODULUS


def rooted(rows: Integers, square: int | Integers) -> Integers:
    """Return four integers for each row, whose squares add up to what the row's own square lacks of this."""
    longest = int(np.sqrt(float(np.max(square)))) + 1  # entries beyond it could overflow their squares
    if max(-int(rows.min()), int(rows.max())) > longest:
        raise UsageError("a row is longer than the proof declares: shorten the rows before they are coded")
    lack = square - np.einsum("ij,ij->i", rows, rows)
    if int(lack.min()) < 0:
        raise UsageError("a row is longer than the proof declares: shorten the rows before they are coded")
    return four_squares(lack)


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
        residues("shares of roots", self.roots, (shape.rows, shape.roots))
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
    """Return the number of rows of a full block of short rows (:func:`largest_block`)."""
    return largest_block(lambda rows: BlockShape(rows, columns, square))


def largest_block(shape: Callable[[int], BlockShape]) -> int:
    """Return the number of rows of a full block: 2^14, or the largest smaller power of two for which :meth:`BlockShape.check` passes.

    Raises UsageError where not even one row can be proven.
    """
    rows = LARGEST_BLOCK
    while rows > 1:
        try:
            shape(rows).check()
        except UsageError:
            rows //= 2
        else:
            return rows
    shape(rows).check()
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


# --- Coins -----------------------------------------------------------------------------------------------------------------
# The coins of a proof: a chain of digests that nobody chooses, and what they expand to.
#
# The first coin is the digest of the place, the shape and two digests that fix what the prover has shared; each later coin is the digest of the coin before
# and of the prover's next words. The helper computes the same chain from digests alone. They are keyed with a blind that the helper does not have:
# otherwise it, who knows all masks, could test guesses of rows against them.

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


# --- Claims ----------------------------------------------------------------------------------------------------------------
# The equation that a proof is about, as shares of an inner product: what the judge and the helper each compute from their own shares alone.
#
# With x = x_a + x_h for every word, the equations |x_i|^2 = L^2 of all rows, y + 2^t = (its bits) of all sums and t^2 = t of all bits, each times a weight of
# its own, add up to: parts of x_a alone, plus parts of x_h alone, plus 2 <u, v> with u = (weights times x_a) and v = x_h (Theorem J.6).

_MINUS_HALF: Pair = (-pow(2, -1, MODULUS) % MODULUS, 0)


def judges_factor(weights: EquationWeights, rows: Words, bits: Words) -> tuple[Words, Pair]:
    """Return the judge's vector u of the inner product, of shape (entries, 2), and the weighted sum of the squares of its shares."""
    out = np.empty((rows.size + bits.size, 2), dtype=np.uint64)
    of_rows = scaled(rows.ravel(), weights.rows, rows.shape[1], out[: rows.size])
    of_bits = scaled(bits.ravel(), weights.bits.reshape(-1, 2), 1, out[rows.size :])
    return out, plus(*pairs(np.stack((of_rows, of_bits))))


def claim(weights: EquationWeights, squares: Pair, sums: Words, bits: Words, constant: Pair = ZERO) -> Pair:
    """Return a share of what <u, v> must be: minus half of the part of the equation that one side computes alone."""
    linear = pairs(linear_part(sums, bits.reshape(SUMS, -1), weights.sums, weights.bits)[None])[0]
    return times(plus(plus(squares, linear), constant), _MINUS_HALF)


def folded(of_sum: Pair, ends: Words, at: Pair) -> Pair:
    """Return a share of the inner product of folded vectors, from shares of that of the whole ones and of the values at the points 0 and 2."""
    start, end = pairs(ends)
    return value_at((start, minus(of_sum, start), end), at)
