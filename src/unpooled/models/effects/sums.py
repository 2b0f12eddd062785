"""What a party adds up for an effect, with its reach: histograms by arm, weighted exits, contributions and their squares (THEORY.md, section 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unpooled.inference.life_table import LifeTable
from unpooled.kernels.pareto_tail import missing_mean
from unpooled.privacy.bounds import integer_grid
from unpooled.privacy.mechanisms import Block, Reach
from unpooled.privacy.sensitivity import category_counts, clipped_products, column_moments, contributions_of_arms
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.schedules import table
from unpooled.totals.total import Summed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from unpooled.linear.residuals import ResidualCounts
    from unpooled.models.effects.declared import DeclaredEffect
    from unpooled.totals.total import Total

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


# --- Cells -----------------------------------------------------------------------------------------------------------------
# Cells of the two histograms that an effect rests on: propensities by arm, and contributions to the effect by arm.

_TUNED = table("effects")
_SPREAD, _TIMES = _TUNED.several("spread_cuts"), _TUNED.several("spread_bounds")


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


def spread_of(
    counts: ResidualCounts, noise_per_bound: float, farthest: float, *, about: float | None = None, doubt: float = 1.0
) -> Spread:
    """Return the bound on contributions that leaves the smallest error (THEORY.md, section 3).

    ``noise_per_bound`` is the deviation of the mean of contributions, for a bound of 1; ``farthest`` the largest contribution that there can be,
    and ``about`` their middle, where it is not to be learnt. The error of what a bound cuts off is taken ``doubt`` times.
    """
    deviation = max(math.sqrt(counts.mean_square()), _TUNED.spread_least * counts.cuts[0])
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
        error = doubt * math.hypot(above[1], below[1])
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
        hidden = np.flatnonzero(side < _TUNED.hidden * math.sqrt(2 * counts.variance))
        seen = int(hidden[0]) if hidden.size else side.size
        total += sign * float(side[:seen] @ middles[:seen])
    return total / counts.rows


def spread_cuts(widest: float, least: float) -> tuple[float, ...]:
    """Return where cells of contributions begin on each side of 0, up to the largest that there can be."""
    return tuple(cut * widest for cut in _SPREAD if cut < 1 + 1 / least)


# --- Exits -----------------------------------------------------------------------------------------------------------------
# The weighted life table of both arms: who left when, with an event or without, each row counting by its weight (Theorem E.3).

_LEAST_WATCHED = _TUNED.watched_least


@dataclass(frozen=True)
class ExitsOfArms:
    """Cells of arm by exit: interval by interval censored and event, and last who stayed to the horizon."""

    name: str
    declared: DeclaredEffect
    #: The largest weight.
    most: float
    rows: int

    @property
    def edges(self) -> tuple[float, ...]:
        """Return the ends of the intervals."""
        return self.declared.edges

    @property
    def each(self) -> int:
        """Return the cells of one arm."""
        return 2 * len(self.edges) + 1

    @cached_property
    def grid(self) -> int:
        """Return steps per largest weight."""
        return integer_grid(self.rows, 1)

    def vector(self, share: float, adjacency: Adjacency) -> Summed:
        """Return the statistic with its noise."""
        units = {Unit.RECORD: adjacency, Unit.ATTRIBUTE: Adjacency.REPLACE}
        reach = {who: Reach(category_counts(how), 2 * self.each) for who, how in units.items()}
        return Summed(self.name, (Block(2 * self.each, float(self.grid)),), reach, self.grid, share)

    def added_up(self, held: Mapping[str, NDArray[Any]], treated: NDArray[np.bool_], weights: Floats) -> NDArray[np.int64]:
        """Return the exact weighted counts; weights are parts of the largest, between 0 and 1."""
        time, event = self._exit(held)
        place = np.searchsorted(np.array(self.edges), time, side="left")
        stayed = (place >= len(self.edges)) | ((time >= self.edges[-1]) & ~event)
        cell = np.where(stayed, self.each - 1, 2 * place + event) + self.each * treated
        total = np.zeros(2 * self.each, dtype=np.int64)
        np.add.at(total, cell, np.trunc(weights * self.grid).astype(np.int64))
        return total

    def _exit(self, held: Mapping[str, NDArray[Any]]) -> tuple[Floats, NDArray[np.bool_]]:
        declared = self.declared
        assert declared.event is not None
        time = np.clip(held[declared.response.name], *declared.response.range)
        return time, held[declared.event.name] > 0.5  # noqa: PLR2004 - 0 and 1

    def at_horizon(
        self, held: Mapping[str, NDArray[Any]], treated: NDArray[np.bool_], watched: Floats | None
    ) -> tuple[Floats, Floats]:
        """Return (who is alive at the horizon, one over the probability of being watched so long; 0 for those who left before)."""
        time, event = self._exit(held)
        end = self.edges[-1]
        alive = (time > end) | ((time == end) & ~event)
        left = (time < end) & ~event
        if watched is None:
            return alive.astype(np.float64), (~left).astype(np.float64)
        times = np.array([0.0, *self.edges])
        until = np.minimum(time, end)
        chance = np.where(treated, *(np.interp(until, times, np.append(1.0, watched[arm])) for arm in (1, 0)))
        return alive.astype(np.float64), np.where(left, 0.0, 1 / np.maximum(chance, _LEAST_WATCHED))

    def decode(self, total: Total) -> tuple[Floats, float]:
        """Return (weighted persons in every cell, arm by arm; the deviation of their noise)."""
        unit = self.most / self.grid
        return total.values.reshape(2, -1) * unit, float(total.deviations.max()) * unit

    def watched(self, cells: Floats) -> Floats:
        """Return both arms' probability of not having left without an event by the end of each interval."""
        found = []
        for arm in np.maximum(cells, 0.0):
            censored, events = arm[:-1].reshape(-1, 2).T
            there = np.cumsum((censored + events)[::-1])[::-1] + arm[-1]
            stayed = 1 - np.divide(censored, there - events / 2, out=np.zeros_like(there), where=there > events / 2)
            found.append(np.maximum(np.cumprod(np.clip(stayed, 0.0, 1.0)), _LEAST_WATCHED))
        return np.array(found)

    def life_table(self, cells: Floats, deviation: float, effective: float) -> LifeTable:
        """Return the life table of one arm, its persons counted for what their weights leave of them."""
        scaled = cells * effective
        return LifeTable.of_cells(np.array(self.edges), scaled, deviation * effective, round(float(scaled.sum())))


