"""The desk of a party's people: the inbox, the decisions, the ledger and the runs, as the pages show them. It knows no page and no browser."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

from unpooled.audit.whole import audit_study
from unpooled.console.inbox import Item, read_inbox
from unpooled.console.jobs import Jobs
from unpooled.errors import PlanMismatch, UsageError
from unpooled.privacy.unit import Target
from unpooled.report.page import page, page_of_party
from unpooled.report.party import PartyView
from unpooled.report.preview import Preview, page_of_preview
from unpooled.study.approving import about, record_approval
from unpooled.study.finished import Run
from unpooled.study.helper_files import coordinators_of
from unpooled.study.kept import KeptValues
from unpooled.study.party import open_account, open_party
from unpooled.study.record import RECORD
from unpooled.study.run import asked_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from unpooled.audit.replay import Report
    from unpooled.privacy.ledger.spending import StudyLine
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.party import Party

#: The measure of a helper's decisions, which cost nothing in any.
_NO_BUDGET = Target(1.0, 1e-9)
AUDIT, PREVIEW = "audit", "preview"


@dataclass(frozen=True)
class OfficeDesk:
    """A party file, the folder of the inbox, and the folder in which finished runs are looked for."""

    config: Path
    inbox: Path
    runs: Path
    jobs: Jobs = field(default_factory=Jobs)

    def items(self, party: Party) -> tuple[Item, ...]:
        """Return what is in the inbox."""
        listed = coordinators_of(self.config)
        return read_inbox(self.inbox, party.name, party.identity.public, party.policy, listed)

    def item(self, party: Party, plan: str) -> Item | None:
        """Return the study in the inbox that compiles to this plan, if there is one."""
        return next((item for item in self.items(party) if item.hash == plan), None)

    def other_purposes(self, party: Party, item: Item) -> tuple[str, ...]:
        """Return the purposes that other files of the inbox give for the same plan: its hash does not hold it."""
        found = {one.purpose for one in self.items(party) if one.hash == item.hash}
        return tuple(sorted(found - {item.purpose}))

    def waiting(self, party: Party, but: str) -> tuple[Plan, ...]:
        """Return the plans that are approved here, whose file is in the inbox and of which nothing was released yet, but for one of them."""
        known = {line.plan: line for line in lines(party)}
        plans = {item.hash: item.plan for item in self.items(party) if item.plan is not None and item.hash != but}
        approved = [plan for plan in plans.values() if stands(party, plan.hash, known.get(plan.hash))]
        return tuple(plan for plan in approved if not party.ledger.begun(plan.hash))

    # --- decisions

    def approve(self, plan: str, shown: str, by: str, reason: str) -> None:
        """Approve the plan that was shown; refused where the inbox holds another one now, or card, data, policy or ledger do not allow it."""
        _signed(by, reason)
        with open_party(self.config) as party:
            if _repeated(party, plan, "approval", by, reason):
                return
            item, after = self._as_shown(party, plan, shown)
            assert item.plan is not None
            party.consider(item.plan, approved=True)
            record_approval(party, item.plan, item.purpose, by=by, reason=reason, after=after)

    def decline(self, plan: str, shown: str, by: str, reason: str) -> None:
        """Record that this party does not take part in the plan that was shown."""
        _signed(by, reason)
        with open_account(self.config) as party:
            if _repeated(party, plan, "withdrawal", by, reason):
                return
            item, after = self._as_shown(party, plan, shown)
            assert item.plan is not None
            words = about(item.plan, item.purpose)
            party.ledger.withdraw(plan, words, by=by, reason=reason, purpose=item.purpose, after=after)

    def withdraw(self, plan: str, by: str, reason: str) -> None:
        """Take back the approval of a plan that the ledger knows, whether or not its file is still in the inbox."""
        _signed(by, reason)
        with open_account(self.config) as party:
            line = standing(party, plan)
            if not stands(party, plan, line):
                raise UsageError("this plan was not approved here, so there is nothing to withdraw. Nothing was changed")
            said = line.approval if line else None
            party.ledger.withdraw(
                plan, said.about if said else "", by=by, reason=reason, purpose=said.purpose if said else ""
            )

    def _as_shown(self, party: Party, plan: str, shown: str) -> tuple[Item, int]:
        """Return the study that was shown, and how many decisions there were about it; refused where either has changed."""
        item, line = self.item(party, plan), standing(party, plan)
        if item is None or shown_of(item, line) != shown:
            raise PlanMismatch(
                "the study in the inbox is not the one that this page showed (or its purpose changed, or somebody decided about it since): read it "
                "again. Nothing was changed"
            )
        return item, line.decisions if line else 0

    # --- what takes longer

    def begin(self, kind: str, plan: Plan) -> None:
        """Begin to attack a plan on made-up data, or to draw its results on them."""
        self.jobs.begin(kind, plan.hash, partial(_WORK[kind], plan))

    # --- pages of others

    def party_report(self, item: Item) -> str:
        """Return the page of what this party may see of a study."""
        assert item.plan is not None
        kept = KeptValues.of_plan(self.config, item.plan, item.place)
        return page_of_party(PartyView.of(self.config, kept, item.purpose))

    def found_runs(self) -> dict[str, Path]:
        """Return the folders of finished runs in the inbox and in the folder of runs, by a short name for addresses."""
        folders = [
            folder
            for place in dict.fromkeys((self.inbox, self.runs))
            for depth in ("*", "*/*")
            for folder in sorted(place.glob(depth))
            if folder.is_dir() and any((folder / name).is_file() for name in ("transcript", RECORD))
        ]
        return {sha256(str(folder).encode()).hexdigest()[:16]: folder for folder in dict.fromkeys(folders)}

    def run_report(self, name: str) -> str | None:
        """Return the page of a finished run, worked out anew; None where there is no such run."""
        folder = self.found_runs().get(name)
        return None if folder is None else page(Run.read(folder))


def standing(party: Party, plan: str) -> StudyLine | None:
    """Return what the party's ledger holds of a plan, if anything."""
    return next((line for line in lines(party) if line.plan == plan), None)


