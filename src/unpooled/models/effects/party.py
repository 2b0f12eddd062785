"""The only file of this model that touches raw data: counts and sums of what rows contribute to an effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unpooled.models.effects.plan import BALANCE, EXITS, OVERLAP, SLOPES, SPREAD, SUMS
from unpooled.models.effects.values import Models, Rows
from unpooled.totals.modes import steps_of
from unpooled.totals.secure_sum import KEYS
from unpooled.totals.total import COUNT, rows_counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from unpooled.models.effects.plan import EffectDesign
    from unpooled.protocol.context import Context

    Ints = NDArray[np.int64]
    Settings = tuple[float, ...]


def _added(name: str, added_up: Callable[[EffectDesign, Rows], Ints]) -> Callable[[Context[EffectDesign], Settings], Ints]:
    """Return the statistic that adds a vector up over the blocks of a party's rows."""

    def statistic(context: Context[EffectDesign], settings: Settings) -> Ints:
        models = Models.of(context.design, settings, context.design.further(name))
        blocks = (added_up(context.design, rows) for rows in Rows.blocks(context.table, models))
        return np.asarray(sum(blocks), dtype=np.int64)

    return statistic


#: What a party adds up, by the name of the total.
STATISTICS = {
    COUNT: rows_counted,
    EXITS: _added(EXITS, lambda design, rows: design.exits.added_up(rows.held, rows.treated, rows.parts_of_weights)),
    OVERLAP: _added(OVERLAP, lambda design, rows: design.overlap.added_up(rows.propensity, rows.treated)),
    SPREAD: _added(SPREAD, lambda design, rows: design.spread.added_up(rows.contributions(), rows.treated)),
    SUMS: _added(SUMS, lambda design, rows: design.pieces.added_up(rows.pieces())),
    SLOPES: _added(SLOPES, lambda design, rows: design.slopes.added_up(rows.slopes())),
    BALANCE: _added(
        BALANCE, lambda design, rows: design.balance.added_up(rows.standard, rows.treated, rows.parts_of_weights)
    ),
}

STEPS = (KEYS, *(step for name, statistic in STATISTICS.items() for step in steps_of(name, statistic)))
