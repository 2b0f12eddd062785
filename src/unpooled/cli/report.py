"""``unpooled report RUN``: a run as one self-contained page, for the analyst or for a party."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from unpooled.privacy.plan import Plan


def report(
    run: Path = typer.Argument(help="The folder of a run (STUDY.run); with --config the study file (study.toml)."),
    *,
    config: Path | None = typer.Option(None, "--config", help="A party file: the page of what this party may see."),
    out: Path | None = typer.Option(
        None, "--out", help="The page to write [default: RUN/report.html, or STUDY.PARTY.html]."
    ),
    verify: bool = typer.Option(
        False,
        "--verify",
        help="Check that every reply carries the signature of its party, under the cards given with --card.",
    ),
    card: list[Path] = typer.Option(
        [], "--card", help="With --verify: the public card of a party, as you got it from the party."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print data for machines."),
) -> None:
    """Write a run as one HTML page: its promise, its releases, its result. The result is recomputed from the transcript.

    After a networked run the transcript stays at the coordinator, and the page is made from the record that came with the result.
    """
    if verify:
        _verify(run, card, as_json=as_json)
        return
    from unpooled.errors import UsageError
    from unpooled.report.page import page, page_of_party
    from unpooled.report.party import PartyView
    from unpooled.study.finished import Run

    warning = ""
    if config is not None:
        view = PartyView.read(config, run)
        plan, path, text = view.plan, out or run.with_suffix(f".{view.party}.html"), page_of_party(view)
    elif run.is_file():
        msg = f"{run} is a file: give the folder of a run (STUDY.run), or at a party the study file with --config party.toml"
        raise UsageError(msg)
    else:
        found = Run.read(run)
        plan, path, text = found.plan, out or run / "report.html", page(found)
        if found.agrees is False:
            other = "what follows from the transcript" if found.recomputed else "the recorded result"
            warning = f"WARNING: result.json is not {other}"
    path.write_text(text, encoding="utf-8")
    _tell(plan, path, warning, as_json=as_json)


def _verify(run: Path, cards: list[Path], *, as_json: bool) -> None:
    """Check the signatures of a run's replies, and say how many each party gave."""
    from unpooled.cli.say import say_json
    from unpooled.study.files import read_card
    from unpooled.study.finished import Run

    signed = Run.verify(run, [read_card(path) for path in cards])
    if as_json:
        say_json("report-verify", {"verified": True, "replies": signed})
        return
    counts = ", ".join(f"{count} of {name}" for name, count in signed.items())
    typer.echo(f"verified: every reply carries the signature of its party ({counts}), and the result follows from them")
    typer.echo("No signature shows that a party was silent: ask a party that is said to have dropped out.")


def _tell(plan: Plan, path: Path, warning: str, *, as_json: bool) -> None:
    if as_json:
        from unpooled.cli.say import say_json

        data = {"plan": plan.hash, "holds": plan.statement.holds, "warning": warning, "written": str(path)}
        say_json("report", data)
        return
    typer.echo(f"plan {plan.hash[:16]}: {plan.statement.headline}")
    if warning:
        typer.echo(warning)
    typer.echo(f"written: {path}")
