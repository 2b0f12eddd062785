"""Effects of people of whom some values are missing: they are left out of both models and of every sum, and no unit moves a sum farther than planned."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import numpy as np
import pytest
from scipy.special import expit
from treated import KNOWN, people, study

import unpooled
from unpooled import Bounds
from unpooled.audit.replay import Report, replay
from unpooled.errors import DataError, UsageError
from unpooled.models import load
from unpooled.models.effects import plan as effects
from unpooled.models.effects.sums import Pieces
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table
from unpooled.privacy.unit import ROWWISE, Adjacency, Unit
from unpooled.totals.total import COUNT
from unpooled.totals.whole_rows import moved

N = 6000
ESTIMATORS = ("aipw", "iptw", "g-formula", "partial")


def with_gaps(data: dict[str, Any], *, outcomes: bool = True) -> tuple[dict[str, Any], np.ndarray]:
    """People of whom one column each of several is missing, the outcome only of older ones; and who is whole."""
    rng, n = np.random.default_rng(3), len(data["age"])
    gone = {"age": 0.1, "ward": 0.05, "arm": 0.05, "stay": 0.2 * (data["age"] > 50)}
    if not outcomes:
        del gone["stay"]
    lost = {name: rng.random(n) < share for name, share in gone.items()}
    held = dict(data)
    for name, own in lost.items():
        numbers = data[name].dtype.kind == "f"
        held[name] = np.where(own, np.nan if numbers else None, data[name] if numbers else data[name].astype(object))
    return held, ~np.logical_or.reduce(list(lost.values()))


def fitted(data: dict[str, Any], estimator: str, epsilon: float = math.inf, **given: Any) -> unpooled.TreatmentEffect:
    asked = {"outcome": "stay", "bounds": Bounds(KNOWN, missing="complete"), "covariates": ["age", "ward"]} | given
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return unpooled.TreatmentEffect("arm", estimator=estimator, epsilon=epsilon, random_state=0, **asked).fit(data)


# --- what it is ------------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_without_noise_it_is_the_effect_among_whole_people(estimator: str) -> None:
    data, kept = people(N), estimator == "partial"
    held, whole = with_gaps(data, outcomes=kept)
    rules = {"age": "complete", "ward": "complete", "arm": "complete"} | ({"stay": "complete"} if kept else {})
    found = fitted(held, estimator, bounds=Bounds(KNOWN, missing=rules))
    alone = fitted({name: values[whole] for name, values in data.items()}, estimator, bounds=KNOWN)
    assert found.effect_ is not None
    assert alone.effect_ is not None
    assert found.effect_.estimate == pytest.approx(alone.effect_.estimate, abs=2e-4)
    assert found.effect_.std_error == pytest.approx(alone.effect_.std_error, rel=1e-3)
    assert found.result_.rows == whole.sum()
    said = str(found.summary())
    assert f"people without a value of {', '.join(rules)} are left out, and {whole.sum()} are left" in said
    assert "the effect among people whose values are on record" in said
    assert "left out" not in str(alone.summary())


@pytest.mark.slow
def test_the_effect_on_the_treated_and_survival_leave_people_out_too() -> None:
    data = people(N)
    held, whole = with_gaps(data, outcomes=False)
    rng = np.random.default_rng(5)
    times = {"time": np.clip(rng.exponential(4, N), 0, 6), "left": (rng.random(N) < 0.7).astype(float)}
    known = KNOWN | {"time": (0, 6), "left": (0, 1)}
    gone = {"time": np.where(rng.random(N) < 0.1, np.nan, times["time"]), "left": times["left"]}
    there = whole & ~np.isnan(gone["time"])
    for asked, one, other in (
        ({"estimand": "ATT"}, held, {name: values[whole] for name, values in data.items()}),
        (
            {"outcome": "time", "family": "survival", "event": "left", "horizon": 3.0},
            {name: values for name, values in held.items() if name != "stay"} | gone,
            {name: values[there] for name, values in (data | times).items() if name != "stay"},
        ),
    ):
        about = {name: known[name] for name in one}
        if "time" in one:
            whole_here = ~(np.isnan(one["age"]) | np.isnan(one["time"]))
            whole_here &= np.array([w is not None and a is not None for w, a in zip(one["ward"], one["arm"], strict=True)])
            other = {name: values[whole_here] for name, values in (data | times).items() if name != "stay"}  # noqa: PLW2901
        found = fitted(one, "aipw", bounds=Bounds(about, missing="complete"), **asked).effect_
        alone = fitted(other, "aipw", bounds=about, **asked).effect_
        assert found is not None
        assert alone is not None
        assert found.estimate == pytest.approx(alone.estimate, abs=1e-3)


def test_what_the_effect_does_not_read_may_be_missing() -> None:
    held, _ = with_gaps(people(N))
    found = fitted(people(N) | {"age": held["age"]}, "aipw", covariates=["ward"])
    assert found.result_.rows == N
    assert "people without a value of ward, arm are left out" in str(found.summary())


@pytest.mark.slow_for("aipw", "iptw")
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_with_noise_it_is_near_and_its_error_says_so(estimator: str) -> None:
    held, whole = with_gaps(people(N))
    found = fitted(held, estimator, 8.0)
    assert found.effect_ is not None
    assert abs(found.effect_.estimate + 2) < 5 * found.effect_.std_error < 2
    on_record = whole if estimator == "partial" else with_gaps(people(N), outcomes=False)[1]
    assert abs(found.result_.rows - on_record.sum()) < 100


@pytest.mark.long
@pytest.mark.slow_for("aipw")
@pytest.mark.parametrize("estimator", ["aipw", "partial"])
def test_of_hardly_anybody_there_is_no_effect_and_the_reason_is_said(estimator: str) -> None:
    data = people(N)
    data["stay"] = np.where(np.random.default_rng(0).random(N) < 0.97, np.nan, data["stay"])
    found = fitted(data, estimator, 8.0)
    assert found.effect_ is None
    assert "rows had all columns" in found.result_.why or "has no result" in found.result_.why
    nobody = fitted(data | {"stay": np.full(N, np.nan)}, estimator, 8.0)
    assert nobody.effect_ is None
    assert "not identified" in nobody.result_.why or "has no result" in nobody.result_.why


# --- people without an outcome ---------------------------------------------------------------------------------------------

#: How the effect grows with age, so that it is another among people whose outcome is on record.
STEEP = 0.08


def unseen(rows: int, seed: int = 0) -> dict[str, Any]:
    """People whose effect grows with age, and whose outcome is on record the less, the older they are, and among the treated."""
    data, rng = people(rows, seed), np.random.default_rng(seed + 50)
    stay = np.clip(data["stay"] + (data["arm"] == "new") * STEEP * (data["age"] - 55), 0, 30)
    there = rng.random(rows) < expit(1.5 - (data["age"] - 55) / 20 - (data["arm"] == "new"))
    return data | {"stay": np.where(there, stay, np.nan)}


def logit(rows: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The chances that a logistic regression gives these rows."""
    found = np.zeros(rows.shape[1])
    for _ in range(30):
        p = expit(rows @ found)
        found = found + np.linalg.solve((rows.T * (p * (1 - p))) @ rows, rows.T @ (y - p))
    return np.asarray(expit(rows @ found))


