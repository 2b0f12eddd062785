"""Probabilities of two classes along one score, from noisy counts of (cell of the score) x class (``models/glm/THEORY.md``, section 5).

The probability of the second class at a score t is the logistic function of a + s t. Scores are taken for normal, with the mean and deviation that
the counts of both classes together tell, so that a cell has points at which the logistic function is averaged. A cell's count N of rows is about
that of normal scores, its count of the second class has mean N p and variance N p (1 - p), and both counts have the noise of the release. The
released base rate is a second datum, on the mean probability over all rows. What follows is averaged over a grid of (s, mean probability).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit, logit, ndtr, ndtri

from unpooled.schedules import table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]
    Row = NDArray[np.float64]

_TUNED = table("probabilities")
#: Where a cell of the score ends and the next one begins; the first and the last cell have no end.
CUTS = _TUNED.several("cuts")
CELLS = len(CUTS) + 1
#: What is believed of the slope before data where nothing is known of it: this mass at 0, the rest log-uniform over these slopes of a score of
#: deviation 1.
_NONE, _SLOPES, _SLOPE_POINTS = _TUNED.none, _TUNED.pair("slopes"), 33
#: What is believed of a slope that rounds estimated already: the deviation of the logarithm of its ratio to theirs, and that of the shift of their
#: constant, at a doubt of 1.
_RATIO, _SHIFT = _TUNED.ratio, _TUNED.shift
#: Deviations of that ratio on each side; of the base rate's noise, and points between; the least base rate, in rows. All rates are equally likely
#: before data.
_REACH, _RATE_REACH, _RATE_POINTS, _LEAST_RATE = 3.0, 4.0, 25, _TUNED.least_rate
#: What is believed of the mean of the scores, and of the logarithm of their deviation.
_MEAN, _LOG_DEVIATION = _TUNED.mean, _TUNED.pair("log_deviation")
#: Points of a cell; draws of the posterior.
_POINTS, DRAWS = 5, 64
#: Halvings of the interval of a constant: to about 10^-8.
_BISECTIONS = 32
#: How far a cell's count of rows is believed to be from that of normal scores: as a part of it, and as a part of all rows.
_MISFIT, _STRAY = _TUNED.misfit, _TUNED.stray
_TINY = 1e-9


@dataclass(frozen=True)
class ScoreCounts:
    """Released counts, two for each cell (first class, second class), and the base rate, with the deviations of their noise."""

    counts: Matrix
    deviation: float
    base: float
    base_deviation: float
    #: The number of rows.
    rows: float


@dataclass(frozen=True)
class Known:
    """The line that rounds estimated, about which the line of the classes is believed to lie, and how much that is in doubt."""

    constant: float
    slope: float
    doubt: float
    #: The mass of this belief; the rest is believed as if nothing were known.
    mass: float = 1.0


@dataclass(frozen=True)
class Slopes:
    """Belief of the slope before data: the mass at 0, and the slope of a score of deviation 1 from which on larger ones are rarer.

    Without a typical slope all are equally likely on a logarithmic scale; with one, s, a slope x has a density in proportion to 1/(1 + (x/s)^2).
    """

    none: float = _NONE
    typical: float = math.inf


ANY = Slopes()


@dataclass(frozen=True)
class ScorePosterior:
    """The posterior of (constant, slope): its means, and draws of equal weight."""

    constant: float
    slope: float
    draws: Matrix
    #: The mean probability of the second class over all rows, and the mean and the deviation of their scores.
    rate: float
    scores: tuple[float, float]

    @property
    def lines(self) -> tuple[tuple[float, float], ...]:
        """Return every draw as (constant, factor) of the mean line: a draw's log odds are constant + factor * (those of the means)."""
        factors = self.draws[:, 1] / self.slope
        constants = self.draws[:, 0] - factors * self.constant
        return tuple(zip(constants.tolist(), factors.tolist(), strict=True))


