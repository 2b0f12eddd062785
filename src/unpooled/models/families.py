"""Families of responses: one entry says everything that the models need to know of a loss f(u; y) of the linear predictor u.

Values and derivatives serve the solvers (:class:`unpooled.kernels.newton.Loss`), the two constants the privacy proofs: ``slope`` is the
largest ``|f'|``, ``curvature`` the largest ``f''`` (L' and beta in ``models/stacking/THEORY.md``).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import expit, ndtr

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

#: Where a loss is a straight line, this much of a weight stays.
_LEAST = 1e-8


@dataclass(frozen=True)
class Family(ABC):
    """A convex loss of a linear predictor."""

    name: ClassVar[str]
    slope: ClassVar[float]
    curvature: ClassVar[float]
    #: The largest difference of f' between two labels, where f'' does not depend on the label; None: a label costs what a row costs.
    label_slope: ClassVar[float | None] = None
    #: Whether the response is one of two declared classes, coded -1 and 1, or a number.
    classes: ClassVar[bool] = False
    #: Whether f is a log likelihood only after division by a dispersion.
    dispersed: ClassVar[bool] = False
    #: Whether an unknown effect of a row belongs inside the loss.
    has_effects: ClassVar[bool] = True

    @abstractmethod
    def value(self, u: Vector, y: Vector) -> Vector:
        """The losses."""

    @abstractmethod
    def pull(self, u: Vector, y: Vector) -> Vector:
        """-f'."""

    @abstractmethod
    def weight(self, u: Vector, y: Vector) -> Vector:
        """f'', or a small positive number where it vanishes."""

    @abstractmethod
    def start(self, y: Vector) -> float:
        """The best constant predictor, or nearly."""

    @abstractmethod
    def change(self, u: Vector, y: Vector, step: Vector) -> Vector:
        """f(u + step) - f(u), without cancellation where the step is short."""

    def information(self, u: Vector, y: Vector) -> Vector:
        """Return the information that the evidence uses for f''."""
        return self.weight(u, y)

    def bend(self, y: Vector) -> float:  # noqa: ARG002 - where f'' has a bound, that is it
        """A usual f'' of these responses: the scale of a penalty."""
        return self.curvature

    def steepest(self, most: float) -> float:  # noqa: ARG002 - where f' has a bound, that is it
        """The largest ``|f'|`` of responses that are declared to be at most this."""
        return self.slope

    def mean(self, u: Vector) -> Vector:
        """The expected response of a linear predictor."""
        return u

    def check(self, y: Vector) -> None:
        """Refuse responses that are none of this family."""
        if not np.isfinite(y).all():
            raise ValueError("the response must be finite numbers")

    def unit(self, y: Vector) -> float:  # noqa: ARG002 - most families need no data for it
        """Return the unit by which responses, or residuals of a fit, are divided before a fit, and coefficients multiplied after it."""
        return 1.0

    def log_normaliser(self, dispersion: float) -> float:  # noqa: ARG002 - most families have none
        """Log of the integral of exp(-f / dispersion) over the response."""
        return 0.0

    def integrated(self, u: Vector, y: Vector) -> float:  # noqa: ARG002 - nothing was minimised over
        """Return the addend to an evidence for unknowns inside the loss: 0 here."""
        return 0.0


@dataclass(frozen=True)
class Gaussian(Family):
    """Squared loss (y - u)^2 / 2."""

    name: ClassVar[str] = "squared"
    slope: ClassVar[float] = math.inf
    curvature: ClassVar[float] = 1.0
    dispersed: ClassVar[bool] = True

    def value(self, u: Vector, y: Vector) -> Vector:
        """Half the squared residuals."""
        return (y - u) ** 2 / 2

    def pull(self, u: Vector, y: Vector) -> Vector:
        """The residuals."""
        return y - u

    def weight(self, u: Vector, y: Vector) -> Vector:  # noqa: ARG002 - it is the same everywhere
        """1 everywhere."""
        return np.ones_like(u)

    def change(self, u: Vector, y: Vector, step: Vector) -> Vector:
        """(r'^2 - r^2) / 2 as a product."""
        return step * (step / 2 - (y - u))

    def start(self, y: Vector) -> float:
        """The mean."""
        return float(y.mean())

    def log_normaliser(self, dispersion: float) -> float:
        """Return the log normaliser of a normal law of this variance."""
        return math.log(2 * math.pi * dispersion) / 2


