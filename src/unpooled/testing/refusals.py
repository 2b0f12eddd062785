"""Refusals of every case: each says in words what is wrong, and leaves the ledger as it was."""

from __future__ import annotations

import dataclasses
import math

import msgspec
import numpy as np
import pytest

from unpooled.errors import BudgetRefusal, DataError, PlanMismatch, PolicyRefusal, ProtocolError, ReleaseConflict, UsageError
from unpooled.models import load
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.plan import PLAN_VERSION
from unpooled.privacy.unit import Calibration, Target, Unit
from unpooled.protocol.conversation import OpenRequest
from unpooled.protocol.messages import encode, open_envelope
from unpooled.protocol.party import Party
from unpooled.testing.cases import Case, open_message, parties, policy, transcript_of


@pytest.fixture
def party(case: Case) -> Party:
    return next(iter(parties(case).values()))


def refused(party: Party, message: bytes, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        party.answer(message)
    assert party.ledger.entries() == ()


def test_a_forged_plan_is_refused(case: Case, party: Party) -> None:
    refused(party, open_message(case, claimed="0" * 64), PlanMismatch, "compiles")


def test_a_coordinator_of_another_version_is_refused_in_one_sentence(case: Case, party: Party) -> None:
    plan = load(case.model).compile(case.study)
    newer = encode(plan.hash, "open", 0, OpenRequest(case.study, PLAN_VERSION + 1))
    words = f"of version {PLAN_VERSION + 1}, those of the unpooled installed here of version {PLAN_VERSION}: install equal versions"
    refused(party, newer, PlanMismatch, words)


def test_a_step_that_releases_nothing_is_answered_once_not_at_any_index(case: Case) -> None:
    """FINDINGS G18: 300 openings were 300 rows of the ledger."""
    made = parties(case)
    for entry in transcript_of(case, made).entries:
        head = made[entry.to].ledger.head
        for index in (10_000, 2**40):
            envelope = msgspec.structs.replace(open_envelope(entry.request), index=index)
            with pytest.raises((PlanMismatch, ProtocolError)):
                made[entry.to].answer(msgspec.msgpack.encode(envelope))
        assert made[entry.to].ledger.head == head


def test_a_weaker_plan_under_an_approved_hash_is_refused(case: Case, party: Party) -> None:
    weaker = msgspec.structs.replace(case.study, epsilon=100.0)
    refused(party, open_message(case, weaker, load(case.model).compile(case.study).hash), PlanMismatch, "compiles")


def test_bounds_sent_over_the_wire_are_refused(case: Case, party: Party) -> None:
    card = case.study.parties[0]
    column = next(c for c in card.columns if c.low is not None)
    wider = msgspec.structs.replace(column, high=column.high * 2)
    cards = tuple(
        msgspec.structs.replace(c, columns=tuple(wider if x.name == column.name else x for x in c.columns))
        for c in case.study.parties
    )
    refused(party, open_message(case, msgspec.structs.replace(case.study, parties=cards)), PlanMismatch, "card")


def test_a_scale_sent_over_the_wire_is_refused(case: Case, party: Party) -> None:
    """A request that carries one more key than its step declares cannot be read at all."""
    model = load(case.model)
    plan = model.compile(case.study)
    party.answer(open_message(case))

    class Smuggled(msgspec.Struct):
        scale: float

    before = party.ledger.entries()
    with pytest.raises(ProtocolError):
        party.answer(encode(plan.hash, (*model.steps, *model.more_steps(plan))[0].name, 0, Smuggled(0.001)))
    assert party.ledger.entries() == before


def test_changed_data_under_an_old_key_are_refused(case: Case) -> None:
    transcript = transcript_of(case)
    name = transcript.entries[0].to
    people = parties(case)
    for entry in transcript.entries:
        if entry.to == name:
            people[name].answer(entry.request)
    column = case.study.parties[0].columns[0]
    changed = case.tables[name].replace(0, {column.name: column.low})
    stale = dataclasses.replace(people[name], table=changed)
    before = stale.ledger.entries()
    with pytest.raises(ReleaseConflict):
        stale.answer(transcript.entries[0].request)
    assert stale.ledger.entries() == before


def test_changed_data_between_debit_and_reply_are_refused(case: Case, monkeypatch) -> None:
    """The fingerprint in the ledger catches a release over another statistic than the one that was debited."""
    transcript = transcript_of(case)
    own = [e for e in transcript.entries if e.to == transcript.entries[0].to]
    party = parties(case)[own[0].to]
    column = case.study.parties[0].columns[0]
    changed = case.tables[own[0].to].replace(0, {column.name: column.low}).replace(1, {column.name: column.low})
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "commit", lambda *_, **__: None)
        for entry in own:
            party.answer(entry.request)
    stale = dataclasses.replace(party, table=changed)
    with pytest.raises((ReleaseConflict, DataError)):  # of masked rows the party says so before it comes to a release
        for entry in own:
            stale.answer(entry.request)


