"""Linear regression with small budgets: the mean alone, the direction of the slopes and their length, and rounds of gradients.

k is n mu / D: rows times the budget's mu, for each coefficient. Columns have variance 1: independent, with one common factor, exponential, or
off the middle of their declared ranges. The response is a linear signal with normal (of exponential columns: exponential) noise, declared inside a
half range of some deviations about its mean, or so that its mean lies at a quarter of the range. A run plays the study's own coordinator on exact
totals with the noise of its plan. A cell's number is the mean squared error of 2,000 new rows over that of the private mean that spends the whole
budget, with its standard error over seeds: both methods have the same rows.

The rounds, clips, shares and shrinkage were fixed by a simulation in floating point of n mu 15 to 300 with 5 to 200 columns of half range 5, responses
of half ranges 3, 6 and 8, R^2 0, .3 and .8, mu .05 to 1, both adjacencies, and by the cells of ``DEVELOPMENT`` below, which also fixed the switches
(``WORTH_LENGTHS``, ``WORTH_DIRECTION``). The cells of ``REPORTED`` have other sizes, ranges, R^2 and shapes, were listed before anything was run on
them, and chose nothing. Where n mu is below ``WORTH_DIRECTION`` or k at ``WORTH_LENGTHS`` or above, the default is gradients, which end with rounds of
their length since decision 0069: ``GRADIENT_DEVELOPMENT`` fixed these, ``GRADIENT_REPORTED`` was listed before anything was run on it.
Stored tables of the other lists are of gradients before that decision; directions are the same.
"""

from __future__ import annotations

import itertools
import math
import zlib
from typing import Any, NamedTuple

import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table
from experiments.inference.played import played_result

from unpooled.linear.schedule import WORTH_DIRECTION, WORTH_FEW_SLOPES, WORTH_LENGTHS, WORTH_SLOPES
from unpooled.models.bayes import declared as bayes_declared
from unpooled.privacy.accounting import budget_mu
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table

DELTA, NEW, FULL, REDUCED = 1e-5, 2000, 40, 24
METHODS = ("mean", "direction", "gradient")


class Cell(NamedTuple):
    """A declared shape and a budget."""

    strength: float
    columns: int
    shape: str
    square: float
    half: float
    place: float
    reach: float
    epsilon: float
    adjacency: str

    @property
    def k(self) -> float:
        """Return n mu for each coefficient."""
        return self.strength / (self.columns + 1)

    @property
    def rows(self) -> int:
        """Return the rows that have this n mu."""
        return max(8, round(self.strength / budget_mu(self.epsilon, DELTA)))


def crossed(sizes: Any, shapes: Any, squares: Any, responses: Any, reaches: Any) -> list[Cell]:
    """All cells of sizes, shapes, R^2 and responses; ranges of columns, epsilon and adjacency in turn."""
    turns = itertools.cycle(itertools.product(reaches, (0.3, 1.0, 3.0), ("replace", "zero-out")))
    return [
        Cell(strength, columns, shape, square, half, place, *next(turns))
        for (strength, columns), shape, square, (half, place) in itertools.product(sizes, shapes, squares, responses)
    ]


DEVELOPMENT = crossed(
    ((50, 5), (50, 20), (100, 10), (100, 30), (200, 20), (200, 60), (400, 20), (300, 10), (200, 5)),
    ("independent", "one factor", "skewed"),
    (0.0, 0.3, 0.8),
    ((3.0, 0.5), (6.0, 0.0)),
    (5.0,),
)
REPORTED = crossed(
    (
        (60, 25),
        (60, 45),
        (90, 40),
        (130, 55),
        (60, 12),
        (90, 8),
        (130, 25),
        (220, 25),
        (500, 40),
        (220, 12),
        (30, 12),
        (70, 140),
    ),
    ("independent", "half a factor", "skewed", "off-centre"),
    (0.0, 0.15, 0.5, 0.9),
    ((4.0, 0.0), (4.0, 0.5), (7.0, 0.5)),
    (3.0, 7.0),
)


