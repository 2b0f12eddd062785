"""A source as a table: batches of a query, each held against the snapshot of what the source said when it was opened."""

from __future__ import annotations

import ctypes
import hashlib
import os
import secrets
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.errors import SourceError, StudyError
from unpooled.privacy.table import Table, as_column
from unpooled.study.reading import DataFormat, values_of
from unpooled.study.sources.connection import engine, refuse
from unpooled.study.sources.query import INEXACT, SQL, QueryAddress, looked_at
from unpooled.totals.threads import threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    import polars as pl
    from duckdb import DuckDBPyConnection
    from numpy.typing import NDArray

    from unpooled.privacy.bounds import Column
    from unpooled.study.sources.connection import Connection
    from unpooled.study.sources.query import Query

    Words = NDArray[np.uint64]


# --- Stream ----------------------------------------------------------------------------------------------------------------
# The batches of a query, asked for outside the interpreter's lock: the next one is decoded while this one is added up.
#
# ``nanoarrow`` calls the engine with the lock held, and so nothing else would run meanwhile. The call is that of Arrow's C stream interface
# (``get_next``, ``get_last_error``), which says that the holder of a stream may call it from any thread, one at a time.


class _Stream(ctypes.Structure):
    """``struct ArrowArrayStream``."""


_GetNext = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Stream), ctypes.c_void_p)
_LastError = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.POINTER(_Stream))
_Stream._fields_ = (
    ("get_schema", ctypes.c_void_p),
    ("get_next", _GetNext),
    ("get_last_error", _LastError),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
)


def batches(relation: Any) -> Iterator[Any]:  # noqa: ANN401 - the engine ships no types
    """The rows of a relation as Arrow arrays of structures; an error of the engine is a ``RuntimeError``."""
    import nanoarrow
    from nanoarrow.c_array import allocate_c_array

    source = nanoarrow.c_array_stream(relation)  # which releases it in the end
    schema = source.get_schema()
    stream = ctypes.cast(source._addr(), ctypes.POINTER(_Stream))  # noqa: SLF001 - nanoarrow's own way to hand it on
    while True:
        batch = allocate_c_array(schema)
        if stream.contents.get_next(stream, batch._addr()):  # noqa: SLF001
            said = stream.contents.get_last_error(stream)
            raise RuntimeError(said.decode("utf-8", "replace") if said else "the stream of a query ended in an error")
        if not batch.is_valid():
            return
        yield batch


# --- Snapshot --------------------------------------------------------------------------------------------------------------
# Snapshot of a source when it was opened, block by block and column by column, and later comparisons with it.
#
# A block is 62,500 rows whatever batches rows come in. Of every column of it two things are taken when a source is opened: a SHA-256, of which the
# source's digest is made, and a fingerprint with a secret key of this process, with which every later reading is compared as it goes by.

#: What stands for no number where there is no nan to say so.
_NOTHING = np.iinfo(np.int64).min


class Snapshot:
    """Digests of the columns of one source. It holds no value, and can be handed to another process that is to read the same."""

    def __init__(self, key: bytes = b"") -> None:
        self._keys = np.frombuffer(key or new_key(), dtype=np.uint32).astype(np.uint64)
        self._known: dict[str, list[bytes]] = {}
        #: Columns in which some values are missing, and those in which some are infinite.
        self.gaps: set[str] = set()
        self.infinite: set[str] = set()
        #: Of every block what goes into the digest.
        self.parts: list[bytes] = []
        self._rows = 0

    def add(self, block: pl.DataFrame, over: Callable[..., Iterable[bytes]] = map) -> None:
        """The next block of the source, all of its columns; ``over`` is a map, perhaps that of several threads."""
        self._rows += len(block)
        found = [words_of(series) for series in block]
        parts: list[bytes] = []
        for series, words, content in zip(block, found, over(_hashed, found), strict=True):
            self._note(series)
            name = series.name.encode("utf-8", "surrogatepass")
            parts += (len(name).to_bytes(8, "big"), name, words.size.to_bytes(8, "big"), content)
            self._known.setdefault(series.name, []).append(self._fingerprint(words))
        self.parts.append(b"".join(parts))

    @property
    def digest(self) -> bytes:
        """Return SHA-256 of everything that was added, of the names and of the number of rows."""
        return digest_of_parts(self.parts, self._rows)

    @property
    def rows(self) -> int:
        """Return the number of rows that were added."""
        return self._rows

    def without_parts(self) -> Snapshot:
        """All that it takes to read again."""
        found = copy(self)
        found.parts = []
        return found

    def agrees(self, place: int, block: pl.DataFrame) -> bool:
        """Return True if a block (any of the columns) is the one that was added at this place."""
        for series in block:
            known = self._known[series.name]
            # Where nothing was missing, a nan has other words than the number that was there, whichever nan it is.
            if place >= len(known) or known[place] != self._fingerprint(words_of(series, one_nan=series.name in self.gaps)):
                return False
        return True

    def _note(self, series: pl.Series) -> None:
        if series.null_count() or (series.dtype.is_float() and series.is_nan().any()):
            self.gaps.add(series.name)
        if series.dtype.is_float() and series.is_infinite().any():
            self.infinite.add(series.name)

    def _fingerprint(self, words: Words) -> bytes:
        from unpooled.kernels.fingerprint import summed_up  # compiled code, which takes a fifth of a second to load

        return hashlib.sha256(summed_up(words, self._keys)).digest()


