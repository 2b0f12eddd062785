"""The minimiser of an objective that a random linear term perturbs: of density exp(-norm), or Gaussian."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, assert_never

import numpy as np

from unpooled.errors import UsageError
from unpooled.privacy import noise
from unpooled.privacy.accounting import SAFETY, Composition, largest
from unpooled.privacy.events import UNBOUNDED, Event, Kind
from unpooled.privacy.mechanisms.base import REALS, Mechanism, Objective
from unpooled.privacy.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from unpooled.privacy.noise import RandomBits


# --- Corners ---------------------------------------------------------------------------------------------------------------
# Corners that bound the privacy loss of a perturbed objective when rows change, by the shape of its loss (Theorem S.14).


class LossSign(StrEnum):
    """Signs that the derivative of a loss in its linear predictors can take."""

    #: f' never changes its sign once rows are folded with their labels: logistic.
    ONE_SIGN = "one sign"
    #: f' may have either sign: counts, durations, residuals.
    ANY_SIGN = "any sign"
    #: C linear predictors, -log p_y: the gradient of a row is (p - e_y) x.
    SOFTMAX = "softmax"


class LossShape(NamedTuple):
    """A loss, how many classes a softmax has, and how many rows of a unit change together."""

    loss: LossSign = LossSign.ONE_SIGN
    classes: int = 2
    rows: int = 1

    @property
    def unit(self) -> float:
        """Return the longest gradient of a row in this unit."""
        return math.sqrt(2.0) if self.loss is LossSign.SOFTMAX else 1.0

    def corners(self, *, replaces: bool) -> tuple[tuple[int, float], ...]:
        """Return (how many, how long) of the corners but the one at 0, the longest first.

        The unit is the longest gradient of a row, for a softmax the longest row.
        """
        if self.loss is LossSign.ONE_SIGN:
            # Sums of some of k removed and k added rows: of t of them, each at most 1 long, there are binom(2k, t).
            most = self.rows * (2 if replaces else 1)
            return tuple((math.comb(most, t), float(t)) for t in range(most, 0, -1))
        if self.rows > 1:
            msg = f"what several rows of one person cost a loss of {self.loss} is not known"
            raise UsageError(msg)
        if self.loss is LossSign.ANY_SIGN:
            return ((2, 2.0), (2, math.sqrt(2.0))) if replaces else ((2, 1.0),)
        others = self.classes - 1
        if not replaces:
            return ((others, math.sqrt(2.0)),)
        found = ((others, math.sqrt(8.0)), (others * (others - 1), math.sqrt(6.0)), (2 * others, math.sqrt(2.0)))
        return tuple((n, length) for n, length in found if n)


#: Of a logistic loss, where one row changes.
LOGISTIC = LossShape()


# --- Objective -------------------------------------------------------------------------------------------------------------
# The minimiser of an objective that a random linear term perturbs.


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
        match unit:
            case Unit.HOUSEHOLD:
                return self.household * self.reach
            case Unit.RECORD:
                return self.reach
            case Unit.ATTRIBUTE:
                return self.reach if self.value_reach is None else self.value_reach
            case _ as never:
                assert_never(never)

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


# --- Gaussian objective ----------------------------------------------------------------------------------------------------
# The minimiser of an objective that a Gaussian linear term perturbs.


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
