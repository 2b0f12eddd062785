"""Private ranges: what a record moves, what is read from noisy counts, and that their price is in every later statement."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import unpooled
from unpooled import Bounds, Budget, PrivateBayesianRegression
from unpooled.errors import UsageError
from unpooled.models.describe.declared import BINS, EDGES, FARTHEST, RangesLayout, bins_of
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Adjacency, Unit

RNG = np.random.default_rng(0)
VALUES = (-1e300, -1e13, -3.0, -1e-9, 0.0, 1e-9, 2.0**0.5, 3.0, 1e13, math.nan)


def layout_of(d: int) -> RangesLayout:
    return RangesLayout(tuple(Column(f"c{j}", -FARTHEST, FARTHEST, missing="absent") for j in range(d)))


def study_of(d: int, adjacency: str = "replace", unit: str = "record") -> Study:
    cards = (Card("all", 100, layout_of(d).columns),)
    return Study("describe", cards, 1.0, 1e-5, unit=unit, adjacency=adjacency, parameters={"ranges": True}, derived=())


def test_every_number_is_in_one_bin() -> None:
    found = bins_of(np.array(VALUES))
    assert (found >= 0).all()
    assert (found < BINS).all()
    assert found[-1] == BINS - 1
    assert (np.diff(found[:-1]) >= 0).all()
    assert (np.diff(EDGES) > 0).all()
    inside = np.array([3.0])
    at = bins_of(inside)[0]
    assert EDGES[at - 1] <= 3.0 < EDGES[at]
    with pytest.raises(UsageError, match="categories"):
        bins_of(np.array(["a"], dtype=object))


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("d", [1, 2])
def test_the_reach_is_the_largest_move_of_a_search(d: int, adjacency: Adjacency) -> None:
    """Theorem Q.1."""
    layout = layout_of(d)
    mechanism = layout.mechanism(study_of(d, str(adjacency)))
    rows = [dict(zip([f"c{j}" for j in range(d)], row, strict=True)) for row in itertools.product(VALUES, repeat=d)]

    def counts(row: dict[str, float]) -> np.ndarray:
        return layout.statistic(Table({name: np.array([value, value]) for name, value in row.items()})) // 2

    every = [counts(row) for row in rows]
    pairs = itertools.product(every, every) if adjacency is Adjacency.REPLACE else ((one, 0 * one) for one in every)
    assert max(np.linalg.norm(a - b) for a, b in pairs) == pytest.approx(mechanism.sensitivity(Unit.RECORD))
    single = max(
        np.linalg.norm(a - b)
        for (r, a), (s, b) in itertools.product(zip(rows, every, strict=True), repeat=2)
        if sum(str(r[k]) != str(s[k]) for k in r) <= 1
    )
    assert single == pytest.approx(mechanism.sensitivity(Unit.ATTRIBUTE))


@pytest.mark.parametrize("unit", ["record", "attribute"])
@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
def test_the_budget_is_spent_and_no_more(unit: str, adjacency: str) -> None:
    plan = unpooled.models.load("describe").compile(study_of(3, adjacency, unit))
    assert 0.99 < plan.epsilon(1e-5) <= 1.0


def test_ranges_hold_the_data_and_little_more() -> None:
    data = np.column_stack(
        [
            RNG.uniform(20, 90, 40_000),
            RNG.normal(0, 1e-3, 40_000),
            np.where(RNG.random(40_000) < 0.2, np.nan, RNG.lognormal(3, 1, 40_000)),
        ]
    )
    found = unpooled.describe(data, bounds=True, epsilon=1.0, random_state=1, sites=np.arange(40_000) % 3)
    for values, r in zip(data.T, found.ranges_, strict=True):
        known = values[~np.isnan(values)]
        outside = np.mean((known < r.low) | (known > r.high))
        assert outside < 0.06
        assert abs(r.clipped - outside) < 0.06
        assert r.high <= 3 * known.max()
    assert found.ranges_[2].missing == pytest.approx(0.2, abs=0.05)
    assert "clipped" in str(found)
    assert found.bounds_.columns(["x0", "x1", "x2"])[2].missing == "refuse"  # what becomes of them the release does not say


def test_too_little_to_be_seen_is_said_so() -> None:
    with pytest.raises(UsageError, match="holds more than noise"):
        unpooled.describe(RNG.normal(size=(30, 2)), bounds=True, epsilon=0.01, random_state=0)
    with pytest.raises(UsageError, match="categories"):
        unpooled.models.load("describe").compile(
            Study(
                "describe",
                (Card("a", 10, (Column("c", categories=("u", "v")),)),),
                1.0,
                1e-5,
                parameters={"ranges": True},
                derived=(),
            )
        )


def test_the_price_is_in_every_later_statement() -> None:
    X = RNG.normal(size=(2000, 2))
    y = np.clip(X[:, 0], -1, 1)
    found = unpooled.describe(X, bounds=True, epsilon=0.5, delta=1e-5)
    options = {"epsilon": 1.0, "delta": 1e-5, "y_bounds": (-1, 1)}
    paid = PrivateBayesianRegression(bounds=found.bounds_, **options).fit(X, y)
    free = PrivateBayesianRegression(bounds=(-4, 4), **options).fit(X, y)
    assert free.statement_.epsilon_per_unit["record"] <= 1.0
    # Gaussian releases compose: the root of the sum of their squares in mu is about that of epsilon here.
    assert 1.05 < paid.statement_.epsilon_per_unit["record"] < 1.5
    assert "supplied the bounds (plan" in str(paid.statement_)
    assert "without looking at the data" not in str(paid.statement_)
    assert paid.plan_.epsilon(1e-5) <= 1.0  # what this fit's own ledger debits
    means = unpooled.describe(X, found.bounds_, epsilon=1.0, delta=1e-5)
    assert 1.05 < means.statement_.epsilon_per_unit["record"] < 1.5
    again = unpooled.describe(X, bounds=True, epsilon=0.5, delta=1e-5)
    assert len(again.bounds(["x0"]).paid) == 1


def test_bounds_of_a_simulation_protect_nobody() -> None:
    X = RNG.normal(size=(2000, 2))
    found = unpooled.describe(X, bounds=True, epsilon=0.5, random_state=0)
    fit = PrivateBayesianRegression(epsilon=1.0, bounds=found.bounds_, y_bounds=(-1, 1)).fit(X, X[:, 0])
    assert not fit.statement_.holds


def test_a_shared_budget_pays_for_ranges_and_fits() -> None:
    X = RNG.normal(size=(2000, 2))
    budget = Budget(epsilon=1.0, delta=1e-4)
    found = unpooled.describe(X, bounds=True, epsilon=0.3, delta=1e-5, budget=budget)
    assert budget.spent.epsilon(1e-4) > 0 if hasattr(budget.spent, "epsilon") else budget.spent
    with pytest.raises(unpooled.Refusal):
        PrivateBayesianRegression(epsilon=2.0, delta=1e-5, bounds=found.bounds_, y_bounds=(-1, 1), budget=budget).fit(
            X, X[:, 0]
        )


def test_declared_bounds_cost_nothing() -> None:
    assert Bounds(0, 1).paid == ()
