"""A generalised linear model that is drawn to earlier ones: what its rounds and its Newton step say with them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from unpooled.inference.priors import (
    DrawnTo,
    Told,
    drawn_to,
    named,
    posterior_of,
    told_of,
)
from unpooled.kernels.score_posterior import averaged_rounds
from unpooled.models.glm.rounds import GlmMethod

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.inference.estimates import Estimates
    from unpooled.models.glm.fit import GlmFit

    Row = NDArray[np.float64]
    Matrix = NDArray[np.float64]


@dataclass
class Drawing:
    """The earlier models of a study under way, and how they drew it so far."""

    fit: GlmFit
    drawn: DrawnTo | None = None
    #: What the rounds found, less the base rate, and its covariance; None where there were none.
    rounds: tuple[Row, Matrix] | None = None
    #: The models less the base rate, a row each, in the coefficients that the fit works on.
    there: Matrix = field(init=False)

    def __post_init__(self) -> None:
        fit = self.fit
        assert fit.standard is not None
        self.there = fit.shape.earlier(fit.design.parameters.prior, fit.standard)

    @property
    def begin(self) -> Row:
        """Return where rounds begin: the base rate, and all models weighted as if all and none were alike likely."""
        return np.asarray(self.fit.shape.start + self.there.sum(axis=0) / (1 + len(self.there)))

    def after_rounds(self, pull: Row | float, noise: Row | float) -> None:
        """Take what rounds found; ``pull``: how far each coefficient was held back, ``noise``: the variance of one gradient in it.

        Where nothing follows them, what they found is drawn to the models.
        """
        fit, schedule = self.fit, self.fit.design.schedule
        kept, gain = averaged_rounds(schedule.rounds, schedule.step)
        arrived, variance = kept / (1 + pull), gain / (1 + pull) ** 2 * noise
        found = self.begin + (fit.start - self.begin) / arrived
        variances = np.broadcast_to(np.maximum(variance / arrived**2, 1e-12), found.shape)
        self.rounds = found - fit.shape.start, fit.shape.of_rounds(variances)
        if schedule.method is GlmMethod.GRADIENT:
            mean, _, weights, deviations = self._drawn(Told.of(*self.rounds, fit.still))
            fit.start = fit.shape.start + mean
            self.drawn = DrawnTo(named(fit.design.parameters.prior, weights, deviations), ())

    def of_step(self, estimates: Estimates, left: Matrix | None) -> Estimates:
        """Return the posterior of a Newton step's estimates with the models.

        ``left`` is the covariance about where rounds and step arrived together, which predictions follow; None without noise, where both are one.
        An interval would be too short by it, for rounds may have ended before they settled.
        """
        fit = self.fit
        base, arrived = fit.shape.start, fit.start
        mean, covariance, weights, deviations = self._drawn(self._told(estimates))
        said = named(fit.design.parameters.prior, weights, deviations)
        found, self.drawn = posterior_of(estimates, fit.back @ (base + mean), fit.back @ covariance @ fit.back.T, said)
        if left is not None:
            mean = self._drawn(self._told(estimates, (arrived, left)))[0]
        fit.start = base + mean
        return found

    def _told(self, estimates: Estimates, nearer: tuple[Row, Matrix] | None = None) -> Told:
        """Return what the estimates say, less the base rate; of directions that the step does not tell, rounds still tell something."""
        told, hidden = told_of(estimates, self.fit.back, nearer)
        told = Told(told.precision, told.score - told.precision @ self.fit.shape.start)
        along = self.fit.shape.in_rounds(hidden)
        return told if self.rounds is None or not along.any() else told.plus(np.linalg.qr(along)[0], *self.rounds)

    def _drawn(self, told: Told) -> tuple[Row, Matrix, Row, Row]:
        """Return (mean, covariance, weights, their deviations); slopes are typical where those of one linear predictor explain a response together."""
        shape = self.fit.shape
        return drawn_to(told, self.there, shape.moving, 1 / math.sqrt(shape.slopes))
