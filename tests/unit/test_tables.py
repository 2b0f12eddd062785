"""``tabulate``: counts, the sensitivity with its twin and a broken control, refusals, results, and what an analyst reads."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

import unpooled
from unpooled import Bounds
from unpooled.errors import BudgetRefusal, UsageError
from unpooled.models import load
from unpooled.models.tables.declared import TableLayout, TablesDesign, cells, mechanism
from unpooled.models.tables.fit import read
from unpooled.models.tables.result import Contingency, Effect, foot, panels, render
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Household, Plan, Study
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Adjacency, Unit

ARM = Column("arm", categories=("control", "treated"))
OUTCOME = Column("outcome", categories=("home", "ward"), missing="absent")
AGE = Column("age", 18.0, 100.0, missing="indicator")
LAYOUT = TableLayout((ARM, OUTCOME, AGE), ((), (), (40.0, 60.0)))
BOUNDS = {"arm": ["control", "treated"], "outcome": ["home", "ward"]}
#: Every record that the layout tells apart, and some that it does not.
RECORDS = list(
    itertools.product(("control", "treated"), ("home", "ward", None), (18.0, 39.9, 40.0, 59.0, 60.0, 100.0, math.nan, -5.0))
)


def table_of(records: list[tuple[object, ...]]) -> Table:
    arm, outcome, age = zip(*records, strict=True)
    return Table(
        {"arm": np.array(arm, dtype=object), "outcome": np.array(outcome, dtype=object), "age": np.array(age, dtype=float)}
    )


def study(adjacency: str = "replace", unit: str = "record", most: int = 1, **changes: object) -> Study:
    together = Household("person", 10, most, elsewhere=False) if unit == Unit.HOUSEHOLD else None
    cards = tuple(Card(name, 10 * most, (ARM, OUTCOME, AGE), household=together) for name in ("north", "south"))
    parameters = {"columns": ["arm", "outcome"], **changes}
    return Study("tables", cards, 1.0, 1e-5, unit=unit, adjacency=adjacency, parameters=parameters, derived=())


def plan_of(**changes: object) -> Plan[TablesDesign]:
    return load("tables").compile(study(**changes))  # type: ignore[arg-type]


def trial(n: int = 4000, seed: int = 0, risks: tuple[float, float] = (0.12, 0.18)) -> dict[str, NDArray[np.object_]]:
    rng = np.random.default_rng(seed)
    treated = rng.random(n) < 0.5
    ward = rng.random(n) < np.where(treated, risks[1], risks[0])
    return {
        "arm": np.where(treated, "treated", "control").astype(object),
        "outcome": np.where(ward, "ward", "home").astype(object),
    }


# --- the statistic --------------------------------------------------------------------------------------------------------


def test_cells_are_counted_exactly() -> None:
    rng = np.random.default_rng(1)
    records = [RECORDS[k] for k in rng.integers(0, len(RECORDS), 500)]
    names = ("[18, 40)", "[40, 60)", "[60, 100]", "missing")
    assert LAYOUT.levels == (("control", "treated"), ("home", "ward", "missing"), names)

    def bin_of(age: float) -> str:
        return "missing" if math.isnan(age) else names[0] if age < 40 else names[1] if age < 60 else names[2]

    expected = Counter((arm, outcome or "missing", bin_of(age)) for arm, outcome, age in records)
    found = cells(table_of(records), LAYOUT)
    assert found.dtype == np.int64
    assert dict(zip(itertools.product(*LAYOUT.levels), found.tolist(), strict=True)) == {
        names: expected.get(names, 0) for names in itertools.product(*LAYOUT.levels)
    }
    np.testing.assert_array_equal(cells(table_of(records[::-1]), LAYOUT, block_rows=7), found)


@pytest.mark.guarantee
def test_bins_have_names_that_differ() -> None:
    close = TableLayout((Column("x", 0.0, 1.0),), ((0.12345678, 0.12345679),))
    assert close.levels == (("[0, 0.12345678)", "[0.12345678, 0.12345679)", "[0.12345679, 1]"),)
    taken = TableLayout((Column("x", categories=("missing", "b"), missing="absent"),), ((),))
    assert taken.levels == (("missing", "b", "(missing)"),)


# --- sensitivity (Theorem N.1) --------------------------------------------------------------------------------------------


def twice_counted(table: Table) -> NDArray[np.int64]:
    """A release that is wrong: the margins of the arm beside the cells, under the price of the cells."""
    whole = cells(table, LAYOUT)
    return np.concatenate([whole, whole.reshape(2, -1).sum(axis=1)])


def farthest(statistic, unit: Unit, adjacency: Adjacency, rows: int = 1) -> float:
    """The largest distance between two neighbouring tables, over all records: ``rows`` equal ones are changed at once."""
    rest = [RECORDS[0], RECORDS[-1]]
    distances = []
    for one, other in itertools.product(RECORDS, RECORDS):
        if unit is Unit.ATTRIBUTE and sum(a is not b and a != b for a, b in zip(one, other, strict=True)) > 1:
            continue
        before = statistic(table_of([*rest, *[one] * rows]))
        leaves = adjacency is Adjacency.ZERO_OUT and unit is not Unit.ATTRIBUTE
        after = statistic(table_of(rest if leaves else [*rest, *[other] * rows]))
        distances.append(float(np.linalg.norm(before - after)))
    return max(distances)


@pytest.mark.slow_but("attribute-1-replace", "attribute-1-zero-out")
@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(("unit", "rows"), [(Unit.RECORD, 1), (Unit.ATTRIBUTE, 1), (Unit.HOUSEHOLD, 3)])
def test_sensitivity_is_that_of_brute_force(unit: Unit, rows: int, adjacency: Adjacency) -> None:
    """Theorem N.1: attained, and never exceeded."""
    asked = study(adjacency, unit, rows)
    claimed = mechanism(asked, LAYOUT).sensitivity(unit)
    assert claimed == pytest.approx(farthest(lambda t: cells(t, LAYOUT), unit, adjacency, rows), rel=1e-12)
    # The control counts a row twice, at the same price.
    assert farthest(twice_counted, unit, adjacency, rows) > claimed * 1.1


def test_a_statement_prices_a_row_and_a_value() -> None:
    plan = plan_of(adjacency="zero-out")
    (release, _) = plan.releases
    assert release.sensitivity(Unit.RECORD) == 1.0
    assert release.sensitivity(Unit.ATTRIBUTE) == pytest.approx(math.sqrt(2))
    assert plan.statement.holds
    for adjacency in Adjacency:
        plan = plan_of(adjacency=adjacency)
        assert plan.epsilon(1e-5, Unit.RECORD) <= 1.0 + 1e-9


# --- refusals -------------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"columns": []}, "at least one column"),
        ({"columns": ["arm", "arm"]}, "each once"),
        ({"columns": ["arm", "sex"]}, "sex"),
        ({"columns": ["arm", "age"]}, "column 'age' is a number: name its cut points"),
        ({"cuts": {"age": [40.0]}}, "cuts names 'age', which is not among columns"),
        ({"cuts": {"arm": [40.0]}}, "column 'arm' has categories: cuts are of numbers"),
        ({"columns": ["age"], "cuts": {"age": []}}, "rising numbers inside"),
        ({"columns": ["age"], "cuts": {"age": [60.0, 40.0]}}, "rising numbers inside"),
        ({"columns": ["age"], "cuts": {"age": [18.0, 40.0]}}, "rising numbers inside"),
        ({"columns": ["age"], "cuts": {"age": [40.0, 100.0]}}, "rising numbers inside"),
        ({"columns": ["age"], "cuts": {"age": 1}}, "between 2 and 1000"),
        ({"columns": ["age", "arm", "outcome"], "cuts": {"age": 1000}}, "the most are 4096"),
        ({"totals": {"age": {"old": 3}}}, "totals names 'age'"),
        ({"totals": {"arm": {"placebo": 3}}}, "'placebo', which is not among its levels control, treated"),
        ({"totals": {"arm": {"control": -1}}}, "none of them negative"),
        ({"totals": {"arm": {}}}, "at least one"),
        ({"confidence": 1.0}, "confidence"),
        ({"bins": 3}, "bins"),
    ],
)
def test_a_study_that_means_nothing_is_refused_in_words(changes: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        plan_of(**changes)


def test_totals_need_a_public_number_of_rows_and_parties_that_agree() -> None:
    with pytest.raises(UsageError, match="several rows of an id"):
        plan_of(unit="household", most=3, totals={"arm": {"control": 3}})
    asked = study()
    other = Card("south", 10, (ARM, Column("outcome", categories=("ward", "home"), missing="absent"), AGE))
    with pytest.raises(UsageError, match="declared differently by 'south' and 'north'"):
        load("tables").compile(
            Study("tables", (asked.parties[0], other), 1.0, 1e-5, parameters=asked.parameters, derived=())
        )
    with pytest.raises(UsageError, match="needs no trust"):
        load("tables").compile(
            Study(
                "tables", asked.parties, 1.0, 1e-5, parameters=asked.parameters, derived=(), trust={"aggregation": "trusted"}
            )
        )


def test_totals_that_contradict_the_rows_are_refused_at_once_and_unused_in_a_study() -> None:
    data = trial(100)
    for totals in ({"control": 101}, {"control": 50, "treated": 49}):
        with pytest.raises(UsageError, match="totals of arm contradict the number of rows"):
            unpooled.tabulate(data, ["arm", "outcome"], BOUNDS, totals={"arm": totals})
    plan = plan_of(totals={"arm": {"control": 21}})
    assert plan.design.contradicted == ("arm",)
    assert list(plan.design.margins(2)) == []
    assert "contradict" in load("tables").notes(plan)[1]
    assert "publish" in str(plan.not_protected[0])


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"epsilon": "1"}, "epsilon must be a number"),
        ({"confidence": None}, "confidence must be a number"),
        ({"cuts": [40]}, "cuts must be a mapping or None"),
        ({"totals": 3}, "totals must be a mapping or None"),
        ({"columns": 3}, "columns must be a list or a word"),
        ({"columns": ["arm", "dose"]}, "no column 'dose' in the data"),
        ({"cuts": {"arm": 2.5}}, "cuts"),
        ({"bounds": None, "epsilon": math.inf}, "declare bounds"),
        ({"bounds": {"arm": BOUNDS["arm"]}}, "outcome"),
    ],
)
def test_tabulate_refuses_what_makes_no_sense(given: dict[str, object], words: str) -> None:
    asked = {"columns": ["arm", "outcome"], "bounds": BOUNDS} | given
    with pytest.raises(UsageError, match=words):
        unpooled.tabulate(trial(50), **asked)  # type: ignore[arg-type]


def test_released_ranges_and_cuts_are_counted_in_the_statement() -> None:
    age = {"age": np.random.default_rng(0).normal(50, 12, 4000)}
    bought = unpooled.describe(age, bounds=True, epsilon=0.5, delta=1e-6)
    low, high = bought.range("age")
    for more in (
        {"bounds": bought.bounds_, "cuts": {"age": 4}},
        {"bounds": {"age": bought.range("age"), "sex": ["f", "m"]}, "cuts": {"age": 4}},
        {"bounds": {"age": (low, high)}, "cuts": {"age": bought.plan_.sourced("bounds", (40.0, 60.0))}},
    ):
        found = unpooled.tabulate(age, "age", epsilon=0.5, delta=1e-6, **more)
        assert found.statement_.holds
        assert found.plan_.epsilon(1e-6) <= 0.5 + 1e-9
        assert found.statement_.epsilon_per_unit["record"] > 0.6, more
    with pytest.warns(unpooled.PrivacyLeakWarning):
        derived = unpooled.tabulate(trial(200), ["arm", "outcome"])
    assert not derived.statement_.holds


# --- what an analyst reads ------------------------------------------------------------------------------------------------


def test_without_noise_the_table_is_the_table() -> None:
    data = trial()
    found = unpooled.tabulate(data, ["arm", "outcome"], BOUNDS, sites=np.arange(4000) % 4, epsilon=math.inf, delta=1e-5)
    exact = Counter(zip(data["arm"].tolist(), data["outcome"].tolist(), strict=True))
    for key, count in exact.items():
        assert found[key].value == found["pooled", *key].value == count
    a, b, c, d = (exact[arm, outcome] for arm in BOUNDS["arm"] for outcome in BOUNDS["outcome"])
    assert found.effect("odds ratio").value == pytest.approx(a * d / (b * c))
    assert found.effect("risk difference").value == pytest.approx(d / (c + d) - b / (a + b))
    assert found.effect("risk ratio", "treated").value == pytest.approx(d * (a + b) / (b * (c + d)))
    assert found.table_.independence is not None
    table = np.array([[a, b], [c, d]], dtype=float)
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    assert found.table_.independence.statistic == pytest.approx(float(((table - expected) ** 2 / expected).sum()))
    with pytest.raises(KeyError, match="no cell"):
        found["treated", "died"]
    with pytest.raises(KeyError, match="there are odds ratio"):
        found.effect("hazard ratio")
    with pytest.raises(KeyError, match="there are none"):
        found.quantile(0.5)


def test_mantel_haenszel_without_noise_is_that_of_the_textbook() -> None:
    data, sites = trial(seed=3), np.arange(4000) % 3
    found = unpooled.tabulate(data, ["arm", "outcome"], BOUNDS, sites=sites, epsilon=math.inf, delta=1e-5)
    ratio, difference = np.zeros(2), np.zeros(2)
    for k in range(3):
        own = [
            (data["arm"] == arm) & (data["outcome"] == outcome) & (sites == k)
            for arm in BOUNDS["arm"]
            for outcome in BOUNDS["outcome"]
        ]
        a, b, c, d = (float(rows.sum()) for rows in own)
        n = a + b + c + d
        ratio += a * d / n, b * c / n
        difference += (d * (a + b) - b * (c + d)) / n, (a + b) * (c + d) / n
    assert found.effect("Mantel-Haenszel odds ratio").value == pytest.approx(ratio[0] / ratio[1])
    assert found.effect("common risk difference").value == pytest.approx(difference[0] / difference[1])


@pytest.mark.slow
def test_counts_have_the_public_totals() -> None:
    data = trial()
    totals = {"arm": {arm: int((data["arm"] == arm).sum()) for arm in BOUNDS["arm"]}}
    found = unpooled.tabulate(data, ["arm", "outcome"], BOUNDS, sites=np.arange(4000) % 4, totals=totals, epsilon=0.5)
    for arm, total in totals["arm"].items():
        assert found[arm, "home"].value + found[arm, "ward"].value == pytest.approx(total, abs=1e-4)
    for site in "0123":
        assert sum(cell.count.value for cell in found.table_.cells if cell.source == site) == pytest.approx(1000, abs=1e-4)
    assert not found.table_.misfit
    plain = unpooled.tabulate(data, ["arm", "outcome"], BOUNDS, sites=np.arange(4000) % 4, epsilon=0.5)
    assert found["control", "ward"].noise < plain["control", "ward"].noise
    wrong = unpooled.tabulate(data, ["arm", "outcome"], BOUNDS, totals={"arm": {"control": 3000, "treated": 1000}})
    assert wrong.table_.misfit
    assert "check them" in str(wrong)


@pytest.mark.slow
def test_the_table_is_printed_named_and_framed() -> None:
    data = trial() | {"age": np.random.default_rng(5).normal(55, 12, 4000)}
    found = unpooled.tabulate(data, ["arm", "outcome"], BOUNDS, sites=np.arange(4000) % 2, epsilon=4.0)
    assert str(found).startswith("arm x outcome: 4000 rows, 2 parties\n")
    for words in (
        "independence of arm and outcome: chi2 = ",
        "outcome = ward, arm = treated against control",
        "risk ratio",
        "2 strata",
    ):
        assert words in str(found)
    names = [term.term for term in found.terms]
    assert names[0] == "count: arm = control, outcome = home"
    assert "risk difference: outcome = ward, arm = treated against control" in names
    assert [term.group for term in found.terms[:12:4]] == ["pooled", "0", "1"]
    frame = found.to_polars()
    assert frame["term"].to_list() == names
    assert frame.filter(frame["p_value"].is_not_null()).height == 1
    assert "A guarantee holds" in found._repr_html_()
    assert repr(found).startswith("Tabulation(arm x outcome; Statement(")
    by_arm = unpooled.tabulate(data, ["arm", "age"], {"arm": BOUNDS["arm"], "age": (18, 100)}, cuts={"age": 41}, epsilon=4.0)
    median = by_arm.quantile(0.5, "treated")
    assert median.low is not None
    assert median.low <= 55 <= median.high
    assert "quantiles of age" in str(by_arm)
    assert {panel.title for panel in panels(by_arm.plan_, by_arm.table_)} >= {
        "count, all",
        "share of age",
        "quantile 0.5 of age",
    }
    strata = unpooled.tabulate(
        data, ["arm", "age", "outcome"], {**BOUNDS, "age": (18, 100)}, cuts={"age": [50]}, epsilon=4.0
    )
    assert "of its line" in str(strata)
    assert strata.effect("Mantel-Haenszel odds ratio").form == "interval"


@pytest.mark.parametrize(
    ("data", "epsilon"),
    [
        ({"arm": np.array(["control"] * 400), "outcome": trial(400)["outcome"]}, 1.0),
        ({"arm": np.array(["control"] * 400), "outcome": trial(400)["outcome"]}, math.inf),
        ({"arm": trial(400)["arm"], "outcome": np.array(["home"] * 400)}, 1.0),
        (trial(400), 0.01),
    ],
)
def test_what_is_not_identified_says_so_and_has_no_line(data: dict[str, NDArray[np.object_]], epsilon: float) -> None:
    found = unpooled.tabulate(data, ["arm", "outcome"], BOUNDS, epsilon=epsilon, delta=1e-6)
    test = found.table_.independence
    assert test is not None
    assert test.p_value is test.statistic is None
    assert test.why
    assert "independence of arm and outcome: not identified" in str(found)
    names = [term.term for term in found.terms]
    assert not any("chi2" in name for name in names)
    if found.table_.effects[0].form == "unknown":
        assert not any(name.startswith("odds ratio") for name in names)
        assert any(
            line.startswith("Odds ratio of") and line.endswith("not identified.") for line in foot(found.plan_, found.table_)
        )
    for term in found.terms:
        assert all(
            value is None or math.isfinite(value) for value in (term.estimate, term.std_error, term.conf_low, term.conf_high)
        )


def test_a_set_without_an_end_is_printed_without_it() -> None:
    effects = (
        Effect("odds ratio", "treated", "control", "above", 8.0, low=0.5),
        Effect("risk ratio", "treated", "control", "below", None, high=2.0),
        Effect("risk difference", "treated", "control", "outside", 0.1, -0.2, 0.05),
        Effect("common risk difference", "treated", "control", "unknown"),
    )
    result = unpooled.tabulate(trial(400), ["arm", "outcome"], BOUNDS)
    shown = Contingency(
        **{name: getattr(result.table_, name) for name in Contingency.__struct_fields__} | {"effects": effects}
    )
    text = render(shown)
    for words in (
        "above 0.5, without an upper end",
        "below 2, without a lower end",
        "below -0.2 or above 0.05",
        "not identified",
    ):
        assert words in text
    lines = {term.term.split(":")[0]: term for term in load("tables").reading.terms(result.plan_, shown)}
    assert (lines["odds ratio"].conf_low, lines["odds ratio"].conf_high, lines["odds ratio"].std_error) == (0.5, None, None)
    assert lines["risk difference"].conf_low is None
    assert "risk ratio" not in lines
    assert len(foot(result.plan_, shown)) >= 4


def test_the_same_release_gives_the_same_p_value() -> None:
    plan = load("tables").compile(study(totals={"arm": {"control": 10}}))
    raw = np.array([[4.0, 3, 1, 2, 5, 0], [3.0, 2, 0, 5, 2, 1]]) * 50
    one, other = (read(plan, plan.study.parties, raw, 2.0) for _ in range(2))
    assert one == other
    assert one.independence is not None
    assert one.independence.p_value is not None


def test_several_rows_of_an_id_leave_the_number_of_rows_open() -> None:
    data = trial(600)
    ids = np.repeat(np.arange(200), 3)
    found = unpooled.tabulate(
        data, ["arm", "outcome"], BOUNDS, unit="household", unit_id=ids, rows_per_household=3, epsilon=8.0
    )
    assert found.table_.rows is None
    assert "an unknown number of rows" in str(found)
    assert "take them as independent" in str(found)
    assert found.plan_.releases[0].sensitivity(Unit.HOUSEHOLD) == pytest.approx(3 * math.sqrt(2))
    assert abs(sum(cell.count.value for cell in found.table_.cells) - 600) < 100


def test_a_table_can_be_saved_and_shares_a_budget(tmp_path) -> None:
    budget = unpooled.Budget(epsilon=1.0, delta=1e-5)
    found = unpooled.tabulate(trial(), ["arm", "outcome"], BOUNDS, epsilon=0.8, delta=1e-6, budget=budget)
    found.save(tmp_path / "table")
    assert unpooled.load(tmp_path / "table").table_ == found.table_
    with pytest.raises(BudgetRefusal):
        unpooled.tabulate(trial(), "arm", Bounds({"arm": BOUNDS["arm"]}), epsilon=0.8, delta=1e-6, budget=budget)


def test_an_outlook_is_the_error_of_a_difference() -> None:
    """The closed form, against runs of the study."""
    share, rows = 0.15, 3000
    card = Card("all", rows, (ARM, Column("outcome", categories=("home", "ward"))))
    asked = Study("tables", (card,), 0.7, 1e-5, parameters={"columns": ["arm", "outcome"]}, derived=())
    found = load("tables").outlook(asked, shares=share)
    plan = load("tables").compile(asked)
    deviation = float(plan.releases[0].mechanism.deviations[0])
    rng = np.random.default_rng(2)
    noisy = rng.multinomial(rows, np.outer([0.5, 0.5], [1 - share, share]).ravel(), size=4000) + deviation * rng.normal(
        size=(4000, 4)
    )
    differences = noisy[:, 3] / noisy[:, 2:].sum(axis=1) - noisy[:, 1] / noisy[:, :2].sum(axis=1)
    assert found.error == pytest.approx(differences.std(), rel=0.05)
    assert found.noise_free < found.error
    assert found.epsilon_for(0.02) < 10
    one = load("tables").outlook(study(columns=["arm"]), quick=True)
    assert len(one.points) == 1
    assert "error of a share" in str(one)
