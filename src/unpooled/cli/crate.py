"""``unpooled crate RUN``: a finished run as a Five Safes RO-Crate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from unpooled.privacy.plan import Plan


def crate(
    run: Path = typer.Argument(help="The folder of a finished run (STUDY.run)."),
    *,
    out: Path = typer.Option(..., "--out", help="The new folder to write."),
    study: Path | None = typer.Option(
        None, "--study", help="The study file [default: the one next to the run, if it is there]."
    ),
    config: list[Path] = typer.Option(
        [],
        "--config",
        help="A party file: approvals and releases in its ledger become actions. Repeat it for several parties.",
    ),
    dossier: Path | None = typer.Option(None, "--dossier", help="The folder of a dossier of this study, to be added."),
    licence: str = typer.Option("", "--license", help="The address of the licence under which the crate may be used."),
    as_json: bool = typer.Option(False, "--json", help="Print data for machines."),
) -> None:
    """Write a finished run as a Five Safes RO-Crate: study, plan, statement, result, report, people and approvals.

    It holds no data, no ledger and no transcript.
    """
    from unpooled.cli.say import new_folder, say_json
    from unpooled.evidence.crate import crate as made
    from unpooled.evidence.facts import LedgerFacts, checked_run

    found = checked_run(run)
    more = _study_file(study or run.with_suffix(".toml"), found.plan, asked=study is not None)
    if dossier is not None:
        more |= _dossier(dossier, found.plan)
    ledgers = [LedgerFacts.read(path, found.plan) for path in config]
    written = new_folder(out, made(found, ledgers, more, licence))
    if as_json:
        data = {"plan": found.plan.hash, "holds": found.statement.holds, "written": [str(path) for path in written]}
        say_json("crate", data)
        return
    typer.echo(f"plan {found.plan.hash[:16]}: {found.statement.headline}")
    typer.echo(f"written: {out} ({len(written)} files)")


def _study_file(path: Path, plan: Plan, *, asked: bool) -> dict[str, bytes]:
    """Return the study file if it makes this plan; one that was named and makes another is refused."""
    from unpooled.errors import UnpooledError, UsageError
    from unpooled.study.files import read_study
    from unpooled.study.run import compile_study

    if not asked and not path.is_file():
        return {}
    try:
        same = compile_study(read_study(path)).hash == plan.hash
    except UnpooledError:
        if asked:
            raise
        return {}
    if same:
        return {"workflow/study.toml": path.read_bytes()}
    if asked:
        msg = f"{path} makes another plan than that of the run: give the study file that was run, or leave --study out"
        raise UsageError(msg)
    return {}


def _dossier(folder: Path, plan: Plan) -> dict[str, bytes]:
    """Return the files of a dossier; refused where they do not name this plan."""
    from unpooled.errors import UsageError
    from unpooled.evidence.dossier import HTML, MARKDOWN

    files = {f"dossier/{name}": (folder / name).read_bytes() for name in (MARKDOWN, HTML)}
    if not all(plan.hash.encode() in body for body in files.values()):
        msg = f"{folder} is the dossier of another plan: write it anew with `unpooled dossier`"
        raise UsageError(msg)
    return files
