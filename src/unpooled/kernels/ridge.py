r"""Ridge regression for many penalties and folds from one Gram matrix.

Everything follows from the centred Gram matrix :math:`K = X_c X_c^T` (:math:`X_c^T X_c` when rows outnumber columns).
Penalties are scikit-learn's alpha: :math:`|y - Xb|^2 + \alpha |b|^2`, an intercept is not penalised.

Solutions and evidence rest on the eigendecomposition of K, made when first asked for. Cross-validation does not need it:

* few folds: the training rows' Gram matrix is a block of K (or K less the fold's own), and one Householder reduction of it
  to tridiagonal form T solves :math:`(T + \alpha I) x = Q^T y` for every penalty in linear time; Q stays a product of
  reflectors;
* many folds, leave-one-out among them: nothing is refitted. A linear smoother :math:`\hat y = Hy` that minimises a penalised
  sum of squares predicts held-out rows F with residuals :math:`(I - H_{FF})^{-1} (y - \hat y)_F` exactly.

All large products go through scipy's BLAS: numpy carries a second one, and two pools of threads that take turns wait for
each other. Factorisations of matrices of this size (hundreds to a few thousand rows) run on one thread: they gain little
from a second one and synchronise so often that a single busy neighbour makes them hundreds of times slower
(benchmarks/ridge.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import blas, eigh, lapack
from scipy.optimize import minimize_scalar

from unpooled.kernels.threads import one_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]
    Folds = Sequence[NDArray[np.intp]]

#: Eigenvalues below this share of the largest are numerical zeros.
_RANK = 1e-12
#: Above this many folds one eigendecomposition and the hat matrix cost less than one reduction per fold
#: (benchmarks/ridge.py).
_FEW_FOLDS = 10
#: Below this size LAPACK has nothing to reduce.
_TINY = 3


def product(a: Matrix, b: Matrix) -> Matrix:
    """Return the matrix product a b, in scipy's BLAS and without copies of C- or Fortran-ordered factors."""
    if 0 in {a.shape[0], a.shape[1], b.shape[1]}:
        return np.zeros((a.shape[0], b.shape[1]))
    flip_a, flip_b = not a.flags.f_contiguous, not b.flags.f_contiguous
    result: Matrix = blas.dgemm(1.0, a.T if flip_a else a, b.T if flip_b else b, trans_a=flip_a, trans_b=flip_b)
    return result


def gram(design: Matrix) -> Matrix:
    """Return X X^T if rows do not outnumber columns, otherwise X^T X; half the work of a product."""
    n, p = design.shape
    if min(n, p) == 0:
        return np.zeros((min(n, p), min(n, p)))
    # The transpose of C-ordered data is Fortran-ordered: no copy.
    half = np.tril(blas.dsyrk(1.0, np.asarray(design, order="C").T, trans=n <= p, lower=1))
    half[np.diag_indices_from(half)] /= 2
    full: Matrix = half + half.T
    return full


def spectrum(design: Matrix, squared: Matrix) -> tuple[Vector, Matrix]:
    """Return squared singular values (r), left singular vectors (n x r) of a design with this Gram matrix; no numerical zeros."""
    n, p = design.shape
    if squared.size == 0:
        return np.empty(0), np.empty((n, 0))
    squares, vectors = _eigenpairs(squared)
    return squares, (vectors if n <= p else product(design, vectors / np.sqrt(squares)))


def _eigenpairs(squared: Matrix) -> tuple[Vector, Matrix]:
    """Return eigenvalues and eigenvectors of a Gram matrix, without numerical zeros."""
    if squared.size == 0:
        return np.empty(0), np.empty((squared.shape[0], 0))
    with one_thread():
        squares, vectors = eigh(squared, check_finite=False, driver="evd")
    keep = squares > max(_RANK * float(squares[-1]), np.finfo(np.float64).tiny)
    return squares[keep], vectors[:, keep]


