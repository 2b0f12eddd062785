"""The compiled passes over a row: signs, butterflies inside and across pieces, and the wanted outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.kernels.compiled import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Indices = NDArray[np.uint64]

PIECE, BLOCK = 2048, 32
BLOCKS = PIECE // BLOCK
#: Pieces of scratch are 32 entries further apart than they are long: a power of two would map them all to one set of the cache.
PITCH = PIECE + BLOCK
#: One radix-8 pass over 256 entries is all that a row this short needs.
_SHORT = 8 * BLOCK

# Indices are unsigned, so that numba compiles no test for negative ones; mixing in a signed integer would make them floats.
_U = np.uint64
_N32, _N256 = _U(32), _U(256)
_S1, _S2, _S3, _S4, _S5, _S6, _S7 = (_U(32 * k) for k in range(1, 8))
_L1, _L2, _L3, _L4, _L5, _L6, _L7 = (_U(256 * k) for k in range(1, 8))
_G1, _G2, _G3, _G4, _G5, _G6, _G7 = (_U(PITCH * k) for k in range(1, 8))
_P2, _P3, _P4, _P5, _P6, _P7 = (_U(k) for k in range(2, 8))


@njit(inline="always")
def _signed(T: Any, value: Any, sign: Any) -> Any:  # noqa: ANN401 - compiled for every input and scratch type
    v = T(value)
    return T(-v) if sign < 0 else v


@njit(inline="always")
def _eight(T: Any, a0: Any, a1: Any, a2: Any, a3: Any, a4: Any, a5: Any, a6: Any, a7: Any) -> Any:  # noqa: ANN401
    """H_8 (a0 .. a7): three levels of butterflies in registers."""
    b0, b1, b2, b3 = T(a0 + a4), T(a1 + a5), T(a2 + a6), T(a3 + a7)
    b4, b5, b6, b7 = T(a0 - a4), T(a1 - a5), T(a2 - a6), T(a3 - a7)
    c0, c1, c2, c3 = T(b0 + b2), T(b1 + b3), T(b0 - b2), T(b1 - b3)
    c4, c5, c6, c7 = T(b4 + b6), T(b5 + b7), T(b4 - b6), T(b5 - b7)
    return T(c0 + c1), T(c0 - c1), T(c2 + c3), T(c2 - c3), T(c4 + c5), T(c4 - c5), T(c6 + c7), T(c6 - c7)


@njit(nogil=True, forceinline=True)
def _load(x: NDArray[Any], at: np.uint64, signs: NDArray[np.int8], s: np.uint64, w: NDArray[Any], to: np.uint64) -> None:
    """Signs and the upper three levels of a piece: entries 256 apart, from the input to scratch."""
    T = w.dtype.type
    for j in range(_N256):
        i, t, o = at + j, s + j, to + j
        (
            w[o],
            w[o + _L1],
            w[o + _L2],
            w[o + _L3],
            w[o + _L4],
            w[o + _L5],
            w[o + _L6],
            w[o + _L7],
        ) = _eight(
            T,
            _signed(T, x[i], signs[t]),
            _signed(T, x[i + _L1], signs[t + _L1]),
            _signed(T, x[i + _L2], signs[t + _L2]),
            _signed(T, x[i + _L3], signs[t + _L3]),
            _signed(T, x[i + _L4], signs[t + _L4]),
            _signed(T, x[i + _L5], signs[t + _L5]),
            _signed(T, x[i + _L6], signs[t + _L6]),
            _signed(T, x[i + _L7], signs[t + _L7]),
        )


@njit(nogil=True, forceinline=True)
def _inside(w: NDArray[Any], at: np.uint64) -> None:
    """Three levels in place over 256 entries: entries 32 apart."""
    T = w.dtype.type
    for j in range(_N32):
        i = at + j
        (
            w[i],
            w[i + _S1],
            w[i + _S2],
            w[i + _S3],
            w[i + _S4],
            w[i + _S5],
            w[i + _S6],
            w[i + _S7],
        ) = _eight(T, w[i], w[i + _S1], w[i + _S2], w[i + _S3], w[i + _S4], w[i + _S5], w[i + _S6], w[i + _S7])


@njit(nogil=True, forceinline=True)
def _gather(w: NDArray[Any], at: np.uint64, v: NDArray[Any]) -> None:
    """The same block of eight pieces: three levels, read one pitch apart, written side by side."""
    T = v.dtype.type
    for j in range(_N32):
        i = at + j
        (
            v[j],
            v[j + _S1],
            v[j + _S2],
            v[j + _S3],
            v[j + _S4],
            v[j + _S5],
            v[j + _S6],
            v[j + _S7],
        ) = _eight(T, w[i], w[i + _G1], w[i + _G2], w[i + _G3], w[i + _G4], w[i + _G5], w[i + _G6], w[i + _G7])


@njit(nogil=True, forceinline=True)
def _across8(u: NDArray[Any], at: np.uint64, step: np.uint64, v: NDArray[Any], to: np.uint64) -> None:
    """One radix-8 operation on blocks of 32: read ``step`` apart, written side by side."""
    T = v.dtype.type
    for j in range(_N32):
        i, o = at + j, to + j
        (
            v[o],
            v[o + _S1],
            v[o + _S2],
            v[o + _S3],
            v[o + _S4],
            v[o + _S5],
            v[o + _S6],
            v[o + _S7],
        ) = _eight(
            T,
            u[i],
            u[i + step],
            u[i + step * _P2],
            u[i + step * _P3],
            u[i + step * _P4],
            u[i + step * _P5],
            u[i + step * _P6],
            u[i + step * _P7],
        )


@njit(nogil=True, forceinline=True)
def _across2(u: NDArray[Any], at: np.uint64, step: np.uint64, v: NDArray[Any], to: np.uint64) -> None:
    """One radix-2 operation on blocks of 32, for the levels that eights do not divide."""
    T = v.dtype.type
    for j in range(_N32):
        i, o = at + j, to + j
        a, b = u[i], u[i + step]
        v[o] = T(a + b)
        v[o + _S1] = T(a - b)


@njit(nogil=True, forceinline=True, fastmath={"reassoc"})
def _lanes(
    v: NDArray[Any],
    base: np.uint64,
    rows: Indices,
    table: NDArray[Any],
    lanes: Indices,
    slots: Indices,
    scale: Any,  # noqa: ANN401
    first: int,
    last: int,
    width: np.uint64,
    out: NDArray[Any],
) -> None:
    """Outputs first .. last - 1: 32 transformed entries times a row of H_32, scaled.

    ``width`` is always 32, but must not be a literal: LLVM would unroll 32 scalar steps before it looks for vectors. The sum may
    be reordered (only here), which the compiler decides once for all rows.
    """
    T = out.dtype.type
    for t in range(first, last):
        a, b = base + rows[t], lanes[t]
        total = T(0)
        for j in range(width):
            total = T(total + T(v[a + j] * table[b + j]))
        out[slots[t]] = T(scale * total)


@njit(nogil=True, forceinline=True)
def _within(x: NDArray[Any], start: int, tau: int, signs: NDArray[np.int8], w: NDArray[Any], rest: NDArray[Any]) -> None:
    """Signs and all six levels inside every piece of one row; what lies beyond tau is zero."""
    T = w.dtype.type
    if tau <= _SHORT:
        for j in range(tau):
            w[j] = _signed(T, x[start + j], signs[j])
        for j in range(tau, _SHORT):
            w[j] = T(0)
        _inside(w, _U(0))
        return
    whole = tau // PIECE
    for q in range(whole):
        _load(x, _U(start + q * PIECE), signs, _U(q * PIECE), w, _U(q * PITCH))
    if whole * PIECE < tau:
        for j in range(tau - whole * PIECE):
            rest[j] = x[start + whole * PIECE + j]
        _load(rest, _U(0), signs, _U(whole * PIECE), w, _U(whole * PITCH))
    for q in range(-(-tau // PIECE)):
        for g in range(BLOCKS // 8):
            _inside(w, _U(q * PITCH + g * _SHORT))


@njit(nogil=True, forceinline=True)
def _between(w: NDArray[Any], block: int, pieces: int, u: NDArray[Any], v: NDArray[Any]) -> NDArray[Any]:
    """All levels across at least two pieces, for one block of each; returns u or v, whichever holds the result."""
    if pieces == 8:  # noqa: PLR2004 - tau from 2049 to 16384, with literal strides
        _gather(w, _U(block * BLOCK), u)
        return u
    source, base, gap, levels = w, block * BLOCK, PITCH, pieces
    while levels > 1:
        radix = 8 if levels >= 8 else 2  # noqa: PLR2004
        for j in range(pieces // radix):
            at, step, to = _U(base + j * gap), _U(pieces // radix * gap), _U(j * radix * BLOCK)
            if radix == 8:  # noqa: PLR2004
                _across8(source, at, step, u, to)
            else:
                _across2(source, at, step, u, to)
        source, u, v = u, v, u
        base, gap, levels = 0, BLOCK, levels // radix
    return source


@njit(nogil=True)
def transform_rows(
    x: NDArray[Any],
    stride: int,
    tau: int,
    signs: NDArray[np.int8],
    pieces: int,
    starts: NDArray[np.int64],
    rows: Indices,
    lanes: Indices,
    slots: Indices,
    table: NDArray[Any],
    scale: Any,  # noqa: ANN401
    w: NDArray[Any],
    u: NDArray[Any],
    v: NDArray[Any],
    rest: NDArray[Any],
    width: np.uint64,
    out: NDArray[Any],
) -> None:
    """Rows of ``x`` that begin ``stride`` entries apart. ``w`` and ``rest`` must hold zeros."""
    for r in range(out.shape[0]):
        _within(x, r * stride, tau, signs, w, rest)
        for b in range(BLOCKS):
            if starts[b] == starts[b + 1]:
                continue
            if pieces > 1:
                source, base = _between(w, b, pieces, u, v), 0
            else:
                source, base = w, b * BLOCK
            _lanes(source, _U(base), rows, table, lanes, slots, scale, starts[b], starts[b + 1], width, out[r])
