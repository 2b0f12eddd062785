"""Sums over hidden people: what is added up of rows at places, of which nobody knows which are of people whom both parties have.

A party's row at a place is (p, x, U): present or not, columns, and products of its own columns, proven together (``placed_rows.py``). Products of one party's
columns count times the other party's presence, sums are columns times presences, and the number of people in common is presences times presences. So a
person whom both have adds what a row of a study without hidden people adds, and everybody else nothing (Theorem H.4).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np

from unpooled.kernels import field
from unpooled.linear.layout import blocks_of
from unpooled.privacy.sensitivity import flagged_moments, placed_sums
from unpooled.privacy.unit import Adjacency
from unpooled.products.placed_rows import Carried
from unpooled.products.sums import CONSTANT_STEPS, GRID, JointShape, ProductShape, RowPart
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.privacy.mechanisms import Block

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Words = NDArray[np.uint64]
    Index = NDArray[np.intp]

_TUNED = table("joint")


@dataclass(frozen=True)
class ReleasedEntries:
    """Released integers of one kind: their places among all products, by what each is multiplied, and its relative noise."""

    first: Index
    second: Index
    times: int
    noise: Floats


class PlacedShape(ProductShape):
    """Rows at places of two parties, each with presence, columns and products of its own columns."""

    @property
    def rounds(self) -> int:
        """Return one."""
        return 1

    @cached_property
    def products(self) -> tuple[tuple[int, int], ...]:
        """Return the one pair of parts, for each of the three ways in which their columns are multiplied."""
        return ((0, 1),) * 3

    @cached_property
    def factors(self) -> tuple[tuple[slice, slice], ...]:
        """Return presence and columns with each other, and either party's own products with the other's presence."""
        (own, squares), (others, of_others) = (part.slices for part in self.parts)
        presence = slice(0, 1)
        return (own, others), (squares, presence), (presence, of_others)

    @cached_property
    @abstractmethod
    def entries(self) -> tuple[ReleasedEntries, ...]:
        """Return what is released, in order."""

    @cached_property
    def _places(self) -> list[tuple[Index, Index, Index]]:
        """Return of each part the places of presence, columns and own products among all columns."""
        found = []
        for part, span in zip(self.parts, self.spans, strict=True):
            at, inner = np.arange(span.start, span.stop), part.inner
            found.append((at[:1], at[1 : 1 + inner], at[1 + inner :]))
        return found

    @staticmethod
    def _ordered(one: Index, other: Index, party: int) -> tuple[Index, Index]:
        """Return two lists of columns with that of the first party first."""
        one, other = (np.broadcast_to(each, (max(one.size, other.size),)) for each in (one, other))
        return (one, other) if party == 0 else (other, one)

    def released(self, whole: Words) -> Words:
        """Return the released integers in order."""
        found = []
        for entry in self.entries:
            words = np.ascontiguousarray(whole[entry.first, entry.second])
            found.append(words if entry.times == 1 else field.multiply(words, np.full_like(words, entry.times)))
        return np.concatenate(found)

    def exact(self, parts: Sequence[Ints]) -> Floats:
        """Return the released integers without noise, from (p, x, U) of each party."""
        whole, found = np.column_stack(parts).astype(float), np.zeros((self.columns, self.columns))
        starts = [span.start for span in self.spans]
        for columns in self.factors:
            at = tuple(slice(start + some.start, start + some.stop) for start, some in zip(starts, columns, strict=True))
            found[at] = whole[:, at[0]].T @ whole[:, at[1]]
        return np.concatenate([found[entry.first, entry.second] * entry.times for entry in self.entries])

    @property
    def size(self) -> int:
        """Return the number of released integers."""
        return sum(entry.first.size for entry in self.entries)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Return the relative noise of the integers, in runs of equal noise."""
        return blocks_of(np.concatenate([entry.noise for entry in self.entries]))


@dataclass(frozen=True)
class PlacedSums(PlacedShape):
    """Sums and sums of squares of every party's columns over people whom both have, and how many these are: from which means and deviations follow."""

    #: The weights of every party's columns relative to one another, and that of a sum relative to its sum of squares.
    weights: tuple[tuple[float, ...], ...]
    first_weight: float
    #: The weight of the number of people.
    count: float

    @classmethod
    def of(cls, weights: dict[str, tuple[float, ...]], rows: int, first: float) -> Self:
        """Return the shape for columns of these weights in [-1, 1] and this number of places."""
        parts = tuple(
            RowPart.placed(party, len(own), GRID**2, Carried.SQUARES, apart=True) for party, own in weights.items()
        )
        whole = math.fsum(weight**2 for own in weights.values() for weight in own)
        # A person in common takes up (first^2 + 1) of the squared distance for each column, and the count this part of that.
        count = math.sqrt(_TUNED.people_part * whole * (first**2 + 1))
        return cls(parts, rows, tuple(weights.values()), first, count)

    @cached_property
    def entries(self) -> tuple[ReleasedEntries, ...]:
        """Return of each party its sums and its sums of squares, and last the number of people."""
        found = []
        for party, (_, columns, squares) in enumerate(self._places):
            weights, mark = np.array(self.weights[party]), self._places[1 - party][0]
            found.append(ReleasedEntries(*self._ordered(columns, mark, party), GRID, GRID**2 / self.first_weight / weights))
            found.append(ReleasedEntries(*self._ordered(squares, mark, party), 1, GRID**2 / weights))
        one, other = (places[0] for places in self._places)
        return (*found, ReleasedEntries(one, other, GRID**2, np.array([GRID**2 / self.count])))

    @property
    def most(self) -> int:
        """Return the largest absolute value that one person adds to an integer."""
        return GRID**2

    def distance(self, adjacency: Adjacency) -> float:
        """Return the most that one person moves the sums (Theorem H.5)."""
        whole = math.fsum(weight**2 for own in self.weights for weight in own)
        return placed_sums(whole, self.first_weight, self.count, adjacency)

    def split(self, values: Floats) -> tuple[list[tuple[Floats, Floats]], float]:
        """Return of each party its sums and sums of squares, and the number of people, of released integers or deviations in units of columns."""
        found, at = [], 0
        for own in self.weights:
            size = len(own)
            sums, squares = values[at : at + size], values[at + size : at + 2 * size]
            found.append((sums / GRID**2, squares / GRID**2))
            at += 2 * size
        return found, float(values[-1]) / GRID**2


