"""The only file of this model that touches raw data: exact counts of cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.models.diagnose.messages import CellsReply
from unpooled.models.diagnose.plan import RELEASE, STEP
from unpooled.privacy.mechanisms import Vector
from unpooled.protocol.messages import Nothing
from unpooled.protocol.registry import Step

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from unpooled.models.diagnose.plan import DiagnoseDesign
    from unpooled.protocol.context import Context


def answer(context: Context, request: Nothing) -> CellsReply:  # noqa: ARG001 - the request is no more than its name
    """Release this party's counts."""
    context.planned(RELEASE)
    return CellsReply(context.release(RELEASE, Vector(context.added_up(_cells))))


def _cells(context: Context[DiagnoseDesign], settings: tuple[float, ...]) -> NDArray[np.int64]:  # noqa: ARG001 - there are none
    return context.design.statistic(context.table)


STEPS = (Step(STEP, Nothing, CellsReply, answer),)
