"""Verified rows of a chain, sorted by kind, and their total cost to one unit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from unpooled.errors import PlanMismatch, PolicyRefusal, ReleaseConflict
from unpooled.privacy.events import Kind
from unpooled.privacy.exposure import account
from unpooled.privacy.ledger.chain import DIGEST_ALONE, NOTHING, Head, Row, link, read_debit
from unpooled.privacy.ledger.charges import Charge, Entry, ReleaseKey, require
from unpooled.privacy.ledger.place import Place
from unpooled.privacy.unit import Scope, Unit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from unpooled.privacy.events import Event
    from unpooled.privacy.exposure import Worst


_DECISIONS = frozenset({"approval", "withdrawal"})


class History:
    """The rows of one chain, taken in one by one, and what follows from them."""

    def __init__(self, nothing: Head = NOTHING) -> None:
        self.head = nothing
        #: Every end that the chain had.
        self.heads: set[str] = set()
        self.rows: list[Row] = []
        self.identity = b""
        self.place: Place | None = None
        self.approved: set[str] = set()
        self.withdrawn: set[str] = set()
        #: The last approval of every plan that stands.
        self.approvals: dict[str, Row] = {}
        self.charges: dict[ReleaseKey, Charge] = {}
        self.alignments: dict[str, Row] = {}
        self.answers: dict[tuple[str, str, int], Row] = {}
        #: Whether a debit without a name came that no migration has followed.
        self._nameless = False

    def take_in(self, columns: list[Any], digest: bytes) -> None:  # noqa: C901, PLR0912 - a case for every kind
        """Verify the next row and take it in; raises where it does not follow from the rows before, and then changes nothing."""
        if digest != link(self.head.digest, columns):
            raise ValueError
        row = Row._make(columns)
        if row.position != len(self.rows) or (row.kind == "genesis") != (row.position == 0):
            raise ValueError
        match row.kind:
            case "genesis":
                self.identity = row.fingerprint
                self.place = msgspec.json.decode(row.detail, type=Place) if row.detail else None
            case "place":
                self.place = msgspec.json.decode(row.detail, type=Place)
            case "data":
                pass
            case "migration":
                self._nameless = False
            case "charge" | "shared":
                charge = row.charge
                if self.charges.setdefault(charge.key, charge) is not charge:
                    raise ValueError
                self._nameless |= not charge.release
            case "alignment":
                if self.alignments.setdefault(row.plan, row) is not row:
                    raise ValueError
            case "commit":
                if row.detail not in {b"", DIGEST_ALONE}:
                    raise ValueError
                self.answers[row.plan, row.step, row.number] = row
            case "approval" | "withdrawal":
                agrees, _ = row.kind == "approval", row.approval
                (self.approved.add if agrees else self.approved.discard)(row.plan)
                (self.withdrawn.discard if agrees else self.withdrawn.add)(row.plan)
                self.approvals[row.plan] = row
            case _:
                raise ValueError
        self.rows.append(row)
        self.head = Head(len(self.rows), digest)
        self.heads.add(digest.hex())

    def settle(self) -> None:
        """Refuse an end of the chain behind a debit without a name, unless it was taken over: this format names every draw."""
        if self._nameless:
            raise ValueError

    def new(self, charges: Iterable[Charge], *, fingerprints: bool) -> dict[ReleaseKey, Charge]:
        """Return the charges that are not yet in the ledger. One that is there with other content is a conflict."""
        new: dict[ReleaseKey, Charge] = {}
        for charge in charges:
            require(type(charge) is Charge, f"only a Charge can be debited, not {type(charge).__name__}")
            known = self.charges.get(charge.key) or new.setdefault(charge.key, charge)
            changed = (known.costs, known.shared) != (charge.costs, charge.shared)
            if changed or (fingerprints and known.fingerprint != charge.fingerprint):
                what = "at another cost" if changed else "for another request or over other data"
                msg = f"{charge.key} was debited before {what}. A new release needs a new plan"
                raise ReleaseConflict(msg)
        return new

    def stands(self, plan: str) -> None:
        """Refuse a plan to which this party took its agreement back."""
        if plan in self.withdrawn:
            msg = (
                f"this party withdrew its approval of plan {plan[:16]}: nothing more of it is debited or answered. "
                "If that was not meant: `unpooled party check STUDY --approve`"
            )
            raise PolicyRefusal(msg)

    def known(self, plan: str, decisions: int | None) -> None:
        """Refuse a decision of somebody who knew another number of decisions about this plan than there are."""
        if decisions not in {None, sum(row.plan == plan and row.kind in _DECISIONS for row in self.rows)}:
            raise PlanMismatch("somebody decided about this plan since it was shown: read it again. Nothing was changed")

    def entries(self) -> tuple[Entry, ...]:
        """Charges, approvals and withdrawals, oldest first."""
        return tuple(self.entry(row) for row in self.rows if row.kind in _DECISIONS | {"charge", "shared"})

    def entry(self, row: Row) -> Entry:
        """Return a charge, an approval or a withdrawal as people read it."""
        if row.kind in _DECISIONS:
            said: Literal["approval", "withdrawal"] = "approval" if row.kind == "approval" else "withdrawal"
            told = row.approval
            words = (row.name, told.by, told.reason, told.purpose, told.data, told.changed)
            return Entry(row.position, said, row.plan, None, (), "committed", row.time, *words)
        answer = self.answers.get((row.plan, row.step, row.number))
        # A charge that comes after the reply of its step cannot be part of it.
        sent = answer is not None and answer.position > row.position
        state: Literal["reserved", "committed"] = "committed" if sent else "reserved"
        kind: Literal["charge", "shared"] = "shared" if row.kind == "shared" else "charge"
        release, costs = read_debit(row.detail)
        return Entry(row.position, kind, row.plan, row.key, costs, state, row.time, release=release)


def spent(charges: Iterable[Charge], unit: Unit, scope: Scope, *, known_only: bool = False) -> Worst:
    """Return the total cost of these charges to one unit (:func:`~unpooled.privacy.exposure.account`, plan by plan)."""
    plans: dict[tuple[str, ReleaseKey | None], dict[str, list[Event]]] = {}
    for charge in charges:
        # A plan is counted whole, as a shared charge, or release by release: never both. Two draws of one plan are two plans: a person may be in
        # one part of its rows in the first, and in another part in the second.
        parts = plans.setdefault((charge.key.plan, charge.key if charge.shared else None), {})
        for cost in charge.cost(unit):
            if not (known_only and cost.event.kind is Kind.UNBOUNDED):
                parts.setdefault(cost.part, []).append(cost.event)
    whole = {plan for plan, shared in plans if shared}
    if scope is Scope.PERSON:
        return account(parts for (plan, shared), parts in plans.items() if shared or plan not in whole)
    return account(parts for (_, shared), parts in plans.items() if not shared)


def unknown_plans(charges: Iterable[Charge], unit: Unit) -> set[str]:
    """Return the plans that have a charge whose cost to this unit is not known."""
    return {
        charge.key.plan
        for charge in charges
        if any(cost.event.kind is Kind.UNBOUNDED and cost.event.count for cost in charge.cost(unit))
    }
