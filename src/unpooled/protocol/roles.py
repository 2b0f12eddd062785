"""The two roles of a study: a party, which alone sees raw data, and a coordinator, which is a pure generator.

A :class:`Model` is one row of the registry: how its plan is compiled, its steps at a party, its coordinator. A
:class:`Party` answers requests: it compiles the plan for itself, asks its policy, and in every step takes bounds, scale and
budget from that plan. What a step returns is checked and stored before it is sent; the same request gives the same bytes.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, cast

import msgspec
import numpy as np

from unpooled.errors import DataError, PlanMismatch, ProtocolError, StudyAborted, UsageError
from unpooled.privacy.bounds import check
from unpooled.privacy.chain import Charge, ReleaseKey
from unpooled.privacy.exposure import release_costs, shared_costs
from unpooled.privacy.mechanisms import Additive, Minimising, NoisyChoice, Scaled, Shared
from unpooled.privacy.plan import AGGREGATION, PLAN_VERSION, Card, Plan, Release, Study
from unpooled.privacy.table import is_complete
from unpooled.privacy.unit import Split, Unit
from unpooled.protocol.identity import Identity
from unpooled.protocol.messages import (
    ISSUED,
    SIZE_LIMIT,
    Array,
    Ask,
    Dropped,
    Entrusted,
    Nothing,
    Partial,
    Public,
    Released,
    Sealed,
    Signed,
    check_reply_type,
    digest,
    encode,
    encode_content,
    open_body,
    open_envelope,
)

if TYPE_CHECKING:
    from collections.abc import ItemsView, Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.privacy.budget import Claim
    from unpooled.privacy.ledger import Ledger
    from unpooled.privacy.noise import KeySource, Stream
    from unpooled.privacy.policy import Policy
    from unpooled.privacy.table import Table

T = TypeVar("T")
Replies: TypeAlias = list[Any]
#: A coordinator yields batches of requests and is sent the replies in the same order; it returns its result.
Conversation: TypeAlias = Generator[list[Ask], Replies, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing a party can be asked to do: a function from (context, request) to a reply of declared type."""

    name: str
    request: type[msgspec.Struct]
    reply: type[msgspec.Struct]
    answer: Callable[[Context, Any], msgspec.Struct]

    def __post_init__(self) -> None:
        check_reply_type(self.reply)


@dataclass(frozen=True, slots=True)
class Panel:
    """Numbers of a result that belong into one figure, with intervals where the model has them."""

    title: str
    names: tuple[str, ...]
    values: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    #: The names follow each other (channels of a spectrum): a line, not bars.
    ordered: bool = False


def no_panels(result: Any) -> tuple[Panel, ...]:  # noqa: ANN401, ARG001 - for models whose results stay at the parties
    """Nothing to draw."""
    return ()


@dataclass(frozen=True, slots=True)
class Model:
    """One system: everything the protocol needs to run it. Models are rows of ``unpooled.models.REGISTRY``."""

    name: str
    split: Split
    compile: Callable[[Study], Plan]
    steps: tuple[Step, ...]
    coordinate: Callable[[Plan], Conversation]
    #: The coordinator's result as text for a terminal, and as figures.
    render: Callable[[Any], str]
    panels: Callable[[Any], tuple[Panel, ...]] = no_panels
    #: Whether the guarantee of a whole row covers the parties' label columns too.
    covers_labels: bool = False

    def step(self, name: str) -> Step:
        """The step of this name."""
        from unpooled.protocol import alignment

        for step in (OPEN, *alignment.STEPS, *self.steps):
            if step.name == name:
                return step
        msg = f"model {self.name!r} has no step {name!r}"
        raise ProtocolError(msg)


