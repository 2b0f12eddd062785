"""What is rare or skewed keeps its coefficient: no value inside its declared range is clipped, and intervals cover what they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import expit
from world import sized

from unpooled import PrivateBayesianRegression, PrivateGLM
from unpooled.linear import schedule as rounds
from unpooled.linear import standard
from unpooled.models.glm import rows as glm_rows
from unpooled.models.glm.curvature import curvature, curvature_of_intervals

ROWS, BOUNDS = 20_000, {"rare": (0, 1), "skewed": (0, 20), "plain": (-4, 4)}
#: Of a column that is one in fifty, of a lognormal one, and of a normal one.
TRUTH = np.array([0.8, 0.1, -0.3])


def columns(rng: np.random.Generator) -> np.ndarray:
    rare, skewed = rng.random(ROWS) < 0.02, rng.lognormal(0, 1, ROWS).clip(0, 20)
    return np.column_stack([rare, skewed, rng.normal(size=ROWS).clip(-4, 4)])


def fitted(family: str, seed: int) -> list[Any]:
    """The terms of the three slopes."""
    rng = np.random.default_rng(seed)
    X = columns(rng)
    u = X @ TRUTH
    own: dict[str, Any] = {
        "epsilon": 4.0,
        "delta": 1e-6,
        "bounds": dict(zip(("x0", "x1", "x2"), BOUNDS.values(), strict=True)),
        "random_state": seed,
    }
    if family == "gaussian":
        y = np.clip(u + rng.normal(size=ROWS), -10, 10)
        model: Any = PrivateBayesianRegression(y_bounds=(-10, 10), **own).fit(X, y)
    elif family == "survival":
        time, leaves = rng.exponential(size=ROWS) / (0.3 * np.exp(u)), rng.uniform(0, 8, ROWS)
        model = PrivateGLM(family, y_bounds=(0, 5), cuts=(0.5, 1, 2, 3), method="newton", **own)
        model.fit(X, np.minimum(time, leaves), event=time <= leaves)
    elif family == "logistic":
        model = PrivateGLM(family, classes=(0, 1), method="newton", **own).fit(
            X, (rng.random(ROWS) < expit(u - 0.5)).astype(int)
        )
    else:
        model = PrivateGLM(family, y_bounds=(0, 30), method="newton", **own).fit(X, rng.poisson(np.exp(u - 0.5)).clip(0, 30))
    return list(model.summary().terms[:3])


def distances(family: str, seeds: int) -> np.ndarray:
    """How many standard errors every estimate is from the truth: seeds x columns."""
    return np.array(
        [[(t.estimate - v) / t.std_error for t, v in zip(fitted(family, seed), TRUTH, strict=True)] for seed in range(seeds)]
    )


@pytest.mark.long_for("survival", "logistic", "poisson")
@pytest.mark.slow
@pytest.mark.parametrize("family", ["gaussian", "logistic", "poisson", "survival"])
def test_rare_and_skewed_columns_keep_their_coefficients(family: str) -> None:
    seeds = sized(40, 8)
    found = distances(family, seeds)
    assert (np.abs(found.mean(axis=0)) < 0.25 + 3.5 / np.sqrt(seeds)).all(), found.mean(axis=0)
    assert np.mean(np.abs(found) < 1.96) > 0.95 - 3.5 * np.sqrt(0.95 * 0.05 / found.size)


@pytest.mark.long
@pytest.mark.slow
def test_columns_clipped_at_four_deviations_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: one in fifty is seven deviations from its mean, and cut to four it had nearly twice its coefficient."""
    families = ("poisson", "survival")
    assert all(abs(distances(family, 4)[:, 0].mean()) < 1.75 for family in families)
    monkeypatch.setattr(standard, "WIDEST", 4.0)
    monkeypatch.setattr(glm_rows, "WIDEST", 4.0)
    assert all(distances(family, 4)[:, 0].mean() > 2 for family in families)


@pytest.mark.parametrize("prior", [0.0, 3.0])
def test_intervals_that_are_eliminated_leave_the_inverse_of_the_whole(prior: float) -> None:
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(size=(500, 3)), np.eye(4)[rng.integers(0, 4, 500)]])
    information, penalty = rows.T @ rows, np.append(np.ones(3), np.zeros(4))
    events = information.diagonal()[3:]
    small = np.full((7, 7), 1e-6)
    found = curvature_of_intervals(information, small, penalty, np.empty((7, 0)), events, np.full(4, prior))
    whole = information + np.diag(penalty) + np.diag([0.0] * 3 + [prior] * 4)
    assert not found.lost.size
    assert not found.unknown.size
    assert found.information == pytest.approx(whole, abs=1e-4)
    assert found.inverse @ whole == pytest.approx(np.eye(7), abs=1e-6)
    if not prior:
        assert found.inverse == pytest.approx(curvature(information, small, penalty, np.empty((7, 0))).inverse, abs=1e-6)


