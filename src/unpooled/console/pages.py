"""Every page of the console as text: what the desk knows, put into a template."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException

from unpooled.console import desk as work
from unpooled.console.desk import AUDIT, PREVIEW, OfficeDesk, columns_of
from unpooled.privacy.unit import Scope
from unpooled.report import figures
from unpooled.report.page import environment, facts_of, safe
from unpooled.study.finished import moment
from unpooled.study.party import open_account
from unpooled.study.run import advice, costs_of, counted_in, expectations_of, refusal_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from unpooled.audit.replay import Report
    from unpooled.console.desk import Item
    from unpooled.console.guard import Session
    from unpooled.privacy.ledger.spending import StudyLine
    from unpooled.protocol.party import Party


@dataclass(frozen=True)
class Console:
    """A desk, and the session of the browser that sees it."""

    desk: OfficeDesk
    session: Session
    read_only: bool


def is_own(console: Console, form: dict[str, str]) -> bool:
    """Return True if a form holds the token of this console."""
    return hmac.compare_digest(form.get("token", "").encode(), console.session.token.encode())


def _filled(console: Console, name: str, here: str, party: str, /, **facts: Any) -> str:  # noqa: ANN401 - whatever the page shows
    common = {
        "here": here,
        "party": party,
        "read_only": console.read_only,
        "token": console.session.token,
        "root": console.session.root,
    }
    return environment("unpooled.console").get_template(f"templates/{name}.html").render(common | {"reload": False} | facts)


@cache
def style() -> str:
    """Return the style of every page: the report's, and what the console has in addition."""
    return (files("unpooled.report") / "style.css").read_text() + (
        files("unpooled.console") / "templates/console.css"
    ).read_text()


def said(console: Console, words: str, *, refused: bool) -> str:
    """Return the page of a refusal or an error: its words, and the way back."""
    return _filled(console, "said", "", "", words=words, refused=refused)


def inbox(console: Console) -> str:
    """Return the first page: the studies that wait for a decision, and those that were decided."""
    with open_account(console.desk.config) as party:
        known = {line.plan: line for line in work.lines(party)}
        items = console.desk.items(party)
        rows = [_row(party, item, known.get(item.hash)) for item in items if item.plan is not None]
        facts = {
            "waiting": [row for row in rows if row["state"] == "waiting" and row["member"]],
            "decided": [row for row in rows if row["state"] != "waiting"],
            "others": [row for row in rows if row["state"] == "waiting" and not row["member"]],
            "unreadable": [item for item in items if item.plan is None],
            "folder": console.desk.inbox,
        }
        return _filled(console, "inbox", "inbox", party.name, **facts)


def _row(party: Party, item: Item, line: StudyLine | None) -> dict[str, Any]:
    assert item.plan is not None
    study, statement = item.plan.study, item.plan.statement
    return {
        "plan": item.hash,
        "model": study.model,
        "purpose": item.purpose,
        "place": item.place,
        "by": item.by,
        "signer": "a coordinator that this party knows" if item.known else "a key that this party does not know",
        "headline": statement.headline,
        "strength": statement.strength,
        "parties": len(study.members),
        "member": any(card.name == party.name for card in study.members),
        "state": _state(party, item.hash, line),
    }


def _state(party: Party, plan: str, line: StudyLine | None) -> str:
    if line is not None and (line.decision or line.releases):
        return line.state
    return "approved by the party file" if work.listed(party, plan) else "waiting"


def plan(console: Console, plan: str) -> str:
    """Return the page of one study: what it is for, what it promises and costs, what it releases, and the forms to decide about it."""
    with open_account(console.desk.config) as party:
        item, line = console.desk.item(party, plan), work.standing(party, plan)
        if item is None or item.plan is None:
            if line is None:
                raise HTTPException(
                    404,
                    "There is no such study in the inbox, nor in the ledger. It may have changed: look at the inbox again.",
                )
            return _filled(console, "gone", "inbox", party.name, **_standing(party, plan, line))
        facts = (
            facts_of(item.plan)
            | _standing(party, plan, line)
            | _cost_facts(console.desk, party, item)
            | _job_facts(console, plan)
        )
        facts |= {
            "item": item,
            "shown": work.shown_of(item, line),
            "other_purposes": console.desk.other_purposes(party, item),
            "holdings": safe(figures.holdings(item.plan)),
            "read": columns_of(item.plan),
            "notes": advice(item.plan),
            "circumstances": [
                (card.name, what, words) for card in item.plan.study.parties for what, words in card.circumstances.items()
            ],
            "member": any(card.name == party.name for card in item.plan.study.members),
        }
        return _filled(console, "plan", "inbox", party.name, **facts)


def _standing(party: Party, plan: str, line: StudyLine | None) -> dict[str, Any]:
    """Return what the ledger says of a plan: its state, and the last decision."""
    decision = line.decision if line else None
    return {
        "plan_hash": plan,
        "state": _state(party, plan, line),
        "listed": work.listed(party, plan),
        "about": line.about if line else "",
        "stands": work.stands(party, plan, line),
        "decision": decision,
        "decided_at": moment(decision.time) if decision else "",
        "charged": line.releases if line else 0,
    }


