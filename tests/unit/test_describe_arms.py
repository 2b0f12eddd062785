"""``describe(by="arm")``: right without noise, its sensitivity by brute force, and differences whose intervals hold."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import msgspec
import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

import unpooled
from unpooled.errors import UsageError
from unpooled.models.describe import MODEL, declared
from unpooled.models.describe.declared import ARMS, ArmsLayout
from unpooled.models.describe.fit import ArmsSummary, Estimate, Summary, _cell, _compared
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Unit

COLUMNS = (
    Column("arm", categories=("usual", "new", "none")),
    Column("age", 20.0, 90.0),
    Column("dose", 0.0, 4.0, missing="absent"),
    Column("sex", categories=("f", "m"), missing="indicator"),
)


def study(columns=COLUMNS, rows: int = 3, **changes) -> Study:
    card = Card("a", rows, columns)
    return Study(
        "describe", (card,), **{"epsilon": 1.0, "delta": 1e-6, "derived": (), "parameters": {"by": "arm"}} | changes
    )


def frame(rows: int = 4000) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    found = pd.DataFrame(
        {"arm": rng.choice(["usual", "new", "none"], rows, p=[0.5, 0.4, 0.1]), "age": rng.uniform(20, 90, rows)}
    )
    found["dose"] = np.where(
        rng.random(rows) < 0.2, np.nan, rng.normal(2, 0.5, rows).clip(0, 4) + 0.3 * (found["arm"] == "new")
    )
    found["sex"] = rng.choice(["f", "m"], rows)
    return found


BOUNDS = unpooled.Bounds(
    {"age": (20, 90), "dose": (0, 4.3), "arm": ["usual", "new", "none"], "sex": ["f", "m"]}, missing={"dose": "absent"}
)


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_of_numbers_that_nobody_gave_and_of_arms_without_people_nothing_is_printed(epsilon: float) -> None:
    data = frame(1000).assign(dose=np.nan)
    lines = str(unpooled.describe(data, BOUNDS, by="arm", epsilon=epsilon, random_state=0)).splitlines()
    assert next(line for line in lines if line.startswith("dose")).count("not identified") == 5
    lines = str(unpooled.describe(data.assign(arm="new"), BOUNDS, by="arm", epsilon=epsilon, random_state=0)).splitlines()
    for line in lines[1:]:  # a number of rows has no difference between arms
        assert line.count("not identified") >= (2 if "rows with a value" in line else 4)


def test_of_fewer_than_two_the_interval_is_the_whole_range() -> None:
    data = frame(1000)
    data["arm"] = ["none", *["new"] * 999]
    found = unpooled.describe(data, BOUNDS, by="arm", epsilon=math.inf)
    ages = {arm: s.mean for arm, s in found.table_.summaries if s.column == "age"}
    assert [(ages[arm].low, ages[arm].high) for arm in ("usual", "none")] == [(20, 90)] * 2
    assert ages["new"].high - ages["new"].low < 10


@pytest.mark.guarantee
def test_without_noise_it_is_the_table_of_pandas() -> None:
    data = frame()
    found = unpooled.describe(data, BOUNDS, by="arm", epsilon=math.inf, sites=np.repeat(["x", "y"], 2000))
    for source, rows in (("pooled", data), ("x", data[:2000]), ("y", data[2000:])):
        groups = rows.groupby("arm")
        counted = {arm: e.value for s, arm, e in found.table_.rows if s == source}
        assert counted == groups.size().to_dict()
        for arm, summary in found.table_.summaries:
            if summary.source != source:
                continue
            own = groups.get_group(arm)[summary.column]
            if summary.category is not None:
                assert summary.count.value == (own == summary.category).sum()
                continue
            assert summary.mean.value == pytest.approx(own.mean(), abs=1e-3)
            assert summary.sd.value == pytest.approx(own.std(), rel=1e-3)
    new, usual = (data[data["arm"] == arm]["dose"] for arm in ("new", "usual"))
    by_hand = (new.mean() - usual.mean()) / math.sqrt((new.var() + usual.var()) / 2)
    assert found.difference("dose").value == pytest.approx(by_hand, rel=1e-3)
    shares = [(data[data["arm"] == arm]["sex"] == "m").mean() for arm in ("new", "usual")]
    spread = math.sqrt(sum(p * (1 - p) for p in shares) / 2)
    assert found.difference("sex", "m").value == pytest.approx((shares[0] - shares[1]) / spread, rel=1e-3)
    assert "new - usual (in sd)" in str(found)
    assert "<table" in found._repr_html_()
    assert "3 arms of arm" in repr(found)
    with pytest.raises(KeyError, match="no difference of 'nothing'"):
        found.difference("nothing")


def test_with_noise_it_is_near_and_holds_its_promise(tmp_path) -> None:
    data = frame()
    found = unpooled.describe(data, BOUNDS, by="arm", epsilon=3.0, delta=1e-6)
    assert found.statement_.holds
    assert found.plan_.epsilon(1e-6) == pytest.approx(3.0, rel=1e-6)
    assert sum(e.value for _, _, e in found.table_.rows) == pytest.approx(4000)
    value = found.difference("dose")
    assert value is not None
    assert abs(value.value - 0.6) < 0.4
    found.save(tmp_path / "table.model")
    assert unpooled.load(tmp_path / "table.model").table_ == found.table_


def test_an_arm_without_people_is_charged_and_not_identified() -> None:
    data = frame(600)
    data["arm"] = "usual"
    found = unpooled.describe(data, BOUNDS, by="arm", epsilon=1.0, random_state=0)
    assert found.difference("age") is None
    assert "not identified" in str(found)
    assert len(found.ledger_) == 1
    names = {term.term for term in MODEL.reading.terms(found.plan_, found.table_)}
    assert "age: standardised difference, new - usual" not in names


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"parameters": {"by": "age"}}, "two categories or more"),
        ({"parameters": {"by": "nothing"}}, "declares no column 'nothing'"),
        ({"parameters": {"by": "arm", "columns": ["arm"]}}, "there are other columns"),
        ({"parameters": {"by": "arm", "ranges": True}}, "leave by out"),
    ],
)
def test_what_is_no_arm_is_refused(changes, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        MODEL.compile(study(**changes))


def test_parties_that_declare_a_column_differently_are_refused() -> None:
    other = Card("b", 3, (*COLUMNS[:1], Column("age", 0.0, 90.0), *COLUMNS[2:]))
    asked = study()
    with pytest.raises(UsageError, match="declared differently"):
        MODEL.compile(replace_parties(asked, (asked.parties[0], other)))


def replace_parties(asked: Study, parties) -> Study:
    import msgspec

    return msgspec.structs.replace(asked, parties=parties)


def test_by_has_no_place_in_other_descriptions() -> None:
    data = frame(100)
    for given, words in (
        ({"bounds": True}, "private ranges are of all rows"),
        ({"bounds": BOUNDS, "parties": 2}, "no parties"),
        ({"bounds": None}, "declared bounds"),
    ):
        with pytest.raises(UsageError, match=words):
            unpooled.describe(data, by="arm", **given)


# --- Theorem Q.2 ----------------------------------------------------------------------------------------------------------------

#: Values of every column that move most: ends, the middle, missing.
VALUES = {
    "arm": ("usual", "new", "none"),
    "age": (20.0, 55.0, 90.0),
    "dose": (0.0, 2.0, 4.0, np.nan),
    "sex": ("f", "m", None),
}


def moved(layout: ArmsLayout, one, other) -> float:
    """The distance between the statistics of two tables that differ in one row, in widths of the blocks."""
    widths = np.concatenate([np.full(block.size, block.width) for block in layout.blocks()])
    rest = {"arm": "new", "age": 50.0, "dose": 1.0, "sex": "m"}
    tables = [Table({name: [row[name], rest[name], rest[name]] for name in rest}) for row in (one, other)]
    sums = [layout.statistic(table) for table in tables]
    return float(np.linalg.norm((sums[0] - sums[1]) / widths))


@pytest.mark.slow_for("replace")
@pytest.mark.long_for("replace")
@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
def test_no_row_moves_the_sums_farther_than_the_theorem_says(adjacency: str) -> None:
    asked = study(adjacency=adjacency)
    layout = ArmsLayout.of(asked, "arm", tuple(c.name for c in COLUMNS))
    reach = layout.mechanism(asked).sensitivity(Unit.RECORD) / layout.mechanism(asked).sensitivity(Unit.RECORD)
    assert reach == 1.0
    most = math.sqrt(len(COLUMNS))
    rows = [dict(zip(VALUES, values, strict=True)) for values in itertools.product(*VALUES.values())]
    if adjacency == "replace":
        found = max(moved(layout, one, other) for one, other in itertools.combinations(rows, 2))
    else:
        gone = Table({"arm": ["new", "new"], "age": [50.0, 50.0], "dose": [1.0, 1.0], "sex": ["m", "m"]})
        widths = np.concatenate([np.full(block.size, block.width) for block in layout.blocks()])
        rest = layout.statistic(gone)
        found = max(
            float(
                np.linalg.norm((layout.statistic(Table({n: [row[n], *gone[n].tolist()] for n in VALUES})) - rest) / widths)
            )
            for row in rows
        )
    assert 0.95 * most < found <= most * (1 + 1e-9)


@pytest.mark.slow
def test_the_price_of_one_arm_alone_would_be_too_low(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: F.1 as if a row stayed in its arm, with the free factor on the squares of section 2."""
    monkeypatch.setattr(declared, "_WEIGHTS", (1.0, 1.0, math.sqrt(2.0)))
    monkeypatch.setattr(
        ArmsLayout, "distance", lambda _, column: 2.0 if column and column.categories is None else math.sqrt(2.0)
    )
    layout = ArmsLayout.of(study(), "arm", tuple(c.name for c in COLUMNS))
    rows = [dict(zip(VALUES, values, strict=True)) for values in itertools.product(*VALUES.values())]
    assert max(moved(layout, one, other) for one, other in itertools.combinations(rows, 2)) > math.sqrt(len(COLUMNS)) * 1.05


