"""Everything that may travel for a total: keys, sealed summands, agreements on participants, parts of a total, released totals."""

from __future__ import annotations

import msgspec

from unpooled.protocol.messages import Partial, Public, Released, Sealed


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A party's key for one plan, signed by the identity that its card pins."""

    name: str
    agreement: str
    identity: str
    signature: str


class KeyReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The same, as the party sends it."""

    agreement: Public[str]
    identity: Public[str]
    signature: Public[str]


class FragmentRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The nodes to encrypt for, and public settings of the statistic."""

    nodes: tuple[Member, ...]
    settings: tuple[float, ...] = ()


class FragmentReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One sealed fragment per node."""

    fragments: tuple[Sealed, ...]


class AgreeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose fragments arrived."""

    participants: tuple[str, ...]


class AgreeReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node's signature under the one set of participants that it will add up."""

    signature: Public[str]


class TotalRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The sealed fragments of the participants for this node; every node's signature (secure sums); settings (trusted sums)."""

    participants: tuple[Member, ...]
    sealed: tuple[Sealed, ...]
    nodes: tuple[Member, ...] = ()
    signatures: tuple[str, ...] = ()
    settings: tuple[float, ...] = ()


class TotalReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node's part of the total."""

    part: Partial


class LocalRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Public settings of the statistic."""

    settings: tuple[float, ...] = ()


class NoisyReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A released total: of all parties (trusted) or of one (local)."""

    total: Released
