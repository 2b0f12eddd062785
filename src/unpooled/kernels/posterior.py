"""Posteriors from noisy moments: noise-aware coefficients, precisions from the release itself, and sandwich covariances."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, blas, lapack, solve_triangular

from unpooled.kernels import noisy as noisy_gram
from unpooled.kernels.noisy import GramPrior, likely_grams
from unpooled.kernels.threads import one_thread
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]
    Vector = NDArray[np.float64]
    #: A matrix, or a vector, for every candidate.
    Matrices = NDArray[np.float64]
    Vectors = NDArray[np.float64]
    Flags = NDArray[np.bool_]


# --- Noise aware -----------------------------------------------------------------------------------------------------------
# The noise-aware posterior of noisy moments (Theorem B.4), of many Grams and priors at once.
#
# With M the PSD part of the noisy Gram, the posterior is a fixed point in the second moment S of the coefficients:
#
#     V = M / lambda + Cov(e - N b),   C = (Lambda_0 + M V^-1 M)^-1,   b = C M V^-1 m,   S = b b^T + C.
#
# Steps are Anderson's, a combination of the last evaluations that makes their residual smallest; where they lead nowhere, half of the old S is
# kept instead, and what follows from it is solved for as it stands above. The fixed point of one noise precision is where the search for the next
# one begins. Small matrices are factorised in stacks. Of large ones each evaluation takes two Cholesky factors, one triangular solution and one
# symmetric product: 10/3 d^3 operations.

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


# --- Evidence --------------------------------------------------------------------------------------------------------------
# Precisions from the release itself: the marginal likelihood of noisy moments, averaged over a grid where it is flat.
#
# The maximum would not do: where the noise hides everything, the likelihood of the prior's deviation is flat and its maximum anywhere.

_TUNED = table("evidence")
#: Deviations of the prior of one standardised or coded coefficient that are tried.
PRIORS = np.geomspace(*_TUNED.pair("prior_deviations"), 14)
#: Residual variance is never taken for less than this part of the response's second moment.
_LEAST = _TUNED.residual_least
_EVIDENCE_ROUNDS = 4
#: Of several Grams and priors, those whose evidence is less than exp(-6) of the largest are left out.
_UNLIKELY = 6.0
#: Numbers in one stack of matrices, which a cache of 256 KB holds next to another.
_AT_ONCE = 1 << 14
#: With no more coefficients than this, two threads of BLAS wait for each other longer than they work.
_ALONE = 700


@dataclass(frozen=True)
class AveragedPosterior:
    """A posterior averaged over priors, and the precisions that were found."""

    mean: Vector
    covariance: Matrix
    noise_variance: float
    prior_variance: float


@dataclass(frozen=True)
class NoisyMoments:
    """M = Z'Z + N and m = Z'v + e with the variances of their noise, over ``rows`` rows."""

    gram: Matrix
    cross: Vector
    gram_variance: Matrix
    cross_variance: Vector
    rows: int
    #: What is known of the rows' Gram before its release; None: it is taken as it was released.
    gram_prior: GramPrior | None = None
    #: Orthonormal columns, in whose coordinates ``gram_variance`` holds; None where they are those of the moments.
    basis: Matrix | None = None

    @cached_property
    def likely(self) -> list[tuple[float, NoisyMoments]]:
        """Return the moments for every Gram that the release leaves likely, with the logarithm of its weight."""
        if self.gram_prior is None:
            return [(0.0, self)]
        return [
            (each.log_weight, replace(self, gram=each.gram, gram_variance=each.variance, gram_prior=None, basis=each.basis))
            for each in likely_grams(self.gram, self.gram_variance, self.rows, self.gram_prior)
        ] or [(0.0, self)]

    def averaged(self, squares: float, priors: Sequence[Vector], noise_variance: float | None = None) -> AveragedPosterior:
        """Return the posterior averaged by evidence over the likely Grams and over several prior variances of all coefficients.

        ``squares`` is the noisy sum of y^2, from which the residual variance follows where it is not given.
        """
        with _threads(self.cross.size):
            asked = [
                Candidate(weight, psd, known.gram_variance, known.basis, prior)
                for weight, known in self.likely
                for psd in (noisy_gram.psd_part(known.gram),)
                for prior in priors
            ]
            noise, evidence = np.empty(len(asked)), np.empty(len(asked))
            for part in _parts(len(asked), self.cross.size):
                some = Candidates(self, asked[part])
                noise[part] = some.residual_variance(squares) if noise_variance is None else noise_variance
                evidence[part] = some.log_evidence(noise[part])
            least = evidence.max() - _UNLIKELY if len(self.likely) > 1 else -np.inf
            likely = np.flatnonzero(evidence >= least)
            return self.mixture([asked[k] for k in likely.tolist()], evidence[likely], noise[likely])

    def mixture(self, asked: Sequence[Candidate], evidence: Vector, noise: Vector) -> AveragedPosterior:
        """Return the posteriors of candidates weighted by their evidence: its covariance holds how far their means are apart."""
        weights = np.exp(evidence - evidence.max())
        weights /= weights.sum()
        means, covariance = np.empty((len(asked), self.cross.size)), np.zeros((self.cross.size, self.cross.size))
        for part in _parts(len(asked), self.cross.size):
            means[part], covariances = Candidates(self, asked[part]).posterior(noise[part])
            covariance += np.einsum("k,kij->ij", weights[part], covariances)
        mean = weights @ means
        apart = means - mean
        covariance += (weights * apart.T) @ apart
        prior = float(weights @ np.array([one.prior[0] for one in asked]))
        return AveragedPosterior(mean, covariance, float(weights @ noise), prior)


class Candidate(NamedTuple):
    """A Gram that is likely, with the logarithm of its weight, and the prior variances of the coefficients."""

    log_weight: float
    psd: Matrix
    gram_variance: Matrix
    basis: Matrix | None
    prior: Vector


class Candidates:
    """Several candidates for the same cross moments: their residual variances, evidence and posteriors."""

    def __init__(self, moments: NoisyMoments, asked: Sequence[Candidate]) -> None:
        self.moments, self.log_weights = moments, np.array([one.log_weight for one in asked])
        self.psd, self.prior = np.stack([one.psd for one in asked]), np.stack([one.prior for one in asked])
        self.gram_variance = np.stack([one.gram_variance for one in asked])
        bases = [one.basis for one in asked if one.basis is not None]
        self.basis = np.stack(bases) if bases else None
        self._aware = NoiseAware(
            self.psd, moments.cross, self.gram_variance, moments.cross_variance, 1 / self.prior, self.basis
        )

    def log_evidence(self, noise_variance: Vector) -> Vector:
        """Return the log evidence of the cross moments, given the Grams, with the logarithm of their weights."""
        m, cross, rows = self.psd, self.moments.cross, self.moments.rows
        one = np.eye(cross.size)
        second = one * self.prior[:, None, :]
        covariance = (m * self.prior[:, None, :]) @ m + noise_variance[:, None, None] * m + 1e-9 * rows * one
        covariance += noisy_gram.noise_covariance_in(self.basis, second, self.gram_variance, self.moments.cross_variance)
        lower = np.linalg.cholesky(covariance)
        scaled = np.array([solve_triangular(each, cross, lower=True, check_finite=False) for each in lower])
        logs = np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1)
        return np.asarray(self.log_weights - 0.5 * np.square(scaled).sum(axis=1) - logs)

    def posterior(self, noise_variance: Vector) -> tuple[Matrix, NDArray[np.float64]]:
        """Return the means and the covariances of the noise-aware posteriors."""
        return self._aware.posterior(1 / noise_variance)

    def residual_variance(self, squares: float) -> Vector:
        """Return the noise variance that the sum of squares of the response leaves, at the posterior of each candidate."""
        rows, cross = self.moments.rows, self.moments.cross
        squares = max(squares, _LEAST * _LEAST * rows)
        found = np.full(len(self.psd), squares / rows / 2)
        for _ in range(_EVIDENCE_ROUNDS):
            b, _ = self._aware.posterior(1 / found, ROUGHLY)  # close enough for a residual variance
            left = (squares - 2 * b @ cross + np.einsum("ki,kij,kj->k", b, self.psd, b)) / rows
            found = np.clip(left, _LEAST * squares / rows, squares / rows)
        return found


def _parts(count: int, size: int) -> list[slice]:
    """Return parts of a list of candidates whose matrices fit into memory together."""
    step = max(1, _AT_ONCE // max(size, 1) ** 2)
    return [slice(start, start + step) for start in range(0, count, step)]


def _threads(size: int) -> AbstractContextManager[None]:
    """BLAS on one thread where there is little to do."""
    return one_thread() if size <= _ALONE else nullcontext()


def least_squares_state(moments: NoisyMoments, least: float) -> tuple[Vector, Matrix]:
    """Return the posterior mean and covariance of t - b from noisy residual moments g = M (t - b) + e; t is the rows' own least squares solution.

    Its spread about b is averaged by evidence from ``least``, the deviation that the rounds before are known to have, upwards.
    """
    lowest, highest, end = _TUNED.several("state_deviations")
    deviations, psd = np.geomspace(min(max(least, lowest), highest), end, 14), noisy_gram.psd_part(moments.gram)
    priors = [np.full(moments.cross.size, deviation**2) for deviation in deviations.tolist()]
    asked = [Candidate(0.0, psd, moments.gram_variance, moments.basis, prior) for prior in priors]
    with _threads(moments.cross.size):
        # The state is a number of these rows: no sampling noise is between it and their moments (Theorem B.8).
        evidence = np.concatenate(
            [
                Candidates(moments, asked[part]).log_evidence(np.zeros(len(asked[part])))
                for part in _parts(len(asked), psd.shape[0])
            ]
        )
        best = moments.mixture(asked, evidence, np.full(len(asked), 1e-8))
    return best.mean, best.covariance


# --- Sandwich --------------------------------------------------------------------------------------------------------------
# The middle of a sandwich covariance from its noisy release: drawn to the model's as far as the noise asks for.
#
# With Q the model's own second moments of scores and B the released ones, W = Q^-1/2 (B - Q) Q^-1/2 is what data say against the model. Its mean
# eigenvalue (how much larger all scores are) and the rest (which directions are larger than others) are each multiplied by James and Stein's
# factor max(0, 1 - E|N|^2 / |W|^2), N the noise in the same metric.

#: Scores in no direction are less than this part of what the model says: raising eigenvalues is harmless, and noise makes some negative.
_LEAST_FACTOR = _TUNED.scores_least


def drawn_to_model(released: Matrix, variance: Matrix, model: Matrix) -> Matrix:
    """Return second moments of scores, positive semidefinite, over the directions in which the model's are positive.

    ``variance`` holds the noise variance of every entry: of those on the diagonal twice that of the others, so it is the same in any basis.
    """
    values, vectors = np.linalg.eigh(model)
    kept = values > 1e-10 * max(float(values.max(initial=0.0)), 1e-300)
    if not kept.any():  # noise hides every direction: no coefficient has a standard error
        return np.zeros(model.shape)
    root = np.sqrt(values[kept])
    inward = vectors[:, kept] / root
    own, size = inward.T @ released @ inward, root.size
    excess = own - np.eye(size)
    noise = float(variance.diagonal().mean()) / np.outer(root**2, root**2)  # on the diagonal; half of it elsewhere
    mean = float(np.trace(excess)) / size
    mean *= _kept(mean**2, float(noise.trace()) / size**2)
    rest = excess - np.eye(size) * np.trace(excess) / size
    rest *= _kept(float(np.square(rest).sum()), float(noise.sum() + noise.trace()) / 2)
    found, turned = np.linalg.eigh((1 + mean) * np.eye(size) + rest)
    outward = (vectors[:, kept] * root) @ turned
    return np.asarray((outward * np.maximum(found, _LEAST_FACTOR)) @ outward.T)


def _kept(square: float, noise: float) -> float:
    """Return the part of a difference of this squared length that is kept where its noise has this expected squared length."""
    return max(0.0, 1 - noise / square) if square > 0 else 0.0
