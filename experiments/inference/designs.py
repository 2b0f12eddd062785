"""Rows of the designs of the coverage of intervals: declared columns, their values, linear predictors, and the lines that a table has of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from unpooled.privacy.bounds import Column

#: Designs of columns alone, which go with every family.
TABLE_DESIGNS = (
    "two levels",
    "eight levels",
    "a rare level",
    "a product",
    "a constant column",
    "correlation .9",
    "ranges ten times too wide",
)
PARTIES, MISSING, REPEATED = "three parties", "missing values", "repeated rows"
SKEWED_COLUMNS = ("t3 columns", "exponential columns", "lognormal columns")
CURVED, SKEWED_CURVED = "curved mean", "skewed and curved"
#: Families whose mean is the exponential of the linear predictor: their slopes on columns with long tails are smaller.
LOG_LINKS = frozenset({"poisson", "negative-binomial", "gamma", "survival"})
#: Rows of each person where rows are repeated.
TIMES = 4
#: Means of the first column at the three parties, and the effects of the parties.
_MEANS, _EFFECTS = (-0.8, 0.0, 0.8), (0.0, 0.3, -0.2)
_ABSENT = 0.15


class Line(NamedTuple):
    """A line of a table other than the constant: its true coefficient, and the values of the column that it is of."""

    truth: float
    values: np.ndarray


@dataclass
class Rows:
    """Rows of one draw. ``eta`` holds linear predictors without the constant; they are 0 at the origin of all columns and at reference levels."""

    n: int
    eta: np.ndarray
    columns: list[Column] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, Line] = field(default_factory=dict)
    formula: str = ""
    #: Whether the constant has a value of its own.
    constant: bool = True
    #: An id for every row, where rows belong to persons; and the values of the column that spreads grow with.
    ids: np.ndarray | None = None
    grows: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def number(self, name: str, values: np.ndarray, slope: float, low: float, high: float, missing: Any = "refuse") -> None:
        """Add a column of numbers with this slope."""
        self.columns.append(Column(name, low, high, missing=missing))
        self.values[name] = values
        self.lines[name] = Line(slope, values)
        self.eta = self.eta + slope * values

    def factor(self, name: str, at: np.ndarray, effects: tuple[float, ...]) -> None:
        """Add a column of levels; ``at``: the number of each row's level."""
        levels = tuple(f"l{k}" for k in range(len(effects)))
        self.columns.append(Column(name, categories=levels))
        self.values[name] = np.array(levels, dtype=object)[at]
        for k, effect in enumerate(effects[1:], 1):
            self.lines[f"{name}: l{k} - l0"] = Line(effect - effects[0], (at == k).astype(float))
        self.eta = self.eta + np.array(effects)[at] - effects[0]


def drawn(design: str, family: str, n: int, rng: np.random.Generator) -> Rows:
    """Rows of a design for a family: the columns u (with an effect) and v (mostly without one), and whatever the design adds."""
    rows = Rows(n, np.zeros(n))
    if design == REPEATED:
        return _repeated(rows, rng)
    if design in SKEWED_COLUMNS or design == SKEWED_CURVED:
        return _skewed(rows, design, family, rng)
    wide = 40.0 if design == "ranges ten times too wide" else 4.0
    at = rng.integers(3, size=n) if design == PARTIES else None
    first = rng.normal(size=n) + (0.0 if at is None else np.array(_MEANS)[at])
    second = 0.9 * first + math.sqrt(0.19) * rng.normal(size=n) if design == "correlation .9" else rng.normal(size=n)
    first, second = first.clip(-4, 4), second.clip(-4, 4)
    rows.grows = first
    if design == MISSING:
        absent = rng.random(n) < _ABSENT
        rows.number("u", np.where(absent, 0.0, first), 0.4, -wide, wide, "indicator")
        rows.values["u"] = np.where(absent, np.nan, first)
        rows.lines["u missing"] = Line(0.2, absent.astype(float))
        rows.eta = rows.eta + 0.2 * absent
    else:
        rows.number("u", first, 0.4, -wide, wide)
    rows.number("v", second, 0.0, -wide, wide)
    if at is not None:
        rows.factor("site", at, _EFFECTS)
    elif design in TABLE_DESIGNS:
        _levels(rows, design, rng)
    elif design == CURVED:
        rows.eta = rows.eta + (0.1 if family in LOG_LINKS else 0.3) * (first**2 - 1)
    return rows


def _levels(rows: Rows, design: str, rng: np.random.Generator) -> None:
    """Add the levels, the product or the constant column of a design."""
    if design in {"two levels", "a product"}:
        rows.factor("g", rng.choice(2, rows.n), (0.0, 0.3))
    elif design == "eight levels":
        rows.factor("g", rng.choice(8, rows.n), (0.0, 0.3, -0.3, 0.0, 0.2, 0.1, -0.1, 0.4))
    elif design == "a rare level":
        rows.factor("g", rng.choice(4, rows.n, p=[0.5, 0.3, 0.17, 0.03]), (0.0, 0.3, 0.0, 0.5))
    elif design == "a constant column":
        rows.columns.append(Column("still", 0.0, 8.0))
        rows.values["still"] = np.full(rows.n, 3.0)
        rows.constant = False
    if design == "a product":
        both = rows.values["u"] * rows.lines["g: l1 - l0"].values
        rows.lines["u * (g: l1 - l0)"] = Line(0.2, both)
        rows.eta = rows.eta + 0.2 * both
        rows.formula = "u * g + v"


def _skewed(rows: Rows, design: str, family: str, rng: np.random.Generator) -> Rows:
    """Add two columns with long tails, each of deviation 1 before it is clipped to its declared range."""
    low, high = (-8.0, 8.0) if design == "t3 columns" else (0.0, 8.0)

    def column() -> np.ndarray:
        if design == "t3 columns":
            found = rng.standard_t(3, rows.n) / math.sqrt(3)
        elif design == "lognormal columns":
            found = np.exp(0.8 * rng.normal(size=rows.n)) / math.sqrt(math.expm1(0.64) * math.exp(0.64))
        else:
            found = rng.exponential(size=rows.n)
        return found.clip(low, high)

    rows.number("u", column(), 0.25 if family in LOG_LINKS else 0.4, low, high)
    rows.number("v", column(), 0.0, low, high)
    rows.grows = rows.values["u"]
    if design == SKEWED_CURVED:
        curve = 0.04 if family in LOG_LINKS else 0.3
        rows.eta = rows.eta + curve * ((rows.values["u"] - 1) ** 2 - 1)
    return rows


def _repeated(rows: Rows, rng: np.random.Generator) -> Rows:
    """Add persons with ``TIMES`` rows each: u and w belong to the person, v to the row."""
    persons = rows.n // TIMES
    who = np.repeat(np.arange(persons), TIMES)
    rows.ids = np.array([f"p{k}" for k in who.tolist()], dtype=object)
    for name, slope in (("u", 0.4), ("w", 0.0)):
        rows.number(name, rng.normal(size=persons).clip(-4, 4)[who], slope, -4.0, 4.0)
    rows.number("v", rng.normal(size=rows.n).clip(-4, 4), 0.3, -4.0, 4.0)
    rows.grows = rows.values["u"]
    return rows
