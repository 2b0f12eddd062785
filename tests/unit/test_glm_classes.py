"""Several classes: what one record moves, what noise meets, exact fits, which form is chosen, predictions and refusals."""

from __future__ import annotations

import dataclasses
import itertools
import math
import warnings
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks
from world import FULL, sized

import unpooled
from unpooled import Bounds, PrivateGLM
from unpooled.audit.replay import replay
from unpooled.errors import DataError, UsageError
from unpooled.kernels import rows as class_rows
from unpooled.linear.layout import MomentsLayout
from unpooled.models import fitted, load
from unpooled.models.glm.curvature import Contrasts
from unpooled.models.glm.families import ClassRates, ClassResponses, ClassRows, Softmax
from unpooled.models.glm.outlook import _RATES_FROM, Assumed, made_up
from unpooled.models.glm.plan import MOST_ENTRIES
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table
from unpooled.privacy.unit import ROWWISE, Adjacency, Unit
from unpooled.totals.total import Total

INF = math.inf
MODEL = load("glm")
COLUMNS = (Column("a", -1, 3), Column("c", categories=("u", "v")), Column("m", 0, 1, missing="indicator"))


def response_of(classes: int) -> Column:
    return Column("y", categories=tuple("pqrst"[:classes]))


def rows_of(classes: int, part: float, columns: tuple[Column, ...] = COLUMNS, *, intercept: bool = True) -> ClassRows:
    layout = MomentsLayout.of((*columns, Column("y", 0, 1)), "y", 100, intercept=intercept)
    response = response_of(classes)
    rows = ClassRows(layout, 100, part, ClassResponses(response, Softmax(labels=response.categories)))
    return dataclasses.replace(rows, longest=part * rows.radius)


def one_row(classes: int, columns: tuple[Column, ...], rng: np.random.Generator) -> dict[str, Any]:
    """A row whose values are ends of their ranges, 0, anything between, or missing."""
    row: dict[str, Any] = {}
    for column in (*columns, response_of(classes)):
        if column.categories is not None:
            row[column.name] = str(rng.choice(column.categories))
            continue
        values = [*column.range, 0.0, float(rng.uniform(*column.range))]
        row[column.name] = values[rng.integers(4)] if column.missing == "refuse" or rng.random() < 0.7 else math.nan
    return row


def table_of(rows: list[dict[str, Any]]) -> Table:
    return Table(
        {k: np.array([row[k] for row in rows], dtype=object if isinstance(rows[0][k], str) else float) for k in rows[0]}
    )


def alone(statistic, row: dict[str, Any]) -> np.ndarray:
    """What one record adds: a table has two rows at least, so half of what two equal ones add."""
    twice = statistic(table_of([row, row]))
    assert not (twice % 2).any()
    return twice // 2


def statistics(
    classes: int, columns: tuple[Column, ...], rng: np.random.Generator, adjacency: Adjacency, *, intercept: bool
):
    """Every total with a statistic of one table, at public numbers of a request that are anything."""
    rows = rows_of(classes, 1.0, columns, intercept=intercept)
    p = len(rows.layout.coding.attribute)
    standard = rng.uniform(-1, 1, p), np.exp(rng.uniform(rng.choice([-5.0, 0.0]), 1, p))
    start = rng.normal(size=rows.width) * float(rng.choice([0.0, 0.3, 30.0]))
    units = np.exp(rng.uniform(-3, 2, 3))
    base = ClassRates(rows.responses, 100)
    yield base.vector(1.0, adjacency), base.statistic
    for part in (0.6, 1.0):
        own = rows_of(classes, part, columns, intercept=intercept)
        yield own.descent(1.0, adjacency, 3), lambda t, own=own: own.gradients(own.blocks(t, standard), start, units)
    yield rows.information(1.0, adjacency, 1), lambda t: rows.weighted(rows.blocks(t, standard), start, units)
    yield (
        rows.cells.vector(1.0, rows.moves(adjacency)),
        lambda t: rows.cells_of_pulls(rows.blocks(t, standard), start, units),
    )


