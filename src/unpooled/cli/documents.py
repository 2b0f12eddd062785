"""``unpooled dossier | register | crate``: the documents of those who sign, the record for a public registry, and a run as a crate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from unpooled.privacy.plan import Plan


# --- Dossier ---------------------------------------------------------------------------------------------------------------
# ``unpooled dossier STUDY``: the documents that a privacy officer and an ethics board read and sign.


def dossier(
    study: Path = typer.Argument(help="The study file (study.toml)."),
    *,
    config: list[Path] = typer.Option(
        [], "--config", help="A party file: its policy and its ledger are read too. Repeat it for several parties."
    ),
    run: Path | None = typer.Option(None, "--run", help="The folder of a finished run of this study (STUDY.run)."),
    audit: bool = typer.Option(False, "--audit", help="Also attack the plan on made-up data, and report the findings."),
    out: Path | None = typer.Option(None, "--out", help="The new folder to write [default: STUDY.dossier]."),
    as_json: bool = typer.Option(False, "--json", help="Print data for machines."),
) -> None:
    """Write a dossier: summary, impact assessment, roles, approval sheet, words for patients, incident form.

    Every sentence is a fact of the study, or carries a mark that says who has to fill it in. Needs no data.
    """
    from dataclasses import replace

    from unpooled.cli.say import new_folder, say_json
    from unpooled.evidence.document import Facts, Mark, markdown, page
    from unpooled.evidence.dossier import HTML, MARKDOWN
    from unpooled.evidence.dossier import dossier as made

    folder = out or study.with_suffix(".dossier")
    facts = Facts.read(study, tuple(config), run)
    if audit:
        from unpooled.audit.oracle import audit_study
        from unpooled.cli.say import progress

        with progress(quiet=as_json) as say:
            facts = replace(facts, audit=audit_study(facts.study, say))
    document = made(facts)
    written = new_folder(folder, {MARKDOWN: markdown(document), HTML: page(document)})
    fill, lawyer = document.marked(Mark.FILL), document.marked(Mark.LAWYER)
    if as_json:
        paths = [str(path) for path in written]
        say_json(
            "dossier",
            {"plan": facts.plan.hash, "holds": facts.statement.holds, "written": paths, "fill": fill, "lawyer": lawyer},
        )
        return
    typer.echo(f"plan {facts.plan.hash[:16]}: {facts.statement.headline}")
    for path in written:
        typer.echo(f"written: {path}")
    typer.echo(f"{fill} lines are for you to fill in, and {lawyer} are questions for your lawyer")


# --- Register --------------------------------------------------------------------------------------------------------------
# ``unpooled register STUDY``: a record for the public registry of deployments of differential privacy.


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
    from unpooled.evidence.document import Facts
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


# --- Crate -----------------------------------------------------------------------------------------------------------------
# ``unpooled crate RUN``: a finished run as a Five Safes RO-Crate.


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
    from unpooled.evidence.document import LedgerFacts, checked_run

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
