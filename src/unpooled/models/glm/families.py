"""The families of a generalised linear model: their links, where a fit begins, in which units it counts, and how well it fits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit, gammainc, gammaincc, xlogy

from unpooled.errors import UsageError, listed
from unpooled.kernels import glm_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

LOGISTIC, POISSON, GAMMA, NEGATIVE_BINOMIAL = "logistic", "poisson", "gamma", "negative-binomial"
#: Those with one linear predictor and one number of each record.
NAMES = (LOGISTIC, POISSON, GAMMA, NEGATIVE_BINOMIAL)
MULTINOMIAL, SURVIVAL = "multinomial", "survival"
FAMILIES = (*NAMES, MULTINOMIAL, SURVIVAL)
#: The mean of a log link is at most so many times the largest response, and at least this part of the smallest that can be.
_ABOVE, _BELOW = 2.0, 0.5
#: Without noise a positive number counts as at most so many times its mean.
_TIMES = 1000.0
#: Counts may have means as small as this part of their range.
_RAREST = 1e-9
#: Means of classes stay so far from 0 and 1 where a deviance needs their logarithm.
_CERTAIN = 1e-12


def check_family(name: str) -> None:
    """Refuse a name that is none of a family."""
    if name not in FAMILIES:
        msg = f"family is one of {listed(list(FAMILIES))}, not {name!r}"
        raise UsageError(msg)


@dataclass(frozen=True)
class GlmFamily:
    """A family with its canonical link or the logarithm, for responses between two declared numbers (0 and 1 where it has classes)."""

    name: str
    low: float = 0.0
    high: float = 1.0
    #: Of a negative binomial: the variance is m + dispersion m^2.
    dispersion: float = 1.0

    def __post_init__(self) -> None:
        check_family(self.name)
        if not 0 < self.dispersion < math.inf:
            raise UsageError("dispersion must be a positive finite number: the variance is mean + dispersion * mean^2")
        if self.name == GAMMA and not 0 < self.low < self.high:
            raise UsageError("responses of the gamma family are positive: declare a range that begins above 0")
        if not 0 <= self.low < self.high:
            msg = f"responses of the {self.name} family are counts: declare a range that begins at 0"
            raise UsageError(msg)

    @property
    def classes(self) -> bool:
        """Return True if the response is one of two classes."""
        return self.name == LOGISTIC

    @property
    def dispersed(self) -> bool:
        """Return True if the variance has a factor that is estimated."""
        return self.name == GAMMA

    @property
    def ends(self) -> tuple[float, float]:
        """Return the smallest and largest linear predictor that the fit distinguishes."""
        if self.classes:
            return -math.inf, math.inf
        least = self.low * _BELOW if self.name == GAMMA else self.high * _RAREST
        return math.log(least), math.log(self.high * _ABOVE)

    @property
    def kernel(self) -> tuple[int, float, float, float]:
        """As the kernels take it."""
        return NAMES.index(self.name), float(self.dispersion), *self.ends

    @property
    def most(self) -> tuple[float, float]:
        """The largest pull and weight of a record, whatever is asked: where nothing is scaled down."""
        top, low = self.high * _ABOVE, self.low * _BELOW
        if self.classes:
            return 1.0, 0.25
        if self.name == POISSON:
            return top, top
        if self.name == GAMMA:
            return min(max(1.0, self.high / low - 1), _TIMES), 1.0
        return max(self.high, min(top, 1 / self.dispersion)), min(top, 1 / self.dispersion)

    def link(self, mean: float) -> float:
        """The linear predictor of a mean."""
        return math.log(mean / (1 - mean)) if self.classes else math.log(mean)

    def units(self, mean: float) -> tuple[float, float]:
        """(q, w): most pulls and the weight of a record with this mean, in which a round counts."""
        _, weight, most = glm_rows.pull(self.kernel[0], float(self.dispersion), self.link(mean), 0.0)
        return float(most), float(weight)

    def mean(self, u: Vector) -> Vector:
        """The expected response of a linear predictor."""
        return np.asarray(expit(u) if self.classes else np.exp(np.clip(u, *self.ends)))

    def deviance(self, y: Vector, mean: Vector) -> Vector:
        """Twice what a record's log likelihood lacks to that of a model that fits it exactly."""
        if self.classes:
            m = np.clip(mean, _CERTAIN, 1 - _CERTAIN)
            return np.asarray(-2 * (y * np.log(m) + (1 - y) * np.log1p(-m)))
        if self.name == GAMMA:
            return np.asarray(2 * ((y - mean) / mean - np.log(y / mean)))
        part = xlogy(y, np.where(y > 0, y, 1.0) / mean)
        if self.name == POISSON:
            return np.asarray(2 * (part - (y - mean)))
        shape = 1 / self.dispersion
        return np.asarray(2 * (part - (y + shape) * np.log((y + shape) / (mean + shape))))

    def drawn(self, mean: Vector, rng: np.random.Generator, shape: float = 2.0) -> Vector:
        """Made-up responses of these means, inside the declared range (gamma: of this shape)."""
        if self.classes:
            return np.asarray((rng.random(mean.size) < mean).astype(np.float64))
        if self.name == GAMMA:
            y = mean * rng.gamma(shape, 1 / shape, mean.size)
        elif self.name == POISSON:
            y = rng.poisson(mean).astype(np.float64)
        else:
            y = rng.poisson(mean * rng.gamma(1 / self.dispersion, self.dispersion, mean.size)).astype(np.float64)
        return np.clip(y, self.low, self.high)


def gamma_dispersion(clipped: float, most: float) -> float:
    """The dispersion of a gamma law whose squared pulls ((y - m)/m)^2, each counted as at most ``most``, have this mean.

    Clipped squares are smaller than the dispersion; they rise with it, so it is found by bisection.

    >>> round(gamma_dispersion(0.5, 1e9), 6)
    0.5
    """
    low, high = 1e-6, 100.0
    for _ in range(80):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _clipped_square(middle, most) < clipped else (low, middle)
    return math.sqrt(low * high)


def _clipped_square(dispersion: float, most: float) -> float:
    """E min((t - 1)^2, most) of a gamma t of mean 1 and this variance; ``most`` at least 1."""
    shape, end = 1 / dispersion, 1 + math.sqrt(most)
    # E[t^k; t <= end] = E[t^k] P(Gamma(shape + k) <= shape end)
    inside = [float(gammainc(shape + k, shape * end)) for k in range(3)]
    return (1 + dispersion) * inside[2] - 2 * inside[1] + inside[0] + most * float(gammaincc(shape, shape * end))
