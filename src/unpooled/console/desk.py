"""The desk of a party's people: the inbox, the decisions, the ledger and the runs, as the pages show them; long work is done in the background."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from unpooled.audit.oracle import audit_study
from unpooled.errors import PlanMismatch, StudyError, UnpooledError, UsageError
from unpooled.models import LINK
from unpooled.network import signing as proposals
from unpooled.privacy.plan import Study
from unpooled.privacy.unit import Target
from unpooled.protocol.registry import maker
from unpooled.report.page import PartyView, page, page_of_party
from unpooled.report.preview import Preview, page_of_preview
from unpooled.study.files import coordinators_of, is_forced, purpose_of, read_study, top_of
from unpooled.study.finished import Run
from unpooled.study.made_up import columns_read, said_of
from unpooled.study.party import open_account, open_party
from unpooled.study.record import RECORD
from unpooled.study.run import KeptValues, about, asked_of, compile_study, record_approval

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

    from unpooled.audit.replay import Report
    from unpooled.privacy.ledger.spending import StudyLine
    from unpooled.privacy.plan import Plan
    from unpooled.privacy.policy import Policy
    from unpooled.protocol.party import Party

    #: A piece of work: it is given what to call with its words, and returns its result.
    Work = Callable[[Callable[[str], None]], Any]


# --- Jobs ------------------------------------------------------------------------------------------------------------------
# Work that takes longer than a page may: done one after the other in the background, with its words while it lasts and its result afterwards.


@dataclass
class Job:
    """One piece of work."""

    words: str = "waiting for its turn"
    done: bool = False
    result: Any = None
    trouble: str = ""


class Jobs:
    """Pieces of work by kind and plan; the same one is not done twice at a time, and never two at once."""

    def __init__(self) -> None:
        self._jobs: dict[tuple[str, str], Job] = {}
        self._lock, self._turn = threading.Lock(), threading.Lock()

    def find(self, kind: str, plan: str) -> Job | None:
        """Return the work of this kind on this plan, if it was begun."""
        return self._jobs.get((kind, plan))

    def begin(self, kind: str, plan: str, work: Work) -> None:
        """Begin the work unless it is under way."""
        with self._lock:
            known = self._jobs.get((kind, plan))
            if known is not None and not known.done:
                return
            job = self._jobs[kind, plan] = Job()
        # A daemon: work on made-up data need not end before the console does.
        threading.Thread(target=self._do, args=(job, work), daemon=True).start()

    def _do(self, job: Job, work: Work) -> None:
        def say(words: str) -> None:
            job.words = words

        with self._turn:
            try:
                job.result = work(say)
            except UnpooledError as error:
                job.trouble = str(error)
            except Exception as error:  # noqa: BLE001 - its words might hold anything; the page says that it failed
                job.trouble = f"it failed ({type(error).__name__}); `unpooled audit STUDY` on the command line says where"
            finally:
                job.done = True


# --- Inbox -----------------------------------------------------------------------------------------------------------------
# The inbox of a party: study files that people put there, and proposals that came over a network. None has an effect before it is approved.

#: More files than this are not looked at.
_MOST = 500
#: Seconds that a page waits, for all plans together.
_PATIENCE = 5.0


@dataclass(frozen=True)
class Item:
    """A study in the inbox, or the reason why it cannot be shown."""

    #: The file's name, from the inbox.
    place: str
    plan: Plan | None = None
    purpose: str = ""
    #: Who proposed it over the network; empty for a file.
    by: str = ""
    #: True if the coordinator whom the study pins signed it.
    signed: bool = False
    #: True if the party knows that coordinator: by its policy, or by an approved study that was opened here.
    known: bool = False
    trouble: str = ""
    #: True if the study file says that it shall run whatever is expected of it.
    forced: bool = False

    @property
    def hash(self) -> str:
        """Return the hash of the plan; empty where it cannot be shown."""
        return self.plan.hash if self.plan is not None else ""

    @property
    def shown(self) -> str:
        """Return a digest of what a person is shown: the plan, and the purpose, which the plan's hash does not hold."""
        return sha256(f"{self.hash}\n{self.purpose}\n{self.by}".encode()).hexdigest()


