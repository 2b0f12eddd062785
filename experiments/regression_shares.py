"""How a refinement shares its budget, and what a narrow clip of residuals does to its tables: standard errors and coverage of whole played studies.

Declared before any run: four columns on ranges of about seven deviations (age, a related laboratory value, a third one, a treatment of two levels), a
response whose errors are normal, exponential, or exponential with a spread that grows with age, five plans. The former shares and the former least clip of
three deviations stand next to the present ones. A cell is 60 studies, played on exact totals with planned noise.
"""

from __future__ import annotations

import itertools
import math
import warnings
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table
from experiments.inference.played import played_tables

import unpooled.linear.conversation
import unpooled.linear.descent
import unpooled.linear.schedule as tuned
from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

RUNS, DELTA, SPREAD, GROWS = 60, 1e-6, 5.0, 0.3
#: Rows, epsilon and parties.
PLANS = ((400, 2.8, 1), (1000, 1.4, 1), (4000, 0.5, 1), (20_000, 0.3, 1), (5000, 1.0, 3))
ERRORS = ("normal", "exponential", "exponential, growing")
COLUMNS = (
    Column("age", 20.0, 100.0),
    Column("lab", 0.0, 25.0),
    Column("bmi", 10.0, 50.0),
    Column("arm", categories=("usual", "new")),
    Column("y", 80.0, 220.0),
)
#: What a unit of each line is worth: its column's deviation.
TRUTH = {"age": (0.2, 12.0), "lab": (0.5, 3.0), "bmi": (0.2, 4.0), "arm: new - usual": (-2.0, 0.5)}
FORMER = {"scales": 0.1, "descent": 0.42, "spread": 0.06, "cells": 0.05, "products": 0.37}
#: The shares and the least clip of each arm.
ARMS = {
    "former": (FORMER, 3.0),
    "clip": (FORMER, tuned._TUNED.clip_least),  # noqa: SLF001 - the number that this script is about
    "present": (dict(tuned._SHARES[tuned.Method.REFINEMENT]), tuned._TUNED.clip_least),  # noqa: SLF001 - likewise
    "fewer rounds": ({"scales": 0.1, "descent": 0.12, "spread": 0.05, "cells": 0.05, "products": 0.68}, 1.5),
}


def rows_of(errors: str, n: int, rng: np.random.Generator) -> Table:
    """Return made-up people."""
    arm, z = rng.random(n) < 0.5, rng.normal(size=(n, 3))
    z[:, 1] = 0.5 * z[:, 0] + math.sqrt(0.75) * z[:, 1]
    held: dict[str, NDArray[np.float64]] = {
        "age": np.clip(60 + 12 * z[:, 0], 20, 100),
        "lab": np.clip(8 + 3 * z[:, 1], 0, 25),
        "bmi": np.clip(26 + 4 * z[:, 2], 10, 50),
    }
    e = rng.normal(size=n) if errors == "normal" else rng.exponential(size=n) - 1
    e *= 1 + GROWS * np.clip(z[:, 0], -3, 3) * errors.endswith("growing")
    mean = 130 + 0.2 * (held["age"] - 60) + 0.5 * (held["lab"] - 8) + 0.2 * (held["bmi"] - 26) - 2.0 * arm
    levels = np.where(arm, "new", "usual").astype(object)
    return Table({**held, "arm": levels, "y": np.clip(mean + SPREAD * e, 80, 220)})


def cell(plan: tuple[int, float, int], errors: str, arm: str) -> list[list[float]]:
    """Return (line, error, standard error, whether the interval holds the truth) of every printed line of every run, in standardised units."""
    (n, epsilon, parties), (shares, least) = plan, ARMS[arm]
    sizes = [n // parties] * (parties - 1) + [n - n // parties * (parties - 1)]
    cards = tuple(Card(f"p{k}", size, COLUMNS) for k, size in enumerate(sizes))
    study = Study("bayes", cards, epsilon, DELTA, parameters={"response": "y", "method": "refinement"}, derived=())

    def clip_of(noise: float) -> float:
        return float(max(least, tuned._TUNED.clip_root * noise ** (-1 / 3))) if noise else math.inf  # noqa: SLF001 - the rule itself

    places = tuned, unpooled.linear.conversation, unpooled.linear.descent
    before: Callable[[float], float] = tuned.clip_of
    kept_shares = tuned._SHARES[tuned.Method.REFINEMENT]  # noqa: SLF001 - what the arm changes
    found = []
    try:
        tuned._SHARES[tuned.Method.REFINEMENT] = shares  # noqa: SLF001 - likewise
        for place in places:
            place.clip_of = clip_of
        for seed in range(RUNS):
            rng = np.random.default_rng([seed, n])
            tables = played_tables(load("bayes").compile(study), rows_of(errors, n, rng), np.random.default_rng([seed, 7]))
            for line in tables.summary().terms:
                if line.term in TRUTH:
                    truth, deviation = TRUTH[line.term]
                    unit = deviation / SPREAD
                    held = float(line.conf_low <= truth <= line.conf_high)
                    at = float(list(TRUTH).index(line.term))
                    found.append([at, (line.estimate - truth) * unit, line.std_error * unit, held])
    finally:
        tuned._SHARES[tuned.Method.REFINEMENT] = kept_shares  # noqa: SLF001 - likewise
        for place in places:
            place.clip_of = before
    return found


def main(full: bool) -> None:  # noqa: ARG001 - one size
    """Make the table."""
    warnings.simplefilter("ignore", UserWarning)
    lines = []
    for plan, errors in itertools.product(PLANS, ERRORS):
        n, epsilon, parties = plan
        row = [f"{n:,}, {epsilon:g}" + (f", {parties} parties" if parties > 1 else ""), errors]
        for arm in ARMS:
            found = np.array(kept([*plan, errors, arm], partial(cell, plan, errors, arm)))
            row += [
                f"{len(found) / len(TRUTH) / RUNS:.2f}",
                f"{np.median(found[:, 2]) * math.sqrt(n):.2f}",
                f"{found[:, 3].mean():.3f}",
            ]
        lines.append(row)
    head = ("rows, epsilon", "errors", *(f"{arm}: {what}" for arm in ARMS for what in ("printed", "error", "coverage")))
    write_table(
        "regression/refinement",
        "Shares of a refinement, and its clip",
        head,
        lines,
        "Printed: share of the four lines. Error: the median standard error of printed lines in units of that of one column alone without privacy. "
        f"{RUNS} played studies a cell.",
    )


if __name__ == "__main__":
    run(main)
