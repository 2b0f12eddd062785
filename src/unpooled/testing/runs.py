"""Runs of every case: equal bits in process, delivered again, resumed and replayed; debits as stated; and never a second noise."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import numpy as np
import pytest

from unpooled.errors import PolicyRefusal
from unpooled.models import load
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Scope, Split, Unit
from unpooled.protocol.local import drive, in_process, recorded_only
from unpooled.protocol.party import Party
from unpooled.protocol.transcript import Transcript
from unpooled.testing.cases import FULL, Case, parties, policy, transcript_of


def spent(case: Case, party: Party) -> float:
    return party.ledger.composition(Unit(case.study.unit)).epsilon(case.study.delta)


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
def test_every_party_debits_what_the_statement_says_however_it_was_approved(case: Case, how: str) -> None:
    """Each party of a column-split study debits the whole plan, over all its parties; a study that the ledger approved was tried nowhere."""
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
            if party.helps:
                assert total == 0
                continue
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
    whole = Transcript.open(tmp_path / "whole")  # on disk too: there, long ciphertext is left out
    drive(model, plan, in_process(parties(case)), whole)
    whole.close()

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
    """The ledger keeps the reservation and the stored reply is lost: the same noise is drawn again and nothing is debited."""
    whole = transcript_of(case)
    people = parties(case)

    class PartyDied(Exception):
        pass

    def die(*_: object, **__: object) -> None:
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
    shuffled = {name: table.take(rng.permutation(table.owners.size)) for name, table in case.tables.items()}
    permuted = transcript_of(dataclasses.replace(case, tables=shuffled))
    assert [entry.reply for entry in permuted.entries] == wanted
    original = Table.blocks
    for rows in (1, 7, 1000):
        monkeypatch.setattr(Table, "blocks", lambda self, names, _=0, rows=rows: original(self, names, rows))
        assert [entry.reply for entry in transcript_of(case).entries] == wanted
