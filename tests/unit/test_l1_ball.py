"""Quadratics over l1 balls: the projection is the nearest point, and the duality gap certifies the minimum."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Lasso

from unpooled.kernels.l1_ball import nearest, quadratic_in_balls, quadratic_with_penalty, shrunk_by
from unpooled.papers.frank_wolfe import frank_wolfe

RNG = np.random.default_rng(0)


def test_the_projection_is_the_nearest_point() -> None:
    """Its defining property: no point of the ball, so no vertex, lies ahead of it in the direction of x."""
    for _ in range(50):
        x = RNG.standard_normal(9) * 10 ** RNG.uniform(-3, 3)
        radius = 10 ** RNG.uniform(-2, 2)
        found = nearest(x, radius)
        # Each entry of `found` is a difference of numbers as large as x, so it is known to 1e-16 of that, however small the ball.
        largest = np.abs(x).max()
        assert np.abs(found).sum() <= radius + 1e-14 * largest
        if np.abs(x).sum() <= radius:
            np.testing.assert_array_equal(found, x)
        left = x - found
        assert radius * np.abs(left).max() - left @ found <= 1e-14 * largest * (radius + largest)


@pytest.mark.parametrize("blocks", [None, [4, 4, 9, 9, 9, 4, 1, 1, 1, 1, 4, 9]])
@pytest.mark.parametrize("rows", [60, 5])
def test_the_gap_certifies_the_minimum_that_frank_wolfe_finds(blocks: list[int] | None, rows: int) -> None:
    A, y = RNG.standard_normal((rows, 12)), RNG.standard_normal(rows)
    found = quadratic_in_balls(A.T @ A / rows, A.T @ y / rows, 0.3, blocks)
    x, labels = found.coefficients, np.asarray(blocks or [0] * 12)
    slope = A.T @ (A @ x - y) / rows
    gap = slope @ x + 0.3 * sum(np.abs(slope[labels == label]).max() for label in set(labels.tolist()))
    start = 0.3 * sum(np.abs(A.T @ y)[labels == label].max() / rows for label in set(labels.tolist()))
    assert found.converged
    assert found.certificate == pytest.approx(gap, abs=1e-14)
    assert -1e-14 <= gap <= 1e-10 * start + 1e-14
    assert all(np.abs(x[labels == label]).sum() <= 0.3 + 1e-12 for label in labels)
    radii = np.full(len(set(labels.tolist())), 0.3)
    peer = frank_wolfe(A, y, radii, blocks=blocks, step_rule="line-search", steps=20_000, tolerance=1e-9)
    value = peer.objective - float(y @ y) / (2 * rows)
    assert -1e-12 <= value - found.objective <= peer.certificate + 1e-12


def test_a_limit_of_iterations_is_told() -> None:
    A = RNG.standard_normal((40, 12))
    gram, linear = A.T @ A, A.T @ RNG.standard_normal(40)
    short = quadratic_in_balls(gram, linear, 0.5, max_iterations=3)
    assert (short.iterations, short.converged) == (3, False)
    long = quadratic_in_balls(gram, linear, 0.5)
    assert 0 <= short.objective - long.objective <= short.certificate


def test_nothing_to_find() -> None:
    found = quadratic_in_balls(np.eye(3), np.zeros(3), 1.0)
    assert (found.iterations, found.certificate, found.converged) == (0, 0.0, True)
    flat = quadratic_in_balls(np.zeros((3, 3)), np.array([1.0, -2.0, 0.5]), 1.0)  # linear: a vertex
    np.testing.assert_allclose(flat.coefficients, [0, -1, 0], atol=1e-9)


@pytest.mark.parametrize("rows", [60, 5])
@pytest.mark.parametrize("level", [1e-3, 0.05, 0.3, 9.0])
def test_the_penalised_minimum_is_that_of_coordinate_descent_and_its_gap_certifies_it(rows: int, level: float) -> None:
    A, y = RNG.standard_normal((rows, 12)), RNG.standard_normal(rows)
    penalty = level * RNG.uniform(0.5, 2, 12)
    gram, linear = A.T @ A / rows, A.T @ y / rows
    found = quadratic_with_penalty(gram, linear, penalty)
    theirs = Lasso(1.0, fit_intercept=False, tol=1e-14, max_iter=10**6).fit(A / penalty, y).coef_ / penalty
    objectives = [float(np.square(y - A @ x).sum() / 2 / rows + penalty @ np.abs(x)) for x in (found.coefficients, theirs)]
    assert found.converged
    assert found.objective + float(y @ y) / 2 / rows == pytest.approx(objectives[0], rel=1e-12)
    assert -1e-12 <= objectives[0] - objectives[1] <= found.certificate + 1e-12
    if level == 9.0:
        assert not found.coefficients.any()
    short = quadratic_with_penalty(gram, linear, penalty, max_iterations=1)
    assert short.objective - found.objective <= short.certificate + 1e-12
    # The gap of any point is at least its distance to the minimum, also of one that lies beyond it.
    assert short.certificate >= -1e-12


def test_without_a_penalty_the_minimum_is_least_squares() -> None:
    A, y = RNG.standard_normal((30, 6)), RNG.standard_normal(30)
    A[:, 5] = A[:, 4]
    found = quadratic_with_penalty(A.T @ A, A.T @ y, np.zeros(6))
    np.testing.assert_allclose(found.coefficients, np.linalg.lstsq(A, y, rcond=None)[0], atol=1e-10)
    assert shrunk_by(np.array([2.0, -2.0, 0.5]), np.array([1.0, 0.5, 1.0])).tolist() == [1.0, -1.5, 0.0]
