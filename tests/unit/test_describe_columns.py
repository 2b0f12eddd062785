"""Descriptions of columns at several parties: means, counts and correlations from joint second moments."""

import math
from pathlib import Path

import numpy as np
import pytest

import unpooled
from unpooled.errors import UsageError
from unpooled.models import load
from unpooled.models.describe.columns import correlation
from unpooled.models.describe.estimator import JointDescription
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, HelperCard, Study

RANGES = {"age": (0, 100), "arm": ["a", "b", "c"], "weight": (20, 140), "pressure": (40, 220), "still": (0, 10)}
PARTIES = {"clinic": ["age", "arm"], "lab": ["weight", "pressure", "still"]}


def data(rows: int = 4000, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    age = rng.normal(50, 10, rows).clip(0, 100)
    arm = rng.choice(np.array(["a", "b", "c"], dtype=object), rows, p=[0.5, 0.3, 0.2])
    weight = (0.5 * age + rng.normal(50, 8, rows)).clip(20, 140)
    pressure = (0.5 * weight + 10 * (arm == "c") + rng.normal(60, 10, rows)).clip(40, 220)
    return {"age": age, "arm": arm, "weight": weight, "pressure": pressure, "still": np.full(rows, 3.0)}


def described(**given: object) -> JointDescription:
    asked = {"parties": PARTIES, "epsilon": 4.0, "random_state": 0}
    return unpooled.describe(data(), RANGES, **asked | given)


def test_without_noise_correlations_are_those_of_the_pooled_columns() -> None:
    held = data()
    found = described(epsilon=math.inf)
    columns = {"age": held["age"], "weight": held["weight"], "pressure": held["pressure"], "arm=c": held["arm"] == "c"}
    names = {name.replace(" ", "") for c in found.correlations_ for name in (c.first, c.second)}
    assert {"age", "weight", "pressure", "arm=c"} <= names
    for c in found.correlations_:
        first, second = (columns.get(name.replace(" ", "")) for name in (c.first, c.second))
        if first is not None and second is not None:
            assert c.value.value == pytest.approx(np.corrcoef(first.astype(float), second.astype(float))[0, 1], abs=2e-3)
            assert c.value.noise == 0
    assert found.still_ == ("still",)
    means = {(s.column, s.category): s for s in found.summaries_}
    assert means["age", None].mean.value == pytest.approx(held["age"].mean(), abs=1e-3)
    assert means["weight", None].sd.value == pytest.approx(held["weight"].std(ddof=1), abs=1e-3)
    assert means["arm", "b"].count.value == (held["arm"] == "b").sum()


@pytest.mark.slow
def test_noise_is_in_the_intervals_and_levels_of_one_column_have_no_correlation() -> None:
    found = described()
    exact = described(epsilon=math.inf)
    assert not [c for c in found.correlations_ if c.first.startswith("arm") and c.second.startswith("arm")]
    for c in found.correlations_:
        truth = exact.correlation(c.second, c.first).value.value
        assert c.value.noise > 0
        assert c.value.low - 2 * c.value.noise < truth < c.value.high + 2 * c.value.noise
    with pytest.raises(KeyError, match="no correlation of 'age' and 'height'"):
        found.correlation("age", "height")
    assert "correlation of" in str(found)
    assert "vary no more than their noise: still" in str(found)
    assert "of skewed or heavy-tailed columns they are too short" in str(found)
    assert "correlations" in repr(found)
    assert "<th>age, weight</th>" in found._repr_html_()


@pytest.mark.parametrize("truth", [0.0, 0.5, -0.8])
def test_intervals_hold_the_correlation_as_often_as_they_say(truth: float) -> None:
    """Played on covariances of normal columns with noise of deviation .03."""
    rng, rows, runs, noise = np.random.default_rng(3), 2000, 1500, 0.03
    held = 0
    for _ in range(runs):
        first, other = rng.normal(size=(2, rows))
        second = truth * first + math.sqrt(1 - truth**2) * other
        a, b, c = rng.normal(size=3) * [noise, noise, noise / math.sqrt(2)]
        covariance = np.cov(first, second) + np.array([[a, c], [c, b]])
        variance = noise**2 * np.array([[1, 0.5], [0.5, 1]])
        found = correlation(covariance, variance, rows, 1.96)
        held += found.low < truth < found.high
    assert held / runs == pytest.approx(0.95, abs=0.02)


def test_a_description_is_saved_and_read_again(tmp_path: Path) -> None:
    found = described()
    found.save(tmp_path / "joint.up")
    again = unpooled.load(tmp_path / "joint.up")
    assert again.correlations_ == found.correlations_
    assert str(again) == str(found)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"parties": None, "helpers": 0}, "helpers and check go with"),
        ({"parties": None, "check": "none"}, "helpers and check go with"),
        ({"sites": ["a"] * 4000}, "no sites"),
        ({"helpers": 2}, "helpers must be 1"),
        ({"helpers": 0}, "two parties need a helper"),
        ({"unit": "attribute"}, "whole persons"),
        ({"check": "some"}, "check is"),
        ({"parties": {"one": list(RANGES)}}, "at least two parties"),
    ],
)
def test_what_is_not_answered_is_refused_by_name(given: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        described(**given)


def test_bounds_must_be_declared_where_columns_are_split() -> None:
    with pytest.raises(UsageError, match="pass bounds"):
        unpooled.describe({"a": [1.0, 2.0], "b": [2.0, 1.0]}, parties={"x": ["a"], "y": ["b"]})


def test_a_study_of_missing_values_or_of_other_words_is_refused() -> None:
    def study(column: Column, **parameters: object) -> Study:
        cards = (Card("a", 50, (column,)), Card("b", 50, (Column("v", 0.0, 1.0),)))
        asked = {"split": "columns", **parameters}
        return Study("describe", cards, 1.0, 1e-6, parameters=asked, derived=(), helpers=(HelperCard("h"),))

    model, plain = load("describe"), Column("u", 0.0, 1.0)
    assert model.compile(study(plain)).joint == "allowed"
    assert model.outlook(study(plain)) is None
    with pytest.raises(UsageError, match="'u' may be missing"):
        model.compile(study(Column("u", 0.0, 1.0, missing="absent")))
    with pytest.raises(UsageError, match="confidence"):
        model.compile(study(plain, confidence=1.5))
    with pytest.raises(UsageError, match="split"):
        load("describe").compile(study(plain, split="rows"))


def test_nothing_that_varies_leaves_no_figure_of_correlations() -> None:
    held = {"a": np.full(50, 0.5), "b": np.full(50, 0.2)}
    found = unpooled.describe(
        held, {"a": (0, 1), "b": (0, 1)}, parties={"x": ["a"], "y": ["b"]}, epsilon=1.0, random_state=0
    )
    model = load("describe")
    assert found.correlations_ == ()
    assert [panel.title for panel in model.reading.panels(found.plan_, found._result)] == ["mean of a", "mean of b"]


def test_a_column_that_varies_no_more_than_its_noise_has_no_correlations() -> None:
    """Its released variance is noise: without the rule about half of such columns would have some."""
    rng, rows = np.random.default_rng(5), 3000
    held = {"a": rng.uniform(0, 1, rows), **{f"s{k}": np.full(rows, 0.5) for k in range(12)}}
    found = unpooled.describe(
        held,
        dict.fromkeys(held, (0, 1)),
        parties={"x": ["a"], "y": [f"s{k}" for k in range(12)]},
        epsilon=4.0,
        random_state=0,
    )
    # The noise of all parties together is drawn anew in every run: one of 720 such columns varied by it more than the rule allows.
    assert len(found.still_) >= 10
    assert len(found.correlations_) <= 1
