"""The conversation of a linear regression by rounds over standardised rows. All of it is post-processing of noisy totals."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.aggregation.clipping import Clipping
from unpooled.aggregation.descent import descent, frame_of, from_moments, way_of, without_errors
from unpooled.aggregation.known_sites import with_known_sites
from unpooled.aggregation.linear_fit import plain
from unpooled.aggregation.linear_rounds import Method, clip_of
from unpooled.aggregation.meat import MEAT
from unpooled.aggregation.moments import Moments
from unpooled.aggregation.priors import DrawnTo, Told, drawn_to, in_coordinates, named, rows_of
from unpooled.aggregation.residual_cells import CELLS
from unpooled.aggregation.slope_lengths import believed, with_length
from unpooled.aggregation.standard import CONSTANT, RESIDUAL, SCALES, SPREAD, Standard

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

    from unpooled.aggregation.coordinates import Coordinates
    from unpooled.aggregation.linear_design import LinearDesign
    from unpooled.aggregation.linear_fit import LinearFit
    from unpooled.aggregation.rounds import Rounds
    from unpooled.protocol.messages import Ask
    from unpooled.protocol.step import Replies

    Row = NDArray[np.float64]


#: The variance of a response of which nothing was released, and of its noise.
_NOTHING = (math.nan, math.nan)


@dataclass(frozen=True)
class LinearStudy:
    """The coefficients, the standardised coordinates they were found in, and the released moments where the method has some."""

    fit: LinearFit
    frame: Coordinates
    moments: Moments | None = None
    #: How earlier models drew it; None without any.
    drawn: DrawnTo | None = None


def standardised(rounds: Rounds[Any]) -> Generator[list[Ask], Replies, LinearStudy]:
    """Means and deviations; gradients; what they leave."""
    design: LinearDesign = rounds.design
    rows = design.standard
    total = yield from rounds.total(SCALES)
    standard = design.scales.decode(total, rounds.rows)
    if design.models and design.schedule.method is Method.GRADIENT:
        return (yield from _drawn(rounds, standard))
    start, least = yield from (descent(rounds, standard) if design.schedule.rounds else from_moments(rounds, standard))
    if design.schedule.method is Method.GRADIENT:
        return (yield from _believed(rounds, standard, start, least))
    settings = (*standard.settings, *start.tolist())
    total = yield from rounds.total(SPREAD, settings)
    squares, noise = rows.square_of(total)
    plan = rounds.plan
    # For rows of typical length: what longer ones cost is the stretch's.
    farthest = rows.noise_of_products(design.totals[RESIDUAL].deviations(plan)) / rounds.rows / rows.stretch
    spread = math.sqrt(max(squares, noise) / rounds.rows)
    whole = 2 / float(standard.width[-1])  # the declared range: a fit that stays inside it leaves no more
    clip = min(clip_of(farthest) * spread, whole) if spread else whole
    clipping = yield from _cut_off(rounds, standard, settings, spread or whole, clip)
    clip = clipping.clip * (spread or whole)
    total = yield from rounds.total(RESIDUAL, (*settings, clip))
    gram, variance = rows.products_of(total, clip)
    meat = None
    if MEAT in design.totals:
        total = yield from rounds.total(MEAT, (*settings, clip))
        meat = rows.meat_of(total, clip)
    if design.layout.intercept:
        start = start.copy()
        start[-1] += clipping.tail[0] / CONSTANT
    frame = replace(frame_of(design, standard, start, (squares, noise**2), least, rounds.weight), clipping=clipping)
    promise = plan.statement
    released = Moments(
        design.layout.present(rounds.participants),
        rounds.rows,
        gram,
        variance,
        plan.hash,
        str(promise),
        frame,
        promise.holds,
    )
    released = replace(released, covariance=design.covariance, meat=meat)
    moments = with_known_sites(released, alike=design.weighting is None)
    return LinearStudy(plain(moments.posterior()), frame, moments)


def _believed(
    rounds: Rounds[Any], standard: Standard, start: Row, least: float
) -> Generator[list[Ask], Replies, LinearStudy]:
    """Return coefficients that rounds found with this noise of each: as long as that, and where the plan has them rounds along them, make likely."""
    design: LinearDesign = rounds.design
    if not least:
        found = start
    elif design.schedule.length:
        found = yield from with_length(rounds, standard, start, least)
    else:
        found = believed(design, standard, start, least, rounds.rows)
    return study_of_gradients(design, standard, found, least)


def study_of_gradients(design: LinearDesign, standard: Standard, found: Row, least: float) -> LinearStudy:
    """Return the study of coefficients that rounds found, of which nothing more was released."""
    frame = frame_of(design, standard, found, _NOTHING, least)
    return LinearStudy(without_errors(design, frame), frame)


def _drawn(rounds: Rounds[Any], standard: Standard) -> Generator[list[Ask], Replies, LinearStudy]:
    """Rounds that begin in the middle of all earlier models and none, and what they found drawn to these."""
    design: LinearDesign = rounds.design
    one = design.layout.intercept
    frame = frame_of(design, standard, np.zeros(design.layout.size), _NOTHING, 0.0)
    there = in_coordinates(rows_of(design.models, design.layout.names, intercept=one), frame, intercept=one)
    begin = there.sum(axis=0) / (1 + len(there))
    found, least = yield from descent(rounds, standard, begin)
    way, noise = way_of(design, least)
    still = np.asarray(np.linalg.solve(frame.back(intercept=one), design.layout.still), dtype=np.float64)
    told = Told.of(begin + (found - begin) / way, np.eye(found.size) * max(noise, 1e-9) ** 2, still)
    mean, _, weights, deviations = drawn_to(told, there, np.arange(found.size) < found.size - one)
    frame = replace(frame, start=mean, least=max(least, 1e-12))
    drawn = DrawnTo(named(design.models, weights, deviations), ())
    return LinearStudy(without_errors(design, frame), frame, drawn=drawn)


def _cut_off(
    rounds: Rounds[Any], standard: Standard, settings: tuple[float, ...], spread: float, clip: float
) -> Generator[list[Ask], Replies, Clipping]:
    """Ask for the histogram of residuals; return the shares that the last round cuts off, and the mean that its clip takes away."""
    design: LinearDesign = rounds.design
    rows = design.standard
    total = yield from rounds.total(CELLS, (*settings, spread))
    counts = rows.cells.decode(total, rounds.rows)
    clip = min(clip, counts.end() * spread)
    middle, width = float(standard.middle[-1]), float(standard.width[-1]) * spread
    tail = (0.0, 0.0)
    if design.layout.intercept and design.weighting is None:  # of rows that count alike
        ends = (1 - middle) / width, (1 + middle) / width
        mean, deviation = counts.missing_mean(clip / spread, ends)
        tail = mean * spread, deviation * spread
    return Clipping(counts.shortened, counts.beyond(clip / spread), rows.stretch, clip / spread, tail)
