"""Rounds of sines for two parties: the gradient of a bounded loss, whose influence function is a sine, as products of columns of both.

With p_a at one party and p_b at the other, sin(p_a + p_b) = sin p_a cos p_b + cos p_a sin p_b. So the sum over persons of z_a sin(p_a + p_b) is
(z_a sin p_a | z_a cos p_a) of one party times (cos p_b, sin p_b) of the other. Every party has two parts, masked and proven apart: the products
of its columns with its sine and its cosine, no longer than the row z_a, and (cosine, sine), no longer than 1. So one person adds at most the length
of its row to the total, whatever anybody holds (Theorem J.12).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np

from unpooled.kernels import field
from unpooled.privacy.mechanisms import Block
from unpooled.privacy.sensitivity import clipped_products
from unpooled.products.sums import CONSTANT_STEPS, GRID, JOINT_CONSTANT, ProductShape, RowPart

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from unpooled.privacy.unit import Adjacency

    Words = NDArray[np.uint64]
    Places = tuple[NDArray[np.intp], NDArray[np.intp]]

#: The names of a party's two parts: its columns times sine and cosine, and (cosine, sine) on their own.
PRODUCTS, ANGLE = "products", "angle"


@dataclass(frozen=True)
class SineShape(ProductShape):
    """The two parts of both parties. Released are the gradients of all columns in the study's order, and that of the constant."""

    number: int = 1
    #: Steps per unit of pairs, and of the rows that they multiply.
    steps: int = GRID

    @classmethod
    def of(cls, columns: Mapping[str, tuple[int, int]], rows: int, rounds: int, steps: int = GRID) -> Self:
        """Return the shape for these numbers of columns and squared lengths of rows in squared steps, by party; one without columns has an angle alone."""
        parts: list[RowPart] = []
        for party, (count, square) in columns.items():
            parts += [RowPart(party, 2 * count, square, PRODUCTS)] if count else []
            parts.append(RowPart(party, 2, steps**2, ANGLE))
        return cls(tuple(parts), rows, rounds, steps)

    @property
    def rounds(self) -> int:
        """Return the number of rounds."""
        return self.number

    @property
    def settings(self) -> int:
        """Return the number of coefficients: one for every column of both parties, and the constant's."""
        return self.size

    @cached_property
    def products(self) -> tuple[tuple[int, int], ...]:
        """Return every pair of parts of different parties but that of both products, which nothing needs."""
        both = [
            (i, j)
            for i, one in enumerate(self.parts)
            for j, other in enumerate(self.parts)
            if i < j and one.party != other.party
        ]
        return tuple((i, j) for i, j in both if ANGLE in {self.parts[i].name, self.parts[j].name})

    @cached_property
    def terms(self) -> tuple[Places, Places]:
        """Return the places in the matrix of the two terms of every released integer: sine times cosine, and cosine times sine."""
        first, second = self.parties
        angle = {part.party: span.start for part, span in zip(self.parts, self.spans, strict=True) if part.name == ANGLE}
        one: list[tuple[int, int]] = []
        other: list[tuple[int, int]] = []
        for part, span in zip(self.parts, self.spans, strict=True):
            if part.name == PRODUCTS:
                half, cosine = part.columns // 2, angle[second if part.party == first else first]
                one += [(k, cosine) for k in range(span.start, span.start + half)]
                other += [(k + half, cosine + 1) for k in range(span.start, span.start + half)]
        one.append((angle[first] + 1, angle[second]))
        other.append((angle[first], angle[second] + 1))
        found = []
        for pairs in (one, other):  # the part of the earlier party gives the row
            rows, columns = np.sort(np.array(pairs, dtype=np.intp), axis=1).T
            found.append((rows, columns))
        return found[0], found[1]

    def released(self, whole: Words) -> Words:
        """Return the gradients of all columns, and the sum of sines."""
        one, other = self.terms
        return field.add(whole[one], whole[other])

    @property
    def size(self) -> int:
        """Return the number of coefficients."""
        return sum(part.columns // 2 for part in self.parts if part.name == PRODUCTS) + 1

    @property
    def square(self) -> int:
        """Return R^2 in squared steps: the largest squared length of the columns of both parties, the constant included."""
        return (
            sum(part.square for part in self.parts if part.name == PRODUCTS) + (CONSTANT_STEPS * (self.steps // GRID)) ** 2
        )

    @property
    def most(self) -> int:
        """Return the largest absolute value that one person adds to an integer."""
        return self.steps * (math.isqrt(max(part.square for part in self.parts)) + 1)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Return the relative noise: the sum of sines is released without the constant, by which it is multiplied later, and has more."""
        last = Block(1, 1 / JOINT_CONSTANT)
        return (Block(self.size - 1, 1.0), last) if self.size > 1 else (last,)

    def distance(self, adjacency: Adjacency) -> float:
        """Return the most that one person moves the gradient: 2 R under replace, R under zero-out, in steps of the square of the grid (Theorem J.12)."""
        return clipped_products(self.steps * math.sqrt(self.square), adjacency)