def read_inbox(folder: Path, party: str, key: str, policy: Policy, coordinators: Collection[str] = ()) -> tuple[Item, ...]:
    """Return everything in the inbox, in the order of names; an item that cannot be read says why, and hides no other.

    ``coordinators`` are the keys that the party's policy lists.
    """
    until, known = time.monotonic() + _PATIENCE, proposals.known_keys(folder, coordinators)
    items = (_read(file, folder, party, key, policy, until) for file in list(_files(folder))[:_MOST])
    return tuple(
        replace(item, known=True) if item.signed and item.plan and item.plan.study.coordinator in known else item
        for item in items
    )


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files of an inbox that hold studies: proposals, and study files with their cards, in the inbox or in a folder of their own."""
    if not folder.is_dir():
        return
    yield from sorted(folder.glob(f"*{proposals.ENDING}"))
    for file in sorted({*folder.glob("*.toml"), *folder.glob("*/*.toml")}):
        if _may_be_a_study(file):
            yield file


def _may_be_a_study(file: Path) -> bool:
    """Return True for a study file, and for a file that cannot be read at all: a mail program may have changed its quotes."""
    top = top_of(file)
    return bool({"study", "analysis"} & set(top)) or (not top and file.is_file() and file.stat().st_size > 0)


def _cards_there(file: Path) -> None:
    """Refuse a study file whose cards do not lie where it says."""
    for reference in top_of(file).get("party", ()):
        card = reference.get("card", "") if isinstance(reference, dict) else ""
        if isinstance(card, str) and card and not (file.parent / card).is_file():
            msg = f"the study names the card {card}, which does not lie there: put it there, or ask the analyst for the whole folder"
            raise StudyError(msg)


def _read(file: Path, folder: Path, party: str, key: str, policy: Policy, until: float) -> Item:
    place = str(file.relative_to(folder))

    def admit(study: Study) -> None:
        # Before anything of another distribution is imported.
        for one in study.models:
            policy.check_model(one, maker(one.row), links=one.row == LINK)

    try:
        if file.suffix == proposals.ENDING:
            laid = proposals.read(file, party, key)
            study, purpose, by, signed = laid.proposal.study, laid.proposal.purpose, laid.proposal.by, True
            admit(study)
        else:
            _cards_there(file)
            study, purpose, by, signed = read_study(file, admit), purpose_of(file), "", False
        forced = not signed and is_forced(file)
        return Item(place, _compiler.plan(study, until), purpose, by, signed, forced=forced)
    except Exception as error:  # noqa: BLE001 - one file that somebody made up must not hide the others
        words = (
            str(error) if type(error).__module__.startswith("unpooled") else f"it cannot be read ({type(error).__name__})"
        )
        return Item(place, trouble=words)


_read_columns: dict[str, Mapping[str, tuple[str, ...]] | None] = {}


def columns_of(plan: Plan) -> list[tuple[str, str, str]]:
    """Return, for each party, the declared columns that a plan reads and those that it does not; empty where nobody can say."""
    if plan.hash not in _read_columns:
        _read_columns[plan.hash] = columns_read(plan)
    read = _read_columns[plan.hash]
    rows = []
    for card in plan.study.parties if read is not None else ():
        every, own = [column.name for column in card.columns], (read or {})[card.name]
        rows.append((card.name, said_of(own, len(every)), said_of([n for n in every if n not in own], len(every))))
    return rows


class _Compiler:
    """Plans by the bytes of their studies, each worked out once and in a thread of its own, so that a large study holds up no page."""

    def __init__(self) -> None:
        self._lock, self._known = threading.Lock(), dict[bytes, "Future[Plan]"]()

    def plan(self, study: Study, until: float) -> Plan:
        """Return the plan of a study, or raise what is wrong with it; refused for now where it is not there by the time that a page can wait."""
        key = sha256(msgspec.msgpack.encode(study)).digest()
        with self._lock:
            begun = key in self._known
            found = self._known.setdefault(key, Future())
            if len(self._known) > _MOST:
                del self._known[next(iter(self._known))]
        if not begun:
            # A daemon: nobody waits for it when the console ends.
            threading.Thread(target=self._work, args=(study, found), daemon=True).start()
        try:
            return found.result(max(0.0, until - time.monotonic()))
        except TimeoutError:
            raise UsageError(
                "it is large, and its plan is still being worked out: open this page again in a minute"
            ) from None

    @staticmethod
    def _work(study: Study, found: Future[Plan]) -> None:
        try:
            plan = compile_study(study)
            _ = plan.hash, plan.statement  # which every page asks for, and which take as long
            found.set_result(plan)
        except Exception as error:  # noqa: BLE001 - raised again where the page is made
            found.set_exception(error)


_compiler = _Compiler()


# --- Desk ------------------------------------------------------------------------------------------------------------------
# The desk of a party's people: the inbox, the decisions, the ledger and the runs, as the pages show them. It knows no page and no browser.

#: The measure of a helper's decisions, which cost nothing in any.
_NO_BUDGET = Target(1.0, 1e-9)
AUDIT, PREVIEW = "audit", "preview"


@dataclass(frozen=True)
class OfficeDesk:
    """A party file, the folder of the inbox, and the folder in which finished runs are looked for."""

    config: Path
    inbox: Path
    runs: Path
    jobs: Jobs = field(default_factory=Jobs)

    def items(self, party: Party) -> tuple[Item, ...]:
        """Return what is in the inbox."""
        listed = coordinators_of(self.config)
        return read_inbox(self.inbox, party.name, party.identity.public, party.policy, listed)

    def item(self, party: Party, plan: str) -> Item | None:
        """Return the study in the inbox that compiles to this plan, if there is one."""
        return next((item for item in self.items(party) if item.hash == plan), None)

    def other_purposes(self, party: Party, item: Item) -> tuple[str, ...]:
        """Return the purposes that other files of the inbox give for the same plan: its hash does not hold it."""
        found = {one.purpose for one in self.items(party) if one.hash == item.hash}
        return tuple(sorted(found - {item.purpose}))

    def waiting(self, party: Party, but: str) -> tuple[Plan, ...]:
        """Return the plans that are approved here, whose file is in the inbox and of which nothing was released yet, but for one of them."""
        known = {line.plan: line for line in lines(party)}
        plans = {item.hash: item.plan for item in self.items(party) if item.plan is not None and item.hash != but}
        approved = [plan for plan in plans.values() if stands(party, plan.hash, known.get(plan.hash))]
        return tuple(plan for plan in approved if not party.ledger.begun(plan.hash))

    # --- decisions

    def approve(self, plan: str, shown: str, by: str, reason: str) -> None:
        """Approve the plan that was shown; refused where the inbox holds another one now, or card, data, policy or ledger do not allow it."""
        _signed(by, reason)
        with open_party(self.config) as party:
            if _repeated(party, plan, "approval", by, reason):
                return
            item, after = self._as_shown(party, plan, shown)
            assert item.plan is not None
            party.consider(item.plan, approved=True)
            record_approval(party, item.plan, item.purpose, by=by, reason=reason, after=after)

    def decline(self, plan: str, shown: str, by: str, reason: str) -> None:
        """Record that this party does not take part in the plan that was shown."""
        _signed(by, reason)
        with open_account(self.config) as party:
            if _repeated(party, plan, "withdrawal", by, reason):
                return
            item, after = self._as_shown(party, plan, shown)
            assert item.plan is not None
            words = about(item.plan, item.purpose)
            party.ledger.withdraw(plan, words, by=by, reason=reason, purpose=item.purpose, after=after)

    def withdraw(self, plan: str, by: str, reason: str) -> None:
        """Take back the approval of a plan that the ledger knows, whether or not its file is still in the inbox."""
        _signed(by, reason)
        with open_account(self.config) as party:
            line = standing(party, plan)
            if not stands(party, plan, line):
                raise UsageError("this plan was not approved here, so there is nothing to withdraw. Nothing was changed")
            said = line.approval if line else None
            party.ledger.withdraw(
                plan, said.about if said else "", by=by, reason=reason, purpose=said.purpose if said else ""
            )

    def _as_shown(self, party: Party, plan: str, shown: str) -> tuple[Item, int]:
        """Return the study that was shown, and how many decisions there were about it; refused where either has changed."""
        item, line = self.item(party, plan), standing(party, plan)
        if item is None or shown_of(item, line) != shown:
            raise PlanMismatch(
                "the study in the inbox is not the one that this page showed (or its purpose changed, or somebody decided about it since): read it "
                "again. Nothing was changed"
            )
        return item, line.decisions if line else 0

    # --- what takes longer

    def begin(self, kind: str, plan: Plan) -> None:
        """Begin to attack a plan on made-up data, or to draw its results on them."""
        self.jobs.begin(kind, plan.hash, partial(_WORK[kind], plan))

    # --- pages of others

    def party_report(self, item: Item) -> str:
        """Return the page of what this party may see of a study."""
        assert item.plan is not None
        kept = KeptValues.of_plan(self.config, item.plan, item.place)
        return page_of_party(PartyView.of(self.config, kept, item.purpose))

    def found_runs(self) -> dict[str, Path]:
        """Return the folders of finished runs in the inbox and in the folder of runs, by a short name for addresses."""
        folders = [
            folder
            for place in dict.fromkeys((self.inbox, self.runs))
            for depth in ("*", "*/*")
            for folder in sorted(place.glob(depth))
            if folder.is_dir() and any((folder / name).is_file() for name in ("transcript", RECORD))
        ]
        return {sha256(str(folder).encode()).hexdigest()[:16]: folder for folder in dict.fromkeys(folders)}

    def run_report(self, name: str) -> str | None:
        """Return the page of a finished run, worked out anew; None where there is no such run."""
        folder = self.found_runs().get(name)
        return None if folder is None else page(Run.read(folder))


def standing(party: Party, plan: str) -> StudyLine | None:
    """Return what the party's ledger holds of a plan, if anything."""
    return next((line for line in lines(party) if line.plan == plan), None)


