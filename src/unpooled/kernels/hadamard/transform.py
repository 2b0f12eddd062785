"""The transform as users meet it: drawn from a public seed, applied to rows by several threads."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import UsageError
from unpooled.kernels.hadamard.arrays import flat_rows, integer, output, output_type, zeros
from unpooled.kernels.hadamard.passes import BLOCK, BLOCKS, PIECE, PITCH, transform_rows
from unpooled.kernels.threads import processors

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from unpooled.kernels.hadamard.passes import Indices

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
        todo = iter(blocks)  # shared: whoever is free takes the next block

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
