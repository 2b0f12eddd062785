"""The conversation of a study with a focus: rounds over all columns, then moments of the focused ones alone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from unpooled.aggregation.meat import MEAT
from unpooled.aggregation.moments import Moments
from unpooled.aggregation.residual_cells import CELLS
from unpooled.aggregation.standard import CONSTANT, RESIDUAL, SCALES
from unpooled.models.bayes.descent import descent, frame_of, shrunk, without_errors
from unpooled.models.bayes.focus import CROSS
from unpooled.models.bayes.rounds import clip_of_focus

if TYPE_CHECKING:
    from collections.abc import Generator

    from unpooled.aggregation.linear_fit import LinearFit
    from unpooled.aggregation.rounds import Rounds
    from unpooled.models.bayes.focus import FocusRows
    from unpooled.models.bayes.plan import BayesDesign
    from unpooled.protocol.messages import Ask
    from unpooled.protocol.step import Replies


def focused(rounds: Rounds[BayesDesign], rows: FocusRows) -> Generator[list[Ask], Replies, tuple[LinearFit, Moments]]:
    """Return coefficients that predict, and the moments of the focused columns about the rounds' coefficients."""
    design, plan = rounds.design, rounds.plan
    total = yield from rounds.total(SCALES)
    standard = design.scales.decode(total, rounds.rows)
    start, least = yield from descent(rounds, standard)
    # A clipped gradient is less steep: by the share of residuals that it does not clip, which are about as large as the response.
    share = max(math.erf(design.schedule.longest / design.standard.radius / math.sqrt(2)), _LEAST_SHARE)
    still = np.linalg.solve(
        frame_of(design, standard, start, (math.nan, math.nan), least).back(intercept=True), design.layout.still
    )
    own = np.linalg.qr(still)[0]
    start = shrunk(
        start - own @ (own.T @ start), least / share, standard, intercept=True
    )  # what no row sees of it is no size
    fit = without_errors(design, frame_of(design, standard, start, (math.nan, math.nan), least))
    total = yield from rounds.total(CELLS, (*standard.settings, *start.tolist()))
    offset, spread, error = rows.cells_of_all.decode(total, rounds.rows)
    start = np.append(start[:-1], start[-1] + offset / CONSTANT)
    squares, noise = spread**2 * rounds.rows, 2 * spread * error * rounds.rows
    total = yield from rounds.total(CROSS, standard.settings)
    taken, variance = rows.related(total, standard)
    whole = 2 / float(standard.width[-1])
    farthest = rows.noise_of_products(design.totals[RESIDUAL].deviations(plan)) / rounds.rows / rows.stretch
    clip = min(clip_of_focus(farthest) * spread, whole)
    settings = (*standard.settings, *start.tolist(), *taken.ravel().tolist(), clip)
    total = yield from rounds.total(RESIDUAL, settings)
    gram, errors = rows.products_of(total, clip)
    meat = None
    if MEAT in design.totals:
        total = yield from rounds.total(MEAT, settings)
        meat = rows.meat_of(total, clip)
    # The product of the errors of both: all others together explain at most the response, whatever the rounds know of them.
    product = variance * min(len(rows.others) * (least / share) ** 2, _MOST_EXPLAINED * spread**2)
    errors[: len(rows.focused), -1] += product * rounds.rows**2
    errors[-1, : len(rows.focused)] = errors[: len(rows.focused), -1]
    kept = [*rows.focused, len(standard.width) - 1]
    frame = frame_of(design, standard, start, (squares, noise**2), least, rounds.weight)
    frame = replace(frame, widths=frame.widths[kept], centres=frame.centres[kept], start=start[kept])
    promise = plan.statement
    moments = Moments(rows.layout, rounds.rows, gram, errors, plan.hash, str(promise), frame, promise.holds)
    return fit, replace(moments, covariance=design.covariance, meat=meat, nuisance=rows.nuisance)


#: The most of the residual variance that errors of the other coefficients are taken to explain.
_MOST_EXPLAINED = 0.5
#: Of residuals at least this share is taken to lie inside the clip of a gradient.
_LEAST_SHARE = 0.05

__all__ = ["focused"]
