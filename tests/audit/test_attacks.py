"""Attacks from the literature: right without noise, no better than the claim allows with it, and right again where noise is broken."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from broken import weaker
from cases import CASES as CASES
from world import FULL, sized

from unpooled.audit.stage import Stage, same_given, total_of
from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.study.made_up import made_up
from unpooled.testing.adversaries import *

ONLY = {
    "test_attacks_are_right_without_noise_and_no_better_than_the_claim_with_it": [
        "pride",
        "stacking",
        "stacking, classes",
        "lasso",
        "pls",
        *(["bayes, columns", "describe, columns"] if FULL else []),
    ],
    "test_a_log_ratio_says_no_more_than_the_truth": [
        "describe",
        "glm",
        "stacking",
        "lasso",
        "pride",
        "bayes, columns",
        *(["bayes", "describe, columns", "stacking, ranked"] if FULL else []),
    ],
    "test_equal_worlds_have_no_ratio": ["describe", "glm", "stacking", "bayes", "bayes, columns", "lasso"],
}
WIDE = tuple(Column(f"x{j}", -1.0, 3.0) for j in range(80))


def sums(epsilon: float, adjacency: str = "replace", columns: tuple[Column, ...] = WIDE) -> Study:
    cards = tuple(Card(name, 8, columns) for name in ("north", "south"))
    return Study("describe", cards, epsilon, 1e-6, unit="record", adjacency=adjacency, derived=())


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.minutes
def test_where_the_noise_is_broken_they_refute_the_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    weaker(monkeypatch, lambda values, _scale: 0 * values)
    found = attacked(sums(1.0), 60)
    assert all(power.refutes for power in found.values() if power.attack != "tracing"), found
    assert found["tracing"].as_released == found["tracing"].without_noise > 0.9


@pytest.mark.minutes
def test_a_weak_claim_lets_them_be_right() -> None:
    found = attacked(sums(200.0, columns=WIDE[:3]), 40)
    assert all(found[attack].as_released == 1.0 for attack in ("membership", "attribute inference", "differencing"))
    assert found["membership"].allowed == 1.0


def test_what_is_entrusted_to_an_aggregator_is_seen_in_its_total() -> None:
    """Rows of a party that adds no noise itself go on into the aggregator's request: another row moves the aggregator's total."""
    asked = CASES["bayes"]().study
    parameters = asked.parameters | {"method": "moments", "tolerate": 0}
    study = msgspec.structs.replace(asked, trust={"aggregation": "trusted"}, parameters=parameters)
    model = load(study.row)
    fitted, tables = made_up(model, study, 12)
    stage = Stage(model, fitted, load)
    run = stage.run(tables, 0)
    *_, last = fitted.parties
    other = {c.name: c.range[1] for c in last.columns if c.categories is None}
    moved = stage.beside(run, tables | {last.name: tables[last.name].replace(0, other)})
    assert not same_given(run.acts, moved)
    first = fitted.parties[0].name
    assert not same_given({first: run.acts[first]}, {first: moved[first]})
    assert same_given(run.acts, stage.beside(run, tables))


def test_shares_of_a_total_are_told_from_it_and_stand_for_it() -> None:
    """By themselves they are uniform in every run; the acts of a run hold what they add up to, and each holder's noise."""
    model = load("bayes")
    study, tables = made_up(model, CASES["bayes, columns"]().study, 12)
    stage = Stage(model, study, load)
    one, two = (stage.run(tables, seed) for seed in (0, 1))
    joint = [(party, k) for party, done in one.own.items() for k, act in enumerate(done) if act.release == "joint"]
    assert len(joint) == len(study.members)
    for run in (one, two):
        noise = [run.own[party][k].gave - run.own[party][k].given.values for party, k in joint]
        added = [run.acts[party][k].gave - run.acts[party][k].given.values for party, k in joint]
        np.testing.assert_array_equal(noise, added)
        shares, parts = ([of[party][k].gave for party, k in joint] for of in (run.own, run.acts))
        np.testing.assert_array_equal(total_of(shares), np.sum(parts, axis=0))
        assert max(np.abs(share).max() for share in shares) > 1e9 * max(np.abs(part).max() for part in parts)


def test_a_study_that_promises_nothing_is_not_attacked() -> None:
    """There is no claim to hold it against: its plan covers no unit."""
    model, study = load("describe"), sums(1.0, columns=WIDE[:2])
    voided = msgspec.structs.replace(study, derived=("bounds",))
    if not model.compile(voided).units:
        assert attacked(voided, 4) == {}
