"""Coverage of intervals of correlations from joint moments (``describe(parties=...)``): normal, skewed and heavy-tailed columns of one factor.

Two parties with two columns each and a helper, ranges of six deviations; fresh rows in every run, coded as the parties do, and ideal noise of the planned
deviations on exact totals. The true correlation is that of two million rows. 500 runs a cell, reduced 150; six correlations each.
"""

from __future__ import annotations

import numpy as np
from experiments.common import run, write_table

from unpooled.models.describe.columns import JointParameters, summary_of
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, HelperCard, Study
from unpooled.privacy.table import Table
from unpooled.products.design import JointDesign
from unpooled.products.moments import standards_of
from unpooled.products.sums import CONSTANT_STEPS
from unpooled.totals.total import Total

SHAPES, CELLS = ("normal", "skewed", "heavy-tailed"), ((3000, 1.0), (3000, 3.0), (30_000, 1.0))
FULL, REDUCED = 500, 150


def columns_of(shape: str, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Four columns of mean 0 and variance 1 with one common factor."""
    x = np.sqrt(0.5) * rng.normal(size=(rows, 4)) + np.sqrt(0.5) * rng.normal(size=(rows, 1))
    if shape == "skewed":
        x = (np.exp(0.6 * x) - np.exp(0.18)) / np.sqrt((np.exp(0.36) - 1) * np.exp(0.36))
    if shape == "heavy-tailed":
        x = x * np.sqrt(3 / rng.chisquare(5, size=(rows, 1)))
    return np.clip(x, -6, 6)


def once(design: JointDesign, x: np.ndarray, truth: np.ndarray, rng: np.random.Generator) -> list[bool]:
    """Whether each printed interval holds the truth, in one run."""
    tables = {"a": Table({"x0": x[:, 0], "x1": x[:, 1]}), "b": Table({"x2": x[:, 2], "x3": x[:, 3]})}
    constants = {}
    for party, table in tables.items():
        exact, noise = design.scales(party).statistic(table).astype(float), design.constants_release(party).deviations
        constants[party] = Total(exact + noise * rng.standard_normal(exact.size), noise, (party,))
    standards = standards_of(design, constants)
    parts = [design.party_rows(party).coded(tables[party], standards[party]) for party in design.parties]
    whole = np.column_stack([*parts, np.full(len(x), CONSTANT_STEPS)]).astype(float)
    values = (whole.T @ whole)[design.shape.pairs]
    total = Total(values + design.deviations * rng.standard_normal(values.size), design.deviations, design.parties)
    found = summary_of(design, constants, total, 0.95).correlations
    return [c.value.low < truth[int(c.first[1]), int(c.second[1])] < c.value.high for c in found]


def main(full: bool) -> None:
    """All cells."""
    runs, rows = FULL if full else REDUCED, []
    for shape in SHAPES:
        truth = np.corrcoef(columns_of(shape, 2_000_000, np.random.default_rng(99)).T)
        for n, epsilon in CELLS:
            columns = [Column(f"x{j}", -6.0, 6.0) for j in range(4)]
            cards = Card("a", n, tuple(columns[:2])), Card("b", n, tuple(columns[2:]))
            asked = {"split": "columns"}
            study = Study("describe", cards, epsilon, 1e-6, parameters=asked, derived=(), helpers=(HelperCard("h"),))
            design, held = JointDesign.of(study, JointParameters()), []
            for seed in range(runs):
                rng = np.random.default_rng(seed)
                held += once(design, columns_of(shape, n, rng), truth, rng)
            rows.append([shape, f"{n:,}, {epsilon:g}", f"{np.mean(held):.3f}", f"{len(held) / 6 / runs:.2f}"])
            print(" | ".join(rows[-1]), flush=True)
    head = ("columns", "rows, epsilon", "coverage of 95 % intervals", "printed")
    write_table("joint/correlations", "Intervals of correlations from joint moments", head, rows, f"{runs} runs a cell.")


if __name__ == "__main__":
    run(main)
