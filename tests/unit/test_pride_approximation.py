"""Theorems 2 and 3 of the PRIDE paper as functions: closed forms by hand, and the measured error of sketched ridge below the bound."""

from __future__ import annotations

import math

import numpy as np
import pytest

from unpooled.errors import UsageError
from unpooled.papers.pride_bounds import Shape, relative_error_bound

RNG = np.random.default_rng(0)


def test_the_shape_of_a_design_with_known_singular_values() -> None:
    left = np.linalg.qr(RNG.normal(size=(30, 4)))[0]
    right = np.linalg.qr(RNG.normal(size=(50, 4)))[0]
    shape = Shape.of(left * [8.0, 4.0, 2.0, 1.0] @ right.T)
    assert (shape.rank, shape.j80, shape.j90) == (4, 2, 2)
    assert shape.d_min == pytest.approx(1.0)
    assert shape.effective_rank == pytest.approx(85 / 64)


def test_the_bound_is_the_printed_one() -> None:
    shape = Shape(5, 2.0, 3.0, 2, 3)
    rho = math.sqrt(5 * math.log(10 / 0.1) / 2000)
    assert relative_error_bound(shape, 2000) == pytest.approx(rho / (1 - 2 * rho))
    noisy = rho / (1 - 2 * rho) * (1 + 0.5 / 2 * (2 + (0.5 * 2000 + 0.5 * 2000**2) / 2))
    assert relative_error_bound(shape, 2000, 0.5) == pytest.approx(noisy)
    assert relative_error_bound(shape, 2000, 0.5, parties=4) == pytest.approx(2 * noisy)
    assert relative_error_bound(shape, 20) == math.inf  # the theorem says nothing
    assert relative_error_bound(shape, 4000) < relative_error_bound(shape, 2000)
    for wrong in ({"sketched": 0}, {"parties": 0}, {"xi": 1.0}, {"constant": 0.0}, {"sigma": -1.0}):
        with pytest.raises(UsageError, match="at least 1"):
            relative_error_bound(shape, **{"sketched": 2000, **wrong})


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.minutes
def test_a_sketched_ridge_stays_below_it() -> None:
    """n <= p and full rank, as Assumption 1 wants; a Gaussian sketch of the other party's columns, without noise."""
    n, own, others, sketched = 6, 40, 3000, 2000
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n, own + others))
        y = rng.normal(size=n)

        def solved(kernel: np.ndarray, X: np.ndarray = X, y: np.ndarray = y) -> np.ndarray:
            return X[:, :own].T @ np.linalg.solve(kernel + 50 * np.eye(n), y)

        Z = X[:, own:] @ rng.normal(size=(others, sketched)) / math.sqrt(sketched)
        exact, found = solved(X @ X.T), solved(X[:, :own] @ X[:, :own].T + Z @ Z.T)
        error = np.linalg.norm(found - exact) / np.linalg.norm(exact)
        assert 0 < error < relative_error_bound(Shape.of(X), sketched)
