"""``unpooled audit STUDY``: hold what a study's parties would send against what its plan declares, on made-up data."""

from __future__ import annotations

from pathlib import Path

import typer


def audit(
    study: Path = typer.Argument(help="The study file (study.toml)."),
    *,
    rows: int = typer.Option(40, "--rows", min=2, help="Rows of the made-up data of each party, at most."),
    rounds: int = typer.Option(10, "--rounds", min=1, help="Random neighbours, and steps of the search for worse ones."),
    as_json: bool = typer.Option(False, "--json", help="Print data for machines."),
) -> None:
    """Replay a study on neighbouring made-up data with the noise frozen. Needs no data; exit code 1 if anything moves too far."""
    from unpooled.audit.made_up import made_up
    from unpooled.audit.replay import replay
    from unpooled.cli.progress import progress
    from unpooled.models import load
    from unpooled.study.files import read_study

    asked = read_study(study)
    model = load(asked.row)
    fitted, tables = made_up(model, asked, rows)
    with progress(quiet=as_json) as say:
        say(f"replaying model {asked.model!r} on neighbouring data sets")
        report = replay(model, fitted, tables, registry=load, rounds=rounds)
    if as_json:
        import msgspec

        data = {
            "passed": report.passed,
            "neighbours": report.neighbours,
            "largest": [
                {"unit": str(unit), "party": party, "release": name, "part_of_bound": share}
                for (unit, party, name), share in sorted(report.largest.items())
            ],
            "unmeasured": report.unmeasured,
            "violations": [
                {"unit": str(v.unit), "party": v.party, "where": v.where, "what": v.what} for v in report.violations
            ],
        }
        typer.echo(msgspec.json.format(msgspec.json.encode(data)).decode())
    else:
        typer.echo(report)
    if not report.passed:
        raise typer.Exit(1)
