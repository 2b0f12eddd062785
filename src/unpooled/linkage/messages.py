"""Everything that travels while rows are linked: signed commitments, sealed lists, pseudonyms, and sealed digests of what came back."""

from __future__ import annotations

import msgspec

from unpooled.protocol.messages import Pseudonyms, Public, Sealed


class Hello(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first message of a party in a pass: its key for sealed messages and the digest of the list that it will send, under its signature."""

    party: str
    agreement: str
    commitment: str
    signature: str


class HelloReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The same, as the party sends it."""

    agreement: Public[str]
    commitment: Public[str]
    signature: Public[str]


class Relayed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something sealed by one party for another one, as the coordinator passes it on; ``owner`` is whose list it is."""

    owner: str
    sender: str
    ciphertext: bytes
    salt: bytes


class HellosRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first messages of all parties: no list is sent before."""

    hellos: tuple[Hello, ...]


class RelayedRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sealed messages for this party."""

    relayed: tuple[Relayed, ...]


class SealedReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sealed messages for other parties."""

    sealed: tuple[Sealed, ...]


class RowsReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The pseudonyms of a party's rows, for the coordinator."""

    rows: Pseudonyms


class ReturnRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The pseudonyms that all parties sent."""

    rows: bytes


class MapReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The number of people that all parties have so far, and the name of the row map."""

    rows: Public[int]
    digest: Public[str]
