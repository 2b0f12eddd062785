"""Residuals before and after Newton steps: the dispersion that they tell, the shares that the bounds cut off, and the mean of what was cut."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from unpooled.families import RowFamily
from unpooled.inference.coordinates import Clipping
from unpooled.linear.residuals import CELLS
from unpooled.linear.standard import SPREAD

if TYPE_CHECKING:
    from collections.abc import Generator

    from unpooled.families import Response
    from unpooled.linear.residuals import ResidualCounts
    from unpooled.models.glm.fit import GlmFit
    from unpooled.protocol.messages import Ask
    from unpooled.protocol.registry import Replies


@dataclass
class Cutting:
    """The dispersion of a fit as its residuals tell it, and what its Newton step cuts off."""

    fit: GlmFit
    #: The family at the dispersion that is known so far, and the factor of the variance of a record of the largest weight.
    family: Response = field(init=False)
    factor: float = 1.0
    clipping: Clipping | None = None
    _told: bool = False
    _counted: bool = False

    def __post_init__(self) -> None:
        self.family = self.fit.design.family
        self.factor = self.family.factor

    @property
    def own(self) -> float:
        """Return the factor of the variance as a part: the variance of a record of weight w is ``own`` times the largest weight over w."""
        weighting = self.fit.design.responses.weighting
        return self.factor / (1.0 if weighting is None else weighting.largest)

    @property
    def dispersion(self) -> float:
        """Return the dispersion that a table prints: of a negative binomial its parameter, else the factor of the variance."""
        return self.family.dispersion if self.family.scattered else self.factor

    def before(self) -> Generator[list[Ask], Replies, None]:
        """Ask for the histogram of residuals where the plan has one: it tells a dispersion, and what is cut off."""
        fit = self.fit
        design = fit.design
        if not design.schedule.cells:
            return
        total = yield from fit.total(CELLS, fit.at(fit.start))
        counts = design.long.cells.decode(total, fit.rows)
        if design.scattered:
            self._scattered(counts.mean_square())
            self._counted = True
        self.clipping = self._cut_off(counts)

    def converged(self) -> Generator[list[Ask], Replies, bool]:
        """Ask for the squares of residuals of a fit without noise; return True if its coefficients depend on what they tell."""
        design = self.fit.design
        if self._told or SPREAD not in design.totals:
            return False
        yield from self._squares()
        return self.family.weighted_by_dispersion

    def moved(self, ratio: float) -> None:
        """Correct the factor of the variance for a Newton step that multiplied all means by this.

        Residuals were squared about the means of the rounds, m, where r m are the true ones. For counts (y - m)^2 / m is then the factor times r, and
        m (r - 1)^2 more. For the gamma family (y - m)^2 / m^2 is the dispersion times r^2, and (r - 1)^2 more; its second derivatives at the new
        means are r times as large and scores vary by r^2, so that r times the dispersion is the factor.
        """
        if not self._counted or self.family.weighted_by_dispersion:
            return
        if self.family.dispersed:
            found = self._found((self.factor - (ratio - 1) ** 2) / ratio**2)
            self.factor = ratio * found
        else:
            beside = self.fit.shape.mean / ratio * (ratio - 1) ** 2
            self.factor = self._found((self.factor - beside) / ratio)

    def _found(self, square: float) -> float:
        """Take the dispersion at which squared Pearson residuals have this mean, and return it."""
        family = self.family
        assert isinstance(family, RowFamily)
        found = family.scatter(square, self.fit.shape.mean)
        self.family = replace(family, dispersion=found)
        return found

    def _squares(self) -> Generator[list[Ask], Replies, None]:
        """The mean square of Pearson residuals, and the dispersion that follows."""
        fit, rows, self._told = self.fit, self.fit.design.long, True
        total = yield from fit.total(SPREAD, fit.at(fit.start))
        square, _ = rows.square_of(total)
        self._scattered(square / max(fit.rows - fit.start.size, 1))

    def _scattered(self, square: float) -> None:
        """Take the dispersion of counts whose squared Pearson residuals have this mean."""
        fit, weighting = self.fit, self.fit.design.responses.weighting
        found = self._found(square * (1.0 if weighting is None else weighting.largest))
        family = self.family
        assert isinstance(family, RowFamily)
        self.factor = family.factor
        units = fit.units[:2] if fit.design.schedule.exact else family.units(fit.shape.mean)
        fit.units = (*units, found)

    def _cut_off(self, counts: ResidualCounts) -> Clipping:
        """Return the shares of what the Newton step cuts off, and the shift of the linear predictor that the cut pulls would have made."""
        fit, family, long = self.fit, self.family, self.fit.design.schedule.long
        shortened = counts.shortened
        if not (isinstance(family, RowFamily) and family.tailed):
            return Clipping(shortened, (0.0, 0.0), long, math.inf)
        usual, weight, _ = fit.units
        # A typical record's pull is cut at ``long`` times the bound on most pulls.
        one = float(family.pearson(np.ones(1), np.array([weight]))[0])
        clip = long * usual * one
        deviation = math.sqrt(max(self.factor * family.pearson_variance(fit.shape.mean), 1e-12))
        tail = (0.0, 0.0)
        if fit.design.layout.intercept and fit.design.weighting is None:
            u = family.link(fit.shape.mean)
            ends = tuple(abs(family.pulled(u, y)[0]) * one for y in (family.high, family.low))
            mean, error = counts.from_cut(deviation).missing_mean(
                clip / deviation, (ends[0] / deviation, ends[1] / deviation)
            )
            unit = deviation / one / weight
            tail = mean * unit, error * unit
        return Clipping(shortened, counts.beyond(clip), long, clip / deviation, tail)
