"""The statement that every row is somebody's or nobody's, and lies at a place of the sender's own: what linked rows of hidden people prove.

A row is (p, x, U): a presence p, the columns x, and products U of its own columns (all of them, their squares, or none). The sender proves to judge and
helper together, with the proof of short rows, that for every row

    p^2 = p,    |x|^2 + (four squares) = L^2 p (of the whole row, or of every column by itself),    U_jk = x_j x_k,    s p = 0,

where s is 1 for a place that the helper never gave to the sender. The helper and the sender know s, the judge does not (Theorem H.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import UsageError
from unpooled.kernels.field import MODULUS, encode, linear_form, multiply_pairs, quadratic, scaled, total, weighted_squares
from unpooled.privacy.masks import derived, length_prefixed, uniform_words
from unpooled.products.short_rows import ROOTS, SUMS, BlockShape, EquationWeights, pairs, plus, rooted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.products.short_rows import Coin, Pair

    Words = NDArray[np.uint64]
    Ints = NDArray[np.int64]

_HALF = pow(2, -1, MODULUS)


class Carried(StrEnum):
    """Which products of its own columns a row carries."""

    NONE = "none"
    SQUARES = "squares"
    ALL = "all"

    def pairs(self, columns: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the columns that are multiplied, in the order of the products."""
        if self is Carried.ALL:
            return np.triu_indices(columns)
        each = np.arange(columns if self is Carried.SQUARES else 0)
        return each, each


def placed(rows: Ints, present: NDArray[np.bool_], own: Carried) -> Ints:
    """Return (p, x, U) for rows of columns; those of nobody are zeros."""
    x = rows * present[:, None]
    one, other = own.pairs(rows.shape[1])
    return np.concatenate((present[:, None].astype(np.int64), x, x[:, one] * x[:, other]), axis=1)


@dataclass(frozen=True, slots=True)
class PlacedWeights(EquationWeights):
    """The weights of all equations: those of rows, sums and bits, and for the kinds of equations of a row one each."""

    #: The symmetric form of the columns, of shape (d, d, 2), and the diagonal of roots and presence.
    form: Words
    diagonal: Words
    #: The linear form of presence and products.
    linear: Words
    #: Half the weight of s p.
    foreign: Words


