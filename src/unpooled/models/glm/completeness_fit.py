"""The coordinator's part of a model of which rows are whole: its rounds over all rows, and what its errors add to those of the coefficients.

All of it is post-processing of totals. The model is fitted before the coefficients, whose rounds carry it as public numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

from unpooled.families.logistic import Logistic
from unpooled.kernels import noisy as noisy_gram
from unpooled.linear.standard import CONSTANT
from unpooled.linear.tilted import known_scores, met
from unpooled.models.glm.completeness import INFLUENCE, INFORMATION, ROUNDS, SCORE, Tilt
from unpooled.models.glm.curvature import curvature, of_balanced
from unpooled.models.glm.declared import CONVERGED, PRIOR, ROUNDED, SHORT
from unpooled.schedules import table
from unpooled.totals.rounds import descend
from unpooled.totals.whole_rows import WholeRowsModel

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from numpy.typing import NDArray

    from unpooled.models.glm.completeness import Completeness
    from unpooled.models.glm.plan import GlmDesign
    from unpooled.protocol.messages import Ask
    from unpooled.protocol.registry import Replies
    from unpooled.totals.rounds import Rounds
    from unpooled.totals.total import Total

    Row = NDArray[np.float64]
    Matrix = NDArray[np.float64]

_TUNED = table("glm")
#: The share of whole rows, and of the second class, are never taken for nearer to 0 or 1 than this.
_RAREST = 0.02, 0.05
#: Nodes and weights of a standard normal.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


@dataclass(frozen=True)
class Fitted:
    """A fitted model of which rows are whole."""

    tilt: Tilt
    #: Its covariance without the noise, and what the noise adds.
    sampling: Matrix
    privacy: Matrix

    @property
    def completeness(self) -> Completeness:
        """Return the model that was fitted."""
        return self.tilt.completeness

    @property
    def shift(self) -> float:
        """Return the offset of a row at the mean of all columns."""
        first, second = (self.tilt.gamma[-1] * CONSTANT + y * self.tilt.gamma[-2] for y in self.tilt.ends)
        return float(np.logaddexp(0.0, -first) - np.logaddexp(0.0, -second))

    def linear(self, information: Matrix) -> Row:
        """Return the coefficients of the line that is nearest to the offset, for rows that are normal under the weights of their second moments.

        The offset is a function of the log odds of being whole in the one class less the same of those in the other, each a line.
        """
        own, found = self.completeness, np.zeros(information.shape[0])
        whole = float(information[-1, -1]) / CONSTANT**2
        if not whole > 0:  # the noise left nothing: no line is nearest
            return found
        middle = information[-1] / CONSTANT / whole
        spread = information / whole - np.outer(middle, middle)
        for y, sign in zip(self.tilt.ends, (-1, 1), strict=True):
            line = own.along(self.tilt.gamma, y)
            mean = float(line @ middle)
            odds = mean + math.sqrt(max(float(line @ spread @ line), 0.0)) * _NODES
            slope, level = float(_WEIGHTS @ expit(-odds)), float(_WEIGHTS @ -np.logaddexp(0.0, -odds))
            found += sign * slope * line
            found[-1] += sign * (level - slope * mean) / CONSTANT
        return found

    def result(self, fit: Rounds[GlmDesign], alone: Row | None) -> WholeRowsModel:
        """Return what is told of which rows are whole; ``alone``: about what the whole rows alone would have as coefficients."""
        own, gamma, (low, high) = self.completeness, self.tilt.gamma, self.tilt.ends
        covariance = self.sampling + self.privacy
        assert fit.count is not None  # rows may have gaps
        names = dict.fromkeys(own.coding.names)
        of_response = np.zeros(own.size)
        of_response[-2] = high - low
        if (
            fit.design.schedule.exact
        ):  # columns are coded and not standardised: a row at the middle of them is no row of zeros
            of_response[own.places.size : -2] = (high - low) * own.middle[own.multiplied]
        return WholeRowsModel(
            tuple(column.name for column in own.columns),
            tuple(names),
            own.products,
            fit.rows,
            float(fit.count.deviations[0]),
            sum(fit.plan.study.card(name).rows for name in fit.participants),
            float(of_response @ gamma),
            math.sqrt(max(float(of_response @ covariance @ of_response), 0.0)),
            () if alone is None else tuple(alone.tolist()),
        )


def fit_completeness(
    fit: Rounds[GlmDesign], head: tuple[float, ...], class_rate: float, still_rows: Matrix
) -> Generator[list[Ask], Replies, Fitted]:
    """Fit the model of which rows are whole: rounds from the share of whole rows on, and a Newton step; without noise steps to convergence.

    ``head`` has the released means and deviations of the columns, ``class_rate`` is the share of the second class among whole rows, and along the columns
    of ``still_rows`` no row of the study varies.
    """
    design, exact, own = fit.design, fit.design.schedule.exact, fit.design.completeness
    assert own is not None
    rows = sum(fit.plan.study.card(name).rows for name in fit.participants)
    rarest, family = _RAREST, Logistic(balanced=design.schedule.balanced)
    rate = float(np.clip(fit.rows / rows, rarest[0], 1 - rarest[0]))
    of_class = float(np.clip(class_rate, rarest[1], 1 - rarest[1]))
    class_width = (0.5, 0.5) if exact else (of_class, math.sqrt(of_class * (1 - of_class)))
    units = (1.0, 0.25) if exact else family.units(rate)
    carried = (*units, 1.0, *class_width)
    gamma = np.zeros(own.size)
    gamma[-1] = family.link(rate) / CONSTANT

    def at(current: Row) -> tuple[float, ...]:
        return (*head, *current.tolist(), *carried)

    if design.schedule.whole_rounds:
        gamma = yield from _descent(fit, own, gamma, at, rows * units[1] / units[0])
    size, still = math.inf, own.still(still_rows)
    for index in range(design.schedule.steps):
        total = yield from fit.total(SCORE, at(gamma), index)
        score, noise = design.long_marked.gradient_of(total)
        score, noise = score * units[0], noise * units[0]
        total = yield from fit.total(INFORMATION, at(gamma), index)
        gram, variance = (part * units[1] ** power for power, part in enumerate(design.long_marked.information_of(total), 1))
        known = curvature(gram, variance, np.zeros(own.size), still)
        move = known.inverse @ score
        if exact:
            move *= min(1.0, _TUNED.newton_step / max(float(np.linalg.norm(move)), 1e-300))
        gamma = gamma + move
        before, size = size, float(np.abs(move).max()) / (1 + float(np.abs(gamma).max()))
        if exact and (size <= CONVERGED or before / 2 <= size <= ROUNDED):
            break
    met = noisy_gram.noise_covariance(np.outer(move, move), variance, np.full(score.size, noise**2))
    privacy = known.inverse @ met @ known.inverse
    sampling = known.inverse
    if family.balanced:
        sampling = sampling @ of_balanced(family, noisy_gram.psd_part(known.information), gamma) @ sampling
    return Fitted(Tilt(own, *class_width, _unit(own, gamma, class_width), gamma), sampling, privacy)


def _unit(own: Completeness, gamma: Row, of_class: tuple[float, float]) -> float:
    """Return the typical size of one derivative of an offset, by which rows of them are divided: that of a row at the mean of all columns."""
    tilt = Tilt(own, *of_class, 1.0, gamma)
    low, high = tilt.ends
    first, second = (float(expit(-gamma[-1] * CONSTANT - y * gamma[-2])) for y in (low, high))
    level, slope = second - first, second * high - first * low
    square = own.places.size * level**2 + (own.multiplied.size + 1) * slope**2
    return math.sqrt(max(square / own.size, 1e-4))


def _descent(
    fit: Rounds[GlmDesign], own: Completeness, start: Row, at: Callable[[Row], tuple[float, ...]], curvature_of_one: float
) -> Generator[list[Ask], Replies, Row]:
    """Take the plan's rounds as those of the coefficients are taken: steps along noisy gradients, pulled to where they began as far as their noise says."""
    schedule, rows, step = fit.design.schedule, fit.design.short_marked, np.ones(own.size)
    step[: own.places.size] = fit.design.layout.steps[own.places]
    once = curvature_of_one * SHORT / step
    length = min(_TUNED.step, _TUNED.step_of_columns / own.size)
    began = start.copy()

    def move(total: Total, current: Row) -> Row:
        gradient, noise = rows.gradient_of(total)
        pull = (noise / once) ** 2 / schedule.whole_rounds * (own.size - 1) / PRIOR
        return np.asarray(length / (1 + pull) * (gradient / once - pull * (current - began)))

    return (yield from descend(fit, at, move, start, schedule.whole_rounds, name=ROUNDS))


@dataclass(frozen=True)
class Resting:
    """The derivative of the score of the coefficients by the model of which rows are whole, and the noise of an entry of it."""

    fitted: Fitted
    matrix: Matrix
    noise: float

    @classmethod
    def asked(
        cls, fit: Rounds[GlmDesign], fitted: Fitted, settings: tuple[float, ...], units: tuple[float, float]
    ) -> Generator[list[Ask], Replies, Resting]:
        """Ask for the derivative at the coefficients of these settings; ``units``: most of a pull, and of a weight."""
        total = yield from fit.total(INFLUENCE, settings)
        own = fit.design.influence
        return cls(fitted, *own.decode(total, units, fitted.tilt.unit))

    def known(self, scores: Matrix) -> Matrix:
        """Return second moments of scores less what the fit of the model of completeness takes of them: K H^-1 K', without its noise (Theorem G.12).

        Each part is at most what there is, so that noise leaves no score without a variance.
        """
        return known_scores(scores, self.matrix, self.noise, self.fitted.sampling)

    @property
    def added(self) -> Matrix:
        """Return what the noise of the model of completeness adds to the covariance of the score."""
        return noisy_gram.psd_part(met(self.matrix, self.noise, self.fitted.privacy))
