"""Projections of noisy moments, against least squares written down entry by entry, and what they leave determined."""

from __future__ import annotations

import numpy as np
import pytest

from unpooled.kernels.noisy import KnownDirections, cross_without_still, without_still


def with_levels(rng: np.random.Generator, n: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    """Rows with a number, three levels and a constant, and the direction along which none varies."""
    rows = np.column_stack([rng.normal(size=n), np.eye(3)[rng.choice(3, n, p=[0.5, 0.3, 0.2])], np.ones(n)])
    still = np.array([0.0, 1, 1, 1, -1])[:, None] / 2
    return rows, still


def noisy(matrix: np.ndarray, deviation: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    noise = np.triu(rng.normal(size=matrix.shape) * deviation)
    return matrix + noise + np.triu(noise, 1).T


@pytest.mark.parametrize("seed", range(5))
def test_the_projection_is_weighted_least_squares(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, still = with_levels(rng)
    deviation = rng.uniform(1, 30, (5, 5))
    deviation = np.triu(deviation) + np.triu(deviation, 1).T
    released = noisy(rows.T @ rows, deviation, rng)
    found = without_still(released, deviation**2, still)
    # Entries on and above the diagonal, weighted by their precision, under the linear constraint: by the textbook.
    upper = np.triu_indices(5)
    constraint = np.zeros((5, len(upper[0])))
    for k, (i, j) in enumerate(zip(*upper, strict=True)):
        constraint[i, k] += still[j, 0]
        if i != j:
            constraint[j, k] += still[i, 0]
    v, g = deviation[upper] ** 2, released[upper]
    wanted = g - v * (constraint.T @ np.linalg.lstsq((constraint * v) @ constraint.T, constraint @ g, rcond=None)[0])
    assert found[upper] == pytest.approx(wanted, abs=1e-6)
    assert np.abs(found @ still).max() < 1e-6
    assert found == pytest.approx(found.T, abs=1e-9)


def test_noise_that_is_half_as_variable_off_the_diagonal_is_projected_from_both_sides() -> None:
    rng = np.random.default_rng(1)
    rows, still = with_levels(rng)
    variance = np.full((5, 5), 0.5) + 0.5 * np.eye(5)
    released = noisy(rows.T @ rows, np.sqrt(variance) * 20, rng)
    others = np.eye(5) - still @ still.T
    assert without_still(released, 400 * variance, still) == pytest.approx(others @ released @ others, abs=1e-8)


def test_without_noise_or_directions_nothing_changes() -> None:
    rng = np.random.default_rng(2)
    rows, still = with_levels(rng)
    gram = rows.T @ rows
    assert without_still(gram, np.zeros((5, 5)), still) == pytest.approx(gram, abs=1e-8)
    assert without_still(gram, np.ones((5, 5)), np.empty((5, 0))) is gram
    for unit in (1e-9, 1.0, 1e9):  # noise that happens to be nothing
        assert without_still(unit * gram, np.full((5, 5), unit**2), still) == pytest.approx(
            unit * gram, rel=1e-9, abs=1e-9 * unit
        )
    several = np.kron(np.eye(2), still)
    assert without_still(np.kron(np.eye(2), gram), np.full((10, 10), 4.0), several) == pytest.approx(
        np.kron(np.eye(2), gram), abs=1e-6
    )
    cross = rows.T @ rng.normal(size=len(rows))
    assert cross_without_still(cross, np.ones(5), np.empty((5, 0))) is cross
    assert cross_without_still(cross, np.zeros(5), still) == pytest.approx(cross, abs=1e-9)


def test_cross_moments_are_projected_by_their_variances() -> None:
    rng = np.random.default_rng(3)
    rows, still = with_levels(rng)
    variance = rng.uniform(1, 50, 5)
    cross = rows.T @ rng.normal(size=len(rows)) + rng.normal(size=5) * np.sqrt(variance)
    found = cross_without_still(cross, variance, still)
    c = still[:, 0]
    assert found == pytest.approx(cross - variance * c * (c @ cross) / (c @ (variance * c)))
    assert abs(c @ found) < 1e-9


def test_what_noise_hides_is_not_determined_and_what_it_does_not_is() -> None:
    rng = np.random.default_rng(4)
    rows, _ = with_levels(rng)
    rows = np.column_stack([rows, np.full(len(rows), 0.7), rows[:, 0]])  # a constant column, and a copy of the number
    still = np.array([0.0, 1, 1, 1, -1, 0, 0])[:, None]
    variance = np.full((7, 7), 100.0)
    known = KnownDirections.of(noisy(rows.T @ rows, np.full((7, 7), 10.0), rng), variance, still)
    unit = np.eye(7)
    asked = np.array(
        [unit[2] - unit[1], unit[3] - unit[1], unit[1], unit[4], unit[5], unit[0], unit[6], unit[0] + unit[6], 0 * unit[0]]
    )
    wanted = [True, True, False, False, False, False, False, True, False]
    assert known.determined(asked).tolist() == wanted
    assert known.vectors.shape[1] == 4
    assert np.abs(known.inverse @ known.still).max() < 1e-6
    basis = np.column_stack([known.vectors, known.unknown, known.still])
    assert np.linalg.matrix_rank(basis) == 7


def test_a_direction_between_one_and_two_noise_levels_is_used_and_not_told() -> None:
    level = np.sqrt(2 * 2 * 1.0)
    known = KnownDirections.of(np.diag([1.5 * level, 100.0]), np.ones((2, 2)), np.empty((2, 0)))
    assert known.vectors.shape[1] == 2
    assert known.determined(np.eye(2)).tolist() == [False, True]


def test_a_penalty_counts_only_where_something_varies() -> None:
    rng = np.random.default_rng(5)
    rows, still = with_levels(rng)
    known = KnownDirections.of(rows.T @ rows, np.full((5, 5), 1e-6), still, np.array([5.0, 5, 5, 5, 0]))
    assert known.vectors.shape[1] == 4
    assert np.abs(known.matrix @ still).max() < 1e-4
