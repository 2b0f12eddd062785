"""Three ways in which the parties' integer vectors become one noisy total, with the same steps, plan and coordinator for all.

* ``distributed``: every party adds a share of the noise and a secure sum opens nothing but the total. Nobody need be trusted: up to
  T parties may collude with the coordinator or drop out, N - T - 1 shares suffice for the guarantee (SPEC section 3, Theorem 1).
* ``trusted``: the parties seal exact vectors for one named party, which adds the noise once. That party sees the exact vectors.
* ``local``: every party releases its own vector with all the noise it needs.

One release has one set of participants. In a secure sum every node signs it once, adds up only the shares of a set that all
nodes signed, and answers one request per release; so no two sums that could be subtracted from each other are ever opened.
"""

from __future__ import annotations

import hmac
import math
import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np

from unpooled.aggregation import secure_sum
from unpooled.errors import PlanMismatch, ProtocolError, StudyAborted, UsageError
from unpooled.privacy.accounting import budget_mu, budget_rho
from unpooled.privacy.mechanisms import Block, Contribution, GaussianRelease, NoiseShare, Reach, Summand, Vector
from unpooled.privacy.plan import AGGREGATION, Plan, Release, Study
from unpooled.privacy.unit import Unit
from unpooled.protocol.context import Context
from unpooled.protocol.identity import verify
from unpooled.protocol.messages import Ask, Dropped, Nothing, Partial, Public, Released, Sealed
from unpooled.protocol.step import Replies, Step

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: A vector and its noise stay this far below the point where int64 wraps around.
_HEADROOM = 1 << 62
#: Standard deviations of noise that are taken into account there (beyond: once in 10^32).
_TAIL = 12


