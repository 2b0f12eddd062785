"""Long ciphertext in messages, which transcripts keep as digests: a party makes the same bytes again from its rows, key and plan.

Only steps that say so (:attr:`~unpooled.protocol.step.Step.bulky`) have it: the masked rows of joint moments and the proofs about them.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from unpooled.protocol.messages import Masked, Sealed, digest, encode, open_body, open_envelope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Ciphertext beyond this many bytes is kept as its digest, behind this mark.
_LONGEST, _MARK = 4096, b"sha256:"


class Shortening(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The digests and lengths that an exchange had before its ciphertext was left out: of the request, and of the reply's body."""

    request: bytes
    body: bytes
    sent: int
    received: int


class ShortReply(bytes):
    """A recorded reply whose ciphertext was left out."""

    shortening: Shortening

    @classmethod
    def of(cls, reply: bytes, shortening: Shortening) -> ShortReply:
        """Return a reply with what it had before."""
        found = cls(reply)
        found.shortening = shortening
        return found


def shortening_of(request: bytes, reply: bytes) -> Shortening:
    """Return the digests and lengths of an exchange."""
    body = bytes(open_envelope(reply).body)
    return Shortening(digest(request), digest(body), len(request), len(reply))


def shortened(message: bytes, kind: type[msgspec.Struct]) -> bytes:
    """Return the bytes of a message with digests in the place of long ciphertext; once more it stays what it is."""
    return _with_parts(message, kind, _short)


def whole(message: bytes, kind: type[msgspec.Struct], find: Callable[[bytes], bytes]) -> bytes:
    """Return the bytes of a message with the ciphertext that ``find`` gives for each digest in it."""

    def filled(part: Masked | Sealed) -> Masked | Sealed:
        if not _is_mark(part.ciphertext):
            return part
        return msgspec.structs.replace(part, ciphertext=find(part.ciphertext))

    return _with_parts(message, kind, filled)


def marks(message: bytes, kind: type[msgspec.Struct]) -> list[bytes]:
    """Return the digests that stand for ciphertext in a message."""
    return [part.ciphertext for part in parts(open_body(open_envelope(message), kind)) if _is_mark(part.ciphertext)]


def ciphertexts(message: bytes, kind: type[msgspec.Struct]) -> dict[bytes, bytes]:
    """Return the long ciphertexts of a message by their digests."""
    held = (part.ciphertext for part in parts(open_body(open_envelope(message), kind)))
    return {_mark_of(text): text for text in held if len(text) > _LONGEST}


def parts(body: msgspec.Struct) -> Iterator[Masked | Sealed]:
    """Yield the ciphertexts of a message's body."""
    for name in body.__struct_fields__:
        value = getattr(body, name)
        yield from (one for one in (value if isinstance(value, tuple) else (value,)) if isinstance(one, Masked | Sealed))


def _with_parts(message: bytes, kind: type[msgspec.Struct], made: Callable[[Any], Any]) -> bytes:
    envelope = open_envelope(message)
    body = open_body(envelope, kind)
    fields = {}
    for name in body.__struct_fields__:
        value = getattr(body, name)
        if isinstance(value, Masked | Sealed):
            fields[name] = made(value)
        elif isinstance(value, tuple):
            fields[name] = tuple(made(one) if isinstance(one, Masked | Sealed) else one for one in value)
    new = msgspec.structs.replace(body, **fields)
    sign = (lambda _: envelope.signature) if envelope.signature else None
    return encode(envelope.plan, envelope.step, envelope.index, new, sign)


def _short(part: Masked | Sealed) -> Masked | Sealed:
    if len(part.ciphertext) <= _LONGEST:
        return part
    return msgspec.structs.replace(part, ciphertext=_mark_of(part.ciphertext))


def _mark_of(ciphertext: bytes) -> bytes:
    return _MARK + hashlib.sha256(ciphertext).digest()


def _is_mark(ciphertext: bytes) -> bool:
    return len(ciphertext) == len(_MARK) + hashlib.sha256().digest_size and ciphertext.startswith(_MARK)
