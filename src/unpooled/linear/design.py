"""Linear regression by rounds over standardised rows, as a design declares it: on which rows, what is added up, how a party works it out, and in which words."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from unpooled.linear.lines import BASE, LENGTH, LineRows, SeveralLines
from unpooled.linear.residuals import CELLS, Covariance
from unpooled.linear.schedule import AMPLE, LENGTH_ROUNDS, afforded, stretch_of, with_ample
from unpooled.linear.standard import FIRST_MOMENTS, RESIDUAL, SCALES, SPREAD, StandardRows, public_numbers, remembered
from unpooled.privacy.sensitivity import moments_ball
from unpooled.schedules import table
from unpooled.totals.threads import shared_out
from unpooled.totals.total import DESCENT, Adds, no_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from unpooled.inference.priors import EarlierModel
    from unpooled.linear.layout import MomentsLayout
    from unpooled.linear.schedule import Schedule
    from unpooled.linear.standard import Scales
    from unpooled.privacy.unit import Adjacency
    from unpooled.protocol.context import Context
    from unpooled.totals.total import Summed
    from unpooled.totals.weights import Weighting

    Blocks = Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]
    Settings = tuple[float, ...]


# --- Linear design ---------------------------------------------------------------------------------------------------------
# Linear regression by rounds over standardised rows, as a design declares it: on which rows, and what is added up.
#
# Regression on declared columns and partial least squares on public coordinates are such studies.


class LinearDesign(Adds, Protocol):
    """The attributes of the design of a study by such rounds."""

    @property
    def layout(self) -> MomentsLayout: ...  # noqa: D102 - the coded row
    @property
    def schedule(self) -> Schedule: ...  # noqa: D102 - the rounds
    @property
    def standard(self) -> StandardRows: ...  # noqa: D102 - the rows that are summed over
    @property
    def scales(self) -> Scales: ...  # noqa: D102 - the sums by which columns are standardised
    @property
    def weighting(self) -> Weighting | None: ...  # noqa: D102 - of rows that do not count alike
    @property
    def models(self) -> tuple[EarlierModel, ...]: ...  # noqa: D102 - that a fit is drawn to
    @property
    def covariance(self) -> Covariance: ...  # noqa: D102 - what standard errors assume


_TUNED = table("regression")


def noise_of(rows: StandardRows, strong: float, share: float, adjacency: Adjacency) -> float:
    """Return the deviation of the noise in a mean of z r, for typical rows and residuals that are clipped to one deviation."""
    return moments_ball(1.0, 1.0, adjacency) * rows.radius / (strong * math.sqrt(share))


def opened_rows(
    schedule: Schedule, standard: StandardRows, strong: float, adjacency: Adjacency
) -> tuple[Schedule, StandardRows]:
    """Return the schedule and the rows with the length to which the last round, where there is one, leaves them."""
    if not schedule.cells:
        return schedule, standard
    noise = noise_of(standard, strong, schedule.products, adjacency)
    schedule = with_ample(schedule) if afforded(noise, standard.rows) >= AMPLE else schedule
    return schedule, replace(standard, stretch=min(stretch_of(noise, standard.rows), _unhidden(noise, standard)))


def _unhidden(noise: float, rows: StandardRows) -> float:
    """Return the bound on rows, in typical lengths and at least 1, up to which the noise of second moments hides no more than it may.

    Its norm is the root of twice the columns times that of one entry, which grows with the square of the bound.
    """
    level = math.sqrt(2 * rows.width) * noise * rows.radius
    return max(1.0, math.sqrt(_TUNED.hides / level)) if level else math.inf


def gradients(schedule: Schedule, standard: StandardRows, adjacency: Adjacency) -> Iterator[Summed]:
    """Yield what coefficients begin from: gradients and the length after them (Theorem B.5), or second moments (Theorem F.9.3)."""
    if schedule.rounds:
        yield standard.descent(schedule.descent, adjacency, schedule.rounds)
    if schedule.length:
        yield _length_of(schedule, standard, adjacency)
    if schedule.first:
        yield standard.residual(schedule.first, adjacency, FIRST_MOMENTS)


def lines(schedule: Schedule, standard: StandardRows, adjacency: Adjacency) -> Iterator[Summed]:
    """Yield the gradients of a direction: those of the mean before it, and of the length after it (Theorem B.5).

    With earlier models the mean comes with the weights of these, and where no direction is learnt that is all.
    """
    before, _ = lines_of(schedule, standard)
    yield before.named(BASE, schedule.base, adjacency, schedule.base_rounds)
    if schedule.length:
        yield from gradients(schedule, standard, adjacency)


def _length_of(schedule: Schedule, standard: StandardRows, adjacency: Adjacency) -> Summed:
    """Return the gradients along the slopes that were found."""
    return lines_of(schedule, standard)[1].named(LENGTH, schedule.length, adjacency, LENGTH_ROUNDS)


def lines_of(schedule: Schedule, standard: StandardRows) -> tuple[LineRows, LineRows]:
    """Return rows along what is known before a direction was learnt, and along what is known after it."""
    before, after = schedule.clips
    known, of = schedule.known, SeveralLines.of if standard.layout.others else LineRows.of
    return of(standard, before, max(known, 1)), of(standard, after, known + 1)


def left_over(schedule: Schedule, standard: StandardRows, adjacency: Adjacency) -> Iterator[Summed]:
    """Yield what standard errors need: squared residuals (Theorem B.6), their histogram (Theorem F.2), second moments (Theorem F.9.3)."""
    if schedule.spread:
        yield standard.spread(schedule.spread)
    if schedule.cells:
        yield standard.cells.vector(schedule.cells, standard.moves(adjacency))
    yield standard.residual(schedule.products, adjacency)


# --- Linear party ----------------------------------------------------------------------------------------------------------
# Sums that a party works out in a linear regression by rounds: over standardised rows, whatever columns a design makes them of.


def scales(context: Context[Any], settings: Settings) -> NDArray[np.int64]:
    """Return sums and sums of squares of columns."""
    no_settings(settings)
    design: LinearDesign = context.design
    return design.scales.statistic(context.table)


def descent(context: Context[Any], settings: Settings) -> NDArray[np.int64]:
    """Return the gradient at the request's coefficients, of every response."""
    rows: StandardRows = context.design.standard
    count = rows.layout.responses
    standard, start, _ = public_numbers(rows.layout, settings, 0, responses=count, coefficients=count * rows.layout.size)
    return shared_out(standard_rows(context, standard), lambda own: rows.gradient(own, start))


