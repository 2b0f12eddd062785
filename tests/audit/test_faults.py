"""Processes that are killed, disks that are full, clocks that jump, coordinators and studies side by side: results and ledgers stay right.

Deaths of parties and of the coordinator at any line of what keeps promises, 1,000 for each model at full size (UNPOOLED_FULL=1).
"""

from __future__ import annotations

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
from faulty import COORDINATOR, REFUSED, SILENCE, World, counting, entries_of, fork, gather, recorded, spelled
from world import FULL, sized

from unpooled.errors import BudgetRefusal, LedgerDamaged, Refusal
from unpooled.models import load
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.policy import Policy
from unpooled.privacy.unit import Scope, Target, Unit
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.transcript import Transcript

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
    refused = 0
    for free in (0, 300, 5000, size, size + 4096, 2 * size):

        def cramped(pipe: int, free: int = free) -> None:
            room(free)
            study_in(world)(pipe)

        ended = gather(*fork(cramped))
        assert ended.code in {0, REFUSED}
        if ended.code:
            refused += 1
            assert ended.said.startswith((b"Refusal", b"LedgerDamaged")) is False or b"disk" in ended.said or b"room" in ended.said
        world.inspect(calm, over=not ended.code)
    assert refused
    assert gather(*fork(study_in(world))) == (0, calm.result)
    world.inspect(calm, over=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, check=False)
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
        refused += ended.code == REFUSED
        ballast.unlink()
        world.inspect(calm, over=not ended.code)
    assert refused
    assert gather(*fork(study_in(world))) == (0, calm.result)
    world.inspect(calm, over=True)
