"""Coverage of 95 % intervals of the default regression (``models/bayes/THEORY.md``, section 10): coefficients, predictions, R^2; p-values under nothing.

Declared shapes only: normal columns (independent, or with one common factor), ranges of several deviations, known coefficients.
"""

from __future__ import annotations

import itertools
import warnings

import numpy as np
from experiments.common import run, write_table

from unpooled import PrivateLinearRegression

ROWS, EPSILONS, COLUMNS = (500, 5000, 50_000), (0.3, 1.0, 3.0), (2, 10)
#: (half range in deviations, residual deviation beside that of y, correlation)
SHAPES = ((3.0, 0.55, 0.0), (3.0, 0.22, 0.5), (8.0, 0.55, 0.5), (15.0, 0.84, 0.0))


def simulated(n: int, d: int, noise: float, correlation: float, rng: np.random.Generator):
    """Rows, response of variance 1, coefficients: the last half of them 0."""
    rows = np.sqrt(1 - correlation) * rng.normal(size=(n, d)) + np.sqrt(correlation) * rng.normal(size=(n, 1))
    beta = rng.normal(size=d)
    beta[d // 2 :] = 0.0
    sigma = (1 - correlation) * np.eye(d) + correlation
    beta *= np.sqrt((1 - noise**2) / (beta @ sigma @ beta))
    return rows, rows @ beta + noise * rng.normal(size=n), beta


def measured(n: int, d: int, epsilon: float, shape: tuple[float, float, float], seed: int) -> dict[str, list[float]]:
    """Hits of every kind of interval of one fit; nothing where the fit says that it has none."""
    half, noise, correlation = shape
    rng = np.random.default_rng([seed, n, d])
    X, y, beta = simulated(n, d, noise, correlation, rng)
    bounds = {"bounds": (-half, half), "y_bounds": (-half, half), "delta": 1e-5}
    model = PrivateLinearRegression(epsilon=epsilon, **bounds, random_state=seed).fit(X, y)
    found: dict[str, list[float]] = {"fits": [1.0], "told": []}
    if not hasattr(model, "moments_"):
        return found
    table = model.summary()
    slopes = table.terms[:d]
    known = np.array([t.identified for t in slopes])
    found["told"] = [float(known.mean())]
    found["summary"] = [float(t.conf_low <= b <= t.conf_high) for t, b in zip(slopes, beta, strict=True) if t.identified]
    found["p"] = [t.p_value for t, b in zip(slopes, beta, strict=True) if t.identified and b == 0]
    low, high = model.credible_interval().T
    found["posterior"] = ((low <= beta) & (beta <= high))[known].astype(float).tolist()
    if known.all():
        new, response, _ = simulated(200, d, noise, correlation, rng)
        response = new @ beta + noise * rng.normal(size=200)
        mean, deviation = model.predict(new, return_std=True)
        found["predictions"] = [float(np.mean(np.abs(response - mean) <= 1.96 * deviation))]
        low, high = table.r_squared_interval
        found["R2"] = [float(low <= 1 - noise**2 <= high)]
    return found


def main(full: bool) -> None:
    """40 fits a cell (12 at 50,000 rows); 400 and 100 in full."""
    warnings.simplefilter("ignore")
    rows = []
    pooled: list[float] = []
    for n, d, epsilon, shape in itertools.product(ROWS, COLUMNS, EPSILONS, SHAPES):
        fits = (100 if n > 10_000 else 400) if full else (12 if n > 10_000 else 40)
        all_found: dict[str, list[float]] = {}
        for seed in range(fits):
            for key, values in measured(n, d, epsilon, shape, seed).items():
                all_found.setdefault(key, []).extend(values)
        pooled += all_found.get("p", [])
        told = np.sum(all_found["told"]) / fits
        cell = [
            f"{np.mean(all_found[k]):.3f}" if all_found.get(k) else "none"
            for k in ("summary", "posterior", "predictions", "R2")
        ]
        half, noise, correlation = shape
        rows.append([f"{n}, {d}, {epsilon:g}, {half:g}, {noise:g}, {correlation:g}", f"{told:.2f}", *cell])
        print(rows[-1], flush=True)
    write_table(
        "regression/coverage",
        "Coverage of 95 % intervals (delta = 1e-5, replace, one site; none: the fit says that it has no standard errors)",
        ["n, d, eps, half range, residual, correlation", "identified", "summary", "posterior", "predictions", "R^2"],
        rows,
    )
    from scipy.stats import kstest

    p = np.array(pooled)
    write_table(
        "regression/p_values",
        "p-values of coefficients that are 0, all cells together",
        ["count", "below .05", "Kolmogorov-Smirnov p"],
        [[f"{p.size}", f"{np.mean(p < 0.05):.3f}", f"{kstest(p, 'uniform').pvalue:.3f}"]],
    )


if __name__ == "__main__":
    run(main)
