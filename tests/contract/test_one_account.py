"""FINDINGS G1, G2, G6 over every registered model: cut a study after any message, ask in any order, and the ledgers say what was released.

The units, adjacencies and trust modes are all that a model admits. What was released is read off the replies, and what that costs is worked
out in ``world.truth`` without the code under test.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import msgspec
import numpy as np
import pytest
from cases import CASES, Case
from world import covered, sized, truth

from unpooled.errors import BudgetRefusal, UnpooledError, UsageError
from unpooled.models import load
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.mechanisms import Summand
from unpooled.privacy.noise import KeySource
from unpooled.privacy.plan import Plan
from unpooled.privacy.policy import Policy
from unpooled.privacy.unit import ROWWISE, Adjacency, Scope, Split, Target, Unit
from unpooled.protocol.conversation import OPEN, find_step
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.messages import Released, Sealed, open_body, open_envelope
from unpooled.protocol.party import Party
from unpooled.protocol.transcript import Transcript

#: Where a study says whom it trusts or how parties compete: every way that the models know. A model without an entry has one way.
WAYS: dict[str, list[dict]] = {
    "pride": [
        {},
        {
            "parameters": {
                "alpha": 1.0,
                "noise_model": "plain",
                "fit_intercept": False,
                "publish": 0.3,
                "response_bound": 9.0,
            }
        },
    ],
    "pride, poisson": [
        {},
        {
            "parameters": {
                "alpha": 1.0,
                "noise_model": "plain",
                "fit_intercept": False,
                "publish": 0.3,
                "response_bound": 9.0,
                "cap": 3.0,
            }
        },
    ],
    "bayes": [{"trust": {"aggregation": mode}} for mode in ("distributed", "trusted", "local")],
    "glm": [{"trust": {"aggregation": mode}} for mode in ("distributed", "trusted", "local")],
    "pls": [{"trust": {"aggregation": mode}} for mode in ("distributed", "trusted", "local")],
    "stacking": [
        {"trust": {"meta": "trusted"}},
        {"trust": {"meta": "perturbed"}},
        {"trust": {"meta": "public-weights"}, "parameters": {"holder": ""}},
    ],
    "lasso": [{}, {"parameters": {"coupling": "blocks"}}, {"parameters": {"refit": 0.0, "fit_intercept": False}}],
}


def variants() -> Iterator[tuple[str, Case]]:
    for name, make in CASES.items():
        for k, way in enumerate(WAYS.get(name, [{}])):
            for unit, adjacency in itertools.product(ROWWISE, Adjacency):
                case = make()
                merged = {**way, "parameters": {**case.study.parameters, **way.get("parameters", {})}}
                study = msgspec.structs.replace(case.study, unit=str(unit), adjacency=str(adjacency), **merged)
                try:
                    load(name).compile(study)
                except UsageError:  # not offered by this model
                    continue
                yield f"{name}-{k}-{unit}-{adjacency}", Case(name, study, case.tables)


VARIANTS = dict(variants())


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> Case:
    return VARIANTS[request.param]


def people(case: Case, rules: Policy | None = None) -> dict[str, Party]:
    made = {}
    for card in case.study.parties:
        ledger = Ledger.in_memory()
        made[card.name] = Party(
            card.name, case.tables[card.name], card, ledger, KeySource(ledger.root_key), rules or Policy.in_process(), load
        )
    return made


def released_in(plan: Plan, party: str, request: bytes, reply: bytes) -> list[tuple[str, str]]:
    """The releases that a reply holds, as (party, name)."""
    envelope = open_envelope(request)
    body = open_body(open_envelope(reply), find_step(load(plan.study.row), envelope.step).reply)
    found = []
    for name in body.__struct_fields__:
        value = getattr(body, name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Released):
                found.append((party, part.name))
            elif isinstance(part, Sealed):
                own = [
                    r for r in plan.releases if (r.party, r.step) == (party, envelope.step) and r.mechanism.takes is Summand
                ]
                found += [(party, r.name) for r in own]
    return list(dict.fromkeys(found))  # a share is sealed in several parts


def check(plan: Plan, made: dict[str, Party], counted: Counter[tuple[str, str]]) -> None:
    for (name, party), unit, scope in itertools.product(made.items(), ROWWISE, Scope):
        own = scope is Scope.PARTY
        if not own and not any(counted[r.party, r.name] for r in plan.releases if r.party == name):
            continue  # who has released nothing yet cannot know what others did
        said = party.ledger.composition(unit, scope)
        for cost in truth(plan, counted, unit, name, own=own):
            assert covered(cost, said), (name, unit, scope)


def recorded(case: Case) -> tuple[Plan, Transcript]:
    model, transcript = load(case.model), Transcript()
    plan = model.compile(case.study)
    drive(model, plan, in_process(people(case)), transcript)
    return plan, transcript


def test_a_study_cut_after_any_message_has_debited_what_was_released(variant: Case) -> None:
    model, made = load(variant.model), people(variant)
    plan = model.compile(variant.study)
    counted: Counter[tuple[str, str]] = Counter()

    def checked(batch):
        answers = []
        for ask, request in batch:
            answers.append(made[ask.to].answer(request))
            for key in released_in(plan, ask.to, request, answers[-1]):
                counted[key] += 1
            check(plan, made, counted)
        return answers

    drive(model, plan, checked)
    delta = variant.study.delta
    for unit in ROWWISE:
        involved = [name for name, party in made.items() if any(entry.kind == "charge" for entry in party.ledger.entries())]
        said = {name: made[name].ledger.composition(unit, Scope.PERSON).epsilon(delta) for name in involved}
        if plan.split is Split.VERTICAL:
            for name in involved:
                assert said[name] == pytest.approx(plan.cost(unit, name).epsilon(delta), rel=1e-9)
        if unit is Unit.RECORD or len(involved) == len(made):
            assert max(said.values()) == pytest.approx(plan.epsilon(delta, unit), rel=1e-9)


@pytest.mark.no_cover
@pytest.mark.parametrize("seed", range(sized(3, 2)))
def test_a_coordinator_that_asks_in_another_order_gets_nothing_that_is_not_debited(variant: Case, seed: int) -> None:
    plan, transcript = recorded(variant)
    made, counted = people(variant), Counter()
    rng = np.random.default_rng(seed)
    asked = [entry for entry in transcript.entries if open_envelope(entry.request).step != OPEN.name]
    for entry in transcript.entries:
        if entry not in asked:
            made[entry.to].answer(entry.request)
    order = rng.permutation(len(asked)) if seed else range(len(asked) - 1, -1, -1)
    for at in order:
        entry = asked[at]
        try:
            reply = made[entry.to].answer(entry.request)
        except UnpooledError:
            continue
        for key in released_in(plan, entry.to, entry.request, reply):
            counted[key] += 1
        check(plan, made, counted)


@pytest.mark.no_cover
def test_a_policy_that_admits_a_study_bounds_what_it_states(variant: Case) -> None:
    plan, delta = load(variant.model).compile(variant.study), variant.study.delta
    for unit in ROWWISE:
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
                    allow_unpinned=True,
                    approved=None,
                )
                party = people(variant, rules)[name]
                if fits:
                    party.consider(plan, approved=True)
                else:
                    with pytest.raises(BudgetRefusal):
                        party.consider(plan, approved=True)
                assert party.ledger.entries() == ()
