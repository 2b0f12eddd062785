"""Rounds along directions that are public: how long slopes are along them, and the constant. All of it is post-processing of noisy totals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.aggregation.rounds import Rounds, descend
from unpooled.aggregation.standard import CONSTANT, Standard

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

    from unpooled.aggregation.linear_design import LinearDesign
    from unpooled.aggregation.standard import StandardRows
    from unpooled.aggregation.totals import Total
    from unpooled.protocol.messages import Ask
    from unpooled.protocol.step import Replies

    Row = NDArray[np.float64]

#: Steps along lines, of a length and of the constant: the second undoes a residual.
LENGTH_STEP, _CONSTANT_STEP = 0.7, 2.0
#: Rounds of the length that are not averaged: the constant is nearly where it belongs before them.
UNCOUNTED = 1
#: Variance of a direction's length on the rows that it was learnt from, relative to what their noise leaves of it.
_LEARNT = 0.25


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
        steps = np.tile(np.append(np.full(start.size // responses - 1, LENGTH_STEP), _CONSTANT_STEP), responses)

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
    return _LEARNT * learnt_part(longest, each, schedule.rounds, rounds.rows, layout.size - 1)


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