def spread(context: Context[Any], settings: Settings) -> NDArray[np.int64]:
    """Return the sum of squared residuals."""
    rows: StandardRows = context.design.standard
    standard, start, _ = public_numbers(rows.layout, settings, 0)
    return shared_out(standard_rows(context, standard), lambda own: rows.squares(own, start))


def cells(context: Context[Any], settings: Settings) -> NDArray[np.int64]:
    """Return the histogram of residuals."""
    rows: StandardRows = context.design.standard
    standard, start, (deviation,) = public_numbers(rows.layout, settings, 1)
    return shared_out(standard_rows(context, standard), lambda own: rows.residual_cells(own, start, float(deviation)))


def first_moments(context: Context[Any], settings: Settings) -> NDArray[np.int64]:
    """Return second moments of rows and responses."""
    rows: StandardRows = context.design.standard
    standard, _, (clip,) = public_numbers(rows.layout, settings, 1, coefficients=0)
    return shared_out(standard_rows(context, standard), lambda own: rows.products(own, np.zeros(rows.width), float(clip)))


def residual(context: Context[Any], settings: Settings) -> NDArray[np.int64]:
    """Return second moments of rows and residuals."""
    rows: StandardRows = context.design.standard
    standard, start, (clip,) = public_numbers(rows.layout, settings, 1)
    return shared_out(standard_rows(context, standard), lambda own: rows.products(own, start, float(clip)))


def base(context: Context[Any], settings: Settings) -> NDArray[np.int64]:
    """Return the gradient along what is known before slopes are learnt."""
    design: LinearDesign = context.design
    return _gradient_along(lines_of(design.schedule, design.standard)[0], context, settings)


def length(context: Context[Any], settings: Settings) -> NDArray[np.int64]:
    """Return the gradient along the slopes that were found."""
    design: LinearDesign = context.design
    return _gradient_along(lines_of(design.schedule, design.standard)[1], context, settings)


def _gradient_along(rows: LineRows, context: Context[Any], settings: Settings) -> NDArray[np.int64]:
    """Return the gradient at a request's coefficients, along its directions."""
    standard, start, _ = public_numbers(rows.layout, settings, 0, responses=rows.layout.responses, coefficients=rows.numbers)
    return shared_out(standard_rows(context, standard), lambda own: rows.gradient(own, start))


def standard_rows(context: Context[Any], standard: tuple[NDArray[np.float64], NDArray[np.float64]]) -> Blocks:
    """Return the standardised rows, of a small table from the round before."""
    design: LinearDesign = context.design
    by = (context.plan.hash, standard[0].tobytes(), standard[1].tobytes())
    return remembered(context.table, by, design.layout.size, lambda: design.standard.blocks(context.table, standard))


#: What a party adds up, by the name of the total.
STATISTICS = {
    SCALES: scales,
    DESCENT: descent,
    BASE: base,
    LENGTH: length,
    SPREAD: spread,
    CELLS: cells,
    FIRST_MOMENTS: first_moments,
    RESIDUAL: residual,
}
