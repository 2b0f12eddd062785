"""Coverage of 95 % intervals of generalised linear models (``models/glm/THEORY.md``, section 3), on declared shapes."""

from __future__ import annotations

import itertools
import warnings
from typing import TYPE_CHECKING

import numpy as np
from experiments.common import run, write_table
from scipy.special import expit

from unpooled import PrivateGLM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.inference.summary import SummaryTerm

    Found = tuple[list[bool], float, float]

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
#: Columns where there are several classes, or times.
FEW = 5
HEAD = ["family, n, d, eps", "identified", "covered", "privacy part of the standard error"]


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


def of_classes(n: int, epsilon: float, seed: int) -> Found:
    """The same of three classes, every class against the first."""
    rng = np.random.default_rng([seed, n, 3])
    X = rng.normal(size=(n, FEW)).clip(-HALF, HALF)
    beta = rng.normal(size=(3, FEW))
    beta *= SIGNAL / np.linalg.norm(beta - beta.mean(axis=0), axis=0).max() / np.sqrt(FEW / 2)
    y = (X @ beta.T + np.log([0.5, 0.3, 0.2]) + rng.gumbel(size=(n, 3))).argmax(axis=1)
    model = PrivateGLM(
        "multinomial",
        epsilon=epsilon,
        delta=1e-5,
        bounds=(-HALF, HALF),
        classes=(0, 1, 2),
        method="newton",
        random_state=seed,
    ).fit(X, y)
    terms = [t for t in model.summary(reference=0).terms if "intercept" not in t.term]
    return told(terms, (beta[1:] - beta[0]).ravel())


def of_persons(n: int, epsilon: float, seed: int) -> Found:
    """The same of hazard ratios: hazards fall over the time, one in two has the event, some leave before."""
    rng = np.random.default_rng([seed, n, 4])
    X = rng.normal(size=(n, FEW)).clip(-HALF, HALF)
    beta = rng.normal(size=FEW)
    beta[-1] = 0.0
    beta *= SIGNAL / np.linalg.norm(beta)
    within = rng.exponential(size=n) / np.exp(X @ beta)  # the baseline's cumulative hazard at the event
    time = np.where(within < 0.4, within / 0.4, 1 + (within - 0.4) / 0.15)
    leaves = np.where(rng.random(n) < 0.4, rng.uniform(0, 4, n), 4.0)
    model = PrivateGLM(
        "survival",
        epsilon=epsilon,
        delta=1e-5,
        bounds=(-HALF, HALF),
        y_bounds=(0, 4),
        cuts=(1, 2),
        method="newton",
        random_state=seed,
    ).fit(X, np.minimum(time, leaves), event=time <= leaves)
    return told(model.summary().terms[:FEW], beta)


def told(terms: Sequence[SummaryTerm], truth: NDArray[np.float64]) -> Found:
    """Hits of the intervals of what is identified, how many that is of all, and the privacy parts."""
    known = [(t, b) for t, b in zip(terms, truth, strict=True) if t.identified]
    hits = [t.conf_low <= b <= t.conf_high for t, b in known]
    return hits, len(known) / len(terms), float(np.median([t.privacy / t.std_error for t, _ in known] or [np.nan]))


def classes_and_times(full: bool) -> None:
    """Several classes and hazard ratios: 80 fits a cell; 800 in full."""
    rows = []
    for (name, fit), n, epsilon in itertools.product(
        (("multinomial, three classes", of_classes), ("survival", of_persons)), ROWS, EPSILONS
    ):
        found = [fit(n, epsilon, seed) for seed in range(800 if full else 80)]
        hits = [hit for one, _, _ in found for hit in one]
        part = np.mean([p for *_, p in found if not np.isnan(p)]) if hits else np.nan
        rows.append(
            [
                f"{name}, {n}, {FEW}, {epsilon:g}",
                f"{np.mean([one for _, one, _ in found]):.2f}",
                f"{np.mean(hits):.3f}" if hits else "none",
                f"{part:.2f}",
            ]
        )
        print(rows[-1], flush=True)
    write_table(
        "glm/coverage_classes_and_times",
        "Coverage of 95 % intervals: log odds against the first class, log hazard ratios (delta = 1e-5, replace, one site, Newton step)",
        HEAD,
        rows,
    )


def main(full: bool) -> None:
    """400 / d fits a cell; 4000 / d in full."""
    warnings.simplefilter("ignore")
    classes_and_times(full)
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
        HEAD,
        rows,
    )


if __name__ == "__main__":
    run(main)
