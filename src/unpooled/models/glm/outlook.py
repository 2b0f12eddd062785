"""Outlook of a study of a generalised linear model: its own rounds, played over made-up rows of a known law with the noise that its plan has."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from unpooled.estimation.expected_lines import PlayedTables
from unpooled.estimation.outlook import (
    SHAPES,
    Evenly,
    Outlook,
    Range,
    check_range,
    checked_shapes,
    drawn,
    in_words,
    made_up_features,
    rows_to_make,
    shapes_in_words,
    simulated,
    with_lines,
    without_prior,
)
from unpooled.estimation.outlook import imagine_rounds as imagine
from unpooled.kernels.score_posterior import mean_log_odds
from unpooled.models.glm.columns import PullDesign
from unpooled.models.glm.columns_fit import compile_plan, imagined_pulls
from unpooled.models.glm.families import MULTINOMIAL, SURVIVAL, Hazards, PersonResponses, Softmax
from unpooled.models.glm.fit import coordinate
from unpooled.models.glm.plan import STATISTICS, GlmDesign
from unpooled.models.glm.result import tables
from unpooled.privacy.bounds import Coding
from unpooled.privacy.table import Table
from unpooled.schedules import table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.models.glm.result import GlmResult
    from unpooled.privacy.plan import Plan, Study

    Vector = NDArray[np.float64]


# --- Made-up rows ----------------------------------------------------------------------------------------------------------
# Made-up rows of a declared shape with responses of a known law, and how well a fit predicts new ones: what an outlook simulates.


class Assumed(NamedTuple):
    """The law of one made-up study."""

    #: The deviation of the linear predictor, and the mean response as a part of its largest.
    signal: float
    rate: float
    #: How columns correlate, half their ranges in deviations, and the shape of their laws.
    correlation: float
    ranges: float
    shape: str


_BISECTIONS = 60
#: Iterations by which the constants of classes arrive at their rates, the step that ends them, and the rows that rates are taken from.
_RATES_FOUND, _RATES_NEAR, _RATES_FROM = 200, 1e-9, 2000
_TUNED = table("outlooks")


def losses(
    design: GlmDesign | PullDesign, result: GlmResult, new: Table, y: Vector, true: Vector
) -> tuple[float, float, float]:
    """Deviances of new rows: of the fit, of the base rate, and of their true means."""
    features = Coding(design.layout.features, 1).natural([new[c.name] for c in design.layout.features])
    family = design.family
    coefficients = np.array([c.value for c in result.coefficients])
    if isinstance(family, Hazards):
        return _followed(design, family, new, features @ coefficients, np.array(result.log_hazards), true)
    if isinstance(family, Softmax):
        fitted = family.mean(features @ coefficients.reshape(len(family.labels), -1).T + np.array(result.intercepts))
        counts = np.bincount(y.astype(int), minlength=len(family.labels))
        base = np.broadcast_to(counts / y.size, fitted.shape)
    else:
        _, offset = design.responses.read(tuple(new[name] for name in design.responses.names))
        fitted = family.mean(mean_log_odds(features @ coefficients + result.intercept, result.lines) + offset)
        rates = np.exp(offset) if design.base.count > 1 else np.ones(offset.size)
        base = rates * (y.sum() / rates.sum())
    of_fit, of_base, of_truth = (float(family.deviance(y, mean).sum()) for mean in (fitted, base, true))
    return of_fit, of_base, of_truth


def _followed(
    design: GlmDesign | PullDesign, family: Hazards, new: Table, risk: Vector, logs: Vector, true: Vector
) -> tuple[float, float, float]:
    """Return the same of times: minus twice the log likelihood, less that of a hazard for every person alone."""
    time, happened = design.responses.read(tuple(new[name] for name in design.responses.names))
    within = family.within(time)
    place = np.minimum(np.searchsorted(family.edges, time), len(family.edges) - 1)
    events = np.bincount(place, happened, minlength=len(family.edges))
    common = np.maximum(events, 0.5) / np.maximum(within.sum(axis=0), 1e-9)
    met = within @ np.exp(logs) * np.exp(risk), within @ common, true
    # The log hazard at the time itself, times that time.
    rates = np.exp(logs[place] + risk) * time, common[place] * time, true
    of_fit, of_base, of_truth = (
        float(2 * (m - happened - happened * np.log(np.maximum(h, 1e-300))).sum()) for m, h in zip(met, rates, strict=True)
    )
    return of_fit, of_base, of_truth


def made_up(
    design: GlmDesign | PullDesign, count: int, assumed: Assumed, rng: np.random.Generator
) -> tuple[dict[str, Any], Vector, Vector]:
    """Return columns of a table of the declared shape; the responses as numbers; and their true means."""
    if isinstance(design.family, Softmax):
        return _classes(design, design.family, count, assumed, rng)
    if isinstance(design.family, Hazards):
        return _persons(design, design.family, count, assumed, rng)
    signal, rate, correlation, ranges, shape = assumed
    responses, family = design.responses, design.family
    columns, rows = made_up_features(design.layout.features, count, correlation, ranges, rng, shape, design.layout.made)
    u = rows @ rng.normal(size=rows.shape[1])
    u *= signal / max(float(u.std()), 1e-9)
    if responses.exposure is not None:
        low, high = responses.exposure.range
        columns[responses.exposure.name] = np.exp(rng.uniform(math.log(low), math.log(high), count))
        u += np.log(columns[responses.exposure.name])
    if responses.offset is not None:
        columns[responses.offset.name] = rng.uniform(*responses.offset.range, count)
        u += columns[responses.offset.name]
    low, high = -60.0, 60.0
    for _ in range(_BISECTIONS):  # the constant with which the mean response is what it should be
        middle = (low + high) / 2
        low, high = (middle, high) if float(family.mean(u + middle).mean()) < rate * family.high else (low, middle)
    mean = family.mean(u + low)
    y = family.drawn(mean, rng)
    _add_weights(design, columns, count, rng)
    name, labels = responses.response.name, responses.response.categories
    columns[name] = y if labels is None else np.array(labels, dtype=object)[y.astype(int)]
    return columns, y, mean


def _add_weights(design: GlmDesign | PullDesign, columns: dict[str, Any], count: int, rng: np.random.Generator) -> None:
    """Give the made-up rows weights that are uniform over the declared range, where the study has weights."""
    weighting = design.responses.weighting
    if weighting is not None:
        columns[weighting.column.name] = rng.uniform(*weighting.column.range, count)


def _classes(
    design: GlmDesign | PullDesign, family: Softmax, count: int, assumed: Assumed, rng: np.random.Generator
) -> tuple[dict[str, Any], Vector, Vector]:
    """Return classes of which one has the assumed rate and the others share the rest; two linear predictors differ by the assumed deviation."""
    signal, rate, correlation, ranges, shape = assumed
    columns, rows = made_up_features(design.layout.features, count, correlation, ranges, rng, shape, design.layout.made)
    classes = len(family.labels)
    u = rows @ rng.normal(size=(rows.shape[1], classes))
    u -= u.mean(axis=1, keepdims=True)
    u *= signal * math.sqrt((classes - 1) / classes / 2) / max(float(u.std()), 1e-9)
    rate = min(rate, 1 / classes)
    asked = np.append(rate, np.full(classes - 1, (1 - rate) / (classes - 1)))
    if design.responses.response.typical is not None:
        asked = np.array(design.responses.response.shares)
    constants = np.log(asked)
    for _ in range(_RATES_FOUND):
        step = np.log(asked / family.mean(u[:_RATES_FROM] + constants).mean(axis=0))
        constants += step
        if np.abs(step).max() < _RATES_NEAR:
            break
    mean = family.mean(u + constants)
    y = family.drawn(mean, rng)
    _add_weights(design, columns, count, rng)
    columns[design.responses.response.name] = np.array(family.labels, dtype=object)[y.astype(int)]
    return columns, y, mean


def _persons(
    design: GlmDesign | PullDesign, family: Hazards, count: int, assumed: Assumed, rng: np.random.Generator
) -> tuple[dict[str, Any], Vector, Vector]:
    """Times of constant hazards, of which the assumed part would have the event in the whole time; half of all leave at some time of it."""
    signal, rate, correlation, ranges, shape = assumed
    columns, rows = made_up_features(design.layout.features, count, correlation, ranges, rng, shape, design.layout.made)
    u = rows @ rng.normal(size=rows.shape[1])
    u *= signal / max(float(u.std()), 1e-9)
    end, low, high = family.edges[-1], -60.0, 60.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if float(-np.expm1(-np.exp(u + middle) * end).mean()) < rate else (low, middle)
    until = rng.exponential(np.exp(-u - low))
    leaves = np.where(rng.random(count) < _TUNED.glm_leaving, rng.uniform(0, end, count), end)
    time, happened = np.minimum(until, leaves), (until <= leaves).astype(np.float64)
    responses = design.responses
    assert isinstance(responses, PersonResponses)
    columns[responses.response.name] = time
    labels = responses.event.categories
    written = np.where(happened > 0, responses.event.range[1], responses.event.range[0]) if labels is None else None
    columns[responses.event.name] = np.array(labels, dtype=object)[happened.astype(int)] if written is None else written
    return columns, happened, np.exp(u + low) * time


# --- Outlook ---------------------------------------------------------------------------------------------------------------
# Outlook of a study of a generalised linear model: its own rounds, played over made-up rows with the noise that its plan has.

#: What is assumed where nothing is said; the mean response by the family: of classes, and of counts and amounts.
SIGNAL, CORRELATION, RANGES = _TUNED.pair("glm_signal"), _TUNED.pair("glm_correlation"), _TUNED.pair("glm_ranges")
_RATES = {True: _TUNED.pair("glm_rate"), False: _TUNED.pair("glm_mean")}
_RARE, _EVENTS = _TUNED.pair("glm_class"), _TUNED.pair("glm_events")
#: What the rate is of, where there is no mean response.
_WORDS = {MULTINOMIAL: "rate of one class", SURVIVAL: "part of persons with the event by the end of follow-up"}


def outlook(
    study: Study,
    *,
    signal: Range = SIGNAL,
    rate: Range | None = None,
    correlation: Range = CORRELATION,
    ranges: Range = RANGES,
    shapes: str | tuple[str, ...] = SHAPES,
    seed: int = 0,
    quick: bool = False,
    lines: bool | None = None,
) -> Outlook:
    """Deviance of new rows over that of the base rate, against epsilon (``quick``: at the one that is asked for alone)."""
    study, left = without_prior(study)
    shapes, plans, seen = (
        checked_shapes(shapes),
        {study.epsilon: compile_plan(study)},
        PlayedTables(not quick if lines is None else lines),
    )
    design: GlmDesign | PullDesign = plans[study.epsilon].design
    if rate is None and isinstance(design.family, Softmax):
        rate = _RARE[0] / len(design.family.labels), _RARE[1] / len(design.family.labels)
    if rate is None and isinstance(design.family, Hazards):
        rate = _EVENTS
    response = design.responses.response
    if rate is None and design.family.classes and response.typical is not None:
        rate = response.shares[-1]
    rate = _RATES[design.family.classes] if rate is None else rate
    check_range("signal", signal, 0.0, 10.0)
    check_range("rate", rate, 1e-6, 0.999)
    check_range("correlation", correlation, 0.0, 0.999)
    check_range("ranges", ranges, 0.5, 1000.0)

    def run(epsilon: float, k: int) -> tuple[float, float]:
        rng, evenly = np.random.default_rng([seed, k]), Evenly(k, seed)
        if epsilon not in plans:
            plans[epsilon] = compile_plan(msgspec.structs.replace(study, epsilon=epsilon))
        assumed = Assumed(
            drawn(signal, evenly),
            drawn(rate, evenly),
            drawn(correlation, evenly),
            drawn(ranges, evenly),
            shapes[k % len(shapes)],
        )
        new, y, true, result = _played(plans[epsilon], assumed, rng)
        seen.add(epsilon, k, tables(plans[epsilon], result))
        fitted, base, truth = losses(plans[epsilon].design, result, new, y, true)
        return fitted / max(base, 1e-300), truth / max(base, 1e-300)

    part = _count(design) / _people(design)
    found = simulated(study.epsilon, run, part=part, quick=quick)
    points, free = with_lines(seen, run, *found, study.epsilon)
    words = [
        in_words("deviation of the linear predictor", signal),
        in_words(_WORDS.get(design.family.name, "mean response over its largest"), rate),
        shapes_in_words(shapes),
        in_words("correlation of columns", correlation),
        in_words("half range in deviations", ranges),
        *left,
    ]
    if study.household_rows > 1:
        words.append(f"ids with {study.household_rows} rows each, as unlike as those of others")
    return Outlook(
        f"glm, {design.family.name} ({design.method})",
        _people(design),
        len(design.layout.features),
        study.epsilon,
        points,
        1.0,
        free,
        "deviance of new rows / deviance of the base rate",
        ", ".join(words),
    ).with_gaps(study, design.layout.left_out)


def _count(design: GlmDesign | PullDesign) -> int:
    """Return the number of rows to make up for a fit."""
    numbers = len(design.family.labels) if isinstance(design.family, Softmax) else 1
    return rows_to_make(_people(design), design.layout.size * numbers)


def _people(design: GlmDesign | PullDesign) -> int:
    """Return the number of rows of the study; of hidden people those that are expected, for most places are nobody's."""
    return design.expected if isinstance(design, PullDesign) else design.rows


def _played(
    plan: Plan[GlmDesign | PullDesign], assumed: Assumed, rng: np.random.Generator
) -> tuple[Table, Vector, Vector, GlmResult]:
    """Return new rows of one made-up study, their responses and true means, and its result."""
    design, count = plan.design, _count(plan.design)
    columns, y, true = made_up(design, count + _TUNED.whole("glm_new_rows"), assumed, rng)
    if design.completeness is not None:  # its model is of rows with gaps; new rows have none
        first = design.completeness.columns[0]
        gaps = np.flatnonzero(rng.random(count) < _TUNED.glm_gaps)
        columns[first.name] = np.array(columns[first.name])
        columns[first.name][gaps] = np.nan if first.categories is None else None
    used, new = (
        Table({name: column[part] for name, column in columns.items()}) for part in (slice(count), slice(count, None))
    )
    if isinstance(design, PullDesign):
        held = {party: Table({name: columns[name][:count] for name in design.sent(party)}) for party in design.parties}
        return new, y[count:], true[count:], imagined_pulls(design, held, rng)
    return new, y[count:], true[count:], imagine(plan, coordinate, STATISTICS, used, rng)
