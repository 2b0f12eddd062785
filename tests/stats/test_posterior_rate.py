"""Theorem 4 of the Bayes supplement: the private posterior mean comes as close as 1/n to the one without noise."""

from __future__ import annotations

import numpy as np
import pytest

from unpooled import Bounds, PrivateBayesianRegression
from unpooled.linear.moments import Moments
from unpooled.totals.total import Total

D, RUNS, SIZES = 5, 40, (1000, 10_000, 100_000)


def distances(n: int, *, power: float = 0.0) -> np.ndarray:
    """L1 distances of the posterior means; noise that grows like a power of n is what a wrong calibration could do."""
    model = PrivateBayesianRegression(epsilon=1, delta=1e-5, bounds=Bounds(norm=1), y_bounds=(-4, 4), fit_intercept=False)
    plan = model.plan(n, D)
    layout, spread = plan.design.layout, plan.design.moments.deviations(plan) * (n / SIZES[0]) ** power
    found = []
    for seed in range(RUNS):
        rng = np.random.default_rng([seed, n])
        X = rng.normal(size=(n, D))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        y = np.clip(X @ rng.normal(size=D) + rng.normal(size=n), -4, 4)
        first, second = layout.pairs
        half = np.append(layout.half_widths, layout.response.half_width)
        rows = np.column_stack([X, y]) / half
        exact = np.einsum("ij,ij->j", rows[:, first], rows[:, second]) * layout.grid**2
        noisy = Total(exact + spread * rng.normal(size=spread.size), spread, ())
        means = [
            Moments.decode(layout, total, n).posterior(1.0, 1.0).coef_ for total in (noisy, Total(exact, 0 * spread, ()))
        ]
        found.append(float(np.abs(means[0] - means[1]).sum()))
    return np.array(found)


@pytest.mark.long
@pytest.mark.slow
def test_n_times_the_distance_to_the_posterior_without_noise_does_not_rise() -> None:
    medians = [n * float(np.median(distances(n))) for n in SIZES]
    print(medians)
    assert max(medians) <= 2 * min(medians)


@pytest.mark.long
@pytest.mark.slow
def test_noise_that_grows_with_n_is_caught() -> None:
    """The control: noise that grows like the root of n, as a sum of n noisy rows would have it."""
    medians = [n * float(np.median(distances(n, power=0.5))) for n in SIZES]
    print(medians)
    assert max(medians) > 2 * min(medians)
