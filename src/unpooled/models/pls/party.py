"""The only file of this model that touches raw data: sums over projected rows, exact moments where no noise is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import PlanMismatch
from unpooled.kernels.pls import Centred
from unpooled.linear import design as linear_party
from unpooled.models.pls.messages import ExactReply
from unpooled.models.pls.plan import EXACT, MOMENTS
from unpooled.privacy.mechanisms import Vector
from unpooled.protocol.messages import Nothing
from unpooled.protocol.registry import Step
from unpooled.totals.modes import steps_of
from unpooled.totals.secure_sum import KEYS
from unpooled.totals.total import COUNT, rows_counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.models.pls.plan import PlsDesign
    from unpooled.protocol.context import Context


def _moments(context: Context[PlsDesign], settings: tuple[float, ...]) -> NDArray[np.int64]:
    if settings:
        raise PlanMismatch("moments are those of the declared basis and bounds: their request has no settings")
    design = context.design
    return design.layout.added_up(design.blocks(context.table))


def _exact(context: Context[PlsDesign], request: Nothing) -> ExactReply:  # noqa: ARG001 - the request is no more than its name
    context.planned(MOMENTS)  # before anything is computed
    found = Centred.of(*context.design.exact(context.table))
    parts = (found.mean, [found.response], found.gram.ravel(), found.cross, [found.square])
    return ExactReply(context.release(MOMENTS, Vector(np.concatenate(parts))))


#: What a party adds up, by the name of the total.
STATISTICS = {COUNT: rows_counted, MOMENTS: _moments, **linear_party.STATISTICS}

STEPS = (
    KEYS,
    *(step for name, statistic in STATISTICS.items() for step in steps_of(name, statistic)),
    Step(EXACT, Nothing, ExactReply, _exact),
)
