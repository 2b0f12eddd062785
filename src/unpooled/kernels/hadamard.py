"""The subsampled randomised Hadamard transform, fused and trimmed: ``X -> X D H[:, columns] / sqrt(m)``.

``D`` holds tau random signs, ``H`` is the +-1 Walsh-Hadamard matrix (Sylvester's order) of size ``P = 2^ceil(log2 tau)`` and m of
its P columns are kept without replacement (Ailon and Chazelle 2009; Tropp 2011). Orthonormal H has entries ``P^-1/2``, the scale is
``sqrt(P/m)``, so every entry of ``Pi = D H[:, columns] / sqrt(m)`` is ``+-1/sqrt(m)`` and every row of Pi has norm 1. Integers
get the unscaled product, whose entries are sums of at most tau signed inputs: exact when ``bound * tau`` fits the output.

How a row is transformed. Write an index as ``(piece, block, lane)`` = (index // 2048, index // 32 % 64, index % 32); H is the
Kronecker product of three smaller ones.

1. block: six levels as two radix-8 passes inside a piece of 2048, which stay in the L1 cache; the first multiplies by the signs.
   Pieces beyond tau are zero and never computed.
2. piece: radix-8 (then radix-2) passes across pieces, in the constant geometry of Pease (1968): every pass reads its operands
   ``blocks / radix`` apart and writes them side by side, which rotates the digits once around. Only blocks with a wanted column.
3. lane: not transformed. Each wanted output is a product of 32 lanes with one row of ``H_32``.

That is ``P log2(P/32) + 32 m`` operations instead of ``P log2 P`` and a second pass over P outputs. Two things make LLVM vectorise
it and must survive any edit: strides and trip counts are literals (so unrolled operands provably do not overlap), and every
arithmetic result is cast back to the scratch type (numba would widen int32 to int64). Every row takes the same path, hence float
results do not depend on blocking or threads; on another processor the sums of step 3 may be ordered otherwise, so their last bits
may differ, while integers are equal everywhere. No function in this package knows what privacy is.
"""

from __future__ import annotations

import math
import operator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from unpooled.errors import UsageError
from unpooled.kernels.compiled import njit
from unpooled.kernels.threads import processors

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Indices = NDArray[np.uint64]


# --- Arrays ----------------------------------------------------------------------------------------------------------------
# Arrays that the transform reads and writes: their types, their layout in memory, and what is refused.


