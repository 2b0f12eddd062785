"""Outlook of a stack: its own fits, on made-up rows of the declared shape, with the noise that its plan has, put together by public numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.estimation.outlook import (
    NORMAL,
    SHAPES,
    Outlook,
    Range,
    check_range,
    checked_shapes,
    drawn,
    in_words,
    made_up_features,
    shapes_in_words,
    simulated,
)
from unpooled.models.stacking.declared import (
    BLOCK,
    GRID,
    META,
    PREDICTIONS,
    Meta,
    Outcomes,
    combiner_of,
    meta_rows,
    parameters_of,
)
from unpooled.models.stacking.low_level import SCORE, ReleasedRate, calibrated, counted, release_of, score_of
from unpooled.models.stacking.plan import compile_plan
from unpooled.privacy.bounds import text_of
from unpooled.privacy.mechanisms import GaussianObjective, GaussianRelease, ObjectivePerturbation
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Split
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.models.stacking.low_level import Calibrated, LowLevel, Probabilities
    from unpooled.models.stacking.plan import StackingDesign
    from unpooled.privacy.plan import Plan, Study

    Floats = NDArray[np.float64]
    Matrix = NDArray[np.float64]
    Places = NDArray[np.intp]


# --- Models together -------------------------------------------------------------------------------------------------------
# Predictions of several models put together by public numbers: shares, votes, or log odds.


def combined(each: Floats, shares: Sequence[float], combiner: str) -> Floats:
    """Return the log probabilities of every class, but for a constant, from those of K models (rows x K x C)."""
    if combiner == "log-odds":
        # What all know of the base rate is counted once, and what each says beside it for a K-th: how much of that they share nobody knows.
        return np.asarray(np.log(np.clip(each, 1e-12, 1.0)).mean(axis=1))
    votes = each if combiner == "probability" else np.eye(each.shape[2])[each.argmax(axis=2)]
    weight = np.ones(each.shape[1]) if combiner == "majority" else np.asarray(shares)
    return np.asarray(np.log(np.clip(np.einsum("ikc,k->ic", votes, weight / weight.sum()), 1e-12, 1 - 1e-12)))


# --- Outlook ---------------------------------------------------------------------------------------------------------------
# Outlook of a stack: its own fits, on made-up rows of the declared shape, with the noise that its plan has.

_TUNED = table("outlooks")
#: Made-up rows of all parties together: a fit of fewer rows than the study's has less noise in proportion.
_ROWS, _NEW = _TUNED.whole("stacking_rows"), _TUNED.whole("stacking_new_rows")
#: What is assumed where nothing is said.
SIGNAL, RATE = _TUNED.pair("stacking_signal"), _TUNED.pair("stacking_rate")
CORRELATION, RANGES = _TUNED.pair("stacking_correlation"), _TUNED.pair("stacking_ranges")
_BISECTIONS = 60
#: The penalty of a row in the fit without privacy, which is there for classes that separate.
_LITTLE = 1e-6


def outlook(
    study: Study,
    *,
    signal: Range = SIGNAL,
    rate: Range = RATE,
    correlation: Range = CORRELATION,
    ranges: Range = RANGES,
    shapes: str | tuple[str, ...] = SHAPES,
    seed: int = 0,
    quick: bool = False,
) -> Outlook:
    """Log-loss of new rows over that of the base rate, against epsilon (``quick``: at the one that is asked for alone)."""
    check_range("signal", signal, 0.0, 10.0)
    check_range("rate", rate, 1e-6, 0.999)
    check_range("correlation", correlation, 0.0, 0.999)
    check_range("ranges", ranges, 0.5, 1000.0)
    shapes, plans = checked_shapes(shapes), {study.epsilon: compile_plan(study)}
    design: StackingDesign = plans[study.epsilon].design

    def run(epsilon: float, k: int) -> tuple[float, float]:
        rng = np.random.default_rng([seed, k])
        if epsilon not in plans:
            plans[epsilon] = compile_plan(msgspec.structs.replace(study, epsilon=epsilon))
        assumed = (drawn(signal, rng), drawn(rate, rng), drawn(correlation, rng), drawn(ranges, rng))
        return _errors(plans[epsilon], assumed, shapes[k % len(shapes)], rng)

    points, free = simulated(study.epsilon, run, part=min(1.0, _ROWS / _rows(plans[study.epsilon])), quick=quick)
    words = [in_words("deviation of the linear predictor", signal)]
    if not design.outcomes.several:
        words.append(in_words("rate of the second class", rate))
    words += [
        shapes_in_words(shapes),
        in_words("correlation of columns", correlation),
        in_words("half range in deviations", ranges),
    ]
    return Outlook(
        "stacking" if len(design.blocks) > 1 else "logistic regression",
        _rows(plans[study.epsilon]),
        len({column.name for card in study.parties for column in card.columns}),
        study.epsilon,
        points,
        1.0,
        free,
        "log-loss of new rows / log-loss of the base rate",
        ", ".join(words),
    )


def _rows(plan: Plan[StackingDesign]) -> int:
    """Return the number of persons."""
    cards = plan.study.parties
    return sum(card.rows for card in cards) if plan.design.split is Split.HORIZONTAL else cards[0].rows


def _errors(
    plan: Plan[StackingDesign], assumed: tuple[float, float, float, float], shape: str, rng: np.random.Generator
) -> tuple[float, float]:
    """Return the error of one made-up study, and that of the true probabilities."""
    design = plan.design
    count = min(_rows(plan), _ROWS)
    columns, true = made_up(design, plan.study, count + _NEW, assumed, rng, shape)
    classes = design.outcomes.classes
    places = (true.cumsum(axis=1) > rng.random((count + _NEW, 1))).argmax(axis=1)
    used, new = (Table({name: c[part] for name, c in columns.items()}) for part in (slice(count), slice(count, None)))
    found = (_played if math.isfinite(plan.study.epsilon) else _pooled)(plan, used, places[:count], new, rng)
    truth = np.bincount(places, minlength=classes) / places.size
    seen = places[count:]

    def loss(p: Matrix) -> float:
        return -float(np.log(np.clip(p[np.arange(seen.size), seen], 1e-12, 1.0)).mean())

    base = max(loss(np.tile(truth, (seen.size, 1))), 1e-300)
    return loss(found) / base, loss(true[count:]) / base


def _pooled(plan: Plan[StackingDesign], used: Table, places: Places, new: Table, rng: np.random.Generator) -> Matrix:
    """Return probabilities by one logistic regression on all columns of all rows, which is what there would be without privacy."""
    del rng
    design, outcomes = plan.design, plan.design.outcomes
    blocks = design.blocks if design.split is Split.VERTICAL else design.blocks[:1]

    def rows(table: Table) -> Matrix:
        return np.column_stack([*(block.rows(table) for block in blocks), np.ones(table.n_rows)])

    coded: NDArray[Any] = places if outcomes.several else np.where(places == 1, 1.0, -1.0)
    features = rows(used)
    nothing = np.zeros(features.shape[1] * outcomes.predictors)
    w = outcomes.minimum(features, coded, _LITTLE * places.size, linear=nothing, centre=nothing, tolerance=1e-7)
    return outcomes.of(rows(new), w)


def _played(plan: Plan[StackingDesign], used: Table, places: Places, new: Table, rng: np.random.Generator) -> Matrix:
    """Return probabilities of new rows by a stack of these rows."""
    design = plan.design
    outcomes, p, n = design.outcomes, design.parameters, places.size
    coded: NDArray[Any] = places if outcomes.several else np.where(places == 1, 1.0, -1.0)
    order = rng.permutation(n)
    vertical = design.split is Split.VERTICAL
    high = order[: round(n * p.high_share)] if design.learns and vertical else order[:0]
    low = order[high.size :]
    # Rows at several sites: everybody gets a part of them, in proportion.
    shares = np.array([card.rows for card in plan.study.parties], dtype=float)
    parts = dict(
        zip(
            (card.name for card in plan.study.parties),
            np.split(low, (np.cumsum(shares / shares.sum())[:-1] * low.size).astype(int)),
            strict=True,
        )
    )
    ranks = _ranks(plan, used, places, rng) if design.shares else {}
    weights: list[tuple[LowLevel, NDArray[np.float64]]] = []
    for plain in design.blocks:
        party = plain.card.name
        block = design.ranked(plan.study, party, ranks[party]) if ranks else plain
        mechanism = plan.release(party, release_of(ranks[party]) if ranks else BLOCK).mechanism
        own = low if vertical else parts[party]
        centre = np.array(block.centre) if block.centre else np.zeros(block.numbers)
        weights.append((block, _fit(design, mechanism, block.rows(used, own), coded[own], centre, rng)))
    predicted = [block.predicted(block.rows(new), w) for block, w in weights]
    if design.probabilities is not None:
        log_odds = _calibrated(design.probabilities, weights, used, places == 1, rng).log_odds(
            np.column_stack([block.rows(new) @ w for block, w in weights])
        )
        return outcomes.probabilities(log_odds[:, None])
    if not design.learns:
        each = np.stack([q if outcomes.several else np.column_stack([1 - q, q]) for q in predicted], axis=1)
        combiner = combiner_of(p.combiner, p.split)
        logs = combined(each, [block.weight for block, _ in weights], combiner)
        return np.asarray(np.exp(logs) / np.exp(logs).sum(axis=1, keepdims=True))
    rows = high if vertical else parts[design.holder]
    seen = [block.predicted(block.rows(used, rows), w) for block, w in weights]
    if design.meta is Meta.PERTURBED:
        noisy = plan.release(design.blocks[0].card.name, PREDICTIONS).mechanism
        assert isinstance(noisy, GaussianRelease)
        deviation = noisy.scale / GRID
        seen = [np.clip(q + deviation * rng.normal(size=q.shape), 0.0, 1.0) for q in seen]
    features = meta_rows(seen, intercept=p.fit_intercept)
    mechanism = plan.release(design.holder, META).mechanism
    w = _fit(design, mechanism, features, coded[rows], np.zeros(features.shape[1] * outcomes.predictors), rng)
    return outcomes.of(meta_rows(predicted, intercept=p.fit_intercept), w)


def _calibrated(
    made: Probabilities,
    weights: list[tuple[LowLevel, NDArray[np.float64]]],
    used: Table,
    second: NDArray[np.bool_],
    rng: np.random.Generator,
) -> Calibrated:
    """Return how scores become probabilities, by counts of these rows with noise in proportion to their part of the study's own."""
    part = second.size / weights[0][0].card.rows
    deviation = made.rate.scale * part / second.size
    base = ReleasedRate(float(second.mean()) + deviation * rng.normal(), deviation, second.size)
    counts = [counted(block, block.rows(used), second, w, base.sent) for block, w in weights]
    noisy = [exact + made.counts.scale * part * rng.normal(size=exact.size) for exact in counts]
    return calibrated([block for block, _ in weights], [w for _, w in weights], noisy, made.counts.scale * part, base)


