"""Parties and a coordinator as processes of their own, on one disk, each of which may be killed while it executes any line.

They are forked from the test and talk over sockets; no engine. A process that is to die counts the lines that it executes in the code that
keeps promises (ledger, protocol, kept values) and kills itself, with SIGKILL, at one of them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from io import BufferedRWPair
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec

import unpooled
from unpooled.audit.account import Made, released_in, undebited
from unpooled.errors import UnpooledError
from unpooled.models import load
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.noise import KeySource
from unpooled.privacy.plan import Plan, Study
from unpooled.privacy.policy import Policy
from unpooled.protocol.keeper import MemoryKeeper
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.messages import Ask, Dropped
from unpooled.protocol.party import Party
from unpooled.protocol.transcript import Transcript
from unpooled.study.party import DiskKeeper
from unpooled.testing.cases import Case

ROOT = Path(unpooled.__file__).parent
#: Where a death can leave something half done.
COUNTED = tuple(str(ROOT / part) for part in ("privacy/ledger/", "protocol/", "study/party.py"))
COORDINATOR = "the coordinator"
#: How a coordinator ends when a party is gone, or has refused.
SILENCE, REFUSED = 3, 4
ENTRY = tuple[str, str, int, str, str, str]


class Ended(NamedTuple):
    """Hold the end of a process: its code, its output, and the number of lines that it counted."""

    code: int
    said: bytes


class Calm(NamedTuple):
    """Hold the same study without faults, with the same keys: its record, its result and its debits."""

    recorded: list[tuple[str, bytes, bytes | None]]
    result: bytes
    entries: dict[str, list[ENTRY]]


def entries_of(ledger: Ledger) -> list[ENTRY]:
    """Return the entries of a ledger without their times."""
    found: list[ENTRY] = []
    for e in ledger.entries():
        assert e.key is not None, "a study without approvals has charges alone"
        found.append((e.kind, e.key.step, e.key.index, e.key.name, e.key.plan, e.state))
    return found


def recorded(transcript: Transcript) -> list[tuple[str, bytes, bytes | None]]:
    return [(entry.to, entry.request, entry.reply) for entry in transcript.entries]


class World:
    """Hold the disk: ledgers and kept values of all parties, and the coordinator's transcript."""

    def __init__(self, folder: Path, case: Case, rules: Policy | None = None) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.case, self.rules = folder, case, rules or Policy.in_process()
        self.row = load(case.model)
        self.plan: Plan = self.row.compile(case.study)
        self.names = [card.name for card in case.study.members]
        self.roots = {}
        for name in self.names:
            with Ledger.create(self.ledger(name)) as ledger:
                self.roots[name] = ledger.root_key

    def ledger(self, name: str) -> Path:
        return self.folder / f"{name}.ledger"

    def party(self, name: str, ledger: Ledger, keeper: DiskKeeper | MemoryKeeper) -> Party:
        case, keys = self.case, KeySource(ledger.root_key)
        return Party(name, case.tables[name], case.study.member(name), ledger, keys, self.rules, load, keeper)

    def calm(self, study: Study | None = None) -> Calm:
        """Return the outcome without faults, which every other run must have."""
        plan, record = self.plan if study is None else self.row.compile(study), Transcript()
        parties = {name: self.party(name, Ledger.in_memory(self.roots[name]), MemoryKeeper()) for name in self.names}
        result = drive(self.row, plan, in_process(parties), record).result
        entries = {name: entries_of(party.ledger) for name, party in parties.items()}
        return Calm(recorded(record), spelled(result), entries)

    @contextlib.contextmanager
    def opened(self) -> Iterator[dict[str, Party]]:
        """Open all parties in this process, on their disk."""
        with contextlib.ExitStack() as stack:
            yield {
                name: self.party(
                    name, stack.enter_context(Ledger.open(self.ledger(name))), DiskKeeper(self.folder / f"{name}.kept")
                )
                for name in self.names
            }

    def attempt(
        self, deaths: dict[str, int], transcript: str = "transcript", study: Study | None = None
    ) -> dict[str, Ended]:
        """Run the study, or go on with it, in processes of its own that die at these lines."""
        plan = self.plan if study is None else self.row.compile(study)
        sockets, children = {}, {}
        for name in self.names:
            sockets[name], theirs = socket.socketpair()
            serve = partial(self._serve, name, theirs, list(sockets.values()))
            children[name] = fork(counting(serve, deaths.get(name)))
            theirs.close()
        children[COORDINATOR] = fork(
            counting(lambda pipe: self._lead(plan, self.folder / transcript, sockets, pipe), deaths.get(COORDINATOR))
        )
        for own in sockets.values():
            own.close()
        return {name: gather(*child) for name, child in children.items()}

    def _serve(self, name: str, connection: socket.socket, others: list[socket.socket], _: int) -> None:
        for other in others:  # the coordinator's ends: a party must notice that it is gone
            other.close()
        with Ledger.open(self.ledger(name)) as ledger, connection.makefile("rwb") as stream:
            party = self.party(name, ledger, DiskKeeper(self.folder / f"{name}.kept"))
            while (request := _heard(stream)) is not None:
                try:
                    answer = party.answer(request)
                except UnpooledError as error:
                    os.write(2, f"{type(error).__name__}: {error}\n".encode())
                    return
                with contextlib.suppress(BrokenPipeError):
                    _say(stream, answer)

    def _lead(self, plan: Plan, file: Path, sockets: dict[str, socket.socket], pipe: int) -> None:
        streams = {name: own.makefile("rwb") for name, own in sockets.items()}

        def exchange(batch: list[tuple[Ask, bytes]]) -> list[bytes | Dropped]:
            answers: list[bytes | Dropped] = []
            for ask, request in batch:
                answer = None
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    _say(streams[ask.to], request)
                    answer = _heard(streams[ask.to])
                if answer is None:
                    os._exit(SILENCE)
                answers.append(answer)
            return answers

        record = Transcript.open(file)
        os.write(pipe, spelled(drive(self.row, plan, exchange, record).result))
        record.close()

    def inspect(self, calm: Calm, transcript: str = "transcript", *, over: bool) -> None:
        """Hold the disk after a death against the calm run: ledgers hold all that was released and nothing twice, and the record is a part of the calm one."""
        record = Transcript.open(self.folder / transcript)
        record.close()
        found = recorded(record)
        assert found == calm.recorded[: len(found)], "something else was said than without a death"
        made = Made()
        for to, request, reply in found:
            if reply is not None:
                made.update(released_in(self.row, self.plan, to, request, reply))
        with self.opened() as parties:
            stubs: dict[str, Any] = {name: SimpleNamespace(ledger=party.ledger) for name, party in parties.items()}
            assert undebited(self.plan, stubs, made, len(found)) == []
            for name, party in parties.items():
                listed = entries_of(party.ledger)
                assert len({entry[:5] for entry in listed}) == len(listed), "debited twice"
                assert {entry[:5] for entry in listed} <= {entry[:5] for entry in calm.entries[name]}, (
                    "debited, though not planned"
                )
                if over:
                    assert sorted(listed) == sorted(calm.entries[name])
        assert not over or found == calm.recorded


