"""``unpooled run STUDY``: run a study over parties on this disk, or over a network."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from unpooled.cli.progress import progress, stopped, waiting

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    from unpooled.study.about import write_about
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
    from unpooled.study.approving import approve_other_data
    from unpooled.study.files import purpose_of, read_study
    from unpooled.study.party import open_party
    from unpooled.study.run import compile_study

    if not parties:
        msg = "over a --network each party says itself that its data changed: `unpooled party check STUDY --data-changed REASON`"
        raise UsageError(msg)
    with ExitStack() as opened:
        everybody = [opened.enter_context(open_party(path)) for path in parties]
        approve_other_data(everybody, compile_study(read_study(study)), purpose_of(study), reason)


def worth_it(study: Path, *, asks: bool) -> None:
    """Refuse a study of which nothing is expected that costs nothing otherwise, before any party is asked; at a terminal the person decides."""
    from unpooled.errors import Refusal
    from unpooled.estimation.utility import refuse_if_poor
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
    """Return the members of a study of joint moments, all of whom must take part to the end; empty for other studies."""
    from unpooled.errors import listed
    from unpooled.study.files import read_study
    from unpooled.study.run import compile_study

    plan = compile_study(read_study(study))
    return listed([card.name for card in plan.study.members]) if plan.joint else ""
