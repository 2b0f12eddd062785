"""Pure generators: constants, and the joint moments that follow. All of it is post-processing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unpooled.aggregation.columns.decoded import moments_of, standards_of
from unpooled.aggregation.columns.design import CONSTANTS
from unpooled.aggregation.joint.conversation import joint_total
from unpooled.aggregation.keys import exchange_keys
from unpooled.aggregation.totals import Total, noisy_release
from unpooled.protocol.conversation import everybody
from unpooled.protocol.messages import Ask, Nothing

if TYPE_CHECKING:
    from collections.abc import Generator

    from unpooled.aggregation.columns.design import ColumnsDesign, JointDesign
    from unpooled.aggregation.messages import Member
    from unpooled.aggregation.moments import Moments
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.step import Replies


def constants(plan: Plan[Any]) -> Generator[list[Ask], Replies, tuple[dict[str, Member], dict[str, Total]]]:
    """The keys of all members, and the noisy sums of every party's columns."""
    design: ColumnsDesign = plan.design
    members = yield from exchange_keys(design.aggregation)
    replies = yield from everybody([Ask(party, CONSTANTS, Nothing()) for party in design.parties])
    totals = {}
    for party, reply in zip(design.parties, replies, strict=True):
        release = noisy_release(plan, party, CONSTANTS)
        totals[party] = Total(release.decode(reply.sums.values.numpy()), release.deviations, (party,))
    return members, totals


def joint_totals(plan: Plan[JointDesign]) -> Generator[list[Ask], Replies, tuple[dict[str, Total], Total]]:
    """The noisy sums of every party's columns, and the noisy total of the joint second moments."""
    members, totals = yield from constants(plan)
    return totals, (yield from joint_total(plan, members))


def joint_moments(plan: Plan[JointDesign]) -> Generator[list[Ask], Replies, Moments]:
    """The second moments of the joint rows."""
    sums, total = yield from joint_totals(plan)
    standards, promise = standards_of(plan.design, sums), plan.statement
    return moments_of(
        plan.design,
        standards,
        total.values,
        total.deviations,
        plan=plan.hash,
        statement=str(promise),
        holds=promise.holds,
    )
