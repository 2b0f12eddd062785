"""The shape of a joint sum: which columns of parties are multiplied, and, of second moments, which integers are released and how a person moves them."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from unpooled.aggregation.joint.short_rows import rows_of_blocks
from unpooled.privacy.mechanisms import Block

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.privacy.unit import Adjacency

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Words = NDArray[np.uint64]

#: Steps of the grid per unit of a standardised value, and the constant of a row in steps: about .7.
GRID, CONSTANT_STEPS = 1 << 10, 717
#: The constant of a row.
JOINT_CONSTANT = CONSTANT_STEPS / GRID


@dataclass(frozen=True)
class RowPart:
    """A party's part of every row that is masked and proven on its own: its number of integers, and the bound on their sum of squares in squared steps."""

    party: str
    columns: int
    square: int
    #: Its name among the parts of its party; empty where there is one.
    name: str = ""


@dataclass(frozen=True)
class ProductShape(ABC):
    """The parts of a row in the study's order, whose products of columns at different parties are added up, once or in several rounds."""

    parts: tuple[RowPart, ...]
    rows: int
    #: Whether products of columns of one party, and their sums, are released too.
    diagonal: ClassVar[bool] = False

    @property
    def settings(self) -> int:
        """Return the number of public coefficients that the parts of a round depend on: none, unless a shape says otherwise."""
        return 0

    @property
    @abstractmethod
    def rounds(self) -> int:
        """Return the number of rounds, each a release of its own."""

    @property
    @abstractmethod
    def products(self) -> tuple[tuple[int, int], ...]:
        """Return the pairs of parts whose columns are multiplied: the part of the earlier party first."""

    @abstractmethod
    def released(self, whole: Words) -> Words:
        """Return the released integers in order, from the matrix of products of all columns and, last, a constant."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Return the number of released integers."""

    @property
    @abstractmethod
    def most(self) -> int:
        """Return the largest absolute value that one person adds to a released integer."""

    @property
    @abstractmethod
    def blocks(self) -> tuple[Block, ...]:
        """Return the relative noise of the released integers."""

    @abstractmethod
    def distance(self, adjacency: Adjacency) -> float:
        """Return the most that one person moves the released integers of a round, each divided by its relative noise, in the Euclidean norm."""

    @cached_property
    def parties(self) -> tuple[str, ...]:
        """Return the parties of all parts, in the study's order."""
        return tuple(dict.fromkeys(part.party for part in self.parts))

    @cached_property
    def columns(self) -> int:
        """Return the number of columns of all parts, without the constant."""
        return sum(part.columns for part in self.parts)

    @cached_property
    def spans(self) -> tuple[slice, ...]:
        """Return the place of every part's columns in a row."""
        ends = np.cumsum([0, *(part.columns for part in self.parts)]).tolist()
        return tuple(slice(a, b) for a, b in itertools.pairwise(ends))

    @cached_property
    def block_rows(self) -> int:
        """Return the number of rows of a block: the most that can be proven of every part."""
        return min(rows_of_blocks(part.columns, part.square) for part in self.parts)

    @cached_property
    def row_blocks(self) -> tuple[tuple[int, int], ...]:
        """Return the first row of every block, and the row behind its last."""
        size = self.block_rows
        return tuple((start, min(start + size, self.rows)) for start in range(0, self.rows, size))


@dataclass(frozen=True)
class JointShape(ProductShape):
    """One part of every party, and last a constant that belongs to nobody: all second moments of a row, in one round."""

    diagonal: ClassVar[bool] = True

    @property
    def rounds(self) -> int:
        """Return one."""
        return 1

    @cached_property
    def places(self) -> dict[str, slice]:
        """Return the place of every party's columns in a row."""
        return {part.party: span for part, span in zip(self.parts, self.spans, strict=True)}

    @cached_property
    def products(self) -> tuple[tuple[int, int], ...]:
        """Return every pair of parts."""
        return tuple(itertools.combinations(range(len(self.parts)), 2))

    def released(self, whole: Words) -> Words:
        """Return the released entries of the matrix."""
        return whole[self.pairs]

    @property
    def most(self) -> int:
        """Return the largest absolute value that one person adds to an entry."""
        return max(part.square for part in self.parts)

    @cached_property
    def square(self) -> int:
        """Return R^2 in squared steps: the largest squared length of a whole row, the constant included."""
        return sum(part.square for part in self.parts) + CONSTANT_STEPS**2

    @cached_property
    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return (rows, columns) of the released entries of the matrix: its diagonal, then what is above it; not the square of the constant."""
        width = self.columns + 1
        first, second = np.triu_indices(width, 1)
        diagonal = np.arange(self.columns)
        return np.concatenate([diagonal, first]), np.concatenate([diagonal, second])

    @property
    def size(self) -> int:
        """Return the number of released integers."""
        return self.pairs[0].size

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Return the relative noise of the entries: those off the diagonal stand twice in the matrix, and have half the variance."""
        off = self.size - self.columns
        return Block(self.columns, 1.0), Block(off, math.sqrt(0.5))

    def distance(self, adjacency: Adjacency) -> float:
        """Return the most that one person moves the matrix, in the Frobenius norm: sqrt 2 R^2 under replace, R^2 under zero-out (Theorem F.9.4)."""
        from unpooled.privacy.sensitivity import moments_augmented

        return moments_augmented(math.sqrt(self.square), adjacency)

    def whole(self, values: Floats, of_constant: float) -> Floats:
        """Return the symmetric matrix with these released entries; ``of_constant`` stands in the place of the constant's square."""
        width = self.columns + 1
        found = np.zeros((width, width))
        found[self.pairs] = values
        found[self.pairs[::-1]] = values
        found[-1, -1] = of_constant
        return found
