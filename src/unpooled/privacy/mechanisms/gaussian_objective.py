"""The minimiser of an objective that a Gaussian linear term perturbs."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from unpooled.errors import UsageError
from unpooled.privacy import noise
from unpooled.privacy.accounting import SAFETY, UNBOUNDED, Event, Kind, gaussian_delta
from unpooled.privacy.mechanisms.objective import ObjectivePerturbation
from unpooled.privacy.unit import Unit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from unpooled.privacy.mechanisms.given import Objective
    from unpooled.privacy.noise import RandomBits

#: Halvings of an interval of epsilons or of m.
_HALVINGS = 100


@dataclass(frozen=True, slots=True)
class GaussianObjective(ObjectivePerturbation):
    r"""The same with b ~ N(0, ``scale``^2 I), for a loss whose f' has one sign (Theorem S.11).

    Its privacy loss is at most :math:`c + \max(0, N(m^2/2, m^2))` and its like with 2m, c the logarithm of the Jacobians' ratio and
    :math:`m = L q / scale`. As an event it is the epsilon at which that fails with probability ``failure`` (Theorem S.12).
    """

    #: The delta at which the event is read off, and whether a record is replaced (else left out).
    failure: float = 0.0
    replaces: bool = True

    @property
    def _pull(self) -> float:
        """|b|, but for a probability of e^-100: far below any delta."""
        return self.scale * (math.sqrt(self.size) + math.sqrt(2 * self._TAIL))

    def event(self, unit: Unit) -> Event:
        """Pure epsilon but for a distance in total variation, which stands for ``failure``."""
        if not self.scale:
            return UNBOUNDED
        # One value makes another row of a record: it costs what a replaced record costs.
        return self._event(replaces=self.replaces or unit is Unit.ATTRIBUTE)

    @property
    def label(self) -> Event:
        """What another label costs is at most what another record does."""
        return UNBOUNDED if not self.scale else self._event(replaces=True)

    def _event(self, *, replaces: bool) -> Event:
        m = self.slope * self.bound / self.scale
        low, high = self._jacobian, self._jacobian + 1.0
        while failing(high - self._jacobian, m, replaces=replaces) > self.failure:
            low, high = high, 2 * high
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if failing(middle - self._jacobian, m, replaces=replaces) > self.failure:
                low = middle
            else:
                high = middle
        return Event(Kind.PURE, high + self.covering, 1, self.failure / (1 + math.exp(high)))

    def draw(self, given: Objective, bits: RandomBits) -> NDArray[np.float64]:
        """The minimiser for a fresh b, with its residual covered."""
        solution = given.solve(noise.gaussian_vector(self.scale, self.size, stream=bits))
        width = 2 * self.residual / (self.penalty * self.covering) if self.covering else 0.0
        return solution + noise.laplace_ball(width, self.size, stream=bits, lane=2)

    @classmethod
    def calibrated(cls, like: ObjectivePerturbation, epsilon: float, delta: float, *, replaces: bool) -> GaussianObjective:
        """With this loss, penalty and covering, the least noise whose event, covering included, is (epsilon, delta)."""
        if not delta > 0:
            raise UsageError("Gaussian objective perturbation needs a positive delta: give one, or ask for noise = 'gamma'")
        failure = delta * math.exp(-like.covering) * (1 - SAFETY)
        left = (epsilon - like.covering) * (1 - SAFETY) - like._jacobian  # noqa: SLF001 - its own class
        if not left > 0:
            raise UsageError("the penalty is too small for this epsilon: raise it")
        low, high = 0.0, 1.0
        while failing(left, high, replaces=replaces) <= failure:
            low, high = high, 2 * high
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if failing(left, middle, replaces=replaces) <= failure else (low, middle)
        same = {field.name: getattr(like, field.name) for field in dataclasses.fields(like)}
        made = cls(**same, failure=failure, replaces=replaces)
        return replace(made, scale=like.slope * like.bound / low * (1 + SAFETY))


def failing(epsilon: float, m: float, *, replaces: bool) -> float:
    """Delta at this epsilon beyond c (Theorem S.11): H(e; 2m) + 2 H(e; m) where a record is replaced, H(e; m) where it is left out."""
    if epsilon < 0:
        return 1.0
    once = gaussian_delta(epsilon, m)
    return min(1.0, gaussian_delta(epsilon, 2 * m) + 2 * once) if replaces else once
