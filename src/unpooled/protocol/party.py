"""A party: the only place with raw data. It answers bytes with bytes.

It compiles every plan for itself, asks its policy, and in every step takes bounds, scale and budget from that plan. What a step
returns is checked and stored before it is sent; the same request gives the same bytes.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from unpooled.errors import DataError, PlanMismatch, ProtocolError, RowsError, raised_at
from unpooled.privacy.bounds import AsDeclared
from unpooled.privacy.exposure import release_costs, shared_costs
from unpooled.privacy.ledger import Charge, ReleaseKey
from unpooled.privacy.mechanisms import Summand
from unpooled.privacy.plan import AGGREGATION, ALIGNED, Card, Plan, Release, Study
from unpooled.privacy.table import is_complete
from unpooled.privacy.unit import Split
from unpooled.protocol.claims import signed_parts
from unpooled.protocol.context import serving
from unpooled.protocol.conversation import OPEN, OpenRequest, check_claim, find_step, open_request
from unpooled.protocol.entries import LINK, maker
from unpooled.protocol.identity import Identity
from unpooled.protocol.keeper import MAP_DATA, ROW_MAP, Keeper, MemoryKeeper
from unpooled.protocol.messages import (
    ISSUED,
    SIZE_LIMIT,
    Array,
    Entrusted,
    Envelope,
    Partial,
    Pseudonyms,
    Released,
    Sealed,
    Signed,
    digest,
    encode,
    encode_content,
    open_body,
    open_envelope,
    reply_parts,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.privacy.budget import FitClaim
    from unpooled.privacy.ledger import Ledger
    from unpooled.privacy.mechanisms import Given
    from unpooled.privacy.noise import KeySource
    from unpooled.privacy.policy import Policy
    from unpooled.privacy.table import Table
    from unpooled.protocol.step import Model, Step

#: Each key seals one message, so that its nonce may be constant.
_NONCE = bytes(12)


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
    claim: FitClaim | None = None
    _plans: dict[str, Plan] = field(default_factory=dict)
    #: What each plan costs the people here over all parties, worked out once.
    _shared: dict[str, list[Charge]] = field(default_factory=dict)

    def keys_for(self, study: Study) -> KeySource:
        """Return the party's secret key source, or the simulation's if the (approved) study is one."""
        if study.simulation_seed is None:
            return self.keys
        return type(self.keys).simulation(study.simulation_seed)

    @property
    def identity(self) -> Identity:
        """Return the keys that the party signs and agrees with, derived from the root key next to its ledger."""
        return Identity(self.ledger.root_key)

    def fingerprint(self, content: bytes) -> bytes:
        """Return a keyed digest for the ledger, so that a reader of a copy of the ledger cannot try out small data sets."""
        return hmac.digest(self.ledger.root_key, content, "sha256")

    def charges(self, plan: Plan) -> list[Charge]:
        """Return everything that a plan can debit here."""
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
        act([*charges, *self._whole(plan)], rules.budget, scope=rules.scope, allow_unbounded=rules.allows_unbounded)

    def _whole(self, plan: Plan) -> list[Charge]:
        if plan.hash not in self._shared:
            self._shared[plan.hash] = _shared(plan, self.name)
        return self._shared[plan.hash]

    def answer(self, blob: bytes, limit: int = SIZE_LIMIT) -> bytes:
        """Answer one request: from the store if it was answered before, else by running its step."""
        with raised_at(party=self.name):
            envelope = open_envelope(blob, limit)
            if envelope.step == OPEN.name:
                try:
                    self._agree(envelope.plan, open_request(envelope))
                except RowsError as error:
                    raise error.told() from None
            plan = self._plans.get(envelope.plan)
            if plan is None:
                msg = f"party {self.name!r} has not opened plan {envelope.plan[:16]}: send the study first"
                raise PlanMismatch(msg)
            step = find_step(self.model(plan.study.row), envelope.step)
            if not 0 <= envelope.index < self._times(plan, step):
                msg = f"step {step.name!r} is planned {self._times(plan, step)} times; a request for one more is refused"
                raise PlanMismatch(msg)
            request = open_body(envelope, step.request)
            # The data are part of what is answered: an old request over changed data is a conflict, not an old answer.
            asked = self.fingerprint(digest(blob, self.table.digest))
            stored = self.ledger.reply(plan.hash, step.name, envelope.index, asked)
            if stored is not None:
                return stored
            desk = OpenDesk(self, plan, step.name, envelope.index, asked)
            with serving(desk, self.name, self.table, plan, step.name, envelope.index) as context:
                reply = step.answer(context, request)
            check_minted(step, reply, desk.minted, plan.study)
            answer = encode(plan.hash, step.name, envelope.index, reply, self._signature(blob))
            self.ledger.commit(plan.hash, step.name, envelope.index, asked, answer)
            return answer

    def _signature(self, request: bytes) -> Callable[[Envelope], str] | None:
        """Return what signs the reply to a request; a party of one process has no key that anybody knows, and signs nothing."""
        if not self.card.key:
            return None
        return lambda reply: self.identity.sign(*reply_parts(reply, self.name, request))

    def _times(self, plan: Plan, step: Step) -> int:
        """Return the most requests for a step: its own number, else the planned number of its releases (or of the release it belongs to), else 1."""
        if step.times is not None:
            return step.times(plan)
        own = (r for r in plan.releases if r.party == self.name)
        return max((r.count for r in own if r.step == step.name or r.name == step.of), default=1)

    def _agree(self, claimed: str, asked: OpenRequest) -> None:
        """Compile the study here, compare hashes, consider the plan; remember it."""
        # Before anything of another distribution is imported: a coordinator may ask for any model that is installed here.
        self.policy.check_model(asked.study, maker(asked.study.row), links=asked.study.row == LINK)
        plan = self.model(asked.study.row).compile(asked.study)
        check_claim(plan, claimed, asked, self.name)
        self.consider(plan, approved=self.ledger.approved(plan.hash))
        self._plans[plan.hash] = plan

    def consider(self, plan: Plan, *, approved: bool) -> None:
        """Hold a plan against card, data, policy and ledger; refuses in words and changes nothing."""
        card = plan.study.card(self.name)
        # Cards of earlier versions named neither ids nor row maps.
        earlier = ({"id": ""}, {"linked": ""}, {"id": "", "linked": ""})
        if card not in {self.card, *(msgspec.structs.replace(self.card, **unnamed) for unnamed in earlier)}:
            other = ", ".join(name for name in card.__struct_fields__ if getattr(card, name) != getattr(self.card, name))
            msg = f"the study's card of party {self.name!r} is not the one this party published (they differ in {other}): use its current card"
            raise PlanMismatch(msg)
        if card.rows != self.table.n_rows:
            msg = f"party {self.name!r}: its card declares {card.rows} rows, its data have {self.table.n_rows}"
            raise DataError(msg)
        together = None if card.household is None else (card.household.ids, card.household.rows)
        if together != self.table.household:
            msg = f"party {self.name!r}: its card declares other ids, or another number of rows that count of each, than its data have"
            raise DataError(msg)
        if plan.links:
            self.policy.check_link(plan, self.name)
            guesses = plan.design.guesses(self.name)
            self.ledger.align(plan.hash, plan.study.circle, guesses, *self.policy.psi_limits, only_check=True)
        if self.table.unordered and plan.split is Split.VERTICAL and len(plan.study.parties) > 1:
            raise DataError(self.table.unordered)
        if plan.study.linked != self.table.linked:  # its own map, never what somebody sent
            msg = f"party {self.name!r}: its rows are not those of the row map that the study names (`linked` in its party file)"
            raise PlanMismatch(msg)
        self.policy.check(plan, approved_in_ledger=approved, party=f"party {self.name!r}")
        self.debit(plan, self.charges(plan), only_check=True)
        if plan.study.ids == ALIGNED:
            self.table.ids_digest(b"")  # blank or repeated ids are refused here, before anything is sent
        for label in card.labels:
            if not is_complete(self.table[label]):
                msg = f"column {label!r} holds a missing value: clean it, or leave those rows out at every party"
                raise DataError(msg).at(column=label)
        self.model(plan.study.row).check(plan, self.name, self.table)
        self.table.passed(AsDeclared(card.columns))  # bad data are refused here, before anything was charged or sent


@dataclass(slots=True)
class OpenDesk:
    """A party's side of one request: everything that a context can ask for, and a list of what was handed out."""

    party: Party
    plan: Plan
    step: str
    index: int
    #: A digest of the request and the data.
    asked: bytes
    minted: list[msgspec.Struct] = field(default_factory=list)

    def release(self, name: str, given: Given) -> Released | tuple[Sealed, ...]:
        """Debit, draw, hand out. Debited durably before any noise is drawn, so that whatever happens then is paid for."""
        planned, party = self.planned(name), self.party
        mechanism = planned.mechanism
        if mechanism.needs_trust and not self.plan.study.trusts(AGGREGATION):
            msg = f"release {name!r} needs a trusted aggregator, which the study does not ask for"
            raise PlanMismatch(msg)
        if type(given) is not mechanism.takes:
            msg = f"release {name!r} is planned as {mechanism.name}, which takes a {mechanism.takes.__name__}"
            raise PlanMismatch(msg)
        mechanism.check(given)
        content = mechanism.content(given)
        # The first releases are debited for a unit that is part of few of them: so they must come first.
        if planned.exposure.ordered and self.index and not party.ledger.charged(self._key(planned, self.index - 1)):
            msg = f"release {name!r} is asked for in order: number {self.index - 1} was not made yet"
            raise PlanMismatch(msg)
        # Bound to the request: another one at this index is refused, and whether its statistic is the same is not told.
        fingerprint = party.fingerprint(digest(content, self.asked))
        party.table.verify()  # what the statistic was computed from is what the digest says
        party.debit(self.plan, [_charge(self.plan, planned, self.index, fingerprint)])
        names = (self.plan.hash, party.name, self.step, self.index, name)
        drawn = mechanism.draw(given, party.keys_for(self.plan.study).stream(*names, content=content))
        if isinstance(given, Summand):
            secret = party.keys.stream("seal", *names, content=content)  # never that of a simulation
            sealed = given.seal(drawn, secret.key)
            self.minted.extend(sealed)
            return sealed
        released = Released(name, self.index, Array.of(drawn))
        self.minted.append(released)
        return released

    def affordable(self, names: tuple[str, ...]) -> None:
        """Refuse releases that do not all fit into the budget."""
        charges = [_charge(self.plan, self.planned(name), self.index, bytes(32)) for name in names]
        self.party.debit(self.plan, charges, only_check=True)

    def planned(self, name: str, *, own_step: bool = True) -> Release:
        """Return the plan's release of this name; refused where there is none in this step, or where it was made often enough."""
        planned = self.plan.release(self.party.name, name)
        if own_step and planned.step != self.step:
            msg = f"release {name!r} belongs to step {planned.step!r}, not to {self.step!r}"
            raise PlanMismatch(msg)
        if self.index >= planned.count:
            msg = f"release {name!r} is planned {planned.count} times; a request for one more is refused"
            raise PlanMismatch(msg)
        return planned

    def partial(self, name: str, values: NDArray[Any]) -> Partial:
        """Return the part of a total that this node has added up."""
        mechanism = self.planned(name, own_step=False).mechanism
        if mechanism.takes is not Summand or mechanism.needs_trust:
            msg = f"release {name!r} is planned as {mechanism.name}, which has no partial sums"
            raise PlanMismatch(msg)
        part = Partial(name, self.index, Array.of(values))
        self.minted.append(part)
        return part

    def sign(self, values: tuple[Released, ...]) -> Signed:
        """Return a signature under what this desk has just handed out."""
        if not all(any(value is one for one in self.minted) for value in values):
            raise ProtocolError("a party signs what it has just released and nothing else")
        identity = self.party.identity
        parts = signed_parts(self.plan, self.party.name, self.step, self.index, values)
        signed = Signed(identity.public, identity.sign(*parts))
        self.minted.append(signed)
        return signed

    def attest(self, parts: tuple[bytes, ...]) -> str:
        """Return a signature under public parts."""
        return self.party.identity.sign(*parts)

    def public_key(self) -> str:
        """Return the key that verifies this party's signatures."""
        return self.party.identity.public

    def agreement_key(self) -> str:
        """Return the public half of this party's key for sealed messages of this plan."""
        return self.party.identity.agreement_key(self.plan.hash.encode())

    def shared_key(self, other: str, purpose: tuple[bytes, ...]) -> bytes:
        """Return the key shared with the holder of another agreement key."""
        return self.party.identity.shared_key(self.plan.hash.encode(), other, *purpose)

    def secret(self, purpose: bytes) -> bytes:
        """Return a secret of this party for this plan and purpose: only its own root key gives it."""
        return self.party.fingerprint(purpose + b" " + self.plan.hash.encode())

    def seal_secret(self, node: str, key: str, purpose: bytes, context: tuple[bytes, ...]) -> Sealed:
        """That secret, sealed for another party."""
        sealed = Sealed(node, AESGCM(self.shared_key(key, context)).encrypt(_NONCE, self.secret(purpose), None))
        self.minted.append(sealed)
        return sealed

    def align(self, guesses: int) -> None:
        """Write an alignment down: once for a plan, and no more often than the policy allows for this circle of parties."""
        party = self.party
        party.policy.check_link(self.plan, party.name)
        party.ledger.align(self.plan.hash, self.plan.study.circle, guesses, *party.policy.psi_limits)

    def seal(self, node: str, key: str, content: bytes, context: tuple[bytes, ...]) -> Sealed:
        """Return bytes for another party. The key is of the content: the same again gives the same bytes, other content another key."""
        self._must_be_aligned()
        salt = self.party.fingerprint(digest(b"salt", self.plan.hash.encode(), *context, content))
        sealed = Sealed(node, AESGCM(self.shared_key(key, (*context, salt))).encrypt(_NONCE, content, None), salt)
        self.minted.append(sealed)
        return sealed

    def pseudonyms(self, values: Sequence[bytes]) -> Pseudonyms:
        """Pseudonyms of rows."""
        self._must_be_aligned()
        made = Pseudonyms(b"".join(sorted(values)))
        self.minted.append(made)
        return made

    def _must_be_aligned(self) -> None:
        if not self.party.ledger.aligned(self.plan.hash):
            raise PlanMismatch(
                "nothing about row ids leaves a party before its ledger says that they are linked in this plan"
            )

    def keep_map(self, digest: str, rows: NDArray[Any]) -> None:
        """Keep a row map."""
        self.party.keeper.keep(digest, MAP_DATA, np.frombuffer(self.party.table.digest, dtype=np.uint8))
        self.party.keeper.keep(digest, ROW_MAP, rows)

    def keep(self, name: str, values: NDArray[Any]) -> None:
        """Keep a value at this party."""
        self.party.keeper.keep(self.plan.hash, name, values)

    def kept(self, name: str, plan: str | None) -> NDArray[Any]:
        """Return the value that was kept."""
        return self.party.keeper.kept(plan or self.plan.hash, name)

    def has(self, name: str) -> bool:
        """Return True if a value was kept."""
        return self.party.keeper.has(self.plan.hash, name)

    def _key(self, planned: Release, index: int) -> ReleaseKey:
        return ReleaseKey(self.plan.hash, planned.step, index, planned.name)


