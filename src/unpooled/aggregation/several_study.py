"""The conversation of a regression of several responses by rounds of gradients. All of it is post-processing of noisy totals."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.aggregation.descent import descent
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


def _together(each: list[Standard]) -> Standard:
    """Return the means and deviations of the columns, and after them those of all responses."""
    middle, width = (
        np.append(rows[0][:-1], [row[-1] for row in rows])
        for rows in ([one.middle for one in each], [one.width for one in each])
    )
    return Standard(middle, width, math.nan, (math.nan, math.nan))
