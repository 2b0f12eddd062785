"""Pure generator: add up what the plan's rounds ask for, and turn noisy totals into coefficients. All of it is post-processing."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import numpy as np
from scipy.linalg import solve_triangular

from unpooled.families import RowFamily
from unpooled.families.logistic import Logistic
from unpooled.inference.coding import SITE, commonest, commonest_levels
from unpooled.inference.coordinates import Clipping, crowded_columns
from unpooled.inference.estimates import Estimates
from unpooled.inference.printed_terms import class_terms
from unpooled.inference.priors import (
    DrawnTo,
    Told,
    drawn_to,
    named,
    posterior_of,
    told_of,
)
from unpooled.kernels import noisy as noisy_gram
from unpooled.kernels.posterior import drawn_to_model
from unpooled.kernels.score_posterior import Known, ScoreCounts, averaged_rounds, believed_slopes, score_posterior
from unpooled.linear.residuals import CELLS, MEAT
from unpooled.linear.standard import CONSTANT, SCALES, SPREAD
from unpooled.models.glm import rows as glm_rows
from unpooled.models.glm.completeness_fit import Fitted, Resting, fit_completeness
from unpooled.models.glm.curvature import Contrasts, Intervals, beyond, estimates_of, of_balanced, shape_of, without_hidden
from unpooled.models.glm.declared import CONVERGED, PRIOR, ROUNDED, GlmMethod
from unpooled.models.glm.plan import GlmDesign
from unpooled.models.glm.result import GlmResult, coefficients_of
from unpooled.models.glm.rows import BASE, INFORMATION, MOMENTS, PROBABILITIES, SCORE
from unpooled.schedules import table
from unpooled.totals.rounds import Rounds, descend

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from numpy.typing import NDArray

    from unpooled.families import Response
    from unpooled.kernels.score_posterior import ScorePosterior
    from unpooled.linear.residuals import ResidualCounts
    from unpooled.linear.standard import Standard
    from unpooled.models.glm.curvature import Curvature, GlmShape
    from unpooled.models.glm.rows import Directions
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.messages import Ask
    from unpooled.protocol.registry import Conversation, Replies
    from unpooled.totals.total import Total

    Row = NDArray[np.float64]
    Matrix = NDArray[np.float64]


# --- A fit under way -------------------------------------------------------------------------------------------------------
# A study of a generalised linear model under way: what every request carries. Where the coefficients stand goes from step to step.


@dataclass
class GlmFit(Rounds[GlmDesign]):
    """A study under way: it asks for totals, and knows what every request of its rounds carries."""

    #: What the coefficients are of.
    shape: GlmShape = field(init=False)
    #: The (q, w) of a typical record with the dispersion; and the base rate as it was released, with the deviation of its noise.
    units: tuple[float, float, float] = (1.0, 1.0, 1.0)
    base_rate: tuple[float, float] = (0.5, 0.0)
    #: What a request begins with: means and deviations of the columns, or the slopes along which the rounds are.
    standard: Standard | None = None
    head: tuple[float, ...] = ()
    #: The deviation of the noise of a released mean of a coded column.
    unsure: float = 0.0
    #: The model of which rows are whole, once it is fitted, and how the coefficients rest on it; None where there is none.
    whole: Fitted | None = None
    resting: Resting | None = None
    #: The estimates of the model without the terms that the noise hides; None where it hides none.
    without: Estimates | None = None
    #: About what the whole rows alone would have as coefficients, in the data's own units.
    alone: Row | None = None

    def begun(self, total: Total) -> None:
        """Take what the first total tells: sums of responses and of what they are exposed to, of the parties that take part."""
        design = self.design
        present = replace(design, layout=design.layout.present(self.participants))
        self.shape = shape_of(present, total, self.rows, self.counted)
        self.units = (*self.shape.units, design.family.dispersion)
        if design.schedule.probabilities:
            self.base_rate = (
                float(total.values[0]) / design.base.grid / self.rows,
                float(total.deviations[0]) / design.base.grid / self.rows,
            )

    @property
    def common(self) -> dict[str, str]:
        """Return the commonest level, or class, of columns whose declared reference is rare by the released shares."""
        layout, shape, found = self.design.layout, self.shape, {}
        if isinstance(shape, Contrasts):
            label = commonest(shape.labels, shape.rates.tolist(), shape.labels[0], shape.unsure)
            found = {} if label is None else {self.design.parameters.response: label}
        if self.standard is None or self.design.schedule.exact or not layout.intercept:
            return found
        coded = replace(layout.terms, factors=tuple(f for f in layout.terms.factors if f.name != SITE))
        shares = dict(zip(coded.names, self.standard.middle.tolist(), strict=False))
        return found | commonest_levels(coded, shares, self.unsure)

    @property
    def crowded(self) -> tuple[str, ...]:
        """Return the sentences about columns of numbers whose released mean is near an end of a wide range."""
        layout = self.design.layout
        if self.standard is None or self.design.schedule.exact:
            return ()
        first = np.searchsorted(layout.coding.attribute, range(len(layout.features)))
        widths = layout.half_widths[first]
        means = layout.centres[first] + widths * self.standard.middle[first]
        return crowded_columns(layout.features, means, widths * self.standard.width[first])

    def standardised(self) -> Generator[list[Ask], Replies, None]:
        """Ask for the means and deviations of the columns; a study without noise takes the declared ones."""
        design = self.design
        if design.schedule.exact:
            self.standard, self.units = design.long.declared(), (1.0, design.family.most[1], design.family.dispersion)
        else:
            total = yield from self.total(SCALES)
            self.standard = design.scales.decode(total, self.rows)
            self.unsure = float(total.deviations[: design.scales.count].max(initial=0.0)) / design.layout.grid / self.rows
        self.head = self.standard.settings

    def at(self, start: Row) -> tuple[float, ...]:
        """Return the numbers that a request over standardised rows carries."""
        return (*self.head, *self.shape.sent(start), *self.units, *(() if self.whole is None else self.whole.tilt.settings))

    def fit_whole(self) -> Generator[list[Ask], Replies, None]:
        """Fit the model of which rows are whole, where the study has one; the coefficients then begin from a base rate without its offset."""
        if self.design.completeness is None:
            return
        self.whole = yield from fit_completeness(self, self.head, self.shape.rate, self.still)
        link = Logistic().link(self.shape.rate) - self.whole.shift
        self.shape = replace(self.shape, rate=float(Logistic().mean(np.array(link))))

    def rest_on_whole(self, start: Row) -> Generator[list[Ask], Replies, None]:
        """Ask how the score at these coefficients rests on the model of which rows are whole, where there is one."""
        if self.whole is not None:
            self.resting = yield from Resting.asked(self, self.whole, self.at(start), self.units[:2])

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
        """Return the penalty of the sum of losses on every coefficient; a constant has none, and nothing along one direction."""
        if self.standard is None:
            return np.zeros(1)
        return self.shape.penalty(self.standard, self.counted)


# --- Calibration -----------------------------------------------------------------------------------------------------------
# The part of a fit that tells probabilities: the direction of the slopes, and the line of the log odds along a score.

#: Of log odds a normal part of variance v that is left out makes the others smaller by about this times v (the logistic curve as a normal one).
_SECOND = 0.5 * (16 * math.sqrt(3) / (15 * math.pi)) ** 2
#: How often what a step's linear part leaves is worked out anew, at the step that it makes.
_SECOND_ORDERS = 4
_TUNED = table("glm")
#: Constant and factor of the log odds of each line whose mean probability predicts.
Lines: TypeAlias = tuple[tuple[float, float], ...]


def direction_and_scale(fit: GlmFit) -> Generator[list[Ask], Replies, tuple[Row, Lines]]:
    """Find the direction of the slopes by rounds and their length by one histogram; return coefficients, and lines whose mean probability predicts."""
    design = fit.design
    rows, intercept = design.short, design.layout.intercept
    start = np.zeros(design.layout.size)
    if intercept:
        start[-1] = fit.shape.constant / glm_rows.SHORTENED_CONSTANT
    step = design.schedule.step / rows.radius**2 / fit.counted

    def move(total: Total, _: Row) -> Row:
        return step * rows.gradient_of(total)[0]

    found = yield from descend(fit, fit.at, move, start, design.schedule.rounds)
    start, line = yield from _line_along(fit, found[: fit.shape.columns], None)
    return start, line.lines


def calibrate(fit: GlmFit, start: Row) -> Generator[list[Ask], Replies, tuple[Row, Lines]]:
    """Correct the length of the slopes and the constant by the histogram along the score of the fit, where the plan has one.

    Where a small budget was drawn to earlier models, their length may be all wrong: then half of the belief is that nothing is known of it, and
    the lines are returned whose mean probability predicts.
    """
    if not fit.design.schedule.probabilities:
        return start, ()
    slopes, intercept = start[: fit.shape.columns], fit.design.layout.intercept
    constant = CONSTANT * float(start[-1]) if intercept else 0.0
    length, doubt = float(np.linalg.norm(slopes)), fit.design.schedule.doubt
    unsure = bool(fit.design.parameters.prior) and doubt > 1
    known = Known(constant, length, 1.0, _TUNED.earlier_mass) if unsure else Known(constant, length, doubt)
    start, line = yield from _line_along(fit, slopes, known)
    return start, line.lines if unsure else ()


def _line_along(fit: GlmFit, slopes: Row, known: Known | None) -> Generator[list[Ask], Replies, tuple[Row, ScorePosterior]]:
    """Ask for the histogram of classes along these slopes; return the coefficients of the mean line, and the line."""
    design, length = fit.design, float(np.linalg.norm(slopes))
    intercept = design.layout.intercept
    unit = slopes / length if length > 0 else np.zeros_like(slopes)
    along = np.append(unit, [0.0] * intercept)
    total = yield from fit.total(PROBABILITIES, fit.at(along))
    counts, deviation = design.outcomes.decode(total)
    released = ScoreCounts(counts, deviation, *fit.base_rate, fit.rows)
    line = score_posterior(released, intercept=intercept, known=known)
    return np.append(line.slope * unit, [line.constant / CONSTANT] * intercept), line


# --- Residuals -------------------------------------------------------------------------------------------------------------
# Residuals before and after Newton steps: the dispersion that they tell, the shares that the bounds cut off, and the mean of what was cut.


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

    def before(self, start: Row) -> Generator[list[Ask], Replies, None]:
        """Ask for the histogram of residuals where the plan has one: it tells a dispersion, and what is cut off."""
        fit = self.fit
        design = fit.design
        if not design.schedule.cells:
            return
        total = yield from fit.total(CELLS, fit.at(start))
        counts = design.long.cells.decode(total, fit.rows)
        if design.scattered:
            self._scattered(counts.mean_square())
            self._counted = True
        self.clipping = self._cut_off(counts)

    def converged(self, start: Row) -> Generator[list[Ask], Replies, bool]:
        """Ask for the squares of residuals of a fit without noise; return True if its coefficients depend on what they tell."""
        design = self.fit.design
        if self._told or SPREAD not in design.totals:
            return False
        yield from self._squares(start)
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

    def _squares(self, start: Row) -> Generator[list[Ask], Replies, None]:
        """The mean square of Pearson residuals, and the dispersion that follows."""
        fit, rows, self._told = self.fit, self.fit.design.long, True
        total = yield from fit.total(SPREAD, fit.at(start))
        square, _ = rows.square_of(total)
        self._scattered(square / max(fit.rows - start.size, 1))

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


# --- Earlier models --------------------------------------------------------------------------------------------------------
# A generalised linear model that is drawn to earlier ones: what its rounds and its Newton step say with them.


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

    def after_rounds(self, start: Row, pull: Row | float, noise: Row | float) -> Row:
        """Return where rounds arrived; ``pull``: how far each coefficient was held back, ``noise``: the variance of one gradient in it.

        Where nothing follows them, what they found is drawn to the models.
        """
        fit, schedule = self.fit, self.fit.design.schedule
        kept, gain = averaged_rounds(schedule.rounds, schedule.step)
        arrived, variance = kept / (1 + pull), gain / (1 + pull) ** 2 * noise
        found = self.begin + (start - self.begin) / arrived
        variances = np.broadcast_to(np.maximum(variance / arrived**2, 1e-12), found.shape)
        self.rounds = found - fit.shape.start, fit.shape.of_rounds(variances)
        if schedule.method is not GlmMethod.GRADIENT:
            return start
        mean, _, weights, deviations = self._drawn(Told.of(*self.rounds, fit.still))
        self.drawn = DrawnTo(named(fit.design.parameters.prior, weights, deviations), ())
        return np.asarray(fit.shape.start + mean)

    def of_step(self, estimates: Estimates, arrived: Row, left: Matrix | None) -> tuple[Estimates, Row]:
        """Return the posterior of a Newton step's estimates with the models, and the coefficients that predict.

        ``left`` is the covariance about where rounds and step arrived together, which predictions follow; None without noise, where both are one.
        An interval would be too short by it, for rounds may have ended before they settled.
        """
        fit = self.fit
        base = fit.shape.start
        mean, covariance, weights, deviations = self._drawn(self._told(estimates))
        said = named(fit.design.parameters.prior, weights, deviations)
        found, self.drawn = posterior_of(estimates, fit.back @ (base + mean), fit.back @ covariance @ fit.back.T, said)
        if left is not None:
            mean = self._drawn(self._told(estimates, (arrived, left)))[0]
        return found, np.asarray(base + mean)

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


# --- Coordinator -----------------------------------------------------------------------------------------------------------
# Pure generator: add up what the plan's rounds ask for, and turn noisy totals into coefficients. All of it is post-processing.

#: How much larger than the noise of the rounds says the variance of the way to the optimum may be.
_FARTHER = tuple(10.0**k for k in range(9))


def coordinate(plan: Plan[GlmDesign]) -> Conversation:
    """Exchange keys, then the rounds of the plan's method."""
    design = plan.design
    fit = GlmFit(plan)
    yield from fit.begin(design.weighting)
    fit.begun((yield from fit.total(BASE)))
    if design.schedule.method is GlmMethod.MEAN:
        return _result(fit, fit.shape.of_base())
    if design.directions is not None:
        return (yield from _along(fit, design.directions))
    yield from fit.standardised()
    yield from fit.fit_whole()
    if design.schedule.method is GlmMethod.DIRECTION:
        start, lines = yield from direction_and_scale(fit)
        return _result(fit, _natural(fit, start), lines=lines)
    start = fit.shape.start
    spread: Row | float = 0.0
    drawing = Drawing(fit) if design.parameters.prior else None
    if design.schedule.rounds:
        start, spread = yield from _descent(fit, start, drawing)
    if design.schedule.method is not GlmMethod.NEWTON:
        start, lines = yield from calibrate(fit, start)
        return _result(fit, _natural(fit, start), drawing=drawing, lines=lines)
    newton, cutting, start, left = yield from _newton(fit, start, spread)
    if drawing is not None:
        newton, start = drawing.of_step(newton, start, left)
    start, _ = yield from calibrate(fit, start)
    return _result(
        fit, _natural(fit, start), newton, dispersion=cutting.dispersion, clipping=cutting.clipping, drawing=drawing
    )


