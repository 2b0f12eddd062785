"""The place of a ledger, so that a copy can be distinguished from the ledger itself."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Self

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

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
