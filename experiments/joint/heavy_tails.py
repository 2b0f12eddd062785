"""Slopes of joint moments where columns have heavy tails: their bias in standard errors, and the coverage of 95 % intervals.

A party shortens a long part of a row by its own factor, so a linear model of such rows is not the one of the whole rows. Two parties with one column
each, or two; columns independent or with a correlation of .5 (before the exponential, of lognormal ones). The response is linear in the columns,
with normal residuals. Columns of Student's law have one chi-squared number for a row: a row is long in all of them. Totals are exact with the planned noise.

Run it as ``python -m experiments.joint.heavy_tails`` (60 runs a cell; ``--full``: 300).
"""

from __future__ import annotations

import itertools

import numpy as np
from experiments.common import run, write_table

from unpooled.models.bayes.columns import design_of
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, HelperCard, Study
from unpooled.privacy.table import Table
from unpooled.products.moments import imagine

SHAPES, CORRELATIONS, COLUMNS = ("normal", "Student 3", "lognormal"), (0.0, 0.5), (1, 2)
STUDIES = ((5000, 3.0), (50_000, 1.0), (50_000, 3.0))
#: The effect of each column per deviation, and the declared half range in deviations.
SLOPE, FARTHEST = 0.5, 12.0


def drawn(shape: str, rows: int, count: int, correlation: float, rng: np.random.Generator) -> np.ndarray:
    """Return columns of variance about 1."""
    normal = np.sqrt(correlation) * rng.normal(size=(rows, 1)) + np.sqrt(1 - correlation) * rng.normal(size=(rows, count))
    if shape == "Student 3":
        normal = normal / np.sqrt(rng.chisquare(3, size=(rows, 1)) / 3) / np.sqrt(3)
    if shape == "lognormal":
        normal = (np.exp(normal) - np.exp(0.5)) / np.sqrt((np.e - 1) * np.e)
    return normal.clip(-FARTHEST, FARTHEST)


def cell(shape: str, correlation: float, each: int, rows: int, epsilon: float, runs: int) -> list[str]:
    """Return a line of the table."""
    names = [f"x{k}" for k in range(2 * each)]
    columns = [Column(name, -FARTHEST, FARTHEST) for name in names]
    cards = (Card("clinic", rows, tuple(columns[:each])), Card("registry", rows, (*columns[each:], Column("y", -30, 30))))
    given = {"response": "y", "split": "columns", "method": "moments"}
    design = design_of(Study("bayes", cards, epsilon, 1e-6, parameters=given, derived=(), helpers=(HelperCard("h"),)))
    away, hits, lost = [], [], 0
    for seed in range(runs):
        rng = np.random.default_rng([seed, rows, int(10 * epsilon), each, int(10 * correlation)])
        X = drawn(shape, rows, len(names), correlation, rng)
        y = (SLOPE * X.sum(axis=1) + rng.normal(size=rows)).clip(-30, 30)
        values = dict(zip([*names, "y"], [*X.T, y], strict=True))
        tables = {card.name: Table({c.name: values[c.name] for c in card.columns}) for card in cards}
        found = [term for term in imagine(design, tables, rng).summary().terms if term.term in names]
        lost += len(names) - len(found)
        away += [(term.estimate - SLOPE) / term.std_error for term in found]
        hits += [term.conf_low <= SLOPE <= term.conf_high for term in found]
    bias = f"{np.mean(away):+.2f}" if away else "none"
    cover = f"{np.mean(hits):.3f}" if hits else "none"
    return [f"{shape}, {correlation:g}, 2 x {each}, {rows}, {epsilon:g}", bias, cover, f"{1 - lost / runs / len(names):.2f}"]


def main(full: bool = False) -> None:
    """Write the table."""
    runs, lines = 300 if full else 60, []
    for shape, correlation, each, (rows, epsilon) in itertools.product(SHAPES, CORRELATIONS, COLUMNS, STUDIES):
        lines.append(cell(shape, correlation, each, rows, epsilon, runs))
        print(lines[-1], flush=True)
    write_table(
        "joint/heavy_tails",
        "Slopes of joint moments by the shape of columns (delta = 1e-6, two parties and a helper)",
        ["columns, correlation, parties x columns, n, eps", "bias in standard errors", "coverage", "printed"],
        lines,
    )


if __name__ == "__main__":
    run(main)
