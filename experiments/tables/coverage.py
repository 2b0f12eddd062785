"""Coverage of the lines of tables, by the rule of docs/inference.md: cells and lines are listed here, before any run.

Each run plays the study's own coordinator on exact totals of fresh rows with the noise that is planned. A line is *due* where its standard error
from sampling and planned noise together is below .25 per deviation of its column (in deviations of y for regression). Runs continue where they
stopped: each cell is a file of its own under build/coverage. ``python -m experiments.tables.coverage`` makes 60 runs a cell, ``--full`` 500.
"""

from __future__ import annotations

import itertools
import json
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from experiments.common import run, write_table
from scipy import stats

from unpooled.estimation.outlook import imagine_rounds as imagine
from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table

ROWS, DELTA, DUE = 20_000, 1e-5, 0.25
FAMILIES = ("regression", "logistic", "poisson", "gamma", "survival", "multinomial")
SHAPES = (
    "two levels",
    "eight levels",
    "a rare level",
    "an unused level",
    "three columns of levels",
    "a product",
    "a constant column",
    "a copied column",
    "an unused indicator",
    "correlation .9",
    "ranges ten times too wide",
)
EPSILONS = ((0.5, 3.0), (1.0, 8.0))
#: (family, shape, epsilon): the epsilons alternate from cell to cell, so that every family and shape meets all four.
CELLS = tuple(
    (family, shape, epsilon)
    for (f, family), (s, shape) in itertools.product(enumerate(FAMILIES), enumerate(SHAPES))
    for epsilon in EPSILONS[(f + s) % 2]
)
WHERE = Path("build/coverage")
#: The levels at which p-values are counted, and the probability below which a count is outside its binomial law (on both sides together).
LEVELS, OUTSIDE = (0.01, 0.05, 0.1), 1e-5


@dataclass(frozen=True)
class Shape:
    """Rows of one draw: declared columns, their values, the linear predictor, and the true value of every line."""

    columns: tuple[Column, ...]
    values: dict[str, Any]
    eta: np.ndarray
    truth: dict[str, float]
    formula: str = ""


def drawn(shape: str, rng: np.random.Generator) -> Shape:
    """Two numbers and whatever the shape adds."""
    n = ROWS
    wide = 10.0 if shape == "ranges ten times too wide" else 1.0
    first = rng.normal(size=n).clip(-4, 4)
    second = 0.9 * first + math.sqrt(0.19) * rng.normal(size=n) if shape == "correlation .9" else rng.normal(size=n)
    second = second.clip(-4, 4)
    missing = "indicator" if shape == "an unused indicator" else "refuse"
    columns = [Column("u", -4 * wide, 4 * wide, missing=missing), Column("v", -4 * wide, 4 * wide)]
    values: dict[str, Any] = {"u": first, "v": second}
    truth = {"u": 0.4, "v": 0.0}
    eta = 0.4 * first
    formula = ""

    def factor(name: str, shares: list[float], effects: list[float], unused: int = 0) -> None:
        nonlocal eta
        levels = tuple(f"l{k}" for k in range(len(shares) + unused))
        at = rng.choice(len(shares), n, p=shares)
        columns.append(Column(name, categories=levels))
        values[name] = np.array(levels, dtype=object)[at]
        eta = eta + np.array(effects)[at]
        truth.update({f"{name}: l{k} - l0": effect - effects[0] for k, effect in enumerate(effects) if k})

    if shape == "two levels":
        factor("g", [0.5, 0.5], [0.0, 0.3])
    elif shape == "eight levels":
        factor("g", [0.125] * 8, [0.0, 0.3, -0.3, 0.0, 0.2, 0.1, -0.1, 0.4])
    elif shape == "a rare level":
        factor("g", [0.5, 0.3, 0.17, 0.03], [0.0, 0.3, 0.0, 0.5])
    elif shape == "an unused level":
        factor("g", [0.5, 0.3, 0.2], [0.0, 0.3, -0.2], unused=1)
    elif shape == "three columns of levels":
        factor("g", [0.5, 0.5], [0.0, 0.3])
        factor("h", [0.4, 0.3, 0.3], [0.0, -0.2, 0.2])
        factor("k", [0.7, 0.3], [0.0, 0.0])
    elif shape == "a product":
        factor("g", [0.5, 0.5], [0.0, 0.3])
        inside = values["g"] == "l1"
        eta = eta + 0.2 * first * inside
        truth["u * (g: l1 - l0)"] = 0.2
        formula = "u * g + v"
    elif shape == "a constant column":
        columns.append(Column("still", 0.0, 8.0))
        values["still"] = np.full(n, 3.0)
    elif shape == "a copied column":
        columns.append(Column("copy", -4.0, 4.0))
        values["copy"] = second.copy()
        del truth["v"]  # of the two nothing but their sum has a value
    return Shape(tuple(columns), values, eta, truth, formula)


