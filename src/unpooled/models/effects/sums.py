"""Sums that tell an effect: contributions and their squares, how the effect moves with coefficients, and columns by arm (THEORY.md, section 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from unpooled.privacy.bounds import integer_grid
from unpooled.privacy.mechanisms import Block, Reach
from unpooled.privacy.sensitivity import clipped_products, column_moments, contributions_of_arms
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.totals.total import Summed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.totals.total import Total

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

#: The weight of a square at which it costs nothing beside its contribution (Theorem F.1), and where every row is in one of two arms (Theorem E.1).
_FREE, _FREE_OF_ARMS = 1.66, 1.0
#: Standardised rows are shortened there to this multiple of their usual length.
_ROWS = 1.5
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
        return _ROWS * math.sqrt(self.size)

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
