"""Weights of records: declared numbers, by which everything that a record adds to a sum is multiplied.

A weight lies in a declared range [low, high] with low >= 0. Sums use the part v = weight / high, which is at most 1. So the bounds on what one record
adds hold as they are without weights (Theorem B.10), and only one more number is released: the sum of the parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import DataError, UsageError
from unpooled.privacy.bounds import Coding, Column, integer_grid
from unpooled.privacy.mechanisms import Block, Reach
from unpooled.privacy.sensitivity import unit_sums
from unpooled.privacy.table import Table
from unpooled.privacy.unit import ROWWISE
from unpooled.schedules import table
from unpooled.totals.total import Summed, no_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

    from unpooled.protocol.context import Context
    from unpooled.totals.total import Total

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

#: The name of the released sum of weights, and its share of the squared budget.
WEIGHTS, WEIGHTS_SHARE = "weights", table("totals").weights_share
#: The column of an in-process party that holds the weights.
WEIGHT = "(weight)"
#: The most steps per unit of a part.
_GRID = 1 << 20
#: The sentence under a table of weighted rows.
ASSUMPTION = "weights are precisions: a weight of 2 is a response of half the variance, or two equal responses; for sampling weights these errors are too small"


@dataclass(frozen=True)
class Weighting:
    """The declared column of weights, in a study of a number of rows."""

    column: Column
    rows: int

    @property
    def largest(self) -> float:
        """Return the declared upper end, of which a weight is a part."""
        return self.column.range[1]

    @property
    def middle(self) -> float:
        """Return the middle of the declared range as a part: the mean weight that is assumed before data."""
        return sum(self.column.range) / (2 * self.largest)

    @cached_property
    def grid(self) -> int:
        """Return the steps per unit of a part in the released sum."""
        return integer_grid(self.rows, 1, _GRID)

    def parts(self, raw: NDArray[Any]) -> Floats:
        """Return the weights of records as parts of the largest, each between 0 and 1; a missing one is refused."""
        Coding((self.column,), 1).code((raw,))
        return np.asarray(np.clip(raw.astype(np.float64), *self.column.range) / self.largest)

    def vector(self) -> Summed:
        """Return the sum of parts with its noise: a record moves it by at most 1 under both adjacencies (Theorem G.1)."""
        reach = {unit: Reach(unit_sums(1), 1) for unit in ROWWISE}
        return Summed(WEIGHTS, (Block(1, float(self.grid)),), reach, self.grid, WEIGHTS_SHARE)

    def statistic(self, table: Table) -> Ints:
        """Return the sum of one party's parts, in steps of the grid."""
        total = sum(
            int((self.parts(block[0]) * self.grid).astype(np.int64).sum()) for block in table.blocks((self.column.name,))
        )
        return np.array([total], dtype=np.int64)

    def mean(self, total: Total, rows: int) -> float:
        """Return the mean part that the released sum gives, inside what is declared and at least as large as its noise."""
        value, noise = (float(number[0]) / self.grid / rows for number in (total.values, total.deviations))
        least = max(self.column.range[0] / self.largest, min(2 * noise, self.middle), 1e-6)
        return min(max(value, least), 1.0)


def weights_added_up(context: Context, settings: tuple[float, ...]) -> Ints:
    """Return the sum of a party's weights as parts of the largest, by the weighting of the plan's design."""
    no_settings(settings)
    found: Ints = context.design.weighting.statistic(context.table)
    return found


def weighting_of(name: str, columns: Mapping[str, Column], taken: tuple[str, ...], rows: int) -> Weighting | None:
    """Return the weighting by the declared column of this name, or None without a name; refuse a column that cannot hold weights."""
    if not name:
        return None
    if name in taken:
        msg = f"the weights {name!r} must be a column of their own, not the response or another declared role"
        raise UsageError(msg)
    column = columns.get(name)
    if column is None or column.may_be_absent:
        msg = f'the weights {name!r} must be one declared column, never missing: declare missing = "refuse"'
        raise UsageError(msg)
    if column.categories is not None or column.range[0] < 0 or not column.range[1] > 0:
        msg = f"the weights {name!r} must be numbers from 0 on: declare low >= 0 and high above 0"
        raise UsageError(msg)
    return Weighting(column, rows)


def check_weights_bounds(bounds: tuple[float, float] | None) -> tuple[Column, ...]:
    """Return the declared column of an estimator's weights, in a tuple that is empty without bounds."""
    return () if bounds is None else (Column(WEIGHT, float(bounds[0]), float(bounds[1])),)


def given_weights(weights: ArrayLike | None, bounds: tuple[float, float] | None, rows: int) -> dict[str, Floats]:
    """Return the weights that a caller of ``fit`` passes as a column, where they are declared."""
    if (weights is None) != (bounds is None):
        raise UsageError(
            "weights and weights_bounds go together: a number for each row, and the declared range (low, high) of such numbers"
        )
    if weights is None:
        return {}
    column = np.asarray(weights, dtype=np.float64)
    if column.shape != (rows,) or not np.isfinite(column).all():
        msg = f"weights must have a finite number for each of the {rows} rows"
        raise DataError(msg)
    return {WEIGHT: column}


def with_weights(table: Table, weights: ArrayLike | None, bounds: tuple[float, float] | None) -> Table:
    """Return the table with the weights that a caller of ``fit`` passes as one more column, where they are declared."""
    more = given_weights(weights, bounds, table.n_rows)
    return Table({name: table[name] for name in table.names} | more) if more else table
