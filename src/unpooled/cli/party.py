"""``unpooled party ...``: what an organisation does before and during a study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from unpooled.cli import init, kept, ledger, officer
from unpooled.cli.ledger import COUNTED
from unpooled.cli.say import examples, say_json

if TYPE_CHECKING:
    from unpooled.privacy.ledger.spending import Spending
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.party import Party

app = typer.Typer(no_args_is_help=True, help="Set up a party, check a study against its policy, look at its ledger.")

app.command(epilog=examples("party init"))(init.init)
app.command(epilog=examples("party ledger"))(ledger.ledger)
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
    as_json: bool = _JSON,
) -> None:
    """Show what a study would release here and cost, hold it against the policy, and approve it.

    In a terminal it asks before it approves; elsewhere nothing is approved without --approve.
    """
    import sys

    from unpooled.study.about import account
    from unpooled.study.advice import advice
    from unpooled.study.files import purpose_of, read_study
    from unpooled.study.party import open_party
    from unpooled.study.run import compile_study

    compiled, purpose = compile_study(read_study(study)), purpose_of(study)
    with open_party(config) as party:
        notes = advice(compiled)
        costs, said = _costs(party, compiled)
        if not as_json:
            if purpose:
                typer.echo(f"Purpose, as {study.name} says (the plan's hash does not hold it): {purpose}\n")
            typer.echo(f"{compiled}\n\n{compiled.statement}\n\n{said}\n")
            for note in notes:
                typer.echo(f"Note: {note}.")
        party.consider(compiled, approved=True)
        already = party.ledger.approved(compiled.hash)
        asked = not (already or approve or as_json) and sys.stdin.isatty()
        if not as_json:
            typer.echo("policy: this plan fits.")
        if not already and (approve or (asked and typer.confirm(f"Approve plan {compiled.hash[:16]}?"))):
            row, origins = compiled.study.row, compiled.study.origins
            about = f"{row}: {purpose}" if purpose else row
            party.ledger.approve(compiled.hash, about, by=by or account(), reason=reason, purpose=purpose, origins=origins)
            said = f"Approved{f' by {name}' if (name := by or account()) else ''}, and written into the ledger."
        else:
            said = "It is already approved." if already else "Not approved. Run again with --approve once you agree."
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
        told |= costs
        told |= {"approved": party.ledger.approved(compiled.hash)}
        say_json("party-check", told)


def _costs(party: Party, plan: Plan) -> tuple[dict[str, Any], str]:
    """Return what the party's ledger holds before and after the plan, as data and in words; a helper's holds nothing."""
    budget = party.policy.budget
    if budget is None:
        helps = f"{party.name} is a helper: it has no data, and nothing is debited here. It knows masks, and learns the study's size and shape"
        return {"spent_epsilon": 0.0, "spent": "nothing", "after_this_plan": 0.0}, helps
    spent, after = (party.ledger.spending(budget, party.policy.scope, charges) for charges in ((), party.charges(plan)))
    numbers = {"spent_epsilon": spent.number, "spent": spent.words, "after_this_plan": after.number}
    return numbers, _in_words(party, plan, spent, after)


def _in_words(party: Party, plan: Plan, spent: Spending, after: Spending) -> str:
    """Return what the party's ledger holds before and after the plan."""
    budget = party.policy.budget
    assert budget is not None
    said = (
        f"{party.name}'s ledger, per {budget.unit} at delta = {budget.delta:g}, {COUNTED[party.policy.scope]}: spent {spent.words}; after this plan "
        f"{after.words}; allowed {budget.epsilon:g}"
    )
    for card in plan.study.parties:
        told = [f"{what}: {words}" for what, words in card.circumstances.items()]
        said += f"\n{card.name} says of its data: {'; '.join(told)}" if told else ""
    return said
