"""The record of a finished run: the study, its plan, its result and what travelled, without a single message.

A transcript holds every party's replies and stays where the coordinator ran. The person who started a study over a network gets this record
instead: enough for a report, a table of results and predictions, and nothing that the result and the study do not say already.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from unpooled.errors import DataError, UsageError
from unpooled.models import load
from unpooled.privacy.study import read_study
from unpooled.protocol.messages import open_envelope

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from unpooled.privacy.plan import Plan
    from unpooled.protocol.local import Outcome
    from unpooled.protocol.registry import Model
    from unpooled.protocol.transcript import Exchanged

#: How the file is called in the folder of a run.
RECORD = "run.msgpack"
_FORMAT, _FORMER = "unpooled run 2", "unpooled run 1"
_DIGEST = 32


class StepCount(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The number of requests to a party for a step, and the bytes of its requests and replies."""

    step: str
    party: str
    times: int
    sent: int
    received: int


class RunRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the file. ``result`` is of a type that the study's model knows."""

    format: str
    study: msgspec.Raw
    plan: str
    result: msgspec.Raw
    communication: dict[str, dict[str, int]]
    steps: tuple[StepCount, ...]
    #: The name of the draw, by which later studies that rest on this run know it.
    draw: str = ""


def counted(entries: Sequence[Exchanged]) -> tuple[StepCount, ...]:
    """Return the number and the bytes of the messages, by step and party."""
    found: dict[tuple[str, str], list[int]] = {}
    for entry in entries:
        numbers = found.setdefault((open_envelope(entry.request).step, entry.to), [0, 0, 0])
        numbers[0] += 1
        numbers[1] += len(entry.request) if entry.short is None else entry.short.sent
        numbers[2] += len(entry.reply or b"") if entry.short is None else entry.short.received
    return tuple(StepCount(step, party, *numbers) for (step, party), numbers in found.items())


def write_record(folder: Path, plan: Plan, outcome: Outcome, entries: Sequence[Exchanged]) -> None:
    """Write the record of a run, and behind it its digest."""
    result = msgspec.Raw(msgspec.msgpack.encode(outcome.result))
    study = msgspec.Raw(msgspec.msgpack.encode(plan.study))
    record = RunRecord(_FORMAT, study, plan.hash, result, outcome.communication, counted(entries), outcome.draw)
    body = msgspec.msgpack.encode(record)
    (folder / RECORD).write_bytes(hashlib.sha256(body).digest() + body)


def read_record(folder: Path) -> tuple[Model, Plan, Any, RunRecord]:
    """Return the model, the plan, the result and the record of a run; refused where the file is damaged."""
    raw = (folder / RECORD).read_bytes()
    body = raw[_DIGEST:]
    if hashlib.sha256(body).digest() != raw[:_DIGEST]:
        msg = f"{folder / RECORD} is damaged: fetch the run again (`unpooled run --resume`; nothing is charged twice)"
        raise DataError(msg)
    try:
        record = msgspec.msgpack.decode(body, type=RunRecord, strict=True)
    except msgspec.MsgspecError:
        msg = f"{folder / RECORD}: this is not the record of a run, or that of another version of unpooled"
        raise DataError(msg) from None
    if record.format not in {_FORMAT, _FORMER}:
        msg = f"{folder / RECORD}: a record of another format: this version of unpooled reads {_FORMAT!r}"
        raise DataError(msg)
    study, former = read_study(bytes(record.study))
    model = load(study.row)
    plan = model.compile(study)
    if former:
        plan = replace(plan, formerly=record.plan)
    elif plan.hash != record.plan:
        msg = f"the run was of plan {record.plan[:16]}; this version of unpooled makes {plan.hash[:16]} of its study: use the one it ran with"
        raise UsageError(msg)
    plan = plan.drawn(record.draw)
    return model, plan, model.reading.again(model.name, plan, bytes(record.result)), record
