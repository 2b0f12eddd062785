"""The samplers of ``experiments/bayes``: the law of the latent Gram matrix, the conjugate posterior without noise, and the authors' slips."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SIGMA = np.array([[1.0, 0.5], [0.5, 2.0]])
ROWS, FREEDOM = 12, 20.0


@pytest.fixture
def mcmc(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("experiments.bayes._mcmc")


@pytest.fixture
def authors(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("experiments.bayes._authors")


def test_wishart_draws_have_their_mean_and_variance(mcmc: ModuleType) -> None:
    rng = np.random.default_rng(0)
    draws = np.array([mcmc.wishart(SIGMA, ROWS, rng) for _ in range(4000)])
    assert draws.mean(axis=0) == pytest.approx(ROWS * SIGMA, rel=0.05)
    wanted = ROWS * (SIGMA**2 + np.outer(SIGMA.diagonal(), SIGMA.diagonal()))
    assert draws.var(axis=0) == pytest.approx(wanted, rel=0.15)
    inverse = np.array([mcmc.inverse_wishart(SIGMA, ROWS, rng) for _ in range(4000)])
    assert inverse.mean(axis=0) == pytest.approx(SIGMA / (ROWS - 3), rel=0.1)


def grams_of(mcmc: ModuleType, draws: int) -> np.ndarray:
    """Steps of the latent Gram matrix where the release says nothing: its law is then Wishart(ROWS, SIGMA)."""
    wide = np.full((2, 2), 1e12)
    released = mcmc.Released(np.zeros((2, 2)), np.zeros(2), wide, np.full(2, 1e12), ROWS)
    rng, gram, found = np.random.default_rng(1), ROWS * SIGMA, []
    for _ in range(draws):
        gram, _ = mcmc.moved(gram, FREEDOM, SIGMA, released, np.zeros(2), 1.0, rng)
        found.append(gram)
    return np.array(found[draws // 10 :])


@pytest.mark.long
@pytest.mark.slow
def test_the_latent_gram_keeps_its_law(mcmc: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    found = grams_of(mcmc, 6_000)
    assert found.mean(axis=0) == pytest.approx(ROWS * SIGMA, rel=0.12)
    right = mcmc.log_gram
    # The control: a density whose Wishart has one degree of freedom too many moves the mean by more than the sampler's error.
    monkeypatch.setattr(mcmc, "log_gram", lambda gram, *rest: right(gram, *rest) + np.log(np.linalg.det(gram)))
    assert grams_of(mcmc, 6_000).mean(axis=0) != pytest.approx(ROWS * SIGMA, rel=0.12)


def test_without_noise_theta_has_the_conjugate_posterior(mcmc: ModuleType) -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(50, 2))
    y, noise, prior = X @ [1.0, -1.0] + rng.normal(size=50), 0.7, mcmc.Prior(2.0, 20.0, 10.0, 1.0)
    released = mcmc.Released(X.T @ X, X.T @ y, np.full((2, 2), 1e-12), np.full(2, 1e-12), 50)
    mean, spread = mcmc.drawn_theta(X.T @ X, released, prior, noise, None)
    wanted = np.linalg.inv(np.eye(2) / 2.0 + X.T @ X / noise)
    assert spread == pytest.approx(wanted, rel=1e-6)
    assert mean == pytest.approx(wanted @ X.T @ y / noise, rel=1e-6)
    noisy = released._replace(cross_variance=np.full(2, 100.0))
    assert (mcmc.drawn_theta(X.T @ X, noisy, prior, noise, None)[1].diagonal() > spread.diagonal()).all()


@pytest.mark.long
@pytest.mark.slow
def test_the_whole_chain_comes_near_it(mcmc: ModuleType) -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(400, 2))
    y, prior = X @ [1.0, -1.0] + 0.5 * rng.normal(size=400), mcmc.Prior(1.0, 2000.0, 500.0, 1.0)
    variance = np.full((2, 2), 1.0)
    released = mcmc.Released(X.T @ X, X.T @ y, variance, np.full(2, 1.0), 400)
    thetas, grams = mcmc.chain(released, prior, 3000, np.random.default_rng(4))
    wanted = np.linalg.solve(np.eye(2) + X.T @ X / 0.25, X.T @ y / 0.25)
    assert thetas.mean(axis=0) == pytest.approx(wanted, abs=0.02)
    assert np.abs(grams.mean(axis=0) - X.T @ X).max() < 4
    fixed, same = mcmc.chain(released, prior, 300, np.random.default_rng(4), fixed=True)
    assert np.ptp(same, axis=0).max() == 0
    assert fixed.mean(axis=0) == pytest.approx(wanted, abs=0.02)


def test_squares_move_by_more_than_the_authors_program_allows_for(authors: ModuleType) -> None:
    """Its noise for marginal variances is scaled to the root of the sum of c^2; two rows at the corners differ by the root of the sum of c^4."""
    bounds = np.array([7.5, 7.5, 7.5])
    moved = float(np.linalg.norm(bounds**2 - np.zeros(3) ** 2))
    assert authors.variance_sensitivity(bounds, mended=True) == pytest.approx(moved)
    assert authors.variance_sensitivity(bounds, mended=False) < moved / 7


def test_the_authors_search_scales_its_noise_by_the_fourth_power(authors: ModuleType) -> None:
    """Corners of the box move the moments by at most (12); the search multiplies its noise by the square of (12)'s square."""
    bounds = np.array([0.3, 0.3, 1.2])
    first, second = np.triu_indices(2)
    corners = np.array(np.meshgrid(*[(-b, 0.0, b) for b in bounds])).reshape(3, -1).T
    moments = np.hstack([corners[:, first] * corners[:, second], corners[:, :2] * corners[:, 2:]])
    farthest = max(float(np.linalg.norm(a - b)) for a in moments for b in moments)
    sensitivity = authors.search_noise(bounds, mended=True)
    assert farthest <= sensitivity <= 1.5 * farthest
    assert authors.search_noise(bounds, mended=False) == pytest.approx(sensitivity**4)