def new_key() -> bytes:
    """Return a key of fingerprints."""
    from unpooled.kernels.fingerprint import KEYS

    return secrets.token_bytes(4 * KEYS)


def digest_of_parts(parts: Iterable[bytes], rows: int) -> bytes:
    """Return SHA-256 of the blocks of a source in their order, by any reader, and of the number of rows."""
    total = hashlib.sha256()
    for part in parts:
        total.update(part)
    total.update(rows.to_bytes(8, "big"))
    return total.digest()


def _hashed(words: Words) -> bytes:
    return hashlib.sha256(words.data).digest()


def words_of(series: pl.Series, *, one_nan: bool = True) -> Words:
    """Return a column's block as 64-bit words; different blocks of one kind have different words.

    Which nan stands for a missing number no statistic sees, and databases do not keep it: ``one_nan`` takes all for the same.
    """
    import polars as pl

    if series.dtype == pl.String:
        return _texts(series)
    if series.dtype == pl.Float64:
        found = series.to_numpy()
        if one_nan and (missing := np.isnan(found)).any():
            found = np.where(missing, np.nan, found)
        return np.ascontiguousarray(found).view(np.uint64)
    return series.to_physical().cast(pl.Int64).fill_null(_NOTHING).to_numpy().view(np.uint64)


def _texts(series: pl.Series) -> Words:
    """Lengths (one more than there are bytes; 0 where there is no text), then all texts one after the other."""
    lengths = series.str.len_bytes().to_physical().cast(int).fill_null(-1).to_numpy().astype(np.int64) + 1
    joined: bytes = series.str.join("").item().encode()
    return np.concatenate([lengths.view(np.uint64), np.frombuffer(joined + bytes(-len(joined) % 8), dtype=np.uint64)])


# --- Table -----------------------------------------------------------------------------------------------------------------
# A source as a table: a block of rows at a time, each one held against what the source said when it was opened.

#: Rows of a block of the snapshot: sixteen to a batch of the engine, so that hardly any block is pieced together.
BLOCK = 62_500


class Line:
    """A connection while it is open. Tables of one source may share it."""

    def __init__(self) -> None:
        self.open: Connection | None = None

    def close(self) -> None:
        """Give it back; who asks next opens another."""
        if self.open is not None:
            self.open.close()
        self.open = None


