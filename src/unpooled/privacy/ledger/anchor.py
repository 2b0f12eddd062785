"""The file that says where the chain of a ledger ends, so that an older copy of the database shows.

It is read and written only under SQLite's write lock.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from unpooled.errors import Refusal
from unpooled.privacy.ledger import files
from unpooled.privacy.ledger.chain import FORMAT, Head
from unpooled.privacy.ledger.failures import damaged

if TYPE_CHECKING:
    from pathlib import Path


class Anchor(NamedTuple):
    """The anchor of the ledger at a path, tied to it by the ledger's random identity."""

    database: Path
    identity: bytes

    @property
    def file(self) -> Path:
        """Where it is."""
        return files.beside(self.database, ".anchor")

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
        draft = files.beside(self.database, ".anchor.new")
        try:
            draft.unlink(missing_ok=True)
            files.write_new(draft, self._spelled(*heads))
            draft.replace(self.file)
            files.sync(self.file.parent)
        except OSError as error:
            msg = f"{self.file} cannot be written ({error.strerror}). Mend that and ask again: nothing is debited twice"
            raise Refusal(msg) from error

    def _spelled(self, *heads: Head) -> bytes:
        ends = [{"rows": head.rows, "head": head.digest.hex()} for head in heads]
        return json.dumps({"format": FORMAT, "ledger": self.identity.hex(), "heads": ends}, indent=1).encode() + b"\n"
