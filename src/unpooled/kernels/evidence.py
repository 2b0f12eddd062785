r"""Precisions from the release itself: the marginal likelihood of noisy moments, averaged over a grid where it is flat.

The maximum would not do: where the noise hides everything, the likelihood of the prior's deviation is flat and its maximum anywhere.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

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
    def _aware(self) -> NoiseAware:
        """Return the noise-aware regression of these moments, shared by the posteriors under all priors."""
        return NoiseAware(self.gram, self.cross, self.gram_variance, self.cross_variance, self.basis)

    @cached_property
    def likely(self) -> list[tuple[float, NoisyMoments]]:
        """Return the moments for every Gram that the release leaves likely, with the logarithm of its weight."""
        if self.gram_prior is None:
            return [(0.0, self)]
        return [
            (each.log_weight, replace(self, gram=each.gram, gram_variance=each.variance, gram_prior=None, basis=each.basis))
            for each in likely_grams(self.gram, self.gram_variance, self.rows, self.gram_prior)
        ] or [(0.0, self)]

    def log_evidence(self, prior: Vector, noise_variance: float) -> float:
        """Return the log evidence of the cross moments, given M, under coefficients of these prior variances."""
        m, second = self._aware.psd, np.diag(prior)
        covariance = (m * prior) @ m + noise_variance * m
        covariance += noisy_gram.noise_covariance_in(self.basis, second, self.gram_variance, self.cross_variance)
        covariance[np.diag_indices(prior.size)] += 1e-9 * self.rows
        lower = np.linalg.cholesky(covariance)
        scaled = solve_triangular(lower, self.cross, lower=True)
        return float(-0.5 * scaled @ scaled - np.log(lower.diagonal()).sum())

    def posterior(self, prior: Vector, noise_variance: float) -> tuple[Vector, Matrix]:
        """Noise-aware, for coefficients of these prior variances."""
        return self._aware.posterior(1 / prior, 1 / noise_variance)

    def _roughly(self, prior: Vector, noise_variance: float) -> Vector:
        """Return its mean, close enough for a residual variance."""
        return self._aware.posterior(1 / prior, 1 / noise_variance, ROUGHLY)[0]

    def residual_variance(self, squares: float, prior: Vector) -> float:
        """Return the noise variance that the sum of squares of the response leaves, at the posterior of this prior."""
        squares = max(squares, _LEAST * _LEAST * self.rows)
        m, least = self._aware.psd, _LEAST * squares / self.rows
        found = squares / self.rows / 2
        for _ in range(_ROUNDS):
            b = self._roughly(prior, found)
            left = (squares - 2 * b @ self.cross + b @ m @ b) / self.rows
            found = float(np.clip(left, least, squares / self.rows))
        return found

    def averaged(self, squares: float, priors: Sequence[Vector], noise_variance: float | None = None) -> AveragedPosterior:
        """Return the posterior averaged by evidence over the likely Grams and over several prior variances of all coefficients.

        ``squares`` is the noisy sum of y^2, from which the residual variance follows where it is not given.
        """
        with _threads(self.cross.size):
            asked = []
            for weight, known in self.likely:
                for prior in priors:
                    noise = noise_variance or known.residual_variance(squares, prior)
                    asked.append((weight + known.log_evidence(prior, noise), known, prior, noise))
            least = max(each[0] for each in asked) - _UNLIKELY if len(self.likely) > 1 else -np.inf
            found = [
                (evidence, *known.posterior(prior, noise), noise, float(prior[0]))
                for evidence, known, prior, noise in asked
                if evidence >= least
            ]
            return _mixture(found)


def _threads(size: int) -> AbstractContextManager[None]:
    """BLAS on one thread where there is little to do."""
    return one_thread() if size <= _ALONE else nullcontext()


def _mixture(found: Sequence[tuple[float, Vector, Matrix, float, float]]) -> AveragedPosterior:
    """Posteriors weighted by their evidence: its covariance holds how far their means are apart."""
    evidence = np.array([each[0] for each in found])
    weights = np.exp(evidence - evidence.max())
    weights /= weights.sum()
    mean = np.asarray(sum(w * each[1] for w, each in zip(weights, found, strict=True)))
    covariance = np.asarray(
        sum(w * (each[2] + np.outer(each[1] - mean, each[1] - mean)) for w, each in zip(weights, found, strict=True))
    )
    noise, prior = (float(sum(w * each[i] for w, each in zip(weights, found, strict=True))) for i in (3, 4))
    return AveragedPosterior(mean, covariance, noise, prior)


def least_squares_state(moments: NoisyMoments, least: float) -> tuple[Vector, Matrix]:
    """Return the posterior mean and covariance of t - b from noisy residual moments g = M (t - b) + e; t is the rows' own least squares solution.

    Its spread about b is averaged by evidence from ``least``, the deviation that the rounds before are known to have, upwards.
    """
    size, found = moments.cross.size, []
    with _threads(size):
        for deviation in np.geomspace(min(max(least, 2e-3), 0.5), 1.5, 14).tolist():
            prior = np.full(size, deviation**2)
            # The state is a number of these rows: no sampling noise is between it and their moments (Theorem B.8).
            evidence = moments.log_evidence(prior, 0.0)
            found.append((evidence, *moments.posterior(prior, 1e-8), 0.0, deviation**2))
        best = _mixture(found)
    return best.mean, best.covariance
