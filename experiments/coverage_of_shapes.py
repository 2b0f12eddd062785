"""Coverage of 95 % intervals where columns are not normal: shifted, correlated, skewed, rare (``models/glm/THEORY.md``, section 3).

Four columns; linear predictors have a deviation of .7. One in fifty of the first rare column is 1, one in ten of the second. Responses that can be
larger than any range are clipped to theirs: counts at 20, which up to one in a hundred exceed where columns are skewed.
"""

from __future__ import annotations

import itertools
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from experiments.common import run, write_table
from scipy.special import expit

from unpooled import PrivateGLM, PrivateLinearRegression

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

CELLS, COLUMNS, SIGNAL, CUTS = ((5000, 2.0), (20_000, 1.0), (20_000, 4.0)), 4, 0.7, (1.0, 2.0, 3.0, 4.0)
SHAPES: dict[str, tuple[tuple[float, float], Callable[[np.random.Generator, int], Numbers]]] = {
    "normal": ((-4, 4), lambda rng, n: rng.normal(size=(n, COLUMNS))),
    "uniform": ((-2, 3), lambda rng, n: rng.uniform(-2, 3, (n, COLUMNS))),
    "correlated": ((-4, 4), lambda rng, n: 0.8 * rng.normal(size=(n, 1)) + 0.6 * rng.normal(size=(n, COLUMNS))),
    "skewed": ((0, 20), lambda rng, n: rng.lognormal(0, 1, (n, COLUMNS))),
    "rare": ((-4, 4), lambda rng, n: np.column_stack([rng.random((n, 2)) < (0.02, 0.1), rng.normal(size=(n, 2))])),
}
FAMILIES = ("gaussian", "logistic", "poisson", "multinomial", "survival")


def distances(family: str, shape: str, n: int, epsilon: float, seed: int) -> list[float]:
    """How many standard errors each coefficient is from the truth; nan where it is not told."""
    rng = np.random.default_rng([seed, n, list(SHAPES).index(shape)])
    bounds, made = SHAPES[shape]
    X = np.clip(made(rng, n), *bounds)
    truth = rng.normal(size=COLUMNS)
    truth *= SIGNAL / (X @ truth).std()
    u = X @ truth - (X @ truth).mean()
    own: dict[str, Any] = {"epsilon": epsilon, "delta": 1e-5, "bounds": bounds, "random_state": seed}
    own |= {} if family == "gaussian" else {"method": "newton"}
    reference = {}
    if family == "gaussian":
        model: Any = PrivateLinearRegression(y_bounds=(-10, 10), **own).fit(X, np.clip(u + rng.normal(size=n), -10, 10))
    elif family == "logistic":
        model = PrivateGLM(family, classes=(0, 1), **own).fit(X, (rng.random(n) < expit(u - 0.4)).astype(int))
    elif family == "poisson":
        model = PrivateGLM(family, y_bounds=(0, 20), **own).fit(X, rng.poisson(np.exp(u - 0.25)).clip(0, 20))
    elif family == "multinomial":
        scores = np.column_stack([np.zeros(n), u, -0.5 * u])
        model = PrivateGLM(family, classes=(0, 1, 2), **own).fit(X, (scores + rng.gumbel(size=scores.shape)).argmax(axis=1))
        reference, truth = {"reference": 0}, np.concatenate([truth, -0.5 * truth])
    else:
        time, leaves = rng.exponential(size=n) / (0.3 * np.exp(u)), rng.uniform(0, 8, n)
        model = PrivateGLM(family, y_bounds=(0, 5), cuts=CUTS, **own)
        model.fit(X, np.minimum(time, leaves), event=time <= leaves)
    terms = [t for t in model.summary(**reference).terms if "intercept" not in t.term and "hazard" not in t.term]
    return [(t.estimate - v) / t.std_error if t.identified else np.nan for t, v in zip(terms, truth, strict=True)]


def main(full: bool) -> None:
    """40 fits a cell; 400 in full."""
    warnings.simplefilter("ignore")
    rows = []
    for family, shape, (n, epsilon) in itertools.product(FAMILIES, SHAPES, CELLS):
        z = np.array([distances(family, shape, n, epsilon, seed) for seed in range(400 if full else 40)])
        told = np.isfinite(z)
        covered = f"{np.mean(np.abs(z[told]) < 1.96):.3f}" if told.any() else "none"
        off = f"{np.abs(np.nanmean(z, axis=0)).max():.2f}" if told.any() else "-"
        rows.append([f"{family}, {shape}, {n}, {epsilon:g}", f"{told.mean():.2f}", covered, off])
        print(rows[-1], flush=True)
    write_table(
        "glm/coverage_of_shapes",
        "Coverage of 95 % intervals of coefficients, by the shape of the columns (delta = 1e-5, replace, one site)",
        ["family, columns, n, eps", "identified", "covered", "largest mean error of a coefficient, in standard errors"],
        rows,
        "The last column is of four or eight means over all fits, so chance alone makes it about .3 at reduced size.",
    )


if __name__ == "__main__":
    run(main)