#: Fewer columns and a smaller n mu than above, added later: the first fixed ``WORTH_FEW_SLOPES``, the second were listed before a run and judge it.
FEW_DEVELOPMENT = crossed(
    ((15, 4), (20, 5), (30, 8), (40, 5), (40, 10), (45, 3)),
    ("independent", "one factor", "skewed"),
    (0.0, 0.3, 0.8),
    ((3.0, 0.5), (6.0, 0.0)),
    (5.0,),
)
FEW_REPORTED = crossed(
    ((31, 9), (35, 6), (45, 12)),
    ("independent", "half a factor", "skewed", "off-centre"),
    (0.0, 0.15, 0.5, 0.9),
    ((4.0, 0.0), (4.0, 0.5), (7.0, 0.5)),
    (3.0, 7.0),
)
#: Where rounds of gradients are the default and their slopes have no errors. The first fixed ``_GRADIENT_LENGTHS``, the second were listed before a run.
GRADIENT_DEVELOPMENT = crossed(
    ((110, 8), (150, 12), (300, 25), (400, 20), (300, 10), (900, 30), (200, 5), (60, 2)),
    ("independent", "one factor", "skewed"),
    (0.0, 0.1, 0.3, 0.8),
    ((3.0, 0.5), (6.0, 0.0)),
    (5.0,),
)
GRADIENT_REPORTED = crossed(
    ((140, 9), (260, 14), (700, 22), (90, 4), (1200, 36), (170, 6), (80, 3)),
    ("independent", "half a factor", "skewed", "off-centre"),
    (0.0, 0.1, 0.3, 0.6, 0.9),
    ((4.0, 0.0), (4.0, 0.5), (7.0, 0.5)),
    (3.0, 7.0),
)
HALVES = {
    "gradient_development": GRADIENT_DEVELOPMENT,
    "gradient_reported": GRADIENT_REPORTED,
    "development": DEVELOPMENT,
    "reported": REPORTED,
    "few_development": FEW_DEVELOPMENT,
    "few_reported": FEW_REPORTED,
}


