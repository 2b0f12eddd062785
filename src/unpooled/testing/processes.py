"""Parties and a coordinator as processes of their own on one disk, killed at any line; and a campaign of faults, one at each call of the file layer."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from io import BufferedRWPair
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import numpy as np

import unpooled
from unpooled.audit.account import Made, released_in, undebited
from unpooled.errors import UnpooledError
from unpooled.models import load
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.noise import KeySource, Stream
from unpooled.privacy.plan import Plan, Study
from unpooled.privacy.policy import Policy
from unpooled.protocol.identity import MemoryKeeper
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.messages import Ask, Dropped
from unpooled.protocol.party import Party
from unpooled.protocol.transcript import Transcript
from unpooled.study.party import DiskKeeper
from unpooled.study.run import write_results
from unpooled.testing.cases import Case
from unpooled.testing.disks import DiskFault, FailingDisk, Killed, failing

# --- Processes -------------------------------------------------------------------------------------------------------------
# Parties and a coordinator as processes of their own, on one disk, each of which may be killed while it executes any line.
#
# They are forked from the test and talk over sockets; no engine. A process that is to die counts the lines that it executes in the code that
# keeps promises (ledger, protocol, kept values) and kills itself, with SIGKILL, at one of them.

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


# --- Crashes ---------------------------------------------------------------------------------------------------------------
# A campaign of faults: a study on disk meets one fault at one call of the file layer, then runs again without one, to its end.
#
# Whatever failed, every planned charge is debited once, what was answered stays debited and is answered with the same bytes, no key of noise serves
# two statistics, and the result has the bits of the undisturbed run.

#: The columns of a campaign's table: a debit or an answer that is gone, a second debit, a key that served twice, a result with other bits, and
#: a refusal whose words were not true.
FINDINGS = ("lost", "debited twice", "keys twice", "other bits", "untrue words")
#: The charges that a ledger holds, without their state.
Charged = set[tuple[str, str, int, str, str]]


@dataclass
class Keys:
    """The content for which each key of noise was derived, and each place of a study drew."""

    of: dict[bytes, bytes] = field(default_factory=dict)
    twice: int = 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note every derivation, inside the block."""
        derive = KeySource.stream

        def stream(source: KeySource, *names: str | int | bytes, content: bytes = b"") -> Stream:
            found = derive(source, *names, content=content)
            for key in (found.key, repr((source.root, names)).encode()):
                self.twice += self.of.setdefault(key, content) != content
            return found

        KeySource.stream = stream  # type: ignore[assignment,method-assign]
        try:
            yield
        finally:
            KeySource.stream = derive  # type: ignore[method-assign]


@dataclass(frozen=True)
class Undisturbed:
    """The run without a fault: its calls, its record, its result, what is kept, and the charges of every party after each answer."""

    calls: list[str]
    recorded: list[tuple[str, bytes, bytes | None]]
    result: bytes
    kept: dict[str, str]
    entries: dict[str, list[ENTRY]]
    after: list[dict[str, Charged]]


