"""Rows of a ledger: the content of each kind, and the hash that ties each row to the one before it.

A row is one of

* ``genesis``: the first one, which ties the chain to one ledger and its root key;
* ``place``: where the ledger lies, so that a copy of it shows;
* ``data``: the file whose budget this is;
* ``approval``: this party agreed to a plan; its detail says who approved it, why, for which purpose, and where public inputs come from;
* ``withdrawal``: this party took its agreement back;
* ``charge``: one release of this party, its own name, and what it costs each unit;
* ``shared``: what a whole column-split plan costs the people in this party's rows, over all parties;
* ``alignment``: rows were linked with a set of parties, and the number of ids that they could try out;
* ``commit``: the reply of a step, or its digest alone where it is made again when it is asked for;
* ``migration``: all rows before it were taken over from a ledger of an older version (``number``; 0 stands for format 1): debits among them have no name.

Another kind is refused.

Rows are spelled out with types and lengths before they are hashed, so no two rows are spelled alike. What differs by kind stands in one
column, ``detail``, as canonical JSON; floats are kept there as hexadecimal text, so that what was charged is what is read back.
"""

from __future__ import annotations

import struct
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from unpooled.privacy.events import Event, Kind
from unpooled.privacy.exposure import Cost
from unpooled.privacy.ledger.charges import Charge, ReleaseKey
from unpooled.privacy.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

#: Version of files and rows. ``format1`` reads those of unpooled 0.1.0, ``formats23`` those of 0.2.0 and of builds before 0.3.0.
FORMAT = 4
_CHAIN = """CREATE TABLE chain (position INTEGER PRIMARY KEY, time INTEGER NOT NULL, kind TEXT NOT NULL,
plan TEXT NOT NULL, step TEXT NOT NULL, number INTEGER NOT NULL, name TEXT NOT NULL,
fingerprint BLOB NOT NULL, content BLOB NOT NULL, detail BLOB NOT NULL, digest BLOB NOT NULL) STRICT"""
_REPLIES = "CREATE TABLE replies (content BLOB PRIMARY KEY NOT NULL, body BLOB NOT NULL) STRICT"
TABLES = [(_CHAIN,), (_REPLIES,)]


class _SpelledCost(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A cost in a row, its floats as hexadecimal text."""

    unit: str
    part: str
    kind: int
    value: str
    count: int
    variation: str
    tails: tuple[tuple[int, str], ...] = ()


def spell_costs(costs: Iterable[Cost]) -> bytes:
    """Costs as they stand in a row."""
    numbers = []
    for unit, part, event in costs:
        plain = (unit, part, int(event.kind), event.value.hex(), event.count, event.total_variation.hex())
        # Only events that have tails say so: the others are spelled as they were before there were any.
        numbers.append((*plain, [(n, m.hex()) for n, m in event.tails]) if event.tails else plain)
    return msgspec.json.encode(numbers)


class _Named(msgspec.Struct, forbid_unknown_fields=True):
    """The detail of a debit: the name of the draw, and its costs."""

    release: str
    costs: msgspec.Raw


def read_debit(detail: bytes) -> tuple[str, tuple[Cost, ...]]:
    """Return the name of a draw and the costs of its row; a row that was taken over from format 3 or older holds costs alone, and no name."""
    if detail.startswith(b"["):
        return "", read_costs(detail)
    named = msgspec.json.decode(detail, type=_Named)
    if not named.release:
        raise ValueError
    return named.release, read_costs(bytes(named.costs))


def read_costs(detail: bytes) -> tuple[Cost, ...]:
    """Costs of a row; a unit or a kind of event that this version does not know raises."""
    costs = []
    for row in msgspec.json.decode(detail, type=list[_SpelledCost]):
        tails = tuple((n, float.fromhex(m)) for n, m in row.tails)
        event = Event(Kind(row.kind), float.fromhex(row.value), row.count, float.fromhex(row.variation), tails)
        costs.append(Cost(Unit(row.unit), row.part, event))
    return tuple(costs)


#: The detail of a reply of which the ledger keeps no bytes.
DIGEST_ALONE = b"digest alone"


class Approval(msgspec.Struct, frozen=True, omit_defaults=True):
    """The detail of an approval: who approved a plan, why, and what this person was shown in addition to the plan."""

    by: str = ""
    reason: str = ""
    purpose: str = ""
    #: Of public inputs that earlier plans released: input, plan, whether its statement holds, whose rows.
    origins: tuple[tuple[str, str, bool, str], ...] = ()
    #: A keyed digest of the data that the party held when it approved, in hex; empty in approvals of earlier versions, and of helpers.
    data: str = ""
    #: Why these data are others than those of the approval before; empty where they are not.
    changed: str = ""


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
        """Return the row that debits a charge."""
        key, kind = charge.key, "shared" if charge.shared else "charge"
        detail = msgspec.json.encode(_Named(charge.release, msgspec.Raw(spell_costs(charge.costs))))
        return cls(0, 0, kind, key.plan, key.step, key.index, key.name, charge.fingerprint, b"", detail)

    @property
    def charge(self) -> Charge:
        """Return the charge that a row debits."""
        release, costs = read_debit(self.detail)
        return Charge(self.key, self.fingerprint, costs, self.kind == "shared", release)

    @property
    def approval(self) -> Approval:
        """Return the detail of an approval or a withdrawal; rows of format 2 have an empty one."""
        return msgspec.json.decode(self.detail, type=Approval) if self.detail else Approval()

    @property
    def key(self) -> ReleaseKey:
        """Return the release that a charge's row is about."""
        return ReleaseKey(self.plan, self.step, self.number, self.name)


_SPELLING: dict[type, Callable[[Any], bytes]] = {
    int: lambda number: b"i" + number.to_bytes(8, "big", signed=True),
    str: lambda text: b"s" + text.encode(),
    bytes: lambda body: b"b" + body,
}


def link(previous: bytes, columns: Iterable[Any]) -> bytes:
    """Return the digest of a row. Every column goes in with its type and length, so no two rows are spelled alike."""
    digest = sha256(previous)
    for value in columns:
        spelled = _SPELLING[type(value)](value)
        digest.update(struct.pack(">q", len(spelled)) + spelled)
    return digest.digest()


class Head(NamedTuple):
    """An end of the chain: how many rows it has, and the digest of the last one."""

    rows: int
    digest: bytes


def start(version: int) -> Head:
    """Return the end of an empty chain of this format."""
    return Head(0, sha256(f"unpooled ledger, format {version}".encode()).digest())


NOTHING = start(FORMAT)
