"""What a study of a generalised linear model may achieve: its own rounds, played over made-up rows with the noise that its plan has."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.estimation.imagined import imagine, made_up_features
from unpooled.estimation.outlook import Outlook, Range, check_range, drawn, in_words, simulated
from unpooled.models.glm.coordinator import coordinate
from unpooled.models.glm.party import STATISTICS
from unpooled.models.glm.plan import GlmDesign, compile_plan
from unpooled.privacy.bounds import Coding
from unpooled.privacy.table import Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.models.glm.result import GlmResult
    from unpooled.privacy.plan import Plan, Study

    Vector = NDArray[np.float64]

#: Made-up rows: more of them differ from the study's own only in the sampling error.
_ROWS, _NEW = 2000, 2000
#: What is assumed where nothing is said: the deviation of the linear predictor, the mean response as a part of its largest (None: by the
#: family), how columns correlate, and how many standard deviations half a declared range has.
SIGNAL, CORRELATION, RANGES = (0.5, 1.5), (0.0, 0.6), (2.5, 8.0)
_RATES = {True: (0.2, 0.5), False: (0.05, 0.2)}
_BISECTIONS = 60


def outlook(
    study: Study,
    *,
    signal: Range = SIGNAL,
    rate: Range | None = None,
    correlation: Range = CORRELATION,
    ranges: Range = RANGES,
    seed: int = 0,
    quick: bool = False,
) -> Outlook:
    """Deviance of new rows over that of the base rate, against epsilon (``quick``: at the one that is asked for alone)."""
    plans = {study.epsilon: compile_plan(study)}
    design: GlmDesign = plans[study.epsilon].design
    rate = _RATES[design.family.classes] if rate is None else rate
    check_range("signal", signal, 0.0, 10.0)
    check_range("rate", rate, 1e-6, 0.999)
    check_range("correlation", correlation, 0.0, 0.999)
    check_range("ranges", ranges, 0.5, 1000.0)
    best: list[float] = []

    def run(epsilon: float, rng: np.random.Generator) -> float:
        if epsilon not in plans:
            plans[epsilon] = compile_plan(msgspec.structs.replace(study, epsilon=epsilon))
        assumed = (drawn(signal, rng), drawn(rate, rng), drawn(correlation, rng), drawn(ranges, rng))
        error, truth = _errors(plans[epsilon], assumed, rng)
        best.append(truth)
        return error

    points = simulated(study.epsilon, run, seed, quick=quick)
    words = [
        in_words("deviation of the linear predictor", signal),
        in_words("mean response over its largest", rate),
        in_words("correlation of columns", correlation),
        in_words("half range in deviations", ranges),
    ]
    if study.household_rows > 1:
        words.append(f"ids with {study.household_rows} rows each, as unlike as those of others")
    return Outlook(
        f"glm, {design.family.name} ({design.schedule.method})",
        design.rows,
        len(design.layout.features),
        study.epsilon,
        points,
        1.0,
        float(np.median(best)),
        "deviance of new rows / deviance of the base rate",
        ", ".join(words),
    )


def _errors(plan: Plan, assumed: tuple[float, float, float, float], rng: np.random.Generator) -> tuple[float, float]:
    """The error of one made-up study, and that of the true coefficients."""
    design: GlmDesign = plan.design
    count = min(design.rows, _ROWS)
    columns, y, true = made_up(design, count + _NEW, assumed, rng)
    used, new = (
        Table({name: column[part] for name, column in columns.items()}) for part in (slice(count), slice(count, None))
    )
    result: GlmResult = imagine(plan, coordinate, STATISTICS, used, rng)
    coefficients = np.array([c.value for c in result.coefficients])
    features = Coding(design.layout.features, 1).natural([new[c.name] for c in design.layout.features])
    _, offset = design.responses.read(tuple(new[name] for name in design.responses.names))
    fitted = design.family.mean(features @ coefficients + result.intercept + offset)
    rates = np.exp(offset) if design.base.count > 1 else np.ones(offset.size)
    base = rates * (y[count:].sum() / rates.sum())

    def loss(mean: Vector) -> float:
        return float(design.family.deviance(y[count:], mean).sum())

    return loss(fitted) / max(loss(base), 1e-300), loss(true[count:]) / max(loss(base), 1e-300)


def made_up(
    design: GlmDesign, count: int, assumed: tuple[float, float, float, float], rng: np.random.Generator
) -> tuple[dict[str, Any], Vector, Vector]:
    """Columns of a table of the declared shape; the responses as numbers; and their true means."""
    signal, rate, correlation, ranges = assumed
    responses, family = design.responses, design.family
    columns, rows = made_up_features(design.layout.features, count, correlation, ranges, rng)
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
    name, labels = responses.response.name, responses.response.categories
    columns[name] = y if labels is None else np.array(labels, dtype=object)[y.astype(int)]
    return columns, y, mean
