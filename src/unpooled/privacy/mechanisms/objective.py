"""The minimiser of an objective that a random linear term perturbs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from unpooled.errors import UsageError
from unpooled.privacy import noise
from unpooled.privacy.events import UNBOUNDED, Event, Kind
from unpooled.privacy.mechanisms.base import REALS, Mechanism
from unpooled.privacy.mechanisms.given import Objective
from unpooled.privacy.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from unpooled.privacy.noise import RandomBits


@dataclass(frozen=True, slots=True)
class ObjectivePerturbation(Mechanism):
    r"""The minimiser of a perturbed convex objective (Chaudhuri et al. 2011; Theorems S.1 and S.2).

    :math:`\frac1n\sum f(w\cdot x_i;y_i)+\frac{b\cdot w}n+\frac{\Lambda}2|w-c|^2` with :math:`|f'|\le` ``slope``, :math:`0\le f''\le` ``curvature``
    (:math:`\beta`), rows of norm at most ``bound`` = q, n = ``rows``, :math:`\Lambda` = ``penalty`` and b of density proportional to
    :math:`e^{-|b|/scale}`. One row moves n times the gradient by at most ``reach`` and the Jacobian's determinant by a factor of at most
    :math:`1+\beta q^2/(n\Lambda)`, ``factors`` times over in the published form. The solver's residual, a gradient of at most :attr:`residual`,
    is covered by noise of the same shape, which costs ``covering``.
    """

    kind: ClassVar[str] = "objective perturbation"
    size: int
    rows: int
    bound: float
    penalty: float
    scale: float
    reach: float
    covering: float
    factors: int = 1
    #: The same for one value of the row; None: as far as the whole row.
    value_reach: float | None = None
    #: Length of c.
    centre: float = 0.0
    #: Bounds on f' and f'', and on how far another label moves f' where it leaves f'' as it is (None: it does not). A logistic loss has these.
    slope: float = 1.0
    curvature: float = 0.25
    label_slope: float | None = 1.0
    #: Independent fits of this kind, one after the other in what is published: one for every class against the rest.
    fits: int = 1
    #: Linear predictors of one of them: a softmax has one for every class.
    predictors: int = 1
    #: The most rows of one id that are in it, where it is known what all of them cost (loss of one sign only); 0: it is not.
    household: int = 0
    takes: ClassVar[type[Any]] = Objective
    dtype: ClassVar[str] = REALS

    #: The smallest gradient norm at which a solver may be asked to stop, for the mean loss; and so improbable, e^-this, is a longer b.
    _FINEST: ClassVar[float] = 1e-10
    _TAIL: ClassVar[float] = 100.0
    #: Several times what the rounding of one operation of a gradient leaves.
    _ROUNDING: ClassVar[float] = 2.0**-48

    def __post_init__(self) -> None:
        if not self.residual < self._COARSEST:
            raise UsageError("the penalty is too small for double precision: its minimiser may lie too far out. Raise it")

    #: Beyond this nothing would be minimised.
    _COARSEST: ClassVar[float] = 1e100

    @property
    def residual(self) -> float:
        """Return the gradient norm, for the mean loss, at which the solver stops: above all rounding, and known before any data (S.2)."""
        pull = self._pull / self.rows
        farthest = self.centre + (self.bound * self.slope + pull) / self.penalty
        # A margin has as many terms as there are columns; of a softmax's Jacobian in its margins the norm is one half.
        columns, bend = self.width // self.predictors, 0.5 if self.predictors > 1 else self.factors * self.curvature
        sums = 1 + self.predictors / 16  # probabilities are divided by a sum over the classes
        terms = self.bound * (self.slope * sums + bend * self.bound * farthest * columns) + pull + self.penalty * farthest
        return max(self._FINEST, self._ROUNDING * terms)

    @property
    def _pull(self) -> float:
        """|b|, but for a probability of e^-100."""
        return self.scale * (self.width + math.sqrt(2 * self._TAIL * self.width) + self._TAIL)

    @property
    def width(self) -> int:
        """Return the number of coefficients of one fit."""
        return self.size // self.fits

    def prices(self, unit: Unit) -> bool:
        """Households too, where their rows are bounded."""
        return Mechanism.prices(self, unit) or (unit is Unit.HOUSEHOLD and self.household > 0)

    @property
    def name(self) -> str:
        """Return its name in plans and ledgers."""
        return "objective perturbation" if self.scale else "no noise"

    def sensitivity(self, unit: Unit) -> float:
        """Return the sensitivity of n times the gradient to one unit: for one value, that of the whole row, or more if it makes another row of it."""
        if unit is Unit.HOUSEHOLD:
            return self.household * self.reach
        return self.reach if unit is Unit.RECORD or self.value_reach is None else self.value_reach

    def event(self, unit: Unit) -> Event:
        """Pure epsilon: the noise's ratio, the Jacobian's, and the covering of the residual."""
        if not self.scale:
            return UNBOUNDED
        jacobian = self.household * self.jacobian if unit is Unit.HOUSEHOLD else self.jacobian
        return Event(Kind.PURE, self.sensitivity(unit) / self.scale + jacobian + self.covering, self.fits, 0.0)

    @property
    def jacobian(self) -> float:
        """Return the logarithm of how far one row may change the determinant of one fit."""
        return self.factors * math.log1p(self.curvature * self.bound**2 / (self.rows * self.penalty))

    @property
    def label(self) -> Event:
        """Return the event of a changed label of one row (Theorem S.8): less than a replaced row where f'' is the same for both labels.

        The gradients of log(1 + e^-u) and log(1 + e^u) differ by exactly the row, which is at most ``bound`` long, and their second
        derivatives are equal: no determinant changes.
        """
        if not self.scale:
            return UNBOUNDED
        moved = (2 * self.slope if self.label_slope is None else self.label_slope) * self.bound
        jacobian = self.jacobian if self.label_slope is None else 0.0
        return Event(Kind.PURE, moved / self.scale + jacobian + self.covering, self.fits, 0.0)

    def draw(self, given: Objective, bits: RandomBits) -> NDArray[np.float64]:
        """Return the minimiser for a fresh b, with its residual covered."""
        return self._covered(given.solve(self._every(lambda k: self._term(bits, 4 * k))), bits)

    def _every(self, drawn: Callable[[int], NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return the vectors drawn for every fit, concatenated in the order of the fits."""
        return drawn(0) if self.fits == 1 else np.concatenate([drawn(k) for k in range(self.fits)])

    def _term(self, bits: RandomBits, lane: int) -> NDArray[np.float64]:
        """B of one fit."""
        return noise.laplace_ball(self.scale, self.width, stream=bits, lane=lane)

    def _covered(self, solution: NDArray[np.float64], bits: RandomBits) -> NDArray[np.float64]:
        """With noise over what the solver's residual could tell."""
        if not self.covering:
            return solution
        # Two solutions of this residual lie within 2 residual / penalty of each other where they are of the same exact minimiser.
        wide = 2 * self.residual / (self.penalty * self.covering)
        return solution + self._every(lambda k: noise.laplace_ball(wide, self.width, stream=bits, lane=4 * k + 2))
