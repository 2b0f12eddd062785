"""The one place that decides how kernels are compiled, and whether the machine code is kept on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def njit(**options: Any) -> Callable[[Function], Function]:  # noqa: ANN401 - numba's own options
    """``numba.njit`` whose code is cached where numba finds a place: beside the source, in the user's cache, or in NUMBA_CACHE_DIR.

    The cache notices a change of the file that a kernel is in, not of the files of kernels that it calls: after changing one that other
    files call, remove ``__pycache__``.

    A service account may have none of them: a package that it cannot write to and no home. Then each process compiles for itself. It does not
    write to the common temporary folder instead: cached code is loaded and run, so whoever could put a file there would run code here.
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
