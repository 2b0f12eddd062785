"""The pulls of times to an event of two parties as products: their mean, how far a person moves all pieces together, their integers, and typed persons (Theorem G.18)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from unpooled.inference.life_table import LifeTable
from unpooled.linear.layout import MomentsLayout
from unpooled.linear.standard import CONSTANT
from unpooled.models.glm.counts import of_others
from unpooled.models.glm.families import Hazards, PersonResponses
from unpooled.models.glm.split import STEPS
from unpooled.models.glm.times import TimeForm, TimeRows, TimeShape, TimeWeights, TypedTimes, of_pieces
from unpooled.privacy.bounds import Column
from unpooled.privacy.noise import KeySource
from unpooled.privacy.unit import Adjacency
from unpooled.products.sines import ANGLE, PRODUCTS
from unpooled.products.sums import RowPart

EDGES = (0.5, 1.0, 2.0)
HAZARDS = np.array([0.5, 0.2, 0.9])
FAMILY = Hazards(edges=EDGES)
#: Even chances of an exponential law: sums over them are means but for 1e-5.
EVENLY = (np.arange(100_000) + 0.5) / 100_000


def lasting(u: float, count: np.ndarray = EVENLY) -> np.ndarray:
    """Times to an event of persons with this predictor, at these chances; beyond the last end they are 3."""
    met = np.concatenate([[0.0], np.cumsum(HAZARDS * FAMILY.widths)])
    return np.interp(-np.log(count) * math.exp(-u), met, [0.0, *EDGES], right=3.0)


def pieces_of(time: np.ndarray, happened: np.ndarray, ua: Any, weights: TimeWeights) -> Any:
    """The holder's numbers by piece."""
    met = FAMILY.within(time) * HAZARDS * np.exp(ua)[..., None] / weights.stop
    place = np.minimum(np.searchsorted(EDGES, time), 2)
    return of_pieces(met, place, happened, max(weights.most, 1.0), weights.ratio)


def pulls(time: np.ndarray, happened: np.ndarray, ua: Any, ub: Any, weights: TimeWeights) -> np.ndarray:
    """h_b (d_j - L_j e^(u_a + u_b)) of every piece, of a person whom nobody follows beyond the stop."""
    ua = np.broadcast_to(np.asarray(ua, dtype=float), time.shape)
    whole = np.cumsum(FAMILY.within(time) * HAZARDS * np.exp(ua)[:, None], axis=1)
    before = np.column_stack([np.zeros(len(time)), whole[:, :-1]])
    met = np.minimum(whole, weights.stop) - np.minimum(before, weights.stop)
    events = np.zeros_like(met)
    place = np.minimum(np.searchsorted(EDGES, time), 2)
    events[np.arange(len(time)), place] = happened * (whole[:, -1] <= weights.stop)
    ub = np.broadcast_to(np.asarray(ub, dtype=float), time.shape)
    return weights.of(ub)[:, None] * (events - met * np.exp(ub)[:, None])


# --- the mean and the product ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [0.3, 0.8, 2.0])
@pytest.mark.parametrize("stop", [0.2, 0.7, 50.0])
def test_the_mean_of_every_piece_is_nothing_at_the_truth_wherever_persons_are_followed_to(stop: float, left: float) -> None:
    for ua, ub in ((-0.5, 0.4), (0.8, 0.3), (1.2, -1.0)):
        event = lasting(ua + ub)
        time, happened = np.minimum(event, left), (event <= left) * 1.0
        found = pulls(time, happened, ua, ub, TimeWeights(stop, 0.2)).mean(axis=0)
        assert np.abs(found).max() < 1e-4


def test_weights_that_look_at_the_time_followed_move_the_mean() -> None:
    """The control: a weight that falls with the hazard that somebody met, in place of a stop (the design measured intervals that covered .55)."""
    event = lasting(0.5)
    time, happened = np.minimum(event, 2.0), (event <= 2) * 1.0
    met = FAMILY.within(time) @ HAZARDS * math.exp(0.5)
    assert np.mean(np.minimum(1, 0.3 / met) * (happened - met)) > 0.1


