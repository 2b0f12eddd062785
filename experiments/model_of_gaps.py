"""Gaps that follow the response: coverage and errors of logistic tables by complete cases and with a model of which rows are whole.

Declared before any run: the log odds of the response are -.5 + .5 x1 + .4 x2 - .3 x3 + .6 z1 - .5 z2; x1 to x3 are normal and z1, z2 are gamma with shape 2
less its mean over its deviation (skewed), all with a common factor (correlation about .4). Ranges are four deviations for x, -1.5 to 6 for z. z1 and z2
are missing by one indicator each, the odds of which follow nothing, x1, the response (1.5 y), both (x1 + 1.5 y), or their product (1.5 x1 y); the
constant of these odds is set so that 20 % of each are missing. The target is the slopes of complete data. A study is played on exact totals with its planned
noise. The two rules see the same people.
"""

from __future__ import annotations

import itertools
import math
import warnings
from functools import partial
from unittest.mock import patch

import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table
from experiments.inference.played import played_tables
from scipy.optimize import brentq
from scipy.special import expit

from unpooled.models import load
from unpooled.models.glm import declared as glm_declared
from unpooled.models.glm import plan as glm_plan
from unpooled.privacy.accounting import budget_mu
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table
from unpooled.schedules import table

DELTA = 1e-5
RUNS = {2000: (200, 1000), 20_000: (100, 500)}
ROWS, EPSILONS = (2000, 20_000), (1.0, 3.0)
CAUSES = ("nothing", "x1", "y", "x1 + y", "x1 y")
RULES = ("complete", "model")
#: Where products with the response are compared with none: rows, epsilon, studies.
PRODUCTS = ((2000, 1.0, 200), (2000, 3.0, 200), (8000, 0.7, 100), (5000, 1.5, 100), (20_000, 0.5, 100), (20_000, 1.0, 100))
#: Shares of the squared budget that stay with the table, in this number of studies.
SHARES, SHARED = (0.72, 0.82, 0.92), 100
NAMES = ("x1", "x2", "x3", "z1", "z2")
SLOPES = dict(zip(NAMES, (0.5, 0.4, -0.3, 0.6, -0.5), strict=True))


def people(cause: str, n: int, rng: np.random.Generator) -> Table:
    """Return made-up rows in which z1 and z2 have gaps."""
    common = rng.normal(size=(n, 1))
    x = np.sqrt(0.6) * rng.normal(size=(n, 3)) + np.sqrt(0.4) * common
    z = (rng.gamma(2.0, size=(n, 2)) - 2) / np.sqrt(2) * np.sqrt(0.6) + np.sqrt(0.4) * common
    held = np.clip(np.column_stack([x, z]), [-4, -4, -4, -3, -3], [4, 4, 4, 6, 6])
    y = (rng.random(n) < expit(-0.5 + held @ np.array(list(SLOPES.values())))).astype(float)
    drive = {"nothing": 0 * y, "x1": x[:, 0], "y": 1.5 * y, "x1 + y": x[:, 0] + 1.5 * y, "x1 y": 1.5 * x[:, 0] * y}[cause]
    constant = brentq(lambda c: float(expit(c + drive).mean()) - 0.2, -9, 9)
    missing = rng.random((n, 2)) < expit(constant + drive)[:, None]
    held[:, 3:][missing] = np.nan
    return Table(dict(zip(NAMES, held.T, strict=True)) | {"y": np.where(y > 0, "yes", "no").astype(object)})


def cell(
    rule: str, cause: str, n: int, epsilon: float, runs: int, products: bool | None = None, kept_share: float | None = None
) -> list[list[float]]:
    """Return (place of the line, error, standard error) of every printed slope of every run; ``kept_share`` of the squared budget is the table's own."""
    numbers = [Column(name, -4.0, 4.0) for name in NAMES[:3]]
    numbers += [Column(name, -3.0, 6.0, missing=rule) for name in NAMES[3:]]  # type: ignore[arg-type]
    columns = (*numbers, Column("y", categories=("no", "yes")))
    own = {"response": "y", "family": "logistic", "method": "newton"}
    study = Study("glm", (Card("p", n, columns),), epsilon, DELTA, parameters=own, derived=())
    least = {None: table("glm").completeness_products, False: math.inf, True: 0.0}[products]
    usual = glm_declared._WHOLE  # noqa: SLF001 - the shares that this script is about
    shares = (
        usual
        if kept_share is None
        else {k: v * (1 - kept_share) / (1 - usual["others"]) for k, v in usual.items()} | {"others": kept_share}
    )
    with patch.object(glm_plan, "_PRODUCTS", least), patch.object(glm_declared, "_WHOLE", shares):
        plan, found = load("glm").compile(study), []
    for seed in range(runs):
        drawn = people(cause, n, np.random.default_rng([seed, n]))
        tables = played_tables(plan, drawn, np.random.default_rng([seed, 7]))
        lines = [line for line in tables.summary().terms if line.term in SLOPES]
        found += [[float(NAMES.index(t.term)), t.estimate - SLOPES[t.term], t.std_error] for t in lines]
    return found


