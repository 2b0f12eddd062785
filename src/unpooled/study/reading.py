"""The format of a data file (separator, decimal sign, encoding, ...), and its columns as a party's table wants them.

Nothing is guessed here: what a party file does not declare is the default. :mod:`unpooled.study.sniff` guesses, once, when a party is set up.
"""

from __future__ import annotations

import codecs
from datetime import date
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.errors import DataError, StudyError, UsageError
from unpooled.privacy.bounds import UNDER, text_of, truth_words

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    import polars as pl
    from numpy.typing import NDArray

    from unpooled.privacy.bounds import Column

#: How files of these kinds end; everything else is read as text.
PARQUET, FEATHER, EXCEL = (".parquet",), (".feather", ".arrow", ".ipc"), (".xlsx", ".xlsm", ".xls", ".xlsb", ".ods")
KINDS = "CSV (or other separated text), Parquet, Feather, Excel, and .npz of sparse columns"
#: What no separated text begins with, and what to do about it.
_BINARY = (
    b"PK\x03\x04",
    b"PAR1",
    b"ARROW1",
    b"SQLite format 3",
    b"\x1f\x8b",
    b"\xd0\xcf\x11\xe0",
    b"$FL2",
    b"BZh",
    b"\xfd7zXZ",
)
_UTF8 = {"utf-8", "ascii"}
_ISO = "%Y-%m-%d"


class DataFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """``[format]`` of a party file: how its data file is written. The last two are of files of any kind, the others of text."""

    separator: str = ","
    #: "." or ","; numbers are written without separators of thousands.
    decimal: str = "."
    encoding: str = "utf-8"
    #: What stands around a text that holds the separator; empty: nothing does.
    quote: str = '"'
    #: How dates are written, as in Python's strftime.
    dates: str = _ISO
    #: What stands for a missing value, beside an empty cell.
    nulls: tuple[str, ...] = ()
    #: Of an Excel file; empty: the first one.
    sheet: str = ""

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem:
            raise UsageError(problem)

    def _problem(self) -> str | None:
        if len(self.separator) != 1 or not self.separator.isascii() or self.separator in '\n\r\0"':
            return "[format] separator is one character, such as ',', ';' or a tab"
        if self.decimal not in {".", ","} or self.decimal == self.separator:
            return "[format] decimal is '.' or ',', and not the separator"
        if len(self.quote) > 1 or not self.quote.isascii() or self.quote == self.separator:
            return "[format] quote is one character, or empty"
        try:
            b"a".decode(self.encoding)
        except LookupError:
            return "[format] encoding is not one that Python knows: utf-8, windows-1252, latin-1, utf-16, ..."
        except UnicodeError:  # two bytes to a letter
            return None
        return None

    @property
    def plain(self) -> bool:
        """Return True if the file can be read as it lies on the disk, block by block; another encoding is turned into UTF-8 in memory first."""
        return codecs.lookup(self.encoding).name in _UTF8


def frame_of(path: Path, form: DataFormat, texts: Collection[str] = ()) -> pl.LazyFrame:
    """Return a lazy frame over a data file; columns of ``texts`` are read as text, so that 007 stays 007. May raise what polars raises."""
    import polars as pl

    kind = path.suffix.lower()
    if kind in PARQUET:
        return pl.scan_parquet(path)
    if kind in FEATHER:
        return pl.scan_ipc(path)
    if kind in EXCEL:
        return _sheet(path, form).lazy()
    source = _text(path, form)

    def scanned(columns: Collection[str]) -> pl.LazyFrame:
        return pl.scan_csv(
            source,
            separator=form.separator,
            decimal_comma=form.decimal == ",",
            quote_char=form.quote or None,
            null_values=list(form.nulls),
            infer_schema_length=None,
            schema_overrides=dict.fromkeys(columns, pl.String),
        )

    frame = scanned(())
    present = set(frame.collect_schema().names())
    there = [name for name in texts if name in present]
    frame = scanned(there) if there else frame
    blank = _blank_lines(source if isinstance(source, bytes) else path) if len(present) > 1 else 0
    return frame.head(int(frame.select(pl.len()).collect().item()) - blank) if blank else frame


