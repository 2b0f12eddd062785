"""Pure generator: add up what the plan's rounds ask for, and turn noisy totals into coefficients. All of it is post-processing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from unpooled.aggregation.estimates import Estimates, wald_lines
from unpooled.aggregation.rounds import Rounds, descend
from unpooled.aggregation.standard import CONSTANT, LARGEST_SQUARE, SCALES, SPREAD, Standard
from unpooled.families.gamma import gamma_dispersion
from unpooled.kernels import noisy_gram
from unpooled.models.glm.directions import MOMENTS
from unpooled.models.glm.plan import GlmDesign
from unpooled.models.glm.result import GlmCoefficient, GlmResult
from unpooled.models.glm.rounds import CONVERGED, PRIOR, GlmMethod
from unpooled.models.glm.rows import BASE, INFORMATION, SCORE
from unpooled.models.glm.shapes import Contrasts, Intervals
from unpooled.models.glm.shaping import shape_of
from unpooled.protocol.terms import finite

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

    from unpooled.aggregation.totals import Total
    from unpooled.models.glm.curvature import Curvature
    from unpooled.models.glm.directions import Directions
    from unpooled.models.glm.shapes import GlmShape
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.messages import Ask
    from unpooled.protocol.step import Conversation, Replies

    Row = NDArray[np.float64]
    Matrix = NDArray[np.float64]

#: A Newton step moves the linear predictor of a typical row by at most this.
_LONGEST_STEP = 2.0


@dataclass
class GlmFit(Rounds[GlmDesign]):
    """A study under way: what was learnt so far, in standardised units."""

    standard: Standard | None = None
    #: What a request begins with: means and deviations, or the slopes along which the rounds are.
    head: tuple[float, ...] = ()
    #: What the coefficients are of, the coefficients, and the (q, w) of a typical record.
    shape: GlmShape = field(init=False)
    start: Row = field(default_factory=lambda: np.zeros(0))
    units: tuple[float, float] = (1.0, 1.0)
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


def coordinate(plan: Plan[GlmDesign]) -> Conversation:
    """Exchange keys, then the rounds of the plan's method."""
    design = plan.design
    fit = GlmFit(plan)
    yield from fit.begin(design.weighting)
    total = yield from fit.total(BASE)
    fit.shape = shape_of(design, total, fit.rows, fit.counted)
    fit.units = fit.shape.units
    if design.schedule.method is GlmMethod.MEAN:
        return _result(fit, None, fit.shape.of_base())
    if design.directions is not None:
        return (yield from _along(fit, design.directions))
    if design.schedule.exact:
        fit.standard, fit.units = design.long.declared(), (1.0, design.family.most[1])
    else:
        total = yield from fit.total(SCALES)
        fit.standard = design.scales.decode(total, fit.rows)
    fit.head, fit.start = fit.standard.settings, fit.shape.start
    if design.schedule.rounds:
        yield from _descent(fit)
    if design.schedule.method is not GlmMethod.NEWTON:
        return _result(fit, None)
    newton, dispersion = yield from _newton(fit)
    return _result(fit, newton, dispersion=dispersion)


def _descent(fit: GlmFit) -> Generator[list[Ask], Replies, None]:
    """Steps along noisy gradients, pulled to the base rate as far as their noise says; the mean of the later half of the iterates."""
    design, schedule, shape = fit.design, fit.design.schedule, fit.shape
    base, slopes = fit.start, shape.slopes
    pull: Row | float = 0.0

    def move(total: Total, current: Row) -> Row:
        nonlocal pull
        gradient, noise = design.short.gradient_of(total)
        curvature = shape.curvature(fit.counted)
        fit.spread = (noise / curvature) ** 2 / schedule.rounds
        pull = fit.spread * slopes / PRIOR
        pulls = pull + fit.penalty / fit.units[0] / curvature
        gradient = shape.stepped(gradient) / curvature - pulls * (current - base)
        return np.asarray(schedule.step / (1 + pulls) * gradient)

    fit.start = yield from descend(fit, fit.at, move, base, schedule.rounds)
    # The later half has half the gradients, and the pull to the base rate moves a coefficient of the size that was believed so far.
    fit.spread = 2 * fit.spread + (pull / (1 + pull)) ** 2 * PRIOR / slopes


def _along(fit: GlmFit, directions: Directions) -> Generator[list[Ask], Replies, GlmResult]:
    """The direction of the slopes, and how long they are."""
    total = yield from fit.total(MOMENTS)
    slopes = directions.decode(total, fit.rows)
    constant = fit.shape.constant / CONSTANT
    fit.head, fit.start = tuple(slopes.tolist()), np.array([1.0, *[constant] * directions.layout.intercept])
    yield from _descent(fit)
    # Of coded rows: the length that becomes 1 is divided by, and the constant takes its part of it.
    coded = float(fit.start[0]) * slopes * directions.share / directions.longest
    width, centre = directions.layout.coding.units
    own = coded if directions.unit else coded / width
    intercept = CONSTANT * float(fit.start[1]) if directions.layout.intercept else 0.0
    return _result(fit, None, np.append(own, intercept - (0.0 if directions.unit else float(centre @ own))))


