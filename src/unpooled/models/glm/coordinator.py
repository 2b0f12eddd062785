"""Pure generator: add up what the plan's rounds ask for, and turn noisy totals into coefficients. All of it is post-processing."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from unpooled.aggregation.inference import CONSTANT_TERM
from unpooled.aggregation.keys import exchange_keys
from unpooled.aggregation.modes import collect
from unpooled.aggregation.newton_step import NewtonStep
from unpooled.aggregation.standard import CONSTANT, DESCENT, LARGEST_SQUARE, SCALES, SPREAD, Standard
from unpooled.aggregation.totals import COUNT, rows_of
from unpooled.kernels import noisy_gram
from unpooled.models.glm.directions import MOMENTS
from unpooled.models.glm.families import gamma_dispersion
from unpooled.models.glm.result import GlmCoefficient, GlmResult
from unpooled.models.glm.rounds import CONVERGED, PRIOR, GlmMethod
from unpooled.models.glm.rows import BASE, INFORMATION, SCORE

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from numpy.typing import NDArray

    from unpooled.aggregation.messages import Member
    from unpooled.aggregation.totals import Total
    from unpooled.models.glm.directions import Directions
    from unpooled.models.glm.plan import GlmDesign
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.messages import Ask
    from unpooled.protocol.step import Conversation, Replies

    Row = NDArray[np.float64]
    Matrix = NDArray[np.float64]
    Asking = Generator[list[Ask], Replies, Total]

#: A Newton step moves the linear predictor of a typical row by at most this.
_LONGEST_STEP = 2.0
#: Directions of which there is less than this part of the best known are unknown; a coefficient is, if this part of it lies in some.
_SINGULAR, _LOST = 1e-10, 0.1


@dataclass
class GlmFit:
    """A study under way: what was learnt so far, in standardised units."""

    plan: Plan
    members: Mapping[str, Member]
    participants: tuple[str, ...] = ()
    count: Total | None = None
    standard: Standard | None = None
    #: What a request begins with: means and deviations, or the slopes along which the rounds are.
    head: tuple[float, ...] = ()
    #: Coefficients, and the (q, w) of a typical record.
    start: Row = field(default_factory=lambda: np.zeros(0))
    units: tuple[float, float] = (1.0, 1.0)
    #: Variance of every coefficient of the rounds, from their own noise and from their pull to the base rate.
    spread: float = 0.0

    @property
    def design(self) -> GlmDesign:
        """What the study asks for."""
        design: GlmDesign = self.plan.design
        return design

    @property
    def rows(self) -> int:
        """The rows of whoever was in the last total."""
        return rows_of(self.plan.study, self.participants, self.count)

    def total(self, name: str, settings: tuple[float, ...] = (), index: int = 0) -> Asking:
        """One total of the plan."""
        vector = self.design.totals[name]
        total = yield from collect(self.plan, self.design.aggregation, vector, self.members, settings, index)
        self.participants = total.participants
        return total

    def at(self, start: Row) -> tuple[float, ...]:
        """What a request over standardised rows carries."""
        return (*self.head, *start.tolist(), *self.units)

    @property
    def scale(self) -> Row:
        """The data's own units per unit of every standardised column, and of the constant."""
        assert self.standard is not None
        layout = self.design.layout
        p = len(layout.coding.attribute)
        return np.concatenate([layout.half_widths[:p] * self.standard.width, [1 / CONSTANT] * layout.intercept])

    @property
    def back(self) -> Matrix:
        """The linear map from standardised coefficients to those in the data's own units; the intercept takes up the centres."""
        assert self.standard is not None
        layout = self.design.layout
        p = len(layout.coding.attribute)
        centres = layout.centres[:p] + layout.half_widths[:p] * self.standard.middle
        back = np.diag(1 / self.scale)
        if layout.intercept:
            back[-1, :p] = -centres / self.scale[:p]
        return back

    @property
    def penalty(self) -> Row:
        """The penalty of the sum of losses on every standardised coefficient; the constant has none."""
        if self.standard is None:
            return np.zeros(self.start.size)
        penalty = self.rows * self.design.parameters.ridge / self.scale**2
        if self.design.layout.intercept:
            penalty[-1] = 0.0
        return np.asarray(penalty)


