"""A study whose budget goes to some columns: how far a unit moves its totals, what it estimates, and what is refused."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

import unpooled
from unpooled import Bounds, PrivateLinearRegression
from unpooled.errors import UsageError
from unpooled.kernels import rows as focus_rows
from unpooled.linear import scales as counted_scales
from unpooled.linear.descent import arrived
from unpooled.linear.layout import MomentsLayout
from unpooled.linear.scales import CountedScales
from unpooled.models import fitted, load
from unpooled.models.bayes.declared import FocusRows, believed
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.sensitivity import counts_of_columns
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.protocol.local import run_in_process

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = (
    Column("a", -1, 3),
    Column("c", categories=("u", "v")),
    Column("m", 0, 1, missing="indicator"),
    Column("y", -2, 2),
)
Row = dict[str, Any]


def one_row(rng: np.random.Generator) -> Row:
    """A row whose values are ends of their ranges, anything between, or missing."""
    row: Row = {}
    for column in COLUMNS:
        if column.categories is not None:
            row[column.name] = str(rng.choice(column.categories))
        else:
            values = [*column.range, float(rng.uniform(*column.range))]
            row[column.name] = values[rng.integers(3)] if column.missing == "refuse" or rng.random() < 0.7 else math.nan
    return row


def alone(statistic: Any, row: Row) -> np.ndarray:
    """What one record adds: a table has two rows at least, so half of what two equal ones add."""
    columns = {k: np.array([v, v], dtype=object if isinstance(v, str) else float) for k, v in row.items()}
    return np.asarray(statistic(Table(columns)) // 2)


def shares_of_reach(seeds: int) -> dict[tuple[str, str, str], float]:
    """The farthest that one unit moved each total, in parts of its reach."""
    found: dict[tuple[str, str, str], float] = {}
    whole = MomentsLayout.of(COLUMNS, "y", 100)
    for seed, focus in itertools.product(range(seeds), (("c",), ("a", "m"))):
        rng = np.random.default_rng(seed)
        rows = FocusRows.of(whole, focus, 100)
        p = len(whole.coding.attribute) + 1
        standard = rng.uniform(-1, 1, p), np.exp(rng.uniform(-4, 1, p))
        start = rng.normal(size=whole.size + len(rows.focused) * len(rows.others)) * float(rng.choice([0.0, 0.3, 30.0]))
        clip = float(rng.choice([0.05, 1.0, 40.0]))
        first, second = one_row(rng), one_row(rng)
        changed = str(rng.choice(list(first)))
        value = {**first, changed: second[changed]}
        for adjacency in Adjacency:
            totals = (
                (CountedScales(whole).vector(1.0, adjacency), CountedScales(whole).statistic),
                (rows.cross(1.0, adjacency), lambda t: rows.products_of_columns(rows.blocks(t, standard))),
                (
                    rows.cells_of_all.vector(1.0, rows.moves(adjacency)),
                    lambda t: rows.residuals_of_all(rows.blocks(t, standard), start[: whole.size]),
                ),
                (rows.residual(1.0, adjacency), lambda t: rows.products(rows.blocks(t, standard), start, clip)),
            )
            for vector, statistic in totals:
                widths = np.concatenate([np.full(b.size, b.width) for b in vector.blocks])
                a, b, c = (alone(statistic, row) for row in (first, second, value))
                assert np.abs(a).max(initial=0) <= vector.per_row
                moved = a - b if adjacency is Adjacency.REPLACE else a
                for unit, difference in ((Unit.RECORD, moved), (Unit.ATTRIBUTE, a - c)):
                    far = float(np.linalg.norm(difference / widths)) / vector.reach[unit].distance
                    key = vector.name, str(adjacency), str(unit)
                    found[key] = max(found.get(key, 0.0), far)
    return found


@pytest.mark.slow
def test_no_unit_moves_a_total_farther_than_its_reach() -> None:
    """Counts of columns by Theorem B.13, products of columns by Theorem B.5, residuals by F.2 and F.9.3."""
    found = shares_of_reach(60)
    assert max(found.values()) <= 1 + 1e-12
    for name in {name for name, *_ in found}:
        assert found[name, "replace", "record"] > 0.45, name
    assert found["scales", "replace", "attribute"] > 0.99
    assert found["scales", "zero-out", "record"] > 0.99


def test_products_that_are_not_shortened_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(focus_rows, "shorten_products", lambda first, second, most: None)
    with pytest.raises(AssertionError):  # one record adds more to a coordinate than any may
        shares_of_reach(20)


def study(n: int, epsilon: float, **parameters: Any) -> Study:
    columns = (Column("x", -4, 4), Column("arm", categories=("control", "treated")), Column("y", -6, 6))
    given = {"response": "y", "focus": ["arm"]} | parameters
    return Study("bayes", (Card("all", n, columns),), epsilon, 1e-5, parameters=given, derived=())


def trial(n: int, seed: int) -> tuple[Table, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n).clip(-4, 4)
    arm = (0.5 * x + rng.normal(size=n) > 0).astype(float)
    y = (0.6 * x + 0.5 * arm + 0.8 * rng.normal(size=n)).clip(-6, 6)
    table = Table({"x": x, "arm": np.where(arm > 0, "treated", "control").astype(object), "y": y})
    return table, np.column_stack([arm, x, np.ones(n)]), y


@pytest.mark.slow
def test_a_large_budget_gives_the_least_squares_coefficient() -> None:
    table, design, y = trial(4000, 0)
    model = load("bayes")
    plan = model.compile(study(4000, 1e4))
    result = run_in_process(model, plan, {"all": table}, Policy.in_process(), load).outcome.result
    (line,) = model.tables(plan, result).summary().terms
    beta = np.linalg.lstsq(design, y, rcond=None)[0]
    assert line.term == "arm: treated - control"
    assert abs(line.estimate - beta[0]) < 0.1 * line.std_error
    foot = model.table(plan, result)
    assert "focus: x and the intercept are nuisance, and have no line" in foot
    assert "R^2" not in str(model.tables(plan, result).summary())
    assert len(result.coefficients) == 3


@pytest.mark.parametrize("method", [{}, {"method": "focus"}])
def test_the_outlook_has_no_focus_without_privacy(method: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It refused every study that asks for this method by name: at an infinite epsilon there is none."""
    monkeypatch.setattr("unpooled.estimation.outlook.QUICK_RUNS", 2)
    expected = load("bayes").outlook(study(1000, 1.0, **method), quick=True, r2=0.5)
    assert expected.noise_free < expected.error < 1.0


