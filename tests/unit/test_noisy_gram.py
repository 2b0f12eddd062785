"""Regression from noisy second moments, against simulation, against a slow rewrite, and against scikit-learn without noise."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, Ridge

from unpooled.kernels import noisy as noisy_gram
from unpooled.kernels import posterior as noise_aware
from unpooled.linear.layout import Geometry, MomentsLayout
from unpooled.linear.moments import Moments
from unpooled.privacy.bounds import Column
from unpooled.privacy.table import Table
from unpooled.totals.total import Total

RNG = np.random.default_rng(2)


def symmetric(matrix: np.ndarray) -> np.ndarray:
    return np.triu(matrix) + np.triu(matrix, 1).T


def problem(d: int = 4, n: int = 300, noise: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(gram, cross, gram variance, cross variance) with every variance different."""
    x = RNG.normal(size=(n, d))
    y = x @ RNG.normal(size=d) + RNG.normal(size=n)
    gram_variance = noise**2 * symmetric(RNG.uniform(10, 200, (d, d)))
    cross_variance = noise**2 * RNG.uniform(10, 200, d)
    gram = x.T @ x + symmetric(RNG.normal(size=(d, d)) * np.sqrt(gram_variance))
    return gram, x.T @ y + RNG.normal(size=d) * np.sqrt(cross_variance), gram_variance, cross_variance


def test_the_covariance_of_the_noise_is_that_of_a_simulation() -> None:
    d, draws = 3, 200_000
    _, _, gram_variance, cross_variance = problem(d)
    root = RNG.normal(size=(d, d))
    mean = np.array([1.0, -2.0, 0.5])
    b = mean + RNG.normal(size=(draws, d)) @ root.T
    noise = RNG.normal(size=(draws, d, d)) * np.sqrt(gram_variance)
    noise = np.triu(noise) + np.swapaxes(np.triu(noise, 1), 1, 2)
    e = RNG.normal(size=(draws, d)) * np.sqrt(cross_variance)
    met = e - np.einsum("ijk,ik->ij", noise, b)
    second = np.outer(mean, mean) + root @ root.T
    formula = noisy_gram.noise_covariance(second, gram_variance, cross_variance)
    simulated = met.T @ met / draws
    scale = np.sqrt(np.outer(formula.diagonal(), formula.diagonal()))
    assert np.abs((simulated - formula) / scale).max() < 0.015
    wrong = formula - np.diag(formula.diagonal() - (gram_variance.diagonal() * second.diagonal() + cross_variance))
    assert np.abs((simulated - wrong) / scale).max() > 0.1  # without the off-diagonal noise
    assert formula == pytest.approx(formula.T)


def test_it_is_the_formula_of_the_theory_where_noise_has_two_levels() -> None:
    """V = s_xy^2 I + v_off (tr S I + S) + (v_diag - 2 v_off) diag S (Theorem B.4)."""
    d, diagonal, off, cross = 5, 3.0, 1.5, 7.0
    root = RNG.normal(size=(d, d))
    s = root @ root.T
    variance = np.where(np.eye(d, dtype=bool), diagonal, off)
    wanted = cross * np.eye(d) + off * (np.trace(s) * np.eye(d) + s) + (diagonal - 2 * off) * np.diag(np.diag(s))
    assert noisy_gram.noise_covariance(s, variance, np.full(d, cross)) == pytest.approx(wanted)


def slow_posterior(gram, cross, gram_variance, cross_variance, prior, precision, rounds=2000):
    """Theorem B.4 with explicit inverses and loops, half steps, and many more rounds."""
    values, vectors = np.linalg.eigh(gram)
    m = sum(max(v, 0) * np.outer(u, u) for v, u in zip(values, vectors.T, strict=True))
    d = cross.size
    b, c = np.zeros(d), np.linalg.inv(np.diag(prior))
    s = c
    for _ in range(rounds):
        s = (s + np.outer(b, b) + c) / 2
        v = m / precision
        for j in range(d):
            v[j, j] += cross_variance[j] + sum(gram_variance[j, k] * s[k, k] for k in range(d))
            for k in range(d):
                if j != k:
                    v[j, k] += gram_variance[j, k] * s[j, k]
        inverse = np.linalg.inv(v)
        c = np.linalg.inv(np.diag(prior) + m @ inverse @ m)
        b = c @ m @ inverse @ cross
    return b, c


