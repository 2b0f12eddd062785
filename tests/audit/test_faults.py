"""Processes that are killed, disks that are full, clocks that jump, coordinators and studies side by side: results and ledgers stay right.

Deaths of parties and of the coordinator at any line of what keeps promises, 1,000 for each model at full size (UNPOOLED_FULL=1).
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import resource
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import msgspec
import pytest
from cases import CASES
from faulty import COORDINATOR, REFUSED, SILENCE, World, entries_of, fork, gather, spelled
from world import FULL, sized

from unpooled.errors import BudgetRefusal
from unpooled.models import load
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.ledger.export import read_export
from unpooled.privacy.plan import Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.unit import Scope, Target, Unit
from unpooled.protocol.keeper import MemoryKeeper
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.party import Party
from unpooled.protocol.transcript import Transcript
from unpooled.study.about import moment

pytestmark = [pytest.mark.no_cover, pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")]
#: The cases of each model, which share its deaths; CI takes the first of each.
CASES_OF: dict[str, list[str]] = {}
for found in CASES:
    CASES_OF.setdefault(load(CASES[found]().model).name, []).append(found)
TAKEN = [found for own in CASES_OF.values() for found in (own if FULL else own[:1])]


@pytest.mark.parametrize("name", TAKEN)
def test_killed_at_any_line_and_started_again(name: str, tmp_path: Path) -> None:
    case, random = CASES[name](), Random(name)
    wanted = -(-1000 // len(CASES_OF[load(case.model).name])) if FULL else 2
    measuring = World(tmp_path / "measured", case)
    ends = measuring.attempt(dict.fromkeys([*measuring.names, COORDINATOR], -1))
    assert [end.code for end in ends.values()] == [0] * len(ends)
    lines = {who: int(end.said.rpartition(b"\n")[2]) for who, end in ends.items()}
    deaths, number = Counter(), 0
    while deaths.total() < wanted:
        world, over = World(tmp_path / str(number), case), False
        calm, number = world.calm(), number + 1
        while not over:
            victim = random.choice(sorted(lines))
            line = random.randrange(lines[victim]) if deaths.total() < wanted else None
            ends = world.attempt({} if line is None else {victim: line})
            died = ends[victim].code == -signal.SIGKILL
            deaths[victim] += died
            over = ends[COORDINATOR].code == 0
            assert over or died, ends
            for who, end in ends.items():
                assert end.code in ({0, SILENCE} if who == COORDINATOR else {0}) | {-signal.SIGKILL}
            if over:
                assert ends[COORDINATOR].said == calm.result
            world.inspect(calm, over=over)
    print(f"{name}: {dict(deaths)} in {number} studies of {lines} lines")
    assert deaths.total() == wanted


# --- disks that are full ------------------------------------------------------------------------------------------------------------


def room(free: int) -> None:
    """No file of this process may grow beyond so many bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (free, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def study_in(world: World, transcript: str = "transcript") -> Callable[[int], None]:
    """The whole study in one process; the result is said, an error of ours ends it."""

    def work(pipe: int) -> None:
        record = Transcript.open(world.folder / transcript)
        with world.opened() as parties:
            os.write(pipe, spelled(drive(world.row, world.plan, in_process(parties), record).result))
        record.close()

    return work


@pytest.mark.parametrize("name", sized(sorted(CASES), ["describe", "pride", "lasso"]))
def test_files_that_may_not_grow_refuse_in_words_and_nothing_is_lost(name: str, tmp_path: Path) -> None:
    """The kernel refuses to write beyond so many bytes: into ledgers, kept values or the transcript, whichever is first."""
    world = World(tmp_path / "world", CASES[name]())
    calm = world.calm()
    size = max(world.ledger(name).stat().st_size for name in world.names)
    words = set()
    for free in (0, 300, 5000, size, size + 4096, 2 * size):

        def cramped(pipe: int, free: int = free) -> None:
            room(free)
            study_in(world)(pipe)

        ended = gather(*fork(cramped))
        assert ended.code in {0, REFUSED}
        if ended.code:
            words.add(ended.said.partition(b":")[0])
        world.inspect(calm, over=not ended.code)
    assert b"Refusal" in words
    assert words <= {b"Refusal", b"OSError"}  # never that the ledger is damaged
    assert gather(*fork(study_in(world))) == (0, calm.result)
    world.inspect(calm, over=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("file systems may not be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_is_full_and_gets_room_again(small_disk: Path) -> None:
    world = World(small_disk / "world", CASES["pride"]())
    calm, ballast, refused = world.calm(), small_disk / "ballast", 0
    for left in (0, 4096, 16384, 65536):
        free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
        ballast.write_bytes(bytes(max(0, free - left)))
        ended = gather(*fork(study_in(world)))
        assert ended.code in {0, REFUSED}
        refused += ended.said.startswith((b"Refusal", b"OSError"))
        ballast.unlink()
        world.inspect(calm, over=not ended.code)
    assert refused
    assert gather(*fork(study_in(world))) == (0, calm.result)
    world.inspect(calm, over=True)


# --- clocks that jump ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["describe", "lasso"])
def test_a_clock_that_jumps_changes_times_and_nothing_else(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Back to the year 1, forward beyond 9999, a leap with every look: what is spent does not depend on when."""
    world, random, real = World(tmp_path / "world", CASES[name]()), Random(name), time.time
    calm, looks = world.calm(), []

    def jumping() -> float:
        looks.append(random.choice((0.0, -6.2e10, 4.0e11, -1.0, 2.0**31, 2.0**33, real() - 1e9, real() + 1e9)))
        return looks[-1]

    monkeypatch.setattr(time, "time", jumping)
    record = Transcript.open(tmp_path / "transcript")
    with world.opened() as parties:
        assert spelled(drive(world.row, world.plan, in_process(parties), record).result) == calm.result
        times = {entry.time for party in parties.values() for entry in party.ledger.entries()}
    record.close()
    assert looks
    assert len(times) > 1, "the clock did jump between entries"
    with world.opened() as parties:
        for own, party in parties.items():
            assert entries_of(party.ledger) == calm.entries[own]
            told = read_export(party.ledger.export()).entries()
            assert told == party.ledger.entries()
            assert all(len(moment(entry.time)) in {0, 16} for entry in told)


# --- side by side -----------------------------------------------------------------------------------------------------------------------


def runs(world: World, count: int) -> list[Study]:
    """The same question so many times, each with noise of its own."""
    return [msgspec.structs.replace(world.case.study, run=k + 1) for k in range(count)]


@pytest.mark.parametrize("name", sized(sorted(CASES), ["describe", "pride", "bayes", "lasso"]))
def test_two_coordinators_at_once_hear_the_same_and_it_is_paid_for_once(name: str, tmp_path: Path) -> None:
    """Each with its own processes of the parties over the same ledgers; once with the noise that parties draw from keys nobody else has."""
    case = CASES[name]()
    world = World(tmp_path / "world", case)
    for study in (case.study, msgspec.structs.replace(case.study, simulation_seed=None)):
        world.plan = world.row.compile(study)
        children = [fork(study_in(world, f"transcript-{study.simulation_seed}-{k}")) for k in range(3)]
        ended = [gather(*child) for child in children]
        assert ended == [(0, ended[0].said)] * 3
        calm = world.calm()
        assert ended[0].said == calm.result
        with world.opened() as parties:
            for own, party in parties.items():
                assert sorted(e for e in entries_of(party.ledger) if e[4] == world.plan.hash) == sorted(calm.entries[own])


def test_fifty_studies_at_the_same_parties_add_up(tmp_path: Path) -> None:
    """Ten coordinators with five studies each, over the same ledgers: every result is the one without company, and the sum is exact."""
    world = World(tmp_path / "world", CASES["describe"]())
    studies = runs(world, 50)

    def some(first: int) -> Callable[[int], None]:
        def work(pipe: int) -> None:
            with world.opened() as parties:
                for study in studies[first::10]:
                    result = drive(world.row, world.row.compile(study), in_process(parties)).result
                    os.write(pipe, spelled(result) + b"\n\n\n")

        return work

    ended = [gather(*child) for child in [fork(some(first)) for first in range(10)]]
    assert [end.code for end in ended] == [0] * 10
    for first, end in enumerate(ended):
        assert end.said.split(b"\n\n\n")[:-1] == [world.calm(study).result for study in studies[first::10]]
    alone = {name: world.party(name, Ledger.in_memory(world.roots[name]), MemoryKeeper()) for name in world.names}
    for study in studies:
        drive(world.row, world.row.compile(study), in_process(alone))
    with world.opened() as parties:
        for own, party in parties.items():
            assert sorted(entries_of(party.ledger)) == sorted(entries_of(alone[own].ledger))
            for unit, scope in itertools.product(Unit, Scope):
                together, one_by_one = (p.ledger.composition(unit, scope) for p in (party, alone[own]))
                assert together.epsilon(1e-5) == pytest.approx(one_by_one.epsilon(1e-5), rel=1e-12)


def test_fifty_studies_race_for_the_last_of_the_budget(tmp_path: Path) -> None:
    """Every party answers as many as one after the other would have room for, whichever come first, and no ledger is overdrawn."""
    room, case = Target(2.0, 1e-5), CASES["describe"]()
    world = World(tmp_path / "world", case, dataclasses.replace(Policy.in_process(), budget=room))
    studies = runs(world, 50)

    def ask(parties: dict[str, Party], chosen: list[Study]) -> None:
        for study in chosen:
            with contextlib.suppress(BudgetRefusal):
                drive(world.row, world.row.compile(study), in_process(parties))

    def some(first: int) -> Callable[[int], None]:
        def work(_: int) -> None:
            with world.opened() as parties:
                ask(parties, studies[first::5])

        return work

    ended = [gather(*child) for child in [fork(some(first)) for first in range(5)]]
    assert ended == [(0, b"")] * 5
    alone = {name: world.party(name, Ledger.in_memory(), MemoryKeeper()) for name in world.names}
    ask(alone, studies)
    with world.opened() as parties:
        for own, party in parties.items():
            assert 0 < len(party.ledger.entries()) < 50
            assert len(party.ledger.entries()) == len(alone[own].ledger.entries())
            assert party.ledger.composition(Unit.RECORD, Scope.PERSON).epsilon(room.delta) <= room.epsilon
