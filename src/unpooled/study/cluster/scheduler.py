"""The party's side of a Dask cluster: tasks go out, answers come back as they are ready, a lost worker's are done again by another."""

from __future__ import annotations

import time
from asyncio import CancelledError
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

from unpooled.errors import ClusterError, StudyError
from unpooled.study.cluster.work import ShardAnswer, ShardTask, serve

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from unpooled.study.cluster.section import EngineSection

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