def test_a_seed_is_refused_without_allow_simulation(case: Case) -> None:
    strict = next(iter(parties(case, policy(case, allow_simulation=False)).values()))
    refused(strict, open_message(case), PolicyRefusal, "seed")


def test_an_infinite_epsilon_is_refused_by_every_policy_with_a_budget(case: Case) -> None:
    party = next(iter(parties(case, policy(case, calibrations=frozenset(Calibration))).values()))
    asked = msgspec.structs.replace(case.study, epsilon=math.inf)
    try:
        message = open_message(case, asked)
    except UsageError:  # the model has no such study, and a party says so whatever hash is claimed
        refused(party, encode("0" * 64, "open", 0, OpenRequest(asked)), UsageError, "inf")
        return
    refused(party, message, PolicyRefusal, "no privacy")


def test_a_plan_that_was_not_approved_is_refused(case: Case) -> None:
    cautious = next(iter(parties(case, policy(case, approved=frozenset())).values()))
    refused(cautious, open_message(case), PolicyRefusal, "not approved")
    plan = load(case.model).compile(case.study)
    cautious.ledger.approve(plan.hash)
    cautious.answer(open_message(case))


def test_a_study_beyond_the_budget_is_refused_when_it_opens(case: Case) -> None:
    plan, unit = load(case.model).compile(case.study), Unit(case.study.unit)
    needed = plan.cost(unit, case.study.parties[0].name).epsilon(case.study.delta)
    rules = policy(case, budget=Target(needed * 0.999, case.study.delta, unit))
    refused(next(iter(parties(case, rules).values())), open_message(case), BudgetRefusal, "epsilon")


def test_a_second_run_beyond_the_budget_is_refused_and_the_first_one_stands(case: Case) -> None:
    people = parties(case)
    transcript_of(case, people)
    second = dataclasses.replace(case, study=msgspec.structs.replace(case.study, run=2))
    before = {name: party.ledger.entries() for name, party in people.items()}
    with pytest.raises(BudgetRefusal):
        transcript_of(second, people)
    assert {name: party.ledger.entries() for name, party in people.items()} == before
    transcript_of(case, people)  # the first study is still answered from the store


def test_another_number_of_rows_is_refused(case: Case) -> None:
    party = next(iter(parties(case).values()))
    fewer = dataclasses.replace(party, table=party.table.take(np.arange(5)))
    refused(fewer, open_message(case), PlanMismatch if case.study.hidden else DataError, "rows")


def test_bad_data_are_refused_before_any_charge(case: Case) -> None:
    party = next(iter(parties(case).values()))
    column = next(c for c in party.card.columns if not c.may_be_absent and c.low is not None)
    broken = dataclasses.replace(party, table=party.table.replace(3, {column.name: np.nan}))
    refused(broken, open_message(case), DataError, column.name)


def test_a_step_before_the_study_was_opened_is_refused(case: Case, party: Party) -> None:
    model = load(case.model)
    message = transcript_of(case).entries
    asked = {open_envelope(e.request).step for e in message}
    step = next(
        step for step in (*model.steps, *model.more_steps(model.compile(case.study))) if step.name in asked
    )  # a model may have steps of another form
    later = next(e.request for e in message if open_envelope(e.request).step == step.name)
    refused(party, later, PlanMismatch, "not opened")


def test_more_releases_than_planned_are_refused(case: Case, party: Party) -> None:
    message = [e for e in transcript_of(case).entries if e.to == party.name]
    for entry in message:
        party.answer(entry.request)
    before = party.ledger.entries()
    releasing = {r.step for r in load(case.model).compile(case.study).releases}
    last = next(e for e in map(open_envelope, (m.request for m in reversed(message))) if e.step in releasing)
    one_more = msgspec.msgpack.encode(msgspec.structs.replace(last, index=10_000))
    with pytest.raises(PlanMismatch, match="one more"):
        party.answer(one_more)
    assert party.ledger.entries() == before
