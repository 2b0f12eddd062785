"""For development only: the published PLS with the package's deviation has the law of the authors' own package, diPLSlib.

diPLSlib needs another scikit-learn than this project, so it lives in an environment of its own: ``UNPOOLED_DIPLSLIB`` names that one's Python.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import numpy as np
import pytest

PYTHON = os.environ.get("UNPOOLED_DIPLSLIB", "")
RUNS, LEVEL = 600, 1e-3

pytestmark = [
    pytest.mark.minutes,
    pytest.mark.skipif(
        not PYTHON,
        reason="UNPOOLED_DIPLSLIB names no Python with diPLSlib (its own environment: it wants scikit-learn < 1.8)",
    ),
]


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    return importlib.import_module("experiments.pls.beside_diplslib")


def test_the_largest_response_is_the_largest_in_absolute_value_in_every_component(beside) -> None:
    """The package takes the one for the other, which is no difference on these data."""
    X, y = beside.data()
    E, f = X - X.mean(axis=0), y - y.mean()
    for _ in range(beside.COMPONENTS):
        assert f.max() == np.abs(f).max()
        t = E @ (E.T @ f)
        t /= np.linalg.norm(t)
        E, f = E - np.outer(t, t @ E), f - (f @ t) * t


@pytest.mark.parametrize("epsilon", [1.0, 10.0, 100.0])
def test_coefficients_have_the_law_of_the_authors_package(beside, epsilon: float) -> None:
    """Two-sample Kolmogorov-Smirnov tests of every coefficient; the level allows for all of them."""
    theirs = beside.theirs(PYTHON, epsilon, RUNS)
    assert np.isfinite(theirs).all()
    assert beside.smallest_p(beside.ours("sigma^2", epsilon, RUNS), theirs) > LEVEL / beside.CHANNELS
    if epsilon <= 10:  # where the noise is small the printed deviation is no different
        assert beside.smallest_p(beside.ours("sigma", epsilon, RUNS), theirs) < LEVEL / beside.CHANNELS