def coordinate(plan: Plan) -> Conversation:
    """Exchange keys, then the rounds of the plan's method."""
    design: GlmDesign = plan.design
    members = yield from exchange_keys(design.aggregation)
    fit = GlmFit(plan, members)
    if COUNT in design.totals:
        fit.count = yield from fit.total(COUNT)
    rate = yield from _begin(fit)
    if design.schedule.method is GlmMethod.MEAN:
        return _result(fit, None, design.family.link(rate))
    if design.directions is not None:
        return (yield from _along(fit, design.directions, rate))
    if design.schedule.exact:
        fit.standard, fit.units = design.long.declared(), (1.0, design.family.most[1])
    else:
        total = yield from fit.total(SCALES)
        fit.standard = design.scales.decode(total, fit.rows)
    fit.head, fit.start = fit.standard.settings, np.zeros(design.layout.size)
    if design.layout.intercept:
        fit.start[-1] = design.family.link(rate) / CONSTANT
    if design.schedule.rounds:
        yield from _descent(fit)
    if design.schedule.method is not GlmMethod.NEWTON:
        return _result(fit, None)
    newton, dispersion = yield from _newton(fit)
    return _result(fit, newton, dispersion=dispersion)


def _begin(fit: GlmFit) -> Generator[list[Ask], Replies, float]:
    """The mean response of a record that is exposed to 1, inside what a response can be; the units of a typical one."""
    total = yield from fit.total(BASE)
    family = fit.design.family
    mean, rate = fit.design.base.decode(total, fit.rows)
    fit.units = family.units(mean)
    return rate


def _descent(fit: GlmFit) -> Generator[list[Ask], Replies, None]:
    """Steps along noisy gradients, pulled to the base rate as far as their noise says; the mean of the later half of the iterates."""
    design, schedule = fit.design, fit.design.schedule
    base, current, later = fit.start, fit.start.copy(), np.zeros_like(fit.start)
    first = schedule.rounds // 2
    slopes = max(fit.start.size - design.layout.intercept, 1)
    pull = 0.0
    for index in range(schedule.rounds):
        total = yield from fit.total(DESCENT, fit.at(current), index)
        gradient, noise = design.short.gradient_of(total)
        # What a unit of a coefficient adds to the gradient, where columns are independent and a typical row is scaled down by so much.
        curvature = fit.rows * fit.units[1] / fit.units[0] * design.shrinks
        fit.spread = (noise / curvature) ** 2 / schedule.rounds
        pull = fit.spread * slopes / PRIOR
        pulls = pull + fit.penalty / fit.units[0] / curvature
        gradient = gradient / curvature - pulls * (current - base)
        current = current + schedule.step / (1 + pulls) * gradient
        if index >= first:
            later += current
    fit.start = later / (schedule.rounds - first)
    # The later half has half the gradients, and the pull to the base rate moves a coefficient of the size that was believed so far.
    fit.spread = 2 * fit.spread + (pull / (1 + pull)) ** 2 * PRIOR / slopes


def _along(fit: GlmFit, directions: Directions, rate: float) -> Generator[list[Ask], Replies, GlmResult]:
    """The direction of the slopes, and how long they are."""
    total = yield from fit.total(MOMENTS)
    slopes = directions.decode(total, fit.rows)
    constant = fit.design.family.link(rate) / CONSTANT
    fit.head, fit.start = tuple(slopes.tolist()), np.array([1.0, *[constant] * directions.layout.intercept])
    yield from _descent(fit)
    # Of coded rows: the length that becomes 1 is divided by, and the constant takes its part of it.
    coded = float(fit.start[0]) * slopes * directions.share / directions.longest
    width, centre = directions.layout.coding.units
    own = coded if directions.unit else coded / width
    intercept = CONSTANT * float(fit.start[1]) if directions.layout.intercept else 0.0
    return _result(fit, None, own=np.append(own, intercept - (0.0 if directions.unit else float(centre @ own))))