def test_an_interval_below_the_noise_of_the_whole_matrix_still_takes_its_part() -> None:
    """Held against the whole noise its direction is dropped, and the slopes take up what its hazard is wrong by."""
    rng = np.random.default_rng(1)
    place = rng.choice(3, 4000, p=[0.6, 0.35, 0.05])
    late = np.column_stack([rng.normal(0.8 * (place == 2), 1.0), np.eye(3)[place]])  # those of the last interval are others
    information, score = late.T @ late, late.T @ np.where(place == 2, -0.4, 0.0)
    variance = np.full((4, 4), 100.0**2)
    none = np.empty((4, 0))
    plain = curvature(information, variance, np.zeros(4), none)
    own = curvature_of_intervals(information, variance, np.zeros(4), none, information.diagonal()[1:], np.zeros(3))
    right = np.linalg.solve(information, score)
    assert right[0] == pytest.approx(0, abs=1e-9)
    assert abs((plain.inverse @ score)[0]) > 0.01
    assert abs((own.inverse @ score)[0]) < 0.005
    assert not own.lost.size
    assert not own.unknown.size


def test_noise_between_slopes_and_intervals_leaves_the_slopes_information_as_it_is() -> None:
    """B C^-1 B' of noisy B is too large by the variances over C: on average over the noise what is left after elimination is right."""
    rng, p, noise = np.random.default_rng(2), 2, 12.0
    rows = np.column_stack([rng.normal(size=(600, p)), np.eye(3)[rng.integers(0, 3, 600)]])
    information = rows.T @ rows
    events, cross = information.diagonal()[p:], information[:p, p:]
    right = information[:p, :p] - (cross / events) @ cross.T
    variance = np.full((5, 5), 1e-9)
    variance[:p, p:] = variance[p:, :p] = noise**2
    found = []
    for _ in range(2000):
        noisy = information.copy()
        noisy[:p, p:] += rng.normal(0, noise, (p, 3))
        noisy[p:, :p] = noisy[:p, p:].T
        inverse = curvature_of_intervals(noisy, variance, np.zeros(5), np.empty((5, 0)), events, np.zeros(3)).inverse
        found.append(np.linalg.inv(inverse[:p, :p]))
    assert np.mean(found, axis=0) == pytest.approx(right, abs=0.3)
    assert (noise**2 / events).sum() > 1  # which is by how much it would be off


def test_an_interval_of_noise_alone_is_what_its_events_say() -> None:
    information = np.diag([5000.0, 900.0, -300.0])
    events = np.array([900.0, 20.0])
    found = curvature_of_intervals(
        information, np.full((3, 3), 500.0**2), np.zeros(3), np.empty((3, 0)), events, np.zeros(2)
    )
    assert 0 < found.information[2, 2] < 40
    assert np.linalg.eigvalsh(found.information).min() > 0
    assert found.lost.tolist() == [2]


def tails(seed: int) -> list[float]:
    """Errors, in standard errors, of slope and intercept under exponential residuals whose spread grows with the column."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, ROWS)
    y = (0.4 * x + (rng.exponential(size=ROWS) - 1) * (1 + 0.4 * x)).clip(-10, 20)
    own: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-5, "bounds": (-2, 2), "y_bounds": (-10, 20), "random_state": seed}
    model = PrivateBayesianRegression(method="refinement", **own).fit(x[:, None], y)
    return [(t.estimate - true) / t.std_error for t, true in zip(model.summary().terms, (0.4, 0.0), strict=True)]


@pytest.mark.slow
def test_long_tails_of_a_response_are_not_cut_where_the_noise_allows() -> None:
    assert np.abs(np.mean([tails(seed) for seed in range(8)], axis=0)).max() < 1.5


@pytest.mark.slow
def test_cutting_them_at_three_deviations_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "_TUNED", rounds._TUNED.but(clip_root=0.0))
    slope, _ = np.abs(np.mean([tails(seed) for seed in range(8)], axis=0))  # the constant is mended by the law of the tail
    assert slope > 2


def test_the_clip_is_never_below_one_and_a_half_deviations_and_grows_as_the_noise_falls() -> None:
    clips = [rounds.clip_of(noise) for noise in (1.0, 0.03, 1e-3, 1e-5, 0.0)]
    assert clips[0] == 1.5
    assert 1.5 < clips[1] < clips[2] < clips[3] < clips[4] == np.inf


def variance(seed: int) -> float:
    """Of exponential residuals, which is 1, as told."""
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(-2, 2, ROWS), (rng.exponential(size=ROWS) - 1).clip(-10, 20)
    own: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-5, "bounds": (-2, 2), "y_bounds": (-10, 20), "random_state": seed}
    return PrivateBayesianRegression(method="refinement", **own).fit(x[:, None], y).summary().residual_variance


@pytest.mark.slow
def test_squares_of_long_tails_count_where_the_noise_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert np.mean([variance(seed) for seed in range(4)]) == pytest.approx(1, abs=0.06)
    monkeypatch.setattr(rounds, "_TUNED", rounds._TUNED.but(square_root=0.0))
    assert np.mean([variance(seed) for seed in range(4)]) < 0.92


def test_a_perfect_fit_without_noise_is_one() -> None:
    x = np.linspace(-1, 1, 500)
    own: dict[str, Any] = {"epsilon": np.inf, "delta": 1e-5, "bounds": (-1, 1), "y_bounds": (-1, 1)}
    assert PrivateBayesianRegression(method="refinement", **own).fit(x[:, None], x / 2).coef_ == pytest.approx(
        [0.5], abs=1e-4
    )
