"""``unpooled audit STUDY``: hold what a study's parties would send, and debit, against what its plan declares, on made-up data."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from unpooled.cli.say import say_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from unpooled.audit.attacks import Power
    from unpooled.audit.one_run import OneRun
    from unpooled.audit.replay import Report
    from unpooled.audit.source import SourceAttack
    from unpooled.audit.stage import Violation
    from unpooled.privacy.table import Table
    from unpooled.privacy.unit import Unit


def audit(
    study: Path = typer.Argument(help="The study file (study.toml)."),
    *,
    rows: int = typer.Option(40, "--rows", min=2, help="Rows of the made-up data of each party, at most."),
    rounds: int = typer.Option(10, "--rounds", min=1, help="Random neighbours, and steps of the search for worse ones."),
    attacks: int = typer.Option(
        0, "--attacks", min=0, help="Attack it too, so many times each: membership, attributes, tracing, differencing."
    ),
    canaries: int = typer.Option(
        0,
        "--canaries",
        min=0,
        help="Audit it in one run too: draw this number of rows by coin, and guess the coins from all releases.",
    ),
    pairs: Path | None = typer.Option(
        None,
        "--pairs",
        help="Replay the pairs of neighbours in this file first, and keep those in it that came near a bound.",
    ),
    whole: bool = typer.Option(
        False,
        "--whole",
        help="Only attain what one person loses at all parties at once, and hold it against statement and ledgers.",
    ),
    config: list[Path] = typer.Option(
        [],
        "--config",
        help="A party file: attack the query of its data too, in copies of its tables; repeat for each. It reads that party's data.",
    ),
    as_json: bool = typer.Option(False, "--json", help="Print data for machines."),
) -> None:
    """Attack a study on made-up data: replayed on neighbours with the noise frozen, cut and asked in any order, every byte looked at.

    Needs no data but those of --config. Exit code 1 if anything moves too far, is not debited, or leaves a party without being released.
    """
    from unpooled.audit.attacks import attack_study
    from unpooled.audit.one_run import audit_in_one_run
    from unpooled.audit.oracle import audit_study, audit_whole
    from unpooled.audit.replay import Report
    from unpooled.cli.say import progress
    from unpooled.models import load
    from unpooled.privacy.unit import Unit
    from unpooled.study.files import read_study
    from unpooled.study.made_up import made_up

    asked = read_study(study)
    sources = []
    if config:
        from unpooled.audit.source import attack_sources

        sources = attack_sources(config, {card.name for card in asked.parties})
    model = load(asked.row)
    with progress(quiet=as_json) as say:
        report = Report() if whole else audit_study(asked, say, rows=rows, rounds=rounds, pairs=pairs)
        say("changing one person at every party at once")
        together = audit_whole(asked, rows=rows, rounds=min(rounds, 4))
        report.violations += together.violations
        report.attained |= together.claims

        def population(seed: int) -> dict[str, Table]:
            return made_up(model, asked, rows, seed=seed)[1]

        powers = []
        if attacks:
            say("attacking it")
            fitted, _ = made_up(model, asked, rows)
            powers = attack_study(model, fitted, population, registry=load, runs=attacks)
        one_run = None
        if canaries:
            say("guessing the coins of one run")
            one_run = audit_in_one_run(model, asked, canaries, registry=load)
    report.violations += _violations(Unit(asked.unit), powers, one_run, sources)
    if as_json:
        say_json("audit", _data(report, powers, one_run, sources))
    else:
        typer.echo(report)
        for found in sources:
            typer.echo(found)
        for line in _lines(powers):
            typer.echo(line)
        if one_run is not None:
            typer.echo(f"\n{one_run}")
    if not report.passed:
        raise typer.Exit(1)


def _violations(
    unit: Unit, powers: Sequence[Power], one_run: OneRun | None, sources: Sequence[SourceAttack]
) -> list[Violation]:
    """Return what attacks, the coins of one run, and changes of single people in a source refute."""
    from unpooled.audit.stage import Violation

    whole = [f"{power.attack} is right more often than the claim allows" for power in powers if power.refutes]
    if one_run is not None and one_run.refutes:
        whole.append("one run gives more right guesses than the claim allows")
    found = [Violation(unit, "any", "the whole study", what) for what in whole]
    return found + [Violation(unit, one.party, "the source", what) for one in sources for what in one.violations]


def _data(
    report: Report, powers: Sequence[Power], one_run: OneRun | None, sources: Sequence[SourceAttack]
) -> dict[str, object]:
    """Return the audit as data for machines."""
    return {
        "passed": report.passed,
        "neighbours": report.neighbours,
        "largest": [
            {"unit": str(unit), "party": party, "release": name, "part_of_bound": share}
            for (unit, party, name), share in sorted(report.largest.items())
        ],
        "unmeasured": report.unmeasured,
        "slower": report.slower,
        "attacks": [dataclasses.asdict(power) for power in powers],
        "one_run": None if one_run is None else dataclasses.asdict(one_run),
        "attained": [
            {"promise": name, "epsilon": ours, "promised": promised}
            for name, (ours, promised) in sorted(report.attained.items())
        ],
        "sources": [dataclasses.asdict(found) for found in sources],
        "violations": [{"unit": str(v.unit), "party": v.party, "where": v.where, "what": v.what} for v in report.violations],
    }


def _lines(powers: Sequence[Power]) -> Iterator[str]:
    """Yield the table of attacks, a line for each; nothing without attacks."""
    if powers:
        yield f"\n{'attack':<22}{'without noise':>14}{'as released':>14}{'allowed':>10}   right answers; a half is a guess"
    for power in powers:
        yield f"{power.attack:<22}{power.without_noise:>14.2f}{power.as_released:>14.2f}{power.allowed:>10.2f}   {power.question}"