def directly(data: dict[str, Any], estimator: str, estimand: str) -> float:
    """The effect of everybody, by weights and outcome models on plain arrays."""
    age, ward, arm, y = data["age"], data["ward"], data["arm"] == "new", data["stay"]
    one, there = np.ones(age.size), ~np.isnan(y)
    z = np.column_stack([age, ward == "b", ward == "c", one])
    e, p = np.clip(logit(z, arm), 0.05, 0.95), logit(np.column_stack([z, arm]), there)
    means = []
    for own in (~arm, arm):
        rows = one[:, None] if estimator == "iptw" else z
        kept = own & there
        means.append(np.clip(rows @ np.linalg.lstsq(rows[kept], y[kept], rcond=None)[0], 0, 30))
    if estimator == "g-formula":
        return float((means[1] - means[0]).mean())
    whom = e if estimand == "ATT" else one
    weights = whom * there / np.maximum(np.where(arm, e, 1 - e) * p, 0.05)
    residual = np.where(there, y, 0.0) - np.where(arm, means[1], means[0])
    counted = arm if estimand == "ATT" else one
    return float(((means[1] - means[0]) * counted + np.where(arm, 1, -1) * weights * residual).sum() / counted.sum())


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("estimator", "estimand"), [("aipw", "ATE"), ("aipw", "ATT"), ("iptw", "ATE"), ("g-formula", "ATE")]
)
def test_without_noise_people_without_an_outcome_count_by_what_is_expected_of_them(estimator: str, estimand: str) -> None:
    data = unseen(4000)
    found = fitted(data, estimator, bounds=Bounds(KNOWN, missing={"stay": "complete"}), estimand=estimand)
    assert found.effect_ is not None
    assert found.result_.rows == 4000
    assert found.effect_.estimate == pytest.approx(directly(data, estimator, estimand), abs=2e-3)
    said = str(found.summary())
    assert "people without a value of stay count by what the outcome model expects of them" in said
    assert ("by one over the chance to have one" in said) == (estimator != "g-formula")
    assert "left out" not in said


