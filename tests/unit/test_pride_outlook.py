"""What a PRIDE study is expected to achieve, before data."""

from __future__ import annotations

import math

import pytest
from world import FULL

from unpooled import PrideClassifier, PrideRegressor, PrivatePLSRegression
from unpooled.errors import UsageError


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.minutes
def test_a_field_is_worth_a_study_at_large_epsilon_only() -> None:
    outlook = PrideRegressor(parties=4, bounds=(-1, 1), epsilon=0.3).outlook(
        300, 60, r2=0.8, structure="field", correlation=0.8
    )
    errors = {p.epsilon: p.error for p in outlook.points}
    assert outlook.error == errors[0.3]
    assert errors[10.0] < errors[0.1]
    assert outlook.noise_free <= errors[10.0] * 1.05
    assert outlook.noise_free < outlook.nothing_released < 1.0
    assert not outlook.buys_something
    text = str(outlook)
    assert "nothing released" in text
    assert "buys next to nothing" in text
    assert outlook.to_dict()["nothing_released"] == outlook.nothing_released


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.minutes
def test_categories_and_classes_are_made_up_too() -> None:
    bounds = {"a": (0, 1), "b": ["u", "v", "w"], "c": (0, 5), "d": (-1, 1)}
    model = PrideClassifier(
        parties={"one": ["a", "b"], "two": ["c", "d"]}, bounds=bounds, classes=("no", "yes"), epsilon=5.0
    )
    outlook = model.outlook(200, 4, r2=0.9, correlation=0.1, quick=not FULL)
    assert outlook.mean == 0.5
    assert outlook.noise_free < 0.3
    assert all(0 <= p.low <= p.error <= p.high <= 1 for p in outlook.points)


def test_assumptions_are_checked() -> None:
    model = PrideRegressor(parties=2, bounds=(-1, 1))
    for wrong, words in (
        ({"structure": "tree"}, "structure"),
        ({"r2": -0.1}, "r2"),
        ({"correlation": 1.0}, "correlation"),
        ({"ranges": 3.0}, "ranges"),
    ):
        with pytest.raises(UsageError, match=words):
            model.outlook(100, 6, **wrong)


@pytest.mark.slow
def test_plain_names_where_there_is_nothing_to_expect() -> None:
    pls = PrivatePLSRegression(calibration="published", basis="none", n_components=1, bounds=(-1, 1), y_bounds=(-1, 1))
    with pytest.raises(UsageError, match="no outlook"):
        pls.outlook(50, 4)
    assert math.isnan(PrideRegressor(parties=1, bounds=(-1, 1)).outlook(60, 4, r2=0.5).points[0].error) is False
