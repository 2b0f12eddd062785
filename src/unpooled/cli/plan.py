"""``unpooled plan STUDY``: what a study would release and cost, before anybody looks at data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from typing import Any

    from unpooled.estimation.outlook import Outlook
    from unpooled.privacy.plan import Plan


def plan(
    study: Path = typer.Argument(help="The study file (study.toml)."),
    *,
    as_json: bool = typer.Option(False, "--json", help="Print data for machines."),
    utility: bool = typer.Option(
        False,
        "--utility",
        help="Also print what error to expect, from simulations without data; with --preview also as figures.",
    ),
    preview: bool = typer.Option(
        False,
        "--preview",
        help="Also write a page with the tables and figures that SIMULATED data of the declared shape give.",
    ),
    out: Path | None = typer.Option(None, "--out", help="With --preview: the page to write [default: STUDY.preview.html]."),
) -> None:
    """Print the plan and the promise of a study. Needs no data.

    With --preview nothing is spent either: no ledger is opened. The page is one file, and every simulated figure and table on it says so.
    """
    from unpooled.errors import UsageError
    from unpooled.study.advice import advice, compiled_or_instead
    from unpooled.study.files import read_study
    from unpooled.study.formulas import formula_lines

    if out is not None and not preview:
        raise UsageError("--out names the page of --preview: give both, or neither")
    compiled = compiled_or_instead(read_study(study))
    outlooks = _outlooks(compiled, utility=utility)
    shown, previewed = _preview(compiled, out or study.with_suffix(".preview.html"), outlooks) if preview else ({}, "")
    if as_json:
        from unpooled.cli.say import say_json

        say_json("plan", _data(compiled, outlooks) | {"notes": advice(compiled)} | shown)
        return
    typer.echo(compiled)
    for name, one in compiled.analyses.items() or (("", compiled),):
        for line in formula_lines(one):
            typer.echo(f"{name}: {line}" if name else line)
    typer.echo()
    typer.echo(compiled.statement)
    for note in advice(compiled):
        typer.echo(f"Note: {note}.")
    for name, outlook in outlooks.items():
        typer.echo()
        if name:
            typer.echo(f"{name}:")
        typer.echo(outlook)
    if previewed:
        typer.echo(f"\n{previewed}")


def _preview(compiled: Plan, path: Path, outlooks: dict[str, Outlook]) -> tuple[dict[str, Any], str]:
    """Write the page of a plan's preview; return the preview as data, and in words."""
    from unpooled.report.preview import Preview, page_of_preview

    found = Preview.of(compiled)
    path.write_text(page_of_preview(found, outlooks), encoding="utf-8")
    data = {
        "written": str(path),
        "declared_rows": found.declared,
        "simulated_rows": found.simulated,
        "truth": found.truth,
        "differences": found.differences,
        "failed": found.failed,
        "terms": found.terms,
    }
    words = f"SIMULATED data gave no result: {found.failed}. " if found.failed else ""
    words += (
        f"Preview on SIMULATED data ({found.simulated:,} of {found.declared:,} rows), for which nothing was spent: {path}"
    )
    return {"preview": data}, words


def _outlooks(compiled: Plan, *, utility: bool) -> dict[str, Outlook]:
    """Return the outlooks that were asked for, by the name of the analysis; warn of each that is not worth its budget."""
    from unpooled.errors import UsageError
    from unpooled.estimation.utility import glance, poor
    from unpooled.study.run import asked_of

    outlooks: dict[str, Outlook] = {}
    for model, asked in asked_of(compiled.study):
        outlook = model.outlook(asked) if utility and model.outlook is not None else None
        if outlook is not None:
            outlooks[asked.analysis] = outlook
        found = outlook or glance(model, asked)
        if found is not None and not found.pays:
            of = f"analysis {asked.analysis!r}: " if asked.analysis else ""
            typer.echo(f"warning: {of}{poor(found)}", err=True)
    if utility and not outlooks:
        msg = f"this study of model {compiled.study.row!r} has no outlook: leave --utility out"
        raise UsageError(msg)
    return outlooks


def _data(compiled: Plan, outlooks: dict[str, Outlook]) -> dict[str, Any]:
    """Return a plan as data."""
    from unpooled.study.formulas import formula_of

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

    def more(name: str, one: Plan) -> dict[str, Any]:
        formula = formula_of(one)
        found = {} if formula is None else {"formula": formula}
        return found | ({"outlook": outlooks[name].to_dict()} if name in outlooks else {})

    data = {"plan": compiled.hash, "releases": releases, "statement": compiled.statement.to_dict()}
    if not compiled.analyses:
        return data | more("", compiled)
    analyses = [
        {"name": name, "model": one.study.model, "share": compiled.design.shares[name], **more(name, one)}
        for name, one in compiled.analyses.items()
    ]
    return data | {"analyses": analyses}
