"""``unpooled demo``: three simulated hospitals describe their patients without pooling them, with real files and ledgers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.table import Table as Grid

    from unpooled.models.describe.coordinator import Summary
    from unpooled.privacy.plan import Plan

    Hospitals = dict[str, dict[str, NDArray[Any]]]


def demo(
    epsilon: float = typer.Option(1.0, help="The privacy asked for."),
    seed: int = typer.Option(0, help="Seed of the simulated patients; the noise is real."),
    *,
    as_json: bool = typer.Option(False, "--json", help="Print data for machines."),
) -> None:
    """Run a whole study on three simulated hospitals and show its results beside the truth."""
    import tempfile

    from rich.console import Console
    from rich.panel import Panel

    from unpooled.cli.progress import progress, waiting
    from unpooled.cli.say import say_json
    from unpooled.datasets.hospitals import make_hospitals
    from unpooled.study.run import run_study

    console = Console(highlight=False, quiet=as_json)
    hospitals = make_hospitals(seed=seed)
    with tempfile.TemporaryDirectory(prefix="unpooled-demo-") as name:
        folder = Path(name)
        console.print(f"[bold]Three hospitals[/], each with its own patients, bounds, policy, key and ledger under {folder}")
        study, parties = _set_up(folder, hospitals, epsilon)
        with progress(quiet=as_json) as say:
            plan, outcome = run_study(study, parties, folder / "run", waiting(say))
        console.print("\n[bold]The plan[/] that each of them approved before anybody looked at data")
        console.print(f"{plan}\n", soft_wrap=True)
        console.print("[bold]Results[/] beside the truth, which only this demonstration can know")
        console.print(_beside_truth(outcome.result, hospitals))
        console.print(Panel(str(plan.statement), title="What is promised", title_align="left"))
        for path in parties:
            console.print(_spent(path, plan))
    received = sum(count["received"] for count in outcome.communication.values())
    if as_json:
        say_json(
            {"plan": plan.hash, "statement": plan.statement.to_dict(), "result": outcome.result, "bytes_received": received}
        )
    console.print(f"{received} bytes left the hospitals, every number in them through a release listed above.")


def _set_up(folder: Path, hospitals: Hospitals, epsilon: float) -> tuple[Path, list[Path]]:
    """Each hospital writes its files and approves the plan, as `party init` and `party check --approve` do."""
    import polars as pl

    from unpooled.privacy.bounds import Column
    from unpooled.privacy.unit import Target
    from unpooled.study.files import read_study
    from unpooled.study.party import create_party, open_party
    from unpooled.study.run import compile_study

    columns = (
        Column("age", 18.0, 100.0),
        Column("pressure", 70.0, 230.0, missing="absent"),
        Column("cholesterol", 2.0, 10.0),
        Column("smoker", categories=("never", "former", "current")),
    )
    parties, cards = [], []
    for name, values in hospitals.items():
        home = folder / name
        home.mkdir()
        pl.DataFrame(values, strict=False).with_columns(pl.col("pressure").fill_nan(None)).write_csv(home / "patients.csv")
        config, card = create_party(home, name, home / "patients.csv", columns, Target(epsilon, 1e-5))
        parties.append(config)
        cards.append(card.relative_to(folder))
    study = folder / "study.toml"
    study.write_text(
        '[study]\nmodel = "describe"\n\n[privacy]\nunit = "record"\n'
        f"epsilon = {epsilon!r}\ndelta = 1e-5\n" + "".join(f'\n[[party]]\ncard = "{card}"\n' for card in cards)
    )
    plan = compile_study(read_study(study))
    for path in parties:
        with open_party(path) as party:
            party.ledger.approve(plan.hash)
    return study, parties


def _beside_truth(summaries: tuple[Summary, ...], hospitals: Hospitals) -> Grid:
    import numpy as np
    from rich.table import Table as Grid

    grid = Grid(box=None, pad_edge=False, padding=(0, 1))
    for title in ("", "count (truth)", "mean [95 %] (truth)", "sd [95 %] (truth)"):
        grid.add_column(title, no_wrap=True)
    source = ""
    for s in summaries:
        if s.source != source:
            source = s.source
            grid.add_row(f"[bold]{source}[/]")
        chosen = hospitals.values() if source == "pooled" else [hospitals[source]]
        values = np.concatenate([h[s.column] for h in chosen])
        if s.mean is None or s.sd is None:
            grid.add_row(f"  {s.category}", f"{s.count.value:.0f} [dim]({(values == s.category).sum()})[/]")
            continue
        known = values[~np.isnan(values)]
        cells = [
            f"{e.value:.3g} \\[{e.low:.3g}, {e.high:.3g}] [dim]({truth:.3g})[/]"
            for e, truth in ((s.mean, known.mean()), (s.sd, known.std(ddof=1)))
        ]
        grid.add_row(s.column, f"{s.count.value:.0f} [dim]({known.size})[/]", *cells)
    return grid


def _spent(path: Path, plan: Plan) -> str:
    from unpooled.privacy.unit import Unit
    from unpooled.study.party import open_party

    with open_party(path) as party:
        budget = party.policy.budget
        assert budget is not None
        spent = party.ledger.composition(Unit.RECORD).epsilon(plan.study.delta)
        return f"ledger of {party.name:<6} debited: epsilon = {spent:.4g} of {budget.epsilon:g} at delta = {budget.delta:g}"
