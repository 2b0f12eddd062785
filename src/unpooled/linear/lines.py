"""Sums over a few numbers of each row: its values along public lines, and the gradients of several responses at once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from unpooled.kernels import rows as kernels
from unpooled.linear.standard import StandardRows
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from unpooled.privacy.table import Table
    from unpooled.privacy.unit import Adjacency
    from unpooled.totals.total import Summed

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


# --- Line rows -------------------------------------------------------------------------------------------------------------
# Sums over two numbers of each row: its value along a line that is public, and the constant.
#
# A line is a direction of slopes with a length of its own. What one record adds to a gradient over these two numbers is cut as in every round
# (Theorem B.5), so its noise is that of two coefficients, however many columns the direction has.

#: The mean of the response before any direction is known, and the length of the slopes with the mean about it.
BASE, LENGTH = "base", "length"
_FARTHEST = table("directions").farthest


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


# --- Several rows ----------------------------------------------------------------------------------------------------------
# Rows with several responses: their gradients are one vector, which a record moves as far as it moves that of one response.


@dataclass(frozen=True)
class SeveralRows(StandardRows):
    """Gradients of all responses of a layout over its standardised rows."""

    @property
    def width(self) -> int:
        """Return the number of coefficients: those of one response after those of another."""
        return self.layout.size * self.layout.responses

    def gradient(self, blocks: Iterator[tuple[Floats, Floats]], start: Floats) -> Ints:
        """Return the exact sum of r z' over records, with the residuals r of all responses together cut to |r||z| <= C (Theorem C.8)."""
        slopes = start.reshape(self.layout.responses, self.layout.size)
        total = np.zeros(slopes.shape, dtype=np.int64)
        for rows, responses in blocks:
            own = (self._left(iter([(rows, y[None])]), b) for y, b in zip(responses, slopes, strict=True))
            _add_together(total, zip(*own, strict=True), self.grid, self._steps[0])
        return total.ravel()


@dataclass(frozen=True)
class SeveralLines(LineRows):
    """Sums over (value along a direction, constant) of every response, each with directions of its own."""

    @property
    def width(self) -> int:
        """Return the number of coefficients: those of one response after those of another."""
        return super().width * self.layout.responses

    @property
    def numbers(self) -> int:
        """Return how many numbers of a request are directions and coefficients: all directions come first."""
        return self._one.numbers * self.layout.responses

    @cached_property
    def _one(self) -> LineRows:
        """Return the same rows as those of one response have them."""
        return LineRows.of(self.full, self.longest, self.count)

    def gradient(self, blocks: Iterator[tuple[Floats, Floats]], start: Floats) -> Ints:
        """Return the exact sums of r z over records for every response, with all residuals together cut to |r| max |z| <= C (Theorem C.8)."""
        along, at = (part.reshape(self.layout.responses, -1) for part in np.split(start, [start.size - self.width]))
        total = np.zeros(at.shape, dtype=np.int64)
        for rows, responses in blocks:
            own = (
                self._one._left(iter([(rows, y[None])]), np.concatenate(line))  # noqa: SLF001 - rows of the same kind
                for y, *line in zip(responses, along, at, strict=True)
            )
            _add_together(total, zip(*own, strict=True), self.grid, self._steps[0])
        return total.ravel()


def _add_together(total: Ints, left: Iterable[tuple[tuple[Floats, Floats, Floats], ...]], grid: int, longest: int) -> None:
    """Add (rows, residuals, squared lengths) of all responses to the sums of each, the residuals of a record shortened by one factor."""
    exact = max(1, (1 << 53) // longest)
    for each in left:
        residuals = np.array([residual for _, residual, _ in each])
        square = np.maximum.reduce([square for *_, square in each])
        kernels.cut_together(residuals, square, float(grid), longest)
        for at in range(0, square.size, exact):  # sums of this many products are exact in any order
            few = slice(at, at + exact)
            for k, (rows, *_) in enumerate(each):
                total[k] += (residuals[k, few] @ rows[few]).astype(np.int64)
