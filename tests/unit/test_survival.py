"""``unpooled.survival``: what it counts, what a row moves, and curves and tests against libraries that know no privacy."""

from __future__ import annotations

import itertools
import math

import msgspec
import numpy as np
import pandas as pd
import pytest

import unpooled
from unpooled.errors import UnpooledError, UsageError
from unpooled.inference.life_table import LifeTable
from unpooled.kernels import survival as survival_tests
from unpooled.models.survival import MODEL, declared
from unpooled.models.survival.declared import ExitsLayout
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Unit

BOUNDS = {"days": (0, 100), "died": (0, 1), "arm": ["usual", "new"], "stage": ["one", "two"]}
COLUMNS = (
    Column("days", 0.0, 100.0, missing="absent"),
    Column("died", 0.0, 1.0),
    Column("arm", categories=("usual", "new", "third")),
    Column("stage", categories=("one", "two"), missing="indicator"),
)
ASKED = {"time": "days", "event": "died", "by": "arm", "strata": "stage"}


def people(rows: int = 4000, ratio: float = 0.6, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    arm, stage = rng.choice(["usual", "new"], rows), rng.choice(["one", "two"], rows)
    until = rng.exponential(150 / np.where(arm == "new", ratio, 1.0) / np.where(stage == "two", 2.0, 1.0))
    left = np.where(rng.random(rows) < 0.3, rng.uniform(0, 100, rows), 100.0)
    days = np.ceil(np.minimum(until, left))
    return pd.DataFrame({"arm": arm, "stage": stage, "days": days, "died": (until <= left).astype(float)})


def study(columns=COLUMNS, rows: int = 3, parameters=None, **changes) -> Study:
    card = Card("a", rows, columns)
    asked = ASKED if parameters is None else parameters
    return Study("survival", (card,), **{"epsilon": 1.0, "delta": 1e-6, "derived": ()} | changes, parameters=asked)


def log_rank(data: pd.DataFrame, *, early: bool = False) -> tuple[float, float]:
    """(U, V) of the textbook's test of two arms, time by time; ``early``: weighted by who is at risk."""
    new, total, spread = (data["arm"] == "new").to_numpy(), 0.0, 0.0
    days, died = data["days"].to_numpy(), data["died"].to_numpy() == 1
    for day in np.unique(days[died]):
        risk, own, d = (days >= day).sum(), (new & (days >= day)).sum(), (died & (days == day)).sum()
        weight = risk / days.size if early else 1.0
        total += weight * ((new & died & (days == day)).sum() - d * own / risk)
        spread += weight**2 * d * (risk - d) / max(risk - 1, 1) * own / risk * (1 - own / risk)
    return total, spread


def kaplan_meier(data: pd.DataFrame, at: np.ndarray) -> np.ndarray:
    """The textbook's curve at these days."""
    days, died = data["days"].to_numpy(), data["died"].to_numpy() == 1
    steps = np.array([1 - (died & (days == day)).sum() / max((days >= day).sum(), 1) for day in at])
    return np.cumprod(steps)


# --- without noise ----------------------------------------------------------------------------------------------------------------


def test_an_event_after_the_end_of_follow_up_has_not_happened_at_the_end() -> None:
    layout = declared.design_of(study()).layout
    end = {"days": [100.0, 100.0, 250.0], "died": [1.0, 0.0, 1.0], "arm": ["new"] * 3, "stage": ["one"] * 3}
    table = Table({name: np.array(values) for name, values in end.items()})
    exits = layout.counted(table.blocks(tuple(column.name for column in layout.columns))).reshape(layout.shape)[0, 1]
    assert exits[-2:].tolist() == [1, 2]
    assert exits.sum() == 3


def test_where_all_have_the_event_in_one_interval_the_curve_moves_with_the_noise() -> None:
    cells = np.zeros((1, 2, 9))
    cells[0, :, 1] = 500.0, 495.0
    constant, weights = survival_tests.areas(np.array([25.0, 50.0, 75.0, 100.0]), 3)
    values, _, noise = survival_tests.of_curves(cells, 10.0, weights)
    assert constant + values == pytest.approx([12.5, 12.5])
    rng = np.random.default_rng(0)
    moved = survival_tests.of_curves(cells + 10 * rng.normal(size=(4000, *cells.shape)), 10.0, weights)[0]
    assert (np.sqrt(noise) > moved.std(axis=0)).all()  # a curve is at least 0, which keeps half of the noise away


def test_without_noise_it_is_the_log_rank_test_of_the_textbook() -> None:
    """With an interval for every day; the two handle those censored on a day differently, by half a day."""
    data = people()
    days = [float(day) for day in range(1, 100)]
    found = unpooled.survival(data, "days", "died", "arm", BOUNDS, cuts=days, epsilon=math.inf)
    total, spread = log_rank(data)
    statistic = total**2 / spread
    assert found.test().statistic == pytest.approx(statistic, rel=0.01)
    total, spread = log_rank(data, early=True)
    early = total**2 / spread
    assert found.test("log-rank, early events weighted").statistic == pytest.approx(early, rel=0.01)
    assert found.test().p_value == 1 / 500
    inside = unpooled.survival(data, "days", "died", "arm", BOUNDS, cuts=days, strata="stage", epsilon=math.inf)
    parts = np.array([log_rank(own) for _, own in data.groupby("stage")]).sum(axis=0)
    statistic = parts[0] ** 2 / parts[1]
    assert inside.test().statistic == pytest.approx(statistic, rel=0.01)


def test_without_noise_curves_and_means_are_those_of_kaplan_and_meier() -> None:
    data = people()
    found = unpooled.survival(
        data,
        "days",
        "died",
        "arm",
        BOUNDS,
        cuts=[float(d) for d in range(1, 100)],
        epsilon=math.inf,
        sites=["x", "y"] * 2000,
    )
    areas = {}
    for arm, own in data.groupby("arm"):
        ends = found.curve(str(arm)).at(np.arange(1.0, 100.0))
        assert np.abs(ends - kaplan_meier(own, np.arange(1.0, 100.0))).max() < 0.005
        areas[arm] = 0.5 + np.sum(ends) + (found.curve(str(arm)).at([100.0])[0]) / 2
    mean = {one.arm: one.value for one in found.result_.means}
    assert mean["new"] == pytest.approx(areas["new"], rel=1e-3)
    assert found.mean_difference().value == pytest.approx(areas["new"] - areas["usual"], abs=0.05)
    counts = dict(zip(("usual", "new"), (data["arm"].value_counts()[arm] for arm in ("usual", "new")), strict=True))
    assert {arm: n for arm, n, _ in found.result_.counts} == counts


def test_few_intervals_say_about_the_same() -> None:
    data = people()
    many, few = (
        unpooled.survival(data, "days", "died", "arm", BOUNDS, cuts=cuts, epsilon=math.inf)
        for cuts in ([float(d) for d in range(1, 100)], [25.0, 50.0, 75.0])
    )
    assert few.test().statistic == pytest.approx(many.test().statistic, rel=0.1)
    assert few.mean_difference().value == pytest.approx(many.mean_difference().value, abs=0.3)


# --- with noise -------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_with_noise_it_is_near_holds_its_promise_and_can_be_saved(tmp_path) -> None:
    data = people(12_000)
    found = unpooled.survival(data, "days", "died", "arm", BOUNDS, sites=np.repeat(["x", "y", "z"], 4000))
    assert found.statement_.holds
    assert found.plan_.epsilon(found.plan_.study.delta) == pytest.approx(1.0, rel=1e-3)
    assert found.test().p_value == 1 / 500
    difference = found.mean_difference("new")
    exact = unpooled.survival(data, "days", "died", "arm", BOUNDS, epsilon=math.inf).mean_difference()
    assert abs(difference.value - exact.value) < 5 * difference.noise + 0.5
    assert "log-rank test, 1 df" in str(found)
    assert "p-values are by 499 tables" in str(found)
    assert "<table" in found._repr_html_()
    assert "usual against new" in repr(found)
    assert found.figure().axes
    found.save(tmp_path / "arms.model")
    assert unpooled.load(tmp_path / "arms.model").result_ == found.result_
    names = [panel.title for panel in MODEL.reading.panels(found.plan_, found.result_)]
    assert names == ["survival, usual", "survival, new", "difference of survival, new - usual"]
    for call in (lambda: found.curve("none"), lambda: found.test("none"), lambda: found.mean_difference("none")):
        with pytest.raises(KeyError, match=r"there is no|is identified"):
            call()


def test_the_same_release_has_the_same_p_value() -> None:
    data = people(3000, 1.0)
    one, two = (unpooled.survival(data, "days", "died", "arm", BOUNDS, epsilon=3.0, random_state=5) for _ in range(2))
    assert one.result_ == two.result_
    assert one.test().p_value is not None


def test_an_empty_arm_and_no_events_are_charged_and_not_identified() -> None:
    data = people(2000)
    for changed in (data.assign(arm="new"), data.assign(died=0.0)):
        found = unpooled.survival(changed, "days", "died", "arm", BOUNDS, random_state=1)
        assert len(found.ledger_) == 1
        assert {test.p_value for test in found.result_.tests} == {None}
        assert "not identified: the noise hides" in str(found)
    hidden = unpooled.survival(data.assign(arm="new"), "days", "died", "arm", BOUNDS, random_state=1)
    assert hidden.result_.hidden == ("usual",)
    assert hidden.result_.mean_differences == ()
    assert "usual: not identified" in str(hidden)
    assert [panel.title for panel in MODEL.reading.panels(hidden.plan_, hidden.result_)] == ["survival, new"]
    assert hidden.figure().axes


def test_where_noise_is_larger_than_the_draw_a_test_refuses() -> None:
    found = unpooled.survival(people(2000), "days", "died", "arm", BOUNDS, epsilon=0.1, random_state=0, cuts=range(1, 100))
    assert found.test().p_value is None
    assert "noise adds more" in found.test().why or "noise hides" in found.test().why


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"parameters": {**ASKED, "time": "arm"}}, "different columns"),
        ({"parameters": {**ASKED, "time": "stage", "strata": ""}}, "is a declared number from 0"),
        ({"parameters": {**ASKED, "event": "days", "time": "died"}}, "is a declared column of 0 and 1"),
        ({"parameters": {**ASKED, "by": "stage", "strata": "", "event": "arm"}}, "or of two categories"),
        ({"parameters": {**ASKED, "strata": "other"}}, "declares no column 'other'"),
        ({"parameters": {**ASKED, "cuts": [50.0, 20.0]}}, "cuts rise"),
        ({"parameters": {**ASKED, "cuts": [100.0]}}, "cuts rise"),
        ({"parameters": {**ASKED, "horizon": 33.0}}, "horizon is the end of an interval"),
        ({"parameters": {**ASKED, "confidence": 1.5}}, "confidence"),
        ({"parameters": {**ASKED, "more": 1}}, "more"),
        ({"parameters": {"time": "days", "event": "died"}}, "by"),
    ],
)
def test_a_wrong_study_is_refused(changes, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        MODEL.compile(study(**changes))


def test_a_wrong_call_is_refused() -> None:
    data = people(100)
    with pytest.raises(UsageError, match="declare bounds"):
        unpooled.survival(data, "days", "died", "arm", None)
    with pytest.raises(UnpooledError, match="none"):
        unpooled.survival(data, "none", "died", "arm", BOUNDS)


def test_intervals_follow_from_rows_and_budget_and_from_nothing_else() -> None:
    def count(rows: int, epsilon: float, strata: str = "") -> int:
        asked = study(rows=rows, epsilon=epsilon, parameters={**ASKED, "strata": strata})
        return len(MODEL.compile(asked).design.layout.edges)

    assert count(300, 0.3) == 4
    assert 4 < count(25_000, 1.0) < 12
    assert count(10**6, 1.0) == count(300, math.inf) == 12
    assert count(25_000, 1.0, "stage") < count(25_000, 1.0)
    horizon = MODEL.compile(study(parameters={**ASKED, "cuts": [30.0, 60.0], "horizon": 60.0})).design.horizon
    assert horizon == 1


# --- Theorem V.1 ------------------------------------------------------------------------------------------------------------------

VALUES = {
    "days": (0.0, 40.0, 100.0, np.nan),
    "died": (0.0, 1.0),
    "arm": ("usual", "new", "third"),
    "stage": ("one", "two", None),
}
REST = {"days": [10.0, 100.0], "died": [1.0, 0.0], "arm": ["new", "usual"], "stage": ["one", "two"]}


def counted(layout: ExitsLayout, rows: list[dict]) -> np.ndarray:
    table = Table({name: [*(row[name] for row in rows), *REST[name]] for name in VALUES})
    return layout.counted(table.blocks(tuple(column.name for column in layout.columns)))


def every_row() -> list[dict]:
    return [dict(zip(VALUES, values, strict=True)) for values in itertools.product(*VALUES.values())]


@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
def test_no_row_and_no_value_moves_the_exits_farther_than_the_theorem_says(adjacency: str) -> None:
    compiled = MODEL.compile(study(adjacency=adjacency))
    layout, mechanism = compiled.design.layout, compiled.releases[0].mechanism
    rows, nobody = every_row(), counted(compiled.design.layout, [])
    own = [counted(layout, [row]) for row in rows]
    if adjacency == "replace":
        moved = max(np.linalg.norm(a - b) for a, b in itertools.combinations(own, 2))
    else:
        moved = max(np.linalg.norm(a - nobody) for a in own)
    assert moved == pytest.approx(mechanism.sensitivity(Unit.RECORD))
    values = [
        np.linalg.norm(a - b)
        for (one, a), (other, b) in itertools.combinations(zip(rows, own, strict=True), 2)
        if sum(one[name] is not other[name] and one[name] != other[name] for name in VALUES) <= 1
    ]
    assert max(values) == pytest.approx(mechanism.sensitivity(Unit.ATTRIBUTE)) == math.sqrt(2)


def test_cells_of_every_stratum_and_arm_apart_and_together_would_move_farther(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: a layout that also counts everybody in a cell of all arms is caught by the same search."""
    layout = MODEL.compile(study()).design.layout
    honest = ExitsLayout.counted

    def twice(self, blocks):
        cells = honest(self, blocks).reshape(self.shape)
        return np.concatenate([cells.ravel(), cells.sum(axis=(0, 1))])

    monkeypatch.setattr(ExitsLayout, "counted", twice)
    own = [counted(layout, [row]) for row in every_row()]
    assert max(np.linalg.norm(a - b) for a, b in itertools.combinations(own, 2)) > math.sqrt(2) + 0.1


# --- the tests themselves ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["log-rank", "early", "means", "two arms"])
def test_derivatives_are_those_of_numbers_moved_a_little(name: str) -> None:
    rng = np.random.default_rng(0)
    cells = rng.poisson(30, (2, 3 if name != "two arms" else 2, 11)).astype(float)
    weights = survival_tests.areas(np.arange(1.0, 6.0), 3)[1]

    def found(table: np.ndarray) -> survival_tests.Compared:
        if name == "means":
            return survival_tests.differences(table, 2.0, weights)
        return survival_tests.log_rank(table, 2.0, early=name == "early")

    moved = []
    for place in np.ndindex(cells.shape):
        step = np.zeros(cells.shape)
        step[place] = 1e-4
        moved.append((found(cells + step).apart - found(cells - step).apart) / 2e-4)
    gradient = np.array(moved).T
    if name == "early":  # whose weights are held fixed: the least that may be said is that it is of this size
        assert np.allclose(4 * gradient @ gradient.T, found(cells).noise, rtol=0.3)
        return
    assert np.allclose(4 * gradient @ gradient.T, found(cells).noise, rtol=1e-5)


def test_many_tables_at_once_are_each_by_itself() -> None:
    rng = np.random.default_rng(1)
    cells = rng.normal(20, 6, (5, 2, 3, 9))
    for early in (False, True):
        together = survival_tests.log_rank(cells, 1.5, early=early)
        for k in range(5):
            assert np.allclose(survival_tests.log_rank(cells[k], 1.5, early=early).statistic, together.statistic[k])


@pytest.mark.long
@pytest.mark.slow
def test_the_null_law_has_the_size_that_it_says() -> None:
    """600 studies under the null law with noise; five errors of a share."""
    rng, deviation, rejected = np.random.default_rng(3), 5.0, 0
    runs = 600
    for _ in range(runs):
        data = people(1500, 1.0, seed=int(rng.integers(1 << 30)))
        layout = MODEL.compile(
            study(
                (*COLUMNS[:2], Column("arm", categories=("usual", "new"))),
                rows=1500,
                epsilon=2.0,
                parameters={**ASKED, "strata": ""},
            )
        ).design.layout
        exact = layout.counted(
            Table({c: data[c].to_numpy() for c in ("days", "died", "arm")}).blocks(("days", "died", "arm"))
        )
        cells = exact.reshape(layout.shape) + deviation * rng.normal(size=layout.shape)
        drawn = survival_tests.log_rank(survival_tests.null_tables(cells, deviation, 199, rng), deviation).statistic
        rejected += (1 + (drawn >= survival_tests.log_rank(cells, deviation).statistic).sum()) / 200 <= 0.05
    assert abs(rejected / runs - 0.05) < 5 * math.sqrt(0.05 * 0.95 / runs)


def test_what_a_study_says_of_itself() -> None:
    compiled = MODEL.compile(study())
    assert "2 strata, 3 arms" in compiled.notes[0]
    assert declared.EXITS in {release.name for release in compiled.releases}
    text = msgspec.json.encode(compiled.study.parameters)
    assert b"stage" in text


@pytest.mark.slow
def test_the_deviation_that_privacy_adds_to_a_curve_is_that_of_noise_in_its_cells() -> None:
    """Played: every cell, those who stayed among them, gets noise, and the logarithm of the curve's end moves by what the table says."""
    edges, rng, noise = np.array([1.0, 2.0, 3.0]), np.random.default_rng(0), 1.5
    cells = np.array([40.0, 60.0, 30.0, 80.0, 50.0, 40.0, 20.0])  # censored and events of each interval, then who stayed

    def at(moved: np.ndarray) -> LifeTable:
        censored, events = moved[:-1].reshape(-1, 2).T
        return LifeTable((*edges,), (*events,), (*censored,), float(moved[-1]), noise, float(cells.sum()))

    drawn = [math.log(at(cells + noise * rng.normal(size=7)).kaplan_meier().survival[-1]) for _ in range(4000)]
    assert at(cells).kaplan_meier().privacy == pytest.approx(np.std(drawn), rel=0.1)
