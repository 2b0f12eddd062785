"""The pull of two parties as products: its mean, how far honest people and liars move it, its integers, and rounding at random (Theorems G.14 to G.16)."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from unpooled.families.logistic import Logistic
from unpooled.kernels import field
from unpooled.linear.layout import MomentsLayout
from unpooled.models.glm import pulls
from unpooled.models.glm.pulls import (
    FIRST,
    FIRST_ROWS,
    PLAIN,
    PLAIN_ROWS,
    SECOND,
    SECOND_ROWS,
    SIGNED,
    SIGNED_ROWS,
    STEPS,
    PullRows,
    PullShape,
    at_random,
)
from unpooled.models.glm.rows import Responses
from unpooled.privacy.bounds import Column
from unpooled.privacy.noise import KeySource
from unpooled.privacy.unit import Adjacency
from unpooled.products.sums import CONSTANT_STEPS, GRID, JOINT_CONSTANT, RowPart

W0 = CONSTANT_STEPS * (STEPS // GRID) / STEPS


def pull(s: np.ndarray, ua: np.ndarray, ub: np.ndarray) -> np.ndarray:
    return s * np.minimum(1, np.exp(-s * ua)) * np.minimum(1, np.exp(-s * ub))


# --- the mean (Theorem G.14) -------------------------------------------------------------------------------------------------


def test_the_mean_of_a_pull_is_nothing_at_the_truth_for_every_row() -> None:
    ua, ub = np.meshgrid(np.linspace(-6, 6, 49), np.linspace(-6, 6, 49))
    p = expit(ua + ub)
    one, none = pull(np.ones(()), ua, ub), -pull(-np.ones(()), ua, ub)
    assert np.abs(p * one - (1 - p) * none).max() < 1e-15
    assert (one > 0).all()
    np.testing.assert_allclose(one / expit(-ua - ub), none / p, rtol=1e-12)  # psi is a positive weight times y - p
    assert max(one.max(), none.max()) <= 1


def test_a_cut_of_one_number_or_of_the_predictor_moves_the_mean() -> None:
    """The controls of the theorem: both are functions of the class."""
    ua, ub = np.full(1, 0.8), np.full(1, -0.3)
    p, s = expit(ua + ub), np.ones(1)
    cut = np.minimum(np.minimum(1, np.exp(-ua)), 0.3) * np.minimum(1, np.exp(-ub))
    assert abs(p * cut - (1 - p) * -pull(-s, ua, ub))[0] > 0.01
    kept = np.clip(ua, -0.5, 0.5)
    assert abs(p * pull(s, kept, ub) - (1 - p) * -pull(-s, kept, ub))[0] > 0.01


# --- how far a person moves it (Theorem G.15) -----------------------------------------------------------------------------------


class Place:
    """What one person at two parties adds, in real numbers with S = 1, from any unbounded numbers: they are brought inside what is proven."""

    def __init__(self, lengths: tuple[float, float], columns: int = 2, *, boxed: bool = False, ball: bool = False) -> None:
        self.la, self.lb, self.d, self.boxed, self.ball = *lengths, columns, boxed, ball
        self.size = 4 + 4 * columns

    def added(self, free: np.ndarray) -> np.ndarray:
        d = self.d
        g, r, second, first = np.tanh(free[:4])
        rows = [
            self._short(free[4 + k * d : 4 + (k + 1) * d], length)
            for k, length in enumerate((self.la, self.la, self.lb, self.lb))
        ]
        big, plain, y1, y0 = rows
        if self.boxed:  # alpha_1 and alpha_0 proven in their own ranges, and their rows
            g, r, big, plain = g - r, g + r, big - plain, big + plain
        if self.ball:  # one proof for both numbers of b: a vector of length sqrt 2 at most
            length = math.hypot(second, first)
            second, first = (
                math.sqrt(2) * part / max(length, 1.0) if length > 1 else math.sqrt(2) * part for part in (second, first)
            )
        return np.concatenate(
            [
                big * (second + first) + plain * (second - first),
                g * (y1 + y0) + r * (y1 - y0),
                [W0 * (g * (second + first) + r * (second - first))],
            ]
        )

    @staticmethod
    def _short(row: np.ndarray, most: float) -> np.ndarray:
        length = float(np.linalg.norm(row))
        return row / math.sqrt(1 + length**2) * most


def farthest(place: Place, adjacency: Adjacency, starts: int = 12) -> float:
    rng, people = np.random.default_rng(4), 1 + (adjacency is Adjacency.REPLACE)

    def moved(free: np.ndarray) -> float:
        parts = [place.added(one) for one in np.split(free, people)]
        return -float(np.linalg.norm(parts[0] - parts[1] if people > 1 else parts[0]))

    return max(-minimize(moved, 3 * rng.normal(size=people * place.size), method="BFGS").fun for _ in range(starts))


@pytest.mark.long
@pytest.mark.slow_for("lengths0-replace", "lengths1-replace")
@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("lengths", [(1.0, 1.0), (1.0, 2.0)])
def test_whatever_both_parties_do_a_person_moves_twice_the_score_by_no_more_than_planned(
    lengths: tuple[float, float], adjacency: Adjacency
) -> None:
    """Brute force over the blocks of two liars: it attains the theorem, and does not exceed it."""
    bound = (4 if adjacency is Adjacency.REPLACE else 2) * math.sqrt(lengths[0] ** 2 + lengths[1] ** 2 + W0**2)
    found = farthest(Place(lengths), adjacency)
    assert (1 - 1e-5) * bound < found <= bound * (1 + 1e-9)
    shape = PullShape.of({"a": (2, round((lengths[0] * STEPS) ** 2)), "b": (2, round((lengths[1] * STEPS) ** 2))}, "a", 10)
    assert shape.distance(adjacency) == pytest.approx(bound * STEPS**2)


@pytest.mark.parametrize("broken", ["boxed", "ball"])
def test_broken_on_purpose_a_liar_moves_it_farther(broken: str) -> None:
    """The controls: the holder's two numbers proven apart in other coordinates; one proof for both numbers of the other party."""
    bound = 2 * math.sqrt(2 + W0**2)
    assert farthest(Place((1.0, 1.0), **{broken: True}), Adjacency.ZERO_OUT, 4) > 1.2 * bound


