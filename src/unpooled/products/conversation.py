"""The conversation that leads to a joint sum: masked rows block by block, verdicts, shares, and the opened total."""

from __future__ import annotations

import hmac
import itertools
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import PlanMismatch, ProtocolError, StudyAborted
from unpooled.kernels import field
from unpooled.privacy.masks import masks
from unpooled.privacy.mechanisms import Summand
from unpooled.products.masking import (
    HELD_SEED,
    OWN_SEED,
    ROWS,
    EvaluateReply,
    EvaluateRequest,
    JudgeReply,
    JudgeRequest,
    MaskReply,
    MaskRequest,
    ShareRequest,
    VerdictReply,
    VerdictRequest,
    blocks_before,
    check_data,
    evaluated,
    judged,
    kept_digest,
    mask,
    once,
    spots_of,
    times,
    times_of,
    verdict_parts,
)
from unpooled.products.sums import CONSTANT_STEPS, JOINT
from unpooled.protocol.conversation import everybody
from unpooled.protocol.identity import verify
from unpooled.protocol.messages import Ask, Sealed
from unpooled.protocol.registry import Step
from unpooled.totals import modes as distributed
from unpooled.totals import secure_sum
from unpooled.totals.secure_sum import check_sealed, checked, purpose
from unpooled.totals.total import FragmentReply, Quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.privacy.plan import Plan
    from unpooled.products.sums import Joint, ProductShape, Spot
    from unpooled.protocol.context import Context
    from unpooled.protocol.registry import Replies
    from unpooled.totals.total import Member, Total

    Words = NDArray[np.uint64]
    Ints = NDArray[np.int64]


# --- Sharing ---------------------------------------------------------------------------------------------------------------
# The steps that open a total: every judge signs its verdict, every member gives its share against all verdicts, nodes add up.


def _none(context: Context, settings: tuple[float, ...]) -> Ints:
    """Return nothing: a share of joint moments is made against verdicts (:func:`share`), never by the step of other sums."""
    msg = f"joint moments have no statistic of {len(settings)} settings at {context.name!r}"
    raise PlanMismatch(msg)


def _number_of(context: Context[Joint], name: str) -> int:
    """Return the number of the round in which this repetition of a release is made; refused where the plan has none."""
    for number, one in enumerate(context.design.rounds):
        if (one.name, one.repeat) == (name, context.index):
            return number
    msg = f"this plan has no total {name!r}"
    raise PlanMismatch(msg)


def _check_digests(context: Context[Joint], number: int, digests: Sequence[str]) -> None:
    """Refuse a list of digests that is not of all blocks, or in which a block that this member judged or evaluated has another digest."""
    spots = spots_of(context.design, number)
    if len(digests) != len(spots):
        msg = f"{len(digests)} digests where the plan has {len(spots)} blocks"
        raise ProtocolError(msg)
    for spot, digest in zip(spots, digests, strict=True):
        if context.name in {spot.side.receiver, spot.side.helper} and kept_digest(context, spot) != digest:
            raise ProtocolError("a block has another digest here than in the request: members saw different messages")


def verdict(context: Context[Joint], request: VerdictRequest) -> VerdictReply:
    """Return a party's signature under its acceptance of every block that it received, and under the digest of all blocks."""
    _check_digests(context, context.index, request.digests)
    return VerdictReply(context.commit(context.attest(*verdict_parts(context.plan, context.index, request.digests))))


def share(quantity: Quantity, context: Context[Joint], request: ShareRequest) -> FragmentReply:
    """Return a member's share of the total with its noise, in fragments for the nodes; refused unless every party signed its verdict."""
    number = _number_of(context, quantity.name)
    aggregation, parties = context.design.aggregation, list(context.design.actors)
    aggregation.check_nodes(tuple(node.name for node in request.nodes))
    nodes = [checked(context.plan, node) for node in request.nodes]
    if [judge.name for judge in request.judges] != parties or len(request.verdicts) != len(parties):
        raise ProtocolError("a share is given against the verdict of every party, in the study's order")
    _check_digests(context, number, request.digests)
    for judge, signature in zip(request.judges, request.verdicts, strict=True):
        identity = context.plan.study.member(judge.name).key or judge.identity
        verify(identity, signature, *verdict_parts(context.plan, number, request.digests))

    def seal(vector: Ints, secret: bytes) -> tuple[Sealed, ...]:
        # Other nodes get other seeds and keys, even if the ledger that allows one request only was lost.
        secret = hmac.digest(secret, b"".join(bytes.fromhex(node.agreement) for node in nodes), "sha256")
        sealed = []
        for node, part in zip(nodes, secure_sum.split(vector, len(nodes), secret, prime=True), strict=True):
            place = purpose(quantity, context, context.name, node.name)
            salt, text = secure_sum.seal(context.shared_key, node.agreement, place, part, secret)
            sealed.append(Sealed(node.name, text, salt))
        return tuple(sealed)

    return FragmentReply(context.release(quantity.name, Summand(terms(context, number), seal)))


