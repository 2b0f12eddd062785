"""Run a study over parties on this disk, in this process: the rehearsal of a networked run, with the same bytes."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import msgspec

from unpooled.errors import StudyError
from unpooled.models import load
from unpooled.privacy.study import ANALYSES
from unpooled.protocol.conversation import open_request
from unpooled.protocol.local import Outcome, drive, in_process
from unpooled.protocol.messages import open_envelope
from unpooled.protocol.transcript import Transcript
from unpooled.study.files import read_study
from unpooled.study.party import open_party
from unpooled.study.record import write_record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from unpooled.privacy.plan import Plan, Study
    from unpooled.protocol.local import Watch
    from unpooled.protocol.step import Model
    from unpooled.protocol.transcript import Exchanged


def compile_study(study: Study) -> Plan:
    """Return the plan of a study, from its public text alone."""
    return load(study.row).compile(study)


def asked_of(study: Study) -> tuple[tuple[Model, Study], ...]:
    """Return the models that a study asks for, each with its question: of several analyses one for each."""
    if study.model != ANALYSES:
        return ((load(study.row), study),)
    return tuple((load(plan.study.row), plan.study) for plan in compile_study(study).analyses.values())


def run_study(
    study_path: Path, party_paths: Sequence[Path], folder: Path, watch: Watch | None = None
) -> tuple[Plan, Outcome]:
    """Run a study and leave transcript, result and statement in ``folder``; a run that was cut short is continued."""
    study = read_study(study_path)
    plan = compile_study(study)
    with ExitStack() as stack:
        parties = {party.name: party for party in (stack.enter_context(open_party(path)) for path in party_paths)}
        for card in study.members:
            if card.name not in parties:
                msg = f"{study_path.name}: no party file given for {card.name!r}: add --party PATH/TO/its party.toml"
                raise StudyError(msg)
        folder.mkdir(parents=True, exist_ok=True)
        transcript = Transcript.open(folder / "transcript")
        stack.callback(transcript.close)
        for entry in transcript.entries[:1]:
            open_request(open_envelope(entry.request))  # a run that another version began is refused as such
        outcome = drive(load(study.row), plan, in_process(parties), transcript, watch)
    write_results(folder, plan, outcome, transcript.entries)
    return plan, outcome


def write_results(folder: Path, plan: Plan, outcome: Outcome, entries: Sequence[Exchanged] = ()) -> None:
    """Write the files that a run leaves behind, wherever it ran: the plan and its promise in words, the result as data, the record of the run."""
    write_record(folder, plan, outcome, entries)
    (folder / "plan.txt").write_text(str(plan) + "\n")
    (folder / "statement.txt").write_text(str(plan.statement) + "\n")
    (folder / "result.txt").write_text(load(plan.study.row).table(plan, outcome.result) + "\n")
    result = {
        "plan": plan.hash,
        "result": outcome.result,
        "statement": plan.statement.to_dict(),
        "communication": outcome.communication,
    }
    (folder / "result.json").write_bytes(msgspec.json.format(msgspec.json.encode(result)))
