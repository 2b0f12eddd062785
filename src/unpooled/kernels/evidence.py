r"""Precisions from the release itself: the marginal likelihood of noisy moments, averaged over a grid where it is flat.

The maximum would not do: where the noise hides everything, the likelihood of the prior's deviation is flat and its maximum anywhere.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from unpooled.kernels import noisy_gram
from unpooled.kernels.likely_grams import GramPrior, likely_grams
from unpooled.kernels.noise_aware import ROUGHLY, NoiseAware
from unpooled.kernels.threads import one_thread

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]
    Vector = NDArray[np.float64]

#: Deviations of the prior of one standardised or coded coefficient that are tried.
PRIORS = np.geomspace(0.01, 3.0, 14)
#: Residual variance is never taken for less than this part of the response's second moment.
_LEAST = 1e-3
_ROUNDS = 4
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
        for _ in range(_ROUNDS):
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
    deviations, psd = np.geomspace(min(max(least, 2e-3), 0.5), 1.5, 14), noisy_gram.psd_part(moments.gram)
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
