"""Gaps that follow a number: linear tables of whole rows whose completeness is modelled, what they say, how far a person moves them, and who may not."""

from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from commands import command
from scipy.special import expit

import unpooled
from unpooled import Bounds, PrivateLinearRegression, TreatmentEffect
from unpooled.audit.replay import Report, replay
from unpooled.errors import PlanMismatch, UsageError
from unpooled.linear.tilted import Bounded, TiltedLaw, known_scores
from unpooled.models import load
from unpooled.models.bayes import whole as party
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.totals.total import COUNT
from unpooled.totals.whole_rows import PRESENCE, presence_rows

N = 4000
RNG = np.random.default_rng(0)
X = np.clip(RNG.normal(size=N), -4, 4)
Z = np.clip(0.5 * X + math.sqrt(0.75) * RNG.normal(size=N), -4, 4)
WARD = RNG.choice(["a", "b", "c"], N).astype(object)
STAY = np.clip(X + Z + 0.7 * (WARD == "b") + np.exp(0.12 * X) * RNG.normal(size=N), -9, 9)
WHOLE = RNG.random(N) > expit(-1 + 0.5 * X + 0.7 * STAY)
FRAME = pd.DataFrame({"x": X, "ward": WARD, "z": np.where(WHOLE, Z, np.nan), "stay": STAY})
RANGES: dict[str, Any] = {"x": (-4, 4), "ward": ["a", "b", "c"], "z": (-4, 4), "stay": (-9, 9)}
BOUNDS = Bounds(RANGES, missing={"z": "model"})
TRUTH = {"x": 1.0, "z": 1.0, "ward: b - a": 0.7, "ward: c - a": 0.0}


def linear(frame: pd.DataFrame = FRAME, bounds: Bounds = BOUNDS, formula: str | None = None, **given: Any) -> Any:
    asked = {"epsilon": math.inf, "random_state": 0} | given
    asked |= {} if formula is None else {"formula": formula}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PrivateLinearRegression(bounds=bounds, **asked)
        return model.fit(frame) if formula else model.fit(frame, "stay")


def lines(fit: Any) -> dict[str, Any]:
    return {t.term: t for t in fit.summary().terms}