@dataclass(frozen=True)
class RidgePath:
    """The Gram matrix of a (centred) design; solutions, evidence and cross-validation for every penalty."""

    design: Matrix
    target: Vector
    column_means: Vector
    target_mean: float
    fit_intercept: bool
    #: X X^T of the (centred) design if n <= p, otherwise X^T X.
    gram: Matrix

    @classmethod
    def of(cls, design: Matrix, target: Vector, *, fit_intercept: bool = True) -> RidgePath:
        """Centre, and form the Gram matrix: O(n p min(n, p))."""
        means = design.mean(axis=0) if fit_intercept else np.zeros(design.shape[1])
        mean = float(target.mean()) if fit_intercept else 0.0
        centred = design - means
        return cls(centred, target - mean, means, mean, fit_intercept, gram(centred))

    @cached_property
    def _pairs(self) -> tuple[Vector, Matrix]:
        """Return squared singular values, and the singular vectors of the smaller side: left ones if n <= p, else right ones."""
        return _eigenpairs(self.gram)

    @property
    def _by_rows(self) -> bool:
        return bool(self.design.shape[0] <= self.design.shape[1])

    @property
    def squares(self) -> Vector:
        """Return squared singular values of the (centred) design, without numerical zeros."""
        return self._pairs[0]

    @cached_property
    def left(self) -> Matrix:
        """Left singular vectors (n x r) of the (centred) design; with more rows than columns only leaving out rows needs them."""
        squares, vectors = self._pairs
        return vectors if self._by_rows else product(self.design, vectors / np.sqrt(squares))

    @cached_property
    def rotated(self) -> Vector:
        """Return the target in the basis of the left singular vectors."""
        squares, vectors = self._pairs
        if self._by_rows:
            return np.asarray(vectors.T @ self.target)
        return np.asarray(vectors.T @ (self.design.T @ self.target) / np.sqrt(squares))

    def solve(self, alpha: float) -> tuple[Vector, float]:
        """Return coefficients and intercept: b = X^T U diag(1 / (s^2 + alpha)) U^T y; at alpha = 0 the shortest least squares."""
        squares, vectors = self._pairs
        weights = self.rotated / (squares + alpha)
        coefficients = self.design.T @ (vectors @ weights) if self._by_rows else vectors @ (np.sqrt(squares) * weights)
        return coefficients, self.target_mean - float(self.column_means @ coefficients)

    # --- choosing the penalty -----------------------------------------------------------------------------------------

    def evidence(self, alpha: float) -> float:
        r"""Return twice the negative log marginal likelihood of y ~ N(0, s^2 (I + K / alpha)), s^2 profiled out, up to a constant.

        With an intercept: of the n - 1 contrasts of y (a flat prior on the intercept).
        """
        degrees = self.target.size - self.fit_intercept
        inside = self.rotated**2
        outside = max(float(self.target @ self.target - inside.sum()), 0.0)
        ratio = self.squares / alpha
        explained = float((inside / (1 + ratio)).sum()) + outside
        return degrees * math.log(max(explained, 1e-300)) + float(np.log1p(ratio).sum())

    def evidence_alpha(self) -> float:
        """Return the penalty of largest marginal likelihood, over 24 orders of magnitude around the design's own scale."""
        if self.squares.size == 0:
            return 1.0
        return lowest(self.evidence, float(self.squares.mean()) * np.logspace(-12, 12, 97))

    def held_out(self, alphas: Sequence[float] | Vector, folds: Folds) -> Matrix:
        """Return predictions of every row from the other folds, one row of the result per penalty (len(alphas) x n).

        Rows that no fold holds are nan. A penalty below the rounding of the Gram matrix is refused with ``LinAlgError``.
        """
        penalties = np.asarray(alphas, dtype=np.float64)
        if any(fold.size >= self.target.size for fold in folds):
            msg = "a fold holds out every row: nothing is left to fit on"
            raise ValueError(msg)
        with one_thread():
            if len(folds) > _FEW_FOLDS:
                return self._by_hat_matrix(penalties, folds) + self.target_mean
            predictions = np.full((penalties.size, self.target.size), np.nan)
            for fold in folds:
                predictions[:, fold] = self._by_refit(penalties, fold)
            return predictions + self.target_mean

    def cross_validated(self, alphas: Sequence[float] | Vector, folds: Folds) -> Vector:
        """Return the mean squared error of held-out predictions for every penalty."""
        errors: Vector = ((self.held_out(alphas, folds) - self.target_mean - self.target) ** 2).mean(axis=1)
        return errors

    def _by_refit(self, alphas: Vector, fold: NDArray[np.intp]) -> Matrix:
        """Return predictions (less the overall mean) of one fold from the other rows: one reduction for all penalties."""
        n, p = self.design.shape
        train = np.setdiff1d(np.arange(n), fold)
        mean = float(self.target[train].mean()) if self.fit_intercept else 0.0
        if n <= p:
            rows = self.gram[:, train]
            if self.fit_intercept:  # (x_i - m) . (x_t - m) with the training rows' mean m
                rows -= rows[train].mean(axis=0)
                rows -= rows.mean(axis=1)[:, None]
            weights = _shifted_solutions(rows[train], alphas, self.target[train] - mean)
            return product(rows[fold], weights).T + mean
        # The training rows' sums are the totals less the fold's; the rounding is that of the totals.
        part, size = self.design[fold], train.size
        means = -part.sum(axis=0) / size if self.fit_intercept else np.zeros(p)
        squared = self.gram - product(part.T, part) - size * np.outer(means, means)
        moments = self.design.T @ self.target - part.T @ self.target[fold] - size * mean * means
        return product(part - means, _shifted_solutions(squared, alphas, moments)).T + mean

    def _by_hat_matrix(self, alphas: Vector, folds: Folds) -> Matrix:
        r"""Return predictions from the residuals :math:`(I - H_{FF})^{-1} (y - \hat y)_F`.

        :math:`I - H = U w U^T + N` with :math:`w = \alpha / (s^2 + \alpha)`. N projects on what neither the columns nor the
        intercept reach; it is exactly zero if they reach everything. Written this way nothing cancels when a small penalty
        leaves small residuals.
        """
        n, left = self.target.size, self.left
        constant, everything = (1.0 / n if self.fit_intercept else 0.0), left.shape[1] + self.fit_intercept == n
        kept = alphas / (self.squares[:, None] + alphas)
        unreached = np.zeros(n) if everything else self.target - left @ self.rotated
        residuals = product(left, kept * self.rotated[:, None]) + unreached[:, None]
        predictions = np.full((alphas.size, n), np.nan)
        if all(fold.size == 1 for fold in folds):
            rows = np.concatenate(folds)
            square = left[rows] ** 2
            remaining = product(square, kept) + (0.0 if everything else (1 - constant - square.sum(axis=1))[:, None])
            if (remaining <= 0).any():
                raise _too_small(alphas[int(remaining.min(axis=0).argmin())])
            predictions[:, rows] = (self.target[rows, None] - residuals[rows] / remaining).T
            return predictions
        for fold in folds:
            part = left[fold]
            null = 0.0 if everything else np.eye(fold.size) - constant - product(part, part.T)
            for a in range(alphas.size):
                _, solved, info = lapack.dposv(product(part * kept[:, a], part.T) + null, residuals[fold, a])
                if info:
                    raise _too_small(alphas[a])
                predictions[a, fold] = self.target[fold] - solved.ravel()
        return predictions


