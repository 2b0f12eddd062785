"""From noisy totals to coefficients, for rows or columns at different parties, and the result as everybody reads it. All of it is post-processing."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import msgspec
import numpy as np

from unpooled.estimation.contained import conversation_under
from unpooled.inference import profiles
from unpooled.inference.estimates import CONSTANT_TERM
from unpooled.inference.priors import DrawnTo, words
from unpooled.inference.summary import CREDIBLE, is_credible, notes, untold
from unpooled.kernels import posterior as noise_aware
from unpooled.linear.conversation import directed, standardised
from unpooled.linear.descent import descent, frame_of, way_of, without_errors
from unpooled.linear.drawn import drawn_fit, drawn_tables
from unpooled.linear.fit import LinearFit, plain
from unpooled.linear.moments import NARROWED, Moments, StoredMoments
from unpooled.linear.residuals import CELLS, MEAT
from unpooled.linear.schedule import Method, clip_of_focus
from unpooled.linear.standard import CONSTANT, RESIDUAL, SCALES, Standard
from unpooled.models import load
from unpooled.models.bayes import columns, declared, whole
from unpooled.models.bayes.columns import SineDesign, by_sines
from unpooled.models.bayes.declared import CROSS, DEVIATIONS, MOMENTS, NAIVE, PARTS, SQUARE, believed
from unpooled.models.bayes.whole import modelled_of
from unpooled.models.bayes.whole_fit import chances_of, fitted_whole
from unpooled.privacy.declared import COLUMNS
from unpooled.products.design import JointDesign
from unpooled.products.hidden import in_common
from unpooled.products.moments import joint_moments
from unpooled.protocol.registry import Panel, of_terms
from unpooled.protocol.terms import ResultTerm, finite
from unpooled.schedules import table
from unpooled.totals.rounds import Rounds
from unpooled.totals.total import Total

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

    from unpooled.linear.inference import LinearTables
    from unpooled.models.bayes.declared import BayesDesign, FocusRows
    from unpooled.privacy.plan import Plan, Study
    from unpooled.products.design import ColumnsDesign
    from unpooled.protocol.messages import Ask
    from unpooled.protocol.registry import Conversation, Replies

    Row = NDArray[np.float64]


# --- Projection ------------------------------------------------------------------------------------------------------------
# Algorithm 2: narrow the declared ranges to multiples of the (noisy) marginal deviations, the multiple from synthetic data.
#
# Everything here is public: the deviations were released, the synthetic data come from the model and the public seed.

_TUNED, _FOCUS = table("projection"), table("focus")
_MULTIPLES = _TUNED.several("multiples")
#: Deviation of y in the synthetic model.
_SPREAD = 1.25**0.5


def thresholds(design: BayesDesign, total: Total, rows: int, multiple: float) -> tuple[float, ...]:
    """Return (low, high) per projected column, inside its declared range."""
    columns, grid = design.projected, design.layout.grid
    count = len(columns)
    first, second = total.values[:count] / grid / rows, total.values[count:] / grid**2 / rows
    middle = np.clip(first, -1, 1) if design.layout.intercept else np.zeros(count)
    noise = total.deviations[count:] / grid**2 / rows
    deviation = np.sqrt(np.maximum(np.maximum(second - middle**2, noise), _TUNED.least**2))
    settings: list[float] = []
    for column, m, d in zip(columns, middle.tolist(), deviation.tolist(), strict=True):
        ends = max(-1.0, m - multiple * d), min(1.0, m + multiple * d)
        settings += [column.centre + column.half_width * end for end in ends]
    return tuple(settings)


def best_multiple(design: BayesDesign, plan: Plan, rows: int) -> float:
    """Return the multiple with the smallest error of the coefficients on synthetic data of the model with the noise of this plan."""
    if rows not in design.multiples:
        design.multiples[rows] = _simulated(design, plan, rows)
    return design.multiples[rows]


def _simulated(design: BayesDesign, plan: Plan, rows: int) -> float:
    rng = np.random.default_rng(plan.study.public_seed)
    d, n = design.layout.size - design.layout.intercept, min(rows, _TUNED.whole("rows"))
    deviations = design.moments.deviations(plan) * (n / rows)  # as large beside n rows as they will be beside all
    variance = Moments.decode(design.layout, Total(np.zeros(deviations.size), deviations, ()), n).variance
    gram_variance, cross_variance = variance[:d, :d], variance[:d, -1]
    errors = np.zeros(len(_MULTIPLES))
    for _ in range(_TUNED.whole("repeats")):
        # y = x.beta + e with deviation 1 of every feature, and half that of e beside that of x.beta.
        x, beta = rng.normal(size=(n, d)), rng.normal(size=d) / np.sqrt(d)
        y = (x @ beta + rng.normal(size=n) / 2) / _SPREAD
        symmetric = np.triu(rng.normal(size=(d, d)))
        gram_noise = np.sqrt(gram_variance) * (symmetric + np.triu(symmetric, 1).T)
        cross_noise = np.sqrt(cross_variance) * rng.normal(size=d)
        for k, multiple in enumerate(_MULTIPLES):
            z, t = np.clip(x / multiple, -1, 1), np.clip(y / multiple, -1, 1)
            mean, _ = noise_aware.posterior(
                z.T @ z + gram_noise,
                z.T @ t + cross_noise,
                gram_variance,
                cross_variance,
                np.full(d, d * _SPREAD**2),
                (2 * multiple * _SPREAD) ** 2,
            )
            errors[k] += float(np.square(mean * _SPREAD - beta).sum())
    return _MULTIPLES[int(errors.argmin())]


# --- The conversation of a focus -------------------------------------------------------------------------------------------
# The conversation of a study with a focus: rounds over all columns, then moments of the focused ones alone.


def focused(rounds: Rounds[BayesDesign], rows: FocusRows) -> Generator[list[Ask], Replies, tuple[LinearFit, Moments]]:
    """Return coefficients that predict, and the moments of the focused columns about the rounds' coefficients."""
    design, plan = rounds.design, rounds.plan
    total = yield from rounds.total(SCALES)
    standard = design.scales.decode(total, rounds.rows)
    start, least = yield from descent(rounds, standard)
    still = np.linalg.solve(
        frame_of(design, standard, start, (math.nan, math.nan), least).back(intercept=True), design.layout.still
    )
    own = np.linalg.qr(still)[0]
    start = start - own @ (own.T @ start)  # what no row sees of it is no size
    start, left = _drawn(start, *way_of(design, least), start.size - 1 - own.shape[1])
    fit = without_errors(design, frame_of(design, standard, start, (math.nan, math.nan), least))
    total = yield from rounds.total(CELLS, (*standard.settings, *start.tolist()))
    offset, spread, error = rows.cells_of_all.decode(total, rounds.rows)
    start = np.append(start[:-1], start[-1] + offset / CONSTANT)
    squares, noise = spread**2 * rounds.rows, 2 * spread * error * rounds.rows
    total = yield from rounds.total(CROSS, standard.settings)
    taken, variance, longer = rows.related(total, standard)
    whole = 2 / float(standard.width[-1])
    farthest = rows.noise_of_products(design.totals[RESIDUAL].deviations(plan)) / rounds.rows / rows.stretch
    clip = min(clip_of_focus(farthest) * spread, whole)
    settings = (*standard.settings, *start.tolist(), *taken.ravel().tolist(), clip)
    total = yield from rounds.total(RESIDUAL, settings)
    gram, errors = rows.products_of(total, clip)
    # Of what a coefficient adds to normal residuals a clip leaves the share that it does not cut.
    inside = math.erf(clip / spread / math.sqrt(2))
    for part, power in ((gram, 1), (errors, 2)):
        part[:-1, -1] /= inside**power
        part[-1, :-1] = part[:-1, -1]
    meat = None
    if MEAT in design.totals:
        total = yield from rounds.total(MEAT, settings)
        scores, noises = rows.meat_of(total, clip)
        meat = scores / inside**2, noises / inside**4
    count = len(rows.focused)
    weight = min(max(float(gram[count, count]) / (CONSTANT**2 * rounds.rows), 0.25), 1.0)  # of shortened rows
    # The noise in the relation makes rows longer, and would make coefficients smaller.
    own = rows.levels(standard)
    gram[:count, :count] -= longer * weight * rounds.rows * (np.eye(count) - own @ own.T)
    # The product of the errors of both, which have more often the same sign than not.
    errors[:count, -1] += _FOCUS.aligned * variance * len(rows.others) * left * (weight * rounds.rows) ** 2
    errors[-1, :count] = errors[:count, -1]
    kept = [*rows.focused, len(standard.width) - 1]
    frame = frame_of(design, standard, start, (squares, noise**2), least, rounds.weight)
    frame = replace(frame, widths=frame.widths[kept], centres=frame.centres[kept], start=start[kept])
    promise = plan.statement
    moments = Moments(rows.layout, rounds.rows, gram, errors, plan.hash, str(promise), frame, promise.holds)
    return fit, replace(moments, covariance=design.covariance, meat=meat, nuisance=rows.nuisance)