class Mode(StrEnum):
    """Who adds the noise."""

    DISTRIBUTED = "distributed"
    TRUSTED = "trusted"
    LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Aggregation:
    """How one study adds up: its mode, its T, and which parties may be its ``count`` nodes (or the one trusted aggregator).

    The nodes are the first of them that are there when keys are exchanged. They are more than T, so whichever they are (a dishonest
    coordinator may choose), one of them is honest.
    """

    mode: Mode
    parties: tuple[str, ...]
    tolerate: int
    nodes: tuple[str, ...]
    count: int

    @classmethod
    def of(cls, study: Study, tolerate: int = 0, nodes: tuple[str, ...] = ()) -> Aggregation:
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
            return cls(mode, names, tolerate, (), 0)
        if mode is Mode.TRUSTED:
            if len(nodes) > 1:
                raise UsageError("trusted aggregation has exactly one node: the trusted party")
            return cls(mode, names, tolerate, nodes or names[:1], 1)
        fewest = max(2, tolerate + 1)
        if nodes and len(nodes) < fewest:
            msg = f"{len(nodes)} node(s) could all be among the {tolerate} tolerated colluders: name at least {fewest}"
            raise UsageError(msg)
        return cls(mode, names, tolerate, tuple(n for n in names if n in nodes) or names, fewest)

    @property
    def honest(self) -> int:
        """Noise shares that are guaranteed to be unknown to whoever sees the total: N - T - 1."""
        return len(self.parties) - self.tolerate - 1

    @property
    def sentences(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What the statement says about it: (not protected, assumptions)."""
        if self.mode is Mode.TRUSTED:
            return (f"{self.nodes[0]}, the trusted aggregator, sees the other parties' exact sums.",), ()
        if self.mode is Mode.LOCAL:
            return (), ()
        coalition = (
            f"A coalition beyond tolerate = {self.tolerate}: if more parties than that, counted together with those that drop out (or that "
            "a dishonest coordinator lets drop out), put what they know together, less noise is left than stated."
        )
        nodes = (
            f"At least one of the {self.count} nodes of the secure sum does not hand its shares to the others; they are encrypted by "
            "X25519, HKDF-SHA-256 and AES-256-GCM."
        )
        return (coalition,), (nodes,)

    @property
    def trusted(self) -> tuple[str, ...]:
        """Who sees exact sums, in words."""
        return (f"{self.nodes[0]}, the trusted aggregator",) if self.mode is Mode.TRUSTED else ()

    def check_nodes(self, nodes: tuple[str, ...]) -> None:
        """Refuse nodes other than the right number of eligible parties, in the study's order."""
        if len(nodes) != self.count or list(nodes) != [n for n in self.nodes if n in nodes]:
            msg = f"a secure sum of this plan has {self.count} of the nodes {', '.join(self.nodes)}, in this order"
            raise PlanMismatch(msg)

    def check_participants(self, participants: tuple[str, ...]) -> None:
        """Refuse a set of participants that is not in order, names somebody twice, or misses more than T parties."""
        positions = [self.parties.index(name) for name in participants if name in self.parties]
        if len(positions) != len(participants) or positions != sorted(set(positions)):
            raise ProtocolError("the participants are not parties of the study, each once and in the study's order")
        if len(participants) < len(self.parties) - self.tolerate:
            msg = f"{len(participants)} participants where at least {len(self.parties) - self.tolerate} are needed"
            raise ProtocolError(msg)


@dataclass(frozen=True, slots=True)
class Summed:
    """An integer vector that the parties add up: its noise blocks, how far a unit moves it, how much one row can add."""

    name: str
    blocks: tuple[Block, ...]
    reach: Mapping[Unit, Reach]
    #: The largest absolute value that one row adds to any coordinate.
    per_row: int
    #: Its share of the squared budget.
    share: float = 1.0
    #: Noise scale as published instead of the calibrated one.
    scale: float | None = None

    def releases(self, study: Study, aggregation: Aggregation) -> tuple[Release, ...]:
        """The releases of the plan, one per party."""
        budget, mode = study.budget, aggregation.mode
        reach = tuple(sorted(self.reach.items()))
        mechanism: NoiseShare | GaussianRelease
        if mode is Mode.DISTRIBUTED:
            if self.scale is None:
                rho = budget_rho(budget.epsilon, budget.delta) * self.share
                mechanism = NoiseShare.calibrated(self.blocks, self.reach, budget.unit, rho, aggregation.honest)
            else:
                mechanism = NoiseShare(self.blocks, reach, self.scale / math.sqrt(aggregation.honest), aggregation.honest)
        elif self.scale is None:
            mu = budget_mu(budget.epsilon, budget.delta) * math.sqrt(self.share)
            mechanism = GaussianRelease.calibrated(self.blocks, self.reach, budget.unit, mu)
        else:
            mechanism = GaussianRelease(self.blocks, reach, self.scale)
        rows = sum(card.rows for card in study.parties)
        noise = _TAIL * mechanism.scale * max(block.width for block in self.blocks) * math.sqrt(len(aggregation.parties))
        if rows * self.per_row + noise >= _HEADROOM:
            msg = f"the total of {self.name!r} may not fit into 64 bits: ask for a larger epsilon, or declare tighter bounds"
            raise UsageError(msg)
        if mode is Mode.TRUSTED:
            assert isinstance(mechanism, GaussianRelease)
            given = Contribution(mechanism, aggregation.nodes[0])
            return tuple(
                Release(self.name, name, self._step("noisy"), mechanism)
                if name == aggregation.nodes[0]
                else Release(self.name, name, self._step("share"), given)
                for name in aggregation.parties
            )
        step = self._step("share" if mode is Mode.DISTRIBUTED else "local")
        return tuple(Release(self.name, name, step, mechanism) for name in aggregation.parties)

    def deviations(self, plan: Plan) -> NDArray[np.float64]:
        """Standard deviation of every coordinate of the total if every party is in it."""
        mechanisms = [release.mechanism for release in plan.releases if release.name == self.name]
        if isinstance(mechanisms[0], NoiseShare):
            return mechanisms[0].total_deviations(len(mechanisms))
        noise = [m.deviations for m in mechanisms if isinstance(m, GaussianRelease)]
        return np.asarray(noise[0] * math.sqrt(len(noise)))

    def _step(self, act: str) -> str:
        return f"{self.name}-{act}"


@dataclass(frozen=True, slots=True)
class Total:
    """What a study learns: the noisy total, the standard deviation of its noise, and whose vectors are in it."""

    values: NDArray[np.float64]
    deviations: NDArray[np.float64]
    participants: tuple[str, ...]


# --- messages ------------------------------------------------------------------------------------------------------------


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


class ShareRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The nodes to encrypt for, and public settings of the statistic."""

    nodes: tuple[Member, ...]
    settings: tuple[float, ...] = ()


class ShareReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One sealed share per node."""

    shares: tuple[Sealed, ...]


class AgreeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose shares arrived."""

    participants: tuple[str, ...]


class AgreeReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node's signature under the one set of participants that it will add up."""

    signature: Public[str]


class TotalRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The sealed shares of the participants for this node; every node's signature (secure sums); settings (trusted sums)."""

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


# --- at the parties ------------------------------------------------------------------------------------------------------


class Adds(Protocol):
    """What the design of a plan with totals has."""

    @property
    def aggregation(self) -> Aggregation: ...
    @property
    def totals(self) -> Mapping[str, Summed]: ...


Statistic = Callable[[Context, tuple[float, ...]], "NDArray[np.int64]"]


def _keys(context: Context, request: Nothing) -> KeyReply:  # noqa: ARG001 - the request is no more than its name
    key = context.agreement_key
    signature = context.attest(*_key_parts(context.plan, context.name, key))
    return KeyReply(Public(key), Public(context.public_key), Public(signature))


def _key_parts(plan: Plan, name: str, key: str) -> tuple[bytes, ...]:
    return b"agreement key", plan.hash.encode(), name.encode(), key.encode()


def _checked(plan: Plan, member: Member) -> Member:
    """A member whose key is signed by the identity that its card pins (parties of one process pin none)."""
    identity = plan.study.card(member.name).key or member.identity
    if not re.fullmatch("[0-9a-f]{64}", member.agreement):
        msg = f"the agreement key of party {member.name!r} is not 64 hexadecimal digits"
        raise ProtocolError(msg)
    verify(identity, member.signature, *_key_parts(plan, member.name, member.agreement))
    return member


#: Asked once per study, before anything is sealed.
KEYS = Step("keys", Nothing, KeyReply, _keys)


@dataclass(frozen=True, slots=True)
class Summing:
    """One total of a model: its steps at the parties and its part of the coordinator's conversation."""

    name: str
    #: From a party's data and the request's public settings to its vector.
    statistic: Statistic

    @property
    def steps(self) -> tuple[Step, ...]:
        """What a party can be asked to do for this total."""
        return (
            Step(f"{self.name}-share", ShareRequest, ShareReply, self._share),
            Step(f"{self.name}-agree", AgreeRequest, AgreeReply, self._agree),
            Step(f"{self.name}-total", TotalRequest, TotalReply, self._total),
            Step(f"{self.name}-noisy", TotalRequest, NoisyReply, self._noisy),
            Step(f"{self.name}-local", LocalRequest, NoisyReply, self._local),
        )

    def _planned(self, context: Context) -> tuple[Aggregation, Summed]:
        """How this plan adds up, and what; refused where it does not."""
        design: Adds = context.design
        if self.name not in design.totals:
            msg = f"this plan has no total {self.name!r}"
            raise PlanMismatch(msg)
        return design.aggregation, design.totals[self.name]

    def _own(self, context: Context, settings: tuple[float, ...], vector: Summed) -> NDArray[np.int64]:
        """The party's statistic, inside the range for which wrap-around was excluded."""
        statistic = self.statistic(context, settings)
        if statistic.size and int(np.abs(statistic).max()) > vector.per_row * context.card.rows:
            raise ProtocolError("a statistic beyond its declared range")
        return statistic

    def _share(self, context: Context, request: ShareRequest) -> ShareReply:
        plan = context.plan
        aggregation, vector = self._planned(context)
        aggregation.check_nodes(tuple(node.name for node in request.nodes))
        nodes = [_checked(plan, node) for node in request.nodes]

        def seal(share: NDArray[np.int64], secret: bytes) -> tuple[Sealed, ...]:
            sealed = []
            # Other nodes get other seeds and keys, even if the ledger that allows one request only was lost.
            secret = hmac.digest(secret, b"".join(bytes.fromhex(node.agreement) for node in nodes), "sha256")
            for node, part in zip(nodes, secure_sum.split(share, len(nodes), secret), strict=True):
                purpose = self._purpose(context, context.name, node.name)
                salt, text = secure_sum.seal(context.shared_key, node.agreement, purpose, part, secret)
                sealed.append(Sealed(node.name, text, salt))
            return tuple(sealed)

        return ShareReply(context.release(vector.name, Summand(self._own(context, request.settings, vector), seal)))

    def _purpose(self, context: Context, sender: str, receiver: str) -> tuple[bytes, ...]:
        return self.name.encode(), context.index.to_bytes(8, "big"), sender.encode(), receiver.encode()

    def _agree(self, context: Context, request: AgreeRequest) -> AgreeReply:
        aggregation = self._node(context)
        aggregation.check_participants(request.participants)
        return AgreeReply(Public(context.attest(*self._set_parts(context, request.participants))))

    def _node(self, context: Context) -> Aggregation:
        aggregation, _ = self._planned(context)
        if aggregation.mode is not Mode.DISTRIBUTED or context.name not in aggregation.nodes:
            msg = f"party {context.name!r} is not a node of a secure sum in this plan"
            raise PlanMismatch(msg)
        return aggregation

    def _set_parts(self, context: Context, participants: tuple[str, ...]) -> tuple[bytes, ...]:
        names = (name.encode() for name in participants)
        return b"participants", context.plan.hash.encode(), self.name.encode(), context.index.to_bytes(8, "big"), *names

    def _total(self, context: Context, request: TotalRequest) -> TotalReply:
        aggregation = self._node(context)
        names = tuple(member.name for member in request.participants)
        aggregation.check_participants(names)
        nodes = tuple(node.name for node in request.nodes)
        aggregation.check_nodes(nodes)
        if len(request.signatures) != len(nodes) or context.name not in nodes:
            raise ProtocolError("a secure sum needs the signature of each of its nodes, and this party among them")
        for node, signature in zip(request.nodes, request.signatures, strict=True):
            identity = context.plan.study.card(node.name).key or node.identity
            verify(identity, signature, *self._set_parts(context, names))
        size = context.plan.release(context.name, self.name).size
        at = nodes.index(context.name)
        total = np.zeros(size, dtype=np.uint64)
        for share in self._unsealed(context, request, size):
            secure_sum.add_share(total, share, at, len(nodes))
        return TotalReply(context.partial(self.name, total))

    def _unsealed(self, context: Context, request: TotalRequest, size: int) -> Generator[secure_sum.Buffer]:
        """What the participants sealed for this party, one after the other."""
        if len(request.sealed) != len(request.participants):
            raise ProtocolError("a total needs one sealed share of each participant")
        plan, room = context.plan, bytearray(8 * size)
        for member, sealed in zip(request.participants, request.sealed, strict=True):
            sender = _checked(plan, member)
            purpose = self._purpose(context, sender.name, context.name)
            key = sender.agreement
            yield secure_sum.unseal(context.shared_key, key, purpose, sealed.salt, sealed.ciphertext, room)

    def _noisy(self, context: Context, request: TotalRequest) -> NoisyReply:
        aggregation, vector = self._planned(context)
        name = context.name
        # The aggregator's own vector is not sealed: it joins here, between the others' in the study's order.
        names = tuple(member.name for member in request.participants)
        if aggregation.mode is not Mode.TRUSTED or aggregation.nodes != (name,) or name in names:
            raise PlanMismatch("this plan has no trusted aggregator here, or another one")
        aggregation.check_participants(tuple(n for n in aggregation.parties if n == name or n in names))
        if len(set(names)) != len(names):
            raise ProtocolError("a participant that is named twice")
        statistic = self._own(context, request.settings, vector).astype(np.uint64)
        for share in self._unsealed(context, request, statistic.size):
            secure_sum.add_share(statistic, share, 0, 1)
        return NoisyReply(context.release(self.name, Vector(statistic.astype(np.int64))))

    def _local(self, context: Context, request: LocalRequest) -> NoisyReply:
        _, vector = self._planned(context)
        return NoisyReply(context.release(self.name, Vector(self._own(context, request.settings, vector))))


# --- at the coordinator ----------------------------------------------------------------------------------------------------


def exchange_keys(aggregation: Aggregation) -> Generator[list[Ask], Replies, dict[str, Member]]:
    """The keys of the parties that are there; empty where nothing is sealed."""
    if aggregation.mode is Mode.LOCAL:
        return {}
    replies = yield [Ask(name, KEYS.name, Nothing()) for name in aggregation.parties]
    members = {
        name: Member(name, reply.agreement.value, reply.identity.value, reply.signature.value)
        for name, reply in zip(aggregation.parties, replies, strict=True)
        if not isinstance(reply, Dropped)
    }
    _enough(aggregation, members, "at the exchange of keys")
    if sum(node in members for node in aggregation.nodes) < aggregation.count:
        msg = f"fewer than {aggregation.count} of the nodes {', '.join(aggregation.nodes)} are there: run it again once they are"
        raise StudyAborted(msg)
    return members


def collect(
    plan: Plan, aggregation: Aggregation, vector: Summed, members: Mapping[str, Member], settings: tuple[float, ...] = ()
) -> Generator[list[Ask], Replies, Total]:
    """The conversation that leads to one total."""
    name = vector.name
    if aggregation.mode is Mode.LOCAL:
        replies = yield [Ask(party, f"{name}-local", LocalRequest(settings)) for party in aggregation.parties]
        arrived = {p: r for p, r in zip(aggregation.parties, replies, strict=True) if not isinstance(r, Dropped)}
        _enough(aggregation, arrived, "at their releases")
        mechanisms = {party: _mechanism(plan, party, name) for party in arrived}
        values = sum(mechanisms[party].decode(reply.total.values.numpy()) for party, reply in arrived.items())
        noise = np.sqrt(sum(mechanism.deviations**2 for mechanism in mechanisms.values()))
        return Total(np.asarray(values), noise, tuple(arrived))
    nodes = tuple(members[node] for node in [n for n in aggregation.nodes if n in members][: aggregation.count])
    names = [node.name for node in nodes]
    senders = [party for party in members if aggregation.mode is Mode.DISTRIBUTED or party not in aggregation.nodes]
    replies = yield [Ask(party, f"{name}-share", ShareRequest(nodes, settings)) for party in senders]
    sealed = {party: reply.shares for party, reply in zip(senders, replies, strict=True) if not isinstance(reply, Dropped)}
    for party, shares in sealed.items():
        if [share.node for share in shares] != names:
            msg = f"party {party!r} sealed its shares of {name!r} for others than {', '.join(names)}, in this order"
            raise ProtocolError(msg)
    joined = tuple(members[party] for party in sealed)
    if aggregation.mode is Mode.TRUSTED:
        (aggregator,) = names
        everybody = tuple(p for p in aggregation.parties if p in sealed or p == aggregator)
        _enough(aggregation, dict.fromkeys(everybody), "at their contributions")
        request = TotalRequest(joined, tuple(parts[0] for parts in sealed.values()), settings=settings)
        (reply,) = yield [Ask(aggregator, f"{name}-noisy", request)]
        _answered([aggregator], [reply])
        release = _mechanism(plan, aggregator, name)
        return Total(release.decode(reply.total.values.numpy()), release.deviations, everybody)
    _enough(aggregation, sealed, "at their shares")
    agreed = yield [Ask(node.name, f"{name}-agree", AgreeRequest(tuple(sealed))) for node in nodes]
    _answered(names, agreed)
    signatures = tuple(reply.signature.value for reply in agreed)
    replies = yield [
        Ask(node.name, f"{name}-total", TotalRequest(joined, tuple(p[k] for p in sealed.values()), nodes, signatures))
        for k, node in enumerate(nodes)
    ]
    _answered(names, replies)
    share = plan.release(nodes[0].name, name).mechanism
    assert isinstance(share, NoiseShare)
    integers = secure_sum.opened([reply.part.values.numpy() for reply in replies])
    return Total(share.decode(integers, len(sealed)), share.total_deviations(len(sealed)), tuple(sealed))


def _mechanism(plan: Plan, party: str, name: str) -> GaussianRelease:
    mechanism = plan.release(party, name).mechanism
    assert isinstance(mechanism, GaussianRelease)
    return mechanism


def _enough(aggregation: Aggregation, arrived: Mapping[str, Any], where: str) -> None:
    """Abort, with nothing opened, where more than T parties are missing."""
    missing = [party for party in aggregation.parties if party not in arrived]
    if len(missing) > aggregation.tolerate:
        msg = (
            f"{', '.join(missing)} dropped out {where}, and this study tolerates {aggregation.tolerate}. Nothing was opened: run it "
            "again once they are back"
        )
        raise StudyAborted(msg)


def _answered(nodes: list[str], replies: Replies) -> None:
    """Abort where a node is gone: without it nothing can be opened."""
    gone = [f"{node} ({r.reason})" for node, r in zip(nodes, replies, strict=True) if isinstance(r, Dropped)]
    if gone:
        msg = f"{', '.join(gone)} did not add up, so nothing was opened: run it again once it is back"
        raise StudyAborted(msg)


__all__ = ["KEYS", "Aggregation", "Member", "Mode", "Statistic", "Summed", "Summing", "Total", "collect", "exchange_keys"]
