r"""Exact second moments of integer-valued data at the speed of BLAS, and the fused clip-and-quantise pass in front of them.

Products of integers of at most 2^b and sums of :math:`2^{53-2b}` of them are exact in float64, in whatever order BLAS adds them
and on however many threads: a block of that many rows goes through ``dsyrk``, and blocks are added in int64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.kernels.compiled import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: A block of so many rows of some tens of columns stays in the second-level cache.
_CACHE_ROWS = 4096


@njit(nogil=True)
def quantise(
    raw: NDArray[np.float64], low: float, high: float, centre: float, scale: float, grid: float, out: NDArray[Any]
) -> int:
    """``out = trunc(clip((clip(raw, low, high) - centre) / scale, -1, 1) * grid)``; nan gives 0. Returns how many were nan."""
    missing = 0
    for i in range(raw.size):
        value = raw[i]
        if value != value:  # noqa: PLR0124 - nan
            missing += 1
            out[i] = 0
            continue
        coded = (min(max(value, low), high) - centre) / scale
        out[i] = int(min(max(coded, -1.0), 1.0) * grid)
    return missing


@njit(nogil=True)
def standardise(raw: NDArray[np.float64], low: float, high: float, centre: float, scale: float, out: NDArray[Any]) -> int:
    """``out = clip((clip(raw, low, high) - centre) / scale, -1, 1)``; nan gives 0. Returns how many were nan."""
    missing = 0
    for i in range(raw.size):
        value = raw[i]
        if value != value:  # noqa: PLR0124 - nan
            missing += 1
            out[i] = 0.0
            continue
        coded = (min(max(value, low), high) - centre) / scale
        out[i] = min(max(coded, -1.0), 1.0)
    return missing


def exact_rows(largest: int) -> int:
    """How many rows of integers of at most ``largest`` float64 adds up exactly."""
    return max(1, min(_CACHE_ROWS, (1 << 53) // (largest * largest)))


def add_gram(block: NDArray[np.float64], largest: int, total: NDArray[np.int64]) -> None:
    """Add ``block.T @ block`` to ``total``, exactly, for integer values of at most ``largest`` (column-major blocks are fastest)."""
    step = exact_rows(largest)
    for start in range(0, block.shape[0], step):
        part = block[start : start + step]
        total += (part.T @ part).astype(np.int64)
