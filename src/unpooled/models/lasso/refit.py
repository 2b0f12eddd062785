"""Coefficients of the chosen columns from their noisy moments: post-processing of releases, by numbers alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unpooled.models.lasso.plan import COLUMNS_WEIGHT, CONSTANT_WEIGHT, LEADING, RESPONSE_WEIGHT, grids, shortened

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.models.lasso.plan import LassoDesign

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]

#: To what at most eigenvalues of noisy correlations are raised.
_FLOOR = 0.5


def shrunk(values: Vector, noise: float) -> Vector:
    """Noisy numbers that lie in [-1, 1], moved toward 0 by their noise: v - noise^2 / v, and 0 where noise is the larger (James-Stein)."""
    larger = np.abs(values) > noise
    moved = np.where(larger, values - noise**2 / np.where(larger, values, 1.0), 0.0)
    return np.clip(moved, -1.0, 1.0)


@dataclass(frozen=True)
class ColumnMoments:
    """A^T y / n, the diagonal of A^T A / n, the means of A, and A^T (A + noise) / n, with the noise that their release added.

    Where a constant is fitted, everything is of columns less their means; a response that has lost its mean then needs no more.
    """

    response: Vector
    squares: Vector
    means: Vector
    products: Matrix
    response_noise: float
    squares_noise: float
    products_noise: float
    #: Deviation of the noise in the released columns, and how many rows they have.
    column_noise: float
    rows: int

    @classmethod
    def of(cls, design: LassoDesign, columns: Matrix, values: Matrix, deviation: float, middle: float) -> ColumnMoments:
        """Return moments from the released columns, a row of moments (L.5) for each column with their noise, and the response's mean."""
        rows, (first, second) = columns.shape[0], grids(columns.shape[0])
        unit = 1.0 / (first * second * rows)
        response = unit * design.parameters.response_bound / RESPONSE_WEIGHT
        product = unit * shortened(columns)[1] / COLUMNS_WEIGHT
        means = np.zeros(len(values))
        if design.centres:
            means = shrunk(values[:, 2] * (unit / CONSTANT_WEIGHT), deviation * unit / CONSTANT_WEIGHT)
        return cls(
            response=values[:, 0] * response - means * middle,
            squares=values[:, 1] * unit - means**2,
            means=means,
            products=values[:, LEADING : LEADING + columns.shape[1]] * product - np.outer(means, means),
            response_noise=deviation * response,
            squares_noise=deviation * unit,
            products_noise=deviation * product,
            column_noise=design.column_scale,
            rows=rows,
        )

    def correlations(self) -> Vector:
        """A^T y / n, every entry moved toward 0 by about the largest noise of its k entries: sqrt(2 log k) deviations."""
        threshold = self.response_noise * math.sqrt(2 * math.log(self.response.size))
        return np.asarray(np.sign(self.response) * np.maximum(np.abs(self.response) - threshold, 0))

    def gram(self) -> Matrix:
        """A^T A / n, shrunk by what is known of its noise.

        Both owners of two columns release their product with the other's noisy one: unbiased, since the noise of a column knows nothing
        of other columns. On the scale of correlations the mean square of the off-diagonal entries, less that of their known
        noise, tells how much of them is signal (empirical Bayes); all are multiplied by this part. What noise is left may
        make the matrix indefinite: eigenvalues are raised to its operator norm, or to 1/20.
        """
        size = self.squares.size
        squares = np.maximum(self.squares, max(self.squares_noise, 1e-12 * float(np.abs(self.squares).max(initial=1.0))))
        scale = np.sqrt(squares)
        correlations = (self.products + self.products.T) / 2 / np.outer(scale, scale)
        np.fill_diagonal(correlations, 0.0)
        # One product has the release's noise, and that of the column which the owner multiplied its own with.
        single = self.products_noise**2 + self.column_noise**2 * squares[:, None] / self.rows
        variance = (single + single.T) / 4 / np.outer(squares, squares)
        np.fill_diagonal(variance, 0.0)
        pairs = max(size * (size - 1), 1)
        noise = float(variance.sum()) / pairs
        signal = max(float(np.square(correlations).sum()) / pairs - noise, 0.0)
        part = signal / (signal + noise) if noise else 1.0
        values, vectors = np.linalg.eigh(part * correlations + np.eye(size))
        least = max(min(_FLOOR, part * 2 * math.sqrt(noise * size)), 1e-12)
        return np.asarray((vectors * np.maximum(values, least)) @ vectors.T * np.outer(scale, scale))