def _charge(plan: Plan, release: Release, index: int, fingerprint: bytes) -> Charge:
    """Return the charge that the ledger debits for the ``index``-th release of this kind: both come from the party's own plan."""
    key = ReleaseKey(plan.hash, release.step, index, release.name)
    return Charge(key, fingerprint, release_costs(release, index))


def _shared(plan: Plan, party: str) -> list[Charge]:
    """Return the cost of the whole plan to the people in this party's rows, where other parties release something about them too; else none."""
    costs = shared_costs(plan, party)
    return (
        [Charge(ReleaseKey(plan.hash, "(whole plan)", 0, "(all parties)"), bytes(32), costs, shared=True)] if costs else []
    )


def check_minted(step: Step, reply: msgspec.Struct, minted: Sequence[msgspec.Struct], study: Study) -> None:
    """Refuse a reply that holds anything but what this request's desk handed out, and what the plan entrusts."""
    if type(reply) is not step.reply:
        msg = f"step {step.name!r} returned a {type(reply).__name__} where it declares {step.reply.__name__}"
        raise ProtocolError(msg)
    for name in reply.__struct_fields__:
        value = getattr(reply, name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, ISSUED) and not any(part is one for one in minted):
                msg = f"step {step.name!r} returned a {name!r} that was not released for it"
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
