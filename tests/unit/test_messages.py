"""The codec refuses whatever is not a release; driver and transcript refuse whatever is not theirs."""

from __future__ import annotations

import dataclasses
import importlib
import math
from pathlib import Path

import msgspec
import numpy as np
import pytest

import unpooled
from unpooled.errors import PlanMismatch, ProtocolError, UnpooledError, UsageError
from unpooled.models import load
from unpooled.models.describe.rows import SumsReply
from unpooled.privacy.bounds import Column
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.mechanisms import Summand, Vector
from unpooled.privacy.noise import KeySource
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.protocol import local as replies
from unpooled.protocol import messages
from unpooled.protocol.conversation import OpenRequest
from unpooled.protocol.identity import MemoryKeeper
from unpooled.protocol.local import check_reply, drive, in_process, recorded_only
from unpooled.protocol.messages import (
    WIRE_VERSION,
    Array,
    Ask,
    Dropped,
    Entrusted,
    Envelope,
    Nothing,
    Partial,
    Public,
    Released,
    Sealed,
    check_reply_type,
    encode,
    open_body,
    open_envelope,
)
from unpooled.protocol.party import Party
from unpooled.protocol.registry import Step
from unpooled.protocol.transcript import Transcript

PLAN = "0" * 64


@pytest.mark.parametrize("dtype", ["<i8", "<i4", "<u8", "<f8", "<f4", "|u1"])
def test_arrays_travel_exactly(dtype: str) -> None:
    array = np.arange(12).astype(dtype).reshape(3, 4)
    reply = SumsReply(Released("sums", 0, Array.of(array)))
    back = open_body(open_envelope(encode(PLAN, "sums", 0, reply)), SumsReply)
    assert back == reply
    unpacked = back.sums.values.numpy()
    assert unpacked.dtype == array.dtype
    assert np.array_equal(unpacked, array)
    assert not unpacked.flags.writeable


def test_fortran_order_and_big_endian_arrays_are_packed_by_value() -> None:
    array = np.asfortranarray(np.arange(6.0).reshape(2, 3)).astype(">f8")
    assert np.array_equal(Array.of(array).numpy(), array)


@pytest.mark.parametrize(
    ("dtype", "shape", "data"),
    [
        ("<i8", (2,), bytes(8)),
        ("<i8", (-1,), b""),
        ("|O", (1,), bytes(8)),
        ("<M8[s]", (1,), bytes(8)),
        ("<i8", (2, -1, -1), bytes(16)),
    ],
)
def test_arrays_that_lie_about_themselves_are_refused(dtype: str, shape: tuple[int, ...], data: bytes) -> None:
    with pytest.raises(ValueError, match="array"):
        Array(dtype, shape, data)
    body = msgspec.msgpack.encode(
        {"sums": {"name": "sums", "index": 0, "values": {"dtype": dtype, "shape": shape, "data": data}}}
    )
    blob = msgspec.msgpack.encode(Envelope(WIRE_VERSION, PLAN, "sums", 0, msgspec.Raw(body)))
    with pytest.raises(ProtocolError, match="SumsReply"):
        open_body(open_envelope(blob), SumsReply)


@pytest.mark.guarantee
def test_a_bare_array_in_a_reply_is_refused() -> None:
    with pytest.raises(ProtocolError, match="bare ndarray"):
        encode(PLAN, "sums", 0, SumsReply(np.zeros(3)))  # type: ignore[arg-type]
    with pytest.raises(ProtocolError, match="bare ndarray"):
        encode(PLAN, "open", 0, SumsReply(Public(np.zeros(3))))  # type: ignore[arg-type]


def test_pickled_or_otherwise_strange_bytes_are_refused() -> None:
    import pickle

    for blob in (
        pickle.dumps(SumsReply),
        b"",
        b"\xc1",
        msgspec.msgpack.encode({"version": WIRE_VERSION}),
        msgspec.msgpack.encode([1, 2]),
    ):
        with pytest.raises(ProtocolError):
            open_envelope(blob)


