"""Complete cases of columns at two parties, by how many rows are left out: a tenth, three tenths and half of them.

Declared before any run: the rows of ``gaps.py``, in which one of s, g and t (each as often) is missing in 10, 30 or 50 % of the rows, at random or by a. A cell
is 60 studies, of 5,000 and 20,000 rows at epsilon 1 and 3. Runs are kept cell by cell, and continue where they stopped.
"""

from __future__ import annotations

import itertools
import warnings
from functools import partial

import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table
from experiments.joint.gaps import EPSILONS, ROWS, TRUTH, people, planned, played, row_of

from unpooled.privacy.table import Table

RUNS, PARTS, CAUSES = 60, (0.1, 0.3, 0.5), ("nothing", "a")


def with_gaps(cause: str, part: float, n: int, seed: int) -> dict[str, Table]:
    """Return the rows of both parties, of which this part lacks one value."""
    rng = np.random.default_rng([seed, n, 3])
    held = people("none", n, np.random.default_rng([seed, n]))
    weight = np.exp(0.8 * held["p"]["a"]) if cause == "a" else np.ones(n)
    gone = rng.random(n) < np.clip(part * weight / weight.mean(), 0.0, 0.95)
    which = rng.integers(0, 3, n)
    levels = np.array(held["p"]["g"])
    levels[gone & (which == 1)] = None
    s, t = (np.where(gone & (which == at), np.nan, held[party][name]) for party, name, at in (("p", "s", 0), ("q", "t", 2)))
    return {
        "p": Table({"a": held["p"]["a"], "s": s, "g": levels}),
        "q": Table({"c": held["q"]["c"], "t": t, "y": held["q"]["y"]}),
    }


def cell(cause: str, part: float, n: int, epsilon: float) -> list[list[float]]:
    """Return the lines of all runs of a cell."""
    return played(planned("complete", n, epsilon), lambda seed: with_gaps(cause, part, n, seed), RUNS)


def main(full: bool) -> None:  # noqa: ARG001 - one size
    """Make the table."""
    warnings.simplefilter("ignore", UserWarning)
    rows = []
    for n, epsilon, cause, part in itertools.product(ROWS, EPSILONS, CAUSES, PARTS):
        found = np.array(kept(["joint gaps by part", cause, part, n, epsilon], partial(cell, cause, part, n, epsilon)))
        rows.append([f"{n:,}", f"{epsilon:g}", cause, f"{part:.0%}", *row_of(found, RUNS)])
    head = ["rows", "epsilon", "gaps by", "left out", *TRUTH, "all", "lines printed", "median error"]
    note = f"Share of 95 % intervals that hold the slope of complete data; s, g and t have the gaps. {RUNS} played studies a cell."
    write_table(
        "joint/gaps_parts", "Complete cases of columns at two parties, by the part that is left out", head, rows, note
    )


if __name__ == "__main__":
    run(main)
