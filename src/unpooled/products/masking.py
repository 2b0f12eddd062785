"""The steps in which masked rows travel: all messages of joint sums, the place of every block, and how a block is masked, proved, evaluated and judged."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from unpooled.errors import DataError, PlanMismatch, ProtocolError
from unpooled.privacy import places
from unpooled.privacy.masks import SEED_BYTES, length_prefixed
from unpooled.privacy.table import HeldPlaces
from unpooled.products.prover import evaluate, judge, prove
from unpooled.products.short_rows import Evaluation, ProofPlace, ToHelper, ToJudge
from unpooled.products.sums import Spot
from unpooled.protocol.context import Receiver
from unpooled.protocol.messages import Array, Commitment, Masked, Public, Sealed
from unpooled.totals.secure_sum import checked, residues, unseal
from unpooled.totals.total import Member

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.privacy.plan import Plan
    from unpooled.products.short_rows import BlockShape
    from unpooled.products.sums import Joint, Side
    from unpooled.protocol.context import Context


# --- Messages --------------------------------------------------------------------------------------------------------------
# Everything that travels for joint moments: masked rows, proofs, evaluations, verdicts, and the request for a member's share.


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


# --- Places ----------------------------------------------------------------------------------------------------------------
# The place of one block of masked rows in a study, as its messages, masks and proofs name it; and the digest of everything that was accepted.


def legs_of(design: Joint, number: int = 0) -> tuple[tuple[Side, int], ...]:
    """Return everything that travels in a round, block by block: the sides in order, and of each the parts of its sender."""
    parts = design.rounds[number].shape.parts
    return tuple((side, at) for side in design.sides for at, part in enumerate(parts) if part.party == side.sender)


def spots_of(design: Joint, number: int = 0) -> tuple[Spot, ...]:
    """Return all blocks of this round: part by part, and block by block within each."""
    shape = design.rounds[number].shape
    return tuple(
        Spot(number, leg, design.side_at(side, first), at, shape.parts[at], block, first, last)
        for leg, (side, at) in enumerate(legs_of(design, number))
        for block, (first, last) in enumerate(shape.row_blocks)
    )


def blocks_before(design: Joint, number: int) -> int:
    """Return the number of blocks that travel in all rounds before this one."""
    return sum(len(legs_of(design, k)) * len(design.rounds[k].shape.row_blocks) for k in range(number))


def times(plan: Plan[Joint]) -> int:
    """Return the number of requests that a step for single blocks may get: none in a plan of the same model without joint sums."""
    return blocks_before(plan.design, len(plan.design.rounds)) if plan.joint else 0


def once(plan: Plan[Joint]) -> int:
    """Return the number of requests that a step of the whole sum may get: one a round, or none in a plan without joint sums."""
    return len(plan.design.rounds) if plan.joint else 0


def times_of(plan: Plan[Joint], name: str) -> int:
    """Return the same of the steps of one release."""
    return sum(one.name == name for one in plan.design.rounds) if plan.joint else 0


def spot_of(context: Context[Joint], role: str) -> Spot:
    """Return the block that a request is about; refused unless this member has this role (sender, receiver or helper) in it."""
    left = context.index
    for number in range(len(context.design.rounds)):
        spots = spots_of(context.design, number)
        if left < len(spots):
            break
        left -= len(spots)
    else:
        raise PlanMismatch("the plan has no such block")
    spot = spots[left]
    if getattr(spot.side, role) != context.name:
        msg = f"{context.name!r} is not the {role} of this block in the plan"
        raise PlanMismatch(msg)
    return spot


def receiver(context: Context[Joint], member: Member, name: str) -> Receiver:
    """Return the key of a member whose name the plan says, after its signature was checked."""
    if member.name != name:
        msg = f"the request names {member.name!r} where the plan has {name!r}"
        raise PlanMismatch(msg)
    return Receiver(name, checked(context.plan, member).agreement)


def theta(digests: Sequence[str]) -> bytes:
    """Return one digest of the digests of all blocks."""
    return hashlib.sha256("\n".join(digests).encode()).digest()


def verdict_parts(plan: Plan[Joint], number: int, digests: Sequence[str]) -> tuple[bytes, ...]:
    """Return the parts that a party signs who accepts every block that it received in a round: the plan, the round, all members and all blocks."""
    names = (name.encode() for name in plan.design.aggregation.parties)
    return (b"joint verdict", b"accept", plan.hash.encode(), str(number).encode(), *names, theta(digests))


# --- Masking ---------------------------------------------------------------------------------------------------------------
# The steps in which masked rows travel: a sender masks and proves one block, its helper evaluates the proof, its receiver judges it.
#
# Each step is asked once for every block of every side. A member keeps what it was sent first; another message for the same block is refused.

T = TypeVar("T")

#: The names under which a sender keeps the seeds of its masks, a helper those that it was sent, a receiver masked rows, and both digests of blocks.
OWN_SEED, HELD_SEED, ROWS, DIGEST = "joint_own", "joint_seed", "joint_rows", "joint_digest"
#: The name under which a sender keeps the digest of the data whose rows it masked, and the coefficients of a round.
DATA, AT = "joint_data", "joint_at"
#: No coefficient is larger: beyond it a sum over columns could lose the meaning of a number.
_LARGEST = 2.0**40
#: What a digest of a block is where its rows were not accepted.
_REJECTED = "rejected"


class _Proof(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The prover's message to the judge as bytes."""

    blind: bytes
    helper_digest: bytes
    roots: Array
    bits: Array
    halvings: Array
    last: Array


