"""Pure generator: add up everybody's exits, and compare arms by them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.models.survival.comparing import compare
from unpooled.models.survival.plan import EXITS
from unpooled.totals.rounds import Rounds

if TYPE_CHECKING:
    from unpooled.models.survival.plan import SurvivalDesign
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.registry import Conversation


def coordinate(plan: Plan[SurvivalDesign]) -> Conversation:
    """Exchange keys, and ask for the one total."""
    rounds = Rounds(plan)
    yield from rounds.begin()
    total = yield from rounds.total(EXITS)
    cells = total.values.reshape(plan.design.layout.shape)
    return compare(plan.design, cells, float(total.deviations.max()), total.participants, plan.hash.encode())
