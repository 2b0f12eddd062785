"""A party that is killed (-9) before, during or after its release, and started again: no second noise, no under-count."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from cases import CASES
from world import FULL, sized
from worlds import World, make_world

from unpooled.network.service import Silence, coordinate
from unpooled.privacy.unit import Unit
from unpooled.protocol.identity import Identity
from unpooled.protocol.transcript import Transcript
from unpooled.study.party import open_party

COORDINATOR = Identity(b"c" * 32)
#: The step of each model that releases something, and the party that is killed in it.
RELEASING = {"describe": ("sums", "coast"), "pride": ("sketch", "laboratory")}


class Process:
    """A desk in another process; silence once it is dead."""

    def __init__(self, world: World, name: str, point: str = "never", step: str = "") -> None:
        script = Path(__file__).with_name("desk_process.py")
        self.process = subprocess.Popen(
            [sys.executable, script, world.party(name), point, step, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def answer(self, frame: bytes) -> bytes:
        try:
            self.process.stdin.write(len(frame).to_bytes(8, "big") + frame)
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Silence("it is gone") from None
        size = self.process.stdout.read(8)
        if len(size) < 8:
            raise Silence("it was killed")
        return self.process.stdout.read(int.from_bytes(size, "big"))

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(timeout=30)
        self.process.stdout.close()


@contextlib.contextmanager
def network(world: World, victim: str = "", point: str = "never", step: str = "") -> Iterator[dict[str, Process]]:
    opened = {name: Process(world, name, point if name == victim else "never", step) for name in world.names}
    try:
        yield opened
    finally:
        for process in opened.values():
            process.close()


def run(world: World, opened: dict[str, Process], out: Path, *, resume: bool) -> dict:
    coordinate(
        world.study,
        COORDINATOR,
        lambda party, frame, _patience: opened[party].answer(frame),
        world.root / "studies",
        out,
        patience=60.0,
        resume=resume,
    )
    return json.loads(next(out.glob("re[sf]*.json")).read_text())


def spent(world: World, name: str) -> float:
    with open_party(world.party(name)) as party:
        return party.ledger.composition(Unit(world.study.unit)).epsilon(world.study.delta)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("model", sorted(RELEASING) if FULL else ["describe"])
@pytest.mark.parametrize(("point", "debited"), [("debited", True), ("asked", False), ("stored", True)][: sized(3, 1)])
def test_killed_and_restarted(model: str, point: str, debited: bool, tmp_path: Path) -> None:
    step, victim = RELEASING[model]
    world = make_world(tmp_path, CASES[model](), COORDINATOR.public)
    world.approve(world.study)
    # The noise of a real study depends on keys that nobody else has: the bits to compare with come from the party's own store.
    with network(world, victim, point, step) as opened:
        first = run(world, opened, tmp_path / "first", resume=False)
        assert opened[victim].process.wait(timeout=30) == -9
    assert (len(world.entries(victim, world.study)) > 0) is debited
    before = spent(world, victim)
    local = world.in_process(world.study)
    wanted = json.loads(msgspec.json.encode(msgspec.to_builtins(local.result)))
    if model == "describe":  # which bears a silence, and publishes what it has
        assert victim not in {row["source"] for row in first["result"]}
        record = next((tmp_path / "studies").glob("*/transcript"))
        record.rename(tmp_path / "published")  # another coordinator, who asks everybody
    else:
        assert victim in first["words"]
    with network(world) as opened:
        second = run(world, opened, tmp_path / "second", resume=True)
    assert second["result"] == wanted
    assert world.fully_charged(world.study)
    if debited:
        assert spent(world, victim) == before  # nothing was debited again
    assert spent(world, victim) > 0


@pytest.mark.long
@pytest.mark.slow
def test_real_noise_is_drawn_once(tmp_path: Path) -> None:
    """Without a simulation seed, noise comes from a key that only the party has: killed after its debit or after it stored its
    reply, it sends the coordinators of two transcripts the very same bytes."""
    step, victim = RELEASING["pride"]
    world = make_world(tmp_path, CASES["pride"](), COORDINATOR.public)
    world.study = world.variant(simulation_seed=None)
    plan = world.approve(world.study)
    file = tmp_path / "studies" / plan.hash[:32] / "transcript"
    for point in ("debited", "stored"):
        with network(world, victim, point, step) as opened:
            run(world, opened, tmp_path / point, resume=True)
            assert opened[victim].process.wait(timeout=30) == -9
    assert len(world.entries(victim, world.study)) == 1
    records = []
    for name in ("one", "two"):
        with network(world) as opened:
            run(world, opened, tmp_path / name, resume=True)
        transcript = Transcript.open(file)
        transcript.close()
        records.append([(e.to, e.request, e.reply) for e in transcript.entries])
        file.rename(tmp_path / f"{name}.transcript")
    assert records[0] == records[1]
    assert {to for to, _, _ in records[0]} == set(world.names)
    assert world.fully_charged(world.study)
