"""``unpooled doctor``: says what would fail in a networked study, before it does."""

from __future__ import annotations

from pathlib import Path

import typer


def doctor(
    kit: Path | None = typer.Argument(
        None, help="A start-up kit: yours. Without one, studies whose parties are on one disk."
    ),
    *,
    study: Path | None = typer.Option(None, "--study", help="The study file to look at."),
    config: Path | None = typer.Option(None, "--config", help="A party file [default: that of the kit]."),
    as_json: bool = typer.Option(False, "--json", help="Print data for machines."),
) -> None:
    """Look at certificates, server, clock, versions, roster, cards and policy. Exit code 2 if something would fail."""
    from unpooled.errors import UsageError
    from unpooled.network.doctor import examine
    from unpooled.network.kits import Kit
    from unpooled.study.files import read_study

    if kit is config is study is None:
        msg = "say what to look at: a kit, --config party.toml, --study study.toml"
        raise UsageError(msg)
    findings = examine(None if kit is None else Kit.of(kit), config, None if study is None else read_study(study))
    if as_json:
        from unpooled.cli.say import say_json

        say_json("doctor", {"findings": findings})
    else:
        for finding in findings:
            typer.echo(f"{'fine   ' if finding.fine else 'PROBLEM'}  {finding.what}: {finding.words}")
    if not all(finding.fine for finding in findings):
        raise typer.Exit(2)
