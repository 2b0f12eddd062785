"""``unpooled demo``: a tour in three studies on simulated data, with real files, policies, ledgers and noise."""

from __future__ import annotations

import math
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from rich.console import Console

    from unpooled.privacy.bounds import Column
    from unpooled.privacy.plan import Plan
    from unpooled.privacy.unit import Target
    from unpooled.protocol.local import Outcome

    Tables = Mapping[str, Mapping[str, NDArray[Any]]]


def demo(
    epsilon: float = typer.Option(1.0, help="The privacy asked for in the first study; the others have their own."),
    seed: int = typer.Option(0, help="Seed of the simulated data; the noise is real."),
    *,
    out: Path | None = typer.Option(
        None, "--out", help="A new folder for the studies [default: a temporary one, which stays]."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print data for machines."),
) -> None:
    """Three studies on simulated data: rows at three hospitals, columns at two parties, spectra of two laboratories.

    Everything is as between organisations, but on one disk: files, cards, policies, approvals, ledgers, noise. It ends with a report.
    """
    import tempfile

    from rich.console import Console

    from unpooled.cli.say import say_json
    from unpooled.errors import UsageError

    if out is not None and out.exists():
        msg = f"{out} exists already: choose another name with --out"
        raise UsageError(msg)
    folder = Path(tempfile.mkdtemp(prefix="unpooled-demo-")) if out is None else out
    console = Console(highlight=False, quiet=as_json)
    console.print(
        f"Everything is under [bold]{folder}[/]: each party with its own data file, policy, key and ledger.", soft_wrap=True
    )
    with _own_state(folder):
        told = {
            "rows": _rows(folder / "rows", epsilon, seed, console),
            "columns": _columns(folder / "columns", seed, console),
            "spectra": _spectra(folder / "spectra", seed, console),
        }
    report = folder / "rows" / "study.run" / "report.html"
    if as_json:
        say_json("demo", {"studies": told, "report": str(report)})
        return
    console.print("\nOne of the three as a page to sign, with everything that was released (open it in a browser):")
    console.print(str(report), soft_wrap=True)


@contextmanager
def _own_state(folder: Path) -> Iterator[None]:
    """Made-up people need no place in this user's list of ledgers, and the same ones may be made up again."""
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    try:
        yield
    finally:
        del os.environ["XDG_STATE_HOME"]
        if before is not None:
            os.environ["XDG_STATE_HOME"] = before


def _rows(folder: Path, epsilon: float, seed: int, console: Console) -> dict[str, Any]:
    """Return a regression over rows of three hospitals."""
    import numpy as np

    from unpooled.datasets.hospitals import make_hospitals
    from unpooled.models import load
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.unit import Target

    hospitals = {}
    for name, columns in make_hospitals((24_000, 15_000, 9_000), seed=seed).items():
        there = ~np.isnan(columns["pressure"])
        hospitals[name] = {key: columns[key][there] for key in ("age", "smoker", "pressure")}
    declared = (
        Column("age", 18.0, 100.0),
        Column("smoker", categories=("never", "former", "current")),
        Column("pressure", 70.0, 230.0),
    )
    _say(
        console,
        "\n[bold]1. Rows.[/] Three hospitals hold the same columns of different patients. What does blood pressure depend on?",
    )
    parameters = 'response = "pressure"\nmax_passes = 16'  # a tour need not wait for a hundred
    plan, outcome = _run(
        folder, "bayes", parameters, hospitals, dict.fromkeys(hospitals, declared), Target(epsilon, 1e-5), console
    )
    terms = load("bayes").reading.terms(plan, outcome.result)
    found = {term.term: term for term in terms}
    lines = [
        (said, f"{found[name].estimate:.3g}", f"{found[name].std_error or math.nan:.2g}", truth)
        for said, name, truth in (
            ("age, per year", "age", "0.55"),
            ("smoker: former - never", "smoker: former - never", "0"),
            ("smoker: current - never", "smoker: current - never", "8"),
        )
    ]
    _table(console, ("term", "estimate", "std. error", "simulated with"), lines)
    _page(folder / "study.run")
    return _told(plan, outcome)


def _columns(folder: Path, seed: int, console: Console) -> dict[str, Any]:
    """Ridge regression over columns of two parties: each keeps its own coefficients."""
    import numpy as np

    from unpooled.privacy.bounds import Column
    from unpooled.privacy.unit import Target, Unit
    from unpooled.study.run import KeptValues

    rng, n, width = np.random.default_rng(seed), 1000, 30
    common = rng.normal(size=(n, 3))
    tables, declared = {}, {}
    for name, letter in (("clinic", "c"), ("laboratory", "l")):
        values = np.clip((common @ rng.normal(size=(3, width)) + rng.normal(size=(n, width))) / 6, -1, 1)
        tables[name] = {f"{letter}{j:02d}": values[:, j].round(4) for j in range(width)}
        declared[name] = tuple(Column(column, -1.0, 1.0) for column in tables[name])
    y = 5 * tables["clinic"]["c00"] + 5 * tables["laboratory"]["l00"] + 0.3 * rng.normal(size=n)
    patient = np.array([f"p{k:04d}" for k in range(n)], dtype=object)
    held = {name: {"patient": patient, **columns, "outcome": y.round(4)} for name, columns in tables.items()}
    _say(
        console,
        "\n[bold]2. Columns.[/] A clinic and a laboratory know different things about the same patients. Each sends one noisy sketch.",
    )
    total = Target(5.0, 1e-5, Unit.ATTRIBUTE)
    parameters = 'response = "outcome"'
    plan, outcome = _run(
        folder, "pride", parameters, held, declared, total, console, id_column="patient", labels=("outcome",)
    )
    lines = []
    for name in tables:
        own = [
            t for t in KeptValues.of(folder / name / "party.toml", folder / "study.toml").terms if not t.term.startswith("(")
        ]
        best = max(own, key=lambda term: abs(term.estimate))
        lines.append((name, best.term, f"{best.estimate:.3g}", "5"))
    _table(console, ("party", "largest coefficient that it keeps", "estimate", "simulated with"), lines)
    return _told(plan, outcome)


def _spectra(folder: Path, seed: int, console: Console) -> dict[str, Any]:
    """Partial least squares over spectra of two laboratories, in a basis from public spectra."""
    import numpy as np

    from unpooled.datasets import make_spectra
    from unpooled.models import fitted
    from unpooled.models.pls.spectra import whitened
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.unit import Target

    every = slice(None, None, 7)
    basis, reference, norm = whitened(make_spectra(60, kind="corn", seed=seed + 1000).spectra[:, every])
    data = make_spectra(3000, kind="corn", seed=seed)
    spectra, moisture = data.spectra[:, every].round(5), data.response.round(3)
    names = [f"nm{1100 + 14 * j}" for j in range(spectra.shape[1])]
    new = slice(2600, None)
    tables = {
        name: {**dict(zip(names, spectra[rows].T, strict=True)), "moisture": moisture[rows]}
        for name, rows in (("one", slice(0, 1300)), ("two", slice(1300, 2600)))
    }
    declared = (*(Column(name, -5.0, 5.0) for name in names), Column("moisture", 8.0, 12.0))
    _say(
        console,
        "\n[bold]3. Spectra.[/] Two laboratories calibrate an instrument together, in a basis made from public spectra.",
    )
    parameters = f'response = "moisture"\nbasis = "matrix"\nmatrix = {basis.tolist()}\nreference = {reference.tolist()}\nnorm = {norm!r}'
    plan, outcome = _run(folder, "pls", parameters, tables, dict.fromkeys(tables, declared), Target(2.0, 1e-5), console)
    import polars as pl

    model = fitted(plan, outcome.result)
    predicted = model.predict(pl.DataFrame(dict(zip(names, spectra[new].T, strict=True))))
    error = float(np.sqrt(((predicted - moisture[new]) ** 2).mean()))
    lines = [
        ("components", str(model.n_components_)),
        ("error on 400 new samples", f"{error:.2g}"),
        ("their standard deviation", f"{moisture[new].std():.2g}"),
    ]
    _table(console, ("result", ""), lines)
    return _told(plan, outcome)


def _run(
    folder: Path,
    model: str,
    parameters: str,
    tables: Tables,
    declared: Mapping[str, tuple[Column, ...]],
    total: Target,
    console: Console,
    id_column: str | None = None,
    labels: tuple[str, ...] = (),
) -> tuple[Plan, Outcome]:
    """Each party writes its files, the study is planned and approved, and runs: `party init`, `party check --approve`, `run`."""
    import polars as pl

    from unpooled.cli.say import progress, waiting
    from unpooled.privacy.unit import Unit
    from unpooled.study.files import purpose_of, read_study
    from unpooled.study.party import create_party, open_party
    from unpooled.study.run import compile_study, record_approval, run_study

    parties, cards = [], ""
    for name, columns in tables.items():
        home = folder / name
        home.mkdir(parents=True)
        pl.DataFrame(dict(columns), strict=False).write_csv(home / "data.csv")
        config, card = create_party(home, name, home / "data.csv", declared[name], total, id_column, labels)
        parties.append(config)
        cards += f'\n[[party]]\ncard = "{card.relative_to(folder)}"\n'
    study = folder / "study.toml"
    study.write_text(
        f'[study]\nmodel = "{model}"\npurpose = "a tour of unpooled"\n\n[parameters]\n{parameters}\n\n[privacy]\nunit = "{total.unit}"\n'
        f"epsilon = {total.epsilon!r}\ndelta = {total.delta!r}\n{cards}"
    )
    plan = compile_study(read_study(study))
    asked = "" if total.unit is Unit.ATTRIBUTE else f" epsilon = {total.epsilon:g}."  # of one value, the headline says it
    _say(
        console,
        f"[dim]{plan.statement.headline}{asked} Plan {plan.hash[:16]}, which each party approved beforehand.[/]",
    )
    for path in parties:
        with open_party(path) as party:
            record_approval(party, plan, purpose_of(study), by="the demo", reason="a tour on simulated data")
    with progress(quiet=console.quiet) as say:
        _, outcome = run_study(study, parties, folder / "study.run", waiting(say))
    _describe(folder, study, plan, parties)
    received = sum(count["received"] for count in outcome.communication.values())
    _say(console, f"[dim]{received:,} bytes left the parties, every number in them through a release of the plan.[/]")
    return plan, outcome


def _describe(folder: Path, study: Path, plan: Plan, parties: Sequence[Path]) -> None:
    from unpooled.study.finished import write_about

    write_about(folder / "study.run", study, plan, parties, by="unpooled demo")


def _say(console: Console, words: str) -> None:
    console.print(words, soft_wrap=True)


def _table(console: Console, titles: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    from rich.table import Table as Grid

    grid = Grid(box=None, pad_edge=False, padding=(0, 2))
    for title in titles:
        grid.add_column(title)
    for line in lines:
        grid.add_row(*line)
    console.print(grid)


def _page(run: Path) -> None:
    from unpooled.report.page import page
    from unpooled.study.finished import Run

    (run / "report.html").write_text(page(Run.read(run)), encoding="utf-8")


def _told(plan: Plan, outcome: Outcome) -> dict[str, Any]:
    received = sum(count["received"] for count in outcome.communication.values())
    return {"plan": plan.hash, "statement": plan.statement.to_dict(), "bytes_received": received}
