"""The interface of a family: a loss f(u; y) of the linear predictor u, and what rounds over rows need of a declared response.

Values and derivatives serve the solvers (:class:`unpooled.kernels.newton.Loss`), the two constants the privacy proofs: ``slope`` is the
largest ``|f'|``, ``curvature`` the largest ``f''`` (L' and beta in ``models/stacking/THEORY.md``). Pulls and weights of rows serve generalised
linear models on rows that are split (``models/glm/THEORY.md``).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from unpooled.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

#: Where a loss is a straight line, this much of a weight stays.
LEAST = 1e-8
#: The mean of a log link is at most this many times the largest response, and at least this part of the smallest possible one.
ABOVE, BELOW = 2.0, 0.5
#: Counts may have means as small as this part of their range.
RAREST = 1e-9
#: A pull is rarely larger than 1 and this many of its deviations.
DEVIATIONS = 2.0


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
        """Return the losses."""

    @abstractmethod
    def pull(self, u: Vector, y: Vector) -> Vector:
        """-f'."""

    @abstractmethod
    def weight(self, u: Vector, y: Vector) -> Vector:
        """f'', or a small positive number where it vanishes."""

    @abstractmethod
    def start(self, y: Vector) -> float:
        """Return the best constant predictor, or nearly."""

    @abstractmethod
    def change(self, u: Vector, y: Vector, step: Vector) -> Vector:
        """f(u + step) - f(u), without cancellation where the step is short."""

    def information(self, u: Vector, y: Vector) -> Vector:
        """Return the information that the evidence uses for f''."""
        return self.weight(u, y)

    def bend(self, y: Vector) -> float:  # noqa: ARG002 - where f'' has a bound, that is it
        """Return a usual f'' of these responses: the scale of a penalty."""
        return self.curvature

    def steepest(self, most: float) -> float:  # noqa: ARG002 - where f' has a bound, that is it
        """Return the largest ``|f'|`` of responses that are declared to be at most this."""
        return self.slope

    def mean(self, u: Vector) -> Vector:
        """Return the expected response of a linear predictor."""
        return u

    def check(self, y: Vector) -> None:
        """Refuse responses that are none of this family."""
        if not np.isfinite(y).all():
            raise ValueError("the response must be finite numbers")

    def unit(self, y: Vector) -> float:  # noqa: ARG002 - most families need no data for it
        """Return the unit by which responses, or residuals of a fit, are divided before a fit, and coefficients multiplied after it."""
        return 1.0

    def log_normaliser(self, dispersion: float) -> float:  # noqa: ARG002 - most families have none
        """Return the log of the integral of exp(-f / dispersion) over the response."""
        return 0.0

    def integrated(self, u: Vector, y: Vector) -> float:  # noqa: ARG002 - nothing was minimised over
        """Return the addend to an evidence for unknowns inside the loss: 0 here."""
        return 0.0

    def saturated(self, y: Vector) -> Vector:
        """Return the smallest loss that any linear predictor gives each response."""
        return np.zeros_like(y)

    def excess(self, u: Vector, y: Vector) -> Vector:
        """Return the deviance of each row: twice its loss over the smallest one; of a quantile, twice the check loss."""
        return np.asarray(2 * (self.value(u, y) - self.saturated(y)))


@dataclass(frozen=True)
class Response:
    """A response between two declared numbers (0 and 1 where it is a class), as rounds over rows count it."""

    name: ClassVar[str]
    #: Whether the response is a class, and whether its variance has a factor that is estimated.
    classes: ClassVar[bool] = False
    dispersed: ClassVar[bool] = False
    #: Whether a response of 0 is none of this family.
    positive: ClassVar[bool] = False
    #: Whether a response may be far from its mean, so that residuals have tails, and whether they tell the family's dispersion.
    tailed: ClassVar[bool] = False
    scattered: ClassVar[bool] = False
    #: Where a dispersion is estimated, pulls of the last step have this many times the bound of most.
    wider: ClassVar[float] = 2.0
    #: Whether coefficients depend on the dispersion, which then has to be known before the last step.
    weighted_by_dispersion: ClassVar[bool] = False
    #: Whether the link is the logarithm, so that a constant more multiplies all means.
    multiplies: ClassVar[bool] = False
    low: float = 0.0
    high: float = math.inf
    #: The variance is dispersion m (Poisson), dispersion m^2 (gamma) or m + dispersion m^2 (negative binomial).
    dispersion: float = 1.0

    @property
    def factor(self) -> float:
        """Return what the inverse information is multiplied by for a covariance: 1 unless the dispersion is a factor of the variance."""
        return 1.0

    @property
    def most(self) -> tuple[float, float]:
        """Return the largest pull and weight of a record at any linear predictor: the bounds where nothing is scaled down."""
        raise NotImplementedError

    def mean(self, u: Vector) -> Vector:
        """Return the expected response of each linear predictor."""
        raise NotImplementedError

    def deviance(self, y: Vector, mean: Vector) -> Vector:
        """Return twice the log likelihood that each record lacks to a model which fits it exactly."""
        raise NotImplementedError

    def drawn(self, mean: Vector, rng: np.random.Generator, shape: float = 2.0) -> Vector:
        """Return made-up responses of these means inside the declared range (gamma: of this shape)."""
        raise NotImplementedError


