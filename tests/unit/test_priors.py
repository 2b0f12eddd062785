"""Earlier models that a fit is drawn to: what is refused, what they do, what their weights and intervals say, and what a study says of them."""

from __future__ import annotations

import math
import pickle
import warnings
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression

import unpooled
from unpooled import PrivateGLM, PrivateLinearRegression
from unpooled.errors import UsageError
from unpooled.inference.priors import (
    EarlierModel,
    Told,
    _complement,
    directions,
    drawn_to,
    in_coordinates,
    rows_of,
    simplex,
    weighed,
)
from unpooled.kernels import rows as standard_rows
from unpooled.linear import lines as line_rows
from unpooled.linear.design import lines_of
from unpooled.linear.lines import LineRows
from unpooled.linear.schedule import WORTH_MORE_THAN_WEIGHTS, Method, schedule_of
from unpooled.models import fitted, load
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.protocol.local import run_in_process

pytestmark = pytest.mark.filterwarnings("ignore::unpooled.UtilityWarning")
SLOPES = np.array([0.6, -0.4, 0.3, 0.0, -0.2])
GOOD = {f"x{j}": float(b) for j, b in enumerate(SLOPES)} | {"(intercept)": 2.0}
BAD = {f"x{j}": float(b) for j, b in enumerate(-SLOPES[::-1])} | {"(intercept)": 1.0}
OWN: dict[str, Any] = {"delta": 1e-6, "bounds": (-4, 4), "y_bounds": (-2, 6)}


