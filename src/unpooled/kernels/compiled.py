"""The one place that decides how kernels are compiled, and whether the machine code is kept on disk."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import numba
from numba.core import event

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
