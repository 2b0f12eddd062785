"""The conversation of a linear regression with a small budget: the mean, the direction of the slopes, and how long they are.

All of it is post-processing of noisy totals. A direction that is noise has the length 0, and what is left is the mean (THEORY.md of ``bayes``, section 9).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.aggregation.descent import descent, frame_of, without_errors
from unpooled.aggregation.line_rows import BASE, LENGTH
from unpooled.aggregation.linear_rounds import BASE_ROUNDS, LENGTH_ROUNDS
from unpooled.aggregation.linear_study import LinearStudy
from unpooled.aggregation.rounds import Rounds, descend
from unpooled.aggregation.standard import CAP, Scales, Standard

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

    from unpooled.aggregation.layout import MomentsLayout
    from unpooled.aggregation.linear_design import LinearDesign
    from unpooled.aggregation.standard import StandardRows
    from unpooled.aggregation.totals import Total
    from unpooled.protocol.messages import Ask
    from unpooled.protocol.step import Replies

    Row = NDArray[np.float64]

#: Steps along a line, of the length and of the constant: the second undoes a residual.
_LINE_STEPS = np.array([0.7, 2.0])
#: Rounds of the length that are not averaged: the constant is nearly where it belongs before them.
_UNCOUNTED = 1
#: A length counts for what its square exceeds of this many variances of its noise.
_DOUBT = 2.0
#: Variance of a direction's length on the rows that it was learnt from, relative to what their noise leaves of it.
_LEARNT = 0.25
#: The part of rows that lack a value, where nothing was released of it.
_RARE = 0.1


def declared_standard(layout: MomentsLayout) -> Standard:
    """Return the standard of all columns, nothing released: of numbers as of the response, of levels as if all were alike frequent."""
    coding, scales = layout.coding, Scales(layout)
    middle, width = np.zeros(scales.count + 1), np.full(scales.count + 1, 1 / CAP)
    for at in scales.marks:
        levels = layout.features[coding.attribute[at]].categories
        middle[at] = _RARE if levels is None else 1 / max(len(levels), 2)
        width[at] = math.sqrt(middle[at] * (1 - middle[at]))
    return Standard(middle, width, math.inf, (math.nan, math.nan))


@dataclass
class _Line:
    """Rounds along a direction: the noise of their gradients, once they have been asked for."""

    rounds: Rounds[Any]
    standard: Standard
    noise: float = 0.0

    def rows(self, name: str, direction: Row, start: Row, count: int, first: int) -> Generator[list[Ask], Replies, Row]:
        """Return (length, constant) along this direction, averaged from round ``first`` on."""
        rows: StandardRows = self.rounds.design.standard

        def move(total: Total, _: Row) -> Row:
            gradient, self.noise = rows.gradient_of(total)
            moved: Row = _LINE_STEPS * gradient / self.rounds.counted
            return moved

        def sent(at: Row) -> tuple[float, ...]:
            return (*self.standard.settings, *direction.tolist(), *at.tolist())

        return (yield from descend(self.rounds, sent, move, start, count, name=name, first=first))


def directed(rounds: Rounds[Any]) -> Generator[list[Ask], Replies, LinearStudy]:
    """Rounds for the mean, for slopes and a constant about it, and for (length of these slopes, constant) along them."""
    design: LinearDesign = rounds.design
    standard = declared_standard(design.layout)
    line, nowhere = _Line(rounds, standard), np.zeros(design.layout.size - 1)
    _, mean = yield from line.rows(BASE, nowhere, np.zeros(2), BASE_ROUNDS, BASE_ROUNDS // 2)
    found, noise = yield from descent(rounds, standard, np.append(nowhere, mean))
    return (yield from _with_length(rounds, standard, found, noise))


def _with_length(
    rounds: Rounds[Any], standard: Standard, found: Row, noise: float
) -> Generator[list[Ask], Replies, LinearStudy]:
    """Rounds for (length, constant) along slopes that were found with this noise of each; a length that may be noise is shrunk towards 0."""
    design: LinearDesign = rounds.design
    schedule, slopes = design.schedule, design.layout.size - 1
    size = float(np.linalg.norm(found[:-1]))
    direction = found[:-1] / size if size else np.zeros(slopes)
    line, start = _Line(rounds, standard), np.array([0.0, found[-1]])
    length, constant = yield from line.rows(LENGTH, direction, start, LENGTH_ROUNDS, _UNCOUNTED)
    error = line.noise / rounds.counted / math.sqrt(LENGTH_ROUNDS - _UNCOUNTED)
    each = noise * math.sqrt(schedule.rounds - schedule.rounds // 2)
    learnt = learnt_part(design.standard.longest, each, schedule.rounds, rounds.rows, slopes)
    shrunken = length * kept_part(length, error**2 + _LEARNT * learnt)
    frame = frame_of(design, standard, np.append(shrunken * direction, constant), (math.nan, math.nan), error)
    return LinearStudy(without_errors(design, frame), frame)


def kept_part(length: float, variance: float) -> float:
    """Return the part of a length that is more than its noise: 0 where slopes would point away from the response."""
    if length <= 0:
        return 0.0
    return max(0.0, 1 - _DOUBT * variance / length**2)


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