class _Seeds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The seeds of a block for its helper: of the masks; and, with a proof, of its shares and the digests that fix the coins."""

    mask: bytes
    shares: bytes = b""
    digests: bytes = b""


class _Opened(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The helper's numbers as bytes."""

    opened: Array
    helper_digest: bytes
    coin: bytes


def shape_of(spot: Spot) -> BlockShape:
    """Return the size of a block, and the bound on its rows, as the proof names them."""
    return spot.part.block(spot.last - spot.first)


def foreign_of(context: Context[Any], spot: Spot) -> NDArray[np.uint64] | None:
    """Return which places of a block are not the sender's, as the link gave them out; None where rows have no places."""
    if spot.part.own is None:
        return None
    found = given_to(context, spot)
    if found is None:
        raise PlanMismatch("this member does not know the places of the hidden link that the study rests on")
    begin = context.design.begins(spot)
    return places.foreign_of(found, spot.first - begin, spot.last - begin)


def given_to(context: Context[Any], spot: Spot) -> NDArray[np.int64] | None:
    """Return the places of its array that the sender of a block was given, as this member knows them: the sender itself, or the helper that gave them."""
    sender, other = spot.side.sender, spot.side.receiver
    if context.name == sender:
        own = context.design.placed(context, spot)
        return None if own is None else own.places.given
    if isinstance(context.table, HeldPlaces):
        return context.table.given.get((sender, other))
    link = context.plan.study.linked
    if not context.has(places.NAMES, link):
        return None
    names = context.kept(places.NAMES, link).astype(np.uint8).tobytes().decode().split("\n")
    hub = context.design.hub
    arrays = [name for name in names if name != hub] if hub else [""]
    whose = (other if sender == hub else sender) if hub else ""
    if sender not in names or whose not in arrays:
        return None
    kept = places.set_of(names.index(sender), arrays.index(whose))
    return context.kept(kept, link).astype(np.int64) if context.has(kept, link) else None


def place_of(context: Context[Joint], spot: Spot) -> ProofPlace:
    """Return the place of a block's proof."""
    return ProofPlace(context.plan.hash, str(context.plan.study.run), *spot.side, spot.block, spot.part.name, spot.round)


# --- at the sender -------------------------------------------------------------------------------------------------------