def test_honest_people_attain_it() -> None:
    """At u = 0 the numbers are 1 for either class: the longest rows of two people of different classes are as far apart as is planned."""
    shape = PullShape.of({"a": (1, STEPS**2), "b": (1, 4 * STEPS**2)}, "a", 10)
    weights = np.concatenate([np.full(block.size, block.width) for block in shape.blocks])
    added = [released(shape, parts_at_zero(sign)) / weights for sign in (1, -1)]
    assert np.linalg.norm(added[0]) == pytest.approx(shape.distance(Adjacency.ZERO_OUT), rel=1e-12)
    assert np.linalg.norm(added[0] - added[1]) == pytest.approx(shape.distance(Adjacency.REPLACE), rel=1e-12)
    # Halved in the plan and not in the release, noise would be for half of this.
    assert np.linalg.norm(added[0] / 2) < 0.51 * shape.distance(Adjacency.ZERO_OUT)


def parts_at_zero(sign: int) -> dict[str, list[int]]:
    own = {SIGNED: [sign * STEPS], PLAIN: [STEPS], SIGNED_ROWS: [sign * STEPS], PLAIN_ROWS: [STEPS]}
    return own | {SECOND: [STEPS], FIRST: [STEPS], SECOND_ROWS: [2 * STEPS], FIRST_ROWS: [2 * STEPS]}


# --- the released integers -------------------------------------------------------------------------------------------------------


def released(shape: PullShape, parts: dict[str, list[int]]) -> np.ndarray:
    """What the shape releases of one person with these parts, modulo the prime and back."""
    row = np.array([*itertools.chain(*(parts[part.name] for part in shape.parts)), 0], dtype=np.int64)
    whole = np.array(
        [[field.encode(np.array([int(a) * int(b)], dtype=np.int64))[0] for b in row] for a in row], dtype=np.uint64
    )
    return field.decode(shape.released(whole)).astype(float)


def expected(shape: PullShape, parts: dict[str, list[int]]) -> list[int]:
    (g,), (r,), (second,), (first,) = (parts[name] for name in (SIGNED, PLAIN, SECOND, FIRST))
    found = []
    for party in shape.parties:
        if party == shape.holder:
            pairs = zip(parts.get(SIGNED_ROWS, []), parts.get(PLAIN_ROWS, []), strict=True)
            found += [big * (second + first) + plain * (second - first) for big, plain in pairs]
        else:
            found += [g * (y1 + y0) + r * (y1 - y0) for y1, y0 in zip(parts[SECOND_ROWS], parts[FIRST_ROWS], strict=True)]
    return [*found, g * (second + first) + r * (second - first)]


@pytest.mark.guarantee
@pytest.mark.parametrize("holder", ["a", "b"])
@pytest.mark.parametrize("columns", [(2, 3), (0, 2), (1, 1)])
def test_the_released_integers_are_twice_the_score_whoever_holds_the_classes(holder: str, columns: tuple[int, int]) -> None:
    rng = np.random.default_rng(5)
    own = dict(zip(("a", "b") if holder == "a" else ("b", "a"), columns, strict=True))
    shape = PullShape.of({party: (own[party], 100) for party in ("a", "b")}, holder, 10)
    sizes = {part.name: part.columns for part in shape.parts}
    parts = {name: rng.integers(-50, 50, size).tolist() for name, size in sizes.items()}
    assert released(shape, parts).tolist() == expected(shape, parts)
    assert shape.size == sum(columns) + 1 == shape.settings - 1
    for i, j in shape.products:
        assert shape.parts[i].party != shape.parts[j].party


