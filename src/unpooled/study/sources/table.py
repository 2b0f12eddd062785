"""A source as a table: a block of rows at a time, each one held against what the source said when it was opened."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.aggregation.threads import threads
from unpooled.errors import SourceError
from unpooled.privacy.table import Table, as_column
from unpooled.study.reading import DataFormat, values_of
from unpooled.study.sources.connection import engine, refuse
from unpooled.study.sources.query import INEXACT, looked_at
from unpooled.study.sources.snapshot import Snapshot
from unpooled.study.sources.stream import batches

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars as pl
    from duckdb import DuckDBPyConnection
    from numpy.typing import NDArray

    from unpooled.privacy.bounds import Column
    from unpooled.study.sources.address import QueryAddress
    from unpooled.study.sources.connection import Connection
    from unpooled.study.sources.query import Query

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
