"""The durable privacy ledger of one party: what was approved, what was paid for, and what was answered.

A release is one act: :meth:`Ledger.reserve` debits it, the party draws its noise, :meth:`Ledger.commit` stores the
reply, and only then are the bytes sent. The same request again is answered by :meth:`Ledger.reply` from the store, so
retries, crashes and replays cost nothing and leak nothing. An error or a refusal changes nothing.

A ledger also knows its place (file and machine): a copy elsewhere is refused until its owner says that it was moved. It says which
file's budget it keeps. One that unpooled 0.1.0 wrote is taken over with everything it spent (:meth:`Ledger.migrate`).

Four files belong together: ``<path>`` (SQLite), its ``-journal`` while a write is under way, ``<path>.anchor`` and
``<path>.key``, the root key of the party's noise. Rows are only ever appended, and each carries the SHA-256 of the row
before it and of its own content: a row edited, inserted or removed breaks the chain. The anchor tells which end of the
chain is the present one. Each write

1. inserts its rows inside a transaction,
2. writes the anchor "the old end or the new one" (temporary file, fsync, rename, fsync of the directory),
3. commits the transaction,
4. takes the lock again and writes the anchor "the new end", unless another process has done so.

Whatever is killed wherever, the end of the database is one of the anchor's, so the ledger opens again; and an older copy
of the database, put back, is refused. If only step 4 fails the debit stands and the caller sees a refusal: nothing is
sent, and the next call finishes the step without a second debit. An older copy of database AND anchor put back together cannot be told from the
truth by anything on this machine: a careful officer writes :attr:`Ledger.head` down elsewhere and compares.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import stat
import threading
import time
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn, Self

import msgspec

from unpooled.errors import (
    BudgetRefusal,
    LedgerDamaged,
    LedgerMoved,
    Refusal,
    ReleaseConflict,
    UnpooledError,
    UsageError,
)
from unpooled.privacy.accounting import Kind
from unpooled.privacy.chain import (
    DIGEST_BYTES,
    FORMAT,
    NOTHING,
    Charge,
    Entry,
    Head,
    ReleaseKey,
    Row,
    check_digest,
    check_plan,
    check_step,
    link,
    read_costs,
    require,
    where,
)
from unpooled.privacy.exposure import account
from unpooled.privacy.ledger_format1 import Old, is_format1, read
from unpooled.privacy.place import Place
from unpooled.privacy.unit import Budget, Scope, Unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from unpooled.privacy.accounting import Event
    from unpooled.privacy.exposure import Worst

LARGEST_REPLY = 900_000_000  # SQLite holds no more than 10^9 bytes in one row
PATIENCE = 30.0  # seconds to wait for another process

#: Held around every transaction, and while the process forks: so no child inherits half a transaction of its parent.
_LOCK = threading.RLock()
os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)

_CHAIN = """CREATE TABLE chain (position INTEGER PRIMARY KEY, time INTEGER NOT NULL, kind TEXT NOT NULL,
plan TEXT NOT NULL, step TEXT NOT NULL, number INTEGER NOT NULL, name TEXT NOT NULL,
fingerprint BLOB NOT NULL, content BLOB NOT NULL, detail BLOB NOT NULL, digest BLOB NOT NULL) STRICT"""
_REPLIES = "CREATE TABLE replies (content BLOB PRIMARY KEY NOT NULL, body BLOB NOT NULL) STRICT"
#: The errors of SQLite that say nothing about the ledger itself. Every other one means that it is damaged.
_PASSING = {
    sqlite3.SQLITE_BUSY: f"another process kept it locked for {PATIENCE:g} seconds: try again",
    sqlite3.SQLITE_FULL: "the disk is full: make room and try again",
    sqlite3.SQLITE_READONLY: "it cannot be written, or was replaced while open: mend its permissions or open it again",
    sqlite3.SQLITE_IOERR: "the disk reports an error: check it and try again",
    sqlite3.SQLITE_CANTOPEN: "it or its directory cannot be opened for writing: mend the permissions and try again",
    sqlite3.SQLITE_PERM: "access to it is denied: mend the permissions and try again",
}


# --- the ledger ----------------------------------------------------------------------------------------------------


class Ledger:
    """One party's account of privacy spent. Use :meth:`create` once, :meth:`open` ever after, as a context manager.

    Threads may share a ledger and processes may open the same one; after a fork the child opens its own.
    """

    def __init__(self, path: Path | None, root_key: bytes, *, new: bool, moved: bool = False) -> None:
        self.root_key = root_key
        self._path = path
        self._process = os.getpid()
        # What the verified rows say. Only _catch_up adds to it, so a transaction that fails leaves no trace here.
        self._identity = b""
        self._place: Place | None = None
        self._head = NOTHING
        self._rows: list[Row] = []
        self._charges: dict[ReleaseKey, Charge] = {}
        self._approved: set[str] = set()
        self._answers: dict[tuple[str, str, int], Row] = {}
        uri = ":memory:" if path is None else path.as_uri() + "?mode=rw"  # rw: a missing file is never made
        with _explained(path):
            # Transactions are begun here, not by the driver, and _LOCK keeps the threads apart.
            self._connection = sqlite3.connect(
                uri, uri=True, timeout=PATIENCE, isolation_level=None, check_same_thread=False
            )
        try:
            with _explained(path):
                # EXTRA also syncs the directory, so that a commit which was reported survives a loss of power.
                for pragma in ("synchronous=EXTRA", "journal_mode=DELETE", "trusted_schema=OFF", "cell_size_check=ON"):
                    self._connection.execute(f"PRAGMA {pragma}")
                if new:
                    self._lay_out()
            with self._locked(inspect=True):
                for answer in self._answers.values():
                    self._body(answer.content)
                self._find(moved=moved)
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> Ledger:
        """A new ledger with a new root key. Refused where any file of a ledger is found; a failure leaves none."""
        database = Path(path).absolute()
        root_key, made = os.urandom(32), []
        try:
            # The key comes first: of two processes that create the same ledger one stops here, before it made anything.
            _write_new(_beside(database, ".key"), root_key)
            made.append(_beside(database, ".key"))
            if any(os.path.lexists(_beside(database, ending)) for ending in ("-journal", "-wal", ".anchor")):
                raise FileExistsError
            _write_new(database, b"")
            made += [database, _beside(database, ".anchor"), _beside(database, ".anchor.new")]
            return cls(database, root_key, new=True)
        except BaseException as error:
            for file in made:
                with suppress(OSError):
                    file.unlink()
            if isinstance(error, FileExistsError):
                msg = f"{database}: a ledger, or a part of one, is already here. Open it, or choose another path"
                raise UsageError(msg) from None
            if isinstance(error, OSError):
                msg = f"{database}: no ledger can be made here ({error.strerror}). Mend that, or choose another path"
                raise Refusal(msg) from error
            raise

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, moved: bool = False) -> Ledger:
        """The ledger at this path, every row and every stored reply verified. Never creates anything.

        A ledger knows its place. One that is elsewhere is a copy, which would spend its budget a second time, and is refused, until its
        owner says that it was ``moved``.
        """
        database = Path(path).absolute()
        files = database, _beside(database, ".anchor"), _beside(database, ".key")
        try:
            modes = [file.lstat().st_mode for file in files]
            key = files[2].read_bytes() if all(map(stat.S_ISREG, modes)) else b""
        except OSError as error:
            _damaged(database, f"{error.filename} cannot be read ({error.strerror})", error)
        if len(key) != DIGEST_BYTES or modes[2] & 0o077:
            what = f"{files[2]} 32 bytes that only its owner may read (mode 0600)"
            _damaged(database, f"it, its .anchor and its .key must be plain files, and {what}")
        if not os.access(database, os.W_OK):  # SQLite would read it then, without the lock that the anchor needs
            msg = f"{_place(database)}: {_PASSING[sqlite3.SQLITE_READONLY]}"
            raise Refusal(msg)
        return cls(database, key, new=False, moved=moved)

    @classmethod
    def migrate(cls, path: str | os.PathLike[str]) -> Ledger:
        """Take over a ledger of format 1 with everything it spent. The old files stay beside it, under ``.format1``.

        The new files are complete before any old one is replaced, and a migration that was cut short can be run again.
        """
        database = Path(path).absolute()
        key, kept, draft = _beside(database, ".key"), _beside(database, ".format1"), _beside(database, ".migrating")
        try:
            root_key = key.read_bytes()
            try:
                old = read(database, _beside(database, ".anchor"), root_key)
            except ValueError:
                if not kept.exists() or not _beside(kept, ".anchor").exists():
                    raise
                old = read(kept, _beside(kept, ".anchor"), root_key)  # cut short while the old files were being replaced
            else:
                for ending in ("", ".anchor"):
                    _beside(kept, ending).unlink(missing_ok=True)
                    _write_new(_beside(kept, ending), _beside(database, ending).read_bytes())
            for ending in ("", "-journal", ".anchor", ".anchor.new"):
                _beside(draft, ending).unlink(missing_ok=True)
            _write_new(draft, b"")
            with cls(draft, root_key, new=True) as made:
                made._take_over(old, Place.of(database))
            _beside(draft, ".anchor").replace(_beside(database, ".anchor"))
            draft.replace(database)
            _sync(database.parent)
        except (OSError, ValueError, LookupError, TypeError, sqlite3.DatabaseError) as error:
            what = str(error) if type(error) is ValueError else type(error).__name__
            _damaged(database, f"it cannot be taken over: {what}", error)
        return cls.open(database)

    def _take_over(self, old: Old, place: Place) -> None:
        """Write the rows of an old ledger into this new one, with their times, and say where it will lie."""
        with self._locked():
            insert = "INSERT INTO replies VALUES (?, ?)"
            self._connection.executemany(insert, old.replies)
            rows = [row for row in old.rows if row.kind != "genesis"]
            ends = [Row(kind="migration", fingerprint=old.head), Row(kind="place", detail=msgspec.json.encode(place))]
            self._append(*rows, *ends)

    @classmethod
    def in_memory(cls, root_key: bytes | None = None) -> Ledger:
        """A ledger that ends with the process, for simulation: the same rules, no files."""
        root_key = os.urandom(32) if root_key is None else root_key
        check_digest("root key", root_key)
        return cls(None, root_key, new=True)

    def close(self) -> None:
        """Give the files back. Closing twice does no harm."""
        with _LOCK:
            self._connection.close()
            self._process = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- approve, reserve, commit, reply

    def approve(self, plan: str) -> None:
        """Record that this party agreed to a plan."""
        check_plan(plan)
        with self._locked():
            if plan not in self._approved:
                self._append(Row(kind="approval", plan=plan))

    def approved(self, plan: str) -> bool:
        """Whether this party agreed to a plan."""
        check_plan(plan)
        with self._locked():
            return plan in self._approved

    def check(
        self,
        charges: Iterable[Charge],
        budget: Budget | None,
        *,
        scope: Scope = Scope.PERSON,
        allow_unbounded: bool = False,
    ) -> None:
        """Raise the refusal that :meth:`reserve` would; write nothing.

        A plan is checked before its requests and data are at hand, so fingerprints are not compared here.
        """
        charges = tuple(charges)
        with self._locked():
            self._judge(self._new(charges, fingerprints=False), budget, scope, allow_unbounded=allow_unbounded)

    def reserve(
        self,
        charges: Iterable[Charge],
        budget: Budget | None,
        *,
        scope: Scope = Scope.PERSON,
        allow_unbounded: bool = False,
    ) -> None:
        """Debit these releases durably, all of them or none. What was debited before is not debited again.

        With a budget, everything ever charged to its unit and these charges must compose to no more than it: per person over all
        parties of column-split studies, or this party's own releases only (``scope``). ``allow_unbounded`` admits releases of
        unknown cost: the budget then holds for the others only.
        """
        charges = tuple(charges)
        with self._locked():
            new = self._new(charges, fingerprints=True)
            self._judge(new, budget, scope, allow_unbounded=allow_unbounded)
            self._append(*map(Row.of, new.values()))

    def commit(self, plan: str, step: str, index: int, request: bytes, reply: bytes) -> None:
        """Store the reply of a step, which may be sent once this returns. The charges of the step are now committed."""
        check_step(plan, step, index)
        check_digest("request", request)
        right = type(reply) is bytes and len(reply) <= LARGEST_REPLY
        require(right, f"a reply must be at most {LARGEST_REPLY} bytes: encode it first, and split what is larger")
        content = sha256(reply).digest()
        with self._locked():
            known = self._answers.get((plan, step, index))
            if known is None:
                self._connection.execute("INSERT OR IGNORE INTO replies VALUES (?, ?)", (content, reply))
                self._append(Row(0, 0, "commit", plan, step, index, "", request, content))
            elif (known.fingerprint, known.content) != (request, content):
                msg = f"{where(plan, step, index)} was answered before, to another request or with another reply"
                raise ReleaseConflict(msg)

    def reply(self, plan: str, step: str, index: int, request: bytes) -> bytes | None:
        """The stored reply of a step, or None while there is none."""
        check_step(plan, step, index)
        check_digest("request", request)
        with self._locked():
            known = self._answers.get((plan, step, index))
            if known is None:
                return None
            if known.fingerprint != request:
                msg = (
                    f"{where(plan, step, index)} was answered before, to another request or over other data: it is answered once. Go on with "
                    "the run's own transcript, or raise `run` in the study and have it approved again"
                )
                raise ReleaseConflict(msg)
            return self._body(known.content)

    def belongs_to(self, file: str, digest: bytes) -> None:
        """Record the file whose budget this ledger keeps, and the SHA-256 of what it held then."""
        check_digest("digest of the file", digest)
        with self._locked():
            detail = msgspec.json.encode({"file": file, "digest": digest.hex()})
            self._append(Row(kind="data", detail=detail))

    # --- what it says

    @property
    def data(self) -> tuple[tuple[str, bytes], ...]:
        """The files whose budget it keeps, each with the SHA-256 of what it held when it was recorded."""
        with self._locked():
            found = [msgspec.json.decode(row.detail) for row in self._rows if row.kind == "data"]
        return tuple((one["file"], bytes.fromhex(one["digest"])) for one in found)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What its total does not hold, in words: of rows that were taken over from format 1."""
        with self._locked():
            last = max((row.position for row in self._rows if row.kind == "migration"), default=0)
            old = [row for row in self._rows[:last] if row.kind == "charge"]
        if not old:
            return ()
        free = sorted({row.plan[:16] for row in old if not any(cost.event.value for cost in read_costs(row.detail))})
        own = (
            "Entries of unpooled 0.1.0 hold what this party released; what other parties released about the same people in column-split "
            "studies is not in them, nor what a label cost there."
        )
        uncounted = f"Unpooled 0.1.0 debited releases of {len(free)} plan(s) at nothing ({', '.join(free)}): their cost is not in the total."
        return (own, uncounted) if free else (own,)

    def composition(self, unit: Unit | str, scope: Scope = Scope.PARTY, charges: Iterable[Charge] = ()) -> Worst:
        """What everything charged so far, and these charges, cost one unit, sent or not: once reserved, a release counts as spent.

        Scope "party": this party's own releases. Scope "person", which policies bound unless they say otherwise: of a column-split
        study that released anything here, the whole plan over all its parties.
        """
        unit, scope = Unit.parse(unit), Scope.parse(scope)
        with self._locked():
            return _spent([*self._charges.values(), *self._new(tuple(charges), fingerprints=False).values()], unit, scope)

    def charged(self, key: ReleaseKey) -> bool:
        """Whether this release was debited."""
        with self._locked():
            return key in self._charges

    def entries(self) -> tuple[Entry, ...]:
        """The charges and approvals, oldest first."""
        with self._locked():
            return tuple(self._entry(row) for row in self._rows if row.kind in ("charge", "shared", "approval"))

    @property
    def head(self) -> str:
        """The end of the chain. Written down elsewhere, it shows later that no row was taken back."""
        with self._locked():
            return self._head.digest.hex()

    def _entry(self, row: Row) -> Entry:
        if row.kind == "approval":
            return Entry(row.position, "approval", row.plan, None, (), "committed", row.time)
        answer = self._answers.get((row.plan, row.step, row.number))
        # A charge that comes after the reply of its step cannot be part of it.
        sent = answer is not None and answer.position > row.position
        state: Literal["reserved", "committed"] = "committed" if sent else "reserved"
        kind: Literal["charge", "shared"] = "shared" if row.kind == "shared" else "charge"
        return Entry(row.position, kind, row.plan, row.key, read_costs(row.detail), state, row.time)

    # --- deciding

    def _new(self, charges: Iterable[Charge], *, fingerprints: bool) -> dict[ReleaseKey, Charge]:
        """The charges that are not yet in the ledger. One that is there with other content is a conflict."""
        new: dict[ReleaseKey, Charge] = {}
        for charge in charges:
            require(type(charge) is Charge, f"only a Charge can be debited, not {type(charge).__name__}")
            known = self._charges.get(charge.key) or new.setdefault(charge.key, charge)
            changed = (known.costs, known.shared) != (charge.costs, charge.shared)
            if changed or (fingerprints and known.fingerprint != charge.fingerprint):
                what = "at another cost" if changed else "for another request or over other data"
                msg = f"{charge.key} was debited before {what}. A new release needs a new plan"
                raise ReleaseConflict(msg)
        return new

    def _judge(self, new: dict[ReleaseKey, Charge], budget: Budget | None, scope: Scope, *, allow_unbounded: bool) -> None:
        require(budget is None or type(budget) is Budget, f"not a Budget or None: {type(budget).__name__}")
        if budget is None or not new:  # a retry is never refused, even if the policy has become stricter
            return

        def words(charges: Iterable[Charge]) -> str:
            epsilon = _spent(charges, budget.unit, scope, known_only=allow_unbounded).epsilon(budget.delta)
            return "unbounded" if epsilon == math.inf else f"epsilon = {epsilon:.6g}"

        before = list(self._charges.values())
        after = [*before, *new.values()]
        if not _spent(after, budget.unit, scope, known_only=allow_unbounded).within(budget.epsilon, budget.delta):
            counted = "all parties together" if scope is Scope.PERSON else "this party alone"
            msg = (
                f"{_place(self._path)} has no room: at delta = {budget.delta:g}, {len(new)} new debit(s) ask for"
                f" {words(new.values())}, spent is {words(before)}, together {words(after)}; allowed is {budget}, for {counted}."
                " Nothing was debited. Ask for fewer releases, more noise, or a larger budget"
            )
            raise BudgetRefusal(msg)

    # --- the chain

    @contextmanager
    def _locked(self, *, inspect: bool = False) -> Iterator[None]:
        """The write lock, with everything verified up to now. What was not committed inside is rolled back."""
        with _LOCK, _explained(self._path):
            usable = self._process == os.getpid()
            require(usable, f"{_place(self._path)} is closed, or was opened before a fork: open it in this process")
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                if inspect:
                    self._inspect()
                self._catch_up()
                self._settle()
                yield
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def _lay_out(self) -> None:
        """Write the tables and the first row, which ties the chain to this ledger alone and to its root key."""
        self._connection.execute("BEGIN IMMEDIATE")
        for table in (_CHAIN, _REPLIES):
            self._connection.execute(table)
        self._identity = os.urandom(32)
        place = b"" if self._path is None else msgspec.json.encode(Place.of(self._path))
        self._append(Row(kind="genesis", fingerprint=self._identity, content=sha256(self.root_key).digest(), detail=place))

    def _find(self, *, moved: bool) -> None:
        """Make sure that the ledger is where it was, or write down that it moved."""
        if self._path is None or self._place is None or self._place.is_same(here := Place.of(self._path)):
            return
        if not moved:
            msg = (
                f"{_place(self._path)} was made to be used at {self._place}. A copy would spend its budget a second time: use the ledger"
                " there; or, if it was moved and the old one is gone, say so once with `unpooled party ledger --moved`"
            )
            raise LedgerMoved(msg)
        self._append(Row(kind="place", detail=msgspec.json.encode(here)))

    def _inspect(self) -> None:
        """Let SQLite check its file, and make sure that it holds our tables and nothing that acts on them."""
        if self._connection.execute("PRAGMA integrity_check(1)").fetchall() != [("ok",)]:
            _damaged(self._path, "the database is truncated or overwritten")
        found = self._connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid")
        tables = found.fetchall()
        if is_format1(self._connection):
            msg = (
                f"{_place(self._path)} was written by unpooled 0.1.0, which counted some releases too low. Take it over, with everything it"
                " spent, by `unpooled party ledger --migrate`; nothing was changed"
            )
            raise Refusal(msg)
        if tables != [(_CHAIN,), (_REPLIES,)]:
            _damaged(self._path, "its tables are not those of a ledger of this version")

    def _catch_up(self) -> None:
        """Verify and take in the rows that came since the last transaction, of this process or of another."""
        last = "SELECT digest FROM chain WHERE position = ?"
        known = len(self._rows)
        if known and self._connection.execute(last, (known - 1,)).fetchone() != (self._head.digest,):
            _damaged(self._path, "rows that were there are gone or edited")
        later = "SELECT * FROM chain WHERE position >= ? ORDER BY position"
        for *columns, digest in self._connection.execute(later, (known,)):
            try:
                if digest != link(self._head.digest, columns):
                    raise ValueError
                self._take_in(Row._make(columns))
            except (ValueError, LookupError, TypeError, msgspec.MsgspecError, UnpooledError) as error:
                _damaged(self._path, f"row {len(self._rows)} was edited, or a newer version wrote it", error)
            self._head = Head(len(self._rows), digest)
        if not self._rows or self._rows[0].content != sha256(self.root_key).digest():
            _damaged(self._path, "it is empty, or its .key is that of another ledger")

    def _take_in(self, row: Row) -> None:
        if row.position != len(self._rows) or (row.kind == "genesis") != (row.position == 0):
            raise ValueError
        match row.kind:
            case "genesis":
                self._identity = row.fingerprint
                self._place = msgspec.json.decode(row.detail, type=Place) if row.detail else None
            case "place":
                self._place = msgspec.json.decode(row.detail, type=Place)
            case "data" | "migration":
                pass
            case "charge" | "shared":
                charge = row.charge
                if self._charges.setdefault(charge.key, charge) is not charge:
                    raise ValueError
            case "commit":
                self._answers[row.plan, row.step, row.number] = row
            case "approval":
                self._approved.add(row.plan)
            case _:
                raise ValueError
        self._rows.append(row)

    def _append(self, *rows: Row) -> None:
        """Write rows and commit: the four steps of the module's docstring."""
        if not rows:
            return
        old, new, now = self._head, self._head, int(time.time())
        insert = "INSERT INTO chain VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        for row in rows:
            columns = row._replace(position=new.rows, time=row.time or now)
            new = Head(new.rows + 1, link(new.digest, columns))
            self._connection.execute(insert, (*columns, new.digest))
        self._write_anchor(old, new)
        self._connection.execute("COMMIT")
        # COMMIT gave the lock back, and other processes may have written since: step 4 is to settle like anyone else.
        try:
            with self._locked():
                pass
        except Refusal as error:
            msg = (
                f"{_place(self._path)}: this was recorded, but its anchor could not be renewed, so nothing may be sent"
                " yet. Make room on the disk and ask again: what was recorded is not debited twice"
            )
            raise Refusal(msg) from error

    def _body(self, content: bytes) -> bytes:
        found = self._connection.execute("SELECT body FROM replies WHERE content = ?", (content,)).fetchone()
        body = found[0] if found else None
        if not isinstance(body, bytes) or sha256(body).digest() != content:
            _damaged(self._path, "a stored reply is missing or was edited")
        return body

    # --- the anchor, read and written only under SQLite's write lock

    def _anchor(self, *heads: Head) -> bytes:
        ends = [{"rows": head.rows, "head": head.digest.hex()} for head in heads]
        return json.dumps({"format": FORMAT, "ledger": self._identity.hex(), "heads": ends}, indent=1).encode() + b"\n"

    def _settle(self) -> None:
        """Make sure that the chain ends where the anchor says, and leave one end in it where a crash left two."""
        if self._path is None:
            return
        file = _beside(self._path, ".anchor")
        try:
            found = file.read_bytes()
            heads = [Head(end["rows"], bytes.fromhex(end["head"])) for end in json.loads(found)["heads"]]
            if self._anchor(*heads) != found:
                raise ValueError
        except (OSError, ValueError, TypeError, KeyError) as error:
            _damaged(self._path, f"{file} is missing, edited, or that of another ledger", error)
        if self._head not in heads:
            _damaged(self._path, f"it does not end where {file} says: rows are missing, or an older copy was put back")
        if len(heads) > 1:
            self._write_anchor(self._head)

    def _write_anchor(self, *heads: Head) -> None:
        if self._path is None:
            return
        file, draft = _beside(self._path, ".anchor"), _beside(self._path, ".anchor.new")
        try:
            draft.unlink(missing_ok=True)
            _write_new(draft, self._anchor(*heads))
            draft.replace(file)
            _sync(file.parent)
        except OSError as error:
            msg = f"{file} cannot be written ({error.strerror}). Nothing was debited: mend that and ask again"
            raise Refusal(msg) from error


