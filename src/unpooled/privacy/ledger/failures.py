"""Words for failures, which distinguish a damaged ledger from a full disk and from a lock that is held."""

from __future__ import annotations

import os
import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from unpooled.errors import LedgerDamaged, Refusal, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
