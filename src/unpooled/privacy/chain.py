"""What a ledger's rows say, and how each is tied to the one before it.

A row is a charge (a release and what it costs each unit), a commit (the reply of a step), an approval, or the first row, which ties
the chain to one ledger and its root key. Rows are spelled out with types and lengths before they are hashed, so no two rows
are spelled alike; numbers are kept as integers, a float as its bits, so that what was charged is what is read back.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from unpooled.errors import UsageError
from unpooled.privacy.accounting import NO_COST, Event, Kind
from unpooled.privacy.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

FORMAT = 1
DIGEST_BYTES = 32  # of SHA-256, and of a root key
LONGEST_WORD = 200
_LARGEST_INTEGER = 2**63 - 1


# --- what is charged -----------------------------------------------------------------------------------------------


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
    """What one release costs each unit, and a digest of the request and the data behind it."""

    key: ReleaseKey
    fingerprint: bytes
    record: Event
    attribute: Event

    def __post_init__(self) -> None:
        require(type(self.key) is ReleaseKey, f"a charge needs a ReleaseKey, not {type(self.key).__name__}")
        check_digest("fingerprint", self.fingerprint)
        for event in (self.record, self.attribute):
            known = type(event) is Event and event.count <= _LARGEST_INTEGER
            require(known, "a charge needs an Event for each unit, with a count below 2^63")

    def cost(self, unit: Unit) -> Event:
        """The event that this charge is to one unit."""
        return self.record if unit is Unit.RECORD else self.attribute


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the ledger as people read it. An approval costs nothing and has no key."""

    position: int
    kind: Literal["charge", "approval"]
    plan: str
    key: ReleaseKey | None
    record: Event
    attribute: Event
    state: Literal["reserved", "committed"]
    time: int


# --- rows and their chain ------------------------------------------------------------------------------------------


def where(plan: str, step: str, index: int) -> str:
    """A step in words, for messages."""
    return f"step {step!r}, index {index} of plan {plan[:12]}"


def _pack(event: Event) -> tuple[int, ...]:
    """An event as four integers: a float is kept as its bits, so that what was charged is what is read back."""
    bits = struct.pack(">dqd", event.value, event.count, event.total_variation)
    return int(event.kind), *struct.unpack(">qqq", bits)


def _unpack(kind: int, *numbers: int) -> Event:
    return Event(Kind(kind), *struct.unpack(">dqd", struct.pack(">qqq", *numbers)))


class Row(NamedTuple):
    """One link of the chain, in the order of its columns.

    ``fingerprint`` is the digest of what was asked (of a commit: the request; in the first row the random identity of
    the ledger) and ``content`` that of what was stored (of a commit: the reply; in the first row the root key).
    """

    position: int = 0
    time: int = 0
    kind: str = ""
    plan: str = ""
    step: str = ""
    number: int = 0
    name: str = ""
    fingerprint: bytes = b""
    content: bytes = b""
    record: Event = NO_COST
    attribute: Event = NO_COST

    @classmethod
    def of(cls, charge: Charge) -> Row:
        """The row that debits a charge."""
        key, costs = charge.key, (charge.record, charge.attribute)
        return cls(0, 0, "charge", key.plan, key.step, key.index, key.name, charge.fingerprint, b"", *costs)

    @property
    def key(self) -> ReleaseKey:
        """The release that a charge's row is about."""
        return ReleaseKey(self.plan, self.step, self.number, self.name)

    def columns(self) -> tuple[int | str | bytes, ...]:
        """The row as the database keeps it."""
        return *self[:9], *_pack(self.record), *_pack(self.attribute)

    @classmethod
    def read(cls, columns: Sequence[Any]) -> Row:
        """A row of the database; an unknown event raises."""
        return cls._make((*columns[:9], _unpack(*columns[9:13]), _unpack(*columns[13:])))


_SPELLING: dict[type, Callable[[Any], bytes]] = {
    int: lambda number: b"i" + number.to_bytes(8, "big", signed=True),
    str: lambda text: b"s" + text.encode(),
    bytes: lambda body: b"b" + body,
}


def link(previous: bytes, columns: Iterable[Any]) -> bytes:
    """The digest of a row. Every column goes in with its type and length, so no two rows are spelled alike."""
    digest = sha256(previous)
    for value in columns:
        spelled = _SPELLING[type(value)](value)
        digest.update(struct.pack(">q", len(spelled)) + spelled)
    return digest.digest()


class Head(NamedTuple):
    """An end of the chain: how many rows it has, and the digest of the last one."""

    rows: int
    digest: bytes


NOTHING = Head(0, sha256(f"unpooled ledger, format {FORMAT}".encode()).digest())