def _spent(charges: Iterable[Charge], unit: Unit, scope: Scope, *, known_only: bool = False) -> Worst:
    """What these charges cost one unit together (:func:`~unpooled.privacy.exposure.account`, plan by plan)."""
    plans: dict[tuple[str, bool], dict[str, list[Event]]] = {}
    for charge in charges:
        # A plan is counted whole, as a shared charge, or release by release: never both.
        parts = plans.setdefault((charge.key.plan, charge.shared), {})
        for cost in charge.cost(unit):
            if not (known_only and cost.event.kind is Kind.UNBOUNDED):
                parts.setdefault(cost.part, []).append(cost.event)
    whole = {plan for plan, shared in plans if shared}
    if scope is Scope.PERSON:
        return account(parts for (plan, shared), parts in plans.items() if shared or plan not in whole)
    return account(parts for (_, shared), parts in plans.items() if not shared)


# --- files and failures --------------------------------------------------------------------------------------------


def _beside(database: Path, ending: str) -> Path:
    return database.with_name(database.name + ending)


def _write_new(file: Path, body: bytes) -> None:
    """A file that was not there before, on the disk when this returns; none if it fails."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(body)
            stream.flush()
            os.fsync(descriptor)
    except BaseException:
        file.unlink()
        raise


def _sync(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _place(path: Path | None) -> str:
    return "the ledger in memory" if path is None else f"ledger {path}"


def _damaged(path: Path | None, what: str, cause: BaseException | None = None) -> NoReturn:
    msg = (
        f"{_place(path)}: {what}. It is left as it is. Restore its files together from the newest copy and compare the"
        " head with the one you wrote down; or start a new ledger knowing that what was spent stays spent"
    )
    raise LedgerDamaged(msg) from cause


@contextmanager
def _explained(path: Path | None) -> Iterator[None]:
    """Tell a disk that is full or a lock that is held from a file that is damaged."""
    try:
        yield
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the driver decodes names and messages, too
        reason = _PASSING.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
        if reason is None:
            _damaged(path, "SQLite cannot read the database", error)
        msg = f"{_place(path)}: {reason}. Nothing was debited"
        raise Refusal(msg) from error
