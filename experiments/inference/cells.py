"""The cells of the coverage of intervals, listed before any run: family, design, epsilon, rows, and the parameters that a cell asks for."""

from __future__ import annotations

from typing import Any, NamedTuple

from experiments.inference.designs import (
    CURVED,
    MISSING,
    PARTIES,
    REPEATED,
    SKEWED_COLUMNS,
    SKEWED_CURVED,
    TABLE_DESIGNS,
)
from experiments.inference.responses import DISPERSED, FAMILIES, OVERDISPERSED, RESIDUALS, UNEQUAL

#: The epsilons; ``EVERY`` orders them so that neighbouring cells have different ones.
EPSILONS, EVERY = (0.5, 1.0, 3.0, 8.0), (0.5, 3.0, 1.0, 8.0)
ROWS, FEW = 20_000, 5000
ROBUST, CLUSTER = "robust", "cluster"
#: The design whose rows and responses are as every model assumes.
PLAIN = "plain"


class Cell(NamedTuple):
    """A cell. ``role`` is "judged", "default" (the same as a judged cell under the default covariance), or "named" (judged on its target's name)."""

    family: str
    design: str
    epsilon: float
    rows: int = ROWS
    covariance: str = ""
    role: str = "judged"

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters that the cell adds to those of its family."""
        found: dict[str, Any] = {"covariance": self.covariance} if self.covariance else {}
        return found | ({"dispersion": "estimate"} if self.family == "negative-binomial" else {})

    @property
    def name(self) -> str:
        """The cell in a table."""
        size = "" if self.rows == ROWS else f", n {self.rows}"
        return f"{self.family}, {self.design}, {self.epsilon:g}{size}"


def _turns(designs: tuple[str, ...], families: tuple[str, ...], times: int, begin: int = 0) -> list[Cell]:
    """Cells of every design and family, each at ``times`` epsilons, which alternate from cell to cell."""
    return [
        Cell(family, design, EVERY[(begin + f + s + 2 * k + k // 2) % 4])
        for f, family in enumerate(families)
        for s, design in enumerate(designs)
        for k in range(times)
    ]


def _twice(cells: list[Cell], covariance: str) -> list[Cell]:
    """Each cell under the covariance that is made for its design, and after it under the default."""
    return [one for cell in cells for one in (cell._replace(covariance=covariance), cell._replace(role="default"))]


def listed() -> tuple[Cell, ...]:
    """All cells, in the order of the table."""
    cells = _turns(TABLE_DESIGNS, FAMILIES, 1)
    cells += _turns((PARTIES, MISSING), FAMILIES, 2, 1)
    cells += _turns(SKEWED_COLUMNS, FAMILIES, 1, 2) + _turns(SKEWED_COLUMNS, ("regression", "logistic", "poisson"), 1, 3)
    cells += [Cell(family, PLAIN, 3.0, FEW) for family in FAMILIES]
    cells += [Cell("regression", design, epsilon) for design in RESIDUALS for epsilon in EPSILONS]
    cells += [Cell("regression", design, epsilon, FEW) for design in RESIDUALS for epsilon in (1.0, 3.0)]
    cells += [Cell("gamma", design, epsilon) for design in RESIDUALS[1:] for epsilon in (1.0, 3.0)]
    cells += [Cell("poisson", design, epsilon) for design in OVERDISPERSED for epsilon in (1.0, 3.0)]
    cells += [Cell("poisson", "overdispersion 3", epsilon) for epsilon in (0.5, 8.0)]
    cells += [Cell("poisson", f"overdispersion {phi}", 3.0, FEW) for phi in (2, 4)]
    cells += [Cell("negative-binomial", design, epsilon) for design in DISPERSED for epsilon in (1.0, 3.0)]
    unequal = [Cell("regression", UNEQUAL, epsilon) for epsilon in EPSILONS] + [Cell("regression", UNEQUAL, 3.0, FEW)]
    unequal += [Cell(family, UNEQUAL, epsilon) for family in ("poisson", "gamma") for epsilon in (1.0, 8.0)]
    curved = [Cell("regression", CURVED, epsilon) for epsilon in (1.0, 3.0, 8.0)]
    curved += [Cell(family, CURVED, epsilon) for family in ("logistic", "poisson", "gamma") for epsilon in (1.0, 3.0)]
    cells += _twice(unequal + curved, ROBUST)
    repeated = [
        Cell(family, REPEATED, epsilon)
        for family in ("regression", "logistic", "poisson", "gamma")
        for epsilon in (1.0, 3.0, 8.0)
    ]
    cells += _twice(repeated, CLUSTER)
    cells += [
        Cell(family, SKEWED_CURVED, epsilon, role="named")
        for family in ("regression", "logistic", "poisson", "gamma")
        for epsilon in (1.0, 3.0)
    ]
    return tuple(cells)


CELLS = listed()
assert len(set(CELLS)) == len(CELLS)
