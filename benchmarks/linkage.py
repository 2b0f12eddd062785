"""What linking rows costs a party: CPU time, memory and bytes, beside the operations of the group that cannot be done without, and beside openmined-psi.

Each party of K hashes its n ids and multiplies K + 1 times n points (K + 2 from four parties on, and adds K - 1 times); the rest is checks,
sealing, the ledger and the coder. Every party is a process of its own; the time is that of its CPU, in one thread, and the dearest party counts.
``of allowed`` is that over 1.3 times the operations, as timed in this run. Medians of the rounds.

openmined-psi (another protobuf, so an environment of its own, whose Python ``UNPOOLED_OPENMINED`` names) links two parties, of whom one learns the result. For all
to learn it every party is once its client and once its server with each other one: that, per party, is what ``over openmined`` divides by. For three and more parties
it tells more than ``link`` does, the intersection of every pair.

    python benchmarks/linkage.py --ids 5000 --parties 2 3 4 --out results.csv
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import multiprocessing
import os
import statistics
import subprocess
import time
from pathlib import Path

import numpy as np
from board import note

from unpooled.linkage import MODEL
from unpooled.linkage import masking as group
from unpooled.models import load
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.noise import KeySource
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.protocol.identity import Identity
from unpooled.protocol.local import drive
from unpooled.protocol.party import Party

SAMPLE = 2000


def operations() -> tuple[float, float, float]:
    """Seconds of one hash to the group, one multiplication, one addition."""
    contents, factor = [os.urandom(40) for _ in range(SAMPLE)], group.scalar(os.urandom(32))
    start = time.process_time()
    points = [group.hashed(content) for content in contents]
    hashed = time.process_time()
    found = group.times(factor, points)
    multiplied = time.process_time()
    group.summed([points, found])
    added = time.process_time()
    return (hashed - start) / SAMPLE, (multiplied - hashed) / SAMPLE, (added - multiplied) / SAMPLE


def megabytes() -> float:
    """The most memory that this process has had (Linux; the system's own count begins with that of the process which started this one)."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024


def party(pipe, k: int, ids: int, card: Card, root: bytes) -> None:
    """A party as a process: bytes in, bytes out, and in the end its CPU time and its memory, before it had any id and at most."""
    os.environ["OMP_NUM_THREADS"] = "1"
    before, spent = megabytes(), 0.0
    own = [*range(ids // 2), *range((k + 1) * ids, (k + 1) * ids + ids - ids // 2)]
    table = Table({"id": np.array([f"person {i}" for i in own], dtype=object)})
    ledger = Ledger.in_memory(root)
    answering = Party(card.name, table, card, ledger, KeySource(root), Policy.in_process(), load)
    while request := pipe.recv_bytes():
        start = time.process_time()
        answer = answering.answer(request)
        spent += time.process_time() - start
        pipe.send_bytes(answer)
    ledger.close()
    pipe.send((spent, before, megabytes()))


def linked(ids: int, count: int) -> tuple[float, int, float, float]:
    """CPU seconds of the slowest party, bytes that a party sent and was sent, its memory in MB at the start and at most."""
    spawning = multiprocessing.get_context("spawn")
    roots = [os.urandom(32) for _ in range(count)]
    cards = tuple(Card(f"party{k}", ids, (), ("id",), Identity(root).public) for k, root in enumerate(roots))
    parameters = {"keys": [{"name": "id", "columns": ["id"]}]}
    plan = MODEL.compile(Study("link", cards, math.inf, 0.0, parameters=parameters, derived=()))
    pipes, processes = {}, []
    for k, (card, root) in enumerate(zip(cards, roots, strict=True)):
        pipes[card.name], theirs = spawning.Pipe()
        processes.append(spawning.Process(target=party, args=(theirs, k, ids, card, root)))
        processes[-1].start()

    def exchange(batch):
        answers = []
        for ask, request in batch:
            pipes[ask.to].send_bytes(request)
            answers.append(pipes[ask.to].recv_bytes())
        return answers

    outcome = drive(MODEL, plan, exchange)
    assert outcome.result.rows == ids // 2
    told = []
    for pipe, process in zip(pipes.values(), processes, strict=True):
        pipe.send_bytes(b"")
        told.append(pipe.recv())
        process.join()
    spent, before, most = (max(one) for one in zip(*told, strict=True))
    return spent, max(sum(sizes.values()) for sizes in outcome.communication.values()), before, most


def peer(ids: int) -> dict[str, float] | None:
    """openmined-psi on as many ids, in its own Python; None where there is none."""
    python = os.environ.get("UNPOOLED_OPENMINED")
    if not python:
        return None
    script = Path(__file__).with_name("openmined_psi.py")
    told: dict[str, float] = json.loads(subprocess.run([python, script, str(ids)], check=True, capture_output=True).stdout)
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ids", type=int, default=5000)
    parser.add_argument("--parties", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    if not os.environ.get("UNPOOLED_OPENMINED"):
        print("openmined-psi is left out: UNPOOLED_OPENMINED does not name the Python of an environment with it")
    rows = []
    for count in chosen.parties:
        seconds, allowed, beside, peers = [], [], [], []
        for _ in range(chosen.rounds):
            t_hash, t_multiply, t_add = operations()
            spent, travelled, before, most = linked(chosen.ids, count)
            many = count > 3
            floor = t_hash + (count + 1 + many) * t_multiply + (count - 1) * t_add * many
            seconds.append(spent / chosen.ids * 1e6)
            allowed.append(1.3 * floor * 1e6)
            other = peer(chosen.ids)
            if other is not None:
                peers.append(other)
                beside.append((count - 1) * (other["server us per id"] + other["client us per id"]))
        row = {
            "parties": count,
            "ids": chosen.ids,
            "us per id": round(statistics.median(seconds), 1),
            "allowed us per id": round(statistics.median(allowed), 1),
            "of allowed": round(statistics.median(s / a for s, a in zip(seconds, allowed, strict=True)), 2),
            "bytes per id": round(travelled / chosen.ids, 1),
            "peak MB of a party": round(most),
            "of them before any id": round(before),
        }
        if peers:
            row |= {
                "openmined us per id": round(statistics.median(beside), 1),
                "over openmined": round(statistics.median(s / b for s, b in zip(seconds, beside, strict=True)), 2),
                # A client and a server, once each with every other party.
                "openmined bytes per id": round(2 * (count - 1) * peers[0]["bytes per id"], 1),
            }
        note(f"linking, {count} parties", "1.3 times its operations of the group", row["of allowed"], "1")
        if peers:
            note(f"linking, {count} parties", "openmined-psi", row["over openmined"], "1")
        print(row, flush=True)
        rows.append(row)
    if chosen.out:
        with chosen.out.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
