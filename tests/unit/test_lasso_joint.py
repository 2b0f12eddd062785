"""LASSO and its classifier from the joint moments of columns at several parties."""

import math
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Lasso

from unpooled import PrivateLasso, PrivateLassoClassifier, PrivateLinearRegression
from unpooled.errors import UsageError, UtilityWarning
from unpooled.estimation.columns import Linkage
from unpooled.models import load
from unpooled.models.lasso.joint import Correlations, compile_joint
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, HelperCard, Study

ROW = load("lasso")
INF = math.inf
SPLIT = {"a": ["x0", "x1", "x2"], "b": ["x3", "x4", "x5", "x6"]}


def frame(rows: int = 4000, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.uniform(-1, 1, (rows, 7)), columns=[f"x{j}" for j in range(7)])
    X["x4"] = (0.6 * X["x0"] + 0.4 * X["x4"]).clip(-1, 1)
    y = 0.8 * X["x0"] - 1.0 * X["x5"] + 0.2 * X["x2"] + 0.3 * rng.normal(size=rows)
    return X, y.to_numpy().clip(-3, 3)


def lasso(**more: object) -> PrivateLasso:
    given = {"bounds": (-1, 1), "y_bounds": (-3, 3), "unit": "record", "method": "joint", "random_state": 0}
    return PrivateLasso(SPLIT, **given | more)


def classifier(**more: object) -> PrivateLassoClassifier:
    given = {"bounds": (-1, 1), "classes": ("no", "yes"), "unit": "record", "method": "joint", "random_state": 0}
    return PrivateLassoClassifier(SPLIT, **given | more)


@pytest.mark.parametrize("split", [SPLIT, 3])
def test_without_noise_it_is_the_lasso_of_the_pooled_columns(split: object) -> None:
    X, y = frame()
    model = lasso(epsilon=INF).set_params(parties=split).fit(X, y)
    found = Correlations.of(model.moments_)
    scaled = (X - X.mean()) / X.std(ddof=0)
    # One penalty of standardised coefficients, a quarter of what chance makes of the largest of seven products with y.
    alpha = 0.25 * math.sqrt(2 * math.log(7)) * y.std() / math.sqrt(len(y))
    pooled = Lasso(alpha).fit(scaled, y)
    np.testing.assert_allclose(model.coef_, pooled.coef_ / X.std(ddof=0), atol=2e-3)
    assert model.score(X, y) == pytest.approx(pooled.score(scaled, y), abs=1e-4)
    assert found.penalty == pytest.approx(alpha / model.moments_.frame.response_width, rel=0.01)
    assert model.path_ == []
    assert model.dual_gap_ is None


def test_few_columns_are_found_and_everything_of_regression_follows() -> None:
    X, y = frame(20_000)
    model = lasso(epsilon=4.0).fit(X, y)
    assert set(np.flatnonzero(abs(model.coef_) > 0.12).tolist()) >= {0, 2, 5}
    assert model.score(X, y) > 0.85
    assert model.statement_.holds is False  # a seed makes it a simulation
    own = PrivateLinearRegression.from_moments(model.moments_).summary()
    assert {term.term for term in own.terms} >= {"x0", "x5"}
    assert model.moments_.rows == 20_000


def test_a_ball_bounds_the_coefficients_and_says_when_it_is_full() -> None:
    X, y = frame()
    with pytest.warns(UtilityWarning, match="fill the ball"):
        model = lasso(epsilon=8.0, radius=0.2).fit(X, y)
    # Half a range of y is 3, and every column has a half width of 1.
    assert abs(model.coef_).sum() <= 0.6 * (1 + 1e-6)
    assert lasso(epsilon=8.0, radius=2.0).fit(X, y).score(X, y) > 0.8


@pytest.mark.parametrize("threshold", [0.0, 1.2])
def test_two_classes_are_ranked_with_probabilities_that_add_up(threshold: float) -> None:
    X, y = frame(20_000)
    labels = np.where(y > threshold, "yes", "no")
    model = classifier(epsilon=8.0).fit(X, labels)
    assert model.coef_[0] > 1 > -1 > model.coef_[5]
    chances = model.predict_proba(X)[:, 1]
    share = (labels == "yes").mean()  # at the larger threshold the rare class is clipped as a response
    assert chances.mean() == pytest.approx(share, abs=0.02)
    ranks = pd.Series(chances).rank()
    yes = labels == "yes"
    area = (ranks[yes].sum() - yes.sum() * (yes.sum() + 1) / 2) / (yes.sum() * (~yes).sum())
    assert area > 0.95
    assert model.classes_.tolist() == ["no", "yes"]


def test_a_ball_of_log_odds_bounds_the_classifier() -> None:
    X, y = frame()
    with pytest.warns(UtilityWarning, match="fill the ball"):
        model = classifier(epsilon=8.0, radius=1.0).fit(X, np.where(y > 0, "yes", "no"))
    assert abs(model.coef_).sum() <= 1 + 1e-6


