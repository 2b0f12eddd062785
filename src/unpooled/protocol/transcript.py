"""Transcript of a coordinator: every request and reply, recorded so that a study can be resumed, replayed and audited.

A transcript holds only messages, and every reply in it is already private. On disk it is a sequence of frames, each with its
length and checksum, flushed before the coordinator goes on; a frame torn by a crash is dropped, a damaged one is refused.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from unpooled.errors import ProtocolError
from unpooled.protocol.messages import Dropped, Shortening, ShortReply, digest

if TYPE_CHECKING:
    from io import BufferedRandom, BufferedReader

_HEADER = 12  # 8 bytes of length, 4 of checksum


class Exchanged(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One request and what came back: bytes, or the reason why nothing did."""

    to: str
    request: bytes
    reply: bytes | None
    reason: str = ""
    #: Of an exchange whose long ciphertext was left out.
    short: Shortening | None = None


class Transcript:
    """Records in memory, or in a file when opened with :meth:`open`."""

    #: Whether it leaves long ciphertext out: on disk it does.
    shortens: bool = False

    def __init__(self) -> None:
        self.entries: list[Exchanged] = []
        self._played = 0
        self._file: BufferedRandom | None = None

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Return a transcript on disk: what it already holds is played first, new entries are appended."""
        path = Path(path)
        path.touch(mode=0o600, exist_ok=True)
        file = path.open("r+b")
        try:
            transcript, whole = cls._of(file, path)
        except BaseException:
            file.close()
            raise
        transcript._file = file  # noqa: SLF001 - its own
        file.truncate(whole)
        file.seek(whole)
        return transcript

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Return what a transcript on disk holds. The file stays as it is: it may be that of a run which goes on, or no transcript at all."""
        path = Path(path)
        with path.open("rb") as file:
            return cls._of(file, path)[0]

    @classmethod
    def _of(cls, file: BufferedReader | BufferedRandom, path: Path) -> tuple[Self, int]:
        """Return the transcript in a file, and where its last whole frame ends."""
        transcript = cls()
        transcript.shortens = True
        whole, size = 0, path.stat().st_size
        while len(header := file.read(_HEADER)) == _HEADER:
            length = int.from_bytes(header[:8], "big")
            if length > size - file.tell():  # asked before anything is read: a damaged length may be any number
                break  # torn by a crash: the reply is asked for again, and the party sends the same bytes
            body = file.read(length)
            if digest(body)[:4] != header[8:]:
                msg = f"transcript {path.name} is damaged: delete it to start again (parties answer from their stores)"
                raise ProtocolError(msg)
            transcript.entries.append(msgspec.msgpack.decode(body, type=Exchanged))
            whole = file.tell()
        return transcript, whole

    def replay(self) -> Self:
        """Play from the beginning."""
        self._played = 0
        return self

    def play(self, to: str, request: bytes) -> bytes | Dropped | None:
        """Return the recorded answer to this request if it is the next one on record; None at the end of the record."""
        if self._played == len(self.entries):
            return None
        entry = self.entries[self._played]
        if (entry.to, entry.request) != (to, request):
            msg = f"the transcript is of another study: request {self._played} differs from the recorded one"
            raise ProtocolError(msg)
        self._played += 1
        if entry.reply is None:
            return Dropped(entry.to, entry.reason)
        return entry.reply if entry.short is None else ShortReply.of(entry.reply, entry.short)

    def record(self, to: str, request: bytes, reply: bytes | Dropped) -> None:
        """Append an exchange; on disk it is durable when this returns."""
        body, reason = (None, reply.reason) if isinstance(reply, Dropped) else (bytes(reply), "")
        entry = Exchanged(to, request, body, reason, reply.shortening if isinstance(reply, ShortReply) else None)
        self.entries.append(entry)
        self._played = len(self.entries)
        if self._file is not None:
            frame = msgspec.msgpack.encode(entry)
            self._file.write(len(frame).to_bytes(8, "big") + digest(frame)[:4] + frame)
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._file is not None:
            self._file.close()
            self._file = None
