"""Perturbed fits on the same rows, calibrated so that they cost one epsilon together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from unpooled.models.families import LOGISTIC
from unpooled.privacy.accounting import SAFETY
from unpooled.privacy.mechanisms import ObjectivePerturbation
from unpooled.privacy.sensitivity import logistic_gradient
from unpooled.privacy.study import Study
from unpooled.privacy.unit import Adjacency, Unit

#: Part of the budget that covers the solver's residual, and the least part that is left for the noise itself.
_COVERING, _KEPT = 1e-3, 0.9


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


#: From a study, the shapes of fits on the same rows, and a penalty and an epsilon: fits that cost it together.
Perturb = Callable[[Study, Sequence[Fit], float, float], list[ObjectivePerturbation]]
