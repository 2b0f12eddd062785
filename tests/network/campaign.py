"""Sampled faults of a networked study: processes that are killed, lines that are slow or lose or mix frames, parties that are started twice.

A point is drawn from a seed. It is met by one study of its own, which then goes on without a fault; the bits, the debits and what is kept must be those
of an unbroken run. Points of the desk have every party in a process of its own, behind pipes; points of the engine have the whole network on loopback.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import psutil
from faulty_network import Faulty, eventually
from test_killed import COORDINATOR, Process
from worlds import World, kept_digests

from unpooled.network.service import Silence, coordinate
from unpooled.privacy.plan import Study

#: The study that meets the faults: it ends where a party is silent, and its parties keep values and share a total.
CASE = "pride"
#: Parties that hold labels, so that they take part in every step.
PARTIES, STEPS = ("clinic", "laboratory"), ("sketch", "estimate")
DESK = (
    "party killed before its debit",
    "party killed after its debit",
    "party killed after it stored its reply",
    "coordinator killed before a frame",
    "coordinator killed after a frame",
    "request lost",
    "answer lost",
    "line that is slow",
    "frame twice",
    "older frame again",
    "answers exchanged",
    "party started twice",
    "two studies at once",
    "clock that jumps",
)
ENGINE = (
    "party's job killed",
    "coordinator's job killed",
    "site killed and started again",
    "server killed and started again",
)
#: The kill points of a desk's process by the kind of a point.
_DEATHS = dict(zip(DESK, ("asked", "debited", "stored"), strict=False))
#: Every so many points one is of the engine, which takes longer.
_ENGINE_EVERY = 6


class Point(NamedTuple):
    """One sampled fault: its kind, the party that it meets, the step, and the number of the frame."""

    number: int
    kind: str
    party: str
    step: str
    frame: int


def sampled(count: int, names: tuple[str, ...], steps: tuple[str, ...], frames: int, seed: int = 45) -> list[Point]:
    """Return this many points; kinds take turns, so that none is left out by chance, and the rest is drawn."""
    rng, found = random.Random(seed), []
    turns = {kinds: iter([]) for kinds in (DESK, ENGINE)}
    for number in range(1, count + 1):
        kinds = ENGINE if number % _ENGINE_EVERY == 0 else DESK
        kind = next(turns[kinds], None)
        if kind is None:
            turns[kinds] = iter(rng.sample(kinds, len(kinds)))
            kind = next(turns[kinds])
        found.append(Point(number, kind, rng.choice(names), rng.choice(steps), rng.randrange(frames)))
    return found


class Died(BaseException):
    """The coordinator's process is gone."""


class Line:
    """The line between a coordinator and its parties, which one point disturbs."""

    def __init__(
        self,
        opened: dict[str, Process],
        point: Point | None = None,
        second: Process | None = None,
        alone: dict[str, threading.Lock] | None = None,
    ) -> None:
        self.opened, self.point, self.second = opened, point, second
        self.frames: list[tuple[str, bytes]] = []
        self._lock, self._alone = threading.Lock(), alone or {name: threading.Lock() for name in opened}

    def __call__(self, party: str, frame: bytes, patience: float) -> bytes:
        del patience
        with self._lock:
            number = len(self.frames)
            self.frames.append((party, frame))
        kind = self.point.kind if self.point is not None else ""
        hit = self.point is not None and number == self.point.frame
        if hit and kind in {"coordinator killed before a frame", "request lost"}:
            raise Died if kind.startswith("coordinator") else Silence("lost on the way")
        if hit and kind == "line that is slow":
            time.sleep(1.5)
        if kind == "older frame again":
            older = [own for to, own in self.frames[:number] if to == party]
            if older:
                self._answer(party, older[number % len(older)])
        process = self.second if kind == "party started twice" and self.point.party == party and number % 2 else None
        answer = self._answer(party, frame, process)
        if kind == "frame twice":
            again = self._answer(party, frame, process)
            assert answer == again, "other bytes for the same frame"
        if hit and kind in {"coordinator killed after a frame", "answer lost"}:
            raise Died if kind.startswith("coordinator") else Silence("lost on the way back")
        if hit and kind == "answers exchanged":
            other = next(name for name in self.opened if name != party)
            own = next((asked for to, asked in self.frames if to == other), None)
            return answer if own is None else self._answer(other, own)
        return answer

    def _answer(self, party: str, frame: bytes, process: Process | None = None) -> bytes:
        with self._alone[party]:
            return (process or self.opened[party]).answer(frame)


