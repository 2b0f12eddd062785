"""Data files as tables, read a block of rows at a time; and a whole file held against its declarations, for the party's own eyes."""

from __future__ import annotations

import hashlib
import re
import time
import unicodedata
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.errors import DataError, StudyError, UnpooledError
from unpooled.privacy.bounds import Coding
from unpooled.privacy.table import BLOCK_ROWS, Table, as_column, check_rows
from unpooled.study.reading import (
    EXCEL,
    FEATHER,
    KINDS,
    PARQUET,
    DataFormat,
    dates,
    frame_of,
    numbers,
    unread,
    values_of,
    without_limits,
    without_nulls,
)
from unpooled.study.sources.query import QueryAddress
from unpooled.study.sources.table import SourceTable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    import polars as pl
    from numpy.lib.npyio import NpzFile
    from numpy.typing import NDArray

    from unpooled.privacy.bounds import Column


# --- Data ------------------------------------------------------------------------------------------------------------------
# Data files as tables: text and Parquet are read a block of rows at a time, so that they may be larger than memory; sparse columns in .npz.

#: How a file of sparse columns is called.
SPARSE = ".npz"


#: A change that follows another one within this time (in seconds) may leave a file system's time stamps as they are.
_YOUNG = 3.0


class _Watched:
    """A file, its fingerprint, and whether it is still the same.

    Every change of a file, also one that sets its modification time back, changes what :meth:`_stamp` returns; and a stamp that was old
    when the content was hashed belongs to that content alone. Only content that was young then is hashed again.
    """

    def __init__(self, path: Path) -> None:
        must_exist(path)
        self._path, self._first, self._settled = path, self._stamp(path), False

    @cached_property
    def digest(self) -> bytes:
        """Return SHA-256 of the file as it was when it was first looked at."""
        self.same()
        found = self._hashed()
        self.same()
        return found

    def verify(self) -> None:
        """Refuse a file that is not what :attr:`digest` says."""
        self.same()
        known = self.digest
        if not self._settled and self._hashed() != known:
            raise self._changed()
        self.same()

    def same(self) -> None:
        """Refuse a file whose stamp is another one: a glance, for every read."""
        if self._stamp(self._path) != self._first:
            raise self._changed()

    def _hashed(self) -> bytes:
        old = time.time() - self._first[-1] / 1e9 > _YOUNG
        try:
            with self._path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").digest()
        except OSError:
            raise self._changed() from None
        self._settled = self._settled or old
        return found

    @staticmethod
    def _stamp(path: Path) -> tuple[int, ...]:
        """Which file this is, its size, when it was modified, and when anything about it last changed (nobody can set that back)."""
        try:
            found = path.stat()
        except OSError:
            return (0,)
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def _changed(self) -> DataError:
        msg = (
            f"{self._path.name}: the data file has changed since this party opened it, so nothing is released from it: put the old file "
            "back or make a new card, and open the party again"
        )
        return DataError(msg)


def no_id_twice(table: Table, name: str) -> None:
    """Refuse a file in which an id has several rows: noise covers one row of each person."""
    if isinstance(table, FileTable):
        twice = table.has_an_id_twice()
    else:
        known = [unicodedata.normalize("NFC", text).strip() for text in table.ids() if text]
        twice = len(set(known)) != len(known)
    if twice:
        msg = (
            f"id column {name!r}: an id has several rows, and noise covers one row of each: keep one of them, or declare the rows of an id as "
            "rows of one `household`. Nothing was released"
        )
        raise DataError(msg).at(column=name)


