"""The three ways to a total: a secure sum with distributed noise, a trusted aggregator, or noise of each party's own; and which of them a study takes."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from unpooled.errors import PlanMismatch, ProtocolError, UsageError
from unpooled.privacy.accounting import budget_mu, budget_rho
from unpooled.privacy.mechanisms import Contribution, DistributedGaussian, Vector
from unpooled.privacy.plan import AGGREGATION, Plan, Release, Study
from unpooled.privacy.sentence import Sentence
from unpooled.protocol.identity import verify
from unpooled.protocol.messages import Ask, Dropped, Public
from unpooled.protocol.registry import Step
from unpooled.totals import secure_sum
from unpooled.totals.secure_sum import answered, gather, seal_parts, unsealed
from unpooled.totals.total import (
    Aggregation,
    AgreeReply,
    AgreeRequest,
    FragmentReply,
    FragmentRequest,
    LocalRequest,
    NoisyReply,
    Quantity,
    Summed,
    Total,
    TotalReply,
    TotalRequest,
    noisy_release,
)

if TYPE_CHECKING:
    from unpooled.protocol.context import Context
    from unpooled.protocol.messages import Sealed
    from unpooled.protocol.registry import Replies
    from unpooled.totals.total import Member, Statistic


# --- Distributed -----------------------------------------------------------------------------------------------------------
# A secure sum with distributed noise: nothing but the noisy total is opened, and nobody need be trusted.
#
# Every node signs the one set of participants, adds up only the parts of a set that all nodes signed, and answers one request per release.


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


def secure_steps(quantity: Quantity) -> tuple[Step, ...]:
    """Return the steps that a party performs for a secure sum (the first step serves trusted sums too)."""
    return (
        Step(f"{quantity.name}-fragment", FragmentRequest, FragmentReply, partial(seal_parts, quantity)),
        Step(f"{quantity.name}-agree", AgreeRequest, AgreeReply, partial(_agree, quantity), quantity.name),
        Step(f"{quantity.name}-total", TotalRequest, TotalReply, partial(_total, quantity), quantity.name),
    )


# --- Trusted ---------------------------------------------------------------------------------------------------------------
# A trusted aggregator: the parties seal exact vectors for one named party, which adds them up and adds the noise once.


@dataclass(frozen=True, slots=True)
class Trusted(Aggregation):
    """One party sees the others' exact vectors."""

    @property
    def sentences(self) -> tuple[tuple[Sentence, ...], tuple[Sentence, ...]]:
        """Return the statement's sentences about a trusted aggregator: (not protected, assumptions)."""
        sees = Sentence(
            "sum.trusted", "{node}, the trusted aggregator, sees the exact sums of the other parties.", node=self.nodes[0]
        )
        return (sees,), ()

    @property
    def trusted(self) -> tuple[Sentence, ...]:
        """Return the party that sees exact sums."""
        return (Sentence("trusted.aggregator", "{node}, the trusted aggregator", node=self.nodes[0]),)

    def releases(self, vector: Summed, study: Study) -> tuple[Release, ...]:
        """Return the noisy total of the aggregator, and every other party's contribution to it."""
        noisy, (aggregator,) = vector.gaussian(study), self.nodes
        vector.fits(study, noisy.scale)
        given = Contribution(noisy, aggregator)
        return tuple(
            Release(vector.name, name, vector.step("noisy"), noisy, vector.count)
            if name == aggregator
            else Release(vector.name, name, vector.step("fragment"), given, vector.count)
            for name in self.parties
        )

    def collect(
        self, plan: Plan, vector: Summed, members: Mapping[str, Member], settings: tuple[float, ...], index: int = 0
    ) -> Generator[list[Ask], Replies, Total]:
        """Sealed vectors, and the aggregator's noisy total."""
        senders = [party for party in members if party not in self.nodes]
        (node,), sealed = yield from gather(self, vector, members, senders, settings, index)
        everybody = tuple(p for p in self.parties if p in sealed or p == node.name)
        self.enough(dict.fromkeys(everybody), "at their contributions")
        joined = tuple(members[party] for party in sealed)
        request = TotalRequest(joined, tuple(parts[0] for parts in sealed.values()), settings=settings)
        (reply,) = yield [Ask(node.name, vector.step("noisy"), request, index)]
        answered([node.name], [reply])
        release = noisy_release(plan, node.name, vector.name)
        return Total(release.decode(reply.total.values.numpy()), release.deviations, everybody)


def _noisy(quantity: Quantity, context: Context, request: TotalRequest) -> NoisyReply:
    aggregation, _ = quantity.planned(context)
    # The aggregator's own vector is not sealed: it joins here, between the others' in the study's order.
    names, name = tuple(member.name for member in request.participants), context.name
    if not isinstance(aggregation, Trusted) or aggregation.nodes != (name,) or name in names:
        raise PlanMismatch("this plan has no trusted aggregator here, or another one")
    aggregation.check_participants(tuple(n for n in aggregation.parties if n == name or n in names))
    if len(set(names)) != len(names):
        raise ProtocolError("a participant that is named twice")
    total = quantity.own(context, request.settings).astype(np.uint64)
    for part in unsealed(quantity, context, request, total.size):
        secure_sum.add_fragment(total, part, 0, 1)
    return NoisyReply(context.release(quantity.name, Vector(total.astype(np.int64))))