class SourceTable(Table):
    """The named columns of a query. Nothing is kept in memory but the batch that is being worked on.

    Every reading runs the query again and compares each block with the snapshot that was taken when the table was made: rows that changed, went,
    came or changed places are refused before anything is computed to the end, so nothing is debited for them.
    """

    #: Fewer rows than these are no data.
    fewest = 2
    #: Which rows of the query, in the engine's words; empty: all.
    where = ""
    #: A key of fingerprints; empty: one of its own.
    _key = b""

    def __init__(
        self,
        source: QueryAddress,
        names: tuple[str, ...] = (),
        ids: str | None = None,
        form: DataFormat | None = None,
        declared: Sequence[Column] = (),
        known: Snapshot | None = None,
        query: Query | None = None,
        line: Line | None = None,
    ) -> None:
        self._source, self._ids, self._form = source, ids, form or DataFormat()
        self._declared = {column.name: column for column in declared}
        self._matrix, self._places = None, {}
        self._line = line or Line()
        self._whole = False
        if query is None:
            with self._asking() as connection:
                query = looked_at(source, connection.raw)
                once(source, query, connection.raw)
                connection.lock(streams=query.streams)
        self._query = query
        self.names = names or tuple(name for name in self._query.types if name != ids)
        self._must_have((*self.names, *([ids] if ids else [])))
        self.unordered = self._disorder()
        self._snapshot = known or self._noted(
            Snapshot(self._key), tuple(dict.fromkeys((*self.names, *([ids] if ids else []))))
        )
        self.n_rows = self._snapshot.rows
        if self.n_rows < self.fewest:
            msg = f"source {source.name!r}: the query gives fewer than {self.fewest} rows, in which nobody could hide"
            raise SourceError(msg)
        self._gaps = {column.name for column in declared if not column.may_be_absent} & self._snapshot.gaps

    def _noted(self, snapshot: Snapshot, names: tuple[str, ...]) -> Snapshot:
        """Return the snapshot with the digests of these columns as the source is now."""
        with ThreadPoolExecutor(threads()) as hashing:
            for block in self._blocks(names):
                snapshot.add(block, hashing.map)
        return snapshot

    @property
    def kinds(self) -> dict[str, str]:
        """Return the query's columns, and the engine's types of them."""
        return dict(self._query.types)

    def _disorder(self) -> str:
        """Why nobody can say which row is which, or nothing."""
        if self._query.is_ordered_by(self._ids):
            return ""
        by = f"ORDER BY {self._ids}" if self._ids else "ORDER BY its id column (and declare that: `id` under [party])"
        return f"source {self._source.name!r}: the rows of a query have no order of their own, and in a study that splits columns their order says who is who: end the query with {by}"

    def blocks(self, names: tuple[str, ...], rows: int = BLOCK) -> Iterator[tuple[NDArray[Any], ...]]:
        """The named columns, at most ``rows`` rows at a time."""
        for name in names:
            self._check(name)
            if name in self._gaps:
                msg = f"source {self._source.name!r}: column {name!r} holds NULL, and its declaration refuses missing values: declare what is missing (missing = 'absent' or 'indicator'), or leave such rows out in the query"
                raise SourceError(msg).at(column=name)
            if name in self._snapshot.infinite:
                msg = f"source {self._source.name!r}: column {name!r} holds an infinite value: make it NULL in the query, or a number"
                raise SourceError(msg).at(column=name)
        for block in self._checked(tuple(dict.fromkeys(names))):
            for at in range(
                0, len(block), rows
            ):  # pieced together nowhere: memory that is new each time costs more than the sums
                piece = block[at : at + rows]
                yield tuple(self._values(piece[name]) for name in names)

    def __getitem__(self, name: str) -> NDArray[Any]:
        whole: NDArray[Any] = np.concatenate([values for (values,) in self.blocks((name,))])
        whole.setflags(write=False)
        return whole

    def frames(self, rows: int = BLOCK) -> Iterator[pl.DataFrame]:
        """The columns as the query gives them: for the party's own eyes, when it is set up."""
        yield from _cut(self._checked(self.names), rows)

    @property
    def digest(self) -> bytes:
        """Return SHA-256 of what the query gave when it was opened."""
        return self._snapshot.digest

    def verify(self) -> None:
        """Refuse a source that changed. What was read since the last time was held against the snapshot as it was read; if nothing was, it is read now."""
        if not self._whole:
            for _ in self._checked(self.names):
                pass
        self._whole = False

    def close(self) -> None:
        """Give the connection back."""
        self._line.close()

    def _row_ids(self) -> list[str | None]:
        if self._ids is None:
            return super()._row_ids()
        return [text for frame in self._checked((self._ids,)) for text in frame[self._ids].to_list()]

    def _values(self, series: pl.Series) -> NDArray[Any]:
        values = values_of(series, self._declared.get(series.name), self._form)
        if values.dtype != np.float64:
            return as_column(series.name, values)
        values.setflags(write=False)  # nobody else has them: no copy is needed
        return values

    def _checked(self, names: tuple[str, ...]) -> Iterator[pl.DataFrame]:
        """Blocks that are those of the snapshot."""
        rows = 0
        for place, block in enumerate(self._blocks(names)):
            if not self._snapshot.agrees(place, block):
                raise self._changed()
            rows += len(block)
            yield block
        if rows != self._snapshot.rows:
            raise self._changed()
        self._whole = True

    def _changed(self) -> SourceError:
        msg = (
            f"source {self._source.name!r}: what the query gives has changed since this party opened it, so nothing is released from it: "
            "ask a table that does not change (a dated extract, a view of closed cases), and open the party again"
        )
        return SourceError(msg)

    def _blocks(self, names: tuple[str, ...]) -> Iterator[pl.DataFrame]:
        """The columns as the query gives them now, in blocks of the snapshot's size."""
        yield from _cut(self._batches(names), BLOCK)

    def _batches(self, names: tuple[str, ...]) -> Iterator[pl.DataFrame]:
        import polars as pl

        with self._asking() as connection:
            # A cursor of its own: one reading may go on while another begins.
            relation = connection.raw.cursor().sql(self._query.reading(names, self._ids, self.where))
            stream = batches(relation)
            with ThreadPoolExecutor(1) as ahead:  # the next batch is decoded while this one is added up
                coming = ahead.submit(next, stream, None)
                while (batch := coming.result()) is not None:
                    coming = ahead.submit(next, stream, None)
                    yield pl.Series(batch).struct.unnest()

    @contextmanager
    def _asking(self) -> Iterator[Connection]:
        """A connection; one that fails is closed, and the next reading opens another."""
        line = self._line
        if line.open is None:
            line.open = self._source.connection()
            if hasattr(self, "_query"):
                line.open.lock(streams=self._query.streams)
        try:
            yield line.open
        except (engine().Error, RuntimeError, OSError) as error:  # nanoarrow hands on what the engine says as a RuntimeError
            line.close()
            if INEXACT in str(error) and (column := self._query.inexact(error)):
                msg = f"source {self._source.name!r}: column {column!r} holds a number of more digits than a float64 has (beyond 2^53): cast it in the query, to VARCHAR if it is a name, to DECIMAL(15, ..) or DOUBLE if it is a quantity"
                raise SourceError(msg).at(column=column) from None
            refuse(self._source.name, error)

    def _must_have(self, names: tuple[str, ...]) -> None:
        for name in names:
            if name not in self._query.types:
                msg = f"source {self._source.name!r}: the query has no column {name!r} among its {len(self._query.types)}"
                raise SourceError(msg).at(column=name)