def _newton(fit: GlmFit) -> Generator[list[Ask], Replies, tuple[NewtonStep, float]]:
    """One step from where the rounds ended, or without noise as many as it takes."""
    design = fit.design
    for index in range(design.schedule.steps):
        total = yield from fit.total(SCORE, fit.at(fit.start), index)
        score, noise = design.long.gradient_of(total)
        score, noise = score * fit.units[0], noise * fit.units[0]
        total = yield from fit.total(INFORMATION, fit.at(fit.start), index)
        gram, variance = (
            number * fit.units[1] ** power for power, number in enumerate(design.long.information_of(total), 1)
        )
        score = score - fit.penalty * fit.start
        weighted = gram + np.diag(fit.penalty)
        inverse, told = _inverse(weighted, noisy_gram.noise_level(variance))
        move = inverse @ score
        if design.schedule.exact:
            move *= min(1.0, _LONGEST_STEP / max(float(np.linalg.norm(move)), 1e-300))
            fit.start = fit.start + move
            if float(np.abs(move).max()) <= CONVERGED * (1 + float(np.abs(fit.start).max())):
                break
    dispersion = 1.0
    if design.family.dispersed:
        total = yield from fit.total(SPREAD, fit.at(fit.start))
        square, deviation = design.long.square_of(total)
        dispersion = gamma_dispersion(min(max(square, deviation, 1.0) / fit.rows, LARGEST_SQUARE / 2), LARGEST_SQUARE)
    estimate = fit.start if design.schedule.exact else fit.start + move
    noises = np.full(score.size, noise**2)
    told &= noisy_gram.identified(gram, variance)
    found = _step(fit, estimate, (weighted, variance, inverse), noises, (dispersion, told))
    if not design.schedule.exact:
        # For predictions: as far along as the noise of the step allows, beside that of the rounds (THEORY.md, section 3).
        weighted = noisy_gram.psd_part(weighted)
        believed = fit.spread * weighted
        met = noisy_gram.noise_covariance(np.outer(move, move), variance, noises)
        fit.start = fit.start + fit.spread * weighted @ np.linalg.solve(believed @ weighted + met, score)
    return found, dispersion


def _step(
    fit: GlmFit,
    estimate: Row,
    information: tuple[Matrix, Matrix, Matrix],
    noises: Row,
    more: tuple[float, NDArray[np.bool_]],
) -> NewtonStep:
    """The estimates in the data's own units, and their covariance: sampling, noise of the score, and what the Hessian's noise met."""
    (weighted, variance, inverse), (dispersion, told) = information, more
    layout, back = fit.design.layout, fit.back
    move = estimate - fit.start
    sampling = inverse @ (dispersion * (weighted - np.diag(fit.penalty))) @ inverse
    met = noisy_gram.noise_covariance(np.outer(move, move), variance, noises)
    own, covariance = back @ estimate, back @ (sampling + inverse @ met @ inverse) @ back.T
    if layout.intercept:
        told[-1] = told.all()
    names = (*layout.names, *([CONSTANT_TERM] if layout.intercept else []))
    whole, alone = (tuple(np.ravel(m).tolist()) for m in (covariance, back @ sampling @ back.T))
    return NewtonStep(names, tuple(own.tolist()), whole, alone, tuple(told.tolist()))


def _inverse(information: Matrix, noise: float) -> tuple[Matrix, NDArray[np.bool_]]:
    """The inverse over the directions that the records tell of more than noise does, and whose they are.

    Columns that add up to a constant, as all categories of one do, leave a direction that nobody knows. A step along it would be noise alone,
    and would carry the Hessian's noise into every other coefficient.
    """
    values, vectors = np.linalg.eigh((information + information.T) / 2)
    kept = values > max(_SINGULAR * float(values[-1]), noise)
    own = vectors[:, kept]
    told = np.square(vectors[:, ~kept]).sum(axis=1) < _LOST
    return np.asarray((own / values[kept]) @ own.T), told


def _result(
    fit: GlmFit, newton: NewtonStep | None, base: float = math.nan, *, dispersion: float = 1.0, own: Row | None = None
) -> GlmResult:
    design = fit.design
    layout, level = design.layout, design.parameters.level
    p = len(layout.coding.attribute)
    if own is None and fit.standard is not None:
        own = np.zeros(p + 1)
        own[: layout.size] = fit.back @ fit.start
    elif own is None:
        own = np.append(np.zeros(p), base)
    lines = newton.terms(level) if newton is not None else ()
    ends = [(t.conf_low, t.conf_high, t.identified) for t in lines[:p]] or [(-math.inf, math.inf, False)] * p
    coefficients = tuple(
        GlmCoefficient(name, value, low, high, told)
        for name, value, (low, high, told) in zip(layout.names, own[:p].tolist(), ends, strict=True)
    )
    family, method = design.family.name, str(design.schedule.method)
    return GlmResult(family, coefficients, float(own[-1]), level, fit.participants, fit.rows, method, dispersion, newton)