def mask(context: Context[Joint], request: MaskRequest) -> MaskReply:
    """Return one block of rows under a mask for its receiver, the proof that they are short, and the seeds for the helper."""
    spot = spot_of(context, "sender")
    to = receiver(context, request.receiver, spot.side.receiver)
    helper = receiver(context, request.helper, spot.side.helper)
    check_data(context)  # first: a refusal keeps nothing
    _check_at(context, spot, request.at)
    rows = context.design.block(context, spot)
    masked, seed = context.mask(rows, to, helper, *spot.place())
    proof, seeds = b"", _Seeds(seed)
    if context.design.proved:
        secret = hashlib.sha256(length_prefixed(context.secret(b"joint proof"), to.agreement, helper.agreement)).digest()
        foreign = foreign_of(context, spot)
        to_judge, to_helper = prove(place_of(context, spot), shape_of(spot), rows, seed, secret, foreign)
        parts = (Array.of(part) for part in (to_judge.roots, to_judge.bits, to_judge.halvings, to_judge.last))
        proof = msgspec.msgpack.encode(_Proof(to_judge.blind, to_judge.helper_digest, *parts))
        seeds = _Seeds(seed, to_helper.seed, to_helper.digests)
    context.keep(f"{OWN_SEED}_{spot.key}", np.frombuffer(seed, dtype=np.uint8))
    context.keep(DATA, np.frombuffer(context.table.digest, dtype=np.uint8))
    place = spot.place()
    return MaskReply(
        masked,
        context.seal_for(to, proof, b"proof", *place),
        context.seal_for(helper, msgspec.msgpack.encode(seeds), b"seeds", *place),
    )


def check_data(context: Context[Joint]) -> None:
    """Refuse data other than those of the rows that were masked first: the difference of two would show under a receiver's own weights."""
    if context.has(DATA) and not np.array_equal(context.kept(DATA), np.frombuffer(context.table.digest, dtype=np.uint8)):
        raise DataError(
            "the data have changed since their rows were masked: raise `run` in the study and have it approved again"
        )


def _check_at(context: Context[Joint], spot: Spot, at: tuple[float, ...]) -> None:
    """Keep the public coefficients of a round that a party is asked for first; refuse others, and those of another number or without a value."""
    found = np.array(at, dtype=float)
    if found.size != context.design.rounds[spot.round].shape.settings or not (np.abs(found) <= _LARGEST).all():
        raise ProtocolError("the coefficients of a round are finite numbers, one for every column and the constant")
    _keep_first(context, f"{AT}_{spot.round}", found)


# --- at the helper -------------------------------------------------------------------------------------------------------


def evaluated(context: Context[Joint], request: EvaluateRequest) -> EvaluateReply:
    """Return the helper's numbers of one block's proof, for the receiver; the seeds are kept for its share of the total."""
    spot = spot_of(context, "helper")
    sender = receiver(context, request.sender, spot.side.sender)
    to = receiver(context, request.receiver, spot.side.receiver)
    place = spot.place()
    seeds = _read(_unsealed(context, sender, request.seeds, (b"sealed", b"seeds", *place)), _Seeds)
    if len(seeds.mask) != SEED_BYTES:
        raise ProtocolError("a seed of masks that is not 32 bytes")
    content, digest = b"", _digest(context, spot)
    if context.design.proved:
        message = ToHelper(seeds.shares, seeds.digests)
        found = evaluate(place_of(context, spot), shape_of(spot), seeds.mask, message, foreign_of(context, spot))
        content = msgspec.msgpack.encode(_Opened(Array.of(found.opened), found.helper_digest, found.coin))
        digest = _digest(context, spot, seeds.digests[:SEED_BYTES], found.helper_digest, found.coin)
    _keep_first(context, f"{HELD_SEED}_{spot.key}", np.frombuffer(seeds.mask, dtype=np.uint8))
    _keep_first(context, f"{DIGEST}_{spot.key}", _as_array(digest))
    return EvaluateReply(context.seal_for(to, content, b"evaluation", *place), context.commit(digest))


# --- at the receiver -----------------------------------------------------------------------------------------------------


