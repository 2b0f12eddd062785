"""From which budget on a table has lines: the k (rows times mu, for each coefficient) at which the second moments of a fit tell of its columns.

Declared shapes of the outlook (normal, skewed and nearly equal columns with one common factor of .5, on ranges of four deviations), half of the columns
numbers and the others of two levels; R^2 or its like .3; delta = 1e-5, replace, one party. Each cell solves for the epsilon that has its k, fits whole
studies by the method that makes tables, and counts the lines of the table beside those of the declared terms.
"""

from __future__ import annotations

import itertools
import warnings
from functools import partial

import numpy as np
import pandas as pd
from experiments.cells import kept
from experiments.common import run, write_table

import unpooled
from unpooled.estimation.outlook import SHAPES, made_up_rows
from unpooled.privacy.bounds import Column
from unpooled.totals.rounds import strength

MODELS, COLUMNS, ROWS = ("linear", "logistic", "poisson"), (3, 8), (1000,)
BUDGETS = (15, 20, 30, 40, 50)
RUNS, EXPECTED = 30, 0.8


def declared(columns: int) -> dict[str, object]:
    """Return the bounds of so many columns: numbers, and from the second on every other one of two levels."""
    return {f"x{j}": ["a", "b"] if j % 2 else (-4.0, 4.0) for j in range(columns)}


def estimator(model: str, columns: int, epsilon: float, seed: int | None = None) -> object:
    """Return the estimator whose method makes tables."""
    about = {"epsilon": epsilon, "delta": 1e-5, "bounds": declared(columns), "random_state": seed}
    if model == "linear":
        return unpooled.PrivateLinearRegression(method="refinement", y_bounds=(-4.0, 4.0), **about)
    if model == "logistic":
        return unpooled.PrivateGLM(method="newton", classes=[0, 1], **about)
    return unpooled.PrivateGLM("poisson", method="newton", y_bounds=(0.0, 20.0), **about)


def budget(model: str, columns: int, rows: int, epsilon: float) -> float:
    """Return the k of a study."""
    design = estimator(model, columns, epsilon).plan(rows, columns).design
    coefficients = design.layout.unit_columns + 1
    return strength(estimator(model, columns, epsilon).plan(rows, columns).study, design.aggregation) / coefficients


def epsilon_of(model: str, columns: int, rows: int, k: float) -> float:
    """Return the epsilon at which a study has this k, by halving."""
    low, high = 0.01, 200.0
    for _ in range(18):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if budget(model, columns, rows, middle) < k else (low, middle)
    return high


def made_up(model: str, columns: int, rows: int, shape: str, seed: int) -> tuple[dict[str, object], np.ndarray]:
    """Return columns and responses of a study."""
    features = tuple(
        Column(name, categories=tuple(kind)) if isinstance(kind, list) else Column(name, *kind)
        for name, kind in declared(columns).items()
    )
    rng = np.random.default_rng([seed, columns, rows])
    table = made_up_rows(features, Column("y", -4.0, 4.0), rows, 0.3, 0.5, 4.0, rng, shape=shape)
    found = {feature.name: table[feature.name] for feature in features}
    line = np.asarray(table["y"], dtype=float)
    if model == "logistic":
        return found, (rng.logistic(size=rows) < line * np.sqrt(3.0)).astype(int)
    return (found, np.minimum(rng.poisson(np.exp(0.6 * line)), 20)) if model == "poisson" else (found, line)


def cell(model: str, columns: int, rows: int, shape: str, k: float) -> list[float]:
    """Return the part of the declared lines that is printed, of each run."""
    epsilon, parts = epsilon_of(model, columns, rows, k), []
    for seed in range(RUNS):
        frame, y = made_up(model, columns, rows, shape, seed)
        fit = estimator(model, columns, epsilon, seed).fit(pd.DataFrame(frame), y)
        printed = [term for term in fit.summary().terms if term.term != "(intercept)"]
        parts.append(len(printed) / columns)
    return parts


def main(full: bool) -> None:  # noqa: ARG001 - one size
    """Make the table."""
    warnings.simplefilter("ignore", UserWarning)
    lines = []
    for model, shape in itertools.product(MODELS, SHAPES):
        for k in BUDGETS:
            cells = [(model, c, n, shape, k) for c in COLUMNS for n in ROWS]
            found = [kept(list(one), partial(cell, *one)) for one in cells]
            some = [float(np.mean(np.array(parts) > 0)) for parts in found]
            lines_of = [float(np.mean(parts)) * one[1] for parts, one in zip(found, cells, strict=True)]
            lines.append(
                [
                    model,
                    shape,
                    f"{k:g}",
                    f"{min(some):.2f}",
                    f"{np.mean(some):.2f}",
                    f"{min(lines_of):.1f}",
                    f"{np.mean(lines_of):.1f}",
                ]
            )
    header = ("model", "shape", "k", "some line, worst cell", "mean", "lines, worst cell", "mean")
    write_table("worth_lines", "From which budget on a table has lines", header, lines)


if __name__ == "__main__":
    run(main)
