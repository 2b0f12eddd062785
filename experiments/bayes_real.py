"""Bayesian regression by secure sum on abalone, red wine and GDSC: error against epsilon and N, and against AdaSSP.

    python experiments/bayes_real.py [repetitions]

Columns are scaled by declared ranges (what a zoologist, a wine maker, a biologist would write down without the data); rows are dealt
to ten sites at random; a fifth of them is kept for testing. The errors are mean absolute errors in units of y. GDSC has no tissue column here, so
its sites are random too; its errors are averages over the ten drugs with the most cell lines.
"""

from __future__ import annotations

import sys

import numpy as np
import polars as pl
from common import curves, data_file, write_table

from unpooled import PrivateBayesianRegression
from unpooled.privacy.accounting import gaussian_mu

DELTA, SITES = 1e-5, 10
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
#: A public guess: residuals of about a fifth of the half range.
OPTIONS = {"delta": DELTA, "bounds": (-1, 1), "y_bounds": (-1, 1), "noise_precision": 20.0}
METHODS = {
    "trusted": {"aggregation": "trusted"},
    "trusted, projected": {"aggregation": "trusted", "projection": 0.2},
    "distributed": {},
    "distributed, projected": {"projection": 0.2},
    "distributed, box": {"geometry": "box"},
    "distributed, naive": {"posterior": "naive"},
    "distributed, published": {"calibration": "published", "posterior": "naive"},
    "local": {"aggregation": "local"},
}

Data = tuple[np.ndarray, np.ndarray, float]


def scaled(columns: np.ndarray, ranges: list[tuple[float, float]]) -> np.ndarray:
    low, high = np.array(ranges).T
    return np.clip((columns - (low + high) / 2) / ((high - low) / 2), -1, 1)


def abalone() -> list[Data]:
    frame = pl.read_csv(data_file("abalone.csv"), has_header=False)
    sex = frame["column_1"].to_numpy()
    body = frame[:, 1:].to_numpy().astype(float)
    ranges = [(0, 1), (0, 0.8), (0, 0.4), (0, 3), (0, 1.5), (0, 0.8), (0, 1.1), (0, 30)]
    coded = scaled(body, ranges)
    return [(np.column_stack([(sex == "M").astype(float), (sex == "F").astype(float), coded[:, :-1]]), coded[:, -1], 15.0)]


def wine() -> list[Data]:
    table = pl.read_csv(data_file("wine_red.csv"), infer_schema_length=None).to_numpy().astype(float)
    low = [4, 0, 0, 0, 0, 0, 0, 0.985, 2.7, 0.3, 8, 0]
    high = [16, 1.6, 1, 16, 0.65, 75, 300, 1.005, 4.1, 2, 15, 10]
    coded = scaled(table, list(zip(low, high, strict=True)))
    return [(coded[:, :-1], coded[:, -1], 5.0)]


def gdsc() -> list[Data]:
    genes = pl.read_csv(data_file("gdsc_expression64.csv.gz"), infer_schema_length=None).to_numpy()[:, 1:11].astype(float)
    drugs = pl.read_csv(data_file("gdsc_ln_ic50.csv.gz"), infer_schema_length=None).to_numpy()[:, 1:].astype(float)
    most = np.argsort(np.isnan(drugs).sum(axis=0), kind="stable")[:10]
    X = scaled(genes, [(2.0, 14.0)] * 10)
    out = []
    for drug in most:
        known = ~np.isnan(drugs[:, drug])
        out.append((X[known], scaled(drugs[known, drug : drug + 1], [(-10.0, 10.0)])[:, 0], 10.0))
    return out


DATA = {"abalone": abalone, "red wine": wine, "GDSC": gdsc}


