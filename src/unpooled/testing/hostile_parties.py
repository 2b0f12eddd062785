"""Parties that send anything whatever: the coordinator ends the study in words, or with a result, and never with an accident.

Every reply of an honest run is mutated, in bytes, in its envelope and in its content. What the driver's check lets through is handed to
the coordinator of a run with honest others, which goes on to the end. CI tries some thousands; UNPOOLED_FULL=1 all 100,000.
"""

from __future__ import annotations

import math
from collections import Counter

import msgspec
import numpy as np
import pytest

from unpooled.errors import ProtocolError, UnpooledError
from unpooled.models import load
from unpooled.privacy.policy import Policy
from unpooled.protocol.local import _opened, drive, in_process
from unpooled.protocol.messages import Ask, open_envelope
from unpooled.protocol.transcript import Transcript
from unpooled.testing.cases import FULL, Case, parties, sized
from unpooled.testing.mutants import mutants, places, with_body

#: Mutated replies per study.
MUTANTS = sized(6000, 30)


def honest(case: Case) -> list[tuple[Ask, bytes]]:
    """Return every request of an honest run, in order, with its reply."""
    people, seen = parties(case, Policy.in_process()), []
    model = load(case.model)

    def exchange(batch):
        replies = in_process(people)(batch)
        seen.extend((ask, reply) for (ask, _), reply in zip(batch, replies, strict=True))
        return replies

    drive(model, model.compile(case.study), exchange)
    return seen


def outcome(case: Case, place: tuple[Ask, int], mutant: bytes) -> str:
    """Return the end of a study in which one reply is replaced: the name of an error, or a result. Everybody else is honest and alive."""
    model, people, seen = load(case.model), parties(case, Policy.in_process()), Counter()
    ask, number = place

    def exchange(batch):
        replies = []
        for asked, request in batch:
            key = (asked.to, asked.step, asked.index)
            seen[key] += 1
            mine = key == (ask.to, ask.step, ask.index) and seen[key] == number
            replies.append(mutant if mine else people[asked.to].answer(request))
        return replies

    try:
        drive(model, model.compile(case.study), exchange, Transcript())
    except UnpooledError as error:
        return type(error).__name__
    finally:
        for party in people.values():
            party.ledger.close()
    return "a result"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
def test_any_reply_ends_in_words_or_in_a_result(form: Case) -> None:
    case, rng = form, np.random.default_rng(20261121)
    model = load(case.model)
    plan, seen, ends = model.compile(case.study), honest(case), Counter[str]()
    for at, mutant in mutants(seen, case, rng, MUTANTS):
        ask = seen[at][0]
        try:
            _opened(model, plan, ask, b"", mutant)
        except ProtocolError:
            ends["refused at once"] += 1
            if ends["refused at once"] % 40:
                continue  # the driver raises what this raised; every fortieth is driven all the same
        ends[outcome(case, (ask, 1), mutant)] += 1
    assert ends["refused at once"] > MUTANTS / 4
    # Not refused for standing in the place of another: of a hundred mutants all may be, so it is the last of an honest run.
    assert outcome(case, (seen[-1][0], 1), seen[-1][1]) == "a result"
    if FULL:
        assert ends["a result"] > 0
        print(f"\n{case.name}: {dict(ends)}")


@pytest.mark.parametrize("depth", [1, pytest.param(3000, marks=pytest.mark.slow), 100_000])
def test_a_nested_reply_is_refused(case: Case, depth: int) -> None:
    for ask, reply in honest(case):
        with pytest.raises(ProtocolError):
            _opened(
                load(case.model), load(case.model).compile(case.study), ask, b"", with_body(reply, b"\x91" * depth + b"\xc0")
            )


@pytest.mark.parametrize(
    "change",
    [
        lambda a: {**a, "shape": [1] * 70},
        lambda a: {**a, "shape": [len(a["data"]) // 8 + 1], "data": a["data"] + bytes(8)},
        lambda a: {**a, "shape": [0], "data": b""},
        lambda a: {**a, "dtype": "<f8" if a["dtype"] == "<i8" else "<i8"},
        lambda a: {**a, "dtype": "<f8", "data": np.full(len(a["data"]) // 8, math.nan).tobytes()},
        lambda a: {**a, "dtype": "<f8", "data": np.full(len(a["data"]) // 8, -math.inf).tobytes()},
    ],
    ids=["dimensions", "longer", "empty", "dtype", "nan", "inf"],
)
def test_a_released_vector_is_as_planned_or_refused(form: Case, change) -> None:
    case = form
    model, tried = load(case.model), 0
    plan = model.compile(case.study)
    for ask, reply in honest(case):
        body = msgspec.msgpack.decode(open_envelope(reply).body)
        for spot in places(body):
            inside = body
            for key in spot[:-1]:
                inside = inside[key]
            old = inside[spot[-1]]
            if not isinstance(old, dict) or set(inside) >= {"role"} or set(inside) >= {"columns"}:
                continue
            tried += 1
            inside[spot[-1]] = change(old)
            with pytest.raises(ProtocolError):
                _opened(model, plan, ask, b"", with_body(reply, msgspec.msgpack.encode(body)))
            inside[spot[-1]] = old
    assert tried > 0


def test_other_names_and_numbers_of_a_release_are_refused(form: Case) -> None:
    case = form
    model, tried = load(case.model), 0
    plan = model.compile(case.study)
    others = sorted({r.name for r in plan.releases} | {"", "x"})
    for ask, reply in honest(case):
        body = msgspec.msgpack.decode(open_envelope(reply).body)
        # Which of several alternatives it is, only the coordinator of the model can tell (test_several_classes.py).
        alike = {r.name for r in plan.releases if r.exposure.alternative and (r.party, r.step) == (ask.to, ask.step)}
        for value in body.values():
            for part in value if isinstance(value, list) else [value]:
                if not isinstance(part, dict) or set(part) != {"name", "index", "values"}:
                    continue
                for change in (
                    *({"name": other} for other in others if other != part["name"] and other not in alike),
                    *({"index": index} for index in (-1, part["index"] + 1, 10**18)),
                ):
                    old = dict(part)
                    part.update(change)
                    tried += 1
                    with pytest.raises(ProtocolError):
                        _opened(model, plan, ask, b"", with_body(reply, msgspec.msgpack.encode(body)))
                    part.update(old)
    assert tried > 0


def test_a_refused_reply_is_not_in_the_transcript_and_is_asked_for_again(case: Case) -> None:
    """A resumed run plays the replies before the spoilt one, and asks for the spoilt one again."""
    model, seen = load(case.model), honest(case)
    plan = model.compile(case.study)
    for at in range(len(seen)) if FULL else sorted({0, len(seen) // 2, len(seen) - 1}):
        spoilt = seen[at][0]
        transcript, people = Transcript(), parties(case, Policy.in_process())

        def dishonest(batch, spoilt=spoilt, people=people):
            answers = in_process(people)(batch)
            same = [(ask.to, ask.step, ask.index) == (spoilt.to, spoilt.step, spoilt.index) for ask, _ in batch]
            return [answer + b"\xc0" if bad else answer for bad, answer in zip(same, answers, strict=True)]

        with pytest.raises(ProtocolError):
            drive(model, plan, dishonest, transcript)
        assert len(transcript.entries) == at
        resumed = drive(model, plan, in_process(people), transcript).result
        assert msgspec.msgpack.encode(resumed) == msgspec.msgpack.encode(drive(model, plan, in_process(people)).result)
