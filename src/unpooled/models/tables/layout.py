"""Cells of a table: the levels of each declared column, and the places of the cells that make up a line or a bin."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import UsageError
from unpooled.privacy.bounds import text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from unpooled.privacy.bounds import Column

    Places = NDArray[np.intp]

#: The most cells of a table, and the most bins of a number.
MOST_CELLS, MOST_BINS = 4096, 1000


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The columns of a table, and the rising cut points of those that are numbers (none for categories)."""

    columns: tuple[Column, ...]
    cuts: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        if self.size > MOST_CELLS:
            msg = f"the table has {self.size} cells, and the most are {MOST_CELLS}: take fewer columns, or fewer levels"
            raise UsageError(msg)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of levels of every column, the level of missing values included."""
        return tuple(len(levels) for levels in self.levels)

    @property
    def size(self) -> int:
        """Return the number of cells."""
        return math.prod(self.shape)

    @property
    def levels(self) -> tuple[tuple[str, ...], ...]:
        """Return the names of every column's levels, in the order of its cells."""
        return tuple(self._levels(i) for i in range(len(self.columns)))

    def present(self, i: int) -> int:
        """Return the number of a column's levels without that of missing values."""
        categories = self.columns[i].categories
        return len(self.cuts[i]) + 1 if categories is None else len(categories)

    def edges(self, i: int) -> tuple[float, ...]:
        """Return the ends of a number's bins."""
        low, high = self.columns[i].range
        return (low, *self.cuts[i], high)

    def places(self, parties: int) -> Places:
        """Return the places of all parties' cells, one party after the other, as an array with an axis for parties and one per column."""
        return np.arange(parties * self.size).reshape(parties, *self.shape)

    def _levels(self, i: int) -> tuple[str, ...]:
        column = self.columns[i]
        names = column.categories if column.categories is not None else _bins(self.edges(i))
        missing = "missing" if "missing" not in names else "(missing)"
        return (*names, missing) if column.may_be_absent else names


def _bins(edges: tuple[float, ...]) -> tuple[str, ...]:
    """Return the names of bins: an end with a square bracket belongs to the bin."""
    ends = [f"{edge:.6g}" for edge in edges]
    if len(set(ends)) < len(ends):
        ends = [text_of(edge) for edge in edges]
    closing = [")"] * (len(edges) - 2) + ["]"]
    return tuple(f"[{low}, {high}{end}" for (low, high), end in zip(itertools.pairwise(ends), closing, strict=True))


def cuts_of(column: Column, cuts: Mapping[str, tuple[float, ...] | int]) -> tuple[float, ...]:
    """Return the cut points of one column; none for categories. A whole number asks for that many equally wide bins."""
    said = cuts.get(column.name)
    if column.categories is not None:
        if said is not None:
            msg = f"column {column.name!r} has categories: cuts are of numbers"
            raise UsageError(msg).at(column=column.name)
        return ()
    low, high = column.range
    if said is None:
        msg = f"column {column.name!r} is a number: name its cut points in cuts, or the number of its bins; or declare its values as categories, as texts"
        raise UsageError(msg).at(column=column.name)
    if isinstance(said, int):
        if not 1 < said <= MOST_BINS:
            msg = f"cuts of column {column.name!r}: a number of bins is between 2 and {MOST_BINS}"
            raise UsageError(msg).at(column=column.name)
        said = tuple(float(edge) for edge in np.linspace(low, high, said + 1)[1:-1])
    rising = all(one < other for one, other in itertools.pairwise((low, *said, high)))
    if not said or len(said) >= MOST_BINS or not rising:
        msg = f"cuts of column {column.name!r} are rising numbers inside its declared range, at least one and fewer than {MOST_BINS}"
        raise UsageError(msg).at(column=column.name)
    return said
