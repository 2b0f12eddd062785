r"""Exact second moments of integer-valued data at the speed of BLAS, and the fused clip-and-quantise pass in front of them.

Products of integers of at most 2^b and sums of :math:`2^{53-2b}` of them are exact in float64, in whatever order BLAS adds them
and on however many threads: a block of that many rows goes through ``dsyrk``, and blocks are added in int64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from unpooled.kernels.compiled import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: A block of so many rows of some tens of columns stays in the second-level cache.
_CACHE_ROWS = 4096
#: Columns on each side of a square of products, and the largest width in ``benchmarks/squares.py`` at which squares are faster than BLAS (0047).
_TILE, _NARROW = 4, 40


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
    """Return the number of rows of integers of at most ``largest`` whose products float64 adds up exactly."""
    return max(1, min(_CACHE_ROWS, (1 << 53) // (largest * largest)))


def add_gram(block: NDArray[np.float64], largest: int, total: NDArray[np.int64]) -> None:
    """Add ``block.T @ block`` to ``total``, exactly, for integer values of at most ``largest`` (column-major blocks are fastest)."""
    step, (rows, width) = exact_rows(largest), block.shape
    if rows >= _CACHE_ROWS and _TILE <= width <= _NARROW and _by_columns(block):
        stride = block.strides[1] // 8
        values = as_strided(block, ((width - 1) * stride + rows,), (8,), writeable=False)
        _add_tiles(values, stride, rows, width, step, total)
        return
    for start in range(0, rows, step):
        part = block[start : start + step]
        total += (part.T @ part).astype(np.int64)


def _by_columns(block: NDArray[np.float64]) -> bool:
    """Return True if every column lies in one piece, one after the other, perhaps with room between them."""
    return block.dtype == np.float64 and block.strides[0] == 8 and block.strides[1] >= 8 * block.shape[0]  # noqa: PLR2004 - bytes


@njit(nogil=True)
def _add_tiles(values: NDArray[np.float64], stride: int, rows: int, width: int, step: int, total: NDArray[np.int64]) -> None:
    """The same by squares of four columns times four: BLAS packs a block first, which for a few columns takes longer than the products."""
    products = np.empty((_TILE, _TILE))
    for start in range(0, rows, step):
        count = min(step, rows - start)
        for first in range(0, width, _TILE):
            left = min(first, width - _TILE)  # the last square begins earlier where columns are no multiple of four
            for second in range(first, width, _TILE):
                right = min(second, width - _TILE)
                _tile(values, left * stride + start, right * stride + start, stride, count, products)
                for i in range(first - left, _TILE):
                    for j in range(second - right, _TILE):
                        product = np.int64(products[i, j])
                        total[left + i, right + j] += product
                        if first != second:
                            total[right + j, left + i] += product


@njit(nogil=True, fastmath={"reassoc", "contract"})  # of integers, whose sums are exact in any order
def _tile(x: NDArray[np.float64], left: int, right: int, stride: int, count: int, products: NDArray[np.float64]) -> None:
    """Compute sixteen products of two times four columns: all sums stay in registers, with two products for each number that is read."""
    a, b = x[left : left + count], x[left + stride : left + stride + count]
    c, d = x[left + 2 * stride : left + 2 * stride + count], x[left + 3 * stride : left + 3 * stride + count]
    e, f = x[right : right + count], x[right + stride : right + stride + count]
    g, h = x[right + 2 * stride : right + 2 * stride + count], x[right + 3 * stride : right + 3 * stride + count]
    ae = af = ag = ah = be = bf = bg = bh = ce = cf = cg = ch = de = df = dg = dh = 0.0
    for i in range(count):
        p, q, r, s = a[i], b[i], c[i], d[i]
        t, u, v, w = e[i], f[i], g[i], h[i]
        ae, af, ag, ah = ae + p * t, af + p * u, ag + p * v, ah + p * w
        be, bf, bg, bh = be + q * t, bf + q * u, bg + q * v, bh + q * w
        ce, cf, cg, ch = ce + r * t, cf + r * u, cg + r * v, ch + r * w
        de, df, dg, dh = de + s * t, df + s * u, dg + s * v, dh + s * w
    products[0, 0], products[0, 1], products[0, 2], products[0, 3] = ae, af, ag, ah
    products[1, 0], products[1, 1], products[1, 2], products[1, 3] = be, bf, bg, bh
    products[2, 0], products[2, 1], products[2, 2], products[2, 3] = ce, cf, cg, ch
    products[3, 0], products[3, 1], products[3, 2], products[3, 3] = de, df, dg, dh
