"""``unpooled contrast RUN "ward: b - a"``: differences of levels and other combinations of a run's coefficients."""

from __future__ import annotations

from pathlib import Path

import typer


def contrast(
    run: Path = typer.Argument(help="The folder of a run (STUDY.run)."),
    asked: list[str] = typer.Argument(
        help='Combinations, each in quotes: "ward: b - a" for levels, "2 * age - dose" for numbers, "age = 1" to test another value than 0.'
    ),
    *,
    analysis: str = typer.Option("", "--analysis", help="One of several analyses of the study, by name."),
    level: float = typer.Option(0.95, "--level", help="Of the intervals."),
    against: str | None = typer.Option(None, "--against", help="The class that others are compared with (multinomial)."),
    exponentiate: bool = typer.Option(False, "--exponentiate", help="Print odds, rate or hazard ratios."),
    as_json: bool = typer.Option(False, "--json", help="Print data for machines."),
) -> None:
    """Estimate combinations of coefficients with standard errors, intervals and a joint test. It costs no budget: all follows from what was released."""
    from unpooled.errors import UsageError
    from unpooled.study.finished import Run

    found = Run.one(run, analysis)
    tables = found.model.tables(found.plan, found.result)
    if tables is None:
        msg = f"this run of model {found.plan.study.model!r} released no standard errors, so nothing can be compared: `bayes` and `glm` do where there are rows and epsilon enough"
        raise UsageError(msg)
    told = tables.contrast(asked, level=level, against=against, exponentiate=exponentiate)
    if as_json:
        from unpooled.cli.say import say_json

        data = {
            "plan": (found.whole or found.plan).hash,
            "holds": found.statement.holds,
            "level": level,
            "ratio": told.ratio,
            "terms": [term.line for term in told.terms],
            "joint": {"statistic": told.statistic, "degrees": told.degrees, "p_value": told.p_value},
        }
        say_json("contrast", data)
        return
    typer.echo(str(told))
    typer.echo()
    typer.echo(str(found.statement).splitlines()[0])