def trusted_steps(quantity: Quantity) -> tuple[Step, ...]:
    """Return the steps that the aggregator performs; the others seal their vectors as for a secure sum."""
    return (Step(f"{quantity.name}-noisy", TotalRequest, NoisyReply, partial(_noisy, quantity)),)


# --- Local -----------------------------------------------------------------------------------------------------------------
# Every party releases its own vector with all the noise it needs; the coordinator adds them up.


@dataclass(frozen=True, slots=True)
class Local(Aggregation):
    """Nobody relies on anybody; the noise of all parties is in the total."""

    def multiplier(self, study: Study) -> float:
        """Every party adds all of it."""
        return budget_mu(study.epsilon, study.delta) / math.sqrt(len(self.parties))

    def releases(self, vector: Summed, study: Study) -> tuple[Release, ...]:
        """All the noise from every party."""
        noisy = vector.gaussian(study)
        vector.fits(study, noisy.scale)
        return tuple(Release(vector.name, name, vector.step("local"), noisy, vector.count) for name in self.parties)

    def collect(
        self, plan: Plan, vector: Summed, members: Mapping[str, Member], settings: tuple[float, ...], index: int = 0
    ) -> Generator[list[Ask], Replies, Total]:
        """The released vectors of all that are there, added up."""
        del members
        replies = yield [Ask(party, vector.step("local"), LocalRequest(settings), index) for party in self.parties]
        arrived = {p: r for p, r in zip(self.parties, replies, strict=True) if not isinstance(r, Dropped)}
        self.enough(arrived, "at their releases")
        mechanisms = {party: noisy_release(plan, party, vector.name) for party in arrived}
        values = sum(mechanisms[party].decode(reply.total.values.numpy()) for party, reply in arrived.items())
        noise = np.sqrt(sum(mechanism.deviations**2 for mechanism in mechanisms.values()))
        return Total(np.asarray(values), noise, tuple(arrived))


def _local(quantity: Quantity, context: Context, request: LocalRequest) -> NoisyReply:
    return NoisyReply(context.release(quantity.name, Vector(quantity.own(context, request.settings))))


def local_steps(quantity: Quantity) -> tuple[Step, ...]:
    """Return the steps that a party performs for local releases."""
    return (Step(f"{quantity.name}-local", LocalRequest, NoisyReply, partial(_local, quantity)),)


# --- Modes -----------------------------------------------------------------------------------------------------------------
# Which way a study adds up, and the steps and the conversation of one total, whichever way it is.


class Mode(StrEnum):
    """Who adds the noise."""

    DISTRIBUTED = "distributed"
    TRUSTED = "trusted"
    LOCAL = "local"


def aggregation_of(study: Study, tolerate: int = 0, nodes: tuple[str, ...] = ()) -> Aggregation:
    """As the study's ``[trust] aggregation`` asks for it; one party alone adds nothing up and is ``local``."""
    names = tuple(card.name for card in study.parties)
    try:
        mode = Mode(study.trust.get(AGGREGATION, Mode.DISTRIBUTED))
    except ValueError:
        msg = f"trust: aggregation is one of {', '.join(Mode)}, not {study.trust[AGGREGATION]!r}"
        raise UsageError(msg) from None
    if len(names) == 1:
        mode = Mode.LOCAL
    if tolerate < 0 or (mode is Mode.DISTRIBUTED and len(names) - tolerate < 2):  # noqa: PLR2004 - N - T - 1 >= 1
        msg = (
            f"tolerate = {tolerate} with {len(names)} parties leaves no noise that protects: it must be between 0 and "
            f"{max(len(names) - 2, 0)}"
        )
        raise UsageError(msg)
    if not set(nodes) <= set(names) or len(set(nodes)) != len(nodes):
        raise UsageError("nodes must be parties of the study, each once")
    if mode is Mode.LOCAL:
        return Local(names, tolerate)
    if mode is Mode.TRUSTED:
        if len(nodes) > 1:
            raise UsageError("trusted aggregation has exactly one node: the trusted party")
        return Trusted(names, tolerate, nodes or names[:1], 1)
    fewest = max(2, tolerate + 1)
    if nodes and len(nodes) < fewest:
        msg = f"{len(nodes)} node(s) could all be among the {tolerate} tolerated colluders: name at least {fewest}"
        raise UsageError(msg)
    return Distributed(names, tolerate, tuple(n for n in names if n in nodes) or names, fewest)


def steps_of(name: str, statistic: Statistic) -> tuple[Step, ...]:
    """Return the steps that a party performs for the total of this name, whichever way a plan adds it up."""
    quantity = Quantity(name, statistic)
    return (*secure_steps(quantity), *trusted_steps(quantity), *local_steps(quantity))


def collect(
    plan: Plan,
    aggregation: Aggregation,
    vector: Summed,
    members: Mapping[str, Member],
    settings: tuple[float, ...] = (),
    index: int = 0,
) -> Generator[list[Ask], Replies, Total]:
    """The conversation that leads to one total."""
    return (yield from aggregation.collect(plan, vector, members, settings, index))
