"""Rounds by sines, second moments, and what one party can do alone, on made-up studies of declared shapes: which method ``method="auto"`` should take.

Two parties hold half of the columns each, the second one the response; with one helper the noise has the variance factor 1.5. A cell is a law of the
columns, a number of rows, of columns, and an epsilon; each run draws fresh rows, effects in random directions, and an R^2 from .2 to .9. The noise is
ideal Gaussian noise of the planned deviations on exact totals (the budget by zCDP). At most 2,500 rows are drawn and their sums scaled to the
study's. A second table has the cells of the prototype (read as in excess.py), with the budget by mu. ``--full`` makes 20 runs a cell, else 4. Each
cell is a file under build/joint, and runs continue there.
"""

from __future__ import annotations

import hashlib
import json
import sys
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from experiments.common import run, write_table
from experiments.joint.coverage import WHERE, code
from experiments.joint.excess import CELLS as PROTOTYPE_CELLS
from experiments.joint.excess import FACTOR, PROTOTYPES, mu_of

from unpooled.linear.fit import LinearFit
from unpooled.models.bayes import columns as bayes_columns
from unpooled.models.bayes.columns import MOMENTS, SINES, design_of
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, HelperCard, Study
from unpooled.privacy.table import Table
from unpooled.products.design import JointBudget, JointDesign
from unpooled.products.moments import imagine

LAWS = ("normal", "one factor", "skewed", "heavy-tailed", "binary")
ROWS, COLUMNS, EPSILONS = (500, 2000, 10_000, 50_000), (4, 12, 40), (0.3, 1.0, 3.0)
RUNS, FEW, DRAWN, TESTED, DELTA = 20, 4, 2500, 2000, 1e-5
#: The classes of k = n mu / d of the table.
CLASSES = (0.0, 3.0, 6.0, 12.0, 25.0, 50.0, 100.0, 200.0, 400.0, 800.0, float("inf"))
NAMES = ("sines", "moments", "the mean", "pooled")
#: In a mean, a larger excess counts as this; a file is written after this number of runs.
_CUT, _SAVED = 3.0, 4


class Cell(NamedTuple):
    """A cell of the simulation."""

    law: str
    rows: int
    columns: int
    epsilon: float

    @property
    def name(self) -> str:
        """The cell as the name of a file."""
        return f"sines-{self.law.replace(' ', '-')}-{self.rows}-{self.columns}-{self.epsilon:g}"