def _drawn(start: Row, way: float, noise: float, free: int) -> tuple[Row, float]:
    """Return coefficients with slopes drawn to 0 as far as noise of this deviation says, and the variance that remains of each slope."""
    slopes = start[:-1] / way
    square = float(slopes @ slopes)
    kept, left = believed(square, noise**2, free, free, likely=True)
    return np.append(slopes * kept, start[-1]), left + (_FOCUS.lags * kept) ** 2 * max(square / free - noise**2, 0.0)


# --- Coordinator -----------------------------------------------------------------------------------------------------------
# Pure generator: add up what the plan's rounds ask for, and turn noisy totals into coefficients. All of it is post-processing.


class Coefficient(msgspec.Struct, frozen=True):
    """A coefficient in the data's own units with its credible interval; None where it has none."""

    name: str
    value: float
    low: float | None
    high: float | None
    #: Whether the release tells of it more than its own noise does.
    identified: bool = True


class BayesResult(msgspec.Struct, frozen=True):
    """The coefficients, and the released moments behind them (where there are any), from which other models follow free of charge."""

    coefficients: tuple[Coefficient, ...]
    intercept: float
    confidence: float
    #: Parties whose rows are in it.
    participants: tuple[str, ...]
    #: The ranges that data were projected to, (low, high) per numeric feature and for the response; empty without projection.
    projection: tuple[float, ...]
    #: None where the method releases none: there are no standard errors then.
    moments: StoredMoments | None
    method: str = Method.MOMENTS
    #: The moments of the focused columns, the others taken out; None without a focus.
    focused: StoredMoments | None = None
    #: How earlier models drew the fit; None without any.
    drawn: DrawnTo | None = None


