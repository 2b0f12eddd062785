r"""The noise-aware posterior of noisy moments (Theorem B.4) for many priors and noise precisions: what they share is worked out once.

With M the PSD part of the noisy Gram, the posterior is a fixed point in the second moment S of the coefficients:

    V = M / lambda + Cov(e - N b),   C = (Lambda_0 + M V^-1 M)^-1,   b = C M V^-1 m,   S = b b^T + C.

Each evaluation takes two Cholesky factors, one triangular solution and one symmetric product: 10/3 d^3 operations. Steps are Anderson's, a
combination of the last evaluations that makes their residual smallest; where they lead nowhere, half of the old S is kept instead, and what
follows from it is solved for as it stands above. The fixed point of one noise precision is where the search for the next one begins.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import LinAlgError, blas, lapack

from unpooled.kernels import noisy_gram

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]
    Vector = NDArray[np.float64]

#: Anderson's steps before half steps are taken, how many evaluations they combine, and the half steps at most.
_QUICK, _DEPTH, _ROUNDS = 30, 4, 200
#: It has settled where an evaluation moves the mean by no more than this part of its largest entry, and the second moment by ten times that part.
_MOVES = 1e-11
#: The same on the way to a residual variance, which is itself known to a few percent.
ROUGHLY = 1e-6


class NoiseAware:
    """One pair of noisy moments, whose posteriors are wanted for several priors and noise precisions."""

    def __init__(
        self, gram: Matrix, cross: Vector, gram_variance: Matrix, cross_variance: Vector, basis: Matrix | None = None
    ) -> None:
        self.psd = np.asfortranarray(noisy_gram.psd_part(gram))
        self.basis = basis  # in whose coordinates the variances of the Gram hold
        self.cross, self.gram_variance, self.cross_variance = cross, gram_variance, cross_variance
        self._below = np.tril(np.ones_like(self.psd), -1)
        self._diagonal = np.eye(cross.size)
        self._prior: Vector | None = None
        self._second: Matrix | None = None

    def posterior(self, prior: Vector, noise_precision: float, moves: float = _MOVES) -> tuple[Vector, Matrix]:
        """Return the mean and covariance for these prior precisions of the coefficients and this precision of the response's own noise.

        ``moves`` is the part of the largest entry by which the mean of a posterior that has settled may still move.
        """
        same = self._prior is not None and np.array_equal(prior, self._prior)
        start = self._second if same and self._second is not None else np.diag(1 / prior)
        floor = 1e-12 * (
            self.psd.diagonal().max(initial=0.0) / noise_precision + self.cross_variance.max(initial=0.0) + 1e-300
        )
        sampling = self.psd / noise_precision
        sampling[np.diag_indices(prior.size)] += floor
        mean, covariance = self._settled(start, sampling, prior, moves)
        self._prior, self._second = prior.copy(), np.outer(mean, mean) + covariance
        return mean, covariance

    def _settled(self, start: Matrix, sampling: Matrix, prior: Vector, moves: float) -> tuple[Vector, Matrix]:
        """Return the fixed point: by Anderson's steps, or by half steps from the prior where these do not settle."""
        try:
            found = self._quickly(start, sampling, prior, moves)
        except LinAlgError:  # a combination of second moments that is none
            found = None
        return self._slowly(sampling, prior) if found is None else found

    def _quickly(self, second: Matrix, sampling: Matrix, prior: Vector, moves: float) -> tuple[Vector, Matrix] | None:
        before = np.zeros(self.cross.size)
        images: list[Matrix] = []
        residuals: list[Matrix] = []
        for _ in range(_QUICK):
            mean, covariance = self._evaluated(second, sampling, prior)
            image = np.outer(mean, mean) + covariance
            residual = image - second
            if _settled(mean, before, image, residual, moves):
                return mean, covariance
            before, images, residuals = mean, [*images[-_DEPTH:], image], [*residuals[-_DEPTH:], residual]
            second = _combined(images, residuals)
        return None

    def _slowly(self, sampling: Matrix, prior: Vector) -> tuple[Vector, Matrix]:
        """Return half of the old second moment at each step: without it, moments that contradict the prior make the iteration swing for ever."""
        mean, covariance = np.zeros(self.cross.size), np.diag(1 / prior)
        second = covariance
        for _ in range(_ROUNDS):
            second = (second + np.outer(mean, mean) + covariance) / 2
            before = mean
            mean, covariance = self._plainly(second, sampling, prior)
            image = np.outer(mean, mean) + covariance
            if _settled(mean, before, image, image - second):
                break
        return mean, covariance

    def _evaluated(self, second: Matrix, sampling: Matrix, prior: Vector) -> tuple[Vector, Matrix]:
        """Return the mean and the covariance that follow from a second moment."""
        v = sampling + noisy_gram.noise_covariance_in(self.basis, second, self.gram_variance, self.cross_variance)
        lower = _cholesky(v)
        scaled = blas.dtrsm(1.0, lower, self.psd, lower=1)  # L^-1 M, where L L' = V
        precision = blas.dsyrk(1.0, scaled, trans=1, lower=1)
        precision[np.diag_indices(prior.size)] += prior
        root = _cholesky(precision)
        whitened = blas.dtrsm(1.0, lower, self.cross[:, None], lower=1)
        mean = lapack.dpotrs(root, scaled.T @ whitened, lower=1)[0][:, 0]
        inverse = lapack.dpotri(root, lower=1, overwrite_c=1)[0]
        below = inverse * self._below  # what stands above the diagonal are leftovers of the factor
        return mean, np.asarray(inverse * self._diagonal + below + below.T)

    def _plainly(self, second: Matrix, sampling: Matrix, prior: Vector) -> tuple[Vector, Matrix]:
        """Return the same without factors that rounding may break: of moments without noise whose columns are collinear, for example."""
        v = sampling + noisy_gram.noise_covariance_in(self.basis, second, self.gram_variance, self.cross_variance)
        weighted = np.linalg.solve(v, self.psd)  # V^-1 M
        precision = np.diag(prior) + self.psd @ weighted
        covariance = np.asarray(np.linalg.inv((precision + precision.T) / 2))
        covariance = (covariance + covariance.T) / 2
        return covariance @ (weighted.T @ self.cross), covariance