def drawn(cell: Cell, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a study and new ones: columns in half ranges, and the response in deviations."""
    rng = np.random.default_rng([seed, zlib.crc32(repr(cell).encode())])
    count, d = cell.rows + NEW, cell.columns
    x, noise = rng.normal(size=(count, d)), rng.normal(size=count)
    if cell.shape in {"one factor", "half a factor"}:
        part = 0.8 if cell.shape == "one factor" else 0.5
        x = math.sqrt(1 - part) * x + math.sqrt(part) * rng.normal(size=(count, 1))
    if cell.shape == "skewed":
        x, noise = rng.exponential(size=(count, d)) - 1, rng.exponential(size=count) - 1
    signal = x @ rng.normal(size=d)
    y = math.sqrt(cell.square) * signal / signal.std() + math.sqrt(1 - cell.square) * noise
    middle = 0.4 if cell.shape == "off-centre" else 0.0
    return np.clip(x / cell.reach + middle, -1, 1), np.clip(y, *ends(cell))


def ends(cell: Cell) -> tuple[float, float]:
    """The declared range of the response: its mean, 0, lies in the middle or at a quarter."""
    middle = -cell.place * cell.half
    return middle - cell.half, middle + cell.half


def planned(cell: Cell, method: str) -> Any:
    """The plan of a study."""
    declared = (*(Column(f"x{j}", -1.0, 1.0) for j in range(cell.columns)), Column("y", *ends(cell)))
    card = Card("all", cell.rows, declared)
    given = {"response": "y", "method": method}
    return bayes_declared.compile_plan(
        Study("bayes", (card,), cell.epsilon, DELTA, parameters=given, adjacency=cell.adjacency, derived=())
    )


def once(cell: Cell, plans: dict[str, Any], seed: int) -> list[float]:
    """Mean squared errors of new rows, method by method."""
    X, y = drawn(cell, seed)
    n = cell.rows
    table = Table({**{f"x{j}": X[:n, j] for j in range(cell.columns)}, "y": y[:n]})
    errors = []
    for place, plan in enumerate(plans.values()):
        result = played_result(plan, table, np.random.default_rng([seed, place, zlib.crc32(repr(cell).encode())]))
        slopes = np.array([c.value for c in result.coefficients])
        predicted = np.clip(X[n:] @ slopes + result.intercept, *ends(cell))
        errors.append(float(np.mean((predicted - y[n:]) ** 2)))
    return errors


def of_cell(cell: Cell, often: int) -> np.ndarray:
    """The runs of a cell, each of them kept."""
    plans: dict[str, Any] = {}

    def made(seed: int) -> list[float]:
        plans.update({} if plans else {method: planned(cell, method) for method in METHODS})
        return once(cell, plans, seed)

    return np.array([kept([*cell, seed], lambda s=seed: made(s)) for seed in range(often)])


def relative(runs: np.ndarray, method: str) -> tuple[float, float]:
    """The mean error of a method over that of the private mean, and its standard error over seeds."""
    mean, own = runs[:, 0], runs[:, METHODS.index(method)]
    ratio = float(own.mean() / mean.mean())
    return ratio, float((own - ratio * mean).std(ddof=1) / math.sqrt(len(runs)) / mean.mean())


def now(cell: Cell) -> str:
    """The method that is the default in this cell."""
    least = WORTH_DIRECTION if cell.k < WORTH_SLOPES else WORTH_FEW_SLOPES
    if cell.k < WORTH_LENGTHS and cell.strength >= least:
        return "direction"
    return "mean" if cell.k < WORTH_SLOPES else "gradient"


def over(ratio: float, error: float) -> bool:
    """Return True if an error is above 1.02 times the mean's by more than two standard errors."""
    return ratio - 2 * error > 1.02


def lines_of(cells: list[Cell], often: int) -> tuple[list[list[str]], list[list[str]]]:
    """A line for each cell, and one for each size and R^2."""
    lines, groups = [], {}
    for cell in cells:
        runs = of_cell(cell, often)
        found = {method: relative(runs, method) for method in METHODS[1:]} | {"mean": (1.0, 0.0)}
        before = "mean" if cell.k < WORTH_SLOPES else "gradient"
        words = f"{cell.strength:g}, {cell.columns}", f"{cell.k:.1f}", cell.shape, f"{cell.square:g}", f"{cell.half:g}"
        more = "middle" if not cell.place else "quarter", f"{cell.reach:g}", f"{cell.epsilon:g}", cell.adjacency
        numbers = ["{:.3f} ({:.3f})".format(*found[method]) for method in METHODS[1:]]
        lines.append([*words, *more, str(cell.rows), *numbers, now(cell)])
        print(" | ".join(lines[-1]), flush=True)
        groups.setdefault((cell.strength, cell.columns, cell.square), []).append(
            (found["direction"], found["gradient"], found[now(cell)], found[before], now(cell))
        )
    table = []
    for (strength, columns, square), rows in groups.items():
        each = [np.array([row[place] for row in rows]) for place in range(4)]
        numbers = [f"{e[:, 0].mean():.3f} ({e[:, 0].max():.3f}, {sum(itertools.starmap(over, e))})" for e in each]
        k = f"{strength / (columns + 1):.1f}"
        table.append([f"{strength:g}, {columns}", k, f"{square:g}", str(len(rows)), *numbers, rows[0][4]])
    return lines, table


def main(full: bool) -> None:
    """Development and reported cells."""
    for name, cells in HALVES.items():
        lines, table = lines_of(cells, FULL if full else REDUCED)
        head = [
            "n mu, columns",
            "k",
            "R^2",
            "cells",
            "direction",
            "gradient",
            "default",
            "default before directions",
            "default is",
        ]
        words = (
            "Mean over the cells of a line of the mean squared error of predictions over that of the private mean; in brackets the largest, and the "
            "number of cells above 1.02 by more than two standard errors."
        )
        write_table(f"bayes/small_budgets_{name}", f"Small budgets: {name.replace('_', ', ')} cells", head, table, words)
        head = [
            "n mu, columns",
            "k",
            "shape",
            "R^2",
            "half range",
            "mean at",
            "half range of columns",
            "epsilon",
            "adjacency",
            "rows",
        ]
        words = "Mean squared errors of predictions over that of the private mean, with standard errors over seeds."
        write_table(
            f"bayes/small_budgets_{name}_cells",
            "Small budgets, cell by cell",
            [*head, *METHODS[1:], "default"],
            lines,
            words,
        )


if __name__ == "__main__":
    run(main)
