"""Theorems 2 to 4 of the supplement: the distance to the non-private posterior falls like 1/n, so n times it must not rise."""

from __future__ import annotations

import numpy as np
from experiments.bayes._blr import DELTA, PAPER, Blr, ball
from experiments.cells import kept
from experiments.common import curves, run, write_table

from unpooled.privacy.accounting import gaussian_sigma

D, EPSILON, Y_BOUND = 5, 1.0, 4.0
SIZES = (1000, 10_000, 100_000)
FORMS = {
    "paper: (12), naive": {**PAPER},
    "ours, naive": {**ball(), "posterior": "naive"},
    "ours, noise-aware": ball(),
}


def simulated(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Unit rows, beta ~ N(0, I), noise of precision 1, y clipped."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, np.clip(X @ rng.normal(size=D) + rng.normal(size=n), -Y_BOUND, Y_BOUND)


def mean_error(n: int, rng: np.random.Generator) -> float:
    """Theorem 3: L1 distance of the private mean of n rows in the L1 ball of radius 1; it does not depend on the rows."""
    return float(np.abs(2 * gaussian_sigma(EPSILON, DELTA) * rng.normal(size=D)).sum() / n)


def posterior_errors(n: int, runs: int) -> dict[str, np.ndarray]:
    """Theorem 4: L1 distance of the posterior means, and the distance of the posteriors' deviations (L1 over coefficients)."""
    made = kept([n, runs], lambda: _posterior_errors(n, runs))
    return {form: np.array(values) for form, values in made.items()}


def _posterior_errors(n: int, runs: int) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {form: [] for form in FORMS}
    studies = {form: Blr(n, D, EPSILON, Y_BOUND, sites=1, **options) for form, options in FORMS.items()}
    exact = Blr(n, D, float("inf"), Y_BOUND, sites=1, **ball())
    for seed in range(runs):
        X, y = simulated(n, seed)
        rng = np.random.default_rng([seed, n])
        truth = exact.fit(X, y, rng)
        for form, study in studies.items():
            fit = study.fit(X, y, rng)
            with np.errstate(invalid="ignore"):  # the paper's precision may be indefinite: its posterior is then none
                spread = np.sqrt(np.diag(fit.covariance_)) - np.sqrt(np.diag(truth.covariance_))
            found[form].append((float(np.abs(fit.coef_ - truth.coef_).sum()), float(np.abs(spread).sum())))
    return found


def median(values: np.ndarray, digits: int = 0) -> tuple[float, str]:
    """Median with its bootstrap standard error."""
    if np.isnan(values).any():
        return float("nan"), f"none in {np.isnan(values).mean():.0%}"
    rng = np.random.default_rng(0)
    spread = np.std([np.median(rng.choice(values, values.size)) for _ in range(300)])
    return float(np.median(values)), f"{np.median(values):.{digits}f} ± {spread:.{digits}f}"


def shape(values: list[np.ndarray], sizes: tuple[int, ...]) -> list[str]:
    """Largest by smallest median, and the slope of the error over the last decade, with bootstrap standard errors."""
    rng, decade = np.random.default_rng(0), np.log10(sizes[-1] / sizes[-2])

    def of(middles: np.ndarray) -> tuple[float, float]:
        return float(middles.max() / middles.min()), float(np.log10(middles[-1] / middles[-2]) / decade - 1)

    drawn = np.array([of(np.array([np.median(rng.choice(v, v.size)) for v in values])) for _ in range(300)])
    found = of(np.array([np.median(v) for v in values]))
    return [f"{middle:.2f} ± {spread:.2f}" for middle, spread in zip(found, drawn.std(axis=0), strict=True)]


def main(full: bool) -> None:
    """Medians: where noise makes the Gram matrix indefinite, errors of the paper's form have no mean to speak of."""
    runs, sizes = (200, (*SIZES, 1_000_000)) if full else (150, SIZES)
    rng = np.random.default_rng(1)
    lines = {"Theorem 3: mean": [n * np.array([mean_error(n, rng) for _ in range(20 * runs)]) for n in sizes]}
    spreads: dict[str, list[np.ndarray]] = {}
    for n in sizes:
        for form, errors in posterior_errors(n, runs if n < 1_000_000 else runs // 8).items():
            lines.setdefault(f"Theorem 4: {form}", []).append(n * errors[:, 0])
            spreads.setdefault(form, []).append(n * errors[:, 1])
    rows, drawn = [], {}
    for name, values in lines.items():
        middles = [median(v)[0] for v in values]
        rows.append([name, *(median(v)[1] for v in values), *shape(values, sizes)])
        quartiles = np.quantile(values, [0.25, 0.75], axis=1) if len({v.size for v in values}) == 1 else None
        band = quartiles if quartiles is not None else np.array([[np.quantile(v, q) for v in values] for q in (0.25, 0.75)])
        drawn[name] = (np.array(sizes), np.array(middles), band)
    header = ["what", *(f"n = {n}" for n in sizes), "largest / smallest", "slope of the error, last decade"]
    write_table(
        "bayes/posterior_rate",
        f"n times the L1 distance to the non-private answer: median of {runs} data sets ± standard error",
        header,
        rows,
        f"d = {D}, unit rows, Y = {Y_BOUND:g}, eps = {EPSILON:g}, delta = {DELTA:g}; slope of the error itself, where -1 is the theorems' rate.",
    )
    write_table(
        "bayes/posterior_spread",
        "n times the L1 distance of the posterior deviations to the non-private ones: medians ± standard error",
        ["form", *(f"n = {n}" for n in sizes)],
        [[form, *(median(v, 1)[1] for v in values)] for form, values in spreads.items()],
        "What the theorems do not speak of; deviations are of order 1/sqrt(n) themselves. 'None': the share of runs with an indefinite precision.",
    )
    curves("bayes/posterior_rate", {"n times the distance to the non-private mean": drawn}, "n")


if __name__ == "__main__":
    run(main)