@pytest.mark.parametrize("noise", [1.0, 30.0])
@pytest.mark.parametrize("d", [1, 4, 9])
def test_the_posterior_is_the_fixed_point_of_the_theory(d: int, noise: float) -> None:
    gram, cross, gram_variance, cross_variance = problem(d, noise=noise)
    assert d == 1 or (np.linalg.eigvalsh(gram)[0] < 0) == (noise > 1)
    prior = RNG.uniform(0.5, 2, d)
    arguments = (gram, cross, gram_variance, cross_variance, prior, 1.3)
    mean, covariance = noise_aware.posterior(*arguments)
    slow_mean, slow_covariance = slow_posterior(*arguments)
    assert mean == pytest.approx(slow_mean, rel=1e-7, abs=1e-9)
    assert covariance == pytest.approx(slow_covariance, rel=1e-7, abs=1e-9)
    assert np.linalg.eigvalsh(covariance)[0] > 0


@pytest.mark.parametrize(("gram", "cross", "variance"), [(5.0, 100.0, 25.0), (5.0, 1000.0, 25.0), (10.0, 100.0, 100.0)])
def test_moments_that_contradict_the_prior_have_one_posterior(
    monkeypatch, gram: float, cross: float, variance: float
) -> None:
    """The plain iteration swings between two answers here (0.56 and 5.74 for the first): which one depends on the rounds."""
    one = np.ones(1)
    arguments = (gram * np.eye(1), cross * one, variance * np.eye(1), variance * one, one, 1.0)
    answers = [noise_aware.posterior(*arguments)[0][0], slow_posterior(*arguments)[0][0]]
    monkeypatch.setattr(noise_aware, "_QUICK", 0)
    answers.append(noise_aware.posterior(*arguments)[0][0])
    assert answers == pytest.approx(answers[:1] * 3, rel=1e-6)


def test_a_gram_of_pure_noise_gives_the_prior() -> None:
    d = 3
    mean, covariance = noise_aware.posterior(
        -np.eye(d), np.ones(d), np.full((d, d), 4.0), np.full(d, 4.0), np.full(d, 2.0), 1.0
    )
    assert mean == pytest.approx(np.zeros(d), abs=1e-12)
    assert covariance == pytest.approx(np.eye(d) / 2)


def test_more_noise_never_shortens_an_interval() -> None:
    gram, cross, gram_variance, cross_variance = problem(3)
    spread = [
        np.trace(noise_aware.posterior(gram, cross, f * gram_variance, f * cross_variance, np.ones(3), 1.0)[1])
        for f in (0.0, 0.1, 1.0, 10.0, 1e6)
    ]
    assert spread == sorted(spread)
    assert spread[-1] == pytest.approx(3, rel=1e-2)


def test_without_noise_the_posterior_is_the_textbooks() -> None:
    x = RNG.normal(size=(50, 4))
    y = x @ np.ones(4) + RNG.normal(size=50)
    prior, precision = np.array([1.0, 2.0, 3.0, 4.0]), 2.5
    zero = np.zeros((4, 4)), np.zeros(4)
    covariance = np.linalg.inv(np.diag(prior) + precision * x.T @ x)
    wanted = covariance @ (precision * x.T @ y), covariance
    for found in (
        noise_aware.posterior(x.T @ x, x.T @ y, *zero, prior, precision),
        noisy_gram.naive_posterior(x.T @ x, x.T @ y, prior, precision),
    ):
        assert found[0] == pytest.approx(wanted[0], rel=1e-8)
        assert found[1] == pytest.approx(wanted[1], rel=1e-8)


