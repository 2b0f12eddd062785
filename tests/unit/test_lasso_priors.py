"""Earlier models that a LASSO is drawn to: which columns they keep, the mixture, what it does to predictions, its forms, and what is refused."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression

import unpooled
from unpooled import PrivateLasso, PrivateLassoClassifier
from unpooled.errors import UsageError
from unpooled.inference.priors import DrawnTo, Weight, words
from unpooled.kernels.l1_ball import TwoClasses, logistic_in_ball
from unpooled.models import load
from unpooled.models.lasso.frank_wolfe_fit import render
from unpooled.models.lasso.moments_fit import Agreement, Mixture, OwnMoments, in_ball, penalised
from unpooled.models.lasso.moments_rows import CHOOSE, WORTH, WORTH_DRAWN, known_columns, strength

pytestmark = pytest.mark.filterwarnings("ignore::unpooled.UtilityWarning")
SIZE, RELEVANT = 24, (1, 5, 12, 18, 22)
SLOPES = np.zeros(SIZE)
SLOPES[list(RELEVANT)] = 0.5, -0.4, 0.3, 0.6, -0.3
GOOD = {f"x{j}": float(SLOPES[j] * (1 + 0.15 * (-1) ** k)) for k, j in enumerate(RELEVANT)}
USELESS = {f"x{j}": 0.5 * (-1) ** k for k, j in enumerate((0, 4, 11, 17, 21))}
BOUNDS: dict[str, Any] = {"bounds": (-1, 1), "y_bounds": (-2, 4), "delta": 1e-6}


def rows(count: int, seed: int = 0, common: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of columns that share a part, and their responses."""
    rng = np.random.default_rng([3, seed])
    own, shared = rng.uniform(-1, 1, (count, SIZE)), rng.uniform(-1, 1, (count, 1))
    X = (1 - common) * own + common * shared
    return X, 1 + X @ SLOPES + 0.3 * rng.normal(size=count)


def errors(
    prior: object, seeds: int = 6, rows_of: int = 2000, common: float = 0.0, **more: Any
) -> tuple[float, float, float]:
    """Return the mean errors of slopes over the variance of y, with earlier models and without them of the same release, and the first one's weight."""
    new, then = rows(4000, 1000, common)
    found = []
    for seed in range(seeds):
        model = PrivateLasso(**{"prior": prior, "epsilon": 1.0, "random_state": seed, **BOUNDS, **more})
        model.fit(*rows(rows_of, seed, common))
        alone = model.coef_.copy()
        for pull in model.drawn_.terms:
            alone[int(pull.term[1:])] = pull.alone
        both = (np.var(new @ (slopes - SLOPES)) / then.var() for slopes in (model.coef_, alone))
        found.append((*both, model.drawn_.weights[0].weight))
    drawn, without, weight = np.array(found).mean(axis=0).tolist()
    return drawn, without, weight


# --- the mixture ---------------------------------------------------------------------------------------------------------


def squares(gram: np.ndarray, cross: np.ndarray, _: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, float]:
    return in_ball(gram, cross, scale, 1.0), 0.7


def heard(gram: np.ndarray, cross: np.ndarray, noise: float = 0.0) -> Agreement:
    return Agreement(np.eye(len(cross)), gram, cross, gram, noise, 0.0)


@pytest.mark.slow
def test_a_mixture_is_the_best_one_of_the_models_and_the_fit_has_what_is_left() -> None:
    """Against a search over all weights, of two models and a fit, where nothing is noise."""
    rng = np.random.default_rng(1)
    root = rng.normal(size=(5, 5))
    gram, truth = root @ root.T / 5 + np.eye(5), rng.normal(size=5)
    cross = gram @ truth
    own, models = 0.5 * truth, np.vstack([truth + 0.1 * rng.normal(size=5), rng.normal(size=5)])
    found = Mixture.of(own, models, [heard(gram, cross)], squares)
    steps = np.linspace(0, 1, 101)
    grid = np.array([[a, b, c] for a in steps for b in steps for c in steps if a + b + c <= 1 + 1e-9])
    mixed = grid @ np.vstack([own, models])
    best = grid[np.argmin(np.einsum("ij,jk,ik->i", mixed, gram, mixed) / 2 - mixed @ cross)]
    assert found.weights == pytest.approx(best[1:], abs=0.02)
    assert found.mixed == pytest.approx((1 - found.weights.sum()) * own + found.weights @ models)
    assert found.constant == 0.7


