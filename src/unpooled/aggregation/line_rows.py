"""Sums over two numbers of each row: its value along a line that is public, and the constant.

A line is a direction of slopes with a length of its own. What one record adds to a gradient over these two numbers is cut as in every round
(Theorem B.5), so its noise is that of two coefficients, however many columns the direction has.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from unpooled.aggregation.standard import StandardRows
from unpooled.kernels import standard_rows as kernels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from unpooled.aggregation.totals import Summed
    from unpooled.privacy.table import Table
    from unpooled.privacy.unit import Adjacency

    Floats = NDArray[np.float64]

#: The mean of the response before any direction is known, and the length of the slopes with the mean about it.
BASE, LENGTH = "base", "length"
#: The value along a direction is cut to this many deviations of a row of independent columns.
_FARTHEST = 3.0


@dataclass(frozen=True)
class LineRows(StandardRows):
    """Sums over (values along directions, constant); ``layout`` has all columns."""

    #: The rows that the values are taken from.
    full: StandardRows = field(kw_only=True)
    #: The number of directions.
    count: int = field(default=1, kw_only=True)

    @classmethod
    def of(cls, full: StandardRows, longest: float, count: int = 1) -> LineRows:
        """Return the values of these rows along ``count`` directions, with products of at most ``longest``."""
        return cls(full.layout, full.rows, longest, full=full, count=count)

    @property
    def width(self) -> int:
        """Return the number of coefficients: those of the values and of the constant."""
        return self.count + 1

    @property
    def numbers(self) -> int:
        """Return how many numbers of a request are directions and coefficients."""
        return self.count * (self.layout.size - 1) + self.width

    @cached_property
    def grid(self) -> int:
        """Return steps per unit: those of the rows of all columns."""
        return self.full.grid

    def named(self, name: str, share: float, adjacency: Adjacency, rounds: int) -> Summed:
        """Return the sum of gradients of this name (Theorem B.19)."""
        return replace(self.descent(share, adjacency, rounds), name=name)

    def blocks(self, table: Table, standard: tuple[Floats, Floats]) -> Iterator[tuple[Floats, Floats]]:
        """(rows of all columns on the grid, standardised responses), block by block."""
        return self.full.blocks(table, standard)

    def _left(
        self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, *, whole: bool = False, longer: bool = False
    ) -> Iterator[tuple[Floats, Floats, Floats]]:
        """((values, constant), residuals, squared lengths); ``start`` holds the directions, and after them the coefficients."""
        del longer  # there are no second moments of lines
        grid = float(self.grid)
        slopes = (start.size - self.width) // self.count
        along, at = start[: -self.width].reshape(self.count, slopes), start[-self.width :]
        for rows, (response, *parts) in blocks:
            value, residual, square = np.empty((3, response.size))
            own = np.empty((response.size, self.width), order="F")
            for k, direction in enumerate(along):
                # One record after the other, so that a value is a function of its record and of public numbers alone.
                kernels.leave_from(rows, 0, np.zeros(response.size), np.append(direction, 0.0), grid, value, square)
                own[:, k] = np.trunc(np.clip(-value, -_FARTHEST, _FARTHEST) * grid)
            own[:, -1] = rows[:, -1]
            kernels.leave_from(own, 0, response, at, grid, residual, square)
            for part in parts:  # none without weights
                residual *= part if whole else np.sqrt(part)
            yield own, residual, square
