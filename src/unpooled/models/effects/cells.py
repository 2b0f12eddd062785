"""Cells of the two histograms that an effect rests on: propensities by arm, and contributions to the effect by arm."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from unpooled.kernels.pareto_tail import missing_mean
from unpooled.privacy.mechanisms import Block, Reach
from unpooled.privacy.sensitivity import category_counts
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.totals.total import Summed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.linear.residuals import ResidualCounts

    Floats = NDArray[np.float64]

#: Where cells of contributions begin on each side of 0, in parts of the outcome's range.
_SPREAD = (0.03, 0.06, 0.1, 0.15, 0.22, 0.33, 0.5, 0.75, 1.1, 1.7, 2.5, 3.8, 5.7, 8.5, 13.0)
#: Bounds on contributions that are considered, in their deviations.
_TIMES = (3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0)
#: Outer cells with fewer rows than this number of deviations of their noise are left out of a mean.
_HIDDEN = 3.0
#: A deviation is never a smaller part of the first cut.
_LEAST = 0.25


@dataclass(frozen=True)
class ArmCells:
    """Cells of one number, for both arms: the control's from the lowest to the highest, then those of the treated."""

    name: str
    cuts: tuple[float, ...]

    @property
    def each(self) -> int:
        """Return the cells of one arm."""
        return len(self.cuts) + 1

    def vector(self, share: float, adjacency: Adjacency) -> Summed:
        """Return the counts with their noise: whatever changes in a row may move it to another cell (Theorem F.2)."""
        count = 2 * self.each
        reach = {Unit.RECORD: adjacency, Unit.ATTRIBUTE: Adjacency.REPLACE}
        moved = {who: Reach(category_counts(how), count) for who, how in reach.items()}
        return Summed(self.name, (Block(count, 1.0),), moved, 1, share)

    def added_up(self, values: Floats, treated: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the exact counts of these rows."""
        cell = np.searchsorted(np.array(self.cuts), values, side="right") + self.each * treated
        return np.bincount(cell, minlength=2 * self.each).astype(np.int64)

    @cached_property
    def middles(self) -> Floats:
        """Return the middle of every cell of one arm; an open one is taken to be as wide as its neighbour."""
        edges = np.array(self.cuts)
        widths = np.diff(edges)
        return np.concatenate([[edges[0] - widths[0] / 2], (edges[1:] + edges[:-1]) / 2, [edges[-1] + widths[-1] / 2]])


def overlap_cells(name: str, least: float) -> ArmCells:
    """Return the cells of propensities: those that are cut, and tenths between them."""
    inner = [tenth / 10 for tenth in range(1, 10) if least < tenth / 10 < 1 - least]
    return ArmCells(name, (least, *inner, 1 - least))


@dataclass(frozen=True)
class Spread:
    """The middle of contributions, the bound on their distance from it, and the mean that the bound cuts off."""

    centre: float
    bound: float
    missing: float
    missing_error: float
    #: The share of rows that are cut, and the deviation of the noise in this number.
    beyond: float
    beyond_noise: float


def spread_of(counts: ResidualCounts, noise_per_bound: float, farthest: float, *, about: float | None = None) -> Spread:
    """Return the bound on contributions that leaves the smallest error (THEORY.md, section 3).

    ``noise_per_bound`` is the deviation of the mean of contributions, for a bound of 1; ``farthest`` the largest contribution that there can be,
    and ``about`` their middle, where it is not to be learnt.
    """
    deviation = max(math.sqrt(counts.mean_square()), _LEAST * counts.cuts[0])
    centre = middle_of(counts) if about is None else about
    if not noise_per_bound:  # without noise nothing need be cut
        return Spread(centre, farthest + abs(centre), 0.0, 0.0, 0.0, 0.0)
    own = counts.from_cut(deviation)
    shift, best = centre / deviation, None
    for times in _TIMES:
        above, below = (
            missing_mean(own.side(sign), own.cuts, own.rows, 2 * own.variance, times + sign * shift, farthest / deviation)
            for sign in (1, -1)
        )
        error = math.hypot(above[1], below[1])
        whole = math.hypot(noise_per_bound * times, error)
        if best is None or whole < best[0]:
            best = whole, times, above[0] - below[0], error
    assert best is not None  # there are several
    _, times, missing, error = best
    return Spread(centre, times * deviation, missing * deviation, error * deviation, *own.beyond(times))


def middle_of(counts: ResidualCounts) -> float:
    """Return the mean of contributions, as far as the cells tell it that the noise does not hide."""
    edges = np.array([0.0, *counts.cuts])
    middles = np.append((edges[1:-1] + edges[2:]) / 2, edges[-1])
    total = 0.0
    for sign in (1, -1):
        side = counts.side(sign)
        hidden = np.flatnonzero(side < _HIDDEN * math.sqrt(2 * counts.variance))
        seen = int(hidden[0]) if hidden.size else side.size
        total += sign * float(side[:seen] @ middles[:seen])
    return total / counts.rows


def spread_cuts(widest: float, least: float) -> tuple[float, ...]:
    """Return where cells of contributions begin on each side of 0, up to the largest that there can be."""
    return tuple(cut * widest for cut in _SPREAD if cut < 1 + 1 / least)