def test_what_goes_against_the_response_has_no_weight() -> None:
    gram, truth = np.eye(3), np.array([0.5, -0.3, 0.2])
    found = Mixture.of(truth, -truth[None], [heard(gram, truth)], squares)
    assert found.weights.tolist() == [0.0]
    assert (found.mixed == truth).all()
    nothing = Mixture.of(np.zeros(3), -truth[None], [heard(gram, truth)], squares)
    assert nothing.weights.tolist() == [0.0]
    assert not nothing.mixed.any()


@pytest.mark.slow
def test_a_fit_that_learnt_noise_is_known_to_have_learnt_it() -> None:
    """Theorem L.11: over many draws its product with the noise is the estimate, for a LASSO and for least squares of noise and a little signal."""
    rng, size, noise = np.random.default_rng(2), 20, 0.1
    gram = 0.6 * np.eye(size) + 0.4
    signal = gram @ np.append([0.3, -0.2], np.zeros(size - 2))
    for penalty in (0.0, 0.05):
        learnt, true = [], []
        for _ in range(300):
            e = noise * rng.normal(size=size)
            x = penalised(gram, signal + e, np.full(size, penalty), np.ones(size))
            learnt.append(Agreement(np.eye(size), gram, signal + e, gram, noise, penalty).learnt(x))
            true.append(float(x @ e))
        assert np.mean(learnt) == pytest.approx(np.mean(true), rel=0.1)
    assert heard(gram, signal, noise).learnt(np.zeros(size)) == 0.0


def test_an_earlier_model_as_good_as_the_truth_beats_a_fit_that_learnt_noise() -> None:
    """Without the correction the fit would always look better, for it is as near as it can be to the products that it was made from."""
    rng, size, noise = np.random.default_rng(4), 20, 0.15
    gram, truth = np.eye(size), np.append([0.5, -0.4], np.zeros(size - 2))
    corrected, blind = [], []
    for _ in range(50):
        cross = truth + noise * rng.normal(size=size)
        x = penalised(gram, cross, np.full(size, 0.05), np.ones(size))
        corrected.append(
            Mixture.of(x, truth[None], [Agreement(np.eye(size), gram, cross, gram, noise, 0.05)], squares).weights[0]
        )
        blind.append(Mixture.of(x, truth[None], [heard(gram, cross)], squares).weights[0])
    assert np.mean(corrected) > 0.7
    assert np.mean(blind) < 0.4


def test_directions_that_other_parties_may_speak_of_have_less_weight() -> None:
    size = 6
    gram = 0.5 * np.eye(size) + 0.5
    own = OwnMoments(gram, np.linspace(-0.3, 0.3, size), 1e-3, 1e-3)
    apart, alone = (Agreement.of_party(own, 0.01, size, alone=alone) for alone in (False, True))
    assert alone.weigh == pytest.approx(np.eye(size))
    common, other = np.ones(size) / math.sqrt(size), np.array([1, -1, 0, 0, 0, 0]) / math.sqrt(2)
    # One direction varies 3.5 times as much as a mean one: 1 / (1 + 4 * 2.5^2).
    assert common @ apart.weigh @ common == pytest.approx(1 / 26)
    assert other @ apart.weigh @ other == pytest.approx(1.0)


