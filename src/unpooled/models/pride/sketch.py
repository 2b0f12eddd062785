r"""The public matrices Pi, and how far one unit moves a row of X Pi (THEORY.md, section 2).

A sketch is an integer matrix: the SRHT's entries are :math:`\pm1` (times :math:`1/\sqrt m`), every other Pi is rounded to a grid of
:math:`2^{-bits}`. Coded data are integers too, so X Pi is exact, and its sensitivity is that of the very numbers released.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.fft import dct

from unpooled.errors import UsageError
from unpooled.kernels.hadamard import Srht

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.privacy.bounds import Column

#: Sums that stay below this are exact in a float64 matrix product.
_EXACT = 2.0**53


@dataclass(frozen=True)
class PublicSketch:
    """One party's Pi (coded columns x m): integer entries ``integers * unit``, or an SRHT whose entries are +-1 * unit."""

    size: int
    unit: float
    #: Largest absolute value of the coded data.
    grid: int
    srht: Srht | None = None
    integers: NDArray[np.float64] | None = None
    #: The matrix before it was rounded to integers: what the noise-free algorithm uses.
    exact: NDArray[np.float64] | None = None

    @classmethod
    def draw(
        cls,
        kind: str,
        features: int,
        size: int,
        seed: int,
        *,
        grid: int,
        shape: tuple[int, ...] = (),
        matrix: NDArray[np.float64] | None = None,
    ) -> PublicSketch:
        """Return the sketch of this kind for ``features`` coded columns; ``grid`` is the coded data's largest absolute value."""
        if kind == "srht":
            return cls(size, 1 / math.sqrt(size), grid, srht=Srht.draw(features, size, seed))
        if kind == "gaussian":
            matrix = np.random.default_rng(seed).standard_normal((features, size)) / math.sqrt(size)
        elif kind == "dct":
            matrix = low_frequencies(shape or (features,), size)
        elif kind != "matrix":
            msg = f"unknown sketch {kind!r}: choose srht, gaussian, dct or matrix"
            raise UsageError(msg)
        if matrix is None or matrix.shape != (features, size) or not np.isfinite(matrix).all() or not matrix.any():
            msg = f"the sketch of a party with {features} private coded columns must be a finite, non-zero matrix of that many rows"
            raise UsageError(msg)
        # As fine a grid as keeps every sum below 2^53.
        largest = float(np.abs(matrix).sum(axis=0).max()) * grid
        bits = min(24, math.floor(math.log2(_EXACT / 2 / largest)))
        return cls(size, 2.0**-bits, grid, integers=np.trunc(matrix * 2.0**bits), exact=matrix)

    def apply(self, coded: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return exact integers X Pi / unit of a block of coded rows."""
        if self.srht is not None:
            return np.asarray(self.srht.apply(coded.astype(np.int32), bound=self.grid), dtype=np.int64)
        assert self.integers is not None
        return (coded.astype(np.float64) @ self.integers).astype(np.int64)

    def apply_real(self, real: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return X Pi of real rows, for the noise-free algorithm."""
        if self.srht is not None:
            product: NDArray[np.float64] = self.srht.apply(real)
            return product
        assert self.exact is not None
        return real @ self.exact

    # --- what one unit moves, in integers (units of ``unit`` times the data's grid) --------------------------------------

    def row(self, j: int) -> NDArray[np.float64]:
        """Row j of Pi in integers."""
        if self.integers is not None:
            row: NDArray[np.float64] = self.integers[j]
            return row
        assert self.srht is not None
        parity = np.array([int(j & int(c)).bit_count() & 1 for c in self.srht.columns])
        return np.where(parity == 1, -1.0, 1.0) * float(self.srht.signs[j])

    def row_norm(self, j: int) -> float:
        """Return its length; exactly sqrt(m) for an SRHT (Theorem P.1)."""
        return math.sqrt(self.size) if self.integers is None else float(np.linalg.norm(self.integers[j]))

    @property
    def operator_norm(self) -> float:
        """Return the largest stretch of any row vector: sqrt(P) for an SRHT (columns are distinct) (Theorem P.2)."""
        if self.srht is not None:
            return math.sqrt(self.srht.padded)
        assert self.integers is not None
        # A hair more than computed, so that rounding cannot make it too small.
        return float(np.linalg.norm(self.integers, 2)) * (1 + 1e-9)

    @property
    def mean_square(self) -> float:
        """Return the mean squared length of a row of Pi: the share of the energy of unrelated columns that it keeps."""
        if self.srht is not None:
            return 1.0
        assert self.exact is not None
        return float((self.exact**2).sum(axis=1).mean())

    @property
    def is_isometry(self) -> bool:
        """Return True if Pi Pi' = I, so that X Pi has the Gram matrix of X."""
        if self.srht is not None:
            return self.size == self.srht.padded
        assert self.exact is not None
        return np.allclose(self.exact @ self.exact.T, np.eye(self.exact.shape[0]), rtol=0, atol=1e-12)

    def attribute_reach(self, column: Column, first: int) -> float:
        """Return the sensitivity of a sketched row to one value of ``column``, whose coded columns begin at ``first`` (data grid = 1).

        The distance is convex in both values, so its maximum is over the extreme points of what the value is coded to: the two ends
        of the range (and zero or the indicator when it may be missing); for categories every pair of them, and a missing one.
        """
        if column.categories is None and column.missing != "indicator":
            return 2 * self.row_norm(first)
        extremes: list[NDArray[np.float64]] = []
        if column.categories is None:
            extremes += [self.row(first), -self.row(first)]
        else:
            extremes += [self.row(first + c) for c in range(len(column.categories))]
        if column.missing == "absent":
            extremes.append(np.zeros(self.size))
        elif column.missing == "indicator":
            extremes.append(self.row(first + len(extremes) - (column.categories is None)))
        return max(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(extremes, 2))

    def record_reach(self, columns: Sequence[Column], firsts: Sequence[int]) -> float:
        """Return the sensitivity of a sketched row to a whole row, without clipping: the smaller of two bounds (data grid = 1)."""
        diameters = [2.0 if c.categories is None else math.sqrt(2.0) for c in columns]
        return min(
            self.operator_norm * math.sqrt(math.fsum(d * d for d in diameters)),
            math.fsum(self.attribute_reach(c, f) for c, f in zip(columns, firsts, strict=True)),
        )


def low_frequencies(shape: tuple[int, ...], size: int) -> NDArray[np.float64]:
    """Return the ``size`` lowest frequencies of an orthonormal DCT-II over an axis or a grid, one basis vector per column.

    Frequencies of a grid are ordered by f1^2/n1^2 + f2^2/n2^2; ties by the first index. Columns are the row-major cells.
    """
    if len(shape) not in (1, 2) or math.prod(shape) < size:
        msg = f"a DCT basis of {size} vectors needs one or two axes with at least as many cells, not {shape}"
        raise UsageError(msg)
    axes = [dct(np.eye(n), norm="ortho", axis=0) for n in shape]  # row f is the basis vector of frequency f
    frequencies = sorted(
        itertools.product(*(range(n) for n in shape)),
        key=lambda f: (sum((x / n) ** 2 for x, n in zip(f, shape, strict=True)), f),
    )[:size]
    basis = np.empty((math.prod(shape), size))
    for j, frequency in enumerate(frequencies):
        vector = axes[0][frequency[0]]
        basis[:, j] = vector if len(shape) == 1 else np.outer(vector, axes[1][frequency[1]]).ravel()
    return basis
