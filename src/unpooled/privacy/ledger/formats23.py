"""Reads ledgers of unpooled 0.2.0 (format 2) and of builds that came after it (format 3), so that what they spent is kept. Nothing here writes.

Both have the same tables and rows; their chains start from other digests, and their debits have no names. In format 2 places have no inode, and
approvals name nobody.
"""

from __future__ import annotations

import json
import sqlite3
from hashlib import sha256
from typing import TYPE_CHECKING

from unpooled.privacy.ledger.chain import TABLES, Row, link, start
from unpooled.privacy.ledger.format1 import Old, tables
from unpooled.privacy.ledger.history import History

if TYPE_CHECKING:
    from pathlib import Path

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