def shown_of(item: Item, line: StudyLine | None) -> str:
    """Return a digest of what a person is shown who decides: the study, and how often it was decided about before."""
    return sha256(f"{item.shown}\n{line.decisions if line else 0}".encode()).hexdigest()


def listed(party: Party, plan: str) -> bool:
    """Return True if the policy in the party file itself approves a plan, by its hash."""
    return plan in (party.policy.approved or ())


def stands(party: Party, plan: str, line: StudyLine | None) -> bool:
    """Return True if a plan may run here: the ledger or the policy approves it, and nobody took that back."""
    return not (line and line.withdrawn) and (listed(party, plan) or bool(line and line.approval))


def lines(party: Party) -> tuple[StudyLine, ...]:
    """Return a line for every study in the party's ledger; a helper's hold decisions alone."""
    return party.ledger.studies(party.policy.budget or _NO_BUDGET, party.policy.scope)


def _repeated(party: Party, plan: str, kind: str, by: str, reason: str) -> bool:
    """Return True if the last decision about a plan is this very one: a browser sends a form twice where somebody clicks twice."""
    line = standing(party, plan)
    last = line.decision if line else None
    return last is not None and (last.kind, last.by, last.reason) == (kind, by, reason)


def _signed(by: str, reason: str) -> None:
    """Refuse a decision without a name or without a reason."""
    if not by.strip() or not reason.strip():
        raise UsageError("write your name and your reason: the ledger keeps both. Nothing was changed")


def _audited(plan: Plan, say: Callable[[str], None]) -> Report:
    return audit_study(plan.study, say)


def _previewed(plan: Plan, say: Callable[[str], None]) -> str:
    say("running the study on made-up data")
    shown = Preview.of(plan)
    say("simulating what error to expect at several epsilons")
    outlooks = {asked.analysis: model.outlook(asked) for model, asked in asked_of(plan.study) if model.outlook is not None}
    return page_of_preview(shown, outlooks)


#: The work of a button.
_WORK = {AUDIT: _audited, PREVIEW: _previewed}
