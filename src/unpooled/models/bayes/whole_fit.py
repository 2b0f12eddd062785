"""The coordinator's part of a linear table of whole rows given that they are: steps of its likelihood, and moments behind its lines.

All of it is post-processing of totals. Which rows are whole is fitted first; from then on it is public numbers.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.kernels import noisy as noisy_gram
from unpooled.kernels.noisy import KnownDirections
from unpooled.linear.descent import descent, frame_of, from_moments
from unpooled.linear.fit import plain
from unpooled.linear.moments import Moments
from unpooled.linear.standard import CONSTANT, SCALES, SPREAD
from unpooled.linear.tilted import FIRST, INFLUENCE, INFORMATION, SCORE, SPREADS, TiltedLaw, kept_features, known_scores, met
from unpooled.models import load
from unpooled.models.bayes.whole import PART
from unpooled.totals.whole_rows import WholeRowsModel, modelled

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

    from unpooled.inference.estimates import Estimates
    from unpooled.linear.fit import LinearFit
    from unpooled.linear.standard import Standard
    from unpooled.linear.tilted import TiltedRows
    from unpooled.models.bayes.declared import BayesDesign
    from unpooled.protocol.messages import Ask
    from unpooled.protocol.registry import Replies
    from unpooled.totals.rounds import Rounds

    Row = NDArray[np.float64]
    Matrix = NDArray[np.float64]

#: A fit without noise has converged where no coefficient moves by more than this, or moves by rounding alone.
_CONVERGED, _ROUNDED = 1e-10, 1e-7
#: No more than this part of how the response counts for which rows are whole may be hidden.
_LOST = 0.25


def chances_of(plan: Any, result: Any) -> Estimates:  # noqa: ANN401 - of whatever model the part is
    """Return the estimates of the part that says which rows are whole."""
    part = plan.parts[PART]
    tables = load(part.study.row).tables(part, result)
    assert tables is not None  # it is fitted by a method that has them
    found: Estimates = tables.best
    return found


def fitted_whole(
    rounds: Rounds[BayesDesign], chances: Estimates
) -> Generator[list[Ask], Replies, tuple[LinearFit, Moments]]:
    """Return the fit and the moments behind its lines: a start from whole rows, then steps of the likelihood given that they are whole."""
    design, plan = rounds.design, rounds.plan
    whole = design.whole
    assert whole is not None
    total = yield from rounds.total(SCALES)
    standard = design.scales.decode(total, rounds.rows)
    start, least = yield from (descent(rounds, standard) if design.schedule.rounds else from_moments(rounds, standard))
    total = yield from rounds.total(SPREAD, (*standard.settings, *start.tolist()))
    squares, noise = design.standard.square_of(total)
    spread = np.zeros(whole.spread.size)
    spread[-1] = math.log(max(squares, noise, 1e-9 * rounds.rows) / rounds.rows) / CONSTANT
    law = TiltedLaw(standard, start, spread, np.array(chances.estimate))
    still = _still(design, standard, whole)
    law = yield from _first_steps(rounds, whole, law, still)
    lift, of_chances, sampling = chances.in_fit()
    resting = replace(law, unit=_unit(rounds, whole, law), lift=lift)
    total = yield from rounds.total(SCORE, law.settings)
    pull, pull_noise = whole.score.decode(total, whole.lengths[0])
    total = yield from rounds.total(SPREADS, law.settings)
    wide, wide_noise = whole.spreads.decode(total, whole.lengths[1])
    total = yield from rounds.total(INFORMATION, law.settings)
    upper, upper_noise = whole.information.decode(total, whole.lengths[2])
    total = yield from rounds.total(INFLUENCE, resting.settings)
    rests, rests_noise = whole.influence.decode(total, whole.lengths[3] * resting.unit)
    d = design.standard.width
    second = whole.matrix(upper)
    # Without the log variance: of what pulls at the mean, that which does not pull at it.
    taken = second[:d, d:] @ _inverse(second[d:, d:], upper_noise, still[d:])
    gram = second[:d, :d] - taken @ second[d:, :d]
    cross = pull - taken @ wide
    influence = rests.reshape(whole.size, -1)
    influence = influence[:d] - taken @ influence[d:]
    unit = law.deviation**2
    scores = known_scores(noisy_gram.psd_part(gram) / whole.efficiency, influence, rests_noise, sampling)
    added = noisy_gram.psd_part(met(influence, rests_noise, of_chances - sampling))
    moments = np.full((d + 1, d + 1), np.nan)
    variance = np.full((d + 1, d + 1), np.nan)
    moments[:d, :d], variance[:d, :d] = gram, whole.noises(d, upper_noise)
    moments[:d, d] = moments[d, :d] = math.sqrt(unit) * cross
    variance[:d, d] = variance[d, :d] = unit * (pull_noise**2 + np.square(taken).sum(axis=1) * wide_noise**2)
    frame = frame_of(design, standard, law.start, (unit * rounds.rows, 0.0), max(least, 1e-12), rounds.weight)
    along = _by_response(whole, float(standard.middle[-1]))
    promise = plan.statement
    own, constant = frame_of(design, standard, start, (unit, 0.0), 1.0).of_own_units(start, intercept=True)
    released = Moments(
        design.layout.present(rounds.participants),
        rounds.rows,
        moments,
        variance,
        plan.hash,
        str(promise),
        replace(frame, variance=(math.nan, math.nan)),
        promise.holds,
        design.covariance,
        (unit * scores, np.zeros((d, d))),
        few=rounds.next_to_none or _hidden(chances, along),
        whole=_told(rounds, chances, along, (*own.tolist(), constant)),
        added=unit * added,
    )
    return plain(released.posterior()), released


def _first_steps(
    rounds: Rounds[BayesDesign], whole: TiltedRows, law: TiltedLaw, still: Matrix
) -> Generator[list[Ask], Replies, TiltedLaw]:
    """Take the first step, of coefficients and log variance together; without noise steps until nothing moves."""
    d, size = rounds.design.standard.width, math.inf
    times = rounds.design.totals[FIRST].count
    for index in range(times):
        total = yield from rounds.total(FIRST, law.settings, index)
        scores, second, noises = whole.first_of(total)
        move = _inverse(second, noises[2], still) @ scores
        move *= min(1.0, 2.0 / max(float(np.linalg.norm(move)), 1e-300))
        law = replace(law, start=law.start + law.deviation * move[:d], spread=law.spread + move[d:])
        before, size = size, float(np.abs(move).max())
        if whole.exact and (size <= _CONVERGED or before / 2 <= size <= _ROUNDED):
            break
    return law


def _inverse(gram: Matrix, noise: float, still: Matrix) -> Matrix:
    """Return the inverse of noisy second derivatives over the directions that the noise does not hide."""
    own = still[:, np.abs(still).max(axis=0, initial=0.0) > 0] if still.size else still
    variance = np.full(gram.shape, noise**2 / 2) + np.eye(len(gram)) * noise**2 / 2
    return KnownDirections.of(gram, variance, own).inverse


def _still(design: BayesDesign, standard: Standard, whole: TiltedRows) -> Matrix:
    """Return directions of the coefficients of mean and log variance, a column each, along which no row varies."""
    d = design.standard.width
    frame = frame_of(design, standard, np.zeros(d), (math.nan, math.nan), 1.0)
    found = np.linalg.solve(frame.back(intercept=True), design.layout.still)
    columns = [np.concatenate([column, np.zeros(whole.spread.size)]) for column in found.T]
    others = np.setdiff1d(np.arange(d), whole.spread)
    columns += [
        np.concatenate([np.zeros(d), column[whole.spread]])
        for column in found.T
        if np.abs(column[others]).max(initial=0.0) == 0 and np.abs(column).max() > 0
    ]
    return np.array(columns).T if columns else np.empty((whole.size, 0))


def _unit(rounds: Rounds[BayesDesign], whole: TiltedRows, law: TiltedLaw) -> float:
    """Return the typical length of a derivative of a pull by the model of which rows are whole: of what it has of the response, as far as rows are not whole."""
    response = whole.standard.layout.response
    with_response = len(whole.chances.features) - len(kept_features(whole.chances, (response,)))
    every = sum(rounds.plan.study.card(name).rows for name in rounds.participants)
    gone = min(max(1 - rounds.rows / every, 0.05), 1.0)
    return gone * law.deviation * math.sqrt(max(with_response, 1))


def _by_response(whole: TiltedRows, middle: float) -> Row:
    """Return the weights of the coefficients of which rows are whole that say how the response counts there, a unit of it.

    That is at this value of it, in coded units, at the middle of numbers, and with every level as often as the others.
    """
    response, made = whole.standard.layout.response, whole.chances.made
    columns = whole.chances.features if made is None else made.derived.needs
    count = math.lcm(1, *(len(column.categories) for column in columns if column.categories is not None))
    held: dict[str, Any] = {}
    for column in columns:
        if column.categories is None:
            held[column.name] = np.full(count, column.centre if column.typical is None else column.typical[0])
        else:
            held[column.name] = np.array([column.categories[k % len(column.categories)] for k in range(count)], dtype=object)
    _, slope, bent = whole.lines_of(held)
    return np.append((slope + 2 * middle * bent).mean(axis=0) / response.half_width, 0.0)


def _hidden(chances: Estimates, along: Row) -> str:
    """Return why a table has no line where the noise hides whether the response says which rows are whole; empty where it does not."""
    if (
        float(chances.lost(along[None])[0]) <= _LOST
    ):  # a square or a product of it may be hidden: then it is modelled without
        return ""
    return "not identified: the noise hides how the response goes with which rows are whole, so no line is right: ask for more epsilon or more rows"


def _told(rounds: Rounds[BayesDesign], chances: Estimates, along: Row, alone: tuple[float, ...]) -> WholeRowsModel:
    """Return what is told of which rows are whole: log odds a unit of the response; ``alone``: about the coefficients of the whole rows by themselves."""
    layout = rounds.design.layout
    names = [column.name for column in modelled(layout.left_out)]
    seen = [column.name for column in layout.declared if column.name not in names]
    assert rounds.count is not None  # rows may have gaps
    return WholeRowsModel(
        tuple(names),
        tuple(seen),
        any("I(" in name for name in chances.names),
        rounds.rows,
        float(rounds.count.deviations[0]),
        sum(rounds.plan.study.card(name).rows for name in rounds.participants),
        float(along @ np.array(chances.estimate)),
        math.sqrt(max(float(along @ chances.square(chances.covariance) @ along), 0.0)),
        alone,
    )
