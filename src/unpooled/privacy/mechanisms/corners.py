"""Corners that bound the privacy loss of a perturbed objective when rows change, by the shape of its loss (Theorem S.14)."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import NamedTuple

from unpooled.errors import UsageError


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
