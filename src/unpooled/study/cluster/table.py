"""A table whose rows are shards on a party's own cluster: tasks go out, exact sums come back, and a lost worker's shard is asked of another one."""

from __future__ import annotations

import time
from asyncio import CancelledError
from functools import cached_property
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from unpooled.errors import ClusterError, StudyError
from unpooled.privacy.bounds import AsDeclared
from unpooled.privacy.table import Table, check_rows
from unpooled.study.cluster.work import (
    ROW_NUMBER,
    Reading,
    Sent,
    ShardAnswer,
    ShardTable,
    ShardTask,
    cut,
    file_address,
    serve,
    versions,
)
from unpooled.study.reading import PARQUET, DataFormat
from unpooled.study.sources.query import QueryAddress
from unpooled.study.sources.table import BLOCK, Line, digest_of_parts, new_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from unpooled.privacy.bounds import Column
    from unpooled.privacy.table import OverRows
    from unpooled.study.cluster.section import EngineSection


# --- Scheduler -------------------------------------------------------------------------------------------------------------
# The party's side of a Dask cluster: tasks go out, answers come back as they are ready, a lost worker's are done again by another.

#: Seconds between two looks at whether there is still a worker.
_LOOK = 1.0


class Engine(Protocol):
    """Something that works on shards."""

    def run(self, tasks: Sequence[ShardTask]) -> Iterator[tuple[int, ShardAnswer]]:
        """(the task's place, what came of it), in whatever order."""

    def close(self) -> None:
        """Leave it."""


class DaskEngine:
    """A connection to a scheduler."""

    def __init__(self, section: EngineSection, party: str, folder: Path) -> None:
        section.check(party)
        try:
            from distributed import Client
            from distributed.security import Security
        except ModuleNotFoundError:
            msg = f"party {party!r}: engine 'dask' needs the extra: pip install 'unpooled[dask]'"
            raise StudyError(msg) from None
        more: dict[str, Any] = {}
        if section.scheduler.startswith("tls://"):
            more["security"] = Security(require_encryption=True, **section.files(party, folder))
        self._patience = section.patience
        try:
            self._client = Client(section.scheduler, timeout=section.patience, set_as_default=False, **more)
        except (OSError, ValueError) as error:
            msg = f"party {party!r}: engine 'dask': its scheduler cannot be reached ({type(error).__name__}): look at `scheduler` and the certificates under [engine], and whether it runs"
            raise ClusterError(msg) from None

    def run(self, tasks: Sequence[ShardTask]) -> Iterator[tuple[int, ShardAnswer]]:
        """Answers as they come. Every task is sent at once; the scheduler gives each to a worker that is free."""
        done: SimpleQueue[Any] = SimpleQueue()
        waiting = {}
        for place, future in enumerate(self._client.map(serve, tasks, pure=False, retries=0)):
            waiting[future.key] = place, future
            future.add_done_callback(done.put)
        try:
            while waiting:
                place, future = waiting.pop(self._next(done).key)
                yield place, self._answer(tasks[place], future)
        finally:
            for _, future in waiting.values():
                future.cancel()

    def _next(self, done: SimpleQueue[Any]) -> Any:  # noqa: ANN401 - a future
        alive = time.monotonic()
        while True:
            try:
                return done.get(timeout=_LOOK)
            except Empty:
                alive = self._alive(alive)

    def _alive(self, before: float) -> float:
        """When there was last a worker; refused if that is too long ago."""
        if self._client.status == "running" and self._client.scheduler_info(n_workers=-1)["workers"]:
            return time.monotonic()
        if time.monotonic() - before > self._patience:
            msg = f"engine 'dask': the cluster has no worker, and none came within {self._patience:g} seconds: start one, and ask again"
            raise ClusterError(msg)
        return before

    def _answer(self, task: ShardTask, future: Any) -> ShardAnswer:  # noqa: ANN401 - a future
        alive, found = time.monotonic(), None
        while found is None:
            try:
                # Waits again if the worker was lost after it had finished: another one does it anew.
                found = future.result(timeout=self._patience)
            except TimeoutError:
                alive = self._alive(alive)
            except (Exception, CancelledError) as error:  # noqa: BLE001 - whatever the engine says; it may quote what it ran
                msg = f"engine 'dask', {task.shard}: no worker could finish it ({type(error).__name__}): look at the workers' memory, and whether unpooled is installed there as here"
                raise ClusterError(msg) from None
        if not isinstance(found, ShardAnswer):
            msg = f"engine 'dask', {task.shard}: a worker answered something else: install equal versions of unpooled"
            raise ClusterError(msg)
        return found.or_refuse()

    def close(self) -> None:
        """Leave the cluster. It is not ours to stop."""
        self._client.close()


# --- Table -----------------------------------------------------------------------------------------------------------------
# A table whose rows are shards on a cluster: sums come from there, and whatever needs the rows themselves reads them here, shard by shard.