@dataclass(frozen=True, slots=True)
class PlacedBlock(BlockShape):
    """Holds the size of a block of placed rows: ``columns`` counts all of (p, x, U), ``square`` is L^2 of a row or of each column."""

    #: The number of columns x.
    inner: int = 0
    own: Carried = Carried.NONE
    #: Whether every column is bounded by itself, instead of the row.
    apart: bool = False

    @classmethod
    def of(cls, rows: int, inner: int, square: int, own: Carried, *, apart: bool) -> PlacedBlock:
        """Return the shape for this number of columns."""
        return cls(rows, 1 + inner + own.pairs(inner)[0].size, square, inner, own, apart)

    @property
    def roots(self) -> int:
        """Integers that complete a row: four for the row, or for each of its columns."""
        return ROOTS * (self.inner if self.apart else 1)

    @property
    def width(self) -> int:
        """Entries of a completed row whose size the signed sums bound: columns and roots."""
        return self.inner + self.roots

    @property
    def entries(self) -> int:
        """Length of the vectors whose inner product is proven: columns, roots, presence and place of every row, and the bits of all sums."""
        return self.rows * (self.width + 2) + SUMS * self.bits

    @property
    def wrap(self) -> int:
        """The smallest t with 2^t >= 10 L sqrt(rows/2), L being the length of a whole row."""
        least = 50 * self.square * (self.inner if self.apart else 1) * self.rows
        return (max(0, least - 1).bit_length() + 1) // 2

    def bytes(self) -> bytes:
        """Return the shape as bytes that no other shape has."""
        words = (self.rows, self.inner, str(self.own), int(self.apart), self.square, self.wrap, SUMS)
        return length_prefixed("placed shape", *words)

    def check_foreign(self, foreign: Words | None) -> None:
        """Raise UsageError unless every row has a 0 or a 1 for its place."""
        if foreign is None or foreign.dtype != np.uint64 or foreign.shape != (self.rows,) or int(foreign.max()) > 1:
            raise UsageError("a proof about placed rows needs a 0 or a 1 for the place of every row")

    def completed(self, rows: Ints) -> Words:
        """Return each row with the integers whose squares add up to what its columns lack."""
        self.check_rows(rows)
        present, x = rows[:, 0], np.ascontiguousarray(rows[:, 1 : 1 + self.inner])
        one, other = self.own.pairs(self.inner)
        if ((present != 0) & (present != 1)).any() or not np.array_equal(rows[:, 1 + self.inner :], x[:, one] * x[:, other]):
            raise UsageError("a placed row has a presence of 0 or 1, and the products of its own columns")
        lacks = self.square * present
        if not self.apart:
            roots = rooted(x, lacks)
        else:
            roots = np.concatenate([rooted(x[:, k : k + 1], lacks) for k in range(self.inner)], axis=1)
        return encode(np.concatenate((rows, roots), axis=1))

    def bounded(self, words: Words) -> Words:
        """Return the columns and roots: a presence is 0 or 1, and a product is that of its columns, in the field already."""
        return np.concatenate((words[:, 1 : 1 + self.inner], words[:, self.columns :]), axis=1)

    def weights(self, coin: Coin) -> PlacedWeights:
        """Return the weights of all equations that a coin expands to."""

        def drawn(name: str, *size: int) -> Words:
            return uniform_words(derived(coin, name), 2 * int(np.prod(size))).reshape(*size, 2)

        one, other = self.own.pairs(self.inner)
        lengths = drawn("lengths", self.inner if self.apart else 1)
        presence, foreign, products = (
            drawn("presence", 1),
            drawn("foreign", 1),
            drawn("products", max(one.size, 1))[: one.size],
        )
        form = np.zeros((self.inner, self.inner, 2), dtype=np.uint64)
        for part in range(2):
            of_pair = [int(word) for word in products[:, part]]
            own = [int(word) for word in np.broadcast_to(lengths[:, part], (self.inner,))]
            for k in range(self.inner):
                form[k, k, part] = own[k]
            for i, j, weight in zip(one.tolist(), other.tolist(), of_pair, strict=True):
                less = (-weight * _HALF) % MODULUS if i != j else -weight
                for at in {(i, j), (j, i)}:
                    form[(*at, part)] = (int(form[(*at, part)]) + less) % MODULUS
        diagonal = np.concatenate((np.repeat(lengths, ROOTS, axis=0), presence))
        of_presence = [(-self.square * total(lengths[:, part]) - int(presence[0, part])) % MODULUS for part in range(2)]
        linear = np.concatenate((np.array([of_presence], dtype=np.uint64), products))
        half = np.array([[(int(word) * _HALF) % MODULUS for word in foreign[0]]], dtype=np.uint64)
        plain = (drawn("rows", self.rows), drawn("sums", SUMS), drawn("bits", SUMS, self.bits))
        return PlacedWeights(*plain, form, diagonal, linear, half)

    def _inner(self, rows: Words) -> Words:
        """Return columns, roots and presence of every row, in the order of the vectors."""
        return np.concatenate((rows[:, 1 : 1 + self.inner], rows[:, self.columns :], rows[:, :1]), axis=1)

    def _linear(self, weights: PlacedWeights, rows: Words) -> Pair:
        words = np.concatenate((rows[:, :1], rows[:, 1 + self.inner : self.columns]), axis=1)
        return pairs(linear_form(words, weights.linear, weights.rows)[None])[0]

    def factor(self, weights: EquationWeights, rows: Words, bits: Words) -> tuple[Words, Pair]:
        """Return the judge's vector u of the inner product, and the part of the equation that is of its shares of the rows and bits alone."""
        assert isinstance(weights, PlacedWeights)
        words = self._inner(rows)
        count, width = words.shape
        of_row = np.empty((count, width + 1, 2), dtype=np.uint64)
        held = np.empty((count, width, 2), dtype=np.uint64)
        squares = quadratic(words, weights.form, weights.diagonal, weights.rows, held)
        of_row[:, :width] = held
        of_row[:, width] = self._of_presence(weights, rows)
        of_bits = np.empty((bits.size, 2), dtype=np.uint64)
        more = scaled(bits.ravel(), weights.bits.reshape(-1, 2), 1, of_bits)
        local = plus(plus(*pairs(np.stack((squares, more)))), self._linear(weights, rows))
        return np.concatenate((of_row.reshape(-1, 2), of_bits)), local

    @staticmethod
    def _of_presence(weights: PlacedWeights, rows: Words) -> Words:
        """Return the share of every presence times half the weight of s p, and the weight of its row."""
        own = np.broadcast_to(weights.foreign, weights.rows.shape)
        both = multiply_pairs(np.ascontiguousarray(own), weights.rows)
        presence = np.zeros_like(both)
        presence[:, 0] = rows[:, 0]
        return multiply_pairs(both, presence)

    def local(self, weights: EquationWeights, rows: Words, bits: Words, foreign: Words | None) -> Pair:
        """Return the part of the equation that is of the helper's shares of the rows and bits, and of what it knows of places, alone."""
        assert isinstance(weights, PlacedWeights)
        assert foreign is not None
        words = self._inner(rows)
        squares = quadratic(
            words, weights.form, weights.diagonal, weights.rows, np.empty((*words.shape, 2), dtype=np.uint64)
        )
        more = weighted_squares(bits.ravel(), weights.bits.reshape(-1, 2), 1)
        halves = self._of_presence(weights, rows)[foreign == 1]
        of_places = tuple(2 * total(np.ascontiguousarray(halves[:, part])) % MODULUS for part in range(2))
        found = plus(plus(*pairs(np.stack((squares, more)))), self._linear(weights, rows))
        return plus(found, (of_places[0], of_places[1]))

    def opposite(self, rows: Words, bits: Words, foreign: Words | None) -> Words:
        """Return the helper's vector v of the inner product: its shares, and after those of each row whether the place is foreign."""
        assert foreign is not None
        return np.concatenate((np.concatenate((self._inner(rows), foreign[:, None]), axis=1).ravel(), bits.ravel()))

    def constant(self, weights: EquationWeights) -> Pair:
        """Return the part of the equation that holds no share: 2^t times the sums' weights."""
        of_sums = [total(weights.sums[:, part]) << self.wrap for part in range(2)]
        return of_sums[0] % MODULUS, of_sums[1] % MODULUS