@contextlib.contextmanager
def standing(world: World) -> Iterator[dict[str, Process]]:
    """The parties as processes of their own, which stay for many points."""
    opened = {name: Process(world, name) for name in world.names}
    try:
        yield opened
    finally:
        for process in opened.values():
            process.close()


@contextlib.contextmanager
def disturbed(world: World, stay: dict[str, Process], point: Point, *, after: bool = False) -> Iterator[dict[str, Process]]:
    """The same parties, but one is another process: it dies, or has a clock that jumps; ``after``: it was started again."""
    point_of = {**_DEATHS, "clock that jumps": "clock"}.get(point.kind)
    if point_of is None:
        yield stay
        return
    other = Process(world, point.party, "never" if after else point_of, point.step)
    try:
        yield {**stay, point.party: other}
    finally:
        other.close()


def once(world: World, study: Study, line: Line, out: Path, *, resume: bool) -> None:
    """Run a study, or go on with it, from the coordinator's machine."""
    coordinate(study, COORDINATOR, line, world.root / "studies", out, patience=60.0, resume=resume)


def frames_of(world: World, stay: dict[str, Process], study: Study, out: Path) -> list[tuple[str, bytes]]:
    """Return the frames of an undisturbed run."""
    world.approve(study)
    line = Line(stay)
    once(world, study, line, out, resume=False)
    return line.frames


def meet(world: World, stay: dict[str, Process], point: Point, folder: Path) -> Counter[str]:
    """Return what is wrong after a point of the desk (nothing)."""
    study = world.variant(run=100 + point.number)
    studies = [study, world.variant(run=1100 + point.number)] if point.kind == "two studies at once" else [study]
    for one in studies:
        world.approve(one)
    with contextlib.ExitStack() as stack:
        opened = stack.enter_context(disturbed(world, stay, point))
        second = Process(world, point.party) if point.kind == "party started twice" else None
        if second is not None:
            stack.callback(second.close)
        alone = {name: threading.Lock() for name in opened}
        work = [(one, Line(opened, point, second, alone), folder / str(one.run)) for one in studies]
        threads = [threading.Thread(target=_until_it_dies, args=(world, *own)) for own in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=120)
            assert not thread.is_alive(), "a study does not end"
    found = Counter[str]()
    for one in studies:
        found += between(world, one)
        out = folder / f"{one.run}-again"
        with disturbed(world, stay, point, after=True) as opened:
            once(world, one, Line(opened), out, resume=True)
        found += judged(world, one, out)
    return found


def _until_it_dies(world: World, study: Study, line: Line, out: Path) -> None:
    with contextlib.suppress(Died):
        once(world, study, line, out, resume=False)


def between(world: World, study: Study) -> Counter[str]:
    """Hold the ledgers after the fault: no release is debited twice, and none that the plan does not have."""
    found, planned = Counter[str](), world.planned(study)
    for name in world.names:
        keys = [entry.key for entry in world.entries(name, study)]
        found["debited twice"] += len(set(keys)) != len(keys) or len(keys) > planned[name]
    return +found


def judged(world: World, study: Study, out: Path) -> Counter[str]:
    """Hold the resumed study against the same one in this process."""
    found = between(world, study)
    local = world.in_process(study)
    file = out / "result.json"
    result = json.loads(file.read_text())["result"] if file.is_file() else None
    found["other bits"] += result != json.loads(msgspec.json.encode(msgspec.to_builtins(local.result)))
    found["lost"] += not world.fully_charged(study) or kept_digests(world, study) != world.kept_in_process
    return +found


def meet_engine(faulty: Faulty, point: Point) -> Counter[str]:
    """Return what is wrong after a point of the engine (nothing): a process is killed while the party is in a step."""
    study, server, faulty.victim = faulty.world.variant(run=point.number), "localhost", point.party
    held = faulty.held(point.step)
    held.touch()
    running = faulty.run(study, patience=5.0)
    try:
        eventually(held.with_suffix(".reached").exists, 60)
        victim = point.party if point.kind in {ENGINE[0], ENGINE[2]} else server
        whole = [psutil.Process(faulty.processes[victim].pid)] if "started again" in point.kind else []
        faulty.kill(*faulty.jobs(victim), *whole)
        said, _ = running.communicate(timeout=180)
    finally:
        held.unlink()
        held.with_suffix(".reached").unlink(missing_ok=True)
    assert running.returncode in {0, 2}, said
    found = between(faulty.world, study)
    if whole:
        faulty.restart(victim)
    try:
        faulty.finish(study)
    except AssertionError as error:
        found["lost"] += 1
        print(point, error)
    return +found