class FileTable(Table):
    """The named columns of a file. Nothing is kept in memory but the block that is being worked on."""

    def __init__(
        self,
        path: Path,
        names: tuple[str, ...],
        ids: str | None = None,
        form: DataFormat | None = None,
        declared: Sequence[Column] = (),
    ) -> None:
        import polars as pl

        self._watched, self._path, self._ids, self._form = _Watched(path), path, ids, form or DataFormat()
        self._declared = {column.name: column for column in declared}
        # Ids and categories are text: "007" must not become 7 at the party whose file happens to hold digits only.
        texts = {column.name for column in declared if column.categories is not None} | ({ids} if ids else set())
        self.names, self._matrix, self._places = names, None, {}
        with self._read():
            self._frame = frame_of(path, self._form, texts)
            _check_present(path, names, ids, self._frame.collect_schema().names())
            self.n_rows = int(self._frame.select(pl.len()).collect().item())
        check_rows(self.n_rows)

    def blocks(self, names: tuple[str, ...], rows: int = BLOCK_ROWS) -> Iterator[tuple[NDArray[Any], ...]]:
        """The named columns, ``rows`` rows at a time."""
        for name in names:
            self._check(name)
        with self._read():
            for batch in self._frame.select(names).collect_batches(chunk_size=rows, maintain_order=True):
                yield tuple(as_column(name, self._values(batch[name]), copy=False) for name in names)

    def __getitem__(self, name: str) -> NDArray[Any]:
        self._check(name)
        with self._read():
            return as_column(name, self._values(self._frame.select(name).collect()[name]), copy=False)

    def _values(self, series: pl.Series) -> NDArray[Any]:
        return values_of(series, self._declared.get(series.name), self._form)

    def has_an_id_twice(self) -> bool:
        """Return True if two rows have the same id, however it is written; blank ids are nobody's."""
        import polars as pl

        with self._read():
            own = self._frame.select(
                pl.col(str(self._ids)).cast(pl.String).str.strip_chars().str.normalize("NFC").alias("id")
            )
            return bool(
                own.filter(pl.col("id").str.len_bytes() > 0).select(pl.col("id").is_duplicated().any()).collect().item()
            )

    def frames(self, rows: int = BLOCK_ROWS) -> Iterator[pl.DataFrame]:
        """The columns as they stand in the file, ``rows`` rows at a time: for the party's own eyes, when it is set up."""
        with self._read():
            yield from self._frame.select(self.names).collect_batches(chunk_size=rows, maintain_order=True)

    def series(self, name: str) -> pl.Series:
        """Return a column as it stands in the file."""
        with self._read():
            return self._frame.select(name).collect()[name]

    def verify(self) -> None:
        """Refuse a file that changed while its party was open."""
        self._watched.verify()

    @contextmanager
    def _read(self) -> Iterator[None]:
        """Whatever is read in here is of the file that was opened, or refused."""
        import polars as pl

        self._watched.same()
        try:
            yield
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
            self._watched.same()
            # The text of a parser's error may quote data: name its kind only.
            msg = f"{self._path.name}: cannot be read ({type(error).__name__}): every row needs as many cells as the header. unpooled reads {KINDS}"
            raise DataError(msg) from None
        self._watched.same()

    def _row_ids(self) -> list[str | None]:
        import polars as pl

        if self._ids is None:
            return super()._row_ids()
        column = self.series(self._ids)
        if not (column.dtype.is_integer() or column.dtype == pl.String):
            msg = f"id column {self._ids!r} is neither text nor whole numbers: store the ids as text"
            raise DataError(msg)
        return column.cast(pl.String).to_list()

    @cached_property
    def digest(self) -> bytes:
        """Return SHA-256 of the file: a party refuses to answer an old request over a file that has changed."""
        return self._watched.digest


class SparseFileTable(Table):
    """The named columns of a file that :func:`write_sparse` wrote, sparse ones held sparse; all of them in memory."""

    def __init__(self, path: Path, names: tuple[str, ...], ids: str | None = None) -> None:
        from scipy.sparse import csc_array

        self._watched = _Watched(path)
        with _archive(path) as stored:
            sparse, dense = stored["names"].tolist(), stored["columns"].tolist()
            _check_present(path, names, ids, [*dense, *sparse])
            wanted = {*names, ids}
            data, indices, indptr = (stored[part] for part in ("data", "indices", "indptr"))
            for part in (data, indices, indptr):
                part.setflags(write=False)  # nobody else has it, so the table need not copy it
            matrix = csc_array((data, indices, indptr), shape=tuple(stored["shape"].tolist()))
            whole = Table({name: _unpacked(stored, k) for k, name in enumerate(dense) if name in wanted}, (sparse, matrix))
        self._watched.same()  # what was read is what the digest says
        self._ids, self._texts = ids, None if ids is None else whole[ids]
        chosen = [name for name in names if name in whole.sparse_names]
        others = {name: whole[name] for name in names if name not in whole.sparse_names}
        super().__init__(others, (chosen, whole.sparse(chosen)))

    def _row_ids(self) -> list[str | None]:
        if self._texts is None:
            return super()._row_ids()
        if self._texts.dtype != object:
            msg = f"id column {self._ids!r} is not text: store the ids as text"
            raise DataError(msg)
        ids: list[str | None] = self._texts.tolist()
        return ids

    @cached_property
    def digest(self) -> bytes:
        """Return SHA-256 of the file that was read."""
        return self._watched.digest

    def verify(self) -> None:
        """Refuse a file that changed while its party was open, although its columns are in memory: its digest is the file's."""
        self._watched.verify()


