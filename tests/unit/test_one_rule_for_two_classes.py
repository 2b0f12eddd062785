"""The classifier of two classes has the goal "predictions": the generalised model takes the same method with that goal, and another one for a table."""

from __future__ import annotations

import warnings

import pytest

from unpooled import PrivateGLM, PrivateLogisticRegression

ASKED = {"delta": 1e-6, "bounds": (-1, 1), "classes": ("a", "b")}


@pytest.mark.parametrize(("rows", "epsilon"), [(400, 0.1), (1000, 1.0), (2000, 0.3), (5000, 1.0)])
def test_with_the_same_goal_both_take_the_same_method(rows: int, epsilon: float) -> None:
    plans = [
        PrivateLogisticRegression(epsilon=epsilon, method="rounds", **ASKED).plan(rows, 4),
        PrivateGLM("logistic", epsilon=epsilon, goal="predictions", **ASKED).plan(rows, 4),
    ]
    one, other = (plan.design.schedule.method for plan in plans)
    assert one == other


def test_for_a_table_the_generalised_model_takes_another_one() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own = PrivateGLM("logistic", epsilon=1.0, **ASKED).plan(1000, 4).design.schedule.method
    assert (own, PrivateLogisticRegression(epsilon=1.0, method="rounds", **ASKED).plan(1000, 4).design.schedule.method) == (
        "newton",
        "gradient",
    )
