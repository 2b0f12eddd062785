"""From which k on a refinement needs no rounds: one release of second moments against rounds of gradients, on declared shapes.

k is n mu / D: rows times the budget's mu, for each coefficient. Columns have variance 1 and ranges of six deviations, R^2 is .64, whole fits at one
site. Test error is over the variance of the residuals, from the coefficients and the true ones over new rows; width is the mean standard error of
slopes. Each cell has 20 seeds (reduced: 5). The switch, ``WITHOUT_ROUNDS``, was fixed by the cells below it and at it.
"""

from __future__ import annotations

import math
import time
import warnings

import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table

from unpooled import PrivateLinearRegression
from unpooled.linear import schedule as schedules

SHAPES = ("independent", "one factor", "skewed", "heavy-tailed", "near copy")
SIZES = (
    (5000, 10, 1.0),
    (20_000, 10, 1.0),
    (50_000, 10, 1.0),
    (50_000, 30, 1.0),
    (130_000, 30, 1.0),
    (230_000, 50, 1.0),
    (100_000, 10, 3.0),
)
SEEDS, FEW, NEW = 20, 5, 2000
HEAD = (
    "shape",
    "rows, columns, epsilon",
    "k",
    "test error",
    "width",
    "coverage",
    "coverage of rounds",
    "CPU s",
    "CPU s of rounds",
)


def columns_of(shape: str, count: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """Columns of mean 0 and variance 1."""
    x = rng.normal(size=(count, d))
    if shape == "one factor":
        return np.clip(math.sqrt(0.2) * x + math.sqrt(0.8) * rng.normal(size=(count, 1)), -6, 6)
    if shape == "skewed":
        x = rng.exponential(size=(count, d)) - 1
    if shape == "heavy-tailed":
        x = rng.standard_t(4, size=(count, d)) / math.sqrt(2)
    if shape == "near copy":
        x[:, 1] = x[:, 0] + 0.1 * rng.normal(size=count)
    return np.clip(x, -6, 6)


def once(shape: str, n: int, d: int, epsilon: float, seed: int, start: float) -> tuple[list[float], float]:
    """Test error, width, coverage and seconds of one fit whose refinement has no rounds from this k on; and its k."""
    rng = np.random.default_rng(seed)
    x, b = columns_of(shape, n + NEW, d, rng), rng.normal(size=d)
    signal = x @ b
    b = 0.8 * b / signal.std()
    y = np.clip(x @ b + 0.6 * rng.normal(size=n + NEW), -6, 6)
    schedules.WITHOUT_ROUNDS = start
    began = time.process_time()
    given = {"bounds": (-6, 6), "y_bounds": (-6, 6), "method": "refinement", "random_state": seed}
    model = PrivateLinearRegression(epsilon=epsilon, delta=1e-6, **given).fit(x[:n], y[:n])
    table = {term.term: term for term in model.summary().terms}
    spent = time.process_time() - began
    own = [(table[f"x{j}"], b[j]) for j in range(d) if f"x{j}" in table]
    error = 1 + float(np.mean((x[n:] @ (model.coef_ - b) + model.intercept_) ** 2)) / 0.36
    width = float(np.mean([term.std_error for term, _ in own]))
    held = float(np.mean([abs(term.estimate - truth) < 1.96 * term.std_error for term, truth in own]))
    design = model.plan_.design
    k = n * design.aggregation.multiplier(model.plan_.study) / (d + 1)
    return [error, width, held, spent], k


def main(full: bool) -> None:
    """All cells."""
    warnings.simplefilter("ignore")
    rows, usual = [], schedules.WITHOUT_ROUNDS
    for shape in SHAPES:
        for size in SIZES:
            one, other = (
                [
                    kept([shape, *size, seed, start], lambda a=(shape, *size, seed, start): once(*a))
                    for seed in range(SEEDS if full else FEW)
                ]
                for start in (0.0, math.inf)
            )
            a, b = (np.nanmean([numbers for numbers, _ in runs], axis=0) for runs in (one, other))
            numbers = [
                f"{one[0][1]:.0f}",
                f"{a[0] / b[0]:.4f}",
                f"{a[1] / b[1]:.3f}",
                *(f"{v:.3f}" for v in (a[2], b[2], a[3], b[3])),
            ]
            rows.append([shape, "{:,}, {}, {:g}".format(*size), *numbers])
            print(" | ".join(rows[-1]), flush=True)
    words = f"Test error and width are those of one release over those of the rounds. The program has no rounds from k = {usual:g} on."
    write_table("bayes/without_rounds", "One release of moments in the place of rounds", HEAD, rows, words)


if __name__ == "__main__":
    run(main)
