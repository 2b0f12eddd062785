"""Secure sums: additive fragments that are sealed for the nodes, and the keys that parties exchange once per study."""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from unpooled.errors import ProtocolError, StudyAborted
from unpooled.privacy.mechanisms import Summand
from unpooled.privacy.noise import Stream
from unpooled.protocol.identity import verify
from unpooled.protocol.messages import Ask, Dropped, Nothing, Public, Sealed
from unpooled.protocol.registry import Step
from unpooled.totals.total import FragmentReply, FragmentRequest, KeyReply, Member, TotalRequest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.privacy.plan import Plan
    from unpooled.protocol.context import Context
    from unpooled.protocol.registry import Replies
    from unpooled.totals.total import Aggregation, Quantity, Summed

    Words = NDArray[np.uint64]
    Buffer = bytes | memoryview


# --- Secure sum ------------------------------------------------------------------------------------------------------------
# Additive fragments of integer vectors modulo 2^64, sealed end to end for the nodes that add them up (Algorithm 1 of Heikkila et al. 2017; Theorem B.2).
#
# A vector is split into M fragments: M - 1 uniform ones and the one that makes them sum. A uniform fragment is sent as the 32-byte seed
# of its key stream, so a party sends about 8 bytes per coordinate however many nodes there are. Fewer than M nodes together hold
# uniform noise; what the M partial sums add up to is the exact total, even if parties are missing.
#
# Numbers only: who may ask for what is decided in ``modes.py``.

#: From another one's agreement key and a purpose to the key that both of them know (:meth:`unpooled.protocol.context.Context.shared_key`).
SharedKey = Callable[..., bytes]

_SEED_BYTES = 32
#: The modulus of sums of joint moments.
PRIME = (1 << 61) - 1
#: Each key encrypts one message, so that its nonce may be constant.
_NONCE = bytes(12)
_TAG_BYTES = 16
#: Words expanded at a time.
_BLOCK = 1 << 15


def split(vector: NDArray[np.int64], nodes: int, secret: bytes, *, prime: bool = False) -> list[Buffer]:
    """Return the fragments of a vector: seeds for all nodes but the last, which gets what is left.

    ``secret`` belongs to this vector alone, so that a repeated request is answered with equal bytes. ``prime``: the sum is modulo 2^61 - 1.
    """
    seeds = [hmac.digest(secret, b"seed %d" % k, "sha256") for k in range(nodes - 1)]
    if prime:
        from unpooled.kernels import field
        from unpooled.privacy.masks import uniform_words

        left = field.encode(vector)
        for seed in seeds:
            left = field.subtract(left, uniform_words(seed, left.size))
        return [*seeds, left.astype("<u8").data.cast("B")]
    rest = vector.astype("<u8")  # two's complement: modulo 2^64
    for seed in seeds:
        for at, words in _expanded(seed, rest.size):
            rest[at : at + words.size] -= words
    return [*seeds, rest.data.cast("B")]


def add_fragment(total: Words, fragment: Buffer, position: int, nodes: int, *, prime: bool = False) -> None:
    """Add the fragment that the node at this position received to its partial sum, modulo 2^64 or 2^61 - 1 (``prime``)."""
    if position < nodes - 1:
        if len(fragment) != _SEED_BYTES:
            raise ProtocolError("a fragment that is not a seed of 32 bytes")
        if prime:
            from unpooled.kernels import field
            from unpooled.privacy.masks import uniform_words

            total[:] = field.add(total, uniform_words(bytes(fragment), total.size))
            return
        for at, words in _expanded(bytes(fragment), total.size):
            total[at : at + words.size] += words
    elif len(fragment) != 8 * total.size:
        msg = f"a fragment that does not hold {total.size} numbers of 8 bytes"
        raise ProtocolError(msg)
    elif prime:
        from unpooled.kernels import field

        total[:] = field.add(total, residues(np.frombuffer(fragment, dtype="<u8")))
    else:
        total += np.frombuffer(fragment, dtype="<u8")


def residues(words: Words) -> Words:
    """Return words that somebody sent, refused unless each of them is below 2^61 - 1."""
    if words.size and int(words.max()) >= PRIME:
        raise ProtocolError("words that are no residues of the study's prime")
    return words.astype(np.uint64)


def _expanded(seed: bytes, size: int) -> Iterator[tuple[int, Words]]:
    """The key stream of a seed in blocks that stay in the cache, each with its place."""
    stream = Stream(seed)
    for at in range(0, size, _BLOCK):
        yield at, stream.words(at, min(_BLOCK, size - at))


def opened(partials: Sequence[Words], *, prime: bool = False) -> NDArray[np.int64]:
    """Return the total that the partial sums of all nodes add up to."""
    total = np.zeros(partials[0].size, dtype=np.uint64)
    if prime:
        from unpooled.kernels import field

        for part in partials:
            total = field.add(total, residues(part))
        return field.decode(total)
    for part in partials:
        total += part
    return total.view(np.int64)


def seal(
    shared_key: SharedKey, receiver_key: str, purpose: tuple[bytes, ...], message: Buffer, secret: bytes
) -> tuple[bytes, bytes]:
    """Return (salt, ciphertext) for one receiver: X25519, HKDF-SHA-256 over purpose and salt, AES-256-GCM.

    ``secret`` belongs to this message alone: the salt, and so the key, differs wherever the message does.
    """
    salt = hmac.digest(secret, b"salt" + b"".join(len(part).to_bytes(8, "big") + part for part in purpose), "sha256")
    return salt, AESGCM(shared_key(receiver_key, *purpose, salt)).encrypt(_NONCE, message, None)


def unseal(
    shared_key: SharedKey,
    sender_key: str,
    purpose: tuple[bytes, ...],
    salt: bytes,
    ciphertext: bytes,
    room: bytearray | None = None,
) -> Buffer:
    """Decrypt what this sender sealed for this receiver and purpose, or refuse.

    ``room`` is memory to decrypt into, for many messages of one length: fresh pages cost more than the cipher.
    """
    cipher = AESGCM(shared_key(sender_key, *purpose, salt))
    try:
        if room is None or len(room) != len(ciphertext) - _TAG_BYTES:
            return cipher.decrypt(_NONCE, ciphertext, None)
        cipher.decrypt_into(_NONCE, ciphertext, None, room)
    except (InvalidTag, ValueError):
        raise ProtocolError("a sealed fragment that was altered, or was meant for another place") from None
    return memoryview(room)


# --- Keys ------------------------------------------------------------------------------------------------------------------
# Keys that parties exchange once per study, and what they seal for each other with them.


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
        for node, part in zip(nodes, split(vector, len(nodes), secret), strict=True):
            place = purpose(quantity, context, context.name, node.name)
            salt, text = seal(context.shared_key, node.agreement, place, part, secret)
            sealed.append(Sealed(node.name, text, salt))
        return tuple(sealed)

    return FragmentReply(context.release(quantity.name, Summand(quantity.own(context, request.settings), sealed_for_nodes)))


def unsealed(quantity: Quantity, context: Context, request: TotalRequest, size: int) -> Generator[Buffer]:
    """Yield the fragments that the participants sealed for this party, one after the other."""
    if len(request.sealed) != len(request.participants):
        raise ProtocolError("a total needs one sealed fragment of each participant")
    room = bytearray(8 * size)
    for member, sealed in zip(request.participants, request.sealed, strict=True):
        sender = checked(context.plan, member)
        place = purpose(quantity, context, sender.name, context.name)
        yield unseal(context.shared_key, sender.agreement, place, sealed.salt, sealed.ciphertext, room)


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
