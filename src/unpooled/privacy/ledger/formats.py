"""Reads ledgers of formats 1, 2 and 3, so that what they spent is kept. Nothing here writes."""

from __future__ import annotations

import json
import sqlite3
import struct
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from unpooled.privacy.events import Event, Kind
from unpooled.privacy.exposure import Cost
from unpooled.privacy.ledger.chain import TABLES, History, Row, link, spell_costs, start
from unpooled.privacy.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


# --- Format1 ---------------------------------------------------------------------------------------------------------------
# Reads ledgers of unpooled 0.1.0 (format 1), so that what they spent is kept. Nothing here writes.
#
# Format 1 had the units record and attribute as columns, composed releases over disjoint parts of the rows wrongly (a part that was not the
# dearest was written down at no cost at all), and counted only what its own party released of people whom several parties know.

_COST = ", ".join(f"{{0}}_{part} INTEGER NOT NULL" for part in ("kind", "value", "count", "variation"))
_CHAIN = f"""CREATE TABLE chain (position INTEGER PRIMARY KEY, time INTEGER NOT NULL, kind TEXT NOT NULL,
plan TEXT NOT NULL, step TEXT NOT NULL, number INTEGER NOT NULL, name TEXT NOT NULL,
fingerprint BLOB NOT NULL, content BLOB NOT NULL, {_COST.format("record")},
{_COST.format("attribute")}, digest BLOB NOT NULL) STRICT"""
_REPLIES = "CREATE TABLE replies (content BLOB PRIMARY KEY NOT NULL, body BLOB NOT NULL) STRICT"
FORMAT_1 = [(_CHAIN,), (_REPLIES,)]
_START = sha256(b"unpooled ledger, format 1").digest()


class Old(NamedTuple):
    """A verified ledger of format 1: its rows as rows of today, its replies, the digest it ended with."""

    rows: tuple[Row, ...]
    replies: tuple[tuple[bytes, bytes], ...]
    head: bytes


def tables(connection: sqlite3.Connection) -> list[tuple[str]]:
    """Return the tables of a database, and whatever else it holds, as they were made."""
    return connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid").fetchall()


def read_format1(database: Path, anchor: Path, root_key: bytes) -> Old:
    """Return every row and reply, verified like format 1 verified them; raises ValueError where anything is not as it should be."""
    connection = sqlite3.connect(database.as_uri() + "?mode=ro", uri=True)
    try:
        if tables(connection) != FORMAT_1:
            raise ValueError("no ledger of format 1")
        head = _START
        rows: list[Row] = []
        for *columns, digest in connection.execute("SELECT * FROM chain ORDER BY position"):
            if digest != link(head, columns) or columns[0] != len(rows):
                raise ValueError("a row was edited")
            head = digest
            rows.append(_row(columns))
        replies = tuple(connection.execute("SELECT content, body FROM replies"))
    finally:
        connection.close()
    if not rows or rows[0].content != sha256(root_key).digest():
        raise ValueError("it is empty, or its .key is that of another ledger")
    if any(sha256(body).digest() != content for content, body in replies):
        raise ValueError("a stored reply was edited")
    written = json.loads(anchor.read_bytes())
    ends = [(end["rows"], end["head"]) for end in written["heads"]]
    if written["format"] != 1 or written["ledger"] != rows[0].fingerprint.hex() or (len(rows), head.hex()) not in ends:
        raise ValueError("it does not end where its anchor says")
    return Old(tuple(rows), replies, head)


def _row(columns: list[Any]) -> Row:
    record, attribute = _events(columns[9:])
    row = Row(*columns[:9])
    if row.kind != "charge":
        return row
    return row._replace(detail=spell_costs((Cost(Unit.RECORD, "", record), Cost(Unit.ATTRIBUTE, "", attribute))))


def _events(columns: list[Any]) -> Iterator[Event]:
    """Two events of four integers each: the kind, and the bits of value, count and variation."""
    for first in (0, 4):
        kind, *numbers = columns[first : first + 4]
        value, count, variation = struct.unpack(">dqd", struct.pack(">qqq", *numbers))
        yield Event(Kind(kind), value, count, variation)


# --- Formats23 -------------------------------------------------------------------------------------------------------------
# Reads ledgers of unpooled 0.2.0 (format 2) and of builds that came after it (format 3), so that what they spent is kept. Nothing here writes.
#
# Both have the same tables and rows; their chains start from other digests, and their debits have no names. In format 2 places have no inode, and
# approvals name nobody.

FORMATS = (2, 3)


def format_of(connection: sqlite3.Connection) -> int | None:
    """Return which of these formats the first row of this chain is of; None for another one."""
    first = connection.execute("SELECT * FROM chain WHERE position = 0").fetchone()
    ours = (version for version in FORMATS if first is not None and link(start(version).digest, first[:-1]) == first[-1])
    return next(ours, None)


def read(version: int, database: Path, anchor: Path, root_key: bytes) -> Old:
    """Return every row and reply, verified as this format verified them; raises ValueError where anything is not as it should be."""
    connection = sqlite3.connect(database.as_uri() + "?mode=ro", uri=True)
    try:
        if tables(connection) != TABLES or format_of(connection) != version:
            msg = f"no ledger of format {version}"
            raise ValueError(msg)
        history = History(start(version))
        for *columns, digest in connection.execute("SELECT * FROM chain ORDER BY position"):
            history.take_in(columns, digest)
        replies = tuple(connection.execute("SELECT content, body FROM replies"))
    finally:
        connection.close()
    rows = tuple(Row._make(row) for row in history.rows)
    if rows[0].content != sha256(root_key).digest():
        raise ValueError("its .key is that of another ledger")
    if any(sha256(body).digest() != content for content, body in replies):
        raise ValueError("a stored reply was edited")
    written = json.loads(anchor.read_bytes())
    ends = [(end["rows"], end["head"]) for end in written["heads"]]
    head = history.head
    if (written["format"], written["ledger"]) != (version, history.identity.hex()) or (
        head.rows,
        head.digest.hex(),
    ) not in ends:
        raise ValueError("it does not end where its anchor says")
    return Old(rows, replies, head.digest)