@pytest.mark.long
@pytest.mark.slow
def test_the_response_stays_with_the_frame_that_has_it() -> None:
    X, y = frame(1000)
    ids = np.arange(1000)
    first = pd.DataFrame({"id": ids, **{name: X[name] for name in SPLIT["a"]}})
    second = pd.DataFrame({"id": ids, **{name: X[name] for name in SPLIT["b"]}, "y": y}).sample(frac=1, random_state=1)
    model = lasso(epsilon=4.0).fit({"a": first, "b": second}, "y", on="id")
    assert isinstance(model.linkage_, Linkage)
    assert model.linkage_.handed == ()
    assert "handed" not in str(model.linkage_)
    cards = {card.name: {c.name for c in card.columns} for card in model.plan_.study.parties}
    assert not any("response" in name for name in cards["a"])
    assert model.plan_.design.holder == "b"
    labelled = second.assign(y=np.where(second["y"] > 0, "yes", "no"))
    two = classifier(epsilon=4.0).fit({"a": first, "b": labelled}, "y", on="id")
    assert two.plan_.design.holder == "b"
    with pytest.raises(UsageError, match="must be a column of one frame"):
        lasso(response_at="a").fit({"a": first, "b": second}, "y", on="id")
    regression = PrivateLinearRegression(epsilon=4.0, bounds=(-1, 1), y_bounds=(-3, 3), parties=SPLIT, random_state=0).fit(
        {"a": first, "b": second}, "y", on="id"
    )
    assert regression.plan_.design.holder == "b"
    assert regression.linkage_.handed == ()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"method": "auto", "response_at": "a"}, "response_at goes with method='joint'"),
        ({"method": "moments", "helpers": 0}, "helpers goes with method='joint'"),
        ({"method": "auto", "check": "none"}, "check goes with method='joint'"),
        ({"helpers": 3}, "helpers must be 1"),
        ({"unit": "attribute"}, 'unit = "record"'),
        ({"fit_intercept": False}, "always fit a constant"),
        ({"rounds": 7}, "rounds belongs to method"),
        ({"response_at": "nobody"}, "response_at must be one of the parties"),
        ({"check": "maybe"}, 'check is "proof" or "none"'),
        ({"radius": -1.0}, "must be a positive number"),
        ({"helpers": 0}, "two parties need a helper"),
    ],
)
def test_what_joint_moments_do_not_answer_is_refused_by_name(given: dict[str, object], words: str) -> None:
    X, y = frame(50)
    with pytest.raises(UsageError, match=re.escape(words) if '"' in words else words):
        lasso(**given).fit(X, y)


def test_a_study_is_refused_by_name_too() -> None:
    cards = (Card("a", 50, (Column("u", 0.0, 1.0), Column("y", 0.0, 1.0))), Card("b", 50, (Column("v", 0.0, 1.0),)))

    def study(helper: bool = True, **parameters: object) -> Study:
        helpers = (HelperCard("h"),) if helper else ()
        asked = {"response": "y", **parameters}
        return Study("lasso", cards, 1.0, 1e-6, parameters=asked, derived=(), helpers=helpers)

    assert compile_joint(study()).joint == "allowed"
    assert ROW.compile(study()).hash == ROW.compile(study()).hash
    with pytest.raises(UsageError, match="low = -1, high = 1"):
        ROW.compile(study(loss="logistic"))
    with pytest.raises(UsageError, match="helpers, tolerate and check belong to"):
        ROW.compile(study(method="moments"))
    with pytest.raises(UsageError, match="helpers, tolerate and check belong to"):
        ROW.compile(study(helper=False, tolerate=1))
    with pytest.raises(UsageError, match="loss is"):
        ROW.compile(study(loss="hinge"))
    with pytest.raises(UsageError, match="in half ranges"):
        ROW.compile(study(radius=2.0))


@pytest.mark.long
@pytest.mark.slow
def test_the_outlook_names_what_the_holder_can_fit_alone() -> None:
    model = lasso(epsilon=1.0, random_state=None)
    found = model.outlook(20_000, 7)
    assert found.noise_free <= found.error < found.nothing_released <= 1
    narrow = lasso(epsilon=1.0, random_state=None, radius=1.0).outlook(20_000, 7)
    assert narrow.error < found.nothing_released
    assert "a radius that just holds the coefficients" in narrow.assumed


def test_where_noise_is_all_that_columns_can_explain_the_fit_is_the_mean() -> None:
    X, y = frame(150)
    with pytest.warns(UtilityWarning, match="no more than"):
        found = [
            lasso(epsilon=0.3, random_state=None).fit(X, y),
            classifier(epsilon=0.3, random_state=None).fit(X, np.where(y > 0, "yes", "no")),
        ]
    for model in found:
        assert not Correlations.of(model.moments_).tells
        assert not model.coef_.any()
    assert -3 <= found[0].intercept_ <= 3
    told = Correlations.of(lasso(epsilon=8.0).fit(*frame()).moments_)
    assert told.tells
