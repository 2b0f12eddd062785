"""Random formulas and rows for them: ours, the same for formulaic, and the declarations that both share."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from unpooled.formula import Derived, Formula
from unpooled.formula.derived import _Rows

RANGES: dict[str, tuple[float, float]] = {
    "age": (18.0, 90.0),
    "dose": (-1.0, 3.0),
    "years": (0.5, 20.0),
    "days": (0.0, 365.0),
    "blood pressure": (60.0, 250.0),
    "small": (-1e-3, 2e-3),
    "income": (1.0, 1e6),
    "share": (0.0, 1.0),
    "loss": (-7.5, -0.1),
}
CATEGORIES: dict[str, tuple[str, ...]] = {"ward": ("a", "b", "c"), "arm": ("x", "y"), "site": ("1", "2", "3", "10")}
DECLARED: dict[str, Any] = {**RANGES, **CATEGORIES}


@dataclass(frozen=True)
class Pair:
    """A formula as we and as formulaic write it."""

    ours: str
    theirs: str


def quoted(name: str) -> str:
    return name if name.isidentifier() else f"`{name}`"


class Maker:
    """Draws formulas from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def pick(self, *options: Any) -> Any:
        return options[self.rng.integers(len(options))]

    def number(self) -> str:
        return self.pick("1", "2", "0.5", "3", "10", "1e-2", "2.25")

    def column(self, low: float = -math.inf) -> str:
        return quoted(self.pick(*[name for name, (least, _) in RANGES.items() if least >= low]))

    def arithmetic(self, depth: int = 2, low: float = -math.inf) -> str:
        """An expression whose values are at least ``low`` (one of -inf, 0, and a little above 0)."""
        if depth == 0 or self.rng.random() < 0.25:
            return self.column(low)
        inner = lambda least=low: self.arithmetic(depth - 1, least)
        if low == -math.inf:
            return self.pick(
                lambda: f"{inner()} + {inner()}",
                lambda: f"{inner()} - ({inner()})",
                lambda: f"({inner()}) * ({inner()})",
                lambda: f"-({inner()})",
                lambda: f"({inner()})**{self.pick(2, 3, 4)}",
                lambda: f"({inner()}) / ({self.arithmetic(depth - 1, 1e-9)})",
                lambda: f"{self.number()} * ({inner()}) - {self.number()}",
                lambda: f"log({self.arithmetic(depth - 1, 1e-9)})",
                lambda: f"log1p({self.arithmetic(depth - 1, 0.0)})",
                lambda: f"sqrt({self.arithmetic(depth - 1, 0.0)})",
                lambda: f"exp(-({self.arithmetic(0, 0.0)}) / 50)",
                lambda: f"({self.column(1e-9)})**-{self.pick(1, 2)}",
            )()
        more = [
            lambda: f"{inner()} + {inner(0.0)}",
            lambda: f"({inner()}) * ({inner()})",
            lambda: f"({inner()}) / ({self.arithmetic(depth - 1, 1e-9)})",
            lambda: f"({inner()})**{self.pick(2, 3)}",
            lambda: f"({inner()})**{self.pick('0.5', '1.5', '0.25')}",
        ]
        if low > 0:  # kept above 0 by something that is
            more += [
                lambda: f"({self.arithmetic(depth - 1)})**2 + {self.number()}",
                lambda: f"exp({self.column(0.0)} / 100)",
            ]
        return self.pick(*more)()

    def factor(self) -> Pair:
        kind = self.rng.random()
        if kind < 0.25:
            return self.same(self.column())
        if kind < 0.45:
            name = self.pick(*CATEGORIES)
            if self.rng.random() < 0.4:
                reference = self.pick(*CATEGORIES[name])
                return Pair(f"C({name})", f"C({name}, contr.treatment('{reference}'))")
            return self.same(name)
        if kind < 0.7:
            return self.same(f"I({self.arithmetic()})")
        if kind < 0.85:
            function, low = self.pick(("log", 1e-9), ("log1p", 0.0), ("sqrt", 0.0))
            return self.same(f"{function}({self.arithmetic(1, low)})")
        name = self.pick(*[n for n in RANGES if n != "income"])
        low, high = RANGES[name]
        count, degree = int(self.rng.integers(0, 4)), int(self.pick(1, 2, 3, 3))
        knots = [float(k) for k in np.sort(np.round(low + (high - low) * self.rng.uniform(0.05, 0.95, count), 6))]
        if len(set(knots)) < count:
            knots = []
        ours = f"bs({quoted(name)}, knots={knots}, degree={degree})"
        return Pair(ours, f"{ours[:-1]}, lower_bound={low}, upper_bound={high})")

    @staticmethod
    def same(text: str) -> Pair:
        return Pair(text, text)

    def formula(self) -> Pair:
        ours, theirs, used = [], [], {}
        for _ in range(int(self.rng.integers(1, 4))):
            factors = [self.factor() for _ in range(int(self.pick(1, 1, 2, 2, 3)))]
            # Each category once a formula in the same words: formulaic takes C(x) and x for two factors.
            factors = [
                used.setdefault(re.sub(r"\W|C", "", f.ours) if f.ours in CATEGORIES or f.ours[:2] == "C(" else f.ours, f)
                for f in factors
            ]
            operator = self.pick(":", " * ")
            ours.append(operator.join(f.ours for f in factors))
            theirs.append(operator.join(f.theirs for f in factors))
        constant = self.pick("", "", "0 + ")
        return Pair(constant + " + ".join(ours), constant + " + ".join(theirs))


def rows(rng: np.random.Generator, count: int, *, edges: bool = False) -> dict[str, Any]:
    """Rows within the declared ranges; with ``edges`` many lie at an end, next to one, beyond one, or at 0."""
    columns: dict[str, Any] = {}
    for name, (low, high) in RANGES.items():
        values = rng.uniform(low, high, count)
        if edges:
            special = [
                low,
                high,
                np.nextafter(low, high),
                np.nextafter(high, low),
                np.nextafter(low, -np.inf),
                np.nextafter(high, np.inf),
            ]
            special += [
                low - 5.0,
                high * 2 + 1,
                -np.inf,
                np.inf,
                *([0.0, -0.0, 5e-324, -5e-324] if low <= 0 <= high else []),
            ]
            places = rng.random(count) < 0.5
            values[places] = rng.choice(special, places.sum())
        columns[name] = values
    for name, levels in CATEGORIES.items():
        some = [*levels, *(["unseen", None] if edges else [])]
        columns[name] = np.array(some, dtype=object)[rng.integers(len(some), size=count)]
    return columns


def violations(derived: Derived, columns: dict[str, Any]) -> list[str]:
    """The derived columns whose values, before they are clipped, leave their declared ranges. A row with missing values counts as none."""
    table = _Rows(derived, columns)
    wrong = []
    for column in (*derived.columns, *([derived.offset_column] if derived.offset_column else [])):
        values = table.computed(column.recipe)
        inside = (values >= column.low) & (values <= column.high)
        if not (inside | table.missing(column.recipe)).all():
            wrong.append(column.name)
    return wrong


def derived_of(pair: Pair) -> Derived:
    return Formula.parse(pair.ours).derive(DECLARED)
