"""Shards of a query, and the work of a worker: read one shard, compare it with its earlier digest, add up, and answer with exact integers."""

from __future__ import annotations

import itertools
import math
import platform
import re
import stat
from collections import OrderedDict
from copy import copy
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from unpooled import errors
from unpooled.errors import ClusterError, RowsError, UnpooledError
from unpooled.linear.standard import KEPT
from unpooled.models import load
from unpooled.protocol.context import Context, Pass
from unpooled.study.sources.connection import engine, refuse
from unpooled.study.sources.query import QueryAddress, looked_at
from unpooled.study.sources.table import BLOCK, Line, Snapshot, SourceTable, once
from unpooled.totals.threads import alone

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from unpooled.privacy.bounds import Column
    from unpooled.privacy.plan import Plan, Study
    from unpooled.privacy.table import OverRows, Table
    from unpooled.protocol.context import Statistic
    from unpooled.study.reading import DataFormat
    from unpooled.study.sources.query import Query


# --- Shards ----------------------------------------------------------------------------------------------------------------
# Shards of a query, and a shard as a table: each is a query of its own, and which worker reads it does not matter.
#
# Shards are ranges of one column (rows without a value in it are in the last one), or ranges of a Parquet file's rows. That every row is in
# exactly one shard is checked by counting: under any order that the database may have, a row is in at least one of the ranges.

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


# --- Work ------------------------------------------------------------------------------------------------------------------
# Work of a worker: read one shard, compare it with its earlier digest, add up, and answer with exact integers or a refusal in words.
#
# A worker has no ledger, no key and no noise. Nothing that it says in error quotes data, and it raises nothing, for whatever a task raises is
# written into the cluster's logs.

#: What must be the same at a worker, down to the last bit of a float.
_PACKAGES = ("unpooled", "numpy", "numba", "polars", "duckdb")
#: Other people's permissions.
_OTHERS = 0o077
#: So many shards a worker remembers, if they are small, so that their coded rows need not be made anew in every round.
_OPEN = 32
_HELD: OrderedDict[tuple[bytes, int], ShardTable] = OrderedDict()
#: One connection for all shards of a party, and those of so many parties: opening one costs more than a small shard.
_PARTIES = 4
_LINES: OrderedDict[bytes, Line] = OrderedDict()
_PLANS: dict[str, Plan] = {}


@dataclass(frozen=True)
class Sent:
    """A pass over rows, as it travels: the study, from which the worker makes the same plan, and the name of the function."""

    statistic: Statistic
    study: Study
    plan: str
    party: str
    step: str
    index: int
    settings: tuple[float, ...]
    joined: bool

    @classmethod
    def of(cls, work: OverRows) -> OverRows:
        """Return a pass without what cannot travel."""
        if not isinstance(work, Pass):
            return work
        context = work.context
        plan = context.plan
        return cls(
            work.statistic, plan.study, plan.hash, context.name, context.step, context.index, work.settings, work.joined
        )

    def over(self, table: Table) -> NDArray[np.int64]:
        """Return the statistic of these rows."""
        plan = _PLANS.get(self.plan)
        if plan is None:
            plan = load(self.study.row).compile(self.study)
            if plan.hash != self.plan:
                raise ClusterError("a worker compiles another plan from the same study: install equal versions of unpooled")
            _PLANS.clear()
            _PLANS[self.plan] = plan
        return self.statistic(Context(self.party, table, plan, self.step, self.index, object()), self.settings)


@dataclass(frozen=True)
class ShardTask:
    """One shard to be opened (``work`` is None) or to be worked on."""

    versions: tuple[str, ...]
    reading: Reading
    shard: Shard
    known: Snapshot | None = None
    work: OverRows | None = None


@dataclass(frozen=True)
class ShardAnswer:
    """The answer of a worker: integers, or the snapshot that it opened, or (kind of error, words)."""

    values: NDArray[np.int64] | None = None
    known: Snapshot | None = None
    refused: tuple[str, str] | None = None

    def or_refuse(self) -> ShardAnswer:
        """Itself, or the error that the worker met."""
        if self.refused is None:
            return self
        kind, words = self.refused
        known = getattr(errors, kind, None)
        if isinstance(known, type) and issubclass(known, UnpooledError) and known is not RowsError:
            raise known(words)
        raise ClusterError(words)


@cache
def versions() -> tuple[str, ...]:
    """Return the versions, on this machine, that the results of floats depend on."""
    return (platform.python_version(), *(f"{name} {metadata.version(name)}" for name in _PACKAGES))


def serve(task: ShardTask) -> ShardAnswer:
    """Do what the task says; never raise."""
    try:
        scratch = _fit(task)
        with alone():
            return _served(task, scratch)
    except RowsError as error:  # the numbers of rows stay where they are
        return ShardAnswer(refused=(errors.DataError.__name__, str(error.told())))
    except UnpooledError as error:
        return ShardAnswer(refused=(type(error).__name__, str(error)))
    except Exception as error:  # noqa: BLE001 - its words may quote data, and logs are written of what is raised
        words = f"engine 'dask', {task.shard}: it cannot be worked on ({type(error).__name__})"
        return ShardAnswer(refused=(ClusterError.__name__, words))


def _served(task: ShardTask, scratch: str | None) -> ShardAnswer:
    table = _opened(task, scratch)
    if task.work is None:
        return ShardAnswer(known=table.snapshot)
    values = task.work.over(table)
    table.verify()  # of rows that were kept from the round before, too
    return ShardAnswer(values=values)


def _opened(task: ShardTask, scratch: str | None) -> ShardTable:
    """Return the table of the task's shard: the same as before, if it is small and still there."""
    key, at = task.reading.key, (task.reading.key, task.shard.number)
    line = _LINES[key] = _LINES.pop(key) if key in _LINES else Line()
    while len(_LINES) > _PARTIES:
        _LINES.popitem(last=False)[1].close()
    table = _HELD.pop(at, None) or ShardTable(task.reading, task.shard, task.known, scratch, line)
    _HELD[at] = table
    while len(_HELD) > _OPEN or (len(_HELD) and sum(t.n_rows * len(t.names) for t in _HELD.values()) > KEPT):
        _HELD.popitem(last=False)
    return table


def _fit(task: ShardTask) -> str | None:
    """Where the worker may write; refused where it is another version, or would leave partial results where others can read them."""
    if task.versions != (own := versions()):
        other = ", ".join(
            f"{here} instead of {there}" for here, there in zip(own, task.versions, strict=False) if here != there
        )
        msg = f"engine 'dask', {task.shard}: a worker has another version than this party ({other}): install the same there"
        raise ClusterError(msg)
    try:
        from distributed import get_worker

        worker = get_worker()
    except (ModuleNotFoundError, ValueError):  # no worker of that kind
        return None
    memory = worker.memory_manager
    if memory.memory_target_fraction or memory.memory_spill_fraction:
        msg = "engine 'dask': a worker would write results to its disk when memory is short: set distributed.worker.memory.target and .spill to false"
        raise ClusterError(msg)
    folder = Path(worker.local_directory)
    if all(stat.S_IMODE(place.stat().st_mode) & _OTHERS for place in (folder, *folder.parents)):
        msg = "engine 'dask': others can read the folder that a worker writes to: give it --local-directory of mode 700, in the party's folder"
        raise ClusterError(msg)
    return str(folder)
