"""Rounds over standardised rows: what one record moves, that nothing else matters, which form is chosen, and what may go wrong."""

from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

import unpooled
from unpooled import Bounds, PrivateBayesianRegression
from unpooled.errors import PlanMismatch, StudyAborted, UsageError
from unpooled.kernels import rows as standard_rows
from unpooled.kernels.posterior import NoisyMoments, least_squares_state
from unpooled.linear import conversation
from unpooled.linear import descent as line_rounds
from unpooled.linear import scales as counted_scales
from unpooled.linear import schedule as linear_rounds
from unpooled.linear.descent import shrunk
from unpooled.linear.layout import MomentsLayout
from unpooled.linear.residuals import ResidualCounts
from unpooled.linear.schedule import (
    FEW,
    ROUNDS,
    WITHOUT_ROUNDS,
    WORTH_ERRORS,
    WORTH_LENGTHS,
    WORTH_SLOPES,
    Method,
    schedule_of,
    square_of,
    with_ample,
)
from unpooled.linear.standard import CONSTANT, WIDEST, Scales, StandardRows, public_numbers
from unpooled.models import load
from unpooled.models.bayes.rows import STATISTICS
from unpooled.privacy import noise
from unpooled.privacy.bounds import Column
from unpooled.privacy.sensitivity import clipped_products, standardising_sums
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.totals.total import Total

RNG = np.random.default_rng(0)
MODEL = load("bayes")
COLUMNS = {
    "numbers": (Column("a", -1, 3), Column("b", 0, 10)),
    "one": (Column("a", -2, 5),),
    "categories": (Column("a", -1, 3), Column("c", categories=("u", "v", "w"))),
    "indicator": (Column("a", -1, 3, missing="indicator"), Column("b", 0, 1, missing="absent")),
}
Y = Column("y", -4, 4)


def layout_of(kind: str, *, intercept: bool = True, rows: int = 100) -> MomentsLayout:
    return MomentsLayout.of((*COLUMNS[kind], Y), "y", rows, intercept=intercept)


def one_row(columns: tuple[Column, ...], rng: np.random.Generator) -> dict[str, list[object]]:
    """A row whose values are ends of their ranges, the middle, anything between, or missing."""
    row: dict[str, list[object]] = {}
    for column in columns:
        if column.categories is not None:
            row[column.name] = [str(rng.choice(column.categories))]
            continue
        low, high = column.range
        values = [low, high, low / 2 + high / 2, float(rng.uniform(low, high)), high + 100]
        if column.may_be_absent:
            values.append(math.nan)
        row[column.name] = [values[rng.integers(len(values))]]
    return row


def table_of(row: dict[str, list[object]]) -> Table:
    return Table({k: np.array(v, dtype=object if isinstance(v[0], str) else float) for k, v in row.items()})


def alone(statistic, row: dict[str, list[object]]) -> np.ndarray:
    """What one record adds: a table has two rows at least, so half of what two equal ones add."""
    twice = statistic(table_of({name: values * 2 for name, values in row.items()}))
    assert not (twice % 2).any()
    return twice // 2


def settings_of(layout: MomentsLayout, rng: np.random.Generator) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
    p = len(layout.coding.attribute) + 1
    width = np.exp(rng.uniform(rng.choice([-7.0, 0.0]), 1, p))  # far outliers, and rows near the middle
    return (rng.uniform(-1, 1, p), width), rng.normal(size=layout.size) * float(rng.choice([0.0, 0.3, 30.0]))


def statistics(layout: MomentsLayout, rng: np.random.Generator):
    """Every total with a statistic of one table."""
    square, stretch = float(rng.choice([9.0, 40.0])), float(rng.choice([1.0, 3.0, 40.0]))
    rows = StandardRows(layout, 100, float(rng.choice([0.1, 1.1, 4.0])), square=square, stretch=stretch)
    standard, start = settings_of(layout, rng)
    clip = float(rng.choice([0.05, 1.0, 4.0, 40.0]))
    for adjacency in Adjacency:
        yield Scales(layout).vector(1.0, adjacency), Scales(layout).statistic, adjacency
        yield rows.descent(1.0, adjacency, 3), lambda t: rows.gradient(rows.blocks(t, standard), start), adjacency
        yield rows.spread(1.0), lambda t: rows.squares(rows.blocks(t, standard), start), adjacency
        yield rows.residual(1.0, adjacency), lambda t: rows.products(rows.blocks(t, standard), start, clip), adjacency
        counted = rows.cells.vector(1.0, rows.moves(adjacency))
        yield counted, lambda t: rows.residual_cells(rows.blocks(t, standard), start, clip), adjacency
        scored = rows.meat.vector(1.0, rows.moves(adjacency))
        yield scored, lambda t: rows.meat.added_up(rows.scores(rows.blocks(t, standard), start, clip), t), adjacency


