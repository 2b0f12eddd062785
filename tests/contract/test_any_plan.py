"""What holds for the plan of every study of every registered model that somebody could ask for."""

from __future__ import annotations

import math

import msgspec
import pytest
from cases import CASES
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples, studies

from unpooled.errors import UsageError
from unpooled.models import load
from unpooled.privacy.plan import Plan, Study
from unpooled.privacy.unit import Scope, Unit


def planned(study: Study) -> Plan | None:
    """Its plan, unless the model does not offer it."""
    try:
        return load(study.model).compile(study)
    except UsageError:
        return None


@pytest.mark.parametrize("model", sorted(CASES))
def test_a_plan_costs_no_more_than_was_asked_for(model: str) -> None:
    found = []

    @examples(12)
    @given(studies(CASES, model))
    def check(study: Study) -> None:
        plan = planned(study)
        if plan is None:
            return
        found.append(study)
        asked = Unit(study.unit)
        assert plan.epsilon(study.delta, asked) <= study.epsilon * (1 + 1e-9)
        for card in study.parties:
            assert plan.cost(asked, card.name, Scope.PARTY).epsilon(study.delta) <= study.epsilon * (1 + 1e-9)
        for release in plan.releases:
            assert 0 <= release.mechanism.event(asked).value < math.inf

    check()
    assert len(found) > 3


@pytest.mark.parametrize("model", sorted(CASES))
def test_a_plan_follows_from_its_study_and_changes_with_it(model: str) -> None:
    found = []

    @examples(12)
    @given(studies(CASES, model), st.sampled_from(["epsilon", "run", "public_seed", "parties"]))
    def check(study: Study, changed: str) -> None:
        plan = planned(study)
        if plan is None:
            return
        found.append(study)
        again = msgspec.json.decode(msgspec.json.encode(study), type=Study)
        assert load(study.model).compile(again).hash == plan.hash
        others = {
            "epsilon": study.epsilon * 1.5,
            "run": study.run + 1,
            "public_seed": study.public_seed + 1,
            "parties": tuple(msgspec.structs.replace(card, rows=card.rows + 1) for card in study.parties),
        }
        other = planned(msgspec.structs.replace(study, **{changed: others[changed]}))
        assert other is None or other.hash != plan.hash

    check()
    assert len(found) > 3
