"""Pure generator: carry sealed lists, shares and places between the members of a hidden link. It sees lengths that follow from the caps, digests and signatures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.errors import ProtocolError
from unpooled.linkage.coordinator import posted
from unpooled.linkage.hidden.messages import (
    Committed,
    CommittedRequest,
    LinkVerdict,
    LinkVerdictsRequest,
    MatchRequest,
    PlacesRequest,
)
from unpooled.linkage.hidden.plan import (
    CLOSE,
    COMPARE,
    FINISH,
    HELLO,
    LIST,
    MASK,
    MATCH,
    PASS,
    PLACES,
    SHARE,
    VERDICT,
    HiddenResult,
)
from unpooled.linkage.messages import Hello, HellosRequest, RelayedRequest
from unpooled.privacy.study import HIDDEN
from unpooled.protocol.conversation import everybody
from unpooled.protocol.messages import Ask, Nothing

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from unpooled.linkage.hidden.plan import HiddenLinkDesign
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.messages import Sealed
    from unpooled.protocol.registry import Conversation, Replies


def coordinate_hidden(plan: Plan[HiddenLinkDesign]) -> Conversation:
    """The conversation from first messages to verdicts; every member takes part, or nothing is linked."""
    design, names = plan.design, plan.design.names
    members = [card.name for card in plan.study.members]
    said = yield from everybody([Ask(name, HELLO, Nothing()) for name in members])
    hellos = tuple(
        Hello(name, r.agreement.value, r.commitment.value, r.signature.value) for name, r in zip(members, said, strict=True)
    )
    replies = yield from everybody([Ask(name, SHARE, HellosRequest(hellos)) for name in names])
    mail = posted(names, replies, dict.fromkeys(names, ()))
    replies = yield from everybody([Ask(name, LIST, RelayedRequest(tuple(mail[name]))) for name in names])
    replies = yield from everybody([Ask(name, MASK, _committed(names, replies)) for name in names])
    mail = posted(names, replies, dict.fromkeys(names, ()))
    for hop in range(design.hops):
        owners = {name: tuple(letter.owner for letter in mail[name]) for name in names}
        replies = yield from everybody([Ask(name, PASS, RelayedRequest(tuple(mail[name])), hop) for name in names])
        mail = posted(names, replies, owners)
    replies = yield from everybody([Ask(name, FINISH, RelayedRequest(tuple(mail[name]))) for name in names])
    lists = tuple(_only(name, reply.sealed, design.helper) for name, reply in zip(names, replies, strict=True))
    (matched,) = yield from everybody([Ask(design.helper, MATCH, MatchRequest(hellos, lists))])
    if [one.node for one in matched.sealed] != list(names):
        msg = f"helper {design.helper!r} sealed places for others than the parties of the study, in its order"
        raise ProtocolError(msg)
    return (yield from _accepted(plan, matched.sealed))


def _accepted(plan: Plan[HiddenLinkDesign], places: Sequence[Sealed]) -> Generator[list[Ask], Replies, HiddenResult]:
    """Give the parties their places, have them compare what they planted, and gather their verdicts."""
    names = plan.design.names
    replies = yield from everybody([Ask(n, PLACES, PlacesRequest(one)) for n, one in zip(names, places, strict=True)])
    replies = yield from everybody([Ask(name, COMPARE, _committed(names, replies)) for name in names])
    mail = posted(names, replies, dict.fromkeys(names, ()))
    replies = yield from everybody([Ask(name, VERDICT, RelayedRequest(tuple(mail[name]))) for name in names])
    verdicts = tuple(LinkVerdict(name, reply.signature.value) for name, reply in zip(names, replies, strict=True))
    replies = yield from everybody([Ask(name, CLOSE, LinkVerdictsRequest(verdicts)) for name in names])
    found = {reply.name.value for reply in replies}
    if len(found) != 1:
        raise ProtocolError("the parties keep places of different links: one member did not follow the protocol")
    return HiddenResult(f"{HIDDEN}{found.pop()}", plan.design.totals, tuple(one.signature for one in verdicts))


def _committed(names: Sequence[str], replies: Replies) -> CommittedRequest:
    return CommittedRequest(
        tuple(
            Committed(name, tuple(one.value for one in reply.digests), reply.signature.value)
            for name, reply in zip(names, replies, strict=True)
        )
    )


def _only(sender: str, sealed: Sequence[Sealed], helper: str) -> Sealed:
    if len(sealed) != 1 or sealed[0].node != helper:
        msg = f"party {sender!r} sealed its pseudonyms for others than the helper"
        raise ProtocolError(msg)
    return sealed[0]
