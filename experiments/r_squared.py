"""R^2 of a linear table: its error and the coverage of its 95 % interval, by the rule of the package and by two others, from the same fits.

``released``: 1 less the released residual variance over the released variance of the response, both drawn independently (the rule before 2026-11-28).
``moments``: the variance of the fitted values of shortened rows, as it is, over itself and the residual variance. Declared shapes only: five columns.
Joint moments of two parties, played with the planned noise, have a table of their own.
"""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
from experiments.common import run, write_table

from unpooled import PrivateLinearRegression
from unpooled.linear.inference import Bootstrap, centred
from unpooled.linear.moments import Moments
from unpooled.models.bayes.columns import design_of
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, HelperCard, Study
from unpooled.privacy.table import Table
from unpooled.products.moments import imagine

TRUTHS, ROWS, EPSILONS, SHAPES = (0.0, 0.17, 0.5), (2000, 20_000), (1.0, 3.0), ("normal", "skewed")
SLOPES = np.array([1.0, -1.0, 0.5, 0.5, 1.0])
#: Half of the declared range of the response, in its deviations.
HALF, COLUMN = 10.0, 4.0
DRAWN = 999


def simulated(
    n: int, truth: float, shape: str, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, tuple[float, float]]:
    """Rows of independent columns of variance 1, a response of variance 1, and the declared range of the columns."""
    if shape == "skewed":
        rows, range_ = rng.exponential(size=(n, SLOPES.size)).clip(0, 8) - 1, (-1.0, 7.0)
    else:
        rows, range_ = rng.normal(size=(n, SLOPES.size)).clip(-COLUMN, COLUMN), (-COLUMN, COLUMN)
    slopes = SLOPES * math.sqrt(truth) / np.linalg.norm(SLOPES)
    return rows, (rows @ slopes + math.sqrt(1 - truth) * rng.normal(size=n)).clip(-HALF, HALF), range_


def of_released(moments: Moments, rng: np.random.Generator) -> tuple[float, float, float]:
    """R^2 with its interval, of the two released variances alone."""
    residual, n = moments.least_squares()[2], moments.rows
    value, spread = moments.frame.variance
    error = math.hypot(residual * math.sqrt(2 / n), math.sqrt(moments.frame.squares[1]) / n)
    drawn = rng.standard_normal((2, DRAWN))
    total = value + math.hypot(value * math.sqrt(2 / n), math.sqrt(spread)) * drawn[1]
    found = np.clip(1 - np.maximum(residual + error * drawn[0], 0) / np.maximum(total, 1e-300), 0, 1)
    low, high = np.quantile(found, [0.025, 0.975])
    return float(np.clip(1 - residual / max(value, 1e-300), 0, 1)), float(low), float(high)


def of_moments(moments: Moments) -> float:
    """R^2 of shortened rows."""
    b, _, residual = moments.least_squares()
    k = moments.layout.size - 1
    fitted = float(b[:k] @ centred(moments.known.matrix, moments.rows, intercept=True) @ b[:k])
    return fitted / (fitted + residual)


def of_joint(rows: int, epsilon: float, truth: float, runs: int) -> list[str]:
    """A line of the table of joint moments: normal columns, one at each of two parties."""
    cards = (Card("a", rows, (Column("x0", -4, 4),)), Card("b", rows, (Column("x1", -4, 4), Column("y", -5, 5))))
    given = {"response": "y", "split": "columns", "method": "moments"}
    design = design_of(Study("bayes", cards, epsilon, 1e-6, parameters=given, derived=(), helpers=(HelperCard("h"),)))
    found = []
    for seed in range(runs):
        rng = np.random.default_rng([seed, rows])
        X = rng.normal(size=(rows, 2)).clip(-4, 4)
        y = (X @ [1.0, -1.0] * math.sqrt(truth / 2) + math.sqrt(1 - truth) * rng.normal(size=rows)).clip(-5, 5)
        tables = {"a": Table({"x0": X[:, 0]}), "b": Table({"x1": X[:, 1], "y": y})}
        value, (low, high) = Bootstrap(imagine(design, tables, rng), rng).r_squared(0.95)
        found.append((value - truth, low <= truth <= high, high - low))
    bias, inside, width = np.mean(found, axis=0)
    return [f"{truth:g}, {rows}, {epsilon:g}", f"{bias:+.3f}", f"{inside:.2f}", f"{width:.3f}"]


def joint(full: bool) -> None:
    """Write the table of joint moments: 100 runs a cell; 400 in full."""
    cells = itertools.product((4000, 20_000), EPSILONS, (*TRUTHS, 0.7))
    write_table(
        "regression/r_squared_joint",
        "R^2 of joint moments (delta = 1e-6, two parties and a helper)",
        ["truth, n, eps", "bias", "coverage", "width"],
        [of_joint(rows, epsilon, truth, 400 if full else 100) for rows, epsilon, truth in cells],
    )


def main(full: bool) -> None:
    """60 fits a cell; 200 in full."""
    warnings.simplefilter("ignore")
    joint(full)
    lines = []
    for shape, truth, n, epsilon in itertools.product(SHAPES, TRUTHS, ROWS, EPSILONS):
        ours, before, others = [], [], []
        for seed in range(200 if full else 60):
            rng = np.random.default_rng([seed, n])
            X, y, range_ = simulated(n, truth, shape, rng)
            model = PrivateLinearRegression(
                epsilon=epsilon, bounds=range_, y_bounds=(-HALF, HALF), method="refinement", random_state=seed
            ).fit(X, y)
            moments = model.moments_
            value, (low, high) = Bootstrap(moments, rng).r_squared(0.95)
            ours.append((value, low, high))
            before.append(of_released(moments, rng))
            others.append(of_moments(moments))
        cell = []
        for found in (np.array(before), np.array(ours)):
            inside = (found[:, 1] <= truth) & (truth <= found[:, 2])
            printed = float(np.mean(found[:, 0] < 0.0005))
            width = float(np.median(found[:, 2] - found[:, 1]))
            bias = float(found[:, 0].mean()) - truth
            cell += [f"{bias:+.3f}", f"{printed:.2f}", f"{inside.mean():.2f}", f"{width:.3f}"]
        lines.append([f"{shape}, {truth:g}, {n}, {epsilon:g}", *cell, f"{float(np.mean(others)) - truth:+.3f}"])
        print(lines[-1], flush=True)
    head = ("bias", "printed 0.000", "coverage", "width")
    write_table(
        "regression/r_squared",
        "R^2 by the rule of released variances alone, by ours, and by the moments of shortened rows (delta = 1e-5, replace, one site, refinement)",
        ["columns, truth, n, eps", *(f"{rule}: {name}" for rule in ("released", "ours") for name in head), "moments: bias"],
        lines,
    )


if __name__ == "__main__":
    run(main)
