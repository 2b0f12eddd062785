"""Coefficients from rounds of clipped gradients, the coordinates in which they are, and what predicts where there are no errors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import gammainc, gammaincc

from unpooled.aggregation.coordinates import Coordinates
from unpooled.aggregation.linear_fit import LinearFit
from unpooled.aggregation.linear_rounds import clip_of
from unpooled.aggregation.rounds import Rounds, descend
from unpooled.aggregation.standard import CONSTANT, FIRST_MOMENTS
from unpooled.kernels.noisy_gram import noise_level

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

    from unpooled.aggregation.linear_design import LinearDesign
    from unpooled.aggregation.standard import Standard, StandardRows
    from unpooled.aggregation.totals import Total
    from unpooled.protocol.messages import Ask
    from unpooled.protocol.step import Replies

    Row = NDArray[np.float64]

#: A clip takes more from long rows, which move coefficients most, and deviations may be taken for too large.
_OF_LONG = 0.8
#: Of residuals at least this share is taken to lie inside the clip of a gradient.
_LEAST_SHARE = 0.05


def descent(
    rounds: Rounds[Any], standard: Standard, start: Row | None = None
) -> Generator[list[Ask], Replies, tuple[Row, float]]:
    """Steps along noisy clipped gradients from ``start`` (zeros without it); the mean of the later half of the iterates, and the deviation of its noise."""
    design: LinearDesign = rounds.design
    schedule = design.schedule
    layout = design.standard.layout
    noise, step = 0.0, schedule.step * np.tile(layout.steps, layout.responses)

    def move(total: Total, _: Row) -> Row:
        nonlocal noise
        gradient, noise = design.standard.gradient_of(total)
        return step * gradient / rounds.counted

    start = np.zeros(step.size) if start is None else start
    found = yield from descend(rounds, lambda at: (*standard.settings, *at.tolist()), move, start, schedule.rounds)
    return found, noise / rounds.counted / math.sqrt(schedule.rounds - schedule.rounds // 2)


def from_moments(rounds: Rounds[Any], standard: Standard) -> Generator[list[Ask], Replies, tuple[Row, float]]:
    """Least squares from one release of second moments, and the deviation that its noise has along a column of variance 1.

    Eigenvalues below the norm of the noise are raised to it: coefficients along such directions begin near 0.
    """
    rows: StandardRows = rounds.design.standard
    noise = rows.noise_of_products(rounds.design.totals[FIRST_MOMENTS].deviations(rounds.plan)) / rounds.rows
    clip = min(clip_of(noise / rows.stretch), 2 / float(standard.width[-1]))
    total = yield from rounds.total(FIRST_MOMENTS, (*standard.settings, clip))
    moments, variance = rows.products_of(total, clip)
    gram, cross = moments[:-1, :-1], moments[:-1, -1]
    values, vectors = np.linalg.eigh(gram)
    least = max(noise_level(variance[:-1, :-1]), 1e-9 * float(values[-1]))
    return vectors @ (vectors.T @ cross / np.maximum(values, least)), noise * clip


def arrived(step: float, rounds: int) -> tuple[float, float]:
    """Return (the part of the way that the mean of the later half of the iterates has come, the root of the sum of its squared weights on gradients).

    ``step`` is the part of the way that one round without noise goes.
    """
    late = np.arange(rounds // 2, rounds) + 1
    ages = late - np.arange(1, rounds + 1)[:, None]
    weights = np.where(ages >= 0, (1 - step) ** np.maximum(ages, 0), 0.0).mean(axis=1)
    return float(np.mean(1 - (1 - step) ** late)), math.sqrt(float(weights @ weights))


def steepness(clip: float, responses: int) -> float:
    """Return how steep the mean of clipped residuals is as a part of unclipped ones, for several responses clipped by their length together.

    Residuals are taken for normal and independent, with deviation 1. Of one response this is the share of residuals that the clip leaves whole; of
    several a residual beyond the clip still turns with the coefficients of the others.
    """
    if responses == 1:
        return math.erf(clip / math.sqrt(2))
    half = clip**2 / 2
    turning = math.exp(math.lgamma((responses - 1) / 2) - math.lgamma(responses / 2)) / math.sqrt(2)
    beyond = (1 - 1 / responses) * clip * turning * gammaincc((responses - 1) / 2, half)
    return float(gammainc(responses / 2, half) + beyond)


def way_of(design: LinearDesign, least: float, curvature: float = 1.0) -> tuple[float, float]:
    """Return (the part of the way that the rounds have come, the deviation of their noise once they are divided by it).

    ``least`` is that of the mean of their gradients. Clipped gradients are less steep (``steepness``);
    ``curvature`` is that of the coefficient without a clip.
    """
    schedule = design.schedule
    share = max(steepness(schedule.longest / design.standard.radius, design.standard.layout.responses), _LEAST_SHARE)
    way, weights = arrived(schedule.step * share * curvature * _OF_LONG, schedule.rounds)
    one = least * math.sqrt(schedule.rounds - schedule.rounds // 2)  # of one gradient
    return way, one * schedule.step * weights / way


def shrunk(start: Row, least: float, standard: Standard, *, intercept: bool) -> Row:
    """Return slopes shrunk by their noise (James and Stein's factor, at least 0), and a constant by what was known of the mean before."""
    result, slopes = start.copy(), start.size - intercept
    square, noise = float(start[:slopes] @ start[:slopes]), slopes * least**2
    if slopes > 2:  # noqa: PLR2004 - fewer cannot be shrunk by it
        factor = max(0.0, 1 - noise / square) if square else 0.0
    else:
        factor = square / (square + noise) if square else 0.0
    result[:slopes] *= factor
    if intercept:
        result[-1] = shrunk_constant(start, least, standard)
    return result


def shrunk_constant(start: Row, least: float, standard: Standard) -> float:
    """Return the constant of these coefficients, shrunk by what was known of the mean before."""
    before, after = (standard.noise / standard.width[-1]) ** 2, (least / CONSTANT) ** 2
    return float(start[-1]) * (before / (before + after) if before + after else 1.0)


def frame_of(
    design: LinearDesign,
    standard: Standard,
    start: Row,
    squares: tuple[float, float],
    least: float,
    weight: float = 1.0,
) -> Coordinates:
    """Return the units of standardised rows of these means and deviations; ``weight`` is the rows' mean weight as a part of the largest."""
    layout, y = design.layout, design.layout.response
    widths, centres = layout.half_widths, layout.centres
    p = len(layout.coding.attribute)
    own = np.concatenate([widths[:p] * standard.width[:-1], [1 / CONSTANT] * layout.intercept])
    middles = np.concatenate([centres[:p] + widths[:p] * standard.middle[:-1], [0.0] * layout.intercept])
    width, centre = y.half_width * float(standard.width[-1]), y.centre + y.half_width * float(standard.middle[-1])
    value, noise = (number / float(standard.width[-1]) ** 2 for number in standard.variance)
    if layout.weighting is not None:  # the response's variance was released without weights: the moments tell it
        value = noise = math.nan
    return Coordinates(own, middles, width, centre, start, squares, (value, noise**2), max(least, 1e-12), weight)


def without_errors(design: LinearDesign, frame: Coordinates) -> LinearFit:
    """Return the coefficients of the rounds in the data's own units."""
    layout = design.layout
    own = frame.of_own_units(frame.start, intercept=layout.intercept)
    return LinearFit.without_errors(*own, has_intercept=layout.intercept)
