"""Coverage of 95 % intervals of generalised linear models (``models/glm/THEORY.md``, section 3), on declared shapes."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
from experiments.common import run, write_table
from scipy.special import expit

from unpooled import PrivateGLM

#: (family, range of the response, mean response)
FAMILIES = (
    ("logistic", None, 0.4),
    ("poisson", (0, 10), 1.0),
    ("gamma", (0.01, 10), 1.0),
    ("negative-binomial", (0, 20), 1.0),
)
ROWS, COLUMNS, EPSILONS = (5000, 50_000), (5, 20), (1.0, 3.0)
#: Half range in deviations, and the deviation of the linear predictor.
HALF, SIGNAL = 4.0, 0.7


def simulated(family: str, mean: float, n: int, d: int, rng: np.random.Generator):
    """Rows, responses and coefficients: the last third of them 0."""
    X = rng.normal(size=(n, d)).clip(-HALF, HALF)
    beta = rng.normal(size=d)
    beta[-(d // 3) :] = 0.0
    beta *= SIGNAL / np.linalg.norm(beta)
    u = X @ beta
    if family == "logistic":
        return X, (rng.random(n) < expit(u + np.log(mean / (1 - mean)))).astype(int), beta
    m = mean * np.exp(u - SIGNAL**2 / 2)
    if family == "gamma":
        return X, m * rng.gamma(2.0, 0.5, n), beta
    return X, rng.poisson(m if family == "poisson" else m * rng.gamma(1.0, 1.0, n)), beta


def measured(family: str, bounds, mean: float, n: int, d: int, epsilon: float, seed: int) -> tuple[list[bool], int, float]:
    """Hits of the intervals of one fit, how many coefficients it tells of, and the median of its standard errors' privacy parts."""
    X, y, beta = simulated(family, mean, n, d, np.random.default_rng([seed, n, d]))
    own = {"classes": (0, 1)} if bounds is None else {"y_bounds": bounds}
    model = PrivateGLM(family, epsilon=epsilon, delta=1e-5, bounds=(-HALF, HALF), random_state=seed, **own).fit(X, y)
    if model.method_ != "newton":
        return [], 0, np.nan
    terms = model.summary().terms[:d]
    hits = [t.conf_low <= b <= t.conf_high for t, b in zip(terms, beta, strict=True) if t.identified]
    return hits, len(hits), float(np.median([t.privacy / t.std_error for t in terms]))


def main(full: bool) -> None:
    """400 / d fits a cell; 4000 / d in full."""
    warnings.simplefilter("ignore")
    rows = []
    for (family, bounds, mean), n, d, epsilon in itertools.product(FAMILIES, ROWS, COLUMNS, EPSILONS):
        fits = (4000 if full else 400) // d
        found = [measured(family, bounds, mean, n, d, epsilon, seed) for seed in range(fits)]
        hits = [hit for one, _, _ in found for hit in one]
        told = sum(count for _, count, _ in found) / (fits * d)
        covered = f"{np.mean(hits):.3f}" if hits else "none"
        rows.append([f"{family}, {n}, {d}, {epsilon:g}", f"{told:.2f}", covered, f"{np.median([p for *_, p in found]):.2f}"])
        print(rows[-1], flush=True)
    write_table(
        "glm/coverage",
        "Coverage of 95 % intervals of coefficients (delta = 1e-5, replace, one site; none: no standard errors, or none identified)",
        ["family, n, d, eps", "identified", "covered", "privacy part of the standard error"],
        rows,
    )


if __name__ == "__main__":
    run(main)
