"""``unpooled party ledger``: a line for every study, every release with ``--all``, and the total against the policy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from unpooled.cli.say import say_json, write_new

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from unpooled.privacy.ledger import Entry
    from unpooled.privacy.ledger.spending import StudyLine


def ledger(
    config: Path = typer.Option(Path("party.toml"), "--config", help="The party file."),
    *,
    every: bool = typer.Option(False, "--all", help="List every release, and not only the studies."),
    moved: bool = typer.Option(False, "--moved", help="The ledger was moved here, and the old one is gone."),
    migrate: bool = typer.Option(
        False, "--migrate", help="Take over a ledger of an older version of unpooled, with everything it spent."
    ),
    export: Path | None = typer.Option(
        None, "--export", help="Write every row of the chain into a new file, for an auditor."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print data for machines."),
) -> None:
    """List the studies that were approved and debited, and the total against the policy."""
    from unpooled.privacy.ledger import Ledger
    from unpooled.privacy.unit import Scope
    from unpooled.study.approving import counted_in
    from unpooled.study.files import read_party
    from unpooled.study.rules import policy_of

    text = read_party(config)
    policy = policy_of(text.policy)
    budget = policy.budget
    assert budget is not None
    path = config.parent / text.party.ledger
    if migrate:
        Ledger.migrate(path).close()
    with Ledger.open(path, moved=moved) as opened:
        entries, warnings, head, guesses = opened.entries(), opened.warnings, opened.head, opened.guesses
        studies = opened.studies(budget, policy.scope)
        if export is not None:
            write_new(export, opened.export())
        counted = counted_in(opened, policy.scope)
        spent, alone = (opened.spending(budget, scope) for scope in (policy.scope, Scope.PARTY))
    if as_json:
        say_json(
            "party-ledger",
            {
                "studies": [_told(line) for line in studies],
                "entries": entries,
                "spent_epsilon": spent.number,
                "spent": spent.words,
                "bounds": policy.scope,
                "spent_by_this_party": alone.number,
                "warnings": warnings,
                "delta": budget.delta,
                "unit": budget.unit,
                "allowed_epsilon": budget.epsilon,
                "head": head,
                "guesses": guesses,
            },
        )
        return
    for line in _lines(studies):
        typer.echo(line)
    for line in lines_of(entries if every else ()):
        typer.echo(line)
    for warning in warnings:
        typer.echo(f"Warning: {warning}")
    typer.echo(f"spent: {spent.words} of {budget.epsilon:g} at delta = {budget.delta:g} per {budget.unit}, {counted}")
    if policy.scope is not Scope.PARTY and alone != spent:
        typer.echo(f"       {alone.words} of it was released by this party itself")
    if guesses:
        typer.echo(
            f"rows were linked: other parties could test {guesses} ids against this party's set, which no epsilon bounds"
        )
    typer.echo(f"head {head} (write it down elsewhere: it shows later whether an older copy of the ledger was put back)")


def _told(line: StudyLine) -> dict[str, object]:
    """Return a study's line as data."""
    said, first = line.approval or line.decision, line.entries[0]
    return {
        "plan": line.plan,
        "time": first.time,
        "state": line.state,
        "releases": line.releases,
        "about": line.about,
        "purpose": said.purpose if said else "",
        "by": said.by if said else "",
        "reason": said.reason if said else "",
        "data": said.data if said else "",
        "changed": said.changed if said else "",
        "epsilon": line.cost.number,
    }


def _lines(studies: tuple[StudyLine, ...]) -> list[str]:
    """Return the studies as the lines of a table whose columns are as wide as their longest cell."""
    from unpooled.study.about import moment

    if not studies:
        return ["no study was approved or debited yet"]
    rows = [("date (UTC)", "plan", "state", "epsilon", "decided by", "data", "study")]
    for line in studies:
        cost, said = line.cost.number, line.approval or line.decision
        epsilon = cost if isinstance(cost, str) else f"{cost:.6g}"
        by, data = (said.by, said.data) if said else ("", "")
        rows.append(
            (
                moment(line.entries[0].time),
                line.plan[:16],
                line.state,
                epsilon,
                by or "-",
                data[:16] or "-",
                line.about or "-",
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def lines_of(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield a line for each entry of a ledger; a withdrawal of what was never approved is a study that people declined."""
    approved: set[str] = set()
    for entry in entries:
        approved |= {entry.plan} if entry.kind == "approval" else set()
        yield _line_of(entry, declined=entry.plan not in approved)


def _line_of(entry: Entry, *, declined: bool) -> str:
    """Return an entry of the ledger as one line, its parts two spaces apart."""
    from unpooled.study.about import moment

    if entry.key is None:
        what = " ".join(
            part
            for part in (
                "declined" if declined and entry.kind == "withdrawal" else entry.kind,
                entry.about,
                f"by {entry.by}" if entry.by else "",
                entry.reason,
                entry.data_words if entry.kind == "approval" else "",
            )
            if part
        )
        return "  ".join((f"{entry.position:>5}", moment(entry.time), f"plan {entry.plan[:16]}", what))
    what = (
        "the whole plan, all parties" if entry.kind == "shared" else f"{entry.key.step}[{entry.key.index}] {entry.key.name}"
    )
    words = "; ".join(f"{unit}: {entry.words(unit)}" for unit in entry.units)
    return "  ".join((f"{entry.position:>5}", moment(entry.time), f"plan {entry.plan[:16]}", what, words, entry.state))
