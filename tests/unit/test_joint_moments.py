"""Joint moments: exact under masks, opened by all members or by nobody, refused where a member deviates."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from joint_members import INF, MODEL, people, study_of, world

from unpooled.errors import DataError, PlanMismatch, PolicyRefusal, ProtocolError, StudyAborted, UnpooledError, UsageError
from unpooled.models.bayes.columns import design_of
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, HelperCard, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.unit import Adjacency, Scope, Unit
from unpooled.products import conversation as sharing
from unpooled.products import masking
from unpooled.products import moments as coordinator
from unpooled.products import sums as sides
from unpooled.products.design import JointBudget, Limits
from unpooled.products.sums import CONSTANT_STEPS, JointShape, RowPart
from unpooled.protocol import messages as shortened
from unpooled.protocol.local import drive, in_process, run_in_process
from unpooled.protocol.messages import Commitment, Dropped, Masked, Sealed, encode, open_envelope
from unpooled.protocol.transcript import Transcript


def exact(study: Any, tables: Any, standards: Any) -> np.ndarray:
    """Return the exact products of the pooled table's coded rows."""
    design = MODEL.compile(study).design
    parts = [design.party_rows(name).coded(tables[name], standards[name]) for name in design.parties]
    whole = np.column_stack([*parts, np.full(len(parts[0]), CONSTANT_STEPS)]).astype(object)
    return (whole.T @ whole)[design.shape.pairs]


def opened(study: Any, tables: Any, monkeypatch: pytest.MonkeyPatch, members: Any = None) -> tuple[Any, dict[str, Any]]:
    """Return the opened total of a run and the standards of its parties."""
    seen: dict[str, Any] = {}
    real = coordinator.moments_of

    def spy(design: Any, standards: Any, values: Any, deviations: Any, **more: Any) -> Any:
        seen.update(standards=standards, values=values)
        return real(design, standards, values, deviations, **more)

    monkeypatch.setattr(coordinator, "moments_of", spy)
    drive(MODEL, MODEL.compile(study), in_process(members or people(study, tables)))
    return seen["values"], seen["standards"]