def _natural(fit: GlmFit, start: Row) -> Row:
    """Return the coefficients of the data's own units, with a constant of 0 where none is fitted."""
    own, p = np.asarray(fit.back @ start), len(fit.design.layout.names)
    return own if fit.design.layout.intercept else np.column_stack([own.reshape(-1, p), np.zeros(own.size // p)]).ravel()


def _descent(
    fit: GlmFit, start: Row, drawing: Drawing | None = None
) -> Generator[list[Ask], Replies, tuple[Row, Row | float]]:
    """Steps along noisy gradients, pulled to the base rate as far as their noise says; the mean of the later half of the iterates.

    The other number is the variance of every coefficient, from the rounds' own noise and from their pull.
    """
    design, schedule, shape = fit.design, fit.design.schedule, fit.shape
    base, slopes = start if drawing is None else drawing.begin, shape.slopes
    pull: Row | float = 0.0
    once: Row | float = 0.0
    spread: Row | float = 0.0

    def move(total: Total, current: Row) -> Row:
        nonlocal pull, once, spread
        gradient, noise = design.short.gradient_of(total)
        curvature = shape.curvature(fit.counted)
        once = (noise / curvature) ** 2
        spread = once / schedule.rounds
        pull = spread * slopes / PRIOR
        pulls = pull + fit.penalty / fit.units[0] / curvature
        gradient = shape.stepped(gradient) / curvature - pulls * (current - base)
        return np.asarray(schedule.step / (1 + pulls) * gradient)

    start = yield from descend(fit, fit.at, move, base, schedule.rounds)
    if drawing is not None:
        start = drawing.after_rounds(start, pull, once)
    elif schedule.method is GlmMethod.GRADIENT and not design.family.classes:
        kept, gain = averaged_rounds(schedule.rounds, schedule.step)
        arrived = np.broadcast_to(kept / (1 + pull), base.shape)
        noise = np.broadcast_to(gain / (1 + pull) ** 2 * once, base.shape)
        start = base + believed_slopes(start - base, arrived, noise, shape.moving, slopes)
    # The later half has half the gradients, and the pull to the base rate moves a coefficient of the size that was believed so far.
    return start, 2 * spread + (pull / (1 + pull)) ** 2 * PRIOR / slopes


def _along(fit: GlmFit, directions: Directions) -> Generator[list[Ask], Replies, GlmResult]:
    """The direction of the slopes, and how long they are."""
    total = yield from fit.total(MOMENTS)
    slopes = directions.decode(total, fit.rows)
    constant = fit.shape.constant / CONSTANT
    fit.head = tuple(slopes.tolist())
    start, _ = yield from _descent(fit, np.array([1.0, *[constant] * directions.layout.intercept]))
    # Of coded rows: the length that becomes 1 is divided by, and the constant takes its part of it.
    coded = float(start[0]) * slopes * directions.share / directions.longest
    width, centre = directions.layout.coding.units
    own = coded if directions.unit else coded / width
    intercept = CONSTANT * float(start[1]) if directions.layout.intercept else 0.0
    return _result(fit, np.append(own, intercept - (0.0 if directions.unit else float(centre @ own))))


def _newton(
    fit: GlmFit, start: Row, spread: Row | float
) -> Generator[list[Ask], Replies, tuple[Estimates, Cutting, Row, Matrix | None]]:
    """Take the plan's Newton steps from the end of the rounds, or without noise all that convergence takes.

    The last two of what is returned are the coefficients for predictions, and the covariance of the noise that is left in them.
    """
    design, exact = fit.design, fit.design.schedule.exact
    cutting = Cutting(fit)
    size = math.inf
    yield from cutting.before(start)
    for index in range(design.schedule.steps):
        total = yield from fit.total(SCORE, fit.at(start), index)
        score, noise = design.long.gradient_of(total)
        score, noise = fit.shape.received(score) * fit.units[0], noise * fit.units[0]
        total = yield from fit.total(INFORMATION, fit.at(start), index)
        released = (number * fit.units[1] ** power for power, number in enumerate(design.long.information_of(total), 1))
        gram, variance = fit.shape.information(*released)
        score = score - fit.penalty * start
        known = fit.shape.known(gram, variance, fit.penalty, fit.still, noise)
        move = known.inverse @ score
        if exact:
            move *= min(1.0, _TUNED.newton_step / max(float(np.linalg.norm(move)), 1e-300))
        if exact or index < design.schedule.steps - 1:
            start = start + move
        before, size = size, float(np.abs(move).max()) / (1 + float(np.abs(start).max()))
        if exact and (
            size <= CONVERGED or before / 2 <= size <= ROUNDED
        ):  # no longer shorter: the grid of the rows is all that is left
            again = yield from cutting.converged(start)
            if not again:
                break
    yield from fit.rest_on_whole(start)
    meat: tuple[Matrix, Matrix] | None = None
    if MEAT in design.totals:
        total = yield from fit.total(MEAT, fit.at(start))
        squares, variances = design.long.meat_of_pulls(total)
        meat = squares * fit.units[0] ** 2, variances * fit.units[0] ** 4
    if not exact:
        return _read(fit, cutting, (score, gram, variance), (start, move, spread), noise, known, meat)
    tail = (0.0, 0.0) if cutting.clipping is None else cutting.clipping.tail
    return _step(fit, start, start, known, np.full(score.size, noise**2), cutting.own, tail, meat), cutting, start, None


def _read(
    fit: GlmFit,
    cutting: Cutting,
    released: tuple[Row, Matrix, Matrix],
    way: tuple[Row, Row, Row | float],
    noise: float,
    known: Curvature,
    meat: tuple[Matrix, Matrix] | None,
) -> tuple[Estimates, Cutting, Row, Matrix]:
    """Return what the last Newton step says, where there is noise: estimates for tables, and coefficients for predictions with what is left in them.

    ``released``: score and second moments with the variances of their noise; ``way``: where the rounds ended, the step from there, and what the noise of
    the rounds leaves of every coefficient.
    """
    design, (score, gram, variance), (start, move, spread) = fit.design, released, way
    longer = 0.0
    if design.family.multiplies and design.layout.intercept:
        ratio, known, move = _at_new_level(fit, gram, variance, score, move, noise)
        gram, variance = gram * ratio, variance * ratio**2
        longer = (math.log(ratio) - (ratio - 1) / ratio) / CONSTANT
        move[-1] += longer
        cutting.moved(ratio)
    noises = np.full(score.size, noise**2)
    tail = (0.0, 0.0) if cutting.clipping is None else cutting.clipping.tail
    met = noises, cutting.own, tail, meat
    found = _step(fit, start + move, start, known, *met)
    if not design.parameters.prior:  # which tells of what the noise hides
        told = score, gram, variance
        fit.without = without_hidden(
            fit.shape, design.layout.terms, found, lambda out: _without(fit, out, told, start, (noise, longer), met)
        )
    # For predictions: as far along as the noise of the step allows, beside that of the rounds (THEORY.md, section 3).
    weighted = noisy_gram.psd_part(known.information)
    moved, left = _believed_move(weighted, fit.shape.believed(spread), fit.shape.met(move, known.variance, noises), score)
    start = start + moved
    if design.layout.intercept:
        start[-1] += tail[0] / CONSTANT + longer
        left[-1, -1] += (tail[1] / CONSTANT) ** 2
    return found, cutting, start, left


def _believed_move(weighted: Matrix, variances: Row | float, met: Matrix, score: Row) -> tuple[Row, Matrix]:
    """Return the posterior mean of the way from where the rounds ended to the optimum, and its covariance.

    ``variances`` are those that the noise of the rounds leaves. Rounds may also have ended before they settled. So the variances times each of
    ``_FARTHER`` have a prior weight, half of it at 1, and the score weighs them.
    """
    believed = weighted * variances
    logs, means, spreads = [], [], []
    for farther in _FARTHER:
        # Of a long step the noise that it met is as near singular as rounding: repaired, which leaves all others as they are.
        root = np.linalg.cholesky(noisy_gram.repaired(farther * believed @ weighted + met, np.zeros_like(met)))
        whitened = solve_triangular(root, score, lower=True)
        gain = solve_triangular(root, farther * believed, lower=True)
        logs.append(-0.5 * float(whitened @ whitened) - float(np.log(root.diagonal()).sum()))
        means.append(farther * believed.T @ solve_triangular(root.T, whitened))
        spreads.append(np.diag(farther * np.broadcast_to(variances, score.shape)) - gain.T @ gain)
    others = len(_FARTHER) - 1
    evidence = np.array(logs) + np.log([0.5, *[0.5 / max(others, 1)] * others])
    weights = np.exp(evidence - evidence.max())
    weights /= weights.sum()
    mean = np.average(means, axis=0, weights=weights)
    off = np.array(means) - mean
    return mean, np.einsum("i,ijk->jk", weights, spreads) + (off.T * weights) @ off


def _at_new_level(
    fit: GlmFit, gram: Matrix, variance: Matrix, score: Row, move: Row, noise: float
) -> tuple[float, Curvature, Row]:
    """Return the ratio of all means after the step to those before it, and the curvature and the step that follow.

    Rounds that cut pulls end at too small means. With a log link a step e^d - 1 of the constant is one of d, and second derivatives at the new means
    are e^d times the released ones: the step that follows from these is (e^d - 1) / e^d.
    """
    ratio = min(max(1 + float(move[-1]) * CONSTANT, 0.5), 2.0)
    known = fit.shape.known(gram * ratio, variance * ratio**2, fit.penalty, fit.still, noise)
    return ratio, known, np.asarray(known.inverse @ score)


def _step(
    fit: GlmFit,
    estimate: Row,
    start: Row,
    known: Curvature,
    noises: Row,
    dispersion: float,
    tail: tuple[float, float],
    meat: tuple[Matrix, Matrix] | None,
) -> Estimates:
    """Return the estimates in the data's own units, and their covariance: sampling, noise of the score, and what the Hessian's noise met (Theorem G.5).

    ``tail`` is what is added to the linear predictor for residuals beyond their bound, and its deviation.
    """
    back, inverse = fit.back, known.inverse
    offset = np.zeros(start.size) if fit.whole is None else fit.whole.linear(noisy_gram.psd_part(known.information))
    scores = dispersion * (known.information - np.diag(fit.penalty))
    family = fit.design.family
    if isinstance(family, Logistic) and family.balanced:
        along = start + offset
        scores = dispersion * of_balanced(family, noisy_gram.psd_part(known.information), along)
    if meat is not None:
        scores = drawn_to_model(*meat, noisy_gram.psd_part(scores))
    noise = fit.shape.met(estimate - start, known.variance, noises)
    if fit.resting is not None:
        scores, noise = fit.resting.known(scores), noise + fit.resting.added
    sampling = inverse @ scores @ inverse
    met = inverse @ noise @ inverse
    if tail[1]:
        estimate = estimate.copy()
        estimate[-1] += tail[0] / CONSTANT
        met[-1, -1] += (tail[1] / CONSTANT) ** 2
    own, alone = back @ estimate, back @ sampling @ back.T
    if fit.resting is not None:
        fit.alone = own + back @ offset
    covariance = alone + back @ met @ back.T
    return estimates_of(fit.shape, back, known, own, covariance, alone)


def _without(
    fit: GlmFit,
    out: Sequence[int],
    released: tuple[Row, Matrix, Matrix],
    start: Row,
    beside: tuple[float, float],
    met: tuple[Row, float, tuple[float, float], tuple[Matrix, Matrix] | None],
) -> Estimates:
    """Return the estimates of the model without these coefficients: they are 0, and the score is that of the others when they are.

    ``released``: score and second moments at ``start`` with the variances of their noise; ``beside``: the deviation of the score's noise, and what a log
    link adds to the constant.
    """
    score, gram_at_start, variance = released
    score, gram = score + gram_at_start[:, out] @ start[out], gram_at_start.copy()
    score[out] = 0.0
    gram[out, :], gram[:, out] = 0.0, 0.0
    gram[out, out] = np.sqrt(variance[out, out])  # no more than the noise hides
    known, family = fit.shape.known(gram, variance, fit.penalty, fit.still, beside[0]), fit.design.family
    estimate = start + known.inverse @ score
    estimate[out] = 0.0
    if isinstance(family, Logistic):  # the step is long: what its linear part leaves is added, and half of that may be wrong
        first = estimate
        for _ in range(_SECOND_ORDERS):
            more = beyond(family, gram_at_start, start, estimate - start)
            more[out] = 0.0
            estimate = first + known.inverse @ more
        found, wrong = _step(fit, estimate, start, known, *met), fit.back @ (estimate - first) / 2
        return _wider(found, np.where(fit.shape.are_slopes, wrong, 0.0))
    estimate[-1] += beside[1]
    found = _step(fit, estimate, start, known, *met)
    if family.multiplies:  # with a log link what is left out moves the constant alone
        return found
    # What is left out was in the predictor, with about this variance: to second order all slopes are wrong by the same part.
    typical = float(gram_at_start[-1, -1]) / CONSTANT**2
    seen = np.maximum(gram_at_start.diagonal()[out], 0.0) + np.sqrt(variance.diagonal()[out])
    spread = float(np.square(start[out]) @ seen) / max(typical, 1.0)
    return _wider(found, np.where(fit.shape.are_slopes, _SECOND * spread * np.array(found.estimate), 0.0))


def _wider(found: Estimates, wrong: Row) -> Estimates:
    """Return the estimates with a covariance that holds this bias of all of them together."""
    covariance = found.square(found.covariance) + np.outer(wrong, wrong)
    return msgspec.structs.replace(found, covariance=tuple(covariance.ravel().tolist()))


def _result(
    fit: GlmFit,
    own: Row,
    newton: Estimates | None = None,
    *,
    dispersion: float = 1.0,
    clipping: Clipping | None = None,
    lines: tuple[tuple[float, float], ...] = (),
    drawing: Drawing | None = None,
) -> GlmResult:
    """Return the result; ``own`` are coefficients in the data's own units."""
    design = fit.design
    names, confidence = design.layout.names, design.parameters.confidence
    shape, p = fit.shape, len(names)
    newton, without = (one.untold() if one is not None and fit.next_to_none else one for one in (newton, fit.without))
    labels = shape.labels if isinstance(shape, Contrasts) else ("",)
    hazards = isinstance(shape, Intervals)
    table = own[None, :] if hazards else own.reshape(len(labels), p + 1)
    terms = [term for label in labels for term in (class_terms([label], names) if label else names)]
    coefficients = coefficients_of(terms, table[:, :p].ravel(), newton if without is None else without, confidence)
    several = isinstance(shape, Contrasts)
    return GlmResult(
        design.family.name,
        coefficients,
        0.0 if several or hazards else float(own[-1]),
        confidence,
        fit.participants,
        fit.rows,
        str(design.schedule.method),
        dispersion,
        newton,
        clipping,
        labels if several else (),
        tuple(table[:, -1].tolist()) if several else (),
        tuple(own[p:].tolist()) if hazards else (),
        shape.table if isinstance(shape, Intervals) else None,
        lines,
        None if drawing is None else drawing.drawn,
        fit.common,
        fit.crowded,
        None if fit.whole is None else fit.whole.result(fit, fit.alone),
        fit.next_to_none,
        without,
    )
