"""A secure sum with distributed noise: nothing but the noisy total is opened, and nobody need be trusted.

Every node signs the one set of participants, adds up only the parts of a set that all nodes signed, and answers one request per release.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from unpooled.aggregation import secure_sum
from unpooled.aggregation.keys import answered, gather, seal_parts, unsealed
from unpooled.aggregation.messages import AgreeReply, AgreeRequest, FragmentReply, FragmentRequest, TotalReply, TotalRequest
from unpooled.aggregation.totals import Aggregation, Quantity, Summed, Total
from unpooled.errors import PlanMismatch, ProtocolError
from unpooled.privacy.accounting import budget_rho
from unpooled.privacy.mechanisms import DistributedGaussian
from unpooled.privacy.plan import Plan, Release, Study
from unpooled.privacy.sentence import Sentence
from unpooled.protocol.identity import verify
from unpooled.protocol.messages import Ask, Public
from unpooled.protocol.step import Step

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from unpooled.aggregation.messages import Member
    from unpooled.protocol.context import Context
    from unpooled.protocol.messages import Sealed
    from unpooled.protocol.step import Replies


@dataclass(frozen=True, slots=True)
class Distributed(Aggregation):
    """Fragments of the noise from every party, a sum that only all nodes together can open."""

    #: Whether the sum is modulo 2^61 - 1 in place of 2^64.
    prime: ClassVar[bool] = False

    @property
    def honest(self) -> int:
        """Return the number of noise fragments that nobody who sees the total can know: N - T - 1."""
        return len(self.parties) - self.tolerate - 1

    @property
    def sentences(self) -> tuple[tuple[Sentence, ...], tuple[Sentence, ...]]:
        """Return the statement's sentences about a secure sum: (not protected, assumptions)."""
        # Theorems B.1 and B.2: one node is outside the coalition, and N - T - 1 parties are neither in it nor away.
        coalition = Sentence(
            "sum.coalition",
            "Anything against a coalition of more than {most} part{ies}, its curious member counted, or of more than {together} together with the "
            "parties that drop out or that a dishonest coordinator drops: then less noise is left than stated.",
            most=max(self.tolerate, 1),
            ies="ies" if self.tolerate > 1 else "y",
            together=self.tolerate + 1,
        )
        nodes = Sentence(
            "sum.nodes",
            "At least one of the {count} nodes of the secure sum keeps its fragments to itself. Fragments are encrypted with X25519, "
            "HKDF-SHA-256 and AES-256-GCM.",
            count=self.count,
        )
        return (coalition,), (nodes,)

    def multiplier(self, study: Study) -> float:
        """Return the mu of a total's whole budget by zCDP, times sqrt(honest / parties): only the noise of honest parties counts."""
        return math.sqrt(2 * budget_rho(study.epsilon, study.delta) * self.honest / len(self.parties))

    def releases(self, vector: Summed, study: Study) -> tuple[Release, ...]:
        """Return a fragment of the noise for every party."""
        if vector.scale is None:
            rho = budget_rho(study.epsilon, study.delta) * vector.share / vector.count
            fragment = DistributedGaussian.calibrated(vector.blocks, vector.reach, study.target.unit, rho, self.honest)
        else:
            reach = tuple(sorted(vector.reach.items()))
            fragment = DistributedGaussian(vector.blocks, reach, vector.scale / math.sqrt(self.honest), self.honest)
        vector.fits(study, fragment.scale)
        return tuple(Release(vector.name, name, vector.step("fragment"), fragment, vector.count) for name in self.parties)

    def collect(
        self, plan: Plan, vector: Summed, members: Mapping[str, Member], settings: tuple[float, ...], index: int = 0
    ) -> Generator[list[Ask], Replies, Total]:
        """Sealed parts, one signed set of participants, the nodes' sums."""
        nodes, sealed = yield from gather(self, vector, members, list(members), settings, index)
        return (yield from self.open(plan, vector, members, nodes, sealed, index))

    def open(
        self,
        plan: Plan,
        vector: Summed,
        members: Mapping[str, Member],
        nodes: tuple[Member, ...],
        sealed: Mapping[str, tuple[Sealed, ...]],
        index: int = 0,
    ) -> Generator[list[Ask], Replies, Total]:
        """One signed set of participants, and the nodes' sums of what these sealed for them."""
        self.enough(sealed, "at their fragments")
        names, participants = [node.name for node in nodes], tuple(sealed)
        agreed = yield [Ask(name, vector.step("agree"), AgreeRequest(participants), index) for name in names]
        answered(names, agreed)
        signatures = tuple(reply.signature.value for reply in agreed)
        joined = tuple(members[party] for party in participants)
        requests = [TotalRequest(joined, tuple(p[k] for p in sealed.values()), nodes, signatures) for k in range(len(nodes))]
        replies = yield [Ask(name, vector.step("total"), asked, index) for name, asked in zip(names, requests, strict=True)]
        answered(names, replies)
        fragment = plan.release(names[0], vector.name).mechanism
        assert isinstance(fragment, DistributedGaussian)
        integers = secure_sum.opened([reply.part.values.numpy() for reply in replies], prime=self.prime)
        return Total(fragment.decode(integers, len(sealed)), fragment.total_deviations(len(sealed)), participants)


# --- at a node -------------------------------------------------------------------------------------------------------------


def _node(quantity: Quantity, context: Context) -> Distributed:
    aggregation, _ = quantity.planned(context)
    if not isinstance(aggregation, Distributed) or context.name not in aggregation.nodes:
        msg = f"party {context.name!r} is not a node of a secure sum in this plan"
        raise PlanMismatch(msg)
    return aggregation


def _set_parts(quantity: Quantity, context: Context, participants: tuple[str, ...]) -> tuple[bytes, ...]:
    names = (name.encode() for name in participants)
    return b"participants", context.plan.hash.encode(), quantity.name.encode(), context.index.to_bytes(8, "big"), *names


def _agree(quantity: Quantity, context: Context, request: AgreeRequest) -> AgreeReply:
    _node(quantity, context).check_participants(request.participants)
    return AgreeReply(Public(context.attest(*_set_parts(quantity, context, request.participants))))


def _total(quantity: Quantity, context: Context, request: TotalRequest) -> TotalReply:
    aggregation = _node(quantity, context)
    names = tuple(member.name for member in request.participants)
    aggregation.check_participants(names)
    nodes = tuple(node.name for node in request.nodes)
    aggregation.check_nodes(nodes)
    if len(request.signatures) != len(nodes) or context.name not in nodes:
        raise ProtocolError("a secure sum needs the signature of each of its nodes, and this party among them")
    for node, signature in zip(request.nodes, request.signatures, strict=True):
        identity = context.plan.study.member(node.name).key or node.identity
        verify(identity, signature, *_set_parts(quantity, context, names))
    at = nodes.index(context.name)
    total = np.zeros(context.plan.release(context.name, quantity.name).size, dtype=np.uint64)
    for part in unsealed(quantity, context, request, total.size):
        secure_sum.add_fragment(total, part, at, len(nodes), prime=aggregation.prime)
    return TotalReply(context.partial(quantity.name, total))


def steps(quantity: Quantity) -> tuple[Step, ...]:
    """Return the steps that a party performs for a secure sum (the first step serves trusted sums too)."""
    return (
        Step(f"{quantity.name}-fragment", FragmentRequest, FragmentReply, partial(seal_parts, quantity)),
        Step(f"{quantity.name}-agree", AgreeRequest, AgreeReply, partial(_agree, quantity), quantity.name),
        Step(f"{quantity.name}-total", TotalRequest, TotalReply, partial(_total, quantity), quantity.name),
    )
