"""Finds ledgers that already keep the budget of a data file or a query, so that nobody spends it twice by setting up a second party.

Ledgers are looked for next to the data, next to the new party's folder, and in a list of this user's ledgers (in the state folder of
the user, where there is one that can be written). A copy of the data somewhere else is found by what it holds. No list is
complete: the guarantee page says so.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from unpooled.errors import UnpooledError
from unpooled.privacy.ledger import Ledger
from unpooled.study.sources.address import QueryAddress

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Files that are looked at in each place; a folder of thousands of parties is nobody's working folder.
_MOST = 200


def place_of(data: Path | QueryAddress) -> str:
    """Which file this is, or which query of which databases."""
    return data.place if isinstance(data, QueryAddress) else str(data.resolve())


def digest_of(data: Path) -> bytes:
    """Return SHA-256 of a data file."""
    with data.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def other_budgets(data: Path | QueryAddress, folder: Path, digest: bytes | None = None) -> tuple[Path, ...]:
    """Ledgers that keep the budget of these data already: of this very place, or of one that held the same."""
    place = place_of(data)
    if digest is None and isinstance(data, Path):
        digest = digest_of(data)
    found = []
    for ledger in dict.fromkeys(path.resolve() for path in _candidates(data, folder)):
        with suppress(UnpooledError, OSError), Ledger.open(ledger) as opened:
            if any(file == place or held == digest for file, held in opened.data):
                found.append(ledger)
    return tuple(found)


def remember(ledger: Path) -> None:
    """Add a ledger to this user's list, where there is a place for one."""
    with suppress(OSError):
        listed = _list()
        listed.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with listed.open("a", encoding="utf-8") as out:
            out.write(f"{ledger.resolve()}\n")


def _candidates(data: Path | QueryAddress, folder: Path) -> Iterator[Path]:
    with suppress(OSError, UnicodeDecodeError):
        for line in _list().read_text(encoding="utf-8").splitlines()[-_MOST:]:
            yield Path(line)
    beside = data.folder.resolve() if isinstance(data, QueryAddress) else data.resolve().parent
    for place in dict.fromkeys((beside, folder.resolve(), folder.resolve().parent)):
        for pattern in ("*.ledger", "*/*.ledger"):
            with suppress(OSError):
                yield from sorted(place.glob(pattern))[:_MOST]


def _list() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")  # noqa: PTH111, PTH118 - no error without a home
    return Path(state) / "unpooled" / "ledgers"
