"""A coordinator that follows no protocol: every step of a model, in any order, at any index, with payloads from wherever it can get them.

Whatever is asked, what comes back was planned, was debited, and fits into the study's budget; everything else is refused in words.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec
import numpy as np
import pytest
from cases import Case
from test_models import open_message, parties, transcript_of

from unpooled.errors import UnpooledError
from unpooled.models import load
from unpooled.privacy.unit import Unit
from unpooled.protocol.messages import (
    ISSUED,
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

ROUNDS = 250


def pieces(case: Case) -> tuple[list[tuple[str, bytes, str]], list[str]]:
    """Bodies of honest requests with their step and receiver, and the names of all steps."""
    model = load(case.model)
    entries = [(open_envelope(entry.request), entry.to) for entry in transcript_of(case).entries]
    return [(e.step, bytes(e.body), to) for e, to in entries], [step.name for step in model.steps]


@pytest.mark.parametrize("seed", range(3))
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
        envelope = {"version": 1, "plan": plan.hash, "step": step, "index": index, "body": msgspec.Raw(body)}
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
        for part in parts_of(open_body(open_envelope(reply), model.step(step).reply)):
            assert isinstance(part, (*ISSUED, Public, Entrusted)) or type(part).__name__ == "Disclosed"
            if isinstance(part, Released | Partial):
                planned = plan.release(name, part.name)
                assert part.index < planned.count
            if isinstance(part, Entrusted):
                assert case.study.trusts(part.role)
            assert not isinstance(part, Sealed) or part.node in people
            assert not isinstance(part, Signed) or part.identity == people[name].identity.public
    assert answered > 0 < refused
    unit = Unit(case.study.unit)
    for name, party in people.items():
        own = plan.composition(unit, name).epsilon(case.study.delta)
        assert party.ledger.composition(unit).epsilon(case.study.delta) <= own * (1 + 1e-9)
        debits = [entry.key for entry in party.ledger.entries() if entry.kind == "charge"]
        assert len(set(debits)) == len(debits)


def parts_of(reply: msgspec.Struct) -> list[object]:
    values = [getattr(reply, name) for name in reply.__struct_fields__]
    return [part for value in values for part in (value if isinstance(value, tuple) else (value,))]