def score_counts(scores: Vector, second: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return counts of rows: cells of the first class from the lowest score to the highest, then of the second."""
    cell = np.searchsorted(np.array(CUTS), scores, side="right")
    return np.bincount(cell + CELLS * second, minlength=2 * CELLS).astype(np.int64)


def score_posterior(
    released: ScoreCounts, *, intercept: bool = True, known: Known | None = None, believed: Slopes = ANY
) -> ScorePosterior:
    """Return the posterior of the line a + s t; ``known``: the line that rounds estimated; ``believed``: of the slope, where none did.

    Without an intercept the constant is 0.
    """
    points, parts = _scores(released)
    deviation = math.sqrt(max(float((parts[:, None] * points**2).sum()) / _POINTS, _TINY))
    slopes, constants, prior = _lines(released, points, parts, deviation, (known, believed), intercept=intercept)
    p = expit(constants[..., None, None] + slopes[:, None, None, None] * points).mean(axis=-1)
    log = np.log(prior) + _likelihood(released, p, parts)
    weights = np.exp(log - log.max()).ravel()
    weights /= weights.sum()
    both = np.column_stack([constants.ravel(), np.repeat(slopes, constants.shape[1])])
    places = np.searchsorted(np.cumsum(weights), (np.arange(DRAWS) + 0.5) / DRAWS)
    constant, slope = weights @ both
    rate = float(weights @ (p * parts).sum(axis=-1).ravel())
    middle = float(parts @ points.mean(axis=1))
    apart = math.sqrt(max(deviation**2 - middle**2, 0.0))
    draws = both[np.minimum(places, weights.size - 1)]
    return ScorePosterior(float(constant), max(float(slope), _TINY), draws, rate, (middle, apart))


def mean_log_odds(log_odds: Vector, lines: tuple[tuple[float, float], ...]) -> Vector:
    """Return the log odds of the mean probability over lines (constant, factor) of the given log odds."""
    if not lines:
        return log_odds
    both, rest = np.zeros((2, *np.shape(log_odds)))
    for constant, factor in lines:
        both += expit(constant + factor * log_odds)
        rest += expit(-constant - factor * log_odds)
    tiny = np.finfo(np.float64).tiny
    return np.asarray(np.log(np.maximum(both, tiny)) - np.log(np.maximum(rest, tiny)))


def _scores(released: ScoreCounts) -> tuple[Matrix, Vector]:
    """Return points of every cell, and the part of all rows in each, of normal scores whose mean and deviation the counts tell."""
    means = np.linspace(-3 * _MEAN, 3 * _MEAN, 25)
    middle, doubt = _LOG_DEVIATION
    deviations = np.exp(np.linspace(middle - 3 * doubt, middle + 3 * doubt, 60))
    ends = np.array([-np.inf, *CUTS, np.inf])
    inside = np.diff(ndtr((ends - means[:, None, None]) / deviations[:, None]), axis=-1)
    counted = released.counts.sum(axis=0)
    expected = inside * released.rows
    variance = 2 * released.deviation**2 + expected + 1.0
    log = -((counted - expected) ** 2 / variance + np.log(variance)).sum(axis=-1) / 2
    log -= (means[:, None] / _MEAN) ** 2 / 2
    log -= ((np.log(deviations) - middle) / doubt) ** 2 / 2
    weights = np.exp(log - log.max())
    weights /= weights.sum()
    mean = float(weights.sum(axis=1) @ means)
    deviation = math.exp(float(weights.sum(axis=0) @ np.log(deviations)))
    edges = ndtr((ends - mean) / deviation)
    places = edges[:-1, None] + np.diff(edges)[:, None] * (np.arange(_POINTS) + 0.5) / _POINTS
    points = mean + deviation * ndtri(np.clip(places, 1e-12, 1 - 1e-12))
    return np.clip(points, np.maximum(ends[:-1], -1e3)[:, None], np.minimum(ends[1:], 1e3)[:, None]), np.diff(edges)


def _lines(
    released: ScoreCounts,
    points: Matrix,
    parts: Vector,
    deviation: float,
    belief: tuple[Known | None, Slopes],
    *,
    intercept: bool,
) -> tuple[Vector, Matrix, Matrix]:
    """Return slopes, a row of constants for each, and what is believed of every line before data."""
    known, believed = belief
    slopes, prior = _slopes(deviation, known, believed)
    if known is None:
        return slopes, *_constants(released, points, parts, slopes, prior, intercept=intercept)
    constants, prior = _near(known, prior, intercept=intercept)
    if known.mass == 1.0:
        return slopes, constants, prior
    others = _lines(released, points, parts, deviation, (None, believed), intercept=intercept)
    found = [(slopes, constants, prior, known.mass), (*others, 1 - known.mass)]
    # Every line is a row of its own, for the two beliefs have grids of their own.
    return (
        np.concatenate([np.repeat(s, c.shape[1]) for s, c, _, _ in found]),
        np.concatenate([c.ravel() for _, c, _, _ in found])[:, None],
        np.concatenate([mass * (p / p.sum()).ravel() for _, _, p, mass in found])[:, None],
    )


def _slopes(deviation: float, known: Known | None, believed: Slopes) -> tuple[Vector, Vector]:
    """Return slopes and what is believed of each before data."""
    if known is not None:
        far = np.linspace(-_REACH, _REACH, _SLOPE_POINTS)
        return known.slope * np.exp(_RATIO * known.doubt * far), np.exp(-(far**2) / 2)
    slopes = np.geomspace(*_SLOPES, _SLOPE_POINTS - 1)
    likely = slopes / (1 + (slopes / believed.typical) ** 2) if math.isfinite(believed.typical) else np.ones_like(slopes)
    return np.append(0.0, slopes / deviation), np.append(believed.none, (1 - believed.none) * likely / likely.sum())


def _constants(
    released: ScoreCounts, points: Matrix, parts: Vector, slopes: Vector, prior: Vector, *, intercept: bool
) -> tuple[Matrix, Matrix]:
    """Return for every slope constants (a row each) at which the mean probability is about the base rate, and what is believed of each pair."""
    if not intercept:
        return np.zeros((slopes.size, 1)), prior[:, None]
    near = min(max(released.base, 1 / (released.rows + 2)), 1 - 1 / (released.rows + 2))
    spread = math.hypot(released.base_deviation, math.sqrt(near * (1 - near) / released.rows))
    ends = (
        max(near - _RATE_REACH * spread, _LEAST_RATE / released.rows),
        min(near + _RATE_REACH * spread, 1 - _LEAST_RATE / released.rows),
    )
    rates = np.linspace(*ends, _RATE_POINTS)
    believed = np.exp(-(((rates - released.base) / spread) ** 2 - ((near - released.base) / spread) ** 2) / 2)
    odds, reach = logit(rates), slopes[:, None] * np.abs(points).max() + _TINY
    low, high = odds - reach, odds + reach
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        mean = (expit(middle[..., None, None] + slopes[:, None, None, None] * points).mean(axis=-1) * parts).sum(axis=-1)
        low, high = np.where(mean < rates, middle, low), np.where(mean < rates, high, middle)
    return (low + high) / 2, prior[:, None] * believed


def _near(known: Known, prior: Vector, *, intercept: bool) -> tuple[Matrix, Matrix]:
    """Return for every slope constants about the one that rounds estimated, which rests on the rows' own scores, and what is believed of each pair."""
    far = np.linspace(-_REACH, _REACH, _RATE_POINTS) if intercept else np.zeros(1)
    constants = np.broadcast_to(known.constant + _SHIFT * known.doubt * far, (prior.size, far.size))
    return constants, prior[:, None] * np.exp(-(far**2) / 2)


def _likelihood(released: ScoreCounts, p: Matrix, parts: Vector) -> Matrix:
    """Return the log likelihood of the counts of both classes, for probabilities of the second in the cells, which are in the last axis.

    A cell's count of rows is normal about that of normal scores; given it, the two classes are binomial, and both counts have noise.
    """
    rows, q = released.rows * parts, 1 - p
    doubt = (_MISFIT * rows) ** 2 + (_STRAY * released.rows) ** 2 + rows
    own, noise = rows * p * q, released.deviation**2 + _TINY
    second, first, both = doubt * p**2 + own + noise, doubt * q**2 + own + noise, doubt * p * q - own
    left, right = released.counts[1] - rows * p, released.counts[0] - rows * q
    determinant = second * first - both**2
    square = (first * left**2 - 2 * both * left * right + second * right**2) / determinant
    return np.asarray(-(square + np.log(determinant)).sum(axis=-1) / 2)


# --- Shrunk rounds ---------------------------------------------------------------------------------------------------------
# Slopes that noisy rounds found, as long as the release itself makes likely: none where they met nothing but noise.

#: What is believed of the linear predictor before data: this mass at no deviation, the rest log-uniform over these deviations.
_NO_ROUNDS, _DEVIATIONS, _DEVIATION_POINTS = _TUNED.rounds_none, _TUNED.pair("rounds_deviations"), 33
DEVIATIONS = np.append(0.0, np.geomspace(*_DEVIATIONS, _DEVIATION_POINTS - 1))


def averaged_rounds(rounds: int, step: float) -> tuple[float, float]:
    """Return the part of the way to the optimum that the mean of the later half of the rounds has gone, and its variance for gradients of variance 1.

    Every step goes this part of the way of a quadratic loss.
    """
    first = rounds // 2
    left = (1 - step) ** np.arange(1, rounds + 1)
    gone = float(1 - left[first:].mean())
    # A gradient's noise stays in all iterates after it.
    weights = [
        step * (1 - step) ** np.maximum(np.arange(first, rounds) - index, 0.0) * (np.arange(first, rounds) >= index)
        for index in range(rounds)
    ]
    return gone, float(sum(np.mean(w) ** 2 for w in weights))


def believed_slopes(
    found: Row, arrived: Row, noise: Row, moving: NDArray[np.bool_], slopes: int, deviations: Row = DEVIATIONS
) -> Row:
    """Return posterior means of coefficients of which rounds found this, after this part of the way and with noise of this variance.

    Slopes (``moving``) are normal about 0 with one variance, over whose grid the posterior is averaged; the others stay as they were found.
    ``deviations`` are those of the linear predictor on that grid, of which the first is 0.
    """
    believed = deviations[:, None] ** 2 / slopes
    whole = arrived**2 * believed + noise
    log = _log_prior(deviations) - 0.5 * (found**2 / whole + np.log(whole))[:, moving].sum(axis=1)
    weights = np.exp(log - log.max())
    return np.where(moving, (weights / weights.sum()) @ (believed * arrived / whole) * found, found)


def believed_length(
    found: Row, arrived: float, noise: float, length: float, error: float, deviations: Row = DEVIATIONS
) -> float:
    """Return the posterior mean of the length of slopes along the direction in which rounds found them.

    ``found`` are those slopes after this part of the way and with noise of this variance each; ``length`` is what was then measured along them, with an
    error of this variance. What is believed before is that of ``believed_slopes``.
    """
    count, square = found.size, float(found @ found)
    believed = deviations**2 / count
    whole = arrived**2 * believed + noise
    log = _log_prior(deviations) - 0.5 * (count * np.log(whole) + square / whole)
    middle, left = believed * arrived / whole * math.sqrt(square), believed * noise / whole
    apart = left + error
    log -= 0.5 * (np.log(apart) + (length - middle) ** 2 / apart)
    weights = np.exp(log - log.max())
    return float(weights @ (middle + left / apart * (length - middle)) / weights.sum())


def _log_prior(deviations: Row) -> Row:
    """Return the logarithms of the mass of each deviation, up to a constant."""
    others = deviations.size - 1
    found: Row = np.log(np.append(_NO_ROUNDS, np.full(others, (1 - _NO_ROUNDS) / others)))
    return found
