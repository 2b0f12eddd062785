"""A party's rows of a fit whose columns lie at two parties: standardised, with the responses that it holds, and rounded at random."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.linear.standard import feature_rows
from unpooled.products.rows import JointRows, rounded, shortened
from unpooled.products.sums import GRID
from unpooled.totals.whole_rows import whole_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from unpooled.linear.standard import Standard
    from unpooled.models.glm.rows import Responses
    from unpooled.privacy.noise import Stream
    from unpooled.privacy.table import Table

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

#: Steps per unit of numbers and of the rows that they multiply: finer than those of second moments, so that rounding stays far below sampling.
STEPS = 8 * GRID


@dataclass(frozen=True)
class SplitRows(JointRows, ABC):
    """Reads a party's columns, and response and offset where it holds them; ``weight`` is 1 there, and 0 at the other party."""

    responses: Responses

    def _raw(self, table: Table, rows: int) -> Iterator[tuple[NDArray[Any], ...]]:
        names = (*self.layout.coding.names, *(self.responses.names if self.holds else ()))
        return self.layout.seen(whole_rows(table, self.left_out)).blocks(names, rows)

    def _coded(self, raw: Iterator[tuple[NDArray[Any], ...]], standard: Standard) -> Iterator[Any]:
        own, grid = len(self.layout.coding.attribute), float(self.layout.grid)
        for block in feature_rows(self.layout, raw) if own else raw:
            rows = (block[0] / grid - standard.middle) / standard.width if own else np.empty((block[0].size, 0))
            held = self.responses.read(block[1:] if own else block) if self.holds else (np.zeros(len(rows)),) * 2
            yield self.made(rows, *held)

    @abstractmethod
    def made(self, z: Floats, y: Floats, offset: Floats | float = 0.0) -> NDArray[Any]:
        """Return what is multiplied, of standardised rows, responses and offsets."""


@dataclass(frozen=True)
class DeviationRows(SplitRows):
    """A party's part of the rows of second moments, as of joint moments, with the response less its released mean in the place of a response.

    The response is cut at ``top`` and is a part of it. An offset stands before it, as a part of half of its declared range.
    """

    mean: float
    top: float = 1.0

    def made(self, z: Floats, y: Floats, offset: Floats | float = 0.0) -> Ints:
        """Return rows as integers within the limits: shortened, then rounded to nearest."""
        beside = []
        if self.holds and self.responses.shifted:
            centre, half = self.responses.shift
            beside.append(np.clip((offset - centre) / half * GRID, -GRID, GRID))
        if self.holds:
            beside.append(np.clip((np.minimum(y, self.top) - self.mean) / self.top * GRID, -GRID, GRID))
        return rounded(np.column_stack([shortened(z * GRID, float(self.columns)), *beside]), self.part.square)


@dataclass(frozen=True)
class RoundRows(SplitRows, ABC):
    """A party's parts of every row in one round, at the coefficients of its own columns and its part of the constant.

    The predictor is of the whole row; the row that a number multiplies is shortened, so that rounding up moves it by no more than the limit leaves.
    """

    slopes: Floats
    constant: float

    def predictor(self, z: Floats) -> Floats:
        """Return the party's part of the linear predictor, without an offset."""
        u = np.full(len(z), self.constant)
        for column, slope in zip(z.T, self.slopes.tolist(), strict=True):  # in the order of the columns, whatever the block
            u = u + column * slope
        return u

    @abstractmethod
    def part_of(self, rows: Floats, coins: Stream, first: int) -> Ints:
        """Return the part of this name of rows that :meth:`made` returned, rounded at random; ``first`` is the number of the first row."""


def at_random(rows: Floats, coins: Stream, first: int) -> Ints:
    """Return rows rounded down or up with the chances that keep every mean (Theorem G.16); the coins of a row are those of its number."""
    words = coins.words(first * rows.shape[1], rows.size).reshape(rows.shape)
    down = np.floor(rows)
    up = (words >> np.uint64(11)) * 2.0**-53 < rows - down  # never where a number is whole
    return down.astype(np.int64) + up
