"""Coverage of 95 % intervals of the regression where what the columns leave is skewed (``models/bayes/THEORY.md``, section 9).

Four uniform columns, residuals of variance 1 about coefficients .4, -.3, .2 and 0: normal, exponential, log-normal with deviations .6 and 1 of the
logarithm; of one spread, or of one that grows with the first column (1 + .4 x). The range of the response is declared as -10 to 20.
"""

from __future__ import annotations

import itertools
import math
import warnings
from typing import TYPE_CHECKING

import numpy as np
from experiments.common import run, write_table

from unpooled import PrivateLinearRegression

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

CELLS, TRUTH, GROWS = ((5000, 2.0), (20_000, 1.0), (20_000, 4.0), (100_000, 2.0)), (0.4, -0.3, 0.2, 0.0), 0.4


def log_normal(rng: np.random.Generator, n: int, deviation: float) -> Numbers:
    """Mean 0 and variance 1."""
    square = deviation**2
    return (np.exp(deviation * rng.normal(size=n)) - math.exp(square / 2)) / math.sqrt(math.expm1(square) * math.exp(square))


RESIDUALS: dict[str, Callable[[np.random.Generator, int], Numbers]] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "exponential": lambda rng, n: rng.exponential(size=n) - 1,
    "log-normal .6": lambda rng, n: log_normal(rng, n, 0.6),
    "log-normal 1": lambda rng, n: log_normal(rng, n, 1.0),
}


def distances(shape: str, grows: bool, n: int, epsilon: float, seed: int) -> list[float]:
    """How many standard errors each coefficient, and last the intercept, is from the truth."""
    rng = np.random.default_rng([seed, n])
    X = rng.uniform(-2, 2, (n, 4))
    left = RESIDUALS[shape](rng, n) * (1 + GROWS * grows * X[:, 0])
    model = PrivateLinearRegression(
        epsilon=epsilon, delta=1e-5, bounds=(-2, 2), y_bounds=(-10, 20), method="refinement", random_state=seed
    )
    terms = model.fit(X, np.clip(X @ TRUTH + left, -10, 20)).summary().terms
    return [(t.estimate - true) / t.std_error for t, true in zip(terms, (*TRUTH, 0.0), strict=True)]


def main(full: bool) -> None:
    """40 fits a cell; 400 in full."""
    warnings.simplefilter("ignore")
    rows = []
    for (n, epsilon), shape, grows in itertools.product(CELLS, RESIDUALS, (False, True)):
        z = np.array([distances(shape, grows, n, epsilon, seed) for seed in range(400 if full else 40)])
        covered, off = (np.abs(z) < 1.96).mean(axis=0), z.mean(axis=0)
        numbers = [f"{covered[:4].mean():.2f}", f"{covered[4]:.2f}", f"{off[0]:.1f}", f"{off[4]:.1f}"]
        rows.append([f"{shape}{', spread grows' if grows else ''}, {n}, {epsilon:g}", *numbers])
        print(rows[-1], flush=True)
    write_table(
        "regression/coverage_of_tails",
        "Coverage of 95 % intervals by the tails of the response (delta = 1e-5, replace, one site)",
        ["residuals, n, eps", "slopes covered", "intercept covered", "mean error of the first slope", "of the intercept"],
        rows,
        "Errors in standard errors; chance alone makes them about .3 at reduced size.",
    )


if __name__ == "__main__":
    run(main)
