"""Gaps that follow the response: coverage and errors of linear tables by complete cases and with a model of which rows are whole.

Declared before any run: y = .5 x1 + .4 x2 - .3 x3 + .6 z1 - .5 z2 + e; x1 to x3 are normal and z1, z2 are gamma with shape 2 less its mean over its
deviation (skewed), all with a common factor (correlation about .4), e is normal with deviation .9, or exp(.4 x1 - .16) times that ("unequal"). Ranges are
four deviations for x, -3 to 6 for z, -8 to 8 for y, and the typical values of x and y are declared. z1 and z2 are missing by one indicator each, the odds of which follow nothing, x1, the response (y), or
their product (x1 y); the constant of these odds is set so that 20 % of each are missing (36 % of the rows), or 5 % (10 %). The target is the slopes of
complete data. A study is played on exact totals with its planned noise. The two rules see the same people.
"""

from __future__ import annotations

import itertools
import warnings
from functools import partial

import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table
from experiments.inference.played import played_tables
from scipy.optimize import brentq
from scipy.special import expit

from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table

DELTA, RUNS = 1e-5, 100
SIZES = ((2000, 1.0), (2000, 3.0), (20_000, 1.0), (20_000, 3.0))
#: What the gaps follow, the part of each column that is missing, and whether errors have one spread.
CAUSES = (
    ("nothing", 0.2, True),
    ("x1", 0.2, True),
    ("y", 0.05, True),
    ("y", 0.2, True),
    ("x1 y", 0.2, True),
    ("y", 0.2, False),
)
RULES = ("complete", "model")
NAMES = ("x1", "x2", "x3", "z1", "z2")
SLOPES = dict(zip(NAMES, (0.5, 0.4, -0.3, 0.6, -0.5), strict=True))


def people(cause: str, part: float, n: int, rng: np.random.Generator, *, equal: bool) -> Table:
    """Return made-up rows in which z1 and z2 have gaps."""
    common = rng.normal(size=(n, 1))
    x = np.sqrt(0.6) * rng.normal(size=(n, 3)) + np.sqrt(0.4) * common
    z = (rng.gamma(2.0, size=(n, 2)) - 2) / np.sqrt(2) * np.sqrt(0.6) + np.sqrt(0.4) * common
    held = np.clip(np.column_stack([x, z]), [-4, -4, -4, -3, -3], [4, 4, 4, 6, 6])
    spread = 0.9 if equal else 0.9 * np.exp(0.4 * held[:, 0] - 0.16)
    y = np.clip(held @ np.array(list(SLOPES.values())) + spread * rng.normal(size=n), -8, 8)
    drive = {"nothing": 0 * y, "x1": x[:, 0], "y": y, "x1 y": x[:, 0] * y}[cause]
    constant = brentq(lambda c: float(expit(c + drive).mean()) - part, -15, 9)
    missing = rng.random((n, 2)) < expit(constant + drive)[:, None]
    held[:, 3:][missing] = np.nan
    return Table(dict(zip(NAMES, held.T, strict=True)) | {"y": y})


def cell(rule: str, cause: str, part: float, n: int, epsilon: float, *, equal: bool) -> list[list[float]]:
    """Return (place of the line, error, standard error) of every printed slope of every run."""
    columns = [Column(name, -4.0, 4.0, typical=(0.0, 1.0)) for name in NAMES[:3]]
    columns += [Column(name, -3.0, 6.0, missing=rule) for name in NAMES[3:]]  # type: ignore[arg-type]
    columns.append(Column("y", -8.0, 8.0, typical=(0.0, 1.2)))
    own = {"response": "y", "method": "refinement"}
    study = Study("bayes", (Card("p", n, tuple(columns)),), epsilon, DELTA, parameters=own, derived=())
    plan, found = load("bayes").compile(study), []
    for seed in range(RUNS):
        drawn = people(cause, part, n, np.random.default_rng([seed, n]), equal=equal)
        tables = played_tables(plan, drawn, np.random.default_rng([seed, 7]))
        lines = [] if tables is None else [line for line in tables.summary().terms if line.term in SLOPES]
        found += [[float(NAMES.index(t.term)), t.estimate - SLOPES[t.term], t.std_error] for t in lines]
    return found


def told(found: list[list[float]]) -> list[str]:
    """Return coverage of the slopes of columns with and without gaps, the bias of the worst in standard errors, root mean square, SE over it, lines."""
    if not found:
        return ["no line", *[""] * 4, "0.00"]
    of, error, deviation = np.array(found).T
    holds = np.abs(error) < 1.96 * deviation
    bias = max(abs(error[of == k].mean()) / deviation[of == k].mean() for k in np.unique(of))
    square = float(np.sqrt((error**2).mean()))
    covers = [
        f"{holds[of < 3].mean():.2f}" if (of < 3).any() else "",
        f"{holds[of >= 3].mean():.2f}" if (of >= 3).any() else "",
    ]
    return [
        *covers,
        f"{bias:.1f}",
        f"{square:.3f}",
        f"{np.sqrt((deviation**2).mean()) / square:.2f}",
        f"{of.size / (RUNS * len(NAMES)):.2f}",
    ]


def main(full: bool) -> None:  # noqa: ARG001 - one size
    """Make the table."""
    warnings.simplefilter("ignore", UserWarning)
    rows = []
    for (n, epsilon), (cause, part, equal) in itertools.product(SIZES, CAUSES):
        row = [f"{n:,}", f"{epsilon:g}", cause if equal else f"{cause}, unequal", f"{1 - (1 - part) ** 2:.0%}"]
        for rule in RULES:
            row += told(
                kept([rule, cause, part, n, epsilon, equal], partial(cell, rule, cause, part, n, epsilon, equal=equal))
            )
        rows.append(row)
    head = [
        f"{rule}: {name}" for rule in RULES for name in ("covers x", "covers z", "bias/SE", "error", "SE/error", "lines")
    ]
    note = (
        "Linear tables of five slopes, z1 and z2 with gaps in this part of the rows or so. Share of 95 % intervals of printed lines that hold the slope of "
        "complete data: of columns that are never missing (x) and of those with gaps (z); the largest bias of a slope in its standard errors; root "
        f"mean square error; standard error over it; share of lines that are printed. {RUNS} played studies a cell."
    )
    write_table(
        "inference/model_of_gaps_linear",
        "Gaps that follow a number",
        ["rows", "epsilon", "missing by", "gaps", *head],
        rows,
        note,
    )


if __name__ == "__main__":
    run(main)
