"""The mean that a clip cuts off: coverage, edges, and the integrals of the tail against quadrature."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats
from world import sized

from unpooled.kernels.pareto_tail import _SCALES, _SHAPES, CUTS, _cells, missing_mean

LAWS = {
    "exponential": stats.expon(),
    "log-normal": stats.lognorm(1.0),
    "gamma": stats.gamma(0.3),
    "normal": stats.norm(),
    "Student": stats.t(3),
}


def counted(r: np.ndarray) -> np.ndarray:
    return np.histogram(r, [*CUTS, math.inf])[0].astype(float)


def covered(law: str, clip: float, mu: float, unit: float, runs: int, rows: int = 20_000) -> tuple[float, float]:
    """How often the interval holds the true mean with the tails, and without them."""
    rng = np.random.default_rng(1)
    known, noise, held = LAWS[law], math.sqrt(2) / mu, np.zeros((runs, 2))
    for k in range(runs):
        r = (known.rvs(rows, random_state=rng) - known.mean()) / known.std() / unit
        mean, variance = float(np.clip(r, -clip, clip).mean()), 1 / (rows * unit**2)
        held[k, 1] = abs(mean) < 1.96 * math.sqrt(variance)
        for side in (1, -1):
            counts = counted(side * r) + noise * rng.normal(size=len(CUTS))
            more, deviation = missing_mean(counts, CUTS, rows, noise**2, clip, math.inf)
            mean, variance = mean + side * more, variance + deviation**2
        held[k, 0] = abs(mean) < 1.96 * math.sqrt(variance)
    found = held.mean(axis=0).tolist()
    return found[0], found[1]


def test_an_interval_that_knows_of_the_tail_covers_where_the_clipped_mean_does_not() -> None:
    with_tails, without = covered("exponential", 3.0, 0.15, 1.0, 30)
    assert with_tails >= 0.8  # .95 is expected: one in a thousand has less
    assert without < 0.6  # .3 is expected


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_intervals_cover_under_every_law(law: str) -> None:
    """Clips, noise of the counts, and units that are right or a tenth off."""
    cells = list(itertools.product((3.0, 6.0), (0.05, 0.15, 0.5), (1.0, 0.9, 1.1)))
    sets = sized(400, 30)
    found = [covered(law, *cell, sets)[0] for cell in cells]
    assert np.mean(found) >= 0.93
    assert min(found) >= 0.93 - 3.1 * math.sqrt(
        0.93 * 0.07 / sets
    )  # .93 is expected at least: less in one run of a thousand


@pytest.mark.parametrize("end", [3.4, 20.0, math.inf])
def test_probabilities_and_integrals_are_those_of_quadrature(end: float) -> None:
    scales, shapes, clip, places = (
        np.array([0.08, 0.7, 4.0])[:, None],
        np.array([-0.4, -0.05, 1e-12, 0.3, 0.8])[None, :],
        3.0,
        np.array(CUTS),
    )
    cells, beyond = _cells(places, clip, end, scales, shapes)
    assert cells.sum(axis=-1) == pytest.approx(1.0)
    for (i, scale), (j, shape) in ((a, b) for a in enumerate(scales[:, 0]) for b in enumerate(shapes[0])):
        law = stats.genpareto(shape if abs(shape) > 1e-9 else 0.0, loc=1.0, scale=scale)
        whole = law.cdf(end)
        wanted = np.diff(law.cdf(np.append(np.minimum(places, end), end))) / whole
        assert cells[i, j] == pytest.approx(wanted, abs=1e-9)
        area = integrate.quad(
            lambda x, law=law, whole=whole: (law.sf(x) - law.sf(end)) / whole, clip, end, epsabs=1e-12, limit=500
        )[0]
        assert beyond[i, j] == pytest.approx(area, rel=1e-5, abs=1e-9)


def test_exact_counts_of_the_law_give_its_own_missing_mean() -> None:
    """A tail of the family, expected counts of a million rows, no noise."""
    law, rows = stats.genpareto(0.2, loc=1.0, scale=0.6), 1_000_000
    counts = 0.15 * rows * np.diff(law.cdf([*CUTS, math.inf]))
    wanted = 0.15 * 0.6 / 0.8 * (1 + 0.2 * 2 / 0.6) ** (1 - 1 / 0.2)
    mean, deviation = missing_mean(counts, CUTS, rows, 0.0, 3.0, math.inf)
    assert mean == pytest.approx(wanted, rel=0.02)
    assert 0 < deviation < 0.05 * wanted


def test_nothing_is_missing_where_nothing_is_clipped() -> None:
    assert missing_mean(np.ones(11), CUTS, 100, 1.0, 3.0, 3.0) == (0.0, 0.0)
    assert missing_mean(np.ones(11), CUTS, 100, 1.0, 3.0, 0.5) == (0.0, 0.0)
    mean, deviation = missing_mean(np.zeros(11), CUTS, 10_000, 0.0, 3.0, math.inf)
    assert 0 <= mean < 1e-4
    assert 0 <= deviation < 1e-3


@pytest.mark.parametrize("rows", [1, 200, 10**6])
@pytest.mark.parametrize("end", [3.01, 12.0, math.inf])
def test_counts_that_are_noise_leave_a_sensible_prior(rows: int, end: float) -> None:
    """Residuals of variance 1 miss at most 1/12 beyond a clip of 3."""
    rng = np.random.default_rng(0)
    noise = 1000.0 * rows
    mean, deviation = missing_mean(noise * rng.normal(size=11), CUTS, rows, noise**2, 3.0, end)
    assert 0 < mean < 1 / 12
    assert 0 < deviation < 1 / 6


@pytest.mark.parametrize("counts", [np.full(11, -1e6), np.full(11, 1e6), np.append(np.zeros(10), 1e4)])
@pytest.mark.parametrize("variance", [0.0, 1e-6, 10.0])
def test_counts_that_contradict_the_law_give_finite_numbers(counts: np.ndarray, variance: float) -> None:
    for end in (5.0, math.inf):
        found = missing_mean(counts, CUTS, 5000, variance, 3.0, end)
        assert all(math.isfinite(number) and number >= 0 for number in found)


def test_the_grid_holds_what_the_page_of_proofs_says() -> None:
    assert (*_SCALES, *_SHAPES) == (0.08, 4.0, -0.4, 0.8)
    assert CUTS[0] == 1


def test_a_clip_or_an_end_below_the_first_cut_says_nothing_of_a_tail() -> None:
    counts, cuts = [5.0, 3.0, 1.0], [1.2, 2.0, 4.0]
    assert missing_mean(counts, cuts, 100.0, 4.0, 0.3, 0.9) == (0.0, 0.0)
    assert missing_mean(counts, cuts, 100.0, 4.0, 0.3, 8.0) == missing_mean(counts, cuts, 100.0, 4.0, 1.2, 8.0)
