"""Processes that die, race and fork: never an under-count, resends byte for byte, and the ledger always opens.

Workers are forked from the test, so that dozens of them cost seconds. Each one is killed by its own process id.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from hashlib import sha256
from random import Random
from typing import TYPE_CHECKING

import pytest
from world import sized

from unpooled.errors import BudgetRefusal, LedgerDamaged, Refusal, UsageError
from unpooled.privacy import ledger as package
from unpooled.privacy.accounting import SAFETY, gaussian_mu
from unpooled.privacy.events import Event, Kind
from unpooled.privacy.exposure import Cost
from unpooled.privacy.ledger import Charge, Ledger, ReleaseKey
from unpooled.privacy.ledger.store import Anchor
from unpooled.privacy.unit import ROWWISE, Target, Unit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.filterwarnings("error"), pytest.mark.minutes]

PLAN, REQUEST = "ab" * 32, bytes(range(32))
BUDGET = Target(1.0, 1e-5)
FULL = Event(Kind.GAUSSIAN, gaussian_mu(1.0, 1e-5) * (1 - SAFETY))
TINY = Event(Kind.GAUSSIAN, 1e-6)
CODE = package.__file__.removesuffix("__init__.py")
LINE = 16 + 64  # what a worker reports: the index and the digest of the bytes it sent


def charge(step: str, index: int, event: Event = TINY) -> Charge:
    return Charge(ReleaseKey(PLAN, step, index, "sketch"), REQUEST, tuple(Cost(unit, "", event) for unit in ROWWISE))


def fork(work: Callable[[int], None]) -> tuple[int, int]:
    """Run ``work(pipe)`` in a child; its process id and the other end of the pipe."""
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
    except BaseException:  # a child of pytest must not run the rest of the tests
        sys.settrace(None)
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def gather(child: int, pipe: int) -> tuple[int, bytes]:
    """Everything a child wrote before it ended, and how it ended."""
    with os.fdopen(pipe, "rb") as stream:
        said = stream.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


def release(ledger: Ledger, pipe: int, step: str, index: int) -> None:
    """A party's whole act. The noise is fresh each time: only the store can make two sendings equal."""
    reply = ledger.reply(PLAN, step, index, REQUEST)
    if reply is None:
        ledger.reserve([charge(step, index)], BUDGET)
        reply = os.urandom(300)
        ledger.commit(PLAN, step, index, REQUEST, reply)
    os.write(pipe, b"%16d" % index + sha256(reply).hexdigest().encode())


def releases(path: Path, step: str, start: int, count: int) -> Callable[[int], None]:
    def work(pipe: int) -> None:
        with Ledger.open(path) as ledger:
            for index in range(start, start + count):
                release(ledger, pipe, step, index)

    return work


def dying(work: Callable[[int], None], after: int) -> Callable[[int], None]:
    """``work`` that kills itself with SIGKILL once it has executed so many lines of the ledger's package, or reports how many."""

    def traced(pipe: int) -> None:
        lines = 0

        def trace(frame: object, event: str, _: object) -> object:
            nonlocal lines
            if not frame.f_code.co_filename.startswith(CODE):
                return None
            if event == "line":
                if lines == after:
                    os.kill(os.getpid(), signal.SIGKILL)
                lines += 1
            return trace

        sys.settrace(trace)
        work(pipe)
        sys.settrace(None)
        os.write(pipe, b"%d" % lines)

    return traced


