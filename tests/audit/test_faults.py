"""Processes that are killed, disks that are full, clocks that jump, coordinators and studies side by side: results and ledgers stay right.

Deaths of parties and of the coordinator at any line of what keeps promises, 1,000 for each model at full size (UNPOOLED_FULL=1).
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from cases import CASES
from world import FULL, sized

from unpooled.errors import BudgetRefusal
from unpooled.models import load
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.plan import Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.unit import Scope, Target, Unit
from unpooled.protocol.identity import MemoryKeeper
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.party import Party
from unpooled.testing.faults import *
from unpooled.testing.processes import REFUSED, World, entries_of, fork, gather, spelled

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
#: The cases of each model, which share its deaths; reduced to the first of each.
CASES_OF: dict[str, list[str]] = {}
for found in CASES:
    CASES_OF.setdefault(load(CASES[found]().model).name, []).append(found)
#: The cases that faults are tried on, and three or four models at reduced size.
ONLY = {
    "test_killed_at_any_line_and_started_again": [
        found for own in CASES_OF.values() for found in (own if FULL else own[:1])
    ],
    "test_files_that_may_not_grow_refuse_in_words_and_nothing_is_lost": sized(sorted(CASES), ["describe", "pride", "lasso"]),
    "test_a_fault_at_any_call_of_the_disk_costs_nothing_and_changes_nothing": sized(
        sorted(CASES), ["describe", "pride", "bayes", "lasso"]
    ),
    "test_a_clock_that_jumps_changes_times_and_nothing_else": ["describe", "lasso"],
    "test_two_coordinators_at_once_hear_the_same_and_it_is_paid_for_once": sized(
        sorted(CASES), ["describe", "pride", "bayes", "lasso"]
    ),
}


# --- disks that are full ------------------------------------------------------------------------------------------------------------


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


# --- side by side -----------------------------------------------------------------------------------------------------------------------


def runs(world: World, count: int) -> list[Study]:
    """The same question so many times, each with noise of its own."""
    return [msgspec.structs.replace(world.case.study, run=k + 1) for k in range(count)]


@pytest.mark.long
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
