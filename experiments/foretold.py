"""The lines that an outlook foretells beside those that studies print: chances and errors, over studies that were listed before the first run.

Sixty studies of rows: linear and logistic regression, 400 to 20,000 rows, epsilon .5 to 3, four to ten columns whose declared ranges are five, eight or twelve
deviations wide (some with typical values), a treatment of two levels and a ward of three or four, one of them rare; people are drawn by another law than
the outlook's: skewed columns, correlations of 0 to .6, R^2 of .1 to .5, a rate of .15 to .5. A study is played 50 times on exact totals of fresh people with
planned noise, and once without noise for the error that there would be without privacy. A chance is that of an error at most twice this.
"""

from __future__ import annotations

import math
import warnings
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from experiments.cells import kept
from experiments.common import run, write_table
from experiments.inference.played import played_tables

from unpooled.estimation.expected_lines import EXPECTED, NARROW
from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table

STUDIES, RUNS, DELTA = 60, 50, 1e-6


class Shape(NamedTuple):
    """A study, and the law of its people."""

    model: str
    rows: int
    epsilon: float
    numbers: int
    wards: int
    width: float
    typical: bool
    skewed: bool
    correlation: float
    strength: float
    rate: float


def shapes() -> list[Shape]:
    """Return the studies: drawn once, by a seed that no result had a say in."""
    rng, found = np.random.default_rng(20_261_129), []
    for at in range(STUDIES):
        rows, epsilon = int(rng.choice([400, 1000, 2500, 5000, 20_000])), float(rng.choice([0.5, 1.0, 2.0, 3.0]))
        width = float(rng.choice([5.0, 8.0, 12.0]))
        typical = width > 5.0 and bool(rng.random() < 0.5)
        more = int(rng.integers(2, 8)), int(rng.choice([3, 4])), width, typical, bool(rng.random() < 0.5)
        law = float(rng.choice([0.0, 0.3, 0.6])), float(rng.choice([0.1, 0.3, 0.5])), float(rng.choice([0.15, 0.3, 0.5]))
        found.append(Shape(("linear", "logistic")[at % 2], rows, epsilon, *more, *law))
    return found


def study_of(shape: Shape, epsilon: float) -> Study:
    """Return the study at an epsilon."""
    half, typical = shape.width / 2, (0.0, 1.0) if shape.typical else None
    wards = tuple(f"w{k}" for k in range(shape.wards))
    linear = shape.model == "linear"
    response = Column("y", -4.0, 4.0) if linear else Column("y", categories=("no", "yes"))
    columns = (
        *(Column(f"x{j}", -half, half, typical=typical) for j in range(shape.numbers)),
        Column("arm", categories=("usual", "new")),
        Column("ward", categories=wards),
        response,
    )
    # The method is named, so that a study that buys no line is played all the same.
    own = {"method": "refinement"} if linear else {"family": "logistic", "method": "newton"}
    parameters: dict[str, Any] = {"response": "y", **own}
    cards = (Card("p", shape.rows, columns),)
    return Study("bayes" if linear else "glm", cards, epsilon, DELTA, parameters=parameters, derived=())


def people(shape: Shape, rng: np.random.Generator) -> Table:
    """Return made-up people."""
    n = shape.rows
    common = rng.normal(size=(n, 1))
    x = math.sqrt(shape.correlation) * common + math.sqrt(1 - shape.correlation) * rng.normal(size=(n, shape.numbers))
    if shape.skewed:  # of mean 0 and deviation 1, with a long upper tail
        x[:, 0] = (np.exp(0.6 * x[:, 0]) - math.exp(0.18)) / math.sqrt((math.exp(0.36) - 1) * math.exp(0.36))
    arm = rng.random(n) < 0.5
    parts = np.array([*[0.97 / (shape.wards - 1)] * (shape.wards - 1), 0.03])
    ward = rng.choice(shape.wards, n, p=parts)
    slopes = rng.normal(size=shape.numbers)
    mean = x @ slopes + (arm - 0.5) + 0.5 * (ward == 1)
    mean = (mean - mean.mean()) / mean.std()
    part = math.sqrt(shape.strength)
    if shape.model == "linear":
        y: Any = np.clip(part * mean + math.sqrt(1 - shape.strength) * rng.normal(size=n), -4, 4)
    else:
        level = math.log(shape.rate / (1 - shape.rate))
        y = np.where(rng.logistic(size=n) < level + 1.5 * part * mean, "yes", "no").astype(object)
    held: dict[str, Any] = {f"x{j}": np.clip(x[:, j], -shape.width / 2, shape.width / 2) for j in range(shape.numbers)}
    held |= {"arm": np.where(arm, "new", "usual").astype(object), "ward": np.array([f"w{k}" for k in ward], dtype=object)}
    return Table({**held, "y": y})


