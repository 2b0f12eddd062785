"""Where a ledger lies, so that a copy of it can be told from the ledger itself."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Self

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

#: Files in which Linux keeps a number that no other machine has.
_MACHINE_FILES = ("/etc/machine-id", "/var/lib/dbus/machine-id")


class Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file on a machine. ``machine`` is a digest, and empty where the machine has no identity of its own (some containers)."""

    file: str
    machine: str

    @classmethod
    def of(cls, path: Path) -> Self:
        """The place of a file that may not exist yet."""
        return cls(str(path.parent.resolve() / path.name), _machine())

    def is_same(self, other: Place) -> bool:
        """Whether both are one place, as far as anybody can tell."""
        unknown = not (self.machine and other.machine)
        return self.file == other.file and (unknown or self.machine == other.machine)

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
