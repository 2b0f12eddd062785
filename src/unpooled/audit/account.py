"""Ledger entries required for the released part of a study, worked out the slow way, apart from the code that ledgers use.

A study may end after any message, and a coordinator may ask in any order: whatever it gets must be debited. The invariant
(:func:`audit_account`): after every reply each ledger says at least what everything released so far costs the person it costs most, under every unit.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from unpooled.audit.stage import Violation
from unpooled.errors import UnpooledError
from unpooled.privacy.accounting import Composition
from unpooled.privacy.exposure import BETWEEN
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.mechanisms import Summand
from unpooled.privacy.noise import KeySource
from unpooled.privacy.policy import Policy
from unpooled.privacy.unit import Scope, Unit
from unpooled.protocol.conversation import OPEN, find_step
from unpooled.protocol.local import drive
from unpooled.protocol.messages import Released, Sealed, open_body, open_envelope
from unpooled.protocol.party import Party

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from unpooled.privacy.exposure import Worst
    from unpooled.privacy.plan import Plan, Study
    from unpooled.privacy.table import Table
    from unpooled.protocol.messages import Ask, Dropped
    from unpooled.protocol.registry import Model

#: How often each release was made, by party and name.
Made = Counter[tuple[str, str]]


def cost_of(plan: Plan, made: Made, unit: Unit, people: str, *, own: bool) -> list[Composition]:
    """Return the cost of everything released so far, for every change to somebody in the rows of the party ``people``."""
    ways: dict[str, set[str]] = {}
    for release in plan.releases:  # every analysis may part the rows in its own way
        analysis = release.exposure.part.rpartition(BETWEEN)[0]
        ways.setdefault(analysis, set()).update({release.exposure.part} - {""})
    found = []
    chosen = itertools.product(*(sorted(way) or [""] for way in ways.values()))
    for (holders, label), parts in itertools.product(_places(plan, unit, people), list(chosen)):
        events, together = [], Counter[str]()
        for release in plan.releases:
            counted = made[release.party, release.name]
            if release.party not in holders or (own and release.party != people) or not counted:
                continue
            if release.exposure.part not in {"", *parts} or (label and release.exposure.label is None):
                continue
            if release.exposure.together:
                counted = min(counted, release.exposure.together - together[release.name])
                together[release.name] += counted
                if not counted:
                    continue
            event = release.event(unit) if not label or release.exposure.label is None else release.exposure.label
            most = release.exposure.per_value if unit is Unit.ATTRIBUTE else None
            events.append(replace(event, count=event.count * min(counted, counted if most is None else most)))
        found.append(Composition(events))
    return found


def _places(plan: Plan, unit: Unit, people: str) -> list[tuple[set[str], bool]]:
    """At which parties something may change together, and whether it is a label.

    A household's rows may be at several parties, and each party prices its releases as if all of them were its own: what they cost together is
    at most the largest of these prices, not their sum (Theorem F.19 b).
    """
    everywhere = {card.name for card in plan.study.parties}
    known = everywhere if plan.split.shares_people else {people}
    if unit is not Unit.ATTRIBUTE:
        return [(known, False)]
    found: list[tuple[set[str], bool]] = [(known, True)]
    for column in plan.study.card(people).columns:
        holders = {c.name for c in plan.study.parties if column in c.columns}
        found.append((holders & known if plan.split.shares_people else known, False))
    return found


def covered(one: Composition, by: Worst) -> bool:
    """Return True if some alternative of an account costs at least as much in every respect, and so at every epsilon and delta."""
    return any((np.array(other.respects) >= np.array(one.respects) * (1 - 1e-9)).all() for other in by.compositions)


def released_in(model: Model, plan: Plan, party: str, request: bytes, reply: bytes) -> list[tuple[str, str]]:
    """Return the releases that a reply holds, as (party, name)."""
    step = open_envelope(request).step
    body = open_body(open_envelope(reply), find_step(model, step, plan).reply)
    analysis = step.removesuffix(plan.part(step)[1])
    found = []
    for name in body.__struct_fields__:
        value = getattr(body, name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Released):
                found.append((party, f"{analysis}{part.name}"))
            elif isinstance(part, Sealed):
                own = (r for r in plan.releases if (r.party, r.step) == (party, step) and r.mechanism.takes is Summand)
                found += [(party, r.name) for r in own]
    return list(dict.fromkeys(found))  # a share is sealed in several parts


def undebited(plan: Plan, parties: Mapping[str, Party], made: Made, after: int) -> list[Violation]:
    """Return every ledger that says less than was released."""
    found, helpers = [], {card.name for card in plan.study.helpers}
    for (name, party), unit, scope in itertools.product(parties.items(), plan.units, Scope):
        own = scope is Scope.PARTY
        if name in helpers:
            continue  # nobody's rows are there
        if not own and not any(made[r.party, r.name] for r in plan.releases if r.party == name):
            continue  # who has released nothing yet cannot know what others did
        said = party.ledger.composition(unit, scope)
        if not all(covered(cost, said) for cost in cost_of(plan, made, unit, name, own=own)):
            what = f"the ledger ({scope}) says less than was released"
            found.append(Violation(unit, name, f"after {after} replies", what))
    return found


def fresh_parties(
    study: Study, tables: Mapping[str, Table], registry: Callable[[str], Model], rules: Policy | None = None
) -> dict[str, Party]:
    """Parties of this process with empty ledgers; each has the same identity and keys whenever it is made."""
    made = {}
    for card in study.members:
        ledger = Ledger.in_memory(root_key=sha256(card.name.encode()).digest())
        keys, policy = KeySource(ledger.root_key), rules or Policy.in_process()
        made[card.name] = Party(card.name, tables[card.name], card, ledger, keys, policy, registry)
    return made


def audit_account(
    model: Model,
    study: Study,
    tables: Mapping[str, Table],
    *,
    registry: Callable[[str], Model],
    orders: int = 3,
    seed: int = 0,
) -> list[Violation]:
    """Run a study, ask everything twice and look at every ledger after every reply; then ask the same in reverse and in random orders."""
    plan, rng = model.compile(study), np.random.default_rng(seed)
    parties, made, found = fresh_parties(study, tables, registry), Made(), list[Violation]()
    asked: list[tuple[str, bytes]] = []

    def counted(batch: list[tuple[Ask, bytes]]) -> list[bytes | Dropped]:
        answers: list[bytes | Dropped] = []
        for ask, request in batch:
            answer = parties[ask.to].answer(request)
            answers.append(answer)
            asked.append((ask.to, request))
            made.update(released_in(model, plan, ask.to, request, answer))
            found.extend(undebited(plan, parties, made, len(asked)))
            if parties[ask.to].answer(request) != answer:
                found.append(Violation(Unit.RECORD, ask.to, ask.step, "the same request is answered with other bytes"))
        return answers

    drive(model, plan, counted)
    opening = [entry for entry in asked if open_envelope(entry[1]).step == OPEN.name]
    others = [entry for entry in asked if entry not in opening]
    for turn in range(orders):
        parties, made = fresh_parties(study, tables, registry), Made()
        for to, request in opening:
            parties[to].answer(request)
        for after, at in enumerate(rng.permutation(len(others)) if turn else range(len(others) - 1, -1, -1), 1):
            to, request = others[at]
            try:
                reply = parties[to].answer(request)
            except UnpooledError:
                continue
            made.update(released_in(model, plan, to, request, reply))
            found += undebited(plan, parties, made, after)
    return found


__all__ = ["Made", "audit_account", "cost_of", "covered", "fresh_parties", "released_in", "undebited"]