def coordinate_rows(plan: Plan[BayesDesign]) -> Conversation:
    """Exchange keys, then the rounds of the plan's method."""
    rounds, design = Rounds(plan), plan.design
    if design.whole is not None:
        return (yield from _of_whole(rounds))
    yield from rounds.begin(design.weighting)
    if design.method is Method.MOMENTS:
        moments, settings = yield from _one_release(rounds)
        return _of_moments(rounds, moments, settings)
    if design.focus is not None:
        fit, left = yield from focused(rounds, design.focus)
        left = replace(left, few=rounds.next_to_none)
        return msgspec.structs.replace(_result(rounds, fit, None, ()), focused=left.stored())
    fit, found, drawn = yield from _standardised(rounds)
    if found is not None and design.models:
        return _of_moments(rounds, found, ())
    return msgspec.structs.replace(_result(rounds, fit, found, ()), drawn=drawn)


def _of_whole(rounds: Rounds[BayesDesign]) -> Conversation:
    """Fit the model of which rows are whole, and then the table of those given that they are."""
    plan = rounds.plan
    part = plan.parts[PARTS]
    result = yield from conversation_under(PARTS, load(part.study.row).coordinate(part))
    chances = chances_of(plan, result)
    yield from rounds.begin()
    fit, moments = yield from fitted_whole(rounds, chances)
    found = _result(rounds, fit, None, ())
    if moments.few:
        untold = (msgspec.structs.replace(c, low=None, high=None, identified=False) for c in found.coefficients)
        found = msgspec.structs.replace(found, coefficients=tuple(untold))
    return msgspec.structs.replace(found, focused=moments.stored())


def _of_moments(rounds: Rounds[BayesDesign], moments: Moments, settings: tuple[float, ...]) -> BayesResult:
    """Return the result of released moments: what the study asks of them, or what they and earlier models say."""
    design = rounds.design
    if not design.models:
        return _result(rounds, posterior(design, moments), moments, settings)
    fit, drawn = drawn_fit(moments, design.models)
    return msgspec.structs.replace(_result(rounds, fit, moments, settings), drawn=drawn)