# --- Sums ------------------------------------------------------------------------------------------------------------------
# Sums that tell an effect: contributions and their squares, how the effect moves with coefficients, and columns by arm (THEORY.md, section 2).

#: The weight of a square at which it costs nothing beside its contribution (Theorem F.1), and where every row is in one of two arms (Theorem E.1).
_FREE, _FREE_OF_ARMS = 1.66, 1.0
#: No coordinate of a row is longer before it is shortened.
_FARTHEST = 1e100


def units_of(adjacency: Adjacency) -> dict[Unit, Adjacency]:
    """Return how each unit moves a row: one value that goes missing may leave another row behind."""
    return {Unit.RECORD: adjacency, Unit.ATTRIBUTE: Adjacency.REPLACE}


class Contributed(NamedTuple):
    """Released sums of contributions and of their squares, and the deviations of their noise."""

    first: float
    second: float
    first_noise: float
    second_noise: float


@dataclass(frozen=True)
class Pieces:
    """Sums of contributions t in [-1, 1] and of their squares: of all rows, or of each arm."""

    name: str
    count: int
    rows: int

    @cached_property
    def grid(self) -> int:
        """Return steps per unit."""
        return integer_grid(self.rows, 2)

    def vector(self, share: float, adjacency: Adjacency) -> Summed:
        """Return the statistic with its noise (Theorems F.1 and E.1)."""
        g, square = float(self.grid), _FREE if self.count == 1 else _FREE_OF_ARMS
        blocks = (Block(1, g), Block(1, g * g / square)) * self.count
        reach = {who: Reach(self._distance(how), 2 * self.count) for who, how in units_of(adjacency).items()}
        return Summed(self.name, blocks, reach, self.grid**2, share)

    def _distance(self, adjacency: Adjacency) -> float:
        if self.count == 1:
            return column_moments(0.0, 1.0, _FREE, adjacency, may_be_absent=False)
        return contributions_of_arms(_FREE_OF_ARMS, adjacency)

    def added_up(self, parts: list[Floats]) -> Ints:
        """Return the exact sums of these contributions, a list for each piece; what is beyond 1 counts as 1."""
        total = []
        for part in parts:
            # A request may carry any numbers: what is no number counts 0, so that no row ever adds more than 1.
            steps = np.trunc(np.clip(np.nan_to_num(part), -1.0, 1.0) * self.grid).astype(np.int64)
            total += [steps.sum(), np.square(steps).sum()]
        return np.array(total, dtype=np.int64)

    def decode(self, total: Total) -> list[Contributed]:
        """Return the sums of every piece."""
        g = float(self.grid)
        scale = np.array([g, g * g])
        values, noise = ((part.reshape(self.count, 2) / scale).tolist() for part in (total.values, total.deviations))
        return [Contributed(*own, *near) for own, near in zip(values, noise, strict=True)]