def test_two_classes_have_the_weight_of_the_model_that_made_them() -> None:
    rng, size = np.random.default_rng(5), 8
    X = rng.normal(size=(20_000, size))
    truth = np.append([1.0, -0.8], np.zeros(size - 2))
    y = np.where(rng.random(len(X)) < 1 / (1 + np.exp(1 - X @ truth)), 1.0, -1.0)
    share, gram, cross = float((y > 0).mean()), np.cov(X.T), X.T @ (y - y.mean()) / len(X)
    at = heard(gram, cross, 0.01)

    def solve(g: np.ndarray, c: np.ndarray, _: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, float]:
        return logistic_in_ball(TwoClasses.of(g, c, share), scale, 1.0)

    found = Mixture.of(0.4 * truth, np.vstack([truth, truth[::-1]]), [at], solve)
    assert found.weights == pytest.approx([0.95, 0.0], abs=0.1)
    assert found.constant == pytest.approx(-1.0, abs=0.1)


# --- which columns are kept ----------------------------------------------------------------------------------------------


def test_half_of_the_columns_that_are_kept_are_those_that_matter_most() -> None:
    """Of two models of any scale, the part of all that a model says counts; the others are picked, with the budget of all picks."""
    columns = {f"x{j}": ((0, 10) if j == 3 else (-1, 1)) for j in range(60)}
    told = {"x3": 0.3, "x5": 1.0, "x7": -0.9, "x40": 0.2, "x50": 0.001}
    own: dict[str, Any] = {"bounds": columns, "y_bounds": (-2, 2), "epsilon": 1.0, "delta": 1e-6, "parties": 2}
    alone, drawn = (PrivateLasso(prior=prior, **own).plan(1100, 60) for prior in (None, told))
    assert alone.design.known == {}
    assert drawn.design.kept == alone.design.kept == {"party0": 6, "party1": 6}
    assert drawn.design.known == {"party0": (3, 5, 7), "party1": (10, 20)}
    again = {"a": told, "b": {name: 1000 * value for name, value in told.items()}}
    assert (
        known_columns(drawn.study, PrivateLasso(prior=again, **own).plan(1100, 60).design.parameters.prior)
        == drawn.design.known
    )
    for plan, counts in ((alone, [6, 6]), (drawn, [3, 4])):
        picks = [release for release in plan.releases if release.name.startswith(CHOOSE)]
        assert [release.count for release in picks] == counts
        assert 0.95 < plan.epsilon(1e-6) <= 1.0
    fewer, more = (dict(plan.releases[1].mechanism.epsilon)["attribute"] for plan in (drawn, alone))
    assert fewer == pytest.approx(more * math.sqrt(6 / 4), rel=1e-6)


def test_columns_that_nobody_kept_follow_the_earlier_model_too() -> None:
    X, y = rows(1400)
    every = {f"x{j}": float(b) for j, b in enumerate(SLOPES + 0.02)}
    model = PrivateLasso(2, epsilon=0.8, prior=every, random_state=1, **BOUNDS).fit(X, y)
    assert model.plan_.design.kept == {"party0": 6, "party1": 6}
    weight = model.drawn_.weights[0].weight
    assert weight > 0.5
    assert np.count_nonzero(model.coef_) == SIZE
    quiet = [pull for pull in model.drawn_.terms if pull.alone == 0]
    assert len(quiet) >= SIZE - 12
    for pull in quiet:
        assert pull.value == pytest.approx(weight * every[pull.term])
    means = X.mean(axis=0) @ model.coef_ + model.intercept_
    assert means == pytest.approx(y.mean(), abs=0.15)


def test_a_study_without_earlier_models_keeps_its_plan() -> None:
    own: dict[str, Any] = {"epsilon": 1.0, **BOUNDS}
    for kind in (own, own | {"method": "joint", "unit": "record"}):
        plan = PrivateLasso(**kind).plan(4000, SIZE)
        assert "prior" not in plan.study.parameters
        assert plan.hash == PrivateLasso(prior=None, **kind).plan(4000, SIZE).hash
        drawn = PrivateLasso(prior=GOOD, **kind).plan(4000, SIZE)
        assert drawn.hash != plan.hash
        assert any("The earlier models (prior) are public" in said for said in drawn.statement.assumptions)


