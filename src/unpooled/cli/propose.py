"""``unpooled propose STUDY``: lay a study before the parties of a network, so that their people find it in their consoles."""

from __future__ import annotations

from pathlib import Path

import typer

from unpooled.cli.progress import progress
from unpooled.cli.say import say_json


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
    from unpooled.network.proposals import Proposal
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