@pytest.mark.parametrize(("parties", "helper"), [(2, True), (3, True), (3, False), (4, False), (6, True)])
def test_the_opened_integers_are_the_exact_products_of_the_pooled_rows(
    parties: int, helper: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards, tables = world(parties, helper=helper)
    study = study_of(cards, INF, helper=helper)
    values, standards = opened(study, tables, monkeypatch)
    assert values.tolist() == exact(study, tables, standards).tolist()


@pytest.mark.parametrize("block", [7, 16, 40])
def test_any_size_of_blocks_gives_the_same_integers(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JointShape, "block_rows", block)
    cards, tables = world(3)
    study = study_of(cards, INF)
    values, standards = opened(study, tables, monkeypatch)
    assert values.tolist() == exact(study, tables, standards).tolist()


@pytest.mark.guarantee
def test_the_total_is_the_exact_one_plus_the_noise_that_members_drew(monkeypatch: pytest.MonkeyPatch) -> None:
    from unpooled.privacy import noise

    drawn: list[np.ndarray] = []
    real = noise.wide_gaussian

    def spy(*given: Any, **more: Any) -> Any:
        drawn.append(real(*given, **more))
        return drawn[-1]

    monkeypatch.setattr(noise, "wide_gaussian", spy)
    cards, tables = world(3)
    study = study_of(cards)
    values, standards = opened(study, tables, monkeypatch)
    blocks = MODEL.compile(study).design.shape.blocks
    assert len(drawn) == 4 * len(blocks)  # of every member one draw for each block of the release
    total = sum(np.concatenate(drawn[k : k + len(blocks)]) for k in range(0, len(drawn), len(blocks)))
    assert np.abs(total).max() > 1 << 20  # beyond what one sampler draws
    assert values.tolist() == (exact(study, tables, standards) + total).astype(float).tolist()


def test_a_transcript_gives_the_same_bits_again_and_every_member_the_same_replies() -> None:
    cards, tables = world(3, helper=False)
    study = study_of(cards, helper=False)
    plan, record = MODEL.compile(study), Transcript()
    first = drive(MODEL, plan, in_process(people(study, tables)), record).result
    assert drive(MODEL, plan, in_process({}), record.replay()).result == first
    again = Transcript()
    drive(MODEL, plan, in_process(people(study, tables)), again)
    assert [entry.reply for entry in again.entries] == [entry.reply for entry in record.entries]


@pytest.mark.guarantee
def test_a_seed_opens_nothing_that_a_recorded_run_seals() -> None:
    """A simulation repeats itself, but where its messages are recorded its masks and shares come from keys that nobody knows."""
    cards, tables = world(3)
    study = msgspec.structs.replace(study_of(cards), simulation_seed=7)
    plan = MODEL.compile(study)

    def replies(record: Transcript | None) -> tuple[Any, list[Any]]:
        found = run_in_process(MODEL, plan, tables, Policy.in_process(), lambda _: MODEL, transcript=record).outcome.result
        return found, [] if record is None else [entry.reply for entry in record.entries]

    assert replies(None)[0] == replies(None)[0]
    assert replies(Transcript())[1] != replies(Transcript())[1]


@pytest.mark.guarantee
def test_every_party_debits_the_joint_release_once_and_the_helper_nothing() -> None:
    cards, tables = world(3)
    study = study_of(cards)
    members, plan = people(study, tables), MODEL.compile(study)
    drive(MODEL, plan, in_process(members))
    for name, party in members.items():
        spent = party.ledger.composition(Unit.RECORD, Scope.PERSON).epsilon(study.delta)
        assert spent == pytest.approx(0.0 if name == "helper" else plan.epsilon(study.delta))
    assert plan.epsilon(study.delta) == pytest.approx(1.0, abs=1e-6)
    assert members["helper"].charges(plan) == []


STEPS = (
    "keys",
    "constants",
    "joint-mask",
    "joint-evaluate",
    "joint-judge",
    "joint-verdict",
    "joint-fragment",
    "joint-agree",
    "joint-total",
)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("gone", ["p1", "helper"])
def test_a_member_that_leaves_at_any_step_opens_nothing_and_can_come_back(step: str, gone: str) -> None:
    cards, tables = world(2)
    study = study_of(cards, tolerate=1)
    members, plan, record = people(study, tables), MODEL.compile(study), Transcript()
    honest, left = in_process(members), []

    def exchange(batch: list[Any]) -> list[Any]:
        answers = []
        for ask, request in batch:
            if ask.to == gone and ask.step == step:
                left.append(ask.step)
                answers.append(Dropped(gone, "gone"))
            else:
                answers += honest([(ask, request)])
        return answers

    asked = not (gone == "helper" and step in {"constants", "joint-mask", "joint-judge", "joint-verdict"}) and not (
        gone == "p1" and step == "joint-evaluate"
    )
    if not asked:
        assert drive(MODEL, plan, exchange, record).result is not None
        assert not left
        return
    with pytest.raises(StudyAborted, match=gone):
        drive(MODEL, plan, exchange, record)
    result = drive(MODEL, plan, honest, record.replay()).result
    assert result == drive(MODEL, plan, in_process(people(study, tables))).result
    for name in ("p0", "p1"):
        spent = members[name].ledger.composition(Unit.RECORD, Scope.PERSON).epsilon(study.delta)
        assert spent == pytest.approx(plan.epsilon(study.delta))


def test_a_total_without_a_share_is_refused_by_every_node() -> None:
    cards, tables = world(3, helper=False)
    study = study_of(cards, helper=False, tolerate=1)
    members, plan, record = people(study, tables), MODEL.compile(study), Transcript()
    drive(MODEL, plan, in_process(members), record)
    members = people(study, tables)
    for entry in record.entries:
        envelope = open_envelope(entry.request)
        if envelope.step != "joint-agree":
            members[entry.to].answer(entry.request)
            continue
        some = encode(plan.hash, "joint-agree", 0, Participants(("p0", "p1")))
        with pytest.raises(ProtocolError, match="all members"):
            members[entry.to].answer(some)
        return


class Participants(msgspec.Struct):
    """As the request of a node has them."""

    participants: tuple[str, ...]


def played(study: Any, tables: Any) -> tuple[Any, dict[str, Any], list[Any]]:
    """Return the plan, fresh members that have opened it, and the requests of a whole run."""
    plan, record = MODEL.compile(study), Transcript()
    drive(MODEL, plan, in_process(people(study, tables)), record)
    return plan, people(study, tables), record.entries


def until(members: Any, entries: list[Any], step: str) -> list[Any]:
    """Put recorded requests to members up to a step; return those of that step."""
    found = [entry for entry in entries if open_envelope(entry.request).step == step]
    for entry in entries:
        if entry is found[0]:
            break
        members[entry.to].answer(entry.request)
    return found


def changed(entry: Any, kind: Any, **fields: Any) -> bytes:
    """Return a recorded request with other content."""
    envelope = open_envelope(entry.request)
    body = msgspec.msgpack.decode(envelope.body, type=kind)
    return encode(envelope.plan, envelope.step, envelope.index, msgspec.structs.replace(body, **fields))


def test_a_second_first_message_for_a_block_is_refused() -> None:
    from unpooled.products.masking import EvaluateRequest

    cards, tables = world(2)
    _, members, entries = played(study_of(cards), tables)
    first, second = until(members, entries, "joint-evaluate")
    members["helper"].answer(first.request)
    other = msgspec.msgpack.decode(open_envelope(second.request).body, type=EvaluateRequest)
    with pytest.raises(UnpooledError):
        members["helper"].answer(changed(first, EvaluateRequest, seeds=other.seeds))
    assert members["helper"].answer(first.request) == first.reply


@pytest.mark.guarantee
def test_a_message_for_another_place_is_refused() -> None:
    """A seed, or masked rows, of one direction in the place of the other's are not opened: every seal names its place."""
    from unpooled.products.masking import EvaluateRequest, JudgeRequest

    cards, tables = world(2)
    _, members, entries = played(study_of(cards), tables)
    first, second = until(members, entries, "joint-evaluate")
    theirs = msgspec.msgpack.decode(open_envelope(second.request).body, type=EvaluateRequest)
    with pytest.raises(ProtocolError, match="another place"):
        members["helper"].answer(changed(first, EvaluateRequest, seeds=theirs.seeds))
    for entry in (first, second):
        members["helper"].answer(entry.request)
    one, other = [entry for entry in entries if open_envelope(entry.request).step == "joint-judge"]
    theirs = msgspec.msgpack.decode(open_envelope(other.request).body, type=JudgeRequest)
    for part in ("rows", "proof", "evaluation"):
        with pytest.raises(ProtocolError, match="another place"):
            members[one.to].answer(changed(one, JudgeRequest, **{part: getattr(theirs, part)}))


@pytest.mark.guarantee
@pytest.mark.parametrize("what", ["a digest", "a verdict missing", "a verdict of another", "a judge missing"])
def test_a_share_is_given_against_the_verdicts_of_all_parties_over_one_digest(what: str) -> None:
    from unpooled.products.masking import ShareRequest

    cards, tables = world(2)
    _, members, entries = played(study_of(cards), tables)
    asked = until(members, entries, "joint-fragment")[0]
    body = msgspec.msgpack.decode(open_envelope(asked.request).body, type=ShareRequest)
    fields = {
        "a digest": {"digests": ("0" * 64, *body.digests[1:])},
        "a verdict missing": {"verdicts": body.verdicts[:1]},
        "a verdict of another": {"verdicts": body.verdicts[:1] * 2},
        "a judge missing": {"judges": body.judges[:1]},
    }[what]
    before = len(members[asked.to].ledger.entries())
    with pytest.raises(ProtocolError):
        members[asked.to].answer(changed(asked, ShareRequest, **fields))
    assert len(members[asked.to].ledger.entries()) == before
    assert members[asked.to].answer(asked.request) == asked.reply


@pytest.mark.guarantee
def test_a_judge_signs_no_verdict_over_blocks_that_it_did_not_see_or_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    from unpooled.products import masking
    from unpooled.products.masking import VerdictRequest

    cards, tables = world(2)
    study = study_of(cards)
    _, members, entries = played(study, tables)
    asked = until(members, entries, "joint-judge")[0]
    verdict = next(e for e in entries if open_envelope(e.request).step == "joint-verdict" and e.to == asked.to)
    with pytest.raises(ProtocolError, match="has not arrived"):
        members[asked.to].answer(verdict.request)
    with pytest.raises(ProtocolError, match="digests where"):
        members[asked.to].answer(changed(verdict, VerdictRequest, digests=()))
    judge = masking.judge
    monkeypatch.setattr(masking, "judge", lambda *given: dataclasses.replace(judge(*given), accepted=False))
    members[asked.to].answer(asked.request)
    with pytest.raises(ProtocolError, match="was not accepted"):
        members[asked.to].answer(verdict.request)


@pytest.mark.guarantee
def test_nobody_signs_a_verdict_over_a_block_that_it_saw_otherwise() -> None:
    """A coordinator that shows members different messages gets no signatures to ask for shares with; a refusal changes nothing."""
    from unpooled.products.masking import VerdictRequest

    cards, tables = world(2)
    _, members, entries = played(study_of(cards), tables)
    refused = 0
    for asked in until(members, entries, "joint-verdict"):
        body = msgspec.msgpack.decode(open_envelope(asked.request).body, type=VerdictRequest)
        for at in range(len(body.digests)):
            others = tuple("0" * 64 if k == at else digest for k, digest in enumerate(body.digests))
            before = len(members[asked.to].ledger.entries())
            try:
                members[asked.to].answer(changed(asked, VerdictRequest, digests=others))
            except ProtocolError as error:
                assert "a block has another digest here" in str(error)  # noqa: PT017 - a member judges some of the blocks
                assert len(members[asked.to].ledger.entries()) == before
                refused += 1
                continue
            break
        else:
            assert members[asked.to].answer(asked.request) == asked.reply
    assert refused


def test_a_rejected_proof_ends_the_study_and_names_two_parties_and_the_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    from unpooled.products import masking

    judge = masking.judge
    monkeypatch.setattr(masking, "judge", lambda *given: dataclasses.replace(judge(*given), accepted=False))
    cards, tables = world(2)
    study = study_of(cards)
    members = people(study, tables)
    with pytest.raises(StudyAborted, match=r"'p0'.*'p1'.*'helper'.*were not opened"):
        drive(MODEL, MODEL.compile(study), in_process(members))
    assert not [
        e for e in members["p1"].ledger.entries() if "joint" in str(e) and e.kind == "charge" and "fragment" in e.step
    ]


def test_a_party_whose_rows_are_too_long_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack of the specification: 2^36 in one row reads the other party's row in clear. With the proof nothing is opened."""
    from unpooled.products import masking

    cards, tables = world(2)
    study = study_of(cards, INF)
    members = people(study, tables)
    real, prove = masking.mask, masking.prove

    def evil(context: Any, request: Any) -> Any:
        if context.name != "p0":
            return real(context, request)
        design = type(context.design)
        block = design.block

        def long(self: Any, context: Any, spot: Any) -> Any:
            found = block(self, context, spot)
            found[:] = 0
            found[5, 0] = 1 << 36
            return found

        fair = np.zeros((40, 2), dtype=np.int64)
        monkeypatch.setattr(design, "block", long)
        monkeypatch.setattr(masking, "prove", lambda place, shape, rows, *rest: prove(place, shape, fair, *rest))
        try:
            return real(context, request)
        finally:
            monkeypatch.setattr(design, "block", block)
            monkeypatch.setattr(masking, "prove", prove)

    steps = tuple(dataclasses.replace(step, answer=evil) if step.name == "joint-mask" else step for step in MODEL.steps)
    model = dataclasses.replace(MODEL, steps=steps)
    for party in members.values():
        object.__setattr__(party, "model", lambda _: model)
    with pytest.raises(StudyAborted, match="was not accepted"):
        drive(model, MODEL.compile(study), in_process(members))


@pytest.mark.guarantee
def test_data_that_change_after_they_were_masked_are_refused() -> None:
    cards, tables = world(2)
    study = study_of(cards)
    _, members, entries = played(study, tables)
    asked = until(members, entries, "joint-fragment")[0]
    assert asked.to == "p0"
    other = tables["p0"].replace(3, {"a0": 0.123})
    object.__setattr__(members["p0"], "table", other)
    with pytest.raises(DataError, match="have changed since their rows were masked"):
        members["p0"].answer(asked.request)


@pytest.mark.guarantee
def test_requests_name_the_members_that_the_plan_has() -> None:
    from unpooled.products.masking import MaskRequest

    cards, tables = world(3, helper=False)
    _, members, entries = played(study_of(cards, helper=False), tables)
    asked = until(members, entries, "joint-mask")[0]
    body = msgspec.msgpack.decode(open_envelope(asked.request).body, type=MaskRequest)
    with pytest.raises(PlanMismatch, match="where the plan has"):  # a helper that is of the pair
        members[asked.to].answer(changed(asked, MaskRequest, helper=body.receiver))
    with pytest.raises(PlanMismatch, match="is not the sender"):
        members["p2"].answer(asked.request)


@pytest.mark.guarantee
def test_a_party_with_one_column_or_a_constant_one() -> None:
    cards, tables = world(2)
    from unpooled.privacy.table import Table

    first = Card("p0", 40, cards[0].columns[:1])
    study = study_of((first, cards[1]), INF)
    tables = {**tables, "p0": Table({"a0": np.full(40, 0.25)})}
    result = drive(MODEL, MODEL.compile(study), in_process(people(study, tables))).result
    table = MODEL.table(MODEL.compile(study), result)
    assert "not determined" in table
    assert "a1" in table


# --- plans, cards and policies ---------------------------------------------------------------------------------------------


def test_two_parties_need_a_helper_and_more_help_each_other() -> None:
    cards, _ = world(2)
    with pytest.raises(UsageError, match="two parties need a helper"):
        MODEL.compile(study_of(cards, helper=False))
    assert {side.helper for side in sides.sides_of(("a", "b", "c"))} == {"a", "b", "c"}
    for count in (3, 4, 5, 6):
        names = tuple("abcdef"[:count])
        for side in sides.sides_of(names):
            assert side.helper not in side[:2]
    assert {side.helper for side in sides.sides_of(("a", "b", "c"), ("h",))} == {"h"}


@pytest.mark.guarantee
def test_policies_and_cards_say_whether_masked_rows_travel() -> None:
    cards, tables = world(2)
    study = study_of(cards)
    plan = MODEL.compile(study)
    rules = dataclasses.replace(Policy.in_process(), joint="no")
    party = people(study, tables, rules)["p0"]
    with pytest.raises(PolicyRefusal, match='joint = "allowed"'):
        party.consider(plan, approved=True)
    people(study, tables, dataclasses.replace(rules, joint="allowed"))["p0"].consider(plan, approved=True)
    unproved = study_of(cards, check="none")
    with pytest.raises(PolicyRefusal, match="wants a proof"):
        people(unproved, tables, dataclasses.replace(rules, joint="allowed"))["p0"].consider(
            MODEL.compile(unproved), approved=True
        )
    drive(MODEL, MODEL.compile(unproved), in_process(people(unproved, tables)))
    said = MODEL.compile(unproved).statement
    assert "does not follow the protocol" in str(said)
    for heading in (said.headline, str(said).splitlines()[0], said.to_dict()["headline"]):
        assert "only against parties that follow the protocol" in heading
    assert "only against" not in str(plan.statement)
    keyed = tuple(msgspec.structs.replace(c, key=digit * 64, joint="allowed") for c, digit in zip(cards, "ab", strict=True))
    MODEL.compile(study_of(keyed))
    for words, asked in (("", {}), ("allowed", {"check": "none"})):
        some = (keyed[0], msgspec.structs.replace(keyed[1], joint=words))
        with pytest.raises(UsageError, match=r"'p[01]' does not let masked rows travel"):
            MODEL.compile(study_of(some, **asked))
    with pytest.raises(UsageError, match="joint is"):
        Card("a", 5, cards[0].columns, joint="perhaps")


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"split": "rows"}, "split"),
        ({"check": "some"}, "check is"),
        ({"method": "rounds"}, "method is one of"),
        ({"formula": "a0:a1"}, "needs columns of p0, p1"),
        ({"formula": "a1"}, "no term is of columns of 'p0'"),
        ({"confidence": 1.0}, "confidence must"),
        ({"tolerate": 2}, "leaves no noise"),
        ({"nodes": ["p0"]}, "unknown field"),
        ({"response": "nothing"}, "must be a declared column of one party"),
        ({"response": "c1"}, "must be a number"),
        ({"weights": "b0"}, "unknown field"),
    ],
)
def test_a_study_that_means_nothing_is_refused_by_name(asked: dict[str, Any], words: str) -> None:
    cards, _ = world(2)
    with pytest.raises(UsageError, match=words):
        MODEL.compile(study_of(cards, **asked))


