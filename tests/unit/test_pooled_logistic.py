"""Logistic regression by rounds over several sites: chosen before data, never silently, and as good however the rows are split."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from world import sized

import unpooled
from unpooled import Bounds, PrivateLogisticRegression
from unpooled.errors import UsageError

DELTA: dict[str, Any] = {"delta": 1e-5}


def made(**changes: Any) -> PrivateLogisticRegression:
    return PrivateLogisticRegression(**{"bounds": (-4, 4), "classes": ("ill", "well"), "random_state": 0, **changes})


def data(n: int, columns: int, seed: int = 0, signal: float = 1.0):
    rng = np.random.default_rng(seed)
    X, b = rng.normal(size=(n, columns)).clip(-4, 4), rng.normal(size=columns)
    u = X @ b
    return X, np.where(rng.random(n) < 1 / (1 + np.exp(-u * signal / u.std())), "well", "ill")


def model_of(rows: int = 2000, columns: int = 5, sites: dict[str, int] | None = None, **changes: Any) -> str:
    return made(**changes).plan(rows, columns, sites).study.model


def test_the_way_is_chosen_before_data_and_a_pure_promise_stays_pure() -> None:
    assert model_of() == "stacking"
    assert model_of(**DELTA) == "glm"
    assert model_of(100, 40, **DELTA) == "glm"  # no slopes can be learnt, and rounds then tell the base rate
    assert model_of(epsilon=math.inf) == "stacking"
    assert model_of(method="perturbation", **DELTA) == "stacking"
    assert model_of(sites={"a": 50, "b": 50}, **DELTA) == "glm"
    for own in ({"penalty": 0.01}, {"noise": "gaussian"}, {"prior": [0.0] * 6}):
        assert made(**own, **DELTA).plan(2000, 5).study.model == "stacking", own
    for own in ({"rows": "unit"}, {"bounds": Bounds(norm=2.0)}):
        assert made(**own, **DELTA).plan(2000, 5).study.parameters["method"] == "moments", own
        assert made(**own).plan(2000, 5).study.model == "stacking", own
    assert model_of(calibration="published") == "stacking"
    with pytest.raises(UsageError, match="delta is not in the paper"):
        model_of(calibration="published", **DELTA)
    plan = made(epsilon=0.7, **DELTA).plan(2000, 5)
    assert 0.69 < plan.epsilon(1e-5) <= 0.7


@pytest.mark.parametrize(
    ("words", "changes", "several"),
    [
        ("method is one of", {"method": "newton"}, False),
        ("rounds need a delta", {"method": "rounds"}, False),
        ("rounds need a delta", {}, True),
        ("moments need a delta", {"rows": "unit"}, True),
        ("penalty, rows: not for method 'rounds'", {"method": "rounds", "penalty": 0.1, "rows": "unit", **DELTA}, False),
        ("noise: not for method 'moments'", {"method": "moments", "noise": "gaussian", **DELTA}, False),
        ("prior: for the rows of one party alone", {"prior": [0.0] * 6, **DELTA}, True),
        ("perturbation: for the rows of one party alone", {"method": "perturbation"}, True),
    ],
)
def test_what_does_not_go_together_is_refused(words: str, changes: dict[str, Any], several: bool) -> None:
    with pytest.raises(UsageError, match=words):
        made(**changes).plan(1000, 5, {"a": 500, "b": 500} if several else None)


def test_without_noise_rounds_are_scikit_learns_fit_of_all_rows() -> None:
    X, y = data(500, 4)
    ours = made(epsilon=math.inf, method="rounds").fit(X, y, sites=np.arange(500) % 3)
    theirs = LogisticRegression(C=math.inf, tol=1e-12, max_iter=10_000).fit(X, y)
    assert ours.coef_ == pytest.approx(theirs.coef_, abs=1e-6)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, abs=1e-6)
    assert (ours.predict(X) == theirs.predict(X)).all()
    assert ours.to_sklearn().predict_proba(X) == pytest.approx(ours.predict_proba(X))


@pytest.mark.slow
def test_a_fit_by_rounds_has_a_summary_and_comes_back_as_it_was(tmp_path) -> None:
    X, y = data(4000, 3)
    model = made(epsilon=3.0, **DELTA).fit(X, y, sites=np.arange(4000) % 2)
    assert model.method_ == "rounds"
    assert model.statement_.holds is False  # a simulation
    assert [t.term for t in model.summary().terms] == ["x0", "x1", "x2", "(intercept)"]
    model.save(tmp_path / "m")
    back = unpooled.load(tmp_path / "m")
    assert (back.predict_proba(X) == model.predict_proba(X)).all()
    assert back.summary() == model.summary()
    assert not hasattr(model, "released_")


def test_one_estimator_fits_either_way_and_shows_nothing_of_the_other() -> None:
    X, y = data(2000, 3)
    model = made(**DELTA).fit(X, y)
    assert (model.method_, hasattr(model, "released_")) == ("rounds", False)
    model.set_params(method="perturbation").fit(X, y)
    assert (model.method_, hasattr(model, "released_")) == ("perturbation", True)
    with pytest.raises(UsageError, match="has no standard errors"):
        model.summary()
    model.set_params(method="rounds").fit(X, y)
    assert not hasattr(model, "released_")
    one = made(**DELTA).fit(X, y, sites=["only"] * 2000)
    assert one.method_ == "rounds"
    assert [card.name for card in one.plan_.study.parties] == ["all"]


def texts(n: int, columns: int, seed: int):
    """Rows of length 1 with a falling spectrum, as of texts."""
    rng = np.random.default_rng(seed)
    deviations = np.arange(1, columns + 1) ** -0.5
    X = rng.normal(size=(n, columns)) * deviations
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    u = X @ (rng.normal(size=columns) / np.sqrt(deviations))
    return X, np.where(rng.random(n) < 1 / (1 + np.exp(-2 * u / u.std())), "well", "ill")


@pytest.mark.slow_for("unit")
@pytest.mark.parametrize("rows", ["unit", "shorten"])
def test_moments_say_the_direction_and_rounds_its_length(rows: str, tmp_path) -> None:
    X, y = texts(3000, 8, 1)
    bounds = Bounds(norm=1.0) if rows == "shorten" else (-1, 1)
    sites = np.arange(2000) % 4
    model = made(bounds=bounds, rows=rows, epsilon=4.0, **DELTA).fit(X[:2000] * 0.7, y[:2000], sites=sites)
    assert model.method_ == "moments"
    ranked, loss = scores(model, X[2000:] * 0.7, y[2000:])
    assert ranked > 0.75
    assert loss < 0.65
    p = model.predict_proba(X[2000:] * 0.7)[:, 1]
    other = model.predict_proba(X[2000:] * 0.35)[:, 1]
    assert (np.allclose(other, p, atol=1e-4)) == (rows == "unit")  # of unit rows the direction alone counts
    through = made(bounds=bounds, rows=rows, epsilon=4.0, fit_intercept=False, **DELTA).fit(X[:2000] * 0.7, y[:2000])
    assert through.intercept_ == pytest.approx([0.0])
    assert scores(through, X[2000:] * 0.7, y[2000:])[0] > 0.75
    model.save(tmp_path / "m")
    assert (unpooled.load(tmp_path / "m").predict_proba(X) == model.predict_proba(X)).all()
    if rows == "unit":
        with pytest.raises(UsageError, match="not linear"):
            model.to_sklearn()
    else:
        assert model.decision_function(X) == pytest.approx(X @ model.coef_[0] + model.intercept_)


@pytest.mark.guarantee
def test_without_noise_moments_rank_nearly_as_scikit_learn_does() -> None:
    X, y = texts(4000, 10, 2)
    model = made(bounds=Bounds(norm=1.0), method="moments", epsilon=math.inf).fit(X[:2000], y[:2000])
    theirs = LogisticRegression(C=100.0, max_iter=10_000).fit(X[:2000], y[:2000])
    ranked, loss = scores(model, X[2000:], y[2000:])
    best = theirs.predict_proba(X[2000:])[:, 1]
    assert ranked > roc_auc_score(y[2000:] == "well", best) - 0.01
    assert loss < log_loss(y[2000:] == "well", best) * 1.05


@pytest.mark.slow
@pytest.mark.minutes
@pytest.mark.parametrize(("rows", "columns", "epsilon"), [(3000, 100, 0.3), (1000, 30, 1.0)])
def test_moments_are_better_than_perturbation_on_rows_of_one_length(rows: int, columns: int, epsilon: float) -> None:
    gains = []
    for seed in range(5):
        X, y = texts(rows + 2000, columns, seed)
        auto, other = (
            scores(
                made(bounds=Bounds(norm=1.0), rows="unit", epsilon=epsilon, random_state=seed, method=m, **DELTA).fit(
                    X[:rows], y[:rows]
                ),
                X[rows:],
                y[rows:],
            )
            for m in ("auto", "perturbation")
        )
        gains.append((auto[0] - other[0], other[1] - auto[1]))
    assert (np.median(gains, axis=0) > 0).all()


def scores(model: PrivateLogisticRegression, X, y) -> tuple[float, float]:
    p = model.predict_proba(X)[:, 1]
    return roc_auc_score(y == "well", p), log_loss(y == "well", p)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.minutes
def test_it_does_not_matter_over_how_many_sites_rows_are_split() -> None:
    found: dict[int, list[float]] = {}
    for seed in range(sized(30, 3)):
        X, y = data(8000, 5, seed)
        for sites in (1, 4, 10):
            model = made(random_state=seed, **DELTA).fit(X[:5000], y[:5000], sites=np.arange(5000) % sites)
            found.setdefault(sites, []).append(scores(model, X[5000:], y[5000:])[0])
    middle = [float(np.median(values)) for values in found.values()]
    assert max(middle) - min(middle) < 0.01


@pytest.mark.long_but("3000-5-0.3")
@pytest.mark.slow
@pytest.mark.minutes
@pytest.mark.parametrize(("rows", "columns", "epsilon"), [(800, 5, 1.0), (3000, 20, 1.0), (3000, 5, 0.3)])
def test_what_is_chosen_is_better_than_perturbation(rows: int, columns: int, epsilon: float) -> None:
    """Medians of eleven made-up data sets of declared shape: both ranking and probabilities."""
    gains = []
    for seed in range(11):
        X, y = data(rows + 2000, columns, seed)
        auto, other = (
            scores(made(epsilon=epsilon, random_state=seed, method=m, **DELTA).fit(X[:rows], y[:rows]), X[rows:], y[rows:])
            for m in ("auto", "perturbation")
        )
        gains.append((auto[0] - other[0], other[1] - auto[1]))
    assert (np.median(gains, axis=0) > 0).all()


@pytest.mark.slow
def test_an_outlook_is_that_of_the_rounds() -> None:
    found = made(**DELTA).outlook(3000, 5, quick=True, signal=1.0)
    assert found.worthwhile
    # Without a delta that of the perturbed fit, which is worse.
    assert 1.0 > made().outlook(3000, 5, quick=True, signal=1.0).error > found.error
