r"""Private ranges as declared bounds: one noisy histogram per column over public bins, from which low and high are read.

Bins are public before anybody looks: between powers of sqrt 2 up to :math:`2^{40}` on both sides of zero, what is nearer to zero than
:math:`2^{-20}`, what is farther than :math:`2^{40}`, and a missing value. One record is in one bin of every column (Theorem Q.1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from unpooled.errors import UsageError
from unpooled.privacy.accounting import budget_mu
from unpooled.privacy.mechanisms import Block, GaussianRelease, Reach
from unpooled.privacy.unit import Adjacency, Unit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.privacy.bounds import Column
    from unpooled.privacy.plan import Study
    from unpooled.privacy.table import Table

#: Exponents of 2 of the smallest and largest edge, and edges per power of two.
_SMALLEST, _LARGEST, _PER_POWER = -20, 40, 2
_POSITIVE = 2.0 ** np.arange(_SMALLEST, _LARGEST + 1 / _PER_POWER, 1 / _PER_POWER)
#: Edges of the bins, rising; the outermost bins are open.
EDGES: NDArray[np.float64] = np.concatenate([-_POSITIVE[::-1], _POSITIVE])
#: Bins of a column: between and beyond the edges, and one for what is missing.
BINS = EDGES.size + 2
#: What a column is declared as before it has a range: everything that a bin with two ends holds.
FARTHEST = float(_POSITIVE[-1])
#: With this probability no empty bin of any column is taken for one with values.
_CONFIDENCE = 0.99


class Range(msgspec.Struct, frozen=True):
    """A column's private range: the bins that hold more than noise, and one more on each side."""

    column: str
    low: float
    high: float
    #: Estimated share of the values that lie outside, and of those that are missing.
    clipped: float
    missing: float


@dataclass(frozen=True, slots=True)
class RangesLayout:
    """The counts of all bins of these columns, one after the other."""

    columns: tuple[Column, ...]

    def mechanism(self, study: Study) -> GaussianRelease:
        """Return equal noise on every count (Theorem Q.1)."""
        d, adjacency = len(self.columns), Adjacency(study.adjacency)
        moved = 2.0 if adjacency is Adjacency.REPLACE else 1.0
        # A value that goes missing is counted as missing: it leaves one bin for another, under both adjacencies.
        reach = {Unit.RECORD: Reach(math.sqrt(moved * d), 2 * d), Unit.ATTRIBUTE: Reach(math.sqrt(2.0), 2)}
        if study.unit == Unit.HOUSEHOLD:
            reach[Unit.HOUSEHOLD] = reach[Unit.RECORD].times(study.household_rows)
        mu = budget_mu(study.epsilon, study.delta)
        return GaussianRelease.calibrated((Block(d * BINS, 1.0),), reach, Unit(study.unit), mu)

    def statistic(self, table: Table) -> NDArray[np.int64]:
        """Return the exact counts of one party's rows."""
        total = np.zeros((len(self.columns), BINS), dtype=np.int64)
        for block in table.blocks(tuple(column.name for column in self.columns)):
            for i, values in enumerate(block):
                total[i] += np.bincount(bins_of(values), minlength=BINS)
        return total.ravel()

    def ranges(
        self, counts: NDArray[np.float64], deviation: float, rows: int, least: int | None = None
    ) -> tuple[Range, ...]:
        """Return low and high of every column from its noisy counts of ``rows`` rows; of at least ``least`` where the number is not known."""
        d = len(self.columns)
        level = deviation * NormalDist().inv_cdf(1 - (1 - _CONFIDENCE) / (d * BINS))
        found = []
        for column, own in zip(self.columns, counts.reshape(d, BINS), strict=True):
            present = own[:-1]
            full = np.flatnonzero(present > max(level, 0.0))
            if not full.size:
                msg = f"no bin of column {column.name!r} holds more than noise: ask for more epsilon, or describe fewer columns at once"
                raise UsageError(msg).at(column=column.name)
            # One bin more on each side, for values too few to be seen.
            first, last = max(int(full[0]) - 1, 0), min(int(full[-1]) + 1, BINS - 2)
            low = float(EDGES[first - 1]) if first else -FARTHEST
            high = float(EDGES[last]) if last < EDGES.size else FARTHEST
            held = float(present[first : last + 1].sum() + max(float(own[-1]), 0.0))
            of = rows if least is None else min(max(held, least), rows)
            outside = float(present.sum() - present[first : last + 1].sum())
            clipped, missing = (min(max(number / of, 0.0), 1.0) for number in (outside, float(own[-1])))
            found.append(Range(column.name, low, high, clipped, missing))
        return tuple(found)


def bins_of(values: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the bin of every value: left-closed on the positive side and on the negative one alike; the last one is for what is missing."""
    if values.dtype == object:
        raise UsageError("private ranges are of numbers: declare the categories of text columns")
    found = np.searchsorted(EDGES, values, side="right")
    return np.where(np.isnan(values), BINS - 1, found)


def render(ranges: tuple[Range, ...]) -> str:
    """Return the ranges as a table."""
    lines = [f"{'column':<24}{'low':>14}{'high':>14}{'clipped':>10}{'missing':>10}"]
    lines += [f"{r.column:<24}{r.low:>14.6g}{r.high:>14.6g}{r.clipped:>10.1%}{r.missing:>10.1%}" for r in ranges]
    return "\n".join(lines)
