"""Public coordinates of a spectrum: its difference from a public reference, along a few public vectors; tables seen in them, and whitened bases."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import UsageError
from unpooled.privacy.table import BLOCK_ROWS, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    Matrix = NDArray[np.float64]
    Blocks = Callable[[Table, int], Iterator[tuple[NDArray[Any], ...]]]


# --- Frame -----------------------------------------------------------------------------------------------------------------
# Public coordinates of a spectrum: its difference from a public reference, along a few public vectors.

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
        """Return the frame of these names; a caller's matrix (channels x vectors) is taken as it is, with the lengths of its vectors."""
        if reference.shape != (channels,) or not np.isfinite(reference).all():
            msg = f"reference must be one finite number for each of the {channels} channels"
            raise UsageError(msg)
        if kind == NONE:
            return cls(reference, None)
        if kind == MATRIX:
            return cls(reference, _rounded(_independent(matrix, channels)))
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
        """Return the number of coordinates."""
        return self.reference.size if self.basis is None else self.basis.shape[1]

    def coordinates(self, X: Matrix) -> Matrix:
        """Return the coordinates of rows."""
        return X - self.reference if self.basis is None else (X - self.reference) @ self.basis

    def channels(self, values: Matrix) -> Matrix:
        """Directions in coordinates (one per column) as directions in channels: x.(B d) is the coordinates' product with d."""
        return values if self.basis is None else self.basis @ values

    def spectra(self, values: Matrix) -> Matrix:
        """Return the shortest spectra that have these coordinates (one per column): B (B'B)^-1 z, which is B z where B is orthonormal."""
        return values if self.basis is None else self.basis @ np.linalg.solve(self.basis.T @ self.basis, values)

    def longest(self, low: Matrix, high: Matrix) -> float:
        """Return a bound on the length of the coordinates of rows inside these ranges: by the basis' norm, and entry by entry."""
        half = np.maximum(np.abs(low - self.reference), np.abs(high - self.reference))
        length = float(np.linalg.norm(half))
        if self.basis is None:
            return length
        norm = float(np.linalg.norm(self.basis, ord=2)) * (1 + 1e-9)
        return min(length * norm, float(np.linalg.norm(half @ np.abs(self.basis))))

    @property
    def stretch(self) -> float:
        """Return the largest ratio of the length of a spectrum in the span of the basis to that of its coordinates."""
        return 1.0 if self.basis is None else 1.0 / float(np.linalg.svd(self.basis, compute_uv=False)[-1])


def _splines(channels: int, size: int) -> Matrix:
    """Values of a clamped B-spline basis, cubic where there are enough vectors."""
    from scipy.interpolate import BSpline

    degree = min(_CUBIC, size - 1)
    inner = np.linspace(0, 1, size - degree + 1)
    knots = np.concatenate([np.zeros(degree), inner, np.ones(degree)])
    points = (np.arange(channels) + 0.5) / channels
    return np.asarray(BSpline.design_matrix(points, knots, degree).toarray())


def _independent(matrix: ArrayLike, channels: int) -> Matrix:
    """Return a caller's vectors as they are: their lengths are the caller's scaling (division by public deviations whitens coordinates)."""
    given, _ = _factored(matrix, channels)
    return given


def _orthonormal(matrix: ArrayLike, channels: int) -> Matrix:
    """Return an orthonormal basis of the columns, each along its own column as far as it is independent of those before."""
    return _factored(matrix, channels)[1]


def _factored(matrix: ArrayLike, channels: int) -> tuple[Matrix, Matrix]:
    """Return the columns, checked, and an orthonormal basis of theirs."""
    try:
        given = np.asarray(matrix, dtype=np.float64)
    except (TypeError, ValueError):
        given = np.empty(0)
    fits = given.ndim == 2 and given.shape[0] == channels and 1 <= given.shape[1] <= channels  # noqa: PLR2004
    if not fits or not (np.abs(given) < _WIDEST).all():
        msg = f"a basis has {channels} rows (channels) and between 1 and {channels} columns of finite numbers (below {_WIDEST:g})"
        raise UsageError(msg)
    q, r = np.linalg.qr(given / np.maximum(np.linalg.norm(given, axis=0), 1e-300))
    own = np.abs(r.diagonal())
    if (own <= _DEPENDENT).any():
        raise UsageError("the columns of a basis must be linearly independent: leave out those that the others combine to")
    return given, np.asarray(q * np.sign(r.diagonal()))