def columns_of(law: str, n: int, d: int, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """Columns of a law, of deviation 1 but for binary ones, and half of their declared range."""
    if law == "skewed":
        return (rng.exponential(size=(n, d)) - 1).clip(-7, 7), 7.0
    if law == "heavy-tailed":
        return (rng.standard_t(3, size=(n, d)) / np.sqrt(3)).clip(-8, 8), 8.0
    if law == "binary":
        return (rng.random((n, d)) < rng.choice([0.05, 0.1, 0.3, 0.5], d)).astype(float), 1.0
    values = rng.normal(size=(n, d))
    if law == "one factor":
        loadings = rng.uniform(-0.8, 0.8, d)
        values = rng.normal(size=(n, 1)) * loadings + values * np.sqrt(1 - loadings**2)
    return values.clip(-4, 4), 4.0


def made_up(cell: Cell, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float]:
    """Columns and response, those of the fit first, and half of the columns' declared range."""
    count = min(cell.rows, DRAWN)
    x, half = columns_of(cell.law, count + TESTED, cell.columns, rng)
    mean = (x / x.std(axis=0).clip(1e-9)) @ rng.normal(size=cell.columns)
    part = rng.uniform(0.2, 0.9)
    y = mean / mean.std() * np.sqrt(part) + np.sqrt(1 - part) * rng.normal(size=len(x)) + rng.uniform(-1, 1)
    return x, y.clip(-6, 6), half


def study_of(cell: Cell, method: str, half: float) -> Study:
    """The study of a cell by a method."""
    low = 0.0 if cell.law == "binary" else -half
    columns = [Column(f"x{j}", low, half) for j in range(cell.columns)]
    first = cell.columns // 2
    cards = (
        Card("one", cell.rows, tuple(columns[:first])),
        Card("two", cell.rows, (*columns[first:], Column("y", -6.0, 6.0))),
    )
    asked = {"response": "y", "split": "columns", "method": method}
    return Study("bayes", cards, cell.epsilon, DELTA, derived=(), parameters=asked, helpers=(HelperCard("helper"),))


def imagined_fit(design: JointDesign | bayes_columns.SineDesign, tables: dict[str, Table], seed: int) -> LinearFit:
    """The coefficients of a run."""
    noise = np.random.default_rng([seed, 7])
    if isinstance(design, bayes_columns.SineDesign):
        return bayes_columns.imagined_sines(design, tables, noise)
    return imagine(design, tables, noise).posterior()


def errors(cell: Cell, seed: int) -> list[float]:
    """Test errors over the variance of the response, in the order of ``NAMES``."""
    rng = np.random.default_rng([zlib.crc32(cell.law.encode()), cell.rows, cell.columns, seed])
    x, y, half = made_up(cell, rng)
    count, first = len(x) - TESTED, cell.columns // 2
    tables = {
        "one": Table({f"x{j}": x[:count, j] for j in range(first)}),
        "two": Table({f"x{j}": x[:count, j] for j in range(first, cell.columns)} | {"y": y[:count]}),
    }
    spread = y[count:].var()

    def error(slopes: np.ndarray, intercept: float) -> float:
        return float(np.mean((y[count:] - x[count:] @ slopes - intercept) ** 2) / spread)

    fits = [imagined_fit(design_of(study_of(cell, method, half)), tables, seed) for method in (SINES, MOMENTS)]
    found = [error(fit.coef_, fit.intercept_) for fit in fits]
    own = np.linalg.lstsq(np.column_stack([x[:count], np.ones(count)]), y[:count], rcond=None)[0]
    return [*found, error(np.zeros(cell.columns), y[:count].mean()), error(own[:-1], own[-1])]


def prototypes(n: int, d: int, epsilon: float, seed: int) -> list[float]:
    """Test errors over the variance of the response in the prototype's own cell: ours, the prototype's, moments, the mean, pooled."""
    sys.path.insert(0, str(PROTOTYPES))
    from joint_moments import made_up as theirs
    from sine_rounds import fit as prototype

    rng = np.random.default_rng(seed)
    x, y = theirs(rng, n + TESTED, d)
    half = d // 2
    k = n * mu_of(epsilon) / d
    rounds = 8 if k < 12 else 15 if k < 40 else 30
    spread, own = y[n:].var(), np.linalg.lstsq(np.column_stack([x[:n], np.ones(n)]), y[:n], rcond=None)[0]

    def error(slopes: np.ndarray, intercept: float) -> float:
        return float(np.mean((y[n:] - x[n:] @ slopes - intercept) ** 2) / spread)

    found = prototype(x[:n], y[:n], [list(range(half)), list(range(half, d))], epsilon, DELTA, rng, rounds=rounds)
    columns = [Column(f"x{j}", -1.0, 1.0) for j in range(d)]
    cards = Card("one", n, tuple(columns[:half])), Card("two", n, (*columns[half:], Column("y", -3.0, 3.0)))
    tables = {
        "one": Table({f"x{j}": x[:n, j] for j in range(half)}),
        "two": Table({f"x{j}": x[:n, j] for j in range(half, d)} | {"y": y[:n]}),
    }
    errors_of = []
    for method in (SINES, MOMENTS):
        asked = {"response": "y", "split": "columns", "method": method}
        study = Study("bayes", cards, epsilon, DELTA, derived=(), parameters=asked, helpers=(HelperCard("helper"),))
        fit = imagined_fit(design_of(study, JointBudget(mu_of(epsilon), FACTOR)), tables, seed)
        errors_of.append(error(fit.coef_, fit.intercept_))
    first, second = errors_of
    return [first, error(*found), second, error(np.zeros(d), y[:n].mean()), error(own[:-1], own[-1])]


def kept(name: str, version: str, runs: int, once: Callable[[int], list[float]]) -> np.ndarray:
    """The results of this number of runs, those that are in the file of this name first."""
    file = WHERE / f"{name}.json"
    found = json.loads(file.read_text()) if file.exists() else {}
    if found.get("code") != version:
        found = {"code": version, "errors": []}
    while len(found["errors"]) < runs:
        found["errors"].append(once(len(found["errors"])))
        if len(found["errors"]) % _SAVED == 0 or len(found["errors"]) == runs:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(found))
    return np.array(found["errors"][:runs])


