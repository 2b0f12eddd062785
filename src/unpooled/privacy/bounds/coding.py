"""Codes rows into integers by what was declared of their columns, and refuses rows that do not fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import DataError, UsageError
from unpooled.privacy.bounds.column import Column, text_of, truth_words
from unpooled.privacy.table import BLOCK_ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from scipy.sparse import csc_array

    from unpooled.privacy.table import Table

#: Values in units of a row's norm beyond which they are not told apart, so that squares are finite.
_FARTHEST = 1e150
#: Values that :func:`check` reads at a time.
_READ = 1 << 24
#: Up to this number of categories it is faster to compare all texts with each category than to look the texts up.
_FEW = 2

#: In these words whichever way a column is held.
_MISSING = "column {!r} holds {}: declare missing = 'absent' or 'indicator', or clean the column"


@dataclass(frozen=True, slots=True)
class Coding:
    """Codes blocks of rows into integers by public constants.

    Numeric columns give one coded column, categories one each (one-hot), and a missing-value indicator one more.
    ``attribute[j]`` is the declared column that coded column j belongs to: one attribute may move several of them.
    """

    columns: tuple[Column, ...]
    grid: int
    norm: float | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the declared columns this coding reads."""
        return tuple(column.name for column in self.columns)

    @property
    def attribute(self) -> tuple[int, ...]:
        """For every coded column, the index of the declared column it comes from."""
        return tuple(i for i, column in enumerate(self.columns) for _ in range(self._width(column)))

    @property
    def coded_names(self) -> tuple[str, ...]:
        """For every coded column, what to call it: the column, its category, or that it was missing."""
        names: list[str] = []
        for column in self.columns:
            names += [f"{column.name} = {c}" for c in column.categories] if column.categories else [column.name]
            names += [f"{column.name} missing"] if column.missing == "indicator" else []
        return tuple(names)

    @property
    def units(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return (width, centre) of every coded column: a number z is coded as (z - centre) / width, categories and indicators as 0 and 1."""
        numbers = [c.categories is None for c in self.columns]
        first = np.searchsorted(self.attribute, np.flatnonzero(numbers))
        width, centre = np.ones(len(self.attribute)), np.zeros(len(self.attribute))
        width[first] = [c.half_width if self.norm is None else self.norm for c in self.columns if c.categories is None]
        centre[first] = [c.centre for c in self.columns if c.categories is None]
        return width, centre

    @staticmethod
    def _width(column: Column) -> int:
        return len(column.categories or " ") + (column.missing == "indicator")

    def real(self, block: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
        """Return the same code without rounding, in [-1, 1] and column-major: for what a party computes and keeps for itself."""
        out = np.empty((block[0].size, len(self.attribute)), order="F")
        replace(self, grid=1)._fill(block, out, rounded=False)  # noqa: SLF001 - its own
        return out

    def natural(self, block: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
        """Return the same columns in the data's own units: numbers as they are (the centre where missing), categories as 0 and 1."""
        out = Coding(self.columns, 1).real(block)
        at = 0
        for column, raw in zip(self.columns, block, strict=True):
            if column.categories is None:
                out[:, at] = np.where(np.isnan(raw), column.centre, raw)
            at += self._width(column)
        return out

    def code(self, block: Sequence[NDArray[Any]]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return (coded integers, which declared values are present) of a block of raw columns."""
        out = np.empty((block[0].size, len(self.attribute)), dtype=np.int64)
        return out, self.code_into(block, out)

    def code_into(self, block: Sequence[NDArray[Any]], out: NDArray[Any]) -> NDArray[np.bool_]:
        """Return the same integers into an array of the caller's (int64, or float64 that BLAS is to work on); what is present."""
        return self._fill(block, out, rounded=True)

    def code_sparse(self, matrix: csc_array) -> csc_array:
        """Return the same integers, as floats, of columns that are held sparse, in the order of ``columns``: only stored values are looked at.

        Missing values become zero where the column says "absent".
        """
        from scipy.sparse import csc_array

        if self.norm is not None:
            raise UsageError("a bound on rows needs whole rows, and sparse columns are coded one by one: declare no norm")
        for column in self.columns:
            if problem := column.unfit_for_sparse:
                msg = f"column {column.name!r}: {problem}"
                raise UsageError(msg).at(column=column.name)
        values, owner = matrix.data, np.repeat(np.arange(len(self.columns)), np.diff(matrix.indptr))
        missing = np.isnan(values)
        if missing.any():
            refusing = np.array([not column.may_be_absent for column in self.columns])
            for i in owner[missing & refusing[owner]][:1]:
                raise DataError(_MISSING.format(self.columns[i].name, "a missing value")).at(column=self.columns[i].name)
            values = np.where(missing, 0.0, values)
        # What `kernels.moments.quantise` does, operation by operation; the centre is zero.
        high = np.array([column.range[1] for column in self.columns])[owner]
        scale = np.array([column.half_width for column in self.columns])[owner]
        coded = np.trunc(np.clip(np.clip(values, -high, high) / scale, -1.0, 1.0) * float(self.grid))
        kept = np.flatnonzero(coded)
        return csc_array((coded[kept], matrix.indices[kept], np.searchsorted(kept, matrix.indptr)), shape=matrix.shape)

    def _fill(self, block: Sequence[NDArray[Any]], out: NDArray[Any], *, rounded: bool) -> NDArray[np.bool_]:
        if self.norm is not None:
            return self._shortened(block, out, rounded=rounded)
        return self._columns(block, out, rounded=rounded)

    def _columns(self, block: Sequence[NDArray[Any]], out: NDArray[Any], *, rounded: bool) -> NDArray[np.bool_]:
        present = np.empty((block[0].size, len(self.columns)), dtype=np.bool_, order="F")
        at = 0
        for i, (column, raw) in enumerate(zip(self.columns, block, strict=True)):
            width = self._width(column)
            present[:, i] = self._code_column(column, raw, out[:, at : at + width], rounded=rounded)
            at += width
        return present

    def _shortened(self, block: Sequence[NDArray[Any]], out: NDArray[Any], *, rounded: bool) -> NDArray[np.bool_]:
        """Return rows in units of the norm, shortened to it where they are longer: their direction stays what it is.

        Values are clipped to declared ranges first, but not to a range that the norm alone implies.
        """
        rows = np.empty(out.shape, order="F")
        present = replace(self, grid=1)._columns(block, rows, rounded=False)  # noqa: SLF001 - its own
        length = np.sqrt((rows**2).sum(axis=1))
        # One part in 2^40 shorter than the bound, so that no rounding here can exceed it; and then toward zero.
        rows *= np.minimum(1.0, (1 - 2.0**-40) / np.maximum(length, 1e-200))[:, None]
        out[...] = np.trunc(rows * self.grid) if rounded else rows
        return present

    def _code_column(
        self, column: Column, raw: NDArray[Any], out: NDArray[Any], *, rounded: bool
    ) -> NDArray[np.bool_] | np.bool_:
        present: NDArray[np.bool_] | np.bool_
        if column.categories is not None:
            present = np.zeros(raw.size, dtype=np.bool_)
            for j, same in enumerate(_held(raw, column.categories)):
                out[:, j] = np.where(same, self.grid, 0)
                present |= same
        else:
            if raw.dtype == object:
                msg = f"column {column.name!r} holds text where a range is declared: declare categories or convert it (missing values are empty cells, not NA or nan)"
                raise DataError(msg).at(column=column.name)
            present = self._code_number(column, raw, out[:, 0], rounded=rounded)
        if column.missing == "refuse" and not present.all():
            what = "a value outside its declared categories or missing" if column.categories else "a missing value"
            raise DataError(_MISSING.format(column.name, what)).at(column=column.name)
        if column.missing == "indicator":
            out[:, -1] = np.where(present, 0, self.grid)
        return present

    def _code_number(
        self, column: Column, raw: NDArray[np.float64], out: NDArray[Any], *, rounded: bool
    ) -> NDArray[np.bool_] | np.bool_:
        low, high = column.range
        if self.norm is not None:
            if (low, high) == (-self.norm, self.norm):
                low, high = -math.inf, math.inf
            missing_here = np.isnan(raw)
            with np.errstate(over="ignore"):
                coded = np.where(missing_here, 0.0, (np.clip(raw, low, high) - column.centre) / self.norm)
            out[:] = np.clip(coded, -_FARTHEST, _FARTHEST)
            return ~missing_here
        from unpooled.kernels.moments import quantise, standardise

        if rounded:  # toward zero, so that no bound is exceeded
            missing = quantise(raw, low, high, column.centre, column.half_width, float(self.grid), out)
        else:
            missing = standardise(raw, low, high, column.centre, column.half_width, out)
        return ~np.isnan(raw) if missing else np.True_


def _held(raw: NDArray[Any], categories: tuple[str, ...]) -> Iterator[NDArray[np.bool_]]:
    """Yield for every category a mask of the values that are it.

    No number is turned into text, and where there are many categories every text is looked up once.
    """
    if raw.dtype != object:
        for number in _numbers(categories):
            yield np.asarray(raw == number, dtype=np.bool_)
    elif len(categories) <= _FEW:
        for category in categories:
            yield np.asarray(raw == category, dtype=np.bool_)
    else:
        places = {category: j for j, category in enumerate(categories)}
        place = np.fromiter(map(places.get, raw.tolist(), repeat(-1)), dtype=np.intp, count=raw.size)
        for j in range(len(categories)):
            yield place == j


def _numbers(categories: tuple[str, ...]) -> list[float]:
    """Return the number that each category is the text of, or nan: 1 for "1", nan for "1.0", "01" and words.

    Booleans are stored as 0 and 1: where categories are the words for them, "true" is 1 and "false" is 0.
    """
    words = truth_words(categories)
    if words is not None:
        return [float(words.index(category)) if category in words else math.nan for category in categories]
    return [_number(category) for category in categories]


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if text_of(number) == text else math.nan


@dataclass(frozen=True, slots=True)
class AsDeclared:
    """The look at data that goes before a plan: it gives no number, and refuses what does not fit its declaration."""

    columns: tuple[Column, ...]
    joined: bool = False

    def over(self, table: Table) -> NDArray[np.int64]:
        """Look at these rows."""
        check(table, self.columns)
        return np.empty(0, dtype=np.int64)


def check(table: Table, columns: Sequence[Column]) -> None:
    """Refuse data that do not fit their declarations, reading a bounded number of values at a time."""
    sparse = [c for c in columns if c.name in table.sparse_names and not c.unfit_for_sparse]
    matrix = table.sparse([column.name for column in sparse])
    if matrix is not None:
        Coding(tuple(sparse), 1).code_sparse(matrix)
        coded = {column.name for column in sparse}
        columns = [column for column in columns if column.name not in coded]
    width = max(1, _READ // min(table.n_rows, BLOCK_ROWS))
    for start in range(0, len(columns), width):
        some = columns[start : start + width]
        for block in table.blocks(tuple(column.name for column in some)):
            for column, raw in zip(some, block, strict=True):
                Coding((column,), 1).code((raw,))


def integer_grid(n_rows: int, degree: int, largest: int = 1 << 20) -> int:
    """Return the finest power-of-two grid on which a sum of n products of ``degree`` coded values stays below 2^61."""
    exponent = (61 - math.ceil(math.log2(max(n_rows, 2)))) // degree
    if exponent < 1:
        raise UsageError("so many rows that 64-bit integers do not hold their sums: the cards name too many rows")
    return min(largest, 1 << exponent)
