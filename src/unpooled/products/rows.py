"""The only file of this model that touches raw data: a party's parts of every row as bounded integers."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.linear.standard import coded_rows, feature_rows
from unpooled.products.short_rows import LARGEST_BLOCK
from unpooled.products.sums import CONSTANT_STEPS, GRID
from unpooled.totals.whole_rows import WHOLE, marked_rows, whole_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from unpooled.linear.layout import MomentsLayout
    from unpooled.linear.standard import Standard
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.table import Table
    from unpooled.products.sums import RowPart

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
    #: Where rows may have gaps: whether each has a mark of being whole as a last column, and the columns that a whole row of this party has.
    flagged: bool = field(default=False, kw_only=True)
    left_out: tuple[Column, ...] = field(default=(), kw_only=True)

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
        raw = self._raw(table, rows)
        yield from self._marked(raw, self._marks(table, rows), standard) if self.flagged else self._coded(raw, standard)

    def block(self, table: Table, standard: Standard, first: int, last: int, size: int) -> Ints:
        """Return the rows from ``first`` to ``last``, which are one block (the last may be smaller); a row that was left out is of zeros."""
        if not table.complete:
            return table.blank(table.whole(self.coded(table, standard)))[first:last]
        at = first // size
        raw = itertools.islice(self._raw(table, size), at, at + 1)
        if not self.flagged:
            return next(self._coded(raw, standard))
        return next(self._marked(raw, itertools.islice(self._marks(table, size), at, at + 1), standard))

    def _raw(self, table: Table, rows: int) -> Iterator[tuple[NDArray[Any], ...]]:
        """Yield the columns that rows are made of, of whole rows alone, ``rows`` rows of the table at a time."""
        names = (*self.layout.coding.names, *([self.layout.response.name] if self.holds else []))
        return self.layout.seen(whole_rows(table, self.left_out)).blocks(names, rows)

    def _marks(self, table: Table, rows: int) -> Iterator[NDArray[np.bool_]]:
        """Yield which rows of the table are whole, ``rows`` of them at a time."""
        if self.left_out:
            yield from (block[0] > 0 for block in marked_rows(table, self.left_out).blocks((WHOLE,), rows))
        else:
            yield from (np.ones(block[0].size, dtype=np.bool_) for block in table.blocks(table.names[:1], rows))

    def _marked(
        self, raw: Iterator[tuple[NDArray[Any], ...]], marks: Iterator[NDArray[np.bool_]], standard: Standard
    ) -> Iterator[Ints]:
        """Yield coded rows where they are whole and zeros elsewhere, and last the mark: the constant, or zero."""
        for whole, own in zip(marks, raw, strict=True):
            found = np.zeros((whole.size, self.part.columns + 1), dtype=np.int64)
            if whole.any():
                found[whole, :-1] = next(self._coded(iter((own,)), standard))
            found[:, -1] = whole * CONSTANT_STEPS
            yield found

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
        return rounded(found, self.part.square)


@dataclass(frozen=True)
class SineRows(JointRows):
    """A party's two parts of every row in one round: (z sin | z cos), and (cos, sin), of the angle w (v - z.b) of its own columns and response.

    z is the row of :class:`JointRows` without the response. Products are rounded toward zero: pairs are then no longer than before (Theorem J.12).
    """

    #: The public coefficients of the party's columns, and that of the constant at the holder of the response, in deviations of the response.
    slopes: Floats
    constant: float
    #: w: the angle for a residual of one deviation of the response.
    frequency: float

    def _shortened(self, coded: Floats, standard: Standard) -> Ints:
        """Return (z sin | z cos | cos, sin) as integers."""
        return self.turned(*self.standardised(coded, standard))

    def standardised(self, coded: Floats, standard: Standard) -> tuple[Ints, Floats]:
        """Return the columns as integers no longer than the limit, and the response in deviations (zeros where another party holds it)."""
        found = (coded / float(self.layout.grid) - standard.middle) / standard.width
        own = found.shape[1] - self.holds
        z = found[:, :own] * GRID
        z *= _factor(z, float(self.columns))[:, None]
        return rounded(z, self.part.square), found[:, own] if self.holds else np.zeros(len(found))

    def turned(self, z: Ints, response: Floats) -> Ints:
        """Return (z sin | z cos | cos, sin) of standardised rows as integers."""
        left = response - self.constant
        for column, slope in zip(z.T, self.slopes.tolist(), strict=True):  # in the order of the columns, whatever the block
            left = left - column * (slope / GRID)
        angle = left * self.frequency
        sine, cosine = np.sin(angle), np.cos(angle)
        products = np.trunc(np.column_stack([z * sine[:, None], z * cosine[:, None]])).astype(np.int64)
        angles = np.trunc(np.column_stack([cosine, sine]) * GRID).astype(np.int64)
        return np.column_stack([within(products, self.part.square), within(angles, GRID**2)])


def rounded(rows: Floats, square: int) -> Ints:
    """Return rows rounded to nearest, and shortened before so that no squared length is larger: rounding moves a row by half a step in every column."""
    rows = rows * _factor(rows, math.sqrt(square) - math.sqrt(rows.shape[1]) / 2)[:, None]
    return within(np.rint(rows).astype(np.int64), square)


def shortened(rows: Floats, most: float) -> Floats:
    """Return the rows with those that are longer than this shortened to it."""
    return rows * _factor(rows, most)[:, None]


def within(rows: Ints, square: int) -> Ints:
    """Return rows of integers with zeros in the place of those whose squared length is larger: there are none, unless arithmetic fails."""
    rows[(rows * rows).sum(axis=1) > square] = 0
    return rows


def shortened_to(rows: Floats, most: float) -> None:
    """Shorten each of these rows to the length ``most``."""
    rows *= _factor(rows, most)[:, None]


def _factor(rows: Floats, most: float) -> Floats:
    """Return the factor, at most 1, that shortens each row to the length ``most``."""
    square = np.zeros(rows.shape[0])
    for column in rows.T:  # in the order of the columns, whatever the block
        square += column * column
    length = np.sqrt(square)
    return np.divide(max(most, 0.0), length, out=np.ones_like(length), where=length > most)