def shares_of_reach(
    classes: int, columns: tuple[Column, ...] = COLUMNS, *, intercept: bool = True, seeds: int = 60
) -> dict[tuple[str, str, str], float]:
    """The farthest that one unit moved each total, in parts of its reach."""
    found: dict[tuple[str, str, str], float] = {}
    for seed, adjacency in itertools.product(range(seeds), Adjacency):
        rng = np.random.default_rng([seed, classes])
        first, second = one_row(classes, columns, rng), one_row(classes, columns, rng)
        changed = str(rng.choice(list(first)))
        value = {**first, changed: second[changed]}
        for vector, statistic in statistics(classes, columns, rng, adjacency, intercept=intercept):
            widths = np.concatenate([np.full(b.size, b.width) for b in vector.blocks])
            a, b, c = (alone(statistic, row) for row in (first, second, value))
            assert np.abs(a).max(initial=0) <= vector.per_row
            moved = a - b if adjacency is Adjacency.REPLACE else a
            for unit, difference in ((Unit.RECORD, moved), (Unit.ATTRIBUTE, a - c)):
                far = float(np.linalg.norm(difference / widths)) / vector.reach[unit].distance
                key = (vector.name, str(adjacency), str(unit))
                found[key] = max(found.get(key, 0.0), far)
    return found


@pytest.mark.slow_but("2")
@pytest.mark.minutes
@pytest.mark.parametrize("classes", [2, 3, 5])
def test_no_unit_moves_a_total_farther_than_its_reach(classes: int) -> None:
    """Theorems G.6 and G.7."""
    found = shares_of_reach(classes)
    assert max(found.values()) <= 1 + 1e-12
    for name, least in (("base", 0.99), ("descent", 0.6), ("information", 0.5)):  # the search is not asleep
        assert found[name, "replace", "record"] > least, name


@pytest.mark.slow
def test_one_column_and_no_constant_are_inside_too() -> None:
    assert max(shares_of_reach(3, COLUMNS[:1], seeds=40).values()) <= 1 + 1e-12
    assert max(shares_of_reach(3, COLUMNS[:1], intercept=False, seeds=40).values()) <= 1 + 1e-12