class ClusterTable(Table):
    """The named columns of a query whose shards are read by workers.

    When it is opened, every shard is read once, by some worker, and its number of rows and its digests are noted here. Any process that reads it
    later, a worker or this process, holds it against them: a shard that has changed is refused before anything is debited.
    """

    def __init__(
        self,
        address: QueryAddress,
        names: tuple[str, ...],
        ids: str | None,
        form: DataFormat | None,
        declared: Sequence[Column],
        engine: Engine,
        *,
        by: str,
        cuts: tuple[str, ...] = (),
        shard_rows: int = 1_000_000,
    ) -> None:
        self._engine, self._ids, self._matrix, self._places = engine, ids, None, {}
        self._whole, self._line = False, Line()
        query, shards, counted = cut(address, by, cuts, shard_rows)
        for name in (*names, *([ids] if ids else [])):
            if name not in query.types:
                msg = f"source {address.name!r}: the query has no column {name!r} among its {len(query.types)}"
                raise ClusterError(msg).at(column=name)
        self.names = names
        self._reading = Reading(address, query, names, ids, form or DataFormat(), tuple(declared), new_key())
        self._versions = versions()
        found = {
            shard: answer.known
            for shard, answer in self._asked([ShardTask(self._versions, self._reading, s) for s in shards])
        }
        opened = [(shard, found[shard.number]) for shard in shards]
        self.n_rows = sum(known.rows for _, known in opened if known is not None)
        if self.n_rows != counted:
            msg = (
                f"source {address.name!r}: its {len(shards)} shards have {self.n_rows} rows together, the query has {counted}: the table changes "
                "while it is read, or the database orders the values of `by` in another way than the engine (cut by numbers, or by dates)"
            )
            raise ClusterError(msg)
        check_rows(self.n_rows)
        self._parts = [part for _, known in opened if known is not None for part in known.parts]
        #: Shards that hold rows, and what is known of them.
        self._shards = [(shard, known.without_parts()) for shard, known in opened if known is not None and known.rows]
        self.unordered = self._disorder(by)

    def _disorder(self, by: str) -> str:
        query = self._reading.query
        if (by == ROW_NUMBER and query.streams) or (by == self._ids and query.is_ordered_by(by)):
            return ""
        return (
            f"source {self._reading.address.name!r}: in a study that splits columns the order of rows says who is who: end the query with ORDER BY "
            "its id column, and cut shards by that column (`by` under [engine])"
        )

    # --- on the cluster --------------------------------------------------------------------------------------------------

    def passed(self, work: OverRows) -> NDArray[np.int64]:
        """Return the result of the work over all rows: added up, or put together in the order of shards, as workers answer."""
        sent = Sent.of(work)
        tasks = [ShardTask(self._versions, self._reading, shard, known, sent) for shard, known in self._shards]
        total: NDArray[np.int64] | None = None
        parts: dict[int, NDArray[np.int64]] = {}
        for number, answer in self._asked(tasks):
            assert answer.values is not None
            if work.joined:
                parts[number] = answer.values
            elif total is None:
                total = answer.values.copy()
            else:
                total += answer.values
        self._whole = True
        if work.joined:
            return np.concatenate([parts[number] for number in sorted(parts)])
        assert total is not None
        return total

    def _asked(self, tasks: Sequence[ShardTask]) -> Iterator[tuple[int, ShardAnswer]]:
        """(number of the shard, answer) of every task."""
        for place, answer in self._engine.run(tasks):
            yield tasks[place].shard.number, answer

    # --- here ------------------------------------------------------------------------------------------------------------

    def blocks(self, names: tuple[str, ...], rows: int = BLOCK) -> Iterator[tuple[NDArray[Any], ...]]:
        """The named columns, at most ``rows`` rows at a time, read by this process."""
        for name in names:
            self._check(name)
        for shard, known in self._shards:
            yield from ShardTable(self._reading, shard, known, line=self._line).blocks(names, rows)
        self._whole = True

    def __getitem__(self, name: str) -> NDArray[Any]:
        whole: NDArray[Any] = np.concatenate([values for (values,) in self.blocks((name,))])
        whole.setflags(write=False)
        return whole

    def _row_ids(self) -> list[str | None]:
        if self._ids is None:
            return super()._row_ids()
        return [
            text for shard, known in self._shards for text in ShardTable(self._reading, shard, known, line=self._line).ids()
        ]

    @cached_property
    def digest(self) -> bytes:
        """Return SHA-256 of what the shards gave when they were opened, block by block in their order."""
        return digest_of_parts(self._parts, self.n_rows)

    def verify(self) -> None:
        """Refuse shards that changed. What was read since the last time was held against what is known; if nothing was, all are read now."""
        if not self._whole:
            self.passed(AsDeclared(()))  # gives nothing: every worker looks at its shards again
        self._whole = False

    def close(self) -> None:
        """Leave the cluster."""
        self._line.close()
        self._engine.close()


def cluster_table(
    data: Path | QueryAddress,
    names: tuple[str, ...],
    ids: str | None,
    form: DataFormat | None,
    declared: Sequence[Column],
    said: EngineSection,
    party: str,
    folder: Path,
    household: str | None = None,
) -> ClusterTable:
    """Return the data of a party file with ``[engine]``."""
    said.check(party)
    by = said.by
    if isinstance(data, QueryAddress):
        if not by:
            msg = f"party {party!r}, [engine]: say `by`, a column of the query by whose ranges its rows are cut into shards"
            raise StudyError(msg)
    else:
        if data.suffix not in PARQUET:
            msg = f"party {party!r}, [engine]: {data.name} cannot be read in parts: store it as Parquet, or ask for it by a query and say `by`"
            raise StudyError(msg)
        if by:
            msg = f"party {party!r}, [engine]: a Parquet file is cut by its rows: leave `by` out, or ask for the file by a query"
            raise StudyError(msg)
        data, by = file_address(data), ROW_NUMBER
        data.of_people(ids, household)
    engine = DaskEngine(said, party, folder)
    try:
        return ClusterTable(data, names, ids, form, declared, engine, by=by, cuts=said.cuts, shard_rows=said.shard_rows)
    except BaseException:
        engine.close()
        raise
