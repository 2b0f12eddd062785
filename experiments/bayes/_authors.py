"""The Bayes paper under its authors' own settings, which their published program (DPBayes/dca-nips2017) names: written from it and from the supplement.

Every record is a client (N = n). The moments are perturbed by (12) with the classical deviation; marginal variances cost .3 of the budget; thresholds of
features and response are chosen apart, on synthetic data with unit rows; eigenvalues of the noisy Gram become absolute; both precisions are 1.
``mended`` has the two deviations that the program gets wrong as the supplement's own (12) and section 2 have them.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from experiments.bayes._blr import Blr
from scipy.stats import rankdata

from unpooled.kernels.noisy import naive_posterior
from unpooled.papers.bayes import moments_box_as_published

#: Share of epsilon and delta for the marginal variances; what takes the place of a variance that noise made negative.
SHARE, FLOOR = 0.3, 0.5
#: Candidates for both thresholds, in deviations.
CANDIDATES = np.arange(1, 21) / 10


def classical(epsilon: float, delta: float) -> float:
    """The deviation of the classical Gaussian mechanism per unit of sensitivity."""
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def variance_sensitivity(bounds: np.ndarray, *, mended: bool) -> float:
    """What the noise of the marginal variances is scaled to: squares move by c^2 each, so the root of the sum of c^4; the program takes that of c^2."""
    return float(np.sqrt((bounds**4 if mended else bounds**2).sum()))


def search_noise(bounds: np.ndarray, *, mended: bool) -> float:
    """What the noise of the search for thresholds is scaled to: the sensitivity of (12); the program takes its fourth power."""
    sensitivity = moments_box_as_published(bounds[:-1].tolist(), float(bounds[-1]))
    return sensitivity if mended else sensitivity**4


def noisy(gram: np.ndarray, cross: np.ndarray, scale: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Moments with symmetric Gaussian noise of one deviation."""
    upper = np.triu(rng.normal(size=gram.shape))
    return gram + scale * (upper + np.triu(upper, 1).T), cross + scale * rng.normal(size=cross.size)


def slopes(gram: np.ndarray, cross: np.ndarray) -> np.ndarray:
    """The naive posterior mean with precisions 1, of the Gram with absolute eigenvalues."""
    values, vectors = np.linalg.eigh(gram)
    return naive_posterior((vectors * np.abs(values)) @ vectors.T, cross, np.ones(cross.size), 1.0)[0]


def unit(X: np.ndarray) -> np.ndarray:
    """Rows less the columns' means, of length 1."""
    X = X - X.mean(axis=0)
    return X / np.linalg.norm(X, axis=1, keepdims=True)


@functools.cache
def multiples(
    n: int, d: int, epsilon: float, delta: float, measure: str, repeats: int, draw: int, *, mended: bool
) -> tuple[float, float]:
    """The thresholds of features and of response, in deviations, that are best on synthetic data with the noise of the search, drawn anew in every split."""
    rng, total = np.random.default_rng([n, d, repeats, draw]), np.zeros((CANDIDATES.size, CANDIDATES.size))
    for _ in range(repeats):
        X = unit(rng.normal(size=(n, d)))
        y = X @ rng.normal(size=d) + rng.normal(size=n)
        y -= y.mean()
        first, second = CANDIDATES * X.std(), CANDIDATES * y.std()
        clipped, responses = [np.clip(X, -c, c) for c in first], np.array([np.clip(y, -c, c) for c in second])
        grams, crosses = np.array([Z.T @ Z for Z in clipped]), np.array([responses @ Z for Z in clipped])
        sizes = np.array([[search_noise(np.append(np.full(d, c), e), mended=mended) for e in second] for c in first])
        for _ in range(repeats):
            gram, cross = noisy(np.zeros((d, d)), np.zeros(d), classical(epsilon, delta) * math.sqrt(n / (n - 1)), rng)
            precision = np.eye(d) + grams[:, None] + sizes[..., None, None] * gram
            found = np.linalg.solve(precision, (crosses + sizes[..., None] * cross)[..., None])[..., 0] @ X.T
            if measure == "corr":
                ranks, own = rankdata(found, axis=-1), rankdata(y)
                ranks, own = ranks - ranks.mean(axis=-1, keepdims=True), own - own.mean()
                total += ranks @ own / np.sqrt((ranks**2).sum(axis=-1) * (own**2).sum())
            else:
                total -= np.abs(found - y).mean(axis=-1)
    i, j = np.unravel_index(total.argmax(), total.shape)
    return float(CANDIDATES[i]), float(CANDIDATES[j])