@pytest.mark.guarantee
def test_cards_that_do_not_fit_are_refused() -> None:
    cards, _ = world(2)
    with pytest.raises(UsageError, match="declares no column of this model"):
        MODEL.compile(study_of((msgspec.structs.replace(cards[0], columns=(), labels=("group",)), cards[1])))
    gaps = tuple(msgspec.structs.replace(c, missing="absent") if c.name == "y" else c for c in cards[1].columns)
    with pytest.raises(UsageError, match="must be a number that is never missing"):
        MODEL.compile(study_of((cards[0], msgspec.structs.replace(cards[1], columns=gaps))))
    with pytest.raises(UsageError, match="delta must be positive"):
        design_of(msgspec.structs.replace(study_of(cards), delta=0.0), JointBudget(1.0))
    with pytest.raises(UsageError, match="may not fit into the sum"):
        design_of(study_of(cards), JointBudget(1e-13)).check_size()
    assert Limits.of((2, 3), 0.0).columns == Limits.of((2, 3), 1e-9).columns
    fewer = msgspec.structs.replace(cards[1], rows=39)
    twice = msgspec.structs.replace(cards[0], columns=(*cards[0].columns, cards[1].columns[0]))
    for some, words in (((cards[0], fewer), "different numbers of rows"), ((twice, cards[1]), "declared by two parties")):
        with pytest.raises(UsageError, match=words):
            MODEL.compile(study_of(some))
    with pytest.raises(UsageError, match="at least two parties"):
        MODEL.compile(study_of(cards[1:]))
    with pytest.raises(UsageError, match="unit"):
        MODEL.compile(msgspec.structs.replace(study_of(cards), unit="attribute"))


