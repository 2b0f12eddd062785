"""Coverage of 95 % intervals, and what bounds and inference do to the error: tables of `models/bayes/THEORY.md`.

    python experiments/bayes_coverage.py [data sets]

Simulator: rows normal, of length 1; beta ~ N(0, I); y = x.beta + N(0, 1), clipped to +-Y.
"""

from __future__ import annotations

import sys

import numpy as np
from common import write_table

from unpooled import Bounds, PrivateBayesianRegression

COVERAGE = ((500, 0.5), (500, 1.0), (500, 10.0), (5000, 0.1), (5000, 1.0), (50_000, 1.0))
SETTINGS = ((10_000, 5.0), (1000, 5.0), (1000, 1.0))
FORMS = {
    "paper (12), classical sigma": {"calibration": "published"},
    "box": {"geometry": "box"},
    "ball, y rescaled": {},
    "ball, zero-out": {"adjacency": "zero-out"},
}


def simulated(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    beta = rng.normal(size=d)
    return X, X @ beta + rng.normal(size=n), beta


def measured(fit: PrivateBayesianRegression, beta: np.ndarray) -> tuple[float, float]:
    low, high = fit.credible_interval().T
    return float(np.mean((low <= beta) & (beta <= high))), float(np.mean((fit.coef_ - beta) ** 2))


def fitted(n: int, d: int, epsilon: float, y_bound: float, seed: int, **options: object) -> list[tuple[float, float]]:
    """(coverage, squared error) of the noise-aware and of the naive posterior of one release, and of OLS' intervals."""
    X, y, beta = simulated(n, d, seed)
    bounds = Bounds(-1, 1) if options.get("geometry") == "box" or "calibration" in options else Bounds(norm=1.0)
    aware = PrivateBayesianRegression(
        epsilon=epsilon,
        delta=1e-5,
        bounds=bounds,
        y_bounds=(-y_bound, y_bound),
        fit_intercept=False,
        random_state=seed,
        **options,
    ).fit(X, y)
    naive = PrivateBayesianRegression.from_moments(aware.moments_, posterior="naive")
    return [measured(aware, beta), measured(naive, beta)]


def main() -> None:
    sets = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    rows = []
    for n, epsilon in COVERAGE:
        private = np.mean([fitted(n, 5, epsilon, 4.0, seed) for seed in range(sets)], axis=0)
        exact = np.mean([fitted(n, 5, float("inf"), 4.0, seed) for seed in range(sets)], axis=0)
        rows.append(
            [f"{n}, {epsilon:g}", f"{exact[0, 0]:.3f}", f"{private[1, 0]:.3f}", f"{private[0, 0]:.3f}"]
            + [f"{np.sqrt(v):.3f}" for v in (exact[0, 1], private[1, 1], private[0, 1])]
        )
    write_table(
        "bayes_coverage",
        f"Coverage of 95 % intervals over {sets} data sets (d = 5, unit rows, Y = 4, delta = 1e-5, replace)",
        ["n, eps", "no noise", "naive", "noise-aware", "rmse: no noise", "naive", "noise-aware"],
        rows,
    )
    rows = []
    for n, epsilon in SETTINGS:
        for form, options in FORMS.items():
            found = np.array([fitted(n, 10, epsilon, 7.5, seed, **options) for seed in range(min(sets, 60))])
            rmse = np.sqrt(np.median(found[:, :, 1], axis=0))
            rows.append(
                [
                    f"{n}, {epsilon:g}",
                    form,
                    f"{rmse[1]:.3g}",
                    f"{rmse[0]:.3g}",
                    f"{found[:, 0, 0].mean():.3f}",
                    f"{found[:, 1, 0].mean():.3f}",
                ]
            )
    write_table(
        "bayes_bounds",
        "Bounds and inference (d = 10, Y = 7.5, unit rows): median rmse of the coefficients and coverage",
        ["n, eps", "form", "rmse, naive", "rmse, noise-aware", "coverage, noise-aware", "coverage, naive"],
        rows,
    )


if __name__ == "__main__":
    main()
