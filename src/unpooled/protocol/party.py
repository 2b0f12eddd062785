"""A party: the only place with raw data. It answers bytes with bytes.

It compiles every plan for itself, asks its policy, and in every step takes bounds, scale and budget from that plan. What a step
returns is checked and stored before it is sent; the same request gives the same bytes.
"""

from __future__ import annotations

import hmac
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from unpooled.errors import DataError, PlanMismatch, PolicyRefusal, RowsError, UsageError, raised_at
from unpooled.privacy.bounds import AsDeclared
from unpooled.privacy.exposure import BETWEEN, shared_costs
from unpooled.privacy.ledger import Charge, ReleaseKey
from unpooled.privacy.plan import ALIGNED, Card, HelperCard, Plan, Study
from unpooled.privacy.table import is_complete
from unpooled.protocol.context import serving
from unpooled.protocol.conversation import OPEN, OpenRequest, check_claim, find_step, open_request
from unpooled.protocol.desk import OpenDesk, charge_of, check_minted
from unpooled.protocol.identity import Identity, Keeper, MemoryKeeper
from unpooled.protocol.messages import (
    SIZE_LIMIT,
    Envelope,
    digest,
    encode,
    open_body,
    open_envelope,
    reply_parts,
)
from unpooled.protocol.registry import LINK, maker

if TYPE_CHECKING:
    from unpooled.privacy.budget import FitClaim
    from unpooled.privacy.ledger import Ledger
    from unpooled.privacy.noise import KeySource
    from unpooled.privacy.policy import Policy
    from unpooled.privacy.table import Table
    from unpooled.protocol.registry import Model, Step