def write_sparse(path: str | Path, matrix: Any, names: Sequence[str], /, **columns: Any) -> None:  # noqa: ANN401 - array-likes
    """Write sparse columns, and dense ones in addition, into a ``.npz`` file that a party can name as its data.

    ``matrix`` is one of scipy's sparse matrices, whose j-th column is called ``names[j]``. Every keyword is one more column, of numbers or
    of text (row ids, a response). Nothing is pickled: the file holds the parts of the matrix in CSC form (``data``, ``indices``,
    ``indptr``, ``shape``), ``names``, the names of the other ``columns``, and of the k-th of them ``column_k`` (numbers, or text of
    fixed width) and ``missing_k`` (which texts are missing).

    >>> import tempfile
    >>> from pathlib import Path
    >>> from scipy.sparse import eye_array
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "party.npz"
    ...     write_sparse(file, eye_array(3), ["a", "b", "c"], y=[1.0, 2.0, 3.0])
    ...     read_table(file, ("c", "y"))["c"].tolist()
    [0.0, 0.0, 1.0]
    """
    path, table = Path(path), Table(columns, (names, matrix))
    if path.suffix != SPARSE:
        msg = f"{path.name}: sparse columns are stored in {SPARSE} files: name it so"
        raise StudyError(msg)
    held = table.sparse(list(table.sparse_names))
    assert held is not None
    parts: dict[str, Any] = {
        "data": held.data,
        "indices": held.indices,
        "indptr": held.indptr,
        "shape": np.array(held.shape),
    }
    parts |= {"names": _fixed_width(table.sparse_names), "columns": _fixed_width(columns)}
    for k, name in enumerate(columns):
        values = table[name]
        if values.dtype == object:
            parts[f"missing_{k}"] = np.array([text is None for text in values])
            values = _fixed_width(["" if text is None else text for text in values])
        parts[f"column_{k}"] = values
    with path.open("wb") as file:
        np.savez(file, **parts)


def _fixed_width(texts: Collection[str]) -> NDArray[np.str_]:
    array = np.array(list(texts), dtype=np.str_)
    if array.tolist() != list(texts):
        raise DataError("a name or a text ends in the character NUL, which a file of this kind cannot hold: remove it")
    return array


def _unpacked(stored: NpzFile, k: int) -> NDArray[Any]:
    """Return a dense column of an archive."""
    values: NDArray[Any] = stored[f"column_{k}"]
    if values.dtype.kind == "U":
        values = values.astype(object)
        values[stored[f"missing_{k}"]] = None
    return values


def sparse_kinds(path: Path) -> dict[str, str]:
    """Return the columns of a file of sparse columns, dense ones first, and what they hold."""
    with _archive(path) as stored:
        dense = stored["columns"].tolist()
        kinds = {name: "text" if stored[f"column_{k}"].dtype.kind == "U" else "numbers" for k, name in enumerate(dense)}
        return kinds | dict.fromkeys(stored["names"].tolist(), "numbers")


