"""What every registered model must keep: equal bits in process, re-delivered, resumed and replayed; no second noise."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import msgspec
import numpy as np
import pytest
from cases import CASES, Case
from world import FULL

import unpooled.models
from unpooled.errors import (
    BudgetRefusal,
    DataError,
    PlanMismatch,
    PolicyRefusal,
    ProtocolError,
    ReleaseConflict,
    StudyAborted,
    UsageError,
)
from unpooled.models import REGISTRY, load, row_names
from unpooled.privacy.bounds import Column
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.noise import KeySource
from unpooled.privacy.plan import PLAN_VERSION, Card, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Calibration, Scope, Split, Target, Unit
from unpooled.protocol.conversation import OpenRequest
from unpooled.protocol.local import drive, in_process, recorded_only
from unpooled.protocol.messages import Dropped, encode, open_envelope
from unpooled.protocol.party import Party
from unpooled.protocol.transcript import Transcript


def policy(case: Case, **changes) -> Policy:
    budget = Target(case.study.epsilon, case.study.delta, Unit(case.study.unit))
    return dataclasses.replace(
        Policy(
            budget, trust=frozenset(case.study.trust.values()), allow_simulation=True, allow_unpinned=True, approved=None
        ),
        **changes,
    )


def parties(case: Case, rules: Policy | None = None) -> dict[str, Party]:
    made = {}
    for card in case.study.parties:
        ledger = Ledger.in_memory(root_key=bytes(32))
        made[card.name] = Party(
            card.name, case.tables[card.name], card, ledger, KeySource(ledger.root_key), rules or policy(case), load
        )
    return made


def transcript_of(case: Case, people: dict[str, Party] | None = None) -> Transcript:
    transcript = Transcript()
    model = load(case.model)
    drive(model, model.compile(case.study), in_process(people or parties(case)), transcript)
    return transcript


def spent(case: Case, party: Party) -> float:
    return party.ledger.composition(Unit(case.study.unit)).epsilon(case.study.delta)


def test_every_model_folder_is_registered_and_every_model_has_a_case() -> None:
    folders = {path.parent.name for path in Path(unpooled.models.__file__).parent.glob("*/__init__.py")}
    assert folders == set(REGISTRY) == {name.partition(",")[0] for name in CASES}
    assert set(row_names()) == folders | {f"{name}-published" for name in ("pride", "bayes", "stacking", "lasso", "pls")}
    assert all(load(row).name == row for row in row_names())
    with pytest.raises(UsageError, match="describe"):
        load("no such model")
    with pytest.raises(UsageError, match="no published form"):
        load("describe-published")


def test_runs_are_bitwise_equal_in_process_redelivered_and_replayed(case: Case) -> None:
    model = load(case.model)
    plan = model.compile(case.study)
    people, transcript = parties(case), Transcript()
    first = drive(model, plan, in_process(people), transcript)
    again = drive(model, plan, in_process(people))  # the same parties: everything from their stores
    other = drive(model, plan, in_process(parties(case)))  # other parties, same simulated noise
    played = drive(model, plan, recorded_only, transcript.replay())
    wanted = msgspec.msgpack.encode(first.result)
    for outcome in (again, other, played):
        assert msgspec.msgpack.encode(outcome.result) == wanted
        assert outcome.communication == first.communication

    def every_message_twice(batch):
        in_process(people)(batch)
        return in_process(people)(batch)

    assert msgspec.msgpack.encode(drive(model, plan, every_message_twice).result) == wanted
    for party in people.values():
        # Of releases that are limited together (LASSO's columns) a party may make fewer than it could.
        certain = {r.name: r.count for r in plan.releases if r.party == party.name and not r.exposure.together}
        charged = [entry.key.name for entry in party.ledger.entries() if entry.kind == "charge"]
        assert {name: charged.count(name) for name in certain} == certain
        assert len(charged) <= sum(r.count for r in plan.releases if r.party == party.name)


@pytest.mark.parametrize("how", ["the ledger", "the policy", "nobody"])
def test_every_party_debits_what_the_statement_says_whoever_approved_the_plan(case: Case, how: str) -> None:
    """V5: of a column-split study the whole plan, over all its parties; a study that the ledger approved was tried nowhere."""
    model = load(case.model)
    plan = model.compile(case.study)
    approved = {"the ledger": frozenset[str](), "the policy": frozenset({plan.hash}), "nobody": None}[how]
    people = parties(case, policy(case, approved=approved))
    if how == "the ledger":
        with pytest.raises(PolicyRefusal, match="not approved"):
            drive(model, plan, in_process(people))
        for party in people.values():
            party.ledger.approve(plan.hash)
    drive(model, plan, in_process(people))
    stated = plan.statement.epsilon_per_unit
    for party in people.values():
        own = [r for r in plan.releases if r.party == party.name]
        for unit in plan.units:
            total = party.ledger.composition(unit, Scope.PERSON).epsilon(case.study.delta)
            if plan.split is Split.VERTICAL and own:
                # Nobody here can tell what the others have released about the same people.
                assert total == pytest.approx(plan.cost(unit, party.name).epsilon(case.study.delta), rel=1e-9)
                if unit is Unit.RECORD:
                    assert total == pytest.approx(stated[unit], rel=1e-9)
            else:
                assert total <= stated[unit] * (1 + 1e-9)
        alone = party.ledger.composition(Unit.RECORD, Scope.PARTY).epsilon(case.study.delta)
        assert alone <= party.ledger.composition(Unit.RECORD, Scope.PERSON).epsilon(case.study.delta)


def test_a_crash_after_any_message_and_a_resume_draw_no_second_noise(case: Case, tmp_path: Path) -> None:
    model = load(case.model)
    plan = model.compile(case.study)
    whole = transcript_of(case)

    class CoordinatorDied(Exception):
        pass

    # Every message at full size; the work grows with their square.
    points = range(len(whole.entries))
    for survived in points if FULL else sorted({*points[:2], *points[-2:], *np.linspace(0, len(points) - 1, 5).astype(int)}):
        people, left = parties(case), survived
        path = tmp_path / f"{survived}"

        def dying(batch):
            nonlocal left
            out = []
            for ask, request in batch:
                out.append(people[ask.to].answer(request))
                if left == 0:
                    raise CoordinatorDied
                left -= 1
            return out

        transcript = Transcript.open(path)
        with pytest.raises(CoordinatorDied):
            drive(model, plan, dying, transcript)
        transcript.close()
        transcript = Transcript.open(path)
        drive(model, plan, in_process(people), transcript)
        transcript.close()
        assert transcript.entries == whole.entries
        assert all(spent(case, party) <= case.study.epsilon for party in people.values())


def test_a_party_that_dies_between_debit_and_reply_repeats_its_noise(case: Case, monkeypatch) -> None:
    """The ledger keeps the reservation, the stored reply is lost: the same noise is drawn again and nothing is debited."""
    whole = transcript_of(case)
    people = parties(case)

    class PartyDied(Exception):
        pass

    def die(*_: object) -> None:
        raise PartyDied

    for entry in whole.entries:
        party = people[entry.to]
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "commit", die)
            with pytest.raises(PartyDied):
                party.answer(entry.request)
        before = spent(case, party)
        assert party.answer(entry.request) == entry.reply
        assert spent(case, party) == before


def test_releases_are_equal_under_row_permutation_and_block_size(case: Case, monkeypatch) -> None:
    if load(case.model).compile(case.study).split is Split.VERTICAL:
        pytest.skip("rows of a vertical study are aligned")
    wanted = [entry.reply for entry in transcript_of(case).entries]
    rng = np.random.default_rng(0)
    shuffled = {name: table.take(rng.permutation(table.n_rows)) for name, table in case.tables.items()}
    permuted = transcript_of(dataclasses.replace(case, tables=shuffled))
    assert [entry.reply for entry in permuted.entries] == wanted
    from unpooled.privacy import table

    original = table.Table.blocks
    for rows in (1, 7, 1000):
        monkeypatch.setattr(table.Table, "blocks", lambda self, names, _=0, rows=rows: original(self, names, rows))
        assert [entry.reply for entry in transcript_of(case).entries] == wanted


# --- refusals: each leaves the ledger as it was -------------------------------------------------------------------------


def open_message(case: Case, study=None, claimed: str | None = None) -> bytes:
    plan = load(case.model).compile(study or case.study)
    return encode(claimed or plan.hash, "open", 0, OpenRequest(study or case.study))


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
        party.answer(encode(plan.hash, model.steps[0].name, 0, Smuggled(0.001)))
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
    """Reserved over one statistic, released over another: the fingerprint in the ledger catches it."""
    transcript = transcript_of(case)
    own = [e for e in transcript.entries if e.to == transcript.entries[0].to]
    party = parties(case)[own[0].to]
    column = case.study.parties[0].columns[0]
    changed = case.tables[own[0].to].replace(0, {column.name: column.low}).replace(1, {column.name: column.low})
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "commit", lambda *_: None)
        for entry in own:
            party.answer(entry.request)
    stale = dataclasses.replace(party, table=changed)
    with pytest.raises(ReleaseConflict):
        for entry in own:
            stale.answer(entry.request)


def test_a_seed_is_refused_without_allow_simulation(case: Case) -> None:
    strict = next(iter(parties(case, policy(case, allow_simulation=False)).values()))
    refused(strict, open_message(case), PolicyRefusal, "seed")


def test_an_infinite_epsilon_is_refused_by_every_policy_with_a_budget(case: Case) -> None:
    party = next(iter(parties(case, policy(case, calibrations=frozenset(Calibration))).values()))
    refused(party, open_message(case, msgspec.structs.replace(case.study, epsilon=math.inf)), PolicyRefusal, "no privacy")


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
    refused(fewer, open_message(case), DataError, "rows")


def test_bad_data_are_refused_before_any_charge(case: Case) -> None:
    party = next(iter(parties(case).values()))
    column = next(c for c in party.card.columns if not c.may_be_absent and c.low is not None)
    broken = dataclasses.replace(party, table=party.table.replace(3, {column.name: np.nan}))
    refused(broken, open_message(case), DataError, column.name)


def test_a_step_before_the_study_was_opened_is_refused(case: Case, party: Party) -> None:
    model = load(case.model)
    message = transcript_of(case).entries
    asked = {open_envelope(e.request).step for e in message}
    step = next(step for step in model.steps if step.name in asked)  # a model may have steps of another form
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


@pytest.mark.parametrize(("name", "unit"), [("stacking", "record"), ("pride", "attribute")])
def test_a_missing_party_aborts_a_study_whose_columns_are_split(name: str, unit: str) -> None:
    cards = tuple(Card(party, 20, (Column(f"x{party}", -1.0, 1.0),), ("y",)) for party in "ab")
    study = Study(name, cards, 1.0, 1e-6, unit=unit, parameters={"sketch_dim": 1} if name == "pride" else {}, derived=())
    values = np.random.default_rng(1).uniform(-1, 1, (20, 2))
    people = {}
    for k, card in enumerate(cards):
        ledger = Ledger.in_memory()
        table = Table({f"x{card.name}": values[:, k], "y": np.where(values[:, 0] > 0, 1.0, -1.0)})
        people[card.name] = Party(card.name, table, card, ledger, KeySource(ledger.root_key), Policy.in_process(), load)
    honest = in_process(people)

    def exchange(batch):
        return [Dropped("b", "gone") if a.to == "b" and a.step != "open" else honest([(a, r)])[0] for a, r in batch]

    with pytest.raises(StudyAborted):
        drive(load(name), load(name).compile(study), exchange)