def once(source: QueryAddress, query: Query, raw: DuckDBPyConnection) -> None:
    """Refuse a query in whose result a person has several rows, or that does not say whose a row is: noise covers one row of each id."""
    people = source.people
    if people.id is None or not people.once:
        return
    name = next((name for name in query.types if name.lower() == people.id.lower()), None)
    if name is None or not (found := raw.execute(query.twice(name)).fetchall()):
        return
    what = (
        "a row has no id: leave such rows out in the query"
        if found[0][0]
        else "an id has several rows, and noise covers one row of each: group by the id, or declare the rows of an id as a `household`"
    )
    msg = f"source {source.name!r}: id column {people.id!r}: {what}. Nothing was released"
    raise SourceError(msg)


def _cut(frames: Iterator[pl.DataFrame], rows: int) -> Iterator[pl.DataFrame]:
    """The same rows in blocks of equal length, the last one shorter."""
    import polars as pl

    rest: pl.DataFrame | None = None
    for frame in frames:
        at = 0
        if rest is not None:
            at = min(rows - len(rest), len(frame))
            rest = pl.concat([rest, frame[:at]], rechunk=True)
            if len(rest) < rows:
                continue
            yield rest
            rest = None
        while len(frame) - at >= rows:
            yield frame[at : at + rows]
            at += rows
        if at < len(frame):
            rest = frame[at:]
    if rest is not None:
        yield rest


