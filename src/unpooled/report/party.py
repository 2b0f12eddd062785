"""A party's view of a study: its plan, the values that this party keeps of it, and the entries of its own ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from unpooled.privacy.ledger import Ledger
from unpooled.privacy.unit import Unit
from unpooled.protocol.step import Panel
from unpooled.study.about import BudgetLeft, DataApproved, moment
from unpooled.study.files import purpose_of, read_party
from unpooled.study.kept import KeptValues
from unpooled.study.rules import policy_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from unpooled.privacy.ledger import Entry
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.terms import ResultTerm


@dataclass(frozen=True)
class PartyView:
    """The view of one party on one study."""

    party: str
    plan: Plan
    terms: tuple[ResultTerm, ...]
    #: Of the ledger, for this plan: position, when, what, cost per value, cost per row, state.
    entries: tuple[tuple[int, str, str, str, str, str], ...]
    purpose: str
    left: BudgetLeft
    approved: DataApproved | None = None

    @classmethod
    def read(cls, config: Path, study: Path) -> PartyView:
        """Return the view read from a party file and a study file."""
        return cls.of(config, KeptValues.of(config, study), purpose_of(study))

    @classmethod
    def of(cls, config: Path, kept: KeptValues, purpose: str) -> PartyView:
        """Return the view of what a party keeps of a plan, with the lines of its ledger."""
        text = read_party(config)
        with Ledger.open(config.parent / text.party.ledger) as ledger:
            entries = tuple(_line(entry) for entry in ledger.entries() if entry.plan == kept.plan.hash)
            policy = policy_of(text.policy)
            left = BudgetLeft.of(kept.party, ledger, policy)
            approved = DataApproved.of(kept.party, ledger, policy, kept.plan.hash)
        return cls(kept.party, kept.plan, kept.terms, entries, purpose, left, approved)

    @property
    def panels(self) -> tuple[Panel, ...]:
        """Return the coefficients that this party keeps, but its constants."""
        return panels_of(self.terms)


def panels_of(terms: Sequence[ResultTerm]) -> tuple[Panel, ...]:
    """Return the figure of the coefficients that a party keeps, but its constants."""
    shown = [term for term in terms if not term.term.startswith("(")]
    if not shown:
        return ()
    return (Panel("coefficients", tuple(t.term for t in shown), tuple(t.estimate for t in shown)),)


def _line(entry: Entry) -> tuple[int, str, str, str, str, str]:
    when = moment(entry.time)
    if entry.key is None:
        data = entry.data_words if entry.kind == "approval" else ""
        return entry.position, when, " ".join(part for part in (entry.kind, entry.about, data) if part), "", "", ""
    what = f"{entry.key.step}[{entry.key.index}] {entry.key.name}"
    what = "the whole plan, all parties" if entry.kind == "shared" else what
    return entry.position, when, what, entry.words(Unit.ATTRIBUTE), entry.words(Unit.RECORD), str(entry.state)
