"""Rows with several responses: their gradients are one vector, which a record moves as far as it moves that of one response."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from unpooled.aggregation.line_rows import LineRows
from unpooled.aggregation.standard import StandardRows
from unpooled.kernels import standard_rows as kernels

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


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