def _one_release(rounds: Rounds[BayesDesign]) -> Generator[list[Ask], Replies, tuple[Moments, tuple[float, ...]]]:
    """Deviations (if the data are to be projected), the sum of y^2 (if precisions are to be estimated), the moments."""
    plan, design = rounds.plan, rounds.design
    settings: tuple[float, ...] = ()
    if design.deviations is not None:
        total = yield from rounds.total(DEVIATIONS)
        multiple = design.parameters.multiple or best_multiple(design, plan, rounds.rows)
        settings = thresholds(design, total, rounds.rows, multiple)
    squares = None
    if SQUARE in design.totals:
        squares = yield from rounds.total(SQUARE, settings)
    layout = design.narrowed(settings)
    total = yield from rounds.total(MOMENTS, settings)
    moments = Moments.decode(layout, total, rounds.rows, plan.hash, str(plan.statement), holds=plan.statement.holds)
    moments = replace(moments, narrowed=bool(settings))
    if rounds.gaps and rounds.count is not None and layout.intercept and layout.weighting is None:
        one = layout.size - 1  # how many rows count is no public number
        moments.variance[one, one] = float(rounds.count.deviations[0]) ** 2
    if squares is not None:
        moments.gram[-1, -1] = float(squares.values[0]) / layout.grid**2
        moments.variance[-1, -1] = (float(squares.deviations[0]) / layout.grid**2) ** 2
    if layout.weighting is not None:  # for models whose penalty is of the mean loss
        moments = replace(moments, standard=replace(moments.frame, mean_weight=rounds.weight))
    return moments, settings


def _standardised(
    rounds: Rounds[BayesDesign],
) -> Generator[list[Ask], Replies, tuple[LinearFit, Moments | None, DrawnTo | None]]:
    """Rounds over standardised rows, or over the response alone."""
    design = rounds.design
    if design.method is not Method.MEAN:
        by_direction = design.method in {Method.DIRECTION, Method.WEIGHTS}
        found = yield from (directed(rounds) if by_direction else standardised(rounds))
        return found.fit, found.moments, found.drawn
    standard = Standard.declared()
    (start,), _ = yield from descent(rounds, standard)
    return _mean_alone(design, CONSTANT * float(start) * float(standard.width[-1])), None, None


def _mean_alone(design: BayesDesign, mean: float) -> LinearFit:
    """No slopes, and this mean of the response in half ranges, inside them."""
    p, y = len(design.layout.coding.attribute), design.layout.response
    own = y.centre + y.half_width * min(max(mean, -1.0), 1.0)
    return LinearFit.without_errors(np.zeros(p), own, has_intercept=True)


def posterior(design: BayesDesign, moments: Moments) -> LinearFit:
    """Return the posterior that the study asks for."""
    p = design.parameters
    return moments.posterior(p.prior_precision, p.noise_precision, naive=p.posterior == NAIVE)


def _result(
    rounds: Rounds[BayesDesign], fit: LinearFit, moments: Moments | None, settings: tuple[float, ...]
) -> BayesResult:
    design, fit = rounds.design, plain(fit)
    confidence = design.parameters.confidence
    coefficients = coefficients_of(fit, design.layout.names, confidence)
    if rounds.next_to_none and moments is not None:
        moments = replace(moments, few=rounds.next_to_none)
        coefficients = tuple(msgspec.structs.replace(c, low=None, high=None, identified=False) for c in coefficients)
    stored = None if moments is None else moments.stored()
    return BayesResult(coefficients, fit.intercept_, confidence, rounds.participants, settings, stored, str(design.method))


def coefficients_of(fit: LinearFit, names: tuple[str, ...], confidence: float) -> tuple[Coefficient, ...]:
    """Return the coefficients of a fit with their intervals of this level."""
    values, interval, known = fit.coef_.tolist(), fit.interval(confidence).tolist(), fit.identified.tolist()
    return tuple(
        Coefficient(name, value, finite(low), finite(high), tells)
        for name, value, (low, high), tells in zip(names, values, interval, known, strict=True)
    )


# --- Tables, lines and figures ---------------------------------------------------------------------------------------------
# The result of a Bayesian regression as everybody reads it: its table, the lines under it, its figure.


def tables(plan: Plan[BayesDesign], result: BayesResult) -> LinearTables | None:
    """Return the tables to publish: generalised least squares with standard errors and tests; None without moments."""
    stored = result.moments or result.focused
    if stored is None or stored.narrowed:
        return None
    given = plan.design.parameters
    return drawn_tables(Moments.of(stored), given.prior, given.reference, given.coding)