@pytest.mark.long
@pytest.mark.slow
def test_the_effect_is_that_of_everybody_and_of_those_on_record_another() -> None:
    """Theorem E.6: with weights and outcome model that are right, and an effect that grows with what says whose outcome is on record."""
    data = unseen(20_000, 2)
    truth = -2 + STEEP * float((data["age"] - 55).mean())
    there = ~np.isnan(data["stay"])
    found = fitted(data, "aipw", 6.0, bounds=Bounds(KNOWN, missing={"stay": "complete"})).effect_
    alone = fitted({name: values[there] for name, values in data.items()}, "aipw", 6.0, bounds=KNOWN).effect_
    assert found is not None
    assert alone is not None
    assert abs(found.estimate - truth) < 4 * found.std_error
    assert abs(alone.estimate - truth) > 4 * alone.std_error
    assert found.std_error < 2.5 * alone.std_error


@pytest.mark.long
@pytest.mark.slow
def test_outcomes_of_two_classes_may_be_missing_and_where_none_is_little_changes() -> None:
    data = people(N)
    asked = {"outcome": "died", "family": "logistic"}
    plain = fitted(data, "aipw", bounds=KNOWN, **asked).effect_
    whole = fitted(data, "aipw", 8.0, bounds=Bounds(KNOWN, missing={"died": "complete"}), **asked).effect_
    gone = data | {"died": np.where(np.random.default_rng(1).random(N) < 0.3, None, data["died"].astype(object))}
    fewer = fitted(gone, "aipw", 8.0, bounds=Bounds(KNOWN, missing={"died": "complete"}), **asked).effect_
    assert plain is not None
    for found in (whole, fewer):
        assert found is not None
        assert abs(found.estimate - plain.estimate) < 4 * found.std_error
        assert found.std_error < 3 * plain.std_error


# --- before data -----------------------------------------------------------------------------------------------------------


def declared(estimator: str, rules: Any, **given: Any) -> unpooled.TreatmentEffect:
    asked = {"outcome": "stay", "covariates": ["age", "ward"], "bounds": Bounds(KNOWN, missing=rules)} | given
    return unpooled.TreatmentEffect("arm", estimator=estimator, **asked)


@pytest.mark.guarantee
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(("rules", "gone"), [({"age": "complete"}, ["age"]), ({"stay": "complete"}, []), ("complete", None)])
def test_a_plan_says_which_columns_may_be_missing_and_no_others(estimator: str, rules: Any, gone: list[str] | None) -> None:
    notes = declared(estimator, rules, expected_missing=0.2).plan(N).notes
    said = [note for note in notes if "are left out" in note]
    unseen = "stay" in rules or rules == "complete"
    gone = ["age", "ward", "arm"] if gone is None else gone
    if estimator == "partial" and unseen:
        gone = [*gone, "stay"]
    assert [note.partition(" are left out")[0] for note in said] == (
        [f"rows without a value of {', '.join(gone)}"] if gone else []
    )
    assert all("1.05 to 1.11 at 10%, 1.20 to 1.43 at 30%" in note and "those of 20% left out" in note for note in said)
    kept = [note for note in notes if "count by what the outcome model expects of them" in note]
    assert len(kept) == (unseen and estimator != "partial")
    assert all(("those of 20% without one" in note) == (not gone) for note in kept)
    assert any("by one over the chance" in note for note in notes) == (bool(kept) and estimator != "g-formula")


@pytest.mark.guarantee
def test_every_part_that_leaves_people_out_expects_as_few_as_the_effect_does() -> None:
    for rules, fewer in ({"age": "complete"}, {"propensity", "outcome"}), ({"stay": "complete"}, {"outcome"}):
        plan = declared("aipw", rules, expected_missing=0.4).plan(N)
        assert {name for name, part in plan.parts.items() if part.study.parameters.get("expected_missing")} == fewer
        assert plan.hash != declared("aipw", rules).plan(N).hash
    for wrong in (1.0, -0.1, "half", True):
        asked = study({"estimator": "aipw", "expected_missing": wrong})
        with pytest.raises(UsageError, match="expected_missing"):
            effects.compile_plan(asked)
    for estimator in ESTIMATORS:
        with pytest.raises(UsageError, match="no column declares that"):
            unpooled.TreatmentEffect("arm", outcome="stay", bounds=KNOWN, estimator=estimator, expected_missing=0.2).plan(N)


