"""The Poisson family: counts, the logarithm as link."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import xlogy

from unpooled.families.base import ABOVE, CAP, DEVIATIONS, LEAST, RowFamily, capped_change
from unpooled.kernels.compiled import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]


@njit(nogil=True)
def _pulls(root: float, ends: tuple[float, float], u: Vector, y: Vector, weight: Vector, usual: Vector) -> None:
    for i in range(u.size):
        mean = math.exp(min(max(u[i], ends[0]), ends[1]))
        u[i] = y[i] - mean
        weight[i] = mean
        usual[i] = 1.0 + DEVIATIONS * root * math.sqrt(mean)


@dataclass(frozen=True)
class Poisson(RowFamily):
    """e^u - y u of counts y >= 0, a straight line for u above the cap; a quasi-likelihood where their variance is dispersion times the mean."""

    name: ClassVar[str] = "poisson"
    slope: ClassVar[float] = math.inf
    curvature: ClassVar[float] = math.inf
    tailed: ClassVar[bool] = True
    multiplies: ClassVar[bool] = True
    scattered: ClassVar[bool] = True
    cap: float = CAP

    def value(self, u: Vector, y: Vector) -> Vector:
        """Return the losses."""
        return np.exp(np.minimum(u, self.cap)) + math.exp(self.cap) * np.maximum(u - self.cap, 0.0) - y * u

    def pull(self, u: Vector, y: Vector) -> Vector:
        """Y - e^u."""
        return np.asarray(y - np.exp(np.minimum(u, self.cap)))

    def weight(self, u: Vector, y: Vector) -> Vector:  # noqa: ARG002 - the same for every count
        """e^u, next to nothing beyond the cap."""
        return np.where(u <= self.cap, np.maximum(np.exp(np.minimum(u, self.cap)), LEAST), LEAST)

    def change(self, u: Vector, y: Vector, step: Vector) -> Vector:
        """Return f(u + step) - f(u) by expm1, without cancellation where the step is short."""
        return np.asarray(capped_change(u, step, self.cap) - y * step)

    def start(self, y: Vector) -> float:
        """Return the log of the mean, of half a count at least."""
        return min(math.log(max(float(y.mean()), 0.5 / y.size)), self.cap)

    def bend(self, y: Vector) -> float:
        """Return the mean."""
        return max(float(y.mean()), 0.5 / y.size)

    def steepest(self, most: float) -> float:
        """e^cap - 0 or 0 - Y."""
        return max(math.exp(self.cap), most)

    def saturated(self, y: Vector) -> Vector:
        """Return the loss where the mean is the response itself."""
        return np.asarray(y - xlogy(y, y))

    @property
    def ends(self) -> tuple[float, float]:
        """Return the ends that the declared range gives, else those of the cap."""
        return super().ends if self.high < math.inf else (-math.inf, self.cap)

    @property
    def most(self) -> tuple[float, float]:
        """Return the largest pull and weight of a record."""
        return self.high * ABOVE, self.high * ABOVE

    def pulls(self, u: Vector, y: Vector, weight: Vector, usual: Vector) -> None:
        """Replace ``u`` by y - m, and fill the weights m and 1 + 2 sqrt(dispersion m)."""
        _pulls(math.sqrt(self.dispersion), self.ends, u, y, weight, usual)

    @property
    def factor(self) -> float:
        """Return the dispersion, the ratio of variance to mean."""
        return self.dispersion

    def scatter(self, square: float, mean: float) -> float:  # noqa: ARG002 - whatever the mean
        """Return the mean squared Pearson residual: the variance over the mean, at least 1."""
        return max(square, 1.0)

    def drawn(self, mean: Vector, rng: np.random.Generator, shape: float = 2.0) -> Vector:  # noqa: ARG002 - counts have no shape
        """Return made-up counts of these means inside the declared range."""
        return np.clip(rng.poisson(mean).astype(np.float64), self.low, self.high)

    def check(self, y: Vector) -> None:
        """Counts are not negative."""
        super().check(y)
        if (y < 0).any():
            raise ValueError("responses of the poisson family are counts: none is below 0")