@pytest.mark.guarantee
def test_unknown_versions_keys_and_sizes_are_refused() -> None:
    blob = encode(PLAN, "sums", 0, Nothing())
    decoded = msgspec.msgpack.decode(blob)
    for version in (1, WIRE_VERSION + 1):
        with pytest.raises(ProtocolError, match=f"version {version}, where this program speaks {WIRE_VERSION}"):
            open_envelope(msgspec.msgpack.encode({**decoded, "version": version}))
    with pytest.raises(ProtocolError):
        open_envelope(msgspec.msgpack.encode({**decoded, "extra": 1}))
    with pytest.raises(ProtocolError, match="exceeds"):
        open_envelope(blob, limit=len(blob) - 1)
    body = msgspec.msgpack.encode({**decoded, "body": {"surplus": 1}})
    with pytest.raises(ProtocolError, match="Nothing"):
        open_body(open_envelope(body), Nothing)


class Bare(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    value: float


class PublicArray(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    value: Public[Array]


class PublicAnything(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    value: Public


class Thawed(msgspec.Struct, forbid_unknown_fields=True):
    value: Public[int]


class Several(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    value: tuple[Released, ...]
    words: Public[tuple[str, ...]]


@pytest.mark.guarantee
@pytest.mark.parametrize("kind", [Bare, PublicArray, PublicAnything, Thawed])
def test_message_types_with_a_second_door_are_refused_when_registered(kind: type[msgspec.Struct]) -> None:
    with pytest.raises(ProtocolError, match=kind.__name__):
        Step("step", Nothing, kind, lambda _c, _r: Nothing())
    check_reply_type(Several)


# --- a party whose step tries to smuggle --------------------------------------------------------------------------------

TABLE = Table({"age": np.linspace(20, 60, 30)})
STUDY = Study("describe", (Card("a", 30, (Column("age", 0.0, 100.0),)),), 1.0, 1e-5, derived=())


def party(model, policy: Policy | None = None) -> Party:
    ledger = Ledger.in_memory()
    return Party(
        "a", TABLE, STUDY.parties[0], ledger, KeySource(ledger.root_key), policy or Policy.in_process(), lambda _: model
    )


def with_answer(answer) -> object:
    model = load("describe")
    return dataclasses.replace(model, steps=(dataclasses.replace(model.steps[0], answer=answer),))


def run(model) -> None:
    drive(model, model.compile(STUDY), in_process({"a": party(model)}))


@pytest.mark.guarantee
def test_a_released_made_by_hand_is_refused() -> None:
    raw = Array.of(TABLE["age"])
    with pytest.raises(ProtocolError, match="was not released"):
        run(with_answer(lambda _c, _r: SumsReply(Released("sums", 0, raw))))


@pytest.mark.guarantee
def test_a_reply_of_another_type_is_refused() -> None:
    with pytest.raises(ProtocolError, match="Nothing"):
        run(with_answer(lambda _c, _r: Nothing()))
    with pytest.raises(ProtocolError, match="another type"):
        run(with_answer(lambda _c, _r: SumsReply(Public(3))))  # type: ignore[arg-type]


@pytest.mark.guarantee
def test_values_entrusted_to_a_role_the_plan_does_not_name_are_refused() -> None:
    class Trusting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        value: Entrusted

    model = load("describe")
    step = Step("sums", Nothing, Trusting, lambda c, _r: Trusting(Entrusted("aggregator", Array.of(c.table["age"]))))
    with pytest.raises(PlanMismatch, match="aggregator"):
        run(dataclasses.replace(model, steps=(step,)))


@pytest.mark.guarantee
def test_releases_outside_the_plan_are_refused() -> None:
    zeros = np.zeros(2, dtype=np.int64)
    with pytest.raises(UsageError, match="no release"):
        run(with_answer(lambda c, _r: SumsReply(c.release("more", Vector(zeros)))))
    model = load("describe")
    other = dataclasses.replace(model, steps=(dataclasses.replace(model.steps[0], name="other"),))

    def coordinate(plan):
        from unpooled.protocol.messages import Ask

        yield [Ask("a", "other", Nothing())]

    with pytest.raises(PlanMismatch, match="belongs to step"):
        run(dataclasses.replace(other, coordinate=coordinate))


def test_a_choice_cannot_be_released_as_a_vector() -> None:
    from unpooled.privacy.mechanisms import NoisyChoice
    from unpooled.privacy.unit import Unit

    model = load("describe")
    choice = NoisyChoice(((Unit.RECORD, 1.0), (Unit.ATTRIBUTE, 1.0)), Unit.RECORD)

    def compile_plan(study):
        plan = model.compile(study)
        return dataclasses.replace(plan, releases=tuple(dataclasses.replace(r, mechanism=choice) for r in plan.releases))

    with pytest.raises(PlanMismatch, match="exponential mechanism"):
        run(dataclasses.replace(model, compile_plan=compile_plan))


@pytest.mark.guarantee
def test_a_scaled_release_without_its_sensitivity_is_refused() -> None:
    from unpooled.privacy.mechanisms import ScaledGaussian
    from unpooled.privacy.unit import Unit

    model = load("describe")
    scaled = ScaledGaussian(2, ((Unit.RECORD, 0.1), (Unit.ATTRIBUTE, 0.1)), 10.0)

    def compile_plan(study):
        plan = model.compile(study)
        return dataclasses.replace(plan, releases=tuple(dataclasses.replace(r, mechanism=scaled) for r in plan.releases))

    with pytest.raises(UsageError, match="positive finite sensitivity"):
        run(dataclasses.replace(model, compile_plan=compile_plan))


def with_mechanism(model, change) -> object:
    def compile_plan(study):
        plan = load("describe").compile(study)
        return dataclasses.replace(
            plan, releases=tuple(dataclasses.replace(r, mechanism=change(r.mechanism)) for r in plan.releases)
        )

    return dataclasses.replace(model, compile_plan=compile_plan)


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    words: str


@pytest.mark.guarantee
def test_another_request_at_a_debited_place_is_refused_though_its_statistic_is_the_same() -> None:
    """Otherwise the refusal would tell a coordinator whether two exact statistics are equal."""
    fails = True

    def answer(context, _request):
        released = context.release("sums", Vector(np.zeros(2, dtype=np.int64)))
        if fails:
            raise ArithmeticError
        return SumsReply(released)

    step = Step("sums", Question, SumsReply, answer)
    model = dataclasses.replace(load("describe"), steps=(step,))
    plan, one = model.compile(STUDY), party(model)
    one.answer(encode(plan.hash, "open", 0, OpenRequest(STUDY)))
    first, other = (encode(plan.hash, "sums", 0, Question(words)) for words in ("first", "other"))
    with pytest.raises(ArithmeticError):
        one.answer(first)
    spent = one.ledger.entries()
    with pytest.raises(UnpooledError):
        one.answer(other)
    fails = False
    with pytest.raises(UnpooledError):
        one.answer(other)
    assert one.ledger.entries() == spent
    one.answer(first)


@pytest.mark.guarantee
def test_every_release_of_a_step_has_a_count_of_its_own() -> None:
    """The step may be asked twice because another of its releases is planned twice."""

    def compile_plan(study):
        plan = load("describe").compile(study)
        return dataclasses.replace(
            plan, releases=(*plan.releases, dataclasses.replace(plan.releases[0], name="more", count=2))
        )

    def coordinate(_plan):
        yield [Ask("a", "sums", Nothing(), 1)]

    model = with_answer(lambda c, _r: SumsReply(c.release("sums", Vector(np.zeros(2, dtype=np.int64)))))
    with pytest.raises(PlanMismatch, match="'sums' is planned 1 times"):
        run(dataclasses.replace(model, compile_plan=compile_plan, coordinate=coordinate))


@pytest.mark.guarantee
def test_only_planned_shares_leave_as_shares_and_only_with_the_trust_they_need() -> None:
    from unpooled.privacy.mechanisms import Contribution

    zeros = np.zeros(2, dtype=np.int64)

    def seal(_share, _secret):
        pytest.fail("something was sealed that is no share")

    sharing = with_answer(lambda c, _r: SumsReply(c.release("sums", Summand(zeros, seal))))  # type: ignore[arg-type]
    with pytest.raises(PlanMismatch, match="takes a Vector"):
        run(sharing)
    with pytest.raises(PlanMismatch, match="needs a trusted aggregator, which the study does not ask for"):
        run(with_mechanism(sharing, lambda m: Contribution(m, "a")))
    adding = with_answer(lambda c, _r: SumsReply(c.partial("sums", zeros.astype(np.uint64))))  # type: ignore[arg-type]
    with pytest.raises(PlanMismatch, match="has no partial sums"):
        run(adding)
    with pytest.raises(PlanMismatch, match="has no partial sums"):
        run(with_mechanism(adding, lambda m: Contribution(m, "a")))
    releasing = with_answer(lambda c, _r: SumsReply(c.release("sums", Vector(zeros))))
    with pytest.raises(PlanMismatch, match="needs a trusted aggregator"):
        run(with_mechanism(releasing, lambda m: Contribution(m, "a")))


@pytest.mark.guarantee
def test_sealed_things_and_partial_sums_made_by_hand_are_refused() -> None:
    words = Array.of(np.zeros(2, dtype=np.uint64))
    for kind, made in ((tuple[Sealed, ...], (Sealed("b", b"text"),)), (Partial, Partial("sums", 0, words))):
        reply = msgspec.defstruct("Reply", [("part", kind)], frozen=True, forbid_unknown_fields=True)
        step = Step("sums", Nothing, reply, lambda _c, _r, reply=reply, made=made: reply(made))
        with pytest.raises(ProtocolError, match="was not released"):
            run(dataclasses.replace(load("describe"), steps=(step,)))


@pytest.mark.guarantee
def test_unknown_steps_are_refused() -> None:
    one = party(load("describe"))
    plan = load("describe").compile(STUDY)

    one.answer(encode(plan.hash, "open", 0, OpenRequest(STUDY)))
    with pytest.raises(ProtocolError, match="no step"):
        one.answer(encode(plan.hash, "steal", 0, Nothing()))


def test_kept_values_stay_with_the_party() -> None:
    def answer(context, _request):
        context.keep("secret", np.arange(3.0))
        return load("describe").steps[0].answer(context, _request)

    model = with_answer(answer)
    one = party(model)
    plan = model.compile(STUDY)
    outcome = drive(model, plan, in_process({"a": one}))
    assert isinstance(one.keeper, MemoryKeeper)
    assert one.keeper.kept(plan.hash, "secret").tolist() == [0, 1, 2]
    assert "secret" not in str(outcome)


# --- driver and transcript ----------------------------------------------------------------------------------------------


@pytest.mark.guarantee
def test_a_party_that_does_not_open_ends_the_study_with_its_reason() -> None:
    model = load("describe")
    with pytest.raises(UsageError, match="is asleep"):
        drive(model, model.compile(STUDY), lambda batch: [Dropped(ask.to, "is asleep") for ask, _ in batch])


@pytest.mark.guarantee
@pytest.mark.parametrize("accident", [lambda: 1 / 0, lambda: np.linalg.cholesky(-np.eye(2)), lambda: math.exp(1e9)])
def test_replies_that_fit_the_plan_and_give_no_result_together_end_in_words(accident) -> None:
    def coordinate(_plan):
        yield [Ask("a", "sums", Nothing())]
        accident()

    model = dataclasses.replace(load("describe"), coordinate=coordinate)
    with pytest.raises(ProtocolError, match="no result follows"):
        run(model)


@pytest.mark.guarantee
def test_numbers_that_are_none_cannot_be_public() -> None:
    class Told(msgspec.Struct, frozen=True):
        value: Public[tuple[float, ...]]

    plan = load("describe").compile(STUDY)
    check_reply(plan, Ask("a", "elsewhere", Nothing()), Told(Public((1.0, 2.0))))
    for number in (math.nan, math.inf):
        with pytest.raises(ProtocolError, match="states a number that is none"):
            check_reply(plan, Ask("a", "elsewhere", Nothing()), Told(Public((1.0, number))))


@pytest.mark.guarantee
def test_a_party_that_drops_out_later_is_left_out() -> None:
    model = load("describe")
    one = party(model)

    def exchange(batch):
        return [one.answer(request) if ask.step == "open" else Dropped("a", "gone") for ask, request in batch]

    transcript = Transcript()
    outcome = drive(model, model.compile(STUDY), exchange, transcript)
    assert outcome.result == ()
    opened = sum(len(entry.reply or b"") for entry in transcript.entries)
    assert outcome.communication["a"]["received"] == opened, "silence weighs nothing"
    assert drive(model, model.compile(STUDY), recorded_only, transcript.replay()).result == ()


@pytest.mark.guarantee
def test_an_answer_to_another_question_is_refused() -> None:
    model = load("describe")
    one = party(model)
    plan = model.compile(STUDY)
    wrong = []

    def exchange(batch):
        wrong.append(one.answer(batch[0][1]))
        return [wrong[0]]

    with pytest.raises(ProtocolError, match="another question"):
        drive(model, plan, exchange)


@pytest.mark.guarantee
def test_a_party_that_agrees_to_another_plan_is_refused() -> None:
    from unpooled.protocol.conversation import Opened

    model = load("describe")
    plan = model.compile(STUDY)
    with pytest.raises(PlanMismatch, match="agreed to plan"):
        drive(model, plan, lambda batch: [encode(plan.hash, "open", 0, Opened(Public("f" * 64)))])


def recorded(path: Path) -> Transcript:
    model = load("describe")
    transcript = Transcript.open(path)
    drive(model, model.compile(STUDY), in_process({"a": party(model)}), transcript)
    transcript.close()
    transcript.close()
    return transcript


@pytest.mark.guarantee
def test_a_torn_frame_is_dropped_and_a_damaged_one_refused(tmp_path: Path) -> None:
    path = tmp_path / "transcript"
    entries = recorded(path).entries
    whole = path.read_bytes()
    for cut in (len(whole) - 1, len(whole) - 200, 5):
        path.write_bytes(whole[:cut])
        reopened = Transcript.open(path)
        reopened.close()
        assert reopened.entries == entries[: len(reopened.entries)]
        assert len(reopened.entries) < len(entries)
    path.write_bytes(whole[:40] + b"\xff" + whole[41:])
    with pytest.raises(ProtocolError, match="damaged"):
        Transcript.open(path)
    path.write_bytes(b"\x7f" + whole[1:])  # a length that no memory holds
    reopened = Transcript.open(path)
    reopened.close()
    assert reopened.entries == []
    assert path.read_bytes() == b""


@pytest.mark.guarantee
def test_a_transcript_of_another_study_is_refused(tmp_path: Path) -> None:
    transcript = recorded(tmp_path / "transcript")
    model = load("describe")
    other = msgspec.structs.replace(STUDY, epsilon=2.0)
    with pytest.raises(ProtocolError, match="another study"):
        drive(model, model.compile(other), recorded_only, transcript.replay())
    transcript.entries.pop()
    with pytest.raises(ProtocolError, match="ends before"):
        drive(model, model.compile(STUDY), recorded_only, transcript.replay())


@pytest.mark.guarantee
def test_an_array_has_at_most_eight_dimensions() -> None:
    assert Array("<f8", (1,) * 8, bytes(8)).numpy().shape == (1,) * 8
    with pytest.raises(ValueError, match="dimensions"):
        Array("<f8", (1,) * 9, bytes(8))
    with pytest.raises(ValueError, match="do not match"):
        Array("<f8", (0, 2**31, 2**31), b"")


def test_no_message_of_any_kind_takes_a_field_that_it_does_not_know() -> None:
    """Unless a field is checked, what a stranger adds would reach the party's log or its store."""
    found = set()
    for package in ("protocol", "aggregation", "linkage", "models"):
        for file in sorted((Path(unpooled.__file__).parent / package).rglob("*.py")):
            if file.stem in {"messages", "conversation"}:
                module = importlib.import_module(
                    ".".join(("unpooled", *file.relative_to(Path(unpooled.__file__).parent).with_suffix("").parts))
                )
                found |= {
                    kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
                }
    assert len(found) > 30
    for kind in found:
        assert kind.__struct_config__.forbid_unknown_fields, kind
        assert kind.__struct_config__.frozen, kind


def test_every_wrapper_is_documented() -> None:
    assert {w.__name__ for w in messages.WRAPPERS} == {
        "Public",
        "Released",
        "Signed",
        "Sealed",
        "Partial",
        "Entrusted",
        "Disclosed",
        "Pseudonyms",
        "Masked",
        "Commitment",
    }


def test_the_largest_size_of_an_array_is_two_to_the_31() -> None:
    """Another size is 0, so nothing has to be that large: sizes are checked before bytes."""
    assert Array("<f8", (2**31, 0), b"").shape == (2**31, 0)
    with pytest.raises(ValueError, match="more dimensions"):
        Array("<f8", (2**31 + 1, 0), b"")


def test_numbers_that_nobody_can_compute_with_are_no_release() -> None:
    """Squares of what is below 1e90 add up to a finite number, whatever the length of a vector."""
    for value, real in ((0.9e90, True), (1.1e90, False), (-1.1e90, False), (np.inf, False), (np.nan, False)):
        assert replies._real(Array.of(np.array([0.0, value]))) is real
