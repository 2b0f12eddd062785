"""Sums that a party works out in a linear regression by rounds: over standardised rows, whatever columns a design makes them of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.aggregation.line_rows import BASE, LENGTH
from unpooled.aggregation.linear_design import lines_of
from unpooled.aggregation.residual_cells import CELLS
from unpooled.aggregation.row_blocks import public_numbers, remembered
from unpooled.aggregation.standard import FIRST_MOMENTS, RESIDUAL, SCALES, SPREAD
from unpooled.aggregation.threads import shared_out
from unpooled.aggregation.totals import DESCENT, no_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from unpooled.aggregation.line_rows import LineRows
    from unpooled.aggregation.linear_design import LinearDesign
    from unpooled.aggregation.standard import StandardRows
    from unpooled.protocol.context import Context

    Blocks = Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]
    Settings = tuple[float, ...]


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
