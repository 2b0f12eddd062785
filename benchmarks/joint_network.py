"""Joint moments of a million rows over a network on loopback: time, bytes, memory; and 25 kills at random messages, with the bits that a run without any has.

Two parties with 20 columns each, the second one with the response, and a registry that knows the masks. First over the engine, all members in processes of
their own. Then the members' desks answer over pipes, the coordinator is this process, and at 25 random messages the member that is asked is killed
(SIGKILL) before it answers, or after; it is started again, and the study goes on with --resume. ``UNPOOLED_ROWS`` and ``UNPOOLED_KILLS`` make it smaller.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec
import numpy as np
import polars as pl

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "network"), str(TESTS / "contract")]

from cases import Case  # noqa: E402
from test_killed import Process  # noqa: E402
from worlds import ANALYST, PRISTINE, Rehearsal, World, free_ports, moved  # noqa: E402

from unpooled.network.kits import provision  # noqa: E402
from unpooled.network.processes import up  # noqa: E402
from unpooled.network.service import Silence, coordinate  # noqa: E402
from unpooled.network.submit import run_networked  # noqa: E402
from unpooled.privacy.bounds import Column  # noqa: E402
from unpooled.privacy.plan import Study  # noqa: E402
from unpooled.privacy.unit import Target, Unit  # noqa: E402
from unpooled.protocol.identity import Identity  # noqa: E402
from unpooled.study.files import read_card, write_card  # noqa: E402
from unpooled.study.party import create_helper, create_party, open_party  # noqa: E402

ROWS = int(os.environ.get("UNPOOLED_ROWS", "1000000"))
KILLS = int(os.environ.get("UNPOOLED_KILLS", "25"))
OWN, HELPER, EPSILON = 20, "registry", 1.0
COORDINATOR = Identity(b"c" * 32)


def world_of(root: Path, coordinator: str) -> World:
    """The organisations on disk."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 2 * OWN)).clip(-4, 4)
    y = (x @ rng.normal(size=2 * OWN) / 8 + rng.normal(size=ROWS)).clip(-6, 6)
    cards = []
    for k, name in enumerate(("east", "west")):
        home = root / name
        home.mkdir(parents=True)
        columns = tuple(Column(f"x{j}", -4.0, 4.0) for j in range(k * OWN, (k + 1) * OWN))
        values = {c.name: x[:, k * OWN + j] for j, c in enumerate(columns)}
        if k:
            columns, values = (*columns, Column("y", -6.0, 6.0)), values | {"y": y}
        pl.DataFrame(values).write_parquet(home / "data.parquet")
        create_party(home, name, home / "data.parquet", columns, Target(10 * EPSILON, 1e-5, Unit.RECORD), new_budget=True)
        config = home / "party.toml"
        text = config.read_text().replace("allow_simulation = false", "allow_simulation = true")
        config.write_text(text.replace('joint = "no"', 'joint = "allowed"'))
        with open_party(config) as party:
            (home / f"{name}.card.toml").write_text(write_card(party.declared))
        cards.append(read_card(home / f"{name}.card.toml"))
    config, own = create_helper(root / HELPER, HELPER)
    config.write_text(config.read_text() + "allow_simulation = true\n")
    parameters = {"response": "y", "split": "columns", "method": "moments"}
    study = Study("bayes", tuple(cards), EPSILON, 1e-6, parameters=parameters, simulation_seed=7, derived=())
    study = msgspec.structs.replace(study, helpers=(read_card(own),), coordinator=coordinator)
    return World(root, Case("large", study, {}), study)


