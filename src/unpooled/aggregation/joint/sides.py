"""Pairs of parties and their helpers: who sends which masked rows to whom, and who knows the masks."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from unpooled.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unpooled.aggregation.joint.shape import RowPart


class Side(NamedTuple):
    """One direction of a pair: whose masked rows travel, who receives them and judges the proof, and who knows their masks."""

    sender: str
    receiver: str
    helper: str


class Spot(NamedTuple):
    """One block of one part of a side in one round: the round, the number of the part among all that travel, side, part, block and its rows."""

    round: int
    number: int
    side: Side
    #: The number of the part in the shape.
    at: int
    part: RowPart
    block: int
    first: int
    last: int

    @property
    def key(self) -> str:
        """Return the end of the names under which a member keeps what belongs to it."""
        return f"{self.round}_{self.number}_{self.block}"

    def place(self) -> tuple[bytes, ...]:
        """Return its place as parts of a purpose: sender, receiver, helper, round, part and block."""
        where = str(self.round), self.part.name, str(self.block)
        return (b"joint", *(name.encode() for name in (*self.side, *where)))


def helper_of(pair: tuple[str, str], parties: Sequence[str], helpers: Sequence[str]) -> str:
    """Return the helper of a pair: the organisation without data, else the next party in the study's order that is not of the pair."""
    if helpers:
        return helpers[0]
    after = parties.index(pair[1]) + 1
    others = [name for name in (*parties[after:], *parties[:after]) if name not in pair]
    if not others:
        raise UsageError(
            "two parties need a helper, an organisation that has no data in this study: make its card with `unpooled party init --helper NAME`, name "
            'the card under [[party]], and the helper under [trust] helpers = ["NAME"] (in Python: helpers=1)'
        )
    return others[0]


def sides_of(parties: Sequence[str], helpers: Sequence[str] = ()) -> tuple[Side, ...]:
    """Return both directions of every pair, in the study's order."""
    found = []
    for first, second in itertools.combinations(parties, 2):
        helper = helper_of((first, second), parties, helpers)
        found += [Side(first, second, helper), Side(second, first, helper)]
    return tuple(found)
