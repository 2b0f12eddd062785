"""Pairs of parties and their helpers: who sends masked rows to whom, and who knows the masks."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from unpooled.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Side(NamedTuple):
    """One direction of a pair: whose masked rows travel, who receives them and judges the proof, and who knows their masks."""

    sender: str
    receiver: str
    helper: str


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
