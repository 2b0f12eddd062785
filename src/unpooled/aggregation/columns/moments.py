"""Pure generator: constants, joint moments, and the coefficients that follow. All of it is post-processing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.aggregation.columns.decoded import moments_of, standards_of
from unpooled.aggregation.columns.design import CONSTANTS
from unpooled.aggregation.joint.conversation import joint_total
from unpooled.aggregation.keys import exchange_keys
from unpooled.aggregation.totals import Total, noisy_release
from unpooled.protocol.conversation import everybody
from unpooled.protocol.messages import Ask, Nothing

if TYPE_CHECKING:
    from collections.abc import Generator

    from unpooled.aggregation.columns.design import JointDesign
    from unpooled.aggregation.moments import Moments
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.step import Replies


def joint_moments(plan: Plan[JointDesign]) -> Generator[list[Ask], Replies, Moments]:
    """The second moments of the joint rows."""
    design = plan.design
    members = yield from exchange_keys(design.aggregation)
    replies = yield from everybody([Ask(party, CONSTANTS, Nothing()) for party in design.parties])
    totals = {}
    for party, reply in zip(design.parties, replies, strict=True):
        release = noisy_release(plan, party, CONSTANTS)
        totals[party] = Total(release.decode(reply.sums.values.numpy()), release.deviations, (party,))
    standards = standards_of(design, totals)
    total = yield from joint_total(plan, members)
    promise = plan.statement
    return moments_of(
        design, standards, total.values, total.deviations, plan=plan.hash, statement=str(promise), holds=promise.holds
    )
