"""The minimiser of an objective that a Gaussian linear term perturbs."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from unpooled.errors import UsageError
from unpooled.privacy import noise
from unpooled.privacy.accounting import SAFETY, Composition, largest
from unpooled.privacy.events import UNBOUNDED, Event, Kind
from unpooled.privacy.mechanisms.corners import LOGISTIC, LossShape
from unpooled.privacy.mechanisms.objective import ObjectivePerturbation
from unpooled.privacy.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from unpooled.privacy.noise import RandomBits


@dataclass(frozen=True, slots=True)
class GaussianObjective(ObjectivePerturbation):
    r"""The same with b ~ N(0, ``scale``^2 I) (Theorem S.11).

    Its privacy loss is at most :math:`c + \max(0, ..)` of normal losses :math:`N(u^2/2, u^2)`, one for every corner of what the changed rows
    may pull, u its length over ``scale``; c is the logarithm of the Jacobians' ratio. As an event it is these tails, which compose (S.12).
    """

    kind: ClassVar[str] = "objective with a Gaussian"
    #: Of the loss; and whether a record is replaced (else left out).
    shape: LossShape = LOGISTIC
    replaces: bool = True

    @property
    def _pull(self) -> float:
        """|b|, but for a probability of e^-100: far below any delta."""
        return self.scale * (math.sqrt(self.width) + math.sqrt(2 * self._TAIL))

    def event(self, unit: Unit) -> Event:
        """Tails, and what the Jacobian and the covering add to them."""
        if not self.scale:
            return UNBOUNDED
        # One value makes another row of a record: it costs what a replaced record costs.
        return self._event(self.household if unit is Unit.HOUSEHOLD else 1, replaces=self.replaces or unit is Unit.ATTRIBUTE)

    @property
    def label(self) -> Event:
        """Return the event of a changed label, which costs at most the same as a changed record."""
        return UNBOUNDED if not self.scale else self._event(1, replaces=True)

    def _event(self, rows: int, *, replaces: bool) -> Event:
        m = self.longest * self.bound / self.scale
        tails = tuple((n, m * length) for n, length in self.shape._replace(rows=rows).corners(replaces=replaces))
        return Event(Kind.PERTURBED, rows * self.jacobian + self.covering, self.fits, 0.0, tails)

    @property
    def longest(self) -> float:
        """Return the unit of the corners, for rows of length 1: L, or 1 for a softmax."""
        return self.slope / self.shape.unit

    def _term(self, bits: RandomBits, lane: int) -> NDArray[np.float64]:
        return noise.gaussian_vector(self.scale, self.width, stream=bits, lane=lane)


def calibrated(
    like: Sequence[ObjectivePerturbation],
    epsilon: float,
    delta: float,
    *,
    shape: LossShape,
    replaces: bool,
    unit: Unit = Unit.RECORD,
    beside: Sequence[Event] = (),
) -> list[GaussianObjective]:
    """Fits with these losses, penalties and coverings on the same rows, with one scale: the least at which they cost (epsilon, delta) together, and with whatever else is released of them."""
    if not delta > 0:
        raise UsageError("Gaussian objective perturbation needs a positive delta: give one, or ask for noise = 'gamma'")
    made = [
        GaussianObjective(
            **{field.name: getattr(fit, field.name) for field in dataclasses.fields(fit)}, shape=shape, replaces=replaces
        )
        for fit in like
    ]
    constants = math.fsum(fit.fits * (fit.jacobian * max(fit.household, 1) + fit.covering) for fit in made)
    if not epsilon * (1 - SAFETY) > constants:
        raise UsageError("the penalty is too small for this epsilon: raise it")

    scale = _scale(tuple(made), epsilon * (1 - SAFETY), delta * (1 - SAFETY), unit, tuple(beside))
    return [replace(fit, scale=scale) for fit in made]


@lru_cache(maxsize=256)  # every party, and every step of a run, compiles the plan anew
def _scale(
    made: tuple[GaussianObjective, ...], epsilon: float, delta: float, unit: Unit, beside: tuple[Event, ...]
) -> float:
    """Return the least scale at which these fits cost (epsilon, delta) together with what else is released."""

    def curve(inverse: float) -> float:
        return Composition([*beside, *(replace(fit, scale=1 / inverse).event(unit) for fit in made)]).delta(epsilon)

    longest = max(fit.longest * fit.bound for fit in made)
    found = largest(curve, delta, 1e-9 / longest, 1e4 / longest, "Gaussian objective perturbation")
    return 1 / (found / (1 + SAFETY))
