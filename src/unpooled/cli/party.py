"""``unpooled party ...``: what an organisation does before and during a study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from unpooled.cli import console, init, kept, ledger, officer
from unpooled.cli.say import examples, say_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unpooled.privacy.plan import Plan
    from unpooled.protocol.party import Party
    from unpooled.study.approving import Costs

app = typer.Typer(no_args_is_help=True, help="Set up a party, check a study against its policy, look at its ledger.")

app.command(epilog=examples("party init"))(init.init)
app.command(epilog=examples("party ledger"))(ledger.ledger)
app.command(epilog=examples("party console"))(console.console)
app.command(epilog=examples("party show"))(kept.show)
app.command(epilog=examples("party export"))(kept.export)
for command in (officer.withdraw, officer.card, officer.rows, officer.forget, officer.verify):
    app.command(epilog=examples(f"party {command.__name__}"))(command)

_CONFIG = typer.Option(Path("party.toml"), "--config", help="The party file.")
_JSON = typer.Option(False, "--json", help="Print data for machines.")


@app.command(epilog=examples("party check"))
def check(
    study: Path = typer.Argument(help="The study file."),
    config: Path = _CONFIG,
    *,
    approve: bool = typer.Option(False, "--approve", help="Approve the plan without asking."),
    by: str = typer.Option("", "--by", help="Who approves it; the ledger keeps the name [default: your account's name]."),
    reason: str = typer.Option("", "--reason", help="Why; the ledger keeps it."),
    data_changed: str = typer.Option(
        "",
        "--data-changed",
        metavar="REASON",
        help="Approve it for other data than before: why they changed; the ledger keeps it.",
    ),
    as_json: bool = _JSON,
) -> None:
    """Show what a study would release here and cost, hold it against the policy, and approve it.

    In a terminal it asks before it approves; elsewhere nothing is approved without --approve.
    """
    import sys

    from unpooled.errors import PolicyRefusal
    from unpooled.study.about import account
    from unpooled.study.advice import advice
    from unpooled.study.approving import (
        approve_other_data,
        costs_of,
        record_approval,
    )
    from unpooled.study.files import purpose_of, read_study
    from unpooled.study.party import open_party
    from unpooled.study.run import compile_study

    compiled, purpose = compile_study(read_study(study)), purpose_of(study)
    with open_party(config) as party:
        notes = advice(compiled)
        costs = costs_of(party, compiled)
        if not as_json:
            _show(study, party, compiled, purpose, costs, notes)
        party.consider(compiled, approved=True)
        if data_changed:
            approve_other_data((party,), compiled, purpose, data_changed, by)
        elif other := party.other_data(compiled):
            raise PolicyRefusal(other)
        already = party.ledger.approved(compiled.hash)
        asked = not (already or approve or as_json) and sys.stdin.isatty()
        if not as_json:
            typer.echo("policy: this plan fits.")
        if not already and (approve or (asked and typer.confirm(f"Approve plan {compiled.hash[:16]}?"))):
            record_approval(party, compiled, purpose, by=by, reason=reason)
            said = f"Approved{f' by {name}' if (name := by or account()) else ''}, and written into the ledger."
        else:
            said = (
                f"It is already approved, {standing.data_words}."
                if (standing := party.ledger.approval(compiled.hash))
                else "Not approved. Run again with --approve once you agree."
            )
        if not as_json:
            typer.echo(said)
            return
        told: dict[str, Any] = {
            "party": party.name,
            "plan": compiled.hash,
            "statement": compiled.statement.to_dict(),
            "notes": notes,
            "purpose": purpose,
        }
        if costs is None:
            told |= {"spent_epsilon": 0.0, "spent": "nothing", "after_this_plan": 0.0}
        else:
            told |= {
                "spent_epsilon": costs.spent.number,
                "spent": costs.spent.words,
                "after_this_plan": costs.after.number,
            }
        told |= {"approved": party.ledger.approved(compiled.hash)}
        say_json("party-check", told)


def _show(study: Path, party: Party, compiled: Plan, purpose: str, costs: Costs | None, notes: Sequence[str]) -> None:
    """Print a plan, its promise, what it costs here, and what speaks against it."""
    from unpooled.study.approving import costs_in_words, doubts_of, waiting_plans
    from unpooled.study.files import is_forced

    if purpose:
        typer.echo(f"Purpose, as {study.name} says (the plan's hash does not hold it): {purpose}\n")
    typer.echo(f"{compiled}\n\n{compiled.statement}\n\n{costs_in_words(party, compiled, costs)}\n")
    for note in notes:
        typer.echo(f"Note: {note}.")
    for doubt in doubts_of(compiled):
        forced = "The study says force = true: it runs all the same" if is_forced(study) else "A run of it will be refused"
        typer.echo(f"Warning: {doubt}. {forced}.")
    if waiting := waiting_plans(party, compiled.hash):
        typer.echo(
            f"Note: {len(waiting)} more {'study is' if len(waiting) == 1 else 'studies are'} approved here and not run yet; what they cost is not in these numbers."
        )
