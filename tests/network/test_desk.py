"""What a party refuses from a network, and what a coordinator refuses from parties: everything but the engine, on real ledgers."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from cases import CASES, FIRST
from world import FULL
from worlds import World, identity_of, make_world

from unpooled import errors
from unpooled.errors import (
    BudgetRefusal,
    DataError,
    PlanMismatch,
    PolicyRefusal,
    ProtocolError,
    Refusal,
    StudyError,
    UnpooledError,
    UsageError,
)
from unpooled.models import load
from unpooled.network import signing
from unpooled.network.service import RequestDesk, Silence, coordinate, signed_exchange
from unpooled.privacy.ledger.store import Anchor
from unpooled.privacy.unit import Split
from unpooled.protocol.conversation import OPEN, OpenRequest
from unpooled.protocol.identity import Identity
from unpooled.protocol.local import drive
from unpooled.protocol.messages import Ask, Dropped, Nothing, encode
from unpooled.study.run import compile_study

COORDINATOR = Identity(b"c" * 32)
STRANGER = Identity(b"s" * 32)


@pytest.fixture(params=sorted(CASES if FULL else [*FIRST.values(), "bayes, columns"]))
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return make_world(tmp_path, CASES[request.param](), COORDINATOR.public)


@pytest.fixture
def simple(tmp_path: Path) -> World:
    return make_world(tmp_path, CASES["describe"](), COORDINATOR.public)


@contextlib.contextmanager
def desks(world: World) -> Iterator[dict[str, RequestDesk]]:
    opened = {name: RequestDesk(world.party(name), name) for name in world.names}
    try:
        yield opened
    finally:
        for desk in opened.values():
            desk.close()


def to(opened: dict[str, RequestDesk]) -> Callable[[str, bytes, float], bytes]:
    return lambda party, frame, _patience: opened[party].answer(frame)


def run(world: World, study=None, call=None, *, out: str = "out", resume: bool = False, patience: float = 60.0):
    """A networked run without the engine. Returns the result file; raises what the submitting user would read."""
    study = study or world.study
    folder = world.root / out
    with desks(world) as opened:
        coordinate(study, COORDINATOR, call or to(opened), world.root / "studies", folder, patience=patience, resume=resume)
    refused = folder / "refused.json"
    if refused.exists():
        reason = json.loads(refused.read_text())
        refused.unlink()
        raise signing.again(reason["error"], reason["words"])
    return json.loads((folder / "result.json").read_text())


def builtin(result):
    return json.loads(msgspec.json.encode(msgspec.to_builtins(result)))


def opening(study, party: str, coordinator: Identity = COORDINATOR) -> bytes:
    return signing.sign_request(coordinator, party, encode(compile_study(study).hash, OPEN.name, 0, OpenRequest(study)))


def refusal(world: World, party: str, frame: bytes, kind: type[UnpooledError], match: str, question: bytes = b"") -> None:
    """The frame is refused with this kind and words, signed by the party, and costs nothing."""
    with desks(world) as opened:
        answer = opened[party].answer(frame)
    with contextlib.suppress(ProtocolError):
        question = question or signing.read_request(frame).body
    with pytest.raises(kind, match=match):
        signing.open_answer(answer, party, identity_of(world, party).public, question)
    assert world.entries(party, world.study) == []


@pytest.mark.long_for("direction")
@pytest.mark.slow
@pytest.mark.parametrize("method", ["refinement", "gradient", "direction", "mean"])
def test_rounds_of_a_secure_sum_have_the_bits_of_unsigned_ones(method: str, tmp_path: Path) -> None:
    world = make_world(tmp_path, CASES["bayes"](), COORDINATOR.public)
    passes = 48 if method == "direction" else 6
    study = world.variant(parameters={"response": "pressure", "tolerate": 1, "method": method, "max_passes": passes})
    world.approve(study)
    local = world.in_process(study)
    result = run(world, study)
    assert result["result"] == builtin(local.result)
    assert result["communication"] == local.communication
    assert world.fully_charged(study)
    # Everything was answered and stored: the same run again asks nobody for anything new, and finds the same.
    assert run(world, study, resume=True) == result


@pytest.mark.long_for("effects")
@pytest.mark.slow_for(
    "glm", "lasso", "effects", "pls", "survival", "tables", "diagnose", "analyses", "bayes", "bayes, columns"
)
def test_signed_runs_have_the_bits_of_unsigned_ones(world: World) -> None:
    world.approve(world.study)
    local = world.in_process(world.study)
    result = run(world)
    assert result["result"] == builtin(local.result)
    assert result["communication"] == local.communication
    assert world.fully_charged(world.study)
    with pytest.raises(UsageError, match="--resume"):
        run(world)
    assert run(world, resume=True, out="again") == result
    assert world.fully_charged(world.study)


# --- a network and a coordinator that lie -----------------------------------------------------------------------------------


def test_a_request_of_another_coordinator_is_refused(simple: World) -> None:
    simple.approve(simple.study)
    refusal(simple, "north", opening(simple.study, "north", STRANGER), ProtocolError, "does not belong")


def test_a_stranger_who_pins_himself_is_refused_by_the_approval(simple: World) -> None:
    simple.approve(simple.study)
    own = simple.variant(coordinator=STRANGER.public)
    refusal(simple, "north", opening(own, "north", STRANGER), PolicyRefusal, "not approved")


def test_a_study_without_pinned_speakers_is_refused(simple: World) -> None:
    nobody = simple.variant(coordinator="")
    simple.approve(nobody)
    refusal(simple, "north", opening(nobody, "north"), PlanMismatch, "names no coordinator key")
    bare = tuple(msgspec.structs.replace(card, key="") for card in simple.study.parties)
    keyless = simple.variant(parties=bare)
    simple.approve(keyless)
    refusal(simple, "north", opening(keyless, "north"), PlanMismatch, "does not carry this party's key")
    with pytest.raises(UsageError, match="has no key"):
        run(simple, keyless)
    with pytest.raises(UsageError, match="pins another coordinator"):
        run(simple, nobody)


def test_a_request_for_another_party_is_refused(simple: World) -> None:
    simple.approve(simple.study)
    refusal(simple, "coast", opening(simple.study, "north"), ProtocolError, "does not belong")


def test_a_body_that_was_altered_or_moved_to_another_id_is_refused(simple: World) -> None:
    plan = simple.approve(simple.study)
    frame = signing.read_request(opening(simple.study, "north"))
    assert frame.body.count(b"describe") == 1
    for body in (frame.body.replace(b"describe", b"descrive"), frame.body[:-1], frame.body.replace(b"open", b"sums")):
        altered = msgspec.msgpack.encode(signing.Request(body, frame.signature))
        with desks(simple) as opened:
            answer = opened["north"].answer(altered)
        with pytest.raises(UnpooledError):
            signing.open_answer(answer, "north", identity_of(simple, "north").public, body)
    # A signature for step 0 does not serve for step 1.
    with desks(simple) as opened:
        opened["north"].answer(opening(simple.study, "north"))
        first = signing.read_request(signing.sign_request(COORDINATOR, "north", encode(plan.hash, "sums", 0, Nothing())))
        moved = encode(plan.hash, "sums", 1, Nothing())
        answer = opened["north"].answer(msgspec.msgpack.encode(signing.Request(moved, first.signature)))
        with pytest.raises(ProtocolError, match="does not belong"):
            signing.open_answer(answer, "north", identity_of(simple, "north").public, moved)
    assert simple.charges(simple.study)["north"] == 0


def test_a_step_before_its_study_is_refused(simple: World) -> None:
    plan = simple.approve(simple.study)
    early = signing.sign_request(COORDINATOR, "north", encode(plan.hash, "sums", 0, Nothing()))
    refusal(simple, "north", early, PlanMismatch, "send the study first")


@pytest.mark.parametrize("noise", [b"", b"\x00" * 50, msgspec.msgpack.encode({"type": "Request"}), b"\xc1"])
def test_noise_is_refused(simple: World, noise: bytes) -> None:
    refusal(simple, "north", noise, ProtocolError, "cannot be read")


def test_more_than_the_approved_plan_is_refused(simple: World) -> None:
    """A second release of a step that is planned once, and a step with a payload that the plan does not know."""
    plan = simple.approve(simple.study)
    with desks(simple) as opened:
        opened["north"].answer(opening(simple.study, "north"))
        for index, step in ((1, "sums"), (0, "everything")):
            body = encode(plan.hash, step, index, Nothing())
            answer = opened["north"].answer(signing.sign_request(COORDINATOR, "north", body))
            with pytest.raises((PlanMismatch, ProtocolError), match=r"planned 1 times|no step"):
                signing.open_answer(answer, "north", identity_of(simple, "north").public, body)
    assert simple.charges(simple.study)["north"] == 0
    greedy = simple.variant(epsilon=2.0)
    refusal(simple, "north", opening(greedy, "north"), PolicyRefusal, "not approved")


def tampering(opened: dict[str, RequestDesk], party: str, step: str, change: Callable[[bytes], bytes]):
    def call(to: str, frame: bytes, _patience: float) -> bytes:
        answer = opened[to].answer(frame)
        asked = encode_step(frame)
        return change(answer) if (to, asked) == (party, step) else answer

    return call


def encode_step(frame: bytes) -> str:
    from unpooled.protocol.messages import open_envelope

    return open_envelope(signing.read_request(frame).body).step


@pytest.mark.parametrize(
    "change",
    [
        lambda answer: (
            answer.replace(b"|u1", b"<f8", 1)
            if b"|u1" in answer
            else answer.replace(b"<f8", b"<i8", 1).replace(b"<i8", b"<u8", 1)
        ),
        lambda answer: answer[:-3],
        lambda answer: b"",
        lambda answer: signing.sign_answer(STRANGER, "coast", b"", b"forged"),
    ],
)
def test_an_answer_that_was_altered_is_refused(simple: World, change) -> None:
    simple.approve(simple.study)
    with desks(simple) as opened, pytest.raises(ProtocolError, match=r"does not belong|cannot be read"):
        run(simple, call=tampering(opened, "coast", "sums", change))


def test_answers_do_not_fit_other_questions_or_other_parties(simple: World) -> None:
    simple.approve(simple.study)
    seen: dict[tuple[str, str], bytes] = {}
    with desks(simple) as opened:

        def swapping(party: str, frame: bytes, _patience: float) -> bytes:
            answer = seen.setdefault((party, encode_step(frame)), opened[party].answer(frame))
            other = {("coast", "sums"): ("coast", "open")}.get((party, encode_step(frame)))
            return seen[other] if other else answer

        with pytest.raises(ProtocolError, match="does not belong"):
            run(simple, call=swapping)

        def crossing(party: str, frame: bytes, _patience: float) -> bytes:
            return opened["city"].answer(frame) if party == "coast" else opened[party].answer(frame)

        with pytest.raises(ProtocolError, match="does not belong"):
            run(simple, call=crossing, resume=True)


def test_a_forged_refusal_is_not_believed_and_an_unsigned_one_is_marked(simple: World) -> None:
    simple.approve(simple.study)

    def forging(party: str, frame: bytes, _patience: float) -> bytes:
        return signing.sign_refusal(STRANGER, party, signing.read_request(frame).body, PolicyRefusal("no"))

    with pytest.raises(ProtocolError, match="does not belong"):
        run(simple, call=forging)

    def unsigned(party: str, frame: bytes, _patience: float) -> bytes:
        return signing.sign_refusal(None, party, b"", BudgetRefusal("no\x1b[31m room"))

    with pytest.raises(BudgetRefusal, match=r"party 'north' \(unsigned\): no\?\[31m room"):
        run(simple, call=unsigned, resume=True)


def test_every_error_keeps_its_class_and_no_foreign_text_leaves() -> None:
    own = Identity(b"p" * 32)
    kinds = [
        k
        for k in vars(errors).values()
        if isinstance(k, type) and issubclass(k, UnpooledError) and k not in (UnpooledError, errors.RowsError)
    ]
    assert len(kinds) > 10
    for kind in kinds:
        frame = signing.sign_refusal(own, "north", b"q", kind("in words"))
        with pytest.raises(kind, match="party 'north': in words") as caught:
            signing.open_answer(frame, "north", own.public, b"q")
        assert type(caught.value) is kind

    frame = signing.sign_refusal(own, "north", b"q", errors.RowsError("row 17 is blank", "a row is blank"))
    assert b"17" not in frame
    with pytest.raises(DataError, match="a row is blank") as told:
        signing.open_answer(frame, "north", own.public, b"q")
    assert type(told.value) is DataError

    class Special(DataError):
        pass

    frame = signing.sign_refusal(own, "north", b"q", Special("a column"))
    with pytest.raises(DataError):
        signing.open_answer(frame, "north", own.public, b"q")
    frame = signing.sign_refusal(own, "north", b"q", ValueError("could not convert 'patient Smith'"))
    assert b"Smith" not in frame
    with pytest.raises(ProtocolError, match="ValueError"):
        signing.open_answer(frame, "north", own.public, b"q")
    assert type(signing.again("SystemExit", "")) is ProtocolError


def test_an_unexpected_failure_at_a_party_tells_its_kind_only(simple: World, monkeypatch, caplog) -> None:
    simple.approve(simple.study)

    def fail(*_: object) -> None:
        raise KeyError("patient Smith")

    monkeypatch.setattr("unpooled.protocol.context.Context.release", fail)
    with pytest.raises(ProtocolError, match="failed there with KeyError") as caught:
        run(simple)
    assert "Smith" not in str(caught.value) + caplog.text
    assert "test_desk.py" in caplog.text  # the place is in the log
    assert not any(simple.charges(simple.study).values())


def test_a_party_does_not_tell_where_it_keeps_its_files(simple: World) -> None:
    simple.approve(simple.study)
    (simple.root / "coast/data.parquet").unlink()
    with pytest.raises(StudyError, match=r"party 'coast' \(unsigned\): data.parquet: there is no such data file") as caught:
        run(simple)
    assert str(simple.root) not in str(caught.value)


def test_a_party_file_under_anothers_certificate_is_refused(simple: World) -> None:
    desk = RequestDesk(simple.party("north"), "coast")
    with pytest.raises(UsageError, match="use one name"):
        signing.open_answer(desk.answer(opening(simple.study, "coast")), "coast", "", b"")
    desk.close()


# --- parties that say no, and what it costs the others -----------------------------------------------------------------------


@pytest.mark.long_for("effects")
@pytest.mark.slow_for(
    "effects", "survival", "tables", "diagnose", "pls", "analyses", "bayes", "bayes, columns", "glm", "lasso"
)
def test_a_policy_that_refuses_costs_nobody_anything(world: World) -> None:
    willing = world.names[:-1]
    world.approve(world.study, *willing)
    with pytest.raises(PolicyRefusal, match=f"party '{world.names[-1]}': plan .* is not approved"):
        run(world)
    assert not any(world.charges(world.study).values())
    world.approve(world.study)
    assert run(world, resume=True)["result"] == builtin(world.in_process(world.study).result)


def test_another_number_of_rows_is_refused_before_any_charge(world: World) -> None:
    import polars as pl

    world.approve(world.study)
    file = world.root / world.names[1] / "data.parquet"
    pl.read_parquet(file).head(10).write_parquet(file)
    # A party's own card follows its data, so the study's card is the wrong one: the row count is part of the card.
    with pytest.raises(PlanMismatch, match="card of party"):
        run(world)
    assert not any(world.charges(world.study).values())


def test_a_card_that_is_not_the_partys_is_refused_before_any_charge(world: World) -> None:
    cards = [msgspec.structs.replace(c) for c in world.study.parties]
    column = next(c for c in cards[0].columns if c.low is not None)
    wider = tuple(msgspec.structs.replace(c, high=c.high * 2) if c is column else c for c in cards[0].columns)
    cards[0] = msgspec.structs.replace(cards[0], columns=wider)
    if load(world.case.model).compile(world.study).split is Split.HORIZONTAL:  # all parties declare alike
        cards = [msgspec.structs.replace(c, columns=wider) for c in cards]
    study = world.variant(parties=tuple(cards))
    world.approve(study)
    with pytest.raises(PlanMismatch, match="is not the one this party published"):
        run(world, study)
    assert not any(world.charges(study).values())


def test_two_studies_racing_for_one_budget_never_overspend(simple: World) -> None:
    """Both open while there is room for one; at most one gets through, and the other is refused without a debit."""
    config = simple.party("north")
    budget = f"epsilon = {simple.case.study.epsilon * 1.2!r}"
    config.write_text(config.read_text().replace(f"epsilon = {simple.case.study.epsilon * 3!r}", budget))
    studies = [simple.variant(run=number) for number in (1, 2)]
    for study in studies:
        simple.approve(study)
    barrier, outcomes = threading.Barrier(2, timeout=60), []

    def one(number: int) -> None:
        with desks(simple) as opened:

            def call(party: str, frame: bytes, _patience: float) -> bytes:
                if party == "north" and encode_step(frame) == "sums":
                    barrier.wait()
                return opened[party].answer(frame)

            try:
                outcomes.append(run(simple, studies[number], call, out=f"out{number}"))
            except UnpooledError as error:
                outcomes.append(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    refused = [o for o in outcomes if isinstance(o, BudgetRefusal)]
    assert len(outcomes) == 2
    assert len(refused) == 1
    assert sorted(len(simple.entries("north", study)) for study in studies) == [0, 1]


def test_a_disk_that_is_full_refuses_and_later_goes_on(simple: World, monkeypatch) -> None:
    """At the ledger, and at the file beside it: nothing is sent, nothing is debited twice, and the bits are the same."""
    simple.approve(simple.study)
    wanted = builtin(simple.in_process(simple.study).result)
    real = Anchor.write
    north = simple.root / "north/north.ledger"

    def full(self: Anchor, *heads: object) -> None:
        if self.database == north and len(heads) == 2:
            raise Refusal("the anchor cannot be written (No space left on device). Nothing is debited twice")
        real(self, *heads)

    with monkeypatch.context() as patch:
        patch.setattr(Anchor, "write", full)
        with pytest.raises(Refusal, match=r"party 'north'.*No space left"):
            run(simple)
    assert simple.charges(simple.study)["north"] == 0
    assert run(simple, resume=True)["result"] == wanted
    assert simple.fully_charged(simple.study)


# --- silence ------------------------------------------------------------------------------------------------------------------


@pytest.mark.long_for("effects")
@pytest.mark.slow_for(
    "effects", "survival", "tables", "diagnose", "pls", "lasso", "analyses", "bayes", "bayes, columns", "glm"
)
def test_silence_is_asked_again_on_resume(world: World) -> None:
    """A party that was away ends a study that needs it; resumed, it is asked again and the bits are those of an unbroken run."""
    world.approve(world.study)
    wanted = builtin(world.in_process(world.study).result)
    last, answered = world.names[-1], 0
    with desks(world) as opened:

        def away(party: str, frame: bytes, _patience: float) -> bytes:
            nonlocal answered
            if party == last and encode_step(frame) == OPEN.name:
                raise Silence("no answer")
            answered += 1
            return opened[party].answer(frame)

        with pytest.raises(UsageError, match=f"{last}.*no answer"):
            run(world, call=away)
    assert answered == len(world.names) - 1
    assert not any(world.charges(world.study).values())
    assert run(world, resume=True)["result"] == wanted


@pytest.mark.guarantee
def test_silence_that_a_model_bears_is_part_of_the_record(simple: World) -> None:
    """describe goes on without a party: resumed, even though the party is back, the result is the one that was published."""
    simple.approve(simple.study)
    with desks(simple) as opened:

        def away(party: str, frame: bytes, _patience: float) -> bytes:
            if party == "coast" and encode_step(frame) == "sums":
                raise Silence("no answer")
            return opened[party].answer(frame)

        result = run(simple, call=away)
    assert "coast" not in {row["source"] for row in result["result"]}
    assert run(simple, resume=True, out="again") == result
    assert simple.charges(simple.study)["coast"] == 0


def test_a_slow_party_is_dropped_after_the_patience_and_others_run_meanwhile(simple: World) -> None:
    study, asked = simple.study, []

    def call(party: str, frame: bytes, patience: float) -> bytes:
        asked.append((party, patience))
        time.sleep(0.3)
        if party == "coast":
            raise Silence("needed more than 0.5 s")
        return signing.sign_answer(identity_of(simple, party), party, signing.read_request(frame).body, b"body")

    began = time.monotonic()
    batch = [(Ask(name, "sums", Nothing()), b"request") for name in simple.names]
    answers = signed_exchange(study, COORDINATOR, call, patience=0.5)(batch)
    assert time.monotonic() - began < 0.8  # at once, not one after the other
    assert {patience for _, patience in asked} == {0.5}
    assert answers == [b"body", Dropped("coast", "needed more than 0.5 s"), b"body"]
    short = [(Ask("north", "sums", Nothing(), deadline=0.1), b"request")]
    signed_exchange(study, COORDINATOR, call, patience=0.5)(short)
    assert asked[-1] == ("north", 0.1)


def test_one_coordinator_at_a_time_writes_a_transcript(simple: World, monkeypatch) -> None:
    from unpooled.network import service

    simple.approve(simple.study)
    real = service._alone
    monkeypatch.setattr(service, "_alone", lambda folder: real(folder, patience=0.3))
    folder = simple.root / "studies" / compile_study(simple.study).hash[:32]
    folder.mkdir(parents=True)
    with real(folder), pytest.raises(ProtocolError, match="running already"):
        run(simple)
    run(simple)


@pytest.mark.guarantee
def test_a_damaged_transcript_is_refused(simple: World) -> None:
    simple.approve(simple.study)
    run(simple)
    file = next((simple.root / "studies").glob("*/transcript"))
    content = bytearray(file.read_bytes())
    content[40] ^= 1
    file.write_bytes(content)
    with pytest.raises(ProtocolError, match="damaged"):
        run(simple, resume=True)


def test_signatures_add_less_than_two_per_cent(tmp_path: Path) -> None:
    """``communication`` counts the messages; with the signatures around them the bytes that are sent are hardly more."""
    case = CASES["pride"]()
    many = 3000
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 24, many)
    tables = {name: table.take(rows) for name, table in case.tables.items()}
    cards = tuple(msgspec.structs.replace(card, rows=many) for card in case.study.parties)
    case = dataclasses.replace(case, tables=tables, study=msgspec.structs.replace(case.study, parties=cards))
    world = make_world(tmp_path, case, COORDINATOR.public)
    world.approve(world.study)
    sent: dict[str, list[int]] = {name: [0, 0] for name in world.names}
    with desks(world) as opened:

        def counting(party: str, frame: bytes, _patience: float) -> bytes:
            answer = opened[party].answer(frame)
            sent[party][0] += len(frame)
            sent[party][1] += len(answer)
            return answer

        counted = run(world, call=counting)["communication"]
    total = sum(count["sent"] + count["received"] for count in counted.values())
    assert 100_000 < total < sum(map(sum, sent.values())) < total * 1.02


@pytest.mark.guarantee
def test_drive_over_signed_frames_rejects_a_reply_of_another_step(simple: World) -> None:
    """Signed by the right party for the right question, but not an answer to it: a party that lies."""
    simple.approve(simple.study)
    own = {name: identity_of(simple, name) for name in simple.names}

    def lying(party: str, frame: bytes, _patience: float) -> bytes:
        body = signing.read_request(frame).body
        return signing.sign_answer(own[party], party, body, encode("0" * 64, "open", 0, Nothing()))

    with pytest.raises(ProtocolError, match="another question"):
        drive(load("describe"), compile_study(simple.study), signed_exchange(simple.study, COORDINATOR, lying, 1.0))


@pytest.mark.guarantee
def test_a_locked_ledger_is_waited_for_and_then_refused(simple: World, monkeypatch) -> None:
    simple.approve(simple.study)
    monkeypatch.setattr("unpooled.privacy.ledger.store.PATIENCE", 0.3)
    with contextlib.closing(sqlite3.connect(simple.root / "city/city.ledger", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Refusal, match="party 'city'"):
            run(simple)
    assert simple.charges(simple.study)["city"] == 0
