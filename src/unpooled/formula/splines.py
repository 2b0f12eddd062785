"""Spline bases with declared knots: B-splines, and natural cubic splines, as piecewise polynomials with exact bounds.

The boundary knots are the ends of the column's declared range, so no basis is a function of the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.polynomial import polynomial

from unpooled.formula.interval import Interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

#: Bounds are widened by this part of the sum of the coefficients' sizes: far more than a polynomial of degree 5 errs by, in its values
#: and at its critical points (where the derivative is zero, an error of the point changes the value by its square only).
_MARGIN = 2.0**-42


@dataclass(frozen=True, eq=False)
class Basis:
    """Several piecewise polynomials over the same pieces.

    ``breaks`` has one more number than there are pieces. ``coefficients[i, j, k]`` belongs to t**k of function j on piece i, where t runs
    from 0 to 1. A B-spline is also known to lie in [0, 1] (``shares``).
    """

    breaks: Array
    coefficients: Array
    shares: bool = False

    @cached_property
    def bounds(self) -> tuple[Interval, ...]:
        """Return the interval of every function, from its values at the ends of the pieces and at its critical points."""
        return tuple(self._interval(self.coefficients[:, j]) for j in range(self.coefficients.shape[1]))

    def _interval(self, pieces: Array) -> Interval:
        low, high, size = np.inf, -np.inf, 0.0
        for piece in pieces:
            found = polynomial.polyval(np.concatenate([[0.0, 1.0], _critical(piece)]), piece)
            low, high, size = min(low, found.min()), max(high, found.max()), max(size, np.abs(piece).sum())
        low, high = float(low - _MARGIN * size), float(high + _MARGIN * size)
        return Interval(max(low, 0.0), min(high, 1.0)) if self.shares else Interval(low, high)

    def values(self, column: Array) -> Array:
        """Return the functions' values: a row for each row of the column, a column for each function; nan where the column is."""
        piece = np.searchsorted(self.breaks[1:-1], column, side="right")
        left, right = self.breaks[piece], self.breaks[piece + 1]
        t = np.clip((column - left) / (right - left), 0.0, 1.0)[:, None]
        found: Array = self.coefficients[piece, :, -1].copy()
        for k in range(self.coefficients.shape[2] - 2, -1, -1):
            found = found * t + self.coefficients[piece, :, k]
        return found


def _critical(piece: Array) -> Array:
    """Return the places in [0, 1] where the polynomial may be extreme, among them all zeros of its derivative there."""
    slope = polynomial.polyder(piece) if piece.size > 1 else np.zeros(1)
    slope = np.where(np.abs(slope) > np.abs(slope).max() * 1e-14, slope, 0.0)
    roots = polynomial.polyroots(np.trim_zeros(slope, "b")) if np.any(slope[1:]) else np.zeros(0)
    return np.asarray(np.clip(np.real(roots), 0.0, 1.0), dtype=np.float64)


def b_splines(low: float, high: float, knots: Sequence[float], degree: int) -> Basis:
    """Return the B-splines of a degree without the first one, as R's ``bs`` does: together with a constant they span all of them."""
    breaks = np.array([low, *knots, high])
    places = (breaks - low) / (high - low)
    full = np.concatenate([np.zeros(degree), places, np.ones(degree)])
    coefficients = np.zeros((places.size - 1, full.size - degree - 1, degree + 1))
    for i, (left, right) in enumerate(pairwise(places)):
        coefficients[i] = _on_piece(full, i + degree, left, right - left, degree)
    return Basis(breaks, coefficients[:, 1:], shares=True)


def _on_piece(full: Array, span: int, left: float, width: float, degree: int) -> Array:
    """Return the B-splines' polynomials in t on one piece, by the recursion of Cox and de Boor: a row each."""
    functions = np.zeros((full.size - 1, degree + 1))
    functions[span, 0] = 1.0
    for p in range(1, degree + 1):
        raised = np.zeros_like(functions)
        for j in range(max(span - p, 0), min(span + 1, full.size - 1 - p)):
            for other, start, sign, reach in (
                (j, full[j], 1.0, full[j + p] - full[j]),
                (j + 1, full[j + p + 1], -1.0, full[j + p + 1] - full[j + 1]),
            ):
                if reach > 0 and functions[other].any():
                    line = sign * np.array([left - start, width]) / reach
                    raised[j] += np.convolve(functions[other], line)[: degree + 1]
        functions = raised
    return functions[: full.size - degree - 1]


def natural_splines(low: float, high: float, knots: Sequence[float]) -> Basis:
    """Return cubic splines that are straight at both ends, one for each knot after the lower boundary.

    Function j is 1 at its own knot and 0 at all others. So its coefficient is the value of the curve there less the value at the lower
    end of the range.
    """
    breaks = np.array([low, *knots, high])
    h = np.diff((breaks - low) / (high - low))
    values = np.eye(breaks.size)[:, 1:]
    bends = np.zeros_like(values)  # second derivatives at the knots
    if breaks.size > 2:  # noqa: PLR2004 - a straight line otherwise
        matrix = np.diag(2 * (h[:-1] + h[1:])) + np.diag(h[1:-1], 1) + np.diag(h[1:-1], -1)
        slopes = np.diff(values, axis=0) / h[:, None]
        bends[1:-1] = np.linalg.solve(matrix, 6 * np.diff(slopes, axis=0))
    here, there = bends[:-1], bends[1:]
    scale = (h**2 / 6)[:, None]
    parts = [values[:-1], np.diff(values, axis=0) - scale * (2 * here + there), 3 * scale * here, scale * (there - here)]
    return Basis(breaks, np.stack(parts, axis=2))