def responded(
    family: str, shape: Shape, rng: np.random.Generator
) -> tuple[tuple[Column, ...], dict[str, Any], dict[str, Any], dict[str, float]]:
    """(columns, values, parameters, truth) of the response."""
    eta, n = shape.eta, ROWS
    more: dict[str, Any] = {"formula": shape.formula} if shape.formula else {}
    truth = shape.truth
    if family == "regression":
        return (Column("y", -8.0, 8.0),), {"y": (eta + rng.normal(size=n)).clip(-8, 8)}, more, truth
    if family == "logistic":
        hit = rng.random(n) < 1 / (1 + np.exp(-eta))
        return (
            (Column("y", categories=("no", "yes")),),
            {"y": np.where(hit, "yes", "no").astype(object)},
            more | {"family": family},
            truth,
        )
    if family == "poisson":
        return (
            (Column("y", 0.0, 30.0),),
            {"y": rng.poisson(np.exp(0.5 + eta)).clip(0, 30).astype(float)},
            more | {"family": family},
            truth,
        )
    if family == "gamma":
        y = rng.gamma(2.0, np.exp(eta) / 2.0).clip(1e-3, 40)
        return (Column("y", 1e-3, 40.0),), {"y": y}, more | {"family": family}, truth
    if family == "survival":
        until, leaves = rng.exponential(np.exp(-eta) / 0.2), rng.uniform(0, 12, n)
        time, event = np.minimum(np.minimum(until, leaves), 6.0), (until <= np.minimum(leaves, 6.0)).astype(float)
        columns = (Column("y", 0.0, 6.0), Column("event", 0.0, 1.0))
        return columns, {"y": time, "event": event}, more | {"family": family, "event": "event", "cuts": [1.5, 3.0]}, truth
    pulls = np.column_stack([0 * eta, eta, -eta]) + rng.gumbel(size=(n, 3))
    y = np.array(["a", "b", "c"], dtype=object)[pulls.argmax(axis=1)]
    signs = {"b": 1.0, "c": -1.0}
    several = {f"{label}: {name}": sign * value for label, sign in signs.items() for name, value in truth.items()}
    return (Column("y", categories=("a", "b", "c")),), {"y": y}, more | {"family": family}, several


class Quiet:
    """In the place of a generator: no noise is drawn, and the errors are those that are planned."""

    def standard_normal(self, size: int) -> np.ndarray:
        """Nothing."""
        return np.zeros(size)


def deviation(name: str, columns: dict[str, Any]) -> float:
    """Of the column (or the indicator, or the product) that a line is of."""
    own = name.split(": ", 1)[1] if name.split(": ", 1)[0] in {"b", "c"} else name
    if " * " in own:
        return float(np.std(columns["u"] * (columns["g"] == "l1")))
    if ": " in own:
        column, levels = own.split(": ")
        return float(np.std(columns[column] == levels.split(" - ")[0]))
    return float(np.std(columns[own]))


def tables_seed(family: str, shape: str, seed: int) -> np.random.Generator:
    """The generator of the rows of one run."""
    return np.random.default_rng([seed, zlib.crc32(f"{family} {shape}".encode())])


def asked(
    family: str, shape: str, epsilon: float, rng: np.random.Generator
) -> tuple[Study, Table, dict[str, float], dict[str, float]]:
    """(study, rows, truth of every line, deviation of every line's column in the units of the rule)."""
    made = drawn(shape, rng)
    columns, values, parameters, truth = responded(family, made, rng)
    model = load("bayes" if family == "regression" else "glm")
    method = "refinement" if family == "regression" else "newton"
    parameters = {"response": "y", "method": method, **parameters}
    study = Study(
        model.name, (Card("all", ROWS, (*made.columns, *columns)),), epsilon, DELTA, parameters=parameters, derived=()
    )
    scale = float(np.std(values["y"])) if family == "regression" else 1.0
    deviations = {name: deviation(name, made.values) / scale for name in truth}
    return study, Table({**made.values, **values}), truth, deviations


def lines_of(tables: Any, truth: dict[str, float], deviations: dict[str, float]) -> dict[str, list[float]]:
    """Every line that is printed: (estimate, standard error, truth, deviation of its column)."""
    lines = {} if tables is None else {t.term: t for t in tables.summary().terms}
    return {
        name: [line.estimate, line.std_error, truth[name], deviations[name]] for name, line in lines.items() if name in truth
    }


def played_study(study: Study, table: Table, epsilon: float, seed: int, *, quiet: bool = False) -> Any:
    """The tables of a study that is played over these rows."""
    model = load(study.model)
    plan = model.compile(study)
    package = __import__(f"unpooled.models.{model.name}", fromlist=["STATISTICS"])
    noise: Any = Quiet() if quiet else np.random.default_rng([seed, 1, zlib.crc32(f"{epsilon}".encode())])
    return model.tables(plan, imagine(plan, model.coordinate, package.STATISTICS, table, noise))


def played(family: str, shape: str, epsilon: float, seed: int, *, quiet: bool = False) -> dict[str, list[float]]:
    """Every line that is printed of a study that is played."""
    study, table, truth, deviations = asked(family, shape, epsilon, tables_seed(family, shape, seed))
    return lines_of(played_study(study, table, epsilon, seed, quiet=quiet), truth, deviations)


