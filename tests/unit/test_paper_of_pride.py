"""Items of the PRIDE paper that a small calculation settles: its solver is DUAL-LOCO's, Lemmas 4 and 7, and a step of the proof of Theorem 3."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from unpooled.papers.sdca import sdca


def ascent_of_dual_loco(X: np.ndarray, y: np.ndarray, penalty: float, passes: int, seed: int) -> np.ndarray:
    """Coefficients by the coordinate step of the DUAL-LOCO library for (y - x.w)^2 / n + penalty |w|^2 / 2, from its formula."""
    rng, n = np.random.default_rng(seed), y.size
    dual, w = np.zeros(n), np.zeros(X.shape[1])
    for i in rng.integers(n, size=passes * n):
        step = (y[i] - X[i] @ w - dual[i] / 2) / (0.5 + X[i] @ X[i] / (penalty * n))
        dual[i] += step
        w += step * X[i] / (penalty * n)
    return w


@pytest.mark.parametrize("shape", [(40, 5), (15, 30)])
def test_the_solver_of_dual_loco_has_our_minimum(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(2)
    X, penalty = rng.normal(size=shape), 0.8
    y = X[:, 0] - X[:, 1] + rng.normal(size=shape[0])
    theirs = ascent_of_dual_loco(X, y, penalty, 400, 0)
    ours = sdca(X, y, penalty * y.size / 2, loss="squared", tolerance=1e-14, max_epochs=5000)
    assert ours.coefficients == pytest.approx(theirs, abs=1e-6)
    exact = np.linalg.solve(X.T @ X + penalty * y.size / 2 * np.eye(shape[1]), X.T @ y)
    assert theirs == pytest.approx(exact, abs=1e-8)


def test_lemma_4() -> None:
    """For squared loss, whose conjugate is a^2 / 2 + a y: the gradient of the dual is a + y + K a / (n lambda)."""
    rng = np.random.default_rng(4)
    for _ in range(200):
        n = int(rng.integers(2, 9))
        one, other = rng.normal(size=(n, n + 2)), rng.normal(size=(n, n))
        K, near, scale = one @ one.T, (other + other.T) / 4, float(rng.uniform(2, 20))
        assert np.linalg.eigvalsh(np.eye(n) + near / scale).min() > 0  # the perturbed problem has a minimum
        y = rng.normal(size=n)
        best, found = (-np.linalg.solve(np.eye(n) + gram / scale, y) for gram in (K, near))
        gap = found - best
        assert gap @ (K - near) @ best >= gap @ near @ gap - 1e-10


def test_the_step_of_theorem_3() -> None:
    """(w + m)^2 is not at least w^2 wherever m is positive, as (13) has it; it is where w m is, which is as likely for a symmetric m."""
    assert (-1.0 + 0.5) ** 2 < (-1.0) ** 2
    rng = np.random.default_rng(5)
    w, m = rng.normal(size=100_000), rng.normal(size=100_000)
    assert not ((w + m) ** 2 >= w**2 * (m > 0)).all()
    assert ((w + m) ** 2 >= w**2 * (w * m > 0)).all()
    assert (w * m > 0).mean() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("chance", [0.1, 0.5, 0.9])
def test_lemma_7(chance: float) -> None:
    for n in range(1, 61):
        mean, coins = n * chance, stats.binom(n, chance)
        for delta in (0.1, 0.5, 0.9, 2.0):
            upper = coins.sf(math.ceil((1 + delta) * mean - 1e-9) - 1)
            assert upper <= math.exp(-(delta**2) * mean / (2 + delta)) + 1e-12
            if delta < 1:
                assert coins.cdf(math.floor((1 - delta) * mean + 1e-9)) <= math.exp(-mean * delta**2 / 2) + 1e-12
