"""The conversation that leads to a joint sum: masked rows block by block, verdicts, shares, the opened total. The coordinator forwards ciphertext."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from unpooled.aggregation import distributed
from unpooled.aggregation.joint.masking import evaluated, judged, mask
from unpooled.aggregation.joint.messages import (
    EvaluateReply,
    EvaluateRequest,
    JudgeReply,
    JudgeRequest,
    MaskReply,
    MaskRequest,
    ShareRequest,
    VerdictReply,
    VerdictRequest,
)
from unpooled.aggregation.joint.places import once, spots_of, times
from unpooled.aggregation.joint.sharing import QUANTITY, share, verdict
from unpooled.aggregation.joint.sums import JOINT
from unpooled.aggregation.keys import check_sealed
from unpooled.aggregation.messages import FragmentReply
from unpooled.errors import StudyAborted
from unpooled.protocol.conversation import everybody
from unpooled.protocol.messages import Ask
from unpooled.protocol.step import Step

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from unpooled.aggregation.joint.sides import Spot
    from unpooled.aggregation.joint.sums import Joint
    from unpooled.aggregation.messages import Member
    from unpooled.aggregation.totals import Total
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.step import Replies

_MASK, _EVALUATE, _JUDGE, _VERDICT, _FRAGMENT = (
    f"{JOINT}-{act}" for act in ("mask", "evaluate", "judge", "verdict", "fragment")
)

#: Everything that a member is asked for: the last two steps are those of every secure sum.
STEPS = (
    Step(_MASK, MaskRequest, MaskReply, mask, bulky=True, times=times),
    Step(_EVALUATE, EvaluateRequest, EvaluateReply, evaluated, bulky=True, times=times),
    Step(_JUDGE, JudgeRequest, JudgeReply, judged, bulky=True, times=times),
    Step(_VERDICT, VerdictRequest, VerdictReply, verdict, times=once),
    Step(_FRAGMENT, ShareRequest, FragmentReply, share, times=once),
    *(replace(step, times=once) for step in distributed.steps(QUANTITY)[1:]),
)


def joint_total(
    plan: Plan[Any], members: Mapping[str, Member], at: tuple[float, ...] = (), number: int = 0
) -> Generator[list[Ask], Replies, Total]:
    """The noisy total of a round, at these public coefficients; every member takes part, or nothing is opened."""
    design: Joint = plan.design
    aggregation, vector, parties = design.aggregation, design.totals[JOINT], design.shape.parties
    blocks, spots = len(design.shape.row_blocks), spots_of(design, number)
    accepted: dict[int, str] = {}
    for block in range(blocks):  # every part in both directions: no more than one block of each is in memory
        some = {place: spot for place, spot in enumerate(spots) if spot.block == block}
        accepted |= yield from _exchanged(members, some, at, number * len(spots))
    digests = tuple(accepted[place] for place in range(len(spots)))
    signed = yield from everybody([Ask(name, _VERDICT, VerdictRequest(digests), number) for name in parties])
    verdicts = tuple(reply.signature.value for reply in signed)
    nodes = tuple(members[name] for name in aggregation.nodes[: aggregation.count])
    request = ShareRequest(nodes, digests, tuple(members[name] for name in parties), verdicts)
    replies = yield from everybody([Ask(name, _FRAGMENT, request, number) for name in aggregation.parties])
    sealed = {name: reply.fragments for name, reply in zip(aggregation.parties, replies, strict=True)}
    check_sealed(vector, nodes, sealed)
    return (yield from aggregation.open(plan, vector, members, nodes, sealed, number))


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
