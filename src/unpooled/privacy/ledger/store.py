"""The chain on disk: a SQLite file that is only appended to under one lock, the file that says where it ends, and words for what fails."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import threading
import time
import weakref
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Self

import msgspec

from unpooled.errors import LedgerDamaged, LedgerMoved, Refusal, UnpooledError, UsageError
from unpooled.privacy.ledger.chain import DIGEST_BYTES, FORMAT, TABLES, Head, History, Place, Row, link, require
from unpooled.privacy.ledger.formats import FORMAT_1, format_of, tables

if TYPE_CHECKING:
    from collections.abc import Iterator


# --- Failures --------------------------------------------------------------------------------------------------------------
# Words for failures, which distinguish a damaged ledger from a full disk and from a lock that is held.

PATIENCE = 30.0  # seconds to wait for another process
READ_ONLY = "it cannot be written, or was replaced while open: mend its permissions or open it again"
#: The errors of SQLite that say nothing about the ledger itself. Every other one means that it is damaged.
_PASSING = {
    sqlite3.SQLITE_BUSY: f"another process kept it locked for {PATIENCE:g} seconds: try again",
    sqlite3.SQLITE_FULL: "the disk is full: make room and try again",
    sqlite3.SQLITE_READONLY: READ_ONLY,
    sqlite3.SQLITE_IOERR: "the disk reports an error: check it and try again",
    sqlite3.SQLITE_CANTOPEN: "it or its directory cannot be opened for writing: mend the permissions and try again",
    sqlite3.SQLITE_PERM: "access to it is denied: mend the permissions and try again",
}


SYSTEM = os.name


def must_be_posix() -> None:
    """Refuse systems without the file locks and durable renames that a ledger rests on."""
    if SYSTEM != "posix":
        msg = (
            "ledgers, parties and networks need Linux or macOS (on Windows: WSL), whose file locks and renames they rest on. "
            "Estimators without a file work here"
        )
        raise UsageError(msg)


def ledger_at(path: Path | None) -> str:
    """Return a ledger in words."""
    return "the ledger in memory" if path is None else f"ledger {path}"


def damaged(path: Path | None, what: str, cause: BaseException | None = None) -> NoReturn:
    """Refuse a ledger whose files are not as they were written."""
    msg = (
        f"{ledger_at(path)}: {what}. It is left as it is. Restore its files together from the newest copy and compare the"
        " head with the one you wrote down; or start a new ledger knowing that what was spent stays spent"
    )
    raise LedgerDamaged(msg) from cause


@contextmanager
def explained(path: Path | None) -> Iterator[None]:
    """Say of an error of SQLite whether the ledger is damaged or the call may be tried again."""
    try:
        yield
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the driver decodes names and messages, too
        reason = _PASSING.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
        if reason is None:
            damaged(path, "SQLite cannot read the database", error)
        msg = f"{ledger_at(path)}: {reason}. Nothing is debited twice"
        raise Refusal(msg) from error


# --- Files -----------------------------------------------------------------------------------------------------------------
# Files that are on the disk when a call returns, or were never made.


def beside(database: Path, ending: str) -> Path:
    """Return the file of a ledger with this ending."""
    return database.with_name(database.name + ending)


def write_new(file: Path, body: bytes) -> None:
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


def sync(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- Anchor ----------------------------------------------------------------------------------------------------------------
# The file that says where the chain of a ledger ends, so that an older copy of the database shows.
#
# It is read and written only under SQLite's write lock.


class Anchor(NamedTuple):
    """The anchor of the ledger at a path, tied to it by the ledger's random identity."""

    database: Path
    identity: bytes

    @property
    def file(self) -> Path:
        """Where it is."""
        return beside(self.database, ".anchor")

    def settle(self, end: Head) -> None:
        """Make sure that the chain ends where the anchor says, and leave one end in it where a crash left two."""
        try:
            found = self.file.read_bytes()
            heads = [Head(one["rows"], bytes.fromhex(one["head"])) for one in json.loads(found)["heads"]]
            if self._spelled(*heads) != found:
                raise ValueError
        except (OSError, ValueError, TypeError, KeyError) as error:
            damaged(self.database, f"{self.file} is missing, edited, or that of another ledger", error)
        if end not in heads:
            what = f"it does not end where {self.file} says: rows are missing, or an older copy was put back"
            damaged(self.database, what)
        if len(heads) > 1:
            self.write(end)

    def write(self, *heads: Head) -> None:
        """Name the permissible ends of the chain, durably."""
        draft = beside(self.database, ".anchor.new")
        try:
            draft.unlink(missing_ok=True)
            write_new(draft, self._spelled(*heads))
            draft.replace(self.file)
            sync(self.file.parent)
        except OSError as error:
            msg = f"{self.file} cannot be written ({error.strerror}). Mend that and ask again: nothing is debited twice"
            raise Refusal(msg) from error

    def _spelled(self, *heads: Head) -> bytes:
        ends = [{"rows": head.rows, "head": head.digest.hex()} for head in heads]
        return json.dumps({"format": FORMAT, "ledger": self.identity.hex(), "heads": ends}, indent=1).encode() + b"\n"


