"""What a run's transcript tells, worked out anew: the study, its plan, its result, who was asked what and how much travelled.

A transcript begins with the study's own text, so nothing else is needed. The coordinator is run again over the recorded
replies: the page shows what follows from the messages, and says so if a result that lies beside them differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from unpooled.errors import ProtocolError, UsageError
from unpooled.models import load
from unpooled.protocol.conversation import OPEN, OpenRequest
from unpooled.protocol.local import drive, recorded_only
from unpooled.protocol.messages import open_body, open_envelope
from unpooled.protocol.transcript import Transcript

if TYPE_CHECKING:
    from pathlib import Path

    from unpooled.privacy.plan import Plan
    from unpooled.protocol.step import Model


@dataclass(frozen=True)
class StepCount:
    """How often a party was asked for a step, and the bytes of its requests and replies."""

    step: str
    party: str
    times: int
    sent: int
    received: int


@dataclass(frozen=True)
class Run:
    """A finished run, recomputed from its transcript."""

    model: Model
    plan: Plan
    result: Any
    communication: dict[str, dict[str, int]]
    steps: tuple[StepCount, ...]
    #: Whether result.json, if there is one, holds the recomputed result.
    agrees: bool | None

    @classmethod
    def read(cls, folder: Path) -> Run:
        """The run whose files are in this folder."""
        path = folder / "transcript"
        if not path.is_file():
            msg = f"{folder}: no transcript there: give the folder that `unpooled run` wrote (STUDY.run)"
            raise UsageError(msg)
        transcript = Transcript.open(path)
        try:
            if not transcript.entries:
                raise UsageError("the transcript is empty: run the study first")
            first = open_envelope(transcript.entries[0].request)
            if first.step != OPEN.name:
                raise ProtocolError("the transcript does not begin with a study")
            study = open_body(first, OpenRequest).study
            model = load(study.row)
            plan = model.compile(study)
            if plan.hash != first.plan:
                msg = f"the run was of plan {first.plan[:16]}; this version of unpooled makes {plan.hash[:16]} of its study: use the one it ran with"
                raise UsageError(msg)
            outcome = drive(model, plan, recorded_only, transcript)
            counted: dict[tuple[str, str], list[int]] = {}
            for entry in transcript.entries:
                numbers = counted.setdefault((open_envelope(entry.request).step, entry.to), [0, 0, 0])
                numbers[0] += 1
                numbers[1] += len(entry.request)
                numbers[2] += len(entry.reply or b"")
        finally:
            transcript.close()
        steps = tuple(StepCount(step, party, *numbers) for (step, party), numbers in counted.items())
        return cls(model, plan, outcome.result, outcome.communication, steps, _agrees(folder, outcome.result))


def _agrees(folder: Path, result: Any) -> bool | None:  # noqa: ANN401 - any model's result
    path = folder / "result.json"
    if not path.is_file():
        return None
    try:
        stored = msgspec.json.decode(path.read_bytes())["result"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return False
    return bool(stored == msgspec.json.decode(msgspec.json.encode(result)))