def test_the_plan_says_what_a_focus_costs() -> None:
    plan = load("bayes").compile(study(1000, 1.0))
    assert any("focus on arm" in note and "no standard errors" in note for note in plan.notes)
    assert plan.epsilon(1e-5, "record") <= 1.0


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"focus": ["leg"]}, "none of the columns"),
        ({"focus": ["arm", "x"]}, "some of the columns"),
        ({"fit_intercept": False}, "goes with an intercept"),
        ({"method": "gradient"}, "goes with method"),
        ({"focus": [], "method": "focus"}, "goes with method"),
        ({"geometry": "box"}, "without the parameters of method"),
    ],
)
def test_what_a_focus_does_not_go_with_is_refused(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        load("bayes").compile(study(1000, 1.0, **parameters))


def test_a_focus_that_would_be_noise_is_refused_before_data() -> None:
    with pytest.raises(UsageError, match="ask for more rows or a larger epsilon"):
        load("bayes").compile(study(60, 0.2))
    with pytest.raises(UsageError, match="epsilon = inf has none"):
        load("bayes").compile(msgspec.structs.replace(study(60, 1.0), epsilon=math.inf))


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("marked", [[], [False], [True], [False, True, True]])
def test_the_closed_form_of_counts_of_columns_is_the_largest_of_a_search(marked: list[bool], adjacency: Adjacency) -> None:
    """Theorem B.13: three cells a column, a mark that is 0 or 1 with any cell, and a response that weighs more."""
    one_hot = np.eye(3)
    square = 0.0
    for mark in marked:
        states = [(*cell, float(m)) for cell in one_hot for m in ((0, 1) if mark else (0,))]
        others = states if adjacency is Adjacency.REPLACE else [(0.0,) * 4]
        square += max(sum((a - b) ** 2 for a, b in zip(*pair, strict=True)) for pair in itertools.product(states, others))
    square += 3.0 * (2 if adjacency is Adjacency.REPLACE else 1)
    assert counts_of_columns(marked, math.sqrt(3), adjacency) == pytest.approx(math.sqrt(square))


def test_counts_of_a_response_that_weigh_nothing_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Theorem B.13: without the response's part one record moves the counts farther than their reach."""
    whole = counts_of_columns
    monkeypatch.setattr(counted_scales, "counts_of_columns", lambda marked, _, how: whole(marked, 0.0, how) or 1.0)
    assert max(shares_of_reach(20).values()) > 1


def test_errors_of_the_nuisance_enter_as_a_product() -> None:
    """Theorem B.14, on rows whose moments are exactly those that it names."""
    rng = np.random.default_rng(0)
    n, others = 400, 3
    base = np.linalg.qr(np.column_stack([np.ones(n), rng.normal(size=(n, others + 1))]))[0][:, 1:] * math.sqrt(n)
    rest, own = base[:, :others] @ rng.normal(size=(others, others)), base[:, others]
    related, beta = rng.normal(size=others), rng.normal(size=others)
    focused = rest @ related + own
    y = 0.7 * focused + rest @ beta

    def score(b: np.ndarray, g: np.ndarray) -> float:
        return float((focused - rest @ g) @ (y - 0.7 * focused - rest @ b) / n)

    for wrong, off in rng.normal(size=(5, 2, others)):
        assert score(beta, related + off) == pytest.approx(0, abs=1e-10)
        assert score(beta + wrong, related) == pytest.approx(0, abs=1e-10)
        product = off @ (rest.T @ rest / n) @ wrong
        assert score(beta + wrong, related + off) == pytest.approx(product)


def test_the_way_of_the_rounds_is_that_of_the_recursion() -> None:
    for step, rounds in ((0.3, 1), (0.1, 7), (0.25, 12)):
        gradients = np.eye(rounds + 1)[1:]  # the noise of each round, apart, and the pull of the target in column 0
        at, late = np.zeros(rounds + 1), []
        for k in range(rounds):
            at = (1 - step) * at + gradients[k] + step * np.eye(rounds + 1)[0]
            late += [at] if k >= rounds // 2 else []
        mean = np.mean(late, axis=0)
        assert arrived(step, rounds) == pytest.approx((mean[0], np.linalg.norm(mean[1:])))


def test_beliefs_hold_over_the_prior_they_are_of() -> None:
    """The mean square error that a posterior claims is the one of draws from its prior, for both priors and any factor."""
    rng, free = np.random.default_rng(3), 5
    for likely, most in ((False, 0.0), (False, 0.5), (True, 0.0)):
        claimed, missed = [], []
        for _ in range(3000):
            u = rng.uniform()
            size = math.sqrt((u if likely else u * u) * 0.6 / free)
            true = size * rng.normal(size=free)
            seen = true + 0.25 * rng.normal(size=free)
            factor, left = believed(float(seen @ seen), 0.25**2, free, free, most=most, likely=likely)
            claimed.append(left)
            missed.append(float(np.square(factor * seen - true).mean()))
        assert np.mean(claimed) == pytest.approx(np.mean(missed), rel=0.08)


def estimator(**parameters: Any) -> PrivateLinearRegression:
    bounds = Bounds(low=[-4.0, 0.0], high=[4.0, 1.0])
    given: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-5, "bounds": bounds, "y_bounds": (-6, 6), "random_state": 0}
    return PrivateLinearRegression(**given | parameters)