def _newton(fit: GlmFit) -> Generator[list[Ask], Replies, tuple[Estimates, float]]:
    """Take one Newton step from where the rounds ended, or without noise all the steps that convergence takes."""
    design = fit.design
    for index in range(design.schedule.steps):
        total = yield from fit.total(SCORE, fit.at(fit.start), index)
        score, noise = design.long.gradient_of(total)
        score, noise = fit.shape.received(score) * fit.units[0], noise * fit.units[0]
        total = yield from fit.total(INFORMATION, fit.at(fit.start), index)
        released = (number * fit.units[1] ** power for power, number in enumerate(design.long.information_of(total), 1))
        gram, variance = fit.shape.information(*released)
        score = score - fit.penalty * fit.start
        known = fit.shape.known(gram, variance, fit.penalty, fit.still)
        move = known.inverse @ score
        if design.schedule.exact:
            move *= min(1.0, _LONGEST_STEP / max(float(np.linalg.norm(move)), 1e-300))
            fit.start = fit.start + move
            if float(np.abs(move).max()) <= CONVERGED * (1 + float(np.abs(fit.start).max())):
                break
    # Of the parts of weights, and of the weights themselves: a record of the largest weight has a part of 1.
    largest = 1.0 if design.responses.weighting is None else design.responses.weighting.largest
    own = 1 / largest
    if design.family.dispersed:
        total = yield from fit.total(SPREAD, fit.at(fit.start))
        square, deviation = design.long.square_of(total)
        own = gamma_dispersion(min(max(square, deviation, 1.0) / fit.rows, LARGEST_SQUARE / 2), LARGEST_SQUARE)
    dispersion = own * largest
    estimate = fit.start if design.schedule.exact else fit.start + move
    noises = np.full(score.size, noise**2)
    found = _step(fit, estimate, known, noises, own)
    if not design.schedule.exact:
        # For predictions: as far along as the noise of the step allows, beside that of the rounds (THEORY.md, section 3).
        weighted = noisy_gram.psd_part(known.information)
        believed = weighted * fit.shape.believed(fit.spread)
        met = fit.shape.met(move, known.variance, noises)
        fit.start = fit.start + believed.T @ np.linalg.solve(believed @ weighted + met, score)
    return found, dispersion


def _step(fit: GlmFit, estimate: Row, known: Curvature, noises: Row, dispersion: float) -> Estimates:
    """Return the estimates in the data's own units, and their covariance: sampling, noise of the score, and what the Hessian's noise met (Theorem G.5)."""
    back, inverse = fit.back, known.inverse
    sampling = inverse @ (dispersion * (known.information - np.diag(fit.penalty))) @ inverse
    met = fit.shape.met(estimate - fit.start, known.variance, noises)
    own, alone = back @ estimate, back @ sampling @ back.T
    covariance = alone + back @ inverse @ met @ inverse @ back.T
    lost = np.zeros((own.size, known.lost.size))
    lost[known.lost, np.arange(known.lost.size)] = 1.0
    still = np.column_stack([fit.shape.own_still, lost])
    return Estimates.of(
        fit.shape.names, own, covariance, alone, back @ known.left, known.unknown, still, fit.shape.are_slopes
    )


def _result(fit: GlmFit, newton: Estimates | None, own: Row | None = None, *, dispersion: float = 1.0) -> GlmResult:
    """Return the result; ``own`` are coefficients in the data's own units, or None: those that the fit ended with."""
    design = fit.design
    names, level = design.layout.names, design.parameters.level
    shape, p = fit.shape, len(names)
    if own is None:
        own = fit.back @ fit.start
        if not design.layout.intercept:
            own = np.column_stack([own.reshape(-1, p), np.zeros(own.size // p)]).ravel()
    told: dict[str, tuple[float | None, float | None, bool]] = {}
    if newton is not None:  # of coefficients that have a value of their own
        found = wald_lines(newton.names, *newton.own, level)
        sure = newton.determined(np.eye(len(found))).tolist()
        told = {
            t.term: (finite(t.conf_low), finite(t.conf_high), True) for t, tells in zip(found, sure, strict=True) if tells
        }
    labels = shape.labels if isinstance(shape, Contrasts) else ("",)
    hazards = isinstance(shape, Intervals)
    table = own[None, :] if hazards else own.reshape(len(labels), p + 1)
    coefficients = tuple(
        GlmCoefficient(term, value, *told.get(term, (None, None, False)))
        for label, values in zip(labels, table[:, :p].tolist(), strict=True)
        for term, value in zip([f"{label}: {name}" if label else name for name in names], values, strict=True)
    )
    several = isinstance(shape, Contrasts)
    return GlmResult(
        design.family.name,
        coefficients,
        0.0 if several or hazards else float(own[-1]),
        level,
        fit.participants,
        fit.rows,
        str(design.schedule.method),
        dispersion,
        newton,
        labels if several else (),
        tuple(table[:, -1].tolist()) if several else (),
        tuple(own[p:].tolist()) if hazards else (),
        shape.table if isinstance(shape, Intervals) else None,
    )
