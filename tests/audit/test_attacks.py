"""Attacks from the literature: right without noise, no better than the claim allows with it, and right again where noise is broken."""

from __future__ import annotations

import msgspec
import pytest
from broken import weaker
from cases import CASES as CASES
from world import FULL, sized

from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.testing.adversaries import *

ONLY = {
    "test_attacks_are_right_without_noise_and_no_better_than_the_claim_with_it": [
        "pride",
        "stacking",
        "stacking, classes",
        "lasso",
        "pls",
    ],
    "test_a_log_ratio_says_no_more_than_the_truth": [
        "describe",
        "glm",
        "stacking",
        "lasso",
        "pride",
        *(["bayes", "stacking, ranked"] if FULL else []),
    ],
    "test_equal_worlds_have_no_ratio": ["describe", "glm", "stacking", "bayes", "lasso"],
}
WIDE = tuple(Column(f"x{j}", -1.0, 3.0) for j in range(80))


def sums(epsilon: float, adjacency: str = "replace", columns: tuple[Column, ...] = WIDE) -> Study:
    cards = tuple(Card(name, 8, columns) for name in ("north", "south"))
    return Study("describe", cards, epsilon, 1e-6, unit="record", adjacency=adjacency, derived=())


@pytest.mark.no_cover
@pytest.mark.minutes
@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
def test_without_noise_they_are_right_and_with_it_not_above_the_claim(adjacency: str) -> None:
    found = attacked(sums(1.0, adjacency), sized(400, 40))
    assert set(found) == {
        "membership",
        "tracing",
        "differencing",
        *(["attribute inference"] if adjacency == "replace" else []),
    }
    for power in found.values():
        assert power.without_noise > 0.9, power
        assert not power.refutes, power
        assert power.allowed < 0.9


@pytest.mark.no_cover
@pytest.mark.minutes
def test_where_the_noise_is_broken_they_refute_the_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    weaker(monkeypatch, lambda values, _scale: 0 * values)
    found = attacked(sums(1.0), 60)
    assert all(power.refutes for power in found.values() if power.attack != "tracing"), found
    assert found["tracing"].as_released == found["tracing"].without_noise > 0.9


@pytest.mark.no_cover
@pytest.mark.minutes
def test_a_weak_claim_lets_them_be_right() -> None:
    found = attacked(sums(200.0, columns=WIDE[:3]), 40)
    assert all(found[attack].as_released == 1.0 for attack in ("membership", "attribute inference", "differencing"))
    assert found["membership"].allowed == 1.0


def test_a_study_that_promises_nothing_is_not_attacked() -> None:
    """There is no claim to hold it against: its plan covers no unit."""
    model, study = load("describe"), sums(1.0, columns=WIDE[:2])
    voided = msgspec.structs.replace(study, derived=("bounds",))
    if not model.compile(voided).units:
        assert attacked(voided, 4) == {}
