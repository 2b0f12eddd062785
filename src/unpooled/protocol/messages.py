"""Everything that can travel between a coordinator and a party, and the strict codec that refuses the rest.

A reply is a frozen struct whose every field is one of

* :class:`Public`: follows from the plan and public counts, the same for neighbouring data;
* :class:`Released`: went through a mechanism of the plan and the ledger;
* :class:`Signed`: a signature under released values;
* :class:`Sealed`: ciphertext for one named node;
* :class:`Masked`: rows under a mask, for one named party, in a plan of joint moments;
* :class:`Commitment`: a digest under a blind, by which members agree on what they saw, in a plan of joint moments;
* :class:`Partial`: a node's part of a total that the plan releases, uniform without the other nodes' parts;
* :class:`Entrusted`: plain, for a named role that the policy trusts;
* :class:`Disclosed`: columns declared public in the study;
* :class:`Pseudonyms`: of rows, in a plan that links rows between parties.

The codec checks this when a message type is registered, and the party checks that each ``Released`` was issued by its own
ledger. Arrays are raw bytes with dtype and shape; there is no pickle, no unknown key, no unknown version.
"""

from __future__ import annotations

import hashlib
import math
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
import numpy as np

from unpooled.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Version of the wire format; another one is refused.
WIRE_VERSION = 2
#: Larger messages are refused before they are parsed.
SIZE_LIMIT = 1 << 31

_DTYPES = frozenset({"<i8", "<i4", "<u8", "<f8", "<f4", "|u1"})
#: Dimensions of an array, and how deep the free content of a message (a study's parameters) may nest. Real ones have 2 and 3.
_DIMENSIONS, _DEPTH = 8, 16
#: What a decoder raises for bytes that somebody made up; the last where they nest deeper than the interpreter's stack.
UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)

T = TypeVar("T")