def terms(context: Context[Joint], number: int) -> Ints:
    """Return a member's terms of all products of a round in the order of the release: those of its own rows and of masked ones, or of masks."""
    shape = context.design.rounds[number].shape
    whole = np.zeros((shape.columns + 1, shape.columns + 1), dtype=np.uint64)
    check_data(context)
    design = context.design
    found = {(spot.at, design.acting(spot.side.receiver), spot.block): spot for spot in spots_of(design, number)}
    if shape.diagonal and context.name in shape.parties:
        _of_own_rows(context, shape, [spot for (_, _, block), spot in found.items()], whole)
    for (first, second), block in itertools.product(dict.fromkeys(shape.products), range(len(shape.row_blocks))):
        one, other = shape.parts[first].party, shape.parts[second].party
        there, back = found[first, other, block], found[second, one, block]
        if context.name not in there.side:
            continue
        multiply, own, others = _of_pair(context, there, back)
        for pair, columns in zip(shape.products, shape.factors, strict=True):
            if pair == (first, second):
                at = _within(shape.spans[first], columns[0]), _within(shape.spans[second], columns[1])
                term = multiply(own[:, columns[0]], others[:, columns[1]])
                whole[at] = field.add(np.ascontiguousarray(whole[at]), term)
    return shape.released(whole).astype(np.int64)


def _within(span: slice, some: slice) -> slice:
    """Return the places of some columns of a part in a row."""
    return slice(span.start + some.start, span.start + some.stop)


def _of_own_rows(context: Context[Joint], shape: ProductShape, spots: Sequence[Spot], whole: Words) -> None:
    """Add the exact products of a party's own columns, and their sums with the constant."""
    own = {
        spot.block: spot for spot in spots if spot.side.sender == context.name
    }  # to whichever receiver: the rows are the same
    span = shape.spans[own[0].at]
    gram, sums = (np.zeros(size, dtype=np.int64) for size in ((own[0].part.columns,) * 2, own[0].part.columns))
    for spot in own.values():
        rows = context.design.block(context, spot)
        real = rows.astype(np.float64)  # sums of a block's products stay below 2^53: exact in any order
        gram += (real.T @ real).astype(np.int64)
        sums += rows.sum(axis=0)
    whole[span, span] = field.encode(gram)
    whole[span, -1] = field.encode(sums * CONSTANT_STEPS)


def _of_pair(context: Context[Joint], there: Spot, back: Spot) -> tuple[Callable[[Any, Words], Words], Any, Words]:
    """Return this member's way to make its term of one block of the product of two parts, and the two factors of it.

    ``there`` is masked by the earlier party, ``back`` by the later one.
    """
    side = there.side
    if context.name == side.sender:
        return field.term_of_rows, context.design.block(context, there), context.kept(f"{ROWS}_{back.key}")
    if context.name == side.receiver:
        return field.term_of_masked_rows, context.kept(f"{ROWS}_{there.key}"), _masks(context, OWN_SEED, back)
    return field.term_of_masks, _masks(context, HELD_SEED, there), _masks(context, HELD_SEED, back)


def _masks(context: Context[Joint], name: str, spot: Spot) -> Words:
    """Return the masks of a block from the seed that this member keeps."""
    seed = bytes(context.kept(f"{name}_{spot.key}"))
    return masks(seed, spot.last - spot.first, spot.part.columns)


# --- Conversation ----------------------------------------------------------------------------------------------------------
# The conversation that leads to a joint sum: masked rows block by block, verdicts, shares, the opened total. The coordinator forwards ciphertext.

_MASK, _EVALUATE, _JUDGE, _VERDICT = (f"{JOINT}-{act}" for act in ("mask", "evaluate", "judge", "verdict"))


def quantity_of(name: str) -> Quantity:
    """Return the total of this name, for the two steps that it shares with every secure sum."""
    return Quantity(name, _none)