class Witness:
    """What the outside world received, and whether the ledger accounts for it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sent: dict[tuple[str, int], bytes] = {}
        self.deaths: Counter[int] = Counter()

    def hears(self, step: str, said: bytes) -> None:
        for at in range(0, len(said) - LINE + 1, LINE):
            index, digest = int(said[at : at + 16]), said[at + 16 : at + LINE]
            assert self.sent.setdefault((step, index), digest) == digest, "sent again with other bytes"

    def next(self, step: str) -> int:
        """Where a restarted party begins: it sends its last release once more."""
        return max([index for name, index in self.sent if name == step], default=0)

    def inspects(self) -> None:
        with Ledger.open(self.path) as ledger:
            entries = ledger.entries()
            states = {(entry.key.step, entry.key.index): entry.state for entry in entries}
            assert len(states) == len(entries) == len(ledger.composition(Unit.RECORD).compositions[0].events)
            for (step, index), digest in self.sent.items():
                assert states[step, index] == "committed"
                assert sha256(ledger.reply(PLAN, step, index, REQUEST)).hexdigest().encode() == digest
            # Nor an over-count: at most one release of each step was paid for and not yet heard of.
            assert len(entries) <= len(self.sent) + len({step for step, _ in states})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    Ledger.create(tmp_path / "ledger.db").close()
    return tmp_path / "ledger.db"


@pytest.mark.long
@pytest.mark.slow
def test_killed_twice_at_points_of_the_code(tmp_path: Path) -> None:
    """40 times, at full size 120. Opening, reserving and committing: the first death falls on evenly spaced lines, the second anywhere."""
    random, count, rounds = Random(1), 2, sized(60, 20)
    Ledger.create(tmp_path / "measured.db").close()
    ended, said = gather(*fork(dying(releases(tmp_path / "measured.db", "release", 0, count), -1)))
    lines = int(said[count * LINE :])
    assert ended == 0
    heard = Counter()
    for number in range(rounds):
        path = tmp_path / f"{number}.db"
        Ledger.create(path).close()
        witness = Witness(path)
        for line in (lines * number // rounds, random.randrange(lines // 2)):
            work = releases(path, "release", witness.next("release"), 10**6)
            ended, said = gather(*fork(dying(work, line)))
            assert ended == -signal.SIGKILL
            witness.hears("release", said)
        heard[len(witness.sent)] += 1
        witness.inspects()
        anchor = path.with_name(path.name + ".anchor").read_bytes()
        assert anchor.count(b'"head"') == 1, "opening leaves one end of the chain"
        ended, said = gather(*fork(releases(path, "release", 0, witness.next("release") + 2)))
        assert ended == 0
        witness.hears("release", said)
        witness.inspects()
    assert set(heard) >= {0, 1}, "the deaths fell before and after the first sending"


@pytest.mark.long
@pytest.mark.slow
def test_two_processes_killed_at_any_moment_again_and_again(path: Path) -> None:
    # From outside, so also inside SQLite's own writing. The two share the ledger and die at different moments.
    witness, random, times = Witness(path), Random(2), sized(40, 15)
    for _ in range(times):
        children = {step: fork(releases(path, step, witness.next(step), 10**6)) for step in ("one", "two")}
        for step, (child, pipe) in children.items():
            time.sleep(random.uniform(0.01, 0.05))
            os.kill(child, signal.SIGKILL)
            ended, said = gather(child, pipe)
            witness.hears(step, said)
            witness.deaths[ended] += 1
        witness.inspects()
    assert witness.deaths == {-signal.SIGKILL: 2 * times}
    assert {step for step, _ in witness.sent} == {"one", "two"}


def test_a_database_rolled_back_by_one_row_after_a_crash_is_refused(path: Path) -> None:
    """A crash between steps 3 and 4 leaves two permitted ends; whoever opens the ledger next leaves one."""
    older = path.read_bytes()

    def work(_: int) -> None:
        with Ledger.open(path) as ledger:
            write = Anchor.write
            Anchor.write = lambda self, *heads: (
                write(self, *heads) if len(heads) > 1 else os.kill(os.getpid(), signal.SIGKILL)
            )
            ledger.reserve([charge("release", 0)], BUDGET)

    assert gather(*fork(work))[0] == -signal.SIGKILL
    with Ledger.open(path) as ledger:
        assert len(ledger.entries()) == 1
    path.write_bytes(older)
    with pytest.raises(LedgerDamaged, match="older copy"):
        Ledger.open(path)


@pytest.mark.long
@pytest.mark.slow
def test_eight_processes_race_for_the_last_budget(path: Path) -> None:
    for race in range(sized(10, 4)):
        fresh = path.with_name(f"race-{race}.db")
        Ledger.create(fresh).close()
        gate, start = os.pipe()

        def runner(number: int, gate: int = gate, fresh: Path = fresh) -> Callable[[int], None]:
            def work(pipe: int) -> None:
                with Ledger.open(fresh) as ledger:
                    os.write(pipe, b".")
                    os.read(gate, 1)
                    try:
                        ledger.reserve([charge("release", number, FULL)], BUDGET)
                        os.write(pipe, b"won")
                    except BudgetRefusal:
                        os.write(pipe, b"lost")

            return work

        children = [fork(runner(number)) for number in range(8)]
        for _, pipe in children:
            assert os.read(pipe, 1) == b"."
        os.write(start, bytes(8))
        ended = [gather(*child) for child in children]
        os.close(gate)
        os.close(start)
        assert sorted(ended) == [(0, b"lost")] * 7 + [(0, b"won")]
        with Ledger.open(fresh) as ledger:
            assert len(ledger.entries()) == 1


@pytest.mark.slow
def test_four_processes_write_side_by_side(path: Path) -> None:
    """None is refused, none waits forever, and the chain and its anchor are whole at the end."""
    witness = Witness(path)
    children = {step: fork(releases(path, step, 0, 25)) for step in ("one", "two", "three", "four")}
    for step, child in children.items():
        ended, said = gather(*child)
        assert ended == 0
        witness.hears(step, said)
    witness.inspects()
    assert len(witness.sent) == 100


def test_eight_processes_create_one_ledger(tmp_path: Path) -> None:
    def work(pipe: int) -> None:
        try:
            Ledger.create(tmp_path / "one.db").close()
            os.write(pipe, b"made")
        except UsageError:
            os.write(pipe, b"found")

    ended = [gather(*child) for child in [fork(work) for _ in range(8)]]
    assert sorted(ended) == [(0, b"found")] * 7 + [(0, b"made")]
    Ledger.open(tmp_path / "one.db").close()


def test_a_forked_child_opens_its_own(path: Path) -> None:
    with Ledger.open(path) as ledger, Ledger.in_memory() as memory:
        ledger.reserve([charge("release", 0)], BUDGET)

        def work(pipe: int) -> None:
            for inherited in (ledger, memory):
                with pytest.raises(UsageError, match="fork"):
                    inherited.reserve([charge("release", 1)], BUDGET)
                inherited.close()
            with Ledger.open(path) as own:
                own.reserve([charge("release", 1)], BUDGET)
            os.write(pipe, b"done")

        assert gather(*fork(work)) == (0, b"done")
        ledger.reserve([charge("release", 2)], BUDGET)
        assert [entry.key.index for entry in ledger.entries()] == [0, 1, 2]


@pytest.mark.long
@pytest.mark.slow
def test_a_fork_never_falls_into_a_transaction(path: Path) -> None:
    """A child that inherited half a transaction would roll it back under its parent when it closes its copy."""
    with Ledger.open(path) as ledger:
        stop = threading.Event()

        def write() -> None:
            index = 0
            while not stop.is_set():
                ledger.reserve([charge("release", index)], BUDGET)
                index += 1

        def work(_: int) -> None:
            assert not ledger._store.connection.in_transaction
            ledger.close()

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(20):
                assert gather(*fork(work)) == (0, b"")
        finally:
            stop.set()
            writer.join()
        assert len(ledger.entries()) > 1
    Ledger.open(path).close()


def test_writes_that_really_fail_debit_nothing(path: Path) -> None:
    """A limit on the size of files makes the kernel refuse, wherever in the protocol the writing is."""

    def work(pipe: int) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with Ledger.open(path) as ledger:
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            for limit in (0, 100, 512, 4096, path.stat().st_size):
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
                with pytest.raises(Refusal, match="othing is debited twice"):
                    ledger.reserve([charge("release", index) for index in range(100)], BUDGET)
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
                assert ledger.entries() == ()
            ledger.reserve([charge("release", index) for index in range(100)], BUDGET)
        os.write(pipe, b"healed")

    assert gather(*fork(work)) == (0, b"healed")
    with Ledger.open(path) as ledger:
        assert len(ledger.entries()) == 100
