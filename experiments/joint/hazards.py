"""Hazard ratios of columns at two parties: coverage of 95 % intervals, printed lines, and standard errors next to those of pooled rows and of one holder of them.

The columns are those of ``odds.py``. Log hazards have a deviation of .6 about a baseline that changes at every cut; half of the people leave at some time,
in one cell sooner where a column of the clinic is large. Totals are exact with the planned noise (``imagined_pulls``); the row-split fit is ``PrivateGLM``
with the noise of one holder for all rows, who pays nothing for distributed noise. Errors of pooled rows are those of the likelihood at the truth. Lines are
those of the model with all columns, also where the table leaves out hidden ones: then the others' truth is that of a smaller model.

One more table: what chose the largest pulls that are tried (``time_pulls`` of ``glm_columns.toml``), from runs of their own.

Run it as ``python -m experiments.joint.hazards`` (40 runs a cell; ``--full``: 200). It goes on where it was stopped.
"""

from __future__ import annotations

import warnings
from unittest import mock

import msgspec
import numpy as np
import polars as pl
from experiments.cells import kept
from experiments.common import run, write_table
from experiments.joint.odds import DELTA, columns_of, declared

from unpooled import Bounds, PrivateGLM
from unpooled.models.glm import times
from unpooled.models.glm.columns import PullDesign
from unpooled.models.glm.columns_fit import compile_plan, imagined_pulls
from unpooled.models.glm.result import tables
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, HelperCard, Study
from unpooled.privacy.table import Table

#: People, columns, part with the event by the end if nobody left, epsilon, kind of columns, pieces, and whether people leave by a column.
CELLS = (
    (5000, 6, 0.5, 1.0, "mixed", 3, False),
    (5000, 6, 0.2, 3.0, "mixed", 3, False),
    (5000, 6, 0.8, 3.0, "correlated", 1, False),
    (5000, 12, 0.5, 3.0, "mixed", 5, False),
    (10_000, 8, 0.1, 1.0, "plain", 3, False),
    (10_000, 8, 0.5, 3.0, "correlated", 10, False),
    (12_000, 10, 0.3, 1.0, "mixed", 4, False),
    (20_000, 6, 0.05, 3.0, "mixed", 3, False),
    (20_000, 8, 0.4, 3.0, "mixed", 5, True),
    (20_000, 12, 0.8, 1.0, "mixed", 4, False),
    (20_000, 12, 0.3, 1.0, "correlated", 3, False),
    (20_000, 20, 0.5, 3.0, "correlated", 5, False),
)
#: Studies on which the schedule was chosen: none of them is one of the cells.
CHOOSING = (
    (8000, 8, 0.1, 2.0, "mixed", 4, False),
    (8000, 8, 0.4, 2.0, "mixed", 4, False),
    (8000, 8, 0.8, 2.0, "correlated", 4, False),
    (30_000, 8, 0.4, 1.0, "mixed", 8, False),
)
#: What was tried of time_pulls.
TRIED = ((0.5, 1.0, 2.0), (0.5,), (1.0,), (2.0,), (20.0,), (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0))
DEVIATION, ROWS_TOO, END = 0.6, 10, 3.0