# --- fits ----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow_for("joint", "values")
@pytest.mark.parametrize(
    "more",
    [
        {"parties": 2},
        {"parties": 3, "common": 0.3},
        {"parties": 1, "unit": "record"},
        {"parties": 2, "unit": "record", "method": "joint"},
    ],
    ids=["values", "columns in common", "one party", "joint"],
)
def test_a_good_model_helps_and_a_useless_one_does_no_harm(more: dict[str, Any]) -> None:
    good, useless = errors(GOOD, **more), errors(USELESS, **more)
    assert good[0] < 0.7 * good[1]
    assert good[2] > 0.5
    # Joint moments have noise that no seed fixes: most differences are below 0.01, and a rare one is not.
    drawn_anew = more.get("method") == "joint"
    assert useless[0] < useless[1] + (0.08 if drawn_anew else 0.02)
    assert useless[2] < (0.4 if drawn_anew else 0.15)


@pytest.mark.slow
def test_of_several_models_the_good_one_gets_the_weight() -> None:
    one, both = errors(GOOD), errors({"good": GOOD, "useless": USELESS})
    assert both[2] > 0.6
    assert both[0] < one[0] + 0.02


def test_without_noise_the_rows_speak() -> None:
    X, y = rows(3000)
    least = LinearRegression().fit(X, y)
    for prior in (GOOD, USELESS):
        for method in ("moments", "joint"):
            unit = "record" if method == "joint" else "attribute"
            model = PrivateLasso(
                1 if method == "moments" else 2, epsilon=math.inf, prior=prior, method=method, unit=unit, **BOUNDS
            )
            assert model.fit(X, y).coef_ == pytest.approx(least.coef_, abs=0.06)


@pytest.mark.long_for("joint")
@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "joint"])
def test_classes_are_drawn_too(method: str) -> None:
    from sklearn.metrics import log_loss

    rng = np.random.default_rng(0)
    X, new = rng.uniform(-1, 1, (2, 4000, SIZE))
    y, then = (np.where(rng.random(len(part)) < 1 / (1 + np.exp(1 - 4 * part @ SLOPES)), "yes", "no") for part in (X, new))
    found, weights = dict[str, float](), dict[str, float]()
    told = {name: 4 * value for name, value in GOOD.items()} | {"(intercept)": -1.0}
    own: dict[str, Any] = {"bounds": (-1, 1), "classes": ("no", "yes"), "unit": "record", "delta": 1e-6, "method": method}
    public = (X[:400], y[:400])
    for name, prior in {"none": None, "good": told, "against": {k: -v for k, v in told.items()}, "rows": public}.items():
        losses, drawn = [], []
        for seed in range(5):  # joint sums draw anew in every run
            model = PrivateLassoClassifier(prior=prior, epsilon=0.7, random_state=seed, **own).fit(X, y)
            losses.append(log_loss(then, model.predict_proba(new), labels=["no", "yes"]))
            drawn.append(0.0 if prior is None else model.drawn_.weights[0].weight)
        found[name], weights[name] = float(np.median(losses)), float(np.median(drawn))
    assert found["good"] < found["none"] - 0.01
    # Plans of other studies have other noise.
    assert found["rows"] < found["none"] + 0.01
    assert found["against"] < found["none"] + 0.06
    assert weights["good"] > 0.3 > weights["against"]


# --- what a user passes and sees -----------------------------------------------------------------------------------------


