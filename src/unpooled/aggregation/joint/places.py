"""The place of one block of masked rows in a study, as its messages, masks and proofs name it; and the digest of everything that was accepted."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from unpooled.aggregation.keys import checked
from unpooled.errors import PlanMismatch
from unpooled.protocol.context import Receiver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unpooled.aggregation.joint.shape import RowPart
    from unpooled.aggregation.joint.sides import Side
    from unpooled.aggregation.joint.sums import Joint
    from unpooled.aggregation.messages import Member
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.context import Context


class Spot(NamedTuple):
    """One block of one side: the number of the side, the side, the number of the block and its rows."""

    number: int
    side: Side
    block: int
    first: int
    last: int

    @property
    def key(self) -> str:
        """Return the end of the names under which a member keeps what belongs to it."""
        return f"{self.number}_{self.block}"

    def place(self) -> tuple[bytes, ...]:
        """Return its place as parts of a purpose: sender, receiver, helper and block."""
        return (b"joint", *(name.encode() for name in self.side), str(self.block).encode())


def spots_of(design: Joint) -> tuple[Spot, ...]:
    """Return all blocks of all sides: side by side, and block by block within each."""
    rows = design.shape.row_blocks
    return tuple(
        Spot(number, side, block, first, last)
        for number, side in enumerate(design.sides)
        for block, (first, last) in enumerate(rows)
    )


def times(plan: Plan[Joint]) -> int:
    """Return the number of requests that a step for single blocks may get: none in a plan of the same model without joint moments."""
    return len(plan.design.sides) * len(plan.design.shape.row_blocks) if plan.joint else 0


def once(plan: Plan[Joint]) -> int:
    """Return the number of requests that a step of the whole sum may get: one, or none in a plan without joint moments."""
    return int(bool(plan.joint))


def spot_of(context: Context[Joint], role: str) -> Spot:
    """Return the block that a request is about; refused unless this member has this role (sender, receiver or helper) in it."""
    blocks = context.design.shape.row_blocks
    number, block = divmod(context.index, len(blocks))
    side = context.design.sides[number]
    if getattr(side, role) != context.name:
        msg = f"{context.name!r} is not the {role} of this block in the plan"
        raise PlanMismatch(msg)
    return Spot(number, side, block, *blocks[block])


def part_of(design: Joint, party: str) -> RowPart:
    """Return a party's part of every row."""
    return next(part for part in design.shape.parts if part.party == party)


def receiver(context: Context[Joint], member: Member, name: str) -> Receiver:
    """Return the key of a member whose name the plan says, after its signature was checked."""
    if member.name != name:
        msg = f"the request names {member.name!r} where the plan has {name!r}"
        raise PlanMismatch(msg)
    return Receiver(name, checked(context.plan, member).agreement)


def theta(digests: Sequence[str]) -> bytes:
    """Return one digest of the digests of all blocks."""
    return hashlib.sha256("\n".join(digests).encode()).digest()


def verdict_parts(plan: Plan[Joint], digests: Sequence[str]) -> tuple[bytes, ...]:
    """Return the parts that a party signs who accepts every block that it received: the plan, all members and all blocks."""
    names = (name.encode() for name in plan.design.aggregation.parties)
    return (b"joint verdict", b"accept", plan.hash.encode(), *names, theta(digests))