def _cost_facts(desk: OfficeDesk, party: Party, item: Item) -> dict[str, Any]:
    assert item.plan is not None
    costs, budget = costs_of(party, item.plan), party.policy.budget
    waiting = desk.waiting(party, item.hash)
    every = [charge for plan in (*waiting, item.plan) for charge in party.charges(plan)]
    together = party.ledger.spending(budget, party.policy.scope, every) if budget is not None and waiting else None
    # Of a plan that was released already, or will be in any case, the total does not change.
    return {
        "doubts": expectations_of(item.plan).doubts,
        "expected": expectations_of(item.plan).words,
        "waiting": len(waiting),
        "together": together if together and costs and together != costs.after else None,
        "other_delta": budget is not None and budget.delta != item.plan.study.delta,
        "costs": costs,
        "budget": budget,
        "counted": counted_in(party.ledger, party.policy.scope, item.plan),
        "would_refuse": refusal_of(party, item.plan),
        "chart": None
        if costs is None or budget is None
        else safe(figures.budget(party.ledger.balances(budget, party.policy.scope), budget, costs.after)),
    }


def _job_facts(console: Console, plan: str) -> dict[str, Any]:
    audit, drawn = (console.desk.jobs.find(kind, plan) for kind in (AUDIT, PREVIEW))
    return {
        "audit": audit,
        "audit_lines": [] if audit is None or audit.result is None else _audit_lines(audit.result),
        "preview": drawn,
        "reload": any(job is not None and not job.done for job in (audit, drawn)),
    }


def _audit_lines(report: Report) -> list[tuple[str, str, str, str]]:
    return [(str(unit), party, name, f"{share:.1%}") for (unit, party, name), share in sorted(report.largest.items())]


def ledger(console: Console) -> str:
    """Return the page of the ledger: the budget over time, every study, and the head to write down."""
    with open_account(console.desk.config) as party:
        budget, scope = party.policy.budget, party.policy.scope
        own = party.ledger
        facts: dict[str, Any] = {
            "budget": budget,
            "counted": counted_in(own, scope),
            "head": own.head,
            "warnings": own.warnings,
            "guesses": own.guesses,
            "studies": [_ledger_row(line, costs=budget is not None) for line in work.lines(party)],
            "spent": None,
            "alone": None,
            "chart": None,
        }
        if budget is not None:
            facts["spent"] = own.spending(budget, scope)
            facts["alone"] = own.spending(budget, Scope.PARTY) if scope is not Scope.PARTY else None
            facts["chart"] = safe(figures.budget(own.balances(budget, scope), budget))
        return _filled(console, "ledger", "ledger", party.name, **facts)


_VERBS = {"approval": "approved", "withdrawal": "withdrawn"}


def _ledger_row(line: StudyLine, *, costs: bool) -> dict[str, Any]:
    return {
        "plan": line.plan,
        "when": moment(line.entries[0].time),
        "about": line.about,
        "state": line.state,
        "cost": "nothing: a helper"
        if not costs
        else line.cost.words
        if line.releases
        else "none yet"
        if line.state == "approved"
        else "none",
        "decisions": [
            f"{_VERBS[entry.kind] if line.approval else 'declined'} {moment(entry.time)} by {entry.by or 'an account without a name'}"
            + (f": {entry.reason}" if entry.reason else "")
            + (f" ({entry.data_words})" if entry.kind == "approval" else "")
            for entry in line.entries
            if entry.key is None
        ],
    }


def runs(console: Console) -> str:
    """Return the page of finished runs, each with a link to its report."""
    with open_account(console.desk.config) as party:
        known = [line for line in work.lines(party) if line.releases]
        own = {item.hash: item for item in console.desk.items(party) if item.plan is not None}
        facts = {
            "runs": [(name, str(folder)) for name, folder in console.desk.found_runs().items()],
            "reports": [(line.plan, line.about) for line in known if line.plan in own and not party.helps],
            "folders": (console.desk.inbox, console.desk.runs),
        }
        return _filled(console, "runs", "runs", party.name, **facts)


def run_report(console: Console, name: str) -> str:
    """Return the report of a finished run."""
    found = console.desk.run_report(name)
    if found is None:
        raise HTTPException(404, "There is no such run any more.")
    return found


def party_report(console: Console, plan: str) -> str:
    """Return the page of what this party may see of a study."""
    with open_account(console.desk.config) as party:
        item = console.desk.item(party, plan)
    if item is None:
        raise HTTPException(404, "There is no such study in the inbox.")
    return console.desk.party_report(item)


def preview(console: Console, plan: str) -> str:
    """Return the preview of a study's results on simulated data."""
    job = console.desk.jobs.find(PREVIEW, plan)
    if job is None or job.result is None:
        raise HTTPException(404, "There is no preview of this study yet.")
    return str(job.result)


# --- decisions


def _approve(console: Console, plan: str, form: dict[str, str]) -> None:
    console.desk.approve(plan, form.get("shown", ""), form.get("by", ""), form.get("reason", ""))


def _decline(console: Console, plan: str, form: dict[str, str]) -> None:
    console.desk.decline(plan, form.get("shown", ""), form.get("by", ""), form.get("reason", ""))


def _withdraw(console: Console, plan: str, form: dict[str, str]) -> None:
    console.desk.withdraw(plan, form.get("by", ""), form.get("reason", ""))


def _begin(kind: str) -> Callable[[Console, str, dict[str, str]], None]:
    def begin(console: Console, plan: str, form: dict[str, str]) -> None:  # noqa: ARG001 - one form is like the other
        with open_account(console.desk.config) as party:
            item = console.desk.item(party, plan)
        if item is None or item.plan is None:
            raise HTTPException(404, "There is no such study in the inbox.")
        console.desk.begin(kind, item.plan)

    return begin


#: The forms of a plan's page, by the end of their addresses.
DECISIONS: dict[str, Callable[[Console, str, dict[str, str]], None]] = {
    "approve": _approve,
    "decline": _decline,
    "withdraw": _withdraw,
    "audit": _begin(AUDIT),
    "try": _begin(PREVIEW),
}
