"""The place of one block of masked rows in a study, as its messages, masks and proofs name it; and the digest of everything that was accepted."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from unpooled.aggregation.joint.sides import Spot
from unpooled.aggregation.keys import checked
from unpooled.errors import PlanMismatch
from unpooled.protocol.context import Receiver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unpooled.aggregation.joint.sides import Side
    from unpooled.aggregation.joint.sums import Joint
    from unpooled.aggregation.messages import Member
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.context import Context


def legs_of(design: Joint) -> tuple[tuple[Side, int], ...]:
    """Return everything that travels in a round, block by block: the sides in order, and of each the parts of its sender."""
    parts = design.shape.parts
    return tuple((side, at) for side in design.sides for at, part in enumerate(parts) if part.party == side.sender)


def spots_of(design: Joint, number: int = 0) -> tuple[Spot, ...]:
    """Return all blocks of this round: part by part, and block by block within each."""
    rows, parts = design.shape.row_blocks, design.shape.parts
    return tuple(
        Spot(number, leg, side, at, parts[at], block, first, last)
        for leg, (side, at) in enumerate(legs_of(design))
        for block, (first, last) in enumerate(rows)
    )


def times(plan: Plan[Joint]) -> int:
    """Return the number of requests that a step for single blocks may get: none in a plan of the same model without joint sums."""
    if not plan.joint:
        return 0
    return plan.design.shape.rounds * len(legs_of(plan.design)) * len(plan.design.shape.row_blocks)


def once(plan: Plan[Joint]) -> int:
    """Return the number of requests that a step of the whole sum may get: one a round, or none in a plan without joint sums."""
    return plan.design.shape.rounds if plan.joint else 0


def spot_of(context: Context[Joint], role: str) -> Spot:
    """Return the block that a request is about; refused unless this member has this role (sender, receiver or helper) in it."""
    blocks, legs, parts = context.design.shape.row_blocks, legs_of(context.design), context.design.shape.parts
    leg, block = divmod(context.index, len(blocks))
    number, leg = divmod(leg, len(legs))
    side, at = legs[leg]
    if getattr(side, role) != context.name:
        msg = f"{context.name!r} is not the {role} of this block in the plan"
        raise PlanMismatch(msg)
    return Spot(number, leg, side, at, parts[at], block, *blocks[block])


def receiver(context: Context[Joint], member: Member, name: str) -> Receiver:
    """Return the key of a member whose name the plan says, after its signature was checked."""
    if member.name != name:
        msg = f"the request names {member.name!r} where the plan has {name!r}"
        raise PlanMismatch(msg)
    return Receiver(name, checked(context.plan, member).agreement)


def theta(digests: Sequence[str]) -> bytes:
    """Return one digest of the digests of all blocks."""
    return hashlib.sha256("\n".join(digests).encode()).digest()


def verdict_parts(plan: Plan[Joint], number: int, digests: Sequence[str]) -> tuple[bytes, ...]:
    """Return the parts that a party signs who accepts every block that it received in a round: the plan, the round, all members and all blocks."""
    names = (name.encode() for name in plan.design.aggregation.parties)
    return (b"joint verdict", b"accept", plan.hash.encode(), str(number).encode(), *names, theta(digests))
