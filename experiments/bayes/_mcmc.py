"""MCMC-normalX, MCMC-fixedS and Bayes-fixedS-fast of Alparslan, Yildirim and Birbil (2023), written from the paper, for one node.

The released S = X'X + noise and z = X'y + noise are known with the variances of their noise. The rows are N(0, Sigma), so that the exact Gram matrix G is
Wishart(n, Sigma), Sigma is inverse Wishart, z given G, theta and sigma^2 is N(G theta, sigma^2 G + V), theta is normal and sigma^2 inverse gamma.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular


class Released(NamedTuple):
    """What one study released: the Gram matrix and the cross moments, the variances of their noise, and the number of rows."""

    gram: np.ndarray
    cross: np.ndarray
    gram_variance: np.ndarray
    cross_variance: np.ndarray
    rows: int


class Prior(NamedTuple):
    """theta ~ N(0, spread I), sigma^2 ~ IG(shape, scale), Sigma ~ IW(Lambda, d + 1) with Lambda the identity times ``square``."""

    spread: float
    shape: float
    scale: float
    square: float


def wishart(scale: np.ndarray, freedom: float, rng: np.random.Generator) -> np.ndarray:
    """A draw of Wishart(freedom, scale), by Bartlett's decomposition."""
    d = len(scale)
    lower = np.tril(rng.normal(size=(d, d)), -1)
    lower[np.diag_indices(d)] = np.sqrt(rng.chisquare(freedom - np.arange(d)))
    root = np.linalg.cholesky(scale) @ lower
    return root @ root.T


def inverse_wishart(scale: np.ndarray, freedom: float, rng: np.random.Generator) -> np.ndarray:
    """A draw of inverse Wishart(freedom, scale)."""
    return np.linalg.inv(wishart(np.linalg.inv(scale), freedom, rng))


def definite(gram: np.ndarray, least: float = 1.0) -> np.ndarray:
    """The nearest positive semidefinite matrix, plus ``least`` on the diagonal."""
    values, vectors = np.linalg.eigh(gram)
    return (vectors * np.maximum(values, 0)) @ vectors.T + least * np.eye(len(gram))


def log_normal(left: np.ndarray, covariance: np.ndarray) -> float:
    """Log density of N(0, covariance), up to a constant."""
    root = np.linalg.cholesky(covariance)
    return float(-np.log(root.diagonal()).sum() - 0.5 * np.square(solve_triangular(root, left, lower=True)).sum())


def log_gram(gram: np.ndarray, sigma: np.ndarray, released: Released, theta: np.ndarray, noise: float) -> float:
    """Log density of a Gram matrix given everything else, up to a constant; -inf outside the positive definite ones."""
    sign, size = np.linalg.slogdet(gram)
    if sign <= 0:
        return -np.inf
    first, second = np.triu_indices(len(gram))
    off = (released.gram - gram)[first, second] ** 2 / released.gram_variance[first, second]
    wishart_part = (released.rows - len(gram) - 1) / 2 * size - 0.5 * np.trace(np.linalg.solve(sigma, gram))
    left, covariance = released.cross - gram @ theta, noise * gram + np.diag(released.cross_variance)
    return float(wishart_part - 0.5 * off.sum() + log_normal(left, covariance))


def moved(
    gram: np.ndarray,
    freedom: float,
    sigma: np.ndarray,
    released: Released,
    theta: np.ndarray,
    noise: float,
    rng: np.random.Generator,
) -> tuple[np.ndarray, bool]:
    """A Metropolis-Hastings step of the Gram matrix: Wishart(freedom, gram / freedom) proposes, its own density corrects."""
    d = len(gram)
    new = wishart(gram / freedom, freedom, rng)
    sizes = np.linalg.slogdet(gram)[1] - np.linalg.slogdet(new)[1]
    back = (freedom - (d + 1) / 2) * sizes
    back += freedom / 2 * (np.trace(np.linalg.solve(gram, new)) - np.trace(np.linalg.solve(new, gram)))
    log_ratio = log_gram(new, sigma, released, theta, noise) - log_gram(gram, sigma, released, theta, noise) + back
    accepted = bool(np.log(rng.random()) < log_ratio)
    return (new if accepted else gram), accepted


def drawn_theta(
    gram: np.ndarray, released: Released, prior: Prior, noise: float, rng: np.random.Generator | None
) -> tuple[np.ndarray, np.ndarray]:
    """A draw of theta given the Gram matrix and sigma^2 (its mean without a generator), and its covariance."""
    covariance = noise * gram + np.diag(released.cross_variance)
    solved = np.linalg.solve(covariance, np.column_stack([gram, released.cross]))
    spread = np.linalg.inv(np.eye(len(gram)) / prior.spread + gram @ solved[:, :-1])
    spread = (spread + spread.T) / 2
    mean = spread @ gram @ solved[:, -1]
    return (mean if rng is None else mean + np.linalg.cholesky(spread) @ rng.normal(size=mean.size)), spread


def drawn_noise(
    noise: float,
    gram: np.ndarray,
    released: Released,
    theta: np.ndarray,
    prior: Prior,
    step: float,
    rng: np.random.Generator,
) -> float:
    """A random-walk step of sigma^2."""
    new = noise + step * rng.normal()
    if new <= 0:
        return noise
    left = released.cross - gram @ theta

    def density(value: float) -> float:
        own = log_normal(left, value * gram + np.diag(released.cross_variance))
        return own - (prior.shape + 1) * np.log(value) - prior.scale / value

    return new if np.log(rng.random()) < density(new) - density(noise) else noise


def chain(
    released: Released, prior: Prior, draws: int, rng: np.random.Generator, *, fixed: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The second half of the draws of theta and of the Gram matrix: MCMC-normalX, or MCMC-fixedS, which keeps the repaired Gram as it is."""
    d, kept_thetas, kept_grams = len(released.cross), [], []
    gram, noise, theta = definite(released.gram), prior.scale / (prior.shape - 1), np.zeros(d)
    freedom, rate, lambda_ = 10 ** (2 * (np.log10(released.rows) - 1)), 0.0, prior.square * np.eye(d)
    for k in range(1, draws + 1):
        if not fixed:
            sigma = inverse_wishart(gram + lambda_, released.rows + d + 1, rng)
            gram, accepted = moved(gram, max(freedom, d + 1.0), sigma, released, theta, noise, rng)
            rate += k**-0.6 * (accepted - rate)
            if k > draws / 10:  # towards an acceptance of .1, as published
                freedom = float(np.exp(np.log(freedom) - k**-0.6 * (rate - 0.1)))
        theta, _ = drawn_theta(gram, released, prior, noise, rng)
        noise = drawn_noise(noise, gram, released, theta, prior, 0.1, rng)
        if k > draws / 2:
            kept_thetas.append(theta)
            kept_grams.append(gram)
    return np.array(kept_thetas), np.array(kept_grams)


def fast(released: Released, prior: Prior, response: float) -> tuple[np.ndarray, np.ndarray]:
    """Bayes-fixedS-fast: the repaired Gram matrix, and a third of the bound on y in the place of sigma^2."""
    return drawn_theta(definite(released.gram, 0.0), released, prior, response / 3, None)
