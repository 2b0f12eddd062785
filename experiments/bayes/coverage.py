"""Coverage of 95 % intervals, and what bounds and inference do to the error: the table of ``models/bayes/THEORY.md`` (ours, not the paper's).

Simulator: rows normal, of length 1; beta ~ N(0, I); y = x.beta + N(0, 1), clipped to +-Y.
"""

from __future__ import annotations

import numpy as np
from experiments.bayes._blr import PAPER, Blr, ball, cell, unit_rows
from experiments.cells import kept
from experiments.common import run, write_table

from unpooled.linear.fit import LinearFit

COVERAGE = ((500, 0.5), (500, 1.0), (500, 10.0), (5000, 0.1), (5000, 1.0), (50_000, 1.0))
SETTINGS = ((10_000, 5.0), (1000, 5.0), (1000, 1.0))
FORMS = {
    "paper (12), classical sigma": PAPER,
    "box": {"geometry": "box", "fit_intercept": False},
    "ball, y rescaled": ball(),
    "ball, zero-out": {**ball(), "adjacency": "zero-out"},
}


def simulated(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, response, coefficients."""
    rng = np.random.default_rng(seed)
    X, beta = unit_rows(rng.normal(size=(n, d))), rng.normal(size=d)
    return X, X @ beta + rng.normal(size=n), beta


def measured(fit: LinearFit, beta: np.ndarray) -> tuple[float, float]:
    """Share of the coefficients in their intervals, mean squared error."""
    off = np.square(
        fit.coef_ - beta
    )  # fit.interval names none where mostly the prior speaks, and here the truth is drawn from the prior
    return float(np.mean(off <= 1.96**2 * fit.covariance_.diagonal())), float(np.mean(off))


def releases(n: int, d: int, epsilon: float, y_bound: float, sets: int, **options: object) -> np.ndarray:
    """Coverage and squared error of the noise-aware and of the naive posterior of one release, for every data set."""

    def once() -> list[list[tuple[float, float]]]:
        study, found = Blr(n, d, epsilon, y_bound, sites=1, **{"delta": 1e-5, **options}), []
        for seed in range(sets):
            X, y, beta = simulated(n, d, seed)
            moments = study.moments(X, y, np.random.default_rng([seed, n]))
            found.append([measured(moments.posterior(1.0, 1.0, naive=naive), beta) for naive in (False, True)])
        return found

    return np.array(kept([n, d, epsilon, y_bound, sets, *map(str, sorted(options.items()))], once))


def rmse(squares: np.ndarray) -> str:
    """The root of a mean of squared errors, and its standard error over data sets."""
    middle = float(np.sqrt(squares.mean()))
    return f"{middle:.3f} ± {squares.std(ddof=1) / np.sqrt(squares.size) / (2 * middle):.3f}"


def median(values: np.ndarray) -> str:
    """A median, and its standard error over 300 bootstrap samples."""
    rng = np.random.default_rng(0)
    spread = np.std([np.median(rng.choice(values, values.size)) for _ in range(300)])
    return f"{np.median(values):.3g} ± {spread:.2g}"


def main(full: bool) -> None:
    """200 data sets at both sizes; 1000 in full."""
    sets, rows = 1000 if full else 200, []
    for n, epsilon in COVERAGE:
        private, exact = (releases(n, 5, e, 4.0, sets, **ball()) for e in (epsilon, float("inf")))
        three = (exact[:, 0], private[:, 1], private[:, 0])
        rows.append([f"{n}, {epsilon:g}", *(cell(v[:, 0]) for v in three), *(rmse(v[:, 1]) for v in three)])
    write_table(
        "bayes/coverage",
        f"Coverage of 95 % intervals over {sets} data sets ± standard error (d = 5, unit rows, Y = 4, delta = 1e-5, replace)",
        ["n, eps", "no noise", "naive", "noise-aware", "rmse: no noise", "rmse: naive", "rmse: noise-aware"],
        rows,
    )
    rows = []
    for n, epsilon in SETTINGS:
        for form, options in FORMS.items():
            found = releases(n, 10, epsilon, 7.5, sets // 2, **options)
            errors, covered = np.sqrt(found[:, :, 1]), found[:, :, 0]
            numbers = [median(errors[:, 1]), median(errors[:, 0]), cell(covered[:, 0]), cell(covered[:, 1])]
            rows.append([f"{n}, {epsilon:g}", form, *numbers])
    write_table(
        "bayes/bounds",
        f"Bounds and inference (d = 10, Y = 7.5, unit rows): median rmse of the coefficients and coverage over {sets // 2} data sets, ± standard error",
        ["n, eps", "form", "rmse, naive", "rmse, noise-aware", "coverage, noise-aware", "coverage, naive"],
        rows,
    )


if __name__ == "__main__":
    run(main)
