r"""Times to an event: declared intervals with a hazard each, and everything that is summed over persons who were followed for a time.

In interval j a person with row x has the hazard exp(a_j + x.b): a piecewise exponential model. A person counts once, with the totals over the
intervals. Summed are, in addition to what standardises,

* ``base``: how many persons left in which interval, with an event or without, or not at all (Theorem F.2): 2 J + 1 cells;
* ``descent``: h r z with the person's whole pull r (Theorem G.2), the shape of the baseline as the cells say;
* ``score``: h (k r_1, .., k r_J, r z) with the pulls of the intervals and the constant k (Theorem G.9);
* ``information``: the sum over j of h w_j (k e_j, z)(k e_j, z)' (Theorem G.10).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from unpooled.families import Response
from unpooled.kernels import rows as row_kernels
from unpooled.linear.standard import CONSTANT
from unpooled.models.glm.families import SURVIVAL
from unpooled.models.glm.rows import BASE, INFORMATION, SCORE, BaseRate, GlmRows, Responses, nearest
from unpooled.privacy.bounds import Coding, Column, integer_grid
from unpooled.privacy.mechanisms import Block, Reach
from unpooled.privacy.sensitivity import category_counts, clipped_products, moments_augmented
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.totals.total import Summed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from unpooled.privacy.table import Table
    from unpooled.totals.total import Total

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

#: Persons who are worked on at a time.
_CACHED = 2048
#: A person is followed until the model's own hazards have added up to this: one in twenty stays longer. Without noise one in 10^8.
FOLLOWED, _EXACTLY = 3.0, 20.0
#: Steps of a squared row times its weight, per unit: so few that sums of thousands are exact in float64. Without noise more.
_FINE, _FINEST = 1 << 38, 1 << 44


@dataclass(frozen=True)
class Hazards(Response):
    """The family of times to an event, with the ends of its intervals."""

    name: ClassVar[str] = SURVIVAL
    high: float = 1.0
    edges: tuple[float, ...] = (1.0,)

    @property
    def most(self) -> tuple[float, float]:
        """Return the longest pull (both signs of it) and the largest weight of a person who is followed to the end."""
        return 1.5 * _EXACTLY, _EXACTLY

    @property
    def widths(self) -> Floats:
        """Return the lengths of the intervals."""
        return np.diff(np.array([0.0, *self.edges]))

    def within(self, time: Floats) -> Floats:
        """Return the time that somebody followed to this time was in each interval: a row for each time."""
        starts = np.array([0.0, *self.edges[:-1]])
        return np.asarray(np.clip(time[:, None] - starts, 0.0, self.widths))


@dataclass(frozen=True)
class PersonResponses(Responses):
    """The columns of times and of events."""

    event: Column = field(default_factory=lambda: Column("event", 0, 1))

    @property
    def columns(self) -> tuple[Column, ...]:
        """Both."""
        return self.response, self.event

    @property
    def shifted(self) -> bool:
        """There is no offset."""
        return False

    def read(self, block: tuple[NDArray[np.float64], ...]) -> tuple[Floats, Floats]:
        """Return (times, events as 0 and 1) of a block of raw columns; of two categories the second is the event."""
        code = Coding(self.columns, 1).code(block)[0]  # refuses what was declared not to occur, without naming it
        happened = code[:, 2] if self.event.categories is not None else np.asarray(block[1]) > self._middle
        return np.maximum(np.asarray(block[0], dtype=np.float64), 0.0), happened.astype(np.float64)

    @property
    def _middle(self) -> float:
        return sum(self.event.range) / 2


@dataclass(frozen=True)
class ExitCells(BaseRate):
    """Number of persons who left in each interval, with an event or without."""

    @property
    def ends(self) -> Floats:
        """Return the ends of the intervals."""
        assert isinstance(self.responses.family, Hazards)
        return np.array(self.responses.family.edges)

    @property
    def count(self) -> int:
        """Return two cells for every interval: censored, then events; and one of those who were there at the end."""
        return 2 * self.ends.size + 1

    def vector(self, share: float, adjacency: Adjacency) -> Summed:
        """Return the statistic with its noise: a person is in one cell, and one value moves it to another."""
        moved = {Unit.RECORD: adjacency, Unit.ATTRIBUTE: Adjacency.REPLACE}
        reach = {who: Reach(category_counts(how), self.count) for who, how in moved.items()}
        return Summed(BASE, (Block(self.count, 1.0),), reach, 1, share)

    def statistic(self, table: Table) -> Ints:
        """Return the exact counts of one party's persons."""
        total = np.zeros(self.count, dtype=np.int64)
        for block in table.blocks(self.responses.names):
            time, happened = self.responses.read(block)
            cells = np.empty(time.size)
            row_kernels.exits(time, happened, self.ends, cells)
            total += np.bincount(cells.astype(np.int64), minlength=self.count)
        return total


