"""Predictions of generalised linear models where the rounds end before they have settled (`models/glm/THEORY.md`, section 3)."""

from __future__ import annotations

import numpy as np
import pytest

from unpooled import PrivateGLM
from unpooled.models.glm import fit

N, COLUMNS = 5000, 20


def sharing_a_factor() -> tuple[np.ndarray, np.ndarray]:
    """Rows of columns with a common factor, and responses of a gamma model."""
    rng = np.random.default_rng(5)
    rows = np.sqrt(0.4) * rng.normal(size=(N, COLUMNS)) + np.sqrt(0.6) * rng.normal(size=(N, 1))
    eta = rows @ rng.normal(size=COLUMNS)
    mean = np.exp(0.5 + 0.7 * (eta - eta.mean()) / eta.std())
    return rows.clip(-4, 4), (mean * rng.gamma(2.0, 0.5, N)).clip(0.01, 60)


def ratio_of_means() -> float:
    rows, y = sharing_a_factor()
    model = PrivateGLM(family="gamma", epsilon=10.0, bounds=(-4, 4), y_bounds=(0.01, 60), random_state=1)
    return float(np.mean(model.fit(rows, y).predict(rows)) / np.mean(y))


def test_predicted_means_are_right_where_rounds_have_not_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ratio_of_means() == pytest.approx(1.0, abs=0.06)
    monkeypatch.setattr(fit, "_FARTHER", (1.0,))
    assert ratio_of_means() > 1.2  # the control: what the noise of the rounds says, and nothing else


@pytest.mark.parametrize("farther", [1.0, 1e2, 1e5])
def test_the_way_is_about_as_good_as_if_its_variance_were_known(farther: float, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(8)
    size, stated = 12, 1e-5
    draws = rng.normal(size=(400, size)) @ rng.normal(size=(size, size))
    weighted, met = draws.T @ draws, 9.0 * np.eye(size)
    errors, distances = np.zeros(2), []
    for _ in range(60):
        way = np.sqrt(farther * stated) * rng.normal(size=size)
        score = weighted @ way + 3 * rng.normal(size=size)
        believed = weighted * stated
        known = believed.T @ np.linalg.solve(believed @ weighted + met / farther, score)
        found, left = fit._believed_move(weighted, stated, met, score)
        errors += [(found - way) @ weighted @ (found - way), (known - way) @ weighted @ (known - way)]
        distances.append((found - way) @ np.linalg.solve(left, found - way) / size)
    assert errors[0] < 1.2 * errors[1]
    # The way is about as far from the mean as the covariance says; where steps may be far longer it says more than is true, never less.
    assert np.mean(distances) < 1.3