def test_every_form_of_a_prior_is_the_same_numbers(tmp_path: Any) -> None:
    X, y = rows(1500)
    public = LinearRegression().fit(X[:200], y[:200])
    numbers = {f"x{j}": float(b) for j, b in enumerate(public.coef_)} | {"(intercept)": float(public.intercept_)}
    own: dict[str, Any] = {"epsilon": 1.0, "random_state": 0, **BOUNDS}
    found = [PrivateLasso(prior=prior, **own).fit(X, y) for prior in (numbers, public, {"prior": numbers})]
    assert len({model.plan_.hash for model in found}) == 1
    assert (found[0].coef_ == found[1].coef_).all()
    assert PrivateLasso(prior=(X[:400], y[:400]), **own).fit(X, y).drawn_.weights[0].weight > 0.3
    earlier = PrivateLasso(epsilon=5.0, **BOUNDS).fit(X, y)
    fit = PrivateLasso(prior=earlier, **own).fit(X, y)
    assert (fit.coef_ == PrivateLasso(prior=earlier.as_prior(), **own).fit(X, y).coef_).all()
    assert (clone(PrivateLasso(prior=earlier.as_prior(), **own)).fit(X, y).coef_ == fit.coef_).all()
    with pytest.raises(UsageError, match="is not fitted"):
        clone(PrivateLasso(prior=earlier, **own)).fit(X, y)
    fit.save(tmp_path / "fit")
    assert unpooled.load(tmp_path / "fit").drawn_ == fit.drawn_ == pickle.loads(pickle.dumps(fit)).drawn_
    assert (unpooled.load(tmp_path / "fit").coef_ == fit.coef_).all()
    again = fit.set_params(prior=None).fit(X, y)
    assert not hasattr(again, "drawn_")
    assert "drawn to" not in render(load("lasso").reading.types[0]((), 0.0, (), (), ()))


def test_the_cost_of_an_earlier_release_is_composed_unless_its_people_are_others() -> None:
    X, y = rows(1500)
    earlier = PrivateLasso(epsilon=1.0, **BOUNDS).fit(X, y)

    def promised(prior: object) -> float:
        statement = PrivateLasso(epsilon=1.0, prior=prior, **BOUNDS).plan(1500, SIZE).statement
        assert statement.holds
        return statement.epsilon_per_unit[statement.unit]

    assert promised(earlier.as_prior()) > 1.2
    assert promised(earlier.as_prior().of_others()) == pytest.approx(1.0, rel=0.05)
    hollow = PrivateLasso(epsilon=1.0, random_state=0, **BOUNDS).fit(X, y)
    assert not PrivateLasso(epsilon=1.0, prior=hollow, **BOUNDS).plan(1500, SIZE).statement.holds


@pytest.mark.parametrize("method", ["moments", "joint"])
def test_categories_and_units_are_the_data_s_own(method: str) -> None:
    """A model in other units is another model; with the same columns in other units, the fit is the same."""
    rng = np.random.default_rng(1)
    age, ward = rng.uniform(20, 80, 3000), rng.choice(["a", "b", "c"], 3000)
    dose, other = rng.uniform(0, 5, 3000), rng.uniform(0, 1, 3000)
    y = 0.5 * age + 6 * (ward == "b") - 2 * dose + rng.normal(0, 3, 3000)
    frame = pl.DataFrame({"age": age, "ward": ward, "dose": dose, "other": other})
    told = {"age": 0.45, "ward = b": 7.0, "dose": -2.2, "(intercept)": 3.0}
    bounds: dict[str, Any] = {"age": (0, 100), "ward": ["a", "b", "c"], "dose": (0, 5), "other": (0, 1)}
    own: dict[str, Any] = {
        "parties": {"north": ["age", "ward"], "south": ["dose", "other"]},
        "y_bounds": (-10, 60),
        "epsilon": math.inf,
        "delta": 1e-6,
        "unit": "record" if method == "joint" else "attribute",
        "method": method,
        "random_state": 0,
    }
    model = PrivateLasso(prior=told, bounds=bounds, **own).fit(frame, y)
    assert model.drawn_.weights[0].weight > 0.1
    assert {pull.term for pull in model.drawn_.terms} <= {"age", "ward = a", "ward = b", "ward = c", "dose", "other"}
    months = PrivateLasso(prior=told | {"age": 0.45 / 12}, bounds=bounds | {"age": (0, 1200)}, **own)
    months.fit(frame.with_columns(age=12 * pl.col("age")), y)
    assert months.drawn_.weights[0].weight == pytest.approx(model.drawn_.weights[0].weight, abs=0.005)
    assert 12 * months.coef_[0] == pytest.approx(model.coef_[0], rel=0.002)