@dataclass(frozen=True, slots=True)
class Party:
    """An organisation: its data, its ledger and key, its policy. Answers bytes with bytes."""

    name: str
    table: Table
    card: Card | HelperCard
    ledger: Ledger
    keys: KeySource
    policy: Policy
    #: The registry: model name to :class:`Model`.
    model: Callable[[str], Model]
    keeper: Keeper = field(default_factory=MemoryKeeper)
    #: A budget that several studies of one process share, debited with the first release (estimators with ``budget=``).
    claim: FitClaim | None = None
    #: The rows as single analyses see them, by name, where in one process they call or hold columns otherwise.
    views: Mapping[str, Table] = field(default_factory=dict)
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

    @property
    def helps(self) -> bool:
        """Return True for a helper, who has no rows."""
        return isinstance(self.card, HelperCard)

    @property
    def declared(self) -> Card:
        """Return the card of a party with data; refused for a helper, who has none."""
        if isinstance(self.card, HelperCard):
            msg = f"{self.name!r} is a helper: it has no data"
            raise UsageError(msg)
        return self.card

    def seen(self, step: str) -> Table:
        """Return the rows as the analysis sees them whose step this is."""
        return self.views.get(step.partition(BETWEEN)[0], self.table)

    def fingerprint(self, content: bytes) -> bytes:
        """Return a keyed digest for the ledger, so that a reader of a copy of the ledger cannot try out small data sets."""
        return hmac.digest(self.ledger.root_key, content, "sha256")

    @property
    def data_digest(self) -> str:
        """Return a keyed digest of the rows here in hex, which tells nothing without the root key; empty for a helper, who has none."""
        return "" if self.helps else self.fingerprint(b"data that were approved\n" + self.table.digest).hex()

    def other_data(self, plan: Plan) -> str:
        """Return in words that a plan was approved for other data than this party has now; empty where it was not, or nobody noted for which."""
        known = self.ledger.approval(plan.hash)
        if known is None or known.data in {"", self.data_digest}:
            return ""
        return (
            f"party {self.name!r}: plan {plan.hash[:16]} is approved for other data (digest {known.data[:16]}) than there are now (digest "
            f"{self.data_digest[:16]}): put the approved data back, or approve these and say why they changed: `unpooled party check STUDY "
            '--data-changed "REASON"`. Nothing was released'
        )

    def charges(self, plan: Plan) -> list[Charge]:
        """Return everything that a plan can debit here: nothing where nobody's rows are."""
        if self.helps:
            return []
        own = [r for r in plan.releases if r.party == self.name]
        return [
            *(charge_of(plan, release, i, bytes(32)) for release in own for i in range(release.count)),
            *self._whole(plan),
        ]

    def debit(self, plan: Plan, charges: list[Charge], *, only_check: bool = False) -> None:
        """Debit releases of a plan durably, or refuse; with the first of them also what the whole plan costs the people here.

        Other parties of a column-split study know the same people, and nobody here can tell what they have released: so all of it counts.
        """
        if self.helps:
            return
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
            step = find_step(self.model(plan.study.row), envelope.step, plan)
            if not 0 <= envelope.index < self._times(plan, step):
                msg = f"step {step.name!r} is planned {self._times(plan, step)} times; a request for one more is refused"
                raise PlanMismatch(msg)
            request = open_body(envelope, step.request)
            # The data are part of what is answered: an old request over changed data is a conflict, not an old answer.
            asked = self.fingerprint(digest(blob, self.table.digest))
            stored = self.ledger.reply(plan.hash, step.name, envelope.index, asked)
            if stored is not None:
                return stored
            own, name = plan.part(step.name)
            desk = OpenDesk(self, own, name, envelope.index, asked, within=plan)
            with serving(desk, self.name, self.seen(step.name), own, name, envelope.index) as context:
                reply = step.answer(context, request)
            check_minted(step, reply, desk.minted, own.study)
            answer = encode(plan.hash, step.name, envelope.index, reply, self._signature(blob))
            self.ledger.commit(plan.hash, step.name, envelope.index, asked, answer, keep=not step.bulky)
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
        if asked.study.within:
            raise PlanMismatch("this is one analysis of a study, which is approved and run as a whole: open that study")
        for one in asked.study.models:
            self.policy.check_model(one, maker(one.row), links=one.row == LINK)
        plan = self.model(asked.study.row).compile(asked.study)
        check_claim(plan, claimed, asked, self.name)
        self.consider(plan, approved=self.ledger.approved(plan.hash))
        if other := self.other_data(plan):
            raise PolicyRefusal(other)
        self._plans[plan.hash] = plan

    def consider(self, plan: Plan, *, approved: bool) -> None:
        """Hold a plan against card, data, policy and ledger; refuses in words and changes nothing."""
        if isinstance(self.card, HelperCard):
            self._consider_help(plan, approved=approved)
            return
        card = self._consider_rows(plan)
        self.policy.check(plan, approved_in_ledger=approved, party=f"party {self.name!r}")
        self.debit(plan, self.charges(plan), only_check=True)
        if plan.study.ids == ALIGNED:
            self.table.ids_digest(b"")  # blank or repeated ids are refused here, before anything is sent
        for label in (
            () if plan.hides else card.labels
        ):  # a hidden link reads ids alone, and a blank one is a row without an id
            if not is_complete(self.table[label]):
                msg = f"column {label!r} holds a missing value: clean it, or leave those rows out at every party"
                raise DataError(msg).at(column=label)
        for name, one in plan.analyses.items():
            self._consider_names(name, one)
        self.model(plan.study.row).check(plan, self.name, self.table)
        self.table.passed(AsDeclared(card.columns))  # bad data are refused here, before anything was charged or sent

    def _consider_names(self, name: str, plan: Plan) -> None:
        """Refuse an analysis that calls columns otherwise than the card: it would read others than it declares."""
        own = next((card for card in plan.study.parties if card.name == self.name), None)
        if own is None or name in self.views:
            return
        if not ({*own.columns} <= {*self.declared.columns} and {*own.labels} <= {*self.declared.labels}):
            msg = f"analysis {name!r} calls columns otherwise than the card of party {self.name!r} does: only fits of one process can"
            raise PlanMismatch(msg)

    def _consider_rows(self, plan: Plan) -> Card:
        """Hold a plan against this party's card and the number, order and origin of its rows; return the card."""
        card = plan.study.card(self.name)
        # Cards of earlier versions named neither ids nor row maps nor joint moments.
        later = ("id", "linked", "joint")
        earlier = [dict.fromkeys(some, "") for k in (1, 2, 3) for some in itertools.combinations(later, k)]
        if card not in {self.card, *(msgspec.structs.replace(self.card, **unnamed) for unnamed in earlier)}:
            other = ", ".join(name for name in card.__struct_fields__ if getattr(card, name) != getattr(self.card, name))
            msg = f"the study's card of party {self.name!r} is not the one this party published (they differ in {other}). If the data changed since, write the card anew (`unpooled party card`), and the study with it"
            raise PlanMismatch(msg)
        if card.capped and self.table.n_rows > card.rows:
            msg = f"party {self.name!r}: its data have more rows than its card allows (cap = {card.rows}): raise cap under [party], write the card anew (`unpooled party card`), and the study with it"
            raise RowsError(
                msg, f"party {self.name!r}: its data have more rows than its card allows: it has to raise its cap"
            )
        if not card.capped and card.rows != self.table.n_rows:
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
        if self.table.unordered and plan.split.shares_people and len(plan.study.parties) > 1:
            raise DataError(self.table.unordered)
        if plan.study.linked != self.table.linked:  # its own map, never what somebody sent
            msg = f"party {self.name!r}: its rows are not those of the row map that the study names (`linked` in its party file)"
            raise PlanMismatch(msg)
        return card

    def _consider_help(self, plan: Plan, *, approved: bool) -> None:
        """Hold a plan against the card and the policy of a helper, who has no data to protect and no budget."""
        if self.card not in plan.study.helpers:
            msg = f"the study does not name {self.name!r} as a helper, or by another card than it published: use its current card"
            raise PlanMismatch(msg)
        self.policy.check(plan, approved_in_ledger=approved, party=f"helper {self.name!r}")


def _shared(plan: Plan, party: str) -> list[Charge]:
    """Return the cost of the whole plan to the people in this party's rows, where other parties release something about them too; else none."""
    costs = shared_costs(plan, party)
    return (
        [Charge(ReleaseKey(plan.hash, "(whole plan)", 0, "(all parties)"), bytes(32), costs, shared=True)] if costs else []
    )
