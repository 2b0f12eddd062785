"""The only file of this model that touches raw data: exact counts of exits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.models.survival.plan import EXITS
from unpooled.totals.modes import steps_of
from unpooled.totals.secure_sum import KEYS
from unpooled.totals.threads import shared_out
from unpooled.totals.total import COUNT, no_settings, rows_counted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from unpooled.models.survival.plan import SurvivalDesign
    from unpooled.protocol.context import Context


def _exits(context: Context[SurvivalDesign], settings: tuple[float, ...]) -> NDArray[np.int64]:
    no_settings(settings)
    layout = context.design.layout
    return shared_out(context.table.blocks(tuple(column.name for column in layout.columns)), layout.counted)


#: What a party adds up, by the name of the total.
STATISTICS = {COUNT: rows_counted, EXITS: _exits}

STEPS = (KEYS, *(step for name, statistic in STATISTICS.items() for step in steps_of(name, statistic)))
