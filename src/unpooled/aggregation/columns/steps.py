"""The steps of a party: its constants with noise, then the steps of joint sums."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from unpooled.aggregation.columns.design import CONSTANTS
from unpooled.aggregation.joint.conversation import STEPS as JOINT_STEPS
from unpooled.aggregation.joint.places import once
from unpooled.aggregation.keys import KEYS
from unpooled.privacy.mechanisms import Vector
from unpooled.protocol.messages import Nothing, Released
from unpooled.protocol.step import Step

if TYPE_CHECKING:
    from unpooled.aggregation.columns.design import ColumnsDesign
    from unpooled.protocol.context import Context


class ConstantsReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The noisy sums and sums of squares of a party's own columns."""

    sums: Released


def _constants(context: Context[ColumnsDesign], request: Nothing) -> ConstantsReply:  # noqa: ARG001 - the request is no more than its name
    context.planned(CONSTANTS)
    table, design = context.table, context.design
    sums = context.release(CONSTANTS, Vector(design.scales(context.name).statistic(table)))
    context.keep(
        CONSTANTS, sums.values.numpy()
    )  # its own rows are standardised by what it released, never by what somebody sends
    return ConstantsReply(sums)


#: The steps of joint moments in addition to a model's own, of a model that exchanges keys for other sums too.
STEPS = (Step(CONSTANTS, Nothing, ConstantsReply, _constants), *JOINT_STEPS)
#: The same with the exchange of keys, of a model that has no other use for them.
ALONE = (replace(KEYS, times=once), *STEPS)
