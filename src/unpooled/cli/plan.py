"""``unpooled plan STUDY``: what a study would release and cost, before anybody looks at data."""

from __future__ import annotations

from pathlib import Path

import typer


def plan(
    study: Path = typer.Argument(help="The study file (study.toml)."),
    *,
    as_json: bool = typer.Option(False, "--json", help="Print data for machines."),
    utility: bool = typer.Option(False, "--utility", help="Also print what error to expect, from simulations without data."),
) -> None:
    """Print the plan and the promise of a study. Needs no data."""
    from unpooled.errors import UsageError
    from unpooled.estimation.utility import glance, poor
    from unpooled.models import load
    from unpooled.study.advice import advice, compiled_or_instead
    from unpooled.study.files import read_study
    from unpooled.study.formulas import formula_lines, formula_of

    compiled = compiled_or_instead(read_study(study))
    model, outlook = load(compiled.study.row), None
    if utility:
        outlook = None if model.outlook is None else model.outlook(compiled.study)
        if outlook is None:
            msg = f"this study of model {compiled.study.row!r} has no outlook: leave --utility out"
            raise UsageError(msg)
    found = outlook or glance(model, compiled.study)
    if found is not None and not found.pays:
        typer.echo(f"warning: {poor(found)}", err=True)
    if as_json:
        from unpooled.cli.say import say_json

        releases = [
            {
                "name": r.name,
                "party": r.party,
                "step": r.step,
                "mechanism": r.mechanism.name,
                "count": r.count,
                "size": r.size,
                "sensitivity": r.sensitivity(compiled.study.unit),
                "scale": r.scale,
            }
            for r in compiled.releases
        ]
        data = {"plan": compiled.hash, "releases": releases, "statement": compiled.statement.to_dict()}
        data["notes"] = advice(compiled)
        if (formula := formula_of(compiled)) is not None:
            data["formula"] = formula
        if outlook is not None:
            data["outlook"] = outlook.to_dict()
        say_json("plan", data)
        return
    typer.echo(compiled)
    for line in formula_lines(compiled):
        typer.echo(line)
    typer.echo()
    typer.echo(compiled.statement)
    for note in advice(compiled):
        typer.echo(f"Note: {note}.")
    if outlook is not None:
        typer.echo()
        typer.echo(outlook)
