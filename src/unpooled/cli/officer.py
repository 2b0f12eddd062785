"""``unpooled party ledger | withdraw | card | rows | forget | verify``: what a party does after a study, or instead of one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from unpooled.cli.say import say_json, write_new
from unpooled.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from unpooled.privacy.ledger import Entry
    from unpooled.privacy.ledger.spending import StudyLine


# --- Ledger ----------------------------------------------------------------------------------------------------------------
# ``unpooled party ledger``: a line for every study, every release with ``--all``, and the total against the policy.


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
    from unpooled.study.files import policy_of, read_party
    from unpooled.study.run import counted_in

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
            f"rows were linked: other parties could test {guesses} ids against this party's set, which no epsilon bounds (after a hidden link: one that works "
            "with the helper)"
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
    from unpooled.study.finished import moment

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
    from unpooled.study.finished import moment

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


# --- Officer ---------------------------------------------------------------------------------------------------------------
# ``unpooled party withdraw | card | rows | forget | verify``: what a party does after a study, or instead of one.

_CONFIG = typer.Option(Path("party.toml"), "--config", help="The party file.")
_JSON = typer.Option(False, "--json", help="Print data for machines.")


def withdraw(
    study: Path | None = typer.Argument(None, help="The study file."),
    config: Path = _CONFIG,
    *,
    everything: bool = typer.Option(
        False,
        "--all",
        help="Every study of this ledger, over linked and new rows too, and every plan that the policy lists.",
    ),
    by: str = typer.Option("", "--by", help="Who withdraws it; the ledger keeps the name [default: your account's name]."),
    reason: str = typer.Option("", "--reason", help="Why; the ledger keeps it."),
    as_json: bool = _JSON,
) -> None:
    """Take back the approval of a study, or of all: from now on nothing of it is debited or answered here, not even what was answered before.

    What was released stays released and debited. The withdrawal is a row of the ledger; approving the study again ends it.
    """
    from unpooled.privacy.ledger import Ledger
    from unpooled.study.files import is_helper, ledger_of, purpose_of, read_study
    from unpooled.study.finished import account
    from unpooled.study.run import about, compile_study

    if (study is None) != everything:
        raise UsageError("name a study file, or say --all for every study of this ledger: one of the two")
    if study is None:
        _withdraw_all(config, by or account(), reason, as_json=as_json)
        return
    compiled, purpose = compile_study(read_study(study)), purpose_of(study)
    plan = compiled.hash
    with Ledger.open(ledger_of(config)) as ledger:
        known = ledger.approved(plan) or any(entry.plan == plan for entry in ledger.entries())
        ledger.withdraw(plan, about(compiled, purpose), by=by or account(), reason=reason, purpose=purpose)
        released = sum(entry.kind == "charge" for entry in ledger.entries() if entry.plan == plan)
    if as_json:
        say_json("party-withdraw", {"plan": plan, "approved": False, "released_before": released})
        return
    if is_helper(config):
        typer.echo(
            f"withdrawn: plan {plan[:16]}; this helper answers nothing of it any more. What was opened before stays opened"
        )
        return
    if not known:
        typer.echo(f"declined: plan {plan[:16]} was not approved here, and nothing of it will be answered until it is")
        return
    said = f"{released} release(s) of it were debited before, and stay so" if released else "nothing of it had been released"
    typer.echo(f"withdrawn: plan {plan[:16]}; {said}")


def _withdraw_all(config: Path, by: str, reason: str, *, as_json: bool) -> None:
    """Stop everything that runs over this party's ledger: all that it knows, and what the policy lists although it never ran."""
    from unpooled.privacy.ledger import Ledger
    from unpooled.study.files import is_helper, ledger_of, policy_of, read_helper, read_party, rules_of

    rules = rules_of(read_helper(config).policy) if is_helper(config) else policy_of(read_party(config).policy)
    stopped = []
    with Ledger.open(ledger_of(config)) as ledger:
        entries = ledger.entries()
        abouts = {entry.plan: entry.about for entry in entries if entry.about}
        withdrawn = {entry.plan: entry.kind == "withdrawal" for entry in entries if entry.key is None}
        for plan in dict.fromkeys([*(entry.plan for entry in entries), *sorted(rules.approved or ())]):
            if not withdrawn.get(plan, False):
                ledger.withdraw(plan, abouts.get(plan, ""), by=by, reason=reason)
                stopped.append(plan)
    if as_json:
        say_json("party-withdraw-all", {"plans": stopped})
        return
    typer.echo(
        f"withdrawn: {len(stopped)} plan(s); nothing over this ledger is debited or answered until a study is approved again"
    )
    for plan in stopped:
        typer.echo(f"  {plan[:16]} {abouts.get(plan, '')}".rstrip())


