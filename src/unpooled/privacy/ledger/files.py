"""Files that are on the disk when a call returns, or were never made."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


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
