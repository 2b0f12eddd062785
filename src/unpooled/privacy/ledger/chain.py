"""Rows of a ledger: debits, the hash that ties each row to the one before it, the ledger's place, and the verified rows sorted by kind."""

from __future__ import annotations

import re
import struct
from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, assert_never

import msgspec

from unpooled.errors import PlanMismatch, PolicyRefusal, ReleaseConflict, UsageError
from unpooled.privacy.events import UNBOUNDED, Event, Kind
from unpooled.privacy.exposure import Cost, account
from unpooled.privacy.unit import ROWWISE, Scope, Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from unpooled.privacy.exposure import Worst


# --- Charges ---------------------------------------------------------------------------------------------------------------
# Debits: the name of a release, its cost to each unit, and a line of the ledger as people read it.

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


# --- Chain -----------------------------------------------------------------------------------------------------------------
# Rows of a ledger: the content of each kind, and the hash that ties each row to the one before it.
#
# A row is one of
#
# * ``genesis``: the first one, which ties the chain to one ledger and its root key;
# * ``place``: where the ledger lies, so that a copy of it shows;
# * ``data``: the file whose budget this is;
# * ``approval``: this party agreed to a plan; its detail says who approved it, why, for which purpose, and where public inputs come from;
# * ``withdrawal``: this party took its agreement back;
# * ``charge``: one release of this party, its own name, and what it costs each unit;
# * ``shared``: what a whole column-split plan costs the people in this party's rows, over all parties;
# * ``alignment``: rows were linked with a set of parties, and the number of ids that they could try out;
# * ``commit``: the reply of a step, or its digest alone where it is made again when it is asked for;
# * ``migration``: all rows before it were taken over from a ledger of an older version (``number``; 0 stands for format 1): debits among them have no name.
#
# Another kind is refused.
#
# Rows are spelled out with types and lengths before they are hashed, so no two rows are spelled alike. What differs by kind stands in one
# column, ``detail``, as canonical JSON; floats are kept there as hexadecimal text, so that what was charged is what is read back.

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


# --- Place -----------------------------------------------------------------------------------------------------------------
# The place of a ledger, so that a copy can be distinguished from the ledger itself.

#: Files in which Linux keeps a number that no other machine has.
_MACHINE_FILES = ("/etc/machine-id", "/var/lib/dbus/machine-id")


class Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file on a machine. ``machine`` is a digest, and empty where the machine has no identity of its own (some containers).

    ``inode`` is the number of the file in its file system, 0 where nobody wrote it down. A file that is copied, restored or unpacked gets
    another number, also where its path and its machine seem to be the same; one that is overwritten in place, or a snapshot of the whole file
    system, keeps it (docs/guarantee.md).
    """

    file: str
    machine: str
    inode: int = 0

    @classmethod
    def of(cls, path: Path, made: Path | None = None) -> Self:
        """Return the place of a file; ``made`` is the same file under the name it still has."""
        return cls(str(path.parent.resolve() / path.name), _machine(), (made or path).stat().st_ino)

    def is_same(self, other: Place) -> bool:
        """Return True if both places are the same, as far as file, machine and inode show."""
        machines = not (self.machine and other.machine) or self.machine == other.machine
        inodes = not (self.inode and other.inode) or self.inode == other.inode
        return self.file == other.file and machines and inodes

    def __str__(self) -> str:
        return f"{self.file} on machine {self.machine or '(unknown)'}"


def _machine() -> str:
    from pathlib import Path

    for name in _MACHINE_FILES:
        try:
            text = Path(name).read_text().strip()
        except OSError:
            continue
        if text:
            return sha256(b"unpooled ledger " + text.encode()).hexdigest()[:16]  # the number itself is nobody's business
    return ""


# --- History ---------------------------------------------------------------------------------------------------------------
# Verified rows of a chain, sorted by kind, and their total cost to one unit.

_DECISIONS = frozenset({"approval", "withdrawal"})


class History:
    """The rows of one chain, taken in one by one, and what follows from them."""

    def __init__(self, nothing: Head = NOTHING) -> None:
        self.head = nothing
        #: Every end that the chain had.
        self.heads: set[str] = set()
        self.rows: list[Row] = []
        self.identity = b""
        self.place: Place | None = None
        self.approved: set[str] = set()
        self.withdrawn: set[str] = set()
        #: The last approval of every plan that stands.
        self.approvals: dict[str, Row] = {}
        self.charges: dict[ReleaseKey, Charge] = {}
        self.alignments: dict[str, Row] = {}
        self.answers: dict[tuple[str, str, int], Row] = {}
        #: Whether a debit without a name came that no migration has followed.
        self._nameless = False

    def take_in(self, columns: list[Any], digest: bytes) -> None:  # noqa: C901, PLR0912 - a case for every kind
        """Verify the next row and take it in; raises where it does not follow from the rows before, and then changes nothing."""
        if digest != link(self.head.digest, columns):
            raise ValueError
        row = Row._make(columns)
        if row.position != len(self.rows) or (row.kind == "genesis") != (row.position == 0):
            raise ValueError
        match row.kind:
            case "genesis":
                self.identity = row.fingerprint
                self.place = msgspec.json.decode(row.detail, type=Place) if row.detail else None
            case "place":
                self.place = msgspec.json.decode(row.detail, type=Place)
            case "data":
                pass
            case "migration":
                self._nameless = False
            case "charge" | "shared":
                charge = row.charge
                if self.charges.setdefault(charge.key, charge) is not charge:
                    raise ValueError
                self._nameless |= not charge.release
            case "alignment":
                if self.alignments.setdefault(row.plan, row) is not row:
                    raise ValueError
            case "commit":
                if row.detail not in {b"", DIGEST_ALONE}:
                    raise ValueError
                self.answers[row.plan, row.step, row.number] = row
            case "approval" | "withdrawal":
                agrees, _ = row.kind == "approval", row.approval
                (self.approved.add if agrees else self.approved.discard)(row.plan)
                (self.withdrawn.discard if agrees else self.withdrawn.add)(row.plan)
                self.approvals[row.plan] = row
            case _:
                raise ValueError
        self.rows.append(row)
        self.head = Head(len(self.rows), digest)
        self.heads.add(digest.hex())

    def settle(self) -> None:
        """Refuse an end of the chain behind a debit without a name, unless it was taken over: this format names every draw."""
        if self._nameless:
            raise ValueError

    def new(self, charges: Iterable[Charge], *, fingerprints: bool) -> dict[ReleaseKey, Charge]:
        """Return the charges that are not yet in the ledger. One that is there with other content is a conflict."""
        new: dict[ReleaseKey, Charge] = {}
        for charge in charges:
            require(type(charge) is Charge, f"only a Charge can be debited, not {type(charge).__name__}")
            known = self.charges.get(charge.key) or new.setdefault(charge.key, charge)
            changed = (known.costs, known.shared) != (charge.costs, charge.shared)
            if changed or (fingerprints and known.fingerprint != charge.fingerprint):
                what = "at another cost" if changed else "for another request or over other data"
                msg = f"{charge.key} was debited before {what}. A new release needs a new plan"
                raise ReleaseConflict(msg)
        return new

    def stands(self, plan: str) -> None:
        """Refuse a plan to which this party took its agreement back."""
        if plan in self.withdrawn:
            msg = (
                f"this party withdrew its approval of plan {plan[:16]}: nothing more of it is debited or answered. "
                "If that was not meant: `unpooled party check STUDY --approve`"
            )
            raise PolicyRefusal(msg)

    def known(self, plan: str, decisions: int | None) -> None:
        """Refuse a decision of somebody who knew another number of decisions about this plan than there are."""
        if decisions not in {None, sum(row.plan == plan and row.kind in _DECISIONS for row in self.rows)}:
            raise PlanMismatch("somebody decided about this plan since it was shown: read it again. Nothing was changed")

    def entries(self) -> tuple[Entry, ...]:
        """Charges, approvals and withdrawals, oldest first."""
        return tuple(self.entry(row) for row in self.rows if row.kind in _DECISIONS | {"charge", "shared"})

    def entry(self, row: Row) -> Entry:
        """Return a charge, an approval or a withdrawal as people read it."""
        if row.kind in _DECISIONS:
            said: Literal["approval", "withdrawal"] = "approval" if row.kind == "approval" else "withdrawal"
            told = row.approval
            words = (row.name, told.by, told.reason, told.purpose, told.data, told.changed)
            return Entry(row.position, said, row.plan, None, (), "committed", row.time, *words)
        answer = self.answers.get((row.plan, row.step, row.number))
        # A charge that comes after the reply of its step cannot be part of it.
        sent = answer is not None and answer.position > row.position
        state: Literal["reserved", "committed"] = "committed" if sent else "reserved"
        kind: Literal["charge", "shared"] = "shared" if row.kind == "shared" else "charge"
        release, costs = read_debit(row.detail)
        return Entry(row.position, kind, row.plan, row.key, costs, state, row.time, release=release)


def spent(charges: Iterable[Charge], unit: Unit, scope: Scope, *, known_only: bool = False) -> Worst:
    """Return the total cost of these charges to one unit (:func:`~unpooled.privacy.exposure.account`, plan by plan)."""
    plans: dict[tuple[str, ReleaseKey | None], dict[str, list[Event]]] = {}
    for charge in charges:
        # A plan is counted whole, as a shared charge, or release by release: never both. Two draws of one plan are two plans: a person may be in
        # one part of its rows in the first, and in another part in the second.
        parts = plans.setdefault((charge.key.plan, charge.key if charge.shared else None), {})
        for cost in charge.cost(unit):
            if not (known_only and cost.event.kind is Kind.UNBOUNDED):
                parts.setdefault(cost.part, []).append(cost.event)
    whole = {plan for plan, shared in plans if shared}
    match scope:
        case Scope.PERSON:
            return account(parts for (plan, shared), parts in plans.items() if shared or plan not in whole)
        case Scope.PARTY:
            return account(parts for (_, shared), parts in plans.items() if not shared)
        case _ as never:
            assert_never(never)


def unknown_plans(charges: Iterable[Charge], unit: Unit) -> set[str]:
    """Return the plans that have a charge whose cost to this unit is not known."""
    return {
        charge.key.plan
        for charge in charges
        if any(cost.event.kind is Kind.UNBOUNDED and cost.event.count for cost in charge.cost(unit))
    }
