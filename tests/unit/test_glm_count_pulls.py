"""The pull of counts of two parties as products: its mean, how far honest people and liars move it, its integers, and what typed rows expect (Theorem G.17)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import nbinom, poisson

from unpooled.families.poisson import Poisson
from unpooled.linear.layout import MomentsLayout
from unpooled.linear.standard import CONSTANT
from unpooled.models.glm.counts import (
    LENGTH,
    CountForm,
    CountRows,
    CountShape,
    CountWeights,
    TypedCounts,
    least_of,
    means_over,
    of_counts,
    of_others,
)
from unpooled.models.glm.rows import Responses
from unpooled.models.glm.split import STEPS
from unpooled.privacy.bounds import Column
from unpooled.privacy.noise import KeySource
from unpooled.privacy.unit import Adjacency
from unpooled.products.sines import ANGLE, PRODUCTS
from unpooled.products.sums import CONSTANT_STEPS, GRID, RowPart

W0, Y = CONSTANT_STEPS * (STEPS // GRID) / STEPS, np.arange(500)


def pull(y: np.ndarray, ua: float, ub: float, weights: CountWeights) -> np.ndarray:
    """h_a h_b (y f(y) - e^u f(y + 1)), with h_a = min(1, e^(t - u)), and h_b one over the length of (g, sqrt r (1/2 - e^(u - t))), or h_b like h_a."""
    v, r = math.exp(ub - weights.second), math.exp(weights.first + weights.second) / weights.cut
    other = 1 / math.sqrt(1 - r * v + r * v**2) if weights.stretched else min(1, 1 / v)
    h = math.exp(min(weights.first - ua, 0)) * other
    first, second = np.minimum(y, weights.cut), np.minimum(1, weights.cut / (y + 1))
    return h * (first - math.exp(ua + ub) * second)


# --- the mean and the product ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1.0, 1.7, 4.0, 9.0])
def test_the_mean_of_a_pull_is_nothing_at_the_truth_for_every_row_and_cut(cut: float) -> None:
    for ua, ub in ((-2.0, 0.5), (0.3, 0.4), (1.5, 1.0), (3.0, -1.0)):
        for stretched in (True, False):
            weights = CountWeights(min(math.log(cut), 0.7), min(0.0, math.log(cut)), cut, stretched)
            mean = poisson.pmf(Y, math.exp(ua + ub)) @ pull(Y, ua, ub, weights)
            assert abs(mean) < 1e-12 * math.exp(max(ua + ub, 0))


def test_counts_that_are_cut_and_counts_of_another_law_move_the_mean() -> None:
    """The controls: min(y, q) - m has no mean of 0 (the design's first form), and neither have the pulls of counts that vary more than Poisson's."""
    m, cut = 3.0, 4.0
    chances = poisson.pmf(Y, m)
    assert chances @ (np.minimum(Y, cut) - m) < -0.2
    weights = CountWeights(0.5, 0.5, cut)
    spread = nbinom.pmf(Y, 1.25, 1.25 / (1.25 + m))
    assert spread @ pull(Y, math.log(m), 0.0, weights) < -0.2


def test_the_pull_is_the_product_of_two_vectors_that_are_no_longer_than_1() -> None:
    rng = np.random.default_rng(0)
    for k in range(200):
        ends = rng.normal(size=2)
        cut = max(1.0, math.exp(ends.sum()) * rng.uniform(1, 4))
        ratio, weights = math.exp(ends.sum()) / cut, CountWeights(*ends, cut, k % 2 == 0)
        ua, ub, y = 3 * rng.normal(size=50), 3 * rng.normal(size=50), rng.poisson(4, 50).astype(float)
        one, other = of_counts(ua, y, ends[0], cut, ratio), of_others(ub, ends[1], ratio, stretched=k % 2 == 0)
        assert max(np.hypot(*one).max(), np.hypot(*other).max()) <= 1 + 1e-12
        product = (one.first * other.first + one.second * other.second) * cut / math.sqrt(1 - ratio / 4)
        np.testing.assert_allclose(product, [pull(*given, weights) for given in zip(y, ua, ub, strict=True)], atol=1e-9)
        assert weights.unit * LENGTH**2 == pytest.approx(cut / math.sqrt(1 - ratio / 4))


# --- how far a person moves it ---------------------------------------------------------------------------------------------------


class Place:
    """What one person at two parties adds, in real numbers, from any unbounded numbers: they are brought inside what is proven, or are honest."""

    def __init__(
        self, lengths: tuple[float, float], ratio: float, *, boxed: bool = False, honest: str = "", columns: int = 2
    ) -> None:
        self.la, self.lb, self.ratio, self.boxed, self.honest, self.d = *lengths, ratio, boxed, honest, columns
        self.size = 4 + 4 * columns

    def _pair(self, free: np.ndarray, who: str) -> np.ndarray:
        if who in self.honest:  # any u, any count: both ends of what an honest party has
            u, y = np.atleast_1d(3 * free[0]), np.atleast_1d(8.0 * np.square(free[1]))
            found = of_counts(u, y, 0.3, 2.0, self.ratio) if who == "a" else of_others(u, 0.3, self.ratio)
            return np.concatenate(found)
        return np.tanh(free) if self.boxed else _short(free, 1.0)

    def added(self, free: np.ndarray) -> np.ndarray:
        d = self.d
        one, other = self._pair(free[:2], "a"), self._pair(free[2:4], "b")
        rows = []
        for k, (who, pair, length) in enumerate((("a", one, self.la), ("b", other, self.lb))):
            own = free[4 + 2 * k * d : 4 + 2 * (k + 1) * d]
            if who in self.honest:
                rows.append(np.outer(pair, _short(own[:d], length)))
            elif self.boxed:
                rows.append(np.array([_short(half, length) for half in own.reshape(2, d)]))
            else:
                rows.append(_short(own, length).reshape(2, d))
        big, small = rows
        return np.concatenate([other @ big, one @ small, [W0 * (one @ other)]])


def _short(row: np.ndarray, most: float) -> np.ndarray:
    length = float(np.linalg.norm(row))
    return row * (math.tanh(length) / max(length, 1e-300) * most)


def farthest(place: Place, adjacency: Adjacency, starts: int = 8) -> float:
    rng, people = np.random.default_rng(4), 1 + (adjacency is Adjacency.REPLACE)

    def moved(free: np.ndarray) -> float:
        parts = [place.added(one) for one in np.split(free, people)]
        return -float(np.linalg.norm(parts[0] - parts[1] if people > 1 else parts[0]))

    return max(-minimize(moved, 3 * rng.normal(size=people * place.size), method="BFGS").fun for _ in range(starts))


def bound_of(lengths: tuple[float, float], adjacency: Adjacency) -> float:
    return (2 if adjacency is Adjacency.REPLACE else 1) * math.sqrt(lengths[0] ** 2 + lengths[1] ** 2 + W0**2)


@pytest.mark.long
@pytest.mark.slow_for("lengths0-replace", "lengths1-replace", "lengths2-replace")
@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("lengths", [(1.0, 1.0), (1.0, 2.0), (2.0, 1.0)])
def test_whatever_both_parties_do_a_person_moves_the_products_by_no_more_than_planned(
    lengths: tuple[float, float], adjacency: Adjacency
) -> None:
    """Brute force over the blocks of two liars: it attains the theorem, and does not exceed it."""
    bound, found = bound_of(lengths, adjacency), farthest(Place(lengths, 0.8), adjacency)
    assert (1 - 1e-5) * bound < found <= bound * (1 + 1e-9)
    columns = {"a": (2, round((lengths[0] * STEPS) ** 2)), "b": (2, round((lengths[1] * STEPS) ** 2))}
    assert CountShape.of(columns, 10, 1, STEPS).distance(adjacency) == pytest.approx(bound * STEPS**2)


@pytest.mark.slow
@pytest.mark.parametrize(("honest", "least"), [("a", 1 - 1e-5), ("b", 1 - 1e-5), ("ab", 0.85)])
def test_one_liar_attains_it_and_honest_people_stay_below(honest: str, least: float) -> None:
    """Against an honest party a liar attains it; two honest people reach less."""
    bound = bound_of((1.0, 1.0), Adjacency.ZERO_OUT)
    found = farthest(Place((1.0, 1.0), 0.8, honest=honest), Adjacency.ZERO_OUT, 12)
    assert least * bound < found <= bound * (1 + 1e-9)


def test_broken_on_purpose_a_liar_moves_it_farther() -> None:
    """The control: each of a vector's two numbers proven alone, with the row that it multiplies."""
    bound = bound_of((1.0, 1.0), Adjacency.ZERO_OUT)
    assert farthest(Place((1.0, 1.0), 0.8, boxed=True), Adjacency.ZERO_OUT, 4) > 1.5 * bound


# --- a party's rows --------------------------------------------------------------------------------------------------------------


def rows_of(
    name: str, columns: int = 3, *, holds: bool = False, more: Any = (0.2, 0.1, 3.0, 1.0), slopes: Any = None
) -> CountRows:
    layout = MomentsLayout(tuple(Column(f"x{j}", -1.0, 1.0) for j in range(columns)), Column("y", 0.0, 1.0), 1 << 20)
    limit = 2 * STEPS
    part = RowPart("a", 2 if name == ANGLE else 2 * columns, STEPS**2 if name == ANGLE else limit**2, name)
    of = Responses(Column("y", 0.0, 30.0), Poisson(0.0, 30.0))
    slopes = np.array([0.5, -1.0, 0.2]) if slopes is None else slopes
    return CountForm().rows((layout, part, limit, STEPS, float(holds), of), slopes, 0 if holds else 1, (0.25, 0.25, *more))


@pytest.mark.guarantee
def test_parts_are_what_the_theorem_multiplies_and_never_longer_than_proven() -> None:
    rng, coins = np.random.default_rng(6), KeySource.simulation(1).stream("a")
    z, y, o = 3 * rng.standard_t(3, size=(4000, 3)), rng.poisson(2, 4000).astype(float), rng.normal(size=4000)
    ratio = math.exp(0.3) / 3
    made = {}
    for holds in (True, False):
        u = 0.25 + z @ [0.5, -1.0, 0.2] + (o if holds else 0)
        pair = of_counts(u, y, 0.2, 3.0, ratio) if holds else of_others(u, 0.1, ratio)
        sine, cosine = pair if holds else pair[::-1]
        short = z * np.minimum(1, (2 - math.sqrt(6) / STEPS) / np.linalg.norm(z, axis=1))[:, None]
        wanted = {ANGLE: np.column_stack([cosine, sine])}
        wanted[PRODUCTS] = np.column_stack([short * sine[:, None], short * cosine[:, None]])
        for name, real in wanted.items():
            rows = rows_of(name, holds=holds)
            assert rows.ratio == pytest.approx(ratio)
            found = rows.part_of(rows.made(z, y, o if holds else 0.0), coins, 0)
            assert np.abs(found / STEPS - real).max() < 6 / STEPS  # a step, and the two that a length leaves
            assert (found * found).sum(axis=1).max() <= rows.part.square
            made[holds, name] = found
    # What the released integers are: the pulls of Theorem G.17 but for rounding.
    one, other = made[True, ANGLE], made[False, ANGLE]
    products = (one[:, 1] * other[:, 0] + one[:, 0] * other[:, 1]).astype(float)
    weights, u = CountWeights(0.2, 0.1, 3.0, 1.0), 0.25 + z @ [0.5, -1.0, 0.2]
    real = np.array([pull(*given, weights) for given in zip(y, u + o, u, strict=True)])
    assert np.abs(products * weights.unit - real).max() < 8 * weights.cut / STEPS
    across = made[True, PRODUCTS][:, :3] * other[:, :1] + made[True, PRODUCTS][:, 3:] * other[:, 1:]
    assert np.abs(across * weights.unit - real[:, None] * short).max() < 30 * weights.cut / STEPS


@pytest.mark.guarantee
@pytest.mark.parametrize(
    "more", [(50.0, 50.0, 2.0, 1.0), (-1e12, 1e12, -5.0, 0.0), (1e12, 1e12, 1e12, 1e12), (0.0, 0.0, 0.0, 0.0)]
)
def test_whatever_numbers_a_round_asks_for_parts_are_short(more: tuple[float, ...]) -> None:
    rng, coins = np.random.default_rng(7), KeySource.simulation(1).stream("a")
    z, y = 9 * rng.normal(size=(300, 3)), rng.poisson(2, 300).astype(float)
    for holds in (True, False):
        for name in (ANGLE, PRODUCTS):
            rows = rows_of(name, holds=holds, more=more, slopes=np.array([1e12, -1e12, 3.0]))
            real = rows.made(z, y)
            assert np.isfinite(real).all()
            found = rows.part_of(real, coins, 0)
            assert 0 < (found * found).sum(axis=1).max() <= rows.part.square


def test_the_shape_of_a_round_has_two_proofs_of_each_party_and_six_numbers_more_than_slopes() -> None:
    shape = CountForm().shape({"a": (2, 100), "b": (0, 0)}, "a", 10, 4)
    assert [(part.party, part.name, part.columns) for part in shape.parts] == [
        ("a", PRODUCTS, 4),
        ("a", ANGLE, 2),
        ("b", ANGLE, 2),
    ]
    assert shape.size == 3
    assert shape.settings == 2 + 2 + 4
    assert shape.rounds == 4


# --- typed rows --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1.0, 2.5, 7.0])
def test_means_over_counts_are_sums_over_their_law(cut: float) -> None:
    m = np.array([1e-6, 0.02, 0.7, 3.0, 12.0, 59.0, 90.0, 300.0])
    chances = poisson.pmf(Y[:, None], m)
    after = np.minimum(1, cut / (Y + 1.0))[:, None]
    found = means_over(m, cut).at(m)
    np.testing.assert_allclose(found[0], (chances * after).sum(axis=0), rtol=0.01)
    later = np.minimum(1, cut / (Y + 2.0))[:, None]
    np.testing.assert_allclose(found[1], (chances * (later - after)).sum(axis=0), rtol=0.02, atol=1e-4)
    squares = (chances * (np.minimum(Y, cut)[:, None] - m * after) ** 2).sum(axis=0)
    np.testing.assert_allclose(found[2], squares, rtol=0.02)
    for top in (1.0, 3.0):
        found, slope = least_of(m, top)
        np.testing.assert_allclose(found, (chances * np.minimum(Y, top)[:, None]).sum(axis=0), rtol=1e-9)
        np.testing.assert_allclose(slope, (chances * (top > Y)[:, None]).sum(axis=0), rtol=1e-9)


def test_typed_curvature_is_that_of_the_people_and_their_pull_is_nothing_at_the_truth() -> None:
    rng = np.random.default_rng(2)
    rows = np.column_stack([rng.normal(size=(6000, 3)), np.full(6000, CONSTANT)])
    typed = TypedCounts(rows, np.array([True, False, False]), 6000, rng.normal(size=6000) / 2, 40.0, 1e8)
    b = np.array([0.5, -0.3, 0.2, 0.4])
    setting = typed.setting(b)
    assert setting.cut >= math.exp(setting.first + setting.second)
    bend, step = typed.bend(b, setting), 1e-6
    np.testing.assert_allclose(typed.pull(b, setting, b), 0, atol=1e-9)
    for k in range(4):
        moved = (typed.pull(b, setting, b + step * np.eye(4)[k]) - typed.pull(b, setting, b)) / step
        np.testing.assert_allclose(moved, bend.curvature[:, k], rtol=1e-3, atol=1)
        at = (typed.pull(b + step * np.eye(4)[k], setting, b) - typed.pull(b, setting, b)) / step
        np.testing.assert_allclose(-at, bend.curvature[:, k], rtol=1e-3, atol=1)
    # Drawn counts have the second moments that are expected.
    y = rng.poisson(typed.means(b))
    first, second = typed._parts(b)
    pulls = np.array([pull(*given, setting) for given in zip(y.astype(float), first, second, strict=True)])
    assert np.mean(pulls**2) == pytest.approx(bend.square, rel=0.1)
    there = b + np.array([0.3, 0.2, -0.2, 0.3])
    slope = typed.slope(b, setting, there)
    moved = (typed.pull(b, setting, there + step * np.eye(4)[1]) - typed.pull(b, setting, there)) / step
    np.testing.assert_allclose(moved, slope[:, 1], rtol=1e-3, atol=1)


def test_scores_of_two_cuts_are_brought_to_one_unit() -> None:
    rows = np.column_stack([np.random.default_rng(1).normal(size=(6000, 2)), np.full(6000, CONSTANT)])
    typed, b = TypedCounts(rows, np.array([True, False]), 6000, np.zeros(6000), 60.0), np.array([0.2, 0.2, 1.0])
    one, other = CountWeights(0.9, 0.3, 4.0), CountWeights(0.3, 0.0, 1.5)
    assert typed.alike(b, one, one) == 1
    bends = [typed.alike(b, one, weights) * typed.bend(b, weights).curvature for weights in (one, other)]
    np.testing.assert_allclose(bends[0][:2, :2], bends[1][:2, :2], rtol=0.12, atol=150)
    assert typed.alike(b, one, other) > 1.2


def test_where_noise_is_large_weights_fall_sooner() -> None:
    """What a setting trades: the bound of a pull against the errors of the sample."""
    rows = np.column_stack([np.random.default_rng(1).normal(size=(6000, 2)), np.full(6000, CONSTANT)])
    held, b = np.array([True, False]), np.array([0.5, 0.5, 1.0])
    found = [TypedCounts(rows, held, 6000, np.zeros(6000), 60.0, noise).setting(b) for noise in (0.0, 1e9, 1e12)]
    assert found[0].cut > found[1].cut >= found[2].cut
    assert found[0].first > found[2].first


def test_a_cut_and_its_weights_stay_within_the_declared_range() -> None:
    rows = np.column_stack([np.random.default_rng(1).normal(size=(500, 2)), np.full(500, CONSTANT)])
    typed = TypedCounts(rows, np.array([True, False]), 500, np.zeros(500), 10.0)
    for b in (np.array([9.0, 9.0, 30.0]), np.array([0.1, 0.1, 2.3]), np.array([0.0, 0.0, -30.0])):
        setting = typed.setting(b)
        assert 1 <= setting.cut <= 10 * (1 + 1e-9)
        assert math.exp(setting.first + setting.second) <= setting.cut * (1 + 1e-9)
