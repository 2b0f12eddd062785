"""Rounds of pulls of two parties: where the coefficients of the next one are, and the table that all settled ones tell. All of it is post-processing.

Last are the doors of the model for either split: rows at several parties, or columns of the same people at two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unpooled.inference.coding import commonest_levels
from unpooled.kernels.noisy import psd_part, without_still
from unpooled.linear.standard import CONSTANT, Standard
from unpooled.models.glm import fit as row_fit
from unpooled.models.glm import plan as row_plan
from unpooled.models.glm.columns import PRODUCTS, RATE, STEPS_OF_COLUMNS, PullDesign, compile_columns
from unpooled.models.glm.curvature import GlmShape, Intervals, estimates_of, without_hidden
from unpooled.models.glm.result import GlmResult, coefficients_of
from unpooled.models.glm.split import TypedTable
from unpooled.models.glm.typed import levels_of, typed_rows
from unpooled.privacy.declared import COLUMNS
from unpooled.products.conversation import joint_total
from unpooled.products.moments import begun, constants, standards_of
from unpooled.products.sums import CONSTANT_STEPS, GRID, JOINT_CONSTANT
from unpooled.protocol.conversation import everybody
from unpooled.protocol.messages import Ask, Nothing
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.inference.estimates import Estimates
    from unpooled.inference.life_table import LifeTable
    from unpooled.models.glm.curvature import Curvature
    from unpooled.models.glm.split import Begun
    from unpooled.models.glm.typed import TypedBend, TypedRows
    from unpooled.privacy.plan import Plan, Study
    from unpooled.privacy.table import Table
    from unpooled.protocol.registry import Conversation, Replies

    Row = NDArray[np.float64]
    Matrix = NDArray[np.float64]

_TUNED = table("glm_columns")


#: What keeps second moments along still directions from being singular, as a part of the people.
_FIRM = 1e-6


class OpenedRound(NamedTuple):
    """A round that was opened: its coefficients, what weighed its pulls, the score, and the deviation of its noise."""

    at: Row
    setting: Any
    score: Row
    noise: float


@dataclass
class PullFit:
    """The state of a fit between its rounds, in standardised columns in the order of the layout and, last, the constant."""

    design: PullDesign
    begun: Begun
    standard: Standard
    moments: Matrix
    variance: Matrix
    #: The largest deviation of a released mean of a coded column.
    unsure: float = 0.0

    def __post_init__(self) -> None:
        design, n, d = self.design, self.design.rows, self.design.columns
        one = GlmShape(design, self.begun.rate, (1.0, 1.0))  # type: ignore[arg-type]
        life = self.begun.life
        self.shape = one if life is None else Intervals(design, self.begun.rate, (1.0, 1.0), life)  # type: ignore[arg-type]
        own_and_constant = np.s_[: d + 1, : d + 1]
        still = one.still(self.standard)
        own = np.linalg.qr(still)[0] if still.size else np.empty((d + 1, 0))
        self.gram = psd_part(without_still(self.moments[own_and_constant], self.variance[own_and_constant], own))
        #: Second moments of coefficients, from which the deviation of a step follows, and the noise of typed curvatures by weight.
        self.metric, self.doubt = (self.gram, self.variance[own_and_constant]) if life is None else self._with_pieces(life)
        self.still = self.shape.still(self.standard)
        noise = math.sqrt(float(self.variance[0, 0]))
        #: About the norm of the noise in the covariance, and what of it is taken for nothing.
        self.norm = noise * math.sqrt(2 * d) + 1e-3 * n
        self.typed: TypedRows[Any] = self._typed()
        self.b = self.shape.start
        #: The precision of what is believed of the coefficients about the base rate.
        self.prior = np.zeros((len(self.b), len(self.b)))
        self.prior[:d, :d] = d / _TUNED.believed / n * (self.gram + self.norm * np.eye(d + 1))[:d, :d]
        self.prior[range(d, len(self.b)), range(d, len(self.b))] = CONSTANT**2 / _TUNED.level
        #: The precision of what is believed of hazards in the table too.
        self.typical = np.zeros(len(self.b))
        if isinstance(self.shape, Intervals):
            self.prior[range(d, len(self.b)), range(d, len(self.b))] = self.shape.typical
            self.typical[d:] = 0.0 if design.exact else self.shape.typical
        self.seen: list[tuple[Callable[[Row], tuple[Row, Matrix]], Row, Matrix]] = []
        self.rounds: list[OpenedRound] = []
        self.setting = self.typed.setting(self.b)
        self.level = self.typed.bend(self.b, self.setting)
        self._inverse: Matrix | None = None
        #: Without noise, the length of the last step in standard errors.
        self.left = math.inf
        # The products of columns with responses less their mean are the score at the base rate of pulls that nothing weights.
        mean, top = self.begun.mean, design.form.top(self.begun)
        typical = self.typed.scatter(mean, top) * self.gram
        noise = math.sqrt(float(self.variance[0, d + 1]))
        self._saw(lambda truth: self.typed.excess(mean, top, truth), self.moments[: d + 1, d + 1], typical, noise)
        self.setting = self.typed.setting(self.b)

    def _with_pieces(self, life: LifeTable) -> tuple[Matrix, Matrix]:
        """Return second moments of coefficients and the noise of typed curvatures with pieces in the place of one constant, of which each has the part of its events."""
        d, pieces = self.design.columns, len(life.edges)
        events = np.maximum(np.array(life.events), 1.0)
        parts = np.zeros((d + 1, d + pieces))
        parts[:d, :d], parts[d, d:] = np.eye(d), events / events.sum()
        doubt = (parts**2).T @ self.variance[: d + 1, : d + 1] @ parts**2
        doubt[d:, d:] = 0.0
        return parts.T @ self.gram @ parts, doubt

    def _typed(self) -> TypedRows[Any]:
        """Return public rows with the released moments of the columns and, where there is one, of the offset as one more column."""
        design, d, n = self.design, self.design.columns, self.design.rows
        covariance, middle, width = self.gram[:d, :d] / n, self.standard.middle, self.standard.width
        levels, offset = levels_of(design.layout), np.zeros(0)
        if design.responses.shifted:
            centre, half = design.responses.shift
            mean = float(self.moments[d, d + 2]) / n / CONSTANT
            across = self.moments[:d, d + 2] / n - mean * self.moments[:d, d] / n / CONSTANT
            spread = max(float(self.moments[d + 2, d + 2]) / n - mean**2, 0.0)
            covariance = np.block([[covariance, across[:, None]], [across, np.array([[spread]])]])
            middle, width = np.append(middle, 0.0), np.append(width, 1.0)
            whole = typed_rows(covariance, middle, width, levels)
            rows, offset = whole[:, :d], centre + half * np.clip(mean + whole[:, d], -1.0, 1.0)
        else:
            rows = typed_rows(covariance, middle, width, levels)
            offset = np.zeros(len(rows))
        rows = np.column_stack([rows, np.full(len(rows), CONSTANT)])
        deviations = np.array([float(design.noise(one.name)[0]) for one in design.rounds[1:]])
        noise = 0.0 if design.exact else float(1 / np.sqrt((1 / deviations**2).sum()))
        return design.form.typed(TypedTable(rows, self._held, n, offset), design.family, noise, self.begun)

    @property
    def _held(self) -> NDArray[np.bool_]:
        """Return which columns of the layout the holder of the response has."""
        design = self.design
        names = [name == design.holder for name in design.parties for _ in design.layout_of(name).coding.attribute]
        return np.array(names, dtype=np.bool_)[design.order]

    @property
    def at(self) -> tuple[float, ...]:
        """Return the numbers that the request of the next round carries: slopes in the parties' order, constants, and what weighs pulls."""
        design, found = self.design, np.zeros(self.design.columns)
        found[design.order] = self.b[: design.columns]
        holds = tuple(party == design.holder for party in design.parties)
        return (*found.tolist(), *self.typed.sent(self.b, self.setting, holds))

    def take(self, values: Row, deviation: float) -> float:
        """Take the released products of a round in squared steps, and go one step; return how long it was, in standard errors."""
        design, unit = self.design, self.typed.unit(self.setting)
        score = design.scored(values) * unit
        told = OpenedRound(self.b, self.setting, score, deviation * unit)
        self.rounds.append(told)
        if design.exact:
            return self._mended(told)
        meat = self.typed.bend(self.b, self.setting).meat
        self._saw(
            lambda truth: self.typed.expected(told.at, told.setting, truth),
            score,
            meat,
            told.noise,
        )
        self.setting = self.typed.setting(self.b)
        return math.inf

    def _length(self, step: Row) -> float:
        """Return the deviation of the linear predictor that a step makes."""
        return math.sqrt(max(float(step @ self.metric @ step), 0.0) / self.design.rows)

    def _learn(self) -> None:
        """Go to the coefficients that all scores so far and what was believed make likeliest, as typed rows expect the scores there (Gauss and Newton)."""
        start, began = self.shape.start, self.b
        for _ in range(_TUNED.whole("iterations")):
            precision, gradient = self.prior.copy(), -self.prior @ (self.b - start)
            for expected, score, weight in self.seen:
                there, slope = expected(self.b)
                precision += slope.T @ weight @ slope
                gradient += slope.T @ weight @ (score - there)
            self.b = self.b + np.linalg.solve(precision, gradient)
            step = self.b - began
            self.b = began + step * min(1.0, _TUNED.step / max(self._length(step), 1e-300))

    def _saw(self, expected: Callable[[Row], tuple[Row, Matrix]], score: Row, meat: Matrix, noise: float) -> None:
        """Take a score of which typed rows expect a value and a derivative at any truth, and whose second moments and noise are these."""
        firm = (noise**2 + _FIRM * self.design.rows) * np.eye(len(score))
        self.seen.append((expected, score, np.asarray(np.linalg.inv(meat + firm), dtype=np.float64)))
        self._learn()

    def _mended(self, told: OpenedRound) -> float:
        """Go one step without noise: the inverse curvature is that of typed rows, mended by what the last two rounds show (Broyden)."""
        if self._inverse is None:
            known, _ = self._known(self.typed.bend(self.b, self.setting))
            self._inverse = known.inverse
        if len(self.rounds) > 1:
            before = self.rounds[-2]
            moved, changed = told.at - before.at, before.score - told.score
            went = self._inverse @ changed
            along = moved @ self._inverse
            if abs(float(along @ changed)) > 1e-12 * float(moved @ moved):
                self._inverse = self._inverse + np.outer(moved - went, along) / float(along @ changed)
        step = self._inverse @ told.score
        step *= min(1.0, _TUNED.step / max(self._length(step), 1e-300))
        self.b = self.b + step
        bend = self.typed.bend(self.b, self.setting)
        known, _ = self._known(bend)
        errors = np.sqrt(np.maximum((known.inverse @ bend.meat @ known.inverse).diagonal(), 1e-300))
        self.left = float(np.abs(step / errors).max())
        return self.left

    def _known(self, bend: TypedBend, out: Sequence[int] = ()) -> tuple[Curvature, Matrix]:
        """Return the curvature of typed rows over the directions that the moments' noise does not hide, and the second moments of their pulls.

        ``out``: coefficients that are 0, along whose columns no row is said to vary.
        """
        size, life = len(self.b), self.begun.life
        nothing = _TUNED.hidden * self.norm * np.diag(np.arange(size) < (size if life is None else self.design.columns))
        information, meat = bend.curvature + bend.weight * nothing, bend.meat + bend.square * nothing
        variance, gone = bend.weight**2 * self.doubt, list(out)
        information[gone, :], information[:, gone] = 0.0, 0.0
        information[gone, gone] = np.sqrt(variance[gone, gone])  # no more than the noise hides
        return self.shape.known(information, variance, np.zeros(size), self.still), meat + np.diag(self.typical)

    def _told(self, b: Row, out: Sequence[int] = ()) -> tuple[Estimates, Row, Matrix]:
        """Return the estimates that all settled rounds tell from ``b`` on, the last step there, and their covariance; ``out``: coefficients that are 0."""
        back, bend = self.shape.back(self.standard), self.typed.bend(b, self.setting)
        known, meat = self._known(bend, out)
        settled = [
            told
            for k, told in enumerate(self.rounds)
            if k == len(self.rounds) - 1 or (not self.design.exact and self._length(self.b - told.at) < _TUNED.settled)
        ]
        alike = np.array([self.typed.alike(b, self.setting, told.setting) for told in settled])
        noises = alike * [told.noise for told in settled]
        weights = np.array([1 / one**2 if one else 1.0 for one in noises.tolist()])
        weights /= weights.sum()
        left = [told.score - self.typed.pull(told.at, told.setting, b) for told in settled]
        told_there = (weights * alike) @ np.array(left) - self.typical * (b - self.shape.start)
        step = np.zeros(len(b)) if self.design.exact else known.inverse @ told_there
        noise = math.sqrt(float(np.square(weights * noises).sum()))
        way = weights @ np.array([b + step - told.at for told in settled])
        met = self.shape.met(way, known.variance, np.full(len(b), noise**2))
        alone = known.inverse @ meat @ known.inverse
        covariance = alone + known.inverse @ met @ known.inverse
        found = estimates_of(self.shape, back, known, back @ (b + step), back @ covariance @ back.T, back @ alone @ back.T)
        return found, step, covariance

    def estimates(self) -> tuple[Estimates, Estimates | None, bool]:
        """Return what all settled rounds tell, the same without the terms that the noise hides (None: it hides none), and whether the rounds found a root."""
        found, step, covariance = self._told(self.b)
        # A step is as long as its noise, too: its expected square is below that of the errors of all coefficients.
        spread = float((self.metric * covariance).sum()) / self.design.rows
        near = self._length(step) < math.sqrt(_TUNED.arrived**2 + 2 * spread)
        near = self.left < _TUNED.exact_arrived if self.design.exact else near
        near = near and self.typed.bend(self.b, self.setting).weight >= _TUNED.collapsed * self.level.weight
        if self.design.exact:
            return found, None, near
        return found, without_hidden(self.shape, self.design.layout.terms, found, self._without), near

    def _without(self, out: list[int]) -> Estimates:
        """Return the estimates of the model without these coefficients, from where typed rows expect the scores of the settled rounds."""
        b = self.b.copy()
        for _ in range(_TUNED.whole("iterations")):
            b[out] = 0.0
            _, step, _ = self._told(b, out)
            b = b + step * min(1.0, _TUNED.step / max(self._length(step), 1e-300))
        b[out] = 0.0
        return self._told(b, out)[0]

    def result(self) -> GlmResult:
        """Return the coefficients that predict, where the rounds ended, and the table."""
        design, own, life = self.design, self.shape.back(self.standard) @ self.b, self.begun.life
        newton, without, found = self.estimates()
        few = design.untabled or ("" if found else design.form.words.rootless)
        if few:
            newton, without = newton.untold(), None
        confidence = design.parameters.confidence
        shares = dict(zip(design.layout.terms.names, self.standard.middle.tolist(), strict=False))
        common = {} if design.exact else commonest_levels(design.layout.terms, shares, self.unsure)
        return GlmResult(
            design.family.name,
            coefficients_of(design.layout.names, own[: design.columns], newton if without is None else without, confidence),
            0.0 if life is not None else float(own[-1]),
            confidence,
            design.parties,
            design.rows,
            PRODUCTS,
            1.0,
            newton,
            log_hazards=() if life is None else tuple(own[design.columns :].tolist()),
            life_table=life,
            common=common,
            few=few,
            without=without,
        )