def test_the_pulls_of_all_pieces_are_products_with_one_vector_of_the_other_party() -> None:
    rng = np.random.default_rng(0)
    for k in range(40):
        weights = TimeWeights(math.exp(rng.normal()), rng.normal(), k % 2 == 0)
        ua, ub, time = 2 * rng.normal(size=60), 2 * rng.normal(size=60), rng.uniform(0, 2, 60)
        happened = rng.choice(2, 60).astype(float)
        one, other = (
            pieces_of(time, happened, ua, weights),
            of_others(ub, weights.end, weights.ratio, stretched=k % 2 == 0),
        )
        whole = np.array([one.first.sum(axis=1), one.second.sum(axis=1)])
        assert max(np.hypot(*whole).max(), np.hypot(*other).max()) <= 1 + 1e-12
        assert (one.first**2 + one.second**2).sum(axis=1).max() <= 1 + weights.ratio + 1e-12
        product = weights.unit * (one.first * other.first[:, None] + one.second * other.second[:, None])
        np.testing.assert_allclose(product, pulls(time, happened, ua, ub, weights), atol=1e-9)


# --- how far a person moves it ---------------------------------------------------------------------------------------------------


class Member:
    """What one person at two parties adds, in real numbers, from any unbounded numbers: they are brought inside what is proven, or are honest.

    ``apart``: every piece is priced by itself, as a record of its own with a vector and a row of its own that are proven each.
    """

    def __init__(self, lengths: tuple[float, float], *, pieces: int = 3, honest: str = "", apart: bool = False) -> None:
        self.whole, self.other, self.pieces, self.honest, self.apart, self.d = *lengths, pieces, honest, apart, 2
        self.each = 2 + 2 * (self.d + pieces)
        self.size = self.each * (pieces if apart else 1) + 2 + 2 * self.d

    def _holder(self, free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if "a" not in self.honest:
            return _short(free[:2], 1.0), _short(free[2:], self.whole).reshape(2, -1)
        time, happened = np.array([2 / (1 + math.exp(-free[0]))]), np.array([float(free[1] > 0)])
        own = pieces_of(time, happened, np.array([6 * math.tanh(free[2])]), TimeWeights(0.8, 0.0))
        pair = np.array([own.first.sum(), own.second.sum()])
        row = _short(free[3 : 3 + self.d], math.sqrt(self.whole**2 - 2 * CONSTANT**2))
        return pair, np.column_stack([np.outer(pair, row), CONSTANT * np.vstack([own.first, own.second])])

    def added(self, free: np.ndarray) -> np.ndarray:
        *_, mine = np.split(free, [self.size - 2 - 2 * self.d])
        if "b" in self.honest:
            pair = np.ravel(of_others(np.atleast_1d(3 * mine[0]), 0.0, 0.8))
            small = np.outer(pair, _short(mine[1 : 1 + self.d], self.other))
        else:
            pair, small = _short(mine[:2], 1.0), _short(mine[2:], self.other).reshape(2, -1)
        found = np.zeros(2 * self.d + self.pieces)
        for k in range(self.pieces if self.apart else 1):
            one, big = self._holder(free[k * self.each : (k + 1) * self.each])
            found += np.concatenate([pair @ big, one @ small])
        return found


def _short(row: np.ndarray, most: float) -> np.ndarray:
    length = float(np.linalg.norm(row))
    return row * (math.tanh(length) / max(length, 1e-300) * most)


def farthest(member: Member, adjacency: Adjacency, starts: int = 6) -> float:
    rng, people = np.random.default_rng(4), 1 + (adjacency is Adjacency.REPLACE)

    def moved(free: np.ndarray) -> float:
        parts = [member.added(one) for one in np.split(free, people)]
        return -float(np.linalg.norm(parts[0] - parts[1] if people > 1 else parts[0]))

    return max(-minimize(moved, 3 * rng.normal(size=people * member.size), method="BFGS").fun for _ in range(starts))


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("lengths", [(1.5, 1.0), (2.0, 2.0)])
def test_whatever_both_parties_do_a_person_moves_all_pieces_together_by_no_more_than_planned(
    lengths: tuple[float, float], adjacency: Adjacency
) -> None:
    """Brute force over the blocks of two liars: it attains the theorem, and does not exceed it."""
    bound = (2 if adjacency is Adjacency.REPLACE else 1) * math.hypot(*lengths)
    found = farthest(Member(lengths), adjacency, 3)
    assert (1 - 1e-5) * bound < found <= bound * (1 + 1e-9)
    parts = tuple(
        RowPart(party, columns, round((length * STEPS) ** 2) if name == PRODUCTS else STEPS**2, name)
        for party, columns, length in (("a", 5, lengths[0]), ("b", 2, lengths[1]))
        for name, columns in ((PRODUCTS, 2 * columns), (ANGLE, 2))
    )
    assert TimeShape(parts, 10, 1, STEPS, pieces=3).distance(adjacency) == pytest.approx(bound * STEPS**2)


@pytest.mark.parametrize(("honest", "least"), [("a", 0.85), ("b", 1 - 1e-5), ("ab", 0.8)])
def test_a_liar_with_times_attains_it_and_honest_people_stay_below(honest: str, least: float) -> None:
    """Against an honest party the holder attains it; an honest holder's pieces are not all as long as is proven."""
    bound = math.hypot(1.5, 1.0)
    found = farthest(Member((1.5, 1.0), honest=honest), Adjacency.ZERO_OUT, 8)
    assert least * bound < found <= bound * (1 + 1e-9)


def test_broken_on_purpose_pieces_that_are_priced_by_themselves_move_it_farther() -> None:
    """The control: each of three pieces a record of its own, as rows of a Poisson model are; a person has three of them."""
    bound = math.hypot(1.5, 1.0)
    assert farthest(Member((1.5, 1.0), apart=True), Adjacency.ZERO_OUT, 2) > 1.5 * bound


# --- a party's rows --------------------------------------------------------------------------------------------------------------

LOGS = np.log(HAZARDS)


def rows_of(name: str, *, holds: bool, more: Any = None, slopes: Any = None) -> TimeRows:
    layout = MomentsLayout(tuple(Column(f"x{j}", -1.0, 1.0) for j in range(3)), Column("y", 0.0, 1.0), 1 << 20)
    shape = TimeShape.of_pieces({"a": (3, (2 * STEPS) ** 2), "b": (3, (2 * STEPS) ** 2)}, "a", 3, 10, 1, STEPS)
    part = next(one for one in shape.parts if one.name == name and (one.party == "a") == holds)
    of = PersonResponses(Column("y", 0.0, 2.0), FAMILY, event=Column("d", 0.0, 1.0))
    form = TimeForm().of(of, exact=False)
    more = (*LOGS, math.log(0.8), 0.1, 1.0) if more is None else more
    slopes = np.array([0.5, -1.0, 0.2]) if slopes is None else slopes
    return form.rows((layout, part, 2 * STEPS, STEPS, float(holds), of), slopes, 0, more)


@pytest.mark.guarantee
def test_parts_of_times_are_what_the_theorem_multiplies_and_never_longer_than_proven() -> None:
    rng, coins = np.random.default_rng(6), KeySource.simulation(1).stream("a")
    z, time, happened = 2 * rng.standard_t(3, size=(3000, 3)), rng.uniform(0, 2.2, 3000), rng.choice(2, 3000) * 1.0
    weights, made = TimeWeights(0.8, 0.1), {}
    u = z @ [0.5, -1.0, 0.2]
    for holds in (True, False):
        for name in (ANGLE, PRODUCTS):
            rows = rows_of(name, holds=holds)
            made[holds, name] = rows.part_of(rows.made(z, time, happened), coins, 0)
            assert (made[holds, name] ** 2).sum(axis=1).max() <= rows.part.square
    one, other = (made[holds, ANGLE].astype(float) for holds in (True, False))
    wanted = pulls(np.minimum(time, 2.0), happened * (time <= 2), u, u, weights)
    unit = weights.unit / (STEPS - 2) ** 2
    products = one[:, 1] * other[:, 0] + one[:, 0] * other[:, 1]
    assert np.abs(products * unit - wanted.sum(axis=1)).max() < 8 / STEPS
    across = (made[True, PRODUCTS][:, :6] * other[:, :1] + made[True, PRODUCTS][:, 6:] * other[:, 1:]) * unit
    short = z * np.minimum(1, (2 - math.sqrt(6) / STEPS) / np.linalg.norm(z, axis=1))[:, None]
    assert np.abs(across[:, :3] - wanted.sum(axis=1)[:, None] * short).max() < 30 / STEPS
    assert np.abs(across[:, 3:] - CONSTANT * wanted).max() < 8 / STEPS
    # Pieces add up to all of a person's pulls.
    assert np.abs(across[:, 3:].sum(axis=1) / CONSTANT - products * unit).max() < 20 / STEPS


@pytest.mark.guarantee
@pytest.mark.parametrize("last", [(500.0, 500.0, 1.0), (-1e12, 1e12, 0.0), (1e12, -1e12, 1e12), (0.0, 0.0, 0.0)])
def test_whatever_numbers_a_round_of_times_asks_for_parts_are_short(last: tuple[float, ...]) -> None:
    rng, coins = np.random.default_rng(7), KeySource.simulation(1).stream("a")
    z, time = 9 * rng.normal(size=(300, 3)), rng.uniform(0, 2, 300)
    for holds in (True, False):
        for name in (ANGLE, PRODUCTS):
            more = (1e12, -1e12, 0.0, *last)
            rows = rows_of(name, holds=holds, more=more, slopes=np.array([1e12, -1e12, 3.0]))
            real = rows.made(z, time, np.ones(300))
            assert np.isfinite(real).all()
            found = rows.part_of(real, coins, 0)
            assert (found * found).sum(axis=1).max() <= rows.part.square


def test_the_shape_of_a_round_of_times_has_pieces_at_the_holder_and_no_constant() -> None:
    shape = TimeShape.of_pieces({"a": (2, 100), "b": (1, 50)}, "b", 3, 10, 4, STEPS)
    assert [(part.party, part.name, part.columns) for part in shape.parts] == [
        ("a", PRODUCTS, 4),
        ("a", ANGLE, 2),
        ("b", PRODUCTS, 8),
        ("b", ANGLE, 2),
    ]
    assert (shape.size, shape.settings, shape.rounds) == (6, 3 + 3 + 3, 4)
    assert math.sqrt(shape.parts[2].square) == pytest.approx(CONSTANT * STEPS * math.sqrt(2), abs=5)


# --- typed persons -----------------------------------------------------------------------------------------------------------------


def typed(noise: float = 1e8) -> TypedTimes:
    rng = np.random.default_rng(2)
    rows = np.column_stack([rng.normal(size=(6000, 3)), np.full(6000, CONSTANT)])
    life = LifeTable(EDGES, (900.0, 300.0, 1200.0), (700.0, 500.0, 900.0), 1500.0, 0.0, 6000.0)
    return TypedTimes(rows, np.array([True, False, True]), 6000, life, STEPS - 2, noise)


def test_typed_curvature_of_times_is_that_of_the_people_and_their_pull_is_nothing_at_the_truth() -> None:
    one, step = typed(), 1e-6
    b = np.array([0.5, -0.3, 0.2, *(LOGS / CONSTANT)])
    setting = one.setting(b)
    bend = one.bend(b, setting)
    np.testing.assert_allclose(one.pull(b, setting, b), 0, atol=1e-9)
    np.testing.assert_allclose(one.slope(b, setting, b), bend.curvature, rtol=1e-9, atol=1e-6)
    there = b + np.array([0.3, 0.2, -0.2, 0.3, -0.4, 0.5])
    for at, truth in ((b, there), (there, b)):
        slope, (_, across) = one.slope(at, setting, truth), one.excess(0.0, 1.5, truth)
        for k, move in enumerate(step * np.eye(6)):
            moved = (one.pull(at, setting, truth + move) - one.pull(at, setting, truth)) / step
            np.testing.assert_allclose(moved, slope[:, k], rtol=1e-3, atol=0.5)
            moved = (one.excess(0.0, 1.5, truth + move)[0] - one.excess(0.0, 1.5, truth)[0]) / step
            np.testing.assert_allclose(moved, across[:, k], rtol=1e-3, atol=0.5)


def test_drawn_persons_have_the_pulls_and_second_moments_that_typed_ones_expect() -> None:
    one, rng = typed(), np.random.default_rng(3)
    at, truth = np.array([0.3, -0.1, 0.0, *(LOGS / CONSTANT)]), np.array([0.5, -0.3, 0.2, *(LOGS / CONSTANT)])
    setting = TimeWeights(0.9, 0.2)
    times, found, squares = 60, [], []
    (first, second), z = (one._parts(at)[:2]), one.rows[:, :3]
    leaving = one._leaving
    for _ in range(times):
        u = z @ truth[:3]
        met = np.concatenate([[0.0], np.cumsum(HAZARDS * FAMILY.widths)])
        event = np.interp(rng.exponential(size=6000) * np.exp(-u), met, [0.0, *EDGES], right=9.0)
        gone = np.interp(
            rng.exponential(size=6000), np.concatenate([[0], np.cumsum(leaving * FAMILY.widths)]), [0.0, *EDGES], right=2.0
        )
        own = pulls(np.minimum(event, gone), (event <= gone) * 1.0, first, second, setting)
        rows = np.column_stack([z * own.sum(axis=1)[:, None], CONSTANT * own])
        found.append(rows.sum(axis=0))
        own = pulls(
            np.minimum(event, gone), (event <= gone) * 1.0, z @ (truth[:3] * one.held), z @ (truth[:3] * ~one.held), setting
        )
        rows = np.column_stack([z * own.sum(axis=1)[:, None], CONSTANT * own])
        squares.append(rows.T @ rows)
    error = np.std(found, axis=0) / math.sqrt(times)
    assert np.abs((np.mean(found, axis=0) - one.pull(at, setting, truth)) / error).max() < 4.5
    meat = one.bend(truth, setting).meat
    np.testing.assert_allclose(np.mean(squares, axis=0), meat, rtol=0.06, atol=0.03 * float(np.abs(meat).max()))


def test_where_noise_is_large_persons_are_followed_for_less() -> None:
    """What a setting trades: the bound of a pull against the events that are lost."""
    b = np.array([0.5, -0.3, 0.2, *(LOGS / CONSTANT)])
    found = [typed(noise).setting(b) for noise in (1e4, 1e9, 1e12)]
    assert found[0].most > found[-1].most
    assert found[0].unit > found[-1].unit
    beyond = typed(0.0).setting(b)
    assert not beyond.stretched
    assert beyond.stop > found[0].stop
    np.testing.assert_allclose(beyond.of(one_to(beyond.end)), 1)
    assert typed().alike(b, found[0], found[0]) == 1
    bends = [typed().alike(b, found[0], one) * typed().bend(b, one).curvature for one in (found[0], found[-1])]
    np.testing.assert_allclose(bends[0].trace(), bends[1].trace(), rtol=0.15)


def one_to(end: float) -> np.ndarray:
    """Parts of a predictor up to this one."""
    return np.linspace(-3, end, 20)
