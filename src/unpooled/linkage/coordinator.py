"""Pure generator: carry sealed lists between the parties, intersect pseudonyms. It sees no id and no masked list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.errors import ProtocolError
from unpooled.linkage.messages import Hello, HellosRequest, Relayed, RelayedRequest, ReturnRequest
from unpooled.linkage.plan import CLOSE, FINISH, HELLO, MASK, PASS, RETURN, LinkResult
from unpooled.protocol.conversation import everybody
from unpooled.protocol.messages import Ask, Nothing

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from unpooled.linkage.plan import LinkDesign
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.messages import Sealed
    from unpooled.protocol.registry import Conversation, Replies

#: Sealed lists on their way: of each receiver what it is given next.
Mail = dict[str, list[Relayed]]


def coordinate(plan: Plan[LinkDesign]) -> Conversation:
    """Pass after pass; the row map of the last one holds all of them."""
    design = plan.design
    sizes: list[int] = []
    name = ""
    for number in range(len(design.keys)):
        size, name = yield from _pass(design, number)
        sizes.append(size - sum(sizes))
    return LinkResult(sum(sizes), tuple(sizes), f"psi:{name}")


def _pass(design: LinkDesign, number: int) -> Generator[list[Ask], Replies, tuple[int, str]]:
    names = design.names
    said = yield from everybody([Ask(name, HELLO, Nothing(), number) for name in names])
    hellos = HellosRequest(
        tuple(
            Hello(name, r.agreement.value, r.commitment.value, r.signature.value)
            for name, r in zip(names, said, strict=True)
        )
    )
    replies = yield from everybody([Ask(name, MASK, hellos, number) for name in names])
    mail = posted(names, replies, dict.fromkeys(names, ()))
    for hop in range(design.hops):
        owners = {name: tuple(letter.owner for letter in mail[name]) for name in names}
        index = number * design.hops + hop
        replies = yield from everybody([Ask(name, PASS, RelayedRequest(tuple(mail[name])), index) for name in names])
        mail = posted(names, replies, owners)
    replies = yield from everybody([Ask(name, FINISH, RelayedRequest(tuple(mail[name])), number) for name in names])
    common = sorted(set.intersection(*(set(reply.rows.split()) for reply in replies)))
    returned = ReturnRequest(b"".join(common))
    replies = yield from everybody([Ask(name, RETURN, returned, number) for name in names])
    mail = posted(names, replies, dict.fromkeys(names, ()))
    replies = yield from everybody([Ask(name, CLOSE, RelayedRequest(tuple(mail[name])), number) for name in names])
    found = {(reply.rows.value, reply.digest.value) for reply in replies}
    if len(found) != 1:
        raise ProtocolError(
            "the parties' row maps differ: one of them did not follow the protocol, and no later study will accept its map"
        )
    return found.pop()


def posted(names: Sequence[str], replies: Replies, owners: dict[str, tuple[str, ...]]) -> Mail:
    """Return the sealed lists by receiver and then by sender in the order of the study; a sender's own list where no owner is named."""
    mail: Mail = {name: [] for name in names}
    for sender, reply in zip(names, replies, strict=True):
        sealed: tuple[Sealed, ...] = reply.sealed
        listed = owners[sender] or (sender,) * len(sealed)
        if len(listed) != len(sealed):
            msg = f"party {sender!r} sealed another number of lists than it was given"
            raise ProtocolError(msg)
        for owner, one in zip(listed, sealed, strict=True):
            mail[one.node].append(Relayed(owner, sender, one.ciphertext, one.salt))
    return mail
