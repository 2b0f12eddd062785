"""``unpooled dossier STUDY``: the documents that a privacy officer and an ethics board read and sign."""

from __future__ import annotations

from pathlib import Path

import typer


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
    from unpooled.evidence.document import Mark, markdown, page
    from unpooled.evidence.dossier import HTML, MARKDOWN
    from unpooled.evidence.dossier import dossier as made
    from unpooled.evidence.facts import Facts

    folder = out or study.with_suffix(".dossier")
    facts = Facts.read(study, tuple(config), run)
    if audit:
        from unpooled.audit.whole import audit_study
        from unpooled.cli.progress import progress

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
