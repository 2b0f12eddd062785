"""The histogram of residuals: what it counts, the shares and the mean square that follow, and the sentences under a table."""

from __future__ import annotations

import math

import numpy as np
import pytest

from unpooled.inference.coordinates import Clipping
from unpooled.linear.residuals import COUNT_CUTS, TAIL_CUTS, ResidualCells, ResidualCounts
from unpooled.totals.total import Total


def counted(
    residual: np.ndarray, short: np.ndarray | None = None, cuts: tuple[float, ...] = TAIL_CUTS, deviation: float = 0.0
) -> ResidualCounts:
    cells = ResidualCells(cuts)
    total = cells.added_up(residual, np.zeros(residual.size, dtype=bool) if short is None else short)
    noisy = total + deviation * np.random.default_rng(5).normal(size=total.size)
    return cells.decode(Total(noisy, np.full(total.size, deviation), ()), residual.size)


def test_every_row_is_in_one_cell() -> None:
    residual = np.array([0.0, 0.99, 1.0, -1.0, 1.4, -31.0, 32.0, -1e300, 1e300, -0.0])
    short = np.array([0, 0, 0, 0, 1, 0, 0, 0, 1, 1], dtype=bool)
    total = ResidualCells().added_up(residual, short)
    assert total.sum() == residual.size
    whole, shortened = total.reshape(2, -1)
    middle = len(TAIL_CUTS)
    assert (whole[middle], shortened[middle]) == (2, 1)
    assert (whole[middle + 1], whole[middle - 1], shortened[middle + 1]) == (1, 1, 1)
    assert (whole[0], whole[-1], shortened[-1]) == (1, 1, 1)
    found = counted(residual, short)
    assert found.shortened[0] == pytest.approx(0.3)
    assert found.side(1).sum() == 4
    assert found.side(-1).sum() == 3


def test_one_cell_of_each_kind_says_how_many_rows_are_short() -> None:
    found = counted(np.zeros(10), np.arange(10) < 4, cuts=())
    assert found.shortened == (pytest.approx(0.4), 0.0)


def test_shares_beyond_a_clip() -> None:
    residual = np.random.default_rng(0).standard_t(3, 200_000)
    found = counted(residual)
    for clip in (1.0, 2.0, 3.5, 5.0, 20.0):
        share, noise = found.beyond(clip)
        assert share == pytest.approx(float((np.abs(residual) > clip).mean()), rel=0.25)
        assert noise == 0
    assert found.beyond(math.inf)[0] == 0
    assert counted(residual, deviation=30.0).beyond(3.0)[1] == pytest.approx(30 * math.sqrt(32) / 200_000)


@pytest.mark.parametrize("law", ["normal", "exponential", "student"])
def test_what_a_clip_leaves_of_slopes_and_of_their_variance(law: str) -> None:
    rng, n = np.random.default_rng(1), 200_000
    drawn = {"normal": rng.normal(size=n), "exponential": rng.exponential(size=n), "student": rng.standard_t(3, size=n)}
    residual = (drawn[law] - drawn[law].mean()) / drawn[law].std()
    for clip in (1.5, 1.8, 2.3, 3.0, 4.5):
        inside = float((np.abs(residual) < clip).mean())
        variance = float(np.mean(np.clip(residual, -clip, clip) ** 2)) / inside**2
        assert counted(residual).uncut(clip) == (pytest.approx(inside, abs=0.008), pytest.approx(variance, rel=0.05))
        # Counts that are noise alone say what normal residuals say.
        found, spread = counted(residual, deviation=n).uncut(clip)
        assert found == pytest.approx(math.erf(clip / math.sqrt(2)), abs=0.01)
        assert 0.99 < spread < 1.08
    assert counted(residual).uncut(math.inf) == (1.0, 1.0)


def test_residuals_that_end_inside_the_clip_change_nothing() -> None:
    assert counted(np.random.default_rng(2).uniform(-1.7, 1.7, 1000)).uncut(2.0) == (1.0, 1.0)


def test_the_end_of_residuals_is_found_where_counts_are_exact() -> None:
    residual = np.random.default_rng(0).normal(size=20_000)
    assert counted(residual).end() == (4.0 if np.abs(residual).max() < 4 else 6.0)
    assert counted(np.array([0.1, 0.2])).end() == 2.0
    assert counted(np.array([0.1, 40.0])).end() == math.inf
    assert counted(residual, deviation=20.0).end() == math.inf


@pytest.mark.parametrize("deviation", [0.0, 20.0])
def test_the_mean_square_of_residuals(deviation: float) -> None:
    rng = np.random.default_rng(1)
    normal = rng.normal(size=40_000)
    assert counted(normal, cuts=COUNT_CUTS, deviation=deviation).mean_square() == pytest.approx(1.0, abs=0.08)
    mean = np.exp(0.5 + 0.4 * rng.normal(size=40_000))
    for phi in (2.0, 4.0):
        pearson = (rng.poisson(rng.gamma(mean / (phi - 1), phi - 1)) - mean) / np.sqrt(mean)
        assert counted(pearson, cuts=COUNT_CUTS, deviation=deviation).mean_square() == pytest.approx(phi, rel=0.15)


def test_counts_in_other_units() -> None:
    residual = np.random.default_rng(2).exponential(size=100_000) * 3
    found = counted(residual, cuts=COUNT_CUTS)
    scaled = found.from_cut(2.9)
    assert scaled.cuts[0] == pytest.approx(3 / 2.9)
    assert scaled.both.sum() == residual.size
    assert scaled.side(1) == pytest.approx(found.side(1)[COUNT_CUTS.index(3) :])
    mean, deviation = scaled.missing_mean(6 / 2.9, (math.inf, math.inf))
    assert mean * 2.9 == pytest.approx(3 * math.exp(-2), rel=0.1)
    assert deviation > 0


def test_sentences_appear_where_shares_matter() -> None:
    quiet = Clipping((0.001, 0.0), (0.0001, 0.0), 1.0, 4.0)
    assert quiet.sentences() == ()
    loud = Clipping((0.3, 0.01), (0.02, 0.001), 1.0, 4.0, (0.1, 0.02))
    first, second = loud.sentences(curved=True)
    assert "30.0% of rows are longer than a typical row" in first
    assert "target" in first
    assert "on the scale of the link" in first
    assert "2.0% of residuals were clipped at 4 of their standard deviations" in second
    assert "typical rows" in Clipping((0.3, 0.0), (0.0, 0.0), 2.5, 4.0).sentences()[0]
    assert Clipping((0.3, 0.2), (0.1, 0.1), 1.0, 4.0).sentences() == ()  # no more than the noise
    assert loud.in_units_of(3.0).tail == (pytest.approx(0.3), pytest.approx(0.06))
    assert loud.tail_sentence().startswith("tail: ")


@pytest.mark.parametrize("side", [0, -1])
def test_residuals_end_where_the_farther_side_does(side: int) -> None:
    """Counts without noise, of which one side alone has rows far out."""
    cuts = (1.0, 2.0, 4.0, 8.0)
    whole = np.array([0.0, 0.0, 0.0, 5.0, 90.0, 5.0, 0.0, 0.0, 0.0])
    whole[side] = 1.0
    near = ResidualCounts(cuts, whole, np.zeros(9), 0.0, 101)
    assert near.end() == math.inf
    whole[side], whole[1 if side == 0 else -2] = 0.0, 1.0
    assert ResidualCounts(cuts, whole, np.zeros(9), 0.0, 101).end() == 8.0