@pytest.mark.long
@pytest.mark.slow
def test_an_outlook_says_what_gaps_cost() -> None:
    for estimator, rules in (("partial", "complete"), ("aipw", {"age": "complete"}), ("aipw", {"stay": "complete"})):
        found = declared(estimator, rules).outlook(20_000, quick=True)
        (none, asked), (tenth, some), (third, more) = found.missing
        assert (none, tenth, third) == (0.0, 0.1, 0.3)
        assert asked == found.error < some < more < 2.5 * asked
        assert "gaps in 0% of the rows" in found.assumed
        assert f"10% of the rows {some:.3g}, 30% of the rows {more:.3g}" in str(found)
        assert found.to_dict()["missing"] == [[0.0, asked], [0.1, some], [0.3, more]]
    fewer = declared("partial", "complete", expected_missing=0.3).outlook(20_000, quick=True)
    assert fewer.error == dict(fewer.missing)[0.3]
    assert "gaps in 30% of the rows" in fewer.assumed
    assert (
        not unpooled.TreatmentEffect("arm", outcome="stay", bounds=KNOWN, estimator="partial").outlook(N, quick=True).missing
    )


# --- what is refused -------------------------------------------------------------------------------------------------------


def test_other_rules_for_treatment_and_outcome_and_no_rule_at_all_are_refused() -> None:
    held, _ = with_gaps(people(N))
    for rule in ("absent", "indicator"):
        with pytest.raises(UsageError, match=r"must not be missing: declare missing = \"complete\""):
            fitted(held, "aipw", bounds=Bounds(KNOWN, missing={"stay": rule}))
    with pytest.raises(DataError, match="declare missing = 'complete'"):
        fitted(held, "aipw", bounds=KNOWN)
    gone = fitted(
        held,
        "aipw",
        bounds=Bounds(KNOWN, missing={"age": "indicator", "ward": "absent", "arm": "complete", "stay": "complete"}),
    )
    assert "people without a value of arm are left out" in str(gone.summary())


# --- reach -----------------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_a_person_who_appears_moves_a_sum_no_farther_than_one_who_is_replaced(adjacency: Adjacency) -> None:
    """E.1 with B.20, by brute force: rows, and nothing, on a grid of contributions."""
    for count in (1, 2):
        pieces = Pieces("sums", count, 500)
        made = {how: pieces.vector(1.0, how) for how in Adjacency}
        vector = moved(made[adjacency], made, adjacency)
        widths = np.concatenate([np.full(block.size, block.width) for block in vector.blocks])
        t = np.linspace(-1, 1, 41)
        rows = [
            pieces.added_up([np.array([x]) if arm == own else np.zeros(1) for own in range(count)])
            for x in t
            for arm in range(count)
        ]
        nothing = np.zeros_like(rows[0])
        pairs = (
            itertools.combinations([*rows, nothing], 2)
            if adjacency is Adjacency.REPLACE
            else ((row, nothing) for row in rows)
        )
        farthest = max(float(np.linalg.norm((a - b) / widths)) for a, b in pairs)
        assert 0.99 * vector.reach[Unit.RECORD].distance < farthest <= vector.reach[Unit.RECORD].distance * (1 + 1e-9)
        assert vector.reach[Unit.ATTRIBUTE].distance >= max(one.reach[Unit.RECORD].distance for one in made.values())


@pytest.mark.guarantee
def test_every_part_counts_the_people_who_are_left_and_reads_the_same_ones() -> None:
    asked = study({"estimator": "aipw"})
    columns = tuple(
        Column(c.name, c.low, c.high, c.categories, "complete" if c.name == "age" else "refuse")
        for c in asked.parties[0].columns
    )
    cards = tuple(Card(card.name, card.rows, columns) for card in asked.parties)
    plan = effects.compile_plan(Study("effects", cards, 1.0, 1e-6, derived=(), parameters=asked.parameters))
    plain = effects.compile_plan(asked)
    table = Table({"age": [30.0, np.nan], "ward": ["a", "b"], "arm": ["old", "new"], "stay": [1.0, 2.0], "left": [0.0, 0.0]})
    for design in (plan.design, *(part.design for part in plan.parts.values())):
        assert design.totals[COUNT].gaps
        assert design.seen(table).names
        assert [block[0].size for block in design.seen(table).blocks(("age",))] == [1]
    assert COUNT not in plain.design.totals


