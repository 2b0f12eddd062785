"""Attacks from the literature on every case: right without noise, and no better than the claim allows with it."""

from __future__ import annotations

import itertools

import msgspec
import numpy as np
import pytest

from unpooled.audit.attacks import LikelihoodRatio, Power, attack_study, log_ratio
from unpooled.audit.stage import Stage, same_given
from unpooled.models import load
from unpooled.privacy.plan import Study
from unpooled.privacy.table import Table
from unpooled.study.made_up import made_up
from unpooled.testing.cases import Case, sized


def attacked(study: Study, runs: int, rows: int = 8) -> dict[str, Power]:
    model = load(study.row)
    fitted, _ = made_up(model, study, rows)

    def population(seed: int) -> dict[str, Table]:
        return made_up(model, study, rows, seed=seed % 2**31)[1]

    return {power.attack: power for power in attack_study(model, fitted, population, registry=load, runs=runs)}


@pytest.mark.minutes
def test_attacks_are_right_without_noise_and_no_better_than_the_claim_with_it(case: Case) -> None:
    found = attacked(case.study, 12)
    assert {"membership", "attribute inference"} <= set(found)
    assert all(found[attack].without_noise == 1.0 for attack in ("membership", "attribute inference"))
    assert not any(power.refutes for power in found.values())


@pytest.mark.minutes
def test_a_log_ratio_says_no_more_than_the_truth(case: Case) -> None:
    """E exp(-log ratio) is 1 under the first world. One seed in few may lie off; a wrong sign or scale of any part lies far off."""
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


def test_equal_worlds_have_no_ratio(case: Case) -> None:
    """Parties with equal tables do the same when the requests of a run are put to them again."""
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