@pytest.mark.slow
def test_the_constants_of_two_classes_are_exceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing scaled down, and coordinates cut one by one (R in place of sqrt 2 R) or pairs one by one (a scalar weight): both are caught (Theorems G.6 and G.7)."""
    honest = class_rows.class_pulls

    def unscaled(left, label, square, grid, limits, p, weight) -> None:
        honest(left, label, square, grid, (limits[0], math.inf, math.inf), p, weight)

    def each(pull, square, fine, farthest, longest) -> None:
        for i in range(pull.shape[1]):
            length = math.isqrt(max(int(square[i]) - 1, 0)) + 1
            most = min(farthest, longest // length)
            pull[:, i] = np.trunc(np.clip(pull[:, i] * fine, -most, most))

    def scalar(rows, weight, coarse, heaviest, out) -> None:
        far = math.sqrt(heaviest)
        for k in range(weight.shape[0]):
            row = rows * (np.sqrt(weight[k]) * coarse)[:, None]
            length = np.linalg.norm(row, axis=1)
            out[k] = np.trunc(row * np.minimum(1.0, far / np.maximum(length, 1e-9))[:, None])

    for name, broken in (("cut_vectors", each), ("weigh_pairs", scalar)):
        with monkeypatch.context() as patch:
            patch.setattr(class_rows, "class_pulls", unscaled)
            assert max(shares_of_reach(3, seeds=20).values()) <= 1 + 1e-12
            patch.setattr(class_rows, name, broken)
            with pytest.raises(AssertionError):
                assert max(shares_of_reach(3, seeds=40).values()) <= 1 + 1e-12


@pytest.mark.slow
def test_no_pull_is_longer_than_the_root_of_two_and_no_weight_than_a_half() -> None:
    """The constants of Theorems G.6 and G.7 by search: every one is approached, and none exceeded."""
    rng = np.random.default_rng(0)
    for classes in (2, 3, 6):
        longest = heaviest = farthest = 0.0
        for _ in range(3000):
            p, q = rng.dirichlet(np.full(classes, float(rng.choice([0.02, 0.3, 1.0]))), 2)
            pulls = [np.eye(classes)[int(v.argmin())] - v for v in (p, q)]
            weights = [np.diag(v) - np.outer(v, v) for v in (p, q)]
            longest = max(longest, float(np.linalg.norm(pulls[0])))
            heaviest = max(heaviest, float(np.linalg.norm(weights[0])))
            # Rows of length 1 in two dimensions, at right angles and opposite: replaced, second moments are farthest apart at right angles.
            one, other = np.eye(2)
            moved = np.kron(weights[0], np.outer(one, one)) - np.kron(weights[1], np.outer(other, other))
            farthest = max(farthest, float(np.linalg.norm(moved)))
        assert 0.97 * math.sqrt(2) < longest <= math.sqrt(2) + 1e-12
        assert 0.98 / 2 < heaviest <= 0.5 + 1e-12
        assert 0.9 / math.sqrt(2) < farthest <= 1 / math.sqrt(2) + 1e-12


def test_what_noise_meets_in_a_step_is_told_exactly() -> None:
    """Theorem G.8, from the released coordinates themselves: each moves the contrasts of the second moments by a matrix of its own."""
    rng = np.random.default_rng(1)
    rows = rows_of(3, 1.0, COLUMNS[:1])
    vector = rows.information(1.0, Adjacency.REPLACE, 1)
    widths = np.concatenate([np.full(b.size, b.width) for b in vector.blocks]) / rows.coarse**2
    design: Any = type("Design", (), {"layout": rows.layout})
    shape = Contrasts(design, 0.0, (1.0, 1.0), np.array([0.5, 0.3, 0.2]), ("p", "q", "r"))
    move, noises = rng.normal(size=2 * rows.layout.size), np.zeros(2 * rows.layout.size)
    expected, projected = np.zeros((move.size, move.size)), np.zeros((move.size, move.size))
    for k, width in enumerate(widths):
        values = np.zeros(widths.size)
        values[k] = rows.coarse**2
        gram, variance = shape.information(*rows.information_of(Total(values, widths * rows.coarse**2, ())))
        assert gram == pytest.approx(gram.T)
        met = gram @ move * width
        expected += np.outer(met, met)
        projected += gram**2 * width**2
    assert shape.met(move, variance, noises) == pytest.approx(expected)
    assert projected.diagonal() == pytest.approx(variance.diagonal())


def test_totals_depend_on_no_order_of_rows_and_add_up_over_parties() -> None:
    rng = np.random.default_rng(3)
    table = table_of([one_row(3, COLUMNS, rng) for _ in range(1301)])
    order = rng.permutation(1301)
    parts = [table.take(part) for part in np.array_split(order, 3)]
    for _, statistic in statistics(3, COLUMNS, np.random.default_rng(5), Adjacency.REPLACE, intercept=True):
        whole = statistic(table)
        assert (statistic(table.take(order)) == whole).all()
        assert (sum(statistic(part) for part in parts) == whole).all()


def test_totals_are_those_of_the_formulas() -> None:
    """Gradients and second moments against the definitions, where nothing is scaled down, up to the grid."""
    rng = np.random.default_rng(4)
    rows = dataclasses.replace(rows_of(3, 1.0, COLUMNS[:1]), longest=100.0, stretch=20.0)
    table = table_of([one_row(3, COLUMNS[:1], rng) for _ in range(50)])
    standard = np.zeros(1), np.ones(1)
    start = rng.normal(size=rows.width)
    ((z, other),) = list(rows.blocks(table, standard))
    z, y = z / rows.grid, other[:, 0].astype(int)
    p = np.exp(z @ start.reshape(3, -1).T)
    p /= p.sum(axis=1, keepdims=True)
    gradient, _ = rows.gradient_of(Total(rows.gradients(rows.blocks(table, standard), start, np.ones(3)), np.ones(1), ()))
    assert gradient.reshape(3, -1) == pytest.approx((np.eye(3)[y] - p).T @ z, abs=50 / rows.grid)  # a step for each row
    total = Total(rows.weighted(rows.blocks(table, standard), start, np.ones(3)).astype(float), np.zeros(1), ())
    gram, _ = rows.information_of(total)
    truth = sum(np.kron(np.diag(v) - np.outer(v, v), np.outer(row, row)) for v, row in zip(p, z, strict=True))
    assert gram == pytest.approx(truth, abs=0.05)


# --- without noise -------------------------------------------------------------------------------------------------------

SLOPES = np.array([[0.5, -0.3, 0.0], [0.0, 0.4, 0.2], [-0.3, 0.1, -0.4], [0.1, 0.0, 0.1]])


def simulated(n: int = 400, classes: int = 3, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 3, (n, 3))
    u = X @ SLOPES[:classes].T + np.linspace(0.3, -0.3, classes)
    return X, (u + rng.gumbel(size=u.shape)).argmax(axis=1)


def glm(classes: int = 3, **changes: Any) -> PrivateGLM:
    return PrivateGLM("multinomial", **{"bounds": (-2, 3), "random_state": 0, "classes": list(range(classes)), **changes})


@pytest.mark.slow
@pytest.mark.parametrize("classes", [3, 4])
def test_without_noise_it_equals_scikit_learn(classes: int) -> None:
    X, y = simulated(classes=classes)
    for ridge, constant in ((0.1, True), (0.0, True), (0.1, False)):
        ours = glm(classes, epsilon=INF, ridge=ridge, fit_intercept=constant).fit(X, y, sites=np.arange(400) % 3)
        theirs = LogisticRegression(
            C=1 / (400 * ridge) if ridge else INF, tol=1e-12, max_iter=10_000, fit_intercept=constant
        ).fit(X, y)
        centred = theirs.coef_ - theirs.coef_.mean(axis=0)
        assert ours.coef_ == pytest.approx(centred, abs=1e-6)
        assert ours.intercept_ == pytest.approx(theirs.intercept_ - theirs.intercept_.mean(), abs=1e-6)
        assert ours.predict_proba(X) == pytest.approx(theirs.predict_proba(X), abs=1e-6)
        assert (ours.predict(X) == theirs.predict(X)).all()
        assert ours.score(X, y) == theirs.score(X, y)
        assert ours.coef_.shape == (classes, 3)


def test_two_classes_are_the_logistic_model() -> None:
    X, y = simulated(classes=2)
    logistic = PrivateGLM("logistic", epsilon=INF, bounds=(-2, 3), classes=[0, 1]).fit(X, y)
    ours = glm(2, epsilon=INF).fit(X, y)
    assert np.diff(ours.coef_, axis=0)[0] == pytest.approx(logistic.coef_, abs=1e-6)
    assert ours.to_sklearn().predict_proba(X) == pytest.approx(logistic.predict_proba(X), abs=1e-6)
    against, their = ours.summary(against=0), logistic.summary()
    assert [t.estimate for t in against.terms] == pytest.approx([t.estimate for t in their.terms], abs=1e-6)
    assert [t.std_error for t in against.terms] == pytest.approx([t.std_error for t in their.terms], rel=1e-4)


def test_standard_errors_without_noise_are_those_of_the_likelihood() -> None:
    X, y = simulated()
    model = glm(epsilon=INF).fit(X, y)
    p, Z = model.predict_proba(X), np.column_stack([X, np.ones(400)])
    # Log odds against the first class: the weight of the other two, inverted.
    weights = np.einsum("ia,ab->iab", p, np.eye(3)) - np.einsum("ia,ib->iab", p, p)
    information = np.einsum("iab,ij,ik->ajbk", weights[:, 1:, 1:], Z, Z).reshape(8, 8)
    errors = np.sqrt(np.linalg.inv(information).diagonal())
    table = model.summary()
    assert [t.std_error for t in table.terms] == pytest.approx(errors, rel=1e-3)
    assert [t.term for t in table.terms][3:5] == ["1: (intercept)", "2: x0"]
    with pytest.warns(FutureWarning, match="`against`"):
        assert model.summary(reference=0) == table
    for wrong in (7, "0.0"):
        with pytest.raises(UsageError, match="is one of 0, 1, 2, not"):
            model.summary(against=wrong)
    other = {t.term: t for t in model.summary(against=1).terms}
    one = next(t for t in table.terms if t.term == "1: x0")
    assert (other["0: x0"].estimate, other["0: x0"].std_error) == pytest.approx((-one.estimate, one.std_error))


@pytest.mark.slow
def test_every_way_to_add_up_gives_the_same_bits_without_noise() -> None:
    X, y = simulated(120)
    found = {
        (mode, split): glm(epsilon=INF, aggregation=mode)
        .fit(X, y, sites=np.arange(120) % 4 if split else None)
        .coef_.tobytes()
        for mode, split in itertools.product(("distributed", "trusted", "local"), (True, False))
    }
    assert len(set(found.values())) == 1


def test_sklearns_own_model_of_it_predicts_the_same(tmp_path) -> None:
    X, y = simulated()
    model = glm(epsilon=INF).fit(X, y)
    assert model.to_sklearn().predict_proba(X) == pytest.approx(model.predict_proba(X))
    model.save(tmp_path / "model")
    again = unpooled.load(tmp_path / "model")
    assert (again.predict_proba(X) == model.predict_proba(X)).all()
    assert again.summary() == model.summary()
    assert model.decision_function(X).shape == (400, 3)


# --- with noise ----------------------------------------------------------------------------------------------------------


def test_every_form_spends_the_budget_and_no_more() -> None:
    for method in ("mean", "gradient", "newton"):
        plan = glm(method=method, epsilon=0.7, delta=1e-6).plan(500, 4)
        assert 0.69 < plan.epsilon(1e-6) <= 0.7
        assert method in plan.notes[0]
    assert glm(epsilon=1.0).plan(60, 3).design.schedule.method == "mean"
    assert glm(epsilon=1.0).plan(50_000, 3).design.schedule.method == "newton"


def test_a_newton_step_that_is_too_dear_is_not_taken() -> None:
    wide = {"classes": list(range(20)), "bounds": (-1, 1)}
    assert MOST_ENTRIES < 20 * 21 // 2 * 41 * 42 // 2
    plan = PrivateGLM("multinomial", epsilon=3.0, **wide).plan(10_000_000, 40)
    assert plan.design.schedule.method == "gradient"
    assert PrivateGLM("multinomial", epsilon=3.0, method="newton", **wide).plan(10_000_000, 40).design.schedule.steps == 1
    with pytest.raises(UsageError, match="second moments are too large"):
        PrivateGLM("multinomial", epsilon=INF, **wide).plan(1000, 40)


def test_the_base_rates_alone_and_gradients_without_errors() -> None:
    X, y = simulated(3000)
    model = glm(method="mean", epsilon=5.0).fit(X, y)
    assert (model.coef_ == 0).all()
    assert model.predict_proba(X[:1])[0] == pytest.approx(np.bincount(y) / 3000, abs=0.02)
    model = glm(method="gradient", epsilon=3.0).fit(X, y)
    assert model.score(X, y) > 0.45
    with pytest.raises(UsageError, match="method='newton' there are"):
        model.summary()


@pytest.mark.long
@pytest.mark.slow
def test_newton_steps_find_the_truth_and_their_intervals_cover_it() -> None:
    truth, hits, privacy = SLOPES[1:3] - SLOPES[0], [], []
    for seed in range(sized(40, 24)):
        X, y = simulated(8000, seed=seed)
        model = glm(epsilon=2.0, delta=1e-5, random_state=seed, method="newton").fit(X, y)
        terms = [t for t in model.summary().terms if "intercept" not in t.term]
        hits += [t.conf_low <= v <= t.conf_high for t, v in zip(terms, truth.ravel(), strict=True)]
        privacy += [t.privacy / t.std_error for t in terms]
        assert model.coef_.sum(axis=0) == pytest.approx(np.zeros(3), abs=1e-9)
    assert np.mean(hits) > 0.9
    assert 0.1 < np.mean(privacy) < 0.99


def test_households_count_together() -> None:
    X, y = simulated(3000)
    ids = np.arange(3000) // 2
    model = glm(epsilon=5.0, unit="household", rows_per_household=2, method="gradient").fit(X, y, unit_id=ids)
    assert model.score(X, y) > 0.42
    assert "household" in str(model.statement_)


# --- studies -------------------------------------------------------------------------------------------------------------


def study(n: int = 12, **changes: Any) -> Study:
    response = changes.pop("response", response_of(3))
    cards = tuple(Card(name, n, (*COLUMNS, response)) for name in ("a", "b"))
    parameters = {"response": "y", "family": "multinomial", **changes.pop("parameters", {})}
    return Study("glm", cards, changes.pop("epsilon", 1.0), 1e-5, parameters=parameters, derived=(), **changes)


@pytest.mark.parametrize(
    ("words", "parameters", "response"),
    [
        ("has classes: declare categories", {}, Column("y", 0, 1)),
        ("one linear predictor", {"offset": "a"}, response_of(3)),
        ("one linear predictor", {"exposure": "b"}, response_of(3)),
        ("is for the logistic family", {"method": "moments"}, response_of(3)),
    ],
)
def test_a_study_that_means_nothing_is_refused(words: str, parameters: dict[str, Any], response: Column) -> None:
    asked = study(parameters=parameters, response=response)
    extra = tuple(Card(c.name, c.rows, (*c.columns, Column("b", 1, 2))) for c in asked.parties)
    with pytest.raises(UsageError, match=words):
        MODEL.compile(Study("glm", extra, 1.0, 1e-5, parameters=asked.parameters, derived=()))


@pytest.mark.guarantee
def test_labels_that_are_not_declared_are_refused_without_naming_them() -> None:
    X, y = simulated()
    with pytest.raises(DataError, match="none of the declared classes") as caught:
        glm(3).fit(X, np.where(y == 2, 77, y))
    assert "77" not in str(caught.value)
    with pytest.raises(UsageError, match="two labels or more"):
        glm(1).fit(X, y)
    with pytest.warns(unpooled.PrivacyLeakWarning):
        read = PrivateGLM("multinomial", epsilon=9.0, bounds=(-2, 3), method="mean").fit(X, y)
    assert read.classes_.tolist() == [0, 1, 2]


def test_the_model_of_a_study_predicts_classes_in_files(tmp_path) -> None:
    from unpooled.privacy.policy import Policy
    from unpooled.protocol.local import run_in_process
    from unpooled.study.saved import predictions

    X, y = simulated(3000)
    data = {f"x{j}": X[:, j] for j in range(3)} | {"y": np.array(["p", "q", "r"], dtype=object)[y]}
    columns = (*(Column(f"x{j}", -2, 3) for j in range(3)), response_of(3))
    parameters = {"response": "y", "family": "multinomial", "method": "newton"}
    asked = Study("glm", (Card("a", 3000, columns),), 8.0, 1e-5, parameters=parameters, derived=())
    plan = MODEL.compile(asked)
    result = run_in_process(MODEL, plan, {"a": Table(data)}, Policy.in_process(), lambda _: MODEL).outcome.result
    model = fitted(plan, result)
    pl.DataFrame(data).write_csv(tmp_path / "new.csv")
    found = predictions(model, tmp_path / "new.csv")
    assert list(found) == ["prediction", "probability: p", "probability: q", "probability: r"]
    assert (found["prediction"] == model.predict(pl.DataFrame({k: v for k, v in data.items() if k != "y"}))).all()
    assert np.mean(found["prediction"] == data["y"]) > 0.45
    terms = MODEL.reading.terms(plan, result)
    assert [t.term for t in terms[:4]] == ["q: x0", "q: x1", "q: x2", "q: (intercept)"]
    assert "q: x1" in MODEL.table(plan, result)
    without = MODEL.reading.terms(plan, msgspec.structs.replace(result, newton=None))
    assert [t.term for t in without[4:]] == [t.term for t in terms]
    assert without == MODEL.reading.predicting(plan, result)
    assert without[3].estimate == result.intercepts[0]
    text = MODEL.table(plan, msgspec.structs.replace(result, newton=None))
    assert "'newton' gives them" in text
    assert "p: (intercept)" in text
    assert len(MODEL.reading.panels(plan, result)) == 1


@pytest.mark.slow
def test_an_outlook_says_when_a_study_is_worth_its_budget() -> None:
    few, many = (glm().outlook(n, 3, signal=1.2, correlation=0.0, ranges=3.0, quick=True) for n in (60, 20_000))
    assert not few.worthwhile
    assert many.worthwhile
    assert many.noise_free <= many.error + 0.02 < 0.99
    assert "multinomial" in many.model
    assert "rate of one class" in many.assumed


@pytest.mark.long_for("replace")
@pytest.mark.slow
@pytest.mark.minutes
@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
def test_studies_are_audited_in_every_unit(adjacency: str) -> None:
    rng = np.random.default_rng(1)
    tables = {name: table_of([one_row(3, COLUMNS, rng) for _ in range(6)]) for name in ("a", "b")}
    parameters = {"method": "newton", "max_passes": 5}
    for unit in ROWWISE if FULL else (Unit.RECORD,):
        asked = study(6, unit=str(unit), adjacency=adjacency, trust={"aggregation": "trusted"}, parameters=parameters)
        report = replay(MODEL, asked, tables, registry=load, rounds=3)
        assert report.passed, str(report)
        if adjacency == "replace":
            reached = {name for who, _, name in report.largest if who == unit and report.largest[who, _, name] > 0.1}
            assert {"base", "descent", "score"} <= reached


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, 30, 54])
def test_a_step_as_long_as_its_noise_makes_it_ends(seed: int) -> None:
    """Six rows at epsilon .02: what the step met is singular but for rounding."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"a": rng.uniform(-1, 1, 6), "g": rng.choice(["u", "v"], 6)})
    own = {"bounds": Bounds({"a": (-1, 1), "g": ["u", "v"]}), "classes": (0, 1, 2), "epsilon": 0.02, "random_state": seed}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = PrivateGLM("multinomial", method="newton", **own).fit(frame, np.arange(6) % 3)
    assert np.isfinite(fit.coef_).all()


