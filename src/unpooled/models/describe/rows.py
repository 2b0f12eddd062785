"""The only file of this model that touches raw data: exact integer sums of coded columns, and the message in which they leave a party."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.models.describe.declared import ARMS, HISTOGRAM, RELEASE, STEP
from unpooled.privacy.bounds import Coding
from unpooled.privacy.mechanisms import Vector
from unpooled.privacy.table import BLOCK_ROWS
from unpooled.protocol.context import Context
from unpooled.protocol.messages import Nothing, Released
from unpooled.protocol.registry import Step
from unpooled.totals.threads import shared_out

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from unpooled.models.describe.declared import DescribeDesign, SumsLayout
    from unpooled.privacy.table import Table


# --- Messages --------------------------------------------------------------------------------------------------------------
# Everything that may leave a party: one released vector of sums.


class SumsReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The noisy vector of :class:`unpooled.models.describe.declared.Layout`."""

    sums: Released


# --- The party's steps -----------------------------------------------------------------------------------------------------
# Exact integer sums of coded columns.


def sums(table: Table, layout: SumsLayout, block_rows: int = BLOCK_ROWS) -> NDArray[np.int64]:
    """Return the statistic: exact in int64, so neither row order nor blocking can change a bit of it."""
    return shared_out(table.blocks(tuple(column.name for column in layout.columns), block_rows), partial(_added_up, layout))


def _added_up(layout: SumsLayout, blocks: Iterator[tuple[NDArray[Any], ...]]) -> NDArray[np.int64]:
    coding = Coding(layout.columns, layout.grid)
    starts = np.searchsorted(coding.attribute, range(len(layout.columns)))
    total = np.zeros(sum(layout.width(i) for i in range(len(layout.columns))), dtype=np.int64)
    for block in blocks:
        coded, present = coding.code(block)
        at = 0
        for i, column in enumerate(layout.columns):
            z = coded[:, starts[i]]
            if column.categories is not None:
                part = coded[:, starts[i] : starts[i] + len(column.categories)].sum(axis=0) // layout.grid
            elif layout.counts(column):
                part = np.array([present[:, i].sum(), z.sum(), z @ z])
            else:
                part = np.array([z.sum(), z @ z])
            total[at : at + part.size] += part
            at += part.size
    return total


def answer(context: Context, request: Nothing) -> SumsReply:  # noqa: ARG001 - the request is no more than its name
    """Release this party's sums."""
    context.planned(RELEASE)
    return SumsReply(context.release(RELEASE, Vector(context.added_up(_sums))))


def histogram(context: Context, request: Nothing) -> SumsReply:  # noqa: ARG001 - the request is no more than its name
    """Release this party's counts of bins."""
    context.planned(HISTOGRAM)
    return SumsReply(context.release(HISTOGRAM, Vector(context.added_up(_bins))))


def arms(context: Context, request: Nothing) -> SumsReply:  # noqa: ARG001 - the request is no more than its name
    """Release this party's sums of every arm."""
    context.planned(ARMS)
    return SumsReply(context.release(ARMS, Vector(context.added_up(_arms))))


def _arms(context: Context[DescribeDesign], settings: tuple[float, ...]) -> NDArray[np.int64]:  # noqa: ARG001 - there are none
    layout = context.design.arms
    assert layout is not None  # other plans have no such total
    return layout.statistic(context.table)


def _sums(context: Context[DescribeDesign], settings: tuple[float, ...]) -> NDArray[np.int64]:  # noqa: ARG001 - there are none
    return sums(context.table, context.design.layouts[context.name])


def _bins(context: Context[DescribeDesign], settings: tuple[float, ...]) -> NDArray[np.int64]:  # noqa: ARG001 - there are none
    layout = context.design.ranges
    assert layout is not None  # a plan of sums has no such total
    return layout.statistic(context.table)


STEPS = (
    Step(STEP, Nothing, SumsReply, answer),
    Step(HISTOGRAM, Nothing, SumsReply, histogram),
    Step(ARMS, Nothing, SumsReply, arms),
)
