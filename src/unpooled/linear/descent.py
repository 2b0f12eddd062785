"""Coefficients from rounds: clipped gradients, directions that are public, and the length of slopes along them. All of it is post-processing of noisy totals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import gammainc, gammaincc

from unpooled.inference.coordinates import Coordinates
from unpooled.kernels.noisy import noise_level
from unpooled.kernels.score_posterior import believed_length, believed_slopes
from unpooled.linear.fit import LinearFit
from unpooled.linear.lines import LENGTH
from unpooled.linear.schedule import LENGTH_ROUNDS, clip_of
from unpooled.linear.standard import CONSTANT, FIRST_MOMENTS, Standard
from unpooled.schedules import table
from unpooled.totals.rounds import Rounds, descend

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

    from unpooled.linear.design import LinearDesign
    from unpooled.linear.standard import StandardRows
    from unpooled.protocol.messages import Ask
    from unpooled.protocol.registry import Replies
    from unpooled.totals.total import Total

    Row = NDArray[np.float64]


# --- Descent ---------------------------------------------------------------------------------------------------------------
# Coefficients from rounds of clipped gradients, the coordinates in which they are, and what predicts where there are no errors.

_TUNED, _SMALL = table("regression"), table("directions")


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
    share = max(steepness(schedule.longest / design.standard.radius, design.standard.layout.responses), _TUNED.least_share)
    way, weights = arrived(schedule.step * share * curvature * _TUNED.long_rows, schedule.rounds)
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


# --- Line rounds -----------------------------------------------------------------------------------------------------------
# Rounds along directions that are public: how long slopes are along them, and the constant. All of it is post-processing of noisy totals.

LENGTH_STEP, UNCOUNTED = _SMALL.length_step, _SMALL.whole("uncounted")


@dataclass
class LineRounds:
    """Rounds along directions: the noise of their gradients, once they have been asked for."""

    rounds: Rounds[Any]
    standard: Standard
    noise: float = 0.0

    def noise_of(self, name: str) -> float:
        """Return the deviation of the noise of one mean gradient, which is known before any is asked for."""
        design: LinearDesign = self.rounds.design
        deviations = design.totals[name].deviations(self.rounds.plan)
        return float(deviations.max()) / float(design.standard.grid) ** 2 / design.standard.rows

    def rows(
        self, name: str, along: Row, start: Row, count: int, first: int, back: float = 0.0
    ) -> Generator[list[Ask], Replies, tuple[Row, float]]:
        """Return (lengths and constant along these directions, averaged from round ``first`` on; the deviation of their noise).

        Of several responses these are the lengths and the constant of one after those of another. Every round goes this part of the way ``back`` to the start.
        """
        rows: StandardRows = self.rounds.design.standard
        responses = rows.layout.responses
        steps = np.tile(np.append(np.full(start.size // responses - 1, LENGTH_STEP), _SMALL.constant_step), responses)

        def move(total: Total, at: Row) -> Row:
            gradient, self.noise = rows.gradient_of(total)
            moved: Row = steps * gradient / self.rounds.counted - back * (at - start)
            return moved

        def sent(at: Row) -> tuple[float, ...]:
            return (*self.standard.settings, *along.ravel().tolist(), *at.tolist())

        found = yield from descend(self.rounds, sent, move, start, count, name=name, first=first)
        return found, self.noise / self.rounds.counted / math.sqrt(count - first)


def steep_of(clip: float, count: int) -> float:
    """Return how steep the mean of clipped gradients is, relative to unclipped ones: the share of rows that the clip leaves whole.

    Residuals are taken for normal with the deviation of the response, and rows for typical ones along this many directions.
    """
    return math.erf(clip / math.sqrt(count + CONSTANT**2) / math.sqrt(2))


def unit_of(slopes: Row) -> Row:
    """Return slopes of length 1, or zeros of none."""
    size = float(np.linalg.norm(slopes))
    return slopes / size if size else np.zeros(slopes.size)


def learnt_length(rounds: Rounds[Any], noise: float) -> float:
    """Return the variance that a direction of noise adds to its length on the rows of the rounds that it was learnt from."""
    design: LinearDesign = rounds.design
    schedule = design.schedule
    each = noise * math.sqrt(schedule.rounds - schedule.rounds // 2)
    layout = design.layout
    longest = design.standard.longest / math.sqrt(layout.responses)  # of each, where all are cut together
    return _SMALL.learnt * learnt_part(longest, each, schedule.rounds, rounds.rows, layout.size - 1)


def learnt_part(longest: float, noise: float, rounds: int, rows: int, slopes: int) -> float:
    """Return the squared length that a direction of noise has on the very rows it was learnt from, for responses of variance 1.

    A response that depends on nothing correlates with the best of ``slopes`` directions by the root of slopes / rows. Of this, rounds whose
    mean gradient has this noise find the part a / (a + slopes / rows), a = rounds (longest / noise)^2 / rows^2, for a clipped gradient has
    at most the variance longest^2 / rows.
    """
    most = slopes / rows
    if not noise:
        return most
    seen = rounds * (longest / (noise * rows)) ** 2
    return most * seen / (seen + most)


# --- Slope lengths ---------------------------------------------------------------------------------------------------------
# Slopes that rounds of gradients found, as long as their noise makes likely, or as a few rounds along them say. All of it is post-processing.

#: Deviations of the linear predictor that are believed possible, in deviations of the response.
_DEVIATIONS = np.append(0.0, np.geomspace(*_SMALL.pair("slope_lengths"), 24))


def believed(design: LinearDesign, standard: Standard, start: Row, least: float, rows: int) -> Row:
    """Return slopes shrunk by the noise of the rounds and of the sample, and a constant by what was known of the mean before.

    ``least`` is the deviation of the noise of the mean of their gradients.
    """
    slopes = start.size - design.layout.intercept
    moving = np.arange(start.size) < slopes
    way, noise = (np.full(start.size, number) for number in _found_with(design, least, rows))
    result = believed_slopes(start, way, noise, moving, max(slopes, 1), _DEVIATIONS)
    if design.layout.intercept:
        result[-1] = shrunk_constant(start, least, standard)
    return result


def with_length(rounds: Rounds[Any], standard: Standard, start: Row, least: float) -> Generator[list[Ask], Replies, Row]:
    """Ask for rounds along slopes that were found; return these as long as both kinds of rounds say, and the constant of both."""
    design: LinearDesign = rounds.design
    direction, begin = unit_of(start[:-1]), believed(design, standard, start, least, rounds.rows)
    at = np.array([float(np.linalg.norm(begin[:-1])), start[-1]])
    lines = LineRounds(rounds, standard)
    (length, constant), error = yield from lines.rows(LENGTH, direction[None], at, LENGTH_ROUNDS, UNCOUNTED)
    error /= steep_of(design.schedule.clips[1], 1)
    variance = error**2 + learnt_length(rounds, least)
    along = believed_length(start[:-1], *_found_with(design, least, rounds.rows), length, variance, _DEVIATIONS)
    _, before = way_of(design, least, CONSTANT**2)
    parts = np.array([before, error / CONSTANT**2]) ** -2.0
    return np.append(along * direction, float(parts @ [start[-1], constant]) / float(parts.sum()))


def _found_with(design: LinearDesign, least: float, rows: int) -> tuple[float, float]:
    """Return the part of the way to least squares that rounds came, and the variance of the slopes that they found there.

    Of a response that depends on nothing, least squares has slopes of variance 1 / rows.
    """
    way, noise = way_of(design, least)
    return way, way**2 * (noise**2 + 1 / rows)
