"""The only file of this model that touches raw data: exact counts of the cells of a table."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.models.tables.messages import TableReply
from unpooled.models.tables.plan import RELEASE, STEP
from unpooled.privacy.bounds import Coding
from unpooled.privacy.mechanisms import Vector
from unpooled.privacy.table import BLOCK_ROWS
from unpooled.protocol.context import Context
from unpooled.protocol.messages import Nothing
from unpooled.protocol.registry import Step
from unpooled.totals.threads import shared_out

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from unpooled.models.tables.layout import TableLayout
    from unpooled.models.tables.plan import TablesDesign
    from unpooled.privacy.table import Table


def cells(table: Table, layout: TableLayout, block_rows: int = BLOCK_ROWS) -> NDArray[np.int64]:
    """Return the statistic: the number of rows in every cell, the last column's level changing fastest."""
    return shared_out(table.blocks(tuple(column.name for column in layout.columns), block_rows), partial(_counted, layout))


def _counted(layout: TableLayout, blocks: Iterator[tuple[NDArray[Any], ...]]) -> NDArray[np.int64]:
    total = np.zeros(layout.size, dtype=np.int64)
    for block in blocks:
        places = [level_of(layout, i, raw) for i, raw in enumerate(block)]
        total += np.bincount(np.ravel_multi_index(places, layout.shape), minlength=total.size)
    return total


def level_of(layout: TableLayout, i: int, raw: NDArray[Any]) -> NDArray[np.intp]:
    """Return the level of every value of one column; the last one is for what is missing, where that may be."""
    column, cuts = layout.columns[i], layout.cuts[i]
    coded, present = Coding((column,), 1).code((raw,))  # which refuses what does not fit the declaration
    if column.categories is not None:
        level = coded[:, : len(column.categories)].argmax(axis=1)
    else:
        level = np.searchsorted(cuts, np.where(present[:, 0], raw, 0.0), side="right")
    return np.where(present[:, 0], level, layout.present(i))


def answer(context: Context, request: Nothing) -> TableReply:  # noqa: ARG001 - the request is no more than its name
    """Release this party's counts."""
    context.planned(RELEASE)
    return TableReply(context.release(RELEASE, Vector(context.added_up(_cells))))


def _cells(context: Context[TablesDesign], settings: tuple[float, ...]) -> NDArray[np.int64]:  # noqa: ARG001 - there are none
    return cells(context.table, context.design.layout)


STEPS = (Step(STEP, Nothing, TableReply, answer),)