def test_the_naive_posterior_takes_a_noisy_gram_at_its_word() -> None:
    gram = np.diag([5.0, -0.5])
    mean, covariance = noisy_gram.naive_posterior(gram, np.array([1.0, 1.0]), np.ones(2), 1.0)
    assert mean == pytest.approx([1 / 6, 2.0])
    assert covariance == pytest.approx(np.diag([1 / 6, 2.0]))


# --- the repaired rule ----------------------------------------------------------------------------------------------------


def test_a_positive_definite_gram_is_left_alone_and_another_one_repaired_as_stated() -> None:
    good = np.diag([1.0, 1e-9])
    variance = np.array([[4.0, 1.0], [1.0, 9.0]])
    assert noisy_gram.repaired(good, variance) is good
    bad = np.array([[2.0, 3.0], [3.0, 2.0]])  # eigenvalues 5 and -1
    level = np.sqrt(2 * 2 * 9.0)
    assert noisy_gram.noise_level(variance) == pytest.approx(level)
    repaired = noisy_gram.repaired(bad, variance)
    assert np.linalg.eigvalsh(repaired) == pytest.approx([0.3 * level, 5 + 0.3 * level])
    assert np.linalg.eigvalsh(noisy_gram.repaired(bad, variance, ridge=1.0)) == pytest.approx([level, 5 + level])
    assert np.linalg.eigvalsh(noisy_gram.psd_part(bad)) == pytest.approx([0.0, 5.0], abs=1e-12)
    assert np.linalg.eigvalsh(noisy_gram.repaired(np.zeros((2, 2)), np.zeros((2, 2))))[0] > 0
    assert noisy_gram.noise_level(np.zeros((0, 0))) == 0


def test_ridge_stays_finite_on_an_indefinite_gram() -> None:
    gram, cross, gram_variance, cross_variance = problem(4)
    bad = gram - 400 * np.eye(4)
    mean, covariance = noisy_gram.ridge(bad, cross, gram_variance, cross_variance, np.zeros(4), 1.0)
    inverse = np.linalg.inv(noisy_gram.repaired(bad, gram_variance))
    assert mean == pytest.approx(inverse @ cross)
    assert np.linalg.eigvalsh(covariance)[0] > 0


def test_the_covariance_of_ols_is_that_of_a_simulation() -> None:
    d, n = 3, 4000
    x = RNG.uniform(-1, 1, (n, d))
    beta = np.array([1.0, -1.0, 0.5])
    gram_variance, cross_variance = symmetric(np.full((d, d), 400.0)), np.full(d, 900.0)
    means, covariances = [], []
    for _ in range(1500):
        noise = symmetric(RNG.normal(size=(d, d)) * 20)
        y = x @ beta + RNG.normal(size=n)
        cross = x.T @ y + 30 * RNG.normal(size=d)
        mean, covariance = noisy_gram.ridge(x.T @ x + noise, cross, gram_variance, cross_variance, np.zeros(d), 1.0)
        means.append(mean)
        covariances.append(covariance.diagonal())
    assert np.var(means, axis=0) == pytest.approx(np.mean(covariances, axis=0), rel=0.15)
    assert np.mean(means, axis=0) == pytest.approx(beta, abs=0.01)


# --- in the data's own units, against scikit-learn ------------------------------------------------------------------------


def exact(columns: tuple[Column, ...], raw: dict[str, np.ndarray], *, intercept: bool, geometry: Geometry) -> Moments:
    n = raw["y"].size
    design = MomentsLayout.of(columns, "y", n, geometry=geometry, intercept=intercept)
    statistic = design.statistic(Table(raw))
    return Moments.decode(design, Total(statistic.astype(float), np.zeros(statistic.size), ()), n)


def on_the_grid(low: float, high: float, n: int) -> np.ndarray:
    """Values that a grid of 2^20 represents exactly, so that coding loses nothing."""
    return (low + high) / 2 + (high - low) / 2 * RNG.integers(-(2**18), 2**18, n) / 2**18