def shown_of(item: Item, line: StudyLine | None) -> str:
    """Return a digest of what a person is shown who decides: the study, and how often it was decided about before."""
    return sha256(f"{item.shown}\n{line.decisions if line else 0}".encode()).hexdigest()


def listed(party: Party, plan: str) -> bool:
    """Return True if the policy in the party file itself approves a plan, by its hash."""
    return plan in (party.policy.approved or ())


def stands(party: Party, plan: str, line: StudyLine | None) -> bool:
    """Return True if a plan may run here: the ledger or the policy approves it, and nobody took that back."""
    return not (line and line.withdrawn) and (listed(party, plan) or bool(line and line.approval))


def lines(party: Party) -> tuple[StudyLine, ...]:
    """Return a line for every study in the party's ledger; a helper's hold decisions alone."""
    return party.ledger.studies(party.policy.budget or _NO_BUDGET, party.policy.scope)


def _repeated(party: Party, plan: str, kind: str, by: str, reason: str) -> bool:
    """Return True if the last decision about a plan is this very one: a browser sends a form twice where somebody clicks twice."""
    line = standing(party, plan)
    last = line.decision if line else None
    return last is not None and (last.kind, last.by, last.reason) == (kind, by, reason)


def _signed(by: str, reason: str) -> None:
    """Refuse a decision without a name or without a reason."""
    if not by.strip() or not reason.strip():
        raise UsageError("write your name and your reason: the ledger keeps both. Nothing was changed")


def _audited(plan: Plan, say: Callable[[str], None]) -> Report:
    return audit_study(plan.study, say)


def _previewed(plan: Plan, say: Callable[[str], None]) -> str:
    say("running the study on made-up data")
    shown = Preview.of(plan)
    say("simulating what error to expect at several epsilons")
    outlooks = {asked.analysis: model.outlook(asked) for model, asked in asked_of(plan.study) if model.outlook is not None}
    return page_of_preview(shown, outlooks)


#: The work of a button.
_WORK = {AUDIT: _audited, PREVIEW: _previewed}
