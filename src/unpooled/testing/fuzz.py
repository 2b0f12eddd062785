"""Messages of every case with damage: a coordinator and a party read them or refuse them in words, and a refusal leaves no trace."""

from __future__ import annotations

from typing import NamedTuple

from unpooled.audit.account import fresh_parties
from unpooled.models import load
from unpooled.protocol.conversation import find_step
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.messages import open_body, open_envelope
from unpooled.protocol.transcript import Transcript
from unpooled.testing.cases import Case, sized
from unpooled.testing.damage import Attacked, campaign

#: Damaged inputs of each kind.
COUNT = sized(100_000, 2_000)


class Spoken(NamedTuple):
    """All messages of an honest run, each with its step and its party."""

    requests: list[tuple[str, str, bytes]]
    replies: list[tuple[str, str, bytes]]


def spoken(case: Case) -> Spoken:
    """Return all messages of an honest run of the case."""
    record = Transcript()
    row = load(case.model)
    drive(row, row.compile(case.study), in_process(fresh_parties(case.study, case.tables, load)), record)
    steps = [open_envelope(entry.request).step for entry in record.entries]
    sent = [(step, entry.to, entry.request) for step, entry in zip(steps, record.entries, strict=True)]
    came = [
        (step, entry.to, entry.reply) for step, entry in zip(steps, record.entries, strict=True) if entry.reply is not None
    ]
    return Spoken(sent, came)


def test_messages_are_read_or_refused(case: Case) -> None:
    """The coordinator reads a damaged reply, or refuses it."""
    row, said = load(case.model), spoken(case).replies
    plan = row.compile(case.study)

    def act(blob: bytes) -> None:
        envelope = open_envelope(blob)
        open_body(envelope, find_step(row, envelope.step, plan).reply)

    answers = campaign(
        Attacked([blob for _, _, blob in said], act, lambda: None, text=False), f"replies of {case.name}", COUNT // 4
    )
    assert len(answers) >= 5


def test_a_party_answers_or_refuses_and_a_refusal_leaves_no_trace(case: Case) -> None:
    """A party that has answered the honest requests says nothing new to damaged ones."""
    said = spoken(case).requests
    parties = fresh_parties(case.study, case.tables, load)
    name = said[-1][1]
    party, heard = parties[name], {}
    for _, to, blob in said:
        if to == name:
            heard[blob] = party.answer(blob)

    def state() -> tuple[object, ...]:
        return party.ledger.entries(), party.ledger.guesses, tuple(party.answer(blob) for blob in heard)

    before = state()
    assert before[2] == tuple(heard.values())
    answers = campaign(Attacked(list(heard), party.answer, state, text=False), f"requests of {case.name}", COUNT // 4)
    assert len(answers) >= 5
