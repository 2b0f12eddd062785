"""The noise-aware posterior of many priors against the textbook's form of each, and one posterior for a whole fit."""

from __future__ import annotations

import numpy as np
import pytest

from unpooled import PrivateBayesianRegression
from unpooled.kernels import noisy as noisy_gram
from unpooled.kernels import posterior as noise_aware
from unpooled.kernels.posterior import AveragedPosterior, NoisyMoments
from unpooled.linear import fit as once


def textbook(known: NoisyMoments, prior: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """The fixed point of Theorem B.4 by half steps, every system solved anew."""
    values, vectors = np.linalg.eigh(known.gram)
    m = (vectors * np.maximum(values, 0)) @ vectors.T
    b, c = np.zeros(prior.size), np.diag(prior)
    s = c
    for _ in range(200):
        s = (s + np.outer(b, b) + c) / 2
        v = noise * m + noisy_gram.noise_covariance(s, known.gram_variance, known.cross_variance)
        weighted = np.linalg.solve(v, m)
        c = np.linalg.inv(np.diag(1 / prior) + m @ weighted)
        before, b = b, c @ (weighted.T @ known.cross)
        if np.abs(b - before).max() <= 1e-14 * np.abs(b).max():
            break
    return b, c


def averaged(known: NoisyMoments, squares: float, priors: list[np.ndarray]) -> AveragedPosterior:
    """The average by evidence as it is written in the theory, nothing shared between priors."""
    values, vectors = np.linalg.eigh(known.gram)
    m = (vectors * np.maximum(values, 0)) @ vectors.T
    found = []
    for prior in priors:
        noise = squares / known.rows / 2
        for _ in range(4):
            b, _ = textbook(known, prior, noise)
            left = (squares - 2 * b @ known.cross + b @ m @ b) / known.rows
            noise = float(np.clip(left, 1e-3 * squares / known.rows, squares / known.rows))
        covariance = m @ np.diag(prior) @ m + noise * m + 1e-9 * known.rows * np.eye(prior.size)
        covariance += noisy_gram.noise_covariance(np.diag(prior), known.gram_variance, known.cross_variance)
        evidence = -0.5 * known.cross @ np.linalg.solve(covariance, known.cross) - np.linalg.slogdet(covariance)[1] / 2
        found.append((evidence, *textbook(known, prior, noise), noise, prior[0]))
    weights = np.exp([each[0] - max(other[0] for other in found) for each in found])
    weights /= weights.sum()
    mean = sum(w * each[1] for w, each in zip(weights, found, strict=True))
    spread = sum(w * (each[2] + np.outer(each[1] - mean, each[1] - mean)) for w, each in zip(weights, found, strict=True))
    return AveragedPosterior(
        mean, spread, *(float(sum(w * f[i] for w, f in zip(weights, found, strict=True))) for i in (3, 4))
    )


def moments(d: int, noise: float, seed: int, rows: int = 500) -> tuple[NoisyMoments, float]:
    """Noisy moments of rows of a linear model and a constant, and the sum of squares of the response."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.uniform(-1, 1, (rows, d)), np.ones(rows)])
    y = (x @ rng.normal(size=d + 1) + rng.normal(size=rows) / 2) / np.sqrt(d)
    variance = np.full((d + 1, d + 1), noise**2)
    variance[np.diag_indices(d + 1)] *= 2
    variance[-1, -1] = 0.0
    drawn = np.triu(rng.normal(size=variance.shape) * np.sqrt(variance))
    cross_variance = np.full(d + 1, noise**2)
    cross = x.T @ y + noise * rng.normal(size=d + 1)
    gram = x.T @ x + drawn + np.triu(drawn, 1).T
    return NoisyMoments(gram, cross, variance, cross_variance, rows), float(y @ y)


def near(found: np.ndarray, wanted: np.ndarray, tolerance: float = 1e-8) -> bool:
    return bool(np.abs(found - wanted).max() <= tolerance * np.abs(wanted).max())


@pytest.mark.parametrize("noise", [0.0, 0.3, 10.0, 300.0])
@pytest.mark.parametrize("d", [1, 5, 30])
def test_many_priors_give_what_each_gives_by_itself(d: int, noise: float) -> None:
    known, squares = moments(d, noise, seed=d)
    priors = [np.append(np.full(d, t * t), 1.0) for t in np.geomspace(0.01, 3.0, 5)]
    found, wanted = known.averaged(squares, priors), averaged(known, squares, priors)
    # A residual variance is worked out to a millionth (``ROUGHLY``), and what follows from it is as near.
    assert near(found.mean, wanted.mean, 1e-5)
    assert near(found.covariance, wanted.covariance, 1e-5)
    assert found.noise_variance == pytest.approx(wanted.noise_variance, rel=1e-5)
    assert found.prior_variance == pytest.approx(wanted.prior_variance, rel=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_half_steps_and_the_quick_ones_settle_at_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    known, _ = moments(6, 20.0, seed)
    arguments = known.gram, known.cross, known.gram_variance, known.cross_variance, np.full(7, 2.0), 3.0
    quick = noise_aware.posterior(*arguments)
    monkeypatch.setattr(noise_aware, "_QUICK", 0)
    slow = noise_aware.posterior(*arguments)
    assert near(quick[0], slow[0])
    assert near(quick[1], slow[1])
    assert np.array_equal(quick[1], quick[1].T)


def test_where_a_factor_fails_systems_are_solved_as_they_stand() -> None:
    """Two equal columns, no noise and next to no prior: the precision is singular to rounding."""
    x = np.repeat(np.random.default_rng(0).normal(size=(10_000, 1)), 2, axis=1) * 1e3
    zero = np.zeros((2, 2)), np.zeros(2)
    mean, covariance = noise_aware.posterior(x.T @ x, x.T @ x[:, 0], *zero, np.full(2, 1e-12), 1e8)
    assert np.isfinite(covariance).all()
    assert mean.sum() == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize("noise", [0.3, 20.0, 300.0])
@pytest.mark.parametrize("size", [6, 40])
def test_quick_steps_suffice_for_ordinary_moments(size: int, noise: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half steps arrive too, after ten times as many: where they are needed for nothing, quick steps lead nowhere."""

    def refused(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(noise_aware.NoiseAware, "_slowly", refused)
    known, squares = moments(size - 1, noise, seed=2)
    found = known.averaged(squares, [np.full(size, t * t) for t in (0.1, 0.3, 1.0)])
    assert np.isfinite(found.mean).all()


@pytest.mark.parametrize("size", [3, 40])
def test_a_candidate_whose_factor_fails_leaves_the_others_as_they_are(size: int) -> None:
    """Small matrices go into one call, which fails as a whole; large ones are factorised one by one."""
    known, _ = moments(size - 1, 20.0, seed=1)
    indefinite = known.gram - 1e9 * np.eye(size)
    psd = np.stack([noisy_gram.psd_part(known.gram), indefinite, noisy_gram.psd_part(2 * known.gram)])
    variances, priors = np.stack([known.gram_variance] * 3), np.full((3, size), 2.0)
    each = noise_aware.NoiseAware(psd, known.cross, variances, known.cross_variance, priors)
    means, covariances = each.posterior(np.full(3, 3.0))
    for k in (0, 2):
        alone = noise_aware.NoiseAware(
            psd[k : k + 1], known.cross, variances[:1], known.cross_variance, priors[:1]
        ).posterior(np.full(1, 3.0))
        assert near(means[k], alone[0][0])
        assert near(covariances[k], alone[1][0])


def test_a_fit_works_its_posterior_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (300, 2))
    y = X[:, 0] + rng.normal(size=300)
    count, work = [], NoisyMoments.averaged
    monkeypatch.setattr(NoisyMoments, "averaged", lambda *given, **more: (count.append(1), work(*given, **more))[1])
    settings = {"epsilon": 3.0, "bounds": (-1, 1), "y_bounds": (-4, 4), "method": "moments", "random_state": 0}
    model = PrivateBayesianRegression(**settings).fit(X, y)
    assert len(count) == 1
    coef = model.coef_.copy()
    model.coef_[:] = 7.0  # one's own to write into
    again = model.moments_.posterior()
    assert again.coef_.tolist() == coef.tolist()
    assert len(count) == 1
    model.ols()
    model.moments_.posterior(2.0)
    assert len(count) == 2
    assert len(once._fits) <= once._KEPT
    for precision in range(1, 2 * once._KEPT):
        model.moments_.posterior(float(precision))
    assert len(once._fits) == once._KEPT
