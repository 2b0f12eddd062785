"""Both accountants over random ledgers: neither says less than a mechanism that exists, and where one answer is right they agree (THEORY F.28)."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from cases import CASES
from experiments.second_account import ledgers, twins
from scipy.special import ndtr
from world import sized

from unpooled.audit import second_account
from unpooled.audit.second_account import LEAST, RELATIVE, ComposedLoss, delta_of, worst_delta
from unpooled.models import load
from unpooled.privacy.accounting import Composition
from unpooled.privacy.events import Event, Kind
from unpooled.privacy.exposure import account, neighbours
from unpooled.privacy.ledger import Charge, Ledger, ReleaseKey
from unpooled.privacy.ledger.chain import Cost
from unpooled.privacy.unit import ROWWISE, Scope, Unit


def optimistic(first: float, second: float) -> bool:
    return second > LEAST and first < second * (1 - RELATIVE)


@pytest.mark.long
def test_the_first_accountant_is_nowhere_below_a_mechanism_that_exists() -> None:
    for plans, epsilon in ledgers(sized(100_000, 600)):
        assert not optimistic(account(plans).delta(epsilon), worst_delta(twins(plans), epsilon)), (plans, epsilon)


def test_a_durable_ledgers_own_total_is_not_below_it_either() -> None:
    """The same through the ledger: charged, stored, read back."""
    for number, (plans, epsilon) in enumerate(ledgers(sized(2000, 40), seed=1)):
        with Ledger.in_memory(bytes(32)) as ledger:
            for k, parts in enumerate(plans):
                plan = f"{number:032x}{k:032x}"
                ledger.approve(plan)
                charges = [
                    Charge(
                        ReleaseKey(plan, "step", place, f"{part}-{place}"),
                        bytes(32),
                        tuple(Cost(unit, part, event) for unit in ROWWISE),
                    )
                    for part, events in parts.items()
                    for place, event in enumerate(events)
                ]
                ledger.reserve(charges, None)
            said = ledger.composition(Unit.RECORD, Scope.PARTY).delta(epsilon)
        assert not optimistic(said, worst_delta(twins(plans), epsilon)), (plans, epsilon)


@pytest.mark.parametrize("row", sorted(CASES))
def test_every_statement_holds_by_the_second_accountant(row: str) -> None:
    study = CASES[row]().study
    plan = load(study.row).compile(study)
    for unit in plan.units:
        epsilon = plan.epsilon(study.delta, unit)
        for events in neighbours(plan, unit, None, Scope.PERSON):
            if math.isfinite(epsilon):
                assert delta_of(twins([{"": events}])[0][""], epsilon) <= study.delta * (1 + RELATIVE)


@pytest.mark.parametrize("mu", [1e-3, 0.01, 0.1, 0.5, 1.0, 3.0, 10.0])
def test_of_gaussian_releases_both_say_the_same(mu: float) -> None:
    for epsilon, count in itertools.product((0.0, 1e-3, 0.1, 1.0, 3.0, 10.0, 50.0), (1, 3, 100)):
        first = Composition([Event(Kind.GAUSSIAN, mu / math.sqrt(count), count)]).delta(epsilon)
        second = delta_of([ComposedLoss("gaussian", mu / math.sqrt(count), count)], epsilon)
        if first > LEAST:
            assert second == pytest.approx(first, rel=RELATIVE)


def test_the_integral_is_the_sum_over_all_outcomes() -> None:
    """The integral against a sum of closed forms: a normal loss, and every outcome of the others."""
    rng = np.random.default_rng(2)
    for _ in range(sized(20_000, 200)):
        mu = float(np.exp(rng.uniform(math.log(0.01), math.log(4))))
        others = [(float(np.exp(rng.uniform(math.log(0.01), math.log(3)))), int(rng.integers(1, 6))) for _ in range(2)]
        epsilon, outcomes = float(rng.uniform(0, 6)), [(0.0, 1.0)]
        for size, count in others:
            p = 1 / (1 + math.exp(-size))
            law = [(k, math.comb(count, k) * p**k * (1 - p) ** (count - k)) for k in range(count + 1)]
            outcomes = [(loss + (2 * k - count) * size, chance * own) for loss, chance in outcomes for k, own in law]
        right = sum(
            q * (ndtr(mu / 2 - (epsilon - x) / mu) - math.exp(epsilon - x) * ndtr(-mu / 2 - (epsilon - x) / mu))
            for x, q in outcomes
        )
        found = delta_of(
            [ComposedLoss("gaussian", mu), *(ComposedLoss("pure", size, count) for size, count in others)], epsilon
        )
        if right > 1e-9:  # below it the sum of differences has no digits
            assert found == pytest.approx(right, rel=1e-6)


def test_of_releases_known_by_epsilon_alone_it_is_randomised_response() -> None:
    assert delta_of([ComposedLoss("pure", 1.0)], 1.0) == 0.0
    assert delta_of([ComposedLoss("pure", 1.0)], 0.5) == pytest.approx(math.e / (1 + math.e) * -math.expm1(-0.5))
    assert delta_of([ComposedLoss("pure", 1.0, 2)], 0.0) == pytest.approx((math.e / (1 + math.e)) ** 2 * -math.expm1(-2))
    assert delta_of([ComposedLoss("exponential", 1.0)], 0.5) == 0.0
    assert delta_of([], 0.0) == 0.0
    assert delta_of([ComposedLoss("pure", 0.0, 3, 0.25)], 1.0) == pytest.approx(1 - 0.75**3)
    with pytest.raises(ValueError, match="does not know"):
        delta_of([ComposedLoss("unbounded", 0.0)], 1.0)


def test_it_imports_nothing_of_the_first_one() -> None:
    text = Path(second_account.__file__).read_text()
    assert "from unpooled" not in text
    assert "import unpooled" not in text


#: Accountants that are broken on purpose, each in one place.
BROKEN = {
    "the largest release in the place of all": lambda plans, eps: max(
        Composition([event]).delta(eps) for parts in plans for events in parts.values() for event in events
    ),
    "the cheapest part of the rows": lambda plans, eps: Composition(
        [e for parts in plans for e in min(parts.values(), key=lambda events: Composition(events).delta(eps))]
    ).delta(eps),
    "repetitions are not counted": lambda plans, eps: account(
        [
            {part: [Event(e.kind, e.value, 1, e.total_variation, e.tails) for e in events] for part, events in parts.items()}
            for parts in plans
        ]
    ).delta(eps),
    "rho is taken for mu": lambda plans, eps: account(
        [
            {
                part: [Event(Kind.GAUSSIAN, e.value, e.count) if e.kind is Kind.ZCDP else e for e in events]
                for part, events in parts.items()
            }
            for parts in plans
        ]
    ).delta(eps),
    "the distance from the ideal law costs nothing": lambda plans, eps: account(
        [
            {part: [Event(e.kind, e.value, e.count, 0.0, e.tails) for e in events] for part, events in parts.items()}
            for parts in plans
        ]
    ).delta(eps),
    "the tails of a perturbed objective are forgotten": lambda plans, eps: account(
        [
            {
                part: [Event(Kind.PURE, e.value, e.count) if e.kind is Kind.PERTURBED else e for e in events]
                for part, events in parts.items()
            }
            for parts in plans
        ]
    ).delta(eps),
    "the last plan is not in the total": lambda plans, eps: account(plans[:-1] or plans).delta(eps),
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_accountant_that_is_broken_is_caught(name: str) -> None:
    assert any(optimistic(BROKEN[name](plans, eps), worst_delta(twins(plans), eps)) for plans, eps in ledgers(150, seed=3))