@dataclass(frozen=True)
class PlacedMoments(PlacedShape):
    """All second moments of people whom both parties have, their number among them."""

    #: The shape of the columns alone.
    of_rows: JointShape
    #: v: the noise of the number of people relative to that of a diagonal entry.
    quiet: float
    #: The number of public coefficients by which rows are standardised.
    settings: int = 0

    @classmethod
    def of(cls, rows: JointShape, adjacency: Adjacency, settings: int) -> Self:
        """Return the shape for these columns; the count of people is as quiet as :class:`~unpooled.products.presence.FlaggedShape` has it."""
        parts = tuple(RowPart.placed(part.party, part.columns, part.square, Carried.ALL) for part in rows.parts)
        ratio = CONSTANT_STEPS**2 / rows.square
        quiet = ratio if adjacency is Adjacency.REPLACE else 1 / math.sqrt(1 + _TUNED.count_part / ratio**2)
        return cls(parts, rows.rows, rows, quiet, settings)

    @cached_property
    def entries(self) -> tuple[ReleasedEntries, ...]:
        """Return own products of both parties, products of both, sums, and last the number of people."""
        found = []
        for party, (part, (_, _, squares)) in enumerate(zip(self.parts, self._places, strict=True)):
            one, other = Carried.ALL.pairs(part.inner)
            noise = np.where(one == other, 1.0, math.sqrt(0.5))
            found.append(ReleasedEntries(*self._ordered(squares, self._places[1 - party][0], party), 1, noise))
        (mark, columns, _), (other_mark, others, _) = self._places
        i, j = (grid.ravel() for grid in np.meshgrid(columns, others, indexing="ij"))
        found.append(ReleasedEntries(i, j, 1, np.full(i.size, math.sqrt(0.5))))
        for party, own in enumerate((columns, others)):
            at = self._ordered(own, (other_mark, mark)[party], party)
            found.append(ReleasedEntries(*at, CONSTANT_STEPS, np.full(own.size, math.sqrt(0.5))))
        return (*found, ReleasedEntries(mark, other_mark, CONSTANT_STEPS**2, np.array([self.quiet])))

    @property
    def most(self) -> int:
        """Return the largest absolute value that one person adds to an integer."""
        longest = max(math.isqrt(part.square) + 1 for part in self.parts)
        return max(longest, CONSTANT_STEPS) ** 2

    @property
    def square(self) -> int:
        """Return R^2 in squared steps: the largest squared length of a person's row, the constant included."""
        return self.of_rows.square

    @property
    def places(self) -> dict[str, slice]:
        """Return the place of every party's columns in a row."""
        return self.of_rows.places

    def distance(self, adjacency: Adjacency) -> float:
        """Return the most that one person moves the matrix, its corner divided by its relative noise (Theorem H.4)."""
        return flagged_moments(math.sqrt(self.square), CONSTANT_STEPS, self.quiet, 0.0, adjacency)

    def decoded(self, values: Floats, deviations: Floats, rows: int) -> tuple[Floats, Floats]:
        """Return the matrix of second moments and the variances of its noise, in units of standardised columns; ``rows``: of the study, hidden or not."""
        del rows
        last, spans = self.of_rows.columns, self.of_rows.spans
        own = [np.triu_indices(part.inner) for part in self.parts]
        held = [np.arange(span.start, span.stop) for span in spans]
        i, j = (grid.ravel() for grid in np.meshgrid(*held, indexing="ij"))
        one = np.concatenate([held[0][own[0][0]], held[1][own[1][0]], i, *held, [last]])
        other = np.concatenate([held[0][own[0][1]], held[1][own[1][1]], j, *(np.full(at.size, last) for at in held), [last]])
        found = np.zeros((2, last + 1, last + 1))
        for matrix, entries in zip(found, (values / GRID**2, np.square(deviations / GRID**2)), strict=True):
            matrix[one, other] = matrix[other, one] = entries
        return found[0], found[1]