def test_a_value_of_the_arm_is_priced_as_the_whole_row() -> None:
    layout = ArmsLayout.of(study(), "arm", tuple(c.name for c in COLUMNS))
    ends = {"age": 90.0, "dose": 4.0, "sex": "m"}
    found = moved(layout, {"arm": "usual", **ends}, {"arm": "none", **ends})
    mechanism = layout.mechanism(study(unit="attribute"))
    assert found > 0.95 * math.sqrt(len(COLUMNS))
    assert mechanism.sensitivity(Unit.ATTRIBUTE) == mechanism.sensitivity(Unit.RECORD)


# --- intervals ------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_intervals_of_differences_hold_their_level() -> None:
    """Played on the law of the planned release: a number and a share, two arms that differ by .2 standard deviations."""
    columns = (Column("arm", categories=("usual", "new")), Column("x", -4.0, 4.0), Column("ill", categories=("no", "yes")))
    rows, rng = 4000, np.random.default_rng(4)
    asked = study(columns, rows)
    layout, mechanism = ArmsLayout.of(asked, "arm", ("x", "ill")), MODEL.compile(asked).release("a", ARMS).mechanism
    truth = {"x": 0.2, "ill": (0.3 - 0.22) / math.sqrt((0.3 * 0.7 + 0.22 * 0.78) / 2)}
    hits = dict.fromkeys(truth, 0)
    runs = 600
    for _ in range(runs):
        new = rng.random(rows) < 0.5
        x, ill = rng.normal(size=rows) + 0.2 * new, rng.random(rows) < np.where(new, 0.3, 0.22)
        table = Table({"arm": np.where(new, "new", "usual"), "x": x, "ill": np.where(ill, "yes", "no")})
        sums = layout.statistic(table) + rng.normal(size=layout.size) * mechanism.deviations
        _, _, differences = _compared("a", rows, sums, mechanism.deviations**2, layout, norm.ppf(0.975))
        for d in differences:
            if d.category != "no":
                assert d.value is not None
                hits[d.column] += d.value.low <= truth[d.column] <= d.value.high
    for hit in hits.values():
        assert abs(hit / runs - 0.95) < 0.035  # four errors


def test_a_result_of_no_party_prints_nothing() -> None:
    empty = ArmsSummary("arm", ("usual", "new"), (), (), ())
    assert MODEL.reading.panels(MODEL.compile(study()), empty) == ()
    assert replace(MODEL).name == "describe"


@pytest.mark.parametrize(("low", "spread"), [(1.5, "2"), (0.0, "not identified")])
def test_a_printed_cell_says_its_noise_and_hides_what_noise_hides(low: float, spread: str) -> None:
    people = Estimate(400.0, 390.0, 410.0, 5.0)
    number = Summary("all", "age", None, people, Estimate(50.0, 47.0, 53.0, 1.5), Estimate(2.0, low, 2.5, 0.3))
    assert _cell(number, people) == f"50 ±3 ({spread})"
    share = Summary("all", "sex", "f", Estimate(100.0, 92.0, 108.0, 4.0))
    assert _cell(share, people) == "100 ±8 (25.0)"
    rare = Estimate(10.0, 0.0, 20.0, 5.0)
    assert _cell(msgspec.structs.replace(number, count=rare), people) == "not identified"
