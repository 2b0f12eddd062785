"""PLS from moments is scikit-learn's PLS, for every number of components at once, and cross-validation needs no refit."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cross_decomposition import PLSRegression
from sklearn.model_selection import KFold, cross_val_predict

from unpooled.datasets import make_spectra
from unpooled.kernels.pls import Centred, cross_validated, kernel_pls, squared_errors

DATA = make_spectra(120, kind="corn", seed=3)
X, Y = DATA.spectra, DATA.response


def test_all_components_at_once_are_scikit_learns() -> None:
    moments = Centred.of(X, Y)
    found = kernel_pls(moments.gram, moments.cross, 10)
    for k in range(1, 11):
        wanted = PLSRegression(k, scale=False).fit(X, Y)
        own = wanted.coef_.ravel()
        assert np.abs(found.coefficients[:, k - 1] - own).max() <= 1e-8 * max(1.0, np.abs(own).max())
    assert found.weights == pytest.approx(wanted.x_weights_, abs=1e-8)
    assert found.loadings == pytest.approx(wanted.x_loadings_, abs=1e-8)
    assert found.rotations == pytest.approx(wanted.x_rotations_, rel=1e-7, abs=1e-6)
    assert found.y_loadings == pytest.approx(wanted.y_loadings_.ravel(), rel=1e-7)


def test_components_beyond_the_rank_are_zero_and_change_nothing() -> None:
    rng = np.random.default_rng(0)
    low = rng.normal(size=(40, 2)) @ rng.normal(size=(2, 6))
    moments = Centred.of(low, low @ rng.normal(size=6))
    found = kernel_pls(moments.gram, moments.cross, 5)
    assert np.count_nonzero(found.y_loadings) == 2
    assert np.array_equal(found.coefficients[:, 1], found.coefficients[:, 4])
    assert not kernel_pls(moments.gram, np.zeros(6), 3).coefficients.any()
    more = kernel_pls(np.eye(2), np.array([1.0, 2.0]), 4)  # more components than coordinates
    assert more.coefficients.shape == (2, 4)
    # A Gram that denies what the cross vector claims has no component.
    assert not kernel_pls(np.zeros((3, 3)), np.ones(3), 2).coefficients.any()


def test_moments_add_up_and_come_apart() -> None:
    left, right = Centred.of(X[:50] + 1000, Y[:50]), Centred.of(X[50:] + 1000, Y[50:])
    both = left.plus(right)
    whole = Centred.of(X + 1000, Y)
    for one, other in ((both, whole), (whole.minus(right), left)):
        assert one.rows == other.rows
        for found, wanted, rel, least in (
            (one.mean, other.mean, 1e-12, 1e-12),
            (one.gram, other.gram, 1e-8, 1e-10),
            (one.cross, other.cross, 1e-8, 1e-9),
        ):  # as pytest.approx, which takes seconds for half a million numbers
            assert (np.abs(found - wanted) <= np.maximum(rel * np.abs(wanted), least)).all()
        assert one.square == pytest.approx(other.square)
        assert one.response == pytest.approx(other.response)


def test_cross_validation_from_moments_is_that_of_refits() -> None:
    folds = list(KFold(5).split(X))
    errors = cross_validated([Centred.of(X[test], Y[test]) for _, test in folds], 6)
    assert errors.shape == (5, 6)
    for k in (1, 3, 6):
        predicted = cross_val_predict(PLSRegression(k, scale=False), X, Y, cv=KFold(5)).ravel()
        wanted = [float(((predicted - Y)[test] ** 2).sum()) for _, test in folds]
        assert errors[:, k - 1] == pytest.approx(wanted, rel=1e-6)


def test_squared_errors_of_the_training_rows() -> None:
    moments = Centred.of(X, Y)
    b = kernel_pls(moments.gram, moments.cross, 4).coefficients
    wanted = (((X - X.mean(axis=0)) @ b - (Y - Y.mean())[:, None]) ** 2).sum(axis=0)
    assert squared_errors(b, moments, moments) == pytest.approx(wanted, rel=1e-6)