def lowest(criterion: Callable[[float], float], grid: Vector, precision: float = 1e-6, hopeless: float = math.inf) -> float:
    """Return the positive number of smallest criterion: the best of an increasing grid, refined between its neighbours.

    The grid is walked downwards: a criterion that solves for a penalty may start from the solution of the larger one before. The walk ends
    where the criterion is above the smallest so far by more than ``hopeless``.
    """
    values = np.full(grid.size, math.inf)
    for k in range(grid.size - 1, -1, -1):
        values[k] = criterion(float(grid[k]))
        if values[k] > values.min() + hopeless:
            break
    best = int(values.argmin())
    bounds = np.log(grid[max(best - 1, 0)]), np.log(grid[min(best + 1, grid.size - 1)])
    found = minimize_scalar(lambda x: criterion(math.exp(x)), bounds=bounds, method="bounded", options={"xatol": precision})
    return math.exp(found.x)


def _too_small(alpha: float) -> np.linalg.LinAlgError:
    return np.linalg.LinAlgError(f"penalty {alpha:g} is below the rounding of the Gram matrix")


def _shifted_solutions(matrix: Matrix, alphas: Vector, target: Vector) -> Matrix:
    """Return (A + alpha I)^-1 y for every alpha, one per column, A symmetric and destroyed: A = Q T Q^T with T tridiagonal."""
    size = target.size
    if size < _TINY:
        shifted = matrix + alphas[:, None, None] * np.eye(size)
        few: Matrix = np.asarray(
            np.linalg.solve(shifted, np.broadcast_to(target[:, None], (alphas.size, size, 1))), np.float64
        )
        return few[:, :, 0].T
    symmetric = matrix if matrix.flags.f_contiguous else matrix.T
    # dsytrd leaves Q as reflectors of rows 2.. below the first subdiagonal: the same layout as a QR factor's.
    packed, diagonal, beside, tau, _ = lapack.dsytrd(symmetric, lower=1, lwork=64 * size, overwrite_a=1)
    reflectors = np.asfortranarray(packed[1:, :-1])
    rotated = target[:, None].copy()
    rotated[1:] = lapack.dormqr("L", "T", reflectors, tau, rotated[1:], 64 * size)[0]
    solutions = np.empty((size, alphas.size), order="F")
    for a, alpha in enumerate(alphas):
        _, _, solved, info = lapack.dptsv(diagonal + alpha, beside, rotated)
        if info:
            raise _too_small(alpha)
        solutions[:, a] = solved[:, 0]
    solutions[1:] = lapack.dormqr("L", "N", reflectors, tau, solutions[1:], 64 * size)[0]
    return solutions


