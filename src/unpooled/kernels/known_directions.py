r"""Directions in which a noisy matrix of second moments determines coefficients, and those in which it does not.

Some directions are known beforehand to have no variation in any row (all levels of a column minus the constant): along them the matrix is
exactly 0, and whatever was released of them is noise. Other directions turn out to have none (a constant column, a level that nobody has, a
copy of another column). A fit over both would invert noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unpooled.kernels.noisy_gram import noise_level

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]
    Vector = NDArray[np.float64]

#: Without noise an eigenvalue below this part of the largest is zero.
_SINGULAR = 1e-10
#: A combination of coefficients is determined if less than this part of its squared length lies where the noise is half the signal or more.
LOST = 0.1
#: Of a squared length, what may be rounding.
_ROUNDED = 1e-14
#: Iterations and accuracy of the projection, whose system has a column for every declared direction.
_ITERATIONS, _EXACT = 500, 1e-12


@dataclass(frozen=True)
class KnownDirections:
    """The eigenvectors of a projected matrix that stand out of its noise, their eigenvalues, and the directions that do not."""

    #: The matrix after the projection.
    matrix: Matrix
    vectors: Matrix
    values: Vector
    #: Orthonormal directions, beside the still ones, in which the noise is half the signal or more.
    unknown: Matrix
    #: Orthonormal directions that are known beforehand to have no variation.
    still: Matrix

    @classmethod
    def of(
        cls, matrix: Matrix, variance: Matrix, still: Matrix, penalty: Vector | None = None, level: float | None = None
    ) -> KnownDirections:
        """``still`` has a column for each direction that is known to have no variation; ``variance`` is that of the noise of every entry.

        A ``penalty`` of each coefficient is added where something varies. ``level`` is the norm of the noise, where its entries are unlike.
        """
        size = matrix.shape[0]
        own = np.linalg.qr(still)[0] if still.size else np.empty((size, 0))
        projected = without_still(matrix, variance, own)
        if penalty is not None and penalty.any():
            others = np.eye(size) - own @ own.T
            projected = projected + others @ (penalty[:, None] * others)
        values, vectors = np.linalg.eigh((projected + projected.T) / 2)
        level = noise_level(variance) if level is None else level
        least = max(_SINGULAR * float(values[-1]), level) if size else 0.0
        # The still directions have eigenvalue 0 up to rounding, so none of them is kept.
        kept, sure = values > least, values > max(least, 2 * level)
        rest = vectors[:, ~sure]
        rest = rest - own @ (own.T @ rest)
        basis, weights, _ = np.linalg.svd(rest, full_matrices=False)
        unknown = basis[:, weights > 0.5] if rest.size else np.empty((size, 0))  # noqa: PLR2004 - each is 0 or 1
        return cls(projected, vectors[:, kept], values[kept], unknown, own)

    @property
    def inverse(self) -> Matrix:
        """Return the inverse over the known directions, and 0 elsewhere."""
        return np.asarray((self.vectors / self.values) @ self.vectors.T)

    def determined(self, combinations: Matrix) -> NDArray[np.bool_]:
        """Return True for each combination of coefficients (a row each) that has a value of its own, and one that the noise does not hide."""
        lengths = np.square(combinations).sum(axis=1)
        lost = np.square(combinations @ self.unknown).sum(axis=1)
        along = np.square(combinations @ self.still).sum(axis=1)
        return np.asarray((lengths > 0) & (along <= _ROUNDED * lengths) & (lost < LOST * lengths))


def touches(combinations: Matrix, directions: Matrix) -> NDArray[np.bool_]:
    """Return True for each combination (a row each) whose part along one of the directions (a column each) is more than rounding.

    Both are in the data's own units, where an entry that is 0 is exactly 0, and units may differ as much as they like.
    """
    if not directions.size:
        return np.zeros(combinations.shape[0], dtype=np.bool_)
    size = np.abs(combinations) @ np.abs(directions)
    return np.asarray((np.abs(combinations @ directions) > 1e-7 * size).any(axis=1))


def without_still(matrix: Matrix, variance: Matrix, still: Matrix) -> Matrix:
    """Return the generalised least squares estimate of a symmetric M from M + N, where M C = 0 is known (C = ``still``, orthonormal columns).

    It is M + N - W o (L C' + C L'), W the variances of the noise with the diagonal halved, L the least solution of the linear equations that
    M C = 0 gives. For noise that is half as variable off the diagonal it is P (M + N) P with P = I - C C'.
    """
    if not still.size:
        return matrix
    if not variance.any():  # released exactly: then only rounding is along C
        others = np.eye(still.shape[0]) - still @ still.T
        return np.asarray(others @ matrix @ others)
    weights = variance - np.diag(variance.diagonal() / 2)
    weights = weights / float(weights.max())

    def applied(factor: Matrix) -> Matrix:
        outer = factor @ still.T
        return np.asarray(weights * (outer + outer.T))

    factor = np.zeros_like(still)
    left = matrix @ still
    goal = _EXACT * float(np.linalg.norm(matrix))  # below it there is rounding alone
    along, size = left.copy(), float((left * left).sum())
    for _ in range(_ITERATIONS):
        if size <= goal * goal:
            break
        image = applied(along) @ still
        curved = float((along * image).sum())
        if curved <= 0:  # exact entries leave nothing to move
            break
        step = size / curved
        factor, left = factor + step * along, left - step * image
        former, size = size, float((left * left).sum())
        along = left + (size / former) * along
    return np.asarray(matrix - applied(factor))


def cross_without_still(cross: Vector, variance: Vector, still: Matrix) -> Vector:
    """Return the same of cross moments m + e with C'm = 0."""
    if not still.size:
        return cross
    weighted = still * variance[:, None] if variance.any() else still
    return np.asarray(cross - weighted @ np.linalg.lstsq(still.T @ weighted, still.T @ cross, rcond=None)[0])


__all__ = ["LOST", "KnownDirections", "cross_without_still", "touches", "without_still"]
