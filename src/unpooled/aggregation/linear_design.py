"""Linear regression by rounds over standardised rows, as a design declares it: on which rows, and what is added up.

Regression on declared columns and partial least squares on public coordinates are such studies.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from unpooled.aggregation.affordable import AMPLE
from unpooled.aggregation.line_rows import BASE, LENGTH, LineRows
from unpooled.aggregation.linear_rounds import LENGTH_ROUNDS, afforded, stretch_of, with_ample
from unpooled.aggregation.several_rows import SeveralLines
from unpooled.aggregation.standard import FIRST_MOMENTS, StandardRows
from unpooled.aggregation.totals import Adds
from unpooled.privacy.sensitivity import moments_ball

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unpooled.aggregation.layout import MomentsLayout
    from unpooled.aggregation.linear_rounds import Schedule
    from unpooled.aggregation.meat import Covariance
    from unpooled.aggregation.priors import EarlierModel
    from unpooled.aggregation.standard import Scales
    from unpooled.aggregation.totals import Summed
    from unpooled.aggregation.weights import Weighting
    from unpooled.privacy.unit import Adjacency


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
    return schedule, replace(standard, stretch=stretch_of(noise, standard.rows))


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