class Array(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An array as dtype, shape and raw little-endian bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def __post_init__(self) -> None:
        if self.dtype not in _DTYPES:
            raise ValueError("an array of a dtype that may not travel")
        # Few factors, each of at most 2^31: whatever a stranger writes there, the products below are cheap.
        if len(self.shape) > _DIMENSIONS or not all(0 <= n <= SIZE_LIMIT for n in self.shape):
            raise ValueError("an array of more dimensions than any message has, or of sizes that are none")
        items = math.prod(n for n in self.shape if n)  # NumPy multiplies these even where another size is 0
        empty = 0 in self.shape
        if items > SIZE_LIMIT or (0 if empty else items) * np.dtype(self.dtype).itemsize != len(self.data):
            raise ValueError("an array whose bytes do not match its shape")

    @classmethod
    def of(cls, array: np.ndarray[Any, Any]) -> Array:
        """Pack a numpy array."""
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        return cls(little.dtype.str, array.shape, little.tobytes())

    def numpy(self) -> np.ndarray[Any, Any]:
        """Unpack, read-only, without a copy."""
        return np.frombuffer(self.data, dtype=self.dtype).reshape(self.shape)


class Public(msgspec.Struct, Generic[T], frozen=True, forbid_unknown_fields=True):
    """A value that follows from the plan alone: equal for neighbouring data sets (the replay audit checks it)."""

    value: T


class Released(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Values that a mechanism of the plan made public. Only a party's ledger-backed context issues these."""

    name: str
    index: int
    values: Array


class Sealed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ciphertext that only the named node can open; ``salt`` is a public part of its key's derivation."""

    node: str
    ciphertext: bytes
    salt: bytes = b""


class Masked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A party's rows plus a mask that only it and one helper know, sealed for one named party: without the mask's seed they are uniform words."""

    node: str
    ciphertext: bytes
    salt: bytes


class Commitment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A digest that fixes what members saw, or a signature under such digests: all that it depends on is uniform, or blinded by what nobody else has."""

    value: str


class Partial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One node's part of a total, modulo 2^64: uniform, unless all nodes' parts are put together to what the plan releases."""

    name: str
    index: int
    values: Array


class Signed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A party's signature under values that it released in the same reply, for others to check."""

    identity: str
    signature: str


class Entrusted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Values in the clear for a named trusted role; the plan lists them and the policy may refuse."""

    role: str
    values: Array


class Disclosed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Columns that the study declares public, as they are."""

    columns: tuple[str, ...]
    values: Array


#: Bytes of a pseudonym.
PSEUDONYM = 16


class Pseudonyms(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Pseudonyms of a party's rows, sorted, without meaning outside one plan: only where the plan links rows between parties."""

    values: bytes

    def split(self) -> list[bytes]:
        """Return the pseudonyms as a list of 16-byte values."""
        return [self.values[k : k + PSEUDONYM] for k in range(0, len(self.values), PSEUDONYM)]


WRAPPERS: tuple[type, ...] = (
    Public,
    Released,
    Signed,
    Sealed,
    Masked,
    Commitment,
    Partial,
    Entrusted,
    Disclosed,
    Pseudonyms,
)
#: What only a party's context hands out, after plan and ledger were asked.
ISSUED: tuple[type, ...] = (Released, Signed, Sealed, Masked, Commitment, Partial, Pseudonyms)
#: What may stand inside Public: small plain values, no arrays and no bytes.
_PLAIN = (int, float, str, bool)


class Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The outer layer of every message: which plan, step and index it belongs to, its encoded body, and of a reply its party's signature."""

    version: int
    plan: str
    step: str
    index: int
    body: msgspec.Raw
    #: Of a party whose card carries a key: over :func:`reply_parts`. It stays in the transcript.
    signature: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of a coordinator: a step of a party, with a payload of already public values."""

    to: str
    step: str
    payload: msgspec.Struct
    index: int = 0
    deadline: float = 600.0


@dataclass(frozen=True, slots=True)
class Dropped:
    """Stands in the place of a reply that did not come in time."""

    party: str
    reason: str


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The payload of a request that needs no more than its name."""


def check_reply_type(kind: type[msgspec.Struct]) -> None:
    """Refuse a message type with a field that is not one of the wrappers, or with more than plain values in Public."""
    for field in msgspec.structs.fields(kind):
        for part in _members(field.type):
            origin = typing.get_origin(part) or part
            if origin not in WRAPPERS:
                msg = f"{kind.__name__}.{field.name} may leave a party but is not Public, Released, Signed, Sealed, Masked, Commitment, Partial, Entrusted, Disclosed or Pseudonyms"
                raise ProtocolError(msg)
            if origin is Public and not _is_plain(typing.get_args(part)):
                msg = f"{kind.__name__}.{field.name}: Public holds plain numbers and words only, never arrays"
                raise ProtocolError(msg)
    if not kind.__struct_config__.frozen or not kind.__struct_config__.forbid_unknown_fields:
        msg = f"{kind.__name__} must be frozen and forbid unknown fields"
        raise ProtocolError(msg)


def _members(kind: Any) -> tuple[Any, ...]:  # noqa: ANN401 - any annotation
    """Return the item types of ``tuple[X, ...]``, else the type itself."""
    if typing.get_origin(kind) is tuple:
        return tuple(a for a in typing.get_args(kind) if a is not Ellipsis)
    return (kind,)


def _is_plain(arguments: tuple[Any, ...]) -> bool:
    return bool(arguments) and all(part in _PLAIN for a in arguments for part in _members(a))


_encoder = msgspec.msgpack.Encoder(enc_hook=lambda value: _refuse(value))  # noqa: PLW0108 - defined below
_envelopes = msgspec.msgpack.Decoder(Envelope, strict=True)


def _refuse(value: object) -> object:
    msg = f"a bare {type(value).__name__} may not travel: put it through a release first"
    raise ProtocolError(msg)


def encode(plan: str, step: str, index: int, body: msgspec.Struct, sign: Callable[[Envelope], str] | None = None) -> bytes:
    """Return the bytes of one message; ``sign`` makes the signature of a reply."""
    envelope = Envelope(WIRE_VERSION, plan, step, index, msgspec.Raw(_encoder.encode(body)))
    return _encoder.encode(envelope if sign is None else msgspec.structs.replace(envelope, signature=sign(envelope)))


def reply_parts(envelope: Envelope, party: str, request: bytes) -> tuple[bytes, ...]:
    """Return what a party signs under a reply: plan, step, index, its own name, the request and the body."""
    return reply_digests(envelope, party, digest(request), digest(bytes(envelope.body)))


def reply_digests(envelope: Envelope, party: str, request: bytes, body: bytes) -> tuple[bytes, ...]:
    """Return the same from the digests of request and body."""
    place = (envelope.plan.encode(), envelope.step.encode(), str(envelope.index).encode())
    return (b"reply", *place, party.encode(), request, body)


def open_envelope(blob: bytes, limit: int = SIZE_LIMIT) -> Envelope:
    """Return the outer layer of a message, after its size and version were checked."""
    if len(blob) > limit:
        msg = f"a message of {len(blob)} bytes exceeds the limit of {limit}"
        raise ProtocolError(msg)
    try:
        envelope = _envelopes.decode(blob)
    except UNREADABLE as error:
        msg = f"a message that cannot be read: {type(error).__name__}"
        raise ProtocolError(msg) from None
    if envelope.version != WIRE_VERSION:
        msg = f"a message of wire version {envelope.version}, where this program speaks {WIRE_VERSION}: use equal versions"
        raise ProtocolError(msg)
    return envelope


def open_body(envelope: Envelope, kind: type[T]) -> T:
    """Return the body of a message as the type that its step declares."""
    try:
        body = msgspec.msgpack.decode(envelope.body, type=kind, strict=True)
    except UNREADABLE as error:
        msg = f"the body of step {envelope.step[:_WORDS]!r} is not a {kind.__name__}: {type(error).__name__}"
        raise ProtocolError(msg) from None
    if _nests_deeply(body):
        msg = f"the body of step {envelope.step[:_WORDS]!r} nests deeper than {_DEPTH}: no study's parameters do"
        raise ProtocolError(msg)
    return body


def _nests_deeply(body: object) -> bool:
    """Return True if free content nests so deep that a walk through it could run out of stack. Typed content has its type's depth."""
    level: list[object] = [body]
    for _ in range(_DEPTH):
        inner: list[object] = []
        for value in level:
            if isinstance(value, msgspec.Struct):
                inner += [v for name in value.__struct_fields__ if isinstance(v := getattr(value, name), _NESTING)]
            else:
                items = value.values() if isinstance(value, dict) else value
                inner += [v for v in items if isinstance(v, dict | list)]  # type: ignore[attr-defined]
        if not inner:
            return False
        level = inner
    return True


#: What may hold free content: tuples never do.
_NESTING = (msgspec.Struct, dict, list)
#: So much of a stranger's word goes into a message.
_WORDS = 100


def encode_content(content: object) -> bytes:
    """Canonical bytes of plain content (a stored release, a study)."""
    return _encoder.encode(content)


def digest(*parts: bytes) -> bytes:
    """Return SHA-256 of length-prefixed parts."""
    total = hashlib.sha256()
    for part in parts:
        total.update(len(part).to_bytes(8, "big"))
        total.update(part)
    return total.digest()


# --- Shortened -------------------------------------------------------------------------------------------------------------
# Long ciphertext in messages, which transcripts keep as digests: a party makes the same bytes again from its rows, key and plan.
#
# Only steps that say so (:attr:`~unpooled.protocol.registry.Step.bulky`) have it: the masked rows of joint moments and the proofs about them.

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
