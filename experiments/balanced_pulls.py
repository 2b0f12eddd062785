"""Balanced pulls of two classes against those of the likelihood: standard errors, coverage and printed lines of whole played logistic studies.

Declared before any run: four columns on ranges of about seven deviations (age, a related laboratory value, a third one, a treatment of two levels), base
rates of .1 to .5, seven plans. A cell is 60 studies, played on exact totals with planned noise; "likelihood" has the former pulls and shares.
"""

from __future__ import annotations

import math
import warnings
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table
from experiments.inference.played import played_tables

import unpooled.models.glm.plan
from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

RUNS, DELTA = 60, 1e-6
#: Rows, epsilon, parties, and the log odds of a middle person.
PLANS = (
    (400, 5.6, 1, 0.0),
    (1000, 2.8, 1, 0.0),
    (4000, 0.7, 1, 0.0),
    (4000, 0.7, 1, -2.2),
    (20_000, 0.3, 1, 0.0),
    (5000, 1.0, 3, -1.0),
    (20_000, 3.0, 1, 0.0),
)
ARMS = ("likelihood", "balanced")
COLUMNS = (
    Column("age", 20.0, 100.0),
    Column("lab", 0.0, 25.0),
    Column("bmi", 10.0, 50.0),
    Column("arm", categories=("usual", "new")),
    Column("y", categories=("no", "yes")),
)
#: The true coefficient of each line, and its column's deviation.
TRUTH = {"age": (0.3 / 12, 12.0), "lab": (0.5 / 3, 3.0), "bmi": (0.2 / 4, 4.0), "arm: new - usual": (-0.7, 0.5)}


def rows_of(base: float, n: int, rng: np.random.Generator) -> Table:
    """Return made-up people."""
    arm, z = rng.random(n) < 0.5, rng.normal(size=(n, 3))
    z[:, 1] = 0.5 * z[:, 0] + math.sqrt(0.75) * z[:, 1]
    u = base + 0.3 * z[:, 0] + 0.5 * z[:, 1] + 0.2 * z[:, 2] - 0.7 * (arm - 0.5)
    held: dict[str, NDArray[np.float64]] = {
        "age": np.clip(60 + 12 * z[:, 0], 20, 100),
        "lab": np.clip(8 + 3 * z[:, 1], 0, 25),
        "bmi": np.clip(26 + 4 * z[:, 2], 10, 50),
    }
    words = {"arm": np.where(arm, "new", "usual"), "y": np.where(rng.logistic(size=n) < u, "yes", "no")}
    return Table({**held, **{name: values.astype(object) for name, values in words.items()}})


def cell(plan: tuple[int, float, int, float], arm: str) -> list[list[float]]:
    """Return (line, error, standard error, whether the interval holds the truth) of every printed line of every run, in standardised units."""
    n, epsilon, parties, base = plan
    sizes = [n // parties] * (parties - 1) + [n - n // parties * (parties - 1)]
    cards = tuple(Card(f"p{k}", size, COLUMNS) for k, size in enumerate(sizes))
    own = {"response": "y", "family": "logistic", "method": "newton"}
    study, place = Study("glm", cards, epsilon, DELTA, parameters=own, derived=()), unpooled.models.glm.plan
    before, found = place._balances, []  # noqa: SLF001 - the rule that this script compares with none
    try:
        if arm == "likelihood":
            place._balances = lambda *_: False  # noqa: SLF001 - likewise
        for seed in range(RUNS):
            table = rows_of(base, n, np.random.default_rng([seed, n]))
            summary = played_tables(load("glm").compile(study), table, np.random.default_rng([seed, 7])).summary()
            for line in summary.terms:
                if line.term in TRUTH:
                    truth, unit = TRUTH[line.term]
                    held = float(line.conf_low <= truth <= line.conf_high)
                    at = float(list(TRUTH).index(line.term))
                    found.append([at, (line.estimate - truth) * unit, line.std_error * unit, held])
    finally:
        place._balances = before  # noqa: SLF001 - likewise
    return found


def main(full: bool) -> None:  # noqa: ARG001 - one size
    """Make the table."""
    warnings.simplefilter("ignore", UserWarning)
    lines = []
    for plan in PLANS:
        n, epsilon, parties, base = plan
        row = [f"{n:,}, {epsilon:g}" + (f", {parties} parties" if parties > 1 else ""), f"{1 / (1 + math.exp(-base)):.2f}"]
        for arm in ARMS:
            found = np.array(kept([*plan, arm], partial(cell, plan, arm)))
            own = found[found[:, 0] == list(TRUTH).index("arm: new - usual")]
            row += [
                f"{len(found) / len(TRUTH) / RUNS:.2f}",
                f"{np.median(found[:, 2]) * math.sqrt(n) / 2:.2f}",
                f"{found[:, 3].mean():.3f}",
                f"{np.median(own[:, 2]) * math.sqrt(n) / 2:.2f}",
                f"{own[:, 3].mean():.3f}",
            ]
        lines.append(row)
    what = ("printed", "error", "coverage", "arm's error", "its coverage")
    write_table(
        "glm/balanced_pulls",
        "Balanced pulls of two classes",
        ("rows, epsilon", "base rate", *(f"{arm}: {each}" for arm in ARMS for each in what)),
        lines,
        "Printed: share of the four lines. Error: the median standard error of printed lines, in units of that of one column alone without privacy at a "
        f"base rate of one half. {RUNS} played studies a cell.",
    )


if __name__ == "__main__":
    run(main)
