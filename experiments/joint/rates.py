"""Rate ratios of columns at two parties: coverage of 95 % intervals, printed lines, and standard errors next to those of pooled rows and of one holder of them.

The columns are those of ``odds.py``; counts are Poisson's with a log mean of deviation .6, and in half of the cells an exposure that goes with a column of
the clinic. Totals are exact with the planned noise (``imagined_pulls``); the row-split fit is ``PrivateGLM`` with a declared dispersion of 1 and the noise
of one holder for all rows, who pays nothing for distributed noise. Lines are those of the model with all columns, also where the table leaves out hidden
ones: then the others' truth is that of a smaller model.

Two more tables: what chose where weights may begin to fall (``count_ends`` of ``glm_columns.toml``), from
runs of their own; and what counts that vary more than Poisson's do to intervals.

Run it as ``python -m experiments.joint.rates`` (40 runs a cell; ``--full``: 200). It goes on where it was stopped.
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
from unpooled.models.glm import counts
from unpooled.models.glm.columns import PullDesign
from unpooled.models.glm.columns_fit import compile_plan, imagined_pulls
from unpooled.models.glm.result import tables
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, HelperCard, Study
from unpooled.privacy.table import Table

#: People, columns, mean count, epsilon, kind of columns, and whether there is an exposure.
CELLS = (
    (5000, 6, 1.0, 1.0, "mixed", False),
    (5000, 6, 0.3, 3.0, "mixed", True),
    (5000, 6, 5.0, 3.0, "correlated", False),
    (5000, 12, 1.0, 3.0, "mixed", True),
    (10_000, 8, 0.3, 1.0, "plain", False),
    (10_000, 8, 2.0, 3.0, "correlated", True),
    (12_000, 10, 1.0, 1.0, "mixed", True),
    (20_000, 6, 0.3, 3.0, "mixed", False),
    (20_000, 8, 1.3, 3.0, "mixed", False),
    (20_000, 12, 5.0, 1.0, "mixed", True),
    (20_000, 12, 1.0, 1.0, "correlated", False),
    (20_000, 20, 2.0, 3.0, "correlated", True),
)
#: Studies on which the schedule was chosen: none of them is one of the cells.
CHOOSING = (
    (8000, 8, 0.5, 2.0, "mixed", False),
    (8000, 8, 1.5, 2.0, "mixed", True),
    (8000, 8, 4.0, 2.0, "correlated", False),
    (30_000, 8, 1.5, 1.0, "mixed", False),
)
#: What was tried of count_ends.
TRIED = ((-0.5, 0.0, 0.5, 1.0, 1.5), (0.5,), (0.0,), (1.0,), (0.0, 1.0), (-1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0, 1.5, 2.0))
#: Counts that vary more than Poisson's, of variance m + k m^2.
SPREAD = tuple((20_000, 8, mean, 3.0, "plain", False, k) for mean in (0.3, 2.0) for k in (0.0, 0.1, 0.3, 0.8))
DEVIATION, ROWS_TOO = 0.6, 10
DAYS = (30.0, 1000.0)


def people(n: int, d: int, mean: float, kind: str, rng: np.random.Generator, *, exposed: bool, k: float = 0.0):
    """Return columns of both parties by name with the counts, the effects of the lines of a table with their pooled errors, and the largest count declared."""
    clinic, laboratory, X, names = columns_of(n, d, kind, rng)
    effects = rng.normal(size=d)
    effects *= DEVIATION / (X @ effects).std()
    u = X @ effects
    if exposed:
        days = np.clip(300 * np.exp(0.5 * X[:, 1] + 0.5 * rng.normal(size=n)), *DAYS)
        clinic["days"], u = days, u + np.log(days)
    u += np.log(mean / np.exp(u).mean())
    m, high = np.exp(u), float(round(12 * mean + 12))
    m = m if k == 0 else m * rng.gamma(1 / k, k, n)
    clinic["falls"] = rng.poisson(m).clip(0, high).astype(float)
    whole = np.column_stack([X, np.ones(n)])
    pooled = np.sqrt(np.linalg.inv((whole * np.exp(u)[:, None]).T @ whole).diagonal())[:-1]
    return clinic, laboratory, dict(zip(names, zip(effects.tolist(), pooled.tolist(), strict=True), strict=True)), high


def study_of(n: int, epsilon: float, columns, clinic, laboratory, high: float) -> Study:
    """Return the study of these columns."""
    beside = [Column("falls", 0.0, high)] + ([Column("days", *DAYS)] if "days" in clinic else [])
    cards = (
        Card("clinic", n, (*(columns[name] for name in clinic if name in columns), *beside)),
        Card("laboratory", n, tuple(columns[name] for name in laboratory)),
    )
    asked = {"response": "falls", "split": "columns", "family": "poisson"}
    asked |= {"exposure": "days"} if "days" in clinic else {}
    return Study("glm", cards, epsilon, DELTA, parameters=asked, derived=(), helpers=(HelperCard("registry"),))


def played(
    n: int, d: int, mean: float, epsilon: float, kind: str, exposed: bool, k: float, seed: int, first: int = 9000
) -> dict[str, list[float]]:
    """Return of one run: (estimate - truth)/error, error over that of pooled rows, and over that of rows at one holder (nan where it was not fitted)."""
    rng = np.random.default_rng([first + seed, n, d])
    clinic, laboratory, truth, high = people(n, d, mean, kind, rng, exposed=exposed, k=k)
    features = [name for name in (*clinic, *laboratory) if name not in {"days", "falls"}]
    columns = {name: declared(name, kind, f"x{d - 1}") for name in features}
    plan = compile_plan(study_of(n, epsilon, columns, clinic, laboratory, high))
    held = {"clinic": Table(clinic), "laboratory": Table(laboratory)}
    with mock.patch.object(PullDesign, "untabled", ""):
        result = imagined_pulls(plan.design, held, rng)
        # Of the model with all columns: without those that the noise hides the other lines have another truth.
        found = tables(plan, msgspec.structs.replace(result, without=None)).summary().terms
    lines = {line.term: line for line in found if line.term in truth}
    rows = {}
    if seed < ROWS_TOO and first == 9000 and k == 0:
        rows = _of_rows(clinic, laboratory, columns, epsilon, high, seed)
    return {
        "z": [(line.estimate - truth[name][0]) / line.std_error for name, line in lines.items()],
        "pooled": [line.std_error / truth[name][1] for name, line in lines.items()],
        "rows": [line.std_error / rows[name] for name, line in lines.items() if name in rows],
        "k": [plan.design.strength],
        "left": [float(result.without is not None)],
    }


def _of_rows(clinic, laboratory, columns, epsilon: float, high: float, seed: int) -> dict[str, float]:
    """Return the standard errors of one holder of all rows by line."""
    ranges = {name: list(c.categories) if c.categories else (c.low, c.high) for name, c in columns.items()}
    given = {"exposure_bounds": DAYS} if "days" in clinic else {}
    model = PrivateGLM(
        "poisson",
        epsilon=epsilon,
        delta=DELTA,
        bounds=Bounds(ranges),
        y_bounds=(0, high),
        dispersion=1.0,
        random_state=seed,
        **given,
    )
    frame = pl.DataFrame({name: values.tolist() for name, values in (clinic | laboratory).items() if name in columns})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = model.fit(frame, clinic["falls"], exposure=clinic.get("days"))
    return {line.term: line.std_error for line in model.summary().terms} if model.method_ == "newton" else {}


def cell(n: int, d: int, mean: float, epsilon: float, kind: str, exposed: bool, k: float, runs: int) -> list[str]:
    """Return a line of the table."""
    asked = n, d, mean, epsilon, kind, exposed, k
    found = [kept(["rates", *asked, seed], lambda s=seed: played(*asked, s)) for seed in range(runs)]
    z, pooled, rows = (np.array([value for one in found for value in one[name]]) for name in ("z", "pooled", "rows"))
    covered, lines = float(np.mean(np.abs(z) < 1.96)) if z.size else np.nan, runs * d
    return [
        f"{n}, {d}, {mean:g}, {epsilon:g}, {kind}{', exposure' if exposed else ''}" + (f", k = {k:g}" if k else ""),
        f"{found[0]['k'][0]:.0f}",
        f"{covered:.3f} ± {np.sqrt(covered * (1 - covered) / len(z)):.3f}" if z.size else "none",
        f"{len(z) / lines:.2f}",
        f"{np.median(pooled):.2f}" if z.size else "none",
        f"{np.mean([one['left'] for one in found]):.2f}",
        f"{np.median(rows):.2f}" if rows.size else "none",
    ]


def of_choices(runs: int) -> None:
    """Write the table of what was tried, on studies of their own."""
    lines = []
    for ends in TRIED:
        typed = counts._TUNED.but(count_ends=ends)  # noqa: SLF001 - what was tried
        line = [", ".join(f"{end:g}" for end in ends)]
        for one in CHOOSING:
            with mock.patch.object(counts, "_TUNED", typed):
                found = [
                    kept(["rates tried", *one, *ends, seed], lambda o=one, s=seed: played(*o, 0.0, s, 30_000))
                    for seed in range(runs)
                ]
            z, pooled = (np.array([value for run in found for value in run[name]]) for name in ("z", "pooled"))
            line.append(f"{np.median(pooled):.3f} ({np.mean(np.abs(z) < 1.96):.2f})")
        lines.append(line)
        print(line, flush=True)
    write_table(
        "joint/rates_choices",
        "Standard errors over those of pooled rows, and coverage, by where weights may begin to fall",
        [
            "count_ends",
            *(f"{n}, {d}, {m:g}, {e:g}, {kind}{', exposure' * x}" for n, d, m, e, kind, x in CHOOSING),
        ],
        lines,
        f"{runs} runs a cell, people other than those of the cells of ``rates.md``.",
    )


def main(full: bool) -> None:
    """Write the tables."""
    runs = 200 if full else 40
    of_choices(runs // 4)
    head = [
        "n, columns, mean count, epsilon, columns' kind",
        "k",
        "covered",
        "printed",
        "SE/pooled",
        "columns left out",
        "SE/rows",
    ]
    lines = []
    for one in CELLS:
        lines.append(cell(*one, 0.0, runs))
        print(lines[-1], flush=True)
    write_table(
        "joint/rates",
        "Rate ratios of columns at two parties (delta = 1e-6, two parties and a helper)",
        head,
        lines,
        f"{runs} runs a cell, in {ROWS_TOO} of which one holder of all rows is fitted too; the middle of the ratios of standard errors. Lines are those of "
        "the model with all columns; in this part of the tables some are hidden by the noise, and the table is that of the model without them.",
    )
    spread = [cell(*one, runs // 2) for one in SPREAD]
    write_table(
        "joint/rates_spread",
        "Counts that vary more than Poisson's, of variance m + k m^2 (delta = 1e-6, two parties and a helper)",
        head[:-1],
        [line[:-1] for line in spread],
        f"{runs // 2} runs a cell. Coverage of the slopes of a law whose mean is the model's.",
    )


if __name__ == "__main__":
    run(main)
