"""Public coordinates of a spectrum: its difference from a public reference, along a few public orthonormal vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    Matrix = NDArray[np.float64]

DCT, SPLINE, NONE, MATRIX = "dct", "bspline", "none", "matrix"
#: Entries of a basis are integers of at most 2^20 times a power of two: then products with quantised channels are exact.
BASIS_BITS = 20
_CUBIC = 3
#: A vector of a caller's matrix that is this nearly a combination of those before it has no direction of its own.
_DEPENDENT = 1e-8
#: Squares of a caller's entries, and sums of them, stay far inside float64.
_WIDEST = 1e100


@dataclass(frozen=True)
class Frame:
    """``(x - reference) @ basis`` (no basis: the differences themselves)."""

    reference: Matrix
    basis: Matrix | None

    @classmethod
    def of(cls, kind: str, channels: int, size: int, reference: Matrix, matrix: Sequence[Sequence[float]] = ()) -> Frame:
        """The frame of these names; a caller's matrix (channels x vectors) is made orthonormal."""
        if reference.shape != (channels,) or not np.isfinite(reference).all():
            msg = f"reference must be one finite number for each of the {channels} channels"
            raise UsageError(msg)
        if kind == NONE:
            return cls(reference, None)
        if kind == MATRIX:
            return cls(reference, _rounded(_orthonormal(matrix, channels)))
        if size < 1:
            raise UsageError("basis_size must be a whole number of at least 1")
        size = min(size, channels)
        if kind == DCT:
            angles = np.outer(np.arange(channels) + 0.5, np.arange(size)) * (math.pi / channels)
            return cls(reference, _rounded(_orthonormal(np.cos(angles), channels)))
        if kind == SPLINE:
            return cls(reference, _rounded(_orthonormal(_splines(channels, size), channels)))
        msg = f"basis is one of {DCT!r}, {SPLINE!r}, {NONE!r} or a matrix of channels x vectors, not {kind!r}"
        raise UsageError(msg)

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return self.reference.size if self.basis is None else self.basis.shape[1]

    def coordinates(self, X: Matrix) -> Matrix:
        """The coordinates of rows."""
        return X - self.reference if self.basis is None else (X - self.reference) @ self.basis

    def channels(self, values: Matrix) -> Matrix:
        """Directions in coordinates (one per column) as directions in channels."""
        return values if self.basis is None else self.basis @ values

    def longest(self, low: Matrix, high: Matrix) -> float:
        """A bound on the length of the coordinates of rows inside these ranges."""
        half = np.maximum(np.abs(low - self.reference), np.abs(high - self.reference))
        length = float(np.linalg.norm(half))
        return length if self.basis is None else min(length, float(np.linalg.norm(half @ np.abs(self.basis))))


def _splines(channels: int, size: int) -> Matrix:
    """Values of a clamped B-spline basis, cubic where there are enough vectors."""
    from scipy.interpolate import BSpline

    degree = min(_CUBIC, size - 1)
    inner = np.linspace(0, 1, size - degree + 1)
    knots = np.concatenate([np.zeros(degree), inner, np.ones(degree)])
    points = (np.arange(channels) + 0.5) / channels
    return np.asarray(BSpline.design_matrix(points, knots, degree).toarray())


def _orthonormal(matrix: ArrayLike, channels: int) -> Matrix:
    """An orthonormal basis of the columns, each along its own column as far as it is independent of those before."""
    try:
        given = np.asarray(matrix, dtype=np.float64)
    except (TypeError, ValueError):
        given = np.empty(0)
    fits = given.ndim == 2 and given.shape[0] == channels and 1 <= given.shape[1] <= channels  # noqa: PLR2004
    if not fits or not (np.abs(given) < _WIDEST).all():
        msg = f"a basis has {channels} rows (channels) and between 1 and {channels} columns of finite numbers (below {_WIDEST:g})"
        raise UsageError(msg)
    q, r = np.linalg.qr(given)
    own = np.abs(r.diagonal())
    if (own <= _DEPENDENT * np.linalg.norm(given, axis=0)).any():
        raise UsageError("the columns of a basis must be linearly independent: leave out those that the others combine to")
    return np.asarray(q * np.sign(r.diagonal()))


def _rounded(basis: Matrix) -> Matrix:
    """On a grid of a power of two with entries of at most 2^20: the same at every party, however its linear algebra rounds."""
    step = basis_step(basis)
    return np.rint(basis / step) * step


def basis_step(basis: Matrix) -> float:
    """The power of two of which the entries are multiples."""
    return math.ldexp(1.0, math.frexp(float(np.abs(basis).max()))[1] - BASIS_BITS)
