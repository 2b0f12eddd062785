"""Rows of the coverage of joint moments: columns of one law that lie at several parties, and a regression on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from unpooled.models.bayes.columns import design_of
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, HelperCard, Study
from unpooled.privacy.table import Table
from unpooled.products.design import JointBudget, JointDesign

NORMAL, FACTOR, SKEWED, HEAVY, BINARY, LEVELS = (
    "normal",
    "one factor",
    "skewed",
    "heavy-tailed",
    "rare binary",
    "levels",
)
DESIGNS = (NORMAL, FACTOR, SKEWED, HEAVY, BINARY, LEVELS)
ROWS, EPSILONS, PARTIES = (5000, 50_000), (0.5, 1.0, 3.0), (2, 4)
DELTA, INTERCEPT, NOISE = 1e-5, 0.5, 1.0
#: Effects of the eight columns in deviations of the residual per deviation of the column; loadings of the one factor; shares of ones.
_EFFECTS = (0.4, 0.0, 0.3, -0.2, 0.0, 0.3, 0.0, 0.2)
_LOADINGS = np.array([0.8, 0.6, 0.4, -0.6, 0.7, 0.2, -0.4, 0.5])
_SHARES = np.array([0.5, 0.1, 0.05, 0.3, 0.2, 0.05, 0.1, 0.4])
#: Columns of levels: (name, shares, effects).
_FACTORS = (("g", (0.5, 0.3, 0.17, 0.03), (0.0, 0.3, 0.0, 0.5)), ("h", (0.6, 0.4), (0.0, -0.3)))


class Cell(NamedTuple):
    """A cell of the table of coverage."""

    design: str
    parties: int
    rows: int
    epsilon: float

    @property
    def name(self) -> str:
        """The cell in a table."""
        return f"{self.design}, {self.parties} parties, n {self.rows}, {self.epsilon:g}"


CELLS = tuple(Cell(d, k, n, e) for k in PARTIES for n in ROWS for d in DESIGNS for e in EPSILONS)


@dataclass
class Drawn:
    """A study with its tables; the true value of every line, and the deviation of its column in deviations of the response."""

    design: JointDesign
    tables: dict[str, Table]
    truth: dict[str, float]
    deviations: dict[str, float]


@dataclass
class _Columns:
    """Columns in the making, in the order in which the parties get them."""

    columns: list[tuple[Column, Any]] = field(default_factory=list)
    truth: dict[str, float] = field(default_factory=lambda: {"(intercept)": INTERCEPT})
    spread: dict[str, float] = field(default_factory=lambda: {"(intercept)": 1.0})
    mean: Any = INTERCEPT

    def number(self, name: str, values: np.ndarray, low: float, high: float, effect: float) -> None:
        """Add a column of numbers."""
        self.columns.append((Column(name, low, high), values))
        self.truth[name], self.spread[name] = effect, float(values.std())
        self.mean = self.mean + effect * values

    def factor(self, name: str, at: np.ndarray, effects: tuple[float, ...]) -> None:
        """Add a column of levels."""
        levels = tuple(f"l{k}" for k in range(len(effects)))
        self.columns.append((Column(name, categories=levels), np.array(levels, dtype=object)[at]))
        for k, effect in enumerate(effects[1:], 1):
            self.truth[f"{name}: l{k} - l0"], self.spread[f"{name}: l{k} - l0"] = effect, float((at == k).std())
        self.mean = self.mean + np.array(effects)[at]


def _numbers(design: str, n: int, rng: np.random.Generator) -> tuple[np.ndarray, float, float, np.ndarray]:
    """Eight columns of a law, their declared range, and their effects."""
    effects = np.array(_EFFECTS)
    if design == SKEWED:
        return rng.exponential(size=(n, 8)).clip(0, 8), 0.0, 8.0, effects
    if design == HEAVY:
        return (rng.standard_t(3, size=(n, 8)) / np.sqrt(3)).clip(-8, 8), -8.0, 8.0, effects
    if design == BINARY:
        return (rng.random((n, 8)) < _SHARES).astype(float), 0.0, 1.0, effects / np.sqrt(_SHARES * (1 - _SHARES))
    values = rng.normal(size=(n, 8))
    if design == FACTOR:
        values = rng.normal(size=(n, 1)) * _LOADINGS + values * np.sqrt(1 - _LOADINGS**2)
    return values.clip(-4, 4), -4.0, 4.0, effects


def drawn(cell: Cell, rng: np.random.Generator) -> Drawn:
    """The study of a cell over fresh rows; the last party holds the response."""
    made, n = _Columns(), cell.rows
    if cell.design == LEVELS:
        for k, (name, shares, effects) in enumerate(_FACTORS):
            made.number("uv"[k], rng.normal(size=n).clip(-4, 4), -4.0, 4.0, (0.4, 0.0)[k])
            made.factor(name, rng.choice(len(shares), n, p=shares), effects)
    else:
        values, low, high, effects = _numbers(cell.design, n, rng)
        for j, effect in enumerate(effects.tolist()):
            made.number(f"x{j}", values[:, j], low, high, effect)
    y = (made.mean + NOISE * rng.normal(size=n)).clip(-8, 8)
    parts = [list(part) for part in np.array_split(np.arange(len(made.columns)), cell.parties)]
    cards, tables = [], {}
    for k, part in enumerate(parts):
        own = [made.columns[j] for j in part]
        if k == len(parts) - 1:
            own.append((Column("y", -8.0, 8.0), y))
        cards.append(Card(f"p{k}", n, tuple(column for column, _ in own)))
        tables[f"p{k}"] = Table({column.name: held for column, held in own})
    study = Study(
        "joint",
        tuple(cards),
        cell.epsilon,
        DELTA,
        derived=(),
        parameters={"response": "y", "method": "moments"},
        helpers=(HelperCard("helper"),),
    )
    design = design_of(study, JointBudget.of(study, max(cell.parties, 3)))
    scale = float(y.std())
    return Drawn(design, tables, made.truth, {name: value / scale for name, value in made.spread.items()})
