"""Estimates of what a table says it aims at: counts that vary more than Poisson's, skewed residuals, unequal spread, and a large budget."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from world import sized

from unpooled import PrivateGLM, PrivateLinearRegression
from unpooled.linear import residuals as residual_cells
from unpooled.models.glm import fit as glm_fit

N, SLOPES = 20_000, np.array([0.4, 0.0, -0.2])
OWN: dict[str, Any] = {"bounds": (-4, 4), "delta": 1e-5}


def rows(seed: int, n: int = N) -> tuple[np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)).clip(-4, 4), rng


def counts(seed: int, ratio: float) -> dict[str, float]:
    """z of every line of counts whose variance is this multiple of their mean, and the dispersion that is found."""
    X, rng = rows(seed)
    mean = np.exp(0.5 + X @ SLOPES)
    y = np.minimum(rng.poisson(rng.gamma(mean / (ratio - 1), ratio - 1)), 60).astype(float)
    model = PrivateGLM("poisson", epsilon=3.0, y_bounds=(0, 60), random_state=seed, **OWN).fit(X, y)
    true = [*SLOPES, 0.5]
    found = {t.term: (t.estimate - v) / t.std_error for t, v in zip(model.summary().terms, true, strict=True)}
    return found | {"dispersion": model.dispersion_}


@pytest.mark.slow
def test_counts_that_vary_more_than_poissons() -> None:
    found = [counts(seed, 6.0) for seed in range(sized(40, 6))]
    assert np.mean([one["dispersion"] for one in found]) == pytest.approx(6.0, rel=0.2)
    z = np.array([[v for name, v in one.items() if name != "dispersion"] for one in found])
    assert np.abs(z.mean(axis=0)).max() < 1.2
    assert 0.4 < z.std() < 1.4


@pytest.mark.slow
def test_a_step_that_takes_the_old_means_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        glm_fit,
        "_at_new_level",
        lambda fit, gram, variance, score, move, noise: (
            1.0,
            fit.shape.known(gram, variance, fit.penalty, fit.still, noise),
            move,
        ),
    )
    assert np.mean([counts(seed, 6.0)["(intercept)"] for seed in range(6)]) > 1.3


def skewed(seed: int) -> float:
    """z of the intercept where residuals are log-normal."""
    X, rng = rows(seed)
    y = (X @ SLOPES + np.exp(rng.normal(size=N)) - math.exp(0.5)).clip(-10, 40)
    model = PrivateLinearRegression(epsilon=1.0, y_bounds=(-10, 40), random_state=seed, **OWN).fit(X, y)
    table = model.summary()
    assert "tail: residuals beyond" in str(table)
    line = next(t for t in table.terms if t.term == "(intercept)")
    return line.estimate / line.std_error


@pytest.mark.slow
def test_an_intercept_of_skewed_residuals() -> None:
    z = [skewed(seed) for seed in range(sized(40, 6))]
    assert abs(np.mean(z)) < 1.2
    assert np.std(z) < 1.7


@pytest.mark.slow
def test_an_intercept_without_the_law_of_the_tail_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = residual_cells.missing_mean
    monkeypatch.setattr(residual_cells, "missing_mean", lambda *asked: (0.0, whole(*asked)[1]))
    assert np.mean([skewed(seed) for seed in range(6)]) < -1.2


@pytest.mark.guarantee
def test_robust_errors_are_those_of_unequal_spread() -> None:
    X, rng = rows(0, 6000)
    y = (X @ SLOPES + rng.normal(size=6000) * np.exp(0.5 * X[:, 0])).clip(-30, 30)
    asked: dict[str, Any] = {"epsilon": 3000.0, "y_bounds": (-30, 30), "random_state": 0, **OWN}
    model, robust = (
        [t.std_error for t in PrivateLinearRegression(covariance=name, **asked).fit(X, y).summary().terms]
        for name in ("model", "robust")
    )
    Z = np.column_stack([X, np.ones(len(X))])
    inverse = np.linalg.inv(Z.T @ Z)
    left = y - Z @ (inverse @ (Z.T @ y))
    white = np.sqrt(np.diag(inverse @ (Z * left[:, None] ** 2).T @ Z @ inverse))
    assert robust == pytest.approx(white, rel=0.2)  # the noise of one is about a tenth
    assert model[0] < 0.8 * white[0]


@pytest.mark.parametrize("family", ["linear", "logistic", "poisson"])
def test_a_large_budget_gives_the_estimate_without_noise(family: str) -> None:
    X, rng = rows(1, 8000)
    u = X @ SLOPES
    if family == "linear":
        y, kind = (
            u + 0.2 * X[:, 0] ** 2 + rng.normal(size=8000),
            lambda **own: PrivateLinearRegression(y_bounds=(-9, 15), **own),
        )
    elif family == "logistic":
        y, kind = (rng.random(8000) < 1 / (1 + np.exp(-u))).astype(int), lambda **own: PrivateGLM(classes=(0, 1), **own)
    else:
        y, kind = rng.poisson(np.exp(u)).clip(0, 40).astype(float), lambda **own: PrivateGLM(family, y_bounds=(0, 40), **own)
    noisy, exact = (kind(epsilon=epsilon, random_state=0, **OWN).fit(X, y).summary().terms for epsilon in (1e4, math.inf))
    gaps = [(a.estimate - b.estimate) / b.std_error for a, b in zip(noisy, exact, strict=True)]
    assert np.abs(gaps).max() < 0.25  # noise alone has a deviation of less than a tenth
