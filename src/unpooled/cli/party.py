"""``unpooled party ...``: what an organisation does before and beside a study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from unpooled.cli import init, kept, officer
from unpooled.cli.say import examples, say_json, write_new

if TYPE_CHECKING:
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.party import Party

app = typer.Typer(no_args_is_help=True, help="Set up a party, check a study against its policy, look at its ledger.")

app.command(epilog=examples("party init"))(init.init)
app.command(epilog=examples("party show"))(kept.show)
app.command(epilog=examples("party export"))(kept.export)
for command in (officer.withdraw, officer.card, officer.rows, officer.forget, officer.verify):
    app.command(epilog=examples(f"party {command.__name__}"))(command)

_CONFIG = typer.Option(Path("party.toml"), "--config", help="The party file.")
#: What a policy's total counts, in words.
_COUNTED = {
    "person": "over all parties of column-split studies",
    "party": "by this party alone (other parties may release more about the same people)",
}
_JSON = typer.Option(False, "--json", help="Print data for machines.")


@app.command(epilog=examples("party check"))
def check(
    study: Path = typer.Argument(help="The study file."),
    config: Path = _CONFIG,
    *,
    approve: bool = typer.Option(False, "--approve", help="Approve the plan without asking."),
    as_json: bool = _JSON,
) -> None:
    """Show what a study would release here and cost, hold it against the policy, and approve it.

    In a terminal it asks before it approves; elsewhere nothing is approved without --approve.
    """
    import sys

    from unpooled.study.advice import advice
    from unpooled.study.files import purpose_of, read_study
    from unpooled.study.party import open_party
    from unpooled.study.run import compile_study

    compiled, purpose = compile_study(read_study(study)), purpose_of(study)
    with open_party(config) as party:
        notes, costs = advice(compiled), _cost(party, compiled)
        if not as_json:
            if purpose:
                typer.echo(f"Purpose, as {study.name} says (the plan does not hold it): {purpose}\n")
            typer.echo(f"{compiled}\n\n{compiled.statement}\n\n{_in_words(party, *costs)}\n")
            for note in notes:
                typer.echo(f"Note: {note}.")
        party.consider(compiled, approved=True)
        already = party.ledger.approved(compiled.hash)
        asked = not (already or approve or as_json) and sys.stdin.isatty()
        if not as_json:
            typer.echo("policy: this plan fits.")
        if not already and (approve or (asked and typer.confirm(f"Approve plan {compiled.hash[:16]}?"))):
            party.ledger.approve(compiled.hash, f"{compiled.study.row}: {purpose}" if purpose else compiled.study.row)
            said = "Approved, and written into the ledger."
        else:
            said = "It is already approved." if already else "Not approved. Run again with --approve once you agree."
        if not as_json:
            typer.echo(said)
            return
        spent, after = costs
        told: dict[str, Any] = {
            "party": party.name,
            "plan": compiled.hash,
            "statement": compiled.statement.to_dict(),
            "notes": notes,
            "purpose": purpose,
        }
        told |= {"spent_epsilon": spent, "after_this_plan": after, "approved": party.ledger.approved(compiled.hash)}
        say_json(told)


@app.command(epilog=examples("party ledger"))
def ledger(
    config: Path = _CONFIG,
    *,
    moved: bool = typer.Option(False, "--moved", help="The ledger was moved here, and the old one is gone."),
    migrate: bool = typer.Option(False, "--migrate", help="Take over a ledger of unpooled 0.1.0, with everything it spent."),
    export: Path | None = typer.Option(
        None, "--export", help="Write every row of the chain into a new file, for an auditor."
    ),
    as_json: bool = _JSON,
) -> None:
    """List what was approved and debited, and the total against the policy."""
    import msgspec

    from unpooled.privacy.ledger import Ledger
    from unpooled.privacy.unit import Scope
    from unpooled.study.about import moment
    from unpooled.study.files import policy_of, read_party

    text = read_party(config)
    policy = policy_of(text)
    budget = policy.budget
    assert budget is not None
    path = config.parent / text.party.ledger
    if migrate:
        Ledger.migrate(path).close()
    with Ledger.open(path, moved=moved) as opened:
        entries, warnings, head, guesses = opened.entries(), opened.warnings, opened.head, opened.guesses
        if export is not None:
            write_new(export, opened.export())
        spent = opened.composition(budget.unit, policy.scope).epsilon(budget.delta)
        alone = opened.composition(budget.unit, Scope.PARTY).epsilon(budget.delta)
    if as_json:
        data = {
            "entries": entries,
            "spent_epsilon": spent,
            "bounds": policy.scope,
            "spent_by_this_party": alone,
            "warnings": warnings,
            "delta": budget.delta,
            "unit": budget.unit,
            "allowed_epsilon": budget.epsilon,
            "head": head,
            "guesses": guesses,
        }
        typer.echo(msgspec.json.format(msgspec.json.encode(data)).decode())
        return
    for entry in entries:
        said = f"{entry.kind}  {entry.about}".rstrip()
        what = said if entry.key is None else f"{entry.key.step}[{entry.key.index}] {entry.key.name}"
        what = "the whole plan, all parties" if entry.kind == "shared" else what
        words = "; ".join(f"{unit}: {entry.words(unit)}" for unit in entry.units)
        cost = "" if entry.key is None else f"{words}; {entry.state}"
        typer.echo(f"{entry.position:>5}  {moment(entry.time):<16}  plan {entry.plan[:16]}  {what:<24}{cost}".rstrip())
    for warning in warnings:
        typer.echo(f"Warning: {warning}")
    typer.echo(
        f"spent: epsilon = {spent:.6g} of {budget.epsilon:g} at delta = {budget.delta:g} per {budget.unit}, {_COUNTED[policy.scope]}"
    )
    if policy.scope is not Scope.PARTY and alone != spent:
        typer.echo(f"       epsilon = {alone:.6g} of it was released by this party itself")
    if guesses:
        typer.echo(
            f"rows were linked: other parties could try out {guesses} ids on whether this party has them, which no epsilon bounds"
        )
    typer.echo(f"head {head} (write it down elsewhere to notice a ledger that was rolled back as a whole)")


def _cost(party: Party, plan: Plan) -> tuple[float, float]:
    """Epsilon spent at the policy's delta, now and after this plan."""
    budget = party.policy.budget
    assert budget is not None
    scope = party.policy.scope
    now = party.ledger.composition(budget.unit, scope)
    after = party.ledger.composition(budget.unit, scope, party.charges(plan))
    return now.epsilon(budget.delta), after.epsilon(budget.delta)


def _in_words(party: Party, spent: float, after: float) -> str:
    budget = party.policy.budget
    assert budget is not None
    return (
        f"{party.name}'s ledger, per {budget.unit} at delta = {budget.delta:g}, {_COUNTED[party.policy.scope]}: spent epsilon = "
        f"{spent:.6g}; after this plan {after:.6g}; allowed {budget.epsilon:g}"
    )