@dataclass(frozen=True)
class RowFamily(Response, Family):
    """A family with one linear predictor of each row and one number as response, which rounds over split rows can fit.

    A subclass says its link, its ends and ``pulls``; the logarithm is the link unless it says otherwise.
    """

    def __post_init__(self) -> None:
        if not 0 < self.dispersion < math.inf:
            raise UsageError(
                "dispersion must be a positive finite number: of counts, the variance is dispersion * mean (Poisson) or mean + dispersion * mean^2"
            )
        self.check_range()

    def check_range(self) -> None:
        """Refuse a declared range that responses of this family do not have."""
        if not 0 <= self.low < self.high:
            msg = f"responses of the {self.name} family are counts: declare a range that begins at 0"
            raise UsageError(msg)

    @property
    def ends(self) -> tuple[float, float]:
        """Return the smallest and the largest linear predictor that a fit distinguishes."""
        return math.log(self.high * RAREST), math.log(self.high * ABOVE)

    @abstractmethod
    def pulls(self, u: Vector, y: Vector, weight: Vector, usual: Vector) -> None:
        """Replace ``u`` by the pulls dl/du, and fill the weights -E d^2 l/du^2 and a bound on most absolute pulls, element by element."""

    def pearson(self, pull: Vector, weight: Vector) -> Vector:
        """Return residuals over their standard deviations at a dispersion of 1, from pulls and weights."""
        return np.asarray(pull / np.sqrt(weight))

    def pearson_variance(self, mean: float) -> float:  # noqa: ARG002 - of a negative binomial it grows with the mean
        """Return the variance of the Pearson residual of a record with this mean, where the factor of the variance is 1."""
        return 1.0

    def scatter(self, square: float, mean: float) -> float:  # noqa: ARG002 - of counts alone
        """Return the dispersion at which squared Pearson residuals have this mean, for responses of this mean."""
        return self.dispersion

    def link(self, mean: float) -> float:
        """Return the linear predictor of a mean."""
        return math.log(mean)

    def mean(self, u: Vector) -> Vector:
        """Return the expected response of each linear predictor."""
        return np.asarray(np.exp(np.clip(u, *self.ends)))

    def units(self, mean: float) -> tuple[float, float]:
        """Return (q, w), a bound on most pulls and the weight of a record with this mean: the units in which a round counts."""
        _, weight, usual = self.pulled(self.link(mean), 0.0)
        return usual, weight

    def pulled(self, u: float, y: float) -> tuple[float, float, float]:
        """Return the pull, the weight and the bound on most pulls of one record."""
        pull, weight, usual = np.array([u]), np.empty(1), np.empty(1)
        self.pulls(pull, np.array([y]), weight, usual)
        return float(pull[0]), float(weight[0]), float(usual[0])

    def deviance(self, y: Vector, mean: Vector) -> Vector:
        """Return twice the log likelihood that each record lacks to a model which fits it exactly."""
        return self.excess(np.log(mean), y)


# --- Log link --------------------------------------------------------------------------------------------------------------
# Losses of a log link go on as straight lines beyond a cap, so that they stay convex and their slopes have a bound.

#: The cap on linear predictors where none is declared: only where floating point ends.
CAP = 50.0


def rise(low: Vector, step: Vector) -> Vector:
    """e^(low + step) - e^low, without cancellation where the step is short."""
    near = np.exp(low) * np.expm1(np.clip(step, -1.0, 1.0))
    return np.where(np.abs(step) <= 1.0, near, np.exp(low + step) - np.exp(low))


def capped_change(u: Vector, step: Vector, cap: float) -> Vector:
    """Change of exp(u), which goes on as its tangent beyond the cap."""
    start, end = np.minimum(u, cap), np.minimum(u + step, cap)
    inside = np.where((u <= cap) & (u + step <= cap), step, end - start)
    beyond = np.where((u >= cap) & (u + step >= cap), step, np.maximum(u + step - cap, 0.0) - np.maximum(u - cap, 0.0))
    return rise(start, inside) + math.exp(cap) * beyond
