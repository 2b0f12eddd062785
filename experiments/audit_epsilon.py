"""Claimed beside audited: every model, in every unit, adjacency and way to add up that it offers, attacked by likelihood ratio.

The studies are the small ones of ``tests/contract/cases.py``, some of them with rows that are left out for gaps, and, for households, of ``tests/audit/test_audited_households.py``, with twelve made-up
rows a party, so that one of them matters. For each, the worst of some neighbours is looked for (the largest sum of squares of what moved over
what is declared); then the study is run many times over either, with fresh noise. The attacker knows both and the likelihood ratio of everything
that was released (:mod:`unpooled.audit.attacks`). A threshold is chosen on one half of the runs and judged on the other, by Clopper and
Pearson at a confidence of 99.9 % for the whole table (Bonferroni). An audited epsilon above its claim would refute it.

Where no request depends on an earlier release, all runs give the mechanisms the same, and a run is its draws. Every attack has its share of the
time that is left, so that cheap studies are run ten thousand times and costly ones less often.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from experiments.common import RESULTS, write_figure, write_table

from unpooled.audit.attacks import LikelihoodRatio, empirical_epsilon
from unpooled.audit.neighbours import bases, changed_once, changed_tables, neighbours, searchable
from unpooled.audit.stage import Stage, StagedRun, share
from unpooled.errors import UnpooledError, UsageError
from unpooled.models import load
from unpooled.privacy.plan import Study
from unpooled.privacy.unit import ROWWISE, Adjacency, Unit
from unpooled.study.made_up import made_up

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "contract"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "audit"))

from cases import CASES
from test_audited_households import MODELS as HOUSEHOLDS
from test_audited_households import study as of_households

EPSILONS = (0.5, 1.0, 4.0)
#: Ways to add up, of the first study of every model that has several; of others the default.
TRUSTS: dict[str, tuple[str, ...]] = dict.fromkeys(("bayes", "glm", "pls"), ("distributed", "trusted", "local"))
SUMMED = frozenset(TRUSTS)
#: Fewer runs than these are too few to be drawn, or to be told: at a confidence for the whole table they can refute nothing.
ENOUGH, FEWEST = 1000, 300
ROWS, HOUSEHOLD_ROWS, SEARCH, MOST, LEAST, CONFIDENCE = 12, 24, 8, 10_000, 40, 0.999


def with_gaps(name: str, rule: str = "complete", *without: str) -> Study:
    """The study of a case whose gaps are of another rule, by any parameter but these."""
    study = CASES[name]().study
    cards = tuple(
        msgspec.structs.replace(
            card,
            columns=tuple(
                msgspec.structs.replace(column, missing=rule) if column.may_be_absent else column for column in card.columns
            ),
        )
        for card in study.parties
    )
    kept = {key: value for key, value in study.parameters.items() if key not in without}
    return msgspec.structs.replace(study, parties=cards, parameters=kept)


#: What is attacked, by name: the cases, and studies that leave rows out or model which ones are whole.
STUDIES: dict[str, Callable[[], Study]] = {
    **{name: lambda name=name: CASES[name]().study for name in CASES},  # type: ignore[misc]
    "bayes, gaps": lambda: with_gaps("bayes"),
    "bayes, gaps in rounds": lambda: with_gaps("bayes, robust"),
    "bayes, modelled gaps": lambda: with_gaps("bayes, robust", "model", "covariance"),
    "effects, gaps": lambda: with_gaps("effects"),
    "glm, gaps": lambda: with_gaps("glm"),
    "glm, modelled gaps": lambda: with_gaps("glm", "model", "offset", "max_passes"),
}


@dataclass(frozen=True)
class Cell:
    """A row of the table."""

    study: str
    unit: str
    adjacency: str
    trust: str
    epsilon: float

    def asked(self) -> Study:
        """The study that is attacked."""
        if self.unit == "household":
            study = of_households(self.study, self.adjacency, self.trust)
            return msgspec.structs.replace(study, epsilon=self.epsilon)
        study = STUDIES[self.study]()
        changes: dict[str, Any] = {"unit": self.unit, "adjacency": self.adjacency, "epsilon": self.epsilon}
        if self.trust:
            changes["trust"] = {"aggregation": self.trust}
        if "tolerate" in study.parameters and self.trust != "distributed":
            changes["parameters"] = {**study.parameters, "tolerate": 0}
        return msgspec.structs.replace(study, simulation_seed=None, **changes)


def cells(epsilons: tuple[float, ...], only: str) -> list[Cell]:
    """Everything that is offered: what is refused before it starts is not."""
    wanted = [
        (name, str(unit), trust) for name in STUDIES for unit, trust in itertools.product(ROWWISE, TRUSTS.get(name, ("",)))
    ]
    wanted += [(name, "household", "distributed" if model in SUMMED else "") for name, (model, _) in HOUSEHOLDS.items()]
    found = []
    for (name, unit, trust), adjacency in itertools.product(wanted, Adjacency):
        try:
            study = Cell(name, unit, str(adjacency), trust, 1.0).asked()
            load(study.model).compile(study)
        except UsageError:
            continue
        found += [
            Cell(name, unit, str(adjacency), trust, epsilon)
            for epsilon in epsilons
            if only in f"{name} {unit} {adjacency} {trust}"
        ]
    return found


def power(stage: Stage, run: StagedRun, other: Any, unit: Unit) -> float:
    """How far a neighbour moves what was released in a run, with the same noise."""
    theirs = stage.beside(run, other)
    total = 0.0
    for party, acts in run.acts.items():
        for one, two in zip(acts, theirs[party], strict=True):
            part = share(one, two, stage.plan.release(party, one.release).event(unit))
            total += 0.0 if part is None else part**2
    return total


def worst(stage: Stage, tables: Any, unit: Unit, labels: bool, until: float) -> tuple[Any, Any]:
    """The two neighbouring worlds that are farthest apart: of data as made up and at the corners of their bounds, with a search from the best."""
    plan, rng = stage.plan, np.random.default_rng(0)
    best: tuple[float, Any, Any] = (-1.0, tables, tables)
    for base, only in bases(plan, tables, rng, 2, 0):
        if only and unit is not Unit.ATTRIBUTE:
            continue  # one value goes missing: under zero-out no record does
        ours = stage.run(base, 0, frozen=True)
        here: tuple[float, Any] = (-1.0, None)
        tried = [only] if only else neighbours(plan, base, unit, rng, 4, 0, labels=labels)
        for listed in itertools.chain(tried, itertools.repeat(None, 0 if only else SEARCH)):
            if listed is None and here[1] is None:
                break
            changes = changed_once(plan, here[1], unit, rng) if listed is None else listed
            other = changed_tables(plan, base, changes, unit, 0)
            if other is None:
                continue
            moved = power(stage, ours, other, unit)
            here = max(here, (moved, changes if searchable(plan, changes) else here[1]), key=lambda pair: pair[0])
            best = max(best, (moved, base, other), key=lambda found: found[0])
            if time.monotonic() > until:
                return best[1:]
    return best[1:]


def attack(cell: Cell, confidence: float, seconds: float) -> tuple[float, float, float, int]:
    """(claimed, audited, audited as Gaussian, runs over either neighbour) of one study, in about so many seconds."""
    began, asked, unit = time.monotonic(), cell.asked(), Unit(cell.unit)
    model = load(asked.model)
    study, tables = made_up(model, asked, HOUSEHOLD_ROWS if unit is Unit.HOUSEHOLD else ROWS)
    stage = Stage(model, study, load)
    worlds = worst(stage, tables, unit, unit in model.covers_labels, began + seconds / 3)
    ratio = LikelihoodRatio(stage, *worlds, itertools.count(zlib.crc32(repr(cell).encode())))
    ratio(0)
    begun = time.monotonic()
    for _ in range(4):
        ratio(0)
    each = (time.monotonic() - begun) / 2
    runs = int(np.clip((seconds - (time.monotonic() - began)) / each, LEAST, MOST))
    drawn = [[ratio(which) for _ in range(runs)] for which in (0, 1)]
    # A pure promise has rare events; a Gaussian one is held against its whole curve.
    laws = ("any", "gaussian") if study.delta else ("any",)
    audited = [
        empirical_epsilon(next, *map(iter, drawn), runs=runs, delta=study.delta, confidence=confidence, law=law)
        for law in laws
    ]
    return stage.plan.epsilon(study.delta, unit), audited[0], audited[-1], runs


def one(job: tuple[Cell, float, float, int]) -> tuple[Cell, tuple[float, float, float, int] | str]:
    """An attack, or the kind of error with which it was refused; its time is its share of what is left."""
    cell, confidence, deadline, shares = job
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return cell, attack(cell, confidence, max(0.0, deadline - time.monotonic()) / shares)
        except UnpooledError as error:
            return cell, f"{type(error).__name__}: {error}"


def main(*, epsilons: tuple[float, ...], only: str, minutes: float, jobs: int, fewer: int) -> None:
    """Attack cell after cell; the whole takes about so many minutes."""
    every = cells(epsilons, only)
    had = {tuple(row[:5]): int(row[8]) for row in earlier()}
    every = [cell for cell in every if not fewer or had.get(name_of(cell), 0) < fewer]
    # Of the whole table, however much of it is attacked now.
    confidence = 1 - (1 - CONFIDENCE) / (2 * len(cells(EPSILONS, "")))
    deadline = time.monotonic() + 60 * minutes
    print(f"{len(every)} attacks, each at a confidence of {confidence:.7f}", flush=True)
    table: list[list[str]] = []
    # Cheap studies first: what they leave of their time goes to the others.
    every.sort(key=lambda cell: load(cell.asked().model).name in {"bayes", "glm"})
    work = [(cell, confidence, deadline, -(-(len(every) - k) // jobs)) for k, cell in enumerate(every)]
    with get_context("spawn").Pool(jobs) as pool:
        for cell, found in pool.imap(one, work):
            name = name_of(cell)
            if isinstance(found, str):
                print(*name, "refused:", found, flush=True)
                continue
            claimed, audited, gaussian, runs = found
            print(*name, f"claimed {claimed:.3f} audited {audited:.3f} as Gaussian {gaussian:.3f} runs {runs}", flush=True)
            numbers = (f"{claimed:.3f}", f"{audited:.3f}", f"{gaussian:.3f}", str(runs))
            if runs >= FEWEST:
                table.append([*name, *numbers])
                write(table)


def name_of(cell: Cell) -> tuple[str, ...]:
    """What its row begins with."""
    return cell.study, cell.unit, cell.adjacency, cell.trust or "-", str(cell.epsilon)


def earlier() -> list[list[str]]:
    """The rows of earlier runs."""
    path = RESULTS / "audit" / "epsilon.md"
    lines = path.read_text().splitlines() if path.is_file() else []
    return [line.strip("| ").split(" | ") for line in lines if line.startswith("| ") and not line.startswith("| study")]


def write(table: list[list[str]]) -> None:
    """The results; rows of earlier runs stay unless they were attacked again."""
    header = ["study", "unit", "adjacency", "trust", "epsilon", "claimed", "audited", "as Gaussian", "runs"]
    rows = {tuple(row[:5]): row for row in (*earlier(), *table)}
    every = sorted(rows.values(), key=lambda row: (row[0], row[1], row[2], row[3], float(row[4])))
    refuted = sum(max(float(row[6]), float(row[7])) > float(row[5]) for row in every)
    notes = f"Lower bounds at a confidence of 99.9 % for the whole table; {refuted} of {len(every)} are above their claim."
    write_table("audit/epsilon", "Claimed epsilon beside audited", header, every, notes)
    write_figure("audit/epsilon", _figure(every))


def _figure(rows: list[list[str]]) -> Any:
    """Audited over claimed, a point for every attack; hollow ones had fewer than a thousand runs."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 4.0), layout="constrained")
    axes = figure.add_subplot()
    rng, names = np.random.default_rng(0), sorted({row[0].split(",")[0] for row in rows})
    for name, colour in zip(names, colormaps["tab20"].colors, strict=False):
        own = [row for row in rows if row[0].split(",")[0] == name]
        claimed = np.array([float(row[5]) for row in own])
        audited = np.array([max(float(row[6]), float(row[7])) for row in own])
        many = np.array([int(row[8]) >= ENOUGH for row in own])
        claimed *= np.exp(rng.uniform(-0.08, 0.08, claimed.size))
        axes.plot(claimed[many], audited[many], "o", ms=4, alpha=0.8, color=colour)
        axes.plot(claimed[~many], audited[~many], "o", ms=4, alpha=0.8, color=colour, mfc="none")
        axes.plot([], [], "o", ms=4, color=colour, label=name)
    axes.plot([0, 4.5], [0, 4.5], "k--", lw=1, label="the claim")
    axes.set(xlabel="claimed epsilon", ylabel="audited epsilon (lower bound)", xlim=(0, 4.6), ylim=(-0.1, 4.6))
    axes.legend(fontsize=8, ncols=2)
    return figure


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilons", type=float, nargs="+", default=list(EPSILONS))
    parser.add_argument("--only", default="", help="studies whose name and unit hold this")
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--fewer", type=int, default=0, help="only those that earlier runs attacked fewer times than this")
    given = parser.parse_args()
    main(
        epsilons=tuple(given.epsilons),
        only=given.only,
        minutes=given.minutes,
        jobs=given.jobs,
        fewer=given.fewer,
    )