def shares_of_reach(kind: str, intercept: bool, seeds: int) -> dict[tuple[str, str, str], float]:
    """The farthest that one unit moved each total, in parts of its reach."""
    found: dict[tuple[str, str, str], float] = {}
    for seed in range(seeds):
        rng = np.random.default_rng([seed, len(kind)])
        layout = layout_of(kind, intercept=intercept)
        first, second = (one_row((*COLUMNS[kind], Y), rng) for _ in range(2))
        changed = str(rng.choice([*(c.name for c in COLUMNS[kind]), "y"]))
        value = {**first, changed: second[changed]}
        for vector, statistic, adjacency in statistics(layout, rng):
            widths = np.concatenate([np.full(b.size, b.width) for b in vector.blocks])
            a, b, c = (alone(statistic, row) for row in (first, second, value))
            assert np.abs(a).max(initial=0) <= vector.per_row
            moved = a - b if adjacency is Adjacency.REPLACE else a
            for unit, difference in ((Unit.RECORD, moved), (Unit.ATTRIBUTE, a - c)):
                if unit is Unit.ATTRIBUTE and vector.name == "scales" and adjacency is Adjacency.ZERO_OUT:
                    continue  # a value that is left out, not exchanged: the twin of the closed form below
                far = float(np.linalg.norm(difference / widths)) / vector.reach[unit].distance
                key = (vector.name, str(adjacency), str(unit))
                found[key] = max(found.get(key, 0.0), far)
    return found


@pytest.mark.long_for(
    "categories-False",
    "indicator-True",
    "indicator-False",
    "numbers-True",
    "numbers-False",
    "one-True",
    "one-False",
    "categories-True",
)
@pytest.mark.slow
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", COLUMNS)
def test_no_unit_moves_a_total_farther_than_its_reach(kind: str, intercept: bool) -> None:
    """Theorems B.5 to B.7."""
    found = shares_of_reach(kind, intercept, 400)
    assert max(found.values()) <= 1 + 1e-12
    # The search is not asleep: every bound is nearly reached by somebody, so that there is no more noise than it takes.
    assert min(far for (name, *_), far in found.items() if name not in {"cells", "meat"}) > 0.93
    assert min(found.values()) > 0.45


def test_a_gradient_that_is_not_cut_is_caught(monkeypatch) -> None:
    """Theorem B.5."""
    monkeypatch.setattr(standard_rows, "cut_residuals", uncut)
    with pytest.raises(AssertionError):
        test_no_unit_moves_a_total_farther_than_its_reach("numbers", intercept=True)


def uncut(residual, square, fine, farthest, longest) -> None:
    """Residuals are clipped, products are not: the bound on |r||z| is missing."""
    del square, longest
    residual[:] = np.trunc(np.clip(residual * fine, -farthest, farthest))


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("coded", [[], [False], [True], [False, True, False], [True, True]])
def test_the_closed_form_of_standardising_sums_is_the_largest_of_a_search(coded: list[bool], adjacency: Adjacency) -> None:
    """Theorem B.7."""
    for first, weight in ((0.5, 1.0), (2.0, 1.0), (0.5, 3.0), (1.0, 0.0)):
        grid = np.linspace(-1, 1, 101)
        number = 0.0
        for one, other in itertools.product(grid, grid):
            zero = adjacency is Adjacency.ZERO_OUT
            gap = np.array([one, one**2]) - (0 if zero else np.array([other, other**2]))
            number = max(number, float((np.array([first, 1.0]) ** 2 * gap**2).sum()))
        # A number with an indicator: present with any value, or missing (0, and the indicator set); nothing at all under zero-out.
        states = [(z, 0.0) for z in grid[::4]] + [(0.0, 1.0)]
        others = states if adjacency is Adjacency.REPLACE else [(0.0, 0.0)]
        switch = max(
            sum(first**2 * (a - b) ** 2 + (a**2 - b**2) ** 2 for a, b in zip(one, other, strict=True))
            for one, other in itertools.product(states, others)
        )
        wanted = math.sqrt(sum(switch if two else number for two in coded) + weight**2 * number)
        found = standardising_sums(coded, first, weight, adjacency)
        assert wanted <= found * (1 + 1e-12)
        assert found == pytest.approx(wanted, rel=1e-3, abs=1e-12)


def test_products_of_one_record_move_by_their_length_or_twice() -> None:
    """Theorem B.5."""
    assert clipped_products(3.0, Adjacency.ZERO_OUT) == 3.0
    assert clipped_products(3.0, Adjacency.REPLACE) == 6.0


# --- nothing depends on where a record stands -----------------------------------------------------------------------------------


def data(n: int, kind: str = "numbers") -> Table:
    rng = np.random.default_rng(n)
    rows = [one_row((*COLUMNS[kind], Y), rng) for _ in range(n)]
    return table_of({name: [row[name][0] for row in rows] for name in rows[0]})


@pytest.mark.parametrize("kind", COLUMNS)
def test_sums_are_those_of_the_records_one_by_one_in_any_order(kind: str) -> None:
    table, rng = data(37, kind), np.random.default_rng(3)
    layout = layout_of(kind)
    order = rng.permutation(37)
    for vector, statistic, _ in statistics(layout, np.random.default_rng(5)):
        together = statistic(table)
        each = [alone(statistic, {name: [table[name][i]] for name in table.names}) for i in range(37)]
        assert np.array_equal(together, sum(each)), vector.name
        assert np.array_equal(together, statistic(Table({name: table[name][order] for name in table.names})))


def test_ceil_root_is_exact() -> None:
    for root in (0, 1, 2, 3, 1000, 2**20, 2**25 - 1):
        assert standard_rows.ceil_root(float(root * root)) == root
        assert standard_rows.ceil_root(float(root * root + 1)) == root + 1
    assert standard_rows.ceil_root(float((2**26 - 1) ** 2 - 1)) == 2**26 - 1


