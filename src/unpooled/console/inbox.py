"""The inbox of a party: study files that people put there, and proposals that came over a network. None has an effect before it is approved."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from unpooled.errors import StudyError
from unpooled.models import LINK
from unpooled.network import proposals
from unpooled.privacy.plan import Study
from unpooled.protocol.entries import maker
from unpooled.study.approving import doubts_of
from unpooled.study.files import is_forced, purpose_of, read_study
from unpooled.study.run import compile_study
from unpooled.study.text import top_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from unpooled.privacy.plan import Plan
    from unpooled.privacy.policy import Policy

#: More files than this are not looked at.
_MOST = 500


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


def read_inbox(folder: Path, party: str, key: str, policy: Policy) -> tuple[Item, ...]:
    """Return everything in the inbox, in the order of names; an item that cannot be read says why, and hides no other."""
    return tuple(_read(file, folder, party, key, policy) for file in list(_files(folder))[:_MOST])


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


def _read(file: Path, folder: Path, party: str, key: str, policy: Policy) -> Item:
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
        return Item(place, _compiled(msgspec.msgpack.encode(study)), purpose, by, signed, forced=forced)
    except Exception as error:  # noqa: BLE001 - one file that somebody made up must not hide the others
        words = (
            str(error) if type(error).__module__.startswith("unpooled") else f"it cannot be read ({type(error).__name__})"
        )
        return Item(place, trouble=words)


@lru_cache(maxsize=_MOST)
def doubts(study: bytes) -> tuple[str, ...]:
    """Return why too little is expected of a study, from its bytes: simulations take a second, and a page is read more than once."""
    return doubts_of(_compiled(study))


@lru_cache(maxsize=_MOST)
def _compiled(study: bytes) -> Plan:
    return compile_study(msgspec.msgpack.decode(study, type=Study))
