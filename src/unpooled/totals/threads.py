"""Exact sums over blocks of rows on all cores: the same bits whichever thread has which block, because the sums are integers.

Blocks are read by the thread that asks, in order, and given out as they come; kernels and BLAS run outside the interpreter's lock.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from unpooled.errors import UsageError
from unpooled.kernels.threads import one_thread, processors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

Block = TypeVar("Block")

#: The variable that says how many threads work on one sum; without it all cores that the process may use.
THREADS = "UNPOOLED_THREADS"
#: Blocks that wait for each thread: reading may be ahead by so much, and memory holds so much more.
_AHEAD = 2
_ALONE = threading.local()


def threads() -> int:
    """Return the number of threads that work on one sum."""
    if getattr(_ALONE, "now", False):
        return 1
    said = os.environ.get(THREADS, "")
    if not said:
        return processors()
    if not said.isdecimal() or not int(said):
        msg = f"{THREADS} is a whole number from 1 on"
        raise UsageError(msg)
    return int(said)


@contextmanager
def alone() -> Iterator[None]:
    """Use one thread, whatever the environment says: other workers of a cluster may run on the same machine."""
    _ALONE.now = True
    try:
        with one_thread():
            yield
    finally:
        _ALONE.now = False


def shared_out(blocks: Iterable[Block], total: Callable[[Iterator[Block]], NDArray[np.int64]]) -> NDArray[np.int64]:
    """``total(blocks)`` for a function that adds up integers over blocks, worked out by several threads on some blocks each.

    ``total`` must not itself ask for BLAS on one thread: it would wait for this function, which has asked already.
    """
    source = iter(blocks)
    first = list(_some(source, 2))
    if len(first) <= 1:
        return total(_chained(first, source))
    with one_thread():  # of BLAS, per thread of ours
        count = threads()
        return _Crew(count, total).work(_chained(first, source)) if count > 1 else total(_chained(first, source))


class _Crew:
    """Threads that add up what they are given."""

    def __init__(self, count: int, total: Callable[[Iterator[Any]], NDArray[np.int64]]) -> None:
        self._total, self._count = total, count
        self._given: SimpleQueue[tuple[int, Any] | None] = SimpleQueue()
        self._room = threading.Semaphore(_AHEAD * count)
        self._failed = threading.Event()
        self._found: list[NDArray[np.int64]] = []
        #: Errors by the number of the block at which they came up: the first of them is what one thread would have met.
        self._errors: dict[int, BaseException] = {}

    def work(self, blocks: Iterable[Any]) -> NDArray[np.int64]:
        """Return the sum, or the first error."""
        crew = [threading.Thread(target=self._one, daemon=True) for _ in range(self._count)]
        for thread in crew:
            thread.start()
        try:
            for numbered in enumerate(blocks):
                self._room.acquire()
                if self._failed.is_set():
                    break
                self._given.put(numbered)
        finally:
            for _ in crew:
                self._given.put(None)
            for thread in crew:
                thread.join()
            if self._errors:
                raise self._errors[min(self._errors)]
        whole: NDArray[np.int64] = np.sum(self._found, axis=0, dtype=np.int64)
        return whole

    def _one(self) -> None:
        at = [-1]
        try:
            self._found.append(self._total(self._own(at)))
        except BaseException as error:  # noqa: BLE001 - handed to the thread that asked
            self._errors[at[0]] = error
            self._failed.set()
            for _ in range(_AHEAD * self._count):
                self._room.release()

    def _own(self, at: list[int]) -> Iterator[Any]:
        """The blocks that this thread takes."""
        while (taken := self._given.get()) is not None:
            at[0] = taken[0]
            self._room.release()
            yield taken[1]


def _some(source: Iterator[Block], count: int) -> Iterator[Block]:
    for _ in range(count):
        try:
            yield next(source)
        except StopIteration:
            return


def _chained(first: list[Block], rest: Iterator[Block]) -> Iterator[Block]:
    while first:
        yield first.pop(0)
    yield from rest