def _text(path: Path, form: DataFormat) -> Path | bytes:
    """Return the file itself, or its text in UTF-8."""
    with path.open("rb") as file:
        start = file.read(4096)
    if start.startswith(_BINARY) or (form.plain and b"\0" in start):
        msg = f"{path.name} is no text: unpooled reads {KINDS}. Name the file by its kind, or export it as one of these"
        raise DataError(msg)
    if form.plain:
        return path
    try:
        return path.read_bytes().decode(form.encoding).removeprefix("\ufeff").encode()
    except (UnicodeError, ValueError):
        msg = f"{path.name} is not written in {form.encoding}: correct `encoding` under [format] in party.toml"
        raise DataError(msg) from None


def _blank_lines(source: Path | bytes) -> int:
    """Return the number of blank lines at the end: they are no people."""
    if isinstance(source, bytes):
        tail = source[-4096:]
    else:
        with source.open("rb") as file:
            file.seek(max(0, source.stat().st_size - 4096))
            tail = file.read()
    tail = tail.replace(b"\r\n", b"\n")
    return max(0, len(tail) - len(tail.rstrip(b"\n")) - 1)


def _sheet(path: Path, form: DataFormat) -> pl.DataFrame:
    import polars as pl

    try:
        if form.sheet:
            return pl.read_excel(path, sheet_name=form.sheet, infer_schema_length=None)
        return pl.read_excel(path, infer_schema_length=None)
    except ModuleNotFoundError:
        msg = f"{path.name}: Excel files need the extra: pip install 'unpooled[excel]' (or save the sheet as CSV)"
        raise StudyError(msg) from None
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever damage makes of the reader; its text may quote data
        msg = f"{path.name}: cannot be read as an Excel file, or has no such sheet ({type(error).__name__}): look at `sheet` under [format]"
        raise DataError(msg) from None


def values_of(series: pl.Series, column: Column | None, form: DataFormat) -> NDArray[Any]:
    """Return a column as a table holds it, read as it was declared; ``None``: an id or a label, which nobody declares."""
    import polars as pl

    if series.dtype == pl.Float64 and (
        column is None or (column.categories is None and not column.dates and column.below is None)
    ):
        return series.to_numpy()  # what follows would say the same, in ten times the time
    if column is not None and column.below is not None:
        return above_limit(series, column, form)
    if column is None:
        return _to_numpy(series)
    if column.categories is not None:
        return _to_numpy(as_declared(without_nulls(series, form), column.categories))
    read = dates(series, column, form) if column.dates else numbers(series, form)
    if unread(series, read, form).any():
        if column.dates:
            msg = f"column {column.name!r} holds something that is no date written as {form.dates}: correct `dates` under [format], or the file"
            raise DataError(msg).at(column=column.name)
        return _to_numpy(series)  # text, which is refused where it is coded
    return read.to_numpy().astype(np.float64)


def above_limit(series: pl.Series, column: Column, form: DataFormat) -> NDArray[Any]:
    """Return the numbers of a column that has a limit of detection, nan where they lie under it or nothing is there; text where something is no number."""
    rest, _ = without_limits(series, column, form)
    read = numbers(rest, form)
    if unread(rest, read, form).any():
        return _to_numpy(rest)  # which is refused where it is coded
    values = read.to_numpy().astype(np.float64)
    return np.where(values < (column.below or 0.0), np.nan, values)


def without_limits(series: pl.Series, column: Column, form: DataFormat) -> tuple[pl.Series, NDArray[np.bool_]]:
    """Return a column without what is written as under a limit, and where that was; a larger limit than the declared one stays, and is no number."""
    import polars as pl

    given = without_nulls(series, form)
    if given.dtype != pl.String or column.below is None:
        return given, np.zeros(len(given), dtype=np.bool_)
    limit = given.str.strip_chars().str.extract(UNDER).str.replace(",", ".", literal=True).cast(pl.Float64, strict=False)
    under = (limit <= column.below).fill_null(value=False)
    return given.set(under, None), under.to_numpy()


def without_nulls(series: pl.Series, form: DataFormat) -> pl.Series:
    """Return text without the words that stand for a missing value (a text file's own are gone already)."""
    import polars as pl

    if series.dtype in {pl.Categorical, pl.Enum}:
        series = series.cast(pl.String)
    if series.dtype != pl.String:
        return series
    # A list of texts holds no null, which `is_in` would otherwise be asked about.
    return series.set(series.is_in(list(form.nulls)).fill_null(value=False), None) if form.nulls else series