# --- Begun -----------------------------------------------------------------------------------------------------------------
# From the first releases to a fit that can ask for its rounds.


def fit_of(design: PullDesign, begun: Begun, standards: Mapping[str, Standard], values: Row) -> PullFit:
    """Return the fit that begins from what the first sums tell, means and deviations, and the noisy total of second moments."""
    shape, order = design.shape, _order(design)
    variance = shape.whole(np.square(design.deviations / GRID**2), 0.0)[np.ix_(order, order)]
    moments = shape.whole(values / GRID**2, design.rows * JOINT_CONSTANT**2)[np.ix_(order, order)]
    unit = np.ones(len(order))
    unit[design.columns] = CONSTANT / JOINT_CONSTANT
    middle, width = (
        np.concatenate([getattr(standards[party], name) for party in design.scaled])[design.order]
        for name in ("middle", "width")
    )
    standard = Standard(middle, width, math.inf, (math.nan, math.nan))
    noise = [design.constants_release(party).deviations[: design.scales(party).count] for party in design.scaled]
    unsure = max(float(one.max(initial=0.0)) for one in noise) / design.layout.grid / design.rows
    scaled = np.outer(unit, unit)
    return PullFit(design, begun, standard, moments * scaled, variance * scaled**2, unsure)


def _order(design: PullDesign) -> list[int]:
    """Return the places in a joint row of all columns in the order of the layout, of the constant, of the response and, where there is one, of the offset."""
    places, last = design.shape.places, design.shape.columns
    at = places[design.holder].stop - 1
    beside = [at, at - 1] if design.responses.shifted else [at]
    features = [k for party in design.parties for k in range(places[party].start, places[party].stop) if k not in beside]
    return [*(features[k] for k in design.order), last, *beside]


