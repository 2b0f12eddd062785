"""PRIDE's other families at every epsilon: test deviance beside own halves with nothing released, one party alone, and the pooled rows.

Simulated shapes that a study could declare, and two real sets. Four parties, sketches of automatic size, delta = 1e-5, unit attribute, penalties by
marginal likelihood; columns are standardised and their declared ranges are 4 deviations wide on both sides. Every number is the deviance of new rows
over that of the base rate (of a quantile the check loss; of Cox 1 - concordance, where knowing nothing is 0.5). Nothing was chosen by these
numbers: the families have no settings of their own.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from experiments.common import data_file, run, write_table

from unpooled import PrideGLM
from unpooled.models.pride.declared import Parameters
from unpooled.models.pride.outlook import error, responses

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
PARTIES, TRAIN, TEST, COLUMNS, HALF_RANGE = 4, 500, 2000, 80, 4.0
SIGNAL = 0.5
LEVELS = ("low", "middle", "high")
OPTIONS: dict[str, dict[str, Any]] = {
    "poisson": {},
    "gamma": {},
    "negative-binomial": {"dispersion": 0.5},
    "quantile": {"quantile": 0.8},
    "multinomial": {"classes": LEVELS},
    "ordinal": {"classes": LEVELS},
    "cox": {},
}


@dataclass(frozen=True)
class Rows:
    """Standardised columns and responses; the first ``train`` rows are fitted on."""

    X: np.ndarray
    labels: dict[str, np.ndarray]
    train: int


def parameters_of(family: str) -> Parameters:
    """As a study has them."""
    return Parameters(family=family, event="died" if family == "cox" else "", **OPTIONS[family])


def simulated(shape: str, family: str, seed: int) -> Rows:
    """Columns with three common factors, or neighbours on a line; the signal is a random direction of all columns."""
    rng = np.random.default_rng([seed, len(shape), len(family)])
    count = TRAIN + TEST
    X = rng.normal(size=(count, COLUMNS))
    if shape == "factors":
        X = (X + rng.normal(size=(count, 3)) @ rng.normal(size=(3, COLUMNS))) / 2
    else:
        for j in range(1, COLUMNS):
            X[:, j] = 0.8 * X[:, j - 1] + 0.6 * X[:, j]
    signal = X @ rng.normal(size=COLUMNS)
    return Rows(X, responses(parameters_of(family), signal / signal.std(), SIGNAL, rng), TRAIN)


def cancers(seed: int) -> Rows:
    """1000 probes of 236 breast cancers and the time to death of the disease; four fifths are trained on."""
    file = np.load(data_file("miller05_gse3494_1000genes.npz"))
    time, event = file["time"].astype(float), file["event"].astype(float)
    rows = np.random.default_rng(seed).permutation(np.flatnonzero(np.isfinite(time) & (time > 0)))
    return Rows(file["X"].astype(float)[rows], {"y": time[rows], "died": event[rows]}, round(0.8 * rows.size))


def drugs(seed: int) -> Rows:
    """64 genes of cancer cell lines; thirds of the ln IC50 of the drug that most lines know; four fifths are trained on."""
    import polars as pl

    genes = pl.read_csv(data_file("gdsc_expression64.csv.gz"), infer_schema_length=None).to_numpy()[:, 1:].astype(float)
    table = pl.read_csv(data_file("gdsc_ln_ic50.csv.gz"), infer_schema_length=None).to_numpy()[:, 1:].astype(float)
    y = table[:, int(np.argmin(np.isnan(table).sum(axis=0)))]
    rows = np.random.default_rng(seed).permutation(np.flatnonzero(~np.isnan(y)))
    third = np.digitize(y[rows], np.quantile(y[rows], [1 / 3, 2 / 3]))
    return Rows(genes[rows], {"y": np.array(LEVELS, dtype=object)[third]}, round(0.8 * rows.size))


def standardised(rows: Rows) -> np.ndarray:
    """In deviations of the training rows, clipped to the declared ranges."""
    mean, deviation = rows.X[: rows.train].mean(axis=0), rows.X[: rows.train].std(axis=0)
    return np.clip((rows.X - mean) / np.where(deviation > 0, deviation, 1.0), -HALF_RANGE, HALF_RANGE)


def measured(family: str, rows: Rows, seed: int) -> dict[str, float]:
    """The error of every arm."""
    X, told = standardised(rows), rows.labels
    fit, new = slice(rows.train), slice(rows.train, None)

    def one(columns: slice = slice(None), **options: Any) -> float:
        options = {"parties": PARTIES, "epsilon": math.inf, **options}
        model = PrideGLM(
            family, delta=1e-5, bounds=(-HALF_RANGE, HALF_RANGE), random_state=seed, **OPTIONS[family], **options
        )
        more = {"event": told["died"][fit]} if family == "cox" else {}
        model.fit(X[fit, columns], told["y"][fit], **more)
        return error(parameters_of(family), told, new, in_declared_order(model, X[new, columns]))

    arms = {f"{epsilon:g}": one(epsilon=epsilon) for epsilon in EPSILONS}
    own = slice(0, X.shape[1] // PARTIES)
    return arms | {"own halves": one(sketch_dim=0), "one party": one(own, parties=1), "pooled": one(parties=1)}


def in_declared_order(model: PrideGLM, X: np.ndarray) -> np.ndarray:
    """Decisions; of classes in the order of the study, where the estimator sorts its labels."""
    decisions = model.linear_predictor(X)
    if model.family != "multinomial":
        return decisions
    return decisions[:, [list(model.classes_).index(level) for level in LEVELS]]


def main(full: bool) -> None:
    """Three repetitions (ten in the full size)."""
    warnings.simplefilter("ignore")
    seeds = range(10 if full else 3)
    header = ["set", "family", *(f"epsilon {e:g}" for e in EPSILONS), "own halves", "one party", "pooled"]
    cells = [(shape, family) for family in OPTIONS for shape in ("factors", "line")]
    cells += [("cancers", "cox"), ("drugs", "ordinal"), ("drugs", "multinomial")]
    rows = []
    for name, family in cells:
        found = []
        for seed in seeds:
            real = {"cancers": cancers, "drugs": drugs}.get(name)
            found.append(measured(family, real(seed) if real else simulated(name, family, seed), seed))
        rows.append([name, family, *(f"{np.mean([each[arm] for each in found]):.3f}" for arm in found[0])])
        print(name, family, "done", flush=True)
    notes = f"Means of {len(seeds)} repetitions; base rate 1 (cox: 0.5); {TRAIN} rows and {COLUMNS} columns simulated, K = {PARTIES}, delta = 1e-5."
    write_table(
        "pride/families", "PRIDE's other families: error of new rows over that of the base rate", header, rows, notes
    )


if __name__ == "__main__":
    run(main)
