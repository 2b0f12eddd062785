"""Everything that travels for joint moments: masked rows, proofs, evaluations, verdicts, and the request for a member's share."""

from __future__ import annotations

import msgspec

from unpooled.aggregation.messages import Member
from unpooled.protocol.messages import Commitment, Masked, Public, Sealed


class MaskRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The receiver of one block of masked rows, the helper who knows the masks, and the public coefficients of the round, where it has some."""

    receiver: Member
    helper: Member
    at: tuple[float, ...] = ()


class MaskReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Masked rows and the proof that they are short, for the receiver; the seeds of masks and proof, for the helper."""

    rows: Masked
    proof: Sealed
    seeds: Sealed


class EvaluateRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The seeds of one block, from its sender, and the party that judges the proof."""

    sender: Member
    receiver: Member
    seeds: Sealed


class EvaluateReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The helper's numbers of the proof, for the judge; and the digest of the block as the helper saw it."""

    evaluation: Sealed
    digest: Commitment


class JudgeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that a judge gets about one block."""

    sender: Member
    helper: Member
    rows: Masked
    proof: Sealed
    evaluation: Sealed


class JudgeReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The judge's answer on one block: True if its rows are short, and the digest of the block as the judge saw it."""

    accepted: Public[bool]
    digest: Commitment


class VerdictRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The digests of all blocks of a round, in order."""

    digests: tuple[str, ...]


class VerdictReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A judge's signature under its acceptance of every block that it received, and under the digest of all blocks."""

    signature: Commitment


class ShareRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The nodes to encrypt for; the digests of all blocks, and the verdict of every party over them."""

    nodes: tuple[Member, ...]
    digests: tuple[str, ...]
    judges: tuple[Member, ...]
    verdicts: tuple[str, ...]
