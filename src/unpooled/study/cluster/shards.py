"""Shards of a query, and a shard as a table: each is a query of its own, and which worker reads it does not matter.

Shards are ranges of one column (rows without a value in it are in the last one), or ranges of a Parquet file's rows. That every row is in
exactly one shard is checked by counting: under any order that the database may have, a row is in at least one of the ranges.
"""

from __future__ import annotations

import itertools
import math
import re
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unpooled.errors import ClusterError
from unpooled.study.sources.address import QueryAddress
from unpooled.study.sources.connection import engine, refuse
from unpooled.study.sources.query import looked_at
from unpooled.study.sources.table import BLOCK, Line, SourceTable, once

if TYPE_CHECKING:
    from pathlib import Path

    from unpooled.privacy.bounds import Column
    from unpooled.study.reading import DataFormat
    from unpooled.study.sources.query import Query
    from unpooled.study.sources.snapshot import Snapshot

#: What the engine calls the number of a row in its Parquet file.
ROW_NUMBER = "file_row_number"
#: Types by which rows can be cut.
_CUT = r"U?(TINY|SMALL|BIG|HUGE)?INT|U?INTEGER|DECIMAL\(\d+,\d+\)|VARCHAR|UUID|DATE|TIMESTAMP(_S|_MS|_NS)?|FLOAT|DOUBLE"


@dataclass(frozen=True)
class Shard:
    """One of the shards of a query."""

    number: int
    of: int
    #: Its rows, in the engine's words.
    where: str

    def __str__(self) -> str:
        return f"shard {self.number + 1} of {self.of}"


@dataclass(frozen=True)
class Reading:
    """The query and the form by which every shard is read."""

    address: QueryAddress
    query: Query
    names: tuple[str, ...]
    ids: str | None
    form: DataFormat
    declared: tuple[Column, ...]
    #: Of fingerprints, and the name under which workers keep what they opened.
    key: bytes


class ShardTable(SourceTable):
    """The rows of one shard; it may have none. With what is known of it, nothing is read until it is asked."""

    fewest = 0

    def __init__(
        self,
        reading: Reading,
        shard: Shard,
        known: Snapshot | None = None,
        scratch: str | None = None,
        line: Line | None = None,
    ) -> None:
        self.where, self._key = shard.where, reading.key
        address = copy(reading.address)
        address.name, address.scratch = f"{address.name}, {shard}", scratch
        super().__init__(
            address,
            reading.names,
            reading.ids,
            reading.form,
            reading.declared,
            known=known,
            query=reading.query,
            line=line,
        )

    @property
    def snapshot(self) -> Snapshot:
        """Return the snapshot of this shard."""
        return self._snapshot


def file_address(path: Path) -> QueryAddress:
    """Return a Parquet file as a query, with the numbers of its rows."""
    told = str(path.resolve()).replace("'", "''")
    found = QueryAddress(
        f"SELECT * FROM read_parquet('{told}', {ROW_NUMBER} = true)",  # noqa: S608 - the party's own file
        folder=path.parent.resolve(),
        name=path.name,
    )
    found.own_words = True
    return found


def cut(address: QueryAddress, by: str, cuts: tuple[str, ...], rows: int) -> tuple[Query, tuple[Shard, ...], int]:
    """Return the query, its shards, and the number of its rows."""
    connection = address.connection()
    try:
        query = looked_at(address, connection.raw)
        once(address, query, connection.raw)
        connection.lock()
        if by not in query.types:
            msg = f"source {address.name!r}: the query has no column {by!r} to be cut by (`by` under [engine])"
            raise ClusterError(msg).at(column=by)
        kind, column = query.types[by], f'source."{by.replace(chr(34), chr(34) * 2)}"'
        if not re.fullmatch(_CUT, kind):
            msg = f"source {address.name!r}: rows are cut by a column of numbers, text or dates: {by!r} is none"
            raise ClusterError(msg)
        counted = connection.raw.execute(f"SELECT count(*) FROM (\n{query.text}\n) AS source").fetchall()[0][0]  # noqa: S608
        if by == ROW_NUMBER and not cuts:
            # Whole blocks, so that the digest is that of the file read from one end to the other.
            step = max(1, round(rows / BLOCK)) * BLOCK
            cuts = tuple(str(at) for at in range(step, counted, step))
        elif not cuts:
            parts = math.ceil(counted / rows)
            at = [k / parts for k in range(1, parts)]
            asked = f"SELECT CAST(quantile_disc({column}, {at}) AS VARCHAR[]) FROM (\n{query.text}\n) AS source"  # noqa: S608
            found = connection.raw.execute(asked).fetchall()[0][0] if at else []
            cuts = tuple(dict.fromkeys(found or ()))
    except engine().Error as error:
        refuse(address.name, error)
    finally:
        connection.close()
    return query, tuple(_ranges(column, kind, cuts)), counted


def _ranges(column: str, kind: str, cuts: tuple[str, ...]) -> list[Shard]:
    ends = [f"CAST('{text.replace(chr(39), chr(39) * 2)}' AS {kind})" for text in cuts]
    if not ends:
        return [Shard(0, 1, "true")]
    told = [f"{column} < {ends[0]}"]
    told += [f"{column} >= {low} AND {column} < {high}" for low, high in itertools.pairwise(ends)]
    told.append(f"({column} >= {ends[-1]} OR {column} IS NULL)")
    return [Shard(k, len(told), where) for k, where in enumerate(told)]
