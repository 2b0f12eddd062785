"""The gamma family: positive numbers, the logarithm as link."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import gammaln

from unpooled.errors import UsageError
from unpooled.families.base import ABOVE, BELOW, CAP, DEVIATIONS, LEAST, RowFamily, capped_change
from unpooled.kernels.compiled import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]


#: Without noise a pull counts as at most this many.
_MOST_TIMES = 1000.0
#: A dispersion that is estimated is not below this.
_LEAST_DISPERSION = 1e-6


@njit(nogil=True)
def _pulls(ends: tuple[float, float], u: Vector, y: Vector) -> None:
    for i in range(u.size):
        mean = math.exp(min(max(u[i], ends[0]), ends[1]))
        u[i] = (y[i] - mean) / mean


@dataclass(frozen=True)
class Gamma(RowFamily):
    """u + y e^-u - log y - 1 of positive numbers y, a straight line for u below -cap; half the unit deviance."""

    name: ClassVar[str] = "gamma"
    slope: ClassVar[float] = math.inf
    curvature: ClassVar[float] = math.inf
    dispersed: ClassVar[bool] = True
    positive: ClassVar[bool] = True
    tailed: ClassVar[bool] = True
    multiplies: ClassVar[bool] = True
    scattered: ClassVar[bool] = True
    wider: ClassVar[float] = 1.5
    cap: float = CAP

    def value(self, u: Vector, y: Vector) -> Vector:
        """Return the losses."""
        inverse = np.exp(np.minimum(-u, self.cap)) + math.exp(self.cap) * np.maximum(-u - self.cap, 0.0)
        return u + y * inverse - np.log(y) - 1.0

    def pull(self, u: Vector, y: Vector) -> Vector:
        """Y e^-u - 1."""
        return np.asarray(y * np.exp(np.minimum(-u, self.cap)) - 1.0)

    def weight(self, u: Vector, y: Vector) -> Vector:
        """Y e^-u, next to nothing below -cap."""
        return np.where(u >= -self.cap, np.maximum(y * np.exp(np.minimum(-u, self.cap)), LEAST), LEAST)

    def change(self, u: Vector, y: Vector, step: Vector) -> Vector:
        """Return f(u + step) - f(u) by expm1, without cancellation where the step is short."""
        return np.asarray(step + y * capped_change(-u, -step, self.cap))

    def start(self, y: Vector) -> float:
        """Return the log of the mean."""
        return math.log(float(y.mean()))

    def bend(self, y: Vector) -> float:  # noqa: ARG002 - its mean is that everywhere
        """1."""
        return 1.0

    def steepest(self, most: float) -> float:
        """-1 or Y e^cap - 1."""
        return max(1.0, most * math.exp(self.cap) - 1.0)

    def check_range(self) -> None:
        """Refuse a declared range of numbers that are not positive."""
        if self.high < math.inf and not 0 < self.low < self.high:
            raise UsageError("responses of the gamma family are positive: declare a range that begins above 0")

    @property
    def ends(self) -> tuple[float, float]:
        """Return the ends that the declared range gives, else those of the cap."""
        if self.high == math.inf:
            return -self.cap, math.inf
        return math.log(self.low * BELOW), math.log(self.high * ABOVE)

    @property
    def most(self) -> tuple[float, float]:
        """Return the largest pull and weight of a record."""
        return min(max(1.0, self.high / (self.low * BELOW) - 1), _MOST_TIMES), 1.0

    def pulls(self, u: Vector, y: Vector, weight: Vector, usual: Vector) -> None:
        """Replace ``u`` by (y - m) / m, and fill the weights 1 and the bound 1 + 2 sqrt(dispersion)."""
        _pulls(self.ends, u, y)
        weight[:] = 1.0
        usual[:] = 1.0 + DEVIATIONS * math.sqrt(self.dispersion)

    @property
    def factor(self) -> float:
        """Return the dispersion: the variance over the square of the mean."""
        return self.dispersion

    def scatter(self, square: float, mean: float) -> float:  # noqa: ARG002 - whatever the mean
        """Return the mean square of residuals over their means."""
        return max(square, _LEAST_DISPERSION)

    def drawn(self, mean: Vector, rng: np.random.Generator, shape: float = 2.0) -> Vector:
        """Return made-up responses of these means and this shape inside the declared range."""
        return np.clip(mean * rng.gamma(shape, 1 / shape, mean.size), self.low, self.high)

    def log_normaliser(self, dispersion: float) -> float:
        """Return the log integral of exp(-f / dispersion) dy / y: the density of a gamma law of shape 1 / dispersion, times y."""
        shape = 1 / dispersion
        return float(gammaln(shape)) - shape * math.log(shape) + shape

    def check(self, y: Vector) -> None:
        """Responses are above 0."""
        super().check(y)
        if (y <= 0).any():
            raise ValueError("responses of the gamma family are positive numbers")