def zeros(size: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Zeros that begin at a cache line: half of all 64-byte loads would touch two lines otherwise."""
    raw = np.zeros(size * dtype.itemsize + 64, dtype=np.uint8)
    skip = -raw.ctypes.data % 64
    return raw[skip : skip + size * dtype.itemsize].view(dtype)


def integer(value: object, name: str, least: int) -> int:
    """Return an integer that is at least ``least``; numpy's integers are welcome, floats and booleans are not."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(value, (bool, np.bool_)) or number < least:
        msg = f"{name} must be an integer of at least {least}"
        raise UsageError(msg)
    return number


def output(X: NDArray[Any], out: NDArray[Any] | None, shape: tuple[int, int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the caller's array if it will do, or a new one."""
    if out is None:
        return np.empty(shape, dtype=dtype)
    if out.shape != shape or out.dtype != dtype or not (out.flags.carray and out.dtype.isnative):
        msg = f"out must be a writeable C-contiguous array of shape {shape} and type {dtype}"
        raise UsageError(msg)
    if np.may_share_memory(X, out):
        raise UsageError("out must not overlap X: rows of X would be overwritten before they are read")
    return out


def flat_rows(X: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """Return the rows as one read-only vector and the distance between their beginnings; copied only if entries are not adjacent."""
    n, tau = X.shape
    item = X.itemsize
    fits = X.strides[1] == item and (n == 1 or (X.strides[0] >= 0 and X.strides[0] % item == 0))
    if not (fits and X.flags.aligned and X.dtype.isnative):
        X = np.array(X, dtype=X.dtype.newbyteorder("="), order="C", subok=False)
    stride = tau if n == 1 else X.strides[0] // item
    return as_strided(X, shape=((n - 1) * stride + tau,), strides=(item,), writeable=False), stride


def output_type(dtype: np.dtype[Any], bound: int | None, tau: int) -> np.dtype[Any]:
    """Float types stay; for integers the smallest allowed type that holds bound * tau, or a refusal."""
    if dtype.kind == "f" and dtype.itemsize in {4, 8}:
        if bound is not None:
            raise UsageError("bound is for integer input: leave it out for floats")
        return dtype.newbyteorder("=")
    if dtype.kind != "i":
        msg = f"X has type {dtype}: convert it to float32, float64 or a signed integer type first"
        raise UsageError(msg)
    bits = 8 * dtype.itemsize
    largest = 1 << (bits - 1)
    if bound is not None:
        largest = min(largest, integer(bound, "bound", 0))
    if largest * tau < 1 << 31 and bits <= 32:  # noqa: PLR2004
        return np.dtype(np.int32)
    if largest * tau < 1 << 63:
        return np.dtype(np.int64)
    msg = f"{tau} entries of up to {largest} may sum to 2^63 or more: state a bound of at most {((1 << 63) - 1) // tau}"
    raise UsageError(msg)


# --- Passes ----------------------------------------------------------------------------------------------------------------
# The compiled passes over a row: signs, butterflies inside and across pieces, and the wanted outputs.

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


# --- Transform -------------------------------------------------------------------------------------------------------------
# The transform as users meet it: drawn from a public seed, applied to rows by several threads.

#: Entries below which a second thread costs more than it saves, and entries of one row block (bounds the copy of odd layouts).
_SMALL, _ROW_BLOCK = 1 << 19, 1 << 20


def _walsh(rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[np.int8]:
    """H[rows, columns] = (-1)^(number of binary digits that are 1 in both)."""
    common = np.bitwise_count(rows[:, None] & columns[None, :])
    entries: NDArray[np.int8] = 1 - 2 * (common & 1).astype(np.int8)
    return entries


def _padded(n_features: int) -> int:
    return 1 << (n_features - 1).bit_length()


@dataclass(frozen=True, slots=True, eq=False)
class Srht:
    """One subsampled randomised Hadamard transform; see :meth:`draw`.

    Attributes
    ----------
    signs
        Diagonal of D: tau entries +-1.
    columns
        The m kept columns of H, increasing.
    """

    signs: NDArray[np.int8]
    columns: NDArray[np.int64]
    _padded_signs: NDArray[np.int8] = field(init=False, repr=False)
    _starts: NDArray[np.int64] = field(init=False, repr=False)
    _rows: Indices = field(init=False, repr=False)
    _lanes: Indices = field(init=False, repr=False)
    _slots: Indices = field(init=False, repr=False)

    def __post_init__(self) -> None:
        signs, columns = np.array(self.signs), np.array(self.columns)
        if signs.ndim != 1 or signs.size == 0 or not np.all(np.abs(signs) == 1):
            raise UsageError("signs must be a vector of +1 and -1, one for each feature; Srht.draw makes one")
        integers = columns.astype(np.int64) if columns.ndim == 1 and columns.dtype.kind in "iu" else np.empty(0, np.int64)
        # An empty vector stands for anything that is not one of integers; unsigned differences would never be negative.
        if not (integers.size and integers[0] >= 0 and integers[-1] < _padded(signs.size) and np.all(np.diff(integers) > 0)):
            raise UsageError("columns must be increasing integers from 0 to padded - 1; Srht.draw makes them")
        signs, columns = signs.astype(np.int8), integers
        padded_signs = np.ones(-(-signs.size // PIECE) * PIECE, dtype=np.int8)
        padded_signs[: signs.size] = signs
        # Outputs in the order in which the kernel meets them: all that need one block of 32 positions, one after the other.
        block = columns // BLOCK % BLOCKS
        order = np.argsort(block, kind="stable")
        # With several pieces the kernel has gathered that block of each piece side by side.
        rows = columns[order] // PIECE * BLOCK
        for name, array in (
            ("signs", signs),
            ("columns", columns),
            ("_padded_signs", padded_signs),
            ("_starts", np.searchsorted(block[order], np.arange(BLOCKS + 1)).astype(np.int64)),
            ("_rows", rows.astype(np.uint64)),
            ("_lanes", (columns[order] % BLOCK * BLOCK).astype(np.uint64)),
            ("_slots", order.astype(np.uint64)),
        ):
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @classmethod
    def draw(cls, n_features: int, sketch_dim: int, seed: int | np.random.SeedSequence) -> Srht:
        """Draw the signs and columns from public randomness.

        Only raw words of Philox are used, whose stream numpy fixes; the methods of ``numpy.random.Generator`` may change between
        versions. The columns are those with the m smallest of P random 64-bit keys, so a smaller sketch keeps a subset.

        Parameters
        ----------
        n_features
            tau, the number of columns of the data.
        sketch_dim
            m, from 1 to P = the smallest power of two that is at least tau.
        seed
            A public non-negative integer, or a ``SeedSequence``.

        Raises
        ------
        UsageError
            A dimension or seed out of range (a ``ValueError``).
        """
        tau = integer(n_features, "n_features", 1)
        m = integer(sketch_dim, "sketch_dim", 1)
        size = _padded(tau)
        if m > size:
            msg = f"sketch_dim is {m}, but {tau} features are padded to {size} columns: choose at most {size}"
            raise UsageError(msg)
        sequence = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(integer(seed, "seed", 0))
        stream = np.random.Philox(sequence)
        words = np.asarray(stream.random_raw(-(-tau // 64)), dtype=np.uint64)
        bits = ((words[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)).ravel()[:tau]
        keys = np.asarray(stream.random_raw(size), dtype=np.uint64)
        columns = np.sort(np.argsort(keys, kind="stable")[:m])
        return cls((1 - 2 * bits.astype(np.int8)).astype(np.int8), columns.astype(np.int64))

    @property
    def padded(self) -> int:
        """P, the size of the Hadamard matrix: the smallest power of two that is at least tau."""
        return _padded(self.signs.size)

    def matrix(self) -> NDArray[np.float64]:
        """Return the dense Pi, tau x m with entries +-1/sqrt(m); meant for small cases."""
        dense: NDArray[np.float64] = (
            self.signs[:, None] * _walsh(np.arange(self.signs.size), self.columns) / math.sqrt(self.columns.size)
        )
        return dense

    def apply(
        self,
        X: NDArray[Any],
        *,
        out: NDArray[Any] | None = None,
        bound: int | None = None,
        threads: int | None = None,
    ) -> NDArray[Any]:
        """Return X Pi for floats, and the unscaled integers X D H[:, columns] (that is sqrt(m) X Pi) for integers.

        Rows are independent: any split into row blocks and any number of threads gives the same bits. Scratch is one padded row
        per thread, so a caller may stream blocks of rows; rows of any stride are read in place, other layouts block by block.

        Parameters
        ----------
        X
            n x tau; float32, float64 or a signed integer type.
        out
            Where to write: n x m, C-contiguous, of the type that would be returned, apart from X.
        bound
            For integers: the caller's promise that no entry exceeds this in absolute value; without it the range of the type
            counts. Every intermediate is at most ``bound * tau``, so this alone decides the output: int64 for int64, otherwise
            int32 when the product is below 2^31 and int64 when it is below 2^63; larger is refused. Entries are not looked
            at: integers beyond a promised bound wrap around.
        threads
            Number of threads; by default all that this process may use, and one for small inputs.

        Returns
        -------
        ndarray
            n x m; float64 for float64, float32 for float32, int32 or int64 for integers.

        Raises
        ------
        UsageError
            X, out, bound or threads do not fit (a ``ValueError``).
        """
        X = np.asarray(X)
        tau, m = self.signs.size, self.columns.size
        if X.ndim != 2 or X.shape[1] != tau:  # noqa: PLR2004
            msg = f"X has shape {X.shape}, but this transform was drawn for rows of {tau} features: pass an (n, {tau}) array"
            raise UsageError(msg)
        n = X.shape[0]
        dtype = output_type(X.dtype, bound, tau)
        out = output(X, out, (n, m), dtype)
        if threads is None:
            threads = 1 if n * tau < _SMALL else processors()
        workers = integer(threads, "threads", 1)
        if n == 0:
            return out
        # Four blocks a thread even out their finish; small enough that a copied block remains small.
        size = max(1, min(-(-n // (4 * workers)) if workers > 1 else n, _ROW_BLOCK // tau))
        work = self._worker(X, out, dtype, size)
        blocks = range(0, n, size)
        todo = iter(blocks)  # shared: the thread that is free takes the next block

        def drain() -> None:
            for start in todo:
                work(start)

        helpers = min(workers, len(blocks)) - 1  # the caller is a worker too
        if helpers == 0:
            drain()
        else:
            with ThreadPoolExecutor(helpers) as pool:
                others = [pool.submit(drain) for _ in range(helpers)]
                drain()
                for other in others:
                    other.result()
        return out

    def _worker(self, X: NDArray[Any], out: NDArray[Any], dtype: np.dtype[Any], size: int) -> Callable[[int], None]:
        """Return the function by which a thread transforms the row block that begins at ``start``."""
        tau, m = self.signs.size, self.columns.size
        # Two or four pieces are padded to eight with zeros: a wanted column below P means the same in a larger H.
        pieces = max(8, self.padded // PIECE) if tau > PIECE else 1
        scale = dtype.type(1 / math.sqrt(m) if dtype.kind == "f" else 1)
        table = zeros(BLOCK * BLOCK, dtype)
        table[:] = _walsh(np.arange(BLOCK), np.arange(BLOCK)).ravel()

        def work(start: int) -> None:
            flat, stride = flat_rows(X[start : start + size])
            transform_rows(
                flat,
                stride,
                tau,
                self._padded_signs,
                pieces,
                self._starts,
                self._rows,
                self._lanes,
                self._slots,
                table,
                scale,
                zeros(pieces * PITCH, dtype),
                zeros(pieces * BLOCK, dtype),
                zeros(pieces * BLOCK, dtype),
                zeros(PIECE, flat.dtype),
                np.uint64(BLOCK),
                out[start : start + size],
            )

        return work


def srht(
    X: NDArray[Any],
    sketch_dim: int,
    seed: int | np.random.SeedSequence = 0,
    *,
    bound: int | None = None,
    threads: int | None = None,
) -> NDArray[Any]:
    """Sketch the rows of X with a transform drawn from a public seed: :meth:`Srht.draw`, then :meth:`Srht.apply`.

    Examples
    --------
    >>> import numpy as np
    >>> srht(np.eye(3, dtype=np.int8), 4, seed=0)
    array([[-1, -1, -1, -1],
           [ 1, -1,  1, -1],
           [ 1,  1, -1, -1]], dtype=int32)
    """
    X = np.asarray(X)
    if X.ndim != 2:  # noqa: PLR2004
        msg = f"X has shape {X.shape}: pass an (n, features) array"
        raise UsageError(msg)
    return Srht.draw(X.shape[1], sketch_dim, seed).apply(X, bound=bound, threads=threads)


__all__ = ["Srht", "srht"]
