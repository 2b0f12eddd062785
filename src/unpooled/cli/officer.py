"""``unpooled party withdraw | card | rows | forget | verify``: what a party does after a study, or instead of one."""

from __future__ import annotations

from pathlib import Path

import typer

from unpooled.cli.ledger import lines_of
from unpooled.cli.say import say_json
from unpooled.errors import UsageError

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
    from unpooled.study.about import account
    from unpooled.study.approving import about
    from unpooled.study.files import purpose_of, read_study
    from unpooled.study.helper_files import is_helper, ledger_of
    from unpooled.study.run import compile_study

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
    from unpooled.study.files import read_party
    from unpooled.study.helper_files import is_helper, ledger_of, read_helper
    from unpooled.study.rules import policy_of, rules_of

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
    from unpooled.privacy.ledger.export import read_export

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