# --- Source ----------------------------------------------------------------------------------------------------------------
# A source in a program or a party file: a query, and the databases and files that it is put to.


class SourceSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """``[source]`` of a party file: the databases that its query names, the engine's settings, and where credentials are."""

    #: Databases by name: "postgres:...", "sqlite:...", "duckdb:...".
    attach: dict[str, str] = {}
    #: Of the engine: where object stores are, memory, threads.
    settings: dict[str, str | int | bool] = {}
    #: A file of credentials that only its owner can read.
    secrets: str = ""
    #: What relative paths start from, itself relative to the party file.
    folder: str = ""
    #: Tables that describe no people, such as code lists: paths of files, DATABASE.table.
    public: tuple[str, ...] = ()
    #: Expressions that are the person's id in tables that call it otherwise, as the query writes them.
    called: tuple[str, ...] = ()


class Source(QueryAddress):
    """A query over files and databases: Parquet (also several files, or in an object store), CSV, JSON, SQLite, PostgreSQL.

    Parameters
    ----------
    query : str
        One SELECT in DuckDB's SQL. Tables of databases are called ``NAME.table``, files ``'data/*.parquet'``. A party of a column-split study
        ends it with ORDER BY its id column.
    attach : mapping of str to str, optional
        Databases by name: ``"postgres:host=... dbname=... user=..."`` (as libpq takes it, without a password), ``"sqlite:PATH"`` or
        ``"duckdb:PATH"``. They are opened for reading only.
    settings : mapping of str to (str, int or bool), optional
        Settings of the engine: ``s3_region``, ``s3_endpoint`` and others of object stores, ``memory_limit`` ("1GB") and ``threads``.
    secrets : str or path-like, optional
        A TOML file of mode 600 with ``user`` and ``password`` of every database in a table of its name, and the keys of an object store in
        ``[s3]``. The environment goes before it: ``UNPOOLED_NAME_PASSWORD``, ``AWS_SECRET_ACCESS_KEY`` and so on.
    folder : str or path-like, default "."
        What relative paths start from.
    name : str, default "query"
        What errors call the source.
    id : str, optional
        The column of the result that says whose a row is. Tables of people are joined and grouped by it, and no id may have two rows. Without
        it a query reads one table, row by row. In a party file ``id`` (or ``household``) under ``[party]`` says it.
    public : sequence of str, optional
        Tables that describe no people, such as code lists, as the query writes them: paths of files, ``NAME.table``.

    called : sequence of str, optional
        Expressions that are the person's id in tables that call it otherwise, as the query writes them: ``"patient"``. No other column takes its
        name.

    Examples
    --------
    >>> import unpooled
    >>> source = unpooled.Source("SELECT i AS age, i % 2 = 0 AS smoker FROM range(100) AS t(i)")
    >>> source.read("age")["age"].to_list()[:3]
    [0.0, 1.0, 2.0]
    """

    @property
    def written(self) -> str:
        """Return the query as a party file writes it."""
        return SQL + self.query

    def section(self, folder: Path) -> SourceSection:
        """``[source]`` of a party file in this folder."""
        secrets = "" if self.secrets is None else str(self.secrets)
        base = os.path.relpath(self.folder, folder)
        return SourceSection(
            self.attach, self.settings, secrets, "" if base == "." else base, self.people.public, self.people.called
        )

    def read(self, *names: str) -> Any:  # noqa: ANN401 - a polars frame
        """Return the named columns (default: all) as a polars DataFrame in memory, for estimators that are given rows."""
        import polars as pl

        return pl.concat(list(SourceTable(self, names).frames()), rechunk=True)


def source_of(data: str, said: SourceSection, folder: Path, name: str) -> Source | None:
    """Return the source that a party file's ``data`` and ``[source]`` describe; None where its data are a file."""
    if not data.startswith(SQL):
        if said != SourceSection():
            msg = f'party {name!r}: [source] belongs to data = "sql:...", and its data are a file'
            raise StudyError(msg)
        return None
    return Source(
        data.removeprefix(SQL),
        attach=said.attach,
        settings=said.settings,
        secrets=said.secrets or None,
        folder=folder / said.folder,
        name=name,
        public=said.public,
        called=said.called,
    )
