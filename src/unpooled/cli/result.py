"""``unpooled result RUN``: what a study found, line by line."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from unpooled.protocol.step import Analysed


def result(
    run: Path = typer.Argument(help="The folder of a run (STUDY.run)."),
    *,
    analysis: str = typer.Option("", "--analysis", help="One of several analyses of the study, by name."),
    as_csv: bool = typer.Option(False, "--csv", help="Print comma-separated values."),
    as_json: bool = typer.Option(False, "--json", help="Print data for machines."),
) -> None:
    """Print what a study found: coefficients (or summaries) in the data's own units, with standard errors and intervals where there are any."""
    from unpooled.errors import UsageError
    from unpooled.protocol.terms import as_csv as csv_of
    from unpooled.study.finished import Run

    if as_csv and as_json:
        raise UsageError("choose --csv or --json")
    found = Run.read(run, analysis)
    terms = found.terms
    if as_json:
        from unpooled.cli.say import say_json

        study, tables = found.plan.study, found.model.tables(found.plan, found.result)
        data = {
            "plan": (found.whole or found.plan).hash,
            "model": study.model,
            "holds": found.statement.holds,
            "statement": str(found.statement),
            "epsilon": found.statement.epsilon if math.isfinite(study.epsilon) else None,
            "delta": found.statement.delta,
            "recomputed": found.recomputed,
            "terms": terms,
            "predicting": found.model.predicting(found.plan, found.result),
            **({"analyses": [_about(part) for part in found.parts]} if found.parts else {}),
            **({} if tables is None else tables.data(getattr(found.result, "level", 0.95))),
        }
        say_json("result", data)
        return
    if as_csv:
        typer.echo(csv_of(terms), nl=False)
        return
    typer.echo(found.model.table(found.plan, found.result))
    if not terms:
        typer.echo("Each party shows its own coefficients with `unpooled party show STUDY`.")
    typer.echo()
    for line in str(found.statement).splitlines()[: 3 if found.statement.holds else 1]:
        typer.echo(line)
    if found.agrees is False:
        typer.echo("WARNING: result.json is not this result: it was changed, or is of another run", err=True)


def _about(part: Analysed) -> dict[str, str]:
    return {"name": part.name, "model": part.plan.study.model, "failed": part.failed}