@pytest.mark.guarantee
def test_helpers_have_a_card_of_their_own() -> None:
    for wrong in ({"role": "party"}, {"key": "12"}, {"contact": "a\nb"}, {"name": ""}):
        with pytest.raises(UsageError, match=r"helper|contact"):
            HelperCard(**{"name": "h", **wrong})
    assert HelperCard("h", contact="ask us").circumstances == {"contact": "ask us"}
    assert HelperCard("h").circumstances == {}
    cards, tables = world(2)
    study = study_of(cards)
    assert study.member("helper") == HelperCard("helper")
    assert study.member("p1") == cards[1]
    assert [card.name for card in study.members] == ["p0", "p1", "helper"]
    with pytest.raises(UsageError, match="no party"):
        study.card("helper")
    with pytest.raises(UsageError, match="each name once"):
        msgspec.structs.replace(study, helpers=(HelperCard("p0"),))
    helper = people(study, tables)["helper"]
    assert helper.helps
    with pytest.raises(UsageError, match="it has no data"):
        _ = helper.declared
    with pytest.raises(PlanMismatch, match="does not name 'helper'"):
        helper.consider(
            MODEL.compile(msgspec.structs.replace(study, helpers=(HelperCard("helper", contact="x"),))), approved=True
        )
    alone = study_of(world(3, helper=False)[0], helper=False)
    assert study.circle == msgspec.structs.replace(study, helpers=(HelperCard("other"),)).circle
    assert alone.members == alone.parties


