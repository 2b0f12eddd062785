r"""Regression from noisy second moments: M = X^T X + N, m = X^T y + e, with independent noise of known variances.

N is symmetric with variances ``V_jk`` of its entries (j <= k), e has variances ``v``. The noise that a coefficient vector b meets is
e - N b, whose covariance for a random b with S = E[b b^T] is (Theorem B.4, for any V)

    Cov(e - N b) = diag(v) + diag(V diag(S)) + offdiag(V o S).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]
    Vector = NDArray[np.float64]


def psd_part(matrix: Matrix) -> Matrix:
    """Return the nearest positive semidefinite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, 0)) @ vectors.T)


def noise_level(gram_variance: Matrix) -> float:
    """About the operator norm of the noise, sqrt(2 D) times its diagonal deviation: the size of a Gram that means nothing."""
    size = gram_variance.shape[0]
    return float(np.sqrt(2 * size * gram_variance.diagonal().max(initial=0.0)))


def shares(vectors: Matrix, lift: Matrix | None = None) -> Vector:
    """Return the part of every coefficient that lies in the space of these orthonormal columns; ``lift``: of its images under this map."""
    if lift is None:
        return np.asarray(np.square(vectors).sum(axis=1))
    return np.asarray(np.square(lift @ vectors).sum(axis=1) / np.square(lift).sum(axis=1))


def identified(gram: Matrix, gram_variance: Matrix, share: float = 0.1, lift: Matrix | None = None) -> NDArray[np.bool_]:
    """For every coefficient, whether the noisy Gram tells of it: less than ``share`` of it is in directions below twice the noise level.

    There an eigenvalue is half noise or more, and no interval that takes the Gram for that of the rows knows how wrong it is.
    """
    values, vectors = np.linalg.eigh(gram)
    return np.asarray(shares(vectors[:, values < 2 * noise_level(gram_variance)], lift) < share)


def repaired(gram: Matrix, gram_variance: Matrix, ridge: float = 0.3) -> Matrix:
    """A positive definite Gram stays as it is; another one is clipped at 0 and gets ``ridge`` times the noise level.

    A Gram is positive definite if its smallest eigenvalue is more than the rounding error of its largest: copies without noise are not.
    """
    values = np.linalg.eigvalsh(gram)
    least = 1e-12 * max(float(values[-1]), 1.0)
    if values[0] > least:
        return gram
    return psd_part(gram) + (ridge * noise_level(gram_variance) + least) * np.eye(gram.shape[0])


def noise_covariance(second: Matrix, gram_variance: Matrix, cross_variance: Vector) -> Matrix:
    """Cov(e - N b) for E[b b^T] = ``second``: the formula at the top, for one matrix or for a stack of them."""
    covariance = gram_variance * second
    squares = np.diagonal(second, axis1=-2, axis2=-1)
    _diagonals(covariance)[...] = (gram_variance @ squares[..., None])[..., 0] + cross_variance
    return covariance


def noise_covariance_in(basis: Matrix | None, second: Matrix, gram_variance: Matrix, cross_variance: Vector) -> Matrix:
    """Return the same where the entries of the Gram are independent in the coordinates of an orthonormal basis; None: in their own."""
    if basis is None:
        return noise_covariance(second, gram_variance, cross_variance)
    back = np.swapaxes(basis, -1, -2)
    covariance = np.asarray(
        basis @ noise_covariance(back @ second @ basis, gram_variance, np.zeros_like(cross_variance)) @ back
    )
    _diagonals(covariance)[...] += cross_variance
    return covariance


def _diagonals(matrices: Matrix) -> Matrix:
    """Return a view of the diagonal of every matrix that can be written to."""
    return np.asarray(np.einsum("...ii->...i", matrices))


def naive_posterior(gram: Matrix, cross: Vector, prior: Vector, noise_precision: float) -> tuple[Vector, Matrix]:
    """Return the posterior that takes noisy moments for exact ones, as published: precision Lambda_0 + lambda M."""
    covariance = np.asarray(np.linalg.pinv(np.diag(prior) + noise_precision * gram, hermitian=True), dtype=np.float64)
    return covariance @ (noise_precision * cross), covariance


def ridge(
    gram: Matrix,
    cross: Vector,
    gram_variance: Matrix,
    cross_variance: Vector,
    penalty: Vector,
    noise_precision: float,
    start: Vector | float = 0.0,
) -> tuple[Vector, Matrix]:
    """Ridge (OLS at penalty 0) on repaired moments, and the covariance of its coefficients: sampling and privacy noise together.

    ``start``: coefficients that the response of the cross moments is already less of. The Gram's noise then meets what is left only.
    """
    m = repaired(gram, gram_variance)
    inverse = np.linalg.inv(m + np.diag(penalty))
    mean = inverse @ (cross + m @ np.broadcast_to(start, cross.shape))
    left = mean - start
    v = psd_part(gram) / noise_precision + noise_covariance(np.outer(left, left), gram_variance, cross_variance)
    covariance = inverse @ v @ inverse
    return mean, (covariance + covariance.T) / 2
