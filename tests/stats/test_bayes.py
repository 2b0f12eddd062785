"""Do 95 % intervals cover 95 %? The noise-aware posterior's do; those of the posterior that ignores the noise do not."""

from __future__ import annotations

import numpy as np
import pytest
from world import drawn, summed

from unpooled import Bounds
from unpooled.linear.layout import MomentsLayout
from unpooled.linear.moments import Moments
from unpooled.privacy.accounting import budget_mu, budget_rho
from unpooled.privacy.bounds import Column
from unpooled.privacy.mechanisms import DistributedGaussian, GaussianRelease
from unpooled.privacy.noise import KeySource
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.totals.total import Total

D, DELTA, SETS = 5, 1e-5, 200
NAMES = [f"x{j}" for j in range(D)]
#: (n, epsilon): what naive intervals covered in an independent simulation of the same kind.
SETTINGS = {(500, 0.5): 0.278, (500, 1.0): 0.464, (5000, 0.1): 0.178, (5000, 1.0): 0.826}


def data_set(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The simulator: unit rows, beta ~ N(0, I), noise of precision 1, y clipped at 4."""
    x = rng.normal(size=(n, D))
    x /= np.linalg.norm(x, axis=1)[:, None]
    beta = rng.normal(size=D)
    return x, np.clip(x @ beta + rng.normal(size=n), -4, 4), beta


def coverage(n: int, epsilon: float, *, sites: int = 1) -> tuple[dict[str, float], dict[str, float]]:
    """Share of the coefficients inside their 95 % interval, and root mean square errors, over 200 data sets.

    With several sites, the noise of a secure sum among them (one tolerated): the sum of their shares.
    """
    design = MomentsLayout.of((*Bounds(norm=1).columns(NAMES), Column("y", -4.0, 4.0)), "y", n, norm=1.0, intercept=False)
    vector = design.vector("moments", Adjacency.REPLACE)
    if sites == 1:
        release = GaussianRelease.calibrated(vector.blocks, vector.reach, Unit.RECORD, budget_mu(epsilon, DELTA))
        deviations = release.deviations
    else:
        rho = budget_rho(epsilon, DELTA)
        release = DistributedGaussian.calibrated(vector.blocks, vector.reach, Unit.RECORD, rho, sites - 2)
        deviations = release.total_deviations(sites)
    rng = np.random.default_rng([n, int(epsilon * 10)])
    inside: dict[str, list[np.ndarray]] = {"aware": [], "naive": [], "without noise": []}
    errors: dict[str, list[float]] = {name: [] for name in inside}
    for k in range(SETS):
        x, y, beta = data_set(n, rng)
        bits = [KeySource.simulation(k).stream("coverage", site, n) for site in range(sites)]
        parts = np.array_split(np.arange(n), sites)
        statistics = [design.statistic(Table({**dict(zip(NAMES, x[rows].T, strict=True)), "y": y[rows]})) for rows in parts]
        act = drawn if isinstance(release, GaussianRelease) else summed
        noisy = release.decode(sum(act(release, s, b) for s, b in zip(statistics, bits, strict=True)), sites)
        exact = sum(statistics).astype(float)
        moments = Moments.decode(design, Total(noisy, deviations, ()), n)
        fits = {
            "aware": moments.posterior(1.0, 1.0),
            "naive": moments.posterior(1.0, 1.0, naive=True),
            "without noise": Moments.decode(design, Total(exact, 0 * deviations, ()), n).posterior(1.0, 1.0),
        }
        for name, fit in fits.items():
            # The posterior's own: fit.interval names none where mostly the prior speaks, and here the truth is drawn from the prior.
            half = 1.96 * np.sqrt(fit.covariance_.diagonal())
            inside[name].append(np.abs(fit.coef_ - beta) <= half)
            errors[name].append(float(np.mean((fit.coef_ - beta) ** 2)))
    rmse = {name: float(np.sqrt(np.mean(values))) for name, values in errors.items()}
    return {name: float(np.mean(values)) for name, values in inside.items()}, rmse


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("n", "epsilon"), SETTINGS)
def test_noise_aware_intervals_cover_what_they_say(n: int, epsilon: float) -> None:
    covered, rmse = coverage(n, epsilon)
    print(f"n = {n}, epsilon = {epsilon}: coverage {covered}, rmse {rmse}")
    assert 0.93 <= covered["aware"] <= 0.97
    assert covered["naive"] < 0.90
    assert covered["naive"] == pytest.approx(SETTINGS[n, epsilon], abs=0.08)
    assert 0.90 <= covered["without noise"] <= 0.97  # y is clipped, which costs the larger n a little
    assert rmse["aware"] <= rmse["naive"] * 1.05


@pytest.mark.long
@pytest.mark.slow
def test_intervals_cover_after_a_secure_sum_too() -> None:
    covered, _ = coverage(500, 1.0, sites=5)
    print(covered)
    assert 0.93 <= covered["aware"] <= 0.97
    assert covered["naive"] < 0.5


@pytest.mark.long
@pytest.mark.slow
def test_forgetting_a_part_of_the_noise_is_caught(monkeypatch) -> None:
    """The control: without the noise of the cross moments, or with half of all of it, intervals are too short."""
    from unpooled.kernels import noisy as noisy_gram

    original = noisy_gram.noise_covariance
    with monkeypatch.context() as patch:
        patch.setattr(noisy_gram, "noise_covariance", lambda s, v, c: original(s, v, 0 * c))
        assert coverage(500, 0.5)[0]["aware"] < 0.93
    with monkeypatch.context() as patch:
        patch.setattr(noisy_gram, "noise_covariance", lambda s, v, c: original(s, v, c) / 2)
        assert coverage(500, 0.5)[0]["aware"] < 0.93