# --- one door --------------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
def test_nothing_is_masked_in_a_plan_without_joint_moments() -> None:
    from unpooled.protocol.context import Receiver
    from unpooled.protocol.desk import OpenDesk

    cards, tables = world(2)
    study = study_of(cards)
    party = people(study, tables)["p0"]
    plan = dataclasses.replace(MODEL.compile(study), joint=False)
    desk = OpenDesk(party, plan, "joint-mask", 0, bytes(32))
    to = Receiver("p1", "ab" * 32)
    for act in (
        lambda: desk.mask(np.zeros((2, 2), dtype=np.int64), to, to, ()),
        lambda: desk.seal_for(to, b"rows", ()),
        lambda: desk.commit("ab" * 32),
    ):
        with pytest.raises(PlanMismatch, match="no joint moments"):
            act()


@pytest.mark.guarantee
def test_replies_with_masked_rows_or_digests_are_refused_where_no_plan_has_them() -> None:
    from unpooled.protocol.local import check_reply
    from unpooled.protocol.messages import Ask, Nothing

    class Reply(msgspec.Struct, frozen=True):
        part: Any

    cards, _ = world(2)
    plan = MODEL.compile(study_of(cards))
    ask = Ask("p0", "joint-mask", Nothing())
    check_reply(plan, ask, Reply(Masked("p1", b"", b"")))
    check_reply(plan, ask, Reply(Commitment("ab" * 32)))
    without = dataclasses.replace(plan, joint=False)
    for given, part in (
        (without, Masked("p1", b"", b"")),
        (plan, Masked("helper", b"", b"")),
        (without, Commitment("ab" * 32)),
        (plan, Commitment("a value of 12.5")),
    ):
        with pytest.raises(ProtocolError):
            check_reply(given, ask, Reply(part))


