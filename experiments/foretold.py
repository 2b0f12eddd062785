"""The lines that an outlook foretells beside those that studies print: chances and errors, over studies that were listed before the first run.

Sixty studies: linear and logistic regression of rows, and linear regression of columns at two parties; 400 to 20,000 rows, epsilon .5 to 3, two to seven
numbers, a treatment of two levels and a ward of three or four, one of them rare. In two of three studies it is declared what is typical of every column
(centre and deviation, shares of levels, the rate of two classes); in the others ranges alone. A study is played 50 times by its own rounds on exact totals
of fresh people with planned noise, and as often without noise for the error that there would be without privacy. A chance is that of an error at most twice this.
People are drawn by code that shares nothing with the outlook's, by two laws: "as stated" draws anew in every run what the outlook says that it assumes (R^2
of .1 to .9 or a linear predictor's deviation of .5 to 1.5, correlations of 0 to .6, columns normal, skewed or near copies, ranges of 5 to 16 deviations where
none is declared); "another", of every fourth study, has one law for all runs of a study, with a treatment of a half, a ward of 3 %, slopes of its own and ranges of 5 to 12 deviations.
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
from scipy.special import log_ndtr

from unpooled.estimation.expected_lines import EXPECTED, NARROW
from unpooled.linear.drawn import drawn_tables
from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, HelperCard, Plan, Study
from unpooled.privacy.table import Table
from unpooled.products.moments import imagine

STUDIES, RUNS, DELTA = 60, 50, 1e-6
MODELS = ("linear", "logistic", "linear, columns")
STATED, ANOTHER = "as stated", "another"
#: Every fourth study is played by another law too.
FEWER = 4
#: Without privacy, and the epsilon that stands for it where columns are split: noise has a least deviation there.
PLENTY = 1e4


class Shape(NamedTuple):
    """A study, and its own law of people."""

    model: str
    rows: int
    epsilon: float
    numbers: int
    wards: int
    width: float
    known: bool
    skewed: bool
    correlation: float
    strength: float
    rate: float

    @property
    def shares(self) -> list[float]:
        """The parts of the wards, of which one is rare."""
        return [*[0.97 / (self.wards - 1)] * (self.wards - 1), 0.03]


def shapes() -> list[Shape]:
    """Return the studies: drawn once, by a seed that no result had a say in."""
    rng, found = np.random.default_rng(20_261_129), []
    for at in range(STUDIES):
        rows, epsilon = int(rng.choice([400, 1000, 2500, 5000, 20_000])), float(rng.choice([0.5, 1.0, 2.0, 3.0]))
        width, known = float(rng.choice([5.0, 8.0, 12.0])), at // len(MODELS) % 3 != 0
        more = int(rng.integers(2, 8)), int(rng.choice([3, 4])), width, known, bool(rng.random() < 0.5)
        law = float(rng.choice([0.0, 0.3, 0.6])), float(rng.choice([0.1, 0.3, 0.5])), float(rng.choice([0.15, 0.3, 0.5]))
        found.append(Shape(MODELS[at % len(MODELS)], rows, epsilon, *more, *law))
    return found


def study_of(shape: Shape, epsilon: float) -> Study:
    """Return the study at an epsilon."""
    half, known = shape.width / 2, shape.known
    wards = tuple(f"w{k}" for k in range(shape.wards))
    linear, split = shape.model != "logistic", shape.model == MODELS[2]
    classes = Column("y", categories=("no", "yes"), typical=(1 - shape.rate, shape.rate) if known else None)
    response = Column("y", -4.0, 4.0, typical=(0.0, 1.0) if known else None) if linear else classes
    numbers = [Column(f"x{j}", -half, half, typical=(0.0, 1.0) if known else None) for j in range(shape.numbers)]
    arm = Column("arm", categories=("usual", "new"), typical=(0.5, 0.5) if known else None)
    ward = Column("ward", categories=wards, typical=tuple(shape.shares) if known else None)
    # The method is named, so that a study that buys no line is played all the same.
    own = {"method": "refinement"} if linear else {"family": "logistic", "method": "newton"}
    if split:
        cards = Card("p", shape.rows, (*numbers[::2], arm, response)), Card("q", shape.rows, (*numbers[1::2], ward))
        own = {"split": "columns", "method": "moments"}
        helpers: tuple[HelperCard, ...] = (HelperCard("h"),)
    else:
        cards, helpers = (Card("p", shape.rows, (*numbers, arm, ward, response)),), ()
    parameters: dict[str, Any] = {"response": "y", **own}
    return Study("bayes" if linear else "glm", cards, epsilon, DELTA, parameters=parameters, derived=(), helpers=helpers)


def columns_of(count: int, width: int, correlation: float, kind: str, rng: np.random.Generator) -> np.ndarray:
    """Return columns of mean 0 and deviation 1."""
    if kind == "near copies":
        groups = rng.normal(size=(count, -(-width // 4)))
        return math.sqrt(0.95) * groups[:, np.arange(width) % groups.shape[1]] + math.sqrt(0.05) * rng.normal(
            size=(count, width)
        )
    x = math.sqrt(correlation) * rng.normal(size=(count, 1)) + math.sqrt(1 - correlation) * rng.normal(size=(count, width))
    return -log_ndtr(-x) - 1.0 if kind == "skewed" else x


def levels(values: np.ndarray, shares: list[float]) -> np.ndarray:
    """Return the level of each row, in the order of a column."""
    return np.searchsorted(np.quantile(values, np.minimum(np.cumsum(shares)[:-1], 1.0)), values)


def stated(shape: Shape, rng: np.random.Generator) -> Table:
    """Return people as the outlook says that they are, which are others in every run."""
    n, names = shape.rows, [f"x{j}" for j in range(shape.numbers)]
    correlation, kind = rng.uniform(0.0, 0.6), rng.choice(["normal", "skewed", "near copies"])
    scale = 1.0 if shape.known else shape.width / 2 / rng.uniform(2.5, 8.0)
    x = columns_of(n, shape.numbers + 2, correlation, str(kind), rng)
    even = [1 / shape.wards] * shape.wards
    arm, ward = levels(x[:, -2], [0.5, 0.5]), levels(x[:, -1], shape.shares if shape.known else even)
    x[:, -2], x[:, -1] = (arm - arm.mean()) / arm.std(), (ward - ward.mean()) / max(float(ward.std()), 1e-9)
    mean = x @ rng.normal(size=x.shape[1])
    held: dict[str, Any] = dict(zip(names, np.clip(scale * x[:, :-2].T, -shape.width / 2, shape.width / 2), strict=True))
    held |= {"arm": np.array(["usual", "new"], dtype=object)[arm], "ward": np.array([f"w{k}" for k in ward], dtype=object)}
    if shape.model != "logistic":
        part, unit = rng.uniform(0.1, 0.9), 1.0 if shape.known else 4.0 / rng.uniform(2.5, 8.0)
        y: Any = math.sqrt(part) * mean / mean.std() + math.sqrt(1 - part) * rng.normal(size=n)
        return Table({**held, "y": np.clip(unit * y, -4, 4)})
    u, rate = rng.uniform(0.5, 1.5) * mean / mean.std(), shape.rate if shape.known else rng.uniform(0.2, 0.5)
    return Table({**held, "y": classes_of(u, rate, rng)})


def classes_of(u: np.ndarray, rate: float, rng: np.random.Generator) -> np.ndarray:
    """Return classes whose log odds are these numbers and a constant, with this rate of the second."""
    low, high = -30.0, 30.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if float((1 / (1 + np.exp(-u - middle))).mean()) < rate else (low, middle)
    return np.where(rng.random(u.size) < 1 / (1 + np.exp(-u - low)), "yes", "no").astype(object)


def another(shape: Shape, rng: np.random.Generator) -> Table:
    """Return people of the study's own law."""
    n = shape.rows
    x = columns_of(n, shape.numbers, shape.correlation, "normal", rng)
    if shape.skewed:  # of mean 0 and deviation 1, with a long upper tail
        x[:, 0] = (np.exp(0.6 * x[:, 0]) - math.exp(0.18)) / math.sqrt((math.exp(0.36) - 1) * math.exp(0.36))
    arm, ward = rng.random(n) < 0.5, rng.choice(shape.wards, n, p=shape.shares)
    mean = x @ rng.normal(size=shape.numbers) + (arm - 0.5) + 0.5 * (ward == 1)
    mean = (mean - mean.mean()) / mean.std()
    part = math.sqrt(shape.strength)
    if shape.model != "logistic":
        y: Any = np.clip(part * mean + math.sqrt(1 - shape.strength) * rng.normal(size=n), -4, 4)
    else:
        y = classes_of(2.2 * part * mean, shape.rate, rng)
    held: dict[str, Any] = {f"x{j}": np.clip(x[:, j], -shape.width / 2, shape.width / 2) for j in range(shape.numbers)}
    held |= {"arm": np.where(arm, "new", "usual").astype(object), "ward": np.array([f"w{k}" for k in ward], dtype=object)}
    return Table({**held, "y": y})