def told(found: list[list[float]], runs: int) -> list[str]:
    """Return coverage of the slopes of columns with and without gaps, the bias of the worst in standard errors, root mean square, SE over it, lines."""
    of, error, deviation = np.array(found).T
    holds = np.abs(error) < 1.96 * deviation
    bias = max(abs(error[of == k].mean()) / deviation[of == k].mean() for k in np.unique(of))
    square = float(np.sqrt((error**2).mean()))
    return [
        f"{holds[of < 3].mean():.2f}",
        f"{holds[of >= 3].mean():.2f}",
        f"{bias:.1f}",
        f"{square:.3f}",
        f"{np.sqrt((deviation**2).mean()) / square:.2f}",
        f"{of.size / (runs * len(NAMES)):.2f}",
    ]


def main(full: bool) -> None:
    """Make the table."""
    warnings.simplefilter("ignore", UserWarning)
    rows = []
    for n, epsilon, cause in itertools.product(ROWS, EPSILONS, CAUSES):
        runs = RUNS[n][full]
        row = [f"{n:,}", f"{epsilon:g}", cause]
        for rule in RULES:
            row += told(kept([rule, cause, n, epsilon, runs], partial(cell, rule, cause, n, epsilon, runs)), runs)
        rows.append(row)
    head = [
        f"{rule}: {name}" for rule in RULES for name in ("covers x", "covers z", "bias/SE", "error", "SE/error", "lines")
    ]
    note = (
        "Logistic tables of five slopes, z1 and z2 with gaps (36 % of rows are not whole or so). Share of 95 % intervals of printed lines that hold the slope of "
        "complete data: of columns that are never missing (x) and of those with gaps (z); the largest bias of a slope in its standard errors; root "
        "mean square error; standard error over it; share of lines that are printed. Products with the response where rows times mu allow them (all cells but 2,000 rows at epsilon 1). "
        f"{RUNS[2000][full]} played studies a cell of 2,000 rows, {RUNS[20_000][full]} of 20,000."
    )
    write_table("glm/model_of_gaps", "Gaps that follow the response", ["rows", "epsilon", "missing by", *head], rows, note)
    rows = []
    for (n, epsilon, runs), cause in itertools.product(PRODUCTS, ("nothing", "x1 + y", "x1 y")):
        row = [f"{n:,}", f"{epsilon:g}", f"{n * budget_mu(epsilon, DELTA) / 9:.0f}", cause]
        for products in (False, True):
            make = partial(cell, "model", cause, n, epsilon, runs, products)
            row += told(kept(["products", products, cause, n, epsilon, runs], make), runs)
        rows.append(row)
    head = [
        f"{rule}: {name}"
        for rule in ("without", "with")
        for name in ("covers x", "covers z", "bias/SE", "error", "SE/error", "lines")
    ]
    note = (
        "The same with a model of which rows are whole, without and with products of the response and the three columns that are never missing, whatever the "
        "budget is. Third column: rows times mu for each of the nine coefficients with products. 200 played studies a cell of 2,000 rows, 100 of the others."
    )
    first = ["rows", "epsilon", "n mu/9", "missing by"]
    write_table("glm/model_of_gaps_products", "Products in the model of which rows are whole", [*first, *head], rows, note)
    rows = []
    for n, epsilon, cause in itertools.product(ROWS, EPSILONS, ("nothing", "y")):
        row = [f"{n:,}", f"{epsilon:g}", cause]
        for share in SHARES:
            make = partial(cell, "model", cause, n, epsilon, SHARED, None, share)
            found = told(kept(["shares", share, cause, n, epsilon, SHARED], make), SHARED)
            row += [found[3], found[4], found[5]]
        rows.append(row)
    head = [f"{share:g}: {name}" for share in SHARES for name in ("error", "SE/error", "lines")]
    write_table(
        "glm/model_of_gaps_shares",
        "What the model of which rows are whole takes of the budget",
        ["rows", "epsilon", "missing by", *head],
        rows,
        f"The share of the squared budget that stays with the table, the rest in the same proportions. {SHARED} played studies a cell.",
    )


if __name__ == "__main__":
    run(main)
