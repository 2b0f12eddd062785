"""Direction, then scale: what a histogram along a score tells, when it is asked for, and that no direction is worse than the base rate."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.special import expit
from sklearn.metrics import log_loss, roc_auc_score

import unpooled
from unpooled import PrivateGLM, PrivateLogisticRegression, diagnose
from unpooled.errors import UsageError
from unpooled.families.logistic import Logistic
from unpooled.kernels.score_posterior import CELLS, CUTS, DRAWS, Known, ScoreCounts, mean_log_odds, score_posterior
from unpooled.linear.layout import MomentsLayout
from unpooled.models import fitted, load
from unpooled.models.glm.declared import WORTH_ERRORS, WORTH_LENGTHS, GlmMethod, schedule_of
from unpooled.models.glm.rows import PROBABILITIES, Responses, ScoreCells, ShortRows
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.sensitivity import category_counts
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.protocol.local import run_in_process

MODEL = load("glm")
SHARED: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "bounds": (-4, 4), "classes": (0, 1), "random_state": 0}


def few_directions(seed: int, rows: int = 456, new: int = 2000):
    """30 columns that span three directions, and classes that a plane separates."""
    rng = np.random.default_rng([456, seed])
    X = rng.normal(size=(rows + new, 3)) @ rng.normal(size=(3, 30)) + 0.05 * rng.normal(size=(rows + new, 30))
    X = np.clip(X / X.std(axis=0), -4, 4)
    y = (X[:, :10].sum(axis=1) > 0).astype(int)
    return X[:rows], y[:rows], X[rows:], y[rows:]


def counted(t: np.ndarray, y: np.ndarray, deviation: float = 0.0, seed: int = 0) -> np.ndarray:
    """Counts of (class, cell), each count with noise."""
    cell = sum((t >= cut).astype(int) for cut in CUTS)
    found = np.array([[np.sum((y == label) & (cell == j)) for j in range(CELLS)] for label in (0, 1)], dtype=float)
    return found + deviation * np.random.default_rng(seed).normal(size=found.shape)


# --- what one record moves -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_the_closed_form_of_the_histogram_is_the_largest_of_all_pairs(adjacency: Adjacency) -> None:
    """Theorem G.11: every pair of (class, cell), or one of them and none."""
    corners = np.eye(2 * CELLS)
    others = corners if adjacency is Adjacency.REPLACE else np.zeros((1, 2 * CELLS))
    farthest = max(float(np.linalg.norm(a - b)) for a, b in itertools.product(corners, others))
    vector = ScoreCells.vector(0.5, {Unit.RECORD: adjacency})
    assert vector.reach[Unit.RECORD].distance == category_counts(adjacency) == pytest.approx(farthest)
    assert (vector.per_row, vector.share) == (1, 0.5)


def short_rows(clip: float = 0.3) -> ShortRows:
    columns = (Column("a", -1, 1), Column("b", -1, 1), Column("y", 0, 1))
    layout = MomentsLayout.of(columns, "y", 50)
    rows = ShortRows(layout, 50, 1.0, Responses(Column("y", categories=("no", "yes")), Logistic()))
    return ShortRows(layout, 50, clip * rows.radius, rows.responses)


def one(rows: ShortRows, a: float, b: float, label: str, start: np.ndarray) -> np.ndarray:
    """What one record adds to a round, in units of its longest product."""
    table = Table({"a": np.full(2, a), "b": np.full(2, b), "y": np.array([label] * 2, dtype=object)})
    standard = np.zeros(2), np.full(2, 0.2)
    found = rows.gradients(rows.blocks(table, standard), start, np.ones(3)) / 2
    return found / rows.descent(1.0, Adjacency.REPLACE, 1).blocks[0].width


def farthest_of(rows: ShortRows) -> float:
    """The largest distance between two records' parts of a round, over a grid of both."""
    start = np.array([0.5, -1.0, 0.2])
    ends = (-1.0, -0.3, 0.0, 0.3, 1.0)
    parts = [one(rows, a, b, label, start) for a, b, label in itertools.product(ends, ends, ("no", "yes"))]
    return max(float(np.linalg.norm(first - second)) for first, second in itertools.product(parts, parts))