# --- many noisy columns at once ---------------------------------------------------------------------------------------


def noise_aware_smoothing(design: Matrix, noisy: Matrix, noise: float) -> tuple[Matrix, float]:
    r"""Coefficients B of a common ridge of many noisy columns on a design, whose noise level is known.

    Every column is :math:`z \sim N(0, s^2 I + t^2 X X^T)` with known s > 0; t is chosen by marginal likelihood over all
    columns at once (PRIDE's regression calibration). Returns B (p x m) and the penalty s^2/t^2, infinite if the design is zero or has no
    columns. The design must be centred.
    """
    if not noise > 0:
        raise ValueError("noise must be positive: without noise there is nothing to smooth")
    by_rows = design.shape[0] <= design.shape[1]
    # With more rows than columns the left singular vectors are never formed: U'Z = S^-1 V' (X'Z).
    squares, vectors = _eigenpairs(gram(design))
    if squares.size == 0 or noisy.shape[1] == 0:
        return np.zeros((design.shape[1], noisy.shape[1])), math.inf
    roots = np.sqrt(squares)[:, None]
    rotated = product(vectors.T, noisy) if by_rows else product(vectors.T, product(design.T, noisy)) / roots
    power = (rotated**2).sum(axis=1)
    variance, m = noise**2, noisy.shape[1]

    def criterion(alpha: float) -> float:
        total = variance * (1 + squares / alpha)  # what lies outside the design's span does not depend on alpha
        return float((m * np.log(total) + power / total).sum())

    alpha = lowest(criterion, float(squares.mean()) * np.exp(np.linspace(-25, 25, 101)))
    weights = rotated / (squares + alpha)[:, None]
    return (product(design.T, product(vectors, weights)) if by_rows else product(vectors, roots * weights)), alpha


def shrink_singular_values(matrix: Matrix, noise: float) -> Matrix:
    r"""Frobenius-optimal shrinkage of singular values at a known noise level (Gavish & Donoho 2017, equation 7).

    For a matrix with n rows and m columns, aspect :math:`\beta=m/n\le 1` and :math:`y=s/(\sigma\sqrt n)`:
    :math:`\eta(y)=\sqrt{(y^2-\beta-1)^2-4\beta}/y` for :math:`y\ge 1+\sqrt\beta`, else 0. Without noise nothing is shrunk.
    """
    few, many = matrix.shape
    if noise == 0 or matrix.size == 0:
        return matrix.copy()
    if few > many:
        return shrink_singular_values(matrix.T, noise).T
    # Through the small Gram matrix: what it loses (below 1e-8 of the largest) is far below the noise or set to zero anyway.
    squared = gram(matrix)
    with one_thread():
        squares, left = eigh(squared, check_finite=False, driver="evd")
    y2 = squares / (noise**2 * many)
    beta = few / many
    kept = y2 >= (1 + math.sqrt(beta)) ** 2
    y2, left = y2[kept], left[:, kept]
    factor = np.sqrt((y2 - beta - 1) ** 2 - 4 * beta) / y2  # eta(y) / y
    return product(left * factor, product(left.T, matrix))