@dataclass(frozen=True)
class Logistic(Family):
    """log(1 + e^-yu) of labels -1 and 1."""

    name: ClassVar[str] = "logistic"
    slope: ClassVar[float] = 1.0
    curvature: ClassVar[float] = 0.25
    label_slope: ClassVar[float | None] = 1.0
    classes: ClassVar[bool] = True

    def value(self, u: Vector, y: Vector) -> Vector:
        """The losses."""
        return np.logaddexp(0.0, -y * u)

    def pull(self, u: Vector, y: Vector) -> Vector:
        """The label times the probability of the other one."""
        return np.asarray(y * expit(-y * u))

    def weight(self, u: Vector, y: Vector) -> Vector:
        """The variance of the label, accurate far out on the right side and kept from vanishing on the wrong one."""
        return np.asarray(expit(-y * u) * np.maximum(expit(y * u), _LEAST))

    def start(self, y: Vector) -> float:
        """The log odds of the labels, half a sample more on each side: finite for one class, too."""
        positive = float((y > 0).sum())
        return math.log((positive + 0.5) / (y.size - positive + 0.5))

    def change(self, u: Vector, y: Vector, step: Vector) -> Vector:
        """log(1 + s(-m)(e^(m-m') - 1)) for short steps; long ones do not cancel."""
        margin, gain = y * u, y * step
        near = np.log1p(expit(-margin) * np.expm1(np.clip(-gain, -1.0, 1.0)))
        return np.where(np.abs(gain) <= 1.0, near, np.logaddexp(0.0, -margin - gain) - np.logaddexp(0.0, -margin))

    def mean(self, u: Vector) -> Vector:
        """The probability of the label 1."""
        return np.asarray(expit(u))

    def check(self, y: Vector) -> None:
        """Labels are coded -1 and 1."""
        if not np.isin(y, (-1.0, 1.0)).all():
            raise ValueError("labels of a logistic regression are -1 and 1")


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
        """The residual, clipped."""
        return np.clip(y - u, -self.slope, self.slope)

    def weight(self, u: Vector, y: Vector) -> Vector:
        """1 for residuals up to k, next to nothing beyond."""
        return np.where(np.abs(y - u) <= self.slope, 1.0, _LEAST)

    def change(self, u: Vector, y: Vector, step: Vector) -> Vector:
        """(r' - r)(c + c')/2 + (c' - c)(r + r' - c - c')/2, c the clipped residual: the second term is 0 away from the bend."""
        before, after = self.pull(u, y), self.pull(u + step, y)
        return ((after - before) * (2 * (y - u) - step - before - after) - step * (before + after)) / 2

    def start(self, y: Vector) -> float:
        """The median."""
        return float(np.median(y))

    def unit(self, y: Vector) -> float:
        """The median absolute deviation as a normal law's deviation, or the deviation itself where half of the responses are equal."""
        spread = 1.4826 * float(np.median(np.abs(y - np.median(y))))
        return spread or float(y.std()) or 1.0

    def log_normaliser(self, dispersion: float) -> float:
        """A normal law's middle and two exponential tails."""
        s, k = math.sqrt(dispersion), self.slope
        middle = math.sqrt(2 * math.pi) * s * (2 * float(ndtr(k / s)) - 1)
        return math.log(middle + 2 * dispersion / k * math.exp(-(k**2) / (2 * dispersion)))


FAMILIES: dict[str, Family] = {family.name: family for family in (Gaussian(), Logistic(), Huber())}
LOGISTIC = FAMILIES["logistic"]
