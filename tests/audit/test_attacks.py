"""Attacks from the literature: right without noise, no better than the claim allows with it, and right again where noise is broken."""

from __future__ import annotations

import itertools

import msgspec
import numpy as np
import pytest
from broken import weaker
from cases import CASES
from world import FULL, sized

from unpooled.audit.attacks import Power, attack_study
from unpooled.audit.likelihood import LikelihoodRatio, log_ratio
from unpooled.audit.made_up import made_up
from unpooled.audit.stage import Stage, same_given
from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table

WIDE = tuple(Column(f"x{j}", -1.0, 3.0) for j in range(80))


def attacked(study: Study, runs: int, rows: int = 8) -> dict[str, Power]:
    model = load(study.model)
    fitted, _ = made_up(model, study, rows)

    def population(seed: int) -> dict[str, Table]:
        return made_up(model, study, rows, seed=seed % 2**31)[1]

    return {power.attack: power for power in attack_study(model, fitted, population, registry=load, runs=runs)}


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


@pytest.mark.no_cover
@pytest.mark.minutes
@pytest.mark.parametrize("name", ["pride", "stacking", "stacking, classes", "lasso", "pls"])
def test_other_models_are_attacked_too(name: str) -> None:
    found = attacked(CASES[name]().study, 12)
    assert {"membership", "attribute inference"} <= set(found)
    assert all(found[attack].without_noise == 1.0 for attack in ("membership", "attribute inference"))
    assert not any(power.refutes for power in found.values())


def test_a_study_that_promises_nothing_is_not_attacked() -> None:
    """There is no claim to hold it against: its plan covers no unit."""
    model, study = load("describe"), sums(1.0, columns=WIDE[:2])
    voided = msgspec.structs.replace(study, derived=("bounds",))
    if not model.compile(voided).units:
        assert attacked(voided, 4) == {}


# --- the likelihood ratio itself ----------------------------------------------------------------------------------------------


@pytest.mark.no_cover
@pytest.mark.minutes
@pytest.mark.parametrize(
    "name", ["describe", "glm", "stacking", "lasso", "pride", *(["bayes", "stacking, ranked"] if FULL else [])]
)
def test_a_log_ratio_says_no_more_than_the_truth(name: str) -> None:
    """E exp(-log ratio) = 1 under the first world: one seed in few may lie off, a wrong sign or scale of any part lies far off."""
    case = CASES[name]()
    model = load(case.model)
    study, tables = made_up(model, msgspec.structs.replace(case.study, epsilon=0.3, delta=case.study.delta), 12)
    stage = Stage(model, study, load)
    first = next(iter(stage.plan.study.parties))
    columns = {column.name: tables[first.name][column.name][1] for column in first.columns}
    ratio = LikelihoodRatio(stage, tables, {**tables, first.name: tables[first.name].replace(0, columns)}, itertools.count())
    drawn = np.array([ratio(0) for _ in range(sized(400, 24))])
    inverse = np.exp(-drawn)
    assert abs(inverse.mean() - 1) < 6 * max(inverse.std() / np.sqrt(drawn.size), 1e-9) + 1e-6
    assert drawn.std() > 0
    # And the other way round: of the second world's runs its inverse.
    other = np.exp([ratio(1) for _ in range(drawn.size)])
    assert abs(other.mean() - 1) < 6 * max(float(other.std()) / np.sqrt(drawn.size), 1e-9) + 1e-6


@pytest.mark.parametrize("name", ["describe", "glm", "stacking", "bayes", "lasso"])
def test_equal_worlds_have_no_ratio(name: str) -> None:
    """The requests of a run, put to parties anew: what they do over equal tables is what they did."""
    case = CASES[name]()
    model = load(case.model)
    study, tables = made_up(model, case.study, 12)
    stage = Stage(model, study, load)
    run = stage.run(tables, 0)
    copies = {
        card.name: tables[card.name].replace(0, {c.name: tables[card.name][c.name][0] for c in card.columns})
        for card in study.parties
    }
    again = stage.beside(run, copies)
    assert all(
        one is not two
        for acts, other in zip(run.acts.values(), again.values(), strict=True)
        for one, two in zip(acts, other, strict=True)
    )
    assert same_given(run.acts, again)
    assert abs(log_ratio(run.acts, again)) < 1e-6
    assert log_ratio(run.acts, stage.beside(run, tables)) == 0.0
