"""What a run's transcript tells, worked out anew: the study, its plan, its result, who was asked what and how much travelled.

A transcript begins with the study's own text, so nothing else is needed. The coordinator is run again over the recorded
replies: the page shows what follows from the messages, and says so if a result that lies beside them differs. After a networked
run the transcript is at the coordinator; whoever started it has a record instead, and the page says that too.
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
from unpooled.study.about import About, read_about
from unpooled.study.record import RECORD, StepCount, counted, read_record

if TYPE_CHECKING:
    from pathlib import Path

    from unpooled.privacy.plan import Plan
    from unpooled.protocol.step import Model
    from unpooled.protocol.terms import ResultTerm


@dataclass(frozen=True)
class Run:
    """A finished run, recomputed from its transcript, or as its record tells it."""

    model: Model
    plan: Plan
    result: Any
    communication: dict[str, dict[str, int]]
    steps: tuple[StepCount, ...]
    #: Whether result.json, if there is one, holds this result.
    agrees: bool | None
    #: Whether it was worked out anew from the messages; otherwise the result is as the coordinator recorded it.
    recomputed: bool = True
    #: Why, by whom and when, as the folder says.
    about: About | None = None

    @property
    def terms(self) -> tuple[ResultTerm, ...]:
        """The result line by line; empty where it stays at the parties."""
        return self.model.terms(self.plan, self.result)

    @classmethod
    def read(cls, folder: Path) -> Run:
        """The run whose files are in this folder."""
        path = folder / "transcript"
        if not path.is_file():
            if (folder / RECORD).is_file():
                model, plan, result, record = read_record(folder)
                agrees = _agrees(folder, result)
                return cls(
                    model,
                    plan,
                    result,
                    record.communication,
                    record.steps,
                    agrees,
                    recomputed=False,
                    about=read_about(folder),
                )
            msg = f"{folder}: no transcript and no record of a run there: give the folder that `unpooled run` wrote (STUDY.run)"
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
            steps = counted(transcript.entries)
        finally:
            transcript.close()
        return cls(
            model,
            plan,
            outcome.result,
            outcome.communication,
            steps,
            _agrees(folder, outcome.result),
            about=read_about(folder),
        )


def _agrees(folder: Path, result: Any) -> bool | None:  # noqa: ANN401 - any model's result
    path = folder / "result.json"
    if not path.is_file():
        return None
    try:
        stored = msgspec.json.decode(path.read_bytes())["result"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return False
    return bool(stored == msgspec.json.decode(msgspec.json.encode(result)))
