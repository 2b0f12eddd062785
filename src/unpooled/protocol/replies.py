"""A party's reply, held against the plan before any coordinator sees it.

The codec knows types only. That a release is one of this party and step, of the planned name, number, dtype and size, and that its numbers
are numbers, is checked here once for all models: their coordinators may rely on it for every sender.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import ProtocolError
from unpooled.privacy.mechanisms import Summand
from unpooled.protocol.messages import (
    PSEUDONYM,
    Commitment,
    Disclosed,
    Entrusted,
    Masked,
    Partial,
    Pseudonyms,
    Public,
    Released,
    Sealed,
)

if TYPE_CHECKING:
    import msgspec

    from unpooled.privacy.plan import Plan, Release
    from unpooled.protocol.messages import Array, Ask

#: Real numbers beyond this are nobody's: their products would overflow.
LARGEST = 1e90


def check_reply(plan: Plan, ask: Ask, reply: msgspec.Struct) -> None:  # noqa: C901 - a case for every wrapper
    """Refuse a reply that no party which runs this plan would send."""
    fields = (getattr(reply, name) for name in reply.__struct_fields__)
    parts = [part for value in fields for part in (value if isinstance(value, tuple) else (value,))]
    own = [r for r in plan.releases if r.party == ask.to and r.step == ask.step and r.mechanism.takes is not Summand]
    released = [part for part in parts if isinstance(part, Released)]
    if any(release.exposure.alternative for release in own):  # one of them, whichever it is
        own = [release for release in own if released and release.name == released[0].name]
    if [part.name for part in released] != [release.name for release in own]:
        raise _refused(ask, f"releases {len(released)} values where the plan has {len(own)}, or under other names")
    for part, release in zip(released, own, strict=True):
        _check_values(ask, part, release)
    for part in parts:
        if isinstance(part, Partial):
            _check_values(ask, part, _shared(plan, ask, part.name))
        elif isinstance(part, Entrusted) and (not plan.study.trusts(part.role) or not _real(part.values)):
            raise _refused(ask, "entrusts somebody whom the plan does not trust, or with values that are no numbers")
        elif isinstance(part, Disclosed):
            _check_disclosed(plan, ask, part)
        elif isinstance(part, Pseudonyms):
            _check_pseudonyms(plan, ask, part)
        elif isinstance(part, Sealed) and part.node not in {card.name for card in plan.study.members}:
            raise _refused(ask, "seals something for nobody in the study")
        elif isinstance(part, Masked) and not (plan.joint and part.node in {card.name for card in plan.study.parties}):
            raise _refused(ask, "masks rows in a plan without joint moments, or for nobody with rows of his own")
        elif isinstance(part, Commitment) and not (plan.joint and re.fullmatch("[0-9a-f]{64}|[0-9a-f]{128}", part.value)):
            raise _refused(
                ask, "commits itself in a plan without joint moments, or to something that is no digest and no signature"
            )
        elif isinstance(part, Public) and not _plain(part.value):
            raise _refused(ask, "states a number that is none")


def _check_values(ask: Ask, part: Released | Partial, release: Release) -> None:
    values, mechanism = part.values, release.mechanism
    if part.index != ask.index or values.dtype != mechanism.dtype or values.shape != (mechanism.size,):
        raise _refused(ask, f"gives {part.name[:100]!r} another number, type or size than the plan has")
    if values.dtype == "<f8" and not _real(values):
        raise _refused(ask, f"gives {part.name[:100]!r} values that are no numbers")


def _shared(plan: Plan, ask: Ask, name: str) -> Release:
    """Return the planned shares of the total that this step adds up: steps of one total are called alike, but for their last word."""
    total = ask.step.rpartition("-")[0]
    for release in plan.releases:
        if release.party == ask.to and release.name == name and release.step.rpartition("-")[0] == total:
            return release
    raise _refused(ask, "gives a part of a total that is not the one of this step")


def _check_disclosed(plan: Plan, ask: Ask, part: Disclosed) -> None:
    card = plan.study.card(ask.to)
    known = {column.name for column in card.columns}
    shape = part.values.shape
    if not known.issuperset(part.columns) or len(shape) != 2 or shape[0] != card.rows or not _real(part.values):  # noqa: PLR2004
        raise _refused(ask, "discloses something else than rows of its own columns")


def _check_pseudonyms(plan: Plan, ask: Ask, part: Pseudonyms) -> None:
    rows, whole = part.split(), len(part.values) % PSEUDONYM == 0
    if not plan.links or not whole or len(rows) > plan.study.card(ask.to).rows or sorted(set(rows)) != rows:
        raise _refused(ask, "gives pseudonyms in a plan that links no rows, or more than it has rows, or twice the same")


def _real(values: Array) -> bool:
    """Return True if these are real numbers that one can compute with."""
    return values.dtype == "<f8" and bool((np.abs(values.numpy()) < LARGEST).all())  # nan is not below anything


def _plain(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_plain, value))
    return not isinstance(value, float) or math.isfinite(value)


def _refused(ask: Ask, what: str) -> ProtocolError:
    return ProtocolError(f"party {ask.to!r} {what} (step {ask.step!r}): it does not run this plan, so its reply is refused")
