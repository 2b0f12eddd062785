"""Debits: the name of a release, its cost to each unit, and a line of the ledger as people read it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from unpooled.errors import UsageError
from unpooled.privacy.events import UNBOUNDED, Event
from unpooled.privacy.exposure import Cost
from unpooled.privacy.unit import ROWWISE, Unit

DIGEST_BYTES = 32  # of SHA-256, and of a root key
LONGEST_WORD = 200
_LONGEST_LINE = 500
_LARGEST_INTEGER = 2**63 - 1


def where(plan: str, step: str, index: int) -> str:
    """Return a step in words, for messages."""
    return f"step {step!r}, index {index} of plan {plan[:12]}"


def require(condition: bool, remedy: str) -> None:
    """Raise a usage error that names the remedy."""
    if not condition:
        raise UsageError(remedy)


def check_plan(plan: object) -> None:
    """A plan's hash, or an error."""
    right = type(plan) is str and len(plan) == 2 * DIGEST_BYTES and set(plan) <= set("0123456789abcdef")
    require(right, "a plan is named by its hash: 64 lowercase hexadecimal digits")


def check_word(what: str, word: object) -> None:
    """A name that fits a row and a line of text, or an error."""
    right = type(word) is str and 0 < len(word) <= LONGEST_WORD and word.isprintable()
    require(right, f"the {what} of a release must be 1 to {LONGEST_WORD} printable characters")


def check_line(what: str, words: object) -> None:
    """Check that words are one printable line, or nothing."""
    right = type(words) is str and len(words) <= _LONGEST_LINE and words.isprintable()
    require(right, f"the {what} is one line of at most {_LONGEST_LINE} printable characters")


def check_step(plan: object, step: object, index: object) -> None:
    """The name of a step's answer, or an error."""
    check_plan(plan)
    check_word("step", step)
    right = type(index) is int and 0 <= index <= _LARGEST_INTEGER
    require(right, "the index of a step must be an integer from 0 to 2^63 - 1")


def check_digest(what: str, digest: object) -> None:
    """32 bytes, or an error."""
    require(type(digest) is bytes and len(digest) == DIGEST_BYTES, f"the {what} must be 32 bytes")


@dataclass(frozen=True, slots=True)
class ReleaseKey:
    """The name of one release. It is paid for once, however often it is sent."""

    plan: str
    step: str
    index: int
    name: str

    def __post_init__(self) -> None:
        check_step(self.plan, self.step, self.index)
        check_word("name", self.name)

    def __str__(self) -> str:
        return f"release {self.name!r} of {where(self.plan, self.step, self.index)}"


@dataclass(frozen=True, slots=True)
class Charge:
    """The cost of one release to each unit, and a digest of the request and the data behind it.

    ``shared``: not one release but a whole column-split plan, over all its parties. ``release`` is a name that no two draws share; a ledger
    gives one to what has none.
    """

    key: ReleaseKey
    fingerprint: bytes
    costs: tuple[Cost, ...]
    shared: bool = False
    release: str = ""

    def __post_init__(self) -> None:
        named = self.release == "" or re.fullmatch("[0-9a-f]{64}", self.release) is not None
        require(named, "the name of a draw is 64 lowercase hexadecimal digits")
        require(type(self.key) is ReleaseKey, f"a charge needs a ReleaseKey, not {type(self.key).__name__}")
        check_digest("fingerprint", self.fingerprint)
        for unit, part, event in self.costs:
            known = type(unit) is Unit and type(part) is str and type(event) is Event and event.count <= _LARGEST_INTEGER
            require(known, "a charge needs an Event for each unit, with a count below 2^63")
        require({cost.unit for cost in self.costs} >= set(ROWWISE), "a charge says what it costs a row and a value")

    def cost(self, unit: Unit) -> tuple[Cost, ...]:
        """Return the costs of this charge to one unit; a household's loss is unbounded where nobody bounded the number of its rows that count."""
        return tuple(cost for cost in self.costs if cost.unit is unit) or (Cost(unit, "", UNBOUNDED),)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the ledger as people read it. An approval and its withdrawal cost nothing and have no key."""

    position: int
    kind: Literal["charge", "shared", "approval", "withdrawal"]
    plan: str
    key: ReleaseKey | None
    costs: tuple[Cost, ...]
    state: Literal["reserved", "committed"]
    time: int
    #: Of an approval: what the plan is about, as whoever approved it was told.
    about: str = ""
    #: Of an approval or a withdrawal: who made it, and why, if this was said.
    by: str = ""
    reason: str = ""
    #: Of an approval: what the study's result is for, as the study file said.
    purpose: str = ""
    #: Of an approval: a keyed digest of the data that it is for, and why they changed since the approval before.
    data: str = ""
    changed: str = ""
    #: Of a debit: the name of the draw, which no two draws share; empty in a debit of format 3 or older, which counts as a draw of its own.
    release: str = ""

    @property
    def data_words(self) -> str:
        """Return in words for which data an approval is."""
        if not self.data:
            return "without a digest of the data"
        said = f"for the data with digest {self.data[:16]}"
        return f"{said}, which changed: {self.changed}" if self.changed else said

    @property
    def units(self) -> tuple[Unit, ...]:
        """Return the units that it prices."""
        return tuple(unit for unit in Unit if any(cost.unit is unit for cost in self.costs))

    def words(self, unit: Unit) -> str:
        """Return the cost to one unit in words; alternatives, of which one holds for a given person, are separated by "or"."""
        if unit is Unit.HOUSEHOLD and all(cost.unit is not unit for cost in self.costs):
            return str(UNBOUNDED)
        parts: dict[str, list[str]] = {}
        for cost in self.costs:
            if cost.unit is unit and cost.event.count:
                parts.setdefault(cost.part, []).append(str(cost.event))
        return " or ".join(" + ".join(events) for events in parts.values()) or "nothing"


class Entries(tuple[Entry, ...]):
    """The lines of one or several ledgers; prints what was charged and how often, for a fit may have hundreds of lines."""

    __slots__ = ()

    def __repr__(self) -> str:
        charged = Counter(entry.key.step for entry in self if entry.kind == "charge" and entry.key is not None)
        steps = ", ".join(step if count == 1 else f"{step} x {count}" for step, count in charged.items())
        return f"<{len(self)} ledger entries; charged: {steps or 'nothing'}>"
