"""Theorems about what totals give for free, which no sensitivity rests on: B.9, G.5, P.7 and P.8, each by numbers, with one that breaks it."""

from __future__ import annotations

import numpy as np
import pytest

from unpooled.models.pride.plan import PublicSketch

RNG = np.random.default_rng(0)


def least_margin(variance: np.ndarray, bound: np.ndarray) -> float:
    """The smallest eigenvalue of bound - variance, in units of the bound: not below 0 if the bound holds in every direction."""
    root = np.linalg.inv(np.linalg.cholesky(bound))
    return float(np.linalg.eigvalsh(np.eye(len(bound)) - root @ variance @ root.T).min())


@pytest.mark.parametrize("tails", [3, 30])
def test_b9_shortened_rows_vary_at_most_as_their_mean_weight_says(tails: int) -> None:
    """Theorem B.9: isotropic rows given their length, shortened to R; weights that rise with the length break it."""
    d, n = 4, 400_000
    rows = RNG.standard_normal((n, d)) / np.sqrt(RNG.chisquare(tails, (n, 1)) / tails)
    length = np.linalg.norm(rows, axis=1)
    for weights, holds in ((np.minimum(1.0, np.sqrt(d) / length), True), (np.minimum(1.0, length / np.sqrt(d)), False)):
        moments = (rows * weights[:, None] ** 2).T @ rows
        inverse = np.linalg.inv(moments)
        variance = inverse @ ((rows * weights[:, None] ** 4).T @ rows) @ inverse
        assert (least_margin(variance, np.mean(weights**2) * inverse) >= -1e-2) == holds


def test_g5_scaled_rows_vary_at_most_as_the_curvature_says() -> None:
    """Theorem G.5: with factors h of at most 1 the sampling covariance of a Newton step is at most phi M^-1; with larger ones it is not."""
    rows, weight = RNG.standard_normal((500, 5)), RNG.uniform(0.01, 0.25, 500)
    for factor, holds in ((RNG.uniform(0.1, 1.0, 500), True), (RNG.uniform(1.5, 3.0, 500), False)):
        inverse = np.linalg.inv((rows * (factor * weight)[:, None]).T @ rows)
        sandwich = inverse @ ((rows * (factor**2 * weight)[:, None]).T @ rows) @ inverse
        assert (least_margin(2.5 * sandwich, 2.5 * inverse) >= -1e-9) == holds


@pytest.mark.slow
def test_p7_sketches_less_their_noise_are_unbiased_for_the_gram_matrix() -> None:
    """Theorem P.7: the mean of Z Z' less the known noise is X X' for the sketch that a study draws; without that subtraction it is not."""
    n, p, m, sigma, runs = 12, 8, 4, 0.7, 4000
    own = RNG.standard_normal((n, p))
    total, squares = np.zeros((2, n, n))
    for seed in range(runs):
        released = PublicSketch.draw("srht", p, m, seed, grid=1).apply_real(own) + sigma * RNG.standard_normal((n, m))
        off = released @ released.T - own @ own.T
        total, squares = total + off / runs, squares + off**2 / runs
    error = np.sqrt((squares - total**2) / runs)
    assert (np.abs(total - m * sigma**2 * np.eye(n)) < 6 * error).all()
    assert (np.diag(total) > 6 * np.diag(error)).all()


def test_p8_the_mean_of_squared_energies_over_all_bases() -> None:
    """Theorem P.8 by averaging over uniformly random orthonormal bases; (tr M)^2 / d, of equal energies, is another number."""
    d, runs = 6, 6000
    half = RNG.standard_normal((d, 3))
    matrix = half @ half.T
    bases = np.linalg.qr(RNG.standard_normal((runs, d, d)))[0]
    sums = (np.einsum("kij,il,klj->kj", bases, matrix, bases, optimize=True) ** 2).sum(axis=1)
    wanted = (2 * np.sum(matrix**2) + np.trace(matrix) ** 2) / (d + 2)
    assert sums.mean() == pytest.approx(wanted, abs=5 * sums.std() / np.sqrt(runs))
    assert abs(sums.mean() - np.trace(matrix) ** 2 / d) > 20 * sums.std() / np.sqrt(runs)
