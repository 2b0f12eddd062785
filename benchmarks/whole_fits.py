"""Whole private fits in one process, compared with what a user would run on the pooled rows without privacy: the same data, the same run.

Ours counts everything between the call and the model: declarations, coding, keys, sealing, ledgers, rounds and the report. Every pair of contenders
takes turns; medians. ``python benchmarks/whole_fits.py glm`` measures one kind: glm, regression, features or linkage.
"""

from __future__ import annotations

import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import polars as pl
from board import note, rounds
from scipy.special import expit
from sklearn.cross_decomposition import PLSRegression
from sklearn.ensemble import StackingClassifier
from sklearn.linear_model import BayesianRidge, GammaRegressor, LogisticRegression, PoissonRegressor, RidgeCV
from sklearn.model_selection import GridSearchCV

import unpooled as up

ROWS, COLUMNS, ROUNDS = 30_000, 20, rounds(3)
#: Seconds of a pair after which it is not measured again.
ENOUGH = 6.0
#: Name, our fit, what the other fit is called, and that fit.
Pair = tuple[str, Callable[[], Any], str, Callable[[], Any]]


def rows_of(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows in [-3, 3], a linear predictor of deviation 1/2, and a site for each row."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).clip(-3, 3)
    return X, X @ rng.normal(size=d) * 0.5 / np.sqrt(d), np.array(["north", "south", "west"])[rng.integers(3, size=n)]


def optional(module: str) -> Any:
    """A module of the peers, or None where it is not installed."""
    try:
        return __import__(module, fromlist=["_"])
    except ImportError:
        print(f"{module} is not installed: its rows are left out (make peers)", file=sys.stderr)
        return None


def glm() -> Iterator[Pair]:
    """Every family of ``PrivateGLM``, three sites; objective perturbation."""
    X, u, sites = rows_of(ROWS, COLUMNS)
    rng = np.random.default_rng(1)
    words = np.where(rng.random(ROWS) < expit(u), "yes", "no")
    several = np.array(["a", "b", "c"])[np.argmax(np.column_stack([u, -u, 0 * u]) + rng.gumbel(size=(ROWS, 3)), axis=1)]
    counts = rng.poisson(np.exp(u)).clip(0, 20).astype(float)
    amounts = rng.gamma(2.0, np.exp(u) / 2).clip(0.05, 20)
    died = rng.exponential(np.exp(-u))
    times, event = np.minimum(died, 3.0), died <= 3.0
    own = {"epsilon": 1.0, "bounds": (-3, 3), "random_state": 0}

    def private(family: str, y: np.ndarray, fits: dict[str, Any] | None = None, **more: Any) -> Callable[[], Any]:
        return lambda: up.PrivateGLM(family, **own, **more).fit(X, y, sites=sites, **(fits or {}))

    plain = LogisticRegression(max_iter=1000)
    yield "GLM, logistic", private("logistic", words, classes=("no", "yes")), "scikit-learn", lambda: plain.fit(X, words)
    yield (
        "GLM, multinomial",
        private("multinomial", several, classes=("a", "b", "c")),
        "scikit-learn",
        lambda: plain.fit(X, several),
    )
    poisson, gamma = PoissonRegressor(alpha=0, max_iter=1000), GammaRegressor(alpha=0, max_iter=1000)
    yield "GLM, Poisson", private("poisson", counts, y_bounds=(0, 20)), "scikit-learn", lambda: poisson.fit(X, counts)
    yield "GLM, gamma", private("gamma", amounts, y_bounds=(0.05, 20)), "scikit-learn", lambda: gamma.fit(X, amounts)
    if models := optional("statsmodels.api"):
        with_one = models.add_constant(X)
        binomial = models.families.NegativeBinomial()
        negative = private("negative-binomial", counts, y_bounds=(0, 20))
        yield "GLM, negative binomial", negative, "statsmodels", lambda: models.GLM(counts, with_one, binomial).fit()
        survival = private("survival", times, {"event": event}, y_bounds=(0, 3), cuts=(0.5, 1.0, 2.0))
        yield "GLM, survival", survival, "statsmodels PHReg", lambda: models.PHReg(times, X, status=event.astype(int)).fit()
    perturbed = up.PrivateLogisticRegression(**(own | {"bounds": up.Bounds(norm=6.0)}), delta=1e-6, classes=("no", "yes"))
    yield "logistic regression", lambda: perturbed.fit(X, words, sites=sites), "scikit-learn", lambda: plain.fit(X, words)


def regression() -> Iterator[Pair]:
    """Bayesian regression by each of its methods, many columns, and spectra."""
    X, u, sites = rows_of(ROWS, COLUMNS)
    rng = np.random.default_rng(2)
    y = (u + rng.normal(size=ROWS) / 2).clip(-3, 3)
    own = {"epsilon": 1.0, "bounds": (-3, 3), "y_bounds": (-3, 3), "random_state": 0}
    for method in ("auto", "moments", "refinement", "gradient", "mean"):
        fit = up.PrivateLinearRegression(method=method, **own)
        yield (
            f"regression, method {method}",
            lambda fit=fit: fit.fit(X, y, sites=sites),
            "BayesianRidge",
            lambda: BayesianRidge().fit(X, y),
        )
    for width in (100, 300):
        wide, v, where = rows_of(4000, width)
        z = (v + rng.normal(size=4000) / 2).clip(-3, 3)
        seeds = iter(range(1000))  # a posterior of the same moments is worked out once in a process

        def fresh(
            wide: np.ndarray = wide, z: np.ndarray = z, where: np.ndarray = where, seeds: Iterator[int] = seeds
        ) -> Any:
            settings = own | {"random_state": next(seeds)}
            return up.PrivateLinearRegression(method="moments", **settings).fit(wide, z, sites=where)

        yield f"regression, moments, 4,000 x {width}", fresh, "BayesianRidge", lambda a=wide, b=z: BayesianRidge().fit(a, b)
    grid = np.linspace(0, 1, 200)
    spectra = sum(rng.normal(size=(2000, 1)) * np.exp(-((grid - c) ** 2) / 0.01) for c in (0.2, 0.5, 0.8)).clip(-3, 3)
    content = (spectra[:, 40] + rng.normal(size=2000) / 10).clip(-3, 3)
    where = np.array(["a", "b"])[rng.integers(2, size=2000)]
    pls = GridSearchCV(PLSRegression(), {"n_components": list(range(1, 11))}, cv=5)
    yield (
        "PLS",
        lambda: up.PrivatePLSRegression(**own).fit(spectra, content, sites=where),
        "GridSearchCV of PLSRegression",
        lambda: pls.fit(spectra, content),
    )


def features() -> Iterator[Pair]:
    """Models of parties that hold different columns of the same rows."""
    X, u, sites = rows_of(2000, 60)
    rng = np.random.default_rng(3)
    y = (u + rng.normal(size=2000) / 2).clip(-3, 3)
    words = np.where(rng.random(2000) < expit(3 * u), "yes", "no")
    counts = rng.poisson(np.exp(u)).clip(0, 20).astype(float)
    own = {"epsilon": 5.0, "bounds": (-3, 3), "random_state": 0}
    classes = {"classes": ("no", "yes")}
    plain = LogisticRegression(max_iter=1000)
    l1 = LogisticRegression(l1_ratio=1.0, solver="liblinear")
    stacked = StackingClassifier([("first", plain), ("second", LogisticRegression(C=0.1))])
    yield (
        "PRIDE, regression",
        lambda: up.PrideRegressor(2, y_bounds=(-3, 3), **own).fit(X, y),
        "RidgeCV",
        lambda: RidgeCV(np.geomspace(1e-3, 1e3, 20)).fit(X, y),
    )
    yield (
        "PRIDE, classifier",
        lambda: up.PrideClassifier(2, **classes, **own).fit(X, words),
        "scikit-learn",
        lambda: plain.fit(X, words),
    )
    yield (
        "PRIDE, Poisson",
        lambda: up.PrideGLM("poisson", parties=2, y_bounds=(0, 20), **own).fit(X, counts),
        "scikit-learn",
        lambda: PoissonRegressor().fit(X, counts),
    )
    if celer := optional("celer"):
        yield (
            "LASSO",
            lambda: up.PrivateLasso(2, y_bounds=(-3, 3), **own).fit(X, y),
            "celer",
            lambda: celer.Lasso(alpha=0.01).fit(X, y),
        )
    yield (
        "LASSO, classifier",
        lambda: up.PrivateLassoClassifier(2, **classes, **own).fit(X, words),
        "scikit-learn, l1",
        lambda: l1.fit(X, words),
    )
    normed = {**classes, **own, "bounds": up.Bounds(norm=12.0)}
    by_columns = up.PrivateStackingClassifier(2, **normed)
    by_rows = up.PrivateStackingClassifier(split="samples", importance=[1 / 60] * 60, **normed)
    yield "stacking over features", lambda: by_columns.fit(X, words), "StackingClassifier", lambda: stacked.fit(X, words)
    yield (
        "stacking over rows",
        lambda: by_rows.fit(X, words, sites=sites),
        "StackingClassifier",
        lambda: stacked.fit(X, words),
    )


def linkage() -> Iterator[Pair]:
    """Two tables of people, half of whom are in both."""
    first = pl.DataFrame({"id": [f"person {i}" for i in range(2000)], "a": np.arange(2000.0)})
    second = pl.DataFrame({"id": [f"person {i}" for i in range(1000, 3000)], "b": np.arange(2000.0)})
    yield (
        "linkage of 2,000 and 2,000 ids",
        lambda: up.link({"a": first, "b": second}, on="id"),
        "a join by Polars",
        lambda: first.join(second, on="id"),
    )


KINDS = {each.__name__: each for each in (glm, regression, features, linkage)}


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    warnings.simplefilter("ignore")
    for kind in sys.argv[1:] or KINDS:
        for name, ours, other, theirs in KINDS[kind]():
            ours(), theirs()  # compiles, and wakes threads
            found = [(seconds(ours), seconds(theirs))]
            while len(found) < ROUNDS and sum(map(sum, found)) < ENOUGH:
                found.append((seconds(ours), seconds(theirs)))
            own, plain = (statistics.median(each) for each in zip(*found, strict=True))
            note(f"a whole fit: {name}", other, own / plain)
            print(f"{name:<34} {own:8.3f} s   {other} {plain:8.4f} s   ratio {own / plain:.3g}", flush=True)


if __name__ == "__main__":
    main()
