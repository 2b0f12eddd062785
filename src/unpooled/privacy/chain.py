"""What a ledger's rows say, and how each is tied to the one before it.

A row is one of

* ``genesis``: the first one, which ties the chain to one ledger and its root key;
* ``place``: where the ledger lies, so that a copy of it shows;
* ``data``: the file whose budget this is;
* ``approval``: this party agreed to a plan;
* ``charge``: one release of this party, and what it costs each unit;
* ``shared``: what a whole column-split plan costs the people in this party's rows, over all parties;
* ``commit``: the reply of a step;
* ``migration``: all rows before it were taken over from a ledger of an older version.

Rows are spelled out with types and lengths before they are hashed, so no two rows are spelled alike. What differs by kind stands in one
column, ``detail``, as canonical JSON; floats are kept there as hexadecimal text, so that what was charged is what is read back.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from unpooled.errors import UsageError
from unpooled.privacy.accounting import Event, Kind
from unpooled.privacy.exposure import Cost
from unpooled.privacy.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

#: Version of files and rows. Format 1 (unpooled 0.1.0) had two units as columns; ``ledger_format1`` reads it.
FORMAT = 2
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
    """What one release costs each unit, and a digest of the request and the data behind it.

    ``shared``: not one release but a whole column-split plan, over all its parties.
    """

    key: ReleaseKey
    fingerprint: bytes
    costs: tuple[Cost, ...]
    shared: bool = False

    def __post_init__(self) -> None:
        require(type(self.key) is ReleaseKey, f"a charge needs a ReleaseKey, not {type(self.key).__name__}")
        check_digest("fingerprint", self.fingerprint)
        for unit, part, event in self.costs:
            known = type(unit) is Unit and type(part) is str and type(event) is Event and event.count <= _LARGEST_INTEGER
            require(known, "a charge needs an Event for each unit, with a count below 2^63")
        require({cost.unit for cost in self.costs} == set(Unit), "a charge says what it costs every unit")

    def cost(self, unit: Unit) -> tuple[Cost, ...]:
        """What this charge is to one unit."""
        return tuple(cost for cost in self.costs if cost.unit is unit)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the ledger as people read it. An approval costs nothing and has no key."""

    position: int
    kind: Literal["charge", "shared", "approval"]
    plan: str
    key: ReleaseKey | None
    costs: tuple[Cost, ...]
    state: Literal["reserved", "committed"]
    time: int

    def words(self, unit: Unit) -> str:
        """What it costs one unit; alternatives, of which one holds for a given person, are told apart by "or"."""
        parts: dict[str, list[str]] = {}
        for cost in self.costs:
            if cost.unit is unit and cost.event.count:
                parts.setdefault(cost.part, []).append(str(cost.event))
        return " or ".join(" + ".join(events) for events in parts.values()) or "nothing"


# --- rows and their chain ------------------------------------------------------------------------------------------


def where(plan: str, step: str, index: int) -> str:
    """A step in words, for messages."""
    return f"step {step!r}, index {index} of plan {plan[:12]}"


def spell_costs(costs: Iterable[Cost]) -> bytes:
    """Costs as they stand in a row."""
    numbers = [
        (cost.unit, cost.part, int(event.kind), event.value.hex(), event.count, event.total_variation.hex())
        for cost in costs
        for event in (cost.event,)
    ]
    return msgspec.json.encode(numbers)


def read_costs(detail: bytes) -> tuple[Cost, ...]:
    """Costs of a row; a unit or a kind of event that this version does not know raises."""
    rows = msgspec.json.decode(detail, type=list[tuple[str, str, int, str, int, str]])
    return tuple(
        Cost(Unit(unit), part, Event(Kind(kind), float.fromhex(value), count, float.fromhex(variation)))
        for unit, part, kind, value, count, variation in rows
    )


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
    #: Of a charge its costs, of a place or a file what it is.
    detail: bytes = b""

    @classmethod
    def of(cls, charge: Charge) -> Row:
        """The row that debits a charge."""
        key, kind = charge.key, "shared" if charge.shared else "charge"
        return cls(0, 0, kind, key.plan, key.step, key.index, key.name, charge.fingerprint, b"", spell_costs(charge.costs))

    @property
    def charge(self) -> Charge:
        """The charge that a row debits."""
        return Charge(self.key, self.fingerprint, read_costs(self.detail), self.kind == "shared")

    @property
    def key(self) -> ReleaseKey:
        """The release that a charge's row is about."""
        return ReleaseKey(self.plan, self.step, self.number, self.name)


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
