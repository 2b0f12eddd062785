"""All rows of an id as one unit: which rows count, how far they move a sum, what ledgers and budgets make of it, and the files of a party."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import unpooled
from unpooled.errors import BudgetRefusal, DataError, PolicyRefusal, UsageError
from unpooled.estimation.parameters import site_tables
from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.events import UNBOUNDED
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.mechanisms import Block, GaussianRelease, Reach
from unpooled.privacy.plan import Card, Household, Plan, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import BoundedTable, Table, counted, texts_of
from unpooled.privacy.unit import ROWWISE, Adjacency, Scope, Unit
from unpooled.protocol.context import Context
from unpooled.totals.total import of_units, rows_counted

COLUMNS = (Column("x", -1.0, 3.0), Column("z", 0.0, 1.0), Column("y", -2.0, 2.0))
KINDS = {
    "describe": {},
    "describe ranges": {"ranges": True},
    "moments": {"response": "y", "method": "moments"},
    "box": {"response": "y", "method": "moments", "geometry": "box"},
    "refinement": {"response": "y", "method": "refinement", "max_passes": 5},
    "mean": {"response": "y", "method": "mean"},
    "pls": {"response": "y", "basis": "none", "norm": 2.0, "n_components": 1},
}


def study(
    kind: str, most: int = 2, adjacency: str = "replace", *, parties: int = 1, elsewhere: bool = True, **more
) -> Study:
    model = {"describe": "describe", "describe ranges": "describe", "pls": "pls"}.get(kind, "bayes")
    together = Household("person", 20, most, elsewhere)
    cards = tuple(Card(name, 20 * most, COLUMNS, household=together) for name in "abcdef"[:parties])
    asked = {"unit": "household", "adjacency": adjacency, "parameters": KINDS[kind], "derived": ()} | more
    return Study(model, cards, 1.0, 1e-5, **asked)


def plan_of(asked: Study) -> Plan:
    return load(asked.model).compile(asked)


# --- which rows count ------------------------------------------------------------------------------------------------


@pytest.mark.minutes
@given(st.lists(st.sampled_from("abcde"), min_size=1, max_size=40), st.integers(1, 4))
def test_what_counts_of_an_id_depends_on_its_own_rows_alone(ids: list[str], most: int) -> None:
    kept = counted(np.array(ids, dtype=object), most)
    for name in set(ids):
        own = [k for k, other in enumerate(ids) if other == name]
        assert kept[own].sum() == min(most, len(own))
        alone = counted(np.array([name] * len(own), dtype=object), most)
        assert kept[own].tolist() == alone.tolist()


def test_rows_of_an_id_are_picked_evenly() -> None:
    picked = sum(counted(np.array([f"id {k}"] * 4, dtype=object), 1).astype(int) for k in range(4000))
    assert np.abs(picked - 1000).max() < 150  # 5.5 deviations


@pytest.mark.guarantee
def test_ids_are_text_in_one_form_and_none_is_blank() -> None:
    assert texts_of(["Zoe\u0301 ", "Zo\u00e9"]).tolist() == ["Zo\u00e9"] * 2
    assert texts_of([1, 2]).tolist() == ["1", "2"]
    assert texts_of([1.0, 2.0]).tolist() == ["1.0", "2.0"]
    for blank in ([None, "a"], ["", "a"], [" ", "a"], [math.nan, 1.0]):
        with pytest.raises(DataError, match="blank id"):
            texts_of(blank)
    with pytest.raises(UsageError, match="one id for every row"):
        texts_of([["a"], ["b"]])
    with pytest.raises(UsageError, match="2 ids for 3 rows"):
        BoundedTable(Table({"x": [1.0, 2.0, 3.0]}), ["a", "b"], 1)
    assert BoundedTable(Table({"x": [1.0, 2.0, 3.0]}), ["a", "a", "a"], 1).household == (1, 1)


@pytest.mark.guarantee
def test_a_bounded_table_shows_what_counts_and_says_what_is_public() -> None:
    ids = ["a", "b", "a", "c", "a", "b"]
    table = BoundedTable(Table({"x": np.arange(6.0), "person": ids}), ids, 2, "person")
    assert (table.n_rows, table.household, table.names) == (6, (3, 2), ("x",))
    streamed = np.concatenate([block[0] for block in table.blocks(("x",), rows=2)])
    assert streamed.tolist() == table["x"].tolist()
    assert table["x"].size == 5
    with pytest.raises(DataError, match="no column 'person'"):
        table["person"]
    with pytest.raises(DataError, match="no column 'person'"):
        next(table.blocks(("person",)))
    table.verify()
    again = BoundedTable(Table({"x": np.arange(6.0), "person": ids}), ids, 2, "person")
    fewer = BoundedTable(Table({"x": np.arange(6.0), "person": ids}), ids, 1, "person")
    assert table.digest == again.digest != fewer.digest
    other = BoundedTable(Table({"x": np.arange(6.0), "person": ids}), ["a", "b", "a", "c", "c", "b"], 2, "person")
    assert other.digest != table.digest


@pytest.mark.guarantee
def test_neighbours_of_a_bounded_table_keep_its_public_numbers() -> None:
    table = BoundedTable(Table({"x": np.arange(6.0)}), ["a", "a", "b", "b", "c", "c"], 2)
    other, fewer = table.replace(0, {"x": 9.0}), table.omit(0)
    assert (other["x"].tolist(), fewer["x"].tolist()) == ([9.0, 1, 2, 3, 4, 5], [1.0, 2, 3, 4, 5])
    none, three = table.exchange([]), table.exchange([{"x": 7.0}])
    assert (none["x"].tolist(), three["x"].tolist()) == ([2.0, 3, 4, 5], [7.0, 2, 3, 4, 5])
    assert table.first() == [{"x": 0.0}, {"x": 1.0}]
    for one in (other, fewer, none, three):
        assert (one.n_rows, one.household) == (6, (3, 2))


@pytest.mark.guarantee
def test_cards_say_how_much_they_hold() -> None:
    card = study("describe").parties[0]
    assert card.size == "20 ids, at most 2 rows of each"
    assert msgspec.structs.replace(card, household=None).size == "40"


# --- how far a household moves a sum ------------------------------------------------------------------------------------


def statistics(asked: Study, rows: list[dict[str, float]]) -> dict[str, np.ndarray]:
    """What one party would release of these rows: exact, by the code that releases it."""
    plan, found = plan_of(asked), {}
    ids = ["first", "second", *["household"] * (len(rows) - 2)]  # after those that stay
    table = BoundedTable(Table({name: [row[name] for row in rows] for name in ("x", "z", "y")}), ids, asked.household_rows)
    context = Context("a", table, plan, "", 0, None)  # type: ignore[arg-type]
    if asked.model == "describe":
        from unpooled.models.describe.rows import sums

        design = plan.design
        found["histogram" if design.ranges else "sums"] = (
            design.ranges.statistic(table) if design.ranges else sums(table, design.layouts["a"])
        )
        return found
    if asked.model == "pls":
        from unpooled.models.pls.declared import _moments

        return {"moments": _moments(context, ()), "count": rows_counted(context, ())}
    from unpooled.models.bayes.rows import STATISTICS

    design = plan.design
    for name in design.totals:
        width = design.standard.layout.size
        p = len(design.standard.layout.coding.attribute) + 1
        start = np.linspace(-0.5, 0.5, width)
        settings = (
            (*np.zeros(p), *np.full(p, 0.3), *start) if name in {"descent", "spread", "cells", "residual", "meat"} else ()
        )
        settings = (*settings, 1.0) if name in {"cells", "residual", "meat"} else settings
        found[name] = STATISTICS[name](context, tuple(map(float, settings)))
    return found


#: Two rows that stay, so that no table is empty, and rows at vertices of the bounds and inside them.
STAY = [{"x": 0.3, "z": 0.1, "y": 0.2}, {"x": 1.0, "z": 0.5, "y": -0.4}]
CANDIDATES = [
    dict(zip(("x", "z", "y"), values, strict=True)) for values in itertools.product((-1.0, 3.0), (0.0, 1.0), (-2.0, 2.0))
]


@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize("kind", list(KINDS))
def test_no_household_moves_a_sum_further_than_it_is_priced_and_some_get_near(kind: str, adjacency: str) -> None:
    asked = study(kind, adjacency=adjacency)
    plan = plan_of(asked)
    sets = [[], *([one] for one in CANDIDATES), *itertools.combinations_with_replacement(CANDIDATES, 2)]
    vectors = [statistics(asked, [*STAY, *rows]) for rows in sets]
    nothing = vectors[0]
    for release in plan.releases:
        mechanism = release.mechanism
        assert isinstance(mechanism, GaussianRelease)
        declared = mechanism.sensitivity(Unit.HOUSEHOLD)
        widths = np.concatenate([np.full(block.size, block.width) for block in mechanism.blocks])
        points = np.stack([vector[release.name] / widths for vector in vectors])
        worlds = points if adjacency == "replace" else np.stack([nothing[release.name] / widths])
        farthest = max(float(np.linalg.norm(points - world, axis=1).max()) for world in worlds)
        assert farthest <= declared * (1 + 1e-12)
        if release.name in {"sums", "histogram", "count", "descent", "spread", "square"} and adjacency == "replace":
            assert farthest > 0.7 * declared, (release.name, farthest / declared)
        # Half of it, as if one of two rows were forgotten, would be exceeded by what was found.
        if release.name in {"sums", "histogram", "count", "spread", "square"}:
            assert farthest > declared / asked.household_rows


def test_a_row_that_appears_is_counted_where_rows_replace_each_other() -> None:
    """A row may be longer than any two rows are apart: then it is the longer move that a household is priced by."""
    asked = study("moments", most=1)
    plan = plan_of(asked)
    moved = {how: plan.design.layout.vector("moments", how) for how in Adjacency}
    short = dict.fromkeys(ROWWISE, dataclasses.replace(moved[Adjacency.REPLACE].reach[Unit.RECORD], distance=0.5))
    nearer = moved | {Adjacency.REPLACE: dataclasses.replace(moved[Adjacency.REPLACE], reach=short)}
    assert of_units(asked, nearer).reach[Unit.HOUSEHOLD] == moved[Adjacency.ZERO_OUT].reach[Unit.RECORD]


def test_floored_steps_of_several_parties_add_up_to_no_more_than_is_priced() -> None:
    """One row of the id at each of three parties, each just below a step in every coordinate: the total is three steps off in each."""
    blocks, c = (Block(5, 2.0**30),), 5
    one = Reach(0.0, c)
    release = GaussianRelease(blocks, ((Unit.HOUSEHOLD, one.times(3)),), 1.0)
    step = 1 << release._shift(blocks[0])
    assert step > 1
    below, above = (release.floor(np.full(c, value)) for value in (step - 1, step))
    moved = 3 * release.change(below, above)
    assert moved <= release.event(Unit.HOUSEHOLD).value * (1 + 1e-12)
    assert moved == pytest.approx(release.event(Unit.HOUSEHOLD).value)


@pytest.mark.guarantee
@pytest.mark.parametrize(("elsewhere", "expected"), [(True, 6), (False, 2)])
def test_a_policy_need_not_believe_that_ids_are_nowhere_else(elsewhere: bool, expected: int) -> None:
    """V9: one party's false flag lowers what everybody's noise covers."""
    asked = study("describe", parties=3, elsewhere=elsewhere)
    Policy(None, approved=None, allow_in_process=True).check(plan_of(asked), approved_in_ledger=True)
    strict = Policy(None, approved=None, elsewhere="counted", allow_in_process=True)
    assert asked.household_rows == expected
    if elsewhere:
        strict.check(plan_of(asked), approved_in_ledger=True)
    else:
        with pytest.raises(PolicyRefusal, match=r"the cards of a, b, c say that no other party holds"):
            strict.check(plan_of(asked), approved_in_ledger=True)
    strict.check(plan_of(study("describe", parties=1, elsewhere=elsewhere)), approved_in_ledger=True)


@pytest.mark.parametrize(("elsewhere", "expected"), [(True, 6), (False, 2)])
def test_rows_count_in_the_whole_study(elsewhere: bool, expected: int) -> None:
    assert study("describe", parties=3, elsewhere=elsewhere).household_rows == expected
    cards = study("describe", parties=2).parties
    only = msgspec.structs.replace(cards[1], rows=100, household=Household("person", 20, 5, elsewhere=False))
    assert (
        study("describe").__class__("describe", (cards[0], only), 1.0, 1e-5, unit="household", derived=()).household_rows
        == 5
    )


@pytest.mark.parametrize("trust", ["distributed", "trusted", "local"])
@pytest.mark.parametrize("kind", ["moments", "refinement", "pls"])
def test_the_budget_is_kept_for_a_household_however_sums_are_made(kind: str, trust: str) -> None:
    asked = study(kind, parties=3, trust={"aggregation": trust})
    plan = plan_of(asked)
    assert plan.epsilon(1e-5, "household") <= 1.0
    assert plan.epsilon(1e-5, "record") < 0.5 * plan.epsilon(1e-5, "household")
    rowwise = load(asked.model).compile(
        msgspec.structs.replace(
            asked, unit="record", parties=tuple(msgspec.structs.replace(card, household=None) for card in asked.parties)
        )
    )
    assert rowwise.epsilon(1e-5, "household") == math.inf
    assert "household" not in rowwise.statement.epsilon_per_unit


# --- what is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
def test_a_household_goes_with_cards_that_declare_one() -> None:
    asked = study("describe", parties=2)
    plain = msgspec.structs.replace(asked.parties[0], household=None)
    for unit, cards in (("household", (plain, asked.parties[1])), ("record", asked.parties), ("attribute", asked.parties)):
        with pytest.raises(UsageError, match="household"):
            msgspec.structs.replace(asked, unit=unit, parties=cards)
    for wrong in ({"rows": 41}, {"columns": (*COLUMNS, Column("person", 0.0, 1.0))}):
        with pytest.raises(UsageError, match="ids are no data"):
            msgspec.structs.replace(asked.parties[0], **wrong)
    for ids, rows, column in ((1, 1, "p"), (2, 0, "p"), (2, 1, "")):
        with pytest.raises(UsageError, match="at least 2 ids"):
            Household(column, ids, rows)


@pytest.mark.guarantee
@pytest.mark.parametrize("row", ["pride", "stacking", "lasso", "bayes-published", "pls-published"])
def test_a_model_without_a_proof_refuses_the_unit(row: str) -> None:
    asked = study("describe")
    model, calibration = (row.removesuffix("-published"), "published" if "published" in row else "sound")
    with pytest.raises(UsageError, match="no proof for unit"):
        load(row).compile(msgspec.structs.replace(asked, model=model, calibration=calibration))


def test_infinite_epsilon_protects_no_household() -> None:
    with pytest.raises(UsageError, match="protects no household"):
        plan_of(msgspec.structs.replace(study("pls"), epsilon=math.inf))


# --- ledgers and budgets ---------------------------------------------------------------------------------------------------


def rows(count: int = 600, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(count // 3), 3)
    X = rng.uniform(-1, 1, (ids.size, 2))
    return X, X @ [1.0, -0.5] + 0.2 * rng.normal(size=ids.size), ids


def test_a_budget_per_household_refuses_what_bounds_no_household() -> None:
    X, _, ids = rows()
    budget = unpooled.Budget(epsilon=1.0, delta=1e-5, unit="household")
    with pytest.raises(BudgetRefusal):
        unpooled.describe(X, (-1, 1), epsilon=0.1, delta=1e-5, budget=budget)
    first = unpooled.describe(X, (-1, 1), epsilon=0.9, delta=1e-5, unit="household", unit_id=ids, budget=budget)
    assert budget.spent == pytest.approx(first.statement_.epsilon_per_unit["household"], rel=1e-6)
    with pytest.raises(BudgetRefusal):
        unpooled.describe(X, (-1, 1), epsilon=0.9, delta=1e-5, unit="household", unit_id=ids, budget=budget)


def test_a_budget_per_row_takes_a_study_of_households_at_a_row_s_price() -> None:
    X, _, ids = rows()
    budget = unpooled.Budget(epsilon=1.0, delta=1e-5)
    found = unpooled.describe(
        X, (-1, 1), epsilon=0.9, delta=1e-5, unit="household", unit_id=ids, rows_per_household=3, budget=budget
    )
    assert budget.spent == pytest.approx(found.statement_.epsilon_per_unit["record"], rel=1e-6)
    assert budget.spent < 0.4


@pytest.mark.guarantee
def test_a_ledger_says_that_a_household_s_loss_has_no_bound_where_nothing_bounds_it() -> None:
    from unpooled.privacy.exposure import release_costs
    from unpooled.privacy.ledger import Charge, ReleaseKey

    asked = study("describe")
    with_bound, without = (plan_of(one).releases[0] for one in (asked, _plain(asked)))
    for release, known in ((with_bound, True), (without, False)):
        ledger = Ledger.in_memory()
        charge = Charge(ReleaseKey("0" * 64, "sums", 0, "sums"), bytes(32), release_costs(release, 0))
        assert (charge.cost(Unit.HOUSEHOLD)[0].event == UNBOUNDED) is not known
        ledger.reserve([charge], None, allow_unbounded=True)
        (entry,) = ledger.entries()
        assert (Unit.HOUSEHOLD in entry.units) is known
        assert ("unbounded" in entry.words(Unit.HOUSEHOLD)) is not known
        assert math.isinf(ledger.composition(Unit.HOUSEHOLD, Scope.PARTY).epsilon(1e-5)) is not known


def _plain(asked: Study) -> Study:
    cards = tuple(msgspec.structs.replace(card, household=None) for card in asked.parties)
    return msgspec.structs.replace(asked, unit="record", parties=cards)


def test_what_was_paid_per_row_for_ranges_has_no_price_per_household() -> None:
    X, y, ids = rows(3000)
    paid = unpooled.describe(X, bounds=True, epsilon=2.0)
    fit = unpooled.PrivateBayesianRegression(bounds=paid.bounds_, y_bounds=(-2, 2), unit="household")
    assert not fit.fit(X, y, unit_id=ids).statement_.holds
    paid = unpooled.describe(X, bounds=True, epsilon=2.0, unit="household", unit_id=ids)
    fit = unpooled.PrivateBayesianRegression(bounds=paid.bounds_, y_bounds=(-2, 2), unit="household")
    statement = fit.fit(X, y, unit_id=ids).statement_
    assert statement.holds
    assert 1.0 < statement.epsilon_per_unit["household"] < 3.5


# --- estimators ------------------------------------------------------------------------------------------------------------


def test_the_unit_and_the_ids_go_together() -> None:
    X, y, ids = rows()
    model = unpooled.PrivateBayesianRegression(bounds=(-1, 1), y_bounds=(-2, 2))
    with pytest.raises(UsageError, match="go together"):
        model.fit(X, y, unit_id=ids)
    model.set_params(unit="household")
    with pytest.raises(UsageError, match="go together"):
        model.fit(X, y)
    with pytest.raises(UsageError, match="599 ids for 600 rows"):
        model.fit(X, y, unit_id=ids[1:])
    with pytest.raises(UsageError, match="sites has labels"):
        model.fit(X, y, unit_id=ids, sites=["a"])


@pytest.mark.slow_but("moments")
@pytest.mark.minutes
@pytest.mark.parametrize("method", ["moments", "refinement", "gradient"])
def test_a_regression_over_households_finds_the_slopes(method: str) -> None:
    X, y, ids = rows(9000)
    sites = np.where(ids % 3 == 0, "north", "south")
    model = unpooled.PrivateBayesianRegression(
        epsilon=5.0, bounds=(-1, 1), y_bounds=(-2, 2), unit="household", rows_per_household=2, method=method
    )
    model.fit(X, y, sites=sites, unit_id=ids)
    assert np.abs(model.coef_ - [1.0, -0.5]).max() < 0.2
    if method != "gradient":
        assert model.moments_.rows == pytest.approx(6000, rel=0.1)  # two of three rows count, and nobody said so
    assert "2 rows of one id count" in str(model.statement_)


@pytest.mark.guarantee
def test_without_noise_the_count_is_the_number_of_rows_that_count() -> None:
    X, y, ids = rows(900)
    model = unpooled.PrivateBayesianRegression(
        epsilon=math.inf, bounds=(-1, 1), y_bounds=(-2, 2), unit="household", rows_per_household=2
    )
    kept = counted(texts_of(ids), 2)
    model.fit(X, y, unit_id=ids)
    assert model.moments_.rows == kept.sum() == 600
    reference = unpooled.PrivateBayesianRegression(epsilon=math.inf, bounds=(-1, 1), y_bounds=(-2, 2)).fit(X[kept], y[kept])
    np.testing.assert_allclose(model.coef_, reference.coef_, rtol=1e-6)


def test_descriptions_of_households_count_what_counts() -> None:
    X, _, ids = rows(6000)
    frame = {"x": X[:, 0], "g": np.where(X[:, 1] > 0, "up", "down")}
    bounds = unpooled.Bounds({"x": (-1, 1), "g": ["down", "up"]})
    found = unpooled.describe(frame, bounds, epsilon=5.0, unit="household", unit_id=ids, rows_per_household=2)
    assert found["all", "x"].count.value == pytest.approx(4000, abs=200)
    assert sum(found["all", "g", side].count.value for side in ("down", "up")) == pytest.approx(4000, abs=300)
    ranges = unpooled.describe(X, bounds=True, epsilon=5.0, unit="household", unit_id=ids, rows_per_household=2)
    assert all(r.low <= -1 and r.high >= 1 and r.clipped < 0.1 for r in ranges.ranges_)


def test_where_ids_have_fewer_rows_than_count_no_mean_is_taken_over_more() -> None:
    X, _, ids = rows(6000)
    frame = {"x": X[:, 0] * 0.1 + 0.8, "g": np.full(6000, "up")}
    bounds = unpooled.Bounds({"x": (-1, 1), "g": ["down", "up"]})
    found = unpooled.describe(frame, bounds, epsilon=20.0, unit="household", unit_id=ids, rows_per_household=5)
    assert found["all", "x"].mean.value == pytest.approx(0.8, abs=0.03)  # over 10,000 rows it would be 0.48
    assert found["all", "g", "up"].count.value == pytest.approx(6000, abs=200)


def test_rows_of_an_id_are_bounded_over_all_sites_together() -> None:
    ids = np.repeat(np.arange(50), 4)
    sites = np.tile(["north", "south"], 100)
    tables = site_tables(Table({"x": np.arange(200.0)}), sites, "household", ids, 1)
    assert sum(table["x"].size for table in tables.values()) == 50
    assert len({int(x) // 4 for table in tables.values() for x in table["x"]}) == 50


def test_rounds_are_decided_by_ids_and_not_by_the_rows_that_could_count() -> None:
    many, one = (
        unpooled.PrivateBayesianRegression(
            delta=1e-5, bounds=(-1, 1), y_bounds=(-2, 2), unit="household", rows_per_household=most, covariance="model"
        ).plan(800, 3)
        for most in (5, 1)
    )
    assert many.design.schedule == one.design.schedule


def test_pls_over_households() -> None:
    X, y, ids = rows(9000)
    model = unpooled.PrivatePLSRegression(
        2,
        basis="none",
        epsilon=8.0,
        bounds=unpooled.Bounds(norm=1.5),
        y_bounds=(-2, 2),
        unit="household",
        rows_per_household=2,
    )
    model.fit(X, y, unit_id=ids)
    assert np.abs(model.coef_ - [1.0, -0.5]).max() < 0.3
    assert model.moments_.rows == pytest.approx(6000, rel=0.1)


def test_rows_per_household_goes_with_households() -> None:
    X, y, ids = rows()
    for unit, most, words in (("record", 2, "goes with"), ("household", 0, "at least 1")):
        model = unpooled.PrivateBayesianRegression(bounds=(-1, 1), y_bounds=(-2, 2), unit=unit, rows_per_household=most)
        with pytest.raises(UsageError, match=words):
            model.plan(100, 2)
        with pytest.raises(UsageError, match=words):
            model.fit(X, y, unit_id=ids)
    numpys = unpooled.PrivateBayesianRegression(
        bounds=(-1, 1), y_bounds=(-2, 2), unit="household", rows_per_household=np.int64(2)
    )
    assert numpys.plan(100, 2).hash == numpys.set_params(rows_per_household=2).plan(100, 2).hash


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.minutes
def test_plans_and_outlooks_count_households() -> None:
    model = unpooled.PrivateBayesianRegression(bounds=(-1, 1), y_bounds=(-2, 2), unit="household", rows_per_household=3)
    card = model.plan(5000, 2).study.parties[0]
    assert (card.people, card.rows) == (5000, 15_000)
    assert model.plan(5000, 2).study.delta == 1e-5
    assert "3 rows each" in model.outlook(5000, 2, r2=0.5).assumed


# --- a party's files -----------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
def test_a_party_s_files_say_whose_rows_belong_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from commands import command

    from unpooled.study.files import read_card
    from unpooled.study.party import open_party

    monkeypatch.chdir(tmp_path)
    people = np.repeat([f"p{k:04d}" for k in range(400)], 3)
    pl.DataFrame({"person": people, "age": np.linspace(20, 90, 1200)}).write_csv("visits.csv")

    def run(*words: str, code: int = 0) -> str:
        return command(tmp_path, *words, code=code)

    init = ["party", "init", "visits.csv", "--name", "clinic", "--column", "age=0:110", "--household", "person"]
    made = json.loads(run(*init, "--household-rows", "2", "--held-once", "--folder", "clinic", "--json"))
    assert made["ids"] == 400
    assert made["budget"]["unit"] == "household"
    card = read_card("clinic/clinic.card.toml")
    assert (card.rows, card.household) == (800, Household("person", 400, 2, elsewhere=False))
    with open_party("clinic/party.toml") as party:
        assert party.table.n_rows == 800
        assert party.table["age"].size == 800
        assert party.card == card
    Path("study.toml").write_text(
        '[study]\nmodel = "describe"\n\n[privacy]\nepsilon = 0.9\nunit = "household"\n\n[[party]]\ncard = "clinic/clinic.card.toml"\n'
    )
    run("party", "check", "study.toml", "--config", "clinic/party.toml", "--approve")
    found = json.loads(run("run", "study.toml", "--party", "clinic/party.toml", "--json"))
    assert found["statement"]["unit"] == "household"
    assert "household" in run("party", "ledger", "--config", "clinic/party.toml")
    wrong = ["--column", "person=a,b", "--household", "person", "--folder", "x", "--new-budget"]
    assert "belong together" in run("party", "init", "visits.csv", "--name", "x", *wrong, code=2)
    # With another number of rows per id it is another card, which the study does not have.
    text = Path("clinic/party.toml").read_text()
    Path("clinic/party.toml").write_text(text.replace("household_rows = 2", "household_rows = 3"))
    assert "write the card anew" in run("party", "check", "study.toml", "--config", "clinic/party.toml", code=3)


@pytest.mark.guarantee
def test_a_party_whose_data_have_other_ids_than_its_card_is_refused() -> None:
    from unpooled.privacy.policy import Policy
    from unpooled.protocol.local import run_in_process

    asked = study("describe")
    model = load("describe")
    plan = model.compile(asked)
    rng = np.random.default_rng(0)

    def table(ids: np.ndarray, most: int) -> Table:
        return BoundedTable(Table({c.name: rng.uniform(*c.range, ids.size) for c in COLUMNS}), ids, most)

    run_in_process(model, plan, {"a": table(np.repeat(np.arange(20), 3), 2)}, Policy.in_process(), lambda _: model)
    for ids, most in ((np.repeat(np.arange(40), 3), 1), (np.repeat(np.arange(10), 5), 4)):
        with pytest.raises(DataError, match="other ids"):
            run_in_process(model, plan, {"a": table(ids, most)}, Policy.in_process(), lambda _: model)
    with pytest.raises(DataError, match="other ids"):
        run_in_process(
            model,
            plan,
            {"a": Table({c.name: rng.uniform(*c.range, 40) for c in COLUMNS})},
            Policy.in_process(),
            lambda _: model,
        )
