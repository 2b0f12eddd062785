"""What the lines of a table hold that stand next to a column which the noise hides: the difference adjusted for it, or the one without it.

Declared before any run: a column of deviation 8 in a range of 0 to 1,000 or 4,000, of which no table of these plans says anything, correlated .3 or .6 with a
column x that it does say something of; a treatment by chance; linear and logistic regression; 5,000 rows at epsilon 1 and 20,000 at .5. Targets: the
coefficient of x in the model with the hidden column, and in the model without it (of logistic regression the fit of a million made-up rows). A cell is 200
studies, played on exact totals with planned noise; lines of tables that print the other column do not count.
"""

from __future__ import annotations

import itertools
import math
import warnings
from functools import cache, partial
from typing import Any

import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table
from experiments.inference.played import played_tables
from scipy.special import expit

from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table

RUNS, DELTA, MANY = 200, 1e-6, 1_000_000
#: Rows and epsilon.
PLANS = ((5000, 1.0), (20_000, 0.5))
RANGES, CORRELATIONS, MODELS = (1000.0, 4000.0), (0.3, 0.6), ("linear", "logistic")
OF_X, OF_HIDDEN, OF_ARM = 0.5, 0.5, 0.6


def people(model: str, correlation: float, n: int, rng: np.random.Generator) -> dict[str, Any]:
    """Return the columns of made-up people, the response as a number."""
    hidden = rng.normal(size=n)
    x = correlation * hidden + math.sqrt(1 - correlation**2) * rng.normal(size=n)
    arm = rng.random(n) < 0.5
    mean = OF_X * x + OF_HIDDEN * hidden + OF_ARM * (arm - 0.5)
    y = mean + rng.normal(size=n) if model == "linear" else (rng.logistic(size=n) < mean).astype(float)
    return {"x": np.clip(x, -4, 4), "crp": np.clip(32 + 8 * hidden, 0, None), "arm": arm, "y": y}


@cache
def without(model: str, correlation: float) -> dict[str, float]:
    """Return the coefficients of the model that has no hidden column, over very many people."""
    made = people(model, correlation, MANY, np.random.default_rng(0))
    rows = np.column_stack([made["x"], made["arm"], np.ones(MANY)])
    found = np.zeros(3)
    for _ in range(12):
        u = rows @ found
        mean, weight = (u, np.ones(MANY)) if model == "linear" else (expit(u), expit(u) * expit(-u))
        found = found + np.linalg.solve((rows.T * weight) @ rows, rows.T @ (made["y"] - mean))
    return {"x": float(found[0]), "arm: new - usual": float(found[1])}


def cell(plan: tuple[int, float], model: str, high: float, correlation: float) -> list[list[float]]:
    """Return (line, whether its interval holds the adjusted difference, and the one without) of every line next to a hidden column."""
    n, epsilon = plan
    linear = model == "linear"
    own = {"method": "refinement"} if linear else {"family": "logistic", "method": "newton"}
    response = Column("y", -6.0, 6.0) if linear else Column("y", categories=("no", "yes"))
    columns = (Column("x", -4, 4), Column("crp", 0.0, high), Column("arm", categories=("usual", "new")), response)
    cards = (Card("p", n, columns),)
    parameters = {"response": "y", **own}
    study = Study("bayes" if linear else "glm", cards, epsilon, DELTA, parameters=parameters, derived=())
    compiled, targets, found = load(study.model).compile(study), without(model, correlation), []
    for seed in range(RUNS):
        made = people(model, correlation, n, np.random.default_rng([seed, n]))
        y = np.clip(made["y"], -6, 6) if linear else np.where(made["y"] > 0, "yes", "no").astype(object)
        arm = np.where(made["arm"], "new", "usual").astype(object)
        summary = played_tables(compiled, Table({**made, "arm": arm, "y": y}), np.random.default_rng([seed, 7])).summary()
        if "crp" not in summary.not_determined:
            continue
        for line in summary.terms:
            if line.term in targets:
                adjusted = OF_X if line.term == "x" else OF_ARM
                holds = (line.conf_low <= value <= line.conf_high for value in (adjusted, targets[line.term]))
                found.append([float(line.term != "x"), *map(float, holds)])
    return found


def main(full: bool) -> None:  # noqa: ARG001 - one size
    """Make the table."""
    warnings.simplefilter("ignore", UserWarning)
    lines = []
    for plan, model, high, correlation in itertools.product(PLANS, MODELS, RANGES, CORRELATIONS):
        asked = (plan, model, high, correlation)
        found = np.array(kept([*plan, *asked[1:]], partial(cell, *asked))).reshape(-1, 3)
        row = [f"{plan[0]:,}, {plan[1]:g}", model, f"0:{high:g}", f"{correlation:g}"]
        for at in (0.0, 1.0):
            own = found[found[:, 0] == at]
            row += [str(len(own)), *(f"{part:.3f}" for part in own[:, 1:].mean(axis=0))] if len(own) else ["0", "", ""]
        lines.append(row)
    words = [f"{line}: {what}" for line in ("x", "arm") for what in ("lines", "adjusted", "without")]
    write_table(
        "regression/hidden_columns",
        "Lines next to a column that the noise hides",
        ("rows, epsilon", "model", "range of crp", "correlation with x", *words),
        lines,
        "How often a 95 % interval held the difference adjusted for the hidden column, and the one of the model without it, which the table names. "
        f"{RUNS} played studies a cell.",
    )


if __name__ == "__main__":
    run(main)
