"""Families that PRIDE fits besides the squared, Huber and logistic losses: counts and positive numbers by the logarithm, quantiles.

A mean beyond e^cap is none that data have: there the losses of the log link go on as straight lines, convex as before, whose slopes have a
bound. Without a declared cap it is only where floating point ends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import expit, gammaln, ndtr, xlogy

from unpooled.models.families import Family

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

#: Where a loss is a straight line, this much of a weight stays.
_LEAST = 1e-8
#: Linear predictors are told apart up to here where no cap is declared.
_CAP = 50.0
#: The half width of a quantile's smoothing in robust deviations.
HALF_WIDTH = 0.2


def _rise(low: Vector, step: Vector) -> Vector:
    """e^(low + step) - e^low, without cancellation where the step is short."""
    near = np.exp(low) * np.expm1(np.clip(step, -1.0, 1.0))
    return np.where(np.abs(step) <= 1.0, near, np.exp(low + step) - np.exp(low))


def _capped_change(u: Vector, step: Vector, cap: float) -> Vector:
    """Change of exp(u), which goes on as its tangent beyond the cap."""
    start, end = np.minimum(u, cap), np.minimum(u + step, cap)
    inside = np.where((u <= cap) & (u + step <= cap), step, end - start)
    beyond = np.where((u >= cap) & (u + step >= cap), step, np.maximum(u + step - cap, 0.0) - np.maximum(u - cap, 0.0))
    return _rise(start, inside) + math.exp(cap) * beyond


@dataclass(frozen=True)
class Poisson(Family):
    """e^u - y u of counts y >= 0, a straight line for u above the cap."""

    name: ClassVar[str] = "poisson"
    slope: ClassVar[float] = math.inf
    curvature: ClassVar[float] = math.inf
    cap: float = _CAP

    def value(self, u: Vector, y: Vector) -> Vector:
        """The losses."""
        return np.exp(np.minimum(u, self.cap)) + math.exp(self.cap) * np.maximum(u - self.cap, 0.0) - y * u

    def pull(self, u: Vector, y: Vector) -> Vector:
        """Y - e^u."""
        return np.asarray(y - np.exp(np.minimum(u, self.cap)))

    def weight(self, u: Vector, y: Vector) -> Vector:  # noqa: ARG002 - the same for every count
        """e^u, next to nothing beyond the cap."""
        return np.where(u <= self.cap, np.maximum(np.exp(np.minimum(u, self.cap)), _LEAST), _LEAST)

    def change(self, u: Vector, y: Vector, step: Vector) -> Vector:
        """Return f(u + step) - f(u) by expm1, without cancellation where the step is short."""
        return np.asarray(_capped_change(u, step, self.cap) - y * step)

    def start(self, y: Vector) -> float:
        """The log of the mean, of half a count at least."""
        return min(math.log(max(float(y.mean()), 0.5 / y.size)), self.cap)

    def bend(self, y: Vector) -> float:
        """The mean."""
        return max(float(y.mean()), 0.5 / y.size)

    def steepest(self, most: float) -> float:
        """e^cap - 0 or 0 - Y."""
        return max(math.exp(self.cap), most)

    def mean(self, u: Vector) -> Vector:
        """e^u."""
        return np.asarray(np.exp(np.minimum(u, self.cap)))

    def check(self, y: Vector) -> None:
        """Counts are not negative."""
        super().check(y)
        if (y < 0).any():
            raise ValueError("responses of the poisson family are counts: none is below 0")


@dataclass(frozen=True)
class GammaLog(Family):
    """u + y e^-u - log y - 1 of positive numbers y, a straight line for u below -cap; half the unit deviance."""

    name: ClassVar[str] = "gamma"
    slope: ClassVar[float] = math.inf
    curvature: ClassVar[float] = math.inf
    dispersed: ClassVar[bool] = True
    cap: float = _CAP

    def value(self, u: Vector, y: Vector) -> Vector:
        """The losses."""
        inverse = np.exp(np.minimum(-u, self.cap)) + math.exp(self.cap) * np.maximum(-u - self.cap, 0.0)
        return u + y * inverse - np.log(y) - 1.0

    def pull(self, u: Vector, y: Vector) -> Vector:
        """Y e^-u - 1."""
        return np.asarray(y * np.exp(np.minimum(-u, self.cap)) - 1.0)

    def weight(self, u: Vector, y: Vector) -> Vector:
        """Y e^-u, next to nothing below -cap."""
        return np.where(u >= -self.cap, np.maximum(y * np.exp(np.minimum(-u, self.cap)), _LEAST), _LEAST)

    def change(self, u: Vector, y: Vector, step: Vector) -> Vector:
        """Return f(u + step) - f(u) by expm1, without cancellation where the step is short."""
        return np.asarray(step + y * _capped_change(-u, -step, self.cap))

    def start(self, y: Vector) -> float:
        """The log of the mean."""
        return math.log(float(y.mean()))

    def bend(self, y: Vector) -> float:  # noqa: ARG002 - its mean is that everywhere
        """1."""
        return 1.0

    def steepest(self, most: float) -> float:
        """-1 or Y e^cap - 1."""
        return max(1.0, most * math.exp(self.cap) - 1.0)

    def mean(self, u: Vector) -> Vector:
        """e^u."""
        return np.asarray(np.exp(np.maximum(u, -self.cap)))

    def log_normaliser(self, dispersion: float) -> float:
        """Return the log integral of exp(-f / dispersion) dy / y: the density of a gamma law of shape 1 / dispersion, times y."""
        shape = 1 / dispersion
        return float(gammaln(shape)) - shape * math.log(shape) + shape

    def check(self, y: Vector) -> None:
        """Responses are above 0."""
        super().check(y)
        if (y <= 0).any():
            raise ValueError("responses of the gamma family are positive numbers")


@dataclass(frozen=True)
class NegativeBinomial(Family):
    """(y + theta) log(1 + e^u / theta) - y u of counts whose variance is m + m^2 / theta, theta = 1 / dispersion."""

    name: ClassVar[str] = "negative-binomial"
    slope: ClassVar[float] = math.inf
    curvature: ClassVar[float] = math.inf
    dispersion: float = 1.0

    def _at(self, u: Vector) -> Vector:
        return u + math.log(self.dispersion)

    def value(self, u: Vector, y: Vector) -> Vector:
        """The losses."""
        return np.asarray((y + 1 / self.dispersion) * np.logaddexp(0.0, self._at(u)) - y * u)

    def pull(self, u: Vector, y: Vector) -> Vector:
        """(y - m) / (1 + dispersion m), as sums of what is small on either side."""
        return np.asarray(y * expit(-self._at(u)) - expit(self._at(u)) / self.dispersion)

    def weight(self, u: Vector, y: Vector) -> Vector:
        """(y + theta) s (1 - s)."""
        s = expit(self._at(u))
        return np.maximum((y + 1 / self.dispersion) * s * expit(-self._at(u)), _LEAST)

    def change(self, u: Vector, y: Vector, step: Vector) -> Vector:
        """log(1 + s (e^step - 1)) for short steps; long ones do not cancel."""
        at = self._at(u)
        near = np.log1p(expit(at) * np.expm1(np.clip(step, -1.0, 1.0)))
        moved = np.where(np.abs(step) <= 1.0, near, np.logaddexp(0.0, at + step) - np.logaddexp(0.0, at))
        return np.asarray((y + 1 / self.dispersion) * moved - y * step)

    def start(self, y: Vector) -> float:
        """The log of the mean, of half a count at least."""
        return math.log(max(float(y.mean()), 0.5 / y.size))

    def bend(self, y: Vector) -> float:
        """M / (1 + dispersion m) at the mean."""
        mean = max(float(y.mean()), 0.5 / y.size)
        return mean / (1 + self.dispersion * mean)

    def steepest(self, most: float) -> float:
        """-theta or Y."""
        return max(1 / self.dispersion, most)

    def mean(self, u: Vector) -> Vector:
        """e^u."""
        return np.asarray(np.exp(np.minimum(u, _CAP)))

    def check(self, y: Vector) -> None:
        """Counts are not negative."""
        super().check(y)
        if (y < 0).any():
            raise ValueError("responses of the negative-binomial family are counts: none is below 0")


@dataclass(frozen=True)
class Quantile(Family):
    """The check loss of a quantile, smoothed by a uniform kernel: f' falls from tau to tau - 1 over residuals between -h and h."""

    name: ClassVar[str] = "quantile"
    dispersed: ClassVar[bool] = True
    curvature: ClassVar[float] = 1 / (2 * HALF_WIDTH)
    #: The quantile that is asked for is that of the response, unknown effects and all: inside the loss they would draw it to the middle.
    has_effects: ClassVar[bool] = False
    tau: float = 0.5

    @property
    def slope(self) -> float:  # type: ignore[override]
        """Tau on one side, 1 - tau on the other."""
        return max(self.tau, 1 - self.tau)

    def value(self, u: Vector, y: Vector) -> Vector:
        """Tau r or (tau - 1) r; (tau - 1/2) r + r^2 / 4h + h / 4 within h."""
        r = y - u
        inside = (self.tau - 0.5) * r + r**2 / (4 * HALF_WIDTH) + HALF_WIDTH / 4
        return np.where(np.abs(r) <= HALF_WIDTH, inside, np.where(r > 0, self.tau * r, (self.tau - 1) * r))

    def pull(self, u: Vector, y: Vector) -> Vector:
        """Tau less the smoothed share of residuals below 0."""
        return np.asarray(self.tau - np.clip((HALF_WIDTH - (y - u)) / (2 * HALF_WIDTH), 0.0, 1.0))

    def weight(self, u: Vector, y: Vector) -> Vector:
        """1 / 2h for residuals up to h, next to nothing beyond."""
        return np.where(np.abs(y - u) <= HALF_WIDTH, self.curvature, _LEAST)

    def information(self, u: Vector, y: Vector) -> Vector:
        """Its expectation tau (1 - tau) / dispersion, for an asymmetric Laplace law of the likeliest dispersion: the mean loss.

        f'' itself is 0 on the straight lines, where Laplace's approximation would take a coefficient for free.
        """
        dispersion = max(float(self.value(u, y).mean()), 1e-300)
        return np.full_like(u, min(self.tau * (1 - self.tau) / dispersion, self.curvature))

    def change(self, u: Vector, y: Vector, step: Vector) -> Vector:
        """The integral of -pull over the step: its parts left of, within and right of the band, each by its length."""
        r, moved = y - u, -step  # r' = r + moved
        clipped, clipped_after = np.clip(r, -HALF_WIDTH, HALF_WIDTH), np.clip(r + moved, -HALF_WIDTH, HALF_WIDTH)
        both = (np.abs(r) <= HALF_WIDTH) & (np.abs(r + moved) <= HALF_WIDTH)
        within = np.where(both, moved, clipped_after - clipped)
        band = within * ((self.tau - 0.5) + (clipped + clipped_after) / (4 * HALF_WIDTH))
        same = (np.sign(r) == np.sign(r + moved)) & (np.abs(r) >= HALF_WIDTH) & (np.abs(r + moved) >= HALF_WIDTH)
        above = np.where(same & (r > 0), moved, np.maximum(r + moved - HALF_WIDTH, 0.0) - np.maximum(r - HALF_WIDTH, 0.0))
        below = np.where(same & (r < 0), moved, np.minimum(r + moved + HALF_WIDTH, 0.0) - np.minimum(r + HALF_WIDTH, 0.0))
        return np.asarray(band + self.tau * above + (self.tau - 1) * below)

    def start(self, y: Vector) -> float:
        """The quantile."""
        return float(np.quantile(y, self.tau))

    def unit(self, y: Vector) -> float:
        """The median absolute deviation as a normal law's deviation, or the deviation itself where half of the responses are equal."""
        spread = 1.4826 * float(np.median(np.abs(y - np.median(y))))
        return spread or float(y.std()) or 1.0

    def log_normaliser(self, dispersion: float) -> float:
        """Two exponential tails and a piece of a normal law."""
        tau, h, s = self.tau, HALF_WIDTH, math.sqrt(2 * HALF_WIDTH * dispersion)
        centre = h * (2 * tau - 1)
        tails = [math.log(dispersion / part) - part * h / dispersion for part in (tau, 1 - tau)]
        inner = float(ndtr((centre + h) / s) - ndtr((centre - h) / s))  # 0 lies between the two
        middle = -h * tau * (1 - tau) / dispersion + math.log(math.sqrt(2 * math.pi) * s) + math.log(inner)
        return float(np.logaddexp.reduce([*tails, middle]))


def deviance(family: Family, y: Vector, u: Vector) -> Vector:
    """Twice the loss of each row over that of a linear predictor which fits it exactly; of a quantile, twice the check loss."""
    if isinstance(family, Poisson):
        return np.asarray(2 * (family.value(u, y) - y + xlogy(y, y)))
    if isinstance(family, NegativeBinomial):
        theta = 1 / family.dispersion
        best = (y + theta) * np.log1p(y / theta) - xlogy(y, y)
        return np.asarray(2 * (family.value(u, y) - best))
    return np.asarray(2 * family.value(u, y))
