"""The form of a data file (separator, decimal sign, encoding, missing values, dates), and declarations as people type them."""

from __future__ import annotations

import codecs
import csv
import re
import sys
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import msgspec
import tomli_w

from unpooled.errors import DataError, StudyError, UsageError
from unpooled.privacy.bounds import Column
from unpooled.study.files import PartySection, write_party
from unpooled.study.reading import (
    EXCEL,
    FEATHER,
    PARQUET,
    DataFormat,
    day,
    frame_of,
    moments_of,
    numbers,
    unread,
    without_limits,
    without_nulls,
)
from unpooled.study.sources.table import SourceTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import polars as pl

    from unpooled.privacy.unit import Target
    from unpooled.study.sources.query import QueryAddress


# --- Sniff -----------------------------------------------------------------------------------------------------------------
# The form of a data file: separator, decimal sign, encoding, words for missing values, dates, and kinds of columns. Never a range.
#
# It is for the person who sets up a party, on that party's machine. What is found is shown and written down; nothing is guessed again later.

#: So much of a text file is looked at for its separator and its decimal sign.
_SAMPLE = 1 << 18
_LINES = 200
#: Kinds of columns are told from so many rows (whether a column is text at all, from all of them).
_ROWS = 200_000
_SEPARATORS = (",", ";", "\t", "|")
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
#: What people write where a number is missing. Words that a file uses beside numbers are shown; others are never looked for.
_MISSING = ("NA", "N/A", "n/a", "na", "NaN", "nan", "NULL", "null", "None", "#N/A", "?", "-", "--", ".", "missing")
_DATES = ("%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y")
#: The same share of lines has as many cells as the header where the separator is right.
_AGREE = 0.9


@dataclass(frozen=True)
class Sniffed:
    """The format of a file as it seems to be, and the kind of every column of it."""

    form: DataFormat
    kinds: dict[str, str]
    notes: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """Return the settings that differ from the default, for people."""
        told = msgspec.to_builtins(self.form)
        shown = {"\t": "tab"}
        return ", ".join(
            f"{key} {', '.join(map(repr, value)) if isinstance(value, list | tuple) else repr(shown.get(value, value))}"
            for key, value in told.items()
        )


def sniff(path: Path, given: dict[str, Any] | None = None) -> Sniffed:
    """Return the format of this file as it seems to be; ``given`` is what somebody declared of it. May raise what polars raises."""
    given = given or {}
    kind = path.suffix.lower()
    text = kind not in {*PARQUET, *FEATHER, *EXCEL}
    form = DataFormat(**{**(_written(path, given) if text else {}), **given})
    words: dict[str, None] = {}
    ways: set[str] = set()
    unclear = False
    for series in frame_of(path, form).head(_ROWS).collect():
        words |= dict.fromkeys(_words(series, form))
        clean = without_nulls(series, msgspec.structs.replace(form, nulls=(*form.nulls, *words)))
        fits = _date_forms(clean)
        ways |= set(fits[:1])
        unclear = unclear or {"%d/%m/%Y", "%m/%d/%Y"} <= set(fits)
    notes: tuple[str, ...] = ()
    if "dates" not in given and ways - {form.dates} and not unclear:
        form = msgspec.structs.replace(form, dates=min(ways - {form.dates}))
    elif unclear and "dates" not in given:
        notes = ("dates may be day/month or month/day: say which, --dates %d/%m/%Y or --dates %m/%d/%Y",)
    if "nulls" not in given and words:
        form = msgspec.structs.replace(form, nulls=(*form.nulls, *words))
    frame = frame_of(path, form).head(_ROWS).collect()
    if 2 * sum(_number(name) for name in frame.columns) > len(frame.columns):
        msg = f"{path.name}: most names of its columns are numbers, so its first line is probably no header: write a line of names above it"
        raise DataError(msg)
    return Sniffed(form, {one.name: kind_of(one, form) for one in frame}, notes)


def _number(text: str) -> bool:
    return bool(re.fullmatch(r"\s*[-+]?\d*[.,]?\d+([eE][-+]?\d+)?\s*(_duplicated_\d+)?", text))


