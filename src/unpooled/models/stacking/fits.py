"""Perturbed fits on the same rows, calibrated so that they cost one epsilon together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from unpooled.models.families import LOGISTIC
from unpooled.privacy.accounting import SAFETY
from unpooled.privacy.mechanisms import GaussianObjective, ObjectivePerturbation
from unpooled.privacy.sensitivity import logistic_gradient
from unpooled.privacy.study import Study
from unpooled.privacy.unit import Adjacency, Unit

#: Part of the budget that covers the solver's residual, and the least part that is left for the noise itself.
_COVERING, _KEPT = 1e-3, 0.9
#: The automatic penalty of the mean loss, for each column and over n epsilon, and its cap.
_AUTO, _MOST = 0.1, 0.5


def expm1(x: float) -> float:
    """e^x - 1, far out as large as a float holds: it only ever asks for a smaller least penalty."""
    return math.expm1(min(x, 700.0))


@dataclass(frozen=True)
class Fit:
    """The shape of one perturbed fit."""

    columns: int
    rows: int
    #: Length of its rows.
    weight: float
    #: How far the rows with and without one of their values can be apart, in lengths of a row (Theorem S.7).
    apart: float = 0.0
    #: Length of the weights to which the penalty pulls.
    source: float = 0.0

    @property
    def bend(self) -> float:
        """Beta q^2 / n: how much curvature one row has in the mean loss."""
        return LOGISTIC.curvature * self.weight**2 / self.rows

    def reach(self, adjacency: Adjacency, unit: Unit) -> float:
        """How far one unit moves the sum of its gradients."""
        whole = logistic_gradient(self.weight, self.columns, adjacency)
        if unit is Unit.RECORD or adjacency is Adjacency.REPLACE:
            return whole
        # Another row stands in its place: never farther than a replaced one, nor nearer than the whole row's vanishing.
        most = logistic_gradient(self.weight, self.columns, Adjacency.REPLACE)
        return min(most, max(whole, self.apart * self.weight))


def fits(study: Study, sizes: Sequence[Fit], penalty: float, epsilon: float) -> list[ObjectivePerturbation]:
    """Perturbed fits that together cost epsilon, where the weights q sum to 1 (Theorem S.1, S.3).

    eps' = eps - sum ln(1 + beta q^2 / (n (lambda + Delta))), Delta >= 0 as large as keeps eps' >= 0.9 eps.
    """
    adjacency, unit = Adjacency(study.adjacency), Unit(study.unit)

    def made(fit: Fit, own: float, scale: float, covering: float = 0.0) -> ObjectivePerturbation:
        reach, value = fit.reach(adjacency, Unit.RECORD), fit.reach(adjacency, Unit.ATTRIBUTE)
        return ObjectivePerturbation(
            size=fit.columns,
            rows=fit.rows,
            bound=fit.weight,
            penalty=own,
            scale=scale,
            reach=reach,
            covering=covering,
            value_reach=None if value == reach else value,
            centre=fit.source * penalty / own,
            slope=LOGISTIC.slope,
            curvature=LOGISTIC.curvature,
            label_slope=LOGISTIC.label_slope,
        )

    if epsilon == math.inf:
        return [made(fit, penalty, 0.0) for fit in sizes]
    usable = epsilon * (1 - _COVERING) * (1 - SAFETY)
    penalties = [max(penalty, f.bend / expm1((1 - _KEPT) * usable * f.weight)) for f in sizes]
    lost = math.fsum(math.log1p(fit.bend / own) for fit, own in zip(sizes, penalties, strict=True))
    scale = math.fsum(fit.reach(adjacency, unit) for fit in sizes) / (usable - lost)
    return [made(fit, own, scale, epsilon * _COVERING * fit.weight) for fit, own in zip(sizes, penalties, strict=True)]


class Noise(StrEnum):
    """The law of b."""

    AUTO = "auto"
    #: Density proportional to exp(-|b| / scale): pure epsilon.
    GAMMA = "gamma"
    #: Normal: (epsilon, delta).
    GAUSSIAN = "gaussian"


def penalty_of(penalty: float | str, columns: int, rows: int, epsilon: float) -> float:
    """A number as it is; "auto": 0.1 d/(n epsilon), at most one half (scikit-learn's C = 1 without privacy)."""
    if not isinstance(penalty, str):
        return penalty
    return 1 / rows if epsilon == math.inf else min(_MOST, _AUTO * columns / (rows * epsilon))


def alone(study: Study, fit: Fit, penalty: float, noise: Noise) -> ObjectivePerturbation:
    """A fit that is all that is released of its rows: with Gaussian noise where a delta was given, and where b is then shorter."""
    (gamma,) = fits(study, [fit], penalty, study.epsilon)
    if study.epsilon == math.inf or noise is Noise.GAMMA or (noise is Noise.AUTO and not study.delta):
        return gamma
    # A value under zero-out costs what a replaced record does, and the promise is for whichever unit is asked for.
    replaces = study.adjacency == Adjacency.REPLACE or study.unit == Unit.ATTRIBUTE
    gaussian = GaussianObjective.calibrated(gamma, study.epsilon, study.delta, replaces=replaces)
    gaussian = replace(gaussian, replaces=study.adjacency == Adjacency.REPLACE)
    shorter = gaussian.scale * math.sqrt(fit.columns) < gamma.scale * fit.columns
    return gaussian if noise is Noise.GAUSSIAN or shorter else gamma


#: From a study, the shapes of fits on the same rows, and a penalty and an epsilon: fits that cost it together.
Perturb = Callable[[Study, Sequence[Fit], float, float], list[ObjectivePerturbation]]