# --- Store -----------------------------------------------------------------------------------------------------------------
# The chain on disk: a SQLite file that is only appended to, read and written under one lock.

#: Held around every transaction, and while the process forks: so no child inherits half a transaction of its parent.
_LOCK = threading.RLock()
os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)

_OLDER = (
    "{at} was written by unpooled {version}, which {why}. Take it over, with everything it spent, by `unpooled party ledger --migrate` (the file of a "
    "Budget by unpooled.privacy.ledger.Ledger.migrate(path)); nothing was changed"
)


class Store:
    """The files of one ledger; without a path, the same in memory."""

    def __init__(self, path: Path | None, root_key: bytes, *, new: bool, moved: bool = False) -> None:
        self.path = path
        self.root_key = root_key
        self._process = os.getpid()
        #: What the verified rows say. Only _catch_up adds to it, so a transaction that fails leaves no trace here.
        self._history = History()
        uri = ":memory:" if path is None else path.as_uri() + "?mode=rw"  # rw: a missing file is never made
        with explained(path):
            # Transactions are begun here, not by the driver, and _LOCK keeps the threads apart.
            self.connection = sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
        # A ledger in memory is closed when nobody holds it any more: Python 3.13 warns of connections that are collected while open.
        weakref.finalize(self, self.connection.close).atexit = False
        try:
            with explained(path):
                # EXTRA also syncs the directory, so that a commit which was reported survives a loss of power.
                for pragma in ("synchronous=EXTRA", "journal_mode=DELETE", "trusted_schema=OFF", "cell_size_check=ON"):
                    self.connection.execute(f"PRAGMA {pragma}")
                if new:
                    self._lay_out()
            with self.locked(inspect=True) as history:
                for answer in history.answers.values():
                    if not answer.detail:
                        self.body(answer.content)
                self._find(moved=moved)
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(cls, database: Path) -> Self:
        """New files with a new root key; a failure leaves none."""
        must_be_posix()
        root_key, made = os.urandom(32), []
        try:
            # The key comes first: of two processes that create the same ledger one stops here, before it made anything.
            write_new(beside(database, ".key"), root_key)
            made.append(beside(database, ".key"))
            if any(os.path.lexists(beside(database, ending)) for ending in ("-journal", "-wal", ".anchor")):
                raise FileExistsError
            write_new(database, b"")
            made += [database, beside(database, ".anchor"), beside(database, ".anchor.new")]
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
    def open(cls, database: Path, *, moved: bool = False) -> Self:
        """Return the files at this path, every row and every stored reply verified."""
        must_be_posix()
        parts = database, beside(database, ".anchor"), beside(database, ".key")
        try:
            modes = [file.lstat().st_mode for file in parts]
            key = parts[2].read_bytes() if all(map(stat.S_ISREG, modes)) else b""
        except OSError as error:
            damaged(database, f"{error.filename} cannot be read ({error.strerror})", error)
        if len(key) != DIGEST_BYTES or modes[2] & 0o077:
            what = f"{parts[2]} 32 bytes that only its owner may read (mode 0600)"
            damaged(database, f"it, its .anchor and its .key must be plain files, and {what}")
        if not os.access(database, os.W_OK):  # SQLite would read it then, without the lock that the anchor needs
            msg = f"{ledger_at(database)}: {READ_ONLY}"
            raise Refusal(msg)
        return cls(database, key, new=False, moved=moved)

    def close(self) -> None:
        """Give the files back. Closing twice does no harm."""
        with _LOCK:
            self.connection.close()
            self._process = 0

    @contextmanager
    def locked(self, *, inspect: bool = False) -> Iterator[History]:
        """The write lock, with everything verified up to now. What was not committed inside is rolled back."""
        with _LOCK, explained(self.path):
            usable = self._process == os.getpid()
            require(usable, f"{ledger_at(self.path)} is closed, or was opened before a fork: open it in this process")
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                if inspect:
                    self._inspect()
                self._catch_up()
                if anchor := self._anchor:
                    anchor.settle(self._history.head)
                yield self._history
            finally:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")

    def append(self, *rows: Row) -> None:
        """Write rows and commit: the four steps of the package's docstring."""
        if not rows:
            return
        old = new = self._history.head
        now, insert = int(time.time()), "INSERT INTO chain VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        for row in rows:
            columns = row._replace(position=new.rows, time=row.time or now)
            new = Head(new.rows + 1, link(new.digest, columns))
            self.connection.execute(insert, (*columns, new.digest))
        if anchor := self._anchor:
            anchor.write(old, new)
        self.connection.execute("COMMIT")
        # COMMIT gave the lock back, and other processes may have written since: step 4 is to settle like anyone else.
        try:
            with self.locked():
                pass
        except Refusal as error:
            msg = (
                f"{ledger_at(self.path)}: this was recorded, but its anchor could not be renewed, so nothing may be sent"
                " yet. Make room on the disk and ask again: what was recorded is not debited twice"
            )
            raise Refusal(msg) from error

    def keep(self, content: bytes, body: bytes) -> None:
        """Store a reply under its digest, as part of the transaction under way."""
        self.connection.execute("INSERT OR IGNORE INTO replies VALUES (?, ?)", (content, body))

    def body(self, content: bytes) -> bytes:
        """Return the stored reply of this digest."""
        found = self.connection.execute("SELECT body FROM replies WHERE content = ?", (content,)).fetchone()
        body = found[0] if found else None
        if not isinstance(body, bytes) or sha256(body).digest() != content:
            damaged(self.path, "a stored reply is missing or was edited")
        return body

    @property
    def _anchor(self) -> Anchor | None:
        return None if self.path is None else Anchor(self.path, self._history.identity)

    def _lay_out(self) -> None:
        """Write the tables and the first row, which ties the chain to this ledger alone and to its root key."""
        self.connection.execute("BEGIN IMMEDIATE")
        for (table,) in TABLES:
            self.connection.execute(table)
        self._history.identity = os.urandom(32)
        place = b"" if self.path is None else msgspec.json.encode(Place.of(self.path))
        content = sha256(self.root_key).digest()
        self.append(Row(kind="genesis", fingerprint=self._history.identity, content=content, detail=place))

    def _find(self, *, moved: bool) -> None:
        """Make sure that the ledger is where it was, or write down that it moved."""
        was = self._history.place
        if self.path is None or was is None or was.is_same(here := Place.of(self.path)):
            return
        if not moved:
            what = " This file was copied or restored there." if (was.file, was.machine) == (here.file, here.machine) else ""
            msg = (
                f"{ledger_at(self.path)} was made to be used at {was}.{what} A copy would spend its budget a second time: use the ledger"
                " there; or, if it was moved and the old one is gone, say so once with `unpooled party ledger --moved`"
            )
            raise LedgerMoved(msg)
        self.append(Row(kind="place", detail=msgspec.json.encode(here)))

    def _inspect(self) -> None:
        """Let SQLite check its file, and make sure that it holds our tables and nothing that acts on them."""
        if self.connection.execute("PRAGMA integrity_check(1)").fetchall() != [("ok",)]:
            damaged(self.path, "the database is truncated or overwritten")
        found = tables(self.connection)
        if found == FORMAT_1:
            raise Refusal(_OLDER.format(at=ledger_at(self.path), version="0.1.0", why="counted some releases too low"))
        if found != TABLES:
            damaged(self.path, "its tables are not those of a ledger of this version")
        older = {
            2: ("0.2.0", "names nobody who approved and is less able to notice a copy"),
            3: ("before 0.3.0", "told draws apart by their plans alone"),
        }
        if (version := format_of(self.connection)) is not None:
            written, why = older[version]
            raise Refusal(_OLDER.format(at=ledger_at(self.path), version=written, why=why))

    def _catch_up(self) -> None:
        """Verify and take in the rows that came since the last transaction, of this process or of another."""
        history = self._history
        last = "SELECT digest FROM chain WHERE position = ?"
        known = len(history.rows)
        if known and self.connection.execute(last, (known - 1,)).fetchone() != (history.head.digest,):
            damaged(self.path, "rows that were there are gone or edited")
        later = "SELECT * FROM chain WHERE position >= ? ORDER BY position"
        for *columns, digest in self.connection.execute(later, (known,)):
            try:
                history.take_in(columns, digest)
            except (ValueError, LookupError, TypeError, msgspec.MsgspecError, UnpooledError) as error:
                damaged(self.path, f"row {len(history.rows)} was edited, or a newer version wrote it", error)
        if not history.rows or history.rows[0].content != sha256(self.root_key).digest():
            damaged(self.path, "it is empty, or its .key is that of another ledger")
        try:
            history.settle()
        except ValueError as error:
            damaged(self.path, "a debit has no name, and was not taken over from an older format", error)
