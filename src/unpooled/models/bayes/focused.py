"""The conversation of a study with a focus: rounds over all columns, then moments of the focused ones alone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from unpooled.linear.descent import descent, frame_of, way_of, without_errors
from unpooled.linear.moments import Moments
from unpooled.linear.residuals import CELLS, MEAT
from unpooled.linear.schedule import clip_of_focus
from unpooled.linear.standard import CONSTANT, RESIDUAL, SCALES
from unpooled.models.bayes.belief import believed
from unpooled.models.bayes.focus import CROSS

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

    from unpooled.linear.fit import LinearFit
    from unpooled.models.bayes.focus import FocusRows
    from unpooled.models.bayes.plan import BayesDesign
    from unpooled.protocol.messages import Ask
    from unpooled.protocol.registry import Replies
    from unpooled.totals.rounds import Rounds

    Row = NDArray[np.float64]


def focused(rounds: Rounds[BayesDesign], rows: FocusRows) -> Generator[list[Ask], Replies, tuple[LinearFit, Moments]]:
    """Return coefficients that predict, and the moments of the focused columns about the rounds' coefficients."""
    design, plan = rounds.design, rounds.plan
    total = yield from rounds.total(SCALES)
    standard = design.scales.decode(total, rounds.rows)
    start, least = yield from descent(rounds, standard)
    still = np.linalg.solve(
        frame_of(design, standard, start, (math.nan, math.nan), least).back(intercept=True), design.layout.still
    )
    own = np.linalg.qr(still)[0]
    start = start - own @ (own.T @ start)  # what no row sees of it is no size
    start, left = _drawn(start, *way_of(design, least), start.size - 1 - own.shape[1])
    fit = without_errors(design, frame_of(design, standard, start, (math.nan, math.nan), least))
    total = yield from rounds.total(CELLS, (*standard.settings, *start.tolist()))
    offset, spread, error = rows.cells_of_all.decode(total, rounds.rows)
    start = np.append(start[:-1], start[-1] + offset / CONSTANT)
    squares, noise = spread**2 * rounds.rows, 2 * spread * error * rounds.rows
    total = yield from rounds.total(CROSS, standard.settings)
    taken, variance, longer = rows.related(total, standard)
    whole = 2 / float(standard.width[-1])
    farthest = rows.noise_of_products(design.totals[RESIDUAL].deviations(plan)) / rounds.rows / rows.stretch
    clip = min(clip_of_focus(farthest) * spread, whole)
    settings = (*standard.settings, *start.tolist(), *taken.ravel().tolist(), clip)
    total = yield from rounds.total(RESIDUAL, settings)
    gram, errors = rows.products_of(total, clip)
    # Of what a coefficient adds to normal residuals a clip leaves the share that it does not cut.
    inside = math.erf(clip / spread / math.sqrt(2))
    for part, power in ((gram, 1), (errors, 2)):
        part[:-1, -1] /= inside**power
        part[-1, :-1] = part[:-1, -1]
    meat = None
    if MEAT in design.totals:
        total = yield from rounds.total(MEAT, settings)
        scores, noises = rows.meat_of(total, clip)
        meat = scores / inside**2, noises / inside**4
    count = len(rows.focused)
    weight = min(max(float(gram[count, count]) / (CONSTANT**2 * rounds.rows), 0.25), 1.0)  # of shortened rows
    # The noise in the relation makes rows longer, and would make coefficients smaller.
    own = rows.levels(standard)
    gram[:count, :count] -= longer * weight * rounds.rows * (np.eye(count) - own @ own.T)
    # The product of the errors of both, which have more often the same sign than not.
    errors[:count, -1] += _ALIGNED * variance * len(rows.others) * left * (weight * rounds.rows) ** 2
    errors[-1, :count] = errors[:count, -1]
    kept = [*rows.focused, len(standard.width) - 1]
    frame = frame_of(design, standard, start, (squares, noise**2), least, rounds.weight)
    frame = replace(frame, widths=frame.widths[kept], centres=frame.centres[kept], start=start[kept])
    promise = plan.statement
    moments = Moments(rows.layout, rounds.rows, gram, errors, plan.hash, str(promise), frame, promise.holds)
    return fit, replace(moments, covariance=design.covariance, meat=meat, nuisance=rows.nuisance)


def _drawn(start: Row, way: float, noise: float, free: int) -> tuple[Row, float]:
    """Return coefficients with slopes drawn to 0 as far as noise of this deviation says, and the variance that remains of each slope."""
    slopes = start[:-1] / way
    square = float(slopes @ slopes)
    kept, left = believed(square, noise**2, free, free, likely=True)
    return np.append(slopes * kept, start[-1]), left + (_LAGS * kept) ** 2 * max(square / free - noise**2, 0.0)


#: Rounds may stop this part of the way before where they are taken to be.
_LAGS = 0.15
#: By so much the mean square of a sum of products is larger, because columns that confound do so in one direction.
_ALIGNED = 1.5

__all__ = ["focused"]