def _rounded(basis: Matrix) -> Matrix:
    """Return every vector on a grid of its own with entries of at most 2^20: the same at every party, however its linear algebra rounds."""
    step = basis_steps(basis)
    return np.rint(basis / step) * step


def basis_steps(basis: Matrix) -> Matrix:
    """For every vector, the power of two of which its entries are multiples: a short one is as exact as a long one."""
    largest = np.frexp(np.abs(basis).max(axis=0))[1]
    return np.asarray(np.ldexp(np.ones(basis.shape[1]), largest - BASIS_BITS))


# --- Tables in coordinates -------------------------------------------------------------------------------------------------
# A party's table as the rounds of PLS see it: public coordinates of each spectrum, and the response.


class Projected(Table):
    """A table whose blocks hold coordinates: they are computed block by block, from the channels, and kept nowhere."""

    def __init__(self, table: Table, names: tuple[str, ...], blocks: Blocks) -> None:
        self._raw, self._blocks = table, blocks
        self.names = names
        self.n_rows, self.household = table.n_rows, table.household

    def blocks(self, names: tuple[str, ...], rows: int = BLOCK_ROWS) -> Iterator[tuple[NDArray[Any], ...]]:
        """Return coordinates and responses by their names."""
        places = [self.names.index(name) for name in names]
        for block in self._blocks(self._raw, rows):
            yield tuple(block[place] for place in places)


def seen_as(table: Table, design: object, names: tuple[str, ...], blocks: Blocks) -> Table:
    """Return the view of a table that this design has, the same in every round: what is remembered of it is found again."""
    known: tuple[object, Table] | None = vars(table).get("_projected")
    if known is None or known[0] is not design:
        known = vars(table)["_projected"] = design, Projected(table, names, blocks)
    return known[1]


# --- Whitening -------------------------------------------------------------------------------------------------------------
# A basis from public spectra in which every coordinate has deviation 1: so noise that is equal everywhere costs each the same part.


def whitened(public: ArrayLike, variance: float = 0.999, most: int = 12) -> tuple[Matrix, Matrix, float]:
    """Return (basis, reference, R) of public spectra, for ``PrivatePLSRegression(basis=..., reference=..., bounds=Bounds(norm=R))`` (Theorem C.3).

    The basis has the loadings that hold ``variance`` of the public spectra's variance (at most ``most``), each divided by its scores'
    deviation; at least three public spectra stand behind each of them. The reference is their mean, R the length that 95 % of new spectra are
    expected to stay below in these coordinates.

    Parameters
    ----------
    public : array of shape (spectra, channels)
        Spectra that are nobody's secret, preprocessed as the private ones will be.
    variance : float, default 0.999
        The part of their variance that is kept: a direction beyond is mostly noise, which whitening would make as loud as the rest.
    most : int, default 12
        The most directions.

    Examples
    --------
    >>> from unpooled.datasets import make_spectra
    >>> public = make_spectra(60, kind="corn", seed=1).spectra
    >>> basis, reference, norm = whitened(public)
    >>> scores = (public - reference) @ basis
    >>> scores.std(axis=0).round(6).tolist() == [1.0] * basis.shape[1]
    True

    """
    spectra = np.asarray(public, dtype=np.float64)
    if spectra.ndim != 2 or spectra.shape[0] < 3 or not np.isfinite(spectra).all():  # noqa: PLR2004
        raise UsageError("whitening needs at least three public spectra of finite numbers, a row for each")
    if not 0 < variance <= 1 or most < 1:
        raise UsageError("variance is a part, above 0 and at most 1, and most at least 1")
    reference = spectra.mean(axis=0)
    _, values, loadings = np.linalg.svd(spectra - reference, full_matrices=False)
    squares = values**2
    if not squares[0] > 0:
        raise UsageError("the public spectra are all the same: there is no direction to keep")
    enough = int(np.searchsorted(np.cumsum(squares) / squares.sum(), variance * (1 - 1e-12))) + 1
    # The deviation of a direction that few spectra have chosen is too small for others, which would be far out.
    count = min(enough, most, max(spectra.shape[0] // 3, 1), int(np.count_nonzero(values > 1e-8 * values[0])))
    basis = loadings[:count].T * (np.sqrt(spectra.shape[0]) / values[:count])
    lengths = np.linalg.norm((spectra - reference) @ basis, axis=1)
    # New spectra are farther out than those that chose mean and directions: Student's factor, large where there are few.
    rows = spectra.shape[0]
    farther = float(np.sqrt(rows / max(rows - count - 2, 1)))
    return basis, reference, float(np.quantile(lengths, 0.95)) * farther
