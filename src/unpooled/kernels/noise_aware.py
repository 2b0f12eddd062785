r"""The noise-aware posterior of noisy moments (Theorem B.4), of many Grams and priors at once.

With M the PSD part of the noisy Gram, the posterior is a fixed point in the second moment S of the coefficients:

    V = M / lambda + Cov(e - N b),   C = (Lambda_0 + M V^-1 M)^-1,   b = C M V^-1 m,   S = b b^T + C.

Steps are Anderson's, a combination of the last evaluations that makes their residual smallest; where they lead nowhere, half of the old S is
kept instead, and what follows from it is solved for as it stands above. The fixed point of one noise precision is where the search for the next
one begins. Small matrices are factorised in stacks. Of large ones each evaluation takes two Cholesky factors, one triangular solution and one
symmetric product: 10/3 d^3 operations.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import LinAlgError, blas, lapack

from unpooled.kernels import noisy_gram

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]
    Vector = NDArray[np.float64]
    #: A matrix, or a vector, for every candidate.
    Matrices = NDArray[np.float64]
    Vectors = NDArray[np.float64]
    Flags = NDArray[np.bool_]

#: Anderson's steps before half steps are taken, how many evaluations they combine, and the half steps at most.
_QUICK, _DEPTH, _ROUNDS = 30, 4, 200
#: It has settled where an evaluation moves the mean by no more than this part of its largest entry, and the second moment by ten times that part.
_MOVES = 1e-11
#: The same on the way to a residual variance, which is itself known to a few percent.
ROUGHLY = 1e-6
#: Up to this size a call of LAPACK takes less time than what surrounds it, and stacks of matrices go into one call.
_SMALL = 24


class NoiseAware:
    """Candidates, each a Gram with the variances of its noise and a prior, whose posteriors are wanted for several noise precisions."""

    def __init__(
        self,
        psd: Matrices,
        cross: Vector,
        gram_variance: Matrices,
        cross_variance: Vector,
        prior: Vectors,
        basis: Matrices | None = None,
    ) -> None:
        """Take the PSD parts of the Grams, the cross moments that all have in common, and the prior precision of every coefficient.

        ``basis``: orthonormal columns in whose coordinates the variances of a Gram hold; None: in their own.
        """
        self.psd, self.gram_variance, self.prior, self.basis = psd, gram_variance, prior, basis
        self.cross, self.cross_variance = cross, cross_variance
        self._below = np.tril(np.ones((cross.size, cross.size)), -1)
        self._diagonal = np.eye(cross.size)
        self._second = self._diagonal / prior[:, None, :]

    def posterior(self, noise_precision: Vector, moves: float = _MOVES) -> tuple[Vectors, Matrices]:
        """Return means and covariances for these precisions of the response's own noise, one of every candidate.

        ``moves`` is the part of the largest entry by which the mean of a posterior that has settled may still move.
        """
        largest = np.diagonal(self.psd, axis1=1, axis2=2).max(axis=1, initial=0.0)
        floor = 1e-12 * (largest / noise_precision + self.cross_variance.max(initial=0.0) + 1e-300)
        sampling = self.psd / noise_precision[:, None, None] + self._diagonal * floor[:, None, None]
        means, covariances = np.zeros_like(self.prior), np.zeros_like(self._second)
        for at in self._quickly(sampling, moves, means, covariances):
            means[at], covariances[at] = self._slowly(at, sampling[at])
        self._second = _second_moments(means, covariances)
        return means, covariances

    def _quickly(self, sampling: Matrices, moves: float, means: Vectors, covariances: Matrices) -> list[int]:
        """Write the fixed points that Anderson's steps reach; return the candidates of which they reach none."""
        at, second, before, left = np.arange(len(self.prior)), self._second, np.zeros_like(self.prior), []
        images: list[Matrices] = []
        residuals: list[Matrices] = []
        for _ in range(_QUICK):
            mean, covariance, whole = self._evaluated(at, second, sampling[at])
            image = _second_moments(mean, covariance)
            residual = image - second
            done = _settled(mean, before, image, residual, moves)
            means[at[done]], covariances[at[done]] = mean[done], covariance[done]
            left += at[~whole].tolist()
            on = whole & ~done
            if not on.any():
                return left
            at, before = at[on], mean[on]
            images = [each[on] for each in (*images[-_DEPTH:], image)]
            residuals = [each[on] for each in (*residuals[-_DEPTH:], residual)]
            try:
                second = _combined(images, residuals)
            except LinAlgError:  # numbers beyond all bounds
                break
        return left + at.tolist()

    def _slowly(self, at: int, sampling: Matrix) -> tuple[Vector, Matrix]:
        """Return half of the old second moment at each step: without it, moments that contradict the prior make the iteration swing for ever."""
        mean, covariance = np.zeros(self.cross.size), np.diag(1 / self.prior[at])
        second = covariance
        for _ in range(_ROUNDS):
            second = (second + np.outer(mean, mean) + covariance) / 2
            before = mean
            mean, covariance = self._plainly(at, second, sampling)
            image = np.outer(mean, mean) + covariance
            if _settled(mean[None], before[None], image[None], (image - second)[None])[0]:
                break
        return mean, covariance

    def _met(self, at: Sequence[int] | NDArray[np.intp] | int, second: Matrices) -> Matrices:
        """Return the covariance of the noise that coefficients of these second moments meet."""
        basis = None if self.basis is None else self.basis[at]
        return noisy_gram.noise_covariance_in(basis, second, self.gram_variance[at], self.cross_variance)

    def _evaluated(self, at: NDArray[np.intp], second: Matrices, sampling: Matrices) -> tuple[Vectors, Matrices, Flags]:
        """Return the means and the covariances that follow from second moments, and of which candidates all factors were found."""
        v = sampling + self._met(at, second)
        if self.cross.size <= _SMALL:
            try:
                return *self._together(v, self.psd[at], self.prior[at]), np.ones(at.size, dtype=bool)
            except LinAlgError:  # of one or more: which, is seen one by one
                pass
        means, covariances, whole = np.zeros((at.size, self.cross.size)), np.zeros_like(v), np.ones(at.size, dtype=bool)
        for k, place in enumerate(at.tolist()):
            try:
                means[k], covariances[k] = self._alone(v[k], self.psd[place], self.prior[place])
            except LinAlgError:  # a combination of second moments that is none
                whole[k] = False
        return means, covariances, whole

    def _together(self, v: Matrices, psd: Matrices, prior: Vectors) -> tuple[Vectors, Matrices]:
        """Return means and covariances of a stack of small matrices."""
        cross = np.broadcast_to(self.cross[:, None], (len(v), self.cross.size, 1))
        scaled = np.linalg.solve(np.linalg.cholesky(v), np.concatenate([psd, cross], axis=2))  # L^-1 (M, m), where L L' = V
        left = np.swapaxes(scaled[..., :-1], -1, -2)
        root = np.linalg.inv(np.linalg.cholesky(left @ scaled[..., :-1] + self._diagonal * prior[:, None, :]))
        covariance = np.swapaxes(root, -1, -2) @ root
        covariance = (covariance + np.swapaxes(covariance, -1, -2)) / 2
        return (covariance @ (left @ scaled[..., -1:]))[..., 0], covariance

    def _alone(self, v: Matrix, psd: Matrix, prior: Vector) -> tuple[Vector, Matrix]:
        """Return the mean and the covariance of one large matrix."""
        lower = _cholesky(v)
        scaled = blas.dtrsm(1.0, lower, np.asfortranarray(psd), lower=1)  # L^-1 M, where L L' = V
        precision = blas.dsyrk(1.0, scaled, trans=1, lower=1)
        precision[np.diag_indices(prior.size)] += prior
        root = _cholesky(precision)
        whitened = blas.dtrsm(1.0, lower, self.cross[:, None], lower=1)
        mean = lapack.dpotrs(root, scaled.T @ whitened, lower=1)[0][:, 0]
        inverse = lapack.dpotri(root, lower=1, overwrite_c=1)[0]
        below = inverse * self._below  # what stands above the diagonal are leftovers of the factor
        return mean, np.asarray(inverse * self._diagonal + below + below.T)

    def _plainly(self, at: int, second: Matrix, sampling: Matrix) -> tuple[Vector, Matrix]:
        """Return the same without factors that rounding may break: of moments without noise whose columns are collinear, for example."""
        weighted = np.linalg.solve(sampling + self._met(at, second), self.psd[at])  # V^-1 M
        precision = np.diag(self.prior[at]) + self.psd[at] @ weighted
        covariance = np.asarray(np.linalg.inv((precision + precision.T) / 2))
        covariance = (covariance + covariance.T) / 2
        return covariance @ (weighted.T @ self.cross), covariance