class Opened(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A party's agreement: the hash of the plan it compiled for itself."""

    plan: Public[str]


class OpenRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The public text of the study, from which the party compiles its own plan, and what version of plans the coordinator means."""

    study: Study
    version: int = PLAN_VERSION


class Keeper(Protocol):
    """Where a party keeps what never leaves it (its own coefficients)."""

    def keep(self, plan: str, name: str, values: NDArray[Any]) -> None:
        """Store one value."""
        ...

    def kept(self, plan: str, name: str) -> NDArray[Any]:
        """One stored value."""
        ...

    def has(self, plan: str, name: str) -> bool:
        """Whether there is one."""
        ...


class MemoryKeeper:
    """Kept values of an in-process party."""

    def __init__(self, values: Mapping[tuple[str, str], NDArray[Any]] | None = None) -> None:
        self._values: dict[tuple[str, str], NDArray[Any]] = dict(values or {})

    def keep(self, plan: str, name: str, values: NDArray[Any]) -> None:
        """Store one value."""
        self._values[plan, name] = values

    def kept(self, plan: str, name: str) -> NDArray[Any]:
        """One stored value."""
        if (plan, name) not in self._values:
            msg = f"nothing named {name!r} is kept for plan {plan[:16]}"
            raise UsageError(msg)
        return self._values[plan, name]

    def has(self, plan: str, name: str) -> bool:
        """Whether there is such a value."""
        return (plan, name) in self._values

    def items(self) -> ItemsView[tuple[str, str], NDArray[Any]]:
        """Everything kept, by (plan, name)."""
        return self._values.items()


@dataclass(slots=True)
class Context:
    """What a step may touch: the data, the plan, and the one way out, :meth:`release`."""

    party: Party
    plan: Plan
    step: str
    index: int
    #: A digest of the request and the data.
    asked: bytes = b""
    issued: list[msgspec.Struct] = field(default_factory=list)

    @property
    def table(self) -> Table:
        """The party's raw data."""
        return self.party.table

    @property
    def card(self) -> Card:
        """The party's declared columns, as the approved study has them."""
        return self.plan.study.card(self.party.name)

    def release(self, name: str, statistic: NDArray[Any], sensitivity: float | None = None) -> Released:
        """Draw the planned release's noise, debit it, and hand out the result: the only door.

        ``sensitivity`` is for mechanisms whose scale is a closed form of values that are public only during the run.

        The noise key is derived from everything that names the release AND from the exact statistic: the same statistic gives
        the same bytes again (a crash costs nothing), another statistic gets unrelated noise, never the same noise twice.
        """
        planned = self.planned(name)
        mechanism = planned.mechanism
        if not isinstance(mechanism, Additive | Scaled):
            msg = f"release {name!r} is planned as {mechanism.name}, not as a vector plus noise"
            raise PlanMismatch(msg)
        if isinstance(mechanism, Scaled) and sensitivity is None:
            msg = f"release {name!r} needs the sensitivity that this run gives it"
            raise PlanMismatch(msg)

        def draw(bits: Stream) -> NDArray[Any]:
            if isinstance(mechanism, Additive):
                return mechanism.release(statistic, bits)
            return mechanism.release_scaled(statistic, cast("float", sensitivity), bits)

        values = self._drawn(planned, digest(statistic.tobytes(), repr(sensitivity).encode()), draw)
        released = Released(name, self.index, Array.of(values))
        self.issued.append(released)
        return released

    def share(
        self, name: str, statistic: NDArray[np.int64], seal: Callable[[NDArray[np.int64], bytes], tuple[Sealed, ...]]
    ) -> tuple[Sealed, ...]:
        """Draw the noise of the planned share of a total, debit it, and hand it out as ``seal`` encrypts it for the nodes that add up.

        ``seal`` is also given a secret of this very share, never of a simulation, to split and encrypt it with.
        """
        planned = self.planned(name)
        if not isinstance(planned.mechanism, Shared):
            msg = f"release {name!r} is planned as {planned.mechanism.name}, not as a share of a total"
            raise PlanMismatch(msg)
        if planned.mechanism.needs_trust and not self.plan.study.trusts(AGGREGATION):
            msg = f"release {name!r} needs a trusted aggregator, which the study does not ask for"
            raise PlanMismatch(msg)
        content, mechanism = digest(statistic.tobytes()), planned.mechanism
        secret = self.party.keys.stream("seal", *self._names(name), content=content)
        sealed = seal(self._drawn(planned, content, lambda bits: mechanism.share(statistic, bits)), secret.key)
        self.issued.extend(sealed)
        return sealed

    def choose(self, name: str, scores: NDArray[np.int64], sensitivity: int, *, signed: bool = False) -> Released:
        """Make the planned choice, debit it, and hand out the index of one of these scores, each moved by one unit by at most ``sensitivity``.

        ``signed``: an index of [scores, -scores].
        """
        planned = self.planned(name)
        if not isinstance(planned.mechanism, NoisyChoice):
            msg = f"release {name!r} is planned as {planned.mechanism.name}, not as a choice"
            raise PlanMismatch(msg)
        mechanism, unit = planned.mechanism, Unit(self.plan.study.unit)
        content = digest(scores.tobytes(), str(sensitivity).encode(), bytes([signed]))
        chosen = self._drawn(
            planned, content, lambda bits: mechanism.release(scores, sensitivity, unit, bits, signed=signed)
        )
        released = Released(name, self.index, Array.of(np.array([chosen])))
        self.issued.append(released)
        return released

    def sign(self, *values: Released) -> Signed:
        """A signature under values that the party released, which tells others that they are its own."""
        if not all(any(value is one for one in self.issued) for value in values):
            raise ProtocolError("a party signs what it has just released and nothing else")
        identity = self.party.identity
        parts = signed_parts(self.plan, self.party.name, self.step, self.index, values)
        signed = Signed(identity.public, identity.sign(*parts))
        self.issued.append(signed)
        return signed

    def minimise(self, name: str, solve: Callable[[NDArray[np.float64]], NDArray[np.float64]], *settings: bytes) -> Released:
        """Perturb the planned minimiser's objective, debit it and hand out the solution.

        The noise key depends on the whole table and on ``settings``, whatever else of a request the objective depends on.
        """
        planned = self.planned(name)
        if not isinstance(planned.mechanism, Minimising):
            msg = f"release {name!r} is planned as {planned.mechanism.name}, not as a minimiser"
            raise PlanMismatch(msg)
        mechanism, content = planned.mechanism, digest(self.table.digest, *settings)
        solution = self._drawn(planned, content, lambda bits: mechanism.minimise(solve, bits))
        released = Released(name, self.index, Array.of(solution))
        self.issued.append(released)
        return released

    def partial(self, name: str, values: NDArray[np.uint64]) -> Partial:
        """Hand out this node's part of a total whose shares their parties have debited."""
        planned = self.planned(name, own_step=False)
        if not isinstance(planned.mechanism, Shared) or planned.mechanism.needs_trust:
            msg = f"release {name!r} is planned as {planned.mechanism.name}, which has no partial sums"
            raise PlanMismatch(msg)
        part = Partial(name, self.index, Array.of(values))
        self.issued.append(part)
        return part

    def _drawn(self, planned: Release, content: bytes, draw: Callable[[Stream], T]) -> T:
        """What the mechanism makes of this content: debited durably before any noise is drawn, so that whatever happens then is paid for."""
        party, before = self.party, self.index - 1
        # The first releases are debited for a unit that is part of few of them: so they must come first.
        if planned.exposure.ordered and self.index and not party.ledger.charged(self._key(planned, before)):
            msg = f"release {planned.name!r} is asked for in order: number {before} was not made yet"
            raise PlanMismatch(msg)
        # Bound to the request: another one at this index is refused, and whether its statistic is the same is not told.
        fingerprint = party.fingerprint(digest(content, self.asked))
        party.table.verify()  # what the statistic was computed from is what the digest says
        party.debit(self.plan, [_charge(self.plan, planned, self.index, fingerprint)])
        return draw(party.keys_for(self.plan.study).stream(*self._names(planned.name), content=content))

    def affordable(self, *names: str) -> None:
        """Refuse a step now whose releases do not all fit into the budget: a refusal half-way would leave the first of them debited."""
        charges = [_charge(self.plan, self.planned(name), self.index, bytes(32)) for name in names]
        self.party.debit(self.plan, charges, only_check=True)

    def _key(self, planned: Release, index: int) -> ReleaseKey:
        return ReleaseKey(self.plan.hash, planned.step, index, planned.name)

    def _names(self, release: str) -> tuple[str | int, ...]:
        """Everything that names a release, for its keys."""
        return self.plan.hash, self.party.name, self.step, self.index, release

    def planned(self, name: str, *, own_step: bool = True) -> Release:
        """The plan's release of this name in this step; refused where there is none, or where it was made often enough."""
        planned = self.plan.release(self.party.name, name)
        if own_step and planned.step != self.step:
            msg = f"release {name!r} belongs to step {planned.step!r}, not to {self.step!r}"
            raise PlanMismatch(msg)
        if self.index >= planned.count:
            msg = f"release {name!r} is planned {planned.count} times; a request for one more is refused"
            raise PlanMismatch(msg)
        return planned

    def keep(self, name: str, values: NDArray[Any]) -> None:
        """Keep a value at this party; it never travels."""
        self.party.keeper.keep(self.plan.hash, name, values)


def signed_parts(plan: Plan, party: str, step: str, index: int, values: Sequence[Released]) -> tuple[bytes, ...]:
    """What :meth:`Context.sign` signs: where and when something was released, and what."""
    return (
        *(b"released", plan.hash.encode(), party.encode(), step.encode(), str(index).encode()),
        *(encode_content(value) for value in values),
    )


def _charge(plan: Plan, release: Release, index: int, fingerprint: bytes) -> Charge:
    """What the ledger debits for the ``index``-th release of this kind: both come from the party's own plan."""
    key = ReleaseKey(plan.hash, release.step, index, release.name)
    return Charge(key, fingerprint, release_costs(release, index))


def _shared(plan: Plan, party: str) -> list[Charge]:
    """What the whole plan costs the people in this party's rows, where other parties release something about them too; else nothing."""
    costs = shared_costs(plan, party)
    return (
        [Charge(ReleaseKey(plan.hash, "(whole plan)", 0, "(all parties)"), bytes(32), costs, shared=True)] if costs else []
    )


def _open(context: Context, request: OpenRequest) -> Opened:  # noqa: ARG001 - Party.answer has compiled and checked it already
    return Opened(Public(context.plan.hash))


OPEN = Step("open", OpenRequest, Opened, _open)


@dataclass(frozen=True, slots=True)
class Party:
    """An organisation: its data, its ledger and key, its policy. Answers bytes with bytes."""

    name: str
    table: Table
    card: Card
    ledger: Ledger
    keys: KeySource
    policy: Policy
    #: The registry: model name to :class:`Model`.
    model: Callable[[str], Model]
    keeper: Keeper = field(default_factory=MemoryKeeper)
    #: A budget that several studies of one process share, debited with the first release (estimators with ``budget=``).
    claim: Claim | None = None
    _plans: dict[str, Plan] = field(default_factory=dict)
    #: What each plan costs the people here over all parties, worked out once.
    _shared: dict[str, list[Charge]] = field(default_factory=dict)

    def keys_for(self, study: Study) -> KeySource:
        """The party's secret key source, or the simulation's if the (approved) study is one."""
        if study.simulation_seed is None:
            return self.keys
        return type(self.keys).simulation(study.simulation_seed)

    @property
    def identity(self) -> Identity:
        """The keys that the party signs and agrees with, derived from the root key beside its ledger."""
        return Identity(self.ledger.root_key)

    def fingerprint(self, content: bytes) -> bytes:
        """A digest for the ledger, keyed: whoever reads a copy of the ledger cannot try out small data sets."""
        return hmac.digest(self.ledger.root_key, content, "sha256")

    def charges(self, plan: Plan) -> list[Charge]:
        """Everything that a plan can debit here."""
        own = [r for r in plan.releases if r.party == self.name]
        return [
            *(_charge(plan, release, i, bytes(32)) for release in own for i in range(release.count)),
            *self._whole(plan),
        ]

    def debit(self, plan: Plan, charges: list[Charge], *, only_check: bool = False) -> None:
        """Debit releases of a plan durably, or refuse; with the first of them also what the whole plan costs the people here.

        Other parties of a column-split study know the same people, and nobody here can tell what they have released: so all of it counts.
        """
        if self.claim is not None:
            (self.claim.check if only_check else self.claim.pay)()
        act = self.ledger.check if only_check else self.ledger.reserve
        rules = self.policy
        act(
            [*charges, *self._whole(plan)],
            rules.budget,
            scope=rules.scope,
            allow_unbounded=rules.allows_unbounded,
        )

    def _whole(self, plan: Plan) -> list[Charge]:
        if plan.hash not in self._shared:
            self._shared[plan.hash] = _shared(plan, self.name)
        return self._shared[plan.hash]

    def answer(self, blob: bytes, limit: int = SIZE_LIMIT) -> bytes:
        """Answer one request: from the store if it was answered before, else by running its step."""
        envelope = open_envelope(blob, limit)
        if envelope.step == OPEN.name:
            self._agree(envelope.plan, open_body(envelope, OpenRequest))
        plan = self._plans.get(envelope.plan)
        if plan is None:
            msg = f"party {self.name!r} has not opened plan {envelope.plan[:16]}: send the study first"
            raise PlanMismatch(msg)
        step = self.model(plan.study.model).step(envelope.step)
        if not 0 <= envelope.index < self._times(plan, step.name):
            msg = f"step {step.name!r} is planned {self._times(plan, step.name)} times; a request for one more is refused"
            raise PlanMismatch(msg)
        request = open_body(envelope, step.request)
        # The data are part of what is answered: an old request over changed data is a conflict, not an old answer.
        asked = self.fingerprint(digest(blob, self.table.digest))
        stored = self.ledger.reply(plan.hash, step.name, envelope.index, asked)
        if stored is not None:
            return stored
        context = Context(self, plan, step.name, envelope.index, asked)
        reply = step.answer(context, request)
        self._check_reply(step, reply, context.issued, plan.study)
        answer = encode(plan.hash, step.name, envelope.index, reply)
        self.ledger.commit(plan.hash, step.name, envelope.index, asked, answer)
        return answer

    def _times(self, plan: Plan, step: str) -> int:
        """How often a step can be asked for: as often as it releases something, once where it releases nothing."""
        return max((r.count for r in plan.releases if r.party == self.name and r.step == step), default=1)

    def _agree(self, claimed: str, request: OpenRequest) -> None:
        """Compile the study here, compare hashes, consider the plan; remember it."""
        if request.version != PLAN_VERSION:
            msg = (
                f"party {self.name!r} makes plans of version {PLAN_VERSION}, the coordinator of version {request.version}: install equal "
                "versions of unpooled"
            )
            raise PlanMismatch(msg)
        study = request.study
        plan = self.model(study.model).compile(study)
        if plan.hash != claimed:
            msg = f"the request claims plan {claimed[:16]}, this party compiles {plan.hash[:16]} from the same study"
            raise PlanMismatch(msg)
        self.consider(plan, approved=self.ledger.approved(plan.hash))
        self._plans[plan.hash] = plan

    def consider(self, plan: Plan, *, approved: bool) -> None:
        """Hold a plan against card, data, policy and ledger; refuses in words and changes nothing."""
        card = plan.study.card(self.name)
        if card != self.card:
            other = ", ".join(name for name in card.__struct_fields__ if getattr(card, name) != getattr(self.card, name))
            msg = f"the study's card of party {self.name!r} is not the one this party published (they differ in {other}): use its current card"
            raise PlanMismatch(msg)
        if card.rows != self.table.n_rows:
            msg = f"party {self.name!r}: its card declares {card.rows} rows, its data have {self.table.n_rows}"
            raise DataError(msg)
        self.policy.check(plan, approved_in_ledger=approved, party=f"party {self.name!r}")
        self.debit(plan, self.charges(plan), only_check=True)
        if plan.study.ids:
            self.table.ids_digest(b"")  # blank or repeated ids are refused here, before anything is sent
        for label in card.labels:
            if not is_complete(self.table[label]):
                msg = f"column {label!r} holds a missing value: clean it, or leave those rows out at every party"
                raise DataError(msg)
        check(self.table, card.columns)  # bad data are refused here, before anything was charged or sent

    @staticmethod
    def _check_reply(step: Step, reply: msgspec.Struct, issued: list[msgspec.Struct], study: Study) -> None:
        if type(reply) is not step.reply:
            msg = f"step {step.name!r} returned a {type(reply).__name__} where it declares {step.reply.__name__}"
            raise ProtocolError(msg)
        for name in reply.__struct_fields__:
            value = getattr(reply, name)
            for part in value if isinstance(value, tuple) else (value,):
                if isinstance(part, ISSUED) and not any(part is one for one in issued):
                    msg = f"step {step.name!r} returned a {name!r} that its ledger did not release"
                    raise ProtocolError(msg)
                if isinstance(part, Entrusted) and not study.trusts(part.role):
                    msg = f"step {step.name!r} would entrust {part.role!r} with values in the clear, which the plan does not"
                    raise PlanMismatch(msg)
        # Encoding to the declared type and back refuses what a field's annotation does not allow.
        try:
            msgspec.msgpack.decode(encode_content(reply), type=step.reply, strict=True)
        except msgspec.ValidationError:
            msg = f"step {step.name!r} returned a field of another type than it declares"
            raise ProtocolError(msg) from None


def everybody(asks: list[Ask]) -> Generator[list[Ask], Replies, Replies]:
    """The replies to these requests where all are needed; a party that is missing stops the study, which can be continued."""
    if not asks:
        return []
    replies = yield asks
    gone = [f"{r.party} ({r.reason})" for r in replies if isinstance(r, Dropped)]
    if gone:
        msg = f"{', '.join(gone)} dropped out at step {asks[0].step!r}: run the study again once they are back"
        raise StudyAborted(msg)
    return replies


def converse(model: Model, plan: Plan) -> Conversation:
    """The whole conversation of a study: every party agrees to the plan, then the model's coordinator runs."""
    request = OpenRequest(plan.study)
    opened = yield [Ask(card.name, OPEN.name, request) for card in plan.study.parties]
    for card, reply in zip(plan.study.parties, opened, strict=True):
        if isinstance(reply, Dropped):
            msg = f"party {card.name!r} did not open the study: {reply.reason}"
            raise UsageError(msg)
        if reply.plan.value != plan.hash:
            msg = f"party {card.name!r} agreed to plan {reply.plan.value[:16]}, not to {plan.hash[:16]}"
            raise PlanMismatch(msg)
    if plan.study.ids:
        from unpooled.protocol.alignment import align

        yield from align(plan)
    return (yield from model.coordinate(plan))


__all__ = [
    "OPEN",
    "Context",
    "Conversation",
    "Keeper",
    "MemoryKeeper",
    "Model",
    "Nothing",
    "Panel",
    "Party",
    "Replies",
    "Step",
    "converse",
    "everybody",
    "signed_parts",
]
