"""``unpooled report RUN``: a run as one self-contained page."""

from __future__ import annotations

from pathlib import Path

import typer


def report(
    run: Path = typer.Argument(help="The folder of a run (STUDY.run)."),
    *,
    out: Path | None = typer.Option(None, "--out", help="The page to write [default: RUN/report.html]."),
) -> None:
    """Write a run as one HTML page: its promise, its releases, its result. Everything is worked out anew from the transcript."""
    from unpooled.report.page import page
    from unpooled.report.run import Run

    found = Run.read(run)
    path = out or run / "report.html"
    path.write_text(page(found), encoding="utf-8")
    typer.echo(f"plan {found.plan.hash[:16]}: {'a guarantee holds' if found.plan.statement.holds else 'NO guarantee holds'}")
    if found.agrees is False:
        typer.echo("WARNING: result.json is not what follows from the transcript")
    typer.echo(f"written: {path}")