def adassp(X: np.ndarray, y: np.ndarray, epsilon: float, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """AdaSSP (Wang 2018) as a trusted baseline: same bounds, replace-one sensitivities, three releases composed by mu^2."""
    Z = np.column_stack([X, np.ones(X.shape[0])])
    d, radius2 = Z.shape[1], Z.shape[1]
    unit = 1 / (gaussian_mu(epsilon, DELTA) / np.sqrt(3))
    gram = Z.T @ Z
    noise = np.triu(rng.normal(size=(d, d))) * np.sqrt(2) * radius2 * unit
    noisy = gram + noise + np.triu(noise, 1).T
    cross = Z.T @ y + rng.normal(size=d) * 2 * np.sqrt(radius2) * unit
    smallest = max(float(np.linalg.eigvalsh(gram)[0]) + rng.normal() * radius2 * unit - 1.65 * radius2 * unit, 0.0)
    penalty = max(0.0, np.sqrt(d * np.log(2 * d * d / 0.05)) * np.sqrt(2) * radius2 * unit - smallest)
    coefficients = np.linalg.solve(noisy + penalty * np.eye(d), cross)
    return coefficients[:-1], float(coefficients[-1])


def split(data: Data, seed: int) -> tuple[np.ndarray, ...]:
    X, y, _ = data
    order = np.random.default_rng(seed).permutation(y.size)
    test, train = order[: y.size // 5], order[y.size // 5 :]
    return X[train], y[train], X[test], y[test]


def error(data: Data, seed: int, sites: int = SITES, **options: object) -> float:
    X, y, X_test, y_test = split(data, seed)
    labels = np.random.default_rng(seed + 1000).integers(sites, size=y.size)
    model = PrivateBayesianRegression(**OPTIONS, **options, random_state=seed).fit(X, y, sites=labels)
    return float(np.abs(np.clip(model.predict(X_test), -1, 1) - y_test).mean()) * data[2]


def adassp_error(data: Data, seed: int, epsilon: float) -> float:
    X, y, X_test, y_test = split(data, seed)
    coef, intercept = adassp(X, y, epsilon, np.random.default_rng(seed + 2000))
    return float(np.abs(np.clip(X_test @ coef + intercept, -1, 1) - y_test).mean()) * data[2]


def over(sets: list[Data], repetitions: int, measure) -> np.ndarray:
    return np.array([np.mean([measure(data, seed) for data in sets]) for seed in range(repetitions)])


def cell(values: np.ndarray) -> str:
    return f"{values.mean():.3f} ± {values.std(ddof=1) / np.sqrt(values.size):.3f}"


def main() -> None:
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    epsilon_rows, site_rows, baseline_rows, panels = [], [], [], {}
    for name, load in DATA.items():
        sets = load()
        pooled = over(sets, repetitions, lambda d, s: error(d, s, epsilon=float("inf")))
        null = over(sets, repetitions, lambda d, s: float(np.abs(split(d, s)[3]).mean()) * d[2])
        epsilon_rows.append([name, "pooled, no noise", *[cell(pooled)] + [""] * (len(EPSILONS) - 1)])
        projected = over(sets, repetitions, lambda d, s: error(d, s, epsilon=float("inf"), projection=0.2))
        epsilon_rows.append([name, "pooled projected", *[cell(projected)] + [""] * (len(EPSILONS) - 1)])
        epsilon_rows.append([name, "middle of the declared range", *[cell(null)] + [""] * (len(EPSILONS) - 1)])
        lines = {"pooled": (np.array([1.0]), np.array([np.median(pooled)]), np.zeros((2, 1)))}
        found = {}
        for method, options in METHODS.items():
            found[method] = [
                over(sets, repetitions, lambda d, s, e=e, o=options: error(d, s, epsilon=e, **o)) for e in EPSILONS
            ]
            epsilon_rows.append([name, method, *map(cell, found[method])])
            quartiles = np.quantile(found[method], [0.25, 0.5, 0.75], axis=1)
            lines[method] = (np.array(EPSILONS), quartiles[1], quartiles[[0, 2]])
        panels[name] = lines
        theirs = [over(sets, repetitions, lambda d, s, e=e: adassp_error(d, s, e)) for e in EPSILONS]
        epsilon_rows.append([name, "AdaSSP (trusted)", *map(cell, theirs)])
        for method in ("trusted", "trusted, projected", "distributed"):
            difference = found[method][2] - theirs[2]
            row = [name, method, cell(found[method][2]), cell(theirs[2]), cell(difference)]
            baseline_rows.append(
                [
                    *row,
                    "better"
                    if difference.mean() < 0
                    else "within"
                    if difference.mean() < difference.std(ddof=1) / np.sqrt(difference.size)
                    else "worse",
                ]
            )
        for sites in (2, 3, 5, 10, 20):
            T = sites // 3
            row = [
                over(sets, repetitions, lambda d, s, n=sites, o=o: error(d, s, n, epsilon=1.0, **o))
                for o in ({"aggregation": "trusted"}, {}, {"tolerate": T if sites - T > 1 else 0}, {"aggregation": "local"})
            ]
            site_rows.append([name, str(sites), str(T), *map(cell, row)])
    write_table(
        "bayes_epsilon",
        f"Mean absolute error against epsilon, {SITES} sites, {repetitions} repetitions (mean ± standard error)",
        ["data", "method", *(f"eps = {e:g}" for e in EPSILONS)],
        epsilon_rows,
    )
    write_table(
        "bayes_adassp",
        f"Against AdaSSP at epsilon = 1, {repetitions} repetitions; the last but one column is the paired difference",
        ["data", "ours", "error", "AdaSSP", "difference", "verdict"],
        baseline_rows,
    )
    write_table(
        "bayes_sites",
        f"Mean absolute error against the number of sites at epsilon = 1, {repetitions} repetitions",
        ["data", "N", "T", "trusted", "distributed, T = 0", "distributed, T", "local"],
        site_rows,
    )
    curves("bayes_epsilon", panels, "epsilon")


if __name__ == "__main__":
    main()
