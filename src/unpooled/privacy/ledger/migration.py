"""Takes a ledger of format 1, 2 or 3 over into files of today, with everything it spent."""

from __future__ import annotations

import json
import sqlite3
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from unpooled.errors import UnpooledError
from unpooled.privacy.ledger import files, format1, formats23
from unpooled.privacy.ledger.chain import Row
from unpooled.privacy.ledger.failures import damaged
from unpooled.privacy.ledger.format1 import Old
from unpooled.privacy.ledger.place import Place
from unpooled.privacy.ledger.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


#: Formats that can be taken over, and what reads them.
_READERS: dict[int, Callable[[Path, Path, bytes], Old]] = {1: format1.read}
_READERS.update((version, partial(formats23.read, version)) for version in formats23.FORMATS)


def migrate(database: Path) -> None:
    """Replace the files of an older format at this path; the old ones stay next to them, under ``.format1``, ``.format2`` or ``.format3``.

    The new files are complete before any old one is replaced, and a migration that was cut short can be run again.
    """
    draft = files.beside(database, ".migrating")
    try:
        root_key = files.beside(database, ".key").read_bytes()
        try:
            version, old = _read(database, root_key)
            kept = files.beside(database, f".format{version}")
        except (ValueError, msgspec.MsgspecError, UnpooledError):
            found = [kept for kept in _kept(database) if kept.exists() and files.beside(kept, ".anchor").exists()]
            if not found:
                raise
            version, old = _read(found[-1], root_key)  # cut short while the old files were being replaced
        else:
            for ending in ("", ".anchor"):
                files.beside(kept, ending).unlink(missing_ok=True)
                files.write_new(files.beside(kept, ending), files.beside(database, ending).read_bytes())
        for ending in ("", "-journal", ".anchor", ".anchor.new"):
            files.beside(draft, ending).unlink(missing_ok=True)
        files.write_new(draft, b"")
        store = Store(draft, root_key, new=True)
        try:
            _take_over(store, version, old, Place.of(database, draft))
        finally:
            store.close()
        files.beside(draft, ".anchor").replace(files.beside(database, ".anchor"))
        draft.replace(database)
        files.sync(database.parent)
    except (OSError, ValueError, LookupError, TypeError, msgspec.MsgspecError, sqlite3.DatabaseError) as error:
        what = str(error) if type(error) is ValueError else type(error).__name__
        damaged(database, f"it cannot be taken over: {what}", error)


def _kept(database: Path) -> list[Path]:
    """Return where the files of each older format stay, the oldest format first."""
    return [files.beside(database, f".format{version}") for version in _READERS]


def _read(database: Path, root_key: bytes) -> tuple[int, Old]:
    """Return the format of an old ledger, and what it holds."""
    anchor = files.beside(database, ".anchor")
    version = json.loads(anchor.read_bytes())["format"]
    if version not in _READERS:
        raise ValueError("it is of no older format")
    return version, _READERS[version](database, anchor, root_key)


def _take_over(store: Store, version: int, old: Old, place: Place) -> None:
    """Write the rows of an old ledger into a new one, with their times, and say where it will lie."""
    with store.locked():
        for content, body in old.replies:
            store.keep(content, body)
        rows = [row for row in old.rows if row.kind != "genesis"]
        ends = [
            Row(kind="migration", number=version, fingerprint=old.head),
            Row(kind="place", detail=msgspec.json.encode(place)),
        ]
        store.append(*rows, *ends)