def kind_of(series: pl.Series, form: DataFormat) -> str:
    """Return the kind of a column as it seems to be, in words: a kind and a count, never a value or a range."""
    import polars as pl

    clean = without_nulls(series, form)
    read = numbers(clean, form)
    filled = len(clean) - int(clean.null_count())
    if not filled:
        return "empty"
    if clean.dtype == pl.Boolean:
        return "true or false"
    if not unread(clean, read, form).any():
        values = read.drop_nulls()
        return "whole numbers" if bool((values == values.round()).all()) else "numbers"
    if not unread(clean, moments_of(clean, form.dates), form).any():
        return "dates"
    return _kind_of_text(clean, form, filled)


def _kind_of_text(series: pl.Series, form: DataFormat, filled: int) -> str:
    import polars as pl

    if series.dtype != pl.String:
        return "something that is neither a number, a date nor text"
    if _some_under(series, form):
        return "numbers, some of them written as under a limit (<)"
    different = int(series.n_unique()) - (series.null_count() > 0)
    return f"text, {different} different" if different < filled else "text, no two alike (ids?)"


def _some_under(series: pl.Series, form: DataFormat) -> bool:
    """Return True if a column is one of numbers, but for what is written as under a limit of detection."""
    rest, under = without_limits(series, Column("", 0.0, sys.float_info.max, below=sys.float_info.max / 2), form)
    return bool(under.any()) and not unread(rest, numbers(rest, form), form).any()


def proposal(name: str, kind: str) -> str:
    """Return the declaration that a column of this kind wants, its range or categories left to a person who knows the possible values."""
    if kind.startswith("text"):
        return f"{name}=A,B,C"
    if kind == "dates":
        return f"{name}=YYYY-MM-DD:YYYY-MM-DD"
    if "<" in kind:
        return f"{name}=LOW:HIGH;<LIMIT"
    return f"{name}=false,true" if kind == "true or false" else f"{name}=LOW:HIGH"