def coordinate_columns(plan: Plan[PullDesign]) -> Generator[list[Ask], Replies, GlmResult]:
    """The mean response, means and deviations, second moments, and the rounds of the plan; without noise until they arrive."""
    design = plan.design
    members, totals = yield from constants(plan)
    (reply,) = yield from everybody([Ask(design.holder, RATE, Nothing())])
    begun_with = design.rate(reply.sums.values.numpy())
    total = yield from joint_total(plan, members)
    fit = fit_of(design, begun_with, standards_of(design, totals), total.values)
    for number in range(1, len(design.rounds)):
        total = yield from joint_total(plan, members, fit.at, number)
        if fit.take(total.values, float(total.deviations[0])) < _TUNED.exact_step:
            break
    return fit.result()


# --- Imagined --------------------------------------------------------------------------------------------------------------
# A study played over made-up rows of both parties with the noise that its plan has: what coverage is measured on.


def imagined_pulls(design: PullDesign, tables: Mapping[str, Table], rng: np.random.Generator) -> GlmResult:
    """Return the result of a study over rows like these; sums are scaled to the study's number of rows, and rounding is left out."""
    times, standards = begun(design, tables, rng)
    release = design.rate_release
    sums = design.base.statistic(tables[design.holder]).astype(float) * times
    begun_with = design.rate_of(sums + release.deviations * rng.standard_normal(sums.size))
    parts = [
        design.deviation_rows(party, begun_with).coded(tables[party], _of(standards, party)) for party in design.parties
    ]
    whole = np.column_stack([*parts, np.full(len(parts[0]), CONSTANT_STEPS)]).astype(float)
    exact = (whole.T @ whole)[design.shape.pairs] * times
    fit = fit_of(design, begun_with, standards, exact + design.deviations * rng.standard_normal(exact.size))
    for one in design.rounds[1:]:
        noise = design.noise(one.name)
        exact = added_up(design, tables, standards, fit.at) * times
        if fit.take(exact + noise * rng.standard_normal(exact.size), float(noise[0])) < _TUNED.exact_step:
            break
    return fit.result()