def people(n: int, d: int, part: float, kind: str, pieces: int, rng: np.random.Generator, *, by_column: bool):
    """Return columns of both parties by name with times and events, the effects of the lines of a table with their pooled errors, and log hazards by the ends of pieces."""
    clinic, laboratory, X, names = columns_of(n, d, kind, rng)
    effects = rng.normal(size=d)
    effects *= DEVIATION / (X @ effects).std()
    u = X @ effects
    ends = END * np.arange(1, pieces + 1) / pieces
    shape = np.exp(0.4 * np.cos(np.arange(pieces)))
    met = np.concatenate([[0.0], np.cumsum(shape * END / pieces)])
    low, high = -20.0, 20.0
    for _ in range(60):  # the level at which this part has the event
        middle = (low + high) / 2
        low, high = (middle, high) if -np.expm1(-np.exp(u + middle) * met[-1]).mean() < part else (low, middle)
    event = np.interp(rng.exponential(size=n) * np.exp(-u - low), met, [0.0, *ends], right=2 * END)
    sooner = np.exp(-0.7 * X[:, 1]) if by_column else np.ones(n)
    left = np.where(rng.random(n) < 0.5, np.minimum(END * rng.random(n) * sooner, END), END)
    clinic["died"], clinic["years"] = (event <= left).astype(float), np.minimum(event, left)
    within = np.clip(clinic["years"][:, None] - [0.0, *ends[:-1]], 0, END / pieces)
    m = within * shape * np.exp(u + low)[:, None]
    information = np.block([[X.T @ (X * m.sum(axis=1)[:, None]), X.T @ m], [m.T @ X, np.diag(m.sum(axis=0))]])
    pooled = np.sqrt(np.linalg.inv(information).diagonal())[:d]
    hazards = dict(zip(ends.tolist(), (np.log(shape) + low).tolist(), strict=True))
    return clinic, laboratory, dict(zip(names, zip(effects.tolist(), pooled.tolist(), strict=True), strict=True)), hazards


def study_of(n: int, epsilon: float, columns, clinic, laboratory, ends) -> Study:
    """Return the study of these columns."""
    beside = [Column("died", 0.0, 1.0), Column("years", 0.0, END)]
    cards = (
        Card("clinic", n, (*(columns[name] for name in clinic if name in columns), *beside)),
        Card("laboratory", n, tuple(columns[name] for name in laboratory)),
    )
    asked = {"response": "years", "event": "died", "cuts": ends[:-1].tolist(), "split": "columns", "family": "survival"}
    return Study("glm", cards, epsilon, DELTA, parameters=asked, derived=(), helpers=(HelperCard("registry"),))


def played(
    n: int, d: int, part: float, epsilon: float, kind: str, pieces: int, by_column: bool, seed: int, first: int = 9000
) -> dict[str, list[float]]:
    """Return of one run: (estimate - truth)/error, error over that of pooled rows, and over that of rows at one holder (nan where it was not fitted)."""
    rng = np.random.default_rng([first + seed, n, d])
    clinic, laboratory, truth, hazards = people(n, d, part, kind, pieces, rng, by_column=by_column)
    ends = np.array(list(hazards))
    features = [name for name in (*clinic, *laboratory) if name not in {"died", "years"}]
    columns = {name: declared(name, kind, f"x{d - 1}") for name in features}
    plan = compile_plan(study_of(n, epsilon, columns, clinic, laboratory, ends))
    held = {"clinic": Table(clinic), "laboratory": Table(laboratory)}
    with mock.patch.object(PullDesign, "untabled", ""):
        result = imagined_pulls(plan.design, held, rng)
        # Of the model with all columns: without those that the noise hides the other lines have another truth.
        found = tables(plan, msgspec.structs.replace(result, without=None)).summary().terms
    lines = {line.term: line for line in found if line.term in truth}
    levels = dict(zip(result.life_table.interval_names, hazards.values(), strict=True))
    rows = {}
    if seed < ROWS_TOO and first == 9000:
        rows = _of_rows(clinic, laboratory, columns, epsilon, ends, seed)
    return {
        "z": [(line.estimate - truth[name][0]) / line.std_error for name, line in lines.items()],
        "hazards": [(line.estimate - levels[line.term]) / line.std_error for line in found if line.term in levels],
        "pooled": [line.std_error / truth[name][1] for name, line in lines.items()],
        "rows": [line.std_error / rows[name] for name, line in lines.items() if name in rows],
        "k": [plan.design.strength],
        "events": [float(clinic["died"].mean())],
        "left": [float(result.without is not None)],
    }


