"""``unpooled new | plan | run | propose | link``: from a commented study file to a run over parties on this disk or over a network."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from unpooled.cli.say import progress, say_json, stopped, waiting

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from unpooled.estimation.outlook import Outlook
    from unpooled.privacy.plan import Plan


# --- New -------------------------------------------------------------------------------------------------------------------
# ``unpooled new MODEL``: a commented study file to begin with.


def new(
    model: list[str] = typer.Argument(
        help="describe, tables, survival, bayes, glm, effects, diagnose, pls, stacking, lasso or pride; or link. Several: a study with one analysis of each."
    ),
    *,
    card: list[Path] = typer.Option([], "--card", help="The public card of a party; repeat for each."),
    epsilon: float | None = typer.Option(None, help="The privacy asked for [default: 1, or that of --fitted]."),
    calibration: str = typer.Option(
        "sound", help="The form: sound, or published (the paper's own study, which promises nothing)."
    ),
    fitted: Path | None = typer.Option(
        None, "--fitted", help="pride: an earlier study, whose coefficients predict the new rows of these cards."
    ),
    formula: str | None = typer.Option(
        None,
        "--formula",
        help='bayes, glm or stacking: what the model is a function of, as "age * ward + log(dose)"; checked against the cards.',
    ),
    hidden: bool = typer.Option(
        False, "--hidden", help="link: no party and no coordinator learns who is on another list; with the card of a helper."
    ),
    out: Path = typer.Option(Path("study.toml"), "--out", help="The new study file."),
    as_json: bool = typer.Option(False, "--json", help="Print data for machines."),
) -> None:
    """Write a commented study file: what the model needs, and its choices with their defaults."""
    import os

    from unpooled.cli.say import say_json
    from unpooled.errors import UsageError, listed
    from unpooled.models import LINK
    from unpooled.study.files import helpers_of
    from unpooled.study.templates import checked_formula, hidden_link, predicted, prediction, right_side, template

    if hidden and (model != [LINK] or formula is not None or fitted is not None or calibration != "sound"):
        raise UsageError("--hidden is for a study that links rows, alone: unpooled new link --hidden")
    if len(model) > 1:
        _several(model, card, epsilon, out, as_json=as_json, others=(fitted, formula), calibration=calibration)
        return
    (only,) = model
    cards = [Path(os.path.relpath(path, out.parent)).as_posix() for path in card]
    if fitted is not None and only not in (able := predicted()):
        msg = f"--fitted is for {listed(able)}, whose coefficients stay at the parties; other models' runs are used by `unpooled predict`"
        raise UsageError(msg)
    if fitted is not None and formula is not None:
        raise UsageError("new rows are predicted by the model that was fitted: leave --formula out")
    said = None if formula is None else checked_formula(formula, card)
    if hidden:
        text = hidden_link(cards, 0.1 if epsilon is None else epsilon, helpers_of(card))
    elif fitted is None:
        text = template(only, cards, 1.0 if epsilon is None else epsilon, calibration, said, helpers_of(card))
    elif calibration == "sound":
        text = prediction(fitted, cards, epsilon)
    else:
        raise UsageError("new rows are predicted in the form of the study that fitted: leave --calibration out")
    _write(out, text)
    if as_json:
        told = {"written": str(out), "model": only, "cards": cards}
        say_json("new", told if said is None else told | {"formula": right_side(said)})
        return
    typer.echo(f"written: {out}. Edit it, then see what it would release and cost: unpooled plan {out}")


def _several(
    models: list[str],
    card: list[Path],
    epsilon: float | None,
    out: Path,
    *,
    as_json: bool,
    others: tuple[object, ...],
    calibration: str,
) -> None:
    """Write a study with one analysis of each model."""
    import os

    from unpooled.cli.say import say_json
    from unpooled.errors import UsageError
    from unpooled.privacy.study import ANALYSES
    from unpooled.study.templates import template_of_several

    if any(other is not None for other in others) or calibration != "sound":
        raise UsageError(
            "with several models leave --fitted, --formula and --calibration out: each analysis has its own parameters"
        )
    cards = [Path(os.path.relpath(path, out.parent)).as_posix() for path in card]
    _write(out, template_of_several(models, cards, 1.0 if epsilon is None else epsilon))
    if as_json:
        say_json("new", {"written": str(out), "model": ANALYSES, "models": models, "cards": cards})
        return
    typer.echo(f"written: {out}. Edit it, then see what it would release and cost: unpooled plan {out}")


def _write(out: Path, text: str) -> None:
    from unpooled.errors import UsageError

    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        msg = f"{out} exists already: choose another name with --out"
        raise UsageError(msg) from None


# --- Plan ------------------------------------------------------------------------------------------------------------------
# ``unpooled plan STUDY``: what a study would release and cost, before anybody looks at data.


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
    from unpooled.study.files import read_study
    from unpooled.study.run import advice, compiled_or_instead
    from unpooled.study.templates import formula_lines

    if out is not None and not preview:
        raise UsageError("--out names the page of --preview: give both, or neither")
    compiled = compiled_or_instead(read_study(study))
    outlooks, lines = _outlooks(compiled, utility=utility)
    shown, previewed = _preview(compiled, out or study.with_suffix(".preview.html"), outlooks) if preview else ({}, "")
    if as_json:
        from unpooled.cli.say import say_json

        say_json("plan", _data(compiled, outlooks, lines) | {"notes": advice(compiled)} | shown)
        return
    typer.echo(compiled)
    for name, one in compiled.analyses.items() or (("", compiled),):
        for line in formula_lines(one):
            typer.echo(f"{name}: {line}" if name else line)
    typer.echo()
    typer.echo(compiled.statement)
    for note in advice(compiled):
        typer.echo(f"Note: {note}.")
    _say_expected(outlooks, lines)
    if previewed:
        typer.echo(f"\n{previewed}")


def _say_expected(outlooks: dict[str, Outlook], lines: dict[str, Outlook]) -> None:
    """Print the lines to expect, and the outlooks that were asked for, which have them too."""
    for name, glanced in lines.items():
        if name not in outlooks:
            typer.echo(f"\n{glanced.lines_in_text(name)}")
    for name, outlook in outlooks.items():
        typer.echo(f"\n{name}:" if name else "")
        typer.echo(outlook)


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


def _outlooks(compiled: Plan, *, utility: bool) -> tuple[dict[str, Outlook], dict[str, Outlook]]:
    """Return the outlooks that were asked for, by the name of the analysis, and all that have lines of a table; warn of each that is not worth its budget."""
    from unpooled.errors import UsageError
    from unpooled.estimation.outlook import glance, poor
    from unpooled.study.run import asked_of

    outlooks: dict[str, Outlook] = {}
    lines: dict[str, Outlook] = {}
    for model, asked in asked_of(compiled.study):
        outlook = model.outlook(asked) if utility and model.outlook is not None else None
        if outlook is not None:
            outlooks[asked.analysis] = outlook
        found = outlook or glance(model, asked, lines=True)
        if found is not None and found.lines:
            lines[asked.analysis] = found
        if found is not None and not found.pays:
            of = f"analysis {asked.analysis!r}: " if asked.analysis else ""
            typer.echo(f"warning: {of}{poor(found)}", err=True)
    if utility and not outlooks:
        msg = f"this study of model {compiled.study.row!r} has no outlook: leave --utility out"
        raise UsageError(msg)
    return outlooks, lines


def releases_of(compiled: Plan) -> list[dict[str, Any]]:
    """Return what a plan releases, as data."""
    return [
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


def _data(compiled: Plan, outlooks: dict[str, Outlook], lines: dict[str, Outlook]) -> dict[str, Any]:
    """Return a plan as data."""
    from unpooled.inference.results import records
    from unpooled.study.templates import formula_of

    def more(name: str, one: Plan) -> dict[str, Any]:
        formula = formula_of(one)
        found: dict[str, Any] = {} if formula is None else {"formula": formula}
        found |= {"lines": records(lines[name].lines)} if name in lines else {}
        return found | ({"outlook": outlooks[name].to_dict()} if name in outlooks else {})

    data = {"plan": compiled.hash, "releases": releases_of(compiled), "statement": compiled.statement.to_dict()}
    if not compiled.analyses:
        return data | more("", compiled)
    analyses = [
        {"name": name, "model": one.study.model, "share": compiled.design.shares[name], **more(name, one)}
        for name, one in compiled.analyses.items()
    ]
    return data | {"analyses": analyses}


# --- Run -------------------------------------------------------------------------------------------------------------------
# ``unpooled run STUDY``: run a study over parties on this disk, or over a network.


def run(
    study: Path = typer.Argument(help="The study file (study.toml)."),
    party: list[Path] = typer.Option([], "--party", help="The party.toml of one participant on this disk; repeat for each."),
    *,
    network: Path | None = typer.Option(None, "--network", help="Your kit: run between the parties of its network."),
    resume: bool = typer.Option(False, "--resume", help="Go on with a networked run; nothing is charged twice."),
    patience: float = typer.Option(600.0, "--patience", help="Seconds to wait for a party of the network in one step."),
    out: Path | None = typer.Option(None, "--out", help="Folder for transcript, result and statement [default: STUDY.run]."),
    force: bool = typer.Option(
        False, "--force", help="Run it even where no more than what costs nothing is expected of it."
    ),
    data_changed: str = typer.Option(
        "",
        "--data-changed",
        metavar="REASON",
        help="With --party: approve the study for data that changed since it was approved, and say why; the ledgers keep it.",
    ),
    as_json: bool = typer.Option(False, "--json", help="Print the result for machines."),
) -> None:
    """Run a study in this process, or over a network. A run that was cut short is continued; nothing is charged twice."""
    from unpooled.errors import UsageError
    from unpooled.study.finished import write_about
    from unpooled.study.run import run_study

    folder = out or study.with_suffix(".run")
    if bool(party) == (network is not None):
        msg = "say where the parties are: --party PATH/TO/party.toml for each of them, or --network KIT"
        raise UsageError(msg)
    if data_changed:
        changed_data(study, party, data_changed)
    if (folder / "result.json").is_file():
        words = "this study has run before: what follows comes from its transcript, nothing is charged. For fresh noise raise `run`, which costs again"
        typer.echo(words, err=True)
    elif not as_json and (members := needed(study)):
        typer.echo(f"this run waits for all of {members}: without one of them nothing is opened", err=True)
    if not (force or resume or folder.exists()):  # a run that was begun has spent already
        worth_it(study, asks=not as_json and sys.stdin.isatty() and sys.stdout.isatty())
    again = "run the same command again" + (" with --resume" if network is not None else "")
    with progress(quiet=as_json) as say, stopped(again):
        if network is not None:
            from unpooled.network.kits import Kit
            from unpooled.network.submit import run_networked
            from unpooled.study.files import read_study

            kit = Kit.of(network)
            plan = run_networked(read_study(study), kit, folder, say, patience=patience, resume=resume)
            write_about(folder, study, plan, by=kit.name)
        else:
            plan, _ = run_study(study, party, folder, waiting(say))
            write_about(folder, study, plan, party)
    if as_json:
        import msgspec

        from unpooled.cli.say import say_json

        say_json("run", msgspec.json.decode((folder / "result.json").read_bytes()))
        return
    typer.echo((folder / "result.txt").read_text())
    typer.echo(plan.statement)
    typer.echo(f"\nthis run's files are in {folder}")


def changed_data(study: Path, parties: Sequence[Path], reason: str) -> None:
    """Approve a study for the data that its parties on this disk have now, where they changed since it was approved."""
    from contextlib import ExitStack

    from unpooled.errors import UsageError
    from unpooled.study.files import purpose_of, read_study
    from unpooled.study.party import open_party
    from unpooled.study.run import approve_other_data, compile_study

    if not parties:
        msg = "over a --network each party says itself that its data changed: `unpooled party check STUDY --data-changed REASON`"
        raise UsageError(msg)
    with ExitStack() as opened:
        everybody = [opened.enter_context(open_party(path)) for path in parties]
        approve_other_data(everybody, compile_study(read_study(study)), purpose_of(study), reason)


def worth_it(study: Path, *, asks: bool) -> None:
    """Refuse a study of which nothing is expected that costs nothing otherwise, before any party is asked; at a terminal the person decides."""
    from unpooled.errors import Refusal
    from unpooled.estimation.outlook import refuse_if_poor
    from unpooled.study.files import is_forced, read_study
    from unpooled.study.run import asked_of

    asked = read_study(study)
    if is_forced(study):
        return
    try:
        refuse_if_poor(asked_of(asked))
    except Refusal as refused:
        if not asks:
            raise
        typer.echo(str(refused), err=True)
        if not typer.confirm("Run it all the same?"):
            raise


def needed(study: Path) -> str:
    """Return the members of a study of joint moments, or of a hidden link, all of whom must take part to the end; empty for other studies."""
    from unpooled.errors import listed
    from unpooled.study.files import read_study
    from unpooled.study.run import compile_study

    plan = compile_study(read_study(study))
    return listed([card.name for card in plan.study.members]) if plan.joint or plan.hides else ""


# --- Propose ---------------------------------------------------------------------------------------------------------------
# ``unpooled propose STUDY``: lay a study before the parties of a network, so that their people find it in their consoles.


def propose(
    study: Path = typer.Argument(help="The study file (study.toml)."),
    network: Path = typer.Option(..., "--network", help="Your kit: the parties of its network get the study."),
    *,
    by: str = typer.Option("", "--by", help="Who proposes it, for the people who decide [default: the name of your kit]."),
    patience: float = typer.Option(60.0, "--patience", help="Seconds to wait for a party."),
    as_json: bool = typer.Option(False, "--json", help="Print data for machines."),
) -> None:
    """Leave a study in the inbox of every party of it. It has no effect there until people approve it, and no party says what they decide.

    The coordinator signs it. People look at it, and decide, with `unpooled party console`.
    """
    from unpooled.network.kits import Kit
    from unpooled.network.signing import Proposal
    from unpooled.network.submit import propose_networked
    from unpooled.study.files import purpose_of, read_study
    from unpooled.study.run import compile_study

    asked, kit = read_study(study), Kit.of(network)
    plan = compile_study(asked)
    with progress(quiet=as_json) as say:
        away = propose_networked(Proposal(asked, purpose_of(study), by or kit.name), kit, say, patience=patience)
    laid = [card.name for card in asked.members if card.name not in away]
    if as_json:
        say_json("propose", {"plan": plan.hash, "laid": laid, "away": away})
    else:
        typer.echo(f"plan {plan.hash[:16]} lies in the inbox of {', '.join(laid) or 'no party'}")
        if away:
            typer.echo(f"no answer from {', '.join(away)}: propose it again when they are there")
        typer.echo(
            "Nothing runs, and nothing is spent, until people approve it. Ask them; the network does not say what they decided."
        )
    if away:
        raise typer.Exit(1)


# --- Link ------------------------------------------------------------------------------------------------------------------
# ``unpooled link STUDY``: link rows of parties on this disk, or take over what a networked run of it left at one party.


def link(
    study: Path = typer.Argument(help='The study file, whose model is "link".'),
    *,
    party: list[Path] = typer.Option([], "--party", help="The party.toml of one participant on this disk; repeat for each."),
    config: Path | None = typer.Option(None, "--config", help="After a run over a network: your party.toml."),
    folder: str | None = typer.Option(
        None,
        "--folder",
        help="Where linked parties are written, next to each party.toml [default: linked; linked-2 where that holds the rows of another linking].",
    ),
    out: Path | None = typer.Option(None, "--out", help="Folder for transcript and result [default: STUDY.run]."),
    as_json: bool = typer.Option(False, "--json", help="Print the result for machines."),
) -> None:
    """Link rows, and write for each party the party file and card of the people whom all have. A run that was cut short is continued.

    After a hidden link (reveal = "nothing"), in which the helper takes part as well, file and card name the places of all rows. The policy of linked rows is that of the
    party's own file. Nothing is overwritten.
    """
    from unpooled.cli.say import say_json
    from unpooled.errors import UsageError
    from unpooled.study.files import is_helper, read_study
    from unpooled.study.finished import write_about
    from unpooled.study.link import check_same_data, folder_of, ids_of, linked_party
    from unpooled.study.run import compile_study, run_study

    plan = compile_study(read_study(study))
    if not plan.links:
        msg = f'{study.name} is a study of model {plan.study.model!r}: `unpooled run` runs it; rows are linked by model = "link"'
        raise UsageError(msg)
    if bool(party) == (config is not None):
        raise UsageError(
            "say where the parties are: --party PATH/TO/party.toml for each of them; or, after `unpooled run --network`, --config party.toml"
        )
    configs = [one for one in (party or ([] if config is None else [config])) if not is_helper(one)]
    if not configs:
        raise UsageError("a helper has no rows: `unpooled link` writes the files of parties")
    for one in configs:
        check_same_data(one, plan)
        folder_of(one, plan, folder)
    if party:
        where = out or study.with_suffix(".run")
        with progress(quiet=as_json) as say, stopped("run the same command again"):
            run_study(study, party, where, waiting(say))
            write_about(where, study, plan, party)
        if not as_json:
            typer.echo((where / "result.txt").read_text())
            typer.echo(plan.statement)
    written = []
    for one in configs:
        target, there = folder_of(one, plan, folder)
        written.append((target / "party.toml" if there else linked_party(one, study, target)[0], there))
    ids = ids_of(configs[0], plan)
    if as_json:
        say_json(
            "link",
            {
                "plan": plan.hash,
                "ids": ids,
                "parties": [str(one) for one, _ in written],
                "statement": plan.statement.to_dict(),
            },
        )
        return
    for file, there in written:
        typer.echo(
            f"linked rows: {file} and its card were there already"
            if there
            else f"linked rows: wrote {file}, its card next to it"
        )
    typer.echo(f'a study of these cards says: ids = "{ids}"')
