"""Posterior intervals hold the slopes that the stated prior draws, also where the noise is as large as the rows' Gram (Theorem B.4)."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace

import numpy as np
import pytest
from world import sized

from unpooled import PrivateLinearRegression
from unpooled.kernels.noisy import GramPrior, _basis, _rotated, likely_grams, noise_covariance_in, noise_level
from unpooled.kernels.posterior import NoisyMoments
from unpooled.linear import fit as once
from unpooled.linear.layout import MomentsLayout
from unpooled.linear.moments import Moments
from unpooled.privacy.bounds import Column
from unpooled.privacy.table import Table
from unpooled.totals.total import Total

Array = np.ndarray
NO_STILL = np.empty((0, 0))


def rows_of(kind: str, n: int, d: int, rng: np.random.Generator) -> Array:
    """Coded rows."""
    if kind == "unit":
        x = rng.normal(size=(n, d))
        return x / np.linalg.norm(x, axis=1, keepdims=True)
    if kind == "correlated":
        return np.clip((0.9**0.5 * rng.normal(size=(n, 1)) + 0.1**0.5 * rng.normal(size=(n, d))) / 3, -1, 1)
    if kind == "of two widths":
        return np.clip(rng.normal(size=(n, d)) * np.where(np.arange(d) % 2, 0.1, 0.5), -1, 1)
    if kind == "not centred":
        return rng.uniform(0, 1, (n, d))
    return rng.uniform(-1, 1, (n, d))


def noisy(x: Array, y: Array, noise: float, rng: np.random.Generator, *, constant: bool, most: float) -> NoisyMoments:
    """The moments of rows with noise of this deviation off the diagonal; the constant's own entry is known."""
    n = y.size
    if constant:
        x = np.column_stack([x, np.ones(n)])
    d = x.shape[1]
    variance = np.full((d, d), noise**2)
    variance[np.diag_indices(d)] *= 2
    if constant:
        variance[-1, -1] = 0.0
    drawn = np.triu(rng.normal(size=(d, d)) * np.sqrt(variance))
    cross_variance = np.full(d, noise**2)
    cross = x.T @ y + noise * rng.normal(size=d)
    prior = GramPrior(n * most, constant, np.empty((d, 0)))
    return NoisyMoments(x.T @ x + drawn + np.triu(drawn, 1).T, cross, variance, cross_variance, n, prior)


def played(kind: str, n: int, d: int, noise: float, precision: float, sets: int, *, constant: bool = True) -> Array:
    """(coverage, squared error, posterior variance) of slopes drawn from the prior, then the same of the Gram taken as released."""
    rng = np.random.default_rng([n, d])
    found = []
    for _ in range(sets):
        x, slopes = rows_of(kind, n, d, rng), rng.normal(size=d) / precision**0.5
        y = x @ slopes + rng.normal(size=n)
        known = noisy(x, y, noise, rng, constant=constant, most=1 / d if kind == "unit" else 1.0)
        prior = np.append(np.full(d, 1 / precision), [1.0] * constant)
        both = []
        for each in (known, replace(known, gram_prior=None)):
            fit = each.averaged(float("nan"), [prior], 1.0)
            off, variance = fit.mean[:d] - slopes, fit.covariance.diagonal()[:d]
            both += [np.mean(np.square(off) < 1.96**2 * variance), np.mean(np.square(off)), np.mean(variance)]
        found.append(both)
    return np.mean(found, axis=0)


@pytest.mark.slow
def test_an_interval_holds_nineteen_of_twenty_slopes_of_the_prior() -> None:
    """Rows of length 1 whose Gram is hidden by the noise: 800 intervals."""
    held, error, variance, _, former, formerly = played("unit", 500, 20, 80.0, 1.0, 40)
    assert 0.925 <= held <= 0.975
    assert 0.8 < error / variance < 1.1
    assert former / formerly > 1.1  # the Gram taken as released: intervals are too short
    assert error < former


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["unit", "box", "correlated", "of two widths", "not centred"])
def test_intervals_are_calibrated_for_all_rows(kind: str) -> None:
    """From noise that is small to noise that hides everything."""
    kept, errors, spreads = [], [], []
    for d, noise, precision in itertools.product((2, 5, 20), (3.0, 30.0, 300.0), (0.1, 1.0, 10.0)):
        sets = sized(400, 20)
        held, error, variance, _, former, _ = played(kind, 1000, d, noise, precision, sets)
        kept.append(held)
        errors.append(error / former)
        spreads.append(error / variance)
        assert held > 0.93 - 0.9 / (sets * d) ** 0.5  # coefficients of one data set are not independent
    assert 0.92 < np.mean(kept) < 0.98
    assert np.mean(errors) < 1.02  # compared with the Gram as it was released
    assert 0.7 < np.mean(spreads) < 1.1


@pytest.mark.slow_for("1-True", "2-True", "1-False", "2-False")
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("d", [1, 2])
def test_few_columns(d: int, constant: bool) -> None:
    held, *_ = played("box", 300, d, 40.0, 1.0, 60, constant=constant)
    assert held > 0.85


def test_noise_alone_leaves_the_prior() -> None:
    rng = np.random.default_rng(0)
    x = rows_of("box", 200, 6, rng)
    known = noisy(x, x[:, 0], 1e6, rng, constant=True, most=1.0)
    fit = known.averaged(float("nan"), [np.append(np.full(6, 4.0), 1.0)], 1.0)
    assert np.abs(fit.mean[:6]).max() < 0.05
    assert fit.covariance.diagonal()[:6] == pytest.approx(4.0, rel=0.01)


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_negligible_noise_gives_the_closed_form_bit_for_bit(noise: float) -> None:
    rng = np.random.default_rng(0)
    x = rows_of("box", 2000, 4, rng)
    known = noisy(x, x[:, 0], noise, rng, constant=True, most=1.0)
    assert known.gram_prior is not None
    assert likely_grams(known.gram, known.gram_variance, 2000, known.gram_prior) == []
    prior = [np.full(5, t) for t in (0.1, 1.0)]
    found, plain = known.averaged(50.0, prior), replace(known, gram_prior=None).averaged(50.0, prior)
    assert (found.mean == plain.mean).all()
    assert (found.covariance == plain.covariance).all()