def judged(context: Context[Joint], request: JudgeRequest) -> JudgeReply:
    """Return the receiver's decision about one block; its masked rows are kept for the receiver's share of the total."""
    spot = spot_of(context, "receiver")
    sender = receiver(context, request.sender, spot.side.sender)
    helper = receiver(context, request.helper, spot.side.helper)
    shape, place = shape_of(spot), spot.place()
    raw = _unsealed(context, sender, request.rows, (b"masked", *place))
    if len(raw) != 8 * shape.rows * shape.columns:
        raise ProtocolError("masked rows of another size than the plan has")
    rows = residues(np.frombuffer(raw, dtype="<u8")).reshape(shape.rows, shape.columns)
    accepted, digest = True, _digest(context, spot)
    if context.design.proved:
        sent = _read(_unsealed(context, sender, request.proof, (b"sealed", b"proof", *place)), _Proof)
        opened = _read(_unsealed(context, helper, request.evaluation, (b"sealed", b"evaluation", *place)), _Opened)
        parts = (_words(part) for part in (sent.roots, sent.bits, sent.halvings, sent.last))
        to_judge = ToJudge(sent.blind, sent.helper_digest, *parts)
        evaluation = Evaluation(_words(opened.opened), opened.helper_digest, opened.coin)
        verdict = judge(place_of(context, spot), shape, rows, to_judge, evaluation)
        accepted = verdict.accepted
        digest = _digest(context, spot, verdict.judge_digest, verdict.helper_digest, verdict.coin)
    _keep_first(context, f"{ROWS}_{spot.key}", rows)
    _keep_first(context, f"{DIGEST}_{spot.key}", _as_array(digest if accepted else _REJECTED))
    return JudgeReply(Public(accepted), context.commit(digest))


def kept_digest(context: Context[Joint], spot: Spot) -> str:
    """Return the digest of a block that this member saw and accepted; refused where there is none."""
    name = f"{DIGEST}_{spot.key}"
    found = bytes(context.kept(name)).decode() if context.has(name) else ""
    if found in {"", _REJECTED}:
        side = spot.side
        msg = (
            f"the proof of {side.sender!r} to {side.receiver!r} with helper {side.helper!r} was not accepted: nothing is opened in this run"
            if found
            else f"block {spot.block} of {side.sender!r} for {side.receiver!r} has not arrived: nothing is opened without it"
        )
        raise ProtocolError(msg)
    return found


# --- helpers -------------------------------------------------------------------------------------------------------------


def _digest(context: Context[Joint], spot: Spot, *parts: bytes) -> str:
    """Return the digest of one block: its place, its shape, and the blinded digests and the last coin of its proof."""
    shape = shape_of(spot)
    text = length_prefixed(place_of(context, spot).bytes(), shape.bytes(), *parts)
    return hashlib.sha256(text).hexdigest()


def _unsealed(context: Context[Joint], sender: Receiver, sealed: Masked | Sealed, place: tuple[bytes, ...]) -> bytes:
    purpose = (*place, sender.name.encode(), context.name.encode())
    return bytes(unseal(context.shared_key, sender.agreement, purpose, sealed.salt, sealed.ciphertext))


def _read(raw: bytes, kind: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(raw, type=kind, strict=True)
    except (msgspec.MsgspecError, ValueError):
        msg = f"a sealed message that is not a {kind.__name__.strip('_')}"
        raise ProtocolError(msg) from None


def _words(part: Array) -> NDArray[np.uint64]:
    if part.dtype != "<u8":
        raise ProtocolError("words of a proof that are not unsigned")
    return part.numpy().astype(np.uint64)


def _as_array(digest: str) -> NDArray[np.uint8]:
    return np.frombuffer(digest.encode(), dtype=np.uint8)


def _keep_first(context: Context[Joint], name: str, values: NDArray[np.generic]) -> None:
    """Keep what was sent first for a block; a second message that differs is refused."""
    if not context.has(name):
        context.keep(name, values)
    elif not np.array_equal(context.kept(name), values):
        raise ProtocolError("another message for this block or round was answered before: the first one counts")
