r"""Direction, then scale: rounds on shortened rows tell in which direction the slopes point, and one histogram along it how long they are.

A record's standardised row is shortened to a bound and gets a constant of 1. In a round its pull times that row is cut to a short length
(Theorem G.2), so that a record of either class counts about as much as any other: the sum points in the direction of the slopes, and says nothing of
their length. The length comes from one histogram of (cell of the score t = z.b) x class, z the row without shortening (Theorem G.11): there is
nothing to clip. Where rounds estimated a length already, the same histogram corrects it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from unpooled.kernels import rows as standard_rows
from unpooled.kernels.score_posterior import CELLS, score_counts
from unpooled.models.glm.rows import GlmRows
from unpooled.privacy.mechanisms import Block, Reach
from unpooled.privacy.sensitivity import category_counts
from unpooled.totals.total import Summed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from unpooled.privacy.table import Table
    from unpooled.privacy.unit import Adjacency, Unit
    from unpooled.totals.total import Total

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

#: The name of the histogram.
PROBABILITIES = "probabilities"
#: The words of a plan for it.
HISTOGRAM = (
    f"how many rows of each class have a score in each of {CELLS} cells, from which the probabilities of the classes follow"
)
#: Rows are shortened to this part of a typical row's length, and get a constant of this length.
SHORTENED, CONSTANT = 0.6, 1.0
#: Rows that are worked on at a time.
_CACHED = 2048


@dataclass(frozen=True)
class ShortRows(GlmRows):
    """Sums over standardised rows that are shortened; pulls are cut and not scaled down."""

    @property
    def bound(self) -> tuple[float, float]:
        """Return infinite bounds: nothing is scaled down before it is cut."""
        return math.inf, math.inf

    @property
    def far(self) -> float:
        """Return the length to which the columns of a row are shortened."""
        return SHORTENED * math.sqrt(len(self.layout.coding.attribute))

    @cached_property
    def radius(self) -> float:
        """R: the largest length of a row with its constant."""
        return math.hypot(self.far, CONSTANT * self.layout.intercept)

    def blocks(self, table: Table, standard: tuple[Floats, Floats]) -> Iterator[tuple[Floats, Floats]]:
        """(shortened rows on the grid as floats that hold integers, a column each of responses and offsets), block by block."""
        columns = len(self.layout.coding.attribute)
        for rows, beside in super().blocks(table, standard):
            standard_rows.shorten_columns(rows, columns, self.far * self.grid)
            rows[:, columns:] = math.trunc(CONSTANT * self.grid)
            yield rows, beside


@dataclass(frozen=True)
class ScoreCells:
    """Counts of rows by (class, cell of the score)."""

    @staticmethod
    def vector(share: float, moves: Mapping[Unit, Adjacency]) -> Summed:
        """Return the counts with their noise: a row is in one cell, and whatever changes in it may move it to another (Theorem G.11)."""
        reach = {who: Reach(category_counts(how), 2 * CELLS) for who, how in moves.items()}
        return Summed(PROBABILITIES, (Block(2 * CELLS, 1.0),), reach, 1, share)

    @staticmethod
    def added_up(rows: GlmRows, blocks: Iterable[tuple[Floats, Floats]], start: Floats) -> Ints:
        """Return the exact counts of these standardised rows: cells of the first class from the lowest score to the highest, then of the second."""
        total = np.zeros(2 * CELLS, dtype=np.int64)
        for block, other in blocks:
            for at in range(0, other.shape[0], _CACHED):
                second = other[at : at + _CACHED, 0] > 0
                back, square = np.empty((2, second.size))
                # Record after record: 0 less the product, in the order of columns.
                standard_rows.leave_from(block, at, np.zeros(second.size), start, float(rows.grid), back, square)
                total += score_counts(-back, second)
        return total

    @staticmethod
    def decode(total: Total) -> tuple[Floats, float]:
        """Return (released counts, a line for each class; the deviation of their noise)."""
        return total.values.reshape(2, CELLS), float(total.deviations.max())