def test_the_estimator_has_tables_of_the_focus_and_predictions_of_all() -> None:
    _, design, y = trial(1500, 1)
    X = design[:, [1, 0]]
    model = estimator(focus=["x1"]).fit(X, y)
    assert model.method_ == "focus"
    (line,) = model.summary().terms
    assert line.term == "x1"
    assert np.ravel(model.contrast("x1").terms[0].estimate)[0] == pytest.approx(line.estimate)
    assert "x0 and the intercept are nuisance" in str(model.summary())
    assert model.coef_.shape == (2,)
    assert np.isfinite(model.predict(X)).all()
    assert np.isnan(model.credible_interval()).all()
    for asked in (model.ols, model.ridge, model.pca, model.vif, lambda: model.predict(X, return_std=True)):
        with pytest.raises(UsageError, match="a focus on x1 released second moments of that alone"):
            asked()
    assert not hasattr(model, "moments_")
    model.focus = ()
    assert not hasattr(model.fit(X, y), "focused_"), "nothing stays of a fit before"


def test_a_plan_without_a_focus_keeps_its_parameters() -> None:
    assert "focus" not in estimator().plan(1500, 2).study.parameters
    assert estimator(focus=("x1",)).plan(1500, 2).study.parameters["focus"] == ["x1"]
    with pytest.raises(UsageError, match="focus"):
        estimator(focus="x1").plan(1500, 2)
    with pytest.raises(UsageError, match="focus"):
        estimator(focus="x1").fit(np.zeros((50, 2)), np.zeros(50))


@pytest.mark.guarantee
def test_a_finished_study_is_an_estimator_with_the_same_table(tmp_path: Path) -> None:
    table, _, _ = trial(1500, 2)
    model = load("bayes")
    plan = model.compile(study(1500, 2.0))
    result = run_in_process(model, plan, {"all": table}, Policy.in_process(), load).outcome.result
    again = msgspec.json.decode(msgspec.json.encode(result), type=type(result))
    assert again == result
    (line,) = model.tables(plan, again).summary().terms
    made = fitted(plan, again)
    (own,) = made.summary().terms
    assert (own.estimate, own.std_error) == (line.estimate, line.std_error)
    assert made.focus == ("arm",)
    with pytest.raises(UsageError, match="a focus on arm"):
        made.ols()
    made.save(tmp_path / "model")
    (loaded,) = unpooled.load(tmp_path / "model").summary().terms
    assert loaded == own


@pytest.mark.guarantee
def test_rows_of_a_household_have_clustered_errors() -> None:
    _, design, y = trial(3000, 3)
    X, ids = design[:, [1, 0]], np.repeat(np.arange(1500), 2)
    model = estimator(focus=["x1"], unit="household", rows_per_household=2, epsilon=4.0).fit(X, y, unit_id=ids)
    (line,) = model.summary().terms
    assert model.focused_.covariance == "cluster"
    assert abs(line.estimate - 0.5) < 4 * line.std_error