def test_half_of_a_total_modulo_the_prime_would_show_the_parity_of_an_exact_sum() -> None:
    """Why twice the score is released: a liar's odd g + r, halved in the field, is half the prime away, past any noise."""
    half = pow(2, -1, field.MODULUS)
    even, odd = 10 * half % field.MODULUS, 11 * half % field.MODULUS
    assert min(even, field.MODULUS - even) == 5
    assert min(odd, field.MODULUS - odd) > field.MODULUS // 2 - 10


# --- a party's rows --------------------------------------------------------------------------------------------------------------


def rows_of(name: str, columns: int = 3, *, holds: bool = False, slopes: Any = None, limit: float = 2.0) -> PullRows:
    layout = MomentsLayout(tuple(Column(f"x{j}", -1.0, 1.0) for j in range(columns)), Column("y", 0.0, 1.0), 1 << 20)
    limit = round(limit * STEPS)
    part = RowPart("a", columns, limit**2, name)
    of = Responses(Column("y", categories=("no", "yes")), Logistic())
    slopes = np.zeros(columns) if slopes is None else np.asarray(slopes, dtype=float)
    return PullRows(layout, part, limit, STEPS, float(holds), of, slopes, 0.25)


@pytest.mark.guarantee
def test_parts_are_what_the_theorem_multiplies_and_never_longer_than_proven() -> None:
    rng, coins = np.random.default_rng(6), KeySource.simulation(1).stream("a")
    z, y, slopes = 3 * rng.standard_t(3, size=(4000, 3)), rng.integers(0, 2, 4000).astype(float), [0.5, -1.0, 0.2]
    u = 0.25 + z @ slopes
    short = z * np.minimum(1, (2 - math.sqrt(3) / STEPS) / np.linalg.norm(z, axis=1))[:, None]
    sign = 2 * y - 1
    number = np.exp(np.minimum(-sign * u, 0))
    wanted = {
        (True, SIGNED): (sign * number)[:, None],
        (True, PLAIN): number[:, None],
        (True, SIGNED_ROWS): short * (sign * number)[:, None],
        (True, PLAIN_ROWS): short * number[:, None],
        (False, SECOND): np.minimum(1, np.exp(-u))[:, None],
        (False, FIRST): np.minimum(1, np.exp(u))[:, None],
        (False, SECOND_ROWS): short * np.minimum(1, np.exp(-u))[:, None],
        (False, FIRST_ROWS): short * np.minimum(1, np.exp(u))[:, None],
    }
    for (holds, name), real in wanted.items():
        rows = rows_of(name, holds=holds, slopes=slopes)
        found = rows.part_of(rows.made(z, y), coins, 0)
        assert np.abs(found / STEPS - real).max() < 1.001 / STEPS  # one step, and the predictor is of the whole row
        square = STEPS**2 if name in pulls.NUMBERS else rows.part.square
        assert (found * found).sum(axis=1).max() <= square
        assert found.any(axis=1).mean() > 0.9  # the others are numbers below half a step
    signed, plain = (rows_of(name, holds=True, slopes=slopes) for name in (SIGNED_ROWS, PLAIN_ROWS))
    both = [rows.part_of(rows.made(z, y), coins, 0) for rows in (signed, plain)]
    np.testing.assert_array_equal(np.abs(both[0]), np.abs(both[1]))  # one number, with its sign and without


@pytest.mark.guarantee
def test_rounding_at_random_has_no_bias_and_the_same_coins_again() -> None:
    coins, values = KeySource.simulation(2).stream("a"), np.full((200_000, 1), 0.3)
    found = at_random(values, coins, 0)
    assert set(np.unique(found)) == {0, 1}
    assert abs(found.mean() - 0.3) < 5 * math.sqrt(0.21 / 200_000)
    np.testing.assert_array_equal(at_random(values[:50], coins, 100), found[100:150])
    whole = np.array([[STEPS, -STEPS, 0.0]])
    np.testing.assert_array_equal(at_random(np.repeat(whole, 1000, axis=0), coins, 0), np.repeat(whole, 1000, axis=0))
    # To nearest, a party with one column of two values is wrong by the same part of a step in every row.
    assert np.rint(values).mean() == 0.0


def test_a_row_that_arithmetic_made_too_long_counts_as_none() -> None:
    rows = rows_of(SECOND_ROWS, limit=0.01)
    found = rows.part_of(np.full((2, 8), 1e6), KeySource.simulation(3).stream("a"), 0)
    assert not found.any()


def test_the_noise_of_the_sum_of_pulls_is_that_of_the_constant() -> None:
    shape = PullShape.of({"a": (2, 100), "b": (1, 100)}, "b", 10)
    assert [block.width for block in shape.blocks] == [1.0, 1 / JOINT_CONSTANT]
    assert shape.square == 200 + (CONSTANT_STEPS * (STEPS // GRID)) ** 2
    assert shape.rounds == 1
    assert shape.most >= 2 * STEPS**2