def terms(plan: Plan, result: BayesResult) -> tuple[ResultTerm, ...]:
    """Return the lines of the table, as ``summary()`` gives them; without moments the coefficients alone."""
    found = tables(plan, result)
    return _without_levels(plan, result) if found is None else tuple(t.line for t in found.summary(result.confidence).terms)


def _without_levels(plan: Plan[BayesDesign], result: BayesResult) -> tuple[ResultTerm, ...]:
    """Return the coefficients that predict, where there are no moments but those of levels: they read as effects and are none."""
    hidden = frozenset() if result.moments else plan.design.layout.terms.of_levels(plan.design.layout.names)
    return tuple(line for line in predicting(plan, result) if line.term not in hidden)


def predicting(plan: Plan[BayesDesign], result: BayesResult) -> tuple[ResultTerm, ...]:
    """Return the coefficients that predict: posterior means, one for every level of a column."""
    found = tuple(ResultTerm(c.name, c.value) for c in result.coefficients)
    return (*found, ResultTerm(CONSTANT_TERM, result.intercept)) if plan.design.layout.intercept else found


def foot(plan: Plan, result: BayesResult) -> tuple[str, ...]:
    """Return the lines under the table of the result."""
    found = tables(plan, result)
    if found is None and result.moments is not None:
        said = [NARROWED]
    elif found is None:
        others = "'moments' gives them" if plan.joint else "'refinement' and 'moments' give them"
        said = [f"method {result.method!r} gives predictions without standard errors; {others}"]
        said += untold(plan.design.layout.terms.factors)
        said += [] if result.drawn is None else words(result.drawn)
    else:
        table = found.summary(result.confidence)
        credible = [CREDIBLE] if is_credible(table.terms) else []
        said = [
            f"intervals of {result.confidence:.0%}",
            *table.compared,
            *credible,
            *notes(table.not_determined, table.terms),
        ]
    said += [] if result.moments is None else in_common(plan.study, result.moments.rows)
    return (*said, f"{'columns' if plan.joint else 'rows'} of {', '.join(result.participants)}")


def panels(plan: Plan, result: BayesResult) -> tuple[Panel, ...]:
    """Return the lines of the table with their intervals, and the curves of variables; without intervals the coefficients alone."""
    found = tables(plan, result)
    if found is None:
        slopes = {line.term: line.estimate for line in _without_levels(plan, result) if line.term != CONSTANT_TERM}
        return (Panel("coefficients", tuple(slopes), tuple(slopes.values())),) if slopes else ()
    shown = of_terms((t.line for t in found.summary(result.confidence).terms if t.term != CONSTANT_TERM), result.confidence)
    return (*shown, *profiles.panels(found, result.confidence))


# --- Either split ----------------------------------------------------------------------------------------------------------
# Regression of either split: rows at different parties, or columns of the same rows at different parties.


def compile_plan(study: Study) -> Plan:
    """Return the releases of a study: of joint sums where it says that columns are split, else of totals over rows."""
    split = study.parameters.get("split")
    if split != COLUMNS and modelled_of(study):
        return whole.compile_plan(study)
    return columns.compile_plan(study) if split == COLUMNS else declared.compile_plan(study)


def coordinate(compiled: Plan) -> Conversation:
    """Return the conversation of a study of either split."""
    design = compiled.design
    if isinstance(design, SineDesign):
        return _result_of_columns(design, (yield from by_sines(compiled)), None, declared.SINES)
    if isinstance(design, JointDesign):
        moments = yield from joint_moments(compiled)
        models = cast("declared.ColumnsParameters", design.parameters).prior
        fit, drawn = drawn_fit(moments, models) if models else (plain(moments.posterior()), None)
        return msgspec.structs.replace(_result_of_columns(design, fit, moments.stored(), "joint moments"), drawn=drawn)
    return (yield from coordinate_rows(compiled))


def _result_of_columns(design: ColumnsDesign, fit: LinearFit, moments: StoredMoments | None, method: str) -> BayesResult:
    confidence = cast("declared.ColumnsParameters", design.parameters).confidence
    found = coefficients_of(fit, design.layout.names, confidence)
    if moments is not None and moments.few:
        found = tuple(msgspec.structs.replace(c, low=None, high=None, identified=False) for c in found)
    return BayesResult(found, fit.intercept_, confidence, design.parties, (), moments, method)


__all__ = ["focused"]