def _of_rows(clinic, laboratory, columns, epsilon: float, ends, seed: int) -> dict[str, float]:
    """Return the standard errors of one holder of all rows by line."""
    ranges = {name: list(c.categories) if c.categories else (c.low, c.high) for name, c in columns.items()}
    model = PrivateGLM(
        "survival",
        epsilon=epsilon,
        delta=DELTA,
        bounds=Bounds(ranges),
        y_bounds=(0, END),
        cuts=tuple(ends[:-1].tolist()),
        random_state=seed,
    )
    frame = pl.DataFrame({name: values.tolist() for name, values in (clinic | laboratory).items() if name in columns})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = model.fit(frame, clinic["years"], event=clinic["died"])
    return {line.term: line.std_error for line in model.summary().terms} if model.method_ == "newton" else {}


def cell(n: int, d: int, part: float, epsilon: float, kind: str, pieces: int, by_column: bool, runs: int) -> list[str]:
    """Return a line of the table."""
    asked = n, d, part, epsilon, kind, pieces, by_column
    found = [kept(["hazards", *asked, seed], lambda s=seed: played(*asked, s)) for seed in range(runs)]
    z, hazards, pooled, rows = (
        np.array([value for one in found for value in one[name]]) for name in ("z", "hazards", "pooled", "rows")
    )
    covered, lines = float(np.mean(np.abs(z) < 1.96)) if z.size else np.nan, runs * d
    return [
        f"{n}, {d}, {epsilon:g}, {kind}{', leaving by a column' if by_column else ''}",
        f"{pieces}",
        f"{np.mean([one['events'] for one in found]):.2f}",
        f"{found[0]['k'][0]:.0f}",
        f"{covered:.3f} ± {np.sqrt(covered * (1 - covered) / len(z)):.3f}" if z.size else "none",
        f"{len(z) / lines:.2f}",
        f"{np.mean(np.abs(hazards) < 1.96):.3f}",
        f"{np.median(pooled):.2f}" if z.size else "none",
        f"{np.mean([one['left'] for one in found]):.2f}",
        f"{np.median(rows):.2f}" if rows.size else "none",
    ]


def of_choices(runs: int) -> None:
    """Write the table of what was tried, on studies of their own."""
    lines = []
    for pulls in TRIED:
        tuned = times._TUNED.but(time_pulls=pulls)  # noqa: SLF001 - what was tried
        line = [", ".join(f"{pull:g}" for pull in pulls)]
        for one in CHOOSING:
            with mock.patch.object(times, "_TUNED", tuned):
                found = [
                    kept(["hazards tried", *one, *pulls, seed], lambda o=one, s=seed: played(*o, s, 30_000))
                    for seed in range(runs)
                ]
            z, pooled = (np.array([value for run in found for value in run[name]]) for name in ("z", "pooled"))
            line.append(f"{np.median(pooled):.3f} ({np.mean(np.abs(z) < 1.96):.2f})")
        lines.append(line)
        print(line, flush=True)
    write_table(
        "joint/hazards_choices",
        "Standard errors over those of pooled rows, and coverage, by the largest pulls that are tried",
        [
            "time_pulls",
            *(f"{n}, {d}, {part:g} with the event, {e:g}, {kind}, {j} pieces" for n, d, part, e, kind, j, _ in CHOOSING),
        ],
        lines,
        f"{runs} runs a cell, people other than those of the cells of ``hazards.md``.",
    )


def main(full: bool) -> None:
    """Write the tables."""
    runs = 200 if full else 40
    of_choices(runs // 4)
    head = [
        "n, columns, epsilon, columns' kind",
        "pieces",
        "events",
        "k",
        "covered",
        "printed",
        "hazards covered",
        "SE/pooled",
        "columns left out",
        "SE/rows",
    ]
    lines = []
    for one in CELLS:
        lines.append(cell(*one, runs))
        print(lines[-1], flush=True)
    write_table(
        "joint/hazards",
        "Hazard ratios of columns at two parties (delta = 1e-6, two parties and a helper)",
        head,
        lines,
        f"{runs} runs a cell, in {ROWS_TOO} of which one holder of all rows is fitted too; the middle of the ratios of standard errors. Lines are those of "
        "the model with all columns; in this part of the tables some are hidden by the noise, and the table is that of the model without them.",
    )


if __name__ == "__main__":
    run(main)