def test_a_residual_counts_in_full_until_its_product_is_at_the_bound() -> None:
    rows = StandardRows(layout_of("one", intercept=False), 100, 4.0)
    z, response, coordinates = 0.1, 3.6, np.zeros((1, rows.width))
    coordinates[0, 0] = z * rows.grid
    for predicted in (0.0, -2.0, -30.0, -36.0, -50.0):
        start = np.zeros(rows.width)
        start[0] = predicted / z
        found = rows.gradient(iter([(coordinates.copy(order="F"), np.array([[response]]))]), start)
        assert found[0] / rows.grid**2 == pytest.approx(min((response - predicted) * z, rows.longest), rel=1e-3)


@pytest.mark.parametrize("rows", [2, 100, 10**6, 10**9])
@pytest.mark.parametrize("kind", COLUMNS)
def test_squared_lengths_on_the_grid_are_exact_in_float64(kind: str, rows: int) -> None:
    summed = StandardRows(layout_of(kind, rows=rows), rows, 4.0)
    assert (WIDEST * summed.grid) ** 2 * (summed.width + 1) <= 2.0**53
    assert rows * (4.0 * summed.grid) ** 2 < 2.0**63, "nor does a sum of products leave 64 bits"


def test_squared_lengths_of_many_columns_are_exact_too() -> None:
    layout = MomentsLayout.of((*(Column(f"x{k}", 0.0, 1.0) for k in range(2000)), Y), "y", 2)
    summed = StandardRows(layout, 2, 4.0)
    assert 2.0**49 < (WIDEST * summed.grid) ** 2 * (summed.width + 1) <= 2.0**53


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_a_product_of_two_columns_is_released_once_with_noise_smaller_by_root_two(adjacency: Adjacency) -> None:
    """A matrix has it twice, so its length counts it twice (Theorem F.9.3): more noise than this would be for nothing."""
    rows = StandardRows(layout_of("numbers"), 100, 4.0)
    d = rows.width
    squares, products, responses = rows.residual(1.0, adjacency).blocks
    assert (squares.size, products.size, responses.size) == (d, d * (d - 1) // 2, d)
    assert squares.width == responses.width
    assert products.width == pytest.approx(squares.width / math.sqrt(2))


def test_released_sums_are_read_as_far_as_their_noise_lets_them() -> None:
    """Means shrink to the middle by what they may be (0.35) and their noise; deviations are no smaller than what noise alone looks like."""
    layout, n = layout_of("numbers"), 50
    scales, g, p = Scales(layout), float(layout.grid), len(COLUMNS["numbers"]) + 1
    first, second = np.linspace(-0.5, 0.5, p), np.linspace(0.3, 0.9, p)
    for first_noise, second_noise in ((0.0, 0.0), (0.1, 0.02), (0.35, 0.5), (3.0, 0.7)):
        values = np.concatenate([first * g * n, second * g**2 * n])
        deviations = np.concatenate([np.full(p, first_noise * g * n), np.full(p, second_noise * g**2 * n)])
        found = scales.decode(Total(values, deviations, ("a",)), n)
        middle = first * 0.35**2 / (0.35**2 + first_noise**2)
        assert found.middle == pytest.approx(middle)
        assert found.width == pytest.approx(np.sqrt(np.clip(second - middle**2, max(second_noise, 0.003**2), 1.0)))
        assert found.noise == pytest.approx(first_noise)
        wanted = (np.clip(second[-1] - middle[-1] ** 2, 0, 1), math.hypot(second_noise, 2 * middle[-1] * first_noise))
        assert found.variance == pytest.approx(wanted)
    far = np.concatenate([np.full(p, 0.2 * g * n), np.full(p, 9.0 * g**2 * n)])
    assert scales.decode(Total(far, np.zeros(2 * p), ("a",)), n).width == pytest.approx(np.ones(p)), (
        "no wider than the range"
    )


def test_rows_are_shortened_with_their_residuals() -> None:
    rows, residual = np.asfortranarray(RNG.integers(-2500, 2500, (50, 4)).astype(float)), RNG.normal(size=50)
    out, square = np.empty((50, 5), order="F"), np.square(rows).sum(axis=1)
    lengths = np.sqrt(square)
    standard_rows.shorten_rows(rows, residual, square, 0.5, 1000.0, 1250, 10**9, out)
    factor = np.minimum(1, 2500 / lengths)
    assert (np.square(out[:, :4]).sum(axis=1) <= 1250**2).all()
    assert np.abs(out[:, :4] - rows * factor[:, None] / 2).max() <= 1.01
    assert np.abs(out[:, 4] - residual * factor * 1000).max() <= 1.01
    assert (factor < 1).any()
    assert (factor == 1).any()


# --- requests ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spoil",
    [
        lambda s: s[:-1],
        lambda s: (*s, 0.0),
        lambda s: (math.nan, *s[1:]),
        lambda s: (*s[:-1], math.inf),
        lambda s: (*s[:-1], 1e7),
        lambda s: (*s[:3], 0.0, *s[4:]),
        lambda s: (*s[:3], -1.0, *s[4:]),
        lambda s: (),
    ],
)
def test_wild_requests_are_refused(spoil) -> None:
    layout = layout_of("numbers")
    good = (0.1, 0.2, 0.0, 0.5, 0.5, 1.0, 0.3, 0.2, 0.1)
    public_numbers(layout, good, 0)
    with pytest.raises(PlanMismatch):
        public_numbers(layout, spoil(good), 0)


