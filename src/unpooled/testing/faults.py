"""Faults under every case: processes that are killed, files that may not grow, clocks that jump, two coordinators at once. Results and ledgers stay right.

Parties and the coordinator die at any line of the code that keeps promises: 1,000 deaths for each model at full size.
"""

from __future__ import annotations

import os
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec
import pytest

from unpooled.privacy.ledger.spending import read_export
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.transcript import Transcript
from unpooled.study.finished import moment
from unpooled.testing import disks as sqlite_files
from unpooled.testing.cases import FULL, Case
from unpooled.testing.processes import (
    COORDINATOR,
    REFUSED,
    SILENCE,
    DiskFault,
    World,
    campaign_of,
    entries_of,
    fork,
    gather,
    points,
    spelled,
)


def forking(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that forks."""
    return pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")(test)


@forking
def test_killed_at_any_line_and_started_again(case: Case, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    name, random = case.name, Random(case.name)
    own = [other for other in request.module.CASES if other.partition(",")[0] == name.partition(",")[0]]
    wanted = -(-1000 // len(own)) if FULL else 2
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


def room(free: int) -> None:
    """Let no file of this process grow beyond this number of bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (free, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def study_in(world: World, transcript: str = "transcript") -> Callable[[int], None]:
    """Return a function that runs the whole study in one process and writes its result to a pipe; an error of ours ends the process."""

    def work(pipe: int) -> None:
        record = Transcript.open(world.folder / transcript)
        with world.opened() as parties:
            os.write(pipe, spelled(drive(world.row, world.plan, in_process(parties), record).result))
        record.close()

    return work


@forking
def test_files_that_may_not_grow_refuse_in_words_and_nothing_is_lost(case: Case, tmp_path: Path) -> None:
    """The kernel refuses to write beyond a number of bytes, into ledgers, kept values or the transcript, whichever is first."""
    world = World(tmp_path / "world", case)
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


@pytest.mark.skipif(not sqlite_files.reachable(), reason="SQLite is part of this Python: its calls cannot be reached")
def test_a_fault_at_any_call_of_the_disk_costs_nothing_and_changes_nothing(case: Case, tmp_path: Path) -> None:
    """Parties, their ledgers and the coordinator in one process, which one fault meets at one of its calls of the file layer."""
    with campaign_of(tmp_path / "disk", case) as campaign:
        for fault in DiskFault:
            for at in points(campaign, fault, 100 if FULL else 4):
                assert campaign.meet(fault, at)[0] == {}, f"{fault} at {campaign.calm.calls[at]}"


@forking
def test_a_clock_that_jumps_changes_times_and_nothing_else(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock goes back to the year 1, forward beyond 9999, and jumps with every look. The sum that is spent does not depend on it."""
    world, random, real = World(tmp_path / "world", case), Random(case.name), time.time
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


@forking
def test_two_coordinators_at_once_hear_the_same_and_it_is_paid_for_once(case: Case, tmp_path: Path) -> None:
    """Each coordinator has its own processes of the parties over the same ledgers, once with noise from keys that nobody else has."""
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