def audited(parameters: dict[str, Any], unit: str, adjacency: str, rounds: int = 2) -> Report:
    rng = np.random.default_rng(1)
    columns = (
        Column("x", -1, 1, missing="complete"),
        Column("arm", categories=("old", "new"), missing="complete"),
        Column("y", -1, 1, missing="complete"),
    )

    def values() -> dict[str, Any]:
        words = np.array(["old", "new", None], dtype=object)
        own = {name: np.where(rng.random(6) < 0.3, np.nan, rng.uniform(-1, 1, 6)) for name in ("x", "y")}
        return {"x": own["x"], "arm": words[rng.integers(0, 3, 6)], "y": own["y"]}

    tables = {name: Table(values()) for name in ("p", "q")}
    cards = tuple(Card(name, 6, columns) for name in tables)
    own = {"response": "y", "treatment": "arm", "covariates": "x", "max_passes": 9, **parameters}
    asked = Study(
        "effects",
        cards,
        1.0,
        1e-5,
        unit=unit,
        adjacency=adjacency,
        trust={"aggregation": "trusted"},
        parameters=own,
        derived=(),
        simulation_seed=7,
    )
    return replay(load("effects"), asked, tables, registry=load, rounds=rounds)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_effects_with_gaps_are_audited_in_every_unit(estimator: str, adjacency: str) -> None:
    """Theorem B.20 with E.1 to E.4: pairs of data in which people become whole, or lose a value."""
    for unit in ROWWISE:
        report = audited({"estimator": estimator}, str(unit), adjacency)
        assert report.passed, str(report)


@pytest.mark.long
@pytest.mark.slow
def test_a_part_that_takes_no_note_of_gaps_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The propensity reads no outcome, and who has none is left out of it: a plan in which that moves nothing is broken."""
    real = effects._with_columns

    def plainly(asked: Study, columns: dict[str, Column]) -> Study:
        plain = {c.name: _plain(c) for c in asked.parties[0].columns}
        return real(asked, plain if any(c.missing == "complete" for c in columns.values()) else columns)

    monkeypatch.setattr(effects, "_with_columns", plainly)
    assert not audited({"estimator": "aipw"}, "attribute", "zero-out", 3).passed


def _plain(column: Column) -> Column:
    return Column(column.name, column.low, column.high, column.categories)


@pytest.mark.guarantee
@pytest.mark.parametrize("estimand", ["ATE", "ATT"])
def test_contributions_move_with_every_model_as_the_slopes_say(estimand: str) -> None:
    """Theorem E.6, by differences: what an effect moves by when a coefficient of one of its three models does."""
    asked = study({"estimator": "aipw", "estimand": estimand})
    columns = tuple(
        Column(c.name, c.low, c.high, c.categories, "complete" if c.name == "stay" else "refuse")
        for c in asked.parties[0].columns
    )
    cards = tuple(Card(card.name, card.rows, columns) for card in asked.parties)
    design = effects.compile_plan(Study("effects", cards, 1.0, 1e-6, derived=(), parameters=asked.parameters)).design
    rng, data = np.random.default_rng(6), unseen(300)
    table = Table({name: data[name] for name in ("age", "ward", "arm", "stay")} | {"left": np.zeros(300)})
    numbers = np.concatenate(
        [
            [*(rng.normal() * (0.01 if "age" in one else 0.2) for one in own.names), 12.0 if name == "outcome" else 0.3]
            for name, own in design.layouts.items()
        ]
    )

    def total(at: np.ndarray) -> float:
        models = effects.Models.of(design, tuple(at), 0)
        return float(sum(rows.contributions().sum() for rows in effects.Rows.blocks(table, models)))

    lifts = {name: np.eye(len(design.layouts[name].names) + 1) for name in design.layouts}
    models = effects.Models.of(design, tuple(numbers), 0)
    (rows,) = effects.Rows.blocks(table, models)
    by = {"outcome": rows._by_outcome, "propensity": rows._by_propensity, "presence": rows._by_presence}
    at = 0
    for name, lift in lifts.items():
        told = by[name](lift).sum(axis=0)
        for k, one in enumerate(told.tolist()):
            step = np.zeros(numbers.size)
            step[at + k] = 1e-6
            assert one == pytest.approx((total(numbers + step) - total(numbers - step)) / 2e-6, rel=1e-4, abs=1e-3), (
                name,
                k,
            )
        at += lift.shape[0]
    assert at == numbers.size
