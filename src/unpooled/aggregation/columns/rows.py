"""The only file of this model that touches raw data: a party's exact sums, and its part of every row as bounded integers."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.aggregation.joint.shape import GRID
from unpooled.aggregation.joint.short_rows import LARGEST_BLOCK
from unpooled.aggregation.row_blocks import coded_rows, feature_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from unpooled.aggregation.joint.shape import RowPart
    from unpooled.aggregation.layout import MomentsLayout
    from unpooled.aggregation.standard import Standard
    from unpooled.privacy.table import Table

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

#: Rows of a block, if nobody asks for another number.
BLOCK = LARGEST_BLOCK


@dataclass(frozen=True)
class JointRows:
    """One party's part of every row: its columns standardised and shortened, and the weighted response where the party holds it.

    Every number is worked out element by element from one row and from public numbers, so it does not depend on where the row stands.
    """

    #: The party's own features.
    layout: MomentsLayout
    part: RowPart
    #: The limit on the length of the columns and on the weighted response, in steps of the grid.
    columns: int
    response: int
    #: By what the standardised response is multiplied; 0 where another party holds it.
    weight: float

    @property
    def holds(self) -> bool:
        """Return True if the party holds the response."""
        return self.weight > 0

    def coded(self, table: Table, standard: Standard) -> Ints:
        """Return the party's part of every row as integers: an array of (rows, columns of the part), the response last."""
        blocks = list(self.blocks(table, standard))
        return np.concatenate(blocks)

    def blocks(self, table: Table, standard: Standard, rows: int = BLOCK) -> Iterator[Ints]:
        """Yield the same array ``rows`` rows at a time; no squared length of a row is larger than the part's bound."""
        names = (*self.layout.coding.names, *([self.layout.response.name] if self.holds else []))
        yield from self._coded(table.blocks(names, rows), standard)

    def block(self, table: Table, standard: Standard, first: int, last: int, size: int) -> Ints:
        """Return the rows from ``first`` to ``last``, which are one block (the last may be smaller); a row that was left out is of zeros."""
        if not table.complete:
            return table.blank(table.whole(self.coded(table, standard)))[first:last]
        names = (*self.layout.coding.names, *([self.layout.response.name] if self.holds else []))
        raw = itertools.islice(table.blocks(names, size), first // size, first // size + 1)
        return next(self._coded(raw, standard))

    def _coded(self, raw: Iterator[tuple[NDArray[Any], ...]], standard: Standard) -> Iterator[Ints]:
        for block in coded_rows(self.layout, raw) if self.holds else feature_rows(self.layout, raw):
            yield self._shortened(np.column_stack(block[: 1 + self.holds]), standard)

    def _shortened(self, coded: Floats, standard: Standard) -> Ints:
        """Return rows of coded values as integers within the limits: shortened to the limit less the rounding, then rounded to nearest."""
        grid = float(self.layout.grid)
        found = (coded / grid - standard.middle) / standard.width * GRID
        own = found.shape[1] - self.holds
        found[:, :own] *= _factor(found[:, :own], float(self.columns))[:, None]
        if self.holds:
            found[:, own] = np.clip(found[:, own] * self.weight, -self.response, self.response)
        # Rounding moves a row by half a step in every column at most.
        found *= _factor(found, math.sqrt(self.part.square) - math.sqrt(self.part.columns) / 2)[:, None]
        whole = np.rint(found).astype(np.int64)
        whole[(whole * whole).sum(axis=1) > self.part.square] = 0  # it cannot be, and would count as nothing
        return whole


def _factor(rows: Floats, most: float) -> Floats:
    """Return the factor, at most 1, that shortens each row to the length ``most``."""
    square = np.zeros(rows.shape[0])
    for column in rows.T:  # in the order of the columns, whatever the block
        square += column * column
    length = np.sqrt(square)
    return np.divide(max(most, 0.0), length, out=np.ones_like(length), where=length > most)
