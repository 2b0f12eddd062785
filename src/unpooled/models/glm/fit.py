"""A study of a generalised linear model under way: what was learnt so far, in standardised units."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from unpooled.models.glm.plan import GlmDesign
from unpooled.totals.rounds import Rounds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.linear.standard import Standard
    from unpooled.models.glm.shapes import GlmShape

    Row = NDArray[np.float64]
    Matrix = NDArray[np.float64]


@dataclass
class GlmFit(Rounds[GlmDesign]):
    """A study under way: what was learnt so far, in standardised units."""

    standard: Standard | None = None
    #: What a request begins with: means and deviations, or the slopes along which the rounds are.
    head: tuple[float, ...] = ()
    #: What the coefficients are of, the coefficients, and the (q, w) of a typical record with the dispersion.
    shape: GlmShape = field(init=False)
    start: Row = field(default_factory=lambda: np.zeros(0))
    units: tuple[float, float, float] = (1.0, 1.0, 1.0)
    #: The base rate as it was released, and the deviation of its noise.
    base_rate: tuple[float, float] = (0.5, 0.0)
    #: Variance of every coefficient of the rounds, from their own noise and from their pull to the base rate.
    spread: Row | float = 0.0

    def at(self, start: Row) -> tuple[float, ...]:
        """Return the numbers that a request over standardised rows carries."""
        return (*self.head, *self.shape.sent(start), *self.units)

    @property
    def back(self) -> Matrix:
        """Return the linear map from the coefficients that the fit works on to those in the data's own units."""
        assert self.standard is not None
        return self.shape.back(self.standard)

    @property
    def still(self) -> Matrix:
        """Directions, a column each, along which no row varies whatever the data."""
        assert self.standard is not None
        return self.shape.still(self.standard)

    @property
    def penalty(self) -> Row:
        """Return the penalty of the sum of losses on every coefficient; a constant has none."""
        if self.standard is None:
            return np.zeros(self.start.size)
        return self.shape.penalty(self.standard, self.counted)