class Campaign:
    """One case on disk, which is put back to its beginning before every run."""

    def __init__(self, folder: Path, case: Case, disk: FailingDisk) -> None:
        self.world, self.disk, self.run_folder = World(folder, case), disk, folder / "run"
        self._pristine = {file: file.read_bytes() for file in folder.iterdir()}
        self._answers: list[dict[str, Charged]] = []
        self._keys = Keys()
        self.calm = self._undisturbed()

    def _reset(self) -> None:
        """Put the disk back: ledgers in place, since each knows its file's number, and nothing else."""
        disk, folder = self.disk, self.world.folder
        active, FailingDisk.active = FailingDisk.active, None
        for place in sorted(folder.rglob("*"), reverse=True):
            if place not in self._pristine:
                (place.rmdir if place.is_dir() else place.unlink)()
        for file, body in self._pristine.items():
            file.write_bytes(body)
        FailingDisk.active = active
        disk.begin()

    def _run(self, *, noting: bool = False) -> bytes:
        """Run the study to its end, or go on with it; return its result."""
        self._answers = []
        self.run_folder.mkdir(exist_ok=True)
        record = Transcript.open(self.run_folder / "transcript")
        try:
            with self.world.opened() as parties:
                exchange = in_process(parties)

                def counted(batch: list[tuple[Ask, bytes]]) -> list[bytes | Dropped]:
                    answers = []
                    for one in batch:
                        answers += exchange([one])
                        found = (
                            {name: charged(entries_of(party.ledger)) for name, party in parties.items()} if noting else {}
                        )
                        self._answers.append(found)
                    return answers

                outcome = drive(self.world.row, self.world.plan, counted, record)
            write_results(self.run_folder, self.world.plan, outcome, record.entries)
        finally:
            with suppress(Killed, OSError):
                record.close()
        return spelled(outcome.result)

    def _undisturbed(self) -> Undisturbed:
        self._reset()
        with self._keys.watched():
            result = self._run(noting=True)
        calls = list(self.disk.calls)
        calm = self.world.calm()
        assert result == calm.result, "on disk as in memory"
        found, kept = self._state()
        assert found == {name: sorted(entries) for name, entries in calm.entries.items()}
        with self.world.opened() as parties:
            for name, party in parties.items():
                planned = {(c.key.step, c.key.index, c.key.name) for c in party.charges(self.world.plan)}
                assert {entry[1:4] for entry in calm.entries[name]} <= planned, "as checked before"
        said = recorded(Transcript.read(self.run_folder / "transcript"))  # on disk without long ciphertext
        return Undisturbed(calls, said, result, kept, found, self._answers)

    def _state(self) -> tuple[dict[str, list[ENTRY]], dict[str, str]]:
        """Return the entries of every ledger, each verified when it is opened, and digests of what is kept."""
        entries: dict[str, list[ENTRY]] = {}
        kept: dict[str, str] = {}
        plan = self.world.plan.hash
        with self.world.opened() as parties:
            for name, party in parties.items():
                entries[name] = sorted(entries_of(party.ledger))
                keeper = party.keeper
                assert isinstance(keeper, DiskKeeper)
                kept |= {f"{name}.{one}": digest(keeper.kept(plan, one)) for one in keeper.names(plan)}
        return entries, kept

    def meet(self, fault: DiskFault, at: int) -> tuple[Counter[str], str]:
        """Return what is wrong after a fault at this call and a run to the end (nothing), and what the failing run said."""
        self._reset()
        found, keys = Counter[str](), Keys(dict(self._keys.of))
        with keys.watched():
            self.disk.begin(fault, at)
            said = "killed"
            try:
                self._run()
                said = ""
            except Killed:
                pass
            except (UnpooledError, OSError) as error:
                said = f"{type(error).__name__}: {error}"
            if self.disk.dead and fault is DiskFault.POWER:
                self.disk.lose()
            self.disk.begin()
            try:
                found += self._between(said)
                self.disk.begin()
                if self._run() != self.calm.result:
                    found["other bits"] += 1
                found += self._after()
            except Exception as error:  # whatever keeps the study from its end
                found["lost"] += 1
                said += f" | and then {type(error).__name__}: {error}"
        found["keys twice"] += keys.twice
        return +found, said

    def _between(self, said: str) -> Counter[str]:
        """Hold the ledgers after the fault against those of the undisturbed run after the same number of answers."""
        found, answered = Counter[str](), len(self._answers)
        entries, _ = self._state()
        before = self.calm.after[answered - 1] if answered else {name: set() for name in entries}
        allowed = self.calm.after[min(answered, len(self.calm.after) - 1)]
        for name, own in entries.items():
            found["debited twice"] += len({entry[:5] for entry in own}) != len(own)
            found["lost"] += not before[name] <= charged(own)
            found["debited twice"] += not charged(own) <= allowed[name]
            found["untrue words"] += "Nothing was debited" in said and charged(own) != before[name]
        return found

    def _after(self) -> Counter[str]:
        """Hold everything that the resumed run left against the undisturbed one."""
        found = Counter[str]()
        entries, kept = self._state()
        record = Transcript.read(self.run_folder / "transcript")
        for name, own in entries.items():
            found["debited twice"] += len({entry[:5] for entry in own}) != len(own) or not charged(own) <= charged(
                self.calm.entries[name]
            )
            found["lost"] += not set(own) >= set(self.calm.entries[name])
        found["lost"] += kept != self.calm.kept
        found["other bits"] += recorded(record) != self.calm.recorded
        return found


def charged(entries: Sequence[ENTRY]) -> Charged:
    """Return the charges of a ledger, without their state."""
    return {entry[:5] for entry in entries}


def digest(values: Any) -> str:
    """Return a digest of a kept array."""
    return hashlib.sha256(
        repr((values.dtype.str, values.shape)).encode() + np.ascontiguousarray(values).tobytes()
    ).hexdigest()


def points(campaign: Campaign, fault: DiskFault, most: int | None = None) -> list[int]:
    """Return the calls at which a fault is tried: all that it can meet, or ``most`` of them, evenly spread."""
    calls = campaign.calm.calls
    partial = fault in {DiskFault.TORN, DiskFault.HALF}
    every = [k for k, call in enumerate(calls) if not partial or call.startswith("write")]
    if most is None or len(every) <= most:
        return every
    return [every[(2 * k + 1) * len(every) // (2 * most)] for k in range(most)]


@contextmanager
def campaign_of(folder: Path, case: Case) -> Iterator[Campaign]:
    """Set a case up on a disk that fails, inside the block."""
    folder.mkdir(parents=True, exist_ok=True)
    with failing(folder) as disk:
        yield Campaign(folder, case, disk)


__all__ = ["FINDINGS", "Campaign", "DiskFault", "campaign_of", "points"]
