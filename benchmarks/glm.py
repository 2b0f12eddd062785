"""A Newton round of a generalised linear model over ten sites beside the plain pass over all rows, in one run, per family.

A round is what the sites add up for the gradient and for the second moments: scaled, rounded and checked record by record, in integers. The peer is
the same two sums by NumPy in floating point over pooled rows that are already standardised. Rows are standardised in the round before, as in a study.
"""

from __future__ import annotations

import os

from board import note, rounds

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import statistics
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from unpooled.models import load
from unpooled.models.glm.plan import STATISTICS
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table

SITES, ROWS, COLUMNS, CLASSES, REPEATS = 10, 20_000, 20, 3, rounds(7)
#: The goal of the project: a private round takes at most so many times the plain pass.
#: Rounds of Newton's method of a private fit.
NEWTON = 4
REQUIRED = 2
MODEL = load("glm")
CUTS = (1.0, 2.0, 4.0)
FAMILIES: dict[str, tuple[tuple[Column, ...], dict[str, Any]]] = {
    "logistic": ((Column("y", categories=("a", "b")),), {}),
    "poisson": ((Column("y", 0, 10),), {}),
    "gamma": ((Column("y", 0.1, 10),), {}),
    "negative-binomial": ((Column("y", 0, 10),), {}),
    "multinomial": ((Column("y", categories=("a", "b", "c")),), {}),
    "survival": ((Column("y", 0, 6), Column("died", categories=("no", "yes"))), {"event": "died", "cuts": list(CUTS)}),
}


def simulated(family: str, rng: np.random.Generator) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Rows of normal columns and responses of no relation to them."""
    X = rng.normal(size=(ROWS, COLUMNS)).clip(-3, 3)
    if family == "survival":
        died = np.array(["no", "yes"], dtype=object)[rng.integers(2, size=ROWS)]
        return X, {"y": rng.uniform(0, 6, ROWS), "died": died}
    if family in {"logistic", "multinomial"}:
        labels = np.array(FAMILIES[family][0][0].categories, dtype=object)
        return X, {"y": labels[rng.integers(labels.size, size=ROWS)]}
    return X, {"y": rng.gamma(2.0, 0.5, ROWS) if family == "gamma" else rng.poisson(1.0, ROWS).astype(float)}


def plain(family: str, Z: np.ndarray, data: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Gradient and second moments of pooled rows, as one would write them."""
    start = np.full(Z.shape[1], 0.01)
    if family == "multinomial":
        p = softmax(Z @ np.column_stack([start, -start, 0 * start]), axis=1)
        gradient = (np.equal.outer(data["y"], np.array(["a", "b", "c"], dtype=object)) - p).T @ Z
        blocks = [(Z * (p[:, a] * ((a == b) - p[:, b]))[:, None]).T @ Z for a in range(CLASSES) for b in range(a, CLASSES)]
        return gradient, np.array(blocks)
    if family == "survival":
        edges = np.array([0.0, *CUTS, 6.0])
        within = np.clip(data["y"][:, None] - edges[:-1], 0, np.diff(edges))
        weight = within * 0.3 * np.exp(Z[:, :-1] @ start[:-1])[:, None]
        seen = np.zeros(weight.shape)
        seen[np.arange(len(seen)), np.searchsorted(CUTS, data["y"])] = data["died"] == "yes"
        pull, whole, X = seen - weight, weight.sum(axis=1), Z[:, :-1]
        gradient = np.append(X.T @ pull.sum(axis=1), pull.sum(axis=0))
        return gradient, np.hstack([(X * whole[:, None]).T @ X, X.T @ weight])
    u = Z @ start
    y = (data["y"] == "b").astype(float) if family == "logistic" else data["y"]
    mean = expit(u) if family == "logistic" else np.exp(u)
    weight = {
        "logistic": mean * (1 - mean),
        "poisson": mean,
        "gamma": np.ones_like(mean),
        "negative-binomial": mean / (1 + mean),
    }[family]
    return Z.T @ ((y - mean) * weight / mean), (Z * weight[:, None]).T @ Z


def fitted(family: str, Z: np.ndarray, data: dict[str, np.ndarray]) -> float | None:
    """Milliseconds of the whole fit by statsmodels, if it is here and has the family."""
    try:
        from statsmodels.genmod import families
        from statsmodels.genmod.generalized_linear_model import GLM
    except ImportError:
        return None
    kinds = {"logistic": families.Binomial, "poisson": families.Poisson}
    if family not in kinds:
        return None
    y = (data["y"] == "b").astype(float) if family == "logistic" else data["y"]
    return median(lambda: GLM(y, Z, kinds[family]()).fit())


def median(work: Callable[[], Any]) -> float:
    """Milliseconds; the first time does not count."""
    work()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times)


def main() -> None:
    print(
        f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}; {SITES} sites, {ROWS} rows each, {COLUMNS} columns, milliseconds per round"
    )
    features = tuple(Column(f"x{j}", -3, 3) for j in range(COLUMNS))
    for family, (own, more) in FAMILIES.items():
        rng = np.random.default_rng(0)
        sites = [simulated(family, rng) for _ in range(SITES)]
        tables = [Table({f"x{j}": X[:, j] for j in range(COLUMNS)} | data) for X, data in sites]
        cards = tuple(Card(f"s{k}", ROWS, (*features, *own)) for k in range(SITES))
        parameters = {"response": "y", "family": family, "method": "newton", **more}
        plan = MODEL.compile(Study("glm", cards, 1.0, 1e-6, parameters=parameters, derived=()))
        width = plan.design.long.width
        settings = (*[0.0] * COLUMNS, *[0.4] * COLUMNS, *[0.01] * width, 1.0, 0.25)
        contexts = [SimpleNamespace(design=plan.design, plan=plan, table=table) for table in tables]

        def private(contexts: list[Any] = contexts, settings: tuple[float, ...] = settings) -> None:
            for context in contexts:
                STATISTICS["score"](context, settings)
                STATISTICS["information"](context, settings)

        Z = np.vstack([np.column_stack([X, np.full(ROWS, 0.7)]) for X, _ in sites])
        data = {name: np.concatenate([held[name] for _, held in sites]) for name in sites[0][1]}
        ours, theirs = median(private), median(lambda family=family, Z=Z, data=data: plain(family, Z, data))
        note(f"a private round, {family}", "the same without noise", ours / theirs, f"{REQUIRED}")
        whole = fitted(family, Z, data)
        if whole is not None:
            note(f"{NEWTON} private rounds, {family}", "statsmodels' GLM.fit", NEWTON * ours / whole)
            print(f"{'':<18} {NEWTON} rounds over statsmodels' whole fit {NEWTON * ours / whole:.2f}")
        print(f"{family:<18} private {ours:8.1f}   plain {theirs:8.1f}   ratio {ours / theirs:.2f} (goal {REQUIRED})")


if __name__ == "__main__":
    main()
