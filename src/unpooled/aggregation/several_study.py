"""Conversations of a regression of several responses, by rounds of gradients or by directions. All of it is post-processing of noisy totals."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.aggregation.descent import descent
from unpooled.aggregation.line_rounds import UNCOUNTED, LineRounds, learnt_length, unit_of
from unpooled.aggregation.line_rows import BASE, LENGTH
from unpooled.aggregation.linear_direction import declared_standard, kept_part, without_errors_at
from unpooled.aggregation.linear_rounds import LENGTH_ROUNDS
from unpooled.aggregation.linear_study import study_of_gradients
from unpooled.aggregation.slope_lengths import believed
from unpooled.aggregation.standard import SCALES, Standard

if TYPE_CHECKING:
    from collections.abc import Generator

    from unpooled.aggregation.linear_study import LinearStudy
    from unpooled.aggregation.rounds import Rounds
    from unpooled.protocol.messages import Ask
    from unpooled.protocol.step import Replies


def standardised_each(rounds: Rounds[Any]) -> Generator[list[Ask], Replies, list[LinearStudy]]:
    """Ask for means, deviations and gradients; return the study of every response, its slopes as long as their own noise makes likely."""
    design = rounds.design
    total = yield from rounds.total(SCALES)
    each = design.scales.decode_each(total, rounds.rows)
    found, least = yield from descent(rounds, _together(each))
    studies = []
    for (layout, _), standard, start in zip(design.layout.singles(), each, found.reshape(len(each), -1), strict=True):
        own = replace(design, layout=layout)
        studies.append(study_of_gradients(own, standard, believed(own, standard, start, least, rounds.rows), least))
    return studies


def directed_each(rounds: Rounds[Any]) -> Generator[list[Ask], Replies, list[LinearStudy]]:
    """Ask for means, for the directions of all responses, and for a length along each; return the study of every response.

    As of one response (:func:`~unpooled.aggregation.linear_direction.directed`), with every total that of all responses together.
    """
    design, count = rounds.design, rounds.design.schedule.base_rounds
    layouts = [layout for layout, _ in design.layout.singles()]
    each = [declared_standard(layout) for layout in layouts]
    standard = _together(each)
    lines, nowhere = LineRounds(rounds, standard), np.zeros((len(each), design.layout.size - 1))
    (means, _) = yield from lines.rows(BASE, nowhere, np.zeros(2 * len(each)), count, count // 2)
    found, noise = yield from descent(rounds, standard, np.column_stack([nowhere, means[1::2]]).ravel())
    slopes = found.reshape(len(each), -1)
    along = np.array([unit_of(one[:-1]) for one in slopes])
    begin = np.column_stack([nowhere[:, :1], slopes[:, -1]]).ravel()
    lengths, error = yield from lines.rows(LENGTH, along, begin, LENGTH_ROUNDS, UNCOUNTED)
    variance, studies = error**2 + learnt_length(rounds, noise), []
    for layout, own, direction, (length, constant) in zip(layouts, each, along, lengths.reshape(-1, 2), strict=True):
        coefficients = np.append(length * kept_part(length, variance) * direction, constant)
        studies.append(without_errors_at(replace(design, layout=layout), own, coefficients, error))
    return studies


def _together(each: list[Standard]) -> Standard:
    """Return the means and deviations of the columns, and after them those of all responses."""
    middle, width = (
        np.append(rows[0][:-1], [row[-1] for row in rows])
        for rows in ([one.middle for one in each], [one.width for one in each])
    )
    return Standard(middle, width, math.nan, (math.nan, math.nan))