def test_masks_are_fresh_for_other_data_plans_receivers_and_blocks() -> None:
    """The seed is keyed by everything that it may not be shared between."""
    from unpooled.protocol.context import Receiver
    from unpooled.protocol.desk import OpenDesk

    cards, tables = world(2)
    rng, seeds = np.random.default_rng(0), set()
    one, other = (rng.integers(-9, 9, (4, 2)) for _ in range(2))
    keys = [people(study_of(cards), tables)["p1"].identity.agreement_key(text) for text in (b"a", b"b")]
    count = 0
    for run, rows_, key, helper, place in itertools.product((1, 2), (one, other), keys, keys, ((b"0",), (b"1",))):
        study = msgspec.structs.replace(study_of(cards), run=run)
        party = people(study, tables)["p0"]
        desk = OpenDesk(party, MODEL.compile(study), "joint-mask", 0, bytes(32))
        masked, seed = desk.mask(rows_, Receiver("p1", key), Receiver("helper", helper), place)
        again, same = desk.mask(rows_, Receiver("p1", key), Receiver("helper", helper), place)
        assert (masked, seed) == (again, same)
        seeds.add(seed)
        count += 1
    assert len(seeds) == count


def test_shares_are_uniform_and_a_missing_one_hides_the_total() -> None:
    """Partial sums of one node are uniform words: the mean of many is where it has to be (5.3 deviations: once in ten million)."""
    from unpooled.kernels.field import MODULUS
    from unpooled.totals import secure_sum

    vector = np.arange(2000, dtype=np.int64)
    first, rest = secure_sum.split(vector, 2, bytes(32), prime=True)
    words = np.frombuffer(rest, dtype="<u8").astype(float) / MODULUS
    assert abs(words.mean() - 0.5) < 5.3 / np.sqrt(12 * words.size)
    total = [np.zeros(2000, dtype=np.uint64) for _ in range(2)]
    for at, part in enumerate((first, rest)):
        secure_sum.add_fragment(total[at], part, at, 2, prime=True)
    assert secure_sum.opened(total, prime=True).tolist() == vector.tolist()
    with pytest.raises(ProtocolError, match="no residues"):
        secure_sum.add_fragment(total[1], np.full(2000, MODULUS, dtype="<u8").tobytes(), 1, 2, prime=True)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_no_person_moves_the_matrix_farther_than_the_shape_says(adjacency: Adjacency) -> None:
    """Brute force over rows at the bounds of both parties; a distance of one party's part alone is too small (the control)."""
    shape = JointShape((RowPart("a", 2, 50**2), RowPart("b", 2, 80**2)), 10)
    rng, largest = np.random.default_rng(0), 0.0
    for _ in range(4000):
        ends = []
        for _ in range(2):
            parts = [rng.normal(size=2) for _ in range(2)]
            scaled = [
                np.trunc(p / np.linalg.norm(p) * np.sqrt(part.square)) for p, part in zip(parts, shape.parts, strict=True)
            ]
            ends.append(np.concatenate([*scaled, [CONSTANT_STEPS / 10]]))
        v, w = ends
        moved = np.outer(v, v) - (np.outer(w, w) if adjacency is Adjacency.REPLACE else 0)
        largest = max(largest, float(np.linalg.norm(moved)))
    small = dataclasses.replace(shape, parts=tuple(dataclasses.replace(p) for p in shape.parts))
    bound = (50**2 + 80**2 + (CONSTANT_STEPS / 10) ** 2) * (np.sqrt(2) if adjacency is Adjacency.REPLACE else 1)
    assert 0.8 * bound < largest <= bound
    assert bound <= small.distance(adjacency)
    assert largest > 80**2 * (np.sqrt(2) if adjacency is Adjacency.REPLACE else 1)