def numbers(series: pl.Series, form: DataFormat) -> pl.Series:
    """Numbers; null where there is nothing, or nothing that is a number."""
    import polars as pl

    if series.dtype.is_numeric() or series.dtype in {pl.Boolean, pl.Null}:
        return series.cast(pl.Float64)
    series = without_nulls(series, form)
    if series.dtype != pl.String:
        return pl.Series(series.name, [None] * len(series), dtype=pl.Float64)
    text = series.str.strip_chars()
    if form.decimal == ",":
        text = pl.select(pl.when(text.str.contains(".", literal=True)).then(None).otherwise(text)).to_series()
        text = text.str.replace(",", ".", literal=True)
    return text.cast(pl.Float64, strict=False).alias(series.name)


def dates(series: pl.Series, column: Column, form: DataFormat) -> pl.Series:
    """Dates counted as the column declares it; null where there is nothing, or nothing that is a date."""
    import polars as pl

    assert column.calendar is not None
    start, unit = column.calendar
    moments = moments_of(without_nulls(series, form), form.dates)
    days = (moments - pl.Series([start]).cast(pl.Datetime("us"))).dt.total_seconds() / 86400.0
    return (days / unit).alias(series.name)


def moments_of(series: pl.Series, written: str) -> pl.Series:
    """Date and time of day, where there is one; null where there is nothing, or no date so written."""
    import polars as pl

    kind = pl.Datetime("us")
    if series.dtype == pl.Date or isinstance(series.dtype, pl.Datetime):
        if isinstance(series.dtype, pl.Datetime):
            series = series.dt.replace_time_zone(None)
        return series.cast(kind)
    if series.dtype != pl.String:
        return pl.Series(series.name, [None] * len(series), dtype=kind)
    text = series.str.strip_chars()
    found = text.str.to_date(written, strict=False).cast(kind)
    for clock in ("%H:%M:%S%.f", "%H:%M"):
        for between in ("T", " "):
            found = found.fill_null(text.str.to_datetime(f"{written}{between}{clock}", strict=False, time_unit="us"))
    return found


def unread(series: pl.Series, read: pl.Series, form: DataFormat) -> NDArray[np.bool_]:
    """Which rows hold something that was not read."""
    import polars as pl

    given = without_nulls(series, form)
    something = given.is_not_null()
    if given.dtype == pl.String:
        something = something & (given.str.strip_chars() != "").fill_null(value=False)
    return (something & read.is_null()).to_numpy()


def as_declared(series: pl.Series, categories: tuple[str, ...]) -> pl.Series:
    """Return text as the declared categories write it: 1.0 is "1", surrounding blanks do not count, and neither does the case of true and false."""
    import polars as pl

    if series.dtype != pl.String:
        return series
    known = set(categories)
    words = truth_words(categories) or (("0", "1") if known <= {"0", "1"} else None)
    found = {}
    for text in series.unique().to_list():
        plain = None if text is None else text.strip()
        found[text] = text if text in known else (plain or None)
        if plain and found[text] not in known:
            found[text] = _number_text(plain, known) or _truth(plain, words) or plain
    return series.replace_strict(list(found), list(found.values()), return_dtype=pl.String)


def _number_text(text: str, known: set[str]) -> str | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return text_of(number) if np.isfinite(number) and text_of(number) in known else None


def _truth(text: str, words: tuple[str, str] | None) -> str | None:
    return words[text.lower() == "true"] if words and text.lower() in {"true", "false"} else None


def _to_numpy(column: pl.Series) -> NDArray[Any]:
    import polars as pl

    if column.dtype.is_numeric() or column.dtype == pl.Boolean:
        return column.cast(pl.Float64).fill_null(float("nan")).to_numpy()
    try:
        return np.array(column.cast(pl.String).to_list(), dtype=object)
    except pl.exceptions.PolarsError:  # lists, durations and the like
        msg = f"column {column.name!r} holds values that are neither numbers, dates nor text: store it as one of these"
        raise DataError(msg).at(column=column.name) from None


def day(text: str) -> date | None:
    """Return a day as declarations write it, 2015-01-31, or None."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None
