"""Test errors of defaults before and after a change: the rule is that no cell is worse by more than 2 %.

Each run plays the study's own coordinator with default parameters (method "auto") on exact totals of fresh rows with the planned noise. Where a
study has more than ``MOST`` rows, the totals of ``MOST`` rows are scaled up, as outlooks do. Two labels share rows and noise seeds, cell by cell.

``python -m experiments.inference.test_errors --label before`` writes build/inference/errors-before.json;
``--compare before after`` prints the ratios of two such files.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from experiments.common import write_table
from experiments.inference.played import played_result

from unpooled.models import load
from unpooled.privacy.bounds import Coding, Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table

WHERE = Path("build/inference")
FAMILIES = ("regression", "logistic", "poisson", "gamma")
SHAPES = ("normal", "one-factor", "heavy tailed", "skewed")
ROWS, EPSILONS, COLUMNS = (400, 1000, 5000, 20_000, 100_000), (0.1, 0.3, 1.0, 3.0, 10.0), (5, 20)
#: With 20 columns only these shapes are run.
WIDE_SHAPES = ("one-factor", "skewed")
#: Rows that a run draws at most, fresh rows on which its predictions are judged, and runs of a cell.
MOST, NEW, RUNS = 4000, 2000, 40
#: The deviation of the linear predictor, and how much worse a cell may become.
SIGNAL, WORSE = 0.7, 1.02
CELLS = tuple(
    cell
    for cell in itertools.product(FAMILIES, SHAPES, COLUMNS, ROWS, EPSILONS)
    if cell[2] == COLUMNS[0] or cell[1] in WIDE_SHAPES
)


def features(shape: str, n: int, d: int, rng: np.random.Generator) -> tuple[np.ndarray, tuple[float, float]]:
    """(rows of columns with deviation 1, their declared range)."""
    if shape == "heavy tailed":
        return (rng.standard_t(3, (n, d)) / math.sqrt(3)).clip(-8, 8), (-8.0, 8.0)
    if shape == "skewed":
        return rng.exponential(size=(n, d)).clip(0, 8), (0.0, 8.0)
    common = 0.6 if shape == "one-factor" else 0.0
    rows = math.sqrt(1 - common) * rng.normal(size=(n, d)) + math.sqrt(common) * rng.normal(size=(n, 1))
    return rows.clip(-4, 4), (-4.0, 4.0)


def responses(family: str, shape: str, eta: np.ndarray, rng: np.random.Generator) -> tuple[Column, np.ndarray, np.ndarray]:
    """(declaration, values, means) of the responses; ``eta``: the linear predictors, with mean 0 and deviation SIGNAL."""
    if family == "regression":
        if shape == "heavy tailed":
            left = rng.standard_t(3, eta.size) / math.sqrt(3)
        else:
            left = rng.exponential(size=eta.size) - 1 if shape == "skewed" else rng.normal(size=eta.size)
        mean = eta / SIGNAL
        return Column("y", -12.0, 12.0), (mean + left).clip(-12, 12), mean
    if family == "logistic":
        mean = 1 / (1 + np.exp(-eta))
        return Column("y", categories=("no", "yes")), (rng.random(eta.size) < mean).astype(float), mean
    mean = np.exp(0.5 + eta)
    if family == "poisson":
        mixed = rng.gamma(mean) if shape == "heavy tailed" else mean  # a variance of twice the mean
        return Column("y", 0.0, 60.0), rng.poisson(mixed).clip(0, 60).astype(float), mean
    alike = 1.0 if shape == "skewed" else 2.0
    return Column("y", 0.01, 60.0), (mean * rng.gamma(alike, 1 / alike, eta.size)).clip(0.01, 60), mean


def deviance(family: str, y: np.ndarray, mean: np.ndarray) -> float:
    """The mean deviance of responses (0 and 1 of classes) about these means; of a regression the mean square."""
    if family == "regression":
        return float(np.mean((y - mean) ** 2))
    if family == "logistic":
        mean = mean.clip(1e-12, 1 - 1e-12)
        return float(-2 * np.mean(y * np.log(mean) + (1 - y) * np.log1p(-mean)))
    mean = np.maximum(mean, 1e-12)
    if family == "poisson":
        return float(2 * np.mean(np.where(y > 0, y * np.log(np.maximum(y, 1e-12) / mean), 0.0) - (y - mean)))
    return float(2 * np.mean(y / mean - 1 - np.log(y / mean)))


def predicted(family: str, eta: np.ndarray) -> np.ndarray:
    """The means that these linear predictors predict."""
    if family == "regression":
        return eta
    return 1 / (1 + np.exp(-eta.clip(-40, 40))) if family == "logistic" else np.exp(eta.clip(-40, 40))


def study_of(family: str, rows: int, columns: tuple[Column, ...], epsilon: float) -> Study:
    """The study of a cell: everything is left at its default."""
    model = "bayes" if family == "regression" else "glm"
    given = {"response": "y"} | ({} if family == "regression" else {"family": family})
    return Study(model, (Card("all", rows, columns),), epsilon, 1e-6, parameters=given, derived=())


def errors(family: str, shape: str, d: int, rows: int, epsilon: float, seed: int) -> tuple[float, float]:
    """(error of predictions of fresh rows, its part that a perfect fit does not have), both over the error of the mean response."""
    rng = np.random.default_rng([seed, zlib.crc32(f"{family} {shape} {d} {rows}".encode())])
    n = min(rows, MOST)
    X, (low, high) = features(shape, n + NEW, d, rng)
    beta = rng.normal(size=d)
    eta = X @ beta
    eta = SIGNAL * (eta - eta.mean()) / eta.std()
    declared, y, mean = responses(family, shape, eta, rng)
    columns = tuple(Column(f"x{k}", low, high) for k in range(d))
    values: dict[str, Any] = {c.name: X[:n, k] for k, c in enumerate(columns)}
    labels = declared.categories
    values["y"] = y[:n] if labels is None else np.array(labels, dtype=object)[y[:n].astype(int)]
    study = study_of(family, rows, (*columns, declared), epsilon)
    noise = np.random.default_rng([seed, 1, zlib.crc32(f"{epsilon}".encode())])
    plan = load(study.model).compile(study)
    result = played_result(plan, Table(values), noise)
    new = Coding(columns, 1).natural([X[n:, k] for k in range(d)])
    fitted = predicted(family, new @ np.array([c.value for c in result.coefficients]) + result.intercept)
    base, of_truth = (deviance(family, y[n:], m) for m in (np.full(NEW, y[n:].mean()), mean[n:]))
    own = deviance(family, y[n:], fitted)
    return own / base, (own - of_truth) / base


def written(label: str, runs: int) -> None:
    """Every cell of one label, into its file; cells that are there already are kept."""
    file = WHERE / f"errors-{label}.json"
    WHERE.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[tuple[float, float]]] = json.loads(file.read_text()) if file.exists() else {}
    start = time.process_time()
    for family, shape, d, rows, epsilon in CELLS:
        name = f"{family}, {shape}, {d}, {rows}, {epsilon:g}"
        if len(found.get(name, [])) < runs:
            found[name] = [errors(family, shape, d, rows, epsilon, seed) for seed in range(runs)]
        if epsilon == EPSILONS[-1]:
            file.write_text(json.dumps(found))
            print(f"{name}: {time.process_time() - start:.0f} CPU s", flush=True)
    file.write_text(json.dumps(found))


def compared(before: str, after: str) -> None:
    """Ratios of mean errors, and which cells break the rule."""
    both = [json.loads((WHERE / f"errors-{label}.json").read_text()) for label in (before, after)]
    rows, worst, broken = [], 0.0, 0
    for name in both[0]:
        if name not in both[1]:
            continue
        runs = min(len(one[name]) for one in both)
        old, new = (np.array(one[name])[:runs] for one in both)
        ratio, excess = (float(new[:, k].mean() / old[:, k].mean()) for k in (0, 1))
        chance = float((new[:, 0] - old[:, 0]).std(ddof=1) / math.sqrt(runs) / old[:, 0].mean()) if runs > 1 else math.nan
        worst, broken = max(worst, ratio), broken + (ratio > WORSE)
        numbers = [
            f"{old[:, 0].mean():.4f}",
            f"{new[:, 0].mean():.4f}",
            f"{ratio:.4f}",
            f"{chance:.4f}",
            f"{excess:.3f}",
            "worse" if ratio > WORSE else "",
        ]
        rows.append([name, *numbers])
    write_table(
        "inference/test_errors",
        "Test errors of defaults, before and after",
        ["family, shape, columns, rows, epsilon", before, after, "ratio", "its chance error", "ratio of excesses", "rule"],
        rows,
        f"{before} against {after}: the largest ratio is {worst:.4f}, {broken} of {len(rows)} cells are above {WORSE}.",
    )


def main() -> None:
    """One label's runs, or the comparison of two."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--label", help="run every cell under this label")
    parser.add_argument("--compare", nargs=2, metavar="LABEL", help="print the ratios of two labels")
    parser.add_argument("--runs", type=int, default=RUNS)
    given = parser.parse_args()
    if given.label:
        written(given.label, given.runs)
    if given.compare:
        compared(*given.compare)


if __name__ == "__main__":
    main()
