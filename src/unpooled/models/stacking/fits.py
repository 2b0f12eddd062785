"""Perturbed fits on the same rows, calibrated so that they cost one epsilon together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from unpooled.families import FAMILIES
from unpooled.privacy.accounting import SAFETY, Composition
from unpooled.privacy.events import Event
from unpooled.privacy.mechanisms import LossShape, LossSign, ObjectivePerturbation, calibrated
from unpooled.privacy.sensitivity import logistic_gradient
from unpooled.privacy.study import Study
from unpooled.privacy.unit import Adjacency, Unit

#: Part of the budget that covers the solver's residual, and the least part that is left for the noise itself.
_COVERING, _KEPT = 1e-3, 0.9
#: The automatic penalty of the mean loss, for each column and over n epsilon, by the law of b; and its cap.
_AUTO = {"gamma": 0.3, "gaussian": 0.1}
_MOST = 0.5


def expm1(x: float) -> float:
    """e^x - 1, far out as large as a float holds: it only ever asks for a smaller least penalty."""
    return math.expm1(min(x, 700.0))


@dataclass(frozen=True)
class Fit:
    """The shape of one perturbed fit."""

    #: Numbers of one linear predictor.
    columns: int
    rows: int
    #: Length of its rows.
    weight: float
    #: How far the rows with and without one of their values can be apart, in lengths of a row (Theorem S.7).
    apart: float = 0.0
    #: Length of the weights to which the penalty pulls.
    source: float = 0.0
    #: How many classes there are, and of more than two whether each is told from the rest.
    classes: int = 2
    rest: bool = False

    @property
    def softmax(self) -> bool:
        """Return True if there is a linear predictor for every class in one fit."""
        return self.classes > 2 and not self.rest  # noqa: PLR2004 - more than two classes

    @property
    def shape(self) -> LossShape:
        """Return the shape of the loss."""
        return LossShape(LossSign.SOFTMAX, self.classes) if self.softmax else LossShape(LossSign.ONE_SIGN)

    @property
    def fits(self) -> int:
        """Return the number of fits: one for every class against the rest, or one in all."""
        return self.classes if self.classes > 2 and self.rest else 1  # noqa: PLR2004

    @property
    def width(self) -> int:
        """Return the numbers of one of them."""
        return self.columns * (self.classes if self.softmax else 1)

    @property
    def curvature(self) -> float:
        """Return beta, the curvature of each factor in the bound on the determinant of a row's Jacobian."""
        return 1 / self.classes if self.softmax else FAMILIES["logistic"].curvature

    @property
    def factors(self) -> int:
        """Return the rank of what one row adds to a Jacobian."""
        return self.classes - 1 if self.softmax else 1

    @property
    def bend(self) -> float:
        """Beta q^2 / n: how much curvature one row has in the mean loss."""
        return self.curvature * self.weight**2 / self.rows

    def lost(self, penalty: float) -> float:
        """Return the cost of the Jacobians of all its fits."""
        return self.fits * self.factors * math.log1p(self.bend / penalty)

    def least_penalty(self, left: float) -> float:
        """Return the penalty at which they cost this."""
        return self.bend / expm1(left / (self.fits * self.factors))

    def reach(self, adjacency: Adjacency, unit: Unit) -> float:
        """Return the sensitivity of the sum of its gradients to one unit."""
        if self.softmax:
            zero_out = adjacency is Adjacency.ZERO_OUT and unit is Unit.RECORD
            return self.weight * math.sqrt(2.0 if zero_out else 8.0)
        whole = logistic_gradient(self.weight, self.columns, adjacency)
        if unit is Unit.RECORD or adjacency is Adjacency.REPLACE:
            return whole
        # Another row stands in its place: never farther than a replaced one, nor nearer than the whole row's vanishing.
        most = logistic_gradient(self.weight, self.columns, Adjacency.REPLACE)
        return min(most, max(whole, self.apart * self.weight))