def steps_of_release(name: str) -> tuple[Step, ...]:
    """Return the steps in which a release of this name is opened: shares against verdicts, then the last two of every secure sum."""
    quantity, often = quantity_of(name), partial(times_of, name=name)
    opening = Step(f"{name}-fragment", ShareRequest, FragmentReply, partial(share, quantity), times=often)
    return opening, *(replace(step, times=often) for step in distributed.secure_steps(quantity)[1:])


#: Everything that a member is asked for: the last two steps are those of every secure sum.
STEPS = (
    Step(_MASK, MaskRequest, MaskReply, mask, bulky=True, times=times),
    Step(_EVALUATE, EvaluateRequest, EvaluateReply, evaluated, bulky=True, times=times),
    Step(_JUDGE, JudgeRequest, JudgeReply, judged, bulky=True, times=times),
    Step(_VERDICT, VerdictRequest, VerdictReply, verdict, times=once),
    *steps_of_release(JOINT),
)


def joint_total(
    plan: Plan[Any], members: Mapping[str, Member], at: tuple[float, ...] = (), number: int = 0
) -> Generator[list[Ask], Replies, Total]:
    """The noisy total of a round, at these public coefficients; every member takes part, or nothing is opened."""
    design: Joint = plan.design
    one = design.rounds[number]
    aggregation, vector, parties = design.aggregation, design.totals[one.name], design.actors
    blocks, spots = len(one.shape.row_blocks), spots_of(design, number)
    accepted: dict[int, str] = {}
    for block in range(blocks):  # every part in both directions: no more than one block of each is in memory
        some = {place: spot for place, spot in enumerate(spots) if spot.block == block}
        accepted |= yield from _exchanged(members, some, at, blocks_before(design, number))
    digests = tuple(accepted[place] for place in range(len(spots)))
    signed = yield from everybody([Ask(name, _VERDICT, VerdictRequest(digests), number) for name in parties])
    verdicts = tuple(reply.signature.value for reply in signed)
    nodes = tuple(members[name] for name in aggregation.nodes[: aggregation.count])
    request = ShareRequest(nodes, digests, tuple(members[name] for name in parties), verdicts)
    replies = yield from everybody([Ask(name, vector.step("fragment"), request, one.repeat) for name in aggregation.parties])
    sealed = {name: reply.fragments for name, reply in zip(aggregation.parties, replies, strict=True)}
    check_sealed(vector, nodes, sealed)
    return (yield from aggregation.open(plan, vector, members, nodes, sealed, one.repeat))


def _exchanged(
    members: Mapping[str, Member], spots: Mapping[int, Spot], at: tuple[float, ...], before: int
) -> Generator[list[Ask], Replies, dict[int, str]]:
    """Masks, evaluations and judgements of these blocks by their place; the digests of those that were accepted, or an end of the study.

    ``before`` is the number of blocks of earlier rounds, with which the requests of this one go on counting.
    """
    masked = yield from everybody(
        [
            Ask(spot.side.sender, _MASK, MaskRequest(members[spot.side.receiver], members[spot.side.helper], at), before + k)
            for k, spot in spots.items()
        ]
    )
    evaluations = yield from everybody(
        [
            Ask(
                spot.side.helper,
                _EVALUATE,
                EvaluateRequest(members[spot.side.sender], members[spot.side.receiver], reply.seeds),
                before + k,
            )
            for (k, spot), reply in zip(spots.items(), masked, strict=True)
        ]
    )
    requests = [
        JudgeRequest(members[spot.side.sender], members[spot.side.helper], reply.rows, reply.proof, found.evaluation)
        for spot, reply, found in zip(spots.values(), masked, evaluations, strict=True)
    ]
    judgements = yield from everybody(
        [
            Ask(spot.side.receiver, _JUDGE, request, before + k)
            for (k, spot), request in zip(spots.items(), requests, strict=True)
        ]
    )
    for spot, found, judgement in zip(spots.values(), evaluations, judgements, strict=True):
        if not judgement.accepted.value or judgement.digest.value != found.digest.value:
            side = spot.side
            msg = (
                f"the proof that the rows of {side.sender!r} are short was not accepted by {side.receiver!r} with the numbers of helper "
                f"{side.helper!r}: one of these three did not follow the protocol, and nobody can say which. The sums that were due were not opened. "
                "What came before was released, and the ledgers of the parties hold what the plan costs"
            )
            raise StudyAborted(msg)
    return {k: judgement.digest.value for k, judgement in zip(spots, judgements, strict=True)}
