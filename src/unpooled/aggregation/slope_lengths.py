"""Slopes that rounds of gradients found, as long as their noise makes likely, or as a few rounds along them say. All of it is post-processing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.aggregation.descent import shrunk_constant, way_of
from unpooled.aggregation.line_rounds import UNCOUNTED, LineRounds, learnt_length, steep_of, unit_of
from unpooled.aggregation.line_rows import LENGTH
from unpooled.aggregation.linear_rounds import LENGTH_ROUNDS
from unpooled.aggregation.standard import CONSTANT
from unpooled.kernels.shrunk_rounds import believed_length, believed_slopes

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

    from unpooled.aggregation.linear_design import LinearDesign
    from unpooled.aggregation.rounds import Rounds
    from unpooled.aggregation.standard import Standard
    from unpooled.protocol.messages import Ask
    from unpooled.protocol.step import Replies

    Row = NDArray[np.float64]


#: Deviations of the linear predictor that are believed possible, in deviations of the response.
_DEVIATIONS = np.append(0.0, np.geomspace(0.05, 1.0, 24))


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
