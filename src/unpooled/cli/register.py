"""``unpooled register STUDY``: a record for the public registry of deployments of differential privacy."""

from __future__ import annotations

from pathlib import Path

import typer


def register(
    study: Path = typer.Argument(help="The study file (study.toml)."),
    *,
    published: str = typer.Option("", "--published", help="When the result was first published, as YYYY-MM-DD."),
    product: str = typer.Option("", "--type", help="What is published, in the registry's words: 'Summary statistics', ..."),
    sector: str = typer.Option("", "--sector", help="The sector, in the registry's words: Healthcare, Education, ..."),
    region: str = typer.Option("", "--region", help="The region that the data describe, or whose laws apply."),
    name: str = typer.Option("", "--name", help="The name of what is published."),
    curator: list[str] = typer.Option([], "--curator", help="Who publishes it. Repeat it for several."),
    author: list[str] = typer.Option([], "--author", help="Who writes this record. Repeat it for several."),
    run: Path | None = typer.Option(None, "--run", help="The folder of a finished run of this study (STUDY.run)."),
    out: Path | None = typer.Option(None, "--out", help="A new file for the record; without it, it is printed."),
    as_json: bool = typer.Option(False, "--json", help="Print data for machines."),
) -> None:
    """Write a record of a study for the public registry of deployments, as YAML.

    What the study does not say is marked, to be filled in before you send it. Nothing is sent.
    """
    from unpooled.cli.say import say_json, write_new
    from unpooled.evidence.facts import Facts
    from unpooled.evidence.record import Answers, as_yaml, left, record

    facts = Facts.read(study, run=run)
    held = record(facts, Answers(published, product, sector, region, name, tuple(curator), tuple(author)))
    text, open_ = as_yaml(held), list(left(held))
    if out is not None:
        write_new(out, text.encode())
    if as_json:
        written = None if out is None else str(out)
        say_json("register", {"plan": facts.plan.hash, "record": held, "fill": open_, "written": written})
        return
    if out is None:
        typer.echo(text, nl=False)
        return
    typer.echo(f"written: {out}")
    typer.echo(f"to be filled in by you: {', '.join(open_)}" if open_ else "nothing is left to fill in")
