r"""The public limits on the parts of a joint row, and the weight of the response, from the budget of the release of second moments.

With k = n mu_M / d (n rows, d coded columns of all parties, mu_M the budget of the release after the factor for distributed noise):

    c = max(.7, 1.25 + .27 ln(k / 50)),    L_j = c (sqrt d_j + 1 / sqrt d_j),    c_y = 2 + max(0, .45 ln(k / 120)),
    a^2 = (sqrt(1 + 4 r^2 / c_y^2) - 1) / 2,    r^2 = sum_j L_j^2 + w^2.

Party j shortens its standardised columns to L_j, and the response is clipped to c_y deviations and multiplied by a. Parts that shorten by factors
of their own inflate slopes, so the limits open with k: the bias stays near a third of the standard error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unpooled.aggregation.joint.shape import GRID, JOINT_CONSTANT
from unpooled.aggregation.joint.sums import joint_rho
from unpooled.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unpooled.privacy.plan import Study

#: Share of the squared budget for means and deviations; the second moments have the rest.
CONSTANTS_SHARE = 0.1
#: The factor of limits without any noise: nothing but a value of a hundred deviations is shortened then.
WIDEST = 64.0


@dataclass(frozen=True)
class JointBudget:
    """The budget of a study as ``mu``, the sensitivity over the deviation of its noise, and the factor on the variance of distributed noise."""

    mu: float
    factor: float = 1.0
    #: The share of the squared budget for means and deviations.
    constants: float = CONSTANTS_SHARE

    @classmethod
    def of(cls, study: Study, members: int, tolerate: int = 0, proofs: int = 0) -> JointBudget:
        """Return the budget by zCDP less what this number of proofs takes, and the factor on the variance of distributed noise.

        The factor is N / (N - 1 - T) for N members of the sum (helpers included) of whom T may collude or stay silent.
        """
        honest = members - 1 - tolerate
        if tolerate < 0 or honest < 1:
            msg = f"tolerate = {tolerate} with {members} members of the sum leaves no noise that protects"
            raise UsageError(msg)
        return cls(math.sqrt(2 * joint_rho(study, proofs)), members / honest)

    @property
    def of_moments(self) -> float:
        """Return mu_M: the budget of the joint sums (of second moments, or of all rounds together), after the factor for distributed noise."""
        return self.mu * math.sqrt((1 - self.constants) / self.factor)


@dataclass(frozen=True)
class Limits:
    """The limits of a joint row in steps of the grid: one for the columns of every party, one for the response, and the response's weight."""

    #: L_j of every party, in the study's order; 0 for a party that holds the response alone.
    columns: tuple[int, ...]
    #: a c_y: the largest weighted response.
    response: int
    #: a: by which the standardised response is multiplied.
    weight: float

    @classmethod
    def of(cls, columns: Sequence[int], strength: float) -> Limits:
        """Return the limits for these numbers of coded columns, one for every party; ``strength`` is n mu_M."""
        k = strength / sum(columns)
        spread = min(max(0.7, 1.25 + 0.27 * math.log(k / 50)), WIDEST) if k > 0 else 0.7
        clip = min(2 + max(0.0, 0.45 * math.log(k / 120)), WIDEST) if k > 0 else 2.0
        lengths = [spread * (math.sqrt(d) + 1 / math.sqrt(d)) if d else 0.0 for d in columns]
        whole = math.fsum(length * length for length in lengths) + JOINT_CONSTANT**2
        weight = math.sqrt((math.sqrt(1 + 4 * whole / clip**2) - 1) / 2)
        return cls(tuple(round(length * GRID) for length in lengths), round(weight * clip * GRID), weight)

    def square(self, place: int, *, response: bool) -> int:
        """Return the bound on the squared length of a party's part in squared steps; ``response``: with the response as one of its columns."""
        return self.columns[place] ** 2 + (self.response**2 if response else 0)

    @property
    def mean_square(self) -> float:
        """Return the largest mean square of a standardised column that the limits allow, times the number of columns."""
        return math.fsum(length * length for length in self.columns) / GRID**2
