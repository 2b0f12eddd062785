"""Takes a ledger of format 1 over into files of today, with everything it spent."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import msgspec

from unpooled.privacy.ledger import files
from unpooled.privacy.ledger.chain import Row
from unpooled.privacy.ledger.failures import damaged
from unpooled.privacy.ledger.format1 import Old, read
from unpooled.privacy.ledger.place import Place
from unpooled.privacy.ledger.store import Store

if TYPE_CHECKING:
    from pathlib import Path


def migrate(database: Path) -> None:
    """Replace the files of format 1 at this path; the old ones stay beside them, under ``.format1``.

    The new files are complete before any old one is replaced, and a migration that was cut short can be run again.
    """
    kept, draft = files.beside(database, ".format1"), files.beside(database, ".migrating")
    try:
        root_key = files.beside(database, ".key").read_bytes()
        try:
            old = _read(database, root_key)
        except ValueError:
            if not kept.exists() or not files.beside(kept, ".anchor").exists():
                raise
            old = _read(kept, root_key)  # cut short while the old files were being replaced
        else:
            for ending in ("", ".anchor"):
                files.beside(kept, ending).unlink(missing_ok=True)
                files.write_new(files.beside(kept, ending), files.beside(database, ending).read_bytes())
        for ending in ("", "-journal", ".anchor", ".anchor.new"):
            files.beside(draft, ending).unlink(missing_ok=True)
        files.write_new(draft, b"")
        store = Store(draft, root_key, new=True)
        try:
            _take_over(store, old, Place.of(database))
        finally:
            store.close()
        files.beside(draft, ".anchor").replace(files.beside(database, ".anchor"))
        draft.replace(database)
        files.sync(database.parent)
    except (OSError, ValueError, LookupError, TypeError, sqlite3.DatabaseError) as error:
        what = str(error) if type(error) is ValueError else type(error).__name__
        damaged(database, f"it cannot be taken over: {what}", error)


def _read(database: Path, root_key: bytes) -> Old:
    return read(database, files.beside(database, ".anchor"), root_key)


def _take_over(store: Store, old: Old, place: Place) -> None:
    """Write the rows of an old ledger into a new one, with their times, and say where it will lie."""
    with store.locked():
        for content, body in old.replies:
            store.keep(content, body)
        rows = [row for row in old.rows if row.kind != "genesis"]
        ends = [Row(kind="migration", fingerprint=old.head), Row(kind="place", detail=msgspec.json.encode(place))]
        store.append(*rows, *ends)