def _fit(
    design: StackingDesign,
    mechanism: Any,  # noqa: ANN401 - whose kind is asserted
    rows: Matrix,
    coded: NDArray[Any],
    centre: NDArray[np.float64],
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Return the minimiser with noise in proportion to these rows' part of the study's own."""
    assert isinstance(mechanism, ObjectivePerturbation)
    b = np.zeros(mechanism.size)
    for k in range(mechanism.fits if mechanism.scale else 0):
        direction = rng.normal(size=mechanism.width)
        if not isinstance(mechanism, GaussianObjective):
            direction *= rng.gamma(mechanism.width) / np.linalg.norm(direction)
        b[k * mechanism.width : (k + 1) * mechanism.width] = mechanism.scale * direction
    count = coded.size
    return design.outcomes.minimum(
        rows, coded, count * mechanism.penalty, linear=b * (count / mechanism.rows), centre=centre, tolerance=1e-7
    )


def _ranks(plan: Plan[StackingDesign], used: Table, places: Places, rng: np.random.Generator) -> dict[str, int]:
    """Return the ranks of parties by noisy scores."""
    design = plan.design
    scores = {}
    for block in design.blocks:
        mechanism = plan.release(block.card.name, SCORE).mechanism
        scale = block.card.rows / places.size
        exact = float(score_of(block.rows(used) / block.weight, places, design.parameters.base_rates)[0]) * scale
        scores[block.card.name] = exact + float(mechanism.scale or 0.0) * rng.normal()
    return {name: rank for rank, name in enumerate(sorted(scores, key=lambda name: -scores[name]))}


def made_up(
    design: StackingDesign,
    study: Study,
    count: int,
    assumed: tuple[float, float, float, float],
    rng: np.random.Generator,
    shape: str = NORMAL,
) -> tuple[dict[str, Any], Matrix]:
    """Return columns of a table of the declared shape, and the true probabilities of all classes."""
    signal, rate, correlation, ranges = assumed
    features = {column.name: column for card in study.parties for column in card.columns}
    columns, rows = made_up_features(tuple(features.values()), count, correlation, ranges, rng, shape)
    outcomes = design.outcomes
    u = rows @ rng.normal(size=(rows.shape[1], outcomes.predictors))
    u *= signal / np.maximum(u.std(axis=0), 1e-9)
    if outcomes.several:
        return columns, Outcomes(outcomes.classes).probabilities(u)
    low, high = -60.0, 60.0
    for _ in range(_BISECTIONS):  # the constant with which the second class is as frequent as it should be
        middle = (low + high) / 2
        low, high = (middle, high) if float(outcomes.probabilities(u + middle)[:, 1].mean()) < rate else (low, middle)
    return columns, outcomes.probabilities(u + low)


def made_up_classes(study: Study, count: int, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Return labels for audits by people who hold no data: any of the declared classes."""
    p = parameters_of(study)
    texts = np.array([text_of(c) for c in p.classes], dtype=object)
    return {p.response: texts[rng.integers(0, texts.size, count)]}
