"""The part of a fit that tells probabilities: the direction of the slopes, and the line of the log odds along a score."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unpooled.kernels.score_posterior import Known, ScoreCounts, score_posterior
from unpooled.linear.standard import CONSTANT
from unpooled.models.glm import scaling
from unpooled.models.glm.scaling import PROBABILITIES
from unpooled.totals.rounds import descend

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

    from unpooled.kernels.score_posterior import ScorePosterior
    from unpooled.models.glm.fit import GlmFit
    from unpooled.protocol.messages import Ask
    from unpooled.protocol.registry import Replies
    from unpooled.totals.total import Total

    Row = NDArray[np.float64]


#: The mass of the length that earlier models say.
_HALF = 0.5


def direction_and_scale(fit: GlmFit) -> Generator[list[Ask], Replies, tuple[tuple[float, float], ...]]:
    """Find the direction of the slopes by rounds and their length by one histogram; return the lines whose mean probability predicts."""
    design = fit.design
    rows, intercept = design.short, design.layout.intercept
    start = np.zeros(design.layout.size)
    if intercept:
        start[-1] = fit.shape.constant / scaling.CONSTANT
    step = design.schedule.step / rows.radius**2 / fit.counted

    def move(total: Total, _: Row) -> Row:
        return step * rows.gradient_of(total)[0]

    found = yield from descend(fit, fit.at, move, start, design.schedule.rounds)
    line = yield from _line_along(fit, found[: fit.shape.columns], None)
    return line.lines


def calibrate(fit: GlmFit) -> Generator[list[Ask], Replies, tuple[tuple[float, float], ...]]:
    """Correct the length of the slopes and the constant by the histogram along the score of the fit, where the plan has one.

    Where a small budget was drawn to earlier models, their length may be all wrong: then half of the belief is that nothing is known of it, and
    the lines are returned whose mean probability predicts.
    """
    if not fit.design.schedule.probabilities:
        return ()
    slopes, intercept = fit.start[: fit.shape.columns], fit.design.layout.intercept
    constant = CONSTANT * float(fit.start[-1]) if intercept else 0.0
    length, doubt = float(np.linalg.norm(slopes)), fit.design.schedule.doubt
    unsure = bool(fit.design.parameters.prior) and doubt > 1
    known = Known(constant, length, 1.0, _HALF) if unsure else Known(constant, length, doubt)
    line = yield from _line_along(fit, slopes, known)
    return line.lines if unsure else ()


def _line_along(fit: GlmFit, slopes: Row, known: Known | None) -> Generator[list[Ask], Replies, ScorePosterior]:
    """Ask for the histogram of classes along these slopes, and set the coefficients to the mean line."""
    design, length = fit.design, float(np.linalg.norm(slopes))
    intercept = design.layout.intercept
    unit = slopes / length if length > 0 else np.zeros_like(slopes)
    along = np.append(unit, [0.0] * intercept)
    total = yield from fit.total(PROBABILITIES, fit.at(along))
    counts, deviation = design.outcomes.decode(total)
    released = ScoreCounts(counts, deviation, *fit.base_rate, fit.rows)
    line = score_posterior(released, intercept=intercept, known=known)
    fit.start = np.append(line.slope * unit, [line.constant / CONSTANT] * intercept)
    return line
