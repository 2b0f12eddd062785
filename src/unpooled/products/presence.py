"""Rows with gaps at two parties: a row that is not whole at both contributes nothing anywhere, and nobody learns which ones these are.

A party's row is (c a, c, c vech aa'): its columns a, the mark c of a row that is whole at the party (1 or 0, times the constant), and the products of its own
columns, those of two different ones times sqrt 2. Each of the three is masked and proven by itself. Products of one party's columns are added up as their
squares times the other party's marks; sums as columns times marks; the number of whole rows as marks times marks. So what one person adds is
c_a c_b (a, b, w)(a, b, w)', as long as before, whatever one of the two sends (Theorem J.13).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np

from unpooled.linear.layout import blocks_of
from unpooled.privacy.sensitivity import flagged_moments
from unpooled.privacy.unit import Adjacency
from unpooled.products.rows import shortened_to, within
from unpooled.products.sums import CONSTANT_STEPS, GRID, JointShape, ProductShape, RowPart
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.privacy.mechanisms import Block

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Words = NDArray[np.uint64]
    Places = NDArray[np.intp]

#: The names of a party's parts other than its columns: the marks of whole rows, and the products of its own columns.
FLAG, SQUARES = "flag", "squares"
#: The marks of whole rows: the constant of a row, or nothing. Their bound is proven apart from that of the columns.
_FLAG = RowPart("", 1, CONSTANT_STEPS**2, FLAG)
#: Products of own columns have no more steps than this, so that blocks of some thousand rows can be proven.
_LONGEST = 1 << 16
_TUNED = table("joint")
#: A row's place times this, without its whole part: any run of rows has these numbers spread evenly over [0, 1).
_SPREAD = (math.sqrt(5) - 1) / 2


def steps_of(square: int) -> float:
    """Return the steps per unit of a product of two columns, a power of two, for rows of this squared length in squared steps."""
    return 2.0 ** math.floor(math.log2(_LONGEST * GRID**2 / square))


def squares_part(part: RowPart) -> RowPart:
    """Return the part that holds the products of a part's own columns: as a vector, they are as long as the row is squared."""
    longest = int(part.square * steps_of(part.square) / GRID**2)
    return RowPart(part.party, part.columns * (part.columns + 1) // 2, longest**2, SQUARES)


def squares_of(rows: Ints, part: RowPart, first: int) -> Ints:
    """Return the products of all columns of these rows, the first of which has this place in the study, as integers no longer than their part.

    They are rounded up or down by the row's place, in equal shares over any run of rows: to nearest, a column with two values would be off in every row.
    """
    one, other = np.triu_indices(rows.shape[1])
    weights = np.where(one == other, 1.0, math.sqrt(2)) * steps_of(part.square) / GRID**2
    found = (rows[:, one] * rows[:, other]).astype(np.float64) * weights
    own = squares_part(part)
    shortened_to(found, math.sqrt(own.square) - math.sqrt(own.columns))
    place = (np.arange(first, first + len(rows)) * _SPREAD) % 1.0
    return within(np.floor(found + place[:, None]).astype(np.int64), own.square)


@dataclass(frozen=True)
class FlaggedShape(ProductShape):
    """Three parts of each of two parties, and all second moments of the rows that are whole at both, their number among them."""

    #: The shape of the columns alone.
    of_rows: JointShape
    #: v: the noise of the number of whole rows relative to that of a diagonal entry.
    quiet: float

    @classmethod
    def of(cls, rows: JointShape, adjacency: Adjacency) -> Self:
        """Return the shape for these columns.

        Where persons are replaced, a person who stays whole moves no count, so that the count of whole rows may be as quiet as its part of a row that
        vanishes leaves room for, at no cost. Where they vanish, it takes a small part of the squared distance.
        """
        parts = tuple(part for own in rows.parts for part in (own, replace(_FLAG, party=own.party), squares_part(own)))
        ratio = CONSTANT_STEPS**2 / rows.square
        quiet = ratio if adjacency is Adjacency.REPLACE else 1 / math.sqrt(1 + _TUNED.count_part / ratio**2)
        return cls(parts, rows.rows, rows, quiet)

    @property
    def rounds(self) -> int:
        """Return one."""
        return 1

    @cached_property
    def products(self) -> tuple[tuple[int, int], ...]:
        """Return the pairs of parts whose columns are multiplied: columns and marks with each other, squares with marks."""
        return (0, 3), (0, 4), (1, 3), (1, 4), (2, 4), (1, 5)

    @cached_property
    def _entries(self) -> tuple[tuple[Places, Places], tuple[Places, Places], Floats, Floats]:
        """Return, of the released integers, their places among products, and in the matrix of second moments; their units; and their relative noise."""
        rows, flags, squares = ([self.spans[k + 3 * party] for party in range(2)] for k in range(3))
        at, spans, last = [np.arange(span.start, span.stop) for span in rows], self.of_rows.spans, self.of_rows.columns
        held = [np.arange(span.start, span.stop) for span in spans]
        found: list[tuple[Places, Places, Places, Places, Floats, float]] = []
        for party, part in enumerate(self.of_rows.parts):
            i, j = np.triu_indices(part.columns)
            place, mark = np.arange(squares[party].start, squares[party].stop), np.full(i.size, flags[1 - party].start)
            unit = steps_of(part.square) * CONSTANT_STEPS
            pair = (place, mark) if party == 0 else (mark, place)
            weight = 1 / (unit * np.where(i == j, 1.0, math.sqrt(2)))
            found.append((*pair, held[party][i], held[party][j], weight, unit / GRID**2))
        i, j = (grid.ravel() for grid in np.meshgrid(*(np.arange(own.size) for own in at), indexing="ij"))
        pairs = [(at[0][i], at[1][j], held[0][i], held[1][j])]
        marks = [np.full(at[party].size, flags[1 - party].start) for party in range(2)]
        pairs += [
            (at[0], marks[0], held[0], np.full(at[0].size, last)),
            (marks[1], at[1], held[1], np.full(at[1].size, last)),
        ]
        found += [(*pair, np.full(pair[0].size, 1 / GRID**2), math.sqrt(0.5)) for pair in pairs]
        corner = tuple(np.array([k]) for k in (flags[0].start, flags[1].start, last, last))
        found.append((*corner, np.array([1 / GRID**2]), self.quiet))  # type: ignore[arg-type]
        first, second, one, other, units = (np.concatenate([entry[k] for entry in found]) for k in range(5))
        noise = np.concatenate([np.full(entry[0].size, entry[5]) for entry in found])
        return (first, second), (one, other), units, noise

    def released(self, whole: Words) -> Words:
        """Return the released integers in order: own products of both parties, products of both, sums, and last the number of whole rows."""
        return whole[self._entries[0]]

    @property
    def size(self) -> int:
        """Return the number of released integers."""
        return self._entries[2].size

    @property
    def square(self) -> int:
        """Return R^2 in squared steps: the largest squared length of a whole row, the constant included."""
        return self.of_rows.square

    @property
    def most(self) -> int:
        """Return the largest absolute value that one person adds to an integer."""
        lengths = [math.isqrt(part.square) + 1 for part in self.parts]
        return max(lengths[first] * lengths[second] for first, second in self.products)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Return the relative noise of the integers, in runs of equal noise."""
        return blocks_of(self._entries[3])

    def distance(self, adjacency: Adjacency) -> float:
        """Return the most that one person moves the matrix, its corner divided by its relative noise (Theorem J.13)."""
        return flagged_moments(math.sqrt(self.square), CONSTANT_STEPS, self.quiet, self.rounding, adjacency)

    @property
    def rounding(self) -> float:
        """Return how far apart the rounding of products of own columns moves two whole rows: by less than a step in each of them."""
        own = ((part.columns * (part.columns + 1) / 2, GRID**2 / steps_of(part.square)) for part in self.of_rows.parts)
        return math.sqrt(math.fsum(count * step**2 for count, step in own))

    @property
    def places(self) -> dict[str, slice]:
        """Return the place of every party's columns in a row."""
        return self.of_rows.places

    def decoded(self, values: Floats, deviations: Floats, rows: int) -> tuple[Floats, Floats]:
        """Return the matrix of second moments and the variances of its noise, in units of standardised columns; ``rows``: of the study, whole or not."""
        del rows
        (one, other), units = self._entries[1:3]
        found = np.zeros((2, self.of_rows.columns + 1, self.of_rows.columns + 1))
        for matrix, entries in zip(found, (values * units, np.square(deviations * units)), strict=True):
            matrix[one, other] = matrix[other, one] = entries
        return found[0], found[1]

    def exact(self, parts: Sequence[Ints]) -> Floats:
        """Return the released integers without noise, from the columns of all parts of each party."""
        whole, found = np.column_stack(parts).astype(float), np.zeros((self.columns, self.columns))
        for first, second in self.products:
            at = self.spans[first], self.spans[second]
            found[at] = whole[:, at[0]].T @ whole[:, at[1]]
        return np.asarray(found[self._entries[0]])