def errors_of(plan: Plan[Any], table: Table, seed: int) -> dict[str, float]:
    """Return the standard errors of a played study."""
    rng = np.random.default_rng([seed, 5])
    if plan.study.model == "glm" or not plan.study.helpers:
        tables = played_tables(plan, table, rng)
    else:
        held = {card.name: Table({c.name: table[c.name] for c in card.columns}) for card in plan.study.parties}
        tables = drawn_tables(imagine(plan.design, held, rng), ())
    return {line.term: line.std_error for line in tables.summary().terms}


def cell(shape: Shape, law: str, number: int) -> list[list[float]]:
    """Return of every line (printed, narrow and error as foretold; printed, narrow and middle error as they were; that without privacy)."""
    own, exact = study_of(shape, shape.epsilon), study_of(shape, PLENTY if shape.model == MODELS[2] else math.inf)
    model = load(own.model)
    foretold = {line.term: line for line in model.outlook(own, lines=True, quick=True).lines}
    plans = model.compile(own), model.compile(exact)
    errors: dict[str, list[tuple[float, float]]] = {name: [] for name in foretold}
    for seed in range(RUNS):
        table = {STATED: stated, ANOTHER: another}[law](shape, np.random.default_rng([number, seed]))
        played, free = (errors_of(plan, table, seed) for plan in plans)
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
    for law in (STATED, ANOTHER):
        for number, shape in list(enumerate(shapes()))[:: 1 if law == STATED else FEWER]:
            found = kept([number, law, *shape], partial(cell, shape, law, number))
            facts = [float(law == STATED), float(MODELS.index(shape.model)), float(shape.known)]
            rows += [[*facts, *line] for line in found if not line[0]]
            print(law, number, *shape, flush=True)
    every = np.array(rows)
    for law, known, kind in (
        *((STATED, known, kind) for known in (True, False) for kind in range(len(MODELS))),
        *((law, known, None) for law in (STATED, ANOTHER) for known in (True, False)),
    ):
        own = every[(every[:, 0] == (law == STATED)) & (every[:, 2] == known)]
        own = own if kind is None else own[own[:, 1] == kind]
        printed, narrow, error, was, seen, middle = own.T[4:10]
        named, both = printed >= EXPECTED, np.isfinite(error) & np.isfinite(middle) & (was >= 0.5)
        ratio = error[both] / middle[both]
        lines.append(
            (
                law,
                "typical" if known else "ranges alone",
                "all" if kind is None else MODELS[kind],
                str(len(own)),
                f"{np.abs(narrow - seen).mean():.3f}",
                f"{((narrow >= 0.1) & (narrow <= 0.9)).mean():.2f}",
                f"{np.abs(printed - was).mean():.3f}",
                f"{named.sum()} / {was.sum():.1f}",
                f"{was[named].mean():.3f}" if named.any() else "",
                f"{was[~named].mean():.3f}" if (~named).any() else "",
                f"{((ratio >= 0.8) & (ratio <= 1.25)).mean():.2f}",
                f"{np.median(ratio):.2f}",
            )
        )
    write_table(
        "foretold",
        "Lines that are foretold, and lines that are printed",
        (
            "people",
            "declared",
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
        f"{STUDIES} studies of {RUNS} played runs, every fourth by another law too; lines of columns, without constants. Narrow: the standard error is at most twice that without privacy. "
        "Expected: printed in most studies of the outlook.",
    )


if __name__ == "__main__":
    run(main)