def moments_of_levels(epsilon_noise: float) -> Moments:
    """Moments of a column of three levels and a number."""
    rng = np.random.default_rng(5)
    columns = (Column("ward", categories=("a", "b", "c")), Column("age", 0.0, 80.0), Column("y", -4.0, 4.0))
    layout = MomentsLayout.of(columns, "y", 600)
    at = rng.integers(0, 3, 600)
    levels = np.array(["a", "b", "c"], dtype=object)[at]
    table = Table({"ward": levels, "age": rng.uniform(0, 80, 600), "y": np.clip(at - 1 + rng.normal(size=600), -4, 4)})
    exact = layout.statistic(table).astype(float)
    spread = np.full(exact.size, epsilon_noise * layout.grid**2)
    return Moments.decode(layout, Total(exact + spread * rng.normal(size=exact.size), spread, ()), 600)


@pytest.mark.parametrize("noise", [1.0, 40.0, 1e4])
def test_directions_that_no_row_has_stay_as_the_prior_has_them(noise: float) -> None:
    """All levels minus the constant: nothing is released of that sum, whatever the noise."""
    moments = moments_of_levels(noise)
    still = moments.known.still
    assert still.shape[1] == 1
    known = moments.of_unknown_gram
    for _, each in known.likely:
        assert np.abs(each.gram @ still).max() < 1e-9 * 600
    prior = np.full(5, 0.3)
    fit = known.averaged(float("nan"), [prior], 1.0)
    assert float(fit.mean @ still[:, 0]) == pytest.approx(0.0, abs=1e-9)
    assert (still.T @ fit.covariance @ still).item() == pytest.approx(0.3, rel=1e-6)
    assert np.linalg.eigvalsh(fit.covariance)[0] > 0


def test_the_same_release_gives_the_same_bytes_wherever_it_is_read() -> None:
    moments = moments_of_levels(40.0)
    fits = []
    for _ in range(2):
        once._fits.clear()
        fits.append(Moments.of(moments.stored()).posterior(1.0, 1.0))
    assert fits[0].coef_.tobytes() == fits[1].coef_.tobytes()
    assert fits[0].joint_covariance_.tobytes() == fits[1].joint_covariance_.tobytes()


def test_an_estimator_predicts_with_the_wider_deviations() -> None:
    moments = moments_of_levels(40.0)
    model = PrivateLinearRegression.from_moments(moments, prior_precision=1.0, noise_precision=1.0)
    plain = moments.noisy.averaged(
        float("nan"), [moments.frame.prior_of(1.0, intercept=moments.layout.intercept)], 1 / moments._unit
    )
    kept = moments._in_own_units(plain.mean, plain.covariance, plain.noise_variance)
    assert model.covariance_ == pytest.approx(model._fit_.covariance_)
    assert not np.allclose(model.covariance_, kept.covariance_)


def test_variances_in_another_basis_are_those_of_a_simulation() -> None:
    rng = np.random.default_rng(3)
    d, draws = 5, 60_000
    variance = np.full((d, d), 2.0)
    variance[np.diag_indices(d)] = 4.0
    drawn = rng.normal(size=(draws, d, d)) * np.sqrt(variance)
    drawn = np.triu(drawn) + np.swapaxes(np.triu(drawn, 1), 1, 2)
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    seen = np.var(basis.T @ drawn @ basis, axis=0)
    assert _rotated(variance, basis) == pytest.approx(seen, rel=0.04)
    second = np.cov(rng.normal(size=(d, 9)))
    covariance = noise_covariance_in(basis, second, _rotated(variance, basis), np.ones(d))
    assert covariance == pytest.approx(noise_covariance_in(None, second, variance, np.ones(d)), rel=1e-9)


def test_what_stands_out_is_found_and_the_rest_of_the_basis_is_not_that_of_its_noise() -> None:
    rng = np.random.default_rng(4)
    d, factor = 12, np.ones(12) / 12**0.5
    noise = np.triu(rng.normal(size=(d, d)))
    noise = noise + np.triu(noise, 1).T
    variance = np.ones((d, d)) + np.eye(d)
    basis, count = _basis(100 * np.outer(factor, factor) + 5 * np.eye(d) + noise, variance)
    assert count == d - 1
    assert basis is not None
    assert basis.T @ basis == pytest.approx(np.eye(d), abs=1e-12)
    assert abs(basis[:, -1] @ factor) > 0.97
    seen = basis.T @ noise @ basis
    assert np.abs(np.triu(seen[:count, :count], 1)).max() > 1  # eigenvectors of the noise would leave zeros
    assert _basis(5 * np.eye(d) + noise, variance) == (None, d)
    assert _basis(np.ones((1, 1)), np.ones((1, 1))) == (None, 1)


def test_forty_columns_take_little_time() -> None:
    rng = np.random.default_rng(6)
    x = rows_of("unit", 500, 40, rng)
    known = noisy(x, x[:, 0], 60.0, rng, constant=True, most=1 / 40)
    assert noise_level(known.gram_variance) > 500  # far above the Gram
    begun = time.process_time()
    fit = known.averaged(float("nan"), [np.ones(41)], 1.0)
    assert time.process_time() - begun < 2
    assert len(known.likely) <= 36
    assert np.isfinite(fit.covariance).all()