@dataclass(frozen=True)
class PersonRows(GlmRows):
    """Sums over standardised rows of persons."""

    @property
    def family(self) -> Hazards:
        """With the intervals."""
        assert isinstance(self.responses.family, Hazards)
        return self.responses.family

    @property
    def intervals(self) -> int:
        """J."""
        return len(self.family.edges)

    @property
    def slopes(self) -> int:
        """P: coded columns, without the constant."""
        return self.layout.size - 1

    @property
    def width(self) -> int:
        """Return the coefficients of a request: slopes, and the log hazards of the intervals in units of the constant."""
        return self.slopes + self.intervals

    @property
    def _one(self) -> int:
        """Return the constant on the grid."""
        return math.trunc(CONSTANT * self.grid)

    @cached_property
    def _fine(self) -> tuple[int, int]:
        """Return steps per unit of rows and of weights in second moments."""
        most = _FINEST if self.exact else _FINE
        whole = integer_grid(self.rows * math.ceil(self.radius**2), 1, most)
        # Without noise weights have more of the steps: of a model of few levels they take few values, so that their rounding adds up.
        row = 1 << ((whole.bit_length() - 1) * (5 if self.exact else 3) // (16 if self.exact else 9))
        return row, whole // row**2

    @property
    def _heaviest(self) -> int:
        """Return a person's second moments at their bound, in their own steps."""
        row, weight = self._fine
        return int(self.radius**2 * row**2 * weight)

    def score(self, share: float, adjacency: Adjacency, steps: int) -> Summed:
        """Return the gradients of Newton steps (Theorem G.9)."""
        longest = self._steps[0]
        reach = {who: Reach(clipped_products(1.0, how), self.width) for who, how in self.moves(adjacency).items()}
        return Summed(SCORE, (Block(self.width, float(longest)),), reach, longest, share, count=steps)

    def descent(self, share: float, adjacency: Adjacency, rounds: int) -> Summed:
        """Return the gradients of rounds: slopes, and one constant."""
        found = super().descent(share, adjacency, rounds)
        size = self.layout.size
        reach = {who: Reach(one.distance, size) for who, one in found.reach.items()}
        return replace(found, blocks=(Block(size, float(self._steps[0])),), reach=reach)

    def information(self, share: float, adjacency: Adjacency, steps: int) -> Summed:
        """Weighted second moments of persons (Theorem G.10): diagonals, then what stands twice."""
        p, unit = self.slopes, float(self._heaviest)
        off = p * (p - 1) // 2 + p * self.intervals
        blocks = (Block(self.width, unit), *((Block(off, unit * math.sqrt(0.5)),) if off else ()))
        count = self.width + off
        reach = {who: Reach(moments_augmented(1.0, how), count) for who, how in self.moves(adjacency).items()}
        return Summed(INFORMATION, blocks, reach, self._heaviest, share, count=steps)

    @property
    def _followed(self) -> float:
        """Return the cumulative hazard to which a person is followed: more where the budget affords longer rows."""
        return _EXACTLY if self.exact else min(_EXACTLY, FOLLOWED * max(1.0, self.stretch / 2))

    # --- at a party ------------------------------------------------------------------------------------------------------

    def person_pulls(
        self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, units: Floats
    ) -> Iterator[tuple[Floats, Floats, Floats, Floats]]:
        """(rows, pulls of every interval, weights of every interval, squared lengths of rows without the constant), some at a time."""
        longest, heaviest = self.bound
        cap = self._followed
        p, ends = self.slopes, np.array(self.family.edges)
        with np.errstate(over="ignore"):
            hazard = np.minimum(np.exp(start[p:] * CONSTANT), 1e12)
        limits = float(units[0]), longest, heaviest * float(units[1]), cap, CONSTANT
        for rows, other in blocks:
            for at in range(0, other.shape[0], _CACHED):
                part, own = rows[at : at + _CACHED, :p], other[at : at + _CACHED]
                left, square = np.empty((2, own.shape[0]))
                pull, weight = np.empty((2, ends.size, own.shape[0]))
                row_kernels.leave(part, np.zeros(own.shape[0]), start[:p], float(self.grid), left, square)
                row_kernels.person_pulls(left, own, hazard, ends, square, float(self.grid), limits, pull, weight)
                yield rows[at : at + _CACHED], pull, weight, square

    def cells_of_pulls(self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, units: Floats) -> Ints:
        """Return the numbers of persons who are not scaled down, and of those who are."""
        total, p = np.zeros(2, dtype=np.int64), self.slopes
        longest, heaviest = self.bound
        limits = float(units[0]), longest, heaviest * float(units[1]), self._followed, CONSTANT
        with np.errstate(over="ignore"):
            whole = float(np.minimum(np.exp(start[p:] * CONSTANT), 1e12) @ self.family.widths)
        for rows, other in blocks:
            left, square, scaled = np.empty((3, other.shape[0]))
            row_kernels.leave(rows[:, :p], np.zeros(left.size), start[:p], float(self.grid), left, square)
            row_kernels.people_are_scaled_down(left, whole, square, float(self.grid), limits, scaled)
            total += np.bincount(scaled.astype(np.int64), minlength=2)
        return total

    def descend(self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, units: Floats) -> Ints:
        """Return the exact sum of one round of gradients: of the slopes, and of a constant that all intervals share."""
        total, longest = np.zeros(self.layout.size, dtype=np.int64), self._steps[0]
        farthest, exact = int(self.farthest * self.grid), max(1, (1 << 53) // longest)
        for rows, pull, _, square in self.person_pulls(blocks, start, units):
            whole = np.empty(square.size)
            row_kernels.cut_sums(pull, square + float(self._one) ** 2, float(self.grid), farthest, longest, whole)
            for at in range(0, square.size, exact):
                part = slice(at, at + exact)
                total += (rows[part].T @ whole[part]).astype(np.int64)
        return total

    def gradients(self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, units: Floats) -> Ints:
        """Return the exact sum of the gradients of a Newton step: slopes, then intervals."""
        total, longest = np.zeros(self.width, dtype=np.int64), self._steps[0]
        farthest, exact, p = int(self.farthest * self.grid), max(1, (1 << 53) // longest), self.slopes
        for rows, pull, _, square in self.person_pulls(blocks, start, units):
            whole = np.empty(square.size)
            row_kernels.cut_totals(self._rounded(pull), square, float(self.grid), float(self._one), farthest, longest, whole)
            for at in range(0, square.size, exact):  # sums of so many products are exact in any order
                part = slice(at, at + exact)
                total[:p] += (rows[part, :p].T @ whole[part]).astype(np.int64)
                total[p:] += (pull[:, part].sum(axis=1) * self._one).astype(np.int64)
        return total

    def weighted(self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, units: Floats) -> Ints:
        """Return the exact second moments: diagonals of slopes and of intervals, slopes with each other, slopes with intervals."""
        p, (row, fine) = self.slopes, self._fine
        one, heaviest = math.trunc(CONSTANT * row), self._heaviest
        exact = max(1, (1 << 53) // heaviest)
        gram, cross = np.zeros((p, p), dtype=np.int64), np.zeros((p, self.intervals), dtype=np.int64)
        own = np.zeros(self.intervals, dtype=np.int64)
        for rows, _, weight, square in self.person_pulls(blocks, start, units):
            whole, part = np.empty(square.size), np.array(rows[:, :p], order="F")
            scale = row / self.grid
            if self.exact:
                nearest(part, scale)
                nearest(weight, fine / units[1])
            row_kernels.weigh_totals(part, weight, scale, fine / units[1], float(one), float(heaviest), whole)
            for at in range(0, square.size, exact):
                some = slice(at, at + exact)
                gram += ((part[some] * whole[some, None]).T @ part[some]).astype(np.int64)
                cross += (part[some].T @ (weight[:, some].T * one)).astype(np.int64)
                own += weight[:, some].sum(axis=1).astype(np.int64) * one**2
        return np.concatenate([gram.diagonal(), own, gram[np.triu_indices(p, 1)], cross.ravel()])

    # --- from the totals -------------------------------------------------------------------------------------------------

    def information_of(self, total: Total) -> tuple[Floats, Floats]:
        """Return (weighted moments in units of the weight, variances of their noise): no person is in two intervals' corner together."""
        p, d, (row, fine) = self.slopes, self.width, self._fine
        unit = float(row) ** 2 * fine
        upper = np.triu_indices(p, 1)
        first, second = (side.ravel() for side in np.indices((p, self.intervals)))
        rows = np.concatenate([np.arange(d), upper[0], first])
        columns = np.concatenate([np.arange(d), upper[1], second + p])
        gram, variance = np.zeros((2, d, d))
        gram[rows, columns] = gram[columns, rows] = total.values / unit
        if self.exact:  # the constant that was summed, on the grid of these rows, is not quite the one of the coefficients
            whole = np.ones(d)
            whole[p:] = CONSTANT * row / math.trunc(CONSTANT * row)
            gram *= whole[:, None] * whole
        variance[rows, columns] = variance[columns, rows] = (total.deviations / unit) ** 2
        return gram, variance
