"""Coverage of posterior intervals over slopes drawn from the stated prior, with the Gram's own uncertainty and without (``models/bayes/THEORY.md``, B.4).

Rows of length 1, inside a box, correlated, not centred, of two widths, and with neighbours correlated .8; ten sites, a constant, y about the slopes
with deviation 1. Each release is scored twice: by the posterior that averages over likely Grams, and with the Gram taken as it was released.
"""

from __future__ import annotations

import numpy as np
from experiments.bayes._blr import Blr, unit_rows
from experiments.cells import kept
from experiments.common import run, write_table

from unpooled import Bounds
from unpooled.linear.moments import Moments

SHAPES = ((200, 2, 0.5), (500, 5, 0.1), (500, 5, 0.5), (500, 5, 2.0), (2000, 5, 0.3), (2000, 20, 3.0), (20_000, 20, 1.0))
KINDS = ("unit", "box", "correlated", "not centred", "two widths", "neighbours")


def rows_of(kind: str, n: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of one kind, inside their declared bounds."""
    z = rng.normal(size=(n, d))
    if kind == "unit":
        return unit_rows(z)
    if kind == "box":
        return rng.uniform(-1, 1, (n, d))
    if kind == "not centred":
        return rng.uniform(0, 1, (n, d))
    if kind == "two widths":
        return np.clip(z * np.where(np.arange(d) % 2, 0.1, 0.5), -1, 1)
    if kind == "correlated":
        return np.clip((0.9**0.5 * rng.normal(size=(n, 1)) + 0.1**0.5 * z) / 3, -1, 1)
    for j in range(1, d):
        z[:, j] = 0.8 * z[:, j - 1] + 0.6 * z[:, j]
    return np.clip(z / 3, -1, 1)


def scored(moments: Moments, slopes: np.ndarray, precision: float) -> list[list[float]]:
    """Return coverage, squared error and posterior variance of the slopes; then the same for the Gram as it was released."""
    prior, found = moments.frame.prior_of(precision, intercept=moments.layout.intercept), []
    for known in (moments.of_unknown_gram, moments.noisy):  # both forms from the same release
        fit = known.averaged(float("nan"), [prior], 1 / moments._unit)  # noqa: SLF001
        own = moments._in_own_units(fit.mean, fit.covariance, fit.noise_variance)  # noqa: SLF001
        off, variance = own.coef_ - slopes, own.covariance_.diagonal()
        found.append([float(np.mean(off**2 < 1.96**2 * variance)), float(np.mean(off**2)), float(np.mean(variance))])
    return found


def played(kind: str, n: int, d: int, epsilon: float, sets: int) -> list[list[float]]:
    """Return the means of the scores over data sets."""
    rng, precision = np.random.default_rng([n, d]), 1.0
    bound = 4 * np.sqrt(1 + (1 if kind == "unit" else d / 3))
    bounds = {"bounds": Bounds(norm=1.0)} if kind == "unit" else {}
    study = Blr(n, d, epsilon, bound, delta=1e-5, **bounds)
    found = []
    for _ in range(sets):
        X, slopes = rows_of(kind, n, d, rng), rng.normal(size=d)
        y = np.clip(X @ slopes + rng.normal(size=n), -bound, bound)
        found.append(scored(study.moments(X, y, rng), slopes, precision))
    return np.mean(found, axis=0).tolist()


def main(full: bool) -> None:
    """60 data sets a cell; 200 in full."""
    rows = []
    for kind in KINDS:
        for n, d, epsilon in SHAPES:
            now, before = kept([kind, n, d, epsilon], lambda a=(kind, n, d, epsilon): played(*a, 200 if full else 60))
            numbers = [f"{now[0]:.3f}", f"{before[0]:.3f}", *(f"{v:.3g}" for v in (now[1], before[1], now[2], before[2]))]
            rows.append([f"{kind}, {n}, {d}, {epsilon:g}", *numbers])
            print(rows[-1], flush=True)
    write_table(
        "bayes/slopes_of_the_prior",
        "Posterior intervals (95 %) over slopes drawn from N(0, 1), ten sites (delta = 1e-5, replace)",
        [
            "rows, n, d, eps",
            "covered",
            "covered, Gram as released",
            "squared error",
            "squared error, Gram as released",
            "posterior variance",
            "posterior variance, Gram as released",
        ],
        rows,
        "Squared errors and variances are means over slopes; the prior's variance is 1.",
    )


if __name__ == "__main__":
    run(main)