class Setting:
    """One data set's published setting: which bounds are assumed, and how thresholds are searched."""

    def __init__(
        self, d: int, delta: float, assumed: tuple[float, float], measure: str, repeats: int, searched: int
    ) -> None:
        self.d, self.delta, self.measure, self.repeats, self.searched = d, delta, measure, repeats, searched
        self.assumed = np.append(np.full(d, assumed[0]), assumed[1])

    def multiples(self, epsilon: float, draw: int, *, mended: bool) -> tuple[float, float]:
        """Drug sensitivity searches with the budget that is left for the moments; the UCI script with all of it. ``draw``: of the synthetic data."""
        left = 1 - SHARE if self.measure == "corr" or mended else 1.0
        given = self.searched, self.d, left * epsilon, left * self.delta, self.measure, self.repeats
        return multiples(*given, draw, mended=mended)

    def plain(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        """NP: no noise."""
        return slopes(X.T @ X, X.T @ y)

    def unprojected(
        self, X: np.ndarray, y: np.ndarray, bounds: np.ndarray, epsilon: float, factor: float, rng: np.random.Generator
    ) -> np.ndarray:
        """TA, DDP and input perturbation: noise variances 1, n / (n - 1) and n times the classical one; nothing is clipped."""
        sensitivity = moments_box_as_published(bounds[:-1].tolist(), float(bounds[-1]))
        scale = classical(epsilon, self.delta) * sensitivity * math.sqrt(factor)
        return slopes(*noisy(X.T @ X, X.T @ y, scale, rng))

    def projected(
        self, X: np.ndarray, y: np.ndarray, epsilon: float, rng: np.random.Generator, draw: int, *, mended: bool
    ) -> np.ndarray:
        """Proj DDP: Algorithm 2 with one client per record."""
        n, rows = y.size, np.clip(np.column_stack([X, y]), -self.assumed, self.assumed)
        scale = classical(SHARE * epsilon, SHARE * self.delta) * variance_sensitivity(self.assumed, mended=mended)
        variances = (rows**2).mean(axis=0) + scale * math.sqrt(n / (n - 1)) / n * rng.normal(size=self.d + 1)
        variances[variances <= 0] = FLOOR
        first, second = self.multiples(epsilon, draw, mended=mended)
        bounds = np.sqrt(variances) * np.append(np.full(self.d, first), second)
        bounds = np.minimum(bounds, self.assumed)
        X, y = np.clip(X, -bounds[:-1], bounds[:-1]), np.clip(y, -bounds[-1], bounds[-1])
        sensitivity = moments_box_as_published(bounds[:-1].tolist(), float(bounds[-1]))
        scale = classical((1 - SHARE) * epsilon, (1 - SHARE) * self.delta) * sensitivity * math.sqrt(n / (n - 1))
        return slopes(*noisy(X.T @ X, X.T @ y, scale, rng))


@functools.cache
def ours(
    n: int, d: int, epsilon: float, delta: float, bounds: tuple[float, float] | None, y_bound: float, share: float
) -> Blr:
    """The sound form on the same rows with the same model: noise-aware, precisions 1; by a trusted party, which N = n costs the factor n / (n - 1) more."""
    from unpooled import Bounds

    given = {"bounds": bounds or Bounds(norm=1.0), "fit_intercept": False, "aggregation": "trusted", "projection": share}
    return Blr(n, d, epsilon, y_bound, sites=2, delta=delta, **given)