def cell(shape: Shape, number: int) -> list[list[float]]:
    """Return of every line (printed, narrow and error as foretold; printed, narrow and middle error as they were; that without privacy)."""
    own, exact = study_of(shape, shape.epsilon), study_of(shape, math.inf)
    model = load(own.model)
    foretold = {line.term: line for line in model.outlook(own, lines=True).lines}
    plans = model.compile(own), model.compile(exact)
    errors: dict[str, list[tuple[float, float]]] = {name: [] for name in foretold}
    for seed in range(RUNS):
        table = people(shape, np.random.default_rng([number, seed]))
        played, free = (
            {
                line.term: line.std_error
                for line in played_tables(plan, table, np.random.default_rng([seed, 5])).summary().terms
            }
            for plan in plans
        )
        for name, seen in errors.items():
            seen.append((played.get(name, math.nan), free.get(name, math.nan)))
    found = []
    for name, seen in errors.items():
        private, without = np.array(seen).T
        there = np.isfinite(private)
        middle = float(np.median(private[there])) if there.any() else math.nan
        line = foretold[name]
        narrow = float((there & (private <= NARROW * without)).mean())
        told = line.printed, line.narrow, line.std_error, float(there.mean()), narrow, middle, float(np.nanmedian(without))
        found.append([float(name.startswith("(")), *told])
    return found


def main(full: bool) -> None:  # noqa: ARG001 - one size
    """Make the table."""
    warnings.simplefilter("ignore", UserWarning)
    lines, rows = [], []
    for number, shape in enumerate(shapes()):
        found = kept([number, *shape], partial(cell, shape, number))
        rows += [[float(shape.model == "logistic"), *line] for line in found]
        print(number, *shape, flush=True)
    told = np.array(rows)
    for name, kind in (("linear", 0.0), ("logistic", 1.0), ("both", None)):
        own = told[(told[:, 1] == 0) & ((told[:, 0] == kind) if kind is not None else True)]
        printed, narrow, error, was, seen, middle = own.T[2:8]
        named, both = printed >= EXPECTED, np.isfinite(error) & np.isfinite(middle) & (was >= 0.5)
        ratio = error[both] / middle[both]
        lines.append(
            (
                name,
                str(len(own)),
                f"{np.abs(narrow - seen).mean():.3f}",
                f"{((narrow >= 0.1) & (narrow <= 0.9)).mean():.2f}",
                f"{np.abs(printed - was).mean():.3f}",
                f"{named.sum()} / {was.sum():.1f}",
                f"{was[named].mean():.3f}",
                f"{was[~named].mean():.3f}",
                f"{((ratio >= 0.8) & (ratio <= 1.25)).mean():.2f}",
                f"{np.median(ratio):.2f}",
            )
        )
    write_table(
        "foretold",
        "Lines that are foretold, and lines that are printed",
        (
            "model",
            "lines",
            "narrow: mean difference",
            "chances of .1 to .9",
            "printed: mean difference",
            "expected / printed",
            "printed of the expected",
            "of the others",
            "errors within .8 to 1.25",
            "middle ratio",
        ),
        lines,
        f"{STUDIES} studies of {RUNS} played runs; lines of columns, without constants. Narrow: the standard error is at most twice that without privacy. "
        "Expected: printed in most studies of the outlook.",
    )


if __name__ == "__main__":
    run(main)