def card(config: Path = _CONFIG, *, as_json: bool = _JSON) -> None:
    """Write the public card anew, after the data file or its declarations have changed. Studies need the new card, and new approval."""
    from unpooled.study.files import read_party, write_card
    from unpooled.study.party import open_party

    path = config.parent / f"{read_party(config).party.name}.card.toml"
    with open_party(config) as party:
        now = party.declared
    written = write_card(now)
    # The text is compared: a card that cannot be read, for it lost its key, is what this command mends.
    changed = not path.exists() or path.read_text() != written
    if changed:
        path.write_text(written)
    if as_json:
        say_json("party-card", {"card": str(path), "changed": changed, "rows": now.rows})
    else:
        typer.echo(f"{'wrote' if changed else 'unchanged:'} {path} ({now.size if now.household else f'{now.rows} rows'})")


def rows(
    data: Path = typer.Argument(help="A file of new rows, written as the party's own file is."),
    config: Path = _CONFIG,
    *,
    folder: Path = typer.Option(..., "--folder", help="A new folder for the party file and the card of these rows."),
    as_json: bool = _JSON,
) -> None:
    """Make a party file and a card for new rows, under this party's declarations, ledger and key: to predict them in a study of their own.

    The policy and the ledger are the party's own: what is decided in its file holds for these rows too.
    """
    from unpooled.study.party import party_of_rows

    made, public = party_of_rows(config, data, folder)
    if as_json:
        say_json("party-rows", {"party": str(made), "card": str(public)})
    else:
        typer.echo(f"wrote {made} (the ledger and its key stay where they are) and the public card {public}")


def forget(study: Path = typer.Argument(help="The study file."), config: Path = _CONFIG, *, as_json: bool = _JSON) -> None:
    """Delete what this party keeps of a study: coefficients and other values computed from raw data. The ledger stays."""
    from unpooled.study.files import read_study
    from unpooled.study.party import keeper_of
    from unpooled.study.run import compile_study

    plan = compile_study(read_study(study)).hash
    gone = keeper_of(config).forget(plan)
    if as_json:
        say_json("party-forget", {"plan": plan, "deleted": gone})
    else:
        typer.echo(f"plan {plan[:16]}: deleted {', '.join(gone)}" if gone else f"plan {plan[:16]}: nothing is kept of it")


def verify(
    export: Path = typer.Argument(help="A file that `unpooled party ledger --export` wrote."),
    *,
    head: str | None = typer.Option(
        None, "--head", help="The head that somebody wrote down: was anything taken back since?"
    ),
    as_json: bool = _JSON,
) -> None:
    """For an auditor: recompute an exported ledger's chain, without its key and its data, and say whether it holds a given head."""
    from unpooled.errors import DataError, UsageError
    from unpooled.privacy.ledger.spending import read_export

    history = read_export(export.read_bytes())
    now = history.head.digest.hex()
    if head is not None and len(head) != len(now):
        msg = f"a head has {len(now)} letters and digits, and this one has {len(head)}: give all of it"
        raise UsageError(msg)
    if head is not None and head not in history.heads:
        msg = (
            f"{export.name}: the chain never ended in the head that you gave: rows were taken back, or it is another ledger"
        )
        raise DataError(msg)
    if as_json:
        say_json("party-verify", {"head": now, "rows": len(history.rows), "entries": history.entries()})
        return
    for line in lines_of(history.entries()):
        typer.echo(line)
    typer.echo(f"{len(history.rows)} rows in an unbroken chain; head {now}")
    if head is not None:
        later = "it is the head of today" if head == now else "rows were added after it"
        typer.echo(f"The ledger ended in the head that you gave: nothing up to it was removed or changed; {later}.")
