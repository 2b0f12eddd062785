"""The conversation of a linear regression with a small budget: the mean, the direction of the slopes, and how long they are.

All of it is post-processing of noisy totals. A direction that is noise has the length 0, and what is left is the mean (THEORY.md of ``bayes``, section 9).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.aggregation.descent import descent, frame_of, without_errors
from unpooled.aggregation.line_rounds import LENGTH_STEP, UNCOUNTED, LineRounds, learnt_length, steep_of, unit_of
from unpooled.aggregation.line_rows import BASE, LENGTH
from unpooled.aggregation.linear_rounds import LENGTH_ROUNDS, Method
from unpooled.aggregation.linear_study import LinearStudy
from unpooled.aggregation.priors import DrawnTo, directions, in_coordinates, named, rows_of, weighed
from unpooled.aggregation.rounds import Rounds
from unpooled.aggregation.standard import CAP, CONSTANT, Scales, Standard

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

    from unpooled.aggregation.layout import MomentsLayout
    from unpooled.aggregation.linear_design import LinearDesign
    from unpooled.aggregation.priors import EarlierModel, Weighed
    from unpooled.protocol.messages import Ask
    from unpooled.protocol.step import Replies

    Row = NDArray[np.float64]

#: Lengths along earlier models are believed within about this much of the middle of all and none, in deviations of the response.
_BELIEVED = 0.5
#: A length counts for what its square exceeds of this many variances of its noise.
_DOUBT = 2.0
#: The part of rows that lack a value, where nothing was released of it.
_RARE = 0.1
#: The deviation of a column whose rows have one bound on their length, in parts of that bound over the root of the columns.
_WITHIN = 0.75


def declared_standard(layout: MomentsLayout) -> Standard:
    """Return the standard of all columns, nothing released: of numbers as of the response, of levels as if all were alike frequent.

    Of rows with a bound on their length all columns are believed alike.
    """
    coding, scales = layout.coding, Scales(layout)
    middle, width = np.zeros(scales.count + 1), np.full(scales.count + 1, 1 / CAP)
    if layout.norm is not None:
        width[:-1] = _WITHIN / math.sqrt(scales.count)
    for at in scales.marks:
        levels = layout.features[coding.attribute[at]].categories
        middle[at] = _RARE if levels is None else 1 / max(len(levels), 2)
        width[at] = math.sqrt(middle[at] * (1 - middle[at]))
    return Standard(middle, width, math.inf, (math.nan, math.nan))


@dataclass(frozen=True)
class _Known:
    """The models that a fit is drawn to, along orthonormal directions that span them; no directions where there are no models."""

    #: The directions of slopes, the lengths of every model along them, and the constants of the models, in coordinates.
    along: Row
    lengths: Row
    constants: Row
    models: tuple[EarlierModel, ...] = ()

    @property
    def middle(self) -> Row:
        """Return (lengths, constant) before any data: those of all models and of none, weighted alike."""
        weights = np.full(len(self.models), 1 / (1 + len(self.models)))
        return np.append(weights @ self.lengths, weights @ self.constants)

    @classmethod
    def of(cls, design: LinearDesign, standard: Standard) -> _Known:
        """Return the models of a design."""
        models, layout = design.models, design.layout
        slopes = layout.size - 1
        if not models:
            return cls(np.empty((0, slopes)), np.empty((0, 0)), np.empty(0))
        own = rows_of(models, layout.names, intercept=True)
        frame = frame_of(design, standard, np.zeros(layout.size), (math.nan, math.nan), 0.0)
        there = in_coordinates(own, frame, intercept=True)
        along = directions(there[:, :-1])
        return cls(along, there[:, :-1] @ along.T, there[:, -1], models)

    def weighed(self, found: Row, error: float) -> Weighed:
        """Return what noisy (lengths, constant) say."""
        return weighed(found[:-1], error, found[-1] * CONSTANT, error / CONSTANT, self.lengths, self.constants * CONSTANT)

    def drawn(self, said: Weighed) -> DrawnTo:
        """Return the weights of the models as a result has them."""
        return DrawnTo(named(self.models, said.weights, said.deviations), ())


def directed(rounds: Rounds[Any]) -> Generator[list[Ask], Replies, LinearStudy]:
    """Rounds for the mean, for slopes and a constant about it, and for (length of these slopes, constant) along them.

    With earlier models the first rounds find their weights, too, the slopes begin there, and the last rounds correct the weights.
    """
    design: LinearDesign = rounds.design
    schedule, standard = design.schedule, declared_standard(design.layout)
    lines, nowhere = LineRounds(rounds, standard), np.zeros((1, design.layout.size - 1))
    known, count = _Known.of(design, standard), schedule.base_rounds
    if not known.models:
        (_, mean), _ = yield from lines.rows(BASE, nowhere, np.zeros(2), count, count // 2)
        found, noise = yield from descent(rounds, standard, np.append(nowhere[0], mean))
        return (yield from _with_length(rounds, standard, found, noise))
    begin = known.middle
    steep = steep_of(schedule.clips[0], len(known.along))
    back = _back(lines.noise_of(BASE) / math.sqrt(count - count // 2) / steep) * steep
    first, error = yield from lines.rows(BASE, known.along, begin, count, count // 2, back)
    first, error = first + back / steep / LENGTH_STEP * (first - begin), error / steep
    said = known.weighed(first, error)
    start = np.append(said.lengths @ known.along, said.constant / CONSTANT)
    if schedule.method is Method.WEIGHTS:
        return without_errors_at(design, standard, start, error, known.drawn(said))
    found, noise = yield from descent(rounds, standard, start)
    return (yield from _corrected(rounds, standard, known, (first, error, start), (found, noise)))


def _back(error: float) -> float:
    """Return the part of the way back to the start that a round goes, so that noise of this deviation does not wander off.

    It is that of the posterior mean where lengths are believed within ``_BELIEVED`` of the start, and never more than half of the way.
    """
    return min(LENGTH_STEP * (error / _BELIEVED) ** 2, 0.5)


def without_errors_at(
    design: LinearDesign, standard: Standard, found: Row, error: float, drawn: DrawnTo | None = None
) -> LinearStudy:
    """Return the study of these coefficients, without standard errors."""
    frame = frame_of(design, standard, found, (math.nan, math.nan), error)
    return LinearStudy(without_errors(design, frame), frame, drawn=drawn)


def _with_length(
    rounds: Rounds[Any], standard: Standard, found: Row, noise: float
) -> Generator[list[Ask], Replies, LinearStudy]:
    """Rounds for (length, constant) along slopes that were found with this noise of each; a length that may be noise is shrunk towards 0."""
    design: LinearDesign = rounds.design
    direction = unit_of(found[:-1])
    lines, start = LineRounds(rounds, standard), np.array([0.0, found[-1]])
    (length, constant), error = yield from lines.rows(LENGTH, direction[None], start, LENGTH_ROUNDS, UNCOUNTED)
    shrunken = length * kept_part(length, error**2 + learnt_length(rounds, noise))
    return without_errors_at(design, standard, np.append(shrunken * direction, constant), error)


def _corrected(
    rounds: Rounds[Any],
    standard: Standard,
    known: _Known,
    before: tuple[Row, float, Row],
    found: tuple[Row, float],
) -> Generator[list[Ask], Replies, LinearStudy]:
    """Rounds for the lengths along earlier models and along what was found to lack in them, and for the constant."""
    design: LinearDesign = rounds.design
    (first, first_error, start), (slopes, noise) = before, found
    lacking = slopes[:-1] - start[:-1]
    direction = unit_of(lacking - known.along.T @ (known.along @ lacking))
    along = np.vstack([known.along, direction])
    begin = np.concatenate([known.along @ start[:-1], [0.0], slopes[-1:]])
    last, error = yield from LineRounds(rounds, standard).rows(LENGTH, along, begin, LENGTH_ROUNDS, UNCOUNTED)
    length, own = float(last[-2]), np.append(last[:-2], last[-1])
    # Both rounds found the lengths along earlier models, each with noise of its own.
    flat = error / steep_of(design.schedule.clips[1], len(along))
    parts = 1 / np.square([max(first_error, 1e-9), max(flat, 1e-9)])
    said = known.weighed((parts[0] * first + parts[1] * own) / parts.sum(), float(parts.sum()) ** -0.5)
    shrunken = length * kept_part(length, error**2 + learnt_length(rounds, noise))
    whole = said.lengths @ known.along + shrunken * direction
    return without_errors_at(design, standard, np.append(whole, said.constant / CONSTANT), error, known.drawn(said))


def kept_part(length: float, variance: float) -> float:
    """Return the part of a length that is more than its noise: 0 where slopes would point away from the response."""
    if length <= 0:
        return 0.0
    return max(0.0, 1 - _DOUBT * variance / length**2)
