"""A line of a result as everybody reads it: a name, a number, and how sure it is; the same fields for every model."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence

import msgspec

#: What the text of a formula begins with in a spreadsheet.
_FORMULA = frozenset("=+-@\t\r")


class ResultTerm(msgspec.Struct, frozen=True):
    """A line of a result. What a model does not know is None: a coefficient without a standard error is no coefficient with error 0.

    ``privacy`` is the part of the standard error that privacy adds. ``group`` tells lines of the same name apart: the party whose model or
    column it is, the source of a mean.
    """

    term: str
    estimate: float
    std_error: float | None = None
    statistic: float | None = None
    p_value: float | None = None
    conf_low: float | None = None
    conf_high: float | None = None
    privacy: float | None = None
    group: str = ""


class PrintedTable(msgspec.Struct, frozen=True):
    """A table as it is printed: cells are texts, and every row has one for each column of the head."""

    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    title: str = ""
    #: The lines of text under the table.
    foot: tuple[str, ...] = ()
    #: The number of first columns that hold words, which are flush left; numbers are flush right.
    words: int = 1
    #: The table as a terminal prints it, where its columns are not aligned by the common rule.
    text: str = ""

    def __str__(self) -> str:
        cells = [self.head, *self.rows] if self.head else []
        widths = [max(len(row[k]) for row in cells) for k in range(len(self.head))]
        lines = (
            "  ".join(
                f"{v:<{w}}" if k < self.words else f"{v:>{w}}" for k, (v, w) in enumerate(zip(row, widths, strict=True))
            )
            for row in cells
        )
        own = [self.text] if self.text else [*([self.title] if self.title else []), *(line.rstrip() for line in lines)]
        return "\n".join([*own, *self.foot])


#: The fields in the order in which every table, CSV and JSON has them.
FIELDS = ResultTerm.__struct_fields__


def known(value: float) -> float | None:
    """Return a number, or None where it is endless or no number: neither has a place in JSON or CSV."""
    return float(value) if math.isfinite(value) else None


def finite(value: float | None) -> float | None:
    """Return the value, or None for one that is no finite number."""
    return None if value is None else known(value)


def plain(names: Iterable[str], values: Iterable[float], group: str = "") -> tuple[ResultTerm, ...]:
    """Return coefficients of which nothing but the value is known."""
    return tuple(ResultTerm(name, float(value), group=group) for name, value in zip(names, values, strict=True))


def as_csv(terms: Sequence[ResultTerm]) -> str:
    """Comma-separated values with a header; empty where nothing is known."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(FIELDS)
    for term in terms:
        writer.writerow([_safe(value) for value in msgspec.structs.astuple(term)])
    return out.getvalue()


def _safe(value: object) -> object:
    """Return a value as a cell; a text that a spreadsheet would run as a formula gets an apostrophe, which spreadsheets do not show."""
    if isinstance(value, str) and value[:1] in _FORMULA:
        return f"'{value}"
    return "" if value is None else value


def as_table(terms: Sequence[ResultTerm]) -> str:
    """For a terminal: only the columns of which something is known."""
    return str(table_of(terms))


def table_of(terms: Sequence[ResultTerm]) -> PrintedTable:
    """Return lines as a table that has only the columns of which something is known."""
    head, *rows = as_rows(terms)
    return PrintedTable(tuple(head), tuple(map(tuple, rows)), words=len({"group", "term"} & set(head)))


def as_rows(terms: Sequence[ResultTerm]) -> list[list[str]]:
    """Return a row of titles, and one per term: of the fields of which something is known."""
    known_of = [name for name in FIELDS if any(getattr(term, name) not in {None, ""} for term in terms)]
    shown = [name for name in ("group", *FIELDS[:-1]) if name in known_of]
    return [shown, *([_cell(getattr(term, name)) for name in shown] for term in terms)]


def _cell(value: float | str | None) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else f"{value:.6g}"
