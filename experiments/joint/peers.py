"""Joint moments compared with what else protects whole persons where columns are split, as users call it: whole fits of the package.

The design is SPEC's: made-up rows of the prototype's shape, two parties with half of the columns each; and abalone, red wine and heart disease (Cleveland), cut
by columns in their order. Nothing was set aside for the joint LASSO: a first table of red wine and heart disease showed predictions far outside the
range of the response, and its constant and the rule that gives the mean (``models/lasso/THEORY.md``, 1d, steps 3 and 4) were mended on these two sets.
No other column was changed after a look at them. "Party alone" is the better of both parties' own least squares,
which needs no privacy and no other party, and "mean" predicts the mean. Errors are squared, of new rows, over the variance of the response;
every cell has 20 seeds, of data sets 20 random halves. Each cell is a file under build/joint, and runs continue there.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from experiments.common import data_file, run, write_table
from experiments.joint.coverage import WHERE, code
from experiments.regression_peers import abalone, red_wine, scaled

from unpooled import PrideRegressor, PrivateLasso, PrivateLinearRegression

SHAPES = ((2000, 8), (5000, 8), (20_000, 8), (5000, 30), (20_000, 30))
EPSILONS = (0.3, 1.0, 3.0)
SEEDS, FEW, TESTED = 20, 5, 2000
NAMES = ("joint moments", "joint LASSO", "PRIDE", "LASSO", "rows pooled, private", "party alone", "pooled, no privacy")
Set = tuple[np.ndarray, np.ndarray]


def heart() -> Set:
    """Thirteen measures of patients in Cleveland, those with missing values left out; whether there is heart disease."""
    lines = data_file("heart_cleveland.data").read_text().splitlines()
    table = np.array([[float(v) for v in line.split(",")] for line in lines if "?" not in line and line.count(",") > 12])
    ranges = [
        (20, 90),
        (0, 1),
        (1, 4),
        (80, 220),
        (100, 600),
        (0, 1),
        (0, 2),
        (60, 220),
        (0, 1),
        (0, 7),
        (1, 3),
        (0, 3),
        (3, 7),
    ]
    return scaled(table[:, :13], ranges), np.where(table[:, 13] > 0, 1.0, -1.0)


def made_up(n: int, d: int, seed: int) -> tuple[Set, Set]:
    """Rows of one factor with effects of all columns (R^2 about .8), and new ones."""
    rng = np.random.default_rng([seed, n, d])
    z = 0.7 * rng.normal(size=(n + TESTED, d)) + 0.5 * rng.normal(size=(n + TESTED, 1))
    b = rng.normal(size=d)
    signal = z @ b
    y = signal / signal.std() * math.sqrt(0.8) + math.sqrt(0.2) * rng.normal(size=n + TESTED)
    X, y = np.clip(z / 3, -1, 1), np.clip(y / 3, -1, 1)
    return (X[:n], y[:n]), (X[n:], y[n:])


def halves(data: Set, seed: int) -> tuple[Set, Set]:
    """Two thirds of the rows to fit, the rest to predict."""
    X, y = data
    order = np.random.default_rng(seed).permutation(len(y))
    cut = 2 * len(y) // 3
    return (X[order[:cut]], y[order[:cut]]), (X[order[cut:]], y[order[cut:]])


def errors(used: Set, new: Set, epsilon: float, seed: int) -> list[float]:
    """Errors in the order of ``NAMES``."""
    (X, y), (fresh, truth) = used, new
    d = X.shape[1]
    sides = {"one": list(range(d // 2)), "two": list(range(d // 2, d))}
    given = {"epsilon": epsilon, "bounds": (-1, 1), "y_bounds": (-1, 1), "random_state": seed}

    def error(found: np.ndarray) -> float:
        return float(np.mean((truth - found) ** 2) / truth.var())

    def least(columns: list[int]) -> float:
        rows = np.column_stack([X[:, columns], np.ones(len(y))])
        beta = np.linalg.lstsq(rows, y, rcond=None)[0]
        return error(np.column_stack([fresh[:, columns], np.ones(len(truth))]) @ beta)

    models = (
        PrivateLinearRegression(parties=sides, method="moments", **given),
        PrivateLasso(sides, unit="record", method="joint", **given),
        PrideRegressor(sides, unit="record", **given),
        PrivateLasso(sides, unit="record", **given),
        PrivateLinearRegression(**given),
    )
    found = [error(np.asarray(model.fit(X, y).predict(fresh)).reshape(-1)) for model in models]
    return [*found, min(least(own) for own in sides.values()), least(list(range(d)))]


def measured(name: str, making: Callable[[int], tuple[Set, Set]], epsilon: float, seeds: int) -> np.ndarray:
    """Errors of all seeds, those that are there already first."""
    file = Path(WHERE / f"peers-{name}-{epsilon:g}.json")
    found = json.loads(file.read_text()) if file.exists() else {}
    version = code("models/bayes", "models/lasso", "models/pride")
    if found.get("code") != version:
        found = {"code": version, "errors": []}
    while len(found["errors"]) < seeds:
        seed = len(found["errors"])
        found["errors"].append(errors(*making(seed), epsilon, seed))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(found))
    return np.array(found["errors"][:seeds])


def main(full: bool) -> None:
    """All cells."""
    warnings.simplefilter("ignore")  # fits that buy nothing warn of it
    seeds = SEEDS if full else FEW
    cells: list[tuple[str, Callable[[int], tuple[Set, Set]]]] = [
        (f"{n} x {d}", lambda seed, n=n, d=d: made_up(n, d, seed)) for n, d in SHAPES
    ]
    for name, data in (("abalone", abalone), ("red wine", red_wine), ("heart", heart)):
        cells.append((name, lambda seed, data=data: halves(data(), seed)))
    rows = []
    for name, making in cells:
        for epsilon in EPSILONS:
            found = measured(name.replace(" ", "-"), making, epsilon, seeds)
            rows.append([f"{name}, {epsilon:g}", *(f"{value:.3f}" for value in found.mean(axis=0))])
            print(" | ".join(rows[-1]), flush=True)
    words = f"Mean squared error of new rows over the variance of the response, {seeds} seeds; every promise is for whole persons."
    write_table("joint/peers", "Columns at two parties: what protects whole persons", ("data, epsilon", *NAMES), rows, words)


if __name__ == "__main__":
    run(main)
