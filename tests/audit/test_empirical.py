"""Epsilon measured from outside: below the truth where it holds, above the claim where it does not."""

from __future__ import annotations

import numpy as np
import pytest
from world import sized

import unpooled.audit
from unpooled import PrivateBayesianRegression, PrivateLogisticRegression
from unpooled.audit import empirical_epsilon
from unpooled.errors import UsageError
from unpooled.privacy.accounting import gaussian_epsilon


@pytest.mark.parametrize("scale", [2.0, 0.7])
def test_laplace_noise_is_bounded_from_below_and_never_from_above(scale: float) -> None:
    rng = np.random.default_rng(1)
    found = empirical_epsilon(lambda value: value + rng.laplace(scale=scale), 0.0, 1.0, runs=6000)
    assert 0.5 / scale < found < 1 / scale


def test_a_gaussian_at_its_delta_stays_below_its_epsilon() -> None:
    rng = np.random.default_rng(2)
    found = empirical_epsilon(
        lambda v: v + rng.normal(size=3), np.zeros(3), np.array([1.0, 0.0, 0.0]), runs=6000, delta=0.01
    )
    assert 0 < found < gaussian_epsilon(0.01, 1.0)


def test_equal_data_give_nothing() -> None:
    rng = np.random.default_rng(3)
    assert empirical_epsilon(lambda value: value + rng.normal(), 0.0, 0.0, runs=400) < 0.4
    assert empirical_epsilon(lambda _: 0.0, 0.0, 1.0, runs=20) == 0.0


def test_noise_that_is_too_small_is_refuted() -> None:
    rng = np.random.default_rng(4)
    assert empirical_epsilon(lambda value: value + rng.laplace(scale=0.1), 0.0, 1.0, runs=4000) > 4.0


X = np.vstack([np.ones((1, 2)), np.zeros((39, 2))])
Y = np.array([1.0] * 20 + [-1.0] * 20)


@pytest.mark.long
@pytest.mark.minutes
def test_our_releases_are_not_refuted() -> None:
    """Whole fits, real noise, the worst row we know of against its mirror image."""
    runs = sized(400, 28)
    other = X.copy()
    other[0] = -1.0

    def bayes(data: np.ndarray) -> np.ndarray:
        options = {"epsilon": 1.0, "delta": 1e-3, "bounds": (-1, 1), "y_bounds": (-1, 1), "fit_intercept": False}
        model = PrivateBayesianRegression(**options, method="moments")
        return model.fit(data, Y).moments_.xy[0]

    def logistic(data: np.ndarray) -> np.ndarray:
        options = {"epsilon": 1.0, "bounds": (-1, 1), "classes": (-1, 1), "fit_intercept": False, "penalty": 0.1}
        return PrivateLogisticRegression(**options).fit(data, Y).coef_

    assert empirical_epsilon(bayes, X, other, runs=runs, delta=1e-3) <= 1.0
    assert empirical_epsilon(logistic, X, other, runs=runs) <= 1.0


@pytest.mark.parametrize("options", [{"runs": 3}, {"delta": 1.0}, {"confidence": 0.0}])
def test_arguments_that_mean_nothing_are_refused(options: dict) -> None:
    with pytest.raises(UsageError):
        empirical_epsilon(float, 0.0, 1.0, **options)
    with pytest.raises(UsageError, match="finite"):
        empirical_epsilon(lambda _: np.nan, 0.0, 1.0, runs=10)


def test_the_package_has_no_other_names() -> None:
    with pytest.raises(AttributeError, match="no attribute"):
        _ = unpooled.audit.nothing
