"""A finished run: the note in its folder (why, by whom, when, what is left), and its report computed anew from the transcript."""

from __future__ import annotations

import getpass
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from unpooled.errors import DataError, PlanMismatch, ProtocolError, UsageError, listed
from unpooled.models import load
from unpooled.models.analyses.fit import coordinate
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.ledger.spending import UNBOUNDED_WORD
from unpooled.protocol.conversation import OPEN, open_request
from unpooled.protocol.local import Outcome, check_signature, drive, recorded_only
from unpooled.protocol.messages import open_envelope
from unpooled.protocol.transcript import Transcript
from unpooled.study.files import is_helper, policy_of, purpose_of, read_party
from unpooled.study.record import RECORD, StepCount, counted, read_record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from unpooled.privacy.plan import Card, HelperCard, Plan
    from unpooled.privacy.policy import Policy
    from unpooled.privacy.statement import Statement
    from unpooled.protocol.registry import Analysed, Model
    from unpooled.protocol.terms import ResultTerm


# --- About -----------------------------------------------------------------------------------------------------------------
# The note in a run's folder, next to its result: why, by whom, when, and what is left of budgets that lie on this disk.

#: How the file is called in the folder of a run.
ABOUT = "about.json"


class BudgetLeft(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The spending of one party's ledger, at the delta of its policy."""

    party: str
    #: "unbounded" where the cost of a study is not known (unpooled 0.2.0 wrote null).
    spent: float | Literal["unbounded"] | None
    allowed: float
    delta: float
    unit: str
    #: The spending in words.
    said: str = ""

    @classmethod
    def of(cls, party: str, ledger: Ledger, policy: Policy) -> BudgetLeft:
        """Return the spending that this party's ledger holds now."""
        budget = policy.budget
        assert budget is not None  # a party file always has one
        found = ledger.spending(budget, policy.scope)
        return cls(party, found.number, budget.epsilon, budget.delta, str(budget.unit), found.words)

    @property
    def words(self) -> str:
        """For people."""
        said = self.said or (UNBOUNDED_WORD if isinstance(self.spent, str | None) else f"epsilon = {self.spent:.6g}")
        return f"{said} of {self.allowed:g} is spent, at delta = {self.delta:g} per {self.unit}"


class DataApproved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The data for which a party approved a plan: a keyed digest of them and its date, or why there is none."""

    party: str
    words: str

    @classmethod
    def of(cls, party: str, ledger: Ledger, policy: Policy, plan: str) -> DataApproved | None:
        """Return what a party's ledger and policy hold of a plan; None where neither approves it."""
        entry = ledger.approval(plan)
        if entry is not None:
            return cls(party, f"approved on {moment(entry.time)} UTC {entry.data_words}")
        listed = plan in (policy.approved or ())
        return cls(party, "its policy lists the plan, which holds no digest of data") if listed else None


class About(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file. Nothing signs it: somebody who ran the study wrote it down."""

    finished: str
    by: str
    purpose: str = ""
    budgets: tuple[BudgetLeft, ...] = ()
    data: tuple[DataApproved, ...] = ()


def write_about(folder: Path, study: Path, plan: Plan, parties: Sequence[Path] = (), by: str = "") -> None:
    """Write the note of a run of this plan once; the first run of a study is the one that was run."""
    path = folder / ABOUT
    if path.exists():
        return
    budgets, data = [], []
    for config in parties:
        if is_helper(config):
            continue  # it has no budget
        text = read_party(config)
        with Ledger.open(config.parent / text.party.ledger) as ledger:
            policy = policy_of(text.policy)
            budgets.append(BudgetLeft.of(text.party.name, ledger, policy))
            data.append(DataApproved.of(text.party.name, ledger, policy, plan.hash))
    about = About(
        f"{moment(time.time())} UTC", by or account(), purpose_of(study), tuple(budgets), tuple(one for one in data if one)
    )
    path.write_bytes(msgspec.json.format(msgspec.json.encode(about)))


def read_about(folder: Path) -> About | None:
    """Return the note in the folder, if there is one."""
    try:
        return msgspec.json.decode((folder / ABOUT).read_bytes(), type=About, strict=True)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError:
        msg = f"{folder / ABOUT} is damaged: remove it, the report is made without it"
        raise DataError(msg) from None


def moment(seconds: float) -> str:
    """Return a time in UTC; ledgers of the first version have none, and a clock that was wrong, or a file of somebody else, may say anything."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M") if seconds > 0 else ""
    except (ValueError, OverflowError, OSError):  # after the year 9999
        return ""


def account() -> str:
    """Return the name of the account that runs this program; empty where it has none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # an account without a name
        return ""


# --- Finished --------------------------------------------------------------------------------------------------------------
# Report of a run, computed anew from its transcript: the study, its plan, its result, the requests to each party, and the bytes sent.
#
# A transcript begins with the study's own text, so nothing else is needed. The coordinator is run again over the recorded
# replies: the page shows what follows from the messages, and says so if a result that lies next to them differs. After a networked
# run the transcript is at the coordinator; its starter has a record instead, and the page says that too.


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
    #: The plan of the whole study, where this is one of its analyses.
    whole: Plan | None = None

    @property
    def statement(self) -> Statement:
        """Return the statement of everything that the study released, which is what a person loses."""
        return (self.whole or self.plan).statement

    @property
    def parts(self) -> tuple[Analysed, ...]:
        """Return the analyses of a study that has several."""
        return self.model.reading.parts(self.plan, self.result)

    def analysis(self, name: str) -> Run:
        """Return one of several analyses; refused where it has no result."""
        self.plan.analysis(name)
        (found,) = (part for part in self.parts if part.name == name)
        if found.failed:
            msg = f"analysis {name!r} has no result: {found.failed}"
            raise UsageError(msg)
        return replace(self, model=found.model, plan=found.plan, result=found.result, whole=self.plan)

    @property
    def terms(self) -> tuple[ResultTerm, ...]:
        """Return the result line by line; empty where it stays at the parties."""
        return self.model.reading.terms(self.plan, self.result)

    @classmethod
    def one(cls, folder: Path, analysis: str) -> Run:
        """Return one analysis of a run: the named one, which may have ended before the run did, or the only one there is."""
        found = cls.read(folder, analysis)
        if found.whole is None and found.plan.analyses:
            msg = f"this run has several analyses: name one with --analysis ({listed(list(found.plan.analyses))})"
            raise UsageError(msg)
        return found

    @classmethod
    def read(cls, folder: Path, analysis: str = "") -> Run:
        """Return the run whose files are in this folder, or one of its analyses."""
        found = cls._read(folder, analysis)
        return found.analysis(analysis) if analysis else found

    @classmethod
    def _read(cls, folder: Path, until: str) -> Run:
        """Return the run, as far as the analysis of this name where one is named."""
        path = folder / "transcript"
        if not path.is_file():
            if (folder / RECORD).is_file():
                return cls._recorded(folder)
            msg = f"{folder}: no transcript and no record of a run there: give the folder that `unpooled run` wrote (STUDY.run)"
            raise UsageError(msg)
        transcript = Transcript.read(path)
        if not transcript.entries:
            raise UsageError("the transcript is empty: run the study first")
        first = open_envelope(transcript.entries[0].request)
        if first.step != OPEN.name:
            raise ProtocolError("the transcript does not begin with a study")
        try:
            study = open_request(first).study
        except PlanMismatch:  # a run of another version: its messages cannot be played again, its record can be read
            if (folder / RECORD).is_file():
                return cls._recorded(folder)
            raise
        if study.in_process:
            raise ProtocolError(
                "no member of this run has a key, so the one who kept its messages may have edited them: a study of one process leaves no run to be "
                "read. Run a study file, whose cards have keys"
            )
        model = load(study.row)
        plan = model.compile(study)
        if plan.hash != first.plan:
            msg = f"the run was of plan {first.plan[:16]}; this version of unpooled makes {plan.hash[:16]} of its study: use the one it ran with"
            raise UsageError(msg)
        outcome = _replayed(model, plan, transcript, until)
        steps = counted(transcript.entries)
        return cls(
            model,
            plan,
            outcome.result,
            outcome.communication,
            steps,
            _agrees(folder, outcome.result, until),
            about=read_about(folder),
        )

    @classmethod
    def verify(cls, folder: Path, cards: Sequence[Card | HelperCard]) -> dict[str, int]:
        """Return how many replies of every party its key signed; refused where one is not, or where the run's cards are not these.

        The run is played again, so nothing can be left out at the end, reordered or exchanged. That a party was silent nobody signs.
        """
        transcript = Transcript.read(folder / "transcript") if (folder / "transcript").is_file() else None
        if transcript is None:
            raise UsageError("only a transcript can be verified: ask for the folder of the run at the coordinator")
        study = open_request(open_envelope(transcript.entries[0].request)).study if transcript.entries else None
        known = {card.name: card for card in cards}
        if study is None or set(known) != {card.name for card in study.members}:
            raise UsageError("give the card of every party of the run, and no others")
        for card in study.members:
            if known[card.name] != card:
                msg = f"the run's card of party {card.name!r} is not the one you gave"
                raise ProtocolError(msg)
        found = dict.fromkeys(known, 0)
        for entry in transcript.entries:
            if entry.reply is not None:
                check_signature(known[entry.to], entry.request, open_envelope(entry.reply), entry.short)
                found[entry.to] += 1
        cls.read(folder)
        return found

    @classmethod
    def _recorded(cls, folder: Path) -> Run:
        """Return the run as its record tells it."""
        model, plan, result, record = read_record(folder)
        agrees, about = _agrees(folder, result), read_about(folder)
        return cls(model, plan, result, record.communication, record.steps, agrees, recomputed=False, about=about)


def _replayed(model: Model, plan: Plan, transcript: Transcript, until: str) -> Outcome:
    """Return the outcome of a run, or of its analyses up to the named one, from its messages."""
    if until:
        plan.analysis(until)
        model = replace(model, coordinate=partial(coordinate, until=until))
    try:
        return drive(model, plan, recorded_only, transcript)
    except ProtocolError as error:
        if not plan.analyses or until:
            raise
        msg = f"{error}: this run has not ended. Its finished analyses can be read with --analysis NAME"
        raise ProtocolError(msg) from None


def _agrees(folder: Path, result: Any, until: str = "") -> bool | None:  # noqa: ANN401 - any model's result
    path = folder / "result.json"
    if not path.is_file():
        return None
    try:
        stored = msgspec.json.decode(path.read_bytes())["result"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return False
    again = msgspec.json.decode(msgspec.json.encode(result))
    if until and isinstance(stored, dict):
        stored = {name: one for name, one in stored.items() if name in again}
    return bool(stored == again)