def posterior(
    gram: Matrix, cross: Vector, gram_variance: Matrix, cross_variance: Vector, prior: Vector, noise_precision: float
) -> tuple[Vector, Matrix]:
    """Return the mean and covariance of the noise-aware posterior for one prior precision of every coefficient and one noise precision."""
    return NoiseAware(gram, cross, gram_variance, cross_variance).posterior(prior, noise_precision)


def _cholesky(matrix: Matrix) -> Matrix:
    """Return the lower factor of a symmetric matrix, of which the lower triangle is read; it is overwritten."""
    factor, failed = lapack.dpotrf(np.asfortranarray(matrix), lower=1, clean=0, overwrite_a=1)
    if failed:
        raise LinAlgError("the matrix is not positive definite")
    return np.asarray(factor)


def _settled(mean: Vector, before: Vector, second: Matrix, residual: Matrix, moves: float = _MOVES) -> bool:
    """Return True if an evaluation left the mean and the second moment where they were."""
    moved = float(np.abs(mean - before).max(initial=0.0))
    return (
        moved <= moves * float(np.abs(mean).max(initial=0.0))
        and float(np.abs(residual).max(initial=0.0)) <= 10 * moves * float(np.abs(second).max(initial=0.0))
    )  # fmt: skip


def _combined(images: list[Matrix], residuals: list[Matrix]) -> Matrix:
    """Anderson's next argument: the last image, less what the differences of the residuals say that is still wrong with it."""
    last = residuals[-1]
    if len(images) == 1:
        return images[-1]
    differences = [later - earlier for earlier, later in pairwise(residuals)]
    products = np.array([[np.vdot(a, b) for b in differences] for a in differences])
    weights = np.linalg.lstsq(products, np.array([np.vdot(a, last) for a in differences]), rcond=1e-14)[0]
    result = images[-1].copy()
    for weight, (earlier, later) in zip(weights.tolist(), pairwise(images), strict=True):
        result -= weight * (later - earlier)
    return result
