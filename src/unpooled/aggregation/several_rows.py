"""Standardised rows with several responses: their gradients are one vector, which a record moves as far as it moves that of one response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unpooled.aggregation.standard import StandardRows
from unpooled.kernels import standard_rows as kernels

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        slopes, longest = start.reshape(self.layout.responses, self.layout.size), self._steps[0]
        total, exact = np.zeros(slopes.shape, dtype=np.int64), max(1, (1 << 53) // longest)
        for rows, responses in blocks:
            own = (self._left(iter([(rows, y[None])]), b) for y, b in zip(responses, slopes, strict=True))
            for left in zip(*own, strict=True):
                part, _, square = left[0]
                residuals = np.array([residual for _, residual, _ in left])
                kernels.cut_together(residuals, square, float(self.grid), longest)
                for at in range(0, square.size, exact):  # sums of this many products are exact in any order
                    few = slice(at, at + exact)
                    total += (residuals[:, few] @ part[few]).astype(np.int64)
        return total.ravel()
