"""The section of a party file on a cluster, checked before anything is opened."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import msgspec

from unpooled.errors import StudyError

if TYPE_CHECKING:
    from pathlib import Path

#: The engines that there are.
DASK = "dask"
#: Schedulers that may be spoken to without TLS: what is said to them does not leave the machine.
_LOOPBACK = ("tcp://127.0.0.1:", "tcp://localhost:", "tcp://[::1]:")
_TLS = "tls://"
#: Other people's permissions.
_OTHERS = 0o077


class EngineSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """``[engine]`` of a party file: which cluster adds up its rows, and how they are cut into shards. Without it this process does."""

    #: "dask".
    name: str = ""
    #: Where the scheduler listens: "tls://HOST:PORT", or "tcp://127.0.0.1:PORT" on this machine.
    scheduler: str = ""
    #: Certificates for tls, relative to the party file: of the authority, of this client, and its key, which nobody else may read.
    ca: str = ""
    certificate: str = ""
    key: str = ""
    #: A column of the query's result, by whose ranges rows are cut into shards; a Parquet file is cut by its rows.
    by: str = ""
    #: Where to cut by that column, rising, as the engine writes its values; none: evenly, so that a shard has ``shard_rows``.
    cuts: tuple[str, ...] = ()
    #: About how many rows a shard has.
    shard_rows: int = 1_000_000
    #: So many seconds are waited for a scheduler, and for a worker where there is none.
    patience: float = 60.0

    def check(self, party: str) -> None:
        """Refuse what could not work, or would be read on its way."""
        if self.name != DASK:
            raise _wrong(party, f'name = "{DASK}" is the only engine (without [engine], this process adds up)')
        if self.scheduler.startswith(_TLS):
            if not (self.ca and self.certificate and self.key):
                raise _wrong(party, "a scheduler at tls:// needs `ca`, `certificate` and `key`")
        elif not self.scheduler.startswith(_LOOPBACK):
            raise _wrong(
                party,
                'scheduler is "tls://HOST:PORT"; exact sums go over that line, so plain "tcp://" is for 127.0.0.1 alone',
            )
        if not self.shard_rows >= 1 or not self.patience > 0:
            raise _wrong(party, "shard_rows and patience are positive")
        if self.cuts and not self.by:
            raise _wrong(party, "cuts are values of the column that `by` names")

    def moved(self, old: Path, new: Path) -> EngineSection:
        """Return the same for a party file in another folder."""
        there = {
            name: os.path.relpath(old / said, new) for name in ("ca", "certificate", "key") if (said := getattr(self, name))
        }
        return msgspec.structs.replace(self, **there)

    def files(self, party: str, folder: Path) -> dict[str, str]:
        """Return the certificates of this client as the engine takes them; refused where the key is not the party's alone."""
        found = {}
        for name, said in (
            ("tls_ca_file", self.ca),
            ("tls_client_cert", self.certificate),
            ("tls_client_key", self.key),
        ):
            path = folder / said
            try:
                mode = stat.S_IMODE(os.stat(path).st_mode)  # noqa: PTH116 - one call whose errors are caught here
            except OSError as error:
                raise _wrong(party, f"{path.name} cannot be read ({error.strerror})") from None
            if name == "tls_client_key" and mode & _OTHERS:
                raise _wrong(party, f"others can read {path.name} (mode {mode:o}): chmod 600, and have the key replaced")
            found[name] = str(path.resolve())
        return found


def _wrong(party: str, what: str) -> StudyError:
    return StudyError(f"party {party!r}, [engine]: {what}")