def in_classes(version: str, runs: int) -> None:
    """The table of the excess over pooled least squares in every class of k."""
    classes: dict[int, list[np.ndarray]] = {}
    for cell in (Cell(law, n, d, e) for law in LAWS for n in ROWS for d in COLUMNS for e in EPSILONS):
        study = study_of(cell, SINES, 4.0)
        k = bayes_columns.strength(cell.columns, cell.rows, JointBudget.of(study, len(study.members)))
        found = kept(cell.name, version, runs, partial(errors, cell))
        classes.setdefault(int(np.searchsorted(CLASSES, k, "right")), []).append(found - found[:, [-1]])
    rows = []
    for at, some in sorted(classes.items()):
        low, high = CLASSES[at - 1], CLASSES[at]
        excess = np.concatenate(some)[:, :3]
        medians, better = np.median(excess, axis=0), np.mean(excess[:, 0] < excess[:, 1])
        words = f"{low:g} to {high:g}" if np.isfinite(high) else f"{low:g} and more"
        means = np.minimum(excess, _CUT).mean(axis=0)
        rows.append([words, str(len(some)), *(f"{v:.4f}" for v in means), *(f"{v:.4f}" for v in medians), f"{better:.0%}"])
        print(" | ".join(rows[-1]), flush=True)
    names = [f"{what} {name}" for what in ("mean excess:", "median excess:") for name in NAMES[:3]]
    head = ("k", "cells", *names, "sines are better")
    words = (
        f"Test error over the variance of the response, less that of pooled least squares; in the mean, an excess above {_CUT:g} counts as {_CUT:g}. "
        f"{runs} runs a cell."
    )
    write_table(
        "joint/sines", "Rounds by sines compared with second moments and the mean, by k = n mu / d", head, rows, words
    )


def in_cells(version: str, runs: int) -> None:
    """The table of the prototype's cells."""
    rows = []
    for n, d, epsilon in PROTOTYPE_CELLS:
        found = kept(f"sines-prototype-{n}-{d}-{epsilon:g}", version, runs, partial(prototypes, n, d, epsilon))
        rows.append([f"{n}, {d}, {epsilon:g}", *(f"{v:.3f}" for v in found.mean(axis=0))])
        print(" | ".join(rows[-1]), flush=True)
    head = ("n, columns, epsilon", "sines", "prototype's sines", "moments", "the mean", "pooled")
    words = (
        f"Mean test error over the variance of the response, {runs} seeds of the prototype's design; the budget is by mu."
    )
    write_table("joint/sines_prototype", "Rounds by sines compared with their prototype", head, rows, words)


def main(full: bool) -> None:
    """Both tables."""
    own = "".join((Path(file).read_text()) for file in (bayes_columns.__file__, __file__))
    version = code() + hashlib.sha256(own.encode()).hexdigest()[:12]
    in_cells(version, RUNS if full else FEW)
    in_classes(version, RUNS if full else FEW)


if __name__ == "__main__":
    run(main)
