"""The weighted life table of both arms: who left when, with an event or without, each row counting by its weight (Theorem E.3)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.inference.life_table import LifeTable
from unpooled.privacy.bounds import integer_grid
from unpooled.privacy.mechanisms import Block, Reach
from unpooled.privacy.sensitivity import category_counts
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.totals.total import Summed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from unpooled.models.effects.declared import DeclaredEffect
    from unpooled.totals.total import Total

    Floats = NDArray[np.float64]

#: The probability of still being watched is never taken for smaller than this.
_LEAST_WATCHED = 0.05


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
