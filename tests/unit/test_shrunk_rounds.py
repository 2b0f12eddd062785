"""Posterior means of slopes that noisy rounds found: their arithmetic beside played rounds, and that noise alone gives no slopes."""

from __future__ import annotations

import numpy as np
import pytest

from unpooled import PrivateGLM
from unpooled.kernels.score_posterior import averaged_rounds, believed_length, believed_slopes
from unpooled.models.glm import fit


@pytest.mark.parametrize(("rounds", "step"), [(1, 0.3), (15, 0.286), (40, 0.1), (80, 1.0)])
def test_what_the_mean_of_the_later_half_keeps_is_what_rounds_give(rounds: int, step: float) -> None:
    rng = np.random.default_rng(0)
    current, later = np.zeros((2, 40_000))
    for index in range(rounds):
        current = current + step * (1.0 - current + rng.normal(size=current.size))
        later += current * (index >= rounds // 2)
    played = later / (rounds - rounds // 2)
    gone, gain = averaged_rounds(rounds, step)
    assert gone == pytest.approx(played.mean(), abs=0.03)
    assert gain == pytest.approx(played.var(), rel=0.04)


def shrunk(slopes: np.ndarray, noise: float, rng: np.random.Generator, arrived: float = 0.8) -> np.ndarray:
    """What is believed of slopes and a constant of 0.4."""
    truth = np.append(slopes, 0.4)
    found = arrived * truth + np.sqrt(noise) * rng.normal(size=truth.size)
    moving = np.arange(truth.size) < slopes.size
    believed = believed_slopes(found, np.full(truth.size, arrived), np.full(truth.size, noise), moving, slopes.size)
    assert believed[-1] == found[-1]  # the constant stays as it was found
    return believed[:-1]


@pytest.mark.parametrize("columns", [3, 20])
def test_noise_alone_gives_next_to_no_slopes_and_clear_slopes_arrive(columns: int) -> None:
    rng = np.random.default_rng(1)
    none = [np.square(shrunk(np.zeros(columns), 0.05, rng)).sum() / (0.05 * columns) for _ in range(200)]
    assert np.mean(none) < 0.15 * 1 / 0.64
    slopes = rng.normal(size=columns)
    clear = np.mean([shrunk(slopes, 1e-4, rng) for _ in range(200)], axis=0)
    assert np.abs(clear - slopes).max() < 0.02  # what rounds had not gone yet is added


def test_no_law_of_slopes_makes_it_worse_than_both_the_rounds_and_nothing() -> None:
    rng = np.random.default_rng(2)
    for length in (0.0, 0.1, 0.3, 1.0, 3.0):
        error, raw, nothing = [], [], []
        for _ in range(300):
            slopes = rng.normal(size=10) * length / np.sqrt(10)
            found = shrunk(slopes, 0.02, rng, arrived=1.0)
            error.append(np.square(found - slopes).sum())
            raw.append(0.02 * 10)
            nothing.append(np.square(slopes).sum())
        assert np.mean(error) <= 1.25 * min(np.mean(raw), np.mean(nothing)) + 0.02


def test_a_believed_length_is_the_mean_of_slopes_that_both_measurements_leave_likely() -> None:
    """Slopes drawn from what is believed before, each weighed by how likely it makes both measurements."""
    rng = np.random.default_rng(4)
    deviations, arrived, noise, error = np.array([0.0, 0.3, 0.9]), 0.7, 0.03, 0.02
    found, length = np.array([0.25, -0.2]), 0.6
    direction = found / np.linalg.norm(found)
    scale = rng.choice(deviations, size=400_000, p=[0.3, 0.35, 0.35]) / np.sqrt(2)
    slopes = scale[:, None] * rng.normal(size=(scale.size, 2))
    along = slopes @ direction
    log = -0.5 * (np.square(found - arrived * slopes).sum(axis=1) / noise + (length - along) ** 2 / error)
    weights = np.exp(log)
    wanted = float(weights @ along / weights.sum())
    assert believed_length(found, arrived, noise, length, error, deviations) == pytest.approx(wanted, rel=0.02)


def test_a_believed_length_follows_the_better_of_two_measurements() -> None:
    found = np.array([0.6, 0.8])
    assert believed_length(found, 1.0, 1e-6, 3.0, 1.0) == pytest.approx(1.0, rel=0.01)
    assert believed_length(found, 1.0, 1.0, 0.5, 1e-6) == pytest.approx(0.5, rel=0.01)
    assert abs(believed_length(found, 1.0, 1.0, -0.02, 1e-4)) < 0.02
    assert believed_length(np.zeros(3), 0.8, 0.1, 0.0, 0.1) == 0.0


def test_counts_that_depend_on_nothing_get_next_to_no_slopes(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    X, y = rng.uniform(-1, 1, (1500, 8)), rng.poisson(2.0, 1500)
    model = PrivateGLM("poisson", epsilon=0.3, delta=1e-6, bounds=(-1, 1), y_bounds=(0, 20))

    def length() -> float:
        return float(np.mean([np.square(model.set_params(random_state=seed).fit(X, y).coef_).sum() for seed in range(6)]))

    shrunken = length()
    assert model.method_ == "gradient"
    monkeypatch.setattr(fit, "believed_slopes", lambda found, *_: found)
    assert shrunken < 0.5 * length()