@parametrize_with_checks([PrivateGLM("multinomial", epsilon=INF, bounds=(-20, 20))])
@pytest.mark.filterwarnings("ignore::unpooled.PrivacyLeakWarning")
def test_scikit_learns_own_checks(estimator, check) -> None:
    check(estimator)


def test_a_diagnosis_is_of_one_linear_predictor() -> None:
    X, y = simulated()
    with pytest.raises(UsageError, match="a diagnosis is of one linear predictor"):
        unpooled.diagnose(glm(epsilon=INF).fit(X, y), X, y, epsilon=1.0)


@pytest.mark.parametrize("rate", [0.02, 0.2])
@pytest.mark.parametrize("signal", [0.0, 1.0, 5.0])
def test_made_up_classes_have_the_assumed_rates(signal: float, rate: float) -> None:
    """Of the rows that the constants are taken from: one class is as rare as assumed, the others are equally frequent."""
    cards = (Card("a", 500, (Column("x", -1.0, 1.0), Column("z", -1.0, 1.0), Column("y", categories=("u", "v", "w")))),)
    study = Study("glm", cards, 1.0, 1e-6, parameters={"response": "y", "family": "multinomial"}, derived=())
    design = load("glm").compile(study).design
    assumed = Assumed(signal, rate, 0.3, 4.0, "normal")
    _, _, means = made_up(design, _RATES_FROM, assumed, np.random.default_rng(0))
    wanted = [rate, (1 - rate) / 2, (1 - rate) / 2]
    assert means.mean(axis=0) == pytest.approx(wanted, abs=1e-6)
