"""Keys that parties exchange once per study, and what they seal for each other with them."""

from __future__ import annotations

import hmac
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from unpooled.aggregation import secure_sum
from unpooled.aggregation.messages import FragmentReply, FragmentRequest, KeyReply, Member, TotalRequest
from unpooled.errors import ProtocolError, StudyAborted
from unpooled.privacy.mechanisms import Summand
from unpooled.protocol.identity import verify
from unpooled.protocol.messages import Ask, Dropped, Nothing, Public, Sealed
from unpooled.protocol.step import Step

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from unpooled.aggregation.totals import Aggregation, Quantity, Summed
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.context import Context
    from unpooled.protocol.step import Replies


def _keys(context: Context, request: Nothing) -> KeyReply:  # noqa: ARG001 - the request is no more than its name
    key = context.agreement_key
    signature = context.attest(*key_parts(context.plan, context.name, key))
    return KeyReply(Public(key), Public(context.public_key), Public(signature))


def key_parts(plan: Plan, name: str, key: str) -> tuple[bytes, ...]:
    """Return the parts that a party signs to say that an agreement key is its own."""
    return b"agreement key", plan.hash.encode(), name.encode(), key.encode()


def checked(plan: Plan, member: Member) -> Member:
    """Return a member whose key is signed by the identity that its card pins (parties of one process pin none)."""
    identity = plan.study.member(member.name).key or member.identity
    if not re.fullmatch("[0-9a-f]{64}", member.agreement):
        msg = f"the agreement key of party {member.name!r} is not 64 hexadecimal digits"
        raise ProtocolError(msg)
    _verify_once(identity, member.signature, *key_parts(plan, member.name, member.agreement))
    return member


@lru_cache(maxsize=256)  # every round of a plan names the same keys; a signature that is refused is not remembered
def _verify_once(identity: str, signature: str, *parts: bytes) -> None:
    verify(identity, signature, *parts)


#: Asked once per study, before anything is sealed.
KEYS = Step("keys", Nothing, KeyReply, _keys)


def exchange_keys(aggregation: Aggregation) -> Generator[list[Ask], Replies, dict[str, Member]]:
    """The keys of the parties that are there; empty where nothing is sealed."""
    if not aggregation.seals:
        return {}
    replies = yield [Ask(name, KEYS.name, Nothing()) for name in aggregation.parties]
    members = {
        name: Member(name, reply.agreement.value, reply.identity.value, reply.signature.value)
        for name, reply in zip(aggregation.parties, replies, strict=True)
        if not isinstance(reply, Dropped)
    }
    aggregation.enough(members, "at the exchange of keys")
    if sum(node in members for node in aggregation.nodes) < aggregation.count:
        msg = f"fewer than {aggregation.count} of the nodes {', '.join(aggregation.nodes)} are there: run it again once they are"
        raise StudyAborted(msg)
    return members


def purpose(quantity: Quantity, context: Context, sender: str, receiver: str) -> tuple[bytes, ...]:
    """Return the purpose of a sealed part, which ties it to one place: no other place opens it."""
    return purpose_of(quantity.name, context.index, sender, receiver)


def purpose_of(name: str, index: int, sender: str, receiver: str) -> tuple[bytes, ...]:
    """Return the same, of the name of a quantity and the number of its repetition."""
    return name.encode(), index.to_bytes(8, "big"), sender.encode(), receiver.encode()


def seal_parts(quantity: Quantity, context: Context, request: FragmentRequest) -> FragmentReply:
    """Return the step in which a party splits its vector and seals one part for each node (or all of it for the trusted one)."""
    aggregation, _ = quantity.planned(context)
    aggregation.check_nodes(tuple(node.name for node in request.nodes))
    nodes = [checked(context.plan, node) for node in request.nodes]

    def sealed_for_nodes(vector: NDArray[np.int64], secret: bytes) -> tuple[Sealed, ...]:
        sealed = []
        # Other nodes get other seeds and keys, even if the ledger that allows one request only was lost.
        secret = hmac.digest(secret, b"".join(bytes.fromhex(node.agreement) for node in nodes), "sha256")
        for node, part in zip(nodes, secure_sum.split(vector, len(nodes), secret), strict=True):
            place = purpose(quantity, context, context.name, node.name)
            salt, text = secure_sum.seal(context.shared_key, node.agreement, place, part, secret)
            sealed.append(Sealed(node.name, text, salt))
        return tuple(sealed)

    return FragmentReply(context.release(quantity.name, Summand(quantity.own(context, request.settings), sealed_for_nodes)))


def unsealed(quantity: Quantity, context: Context, request: TotalRequest, size: int) -> Generator[secure_sum.Buffer]:
    """Yield the fragments that the participants sealed for this party, one after the other."""
    if len(request.sealed) != len(request.participants):
        raise ProtocolError("a total needs one sealed fragment of each participant")
    room = bytearray(8 * size)
    for member, sealed in zip(request.participants, request.sealed, strict=True):
        sender = checked(context.plan, member)
        place = purpose(quantity, context, sender.name, context.name)
        yield secure_sum.unseal(context.shared_key, sender.agreement, place, sealed.salt, sealed.ciphertext, room)


def gather(
    aggregation: Aggregation,
    vector: Summed,
    members: Mapping[str, Member],
    senders: Sequence[str],
    settings: tuple[float, ...],
    index: int = 0,
) -> Generator[list[Ask], Replies, tuple[tuple[Member, ...], dict[str, tuple[Sealed, ...]]]]:
    """Ask the senders for their sealed parts: the nodes they are sealed for, and what arrived."""
    nodes = tuple(members[node] for node in [n for n in aggregation.nodes if n in members][: aggregation.count])
    replies = yield [Ask(party, vector.step("fragment"), FragmentRequest(nodes, settings), index) for party in senders]
    sealed = {
        party: reply.fragments for party, reply in zip(senders, replies, strict=True) if not isinstance(reply, Dropped)
    }
    check_sealed(vector, nodes, sealed)
    return nodes, sealed


def check_sealed(vector: Summed, nodes: Sequence[Member], sealed: Mapping[str, tuple[Sealed, ...]]) -> None:
    """Refuse fragments that a party sealed for others than these nodes."""
    names = [node.name for node in nodes]
    for party, parts in sealed.items():
        if [part.node for part in parts] != names:
            msg = (
                f"party {party!r} sealed its fragments of {vector.name!r} for others than {', '.join(names)}, in this order"
            )
            raise ProtocolError(msg)


def answered(nodes: Sequence[str], replies: Replies) -> None:
    """Abort where a node is gone: without it nothing can be opened."""
    gone = [f"{node} ({r.reason})" for node, r in zip(nodes, replies, strict=True) if isinstance(r, Dropped)]
    if gone:
        msg = f"{', '.join(gone)} did not add up, so nothing was opened: run it again once it is back"
        raise StudyAborted(msg)