def over_the_engine(folder: Path) -> None:
    """One run, all members in processes of the engine."""
    port, admin = free_ports()
    lines = [
        "[network]",
        'name = "large"',
        'server = "localhost"',
        f'analyst = "{ANALYST}"',
        f"port = {port}",
        f"admin_port = {admin}",
    ]
    for name in ("east", "west", HELPER):
        lines += ["[[party]]", f'name = "{name}"', f'config = "parties/{name}/party.toml"']
    (folder / "network.toml").write_text("\n".join(lines) + "\n")
    public = provision(folder / "network.toml", folder / "kits")
    world = world_of(folder / "parties", public)
    made = Rehearsal(folder / "kits", {"large": world})
    plan = world.approve(world.study)
    with up(made.kits):
        began = time.monotonic()
        run_networked(world.study, made.user, folder / "out", lambda _: None)
        whole = time.monotonic() - began
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    record = json.loads((folder / "out" / "result.json").read_text())
    print(
        f"{ROWS:,} rows over the engine: {whole:.0f} s from submission to result; the largest process held {largest:.2f} GB"
    )
    for name, own in record["communication"].items():
        print(f"  {name}: sent {own['sent'] / 1e6:.1f} MB, received {own['received'] / 1e6:.1f} MB")
    design = plan.design
    masked = {part.party: 8 * part.columns * ROWS / 1e6 for part in design.shape.parts}
    print(
        f"  masked values alone, MB: {', '.join(f'{name} {size:.0f}' for name, size in masked.items())}; {len(design.shape.row_blocks)} blocks"
    )


def with_kills(folder: Path) -> None:
    """Kills at random messages, against a run without any over copies of the same organisations."""
    world = world_of(folder, COORDINATOR.public)
    for name in world.names:
        shutil.copytree(world.root / name, world.root / PRISTINE / name)
    world.approve(world.study)
    began = time.monotonic()
    calm = drive_calmly(world, folder)
    alone = time.monotonic() - began
    rng = np.random.default_rng(1)
    opened = {name: Process(world, name) for name in world.names}
    seen, kills, resumes = Counter[str](), 0, 0
    messages = calm["messages"]
    due = sorted(rng.choice(np.arange(1, messages), min(KILLS, messages - 1), replace=False).tolist())

    turn = Lock()  # one message at a time: a pipe has one reader

    def call(party: str, frame: bytes, _patience: float) -> bytes:
        with turn:
            return answered(party, frame)

    def answered(party: str, frame: bytes) -> bytes:
        nonlocal kills
        seen["all"] += 1
        if kills < len(due) and seen["all"] >= due[kills] + 1:
            kills += 1
            early = bool(rng.random() < 0.5)
            if not early:
                opened[party].answer(frame)  # it answered, and nobody heard it
            os.kill(opened[party].process.pid, signal.SIGKILL)
            opened[party].close()
            opened[party] = Process(world, party)
            raise Silence("it was killed")
        return opened[party].answer(frame)

    began = time.monotonic()
    found: dict[str, Any] = {}
    while "result" not in found and resumes <= 2 * KILLS:
        out = folder / f"out-{resumes}"
        coordinate(world.study, COORDINATOR, call, folder / "studies", out, patience=600.0, resume=resumes > 0)
        found = json.loads(next(out.glob("re[sf]*.json")).read_text())
        resumes += 1
    for process in opened.values():
        process.close()
    print(
        f"{ROWS:,} rows with {kills} kills: {time.monotonic() - began:.0f} s and {seen['all']} messages (without: {alone:.0f} s and {messages}); "
        f"equal bits: {found.get('result') == calm['result']}; debited as planned: {world.fully_charged(world.study)}"
    )


def drive_calmly(world: World, folder: Path) -> dict[str, Any]:
    """The same run without kills over copies: its result and its number of messages."""
    copy = folder / "calm"
    shutil.copytree(world.root / PRISTINE, copy)
    moved(copy)
    twin = World(copy, world.case, world.study)
    twin.approve(world.study)
    opened, count, turn = {name: Process(twin, name) for name in twin.names}, 0, Lock()

    def call(party: str, frame: bytes, _patience: float) -> bytes:
        nonlocal count
        with turn:
            count += 1
            return opened[party].answer(frame)

    coordinate(world.study, COORDINATOR, call, folder / "calm-studies", folder / "calm-out", patience=600.0, resume=False)
    for process in opened.values():
        process.close()
    found = json.loads(next((folder / "calm-out").glob("re[sf]*.json")).read_text())
    return {"result": found["result"], "messages": count}


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        for part in (over_the_engine, with_kills):
            folder = Path(name) / part.__name__
            folder.mkdir()
            part(folder)


if __name__ == "__main__":
    main()
