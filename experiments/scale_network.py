"""Twelve organisations and a coordinator as processes of this machine: time, bytes and memory of one study, beside the formula for its bytes.

Run as ``python -m experiments.scale_network [--full]``; writes ``results/scale/network.md``. Reduced: three organisations. Everything is on loopback.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
from experiments.common import run, write_table
from experiments.secure_sum_bytes import SecureSum

TESTS = Path(__file__).parents[1] / "tests"
ROWS_EACH, FEATURES = 1000, 20


def resident(pids: list[int]) -> float:
    """Megabytes of these processes and all that they started."""
    import psutil

    found = 0
    for pid in pids:
        try:
            top = psutil.Process(pid)
            found += sum(one.memory_info().rss for one in (top, *top.children(recursive=True)))
        except psutil.NoSuchProcess:
            continue
    return found / 1e6


def main(full: bool) -> None:
    """The table."""
    sys.path[:0] = [str(TESTS), str(TESTS / "network"), str(TESTS / "contract")]
    import cases
    from worlds import make_rehearsal

    from unpooled.network.processes import up
    from unpooled.network.submit import run_networked
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.plan import Card, Study
    from unpooled.privacy.table import Table
    from unpooled.protocol.messages import open_envelope
    from unpooled.protocol.transcript import Transcript

    parties = 12 if full else 3
    names, rng = [f"site{k:02}" for k in range(parties)], np.random.default_rng(0)
    columns = tuple(Column(f"x{j}", -3.0, 3.0) for j in range(FEATURES + 1))
    tables = {name: Table({c.name: rng.normal(size=ROWS_EACH) for c in columns}) for name in names}
    cards = tuple(Card(name, ROWS_EACH, columns) for name in names)
    parameters = {"response": "x0", "method": "moments", "tolerate": 1}
    study = Study("bayes", cards, 1.0, 1e-6, parameters=parameters, simulation_seed=1, derived=())
    cases.CASES["scale"] = lambda: cases.Case("scale", study, tables)
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as name:
        made = make_rehearsal(Path(name), "scale")
        world = made.worlds["scale"]
        began = time.monotonic()
        with up(made.kits, 240.0) as processes:
            ready = time.monotonic() - began
            memory, done = [resident([p.pid for p in processes.values()])], threading.Event()

            def look(pids: list[int]) -> None:
                while not done.wait(1.0):
                    memory.append(resident(pids))

            watch = threading.Thread(target=look, args=([p.pid for p in processes.values()],))
            watch.start()
            asked = msgspec.structs.replace(world.study, run=1)
            plan = world.approve(asked)
            began = time.monotonic()
            out = Path(name) / "out"
            run_networked(asked, made.user, out, print)
            seconds = time.monotonic() - began
            done.set()
            watch.join()
        sent: Counter[str] = Counter()
        for entry in Transcript.open(next(made.kits.rglob("transcript"))).entries:
            sent[open_envelope(entry.request).step] += len(entry.request) + len(entry.reply or b"")
    size = plan.release(names[0], "moments").size
    formula = SecureSum("moments", names, 2, size).whole
    found = sum(count for step, count in sent.items() if step.startswith("moments-"))
    assert found == formula
    told = (
        parties,
        f"{ready:.0f}",
        f"{seconds:.1f}",
        sum(sent.values()),
        found,
        formula,
        f"{memory[0] / (parties + 1):.0f}",
        f"{max(memory) / (parties + 1):.0f}",
    )
    write_table(
        "scale/network",
        "A regression by second moments between organisations on loopback",
        (
            "parties",
            "s until connected",
            "s from submission to result",
            "bytes of the study",
            "bytes of its sum",
            "formula",
            "MB each before",
            "MB each at most",
        ),
        [tuple(map(str, told))],
        f"{FEATURES} features, two nodes, {ROWS_EACH} rows each; memory over the processes of parties and server, children included, shared pages counted by each.",
    )


if __name__ == "__main__":
    run(main)
