"""The inbox of a party: study files that people put there, and proposals that came over a network. None has an effect before it is approved."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from unpooled.errors import StudyError, UsageError
from unpooled.models import LINK
from unpooled.network import proposals
from unpooled.privacy.plan import Study
from unpooled.protocol.entries import maker
from unpooled.study.approving import doubts_of
from unpooled.study.columns_read import columns_read, said_of
from unpooled.study.files import is_forced, purpose_of, read_study
from unpooled.study.run import compile_study
from unpooled.study.text import top_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from unpooled.privacy.plan import Plan
    from unpooled.privacy.policy import Policy

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


_doubts: dict[str, tuple[str, ...]] = {}
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


def doubts(plan: Plan) -> tuple[str, ...]:
    """Return why too little is expected of a plan: simulations take a second, and a page is read more than once."""
    if plan.hash not in _doubts:
        _doubts[plan.hash] = doubts_of(plan)
    return _doubts[plan.hash]


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
