"""Small numbers inside larger computations, each against its definition: faults there were noticed by no other test."""

from datetime import date
from types import SimpleNamespace

import numpy as np
import pytest

from unpooled.inference.estimates import chi2_tail
from unpooled.inference.priors import _typical_of
from unpooled.inference.profiles import _bends, _response
from unpooled.linear.descent import CONSTANT, steep_of
from unpooled.linear.tilted import TiltedRows
from unpooled.privacy.bounds import _days_of
from unpooled.privacy.sensitivity import standardising_sums
from unpooled.privacy.unit import Adjacency

RNG = np.random.default_rng(8)


@pytest.mark.guarantee
@pytest.mark.parametrize("first", [0.3, 1.0, 2.5])
def test_an_indicator_that_vanishes_moves_one_column_and_one_that_changes_moves_two(first: float) -> None:
    """The closed form is the largest distance over all pairs of a row of two coded columns, and no more (Theorem B.7)."""

    def sums(row: tuple[int, int]) -> np.ndarray:
        return np.array([first * value for value in row] + [value**2 for value in row], dtype=float)

    levels = ((1, 0), (0, 1))
    vanishes = max(float(np.linalg.norm(sums(row))) for row in levels)
    changes = max(float(np.linalg.norm(sums(a) - sums(b))) for a in levels for b in levels)
    assert standardising_sums((True,), first, 0.0, Adjacency.ZERO_OUT) == pytest.approx(vanishes)
    numbers = standardising_sums((False,), first, 0.0, Adjacency.REPLACE)  # present numbers may lie farther apart
    assert standardising_sums((True,), first, 0.0, Adjacency.REPLACE) == pytest.approx(max(changes, numbers))


def test_the_tail_of_chi_squared() -> None:
    """A statistic of 3.84 with one degree of freedom has five per cent beyond it; without degrees nothing is tested."""
    assert chi2_tail(3.841458820694124, 1) == pytest.approx(0.05)
    assert chi2_tail(5.991464547107979, 2) == pytest.approx(0.05)
    assert chi2_tail(7.0, 0) == 1.0


def test_a_typical_slope_explains_all_together() -> None:
    """Four slopes of this size explain a variance of one; no slope counts as one."""
    assert _typical_of(np.array([True, False, True, True, True])) == pytest.approx(0.5)
    assert _typical_of(np.array([False, False])) == 1.0


def test_a_curve_bends_where_one_of_its_columns_does() -> None:
    """A straight column beside a bent one does not hide the bend."""
    x = np.linspace(0.0, 1.0, 9)
    assert not _bends(np.column_stack([x, 3 - 2 * x]))
    assert _bends(np.column_stack([x, x**2]))
    assert not _bends(np.column_stack([x, np.repeat(1.0, 9)]))


def test_a_response_with_parameters_is_only_called_a_response() -> None:
    """A name of its own is kept; a formula in parentheses is no name."""
    assert _response("(log of charges)") == "response"
    assert _response("charges") == "charges"


def test_the_noise_of_a_symmetric_matrix_is_that_of_its_released_entries() -> None:
    """Entries beside the diagonal were released times the root of two: half the variance stays in each."""
    three = SimpleNamespace(size=3)
    variance = sum(TiltedRows.matrix(three, 0.7 * upper) ** 2 for upper in np.eye(6))
    np.testing.assert_allclose(TiltedRows.noises(three, 3, 0.7), variance)


@pytest.mark.parametrize("said", [(date(2026, 1, 1), 7.0), (0.0, date(2026, 1, 1)), (0.0, 7.0), "ab"])
def test_one_date_makes_no_range_of_dates(said: object) -> None:
    """Both ends must be dates; a range that mixes them is refused elsewhere."""
    assert _days_of(said) is None
    assert _days_of((date(2026, 1, 1), date(2026, 1, 8))) == (date(2026, 1, 1), 7.0)


def test_steepness_is_the_share_of_typical_rows_that_a_clip_leaves_whole() -> None:
    """Rows of four slopes and the constant have this length; their gradients are normal."""
    length = np.sqrt(4 + CONSTANT**2)
    gradients = np.abs(RNG.standard_normal(400_000)) * length
    for clip in (0.5, 2.0, 6.0):
        assert steep_of(clip, 4) == pytest.approx(float((gradients < clip).mean()), abs=0.004)