@pytest.mark.slow
def test_a_round_for_the_direction_moves_by_two_clips_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Theorem G.2; without the cut the search exceeds it."""
    rows = short_rows()
    assert 1.8 < farthest_of(rows) <= 2
    monkeypatch.setattr(
        "unpooled.kernels.rows.cut_residuals",
        lambda residual, square, fine, farthest, longest: np.trunc(residual * fine, out=residual),
    )
    assert farthest_of(short_rows()) > 2


def test_rows_are_shortened_and_get_a_constant() -> None:
    rows = short_rows()
    table = Table({"a": np.array([1.0, 0.01]), "b": np.array([-1.0, 0.02]), "y": np.array(["no", "yes"], dtype=object)})
    ((made, other),) = rows.blocks(table, (np.zeros(2), np.full(2, 0.1)))
    length = np.linalg.norm(made[:, :2], axis=1) / rows.grid
    assert length[0] == pytest.approx(0.6 * math.sqrt(2), abs=1e-3)
    assert length[0] <= rows.far
    assert made[1, :2] / rows.grid == pytest.approx([0.1, 0.2], abs=1e-3)
    assert (made[:, 2] == rows.grid).all()
    assert other[:, 0].tolist() == [0.0, 1.0]
    assert rows.radius == pytest.approx(math.hypot(rows.far, 1.0))


# --- what the histogram tells --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slope", "rate", "deviation"), [(0.0, 0.5, 1.0), (1.0, 0.5, 2.0), (2.0, 0.2, 0.8), (0.5, 0.1, 3.0)]
)
def test_without_noise_the_line_is_found(slope: float, rate: float, deviation: float) -> None:
    rng = np.random.default_rng(4)
    t = deviation * rng.normal(size=200_000)
    constant = math.log(rate / (1 - rate))
    y = (rng.random(t.size) < expit(constant + slope * t)).astype(int)
    found = score_posterior(ScoreCounts(counted(t, y), 0.0, float(y.mean()), 1e-4, t.size))
    assert found.slope == pytest.approx(slope, abs=0.06 * slope + 0.03)
    assert found.constant == pytest.approx(constant, abs=0.08)
    assert len(found.lines) == DRAWS


@pytest.mark.slow
def test_a_score_that_tells_nothing_gives_the_base_rate() -> None:
    """Classes that do not depend on the score: mean predictions stay near the base rate, more so where the histogram is clearer."""
    excess: dict[float, list[float]] = {1.0: [], 30.0: []}
    for seed, deviation in itertools.product(range(20), excess):
        rng = np.random.default_rng(seed)
        t = 1.5 * rng.normal(size=2000)
        y = (rng.random(t.size) < 0.3).astype(int)
        found = score_posterior(ScoreCounts(counted(t, y, deviation, seed), deviation, 0.3, 0.01, t.size))
        p = expit(mean_log_odds(found.constant + found.slope * t, found.lines))
        excess[deviation].append(float(np.mean(0.3 * np.log(0.3 / p) + 0.7 * np.log(0.7 / (1 - p)))))
    assert np.mean(excess[1.0]) < 0.002
    assert np.mean(excess[30.0]) < 0.012


def test_the_mean_over_lines_is_that_of_their_probabilities() -> None:
    counts = counted(np.array([-1.0, 0.5, 1.0]), np.array([0, 1, 1]), 5.0)
    found = score_posterior(ScoreCounts(counts, 5.0, 0.6, 0.05, 100))
    t = np.array([-5.0, -0.3, 0.0, 2.0])
    own = np.mean([expit(a + s * t) for a, s in found.draws], axis=0)
    assert expit(mean_log_odds(found.constant + found.slope * t, found.lines)) == pytest.approx(own)
    assert (np.diff(own) >= 0).all()
    assert (mean_log_odds(t, ()) == t).all()
    far = mean_log_odds(np.array([-1e5, 1e5]), ((0.0, 1.0),))
    assert far[0] < -700
    assert far[1] > 700
    again = score_posterior(ScoreCounts(counts, 5.0, 0.6, 0.05, 100))
    assert again.lines == found.lines


def test_without_an_intercept_the_constant_is_nothing() -> None:
    rng = np.random.default_rng(1)
    t = rng.normal(size=20_000)
    y = (rng.random(t.size) < expit(1.5 * t)).astype(int)
    found = score_posterior(ScoreCounts(counted(t, y), 0.0, 0.5, 0.01, t.size), intercept=False)
    assert found.constant == 0
    assert (found.draws[:, 0] == 0).all()
    assert found.slope == pytest.approx(1.5, rel=0.1)


def test_what_rounds_told_is_corrected_and_kept_where_the_histogram_tells_nothing() -> None:
    rng = np.random.default_rng(2)
    t = rng.normal(size=100_000)
    y = (rng.random(t.size) < expit(1.0 + 1.4 * t)).astype(int)
    seen = score_posterior(ScoreCounts(counted(t, y), 0.0, float(y.mean()), 1e-3, t.size), known=Known(0.9, 1.0, 1.0))
    assert seen.slope == pytest.approx(1.4, rel=0.06)
    noise = score_posterior(ScoreCounts(counted(t, y, 1e6), 1e6, float(y.mean()), 0.3, t.size), known=Known(0.9, 1.0, 1.0))
    assert noise.slope == pytest.approx(1.0, rel=0.1)
    assert noise.constant == pytest.approx(0.9, abs=0.1)
    sure = score_posterior(ScoreCounts(counted(t, y), 0.0, float(y.mean()), 1e-3, t.size), known=Known(0.9, 1.0, 1e-3))
    assert sure.slope == pytest.approx(1.0, rel=0.01)


# --- when it is asked for ------------------------------------------------------------------------------------------------


def test_shares_rounds_and_clips_follow_from_k() -> None:
    for k, rounds, clip in (
        (0.5, 15, 0.1),
        (2.9, 15, 0.1),
        (3.0, 40, 0.15),
        (7.9, 40, 0.15),
        (8.0, 80, 0.3),
        (39.0, 80, 0.3),
    ):
        found = schedule_of(GlmMethod.AUTO, k, 6, 105, calibrates=True)
        assert (found.method, found.rounds, found.clip, found.step) == (GlmMethod.DIRECTION, rounds, clip, 16.0)
        base = min(0.5, max(0.04, (16 / (6 * k)) ** 2))
        assert found.base == pytest.approx(base)
        shares = (found.scales, found.descent, found.probabilities)
        assert shares == pytest.approx([(1 - base) * part for part in (0.104, 0.625, 0.271)])
        assert found.passes == rounds + 3
    assert schedule_of(GlmMethod.AUTO, 5.0, 6, 14, calibrates=True).rounds == 11
    assert schedule_of(GlmMethod.AUTO, 5.0, 6, 12, calibrates=True).method is GlmMethod.MEAN
    assert schedule_of(GlmMethod.AUTO, math.inf, 6, 105, calibrates=True).exact


@pytest.mark.parametrize("method", [GlmMethod.GRADIENT, GlmMethod.NEWTON])
def test_rounds_give_a_twentieth_to_the_histogram(method: GlmMethod) -> None:
    plain, found = (schedule_of(method, 100.0, 6, 105, meat=0.1 * (method == "newton"), calibrates=c) for c in (False, True))
    assert found.probabilities == 0.05
    for name in ("base", "scales", "descent", "cells", "score", "information", "meat"):
        assert getattr(found, name) == pytest.approx(0.95 * getattr(plain, name))
    assert found.passes == plain.passes + 1
    assert (plain.doubt, found.doubt) == (0.0, pytest.approx(0.4))
    assert schedule_of(GlmMethod.AUTO, WORTH_LENGTHS, 6, 105, calibrates=True).method is GlmMethod.GRADIENT
    assert schedule_of(GlmMethod.AUTO, WORTH_ERRORS, 6, 105, calibrates=True).method is GlmMethod.NEWTON
    assert schedule_of(GlmMethod.AUTO, WORTH_ERRORS, 6, 15, calibrates=True).method is GlmMethod.GRADIENT


def plan_of(**changes: Any):
    return PrivateGLM("logistic", **{**SHARED, **changes}).plan(500, 5)


def test_every_plan_of_two_classes_has_the_histogram_once_and_spends_its_budget() -> None:
    for method in ("auto", "direction", "gradient", "newton"):
        plan = plan_of(method=method)
        assert [release.name for release in plan.releases].count(PROBABILITIES) == 1
        assert 0.99 < plan.epsilon(1e-5) <= 1
        assert any(note.startswith(PROBABILITIES) for note in plan.notes)
    assert plan_of().design.schedule.method == "direction"
    others: tuple[dict[str, Any], ...] = (
        {"ridge": 0.1},
        {"weights_bounds": (0, 2)},
        {"offset_bounds": (-1, 1)},
        {"method": "mean"},
    )
    for own in others:
        assert PROBABILITIES not in {release.name for release in plan_of(**own).releases}
    with pytest.raises(
        UsageError, match="'direction' is for the logistic family, without exposure, offset, weights and ridge"
    ):
        plan_of(method="direction", weights_bounds=(0, 2))


# --- fits ----------------------------------------------------------------------------------------------------------------


@pytest.mark.long_for("4")
@pytest.mark.slow_for("4", "1")
@pytest.mark.parametrize("sites", [1, 4])
def test_thirty_columns_that_span_three_directions_are_enough(sites: int) -> None:
    found = []
    for seed in range(5):
        X, y, new, truth = few_directions(seed)
        model = PrivateGLM("logistic", **{**SHARED, "random_state": seed}).fit(X, y, sites=np.arange(y.size) % sites)
        assert model.method_ == "direction"
        p = model.predict_proba(new)[:, 1]
        found.append((log_loss(truth, p), roc_auc_score(truth, p)))
    loss, area = np.median(found, axis=0)
    assert loss <= 0.40
    assert area >= 0.95


@pytest.mark.slow
def test_a_direction_of_noise_falls_back_on_the_base_rate() -> None:
    excess = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(600, 20)).clip(-4, 4), (rng.random(600) < 0.3).astype(int)
        model = PrivateGLM("logistic", **{**SHARED, "epsilon": 0.5, "random_state": seed}).fit(X, y)
        p = model.predict_proba(rng.normal(size=(2000, 20)).clip(-4, 4))[:, 1]
        excess.append(float(np.mean(0.3 * np.log(0.3 / p) + 0.7 * np.log(0.7 / (1 - p)))))
    assert np.mean(excess) < 0.03


@pytest.mark.slow
def test_predictions_are_mean_probabilities_and_come_back_as_they_were(tmp_path) -> None:
    X, y, new, _ = few_directions(0)
    for model in (PrivateGLM("logistic", **SHARED), PrivateLogisticRegression(**SHARED)):
        model.fit(X, y)
        p, log_odds = model.predict_proba(new), model.decision_function(new)
        u = new @ np.ravel(model.coef_) + np.ravel(model.intercept_)[0]
        assert log_odds == pytest.approx(mean_log_odds(u, model._lines))
        assert not np.allclose(log_odds, u)
        assert p[:, 1] == pytest.approx(expit(log_odds))
        assert (model.predict(new) == p.argmax(axis=1)).all()
        model.save(tmp_path / type(model).__name__)
        assert (unpooled.load(tmp_path / type(model).__name__).predict_proba(new) == p).all()
        with pytest.raises(UsageError, match="standard errors"):
            model.summary()
        other = model.to_sklearn()
        assert other.predict_proba(new) == pytest.approx(p)
        assert (other.predict(new) == model.predict(new)).all()
        again = type(model)(**SHARED).fit(X, y)
        assert (again.predict_proba(new) == p).all()


def test_a_diagnosis_reads_mean_probabilities() -> None:
    X, y, new, truth = few_directions(0, new=20_000)
    model = PrivateGLM("logistic", **SHARED).fit(X, y)
    found = diagnose(model, new, truth, epsilon=20.0, delta=1e-5, rows="others", random_state=0)
    cells = found.cells_
    assert cells.lines == model._lines
    plain = PrivateGLM("logistic", **SHARED, method="gradient").fit(X, y)
    assert diagnose(plain, new, truth, epsilon=20.0, delta=1e-5, rows="others", random_state=0).cells_.lines == ()


@pytest.mark.parametrize(
    ("link", "lines"), [("identity", [[0.0, 1.0]]), ("logistic", [[0.0, math.inf]]), ("logistic", [[math.nan, 1.0]])]
)
def test_lines_of_a_diagnosis_are_finite_and_of_two_classes(link: str, lines: list[list[float]]) -> None:
    response = Column("y", 0, 1) if link == "identity" else Column("y", categories=("no", "yes"))
    own = {"residual_cuts": [0.0]} if link == "identity" else {}
    parameters = {"response": "y", "coefficients": {"a": 1.0}, "link": link, "lines": lines, **own}
    with pytest.raises(UsageError, match="lines are finite numbers"):
        load("diagnose").compile(
            Study("diagnose", (Card("x", 50, (Column("a", 0, 1), response)),), 1.0, 1e-5, parameters=parameters, derived=())
        )


@pytest.mark.slow_for("trust1")
@pytest.mark.parametrize("trust", [{}, {"aggregation": "trusted"}])
def test_a_study_with_categories_and_missing_values_predicts_as_its_result_says(trust: dict[str, str]) -> None:
    rng = np.random.default_rng(7)
    n = 600
    age = np.where(rng.random(n) < 0.1, np.nan, rng.uniform(20, 90, n))
    ward = rng.choice(np.array(["a", "b"], dtype=object), n)
    ill = np.where(rng.random(n) < expit((np.nan_to_num(age, nan=50) - 50) / 10 + (ward == "a")), "yes", "no").astype(object)
    columns = (
        Column("age", 18, 100, missing="indicator"),
        Column("ward", categories=("a", "b")),
        Column("ill", categories=("no", "yes")),
    )
    tables = {
        name: Table({"age": age[part], "ward": ward[part], "ill": ill[part]})
        for name, part in (("north", slice(250)), ("south", slice(250, n)))
    }
    cards = tuple(Card(name, table.n_rows, columns) for name, table in tables.items())
    asked = Study("glm", cards, 1.0, 1e-5, parameters={"response": "ill"}, trust=trust, derived=())
    plan = MODEL.compile(asked)
    assert plan.design.schedule.method is GlmMethod.DIRECTION
    result = run_in_process(MODEL, plan, tables, Policy.in_process(), lambda _: MODEL).outcome.result
    model = fitted(plan, result)
    frame = pl.DataFrame({"age": age, "ward": ward.tolist()}, nan_to_null=True)
    p = model.predict_proba(frame)[:, 1]
    assert roc_auc_score(ill == "yes", p) > 0.65
    assert model.method_ == "direction"
    assert "'direction' gives predictions without standard errors" in MODEL.table(plan, result)
    assert "means over 64 lengths of the slopes" in MODEL.table(plan, result)
    assert [t.term for t in MODEL.reading.terms(plan, result)][-1] == "(intercept)"
    assert MODEL.reading.panels(plan, result)[0].title == "coefficients"


def test_formulas_households_one_class_and_no_intercept() -> None:
    rng = np.random.default_rng(3)
    n = 500
    X = rng.normal(size=(n, 2)).clip(-3, 3)
    y = (rng.random(n) < expit(2 * X[:, 0] * X[:, 1])).astype(int)
    frame = pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y})
    own = {**SHARED, "bounds": {"a": (-3, 3), "b": (-3, 3)}}
    product = PrivateGLM("logistic", **own).fit(frame, formula="y ~ a * b")
    assert product.method_ == "direction"
    assert roc_auc_score(y, product.predict_proba(frame)[:, 1]) > 0.65
    ids = np.arange(n) // 2
    together = PrivateGLM("logistic", **{**SHARED, "epsilon": 2.0}, unit="household", rows_per_household=2)
    together.fit(X, y, unit_id=ids)
    assert together.plan_.design.totals[PROBABILITIES].reach[Unit.HOUSEHOLD].distance == pytest.approx(2 * math.sqrt(2))
    none = PrivateGLM("logistic", **SHARED).fit(X, np.zeros(n, dtype=int))
    assert none.predict_proba(X)[:, 1].mean() < 0.2
    through = PrivateGLM("logistic", **SHARED, fit_intercept=False).fit(X[:300], (X[:300, 0] > 0).astype(int))
    assert (through.method_, through.intercept_) == ("direction", 0.0)
    assert through.predict_proba(np.zeros((1, 2)))[0, 1] == pytest.approx(0.5)
    assert roc_auc_score(X[:, 0] > 0, through.predict_proba(X)[:, 1]) > 0.9


def test_calibrated_rounds_stay_linear() -> None:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(3000, 3)).clip(-4, 4)
    y = (rng.random(3000) < expit(X[:, 0])).astype(int)
    for method in ("gradient", "newton"):
        model = PrivateGLM("logistic", **{**SHARED, "epsilon": 4.0}, method=method).fit(X, y)
        assert model._lines == ()
        assert model.to_sklearn().predict_proba(X) == pytest.approx(model.predict_proba(X))
        assert model.coef_[0] == pytest.approx(1.0, abs=0.25)


@pytest.mark.slow
def test_an_outlook_plays_the_direction() -> None:
    found = PrivateGLM("logistic", **SHARED).outlook(500, 5, signal=1.5, rate=0.5, correlation=0.0, ranges=4.0, quick=True)
    assert "direction" in found.model
    assert found.noise_free < found.error < 1.0