# --- the likelihood of Theorem B.22, maximised directly ------------------------------------------------------------------------

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(11)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def chances(rows: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """The coefficients of a logistic regression."""
    found = np.zeros(rows.shape[1])
    for _ in range(40):
        p = expit(rows @ found)
        found = found + np.linalg.solve((rows.T * (p * (1 - p))) @ rows, rows.T @ (whole - p))
    return found


def slopes(f: Any, at: np.ndarray, step: float = 1e-4) -> np.ndarray:
    """Central differences, a column for each number."""
    return np.array([(f(at + step * one) - f(at - step * one)) / (2 * step) for one in np.eye(at.size)]).T


def directly(seen: np.ndarray, others: np.ndarray, y: np.ndarray, whole: np.ndarray) -> tuple[np.ndarray, ...]:
    """The coefficients of (seen columns, columns with gaps, constant), and their standard errors: by the model, and of the stacked scores themselves."""
    one = np.ones(y.size)
    gamma = chances(np.column_stack([seen, one, y]), whole)
    rows, spread = np.column_stack([seen, others, one])[whole], np.column_stack([seen, one])[whole]
    d, own = rows.shape[1], y[whole]

    def logs(theta: np.ndarray, gamma: np.ndarray = gamma) -> np.ndarray:
        mean, wide = rows @ theta[:d], np.exp(np.clip(spread @ theta[d:] - theta[-1], -2 * math.log(2), 2 * math.log(2)) / 2)
        deviation = wide * math.exp(theta[-1] / 2)
        odds = spread @ gamma[:-1]
        kept = sum(w * expit(odds + gamma[-1] * (mean + deviation * x)) for w, x in zip(WEIGHTS, NODES, strict=True))
        return np.asarray(-np.log(deviation) - ((own - mean) / deviation) ** 2 / 2 - np.log(kept))

    def total(theta: np.ndarray) -> np.ndarray:
        return np.array([logs(theta).sum()])

    theta = np.append(np.linalg.lstsq(rows, own, rcond=None)[0], np.zeros(spread.shape[1]))
    for _ in range(12):
        score = slopes(total, theta)[0]
        second = -slopes(lambda at: slopes(total, at)[0], theta, 1e-3)
        theta = theta + np.linalg.solve(second, score)
    scores = np.zeros((y.size, theta.size))
    scores[whole] = slopes(logs, theta)
    rests = -slopes(lambda g: slopes(lambda at: np.array([logs(at, g).sum()]), theta)[0], gamma, 1e-3)
    every = np.column_stack([seen, one, y])
    p = expit(every @ gamma)
    fitted = every * (whole - p)[:, None] @ np.linalg.inv((every.T * (p * (1 - p))) @ every) @ rests.T
    each = (scores - fitted) @ np.linalg.inv(second)
    known = second - rests @ np.linalg.inv((every.T * (p * (1 - p))) @ every) @ rests.T
    modelled = np.linalg.inv(second) @ known @ np.linalg.inv(second)
    return theta[:d], np.sqrt(modelled.diagonal())[:d], np.sqrt((each.T @ each).diagonal())[:d]


SEEN = np.column_stack([X, WARD == "b", WARD == "c"]).astype(float)
NAMES = ("x", "ward: b - a", "ward: c - a", "z", "(intercept)")


@pytest.mark.long
@pytest.mark.slow
def test_without_noise_it_is_the_likelihood_of_whole_rows_given_that_they_are() -> None:
    """Theorem B.22: estimates to 1e-5, errors as those of the stacked scores; spreads follow the columns that are never missing."""
    wanted, errors, stacked = directly(SEEN, Z[:, None], STAY, WHOLE)
    found = lines(linear())
    assert [found[name].estimate for name in NAMES] == pytest.approx(wanted, abs=1e-5)
    assert [found[name].std_error for name in NAMES] == pytest.approx(errors, rel=0.01)
    assert [found[name].std_error for name in NAMES] == pytest.approx(stacked, rel=0.08)
    plainly = np.linalg.lstsq(np.column_stack([SEEN, Z, np.ones(N)])[WHOLE], STAY[WHOLE], rcond=None)[0]
    assert abs(plainly[0] - wanted[0]) > 0.1  # complete cases are somewhere else
    assert all(abs(found[name].estimate - truth) < 4 * found[name].std_error for name, truth in TRUTH.items())


@pytest.mark.slow
def test_rows_with_another_gap_are_left_out_of_both_models() -> None:
    """How many they are is counted by a release of each: the fit is that of the other rows alone."""
    gone = RNG.random(N) < 0.2
    frame = FRAME.assign(ward=np.where(gone, None, FRAME["ward"]))
    fit = linear(frame, Bounds(RANGES, missing={"z": "model", "ward": "complete"}))
    alone = lines(linear(FRAME[~gone].reset_index(drop=True)))
    found = lines(fit)
    assert [found[name].estimate for name in NAMES] == pytest.approx([alone[name].estimate for name in NAMES], abs=1e-5)
    said = str(fit.summary())
    assert "rows without a value of ward are left out" in said
    part = fit.plan_.parts[party.PART].design
    assert part.totals[COUNT].gaps
    assert [column.name for column in part.layout.left_out] == ["ward"]


@pytest.mark.guarantee
def test_a_formula_is_of_the_table_and_its_columns_are_those_of_which_rows_are_whole() -> None:
    wanted, *_ = directly(X[:, None], np.column_stack([Z, X * Z]), STAY, WHOLE)
    frame = FRAME.drop(columns="ward")
    bounds = Bounds({k: v for k, v in RANGES.items() if k != "ward"}, missing={"z": "model"})
    found = lines(linear(frame, bounds, formula="stay ~ x + z + x:z"))
    assert [found[name].estimate for name in ("x", "z", "x:z")] == pytest.approx(wanted[:3], abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("typical", [False, True])
def test_with_noise_it_is_near_and_complete_cases_are_not(typical: bool) -> None:
    rng, n = np.random.default_rng(4), 8000
    x = np.clip(rng.normal(size=n), -4, 4)
    z = np.clip(0.5 * x + math.sqrt(0.75) * rng.normal(size=n), -4, 4)
    y = x + z + rng.normal(size=n)
    whole = rng.random(n) > expit(-1 + y)
    frame = pd.DataFrame({"x": x, "z": np.where(whole, z, np.nan), "stay": y})
    known = {"x": (-4, 4), "z": (-4, 4), "stay": (-12, 12)}
    declared = {"typical": {"x": (0.0, 1.0), "stay": (0.0, 2.0)}} if typical else {}
    fit = linear(frame, Bounds(known, missing={"z": "model"}, **declared), epsilon=8.0)
    plain = linear(frame, Bounds(known, missing={"z": "complete"}), epsilon=8.0)
    found, alone = lines(fit), lines(plain)
    for name in ("x", "z"):
        assert abs(found[name].estimate - 1) < 4.5 * found[name].std_error < 0.3
        assert abs(alone[name].estimate - 1) > 4.5 * alone[name].std_error
        assert 0 < found[name].privacy < found[name].std_error
    said = str(fit.summary())
    assert "the others count only for which rows are whole, which is modelled by the response and by x" in said
    assert ("with products of the two" in said) == typical
    assert "Complete cases alone: x about" in said
    assert "R^2" not in said
    new = fit.predict(pd.DataFrame({"x": [1.0, 0.0], "z": [1.0, np.nan]}))
    assert abs(new[0] - 2) < 0.3
    assert math.isnan(new[1])


@pytest.mark.guarantee
def test_a_study_that_is_too_small_is_refused_and_of_nobody_there_is_no_line() -> None:
    with pytest.raises(UsageError, match="needs rows times mu of 150 for each of 6 coefficients"):
        linear(FRAME.iloc[:1500], epsilon=0.3)
    nobody = FRAME.assign(z=np.nan)
    said = str(linear(nobody, epsilon=8.0).summary())
    assert "not identified" in said
    assert not lines(linear(nobody, epsilon=8.0))


@pytest.mark.slow
def test_a_result_is_saved_and_read_again(tmp_path: Path) -> None:
    fit = linear(epsilon=4.0)
    with pytest.raises(UsageError, match="are those of one model"):
        fit.submodel(["x"])
    fit.save(tmp_path / "fit")
    again = unpooled.load(tmp_path / "fit")
    assert str(again.summary()) == str(fit.summary())
    assert again.summary().data() == fit.summary().data() if hasattr(fit.summary(), "data") else True


# --- before data -----------------------------------------------------------------------------------------------------------


def declared_for(rows: int, epsilon: float = 1.0, *, typical: bool = True, **parameters: Any) -> Study:
    columns = (
        Column("x", -4, 4, typical=(0.0, 1.0) if typical else None),
        Column("g", categories=("u", "v")),
        Column("z", -4, 4, missing="model"),
        Column("y", -9, 9, typical=(0.0, 2.0) if typical else None),
    )
    own = {"response": "y"} | parameters
    return Study("bayes", (Card("p", rows, columns),), epsilon, 1e-5, derived=(), parameters=own)


@pytest.mark.guarantee
def test_products_and_spreads_follow_rows_and_budget_and_products_need_typical_values() -> None:
    for rows, typical, products, spreads in ((4000, True, False, 1), (60_000, True, True, 4), (60_000, False, False, 4)):
        design = load("bayes").compile(declared_for(rows, typical=typical)).design
        assert ("I(" in design.whole.chances.formula) == products
        assert design.whole.spread.size == spreads
    assert "g:I((y - 0.0))" in load("bayes").compile(declared_for(60_000)).design.whole.chances.formula


@pytest.mark.guarantee
def test_the_plan_says_what_is_modelled_and_costs_what_was_asked() -> None:
    plan = load("bayes").compile(declared_for(5000))
    assert any("which rows have all of z is modelled by the response" in note for note in plan.notes)
    assert {release.name for release in plan.releases} >= {f"{party.PART}/score", *party.WORDS} or len(plan.releases) > 10
    assert plan.epsilon(1e-5, Unit.RECORD) == pytest.approx(1.0, rel=0.01)
    assert plan.parts[party.PART].design.layout.presence == (Column("z", -4, 4, missing="model"),)


@pytest.mark.long
@pytest.mark.slow
def test_an_outlook_plays_rows_with_gaps() -> None:
    row = load("bayes")
    assert row.outlook is not None
    found = row.outlook(declared_for(4000, 8.0, max_passes=9), quick=True)
    assert found.points
    assert found.error < 1


# --- what is refused -------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"method": "moments"}, "which is for tables: method 'refinement'"),
        ({"method": "gradient"}, "which is for tables"),
        ({"focus": ["x"]}, "goes without focus"),
        ({"fit_intercept": False}, "goes without fit_intercept = false"),
        ({"norm": 3.0}, "goes without norm"),
        ({"posterior": "naive"}, "goes without posterior"),
        ({"site_effects": "fixed"}, "goes without site_effects"),
        ({"covariance": "robust"}, "covariance is 'robust'"),
        ({"weights": "x"}, "goes without weights"),
        ({"prior": [{"name": "old", "coefficients": {"x": 1.0}}]}, "goes without prior"),
    ],
)
def test_what_has_no_proof_or_no_errors_is_refused_by_name(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        load("bayes").compile(declared_for(5000, **given))
    assert 'declares missing = "model"' in str(refused.value)
    assert 'declare "complete"' in str(refused.value) or "covariance" in words


@pytest.mark.guarantee
def test_responses_that_may_miss_and_other_models_are_refused() -> None:
    columns = (Column("x", -1, 1), Column("y", -1, 1, missing="model"))
    with pytest.raises(UsageError, match="reads the response 'y' in every row"):
        load("bayes").compile(
            Study("bayes", (Card("p", 900, columns),), 1.0, 1e-5, derived=(), parameters={"response": "y"})
        )
    with pytest.raises(UsageError, match="has no model of completeness"):
        TreatmentEffect(
            "g", outcome="y", bounds=Bounds({"x": (0, 1), "g": ["a", "b"], "y": (0, 1)}, missing={"x": "model"})
        ).plan(900)
    asked, card = declared_for(900), declared_for(900).parties[0]
    house = unpooled.privacy.plan.Household("id", 300, 3) if hasattr(unpooled.privacy.plan, "Household") else None
    if house is not None:
        with pytest.raises(UsageError, match="several rows of an id"):
            load("bayes").compile(
                replace_study(asked, unit="household", parties=(Card("p", 900, card.columns, household=house),))
            )


def replace_study(study: Study, **given: Any) -> Study:
    import msgspec

    return msgspec.structs.replace(study, **given)


@pytest.mark.guarantee
@pytest.mark.parametrize("wrong", ["short", "long", "nan", "huge", "unit"])
def test_requests_with_another_count_of_numbers_or_wild_ones_are_refused(wrong: str) -> None:
    whole = load("bayes").compile(few("record", "replace")[0]).design.whole
    law, size = some_law(whole), len(whole.chances.names) + 1
    law = replace(law, lift=np.zeros((size, whole.chances.size)), unit=0.0 if wrong == "unit" else 1.0)
    numbers = list(settings_of(whole, law))
    assert wrong == "unit" or whole.asked(tuple(numbers), rests=True).unit == 1.0
    made = {"short": numbers[:-1], "long": [*numbers, 0.0], "nan": [*numbers[:-1], math.nan], "huge": [*numbers[:-1], 1e12]}
    with pytest.raises(PlanMismatch):
        whole.asked(tuple(made.get(wrong, numbers)), rests=True)


# --- reach -----------------------------------------------------------------------------------------------------------------

FEW = (Column("a", -1.0, 1.0, missing="model"), Column("g", categories=("u", "v")), Column("y", -1.0, 1.0))


def few(
    unit: str, adjacency: str, epsilon: float = 1.0, columns: tuple[Column, ...] = FEW
) -> tuple[Study, dict[str, Table]]:
    rng = np.random.default_rng(1)
    tables = {
        name: Table(
            {
                "a": np.where(rng.random(6) < 0.4, np.nan, rng.uniform(-1, 1, 6)),
                "g": np.array(["u", "v"], dtype=object)[rng.integers(0, 2, 6)],
                "y": rng.uniform(-1, 1, 6),
            }
        )
        for name in ("p", "q")
    }
    study = Study(
        "bayes",
        tuple(Card(name, 6, columns) for name in tables),
        epsilon,
        1e-5,
        unit=unit,
        adjacency=adjacency,
        trust={"aggregation": "trusted"},
        parameters={"response": "y", "method": "refinement", "max_passes": 7},
        derived=(),
        simulation_seed=7,
    )
    return study, tables


def some_law(whole: Any, rng: np.random.Generator | None = None) -> TiltedLaw:
    rng = rng or np.random.default_rng(0)
    p = whole.standard.layout.size
    standard = np.zeros(p), np.full(p, 0.4)
    times = float(rng.choice([0.1, 1.0, 30.0]))
    return TiltedLaw(
        standard,
        rng.normal(size=p) * times,
        rng.normal(size=whole.spread.size) * times,
        rng.normal(size=len(whole.chances.names) + 1) * times,
    )


def settings_of(whole: Any, law: TiltedLaw) -> tuple[float, ...]:
    middle, width = law.standard  # type: ignore[misc]
    return (*middle.tolist(), *width.tolist(), *law.settings)


@pytest.mark.guarantee
@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_vectors_and_matrices_move_a_sum_no_farther_than_said_and_nearly_as_far(adjacency: Adjacency, second: bool) -> None:
    """Theorems B.5 and B.23 by brute force: rows however long, and none."""
    rng, size = np.random.default_rng(3), 3
    count = size * (size + 1) // 2 if second else size
    bounded = Bounded("b", count, 500, second=second)
    vector = bounded.vector(1.0, {Unit.RECORD: adjacency})
    root = np.where(np.equal(*np.triu_indices(size)), 1.0, math.sqrt(2))
    made = []
    for times in (0.1, 1.0, 1.0, 50.0):
        for rows in (rng.normal(size=(40, size)), np.eye(size), -np.eye(size)):
            own = np.array([np.outer(r, r)[np.triu_indices(size)] * root for r in rows]) if second else rows
            made += [bounded.added_up(one[None] * times) for one in own]
    nothing = np.zeros(count, dtype=np.int64)
    assert all(np.linalg.norm(one / bounded.steps) <= 1 for one in made)
    pairs = (
        itertools.combinations([*made, nothing], 2) if adjacency is Adjacency.REPLACE else ((one, nothing) for one in made)
    )
    farthest = max(float(np.linalg.norm((a - b) / bounded.steps)) for a, b in pairs)
    said = vector.reach[Unit.RECORD].distance
    assert 0.999 * said < farthest <= said
    # The control: a matrix that is no square has no such bound, nor has a row that is not shortened.
    assert np.linalg.norm(
        (bounded.added_up(3 * np.eye(count)[:1]) - bounded.added_up(-3 * np.eye(count)[:1])) / bounded.steps
    ) > (1.9 if second else 0)


@pytest.mark.guarantee
def test_second_derivatives_are_positive_semidefinite_whatever_a_request_says() -> None:
    """Theorem B.23: so two of them are no farther apart than the root of two times the longest."""
    whole = load("bayes").compile(few("record", "replace")[0]).design.whole
    rng, table = np.random.default_rng(5), Table({"a": [-1.0, 1.0, 0.3], "g": ["u", "v", "v"], "y": [-1.0, 1.0, 0.2]})
    seen = load("bayes").compile(few("record", "replace")[0]).design.seen(table)
    least, clamped = 0.0, False
    for _ in range(60):
        law = some_law(whole, rng)
        for part, _ in whole.parts(seen, law):
            clamped |= bool((part.between**2 > part.by_mean * part.by_spread).any())
            for one in whole._derived(part):
                values = np.linalg.eigvalsh(whole.matrix(one))
                least = min(least, float(values[0] / max(values[-1], 1e-300)))
    assert least > -1e-9
    assert clamped  # else the bound on what is between mean and spread were never needed


@pytest.mark.guarantee
def test_pulls_move_with_coefficients_as_second_derivatives_say_and_with_which_rows_are_whole() -> None:
    """Theorem B.22 by differences, in the expectation over the law: at the truth of it."""
    study, _ = few("record", "replace")
    whole = replace(load("bayes").compile(study).design.whole, exact=True)
    rng, n = np.random.default_rng(6), 400
    columns = {"a": rng.uniform(-1, 1, n), "g": np.array(["u", "v"], dtype=object)[rng.integers(0, 2, n)]}
    design = load("bayes").compile(study).design
    chance = np.array([0.3 if "y" not in name else 1.5 for name in whole.chances.names] + [0.2])
    d, m = whole.standard.width, whole.spread.size
    middle, width = np.zeros(d), np.full(d, 0.4)
    law = TiltedLaw((middle, width), np.array([0.2, -0.1, 0.1, 0.1]), np.full(m, -2.0), chance)
    lift = np.eye(len(whole.chances.names) + 1)
    law = replace(law, lift=lift[:, : whole.chances.size], unit=1.0)

    def pulled(at: TiltedLaw, y: np.ndarray) -> np.ndarray:
        seen = design.seen(Table({**columns, "y": y}))
        first, second = zip(*(whole._scores(part) for part, _ in whole.parts(seen, at)), strict=True)
        one, two, *_ = whole.lengths
        return np.concatenate([np.concatenate(first) * one, np.concatenate(second) * two], axis=1).sum(axis=0)

    y = np.clip(rng.normal(0, 0.1, n), -1, 1)
    seen = design.seen(Table({**columns, "y": y}))
    rests = sum(whole._resting(part, rows, law) for part, rows in whole.parts(seen, law, rests=True))
    told = np.asarray(rests).sum(axis=0).reshape(d + m, -1) * whole.lengths[3]
    for k in range(whole.chances.size):
        step = np.zeros(chance.size)
        step[:] = lift[:, k] * 1e-5
        moved = (pulled(replace(law, chances=chance + step), y) - pulled(replace(law, chances=chance - step), y)) / 2e-5
        assert -moved == pytest.approx(told[:, k], rel=1e-3, abs=1e-3 * np.abs(told).max())


@pytest.mark.guarantee
def test_whether_rows_have_all_of_several_columns_is_what_the_first_says() -> None:
    columns = (Column("a", 0, 1, missing="model"), Column("b", 0, 1, missing="model"))
    table = Table({"a": [0.5, np.nan, 0.1], "b": [np.nan, 0.2, 0.3], "c": [1.0, 2.0, 3.0]})
    seen = presence_rows(table, columns)
    assert seen is presence_rows(table, columns)
    assert seen["a"].tolist() == [PRESENCE[0], PRESENCE[0], PRESENCE[1]]
    assert seen["c"].tolist() == [1.0, 2.0, 3.0]
    assert seen.owners.tolist() == [0, 1, 2]


def test_what_is_known_of_scores_never_leaves_one_without_a_variance() -> None:
    scores, derivative = np.eye(2), np.array([[3.0, 0.0], [0.0, 0.1]])
    left = known_scores(scores, derivative, 0.0, np.eye(2))
    assert left == pytest.approx(np.diag([0.05, 0.99]))


def audited(unit: str, adjacency: str, epsilon: float = 1.0, columns: tuple[Column, ...] = FEW) -> Report:
    study, tables = few(unit, adjacency, epsilon, columns)
    return replay(load("bayes"), study, tables, registry=load, rounds=1)


@pytest.mark.slow
@pytest.mark.long_for("record-replace", "attribute-zero-out")
@pytest.mark.parametrize(("unit", "adjacency"), [("record", "replace"), ("attribute", "zero-out")])
def test_studies_are_audited(unit: str, adjacency: str) -> None:
    """Theorems B.20, B.22 and B.23: pairs of data in which rows become whole, or lose a value, and a response changes in a row with a gap."""
    columns = FEW if unit == "record" else (FEW[0], replace_column(FEW[1]), FEW[2])
    report = audited(unit, adjacency, columns=columns)
    assert report.passed, str(report)


def replace_column(column: Column) -> Column:
    import msgspec

    return msgspec.structs.replace(column, missing="complete")


@pytest.mark.slow
def test_pulls_that_are_not_shortened_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def added_up(self: Bounded, vectors: np.ndarray) -> np.ndarray:
        return np.asarray(np.trunc(vectors * 2 * self.steps).astype(np.int64).sum(axis=0))

    monkeypatch.setattr(Bounded, "added_up", added_up)
    assert not audited("record", "replace", 30.0).passed


# --- files -----------------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.slow
def test_a_study_of_files_is_planned_by_the_same_key(tmp_path: Path) -> None:
    for name, at in (("north", slice(0, 1000)), ("south", slice(1000, 2000))):
        (tmp_path / name).mkdir()
        FRAME.round(4)[at].to_csv(tmp_path / name / "data.csv", index=False)
        command(
            tmp_path,
            *("party", "init", str(tmp_path / name / "data.csv"), "--name", name, "--folder", str(tmp_path / name)),
            *(w for c in ("x=-4:4", "ward=a,b,c", "z=-4:4;model", "stay=-9:9") for w in ("--column", c)),
            *("--epsilon", "20", "--delta", "1e-5"),
        )
    (tmp_path / "study.toml").write_text(
        '[study]\nmodel = "bayes"\n\n[parameters]\nresponse = "stay"\nmax_passes = 7\n\n[privacy]\nepsilon = 15.0\ndelta = 1e-5\n\n'
        '[[party]]\ncard = "north/north.card.toml"\n\n[[party]]\ncard = "south/south.card.toml"\n'
    )
    planned = command(tmp_path, "plan", "study.toml")
    assert "which rows have all of z is modelled by the response" in planned
