"""The one place that decides how kernels are compiled, whether the machine code is kept on disk, and how many threads they take."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import contextmanager
from functools import cache
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

import numba
from numba.core import event
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Iterator


# --- Compiled --------------------------------------------------------------------------------------------------------------
# The one place that decides how kernels are compiled, and whether the machine code is kept on disk.

Function = TypeVar("Function", bound=Callable[..., Any])


class CompileNotice(event.Listener):
    """Says once that kernels are being compiled, where a person is looking: the first use after an installation takes seconds more."""

    def __init__(self) -> None:
        self._said = False

    def on_start(self, event: Any) -> None:  # noqa: ANN401 - numba's
        """A function that is not in the cache begins to be compiled."""
        ours = str(getattr(event.data["dispatcher"].py_func, "__module__", "")).startswith("unpooled.")
        if ours and not self._said and (sys.stderr.isatty() or "ipykernel" in sys.modules):
            self._said = True
            sys.stderr.write("unpooled compiles its kernels (once; they are kept for the next time) ...\n")

    def on_end(self, event: Any) -> None:  # noqa: ANN401 - numba's
        """Nothing is said of the end."""


event.register("numba:compile", CompileNotice())  # type: ignore[no-untyped-call]


def njit(**options: Any) -> Callable[[Function], Function]:  # noqa: ANN401 - numba's own options
    """``numba.njit`` whose code is cached where numba finds a place: next to the source, in the user's cache, or in NUMBA_CACHE_DIR.

    The cache notices a change of the file that a kernel is in, not of the files of kernels that it calls: after changing one that other
    files call, remove ``__pycache__``.

    A service account may have none of them: a package that it cannot write to and no home. Then each process compiles for itself. It does not
    write to the common temporary folder instead: cached code is loaded and run, so anybody who could put a file there would run code here.
    """

    def compiled(function: Function) -> Function:
        try:
            kernel: Function = numba.njit(cache=True, **options)(function)
        except RuntimeError as error:
            if "no locator available" not in str(error):
                raise
            kernel = numba.njit(**options)(function)
        return kernel

    return compiled


# --- Threads ---------------------------------------------------------------------------------------------------------------
# Number of processors, and BLAS on one of them.

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
