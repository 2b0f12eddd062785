"""Made-up rows of a declared shape with responses of a known law, and how well a fit predicts new ones: what an outlook simulates."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unpooled.estimation.outlook import made_up_features
from unpooled.kernels.score_posterior import mean_log_odds
from unpooled.models.glm.multinomial import Softmax
from unpooled.models.glm.survival import Hazards, PersonResponses
from unpooled.privacy.bounds import Coding

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.models.glm.plan import GlmDesign
    from unpooled.models.glm.result import GlmResult
    from unpooled.privacy.table import Table

    Vector = NDArray[np.float64]


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
#: Part of the persons who leave before the end of follow-up.
_LEAVING = 0.5


def losses(design: GlmDesign, result: GlmResult, new: Table, y: Vector, true: Vector) -> tuple[float, float, float]:
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
    design: GlmDesign, family: Hazards, new: Table, risk: Vector, logs: Vector, true: Vector
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
    design: GlmDesign, count: int, assumed: Assumed, rng: np.random.Generator
) -> tuple[dict[str, Any], Vector, Vector]:
    """Return columns of a table of the declared shape; the responses as numbers; and their true means."""
    if isinstance(design.family, Softmax):
        return _classes(design, design.family, count, assumed, rng)
    if isinstance(design.family, Hazards):
        return _persons(design, design.family, count, assumed, rng)
    signal, rate, correlation, ranges, shape = assumed
    responses, family = design.responses, design.family
    columns, rows = made_up_features(design.layout.features, count, correlation, ranges, rng, shape)
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


def _add_weights(design: GlmDesign, columns: dict[str, Any], count: int, rng: np.random.Generator) -> None:
    """Give the made-up rows weights that are uniform over the declared range, where the study has weights."""
    weighting = design.responses.weighting
    if weighting is not None:
        columns[weighting.column.name] = rng.uniform(*weighting.column.range, count)


def _classes(
    design: GlmDesign, family: Softmax, count: int, assumed: Assumed, rng: np.random.Generator
) -> tuple[dict[str, Any], Vector, Vector]:
    """Return classes of which one has the assumed rate and the others share the rest; two linear predictors differ by the assumed deviation."""
    signal, rate, correlation, ranges, shape = assumed
    columns, rows = made_up_features(design.layout.features, count, correlation, ranges, rng, shape)
    classes = len(family.labels)
    u = rows @ rng.normal(size=(rows.shape[1], classes))
    u -= u.mean(axis=1, keepdims=True)
    u *= signal * math.sqrt((classes - 1) / classes / 2) / max(float(u.std()), 1e-9)
    rate = min(rate, 1 / classes)
    asked = np.append(rate, np.full(classes - 1, (1 - rate) / (classes - 1)))
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
    design: GlmDesign, family: Hazards, count: int, assumed: Assumed, rng: np.random.Generator
) -> tuple[dict[str, Any], Vector, Vector]:
    """Times of constant hazards, of which the assumed part would have the event in the whole time; half of all leave at some time of it."""
    signal, rate, correlation, ranges, shape = assumed
    columns, rows = made_up_features(design.layout.features, count, correlation, ranges, rng, shape)
    u = rows @ rng.normal(size=rows.shape[1])
    u *= signal / max(float(u.std()), 1e-9)
    end, low, high = family.edges[-1], -60.0, 60.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if float(-np.expm1(-np.exp(u + middle) * end).mean()) < rate else (low, middle)
    until = rng.exponential(np.exp(-u - low))
    leaves = np.where(rng.random(count) < _LEAVING, rng.uniform(0, end, count), end)
    time, happened = np.minimum(until, leaves), (until <= leaves).astype(np.float64)
    responses = design.responses
    assert isinstance(responses, PersonResponses)
    columns[responses.response.name] = time
    labels = responses.event.categories
    written = np.where(happened > 0, responses.event.range[1], responses.event.range[0]) if labels is None else None
    columns[responses.event.name] = np.array(labels, dtype=object)[happened.astype(int)] if written is None else written
    return columns, happened, np.exp(u + low) * time