def posterior(
    gram: Matrix, cross: Vector, gram_variance: Matrix, cross_variance: Vector, prior: Vector, noise_precision: float
) -> tuple[Vector, Matrix]:
    """Return the mean and covariance of the noise-aware posterior for one prior precision of every coefficient and one noise precision."""
    psd = noisy_gram.psd_part(gram)[None]
    known = NoiseAware(psd, cross, gram_variance[None], cross_variance, prior[None])
    means, covariances = known.posterior(np.array([noise_precision]))
    return means[0], covariances[0]


def _cholesky(matrix: Matrix) -> Matrix:
    """Return the lower factor of a symmetric matrix, of which the lower triangle is read; it is overwritten."""
    factor, failed = lapack.dpotrf(np.asfortranarray(matrix), lower=1, clean=0, overwrite_a=1)
    if failed:
        raise LinAlgError("the matrix is not positive definite")
    return np.asarray(factor)


def _second_moments(means: Vectors, covariances: Matrices) -> Matrices:
    return np.asarray(means[:, :, None] * means[:, None, :] + covariances)


def _settled(mean: Vectors, before: Vectors, second: Matrices, residual: Matrices, moves: float = _MOVES) -> Flags:
    """Return the candidates of which an evaluation left the mean and the second moment where they were."""

    def largest(each: Matrices) -> Vector:
        return np.asarray(np.abs(each.reshape(len(each), -1)).max(axis=1, initial=0.0))

    still = largest(mean - before) <= moves * largest(mean)
    return np.asarray(still & (largest(residual) <= 10 * moves * largest(second)))


def _combined(images: list[Matrices], residuals: list[Matrices]) -> Matrices:
    """Anderson's next argument: the last image, less what the differences of the residuals say that is still wrong with it."""
    if len(images) == 1:
        return images[-1]
    last = residuals[-1].reshape(len(residuals[-1]), -1, 1)
    differences = np.stack([(later - earlier).reshape(len(last), -1) for earlier, later in pairwise(residuals)], axis=1)
    products = differences @ np.swapaxes(differences, -1, -2)
    weights = np.linalg.pinv(products, rcond=1e-14, hermitian=True) @ (differences @ last)
    result = images[-1].copy()
    for k, (earlier, later) in enumerate(pairwise(images)):
        result -= weights[:, k, :, None] * (later - earlier)
    return result
