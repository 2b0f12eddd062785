"""Matrices by columns, dense or sparse (CSC), for kernels that work on one column at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import issparse

from unpooled.kernels.compiled import njit

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray
    from scipy.sparse import csc_array, csc_matrix

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]
    Index = NDArray[np.int64]
    Places = NDArray[np.int32] | NDArray[np.int64]


@dataclass(frozen=True)
class Columns:
    """A matrix by columns: values one column after the other, and for a sparse one their rows and where columns start."""

    data: Vector
    #: Empty for a dense matrix.
    rows: Places
    starts: Places
    shape: tuple[int, int]

    @classmethod
    def of(cls, matrix: Columns | Matrix | csc_array | csc_matrix) -> Columns:
        """Without a copy if the matrix is column-major or CSC already, and float64."""
        if isinstance(matrix, Columns):
            return matrix
        if issparse(matrix):
            sparse = matrix.tocsc()
            if not sparse.has_canonical_format:
                sparse = sparse.copy()
                sparse.sum_duplicates()
            n, d = sparse.shape
            return cls(np.asarray(sparse.data, dtype=np.float64), sparse.indices, sparse.indptr, (n, d))
        dense = np.asfortranarray(matrix, dtype=np.float64)
        none = np.empty(0, dtype=np.int32)
        return cls(dense.reshape(-1, order="F"), none, none, (dense.shape[0], dense.shape[1]))

    @property
    def sparse(self) -> bool:
        """Return True if only nonzeros are held."""
        return self.starts.size > 0

    def dense(self) -> Matrix:
        """Return the column-major matrix (not for sparse ones)."""
        return self.data.reshape(self.shape, order="F")

    def column(self, j: int) -> Vector:
        """Return one column, with its zeros."""
        if not self.sparse:
            return self.dense()[:, j]
        out, held = np.zeros(self.shape[0]), slice(self.starts[j], self.starts[j + 1])
        out[self.rows[held]] = self.data[held]
        return out


def scores(matrix: Columns | Matrix | csc_array | csc_matrix, columns: ArrayLike | None, g: Vector) -> Vector:
    """Return the products a_j . g for these columns, or all of them: one multiplication for each nonzero."""
    held = Columns.of(matrix)
    if columns is None:
        if not held.sparse:
            return held.dense().T @ g
        columns = np.arange(held.shape[1])
    chosen = np.asarray(columns, dtype=np.int64)
    if chosen.size and not 0 <= chosen.min() <= chosen.max() < held.shape[1]:
        raise IndexError("a column that the matrix does not have")
    return _scores(held.data, held.rows, held.starts, held.shape[0], chosen, np.ascontiguousarray(g, dtype=np.float64))


@njit(nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _dense_dot(column: Vector, g: Vector) -> float:
    total = 0.0
    for i in range(column.size):
        total += column[i] * g[i]
    return total


@njit(nogil=True)
def column_dot(data: Vector, rows: Places, starts: Places, n: int, j: int, g: Vector) -> float:
    """a_j . g."""
    if not starts.size:
        return float(_dense_dot(data[j * n : (j + 1) * n], g))
    total = 0.0
    for e in range(starts[j], starts[j + 1]):  # in order: gathers make short sums slower
        total += data[e] * g[rows[e]]
    return total


@njit(nogil=True, fastmath={"reassoc", "contract", "nsz"})
def column_square(data: Vector, starts: Places, n: int, j: int) -> float:
    """|a_j|^2."""
    column = data[starts[j] : starts[j + 1]] if starts.size else data[j * n : (j + 1) * n]
    total = 0.0
    for value in column:
        total += value * value
    return total


@njit(nogil=True)
def add_column(data: Vector, rows: Places, starts: Places, n: int, j: int, weight: float, out: Vector) -> None:
    """Add weight * a_j to a vector of rows."""
    if starts.size:
        for e in range(starts[j], starts[j + 1]):
            out[rows[e]] += weight * data[e]
    else:
        column = data[j * n : (j + 1) * n]
        for i in range(n):
            out[i] += weight * column[i]


@njit(nogil=True)
def _scores(data: Vector, rows: Places, starts: Places, n: int, columns: Index, g: Vector) -> Vector:
    out = np.empty(columns.size)
    for k in range(columns.size):
        out[k] = column_dot(data, rows, starts, n, columns[k], g)
    return out


@njit(nogil=True)
def column_squares(data: Vector, starts: Places, n: int, d: int) -> Vector:
    """|a_j|^2 of every column."""
    out = np.empty(d)
    for j in range(d):
        out[j] = column_square(data, starts, n, j)
    return out
