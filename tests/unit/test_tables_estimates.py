"""What a table's estimates rest on: public totals, products of noisy counts, sets of values, the test's null law and quantiles."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from unpooled.models import load
from unpooled.models.tables.fit import (
    _FORMS,
    Counts,
    _noise_part,
    _solved,
    _weight,
    effects,
    independence,
    nearest,
    quantiles,
    read,
    shares,
    statistics,
)
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Plan, Study

Z = 1.959963984540054
RNG = np.random.default_rng(11)


def counts_of(raw: NDArray[np.float64], variance: float, *, margin: bool = False) -> Counts:
    """Counts whose parties' totals are public, and where asked the sum of the first half of the cells."""
    parties, cells = raw.shape
    sums = list(np.kron(np.eye(parties), np.ones(cells)))
    half = np.tile(np.arange(cells) < cells // 2, parties).astype(float)
    known = [1000.0] * parties
    return Counts.of(raw, variance, sums + [half] * margin, known + [450.0 * parties] * margin)


def plan_of(lines: int, levels: int, rows: int, epsilon: float, sites: int = 1) -> Plan:
    columns = tuple(Column(n, categories=tuple(f"{n}{k}" for k in range(m))) for n, m in (("a", lines), ("b", levels)))
    cards = tuple(Card(f"site{k}", rows // sites, columns) for k in range(sites))
    return load("tables").compile(Study("tables", cards, epsilon, 1e-5, parameters={"columns": ["a", "b"]}, derived=()))


# --- public totals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("margin", [False, True])
def test_counts_with_public_sums_have_the_noise_that_is_claimed(margin: bool) -> None:
    """Theorem N.2, against the projection written out."""
    raw = RNG.normal(250, 20, (3, 4))
    counts = counts_of(raw, 2.0, margin=margin)
    sums = counts.sums
    projection = np.eye(12) - np.linalg.pinv(sums) @ sums
    np.testing.assert_allclose(sums @ counts.values.ravel(), counts.known)
    np.testing.assert_allclose(counts.values.ravel(), projection @ raw.ravel() + np.linalg.pinv(sums) @ counts.known)
    weights = RNG.normal(size=(2, 12))
    places = np.arange(12)
    np.testing.assert_allclose(counts.noise(weights, places), 2.0 * weights @ projection @ weights.T)
    assert (counts.noise(weights, places).diagonal() <= 2.0 * (weights**2).sum(axis=1)).all()
    cells = [np.array([0, 4, 8]), np.array([1, 5, 9, 3])]
    ones = np.array([np.isin(np.arange(12), places) for places in cells], dtype=float)
    np.testing.assert_allclose(counts.covariance(cells), 2.0 * ones @ projection @ ones.T, atol=1e-12)
    np.testing.assert_allclose(counts.totals(cells), ones @ counts.values.ravel())
    values, deviations, shown = counts.pooled()
    each = np.tile(np.eye(4), 3)
    np.testing.assert_allclose(deviations**2, (2.0 * each @ projection @ each.T).diagonal())
    np.testing.assert_allclose(values, each @ counts.values.ravel())
    np.testing.assert_allclose(shown, values, atol=1e-6)  # none is negative


@pytest.mark.long
@pytest.mark.slow
def test_nearest_counts_are_possible_and_nearest() -> None:
    """By hand, and against alternating projections with Dykstra's correction."""
    sums = np.array([[1.0, 1, 1, 1], [1, 1, 0, 0]])
    found = nearest(np.array([-3.0, 8.0, 9.0, -6.0]), sums, np.array([10.0, 4.0]))
    np.testing.assert_allclose(found, [0, 4, 6, 0], atol=1e-5)
    np.testing.assert_allclose(nearest(np.array([-1.0, 2.0]), np.zeros((0, 2)), np.zeros(0)), [0, 2])
    rng = np.random.default_rng(6)
    sums = np.concatenate([np.kron(np.eye(3), np.ones(4)), np.kron(np.ones(3), np.eye(4)), np.ones((1, 12))])
    inverse = np.linalg.pinv(sums @ sums.T)
    for _ in range(20):
        true = rng.poisson(rng.choice([0.2, 3.0, 50.0], 12)).astype(float)
        values, known = true + rng.normal(0, 20, 12), sums @ true
        other, pushed = values, np.zeros(12)
        for _ in range(20_000):
            level = other - sums.T @ (inverse @ (sums @ other - known))
            other = np.maximum(level + pushed, 0.0)
            pushed = pushed + level - other
        found = nearest(values, sums, known)
        assert found.min() >= 0
        np.testing.assert_allclose(sums @ found, known, atol=1e-4)
        np.testing.assert_allclose(found, other, atol=1e-3)


def test_totals_that_do_not_fit_are_seen() -> None:
    raw = np.full((2, 4), 250.0)
    assert counts_of(raw, 4.0).fit == pytest.approx(1.0)
    assert counts_of(raw, 4.0, margin=True).fit < 1e-6
    assert counts_of(raw, 0.0, margin=True).fit == 1.0


# --- effects --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(_FORMS))
def test_products_of_noisy_counts_have_this_mean_and_variance(kind: str) -> None:
    """Theorem N.4 by draws; without the trace the mean is wrong, and without the second term the variance is."""
    first, second, _, _ = _FORMS[kind]
    t, theta = np.array([12.0, 5.0, 9.0, 4.0]), 0.4
    matrix = first + theta * second
    root = RNG.normal(size=(4, 4)) * 2
    covariance = root @ root.T
    drawn = t + RNG.normal(size=(400_000, 4)) @ root.T
    products = np.einsum("ri,ij,rj->r", drawn, matrix, drawn) / 2
    mean = t @ matrix @ t / 2
    linear, squares = (
        float(matrix @ t @ covariance @ matrix @ t),
        float(np.trace(matrix @ covariance @ matrix @ covariance)) / 2,
    )
    error = math.sqrt((linear + squares) / 400_000)
    trace = float(np.trace(matrix @ covariance)) / 2
    assert abs(products.mean() - mean - trace) < 6 * error
    assert abs(trace) > 12 * error
    assert products.var() == pytest.approx(linear + squares, rel=0.03)
    assert squares > 0.06 * linear


def test_weights_of_strata_have_the_smallest_variance() -> None:
    """Theorem N.5: no other weights of two unlike strata are better."""
    sizes, variance = np.array([40.0, 2000.0]), 60.0
    spread = sizes**3 / 16 + sizes**2 * variance / 4 + 2 * variance**2

    def precision(weights: NDArray[np.float64]) -> float:
        return float((weights @ sizes**2) ** 2 / (weights**2 @ spread))

    own = np.array([_weight(np.full(4, n / 4), variance) for n in sizes])
    best = precision(own)
    assert all(precision(own * (1, factor)) < best for factor in (0.5, 0.9, 1.1, 2.0))
    assert best > 1.01 * precision(1 / sizes)
    assert _weight(np.full(4, 25.0), 0.0) == pytest.approx(1 / 100)  # Mantel and Haenszel's


def test_a_set_of_values_has_every_form() -> None:
    named, nothing = ("odds ratio", "b", "a"), np.zeros(3)

    def solved(f: tuple[float, float], noise: tuple[float, float, float], ends: tuple[float, float] = (0.0, math.inf)):
        return _solved(np.array(f), nothing, np.array(noise), 2.0, ends, named)

    interval = solved((10.0, -5.0), (1.0, 0.0, 0.25))
    assert (interval.form, interval.value) == ("interval", 2.0)
    assert interval.std_error == interval.noise == pytest.approx(math.sqrt(2) / 5)
    for end in (interval.low, interval.high):
        assert (10 - 5 * end) ** 2 == pytest.approx(4 * (1 + 0.25 * end**2))
    above = solved((10.0, -1.0), (1.0, 0.0, 1.0))
    assert (above.form, above.high, above.std_error) == ("above", None, None)
    assert (10 - above.low) ** 2 == pytest.approx(4 * (1 + above.low**2))
    assert solved((1.0, -1.0), (1.0, 0.0, 1.0)).form == "unknown"
    assert solved((0.0, 0.0), (1.0, 0.0, 1.0)).form == "unknown"
    outside = solved((10.0, 1.0), (1.0, 0.0, 1.0), (-100.0, 100.0))
    assert outside.form == "outside"
    assert outside.low < outside.high
    below = solved((-0.2, -10.0), (1.0, 0.0, 0.25))  # the estimate is negative, the set is not
    assert (below.form, below.value, below.low) == ("below", None, None)
    assert solved((-30.0, -10.0), (1.0, 0.0, 0.25)).form == "unknown"  # nothing of it is possible


def test_effects_of_a_line_without_rows_are_not_identified() -> None:
    counts = counts_of(np.array([[800.0, 200.0, 0.0, 0.0]]), 9.0)
    found = effects(counts, [[np.array([k]) for k in range(4)]], Z, "b", "a")
    assert [effect.form for effect in found] == ["unknown"] * 3
    none = shares(counts, [np.array([2]), np.array([3])], Z, "b", ("no", "yes"))
    assert [share.value for share in none] == [None, None]


def test_a_share_without_noise_has_wilsons_interval() -> None:
    counts = counts_of(np.array([[900.0, 100.0]]), 0.0)
    value = shares(counts, [np.array([0]), np.array([1])], Z, "", ("no", "yes"))[1].value
    assert value is not None
    middle, half = (0.1 + Z**2 / 2000) / (1 + Z**2 / 1000), Z * math.sqrt(0.09 / 1000 + Z**2 / 4e6) / (1 + Z**2 / 1000)
    assert (value.low, value.high) == (pytest.approx(middle - half), pytest.approx(middle + half))
    assert value.std_error == pytest.approx(math.sqrt(0.09 / 1000))
    assert value.noise == 0


# --- the test of independence ---------------------------------------------------------------------------------------------


def test_the_noise_in_the_test_is_what_residuals_have() -> None:
    """Theorem N.3, by draws of the residuals with known margins."""
    p, q, n, s = np.array([0.5, 0.3, 0.2]), np.array([0.7, 0.3]), 400, 3.0
    rows, columns = np.eye(3) - np.outer(p, np.ones(3)), np.eye(2) - np.outer(np.ones(2), q)
    drawn = RNG.multinomial(n, np.outer(p, q).ravel(), size=100_000).reshape(-1, 3, 2)
    noise = s * RNG.normal(size=drawn.shape)
    sampling, hidden = ((rows @ tables @ columns).var(axis=0) for tables in (drawn, noise))
    np.testing.assert_allclose(sampling, n * np.outer(p * (1 - p), q * (1 - q)), rtol=0.03)
    weight = 1 / (n * np.outer(p, q) + s**2)
    expected = (weight * hidden).sum() / (weight * (sampling + hidden)).sum()
    assert _noise_part(p, q, n, s) == pytest.approx(expected, rel=0.03)


def test_a_table_with_noise_alone_is_refused_and_an_effect_is_found() -> None:
    rng = np.random.default_rng(4)
    strong = np.array([[900.0, 100.0], [800.0, 200.0]])
    assert independence(strong, 5.0, 2000, rng).p_value == pytest.approx(1 / 500)
    assert independence(strong, 40.0, 2000, rng).why == "the noise moves it more than sampling does"
    assert "fewer than two levels" in independence(np.array([[900.0, 100.0], [4.0, -3.0]]), 5.0, 1000, rng).why
    alone, p, q = statistics(strong[None], 0.0)
    assert alone[0] == pytest.approx(39.2156862745)
    assert (p[0].tolist(), q[0].tolist()) == ([0.5, 0.5], [0.85, 0.15])


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("lines", "levels", "rows", "epsilon"),
    [((0.5, 0.5), (0.9, 0.1), 1500, 1.0), ((0.5, 0.3, 0.2), (0.5, 0.3, 0.15, 0.05), 4000, 0.8)],
)
def test_the_size_of_the_test_is_nominal_and_a_naive_one_is_not(
    lines: tuple[float, ...], levels: tuple[float, ...], rows: int, epsilon: float
) -> None:
    """1,000 runs: a size of .05 leaves .028 to .075 once in a thousand. The control forgets the noise in its null law."""
    from scipy.special import chdtrc

    plan, rng = plan_of(len(lines), len(levels), rows, epsilon), np.random.default_rng(8)
    deviation = float(plan.releases[0].mechanism.deviations[0])
    p = np.outer(lines, levels).ravel()
    own = naive = 0
    for _ in range(1000):
        noisy = rng.multinomial(rows, p) + np.rint(deviation * rng.normal(size=p.size))
        found = read(plan, plan.study.parties, noisy[None].astype(float), deviation**2).independence
        own += found is not None and found.p_value is not None and found.p_value <= 0.05
        (statistic,), _, _ = statistics(noisy.reshape(1, len(lines), -1), 0.0)
        naive += chdtrc((len(lines) - 1) * (len(levels) - 1), statistic) <= 0.05
    assert 28 <= own <= 75
    assert naive > 80


@pytest.mark.slow
def test_effects_cover_with_noise_and_without_it_in_the_variance_they_do_not() -> None:
    """Coverage of all five effects over three sites, and of an odds ratio whose variance forgets the noise."""
    plan, rng = plan_of(2, 2, 1500, 0.7, sites=3), np.random.default_rng(9)
    deviation = float(plan.releases[0].mechanism.deviations[0])
    base, other = 0.1, 0.18
    truths = {
        "odds ratio": other * (1 - base) / (base * (1 - other)),
        "risk ratio": other / base,
        "risk difference": other - base,
    }
    truths |= {"Mantel-Haenszel odds ratio": truths["odds ratio"], "common risk difference": truths["risk difference"]}
    held, naive = dict.fromkeys(truths, 0), 0
    for _ in range(600):
        exact = rng.multinomial(500, np.array([1 - base, base, 1 - other, other]) / 2, size=3)
        noisy = exact + np.rint(deviation * rng.normal(size=exact.shape))
        for effect in read(plan, plan.study.parties, noisy.astype(float), deviation**2).effects:
            truth = truths[effect.name]
            inside = (effect.low is None or effect.low <= truth) and (effect.high is None or truth <= effect.high)
            held[effect.name] += inside if effect.form != "outside" else truth <= effect.low or truth >= effect.high
        a, b, c, d = np.maximum(noisy.sum(axis=0), 1.0)
        naive += abs(math.log(a * d / (b * c) / truths["odds ratio"])) <= Z * math.sqrt(1 / a + 1 / b + 1 / c + 1 / d)
    assert all(hits >= 540 for hits in held.values()), held  # .95 leaves it once in 1e7
    assert naive < 500


# --- quantiles ------------------------------------------------------------------------------------------------------------


def test_quantiles_without_noise_are_in_their_bins() -> None:
    values = RNG.uniform(0, 10, 1000)
    counts = counts_of(np.histogram(values, bins=20, range=(0, 10))[0][None].astype(float), 0.0)
    bins = [np.array([k]) for k in range(20)]
    for quantile in quantiles(counts, bins, np.linspace(0, 10, 21).tolist(), Z, ""):
        own = np.quantile(values, quantile.part)
        assert quantile.low <= own <= quantile.high
        assert quantile.value == pytest.approx(own, abs=0.5)
        assert quantile.high - quantile.low <= 1.5
    hidden = quantiles(
        counts_of(np.array([[999.0, 1.0, -2.0, 2.0]]), 25.0), [np.array([2]), np.array([3])], [0, 1, 2], Z, "x"
    )
    assert all(quantile.value is quantile.low is None for quantile in hidden)


def test_quantiles_cover_with_noise_and_with_that_of_the_counts_alone_they_do_not() -> None:
    """Theorem N.6: 400 runs of a median at an edge, where the interval is closest; the control leaves the noise out of the variance."""
    rng, held, forgot = np.random.default_rng(10), 0, 0
    bins, edges = [np.array([k]) for k in range(40)], list(range(41))
    for _ in range(400):
        raw = rng.multinomial(1000, np.full(40, 1 / 40)) + 12 * rng.normal(size=40)
        for variance in (144.0, 0.0):
            (median,) = quantiles(counts_of(raw[None], variance), bins, edges, Z, "", (0.5,))
            inside = median.low <= 20 <= median.high
            held, forgot = held + (inside and variance > 0), forgot + (inside and variance == 0)
    assert held >= 370
    assert forgot < 360
