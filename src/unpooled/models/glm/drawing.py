"""A generalised linear model that is drawn to earlier ones: what its rounds and its Newton step say with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from unpooled.aggregation.priors import DrawnTo, Told, drawn_to, named, posterior_of, rows_of, told_of
from unpooled.kernels.shrunk_rounds import averaged_rounds
from unpooled.models.glm.rounds import GlmMethod

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.aggregation.estimates import Estimates
    from unpooled.models.glm.fit import GlmFit

    Row = NDArray[np.float64]
    Matrix = NDArray[np.float64]


@dataclass
class Drawing:
    """The earlier models of a study under way, and how they drew it so far."""

    fit: GlmFit
    drawn: DrawnTo | None = None
    #: What the rounds found, less the base rate, and the variance of each coefficient; None where there were none.
    rounds: tuple[Row, float] | None = None
    #: The models less the base rate, a row each, in the coefficients that the fit works on.
    there: Matrix = field(init=False)

    def __post_init__(self) -> None:
        fit, design = self.fit, self.fit.design
        own = rows_of(design.parameters.prior, design.layout.names, intercept=True)
        self.there = np.linalg.solve(fit.back, own.T).T - fit.shape.start

    @property
    def begin(self) -> Row:
        """Return where rounds begin: the base rate, and all models weighted as if all and none were alike likely."""
        return np.asarray(self.fit.shape.start + self.there.sum(axis=0) / (1 + len(self.there)))

    def after_rounds(self, pull: float, noise: float) -> None:
        """Take what rounds found; ``pull``: how far they were held back, ``noise``: the variance of one gradient in coefficients.

        Where nothing follows them, what they found is drawn to the models.
        """
        fit, schedule = self.fit, self.fit.design.schedule
        kept, gain = averaged_rounds(schedule.rounds, schedule.step)
        arrived, variance = kept / (1 + pull), gain / (1 + pull) ** 2 * noise
        found = self.begin + (fit.start - self.begin) / arrived
        self.rounds = found - fit.shape.start, max(variance / arrived**2, 1e-12)
        if schedule.method is GlmMethod.GRADIENT:
            told = Told.of(self.rounds[0], np.eye(found.size) * self.rounds[1], fit.still)
            mean, _, weights, deviations = drawn_to(told, self.there, fit.shape.moving)
            fit.start = fit.shape.start + mean
            self.drawn = DrawnTo(named(fit.design.parameters.prior, weights, deviations), ())

    def of_step(self, estimates: Estimates) -> Estimates:
        """Return the posterior of a Newton step's estimates with the models."""
        fit, (told, hidden) = self.fit, told_of(estimates)
        base = fit.shape.start
        told = Told(told.precision, told.score - told.precision @ base)
        if self.rounds is not None and hidden.size:  # of directions that the step does not tell, rounds still tell something
            told = told.plus(np.linalg.qr(hidden)[0], *self.rounds)
        mean, covariance, weights, deviations = drawn_to(told, self.there, fit.shape.moving)
        fit.start = base + mean
        found, pulls = posterior_of(estimates, fit.back @ fit.start, fit.back @ covariance @ fit.back.T)
        self.drawn = DrawnTo(named(fit.design.parameters.prior, weights, deviations), pulls)
        return found
