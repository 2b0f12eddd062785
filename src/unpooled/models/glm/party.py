"""The only file of this model that touches raw data: sums of responses, of columns, and over standardised rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.linear.residuals import CELLS, MEAT
from unpooled.linear.standard import SCALES, SPREAD, public_numbers, remembered
from unpooled.models.glm.directions import MOMENTS
from unpooled.models.glm.rows import BASE, INFORMATION, SCORE
from unpooled.models.glm.scaling import PROBABILITIES
from unpooled.totals.modes import steps_of
from unpooled.totals.secure_sum import KEYS
from unpooled.totals.total import COUNT, DESCENT, no_settings, rows_counted
from unpooled.totals.weights import WEIGHTS, weights_added_up

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from unpooled.models.glm.plan import GlmDesign
    from unpooled.models.glm.rows import GlmRows
    from unpooled.protocol.context import Context

    Floats = NDArray[np.float64]
    Blocks = Iterator[tuple[Floats, Floats]]
    Settings = tuple[float, ...]


def _base(context: Context[GlmDesign], settings: Settings) -> NDArray[np.int64]:
    design = context.design
    no_settings(settings)
    return design.base.statistic(context.table)


def _scales(context: Context[GlmDesign], settings: Settings) -> NDArray[np.int64]:
    design = context.design
    no_settings(settings)
    return design.scales.statistic(context.table)


def _descent(context: Context[GlmDesign], settings: Settings) -> NDArray[np.int64]:
    design = context.design
    if design.directions is None:
        return design.short.descend(*_asked(context, design.short, settings))
    rows = design.along
    slopes, start, units = rows.numbers(settings)
    by = (context.plan.hash, slopes.tobytes())
    return rows.gradients(remembered(context.table, by, rows.width, lambda: rows.along(context.table, slopes)), start, units)


def _moments(context: Context[GlmDesign], settings: Settings) -> NDArray[np.int64]:
    design = context.design
    no_settings(settings)
    assert design.directions is not None  # it has no such total
    return design.directions.statistic(context.table)


def _score(context: Context[GlmDesign], settings: Settings) -> NDArray[np.int64]:
    rows = context.design.long
    return rows.gradients(*_asked(context, rows, settings))


def _information(context: Context[GlmDesign], settings: Settings) -> NDArray[np.int64]:
    rows = context.design.long
    return rows.weighted(*_asked(context, rows, settings))


def _spread(context: Context[GlmDesign], settings: Settings) -> NDArray[np.int64]:
    rows = context.design.long
    return rows.squared_residuals(*_asked(context, rows, settings))


def _cells(context: Context[GlmDesign], settings: Settings) -> NDArray[np.int64]:
    rows = context.design.long
    return rows.cells_of_pulls(*_asked(context, rows, settings))


def _meat(context: Context[GlmDesign], settings: Settings) -> NDArray[np.int64]:
    rows = context.design.long
    return rows.meat.added_up(rows.scores_of_pulls(*_asked(context, rows, settings)), context.table)


def _probabilities(context: Context[GlmDesign], settings: Settings) -> NDArray[np.int64]:
    rows = context.design.long
    blocks, start, _ = _asked(context, rows, settings)
    return context.design.outcomes.added_up(rows, blocks, start)


def _asked(context: Context, rows: GlmRows, settings: Settings) -> tuple[Blocks, Floats, Floats]:
    """Return the standardised rows (of a small table from the round before), the coefficients of a request, and its units."""
    standard, start, units = public_numbers(rows.layout, settings, 3, responses=0, coefficients=rows.width)
    by = (context.plan.hash, type(rows), rows.grid, standard[0].tobytes(), standard[1].tobytes())
    return remembered(context.table, by, rows.layout.size, lambda: rows.blocks(context.table, standard)), start, units


#: What a party adds up, by the name of the total.
STATISTICS = {
    COUNT: rows_counted,
    WEIGHTS: weights_added_up,
    BASE: _base,
    SCALES: _scales,
    MOMENTS: _moments,
    DESCENT: _descent,
    SCORE: _score,
    INFORMATION: _information,
    SPREAD: _spread,
    CELLS: _cells,
    MEAT: _meat,
    PROBABILITIES: _probabilities,
}

STEPS = (KEYS, *(step for name, statistic in STATISTICS.items() for step in steps_of(name, statistic)))
