"""Number of processors, and BLAS on one of them."""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import cache
from threading import RLock
from typing import TYPE_CHECKING

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Iterator

_TURN = RLock()
#: Whether the thread whose turn it is has BLAS on one thread already: to set the limit costs more than a small solution.
_limited = [False]


def processors() -> int:
    """Return the number of processors that this process may use (known on Linux only; elsewhere all of the machine)."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


@cache
def _pools() -> ThreadpoolController:
    return ThreadpoolController()  # numpy's and scipy's libraries are loaded by now


@contextmanager
def one_thread() -> Iterator[None]:
    """BLAS on one thread inside a with block; threads take turns, because the limit is one per process."""
    with _TURN:
        if _limited[0]:
            yield
            return
        with _pools().limit(limits=1, user_api="blas"):
            _limited[0] = True
            try:
                yield
            finally:
                _limited[0] = False