@dataclass(frozen=True)
class EffectSlopes:
    """Sums of vectors of bounded length, one for each model: derivatives of contributions with respect to its coefficients, as they were fitted."""

    name: str
    #: The number of fitted coordinates of every model.
    sizes: tuple[int, ...]
    rows: int

    @cached_property
    def grid(self) -> int:
        """Return steps per unit of length."""
        return integer_grid(self.rows, 1)

    def vector(self, share: float, adjacency: Adjacency) -> Summed:
        """Return the statistic with its noise (Theorem B.5): a row's vectors together are as long as the root of their number."""
        size, longest = sum(self.sizes), math.sqrt(len(self.sizes))
        reach = {who: Reach(clipped_products(longest, how), size) for who, how in units_of(adjacency).items()}
        return Summed(self.name, (Block(size, float(self.grid)),), reach, self.grid, share)

    def added_up(self, parts: list[Floats]) -> Ints:
        """Return the exact sums of these vectors; a longer one is shortened to 1. Rounded toward zero, none becomes longer."""
        return np.concatenate([np.trunc(_shortened(rows) * self.grid).astype(np.int64).sum(axis=0) for rows in parts])

    def decode(self, total: Total) -> list[tuple[Floats, Floats]]:
        """Return (sum, deviations of its noise) for every model."""
        ends = np.cumsum(self.sizes)[:-1]
        values, noise = (np.split(part / self.grid, ends) for part in (total.values, total.deviations))
        return list(zip(values, noise, strict=True))


@dataclass(frozen=True)
class Balance:
    """Sums of standardised rows in both arms, without and with weights; the constant, which is their last coordinate, counts persons."""

    name: str
    #: The number of standardised columns, the constant among them.
    size: int
    rows: int

    @property
    def longest(self) -> float:
        """Return the length to which standardised rows are shortened."""
        return _TUNED.longest_rows * math.sqrt(self.size)

    @cached_property
    def grid(self) -> int:
        """Return steps per longest row."""
        return integer_grid(self.rows, 1)

    def vector(self, share: float, adjacency: Adjacency) -> Summed:
        """Return the statistic with its noise: a row is as long as the root of 2, of its two copies (Theorem E.2)."""
        count, longest = 4 * self.size, math.sqrt(2.0)
        reach = {who: Reach(clipped_products(longest, how), count) for who, how in units_of(adjacency).items()}
        return Summed(self.name, (Block(count, float(self.grid)),), reach, self.grid, share)

    def added_up(self, rows: Floats, treated: NDArray[np.bool_], weights: Floats) -> Ints:
        """Return the exact sums of standardised rows; weights are parts of the largest, between 0 and 1."""
        short = _shortened(rows / self.longest)
        arms = np.stack([~treated, treated]).astype(np.float64)
        sums = [
            np.trunc(short * (arm * weight * self.grid)[:, None]).astype(np.int64).sum(axis=0)
            for weight in (1.0, weights)
            for arm in arms
        ]
        return np.concatenate(sums)

    def decode(self, total: Total) -> list[tuple[Floats, Floats]]:
        """Return (sums, deviations of their noise) before and after weighting, arms row by row."""
        unit = self.longest / self.grid
        values, noise = (part.reshape(2, 2, self.size) * unit for part in (total.values, total.deviations))
        return list(zip(values, noise, strict=True))


def _shortened(rows: Floats) -> Floats:
    """Return rows of which longer ones are shortened to 1, by a part in 2^40 more, so that no rounding exceeds it."""
    rows = np.clip(np.nan_to_num(rows), -_FARTHEST, _FARTHEST)  # whatever a request carried: squares stay finite
    length = np.sqrt(np.square(rows).sum(axis=1))
    return np.asarray(rows * np.minimum(1.0, (1 - 2.0**-40) / np.maximum(length, 1e-300))[:, None])