def fits(study: Study, sizes: Sequence[Fit], penalty: float, epsilon: float) -> list[ObjectivePerturbation]:
    """Perturbed fits that together cost epsilon, where the weights q sum to 1 (Theorems S.1 and S.3; Theorem S.9 is why they share it).

    eps' = eps - sum ln(1 + beta q^2 / (n (lambda + Delta))), Delta >= 0 as large as keeps eps' >= 0.9 eps.
    """
    adjacency, unit = Adjacency(study.adjacency), Unit(study.unit)

    def made(fit: Fit, own: float, scale: float, covering: float = 0.0) -> ObjectivePerturbation:
        reach, value = fit.reach(adjacency, Unit.RECORD), fit.reach(adjacency, Unit.ATTRIBUTE)
        # The gradient of a row of length 1 is at most so long; another label moves it by at most the same.
        slope = math.sqrt(2.0) if fit.softmax else FAMILIES["logistic"].slope
        return ObjectivePerturbation(
            size=fit.width * fit.fits,
            rows=fit.rows,
            bound=fit.weight,
            penalty=own,
            scale=scale,
            reach=reach,
            covering=covering,
            factors=fit.factors,
            value_reach=None if value == reach else value,
            centre=fit.source * penalty / own,
            slope=slope,
            curvature=fit.curvature,
            label_slope=slope,
            fits=fit.fits,
            predictors=fit.classes if fit.softmax else 1,
        )

    if epsilon == math.inf:
        return [made(fit, penalty, 0.0) for fit in sizes]
    usable = epsilon * (1 - _COVERING) * (1 - SAFETY)
    penalties = [max(penalty, f.least_penalty((1 - _KEPT) * usable * f.weight)) for f in sizes]
    lost = math.fsum(fit.lost(own) for fit, own in zip(sizes, penalties, strict=True))
    scale = math.fsum(fit.fits * fit.reach(adjacency, unit) for fit in sizes) / (usable - lost)
    return [
        made(fit, own, scale, epsilon * _COVERING * fit.weight / fit.fits) for fit, own in zip(sizes, penalties, strict=True)
    ]


class Noise(StrEnum):
    """The law of b."""

    AUTO = "auto"
    #: Density proportional to exp(-|b| / scale): pure epsilon.
    GAMMA = "gamma"
    #: Normal: (epsilon, delta).
    GAUSSIAN = "gaussian"


def penalty_of(penalty: float | str, columns: int, rows: int, epsilon: float, law: Noise = Noise.GAUSSIAN) -> float:
    """Return a number as it is; "auto": 0.1 d/(n epsilon), at most one half (scikit-learn's C = 1 without privacy).

    Three times as much under the Gamma law, whose b is longer: in simulations of 486 shapes (d = 5 to 80, n = 1,000 to 16,000, base rates
    .5 to .02, epsilon .3 to 3) that has the smallest mean log-loss of .03, .1, .3, 1 and 3 times d/(n epsilon).
    """
    if not isinstance(penalty, str):
        return penalty
    return 1 / rows if epsilon == math.inf else min(_MOST, _AUTO[law] * columns / (rows * epsilon))


def by_law(
    study: Study,
    sizes: Sequence[Fit],
    penalties: Penalties,
    noise: Noise,
    *,
    beside: Sequence[Event] = (),
) -> Sequence[ObjectivePerturbation]:
    """Fits of the same rows: with Gaussian noise where a delta was given, and where b is then shorter.

    Where something else is released of these rows (``beside``), Gaussian fits compose with it; Gamma fits cost the epsilon that it leaves.
    """
    left = study.epsilon
    if beside and left < math.inf:
        left -= Composition(beside).epsilon(study.delta)
    gamma = fits(study, sizes, penalties(Noise.GAMMA), left)
    if study.epsilon == math.inf or noise is Noise.GAMMA or (noise is Noise.AUTO and not study.delta):
        return gamma
    gaussian = calibrated(
        fits(study, sizes, penalties(Noise.GAUSSIAN), left),
        study.epsilon,
        study.delta,
        shape=sizes[0].shape,
        replaces=study.adjacency == Adjacency.REPLACE,
        unit=Unit(study.unit),
        beside=beside,
    )
    normal, laplace = (
        math.fsum(fit.scale * fit.fits * length(fit.width) for fit in made)
        for made, length in ((gaussian, math.sqrt), (gamma, float))
    )
    return gaussian if noise is Noise.GAUSSIAN or normal < laplace else gamma


#: The penalty of the mean loss, by the law of b.
Penalties = Callable[[Noise], float]
#: From a study, the shapes of fits on the same rows, and a penalty and an epsilon: fits that cost it together.
Perturb = Callable[[Study, Sequence[Fit], float, float], list[ObjectivePerturbation]]