def test_a_result_says_what_drew_it() -> None:
    X, y = rows(2000)
    fit = PrivateLasso(epsilon=2.0, prior={"2024": GOOD}, random_state=0, **BOUNDS).fit(X, y)
    drawn = fit.drawn_
    assert [weight.name for weight in drawn.weights] == ["2024"]
    assert drawn.weights[0].deviation is None
    lines = words(drawn)
    assert lines[0].endswith(f"'2024' {drawn.weights[0].weight:.2f}")
    assert "+-" not in lines[0]
    assert "how far they drew each term: " in lines[1]
    coefficients = dict(zip((f"x{j}" for j in range(SIZE)), fit.coef_.tolist(), strict=True))
    assert all(pull.value == pytest.approx(coefficients[pull.term]) for pull in drawn.terms)
    assert all(pull.value != pull.alone for pull in drawn.terms)
    assert "(+-0.10)" in words(DrawnTo((Weight("a", 0.5, 0.1),), ()))[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"prior": {"z": 1.0}}, "has a coefficient of z; the coefficients here are x0"),
        ({"prior": {}}, "no coefficient but 0"),
        ({"prior": {"x0": math.nan}}, "no finite number"),
        ({"prior": {f"m{k}": {"x0": 1.0} for k in range(11)}}, "at most 10 can be weighed"),
        ({"prior": "last year"}, "prior must be earlier models"),
        ({"radius": 1.0}, "prior goes without radius_in_half_ranges"),
        ({"radius": 1.0, "method": "joint", "unit": "record"}, "prior goes without radius_in_half_ranges"),
        ({"rounds": 10}, 'prior goes with method = "moments" or "joint"'),
        ({"method": "frank-wolfe"}, 'prior goes with method = "moments" or "joint"'),
        ({"calibration": "published"}, "prior is not in the paper|method is not in the paper"),
        ({"method": "joint", "unit": "record", "prior": {"z": 1.0}}, "has a coefficient of z"),
        ({"epsilon": 0.01}, "the noise hides how far the rows agree with earlier models"),
    ],
)
@pytest.mark.filterwarnings("ignore:radius is in half ranges")
def test_what_cannot_be_meant_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        PrivateLasso(**{"epsilon": 1.0, "prior": GOOD, **BOUNDS, **changes}).plan(4000, SIZE)


@pytest.mark.slow
def test_earlier_models_are_weighed_where_columns_alone_are_not_worth_it() -> None:
    """Between two thresholds a study with earlier models releases moments, and one without them the mean."""
    between = 0
    for epsilon in (0.2, 0.25, 0.3, 0.35, 0.4):
        alone = PrivateLasso(epsilon=epsilon, **BOUNDS).plan(1500, SIZE)
        strong = strength(alone.study) / math.sqrt(max(alone.design.kept.values()))
        assert alone.design.mean_only == (strong < WORTH)
        if strong >= WORTH_DRAWN:
            between += alone.design.mean_only
            assert not PrivateLasso(epsilon=epsilon, prior=GOOD, **BOUNDS).plan(1500, SIZE).design.mean_only
    assert between
    outlook = PrivateLasso(epsilon=1.0, prior=GOOD, **BOUNDS).outlook(4000, SIZE)
    assert "earlier models left out" in str(outlook)