def _written(path: Path, given: dict[str, Any]) -> dict[str, Any]:
    encoding = given.get("encoding") or _encoding(path)
    try:
        with path.open("rb") as file:
            sample = codecs.getincrementaldecoder(encoding)("strict").decode(file.read(_SAMPLE))
    except (UnicodeError, LookupError):
        return {"encoding": encoding}
    lines = sample.removeprefix("\ufeff").splitlines()
    lines = lines[: min(_LINES, max(1, len(lines) - (len(sample) > _SAMPLE // 4)))]
    separator, quote = _separator(lines, given)
    cells = [cell for row in _cells(lines[1:], separator, quote) for cell in row]
    found: dict[str, Any] = {"encoding": encoding, "separator": separator, "quote": quote}
    commas = sum(bool(re.fullmatch(r"\s*[-+]?\d+,\d+\s*", cell)) for cell in cells)
    points = sum(bool(re.fullmatch(r"\s*[-+]?\d*\.\d+\s*", cell)) for cell in cells)
    if separator != "," and commas > points:
        found["decimal"] = ","
    return {key: value for key, value in found.items() if value != getattr(DataFormat(), key)}


def _encoding(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(4)
        for mark, name in _MARKS:
            if start.startswith(mark):
                return name
        decoder = codecs.getincrementaldecoder("utf-8")("strict")
        file.seek(0)
        try:
            while block := file.read(1 << 20):
                decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return "windows-1252" if _decodes(path, "windows-1252") else "latin-1"
    return "utf-8"


def _decodes(path: Path, encoding: str) -> bool:
    try:
        path.read_bytes().decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _separator(lines: list[str], given: dict[str, Any]) -> tuple[str, str]:
    """Return the separator, and the quote, that give most lines the same number of cells as the header, and the most of these."""
    separators = [given["separator"]] if "separator" in given else _SEPARATORS
    quotes = [given["quote"]] if "quote" in given else ['"', "'"]

    def merit(pair: tuple[str, str]) -> tuple[bool, int, bool]:
        rows = _cells([line for line in lines if line.strip()], *pair)
        width = len(rows[0]) if rows else 0
        agree = sum(len(row) == width for row in rows)
        whole = not any(
            pair[1] and cell.startswith(mark) and cell.endswith(mark) and len(cell) > 1
            for row in rows
            for cell in row
            for mark in quotes
        )
        return width > 1 and agree >= _AGREE * len(rows), width, whole

    best = max(((separator, quote) for separator in separators for quote in quotes), key=merit)
    return best if merit(best)[0] else (separators[0], quotes[0])


def _cells(lines: Iterable[str], separator: str, quote: str) -> list[list[str]]:
    try:
        return list(_rows(lines, separator, quote))
    except csv.Error:
        return [line.split(separator) for line in lines]


def _rows(lines: Iterable[str], separator: str, quote: str) -> Iterator[list[str]]:
    return csv.reader(
        lines, delimiter=separator, quotechar=quote or None, quoting=csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE
    )


def _words(series: pl.Series, form: DataFormat) -> list[str]:
    """Which of the usual words stand for missing values in a column of numbers or dates that is one without them."""
    import polars as pl

    given = without_nulls(series, form)
    if given.dtype != pl.String:
        return []
    clean = given.str.strip_chars()
    there = set(clean.unique().drop_nulls().to_list())
    words = [word for word in _MISSING if word in there]
    # As a file says it: a word with blanks around it would not be recognised again.
    if not words or not set(words) <= set(given.unique().drop_nulls().to_list()):
        return []
    rest = clean.set(clean.is_in(words).fill_null(value=False), None)
    rest = rest.set((rest == "").fill_null(value=False), None)
    if rest.null_count() == len(rest):
        return []
    is_numbers = not unread(rest, numbers(rest, form), form).any()
    return words if is_numbers or _date_forms(rest) else []


def _date_forms(series: pl.Series) -> list[str]:
    """Return the ways of writing dates that fit every value of a column."""
    import polars as pl

    if series.dtype != pl.String or series.null_count() == len(series):
        return []
    return [way for way in _DATES if not unread(series, moments_of(series, way), DataFormat()).any()]


def ragged_row(path: Path, form: DataFormat) -> int | None:
    """Return the first row (the header is row 1) of a text file that has another number of cells than the header."""
    if path.suffix.lower() in {*PARQUET, *FEATHER, *EXCEL}:
        return None
    try:
        with path.open(encoding=form.encoding, newline="") as file:
            width = 0
            for place, row in enumerate(_rows(file, form.separator, form.quote), 1):
                width = width or len(row)
                if row and len(row) > width:
                    return place
    except (csv.Error, UnicodeError, TypeError):
        return None
    return None


def sniff_source(source: QueryAddress, given: dict[str, Any]) -> Sniffed:
    """Return the kind of every column of a query; how it is written is no question."""
    form = DataFormat(**given)
    frame = next(SourceTable(source).frames(_ROWS))
    return Sniffed(form, {series.name: kind_of(series, form) for series in frame})


def read_or_words(path: Path, given: dict[str, Any] | None = None) -> Sniffed:
    """:func:`sniff`, with a refusal in words for whatever cannot be read."""
    import polars as pl

    try:
        return sniff(path, given)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, OverflowError) as error:
        form = DataFormat(**(given or {}))
        row = ragged_row(path, form)
        where = f": row {row} has more cells than the header (which is row 1)" if row else f" ({type(error).__name__})"
        msg = f"{path.name}: cannot be read{where}. If the separator is not {form.separator!r}, say so: --separator"
        raise DataError(msg) from None


# --- Declare ---------------------------------------------------------------------------------------------------------------
# Declarations as people type them: age=0:100, smoker=never,former,current, seen=2015-01-01:2024-12-31; and the party file that asks for them.


def declared(texts: Sequence[str], names: Sequence[str]) -> tuple[Column, ...]:
    """Return the typed declarations as columns. A name with ``*`` stands for all of the file's columns that match and are not declared by name."""
    columns = [declaration(text) for text in texts]
    by_name = {column.name for column in columns}
    found: list[Column] = []
    for column in columns:
        if "*" not in column.name or column.name in names:
            found.append(column)
            continue
        alike = [name for name in names if fnmatchcase(name, column.name) and name not in by_name]
        if not alike:
            msg = f"no column of the file is called like {column.name!r}"
            raise StudyError(msg)
        found += [msgspec.structs.replace(column, name=name) for name in alike]
    twice = [name for name, count in Counter(column.name for column in found).items() if count > 1]
    if twice:
        msg = f"column {twice[0]!r} is declared more than once: give each name once"
        raise UsageError(msg).at(column=twice[0])
    return tuple(found)


#: Before the typical centre and deviation of a column.
_TYPICAL = "typical="


def declaration(text: str) -> Column:
    """Return one declaration."""
    name, _, rest = text.partition("=")
    rule, *said = rest.split(";")
    how = next((word for word in said if not word.startswith((_TYPICAL, "<"))), "") or "refuse"
    typical = next((word.removeprefix(_TYPICAL) for word in said if word.startswith(_TYPICAL)), "")
    try:
        below = next((float(word[1:]) for word in said if word.startswith("<")), None)
        known = tuple(float(number) for number in typical.split(",")) if typical else None
        if known is not None and ":" in rule and len(known) != 2:  # noqa: PLR2004
            msg = (
                f"--column {text!r}: typical is two numbers, as in NAME=0:500;{_TYPICAL}12,8 (centre and standard deviation)"
            )
            raise UsageError(msg).at(column=name)
        if ":" in rule:
            low, high = rule.split(":")
            first, last = day(low), day(high)
            if first and last:
                days = float((last - first).days)
                return Column(name, 0.0, days, missing=how, dates=f"days since {first}", below=below, typical=known)  # type: ignore[arg-type]
            return Column(name, float(low), float(high), missing=how, below=below, typical=known)  # type: ignore[arg-type]
        if "," in rule:
            words = tuple(part.strip() for part in rule.split(","))
            return Column(name, categories=words, missing=how, below=below, typical=known)  # type: ignore[arg-type]
    except ValueError as error:
        if isinstance(error, UsageError):
            raise
    msg = f"--column {text!r} is not NAME=LOW:HIGH or NAME=A,B,C (with ;complete, ;model, ;absent or ;indicator for missing values, ;<0.5 for a limit of detection, ;{_TYPICAL}12,8 for what is typical)"
    raise UsageError(msg)


def template(party: PartySection, sniffed: Sniffed, budget: Target) -> str:
    """Return a party file in which every column of the data waits for its declaration, in comments."""
    others = {party.id, party.household, *party.labels}
    waiting = [(column, kind) for column, kind in sniffed.kinds.items() if column not in others]
    lines = [
        "\n# Declare each column that studies may use: take the # away and give what is POSSIBLE, not what you see in the file.",
        "# A range read off the data gives data away. Then: unpooled party init --config party.toml",
    ]
    for column, kind in waiting:
        lines += ["", "# [[columns]]", f"# {tomli_w.dumps({'name': column}).strip()}    # {kind}"]
        lines += [f"# {line}" for line in _wanted(kind)]
        lines += [
            '# missing = "complete"           # rows without it are left out of tables; or "refuse", "model", "absent", "indicator"'
        ]
        numbers, words = (
            ("0.5, 0.5", "share of each category")
            if kind.startswith(("text", "true"))
            else ("0.0, 1.0", "centre and standard deviation")
        )
        lines += [f"# typical = [{numbers}]           # {words}, if they are known from elsewhere (never from this file)"]
    text = write_party(party, (), budget, sniffed.form, template="\n".join(lines) + "\n")
    return f"# The party {party.name!r}: what it declares of its data, and what it allows. docs/studies.md explains every key.\n{text}"


def _wanted(kind: str) -> tuple[str, ...]:
    if kind.startswith("text"):
        return ('categories = ["A", "B"]',)
    if kind == "true or false":
        return ('categories = ["false", "true"]',)
    if kind == "dates":
        return ('dates = "days since 2000-01-01"  # or weeks, months, years', "low = 0.0", "high = 9999.0")
    return (
        "low = 0.0",
        "high = 1.0",
        *(("below = 0.1                     # the limit of detection",) if "<" in kind else ()),
    )
