"""Rows with gaps in tables of counts and of times to an event: coverage and errors of the slopes of whole rows, by what the gaps follow.

Declared before any run: x1 and x2 are normal with correlation .5 and ranges of four deviations. Counts have the mean exp(.5 + .3 x1 + .3 x2), with the range
0 to 20; times have the hazard .7 exp(.5 x1 + .5 x2) up to 1, with one hazard declared. x2 is missing for 10 or 30 % of the rows: at random, by x1, by x2
itself, or by the response, made after it (of times: by how long people were followed). The target is the slope of complete data, of all rows. A cell is 100
studies, played on exact totals with planned noise, of 2,000 rows at epsilon 1 and 3, and of 20,000
rows at epsilon 1.
"""

from __future__ import annotations

import itertools
import warnings
from functools import partial

import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table
from experiments.inference.played import played_tables

from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table

RUNS, DELTA = 100, 1e-6
FAMILIES, SIZES, PARTS = ("poisson", "survival"), ((2000, 1.0), (2000, 3.0), (20_000, 1.0)), (0.1, 0.3)
SLOPE = {"poisson": 0.3, "survival": 0.5}
#: What the gaps follow, and whether leaving rows out is right for it.
CAUSES = {"nothing": "right", "x1": "right", "x2 itself": "right", "the response": "wrong"}


def people(family: str, cause: str, part: float, n: int, rng: np.random.Generator) -> Table:
    """Return made-up rows in which x2 has gaps."""
    x1 = rng.normal(size=n)
    x2 = 0.5 * x1 + np.sqrt(0.75) * rng.normal(size=n)
    x1, x2 = np.clip(x1, -4, 4), np.clip(x2, -4, 4)
    line = SLOPE[family] * (x1 + x2)
    if family == "poisson":
        y = np.minimum(rng.poisson(np.exp(0.5 + line)), 20).astype(float)
        held = {"y": y}
    else:
        until = rng.exponential(size=n) / (0.7 * np.exp(line))
        y = np.minimum(until, 1.0)
        held = {"y": y, "died": (until <= 1.0).astype(float)}
    score = {"nothing": np.zeros(n), "x1": x1, "x2 itself": x2, "the response": (y - y.mean()) / y.std()}[cause]
    weight = np.exp(1.5 * score)
    missing = rng.random(n) < np.clip(part * weight / weight.mean(), 0.0, 0.95)
    return Table({"x1": x1, "x2": np.where(missing, np.nan, x2), **held})


def cell(family: str, cause: str, part: float, n: int, epsilon: float) -> list[list[float]]:
    """Return (line, estimate less the slope, standard error, whether the interval holds the slope) of every printed line of every run."""
    columns = [Column("x1", -4.0, 4.0), Column("x2", -4.0, 4.0, missing="complete")]
    own: dict[str, object] = {"response": "y", "family": family, "method": "newton"}
    if family == "poisson":
        columns.append(Column("y", 0.0, 20.0))
    else:
        columns += [Column("y", 0.0, 1.0), Column("died", 0.0, 1.0)]
        own |= {"event": "died", "cuts": []}
    study = Study("glm", (Card("p", n, tuple(columns)),), epsilon, DELTA, parameters=own, derived=())
    plan, found, slope = load("glm").compile(study), [], SLOPE[family]
    for seed in range(RUNS):
        table = people(family, cause, part, n, np.random.default_rng([seed, n]))
        tables = played_tables(plan, table, np.random.default_rng([seed, 7]))
        lines = [line for line in tables.summary().terms if line.term in {"x1", "x2"}]
        found += [
            [float(t.term == "x2"), t.estimate - slope, t.std_error, float(t.conf_low <= slope <= t.conf_high)]
            for t in lines
        ]
    return found


def told(found: list[list[float]]) -> list[str]:
    """Return coverage of both slopes, the larger bias in standard errors, root mean square error, standard error over it, and the share of lines."""
    of, error, deviation, holds = np.array(found).T
    covers = [f"{holds[of == k].mean():.2f}" for k in (0, 1)]
    bias = max(abs(error[of == k].mean()) / deviation[of == k].mean() for k in (0, 1))
    square = float(np.sqrt((error**2).mean()))
    ratio = float(np.sqrt((deviation**2).mean())) / square
    return [*covers, f"{bias:.1f}", f"{square:.3f}", f"{ratio:.2f}", f"{of.size / (2 * RUNS):.2f}"]


def main(full: bool) -> None:  # noqa: ARG001 - one size
    """Make the table."""
    warnings.simplefilter("ignore", UserWarning)
    rows = []
    for family, (n, epsilon), cause, part in itertools.product(FAMILIES, SIZES, CAUSES, PARTS):
        key = [family, cause, part, n, epsilon]
        found = kept(key, partial(cell, family, cause, part, n, epsilon))
        rows.append([family, f"{n:,}", f"{epsilon:g}", cause, f"{part:.0%}", CAUSES[cause], *told(found)])
    write_table(
        "glm/gaps_of_families",
        "Gaps in tables of counts and of times",
        [
            "model",
            "rows",
            "epsilon",
            "by",
            "missing",
            '"complete" is',
            "covers x1",
            "covers x2",
            "bias/SE",
            "error",
            "SE/error",
            "lines",
        ],
        rows,
        "Share of 95 % intervals of printed lines that hold the slope of complete data; x2 has the gaps, and rows with one are left out. The larger bias of the two slopes in "
        f"standard errors; root mean square error; standard error over it; share of lines that are printed. {RUNS} played studies a cell.",
    )


if __name__ == "__main__":
    run(main)
