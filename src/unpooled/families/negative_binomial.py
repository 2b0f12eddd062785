"""The negative binomial family: counts that vary more than Poisson's, the logarithm as link."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import expit, xlogy

from unpooled.families.base import ABOVE, CAP, DEVIATIONS, LEAST, RowFamily
from unpooled.kernels.compiled import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]


#: A dispersion that is estimated is not below this (a Poisson law is at 0), and what a weight leaves of its bound is not either.
_LEAST_DISPERSION, _SMALL = 0.01, 1e-12


@njit(nogil=True)
def _pulls(dispersion: float, ends: tuple[float, float], u: Vector, y: Vector, weight: Vector, usual: Vector) -> None:
    for i in range(u.size):
        mean = math.exp(min(max(u[i], ends[0]), ends[1]))
        weight[i] = mean / (1.0 + dispersion * mean)
        usual[i] = 1.0 + DEVIATIONS * math.sqrt(weight[i])
        u[i] = (y[i] - mean) / (1.0 + dispersion * mean)


@dataclass(frozen=True)
class NegativeBinomial(RowFamily):
    """(y + theta) log(1 + e^u / theta) - y u of counts whose variance is m + m^2 / theta, theta = 1 / dispersion."""

    name: ClassVar[str] = "negative-binomial"
    slope: ClassVar[float] = math.inf
    curvature: ClassVar[float] = math.inf
    tailed: ClassVar[bool] = True
    multiplies: ClassVar[bool] = True
    scattered: ClassVar[bool] = True
    weighted_by_dispersion: ClassVar[bool] = True

    def _at(self, u: Vector) -> Vector:
        return u + math.log(self.dispersion)

    def value(self, u: Vector, y: Vector) -> Vector:
        """Return the losses."""
        return np.asarray((y + 1 / self.dispersion) * np.logaddexp(0.0, self._at(u)) - y * u)

    def pull(self, u: Vector, y: Vector) -> Vector:
        """Return (y - m) / (1 + dispersion m), as sums of what is small on either side."""
        return np.asarray(y * expit(-self._at(u)) - expit(self._at(u)) / self.dispersion)

    def weight(self, u: Vector, y: Vector) -> Vector:
        """Return (y + theta) s (1 - s)."""
        s = expit(self._at(u))
        return np.maximum((y + 1 / self.dispersion) * s * expit(-self._at(u)), LEAST)

    def change(self, u: Vector, y: Vector, step: Vector) -> Vector:
        """log(1 + s (e^step - 1)) for short steps; long ones do not cancel."""
        at = self._at(u)
        near = np.log1p(expit(at) * np.expm1(np.clip(step, -1.0, 1.0)))
        moved = np.where(np.abs(step) <= 1.0, near, np.logaddexp(0.0, at + step) - np.logaddexp(0.0, at))
        return np.asarray((y + 1 / self.dispersion) * moved - y * step)

    def start(self, y: Vector) -> float:
        """Return the log of the mean, of half a count at least."""
        return math.log(max(float(y.mean()), 0.5 / y.size))

    def bend(self, y: Vector) -> float:
        """M / (1 + dispersion m) at the mean."""
        mean = max(float(y.mean()), 0.5 / y.size)
        return mean / (1 + self.dispersion * mean)

    def steepest(self, most: float) -> float:
        """-theta or Y."""
        return max(1 / self.dispersion, most)

    def saturated(self, y: Vector) -> Vector:
        """Return the loss where the mean is the response itself."""
        return np.asarray((y + 1 / self.dispersion) * np.log1p(y * self.dispersion) - xlogy(y, y))

    @property
    def ends(self) -> tuple[float, float]:
        """Return the ends that the declared range gives."""
        return super().ends if self.high < math.inf else (-math.inf, CAP)

    @property
    def most(self) -> tuple[float, float]:
        """Return the largest pull and weight of a record."""
        top = min(self.high * ABOVE, 1 / self.dispersion)
        return max(self.high, top), top

    def pulls(self, u: Vector, y: Vector, weight: Vector, usual: Vector) -> None:
        """Replace ``u`` by (y - m) / (1 + dispersion m), and fill the weights m / (1 + dispersion m) and the bound on most pulls."""
        _pulls(self.dispersion, self.ends, u, y, weight, usual)

    def pearson(self, pull: Vector, weight: Vector) -> Vector:
        """Return residuals over their Poisson deviations, (y - m) / sqrt m: from pulls (y - m) / (1 + k m) and weights m / (1 + k m)."""
        mean = weight / np.maximum(1 - self.dispersion * weight, _SMALL)
        return np.asarray(pull * (1 + self.dispersion * mean) / np.sqrt(mean))

    def pearson_variance(self, mean: float) -> float:
        """Return 1 + k m, of (y - m) / sqrt m."""
        return 1 + self.dispersion * mean

    def scatter(self, square: float, mean: float) -> float:
        """Return k of 1 + k m = the mean square of (y - m) / sqrt m, at least a hundredth."""
        return max((square - 1) / mean, _LEAST_DISPERSION)

    def drawn(self, mean: Vector, rng: np.random.Generator, shape: float = 2.0) -> Vector:  # noqa: ARG002 - the dispersion is its shape
        """Return made-up counts of these means inside the declared range."""
        mixed = mean * rng.gamma(1 / self.dispersion, self.dispersion, mean.size)
        return np.clip(rng.poisson(mixed).astype(np.float64), self.low, self.high)

    def check(self, y: Vector) -> None:
        """Counts are not negative."""
        super().check(y)
        if (y < 0).any():
            raise ValueError("responses of the negative-binomial family are counts: none is below 0")
