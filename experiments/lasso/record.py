"""The default form and the paper's rounds, at record level and by value: excess risk with independent and with correlated columns (ours).

d = 100 columns (normal, half their range is two deviations) at four parties, six of them carry the response; correlation .5 within and across parties is one
common factor. Relative excess risk is (f(x) - f*) / (f(0) - f*) with the best constant, f* the optimum with |x|_1 <= 2: the mean has 1.
"""

from __future__ import annotations

import warnings

import numpy as np
from experiments.common import run, write_table
from experiments.lasso._scores import BOUND, COLUMNS, PARTIES, RADIUS, Moments

from unpooled import PrivateLasso


def simulated(n: int, seed: int, correlation: float) -> tuple[np.ndarray, np.ndarray]:
    """As ``_scores.simulated``, with one common factor of this strength."""
    rng = np.random.default_rng([seed, int(100 * correlation)])
    A = np.sqrt(1 - correlation) * rng.normal(size=(n, COLUMNS)) + np.sqrt(correlation) * rng.normal(size=(n, 1))
    A = np.clip(0.5 * A, -1, 1)
    x, size = np.zeros(COLUMNS), rng.uniform(0.5, 1, 6)
    x[rng.choice(COLUMNS, 6, replace=False)] = size * rng.choice([-1, 1], 6) * RADIUS / size.sum()
    return A, np.clip(A @ x + 0.3 * rng.normal(size=n), -BOUND, BOUND)


def lasso(epsilon: float, seed: int, unit: str, method: str) -> PrivateLasso:
    """Four parties, ranges as declared."""
    return PrivateLasso(
        PARTIES,
        radius=RADIUS / BOUND,  # in half ranges of y
        epsilon=epsilon,
        delta=1e-5,
        bounds=(-1, 1),
        y_bounds=(-BOUND, BOUND),
        unit=unit,
        method=method,
        random_state=seed,
    )


def excess(A: np.ndarray, y: np.ndarray, coefficients: np.ndarray) -> float:
    """Beside the best constant."""
    data = Moments.of(A - A.mean(axis=0), y - y.mean())
    return data.excess(coefficients, data.optimum())


def cell(n: int, epsilon: float, unit: str, method: str, correlation: float, runs: int) -> list[float]:
    """The excess risks of as many data sets."""
    found = []
    for seed in range(runs):
        A, y = simulated(n, seed, correlation)
        found.append(excess(A, y, lasso(epsilon, seed, unit, method).fit(A, y).coef_))
    return found


def expected(n: int, epsilon: float, unit: str, correlation: float) -> float:
    """Return what the outlook expects of this law, in the units of the table."""
    A, y = simulated(n, 0, correlation)
    r2 = 1 - 0.3**2 / float(y.var())
    law = {"r2": r2, "correlation": correlation, "shapes": "normal"}
    outlook = lasso(epsilon, 0, unit, "moments").outlook(n, A.shape[1], **law)
    return (outlook.error - (1 - r2)) / r2


def main(full: bool) -> None:
    """Two sizes, both units, both forms."""
    warnings.simplefilter("ignore", UserWarning)
    runs, rows = (12 if full else 3), []
    for n in (2000, 20_000):
        for epsilon in (0.1, 0.3, 1.0, 3.0, 10.0) if full else (1.0, 10.0):
            for unit in ("record", "attribute"):
                line = [f"{n}, {epsilon:g}, {unit}"]
                for method, correlation in (("moments", 0.0), ("moments", 0.5), ("frank-wolfe", 0.0), ("frank-wolfe", 0.5)):
                    found = cell(n, epsilon, unit, method, correlation, runs if method == "moments" else min(runs, 3))
                    line.append(f"{np.median(found):.3f} ({max(found):.2f})")
                line += [f"{expected(n, epsilon, unit, correlation):.2f}" for correlation in (0.0, 0.5)]
                rows.append(line)
                print(line, flush=True)
    header = [
        "n, eps, unit",
        "moments",
        "moments, correlated .5",
        "rounds",
        "rounds, correlated .5",
        "moments, expected",
        "correlated .5, expected",
    ]
    title = f"Relative excess risk, d = {COLUMNS}, four parties: median of {runs} data sets (worst; rounds: of 3)"
    notes = "The mean has 1. 'Expected' is the mean of the outlook, of columns of this law: normal, and as correlated as those of the table."
    write_table("lasso/record", title, header, rows, notes)


if __name__ == "__main__":
    run(main)