def rows(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([7, seed])
    X = rng.normal(size=(count, SLOPES.size))
    return X, X @ SLOPES + 2 + 0.5 * rng.normal(size=count)


def error(prior: object, epsilon: float, count: int, seeds: int = 8, **more: object) -> tuple[float, float]:
    """Return (the mean error of new predictions over the variance of y, the mean weight of the first earlier model)."""
    new, then = rows(4000, 1000)
    found = []
    for seed in range(seeds):
        model = PrivateLinearRegression(epsilon=epsilon, random_state=seed, prior=prior, **OWN, **more).fit(
            *rows(count, seed)
        )
        weight = model.drawn_.weights[0].weight if prior is not None else math.nan
        found.append((np.mean((model.predict(new) - then) ** 2) / then.var(), weight))
    errors, weights = np.array(found).T
    return float(np.median(errors)), float(weights.mean())


# --- weights -------------------------------------------------------------------------------------------------------------


def test_weights_lie_in_the_simplex_and_half_of_the_mass_is_all_or_nothing() -> None:
    for count in (1, 2, 5):
        points, likely = simplex(count)
        assert (points >= 0).all()
        assert (points.sum(axis=1) <= 1 + 1e-12).all()
        assert likely.sum() == pytest.approx(1.0)
        assert likely[: count + 1].sum() == pytest.approx(0.5)
        assert (points[: count + 1] == np.vstack([np.zeros(count), np.eye(count)])).all()


def test_numbers_without_noise_are_kept_and_noise_leaves_what_was_believed() -> None:
    models, constants = np.array([[0.8, 0.0], [0.0, -0.5]]), np.array([0.2, -0.1])
    sure = weighed(np.array([0.4, -0.25]), 1e-6, 0.05, 1e-6, models, constants)
    assert sure.lengths == pytest.approx([0.4, -0.25], abs=1e-6)
    assert sure.constant == pytest.approx(0.05, abs=1e-6)
    one = weighed(np.array([0.8, 0.0]), 0.05, 0.2, 0.05, models, constants)
    assert one.weights[0] > 0.9
    assert one.weights[1] < 0.1
    none = weighed(np.array([5.0, 5.0]), 1e6, 5.0, 1e6, models, constants)
    points, likely = simplex(2)
    assert none.weights == pytest.approx(likely @ points, abs=1e-3)
    assert none.lengths == pytest.approx((likely @ points) @ models, abs=1e-3)


def test_directions_span_the_models_and_those_that_agree_share_one() -> None:
    models = np.array([[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 0.0, 3.0]])
    along = directions(models)
    assert along.shape == (2, 3)
    assert along @ along.T == pytest.approx(np.eye(2))
    assert models @ along.T @ along == pytest.approx(models)
    assert directions(np.zeros((2, 3))).shape == (0, 3)


def test_the_posterior_is_that_of_its_definition() -> None:
    """One model, integrated by brute force over its weight and over the deviation: the same mean and covariance."""
    rng = np.random.default_rng(3)
    root = rng.normal(size=(3, 3))
    precision = root @ root.T + np.eye(3)
    there, mean = rng.normal(size=(1, 3)), rng.normal(size=3)
    slopes = np.array([True, True, False])
    found, covariance, weight, _ = drawn_to(Told(precision, precision @ mean), there, slopes)
    deviations = np.geomspace(1 / 30, 10.0, 14) / math.sqrt(2)
    points, likely = simplex(1)
    spread = np.linalg.inv(precision)
    total, logs, means, spreads = 0.0, [], [], []
    for point, mass in zip(points[:, 0], likely, strict=True):
        for deviation in deviations:
            prior = np.diag([deviation**2, deviation**2, max(deviation**2, 1.0)])
            middle, both = point * there[0], spread + prior
            gap = mean - middle
            logs.append(
                math.log(mass * deviation / (1 + 2 * deviation**2))
                - 0.5 * gap @ np.linalg.solve(both, gap)
                - 0.5 * np.linalg.slogdet(both)[1]
            )
            gain = prior @ np.linalg.inv(both)
            means.append(middle + gain @ gap)
            spreads.append(prior - gain @ prior)
    mass = np.exp(np.array(logs) - max(logs))
    total = mass.sum()
    expected = mass @ np.array(means) / total
    assert found == pytest.approx(expected, abs=1e-9)
    left = np.array(means) - expected
    whole = (np.einsum("i,ijk->jk", mass, np.array(spreads)) + (left * mass[:, None]).T @ left) / total
    assert covariance == pytest.approx(whole, abs=1e-9)
    assert weight[0] == pytest.approx(mass @ np.repeat(points[:, 0], deviations.size) / total)


@pytest.mark.parametrize("length", [1e-8, 1.0, 1e8])
def test_what_is_orthogonal_to_directions_depends_on_no_length(length: float) -> None:
    """Directions that agree are one."""
    given = np.array([[1.0, 2.0, 0.0], [0.0, 1e-9, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    found = _complement(length * given)
    assert found.shape == (4, 2)
    assert found.T @ found == pytest.approx(np.eye(2))
    assert (length * given).T @ found == pytest.approx(np.zeros((3, 2)), abs=1e-8 * length)


def test_what_a_posterior_says_without_its_prior_is_the_likelihood() -> None:
    rng = np.random.default_rng(5)
    root = rng.normal(size=(4, 4))
    told, prior = root @ root.T + 2 * np.eye(4), np.array([1.0, 2.0, 0.5, 3.0])
    score = rng.normal(size=4)
    covariance = np.linalg.inv(told + np.diag(1 / prior))
    found = Told.of(covariance @ score, covariance, np.empty((4, 0)), prior)
    assert found.precision == pytest.approx(told)
    assert found.score == pytest.approx(score)
    still = np.array([[1.0], [1.0], [0.0], [0.0]]) / math.sqrt(2)
    assert Told.of(score, covariance, still).precision @ still == pytest.approx(np.zeros((4, 1)), abs=1e-12)


@pytest.mark.parametrize("wider", [1.0, 1.001, 1.3])
def test_a_posterior_as_wide_as_its_prior_draws_nobody_far_away(wider: float) -> None:
    """A posterior averaged over unknown noise can be wider than its prior: divided by what it says, coefficients were at 60."""
    prior, mean = np.array([1.0, 2.0, 0.5]), np.array([0.4, -0.5, 0.3])
    for tilt in np.linspace(0, np.pi, 7):
        turn = np.array([[np.cos(tilt), -np.sin(tilt), 0], [np.sin(tilt), np.cos(tilt), 0], [0, 0, 1.0]])
        root = np.sqrt(prior)[:, None] * turn
        covariance = root @ np.diag([wider, 0.2, 0.9]) @ root.T
        found = Told.of(mean, covariance, np.empty((3, 0)), prior)
        assert np.linalg.eigvalsh(found.precision).min() > -1e-12
        drawn, _, _, _ = drawn_to(found, np.array([[0.5, 0.0, 0.2]]), np.array([True, True, True]))
        assert np.abs(drawn).max() < 2


# --- what one record moves -----------------------------------------------------------------------------------------------


def _farthest(count: int) -> float:
    """How far two records are apart in a round along several directions, in parts of its reach."""
    from unpooled.linear.layout import MomentsLayout
    from unpooled.linear.standard import StandardRows
    from unpooled.privacy.unit import Adjacency, Unit

    columns = (Column("a", -1, 3), Column("c", categories=("u", "v", "w")), Column("b", 0, 1), Column("y", -4, 4))
    full = StandardRows(MomentsLayout.of(columns, "y", 100), 100, 0.5)
    rng, found, p = np.random.default_rng(count), 0.0, full.layout.size - 1
    for _ in range(150):
        lines = LineRows.of(full, float(rng.choice([0.1, 0.9, 1.4])), count)
        standard = rng.uniform(-1, 1, p + 1), np.exp(rng.uniform(-3, 1, p + 1))
        along = rng.normal(size=count * p) * rng.choice([0.0, 1.0, 50.0])
        start = np.append(along, rng.normal(size=count + 1) * rng.choice([0.0, 3.0, 100.0]))
        parts = []
        for _ in range(2):
            row = {
                "a": rng.uniform(-1, 3),
                "c": str(rng.choice(["u", "v", "w"])),
                "b": rng.uniform(),
                "y": rng.choice([-4.0, 4.0]),
            }
            table = Table({k: np.array([v, v], dtype=object if isinstance(v, str) else float) for k, v in row.items()})
            parts.append(lines.gradient(lines.blocks(table, standard), start) / 2)
        vector = lines.named("base", 1.0, Adjacency.REPLACE, 10)
        assert vector.blocks[0].size == count + 1
        distance = float(np.linalg.norm(parts[0] - parts[1])) / vector.blocks[0].width
        found = max(found, distance / vector.reach[Unit.RECORD].distance)
    return found


@pytest.mark.parametrize("count", [1, 2, 4])
def test_no_record_moves_a_round_of_weights_farther_than_its_reach(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Theorem B.19, for rows of several values; without the cut the search exceeds it."""
    assert 0.85 < _farthest(count) <= 1 + 1e-12
    monkeypatch.setattr(
        standard_rows,
        "cut_residuals",
        lambda residual, square, fine, farthest, longest: np.trunc(residual * fine, out=residual),
    )
    assert _farthest(count) > 1


def _longest_value(steep: float) -> float:
    """The largest value of any row along directions of this length, in parts of its cut."""
    from unpooled.linear.layout import MomentsLayout
    from unpooled.linear.standard import StandardRows

    columns = (Column("a", -1, 3), Column("b", 0, 1), Column("y", -4, 4))
    full = StandardRows(MomentsLayout.of(columns, "y", 100), 100, 0.5)
    rng = np.random.default_rng(0)
    lines, standard = LineRows.of(full, 1e6, 2), (np.zeros(3), np.full(3, 1e-3))
    table = Table({"a": rng.uniform(-1, 3, 50), "b": rng.uniform(0, 1, 50), "y": rng.uniform(-4, 4, 50)})
    start = np.append(steep * rng.normal(size=4), [0.5, 0.5, 0.0])
    rows = [own for own, _, _ in lines._left(lines.blocks(table, standard), start)]
    return max(float(np.abs(own[:, :-1]).max()) for own in rows) / (line_rows._FARTHEST * lines.grid)


def test_no_value_along_a_direction_is_larger_than_its_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """P18: the cut products bound what a record moves whatever its values are, so only the values themselves show that they are cut."""
    assert _longest_value(1e-3) < 1
    assert _longest_value(1e4) == 1
    monkeypatch.setattr(line_rows.np, "clip", lambda values, *_: values)
    assert _longest_value(1e4) > 100


# --- which method serves which budget ------------------------------------------------------------------------------------


def test_methods_and_rounds_follow_from_the_budget() -> None:
    least = WORTH_MORE_THAN_WEIGHTS
    for strong, method in ((least - 1, Method.WEIGHTS), (least + 1, Method.DIRECTION), (59.0, Method.DIRECTION)):
        found = schedule_of(Method.AUTO, strong / 6, 6, 105, known=2)
        assert (found.method, found.known) == (method, 2)
    assert schedule_of(Method.AUTO, 11.0, 6, 105, known=2).method is Method.GRADIENT
    assert schedule_of(Method.AUTO, 41.0, 6, 105, known=2).method is Method.REFINEMENT
    weights = schedule_of(Method.WEIGHTS, 1.0, 6, 105, known=2)
    assert (weights.passes, weights.base, weights.length) == (30, 1.0, 0.0)
    plain, known = (schedule_of(Method.DIRECTION, 5.0, 6, 105, known=k) for k in (0, 3))
    assert [clip / 2 for clip in known.clips] == pytest.approx(plain.clips)
    assert (plain.base, plain.length, plain.passes) == (known.base, known.length, known.passes)


def test_a_study_without_earlier_models_keeps_its_plan() -> None:
    own = PrivateLinearRegression(epsilon=1.0, **OWN)
    assert own.plan(400, 5).hash == PrivateLinearRegression(epsilon=1.0, prior=None, **OWN).plan(400, 5).hash
    assert "prior" not in own.plan(400, 5).study.parameters
    assert "prior" not in PrivateGLM(bounds=(-1, 1), classes=(0, 1)).plan(400, 5).study.parameters


def test_a_plan_spends_its_budget_and_says_what_it_assumes() -> None:
    for epsilon in (0.1, 0.6, 2.0, 8.0):
        plan = PrivateLinearRegression(epsilon=epsilon, prior={"last": GOOD, "other": BAD}, **OWN).plan(300, 5)
        assert 0.99 * epsilon < plan.epsilon(1e-6) <= epsilon
        assert any("The earlier models (last, other) are public" in words for words in plan.statement.assumptions)
        assert lines_of(plan.design.schedule, plan.design.standard)[0].count in {1, 2}


# --- fits ----------------------------------------------------------------------------------------------------------------


@pytest.mark.long_for("3.0-400", "1.0-400")
@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "count"), [(0.1, 400), (0.5, 400), (1.0, 400), (3.0, 400)])
def test_a_good_model_helps_and_a_bad_one_is_left(epsilon: float, count: int) -> None:
    alone, good, bad = (error(prior, epsilon, count) for prior in (None, GOOD, BAD))
    assert good[0] < 1.02 * alone[0] + 0.02
    assert good[1] > bad[1] + 0.1
    assert bad[0] < 1.25 * alone[0] + 0.03
    if epsilon <= 1 and count == 400:
        assert good[0] < alone[0]


@pytest.mark.long
@pytest.mark.slow
def test_of_several_models_the_good_one_gets_the_weight() -> None:
    for epsilon, count in ((0.6, 400), (1.0, 4000)):
        found, weight = error({"good": GOOD, "bad": BAD}, epsilon, count)
        one, _ = error(GOOD, epsilon, count)
        assert weight > 0.6
        assert found < one + 0.05


def test_without_noise_the_rows_speak() -> None:
    X, y = rows(2000, 0)
    own = LinearRegression().fit(X, y)
    for prior in (GOOD, BAD):
        model = PrivateLinearRegression(epsilon=math.inf, prior=prior, **OWN).fit(X, y)
        assert model.coef_ == pytest.approx(own.coef_, abs=0.02)


def test_tables_have_credible_intervals_and_no_tests() -> None:
    X, y = rows(3000, 0)
    model = PrivateLinearRegression(epsilon=2.0, random_state=0, prior=GOOD, **OWN).fit(X, y)
    assert model.method_ == "refinement"
    table = model.summary()
    text = str(table)
    assert "deviation" in text.splitlines()[0]
    assert not {"p", "z", "privacy"} & set(text.splitlines()[0].split())
    assert "intervals are credible" in text
    assert "drawn to earlier models" in text
    assert "'prior'" in text
    assert table.f_test is None
    assert all(math.isnan(line.p_value) and math.isnan(line.statistic) for line in table.terms)
    for line, coef in zip(table.terms, model.coef_, strict=False):
        assert line.estimate == pytest.approx(coef)
    table.figure()
    contrast = model.contrast(["x0 - x1", "x2"])
    assert "joint" not in str(contrast)
    assert math.isnan(contrast.p_value)
    for refused in (model.anova, lambda: model.anova(["x0"])):
        with pytest.raises(UsageError, match="no tests: leave prior out"):
            refused()
    assert "<th>deviation</th>" in table._repr_html_()


@pytest.mark.slow
def test_a_column_that_never_varies_has_no_line() -> None:
    """Of it the release tells nothing, and its interval would be that of the belief."""
    X, y = rows(2000, 0)
    X[:, 3] = 1.5
    for own in ({"epsilon": 4.0}, {"epsilon": 8.0, "parties": 2, "method": "moments"}, {"epsilon": math.inf}):
        model = PrivateLinearRegression(random_state=0, prior=GOOD, **OWN, **own).fit(X, y)
        terms = [line.term for line in model.summary().terms]
        assert "x3" not in terms
        assert {"x0", "x1"} <= set(terms)
        assert np.isnan(model.credible_interval()[3]).all()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "count"), [(1.0, 1500), (3.0, 1500), (10.0, 1000)])
def test_rows_of_different_precision_are_drawn_too(epsilon: float, count: int) -> None:
    """A row of weight w has a variance of 1 / w; what a prior costs and releases is what it is without weights."""
    new, then = rows(4000, 1000)
    losses: dict[str, list[float]] = {"none": [], "good": [], "bad": []}
    held: list[bool] = []
    own = {"epsilon": epsilon, "weights_bounds": (0, 1), **OWN}
    for seed in range(6):
        X, y = rows(count, seed)
        weights = np.random.default_rng(seed).uniform(0.05, 1, count)
        y = X @ SLOPES + 2 + (y - X @ SLOPES - 2) / np.sqrt(weights)
        for name, prior in (("none", None), ("good", GOOD), ("bad", BAD)):
            model = PrivateLinearRegression(prior=prior, random_state=seed, **own).fit(X, y, weights=weights)
            losses[name].append(float(np.mean((model.predict(new) - means(new)) ** 2) / then.var()))
            if name != "none" and hasattr(model, "moments_"):
                lines = {line.term: line for line in model.summary().terms}
                held += [
                    lines[f"x{j}"].conf_low <= slope <= lines[f"x{j}"].conf_high
                    for j, slope in enumerate(SLOPES)
                    if f"x{j}" in lines
                ]
    found = {name: float(np.median(values)) for name, values in losses.items()}
    assert found["good"] < found["none"] + 0.002
    assert found["bad"] < found["none"] + 0.02
    assert not held or np.mean(held) > 0.85
    plans = [PrivateLinearRegression(prior=prior, **own).plan(count, 5) for prior in (GOOD, None)]
    assert plans[0].epsilon(1e-6) == pytest.approx(plans[1].epsilon(1e-6), rel=1e-3)


def means(X: np.ndarray) -> np.ndarray:
    return X @ SLOPES + 2


def test_without_noise_a_weighted_fit_is_that_of_its_rows_whatever_the_prior() -> None:
    X, y = rows(600, 3)
    weights = np.random.default_rng(3).uniform(0.05, 1, 600)
    for prior in (GOOD, BAD):
        model = PrivateLinearRegression(epsilon=math.inf, prior=prior, weights_bounds=(0, 1), **OWN)
        model.fit(X, y, weights=weights)
        exact = LinearRegression().fit(X, y, weights)
        assert model.coef_ == pytest.approx(exact.coef_, abs=0.02)


def test_another_prior_of_the_same_release_is_free() -> None:
    X, y = rows(3000, 0)
    model = PrivateLinearRegression(epsilon=2.0, random_state=0, **OWN).fit(X, y)
    again = PrivateLinearRegression.from_moments(model.moments_, prior=GOOD)
    direct = PrivateLinearRegression(epsilon=2.0, random_state=0, prior=GOOD, **OWN).fit(X, y)
    assert again.drawn_.weights[0].weight > 0.8
    assert np.linalg.norm(again.coef_ - SLOPES) < np.linalg.norm(model.coef_ - SLOPES) + 0.02
    assert direct.coef_ == pytest.approx(again.coef_, abs=0.05)  # their plans differ, and so does their noise
    with pytest.raises(UsageError, match="has a coefficient of z"):
        PrivateLinearRegression.from_moments(model.moments_, prior={"z": 1.0})


@pytest.mark.slow
@pytest.mark.long
def test_intervals_hold_the_slopes_about_as_often_as_they_say() -> None:
    for prior in (GOOD, {**GOOD, "x0": 0.5, "x3": 0.1}, BAD):
        inside = []
        for seed in range(12):
            model = PrivateLinearRegression(epsilon=3.0, random_state=seed, prior=prior, method="refinement", **OWN)
            low, high = model.fit(*rows(1000, seed)).credible_interval().T
            inside += ((low <= SLOPES) & (high >= SLOPES))[~np.isnan(low)].tolist()
        assert 0.85 < np.mean(inside) <= 1.0


@pytest.mark.slow
def test_every_form_of_a_prior_is_the_same_numbers(tmp_path) -> None:
    X, y = rows(400, 0)
    frame = pl.DataFrame({**{f"x{j}": X[:, j] for j in range(5)}})
    public = LinearRegression().fit(X[:100], y[:100])
    numbers = {f"x{j}": float(b) for j, b in enumerate(public.coef_)} | {"(intercept)": float(public.intercept_)}
    own: dict[str, Any] = {"epsilon": 1.0, "random_state": 0, **OWN}
    found = [PrivateLinearRegression(prior=prior, **own).fit(X, y) for prior in (numbers, public, {"prior": numbers})]
    assert len({model.plan_.hash for model in found}) == 1
    assert (found[0].coef_ == found[1].coef_).all()
    earlier = PrivateLinearRegression(epsilon=5.0, **OWN).fit(X, y)
    fit = PrivateLinearRegression(prior=earlier, **own).fit(X, y)
    assert (fit.coef_ == PrivateLinearRegression(prior=earlier.as_prior(), **own).fit(X, y).coef_).all()
    rows_too = PrivateLinearRegression(prior=(X[:200], y[:200]), **own).fit(X, y)
    assert rows_too.drawn_.weights[0].weight > 0.3
    framed = PrivateLinearRegression(
        prior=(frame[:200], y[:200]),
        **own,
    ).fit(frame, y)
    assert framed.coef_ == pytest.approx(rows_too.coef_, abs=0.2)
    fit.save(tmp_path / "fit")
    assert (unpooled.load(tmp_path / "fit").coef_ == fit.coef_).all()
    assert unpooled.load(tmp_path / "fit").drawn_ == fit.drawn_
    assert pickle.loads(pickle.dumps(fit)).drawn_ == fit.drawn_
    with pytest.raises(UsageError, match="is not fitted"):
        clone(PrivateLinearRegression(prior=earlier, **own)).fit(X, y)
    assert (clone(PrivateLinearRegression(prior=earlier.as_prior(), **own)).fit(X, y).coef_ == fit.coef_).all()


def epsilon_of(plan) -> float:
    """What is promised, together with what released the inputs."""
    return plan.statement.epsilon_per_unit[plan.statement.unit]


def test_the_cost_of_an_earlier_release_is_composed_unless_its_people_are_others() -> None:
    X, y = rows(400, 0)
    earlier = PrivateLinearRegression(epsilon=1.0, **OWN).fit(X, y)
    both = PrivateLinearRegression(epsilon=1.0, prior=earlier.as_prior(), **OWN).plan(400, 5)
    assert epsilon_of(both) > 1.2
    others = PrivateLinearRegression(epsilon=1.0, prior=earlier.as_prior().of_others(), **OWN).plan(400, 5)
    assert epsilon_of(others) == pytest.approx(1.0, rel=0.01)
    hollow = PrivateLinearRegression(epsilon=1.0, random_state=0, **OWN).fit(X, y)
    assert not PrivateLinearRegression(epsilon=1.0, prior=hollow, **OWN).plan(400, 5).statement.holds
    assert PrivateLinearRegression(epsilon=1.0, prior=hollow.as_prior().of_others(), **OWN).plan(400, 5).statement.holds


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prior": {"z": 1.0}}, "has a coefficient of z; the coefficients here are x0"),
        ({"prior": {}}, "no coefficient but 0"),
        ({"prior": {"x0": 0.0}}, "no coefficient but 0"),
        ({"prior": {"x0": math.nan}}, "no finite number"),
        ({"prior": {f"m{k}": {"x0": 1.0} for k in range(11)}}, "at most 10 can be weighed"),
        ({"prior": {"x0": "much"}}, "one of the earlier models|maps names of coefficients to numbers"),
        ({"prior": "last year"}, "prior must be earlier models"),
        ({"prior": LinearRegression()}, "is not fitted"),
        ({"prior": (np.zeros((3, 2)), np.zeros(3))}, "a pair \\(X, y\\) of 5 columns"),
        ({"prior": GOOD, "method": "mean"}, "'weights' fits the weights of earlier models alone"),
        ({"prior": GOOD, "focus": ["x0"]}, "prior goes without focus"),
        ({"prior": GOOD, "prior_precision": 1.0}, "prior goes without prior_precision"),
        ({"prior": GOOD, "fit_intercept": False}, "prior goes without fit_intercept=False"),
        ({"prior": GOOD, "site_effects": "fixed"}, "prior goes without site_effects"),
        ({"method": "weights"}, "name some with prior"),
        ({"prior": GOOD, "method": "direction", "max_passes": 20}, "reads the data 48 times"),
        ({"prior": (np.zeros((3, 5)), np.zeros(3)), "formula": "x0 + x1"}, "public rows go without a formula"),
    ],
)
def test_what_cannot_be_meant_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        PrivateLinearRegression(**{**OWN, "epsilon": 1.0, **changes}).plan(400, 5, {"a": 200, "b": 200})


@pytest.mark.long
@pytest.mark.slow
def test_columns_of_several_parties_are_drawn_from_their_joint_release() -> None:
    far: dict[str, list[float]] = {"none": [], "good": [], "bad": []}
    weights: dict[str, list[float]] = {"none": [], "good": [], "bad": []}
    for name, prior in (("none", None), ("good", GOOD), ("bad", BAD)):
        for seed in range(4):
            model = PrivateLinearRegression(parties=2, epsilon=0.5, random_state=seed, method="moments", prior=prior, **OWN)
            model.fit(*rows(2000, seed))
            far[name].append(float(np.linalg.norm(model.coef_ - SLOPES)))
            weights[name].append(0.0 if prior is None else model.drawn_.weights[0].weight)
    assert np.mean(weights["good"]) > 0.5 > np.mean(weights["bad"])
    # Over 40 seeds: .19, .40 and .49, where the deviation of a mean of four is .06.
    assert np.mean(far["good"]) < np.mean(far["none"]) + 0.05
    assert np.mean(far["bad"]) < np.mean(far["none"]) + 0.4
    told = PrivateLinearRegression(parties=2, epsilon=20.0, random_state=0, method="moments", prior=GOOD, **OWN)
    assert "intervals are credible" in str(told.fit(*rows(2000, 0)).summary())
    with pytest.raises(UsageError, match='not with "sines"'):
        PrivateLinearRegression(parties=2, prior=GOOD, method="sines", **OWN).plan(400, 5)
    for method, epsilon, refused in (("auto", 0.3, True), ("moments", 0.3, False), ("auto", 2.0, False)):
        asked = PrivateLinearRegression(parties=2, prior=GOOD, method=method, epsilon=epsilon, **OWN)
        if refused:
            with pytest.raises(UsageError, match="the noise of the response's mean hides how far"):
                asked.plan(400, 5)
        else:
            assert asked.plan(400, 5).design.parameters.method == method


# --- generalised linear models -------------------------------------------------------------------------------------------


def classes(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([8, seed])
    X = rng.normal(size=(count, 5))
    return X, (rng.random(count) < 1 / (1 + np.exp(0.5 - 2 * X @ SLOPES))).astype(int)


LOGISTIC = {f"x{j}": float(2 * b) for j, b in enumerate(SLOPES)} | {"(intercept)": -0.5}


@pytest.mark.long_for("15.0-newton")
@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "method"), [(0.3, "gradient"), (3.0, "gradient"), (15.0, "newton")])
def test_classes_are_drawn_to_earlier_models(epsilon: float, method: str) -> None:
    from sklearn.metrics import log_loss

    new, then = classes(4000, 100)
    bad = {name: -value for name, value in LOGISTIC.items()}
    weights: list[float] = []
    losses: dict[str, list[float]] = {"none": [], "good": [], "bad": []}
    for seed in range(6):
        for name, prior in (("none", None), ("good", LOGISTIC), ("bad", bad)):
            own = {"epsilon": epsilon, "delta": 1e-6, "bounds": (-4, 4), "classes": (0, 1), "random_state": seed}
            model = PrivateGLM(prior=prior, goal="predictions", **own).fit(*classes(400, seed))
            losses[name].append(log_loss(then, model.predict_proba(new)))
            if name == "good":
                assert model.method_ == method
                weights.append(model.drawn_.weights[0].weight)
    found = {name: float(np.mean(values)) for name, values in losses.items()}
    assert np.mean(weights) > 0.3
    assert found["good"] < found["none"] + 0.005
    assert found["bad"] < found["none"] + 0.25  # the truth with the other sign: by itself it costs ten times as much


@pytest.mark.slow
def test_counts_and_amounts_are_drawn_too_and_tables_are_credible() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (4000, 3))
    truth = {"x0": 0.8, "x1": -0.5, "x2": 0.2, "(intercept)": 0.4}
    mean = np.exp(0.4 + X @ [0.8, -0.5, 0.2])
    for family, y, top in (("poisson", rng.poisson(mean), 15), ("gamma", rng.gamma(2.0, mean / 2) + 0.01, 20)):
        own: dict[str, Any] = {"bounds": (-1, 1), "y_bounds": (0 if family == "poisson" else 0.001, top), "random_state": 0}
        for epsilon in (0.3, 4.0):
            model = PrivateGLM(family, epsilon=epsilon, prior=truth, **own).fit(X, y)
            assert model.drawn_.weights[0].weight > 0.5
            assert model.coef_ == pytest.approx([0.8, -0.5, 0.2], abs=0.25)
        assert "intervals are credible" in str(model.summary())
        assert "intervals are credible" in str(model.summary(exponentiate=True))
        public = PrivateGLM(family, epsilon=0.3, prior=(X[:300], y[:300]), **own).fit(X, y)
        assert public.drawn_.weights[0].weight > 0.4
    with pytest.raises(UsageError, match="not with 'direction'"):
        PrivateGLM(bounds=(-1, 1), classes=(0, 1), prior=truth, method="direction").plan(400, 3)
    with pytest.raises(UsageError, match="prior goes without ridge, fit_intercept = false"):
        PrivateGLM(bounds=(-1, 1), classes=(0, 1), prior=truth, ridge=1.0, fit_intercept=False).plan(400, 3)


@pytest.mark.long
@pytest.mark.slow
def test_counts_with_an_exposure_an_offset_or_weights_are_drawn_too() -> None:
    truth, b = {"x0": 0.8, "x1": -0.5, "x2": 0.2, "(intercept)": -1.5}, np.array([0.8, -0.5, 0.2])
    found: dict[str, list[float]] = {}
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X, years = rng.uniform(-1, 1, (4000, 3)), rng.uniform(0.5, 5, 4000)
        y = np.minimum(rng.poisson(years * np.exp(X @ b - 1.5)), 15)
        own: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "bounds": (-1, 1), "y_bounds": (0, 15), "random_state": seed}
        ways = {
            "exposure": ({"exposure_bounds": (0.5, 5)}, {"exposure": years}),
            "offset": ({"offset_bounds": (np.log(0.5), np.log(5))}, {"offset": np.log(years)}),
        }
        for way, (declared, given) in ways.items():
            for name, prior in (("none", None), ("good", truth)):
                model = PrivateGLM("poisson", prior=prior, **declared, **own).fit(X, y, **given)
                off = np.square(model.coef_ - b).sum() + (model.intercept_ + 1.5) ** 2
                found.setdefault(f"{way} {name}", []).append(float(off))
    for way in ways:
        assert np.mean(found[f"{way} good"]) < 0.8 * np.mean(found[f"{way} none"])
        with pytest.raises(UsageError, match="public rows go without exposure and offset"):
            PrivateGLM("poisson", prior=(X[:100], y[:100]), **ways[way][0], **own).plan(400, 3)
    weighted = PrivateGLM("poisson", prior=truth, weights_bounds=(0, 2), **own)
    assert weighted.fit(X, y, weights=rng.choice([0.5, 1.0, 2.0], 4000)).drawn_.weights[0].weight > 0.2


def of_times(count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows of three columns, times up to a year, and whether an event ended them."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (count, 3))
    until = rng.exponential(300 * np.exp(-X @ [0.8, -0.5, 0.2]))
    return X, np.minimum(until, 365), until <= 365


@pytest.mark.long_for("6.0-newton")
@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "method"), [(0.5, "gradient"), (6.0, "newton")])
def test_times_are_drawn_to_log_hazard_ratios(epsilon: float, method: str) -> None:
    truth = np.array([0.8, -0.5, 0.2])
    own: dict[str, Any] = {"epsilon": epsilon, "delta": 1e-6, "bounds": (-1, 1), "y_bounds": (0, 365), "cuts": [90, 180]}
    errors: dict[str, list[float]] = {"none": [], "good": [], "bad": []}
    for seed in range(6):
        X, times, events = of_times(1000, seed)
        for name, slopes in (("none", None), ("good", truth), ("bad", -truth)):
            prior = None if slopes is None else {f"x{j}": float(b) for j, b in enumerate(slopes)}
            model = PrivateGLM("survival", prior=prior, random_state=seed, **own).fit(X, times, event=events)
            errors[name].append(float(np.square(model.coef_ - truth).sum()))
            if name == "good":
                assert model.method_ == method
                assert list(model.as_prior()) == ["x0", "x1", "x2"]
    found = {name: float(np.mean(values)) for name, values in errors.items()}
    assert found["good"] < found["none"]
    assert found["bad"] < 0.2 * 4 * np.square(truth).sum()  # a fifth of what the bad model by itself is off
    if method == "newton":
        assert "intervals are credible" in str(model.summary())
        assert {line.term for line in model.summary().terms} >= {"x0", "log hazard (0, 90]"}


def test_rounds_of_times_tell_nothing_of_how_intervals_differ() -> None:
    """The law of what rounds find: their covariance is that of the slopes and of one level that all intervals share."""
    from unpooled.inference.life_table import LifeTable
    from unpooled.models import load
    from unpooled.models.glm.curvature import Intervals

    own: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "bounds": (-1, 1), "y_bounds": (0, 365), "cuts": [90, 180]}
    design = load("glm").compile(PrivateGLM("survival", random_state=0, **own).plan(400, 2).study).design
    ones = (1.0, 1.0, 1.0)
    shape = Intervals(design, 0.1, (1.0, 1.0), LifeTable((90.0, 180.0, 365.0), ones, ones, 0.0, 0.0, 400.0))
    told = np.linalg.inv(shape.of_rounds(np.array([0.2, 0.3, 0.5, 0.5, 0.5])))
    assert told[:2, :2] == pytest.approx(np.diag([5.0, 1 / 0.3]))
    level = np.array([0, 0, 1, 1, 1]) / math.sqrt(3)
    assert level @ told @ level == pytest.approx(1 / (3 * 0.5))
    assert np.linalg.eigvalsh(told[2:, 2:])[:2] == pytest.approx([0.0, 0.0], abs=1e-5)


@pytest.mark.slow
def test_of_slopes_that_a_step_on_times_does_not_tell_rounds_still_tell() -> None:
    """Correlated columns and a small budget hide directions of the step; a misleading model must not fill them."""
    slopes, asked = np.array([0.7, -0.6, 0.5, -0.4]), {"epsilon": 0.7, "delta": 1e-6, "bounds": (-8, 8)}
    off: dict[str, list[float]] = {"none": [], "bad": []}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = np.sqrt(0.5) * rng.normal(size=(4000, 1)) + np.sqrt(0.5) * rng.normal(size=(4000, 4))
        until = rng.exponential(300 * np.exp(-X @ slopes))
        for name, prior in (("none", None), ("bad", {f"x{j}": float(b) for j, b in enumerate(-slopes)})):
            own = {"y_bounds": (0, 365), "cuts": [90, 180], "random_state": seed, "prior": prior, **asked}
            model = PrivateGLM("survival", method="newton", **own).fit(X, np.minimum(until, 365), event=until <= 365)
            off[name].append(float(np.square(model.coef_ - slopes).sum()))
            hidden = model.summary().not_determined
    assert hidden
    assert np.mean(off["bad"]) < 2 * np.mean(off["none"]) + 0.02


@pytest.mark.long_for("8.0-newton")
@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "method"), [(0.5, "gradient"), (8.0, "newton")])
def test_several_classes_are_drawn_to_coefficients_of_each(epsilon: float, method: str) -> None:
    from sklearn.metrics import log_loss

    slopes, labels = np.array([[0.9, -0.6, 0.2], [-0.5, 0.8, 0.3], [0.0, 0.0, 0.0]]), np.array(["a", "b", "c"])

    def made(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(count, 3))
        p = np.exp(X @ slopes.T + [0.5, 0.0, -0.3]).cumsum(axis=1)
        return X, labels[(rng.random(count)[:, None] * p[:, -1:] > p).sum(axis=1)]

    def named(b: np.ndarray) -> dict[str, float]:
        own = {f"{c}: x{j}": float(b[a, j]) for a, c in enumerate(labels) for j in range(3)}
        return own | {"a: (intercept)": 0.5, "c: (intercept)": -0.3}

    new, then = made(4000, 99)
    own: dict[str, Any] = {"epsilon": epsilon, "delta": 1e-6, "bounds": (-4, 4), "classes": list(labels)}
    losses: dict[str, list[float]] = {"none": [], "good": [], "bad": []}
    for seed in range(5):
        X, y = made(1500, seed)
        for name, b in (("none", None), ("good", slopes), ("bad", -slopes)):
            prior = None if b is None else named(b)
            model = PrivateGLM("multinomial", prior=prior, random_state=seed, **own).fit(X, y)
            losses[name].append(float(log_loss(then, model.predict_proba(new))))
            if name == "good":
                assert model.method_ == method
                assert model.drawn_.weights[0].weight > 0.3
    found = {name: float(np.mean(values)) for name, values in losses.items()}
    assert found["good"] < found["none"] + 0.002
    assert found["bad"] < found["none"] + 0.1  # by itself it costs 1.3 more
    if method == "newton":  # the foot has the terms of the table, against its class
        said = str(model.summary(against="c"))
        assert "intervals are credible" in said
        tables = model._tables()
        kept = tables.pulled(tables.printed(against="c")).terms
        every = {pull.term: pull.value for pull in model.drawn_.terms}
        assert [pull.term for pull in kept[:4]] == ["a: x0", "a: x1", "a: x2", "a: (intercept)"]
        assert kept[0].value == pytest.approx(every["a: x0"] - every["c: x0"])
    for prior in (model, model.as_prior(), (X[:400], y[:400]), LogisticRegression().fit(X[:400], y[:400]), {"b: x0": -1.4}):
        assert PrivateGLM("multinomial", prior=prior, random_state=0, **own).fit(X, y).drawn_.weights
    for wrong, words in (({"x0": 1.0}, "coefficient of x0"), ({"b: x0": 1.0, "(intercept)": 1.0}, "has an intercept")):
        with pytest.raises(UsageError, match=words):
            PrivateGLM("multinomial", prior=wrong, **own).plan(400, 3)


def test_two_classes_of_the_multinomial_family_take_the_models_of_two_classes() -> None:
    """A fit of two classes has one line of coefficients: those of the second class, and none of the first."""
    X, y = classes(600, 0)
    own: dict[str, Any] = {"epsilon": 2.0, "bounds": (-4, 4), "classes": (0, 1), "random_state": 0}
    fitted_ = LogisticRegression().fit(X[:300], y[:300])
    for prior in (fitted_, (X[:300], y[:300])):
        model = PrivateGLM("multinomial", prior=prior, **own).fit(X, y)
        (earlier,) = model.plan_.study.parameters["prior"]
        assert {name.partition(":")[0] for name in earlier["coefficients"]} == {"0", "1"}
        assert model.drawn_.weights[0].weight > 0.3
    (earlier,) = PrivateGLM("multinomial", prior=fitted_, **own).plan(600, 5).study.parameters["prior"]
    assert earlier["coefficients"]["1: x0"] - earlier["coefficients"]["0: x0"] == pytest.approx(fitted_.coef_[0, 0])


def test_times_refuse_public_rows_and_an_intercept() -> None:
    own: dict[str, Any] = {"bounds": (-1, 1), "y_bounds": (0, 365), "cuts": []}
    for prior, words in (
        ((np.zeros((9, 2)), np.ones(9)), "public rows go without times"),
        ({"x0": 1.0, "(intercept)": 1.0}, "has an intercept"),
    ):
        with pytest.raises(UsageError, match=words):
            PrivateGLM("survival", prior=prior, **own).plan(400, 2)


def test_public_rows_of_classes_and_a_fitted_logistic_regression() -> None:
    X, y = classes(600, 0)
    own: dict[str, Any] = {"epsilon": 0.5, "bounds": (-4, 4), "classes": (0, 1), "random_state": 0}
    for prior in ((X[:200], y[:200]), LogisticRegression().fit(X[:200], y[:200])):
        assert PrivateGLM(prior=prior, **own).fit(X, y).drawn_.weights[0].weight > 0.3
    earlier = PrivateGLM(**own).fit(X, y)
    assert list(earlier.as_prior()) == ["x0", "x1", "x2", "x3", "x4", "(intercept)"]


# --- spectra -------------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.slow
def test_spectra_are_drawn_to_public_ones_with_responses() -> None:
    """The public rows that make the basis have responses, too: they are the first earlier model of a small study."""
    from unpooled import Bounds, PrivatePLSRegression
    from unpooled.datasets import make_spectra
    from unpooled.models.pls.spectra import whitened

    public, new = make_spectra(60, kind="corn", seed=100), make_spectra(1000, kind="corn", seed=999)
    basis, reference, norm = whitened(public.spectra)
    own: dict[str, Any] = {
        "basis": basis,
        "reference": reference,
        "bounds": Bounds(norm=norm),
        "y_bounds": (8, 12),
        "delta": 1e-6,
    }
    prior = (public.spectra, public.response)
    for epsilon, method in ((0.4, "auto"), (3.0, "auto"), (3.0, "moments")):
        drawn, alone, weights = [], [], []
        for seed in range(4):
            data = make_spectra(400, kind="corn", seed=seed)
            asked: dict[str, Any] = own | {"epsilon": epsilon, "method": method, "random_state": seed}
            for given, errors in ((prior, drawn), (None, alone)):
                model = PrivatePLSRegression(**asked, prior=given).fit(data.spectra, data.response)
                errors.append(float(np.mean((model.predict(new.spectra) - new.response) ** 2) / new.response.var()))
                weights += [w.weight for w in model.drawn_.weights] if given else []
                assert hasattr(model, "drawn_") is (given is not None)
        assert np.median(drawn) < np.median(alone) + 0.04, (epsilon, method)
        assert np.mean(weights) > 0.6
    earlier = PrivatePLSRegression(**own, epsilon=2.0, random_state=0).fit(data.spectra, data.response)
    again = PrivatePLSRegression(**own, epsilon=1.0, random_state=0, prior=earlier.as_prior().of_others())
    assert again.fit(data.spectra, data.response).drawn_.weights[0].weight > 0.5
    with pytest.raises(UsageError, match="the noise hides how far spectra agree"):
        PrivatePLSRegression(**own, epsilon=0.2, prior=prior).plan(80, 700)
    with pytest.raises(UsageError, match="prior goes with one response"):
        PrivatePLSRegression(**own | {"y_bounds": [(8, 12), (8, 12)], "prior": {"x0": 1.0}}).plan(100, 700)
    with pytest.raises(UsageError, match="prior is not in the paper"):
        published = {"bounds": (-1, 1), "y_bounds": (-1, 1), "basis": "none", "calibration": "published", "n_components": 1}
        PrivatePLSRegression(**published, prior={"x0": 1.0}).plan(100, 5)


# --- a study with categories, missing values and a formula ---------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("model", ["bayes", "glm"])
def test_a_study_names_its_earlier_models_under_its_table(model: str) -> None:
    rng = np.random.default_rng(2)
    n = 900
    age = np.where(rng.random(n) < 0.1, np.nan, rng.uniform(20, 90, n))
    ward = rng.choice(np.array(["a", "b", "c"], dtype=object), n)
    mean = 0.05 * np.nan_to_num(age, nan=55) + 1.0 * (ward == "b")
    if model == "bayes":
        y, column = mean + rng.normal(0, 0.5, n), Column("y", -3, 9)
    else:
        y, column = (
            np.where(rng.random(n) < 1 / (1 + np.exp(3 - mean)), "yes", "no").astype(object),
            Column("y", categories=("no", "yes")),
        )
    columns = (Column("age", 18, 100, missing="indicator"), Column("ward", categories=("a", "b", "c")), column)
    tables = {
        name: Table({"age": age[part], "ward": ward[part], "y": y[part]})
        for name, part in (("north", slice(400)), ("south", slice(400, n)))
    }
    cards = tuple(Card(name, table.n_rows, columns) for name, table in tables.items())
    prior = [
        {"name": "2024", "coefficients": {"age": 0.05, "ward = b": 1.0}, "intercept": 0.0 if model == "bayes" else -3.0},
        {"name": "2023", "coefficients": {"ward = c": -2.0}, "intercept": 1.0},
    ]
    row = load(model)
    for epsilon in (0.3, 8.0):
        study = Study(
            model, cards, epsilon, 1e-5, parameters={"response": "y", "prior": prior}, simulation_seed=3, derived=()
        )
        plan = row.compile(study)
        result = run_in_process(row, plan, tables, Policy.in_process(), lambda _: row).outcome.result
        text = row.table(plan, result)
        assert "drawn to earlier models" in text
        assert "'2024'" in text
        assert fitted(plan, result).predict(pl.DataFrame({"age": [50.0, None], "ward": ["a", "b"]}, strict=False)).shape == (
            2,
        )
    assert "intervals are credible" in text
    assert not any(term.p_value for term in row.reading.terms(plan, result))
    assert result.drawn.weights[0].weight > result.drawn.weights[1].weight
    with pytest.raises(UsageError, match="ward = z"):
        row.compile(
            Study(
                model,
                cards,
                1.0,
                1e-5,
                parameters={"response": "y", "prior": [{"name": "x", "coefficients": {"ward = z": 1.0}}]},
                derived=(),
            )
        )


def test_a_formula_takes_coefficients_of_its_own_terms() -> None:
    X, y = rows(3000, 0)
    frame = pl.DataFrame({f"x{j}": X[:, j] for j in range(5)} | {"y": y})
    own: dict[str, Any] = {
        "epsilon": 3.0,
        "random_state": 0,
        "bounds": {f"x{j}": (-4, 4) for j in range(5)},
        "y_bounds": (-2, 6),
    }
    model = PrivateLinearRegression(prior={"x0": 0.6, "x1:x2": 0.1}, **own).fit(frame, formula="y ~ x0 + x1 * x2")
    assert model.drawn_.weights[0].name == "prior"
    assert "x1:x2" in model.as_prior()


def test_coordinates_keep_predictions() -> None:
    model = PrivateLinearRegression(epsilon=2.0, random_state=0, **OWN).fit(*rows(2000, 0))
    frame, layout = model.moments_.frame, model.moments_.layout
    earlier = EarlierModel("one", {f"x{j}": float(b) for j, b in enumerate(SLOPES)}, 2.0)
    there = in_coordinates(rows_of([earlier], layout.names, intercept=True), frame, intercept=True)
    own, constant = frame.of_own_units(there[0], intercept=True)
    assert own == pytest.approx(SLOPES)
    assert constant == pytest.approx(2.0)


@pytest.mark.slow
def test_an_outlook_leaves_earlier_models_out() -> None:
    """Before the data nobody knows how good they are, and made-up rows would know nothing of them."""
    for asked in ({}, {"method": "weights"}):
        found, plain = (
            PrivateLinearRegression(epsilon=0.3, prior=prior, **OWN, **more).outlook(400, 5, quick=True)
            for prior, more in ((GOOD, asked), (None, {}))
        )
        assert found.error == plain.error
        assert "earlier models left out" in str(found)
        assert "earlier models" not in str(plain)
    assert "left out" in str(PrivateGLM(prior=GOOD, bounds=(-4, 4), classes=(0, 1)).outlook(400, 5, quick=True))


def test_no_warning_is_missed() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PrivateLinearRegression(epsilon=0.2, random_state=0, prior=GOOD, goal="predictions", **OWN).fit(*rows(300, 0))


def test_public_rows_that_lack_a_class_are_refused() -> None:
    """The coefficients of such a class would be 0, which is a belief that nobody stated."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (60, 2)), np.repeat([0.0, 1.0, 2.0], 20)
    asked = {"epsilon": 3.0, "delta": 1e-6, "bounds": (-1, 1), "classes": (0, 1, 2), "random_state": 0}
    with pytest.raises(UsageError, match="none of the class 2"):
        PrivateGLM("multinomial", prior=(X[:40], y[:40]), **asked).fit(X, y)
    assert PrivateGLM("multinomial", prior=(X, y), **asked).fit(X, y).drawn_ is not None
