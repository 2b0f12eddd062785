"""A coordinator that follows no protocol: every step of a model, in any order, at any index, with payloads from wherever it can get them.

Whatever is asked, what comes back was planned, was debited, and fits into the study's budget; everything else is refused in words.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec
import numpy as np
import pytest

from unpooled.errors import UnpooledError
from unpooled.models import load
from unpooled.privacy.unit import Scope, Unit
from unpooled.protocol.conversation import find_step
from unpooled.protocol.messages import (
    ISSUED,
    WIRE_VERSION,
    Entrusted,
    Nothing,
    Partial,
    Public,
    Released,
    Sealed,
    Signed,
    open_body,
    open_envelope,
)
from unpooled.testing.cases import Case, open_message, parties, sized, transcript_of
from unpooled.testing.mutants import parts_of, places, wild

ROUNDS = sized(250, 60)


def pieces(case: Case) -> tuple[list[tuple[str, bytes, str]], list[str]]:
    """Return the bodies of honest requests with their step and receiver, and the names of all steps."""
    model = load(case.model)
    entries = [(open_envelope(entry.request), entry.to) for entry in transcript_of(case).entries]
    return [(e.step, bytes(e.body), to) for e, to in entries], [
        step.name for step in (*model.steps, *model.more_steps(model.compile(case.study)))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(sized(3, 1)))
def test_nothing_unplanned_comes_back_and_no_budget_is_exceeded(case: Case, seed: int) -> None:
    model, rng = load(case.model), np.random.default_rng(seed)
    plan, people = model.compile(case.study), parties(case)
    for party in people.values():
        party.answer(open_message(case))
    known, steps = pieces(case)
    bodies = [(step, body) for step, body, _ in known] + [(step, msgspec.msgpack.encode(Nothing())) for step in steps]
    answered = refused = 0
    issued: dict[tuple[str, str, int], bytes] = {}
    for _ in range(ROUNDS):
        name = str(rng.choice(sorted(people)))
        step, body = bodies[int(rng.integers(len(bodies)))]
        if rng.random() < 0.2:
            step = str(rng.choice(steps))  # somebody else's payload
        index = int(rng.choice([0, 0, 0, 1, 2, 3, 7, 10_000]))
        envelope = {"version": WIRE_VERSION, "plan": plan.hash, "step": step, "index": index, "body": msgspec.Raw(body)}
        blob = msgspec.msgpack.encode(envelope)
        before = people[name].ledger.entries()
        reply = None
        with suppress(UnpooledError):
            reply = people[name].answer(blob)
        if reply is None:
            refused += 1
            assert people[name].ledger.entries() == before
            continue
        answered += 1
        key = (name, step, index)
        assert issued.setdefault(key, reply) == reply  # one answer per place, whatever is asked how often
        for part in parts_of(open_body(open_envelope(reply), find_step(model, step, plan).reply)):
            assert isinstance(part, (*ISSUED, Public, Entrusted)) or type(part).__name__ == "Disclosed"
            if isinstance(part, Released | Partial):
                planned = plan.part(step)[0].release(name, part.name)
                assert part.index < planned.count
            if isinstance(part, Entrusted):
                assert plan.part(step)[0].study.trusts(part.role)
            assert not isinstance(part, Sealed) or part.node in people
            assert not isinstance(part, Signed) or part.identity == people[name].identity.public
    assert answered > 0 < refused
    unit = Unit(case.study.unit)
    for name, party in people.items():
        own = plan.cost(unit, name, Scope.PARTY).epsilon(case.study.delta)
        assert party.ledger.composition(unit).epsilon(case.study.delta) <= own * (1 + 1e-9)
        debits = [entry.key for entry in party.ledger.entries() if entry.kind == "charge"]
        assert len(set(debits)) == len(debits)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(sized(2, 1)))
def test_wild_payloads_are_answered_within_the_plan_or_refused_in_words(case: Case, seed: int) -> None:
    rng = np.random.default_rng(seed)
    entries = transcript_of(case).entries
    bodies = [msgspec.msgpack.decode(open_envelope(entry.request).body) for entry in entries]
    rich = [i for i, body in enumerate(bodies) if places(body) and open_envelope(entries[i].request).step != "open"]
    refused: list[str] = []
    for _ in range(15 if rich else 0):
        chosen = rich[int(rng.integers(len(rich)))]
        people = parties(case)
        for entry in entries[:chosen]:
            people[entry.to].answer(entry.request)
        body = msgspec.msgpack.decode(open_envelope(entries[chosen].request).body)
        for _ in range(int(rng.integers(1, 4))):
            spots = places(body)
            spot = spots[int(rng.integers(len(spots)))]
            inside = body
            for key in spot[:-1]:
                inside = inside[key]
            inside[spot[-1]] = wild(inside[spot[-1]], rng)
        asked = open_envelope(entries[chosen].request)
        envelope = {
            "version": WIRE_VERSION,
            "plan": asked.plan,
            "step": asked.step,
            "index": asked.index,
            "body": msgspec.Raw(msgspec.msgpack.encode(body)),
        }
        party = people[entries[chosen].to]
        before = party.ledger.entries()
        try:
            reply = party.answer(msgspec.msgpack.encode(envelope))
        except UnpooledError as error:
            refused.append(str(error))
            assert party.ledger.entries() == before
        else:
            open_body(
                open_envelope(reply), find_step(load(case.model), asked.step, load(case.model).compile(case.study)).reply
            )
        finally:
            for somebody in people.values():
                somebody.ledger.close()
    assert not any("version" in words for words in refused)  # or none of this would reach what it is about
