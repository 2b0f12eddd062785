"""Users, passwords and keys of databases: from the environment or from a file that only its owner can read, never from a party file.

Nothing in here is ever part of an error, of a ``repr`` or of a plan.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from unpooled.errors import StudyError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What a database may ask for.
LOGIN = ("user", "password")
#: What an object store may ask for, and the variables in which its own programs look for it.
STORE = {"key_id": "AWS_ACCESS_KEY_ID", "secret": "AWS_SECRET_ACCESS_KEY", "session_token": "AWS_SESSION_TOKEN"}
#: How the object store's part of a credentials file is called.
S3 = "s3"
#: Other people's permissions.
_OTHERS = 0o077
#: ``password=...`` between other settings, or ``//user:password@host``.
_PASSWORD = re.compile(r"\b(password|passwd|sslpassword|passfile)\s*=|://[^/@\s]*:[^/@\s]*@", re.IGNORECASE)


class Credentials:
    """The logins that a source's databases ask for, by the name under which each is attached."""

    def __init__(self, file: Path | None) -> None:
        self._stored = {} if file is None else _read(file)

    def login(self, name: str) -> dict[str, str]:
        """User and password of a database, as far as either is given: the environment goes before the file."""
        return self._found(name, {part: f"UNPOOLED_{name.upper()}_{part.upper()}" for part in LOGIN})

    def store(self) -> dict[str, str]:
        """Return the keys of an object store."""
        return self._found(S3, STORE)

    def _found(self, name: str, variables: Mapping[str, str]) -> dict[str, str]:
        stored = self._stored.get(name, {})
        found = {part: os.environ.get(variable) or stored.get(part, "") for part, variable in variables.items()}
        return {part: value for part, value in found.items() if value}

    def __repr__(self) -> str:
        return "Credentials(...)"


def no_password(what: str, text: str) -> None:
    """Refuse an address that holds a password: party files are copied, mailed and kept under version control."""
    if _PASSWORD.search(text):
        msg = (
            f"{what} holds a password, and party files are no place for one: take it out (and change it), and give it in the environment or in "
            "a file that only its owner can read (`secrets` under [source])"
        )
        raise StudyError(msg)


def _read(file: Path) -> dict[str, dict[str, str]]:
    try:
        with file.open("rb") as opened:
            mode = stat.S_IMODE(os.fstat(opened.fileno()).st_mode)
            raw = opened.read()
    except OSError as error:
        msg = f"{file.name}: the credentials file cannot be read ({error.strerror}): correct `secrets` under [source]"
        raise StudyError(msg) from None
    if mode & _OTHERS:
        msg = f"{file.name}: others can read this credentials file (mode {mode:o}), so it is not used: chmod 600, and change what was in it"
        raise StudyError(msg)
    try:
        return msgspec.toml.decode(raw, type=dict[str, dict[str, str]])
    except (msgspec.DecodeError, UnicodeDecodeError):  # its text may quote a password
        msg = f'{file.name}: credentials are TOML tables of texts: [NAME] (or [s3]), then password = "..."'
        raise StudyError(msg) from None