@pytest.mark.guarantee
def test_deviations_and_scales_take_no_settings() -> None:
    class Nothing:
        design = None

    for name in ("scales", "deviations"):
        with pytest.raises(PlanMismatch, match="no settings"):
            STATISTICS[name](Nothing(), (1.0,))


# --- which form ---------------------------------------------------------------------------------------------------------------


def test_the_form_follows_from_rows_budget_and_columns_alone() -> None:
    passes = ROUNDS + 5
    assert schedule_of(Method.AUTO, WORTH_SLOPES / 2, 5, passes).method is Method.MEAN
    assert schedule_of(Method.AUTO, WORTH_LENGTHS * 2, 5, passes).method is Method.GRADIENT
    assert schedule_of(Method.AUTO, WORTH_ERRORS, 5, passes).method is Method.REFINEMENT
    assert schedule_of(Method.AUTO, math.inf, 5, passes).method is Method.MOMENTS
    assert schedule_of(Method.AUTO, 1e6, 5, 4).method is Method.MOMENTS
    assert schedule_of(Method.AUTO, 10.0, 5, 4).method is Method.MOMENTS
    for method, k, most in itertools.product((Method.GRADIENT, Method.REFINEMENT), (1, 10, 100, 1e5), (1, 10, 63, 1000)):
        schedule = schedule_of(method, float(k), 7, most)
        for own in (schedule, with_ample(schedule)) if method is Method.REFINEMENT else (schedule,):
            shares = own.scales + own.descent + own.first + own.spread + own.cells + own.products + own.meat
            assert shares == pytest.approx(1.0)
        scored = schedule_of(method, float(k), 7, most, 0.1)
        assert scored.meat == (0.1 if method is Method.REFINEMENT else 0.0)
        assert sum(
            (scored.scales, scored.descent, scored.first, scored.spread, scored.cells, scored.products, scored.meat)
        ) == pytest.approx(1)
        without = method is Method.REFINEMENT and k >= WITHOUT_ROUNDS
        assert (schedule.first > 0) == (schedule.descent == 0) == without
        assert schedule.rounds == 0 if without else 1 <= schedule.rounds <= ROUNDS
        assert schedule.passes <= max(most, 5)
        assert schedule.rounds <= FEW or k >= 20
        assert 0 < schedule.step <= 1


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
def test_where_noise_is_small_one_release_of_moments_stands_in_the_place_of_rounds(weighted: bool) -> None:
    rng = np.random.default_rng(3)
    n, slopes = 6000, np.array([0.5, -0.3, 0.0, 0.2])
    X = np.clip(rng.normal(size=(n, 4)) @ (np.eye(4) + 0.5) / 3, -1, 1)
    weights = rng.uniform(0.5, 1.0, n) if weighted else None
    y = np.clip(X @ slopes + 0.1 + 0.2 * rng.normal(size=n) / np.sqrt(1.0 if weights is None else weights), -1, 1)
    found = {}
    for name, start in (("moments", 200.0), ("rounds", math.inf)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("unpooled.linear.schedule.WITHOUT_ROUNDS", start)
            own = model(epsilon=8.0, method="refinement", weights_bounds=(0.5, 1.0) if weighted else None)
            own.fit(X, y, sites=np.arange(n) % 3, weights=weights)
        found[name] = own
    names = {release.name for release in found["moments"].plan_.releases}
    assert not any(name.startswith("descent") for name in names)
    assert any(name.startswith("beginning") for name in names)
    assert f"{5 + weighted} passes" in str(found["moments"].plan_)
    root = np.ones(n) if weights is None else np.sqrt(weights)
    pooled = np.linalg.lstsq(np.column_stack([X, np.ones(n)]) * root[:, None], y * root, rcond=None)[0]
    for own in found.values():
        table = own.summary()
        for term, truth in zip(table.terms[:4], pooled, strict=False):
            assert abs(term.estimate - truth) < 4 * term.std_error
        assert own.predict(X) == pytest.approx(X @ pooled[:4] + pooled[4], abs=0.05)
    widths = [np.mean([t.std_error for t in own.summary().terms[:4]]) for own in found.values()]
    assert widths[0] < 1.03 * widths[1]  # the last release has more of the budget, where sampling is not all of the error


def test_first_moments_are_products_with_the_response_itself() -> None:
    """The last release at coefficients of zero: its sensitivity is that of the same products (Theorem F.9.3)."""
    plan = model(epsilon=100.0, method="refinement").plan(20_000, 3)
    design = plan.design
    assert design.schedule.first > 0
    first, last = design.totals["beginning"], design.totals["residual"]
    assert first.blocks == last.blocks
    assert first.reach == last.reach


def model(**parameters) -> PrivateBayesianRegression:
    return PrivateBayesianRegression(
        **({"epsilon": 1.0, "delta": 1e-5, "bounds": (-1, 1), "y_bounds": (-1, 1), "random_state": 0} | parameters)
    )


@pytest.mark.parametrize("aggregation", ["distributed", "trusted", "local"])
@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize("method", ["refinement", "gradient", "direction", "mean", "moments"])
def test_every_form_spends_the_budget_and_no_more(method: str, adjacency: str, aggregation: str) -> None:
    plan = model(method=method, adjacency=adjacency, aggregation=aggregation).plan(900, 4, {"a": 300, "b": 600})
    assert 0.99 < plan.epsilon(1e-5) <= 1.0
    assert plan.epsilon(1e-5, Unit.ATTRIBUTE) <= 1.0 + (1e-9 if adjacency == "replace" else 1.5)
    assert "pass" in str(plan)


def test_words_of_the_paper_mean_its_one_release() -> None:
    for given in (
        {"geometry": "box"},
        {"bounds": Bounds(norm=2.0)},
        {"projection": 0.2},
        {"prior_precision": 2.0},
        {"noise_precision": 2.0},
    ):
        assert model(**given).plan(50_000, 3).design.method is Method.MOMENTS
        with pytest.raises(UsageError, match="for method 'moments' alone"):
            model(**given, method="gradient").plan(50_000, 3)
    assert model().plan(50_000, 3).design.method is Method.REFINEMENT
    with pytest.raises(UsageError, match="method is one of"):
        model(method="newton").plan(100, 3)
    with pytest.raises(UsageError, match="max_passes"):
        model(max_passes=0).plan(100, 3)


# --- fits ---------------------------------------------------------------------------------------------------------------------


def made(n: int, d: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = np.clip(rng.normal(size=(n, d)) / 4, -1, 1)
    y = X @ np.linspace(1, -1, d) + rng.normal(size=n) / 5
    return X, np.clip(y / 2, -1, 1)


def test_rounds_without_noise_find_least_squares() -> None:
    X, y = made(4000)
    wanted = np.linalg.lstsq(np.column_stack([X, np.ones(4000)]), y, rcond=None)[0]
    for method, close in (("refinement", 3e-3), ("moments", 2e-3), ("gradient", 3e-2)):
        fit = model(epsilon=math.inf, method=method).fit(X, y)
        assert np.append(fit.coef_, fit.intercept_) == pytest.approx(wanted, abs=close), method


def test_no_constant_means_none() -> None:
    X, y = made(4000)
    for method in ("refinement", "gradient"):
        fit = model(epsilon=5.0, method=method, fit_intercept=False).fit(X, y)
        assert fit.intercept_ == 0.0
    wanted = np.linalg.lstsq(X, y, rcond=None)[0]
    assert model(epsilon=math.inf, method="refinement", fit_intercept=False).fit(X, y).coef_ == pytest.approx(
        wanted, abs=3e-3
    )


@pytest.mark.parametrize("aggregation", ["distributed", "trusted", "local"])
def test_sites_together_find_what_one_finds(aggregation: str) -> None:
    X, y = made(6000)
    sites = np.arange(6000) % 3
    fit = model(epsilon=8.0, method="refinement", aggregation=aggregation).fit(X, y, sites=sites)
    assert fit.predict(X) == pytest.approx(model(epsilon=math.inf).fit(X, y).predict(X), abs=0.1)
    assert np.isfinite(fit.covariance_).all()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["refinement", "gradient", "moments", "mean"])
@pytest.mark.parametrize("power", [-20, -7, 7, 20])
def test_units_of_two_change_nothing(monkeypatch, method: str, power: int) -> None:
    """Real noise is keyed by plan and statistic: here one fixed table of normal numbers stands for it."""
    monkeypatch.setattr(noise, "rounded_gaussian", fixed)
    X, y = made(1500)
    scale = 2.0**power
    plain = model(method=method).fit(X, y)
    wide = model(method=method, bounds=(-scale, scale)).fit(X * scale, y)
    tall = model(method=method, y_bounds=(-scale, scale)).fit(X, y * scale)
    assert wide.coef_ * scale == pytest.approx(plain.coef_, rel=1e-9)
    assert tall.coef_ / scale == pytest.approx(plain.coef_, rel=1e-9)
    assert wide.predict(X * scale) == pytest.approx(plain.predict(X), rel=1e-9)
    if method in {"refinement", "moments"}:
        assert tall.noise_variance_ / scale**2 == pytest.approx(plain.noise_variance_, rel=1e-9)
        assert wide.covariance_ * scale**2 == pytest.approx(plain.covariance_, rel=1e-7)


@pytest.mark.parametrize("method", ["refinement", "gradient", "moments"])
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_units_of_ten_change_no_more_than_the_grid(monkeypatch, method: str, scale: float) -> None:
    monkeypatch.setattr(noise, "rounded_gaussian", fixed)
    X, y = made(1500)
    plain = model(method=method).fit(X, y)
    wide = model(method=method, bounds=(-scale, scale), y_bounds=(-scale, scale)).fit(X * scale, y * scale)
    assert wide.predict(X * scale) / scale == pytest.approx(plain.predict(X), abs=1e-4)


def fixed(scale: float, size: int, *, stream, start: int = 0) -> np.ndarray:
    """One table of standard normal numbers, whoever asks."""
    del stream
    table = np.random.default_rng(1).normal(size=start + size)[start:]
    return np.rint(scale * table).astype(np.int64)


def test_a_result_without_standard_errors_says_so() -> None:
    X, y = made(1500)
    fit = model(method="gradient").fit(X, y)
    assert np.isnan(fit.covariance_).all()
    assert np.isnan(fit.credible_interval()).all()
    for asked in (fit.summary, fit.ols, fit.vif, lambda: fit.predict(X, return_std=True)):
        with pytest.raises(UsageError, match="method='refinement'"):
            asked()
    assert not hasattr(fit, "moments_")
    fit.set_params(method="refinement").fit(X, y)
    assert hasattr(fit, "moments_")
    fit.set_params(method="mean").fit(X, y)
    assert not hasattr(fit, "moments_")
    assert not fit.coef_.any()


def test_moments_about_rounds_are_saved_and_read(tmp_path) -> None:
    X, y = made(3000)
    fit = model(method="refinement", epsilon=5.0).fit(X, y)
    fit.moments_.save(tmp_path / "moments")
    again = PrivateBayesianRegression.from_moments(type(fit.moments_).load(tmp_path / "moments"))
    assert np.array_equal(again.coef_, fit.coef_)
    assert np.array_equal(again.covariance_, fit.covariance_)
    assert again.moments_ == fit.moments_


@pytest.mark.guarantee
def test_prior_and_noise_may_be_given_afterwards() -> None:
    X, y = made(3000)
    moments = model(method="refinement", epsilon=5.0).fit(X, y).moments_
    free, tight = moments.posterior(), moments.posterior(1e6, 25.0)
    assert np.linalg.norm(tight.coef_) < 0.2 * np.linalg.norm(free.coef_)
    with pytest.raises(UsageError, match="a precision"):
        moments.posterior("guess")


def test_the_mean_is_the_mean() -> None:
    X, y = made(2000)
    fit = model(method="mean", epsilon=20.0).fit(X, y + 0.2)
    assert fit.predict(X[:3]) == pytest.approx(np.full(3, np.clip(y + 0.2, -1, 1).mean()), abs=0.02)
    with pytest.raises(UsageError, match="fit_intercept"):
        model(method="mean", fit_intercept=False).plan(100, 3)
    assert model(fit_intercept=False, epsilon=0.1).plan(100, 3).design.method is Method.GRADIENT


# --- rounds that are lost -------------------------------------------------------------------------------------------------------


def test_a_round_with_too_few_parties_ends_the_study_and_what_was_released_is_debited() -> None:
    from tests.unit.test_totals import parties_of, run, study_of

    rounds = {"method": "gradient", "prior_precision": "estimate", "noise_precision": "estimate", "max_passes": 5}
    study = study_of(4, tolerate=1, parameters=rounds)
    assert len(run(study, drops={"descent-fragment": {"site001"}})[0].participants) == 3
    people = parties_of(study)
    with pytest.raises(StudyAborted, match="tolerates 1"):
        run(study, people, drops={"descent-fragment": {"site001", "site002"}})
    spent = {name: [e.key.name for e in party.ledger.entries() if e.key] for name, party in people.items()}
    assert all("scales" in names for names in spent.values())
    assert "descent" in spent["site000"]
    assert "descent" not in spent["site001"]


def test_scales_below_their_noise_are_taken_for_the_noise() -> None:
    layout = layout_of("numbers")
    p, g, n = 3, layout.grid, 100
    noisy = Total(np.zeros(2 * p), np.concatenate([np.full(p, 0.3 * g * n), np.full(p, 0.2 * g * g * n)]), ())
    standard = Scales(layout).decode(noisy, n)
    assert standard.width == pytest.approx(np.full(p, math.sqrt(0.2)))
    assert not standard.middle.any()
    assert CONSTANT < 1


@pytest.mark.long
@pytest.mark.slow
def test_outlook_says_what_to_expect_before_data() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asked = model(random_state=None)
        outlook = asked.outlook(1000, 3, r2=0.6, correlation=0.2, ranges=4.0)
    assert [p.epsilon for p in outlook.points] == [0.1, 0.3, 1.0, 3.0, 10.0]
    assert outlook.at.epsilon == 1.0
    assert 0.38 < outlook.points[-1].error < 0.45
    assert outlook.points[0].error > outlook.points[-1].error
    assert all(p.low <= p.error <= p.high for p in outlook.points)
    assert outlook.epsilon_for(2.0) == 0.1
    assert outlook.epsilon_for(0.1) == math.inf
    between = (outlook.points[0].error + outlook.points[1].error) / 2
    assert 0.1 < outlook.epsilon_for(between) < 0.3
    assert outlook.worthwhile
    assert "without privacy" in str(outlook)
    assert "<table>" in outlook._repr_html_()
    assert outlook.to_dict()["points"][2]["epsilon"] == 1.0
    assert len(outlook.figure().axes[0].lines) >= 3
    assert "no more than a mean" in str(asked.outlook(60, 3, epsilon=0.1))
    with pytest.raises(UsageError, match="unexpected keyword argument 'signal'"):
        asked.outlook(100, 2, signal=0.5)
    for wrong in ({"r2": 2.0}, {"correlation": (0.5, 0.2)}, {"ranges": 0.0}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            asked.outlook(100, 2, **wrong)


@pytest.mark.long
@pytest.mark.slow
def test_outlook_is_near_what_is_measured() -> None:
    rng = np.random.default_rng(4)
    errors = []
    for seed in range(6):
        X = rng.normal(size=(4000, 5)) / 4
        signal = X @ rng.normal(size=5)
        y = (math.sqrt(0.6) * signal / signal.std() + math.sqrt(0.4) * rng.normal(size=4000)) / 4
        fit = model(epsilon=0.3, random_state=seed).fit(X[:2000], y[:2000])
        errors.append(float(np.mean((y[2000:] - fit.predict(X[2000:])) ** 2) / y.var()))
    expected = model().outlook(2000, 5, epsilon=0.3, r2=0.6, correlation=0.0, ranges=4.0).error
    assert expected == pytest.approx(np.median(errors), rel=0.25)


def test_squares_are_those_of_the_residuals_up_to_their_cap() -> None:
    layout = layout_of("numbers")
    rows = StandardRows(layout, 100, 1.0)
    table = data(60)
    standard, start = (np.array([0.1, -0.2, 0.0]), np.array([0.5, 0.4, 0.1])), np.array([0.5, -1.0, 0.2])
    ((z, (v,)),) = rows.blocks(table, standard)
    wanted = np.minimum((v - z @ start / rows.grid) ** 2, 9.0).sum()
    found = rows.squares(rows.blocks(table, standard), start)[0] / 1024
    assert found == pytest.approx(wanted, abs=60 / 1024)
    assert ((v - z @ start / rows.grid) ** 2 > 9.0).any()


def test_slopes_are_shrunk_by_their_noise_and_the_constant_by_what_was_known() -> None:
    layout = layout_of("numbers")
    total = Total(np.array([0.0, 0.0, 0.1, 0.3, 0.3, 0.3]) * 100 * layout.grid, np.full(6, 1.0), ())
    standard = Scales(layout).decode(replace(total, values=total.values * np.array([1, 1, 1, *[layout.grid] * 3])), 100)
    start = np.array([3.0, -4.0, 0.5, 0.2])
    none, some, all_of_it = (shrunk(start, noise, standard, intercept=True) for noise in (1e-9, 1.0, 100.0))
    assert none[:3] == pytest.approx(start[:3])
    assert some[:3] == pytest.approx(start[:3] * (1 - 3 / 25.25))
    assert not all_of_it[:3].any()
    assert abs(all_of_it[3]) < abs(none[3])
    two = shrunk(np.array([3.0, -4.0]), 1.0, standard, intercept=False)
    assert two == pytest.approx(np.array([3.0, -4.0]) * 25 / 27)


def test_the_spread_of_the_state_follows_from_its_evidence() -> None:
    gram, variance = 1000 * np.eye(4), np.full((4, 4), 1.0)
    loud, quiet = (
        least_squares_state(NoisyMoments(gram, np.full(4, cross), variance, np.full(4, 400.0), 1000), 0.01)
        for cross in (900.0, 1.0)
    )
    assert loud[0] == pytest.approx(np.full(4, 0.9), rel=0.05)
    assert np.abs(quiet[0]).max() < 0.001
    assert quiet[1].diagonal().max() < loud[1].diagonal().max()


def test_a_table_too_large_to_keep_is_read_again_in_every_round(monkeypatch) -> None:
    from unpooled.linear import standard as row_blocks

    X, y = made(600)
    kept = model(method="refinement").fit(X, y)
    monkeypatch.setattr(row_blocks, "KEPT", 0)
    again = model(method="refinement").fit(X, y)
    assert np.array_equal(again.coef_, kept.coef_)
    assert again.moments_ == kept.moments_


@pytest.mark.parametrize(("numbers", "times"), [(100_000, 1), (1_000_000, 3)])
def test_what_is_made_of_a_small_table_is_made_once(numbers: int, times: int) -> None:
    """Two million numbers are kept between rounds, twenty are not; and they are made anew for other public numbers."""
    from unpooled.linear import standard as row_blocks
    from unpooled.privacy.table import Table

    table, made_of = Table({"x": np.arange(20.0)}), []

    def make():
        made_of.append(1)
        return iter([table["x"]])

    for _ in range(3):
        assert [block.sum() for block in row_blocks.remembered(table, "means", numbers, make)] == [190.0]
    assert len(made_of) == times
    list(row_blocks.remembered(table, "other means", numbers, make))
    assert len(made_of) == times + 1


@pytest.mark.parametrize(("quiet", "wanted"), [(1.0, 9.0), (300.0, 9.0), (1000.0, 13.0), (1e6, 130.0), (1e9, 400.0)])
def test_the_bound_of_squared_residuals_grows_with_the_cube_root_of_quiet_sums(quiet: float, wanted: float) -> None:
    """Fixed over declared laws (THEORY.md, section 9): 1.3 q^-1/3, from 9 to 400 variances of the response."""
    assert square_of(quiet) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("k", "rounds", "longest", "step"), [(WORTH_ERRORS / 2, 12, 0.5 * 2, 0.4), (WORTH_ERRORS, None, None, None)]
)
def test_a_small_study_with_a_focus_has_twelve_rounds_of_narrow_clips(
    k: float, rounds: int | None, longest: float, step: float
) -> None:
    found = schedule_of(Method.FOCUS, k, 4, 200)
    assert found.counted == (rounds is not None)
    if rounds is not None:
        assert (found.rounds, found.longest, found.step) == (rounds, pytest.approx(longest), pytest.approx(step))
    else:
        assert found.rounds > 12


def test_a_direction_needs_as_many_passes_as_it_has_rounds() -> None:
    rounds = 48
    found = [schedule_of(Method.AUTO, 0.9 * WORTH_LENGTHS, 30, passes).method for passes in (rounds - 1, rounds)]
    assert found[1] is Method.DIRECTION
    assert found[0] is not Method.DIRECTION


def test_of_many_rows_without_noise_the_deviation_of_a_column_is_known() -> None:
    """Counts of the cells of one normal law: its mean, its deviation and its variance, each with next to no doubt."""
    law, rows = counted_scales.USUAL, 1_000_000
    at, scale = 50, 40
    counts = rows * law.chances[at, scale]
    (mean, deviation, error, variance, doubt), _ = counted_scales._normal(counts, np.zeros(counts.size), rows, law)
    assert mean == pytest.approx(law.means[at], abs=0.003)
    assert deviation == pytest.approx(law.scales[scale], rel=0.01)
    assert variance == pytest.approx(law.scales[scale] ** 2, rel=0.02)
    assert error < 0.01
    assert doubt < 0.05 * variance


def test_of_columns_of_no_variance_no_degree_is_taken_off_the_residual_variance() -> None:
    """Levels of a column that is fitted with a coefficient for each are one coefficient too many, beside the constant."""
    rng = np.random.default_rng(0)
    frame = {"age": rng.uniform(0, 1, 60), "ward": np.array(["a", "b", "c"])[rng.integers(0, 3, 60)]}
    known = {"age": (0, 1), "ward": ["a", "b", "c"]}
    model = unpooled.PrivateLinearRegression(epsilon=math.inf, bounds=known, y_bounds=(-1, 1), method="moments")
    moments = model.fit(pl.DataFrame(frame), rng.uniform(-1, 1, 60)).moments_
    assert moments.frame.squares[0] / moments.residual_variance() == pytest.approx(60 - 4)


@pytest.mark.parametrize("noise", [0.0, 3.0])
def test_a_direction_of_noise_is_taken_for_as_long_as_its_slopes_make_it(noise: float) -> None:
    """The constant is no slope: of 7 coefficients six are, which the best of their directions correlates with."""
    schedule = SimpleNamespace(rounds=30)
    design = SimpleNamespace(
        schedule=schedule, standard=SimpleNamespace(longest=2.0), layout=SimpleNamespace(size=7, responses=1)
    )
    found = line_rounds.learnt_length(SimpleNamespace(design=design, rows=1000), noise)
    seen = math.inf if not noise else 30 * (2.0 / (noise * math.sqrt(15) * 1000)) ** 2
    assert found == pytest.approx(0.25 * 0.006 if not noise else 0.25 * 0.006 * seen / (seen + 0.006))


def test_where_noise_is_negligible_the_clip_grows_by_the_root_of_the_budget_up_to_four_deviations() -> None:
    quiet, clip = linear_rounds._TUNED.quiet, linear_rounds._TUNED.clip
    found = [schedule_of(Method.GRADIENT, times * quiet, 6, 200).longest for times in (1.001, 1.21, 1e6)]
    assert found == pytest.approx([clip * math.sqrt(1.001), 1.1 * clip, 4.0])


def narrow(monkeypatch, inside: tuple[float, float] | None) -> tuple[list[float], bool]:
    """The slopes of a fit whose last round begins at 0 and clips at 1.5 deviations, in those of least squares, and whether the table names the target."""
    rng = np.random.default_rng(7)
    X = rng.uniform(-1, 1, (40_000, 3))
    y = X @ np.array([0.3, -0.2, 0.3]) + rng.normal(size=len(X))

    def still(asked, standard):
        yield from ()
        return np.zeros(asked.design.layout.size), 1e-4

    for way in ("descent", "from_moments"):
        monkeypatch.setattr(conversation, way, still)
    monkeypatch.setattr(conversation, "clip_of", lambda _: 1.5)
    if inside is not None:
        monkeypatch.setattr(ResidualCounts, "uncut", lambda *_: inside)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = PrivateBayesianRegression(
            method="refinement", epsilon=40.0, delta=1e-5, bounds=(-1, 1), y_bounds=(-6, 6), random_state=3
        ).fit(X, y)
    table = fit.summary()
    found = [line.estimate for line in table.terms if line.term != "(intercept)"]
    least = np.linalg.lstsq(np.column_stack([X, np.ones(len(X))]), y, rcond=None)[0][:-1]
    return (np.array(found) / least).tolist(), "target: slopes of residuals clipped at 1.5" in str(table)


def test_slopes_of_a_narrow_clip_are_scaled_back_and_the_table_names_their_target(monkeypatch) -> None:
    slopes, named = narrow(monkeypatch, None)
    assert np.mean(slopes) == pytest.approx(1, abs=0.03)
    assert named


def test_slopes_of_a_narrow_clip_that_are_not_scaled_back_are_caught(monkeypatch) -> None:
    assert np.mean(narrow(monkeypatch, (1.0, 1.0))[0]) < 0.92
