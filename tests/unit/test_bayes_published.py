"""The published form's posterior of Grams that noise made indefinite."""

from __future__ import annotations

import numpy as np
import pytest

from unpooled import PrivateBayesianRegression
from unpooled.errors import UsageError
from unpooled.papers.bayes import posterior_as_published

RNG = np.random.default_rng(3)
X = RNG.uniform(-1, 1, (60, 4)) * [1, 2, 3, 4]
Y = X @ [1.0, -0.5, 0.25, 0.1] + 0.3 * RNG.normal(size=60)
GIVEN = {
    "bounds": {f"x{j}": (-h, h) for j, h in enumerate((1, 2, 3, 4))},
    "y_bounds": (-4, 4),
    "delta": 1e-4,
    "fit_intercept": False,
    "random_state": 1,
}


def released(epsilon: float, **more: object) -> PrivateBayesianRegression:
    return PrivateBayesianRegression(epsilon=epsilon, **{**GIVEN, **more}).fit(X, Y)


def test_absolute_eigenvalues_are_those_of_the_datas_own_units() -> None:
    moments = released(0.5, calibration="published", projection=0, indefinite="kept").moments_
    width = np.array([1.0, 2.0, 3.0, 4.0])
    own = moments.gram[:4, :4] * np.outer(width, width)
    values, vectors = np.linalg.eigh(own)
    assert values.min() < 0  # or the test says nothing
    right = (vectors * np.abs(values)) @ vectors.T
    cross = moments.gram[:4, 4] * width * 4.0
    wanted = np.linalg.solve(2.0 * np.eye(4) + 3.0 * right, 3.0 * cross)
    assert posterior_as_published(moments, 2.0, 3.0, indefinite="absolute").coef_ == pytest.approx(wanted, rel=1e-6)
    kept = np.linalg.solve(2.0 * np.eye(4) + 3.0 * own, 3.0 * cross)
    assert posterior_as_published(moments, 2.0, 3.0).coef_ == pytest.approx(kept, rel=1e-6)
    coded = np.linalg.eigh(moments.gram[:4, :4])  # the control: eigenvalues of coded units are others
    wrong = (coded[1] * np.abs(coded[0])) @ coded[1].T * np.outer(width, width)
    assert np.linalg.solve(2.0 * np.eye(4) + 3.0 * wrong, 3.0 * cross) != pytest.approx(wanted, rel=1e-2)


def test_a_definite_gram_stays_as_it_is() -> None:
    model = released(1e4, calibration="published", projection=0)
    one = posterior_as_published(model.moments_, indefinite="absolute")
    assert one.coef_ == pytest.approx(model.coef_, rel=1e-6)
    assert one.covariance_ == pytest.approx(model.covariance_, rel=1e-6)


def test_it_is_for_the_published_form_alone() -> None:
    sound = released(1.0, method="moments", prior_precision=1.0, noise_precision=1.0).moments_
    with pytest.raises(UsageError, match="of the sound form"):
        posterior_as_published(sound, indefinite="absolute")
    published = released(1.0, calibration="published").moments_
    with pytest.raises(UsageError, match="'kept' or 'absolute'"):
        posterior_as_published(published, indefinite="positive")


def test_lemma_1_of_the_supplement_holds_beyond_the_mean_alone() -> None:
    """For one normal variable the tail is known: the printed bound is below it where t is below the mean, which the proofs never need."""
    from scipy.stats import norm

    t = np.linspace(0.01, 6, 600)
    tail, mean = 2 * norm.sf(t), np.sqrt(2 / np.pi)
    bound = (1 - 2 / np.pi) / (t - mean) ** 2
    assert (tail <= bound)[t > mean].all()
    assert (tail > bound)[t < 0.1].all()
