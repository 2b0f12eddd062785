"""Rules for missing values: coverage of the slopes of a column with gaps and of a related one, by what the gaps follow.

Declared before any run: y = x1 + x2 + e (for the logistic model the log odds are x1 + x2), x1 and x2 normal with correlation .5, e normal, ranges of four
deviations; x2 is missing for 10, 30 or 50 % of the rows: at random, by x1, by x2 itself, or by the response, made after it. The target is the slope of
complete data. A cell is 60 studies, played on exact totals with planned noise at epsilon 1, of 2,000 and 20,000 rows.
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

RUNS, EPSILON, DELTA = 60, 1.0, 1e-6
FAMILIES, ROWS, PARTS = ("linear", "logistic"), (2000, 20_000), (0.1, 0.3, 0.5)
RULES = ("complete", "indicator", "absent")
#: What the gaps follow: the score by whose rank the odds of a gap grow.
CAUSES = ("nothing", "x1", "x2 itself", "the response")


def people(family: str, cause: str, part: float, n: int, rng: np.random.Generator) -> Table:
    """Return made-up rows in which x2 has gaps."""
    x1 = rng.normal(size=n)
    x2 = 0.5 * x1 + np.sqrt(0.75) * rng.normal(size=n)
    line = x1 + x2
    y = line + rng.normal(size=n) if family == "linear" else (rng.logistic(size=n) < line).astype(float)
    score = {"nothing": np.zeros(n), "x1": x1, "x2 itself": x2, "the response": (y - y.mean()) / y.std()}[cause]
    weight = np.exp(1.5 * score)
    missing = rng.random(n) < np.clip(part * weight / weight.mean(), 0.0, 0.95)
    held = {"x1": np.clip(x1, -4, 4), "x2": np.where(missing, np.nan, np.clip(x2, -4, 4))}
    response = np.clip(y, -8, 8) if family == "linear" else np.where(y > 0, "yes", "no").astype(object)
    return Table({**held, "y": response})


def cell(family: str, rule: str, cause: str, part: float, n: int) -> list[list[float]]:
    """Return (line, whether the interval holds the slope of complete data, standard error) of every printed line of every run."""
    response = Column("y", -8.0, 8.0) if family == "linear" else Column("y", categories=("no", "yes"))
    columns = (Column("x1", -4.0, 4.0), Column("x2", -4.0, 4.0, missing=rule), response)  # type: ignore[arg-type]
    own = (
        {"response": "y", "method": "refinement"}
        if family == "linear"
        else {"response": "y", "family": family, "method": "newton"}
    )
    study = Study(
        "bayes" if family == "linear" else "glm", (Card("p", n, columns),), EPSILON, DELTA, parameters=own, derived=()
    )
    plan, found = load(study.model).compile(study), []
    for seed in range(RUNS):
        table = people(family, cause, part, n, np.random.default_rng([seed, n]))
        tables = played_tables(plan, table, np.random.default_rng([seed, 7]))
        lines = [line for line in tables.summary().terms if line.term in {"x1", "x2"}]
        found += [[float(line.term == "x2"), float(line.conf_low <= 1 <= line.conf_high), line.std_error] for line in lines]
    return found


def main(full: bool) -> None:  # noqa: ARG001 - one size
    """Make the tables: of the page at 20,000 rows, and of everything."""
    warnings.simplefilter("ignore", UserWarning)
    rows, shown = [], []
    for family, n, cause, part in itertools.product(FAMILIES, ROWS, CAUSES, PARTS):
        row = [family, f"{n:,}", cause, f"{part:.0%}"]
        for rule in RULES if family == "linear" and n == max(ROWS) else RULES[:1]:
            found = np.array(kept([family, rule, cause, part, n], partial(cell, family, rule, cause, part, n)))
            for at in (0, 1):
                own = found[found[:, 0] == at]
                row.append(f"{own[:, 1].mean():.2f}" if len(own) else "no line")
        rows.append(row + [""] * (4 + 2 * len(RULES) - len(row)))
        if family == "linear" and n == max(ROWS):
            shown.append([f"{part:.0%} by {cause}", *row[4:]])
    head = [f"{rule}: {name}" for rule in RULES for name in ("x1", "x2")]
    note = f"Share of 95 % intervals that hold the slope of complete data; x2 has the gaps. Epsilon {EPSILON:g}; {RUNS} played studies a cell."
    write_table("inference/complete_cases", "Rules for missing values", ["missing", *head], shown, note)
    write_table(
        "inference/complete_cases_all",
        "Rules for missing values, all cells",
        ["model", "rows", "by", "missing", *head],
        rows,
        note,
    )


if __name__ == "__main__":
    run(main)
