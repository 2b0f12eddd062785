"""Huber's loss: squared near 0, straight for outlying responses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import ndtr

from unpooled.families.base import LEAST, Family

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Huber(Family):
    """Squared near 0, straight beyond k = 1.345 robust deviations of the response: outlying responses pull no harder than that."""

    name: ClassVar[str] = "huber"
    slope: ClassVar[float] = 1.345
    curvature: ClassVar[float] = 1.0
    dispersed: ClassVar[bool] = True

    def value(self, u: Vector, y: Vector) -> Vector:
        """r^2 / 2 for |r| <= k, then k |r| - k^2 / 2."""
        inside = np.clip(y - u, -self.slope, self.slope)
        return inside * (y - u - inside / 2)

    def pull(self, u: Vector, y: Vector) -> Vector:
        """Return the residual, clipped."""
        return np.clip(y - u, -self.slope, self.slope)

    def weight(self, u: Vector, y: Vector) -> Vector:
        """1 for residuals up to k, next to nothing beyond."""
        return np.where(np.abs(y - u) <= self.slope, 1.0, LEAST)

    def change(self, u: Vector, y: Vector, step: Vector) -> Vector:
        """Return (r' - r)(c + c')/2 + (c' - c)(r + r' - c - c')/2, c the clipped residual: the second term is 0 away from the bend."""
        before, after = self.pull(u, y), self.pull(u + step, y)
        return ((after - before) * (2 * (y - u) - step - before - after) - step * (before + after)) / 2

    def start(self, y: Vector) -> float:
        """Return the median."""
        return float(np.median(y))

    def unit(self, y: Vector) -> float:
        """Return the median absolute deviation as a normal law's deviation, or the deviation itself where half of the responses are equal."""
        spread = 1.4826 * float(np.median(np.abs(y - np.median(y))))
        return spread or float(y.std()) or 1.0

    def log_normaliser(self, dispersion: float) -> float:
        """Return a normal law's middle and two exponential tails."""
        s, k = math.sqrt(dispersion), self.slope
        middle = math.sqrt(2 * math.pi) * s * (2 * float(ndtr(k / s)) - 1)
        return math.log(middle + 2 * dispersion / k * math.exp(-(k**2) / (2 * dispersion)))
