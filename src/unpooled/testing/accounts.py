"""FINDINGS G1, G2, G6 over every registered model: cut a study after any message, ask in any order, and the ledgers say what was released.

The units, adjacencies and trust modes are all that a model admits. What was released is read off the replies, and what that costs is worked
out in ``unpooled.audit.account`` without the code under test.
"""

from __future__ import annotations

import pytest

from unpooled.audit.account import audit_account, fresh_parties
from unpooled.audit.orders import audit_orders
from unpooled.errors import BudgetRefusal
from unpooled.models import load
from unpooled.privacy.policy import Policy
from unpooled.privacy.study import TRUSTING
from unpooled.privacy.unit import Scope, Split, Target, Unit
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.party import Party
from unpooled.testing.cases import Case, models_of, sized


def people(case: Case, rules: Policy | None = None) -> dict[str, Party]:
    return fresh_parties(case.study, case.tables, load, rules)


def test_a_completed_study_costs_what_it_states(variant: Case) -> None:
    """The ledgers of a completed study hold the cost that its statement has (Theorem F.17)."""
    model, made = load(variant.model), people(variant)
    plan = model.compile(variant.study)
    drive(model, plan, in_process(made))
    delta = variant.study.delta
    for unit in plan.units:
        involved = [name for name, party in made.items() if any(entry.kind == "charge" for entry in party.ledger.entries())]
        said = {name: made[name].ledger.composition(unit, Scope.PERSON).epsilon(delta) for name in involved}
        if plan.split is Split.VERTICAL:
            for name in involved:
                assert said[name] == pytest.approx(plan.cost(unit, name).epsilon(delta), rel=1e-9)
        if unit is Unit.RECORD or len(involved) == len(made):
            assert max(said.values()) == pytest.approx(plan.epsilon(delta, unit), rel=1e-9)


def test_a_study_cut_anywhere_and_asked_in_any_order_has_debited_what_was_released(variant: Case) -> None:
    found = audit_account(load(variant.model), variant.study, variant.tables, registry=load, orders=sized(3, 1))
    assert not found, found[0]


def test_a_coordinator_that_asks_otherwise_than_planned_gets_nothing(case: Case) -> None:
    found = audit_orders(load(case.study.row), case.study, case.tables, registry=load)
    assert not found, found[0]


def test_a_policy_that_admits_a_study_bounds_what_it_states(variant: Case) -> None:
    plan, delta = load(variant.model).compile(variant.study), variant.study.delta
    for unit in plan.units:
        costs = {card.name: plan.cost(unit, card.name).epsilon(delta) for card in variant.study.parties}
        assert max(costs.values()) == pytest.approx(plan.epsilon(delta, unit), rel=1e-12)
        for name, cost in costs.items():
            if not 1e-6 < cost < 1e4:
                continue
            for share, fits in ((1 + 1e-9, True), (0.999, False)):
                rules = Policy(
                    Target(cost * share, delta, unit),
                    trust=frozenset({"*"}),
                    allow_simulation=True,
                    allow_in_process=True,
                    approved=None,
                    joint=TRUSTING,
                    models=models_of(variant.study),
                )
                party = people(variant, rules)[name]
                if fits:
                    party.consider(plan, approved=True)
                else:
                    with pytest.raises(BudgetRefusal):
                        party.consider(plan, approved=True)
                assert party.ledger.entries() == ()