def _of(standards: Mapping[str, Standard], party: str) -> Standard:
    """Return a party's means and deviations; a holder of the response alone has none."""
    return standards.get(party, Standard.declared())


def added_up(
    design: PullDesign, tables: Mapping[str, Table], standards: Mapping[str, Standard], at: tuple[float, ...]
) -> Row:
    """Return what the masked products of a round give, of numbers that are not rounded."""
    made = {
        party: design.pull_rows(party, at).coded(tables[party], _of(standards, party)).astype(np.float64)
        for party in design.parties
    }
    return design.form.added(design.parties, design.holder, made)


# --- Either split ----------------------------------------------------------------------------------------------------------
# A generalised linear model of either split: rows at several parties, or columns of the same people at two.

#: What a party may be asked for, in a study of either split.
STEPS = (*row_plan.STEPS, *STEPS_OF_COLUMNS)


def compile_plan(study: Study) -> Plan:
    """Return the releases of a study: of products under masks where it says that columns are split, else of totals over rows."""
    return compile_columns(study) if study.parameters.get("split") == COLUMNS else row_plan.compile_plan(study)


def coordinate(compiled: Plan) -> Conversation:
    """Return the conversation of a study of either split."""
    by_columns = isinstance(compiled.design, PullDesign)
    return (yield from coordinate_columns(compiled) if by_columns else row_fit.coordinate(compiled))
