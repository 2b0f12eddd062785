"""Everything that travels in a hidden link, in addition to what travels in every one: signed commitments, sealed lists for the helper, signed verdicts."""

from __future__ import annotations

import msgspec

from unpooled.linkage.messages import Hello
from unpooled.protocol.messages import Public, Sealed


class Committed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The digests by which a party commits itself to what it will send, under its signature."""

    party: str
    digests: tuple[str, ...]
    signature: str


class CommittedReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The same, as the party sends it."""

    digests: tuple[Public[str], ...]
    signature: Public[str]


class CommittedRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The commitments of all parties: nothing is opened before."""

    committed: tuple[Committed, ...]


class MatchRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first messages of all members, and the lists of pseudonyms that the parties sealed for the helper, in their order."""

    hellos: tuple[Hello, ...]
    lists: tuple[Sealed, ...]


class PlacesRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The places that the helper sealed for this party."""

    places: Sealed


class Matched(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sealed by the helper for a party: its places in every array that it is in, the digests of all lists, and a signature under these."""

    places: tuple[bytes, ...]
    lists: tuple[bytes, ...]
    signature: str


class ShownMarks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What two parties show each other of their common array: the places of their marked entries, and what blinded the commitment to them."""

    blind: bytes
    places: bytes


class LinkVerdictReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A party's signature under the link that it accepts, and the name of it."""

    name: Public[str]
    signature: Public[str]


class LinkVerdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The signature of one party under the link that it accepts."""

    party: str
    signature: str


class LinkVerdictsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The verdicts of all parties."""

    verdicts: tuple[LinkVerdict, ...]


class NameReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The name of the places that this party keeps."""

    name: Public[str]