def test_one_value_is_priced_as_a_row_that_becomes_another() -> None:
    cards, _ = world(2)
    for adjacency in Adjacency:
        plan = MODEL.compile(msgspec.structs.replace(study_of(cards), adjacency=str(adjacency)))
        release, shape = plan.release("p0", "joint"), plan.design.shape
        assert release.sensitivity("record") == shape.distance(adjacency)
        assert release.sensitivity("attribute") == shape.distance(Adjacency.REPLACE)


@pytest.mark.guarantee
def test_parts_that_are_asked_for_nowhere_are_refused() -> None:
    with pytest.raises(PlanMismatch, match="no statistic"):
        sharing.quantity_of("joint").statistic(type("Context", (), {"name": "a"})(), ())
    assert masking.theta(("a",)) != masking.theta(("b",))


class OneField(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sealed: Sealed
    number: int


class Several(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sealed: tuple[Sealed, ...]
    words: str


# --- transcripts without ciphertext ----------------------------------------------------------------------------------------


@pytest.mark.guarantee
def test_a_transcript_on_disk_keeps_digests_and_a_run_that_was_cut_anywhere_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut after every message: the result, the debits and what travelled are those of a run without a cut."""
    monkeypatch.setattr(shortened, "_LONGEST", 64)
    cards, tables = world(2)
    study = study_of(cards)
    plan = MODEL.compile(study)
    calm_record = Transcript.open(tmp_path / "calm")
    calm = drive(MODEL, plan, in_process(people(study, tables)), calm_record)
    entries = calm_record.entries
    assert any(entry.short for entry in entries)
    full = Transcript()
    drive(MODEL, plan, in_process(people(study, tables)), full)
    assert sum(len(e.request) + len(e.reply or b"") for e in entries) < 0.8 * sum(
        len(e.request) + len(e.reply or b"") for e in full.entries
    )
    calm_record.close()
    for cut in range(len(entries)):
        members, path = people(study, tables), tmp_path / f"cut{cut}"
        left = cut

        def exchange(batch: list[Any], members: Any = members) -> list[Any]:
            nonlocal left
            answers = []
            for ask, request in batch:
                if left <= 0:
                    raise ConnectionError("cut")
                answers.append(members[ask.to].answer(request))
                left -= 1
            return answers

        record = Transcript.open(path)
        with pytest.raises(ConnectionError):
            drive(MODEL, plan, exchange, record)
        record.close()
        record = Transcript.open(path)
        again = drive(MODEL, plan, in_process(members), record)
        assert again == calm
        assert [entry.reply for entry in record.entries] == [entry.reply for entry in entries]
        record.close()
        replayed = Transcript.open(path)
        assert drive(MODEL, plan, in_process({}), replayed) == calm
        replayed.close()


@pytest.mark.guarantee
def test_ciphertext_is_shortened_wherever_a_message_has_it() -> None:
    """In a field of its own as in a list, and nothing else changes."""
    long, brief = bytes(range(256)) * 40, b"brief"
    one, two = Sealed("a", long, b"salt"), Sealed("b", brief, b"salt")
    for body in (OneField(one, 3), OneField(two, 3), Several((one, two), "words")):
        message, kind = encode("ab" * 32, "step", 0, body), type(body)
        short = shortened.shortened(message, kind)
        assert (short == message) == (body == OneField(two, 3))
        assert shortened.shortened(short, kind) == short
        assert shortened.whole(short, kind, shortened.ciphertexts(message, kind).__getitem__) == message


@pytest.mark.guarantee
def test_a_party_that_answers_with_other_bytes_than_before_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shortened, "_LONGEST", 64)
    cards, tables = world(2)
    study = study_of(cards)
    plan = MODEL.compile(study)
    members, honest = people(study, tables), in_process(people(study, tables))

    def until_judged(batch: list[Any]) -> list[Any]:
        if batch[0][0].step == "joint-judge":
            raise ConnectionError("cut")
        return honest(batch)

    record = Transcript.open(tmp_path / "one")
    with pytest.raises(ConnectionError):
        drive(MODEL, plan, until_judged, record)

    def other(batch: list[Any]) -> list[Any]:
        answers = honest(batch)
        if batch[0][0].step != "joint-mask":
            return answers
        reply = next(step.reply for step in MODEL.steps if step.name == "joint-mask")
        return [shortened.whole(shortened.shortened(one, reply), reply, lambda mark: bytes(300)) for one in answers]

    with pytest.raises(ProtocolError, match="other bytes than it did before"):
        drive(MODEL, plan, other, record.replay())

    def gone(batch: list[Any]) -> list[Any]:
        return [Dropped(ask.to, "gone") if ask.step == "joint-mask" else honest([(ask, r)])[0] for ask, r in batch]

    with pytest.raises(StudyAborted, match="dropped out at step 'joint-mask'"):
        drive(MODEL, plan, gone, record.replay())
    assert members
    record.close()


def test_a_plan_of_rows_asks_for_no_step_of_joint_moments() -> None:
    """One model has both: a coordinator that mixes them is refused in words."""
    cards, tables = world(2)
    columns = MODEL.compile(study_of(cards))
    card = Card("p0", 40, (Column("x", 0.0, 1.0), Column("y", 0.0, 1.0)))
    rows = MODEL.compile(Study("bayes", (card,), 1.0, 1e-6, parameters={"response": "y"}, derived=()))
    party = people(study_of(cards), tables)["p0"]
    joint = [step for step in MODEL.steps if step.name.startswith("joint-")]
    assert len(joint) == 7
    assert {party._times(rows, step) for step in joint} == {0}
    assert 0 not in {party._times(columns, step) for step in joint}
