"""The sparse classifier: its loss beside a draw of rows, its ball, its kernel beside scikit-learn, the study, and what it refuses."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest
from scipy.optimize import approx_fprime
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

import unpooled
from unpooled import PrivateLassoClassifier
from unpooled.errors import UsageError
from unpooled.kernels.l1_ball import TwoClasses, logistic_in_ball
from unpooled.models import fitted, load
from unpooled.models.lasso.moments_fit import _log_odds, _share, _slope
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.protocol.local import run_in_process


def classes(share: float = 0.3, size: int = 4, seed: int = 0) -> TwoClasses:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(size, size)) / size
    gram = 0.6 * np.eye(size) + root @ root.T
    return TwoClasses.of(gram, 0.15 * rng.normal(size=size), share)


def test_the_loss_is_that_of_many_rows_of_two_normal_classes() -> None:
    two, rng = classes(), np.random.default_rng(1)
    root = np.linalg.cholesky(two.within)
    y = np.where(rng.random(400_000) < two.share, 1.0, -1.0)
    rows = np.where(y[:, None] > 0, two.second, two.first) + rng.normal(size=(y.size, 4)) @ root.T
    w, b = np.array([0.8, -1.1, 0.3, 0.0]), -0.7
    value, _, _ = two.loss(w, b)
    assert value == pytest.approx(np.logaddexp(0, -y * (rows @ w + b)).mean(), abs=0.003)


def test_the_gradient_is_that_of_the_loss() -> None:
    two, at = classes(), np.array([0.4, -0.2, 0.9, 0.1, -0.3])
    _, slope, constant = two.loss(at[:4], at[4])
    wanted = approx_fprime(at, lambda p: two.loss(p[:4], p[4])[0], 1e-7)
    np.testing.assert_allclose([*slope, constant], wanted, atol=1e-5)


def test_without_a_bound_it_is_the_linear_discriminant_and_in_the_ball_nothing_is_better() -> None:
    two = classes()
    x, b = logistic_in_ball(two, np.ones(4), 1e3)
    discriminant = np.linalg.solve(two.within, two.second - two.first)
    np.testing.assert_allclose(x, discriminant, atol=1e-4)
    best = math.log(two.share / (1 - two.share)) - (two.first + two.second) @ discriminant / 2
    assert b == pytest.approx(best, abs=1e-4)
    scale, radius = np.array([1.0, 2.0, 0.5, 1.0]), 0.4
    x, b = logistic_in_ball(two, scale, radius)
    assert np.abs(x).sum() <= radius * (1 + 1e-9)
    value, rng = two.loss(x / scale, b)[0], np.random.default_rng(0)
    for _ in range(3000):
        other = rng.dirichlet(np.ones(4)) * radius * rng.choice([-1, 1], 4)
        assert two.loss(other / scale, b + 0.1 * rng.normal())[0] >= value - 1e-7


def test_noise_that_explains_more_than_everything_leaves_something_within_classes() -> None:
    two = TwoClasses.of(np.eye(2), np.array([0.9, 0.9]), 0.5)
    assert np.linalg.eigvalsh(two.within)[0] > 0
    assert np.isfinite(logistic_in_ball(two, np.ones(2), 5.0)[0]).all()
    x, b = logistic_in_ball(TwoClasses.of(np.eye(2), np.zeros(2), 0.2), np.ones(2), 1.0)
    assert (x.tolist(), b) == ([0.0, 0.0], pytest.approx(math.log(0.25)))


def test_a_rare_class_is_clipped_along_a_straight_line() -> None:
    """What parties clip at three deviations is still an affine function of the class: the slope undoes it exactly."""
    mean, deviation = -0.96, math.sqrt(1 - 0.96**2)
    y, x = np.array([1.0] * 2 + [-1.0] * 98), np.random.default_rng(0).normal(size=100)
    x -= x.mean()
    clipped = np.clip((y - mean) / deviation, -3, 3)
    assert x @ clipped / _slope((mean, deviation)) == pytest.approx(x @ y)
    assert (_share(5.0, 100), _share(-5.0, 100)) == (0.99, 0.01)
    assert _log_odds(0.0, 10) == 0.0


def data(n: int = 20_000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = 0.3 * rng.normal(size=(n, 8))
    return X, np.where(rng.random(n) < expit(X[:, 0] * 3 - X[:, 5] * 3 - 0.5), "yes", "no")


def test_without_noise_it_is_near_scikit_learn() -> None:
    X, y = data()
    model = PrivateLassoClassifier(2, radius=20.0, epsilon=math.inf, bounds=(-1, 1), classes=("no", "yes")).fit(X, y)
    theirs = LogisticRegression(C=1e6).fit(X, y)
    np.testing.assert_allclose(
        model.coef_, theirs.coef_[0], atol=0.25
    )  # four released and shared axes tie the parties together
    assert model.intercept_ == pytest.approx(theirs.intercept_[0], abs=0.1)
    assert model.score(X, y) == pytest.approx(theirs.score(X, y), abs=0.01)
    np.testing.assert_allclose(model.to_sklearn().predict_proba(X[:9]), model.predict_proba(X[:9]), atol=1e-9)


def test_a_class_of_one_in_twenty_has_the_coefficients_of_scikit_learn_without_noise() -> None:
    rng = np.random.default_rng(0)
    X = 0.3 * rng.normal(size=(40_000, 8))
    y = (rng.random(40_000) < expit(X[:, 0] * 3 - X[:, 5] * 3 - 3.4)).astype(int)
    model = PrivateLassoClassifier(2, radius=20.0, epsilon=math.inf, bounds=(-1, 1), classes=(0, 1)).fit(X, y)
    theirs = LogisticRegression(C=1e6).fit(X, y)
    np.testing.assert_allclose(model.coef_, theirs.coef_[0], atol=0.5)
    assert model.coef_[0] > 2.4


@pytest.mark.parametrize("unit", ["attribute", "record"])
def test_with_noise_it_ranks_and_its_probabilities_are_about_right(unit: str) -> None:
    X, y = data()
    model = PrivateLassoClassifier(2, radius=9.0, epsilon=2.0, delta=1e-5, bounds=(-1, 1), classes=("no", "yes"), unit=unit)
    model.fit(X, y)
    assert model.score(X, y) > 0.65
    assert model.predict_proba(X)[:, 1].mean() == pytest.approx((y == "yes").mean(), abs=0.05)
    assert np.abs(model.coef_ * 1.0).sum() <= 9.0 * (1 + 1e-6)


def test_where_noise_leaves_nothing_the_base_rate_is_what_is_told(tmp_path: Path) -> None:
    X, y = data(300)
    model = PrivateLassoClassifier(2, radius=9.0, epsilon=0.5, bounds=(-1, 1), classes=("no", "yes"))
    with pytest.warns(unpooled.errors.UtilityWarning):
        model.fit(X, y)
    assert not model.coef_.any()
    model.save(tmp_path / "m.unpooled")
    assert unpooled.load(tmp_path / "m.unpooled").predict_proba(X[:2]).tolist() == model.predict_proba(X[:2]).tolist()


def test_a_study_of_signs_becomes_a_classifier_and_whatever_a_label_is_counts_as_a_sign() -> None:
    X, y = data(4000)
    plan = PrivateLassoClassifier(2, radius=9.0, epsilon=5.0, bounds=(-1, 1), classes=("no", "yes")).plan(4000, 8)
    model = load("lasso")
    results = []
    for labels in (np.where(y == "yes", 1.0, -1.0), np.where(y == "yes", 7.0, 0.0)):
        tables = {
            card.name: Table({**{c.name: X[:, int(c.name[1:])] for c in card.columns}, "(response)": labels})
            for card in plan.study.parties
        }
        found = run_in_process(
            model,
            model.compile(msgspec.structs.replace(plan.study, simulation_seed=3)),
            tables,
            Policy.in_process(),
            lambda _: model,
        )
        results.append(found.outcome.result)
    assert results[0].intercept == pytest.approx(results[1].intercept, abs=0.2)
    estimator = fitted(plan, results[0])
    frame = pl.DataFrame(X[:4], schema=[f"x{j}" for j in range(8)])
    assert set(estimator.predict(frame).tolist()) <= {-1, 1}


def test_what_does_not_go_with_a_logistic_loss_is_refused() -> None:
    study = PrivateLassoClassifier(2, bounds=(-1, 1), classes=(0, 1)).plan(4000, 8).study
    for wrong, words in (
        ({"method": "frank-wolfe"}, "fitted from moments"),
        ({"loss": "hinge"}, "'squared' or 'logistic'"),
        ({"response_bound": 2.0}, "of -1 and 1"),
        ({"fit_intercept": False}, "of -1 and 1"),
        ({"rounds": 5}, "rounds belongs to"),
    ):
        with pytest.raises(UsageError, match=words):
            load("lasso").compile(msgspec.structs.replace(study, parameters=study.parameters | wrong))
    with pytest.raises(UsageError, match="not in the paper"):
        load("lasso-published").compile(msgspec.structs.replace(study, calibration="published"))