@pytest.mark.parametrize("geometry", [Geometry.BALL, Geometry.BOX, Geometry.AUGMENTED])
@pytest.mark.parametrize("alpha", [0.0, 0.7, 30.0])
@pytest.mark.parametrize("intercept", [True, False])
def test_without_noise_ridge_and_ols_are_scikit_learns(intercept: bool, alpha: float, geometry: Geometry) -> None:
    n = 400
    y_range = (-64.0, 192.0) if intercept else (-128.0, 64.0)
    columns = (Column("a", -8.0, 24.0), Column("b", 0.0, 0.25), Column("c", -1.0, 1.0), Column("y", *y_range))
    raw = {c.name: on_the_grid(*c.range, n) for c in columns[:3]}
    if not intercept:  # ranges become symmetric, and values must lie on that grid
        raw = {c.name: on_the_grid(-max(map(abs, c.range)), max(map(abs, c.range)), n) for c in columns[:3]}
    y = 2 * raw["a"] - 30 * raw["b"] + 5 * raw["c"] + (7 if intercept else 0) + RNG.normal(size=n)
    raw["y"] = np.round(y * 2**10) / 2**10
    m = exact(columns, raw, intercept=intercept, geometry=geometry)
    x = np.column_stack([raw[c] for c in "abc"])
    # scikit-learn's penalty is on the coefficients of centred columns: at the mean, ours at the centre of the range.
    reference = LinearRegression(fit_intercept=intercept) if alpha == 0 else Ridge(alpha, fit_intercept=intercept, tol=1e-14)
    reference.fit(x, raw["y"])
    fit = m.ridge(alpha) if alpha else m.ols()
    assert fit.coef_ == pytest.approx(reference.coef_, rel=1e-8)
    assert fit.intercept_ == pytest.approx(reference.intercept_ if intercept else 0.0, rel=1e-8)


@pytest.mark.parametrize("intercept", [True, False])
def test_without_noise_ols_has_the_textbook_covariance(intercept: bool) -> None:
    n = 300
    columns = (Column("a", -2.0, 6.0), Column("b", -1.0, 1.0), Column("y", -16.0, 16.0))
    raw = {"a": on_the_grid(-6.0, 6.0, n) / 4, "b": on_the_grid(-1.0, 1.0, n)}
    raw["y"] = np.round(raw["a"] * 2**12) / 2**12
    fit = exact(columns, raw, intercept=intercept, geometry=Geometry.BALL).ols(noise_precision=0.25)
    x = np.column_stack([raw["a"], raw["b"], *([np.ones(n)] if intercept else [])])
    reference = 4 * np.linalg.inv(x.T @ x)
    # Relative to the deviations of both: two columns drawn apart have a covariance near zero.
    scale = np.sqrt(np.outer(reference.diagonal(), reference.diagonal()))
    assert fit.joint_covariance_ / scale == pytest.approx(reference / scale, abs=1e-4)


@pytest.mark.parametrize("naive", [True, False])
def test_without_noise_the_posterior_in_own_units_is_the_textbooks(naive: bool) -> None:
    n = 200
    columns = (Column("a", -4.0, 12.0), Column("b", -0.5, 0.5), Column("y", -8.0, 24.0))
    raw = {"a": on_the_grid(-4.0, 12.0, n), "b": on_the_grid(-0.5, 0.5, n)}
    raw["y"] = np.round((raw["a"] + 3) * 2**8) / 2**8
    fit = exact(columns, raw, intercept=True, geometry=Geometry.BALL).posterior(0.5, 2.0, naive=naive)
    # The intercept at the middle of the ranges has a prior deviation of 16, the half width of y.
    x = np.column_stack([raw["a"] - 4, raw["b"], np.ones(n)])
    covariance = np.linalg.inv(np.diag([0.5, 0.5, 1 / 256]) + 2 * x.T @ x)
    mean = covariance @ (2 * x.T @ (raw["y"] - 8))
    assert fit.coef_ == pytest.approx(mean[:2], rel=1e-8)
    assert fit.intercept_ == pytest.approx(8 + mean[2] - 4 * mean[0], rel=1e-8)
    shift = np.array([[1.0, 0, 0], [0, 1, 0], [-4, 0, 1]])
    assert fit.joint_covariance_ == pytest.approx(shift @ covariance @ shift.T, rel=1e-8)