def measured(cell: tuple[str, str, float], runs: int) -> dict[str, Any]:
    """The runs of a cell, those that are there already first."""
    family, shape, epsilon = cell
    file = WHERE / f"{zlib.crc32(repr(cell).encode()):08x}.json"
    found = json.loads(file.read_text()) if file.exists() else {"cell": list(cell), "runs": []}
    if "planned" not in found:
        found["planned"] = played(family, shape, epsilon, 0, quiet=True)
    while len(found["runs"]) < runs:
        found["runs"].append(played(family, shape, epsilon, len(found["runs"])))
        if len(found["runs"]) % 10 == 0:
            WHERE.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(found))
    WHERE.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(found))
    return found


def judged(found: dict[str, Any]) -> dict[str, float]:
    """Coverage of all printed lines, the share of due lines that is printed, widths over the planned ones, and p-values where nothing is.

    ``least``: the smallest probability that a binomial law gives to a count of p-values below .01, .05 or .1 as far out as that of a line.
    """
    hits: list[bool] = []
    p: dict[str, list[float]] = {}
    planned = {name: line[1] for name, line in found["planned"].items() if line[1] * line[3] < DUE}
    printed, widths = 0, []
    for lines in found["runs"]:
        for name, (estimate, error, truth, _) in lines.items():
            hits.append(abs(estimate - truth) <= 1.959964 * error)
            if truth == 0:
                p.setdefault(name, []).append(2 * stats.norm.sf(abs(estimate) / error))
            if name in planned:
                printed += 1
                widths.append(error / planned[name])
    due = len(planned) * len(found["runs"])
    least = 1.0
    for line in p.values():
        for level in LEVELS:
            count = int((np.array(line) < level).sum())
            law = stats.binom(len(line), level)
            least = min(least, float(law.cdf(count)), float(law.sf(count - 1)))
    every = np.array([one for line in p.values() for one in line])
    return {
        "lines": len(hits),
        "coverage": float(np.mean(hits)) if hits else math.nan,
        "due": len(planned),
        "printed": printed / due if due else math.nan,
        "width": float(np.median(widths)) if widths else math.nan,
        "nulls": every.size,
        "least": least,
        **{f"p<{level}": float(np.mean(every < level)) if every.size else math.nan for level in LEVELS},
    }


def main(full: bool) -> None:
    """All cells, each family's, and the verdict of the rule."""
    runs = 500 if full else 60
    rows, measured_cells = [], []
    for cell in CELLS:
        found = judged(measured(cell, runs))
        measured_cells.append((cell, found))
        family, shape, epsilon = cell
        numbers = [f"{found[k]:.3f}" for k in ("coverage", "printed", "width", "p<0.05")]
        rows.append([f"{family}, {shape}, {epsilon:g}", str(found["lines"]), str(found["due"]), *numbers])
        print(rows[-1], flush=True)
    words = f"{runs} runs a cell, {ROWS} rows."
    head = ["family, shape, epsilon", "lines", "due", "coverage", "due lines printed", "width / planned", "p < .05"]
    write_table(
        "tables/coverage",
        "Coverage of the lines of tables",
        head,
        rows,
        f"{words} {verdict([f for _, f in measured_cells])}",
    )
    parts = []
    for family in FAMILIES:
        own = [f for (name, _, _), f in measured_cells if name == family]
        covers = [f["coverage"] for f in own if f["lines"]]
        numbers = [f"{np.mean(covers):.3f}", f"{min(covers):.3f}", f"{max(covers):.3f}"]
        numbers += [
            f"{np.mean([f['printed'] for f in own if f['due']]):.3f}",
            f"{max(f['width'] for f in own if f['due']):.2f}",
        ]
        parts.append([family, str(len(own)), *numbers])
    head = [
        "family",
        "cells",
        "mean coverage",
        "lowest cell",
        "highest cell",
        "due lines printed",
        "largest width / planned",
    ]
    write_table("tables/coverage_by_family", "Coverage of the lines of tables, by family", head, parts, words)


def counted(found: dict[str, float]) -> float:
    """The coverage of a cell as the rule counts it: too wide an interval is no fault where its width passes."""
    return 0.95 if found["coverage"] > 0.97 and found["width"] <= 1.3 else found["coverage"]


def verdict(cells: list[dict[str, float]]) -> str:
    """What the rule of docs/inference.md says of these cells."""
    covers = [counted(f) for f in cells if f["lines"]]
    outside = sum(not 0.93 <= c <= 0.97 for c in covers)
    due = [f for f in cells if f["due"]]
    worst = min(f["least"] for f in cells)
    return (
        f"Mean over {len(covers)} cells {np.mean(covers):.3f}; {outside} outside .93 to .97; lowest {min(covers):.3f}; due lines printed "
        f"{np.mean([f['printed'] for f in due]):.3f}; largest median width {max(f['width'] for f in due):.2f} of the planned one; "
        f"p-values where nothing is: the count farthest out has probability {worst:.1e} (rule: above {OUTSIDE / 2:.0e} a side)."
    )


if __name__ == "__main__":
    run(main)
