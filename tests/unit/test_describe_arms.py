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
from unpooled.models.describe.fit import ArmsSummary, Estimate, Summary, _cell, _compared, with_a_value
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


@pytest.mark.long
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


@pytest.mark.long
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


MISSING = unpooled.Bounds(
    {"age": (20, 90), "dose": (0, 4.3), "arm": ["usual", "new", "none"], "sex": ["f", "m"]},
    missing={"dose": "absent", "sex": "absent"},
)


def some_missing() -> pd.DataFrame:
    data = frame()
    return data.assign(sex=np.where(np.random.default_rng(1).random(len(data)) < 0.3, None, data["sex"]))


@pytest.mark.slow_for("site")
@pytest.mark.parametrize("sites", [None, "site"])
def test_a_column_that_may_miss_values_has_a_line_with_the_rows_that_have_one(sites: str | None) -> None:
    data = some_missing().assign(site=np.arange(4000) % 2)
    where = None if sites is None else data[sites]
    columns = data[["age", "dose", "arm", "sex"]]
    found = unpooled.describe(columns, MISSING, by="arm", sites=where, epsilon=math.inf)
    lines = {row[0]: row for row in found._printed()[0].rows}
    assert [name for name in lines if "rows with a value" in name] == [
        f"{c}, rows with a value, n (%)" for c in ("dose", "sex")
    ]
    assert [name.split(",")[0] for name in lines].index("sex") > 0
    for column in ("dose", "sex"):
        there = data.groupby("arm")[column].count()
        people = data.groupby("arm")["age"].count()
        cells = lines[f"{column}, rows with a value, n (%)"]
        assert cells[1:4] == tuple(
            f"{there[arm]} ±0 ({100 * there[arm] / people[arm]:.1f})" for arm in ("usual", "new", "none")
        )
        assert cells[4:] == ("", "")
        line = f"{column}, rows with a value, n (%)"
        assert line in str(found)
        assert line in found.to_markdown()
        assert line in found._repr_html_()
        own = found.to_polars().filter(term=f"{column}: rows with a value")
        source = "pooled" if sites else "all"
        assert dict(own.select("group", "estimate").iter_rows())[f"{source}, arm = new"] == there["new"]
    without = unpooled.describe(
        columns[["age", "arm"]], {"age": (20, 90), "arm": ["usual", "new", "none"]}, by="arm", epsilon=math.inf
    )
    assert "rows with a value" not in without.to_json()
    alone = unpooled.describe(columns, MISSING, sites=where, epsilon=math.inf)
    shown = {row[:2]: row for row in alone._printed()[0].rows}
    for column in ("dose", "sex"):
        assert shown[source, f"{column}, rows with a value"][2:] == (f"{data[column].count()} ±0", "", "")
        assert f"{column}, rows with a value" in str(alone)
    assert not any("age, rows" in name for _, name in shown)


@pytest.mark.slow
def test_rows_with_a_value_follow_from_what_is_released_and_their_interval_holds_the_noise() -> None:
    columns = some_missing()
    exact = columns["sex"].count()
    inside, noises = 0, []
    bounds = unpooled.Bounds({"sex": ["f", "m"]}, missing="absent")
    for seed in range(80):
        found = unpooled.describe(columns[["sex"]], bounds, epsilon=1.0, random_state=seed)
        plain = unpooled.describe(columns[["sex"]].fillna("f"), {"sex": ["f", "m"]}, epsilon=1.0, random_state=seed)
        assert [r.name for r in found.plan_.releases] == [r.name for r in plain.plan_.releases]  # no release is added for it
        (line,) = [t for t in found.terms if t.term == "sex: rows with a value"]
        counts = [s.count for s in found.summaries_]
        assert line.estimate == pytest.approx(sum(c.value for c in counts))
        assert line.privacy == pytest.approx(math.hypot(*(c.noise for c in counts)))
        inside += line.conf_low <= exact <= line.conf_high
        noises.append(line.estimate - exact)
    assert inside / 80 >= 0.85
    assert np.std(noises) == pytest.approx(line.privacy, rel=0.35)


def test_counts_that_are_cut_at_zero_do_not_move_the_number_of_rows_with_a_value() -> None:
    """Of forty categories that nobody has each is cut at 0: the sum of what is shown would lie far above."""
    rng, z, noise = np.random.default_rng(0), 1.96, 10.0
    off, summed = [], []
    for _ in range(200):
        raw = np.append(noise * rng.normal(size=40), 1000 + noise * rng.normal())
        shown = [Estimate(*(float(max(c + side * z * noise, 0.0)) for side in (0, -1, 1)), noise) for c in raw]
        found = with_a_value(shown, 5000)
        assert (found.low, found.high) == pytest.approx((found.value - z * found.noise, found.value + z * found.noise))
        off.append(found.value - 1000)
        summed.append(sum(e.value for e in shown) - 1000)
    assert np.mean(summed) > z * found.noise
    assert abs(np.mean(off)) < 4 * np.std(off) / math.sqrt(200) + 5
    assert with_a_value([Estimate(5.0, 0.0, 9.0, 2.0)], 10) == Estimate(5.0, 0.0, 9.0, 2.0)
    assert with_a_value([Estimate(3.0, 3.0, 3.0, 0.0)] * 2, 10) == Estimate(6.0, 6.0, 6.0, 0.0)
