"""The joint second moments of a study: which integers are added up, in which order, and how much one person can move them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from unpooled.aggregation.joint.short_rows import rows_of_blocks
from unpooled.privacy.mechanisms import Block

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.privacy.unit import Adjacency

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

#: Steps of the grid per unit of a standardised value, and the constant of a row in steps: about .7.
GRID, CONSTANT_STEPS = 1 << 10, 717
#: The constant of a row.
JOINT_CONSTANT = CONSTANT_STEPS / GRID


@dataclass(frozen=True)
class RowPart:
    """One party's part of every row: its number of integers, and the bound on their sum of squares in squared steps."""

    party: str
    columns: int
    square: int


@dataclass(frozen=True)
class JointShape:
    """The parts of a row in the study's order, and last a constant that belongs to nobody."""

    parts: tuple[RowPart, ...]
    rows: int

    @cached_property
    def columns(self) -> int:
        """Return the number of columns of all parts, without the constant."""
        return sum(part.columns for part in self.parts)

    @cached_property
    def places(self) -> dict[str, slice]:
        """Return the place of every party's columns in a row."""
        ends = np.cumsum([0, *(part.columns for part in self.parts)]).tolist()
        return {part.party: slice(a, b) for part, a, b in zip(self.parts, ends[:-1], ends[1:], strict=True)}

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

    @cached_property
    def block_rows(self) -> int:
        """Return the number of rows of a block: the most that can be proven of every part."""
        return min(rows_of_blocks(part.columns, part.square) for part in self.parts)

    @cached_property
    def row_blocks(self) -> tuple[tuple[int, int], ...]:
        """Return the first row of every block, and the row behind its last."""
        size = self.block_rows
        return tuple((start, min(start + size, self.rows)) for start in range(0, self.rows, size))

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