def spelled(result: object) -> bytes:
    return msgspec.msgpack.encode(result)


def _say(stream: BufferedRWPair, body: bytes) -> None:
    stream.write(len(body).to_bytes(8, "big") + body)
    stream.flush()


def _heard(stream: BufferedRWPair) -> bytes | None:
    """Return a message, or None at the end and where its sender died in the middle of it."""
    try:
        header = stream.read(8)
        body = stream.read(int.from_bytes(header, "big")) if len(header) == 8 else None
    except ConnectionResetError:
        return None
    return body if body is not None and len(body) == int.from_bytes(header, "big") else None


def fork(work: Callable[[int], None]) -> tuple[int, int]:
    """Run ``work(pipe)`` in a child, and return its process id and the other end of the pipe."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    code = 1
    try:
        os.close(reading)
        work(writing)
        code = 0
    except (UnpooledError, OSError) as error:  # the file system's own words: `unpooled` and the network pass them on
        sys.settrace(None)
        code = REFUSED
        os.write(writing, f"{type(error).__name__}: {error}".encode())
    except BaseException:  # a child of pytest must not run the rest of the tests
        sys.settrace(None)
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def gather(child: int, pipe: int) -> Ended:
    """Return everything that a child wrote before it ended, and its end."""
    with os.fdopen(pipe, "rb") as stream:
        said = stream.read()
    return Ended(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said)


def counting(work: Callable[[int], None], at: int | None) -> Callable[[int], None]:
    """Return ``work`` so that it dies at this line; at -1 it says at its end how many lines there are, and without one nothing is counted."""
    if at is None:
        return work

    def traced(pipe: int) -> None:
        lines = 0

        def trace(frame: Any, event: str, _: object) -> Any:
            nonlocal lines
            if not frame.f_code.co_filename.startswith(COUNTED):
                return None
            if event == "line":
                if lines == at:
                    os.kill(os.getpid(), signal.SIGKILL)
                lines += 1
            return trace

        sys.settrace(trace)
        try:
            work(pipe)
        finally:
            sys.settrace(None)
        if at < 0:
            os.write(pipe, b"\n%d" % lines)

    return traced
