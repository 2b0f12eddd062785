"""``unpooled run STUDY``: run a study over parties on this disk."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unpooled.protocol.local import Watch


def run(
    study: Path = typer.Argument(help="The study file (study.toml)."),
    party: list[Path] = typer.Option(..., "--party", help="The party.toml of one participant; repeat for each."),
    *,
    out: Path | None = typer.Option(None, "--out", help="Folder for transcript, result and statement [default: STUDY.run]."),
    as_json: bool = typer.Option(False, "--json", help="Print the result for machines."),
) -> None:
    """Run a study in this process. A run that was cut short is continued; nothing is charged twice."""
    from unpooled.models import load
    from unpooled.study.run import run_study

    folder = out or study.with_suffix(".run")
    with progress(quiet=as_json) as watch:
        plan, outcome = run_study(study, party, folder, watch)
    if as_json:
        typer.echo((folder / "result.json").read_text())
        return
    typer.echo(load(plan.study.model).render(outcome.result))
    typer.echo()
    typer.echo(plan.statement)
    typer.echo(f"\nresult, statement and transcript are in {folder}")


@contextmanager
def progress(*, quiet: bool = False) -> Iterator[Watch]:
    """A spinner that says which step is being waited for and at whom (standard error, never a data value)."""
    from rich.console import Console

    console = Console(stderr=True, quiet=quiet)
    with console.status("opening the ledgers") as status:
        yield lambda asks: status.update(f"step {asks[0].step!r}: waiting for {', '.join(ask.to for ask in asks)}")
