"""Text files of a study as they are read: TOML, strictly, and only from what is a file of a size that people write."""

from __future__ import annotations

import errno
import stat
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from unpooled.errors import StudyError

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")

#: No file of a study has more bytes.
_LARGEST = 20_000_000


def top_of(path: Path) -> dict[str, Any]:
    """Return the top of a TOML file as it stands; empty where it cannot be read, which the strict reader then says."""
    try:
        return msgspec.toml.decode(_bytes(path), type=dict[str, Any])
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError):
        return {}


def read_strictly(path: Path, kind: type[T]) -> T:
    """Return a TOML file as this kind; an unknown key, a missing one or a wrong type is an error that names it."""
    try:
        raw = _bytes(path)
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror}): check the path"
        raise StudyError(msg) from None
    except ValueError:  # a zero byte within it, which no file system takes
        msg = f"{str(path)!r} is not the path of a file"
        raise StudyError(msg) from None
    try:
        return msgspec.toml.decode(raw, type=kind, strict=True)
    except msgspec.ValidationError as error:
        # msgspec names the key ("... - at `$.privacy`"); values it quotes are the file's own, never data.
        msg = f"{path.name}: {error}. Correct or remove that key; docs/studies.md lists all of them"
        raise StudyError(msg) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        msg = f"{path.name}: not a TOML file: {error}"
        raise StudyError(msg) from None


def _bytes(path: Path) -> bytes:
    """Return what is in a file; refused where it would never end (a pipe, a device), or is larger than any file of a study."""
    about = path.stat()
    if not (stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode)):
        raise OSError(errno.EINVAL, "it is no file but a pipe or a device")
    if about.st_size > _LARGEST:
        raise OSError(errno.EFBIG, f"it has more than {_LARGEST} bytes")
    return path.read_bytes()