@contextmanager
def _archive(path: Path) -> Iterator[NpzFile]:
    """The arrays of an archive; whatever is wrong with it becomes an error that quotes nothing."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            yield stored
    except UnpooledError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever damage makes of zip, NumPy and SciPy; their texts may quote data
        msg = f"{path.name}: cannot be read as a file of sparse columns ({type(error).__name__})"
        raise DataError(msg) from None


def read_table(
    path: Path | QueryAddress,
    names: tuple[str, ...],
    never: str | None = None,
    form: DataFormat | None = None,
    declared: Sequence[Column] = (),
) -> Table:
    """Return the named columns of a data file or of a query; ``never`` is the id column, which is not data and only ever compared.

    ``form`` is how the file is written, ``declared`` what is known of its columns: they are read as that says.
    """
    if never is not None and never in names:
        msg = f"column {never!r} is the id column and cannot be declared as data"
        raise StudyError(msg).at(column=never)
    if isinstance(path, QueryAddress):
        return SourceTable(path, names, never, form, declared)
    if path.suffix == SPARSE:
        return SparseFileTable(path, names, never)
    return FileTable(path, names, never, form, declared)


def _check_present(path: Path, names: tuple[str, ...], ids: str | None, present: list[str]) -> None:
    known = set(present)
    twice = [
        name for name in present if re.fullmatch(r".*_duplicated_\d+", name) and name.rsplit("_duplicated_", 1)[0] in known
    ]
    if twice:
        msg = f"{path.name}: {len(twice)} of its columns bear the name of another one: name each column once"
        raise DataError(msg)
    for name in (*names, *(() if ids is None else (ids,))):
        if name not in known:
            # Not what it has instead: in a file without a header that would be its first row, and this text may travel.
            msg = f"{path.name} has no column {name!r} among its {len(present)}: is its first line a header, and its separator what [format] says (the comma by default)?"
            raise DataError(msg).at(column=name)


def must_exist(path: Path) -> None:
    """Refuse a path where no file is."""
    if not path.is_file():
        msg = f"{path}: there is no such data file: correct `data` in party.toml"
        raise StudyError(msg)


# --- Inspect ---------------------------------------------------------------------------------------------------------------
# A whole data file held against its declarations, for the party's own eyes: what would be refused, in which rows, and what is clipped.

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
    #: The columns that lack a value together, and how many rows lack exactly these; the commonest first. For the party's own eyes.
    gaps: tuple[tuple[tuple[str, ...], int], ...] = ()

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
        yield from gaps_in_words(self.gaps, self.rows)


def gaps_in_words(gaps: Sequence[tuple[tuple[str, ...], int]], rows: int) -> Iterator[str]:
    """Yield which columns lack values, and which of them together: for the party alone, for these are exact numbers."""
    lost = sum(count for _, count in gaps)
    if not lost:
        return
    each = Counter({name: 0 for names, _ in gaps for name in names})
    for names, count in gaps:
        each.update(dict.fromkeys(names, count))
    columns = ", ".join(f"{name} {count / rows:.1%}" for name, count in each.most_common(_ROWS))
    yield f"gaps     {rows - lost:,} of {rows:,} rows are whole ({lost / rows:.1%} are not); without a value: {columns}"
    together = [f"{' and '.join(names)} in {count:,} rows" for names, count in gaps[:_ROWS]]
    yield f"gaps     the commonest: {'; '.join(together)}. These numbers stay here: no card, plan or study has them"


def gaps_of_rows(
    blocks: Iterable[Sequence[NDArray[Any]]], columns: Sequence[Column]
) -> tuple[tuple[tuple[str, ...], int], ...]:
    """Return the patterns of gaps in these blocks of the columns, an undeclared category being one, the commonest first."""
    coding = Coding(
        tuple(msgspec.structs.replace(column, missing="absent", below=None, typical=None) for column in columns), 1
    )
    found: Counter[bytes] = Counter()
    for block in blocks:
        lost = np.packbits(~coding.code(block)[1], axis=1)
        kinds, counts = np.unique(lost, axis=0, return_counts=True)
        found.update({kind.tobytes(): int(count) for kind, count in zip(kinds, counts, strict=True)})
    patterns = []
    for kind, count in found.most_common():
        there = np.unpackbits(np.frombuffer(kind, dtype=np.uint8))[: len(columns)]
        if there.any():
            patterns.append((tuple(column.name for column, gone in zip(columns, there, strict=True) if gone), count))
    return tuple(patterns)


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
    found = tuple(fault for fault in faults.values() if fault.count)
    gaps: tuple[tuple[tuple[str, ...], int], ...] = ()
    if columns and not any(fault.refused for fault in found):
        gaps = gaps_of_rows(table.blocks(tuple(column.name for column in columns)), columns)
    return Findings(table.n_rows, found, counted, gaps)


def _of_column(series: pl.Series, column: Column, form: DataFormat) -> Iterator[tuple[str, Any, bool]]:
    refusing = not column.may_be_absent
    if column.categories is not None:
        values = values_of(series, column, form)
        known = Coding((msgspec.structs.replace(column, missing="absent", typical=None),), 1).code((values,))[1][:, 0]
        missing = np.array([v is None for v in values]) if values.dtype == object else np.isnan(values)
        unknown = ~missing & ~known
        yield "a missing value, and the declaration refuses those", missing & refusing, True
        yield "a missing value", missing & (not refusing), False
        yield "a category that is not declared", unknown & refusing, True
        yield "a category that is not declared, which counts as missing", unknown & (not refusing), False
        return
    series, written = without_limits(series, column, form)
    read = dates(series, column, form) if column.dates else numbers(series, form)
    bad = unread(series, read, form)
    values = read.to_numpy().astype(np.float64)
    missing = np.isnan(values) & ~bad & ~written
    with np.errstate(invalid="ignore"):
        under = written | (values < column.below) if column.below is not None else written
    kind = f"something that is no date written as {form.dates}" if column.dates else "something that is no number"
    yield kind, bad, True
    yield "an infinite value", np.isinf(values), True
    yield "a missing value, and the declaration refuses those", missing & refusing, True
    yield "a missing value", missing & (not refusing), False
    yield "a value under its limit of detection, which counts as missing", under, False
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
            "what may be missing (NAME=LOW:HIGH;complete, ;model, ;absent or ;indicator), or say how the file is written (--null, --decimal, --dates)"
        )
        raise DataError(msg)
