"""What typical values are worth, and what wrong ones cost: tables of a column and a response whose declared ranges are only possible.

Declared before any run: four columns (a laboratory value of deviation 8 in a range of 0 to 500, age, body mass index, a treatment of two levels) and a
response of deviation 10 in a range of 0 to 1000; three plans of a linear and of a logistic regression. Typical values are missing, right, with a deviation of a
fifth, a half, twice and five times the right one, or with a centre two deviations off; usual parts of 3, 5 and 8 typical deviations. The first arm has
ranges of four deviations on each side instead. A cell is 60 studies, played on exact totals with planned noise.
"""

from __future__ import annotations

import itertools
import math
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table
from experiments.inference.played import played_tables

from unpooled.models import load
from unpooled.privacy import bounds
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

RUNS, DELTA = 60, 1e-6
#: Rows and epsilon.
PLANS = ((1400, 2.0), (5000, 1.0), (20_000, 0.5))
MODELS = ("linear", "logistic")
#: Half the usual part in typical deviations; the first was taken for what it cost least where deviations were wrong.
PARTS = (3.0, 5.0, 8.0)
#: Of every arm: the factor of the typical deviation and the shift of the centre in deviations; none without typical values.
ARMS: dict[str, tuple[float, float] | None] = {
    "close ranges": None,
    "possible ranges": None,
    "right": (1.0, 0.0),
    "a fifth": (0.2, 0.0),
    "half": (0.5, 0.0),
    "twice": (2.0, 0.0),
    "five times": (5.0, 0.0),
    "two off": (1.0, 2.0),
}
TRUTH = {
    "linear": {"crp": 0.5, "age": 0.2, "arm: new - usual": 3.0},
    "logistic": {"crp": 0.06, "age": 0.03, "arm: new - usual": 0.5},
}
#: What a unit of each line is worth: its column's deviation.
DEVIATIONS = {"crp": 8.0, "age": 12.0, "arm: new - usual": 0.5}


def columns_of(model: str, arm: str) -> tuple[Column, ...]:
    """Return the declarations of an arm."""
    known = ARMS[arm]

    def typical(centre: float, deviation: float) -> tuple[float, float] | None:
        return None if known is None else (centre + known[1] * deviation, known[0] * deviation)

    close = arm == "close ranges"
    response: Any = Column("y", categories=("no", "yes"))
    if model == "linear":
        response = Column("y", 10.0, 90.0) if close else Column("y", 0.0, 1000.0, typical=typical(50.0, 10.0))
    return (
        Column("crp", -20.0, 44.0) if close else Column("crp", -20.0, 500.0, typical=typical(12.0, 8.0)),
        Column("age", 18.0, 100.0),
        Column("bmi", 10.0, 60.0),
        Column("arm", categories=("usual", "new")),
        response,
    )


def rows_of(model: str, n: int, rng: np.random.Generator) -> Table:
    """Return made-up people."""
    arm, z = rng.random(n) < 0.5, rng.normal(size=(n, 3))
    z[:, 1] = 0.4 * z[:, 0] + math.sqrt(0.84) * z[:, 1]
    held: dict[str, NDArray[Any]] = {
        "crp": 12 + 8 * z[:, 0],
        "age": np.clip(60 + 12 * z[:, 1], 18, 100),
        "bmi": 27 + 4 * z[:, 2],
    }
    of_crp, of_age, of_arm = TRUTH[model].values()
    mean = of_crp * (held["crp"] - 12) + of_age * (held["age"] - 60) + of_arm * (arm - 0.5)
    if model == "linear":
        held["y"] = 50 + mean + 8 * rng.normal(size=n)
    else:
        held["y"] = np.where(rng.logistic(size=n) < mean, "yes", "no").astype(object)
    return Table(held | {"arm": np.where(arm, "new", "usual").astype(object)})


def cell(plan: tuple[int, float], model: str, part: float, arm: str) -> list[list[float]]:
    """Return (line, standard error, whether the interval holds the truth) of every printed line of every run, in deviations of its column."""
    n, epsilon = plan
    own = (
        {"response": "y", "method": "refinement"}
        if model == "linear"
        else {"response": "y", "family": "logistic", "method": "newton"}
    )
    study = Study(
        "bayes" if model == "linear" else "glm",
        (Card("p", n, columns_of(model, arm)),),
        epsilon,
        DELTA,
        parameters=own,
        derived=(),
    )
    before, found = bounds.USUAL, []
    try:
        bounds.USUAL = part
        for seed in range(RUNS):
            rng = np.random.default_rng([seed, n])
            table = rows_of(model, n, rng)
            tables = played_tables(load(study.model).compile(study), table, np.random.default_rng([seed, 7]))
            for line in tables.summary().terms:
                if line.term in DEVIATIONS:
                    truth = TRUTH[model][line.term]
                    at = float(list(DEVIATIONS).index(line.term))
                    found.append(
                        [at, line.std_error * DEVIATIONS[line.term], float(line.conf_low <= truth <= line.conf_high)]
                    )
    finally:
        bounds.USUAL = before
    return found


def main(full: bool) -> None:  # noqa: ARG001 - one size
    """Make the table."""
    warnings.simplefilter("ignore", UserWarning)
    lines = []
    for plan, model, arm in itertools.product(PLANS, MODELS, ARMS):
        row = [f"{plan[0]:,}, {plan[1]:g}", model, arm]
        for part in PARTS:
            if ARMS[arm] is None and part != PARTS[1]:
                row += ["", "", "", ""]
                continue
            found = np.array(kept([*plan, model, part, arm], partial(cell, plan, model, part, arm))).reshape(-1, 3)
            crp, others = found[found[:, 0] == 0], found[found[:, 0] > 0]
            row += [
                f"{len(crp) / RUNS:.2f}",
                f"{np.median(crp[:, 1]) * math.sqrt(plan[0]):.2f}" if len(crp) else "",
                f"{np.median(others[:, 1]) * math.sqrt(plan[0]):.2f}" if len(others) else "",
                f"{found[:, 2].mean():.3f}" if len(found) else "",
            ]
        lines.append(row)
    head = (
        "rows, epsilon",
        "model",
        "typical",
        *(f"{part:g}: {what}" for part in PARTS for what in ("crp printed", "crp error", "others' error", "coverage")),
    )
    write_table(
        "regression/typical",
        "Typical values, right and wrong",
        head,
        lines,
        "Error: the median standard error of printed lines per deviation of the column, times the root of the rows. Coverage is that of all printed lines. "
        f"{RUNS} played studies a cell; 3, 5 and 8 are half the usual part in typical deviations.",
    )


if __name__ == "__main__":
    run(main)
