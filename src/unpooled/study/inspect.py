"""A whole data file held against its declarations, for the party's own eyes: what would be refused, in which rows, and what is clipped."""

from __future__ import annotations

import unicodedata
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.errors import DataError
from unpooled.privacy.bounds import Coding
from unpooled.study.data import FileTable, SparseFileTable
from unpooled.study.reading import EXCEL, FEATHER, PARQUET, DataFormat, dates, numbers, unread, values_of, without_nulls
from unpooled.study.sources.address import QueryAddress
from unpooled.study.sources.table import SourceTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import polars as pl
    from numpy.typing import NDArray

    from unpooled.privacy.bounds import Column
    from unpooled.privacy.table import Table

#: So many row numbers are printed of one kind of fault.
_ROWS = 5
#: A range outside which more than this part of the values lies is probably not the one that was meant.
_OFTEN = 0.1


@dataclass
class Fault:
    """Rows of one column that share something: counted, the first of them by number."""

    column: str
    what: str
    #: Whether a study would refuse the file for it.
    refused: bool
    count: int = 0
    rows: list[int] = field(default_factory=list)

    def add(self, places: NDArray[np.bool_], start: int) -> None:
        """Count these rows of a block that begins with row ``start``."""
        found = np.flatnonzero(places)
        self.count += int(found.size)
        self.rows += (found[: max(0, _ROWS - len(self.rows))] + start).tolist()

    @property
    def words(self) -> str:
        """For people: which rows, how many, what."""
        more = self.count - len(self.rows)
        where = ", ".join(map(str, self.rows)) + (f" and {more:,} more" if more else "")
        return f"{self.column}: {self.what} in {self.count:,} row{'s' * (self.count != 1)} ({where})"


@dataclass(frozen=True)
class Findings:
    """Findings in one file."""

    rows: int
    faults: tuple[Fault, ...]
    #: How the rows are counted.
    counted: str

    @property
    def refused(self) -> tuple[Fault, ...]:
        """Return the faults that no study would accept."""
        return tuple(fault for fault in self.faults if fault.refused)

    def lines(self) -> Iterator[str]:
        """Yield the lines to print: refusals first, then shares of clipped values and unknown categories."""
        if self.faults:
            yield f"(rows are counted {self.counted})"
        for fault in self.refused:
            yield f"REFUSED  {fault.words}"
        for fault in self.faults:
            if not fault.refused:
                share = fault.count / self.rows
                wrong = ": is the range right?" if share > _OFTEN and "clipped" in fault.what else ""
                yield f"note     {fault.words}: {share:.1%} of the rows{wrong}"


def inspect(
    path: Path | QueryAddress,
    columns: Sequence[Column],
    id_column: str | None,
    labels: tuple[str, ...],
    form: DataFormat,
    table: Table,
    household: str | None = None,
) -> Findings:
    """Hold a file, or what a query gives, against its declarations, every row of it; the rows of a household may have one id."""
    kind = "" if isinstance(path, QueryAddress) else path.suffix.lower()
    text = not isinstance(path, QueryAddress) and kind not in {*PARQUET, *FEATHER}
    first = 2 if text else 1
    counted = "as a spreadsheet does, the header being row 1" if text else "from 1"
    if isinstance(table, SparseFileTable):
        return Findings(table.n_rows, (), counted)
    assert isinstance(table, FileTable | SourceTable)
    faults: dict[tuple[str, str], Fault] = {}

    def note(column: str, what: str, places: Any, start: int, *, refused: bool) -> None:  # noqa: ANN401 - booleans
        fault = faults.setdefault((column, what), Fault(column, what, refused))
        fault.add(np.asarray(places, dtype=np.bool_), start)

    start = first
    for block in table.frames():
        for column in columns:
            for what, places, refused in _of_column(block[column.name], column, form):
                note(column.name, what, places, start, refused=refused)
        for label in labels:
            note(label, "a missing value of a label", _missing(without_nulls(block[label], form)), start, refused=True)
        start += len(block)
    if id_column is not None:
        blank, twice = _of_ids(table.ids())
        note(id_column, "a blank id (refused where ids are compared)", blank, first, refused=False)
        note(id_column, "an id that another row has", twice, first, refused=household is None)
    if kind in EXCEL:
        counted += " (of the sheet's own table)"
    return Findings(table.n_rows, tuple(fault for fault in faults.values() if fault.count), counted)


def _of_column(series: pl.Series, column: Column, form: DataFormat) -> Iterator[tuple[str, Any, bool]]:
    refusing = not column.may_be_absent
    if column.categories is not None:
        values = values_of(series, column, form)
        known = Coding((msgspec.structs.replace(column, missing="absent"),), 1).code((values,))[1][:, 0]
        missing = np.array([v is None for v in values]) if values.dtype == object else np.isnan(values)
        unknown = ~missing & ~known
        yield "a missing value, and the declaration refuses those", missing & refusing, True
        yield "a missing value", missing & (not refusing), False
        yield "a category that is not declared", unknown & refusing, True
        yield "a category that is not declared, which counts as missing", unknown & (not refusing), False
        return
    read = dates(series, column, form) if column.dates else numbers(series, form)
    bad = unread(series, read, form)
    values = read.to_numpy().astype(np.float64)
    missing = np.isnan(values) & ~bad
    kind = f"something that is no date written as {form.dates}" if column.dates else "something that is no number"
    yield kind, bad, True
    yield "an infinite value", np.isinf(values), True
    yield "a missing value, and the declaration refuses those", missing & refusing, True
    yield "a missing value", missing & (not refusing), False
    low, high = column.range
    with np.errstate(invalid="ignore"):
        yield "a value below the declared range, which is clipped", np.isfinite(values) & (values < low), False
        yield "a value above the declared range, which is clipped", np.isfinite(values) & (values > high), False


def _missing(series: pl.Series) -> NDArray[np.bool_]:
    gone = series.is_null()
    if series.dtype.is_float():
        gone = gone | series.is_nan().fill_null(value=False)
    return gone.to_numpy()


def _of_ids(texts: list[str | None]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    ids = [unicodedata.normalize("NFC", "" if text is None else text.strip()) for text in texts]
    often = Counter(ids)
    return np.array([not text for text in ids]), np.array([bool(text) and often[text] > 1 for text in ids])


def refuse(findings: Findings, name: str) -> None:
    """Refuse a file that no study would accept: its party would be set up for nothing."""
    if findings.refused:
        names = list(dict.fromkeys(fault.column for fault in findings.refused))
        msg = (
            f"{name} does not fit its declarations ({len(names)} column{'s' * (len(names) != 1)}, the rows are listed above), so nothing was made. Correct the file, declare "
            "what may be missing (NAME=LOW:HIGH;absent or ;indicator), or say how the file is written (--null, --decimal, --dates)"
        )
        raise DataError(msg)
