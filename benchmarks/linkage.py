"""What linking rows costs a party: CPU time per id, beside 1.3 times the operations of the group that cannot be done without, as timed in this run.

Each party of K hashes its n ids and multiplies K + 1 times n points (K + 2 from four parties on, and adds K - 1 times); the rest is checks,
sealing, the ledger and the coder. Medians of the rounds; parties are timed one by one, in one process and one thread.

    python benchmarks/linkage.py --ids 5000 --parties 2 3 4 --out results.csv
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import resource
import statistics
import time
from pathlib import Path

import numpy as np

from unpooled.linkage import MODEL, group
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


def linked(ids: int, count: int) -> tuple[float, int]:
    """CPU seconds of the slowest party, and the bytes that a party sent and was sent."""
    parties, spent = {}, {}
    cards, ledgers, tables = [], {}, {}
    for k in range(count):
        name = f"party{k}"
        own = [*range(ids // 2), *range((k + 1) * ids, (k + 1) * ids + ids - ids // 2)]
        tables[name] = Table({"id": np.array([f"person {i}" for i in own], dtype=object)})
        ledgers[name] = Ledger.in_memory()
        cards.append(Card(name, ids, (), ("id",), Identity(ledgers[name].root_key).public))
        spent[name] = 0.0
    parameters = {"keys": [{"name": "id", "columns": ["id"]}]}
    plan = MODEL.compile(Study("link", tuple(cards), math.inf, 0.0, parameters=parameters, derived=()))
    for card in cards:
        keys = KeySource(ledgers[card.name].root_key)
        parties[card.name] = Party(card.name, tables[card.name], card, ledgers[card.name], keys, Policy.in_process(), load)

    def exchange(batch):
        answers = []
        for ask, request in batch:
            start = time.process_time()
            answers.append(parties[ask.to].answer(request))
            spent[ask.to] += time.process_time() - start
        return answers

    outcome = drive(MODEL, plan, exchange)
    assert outcome.result.rows == ids // 2
    for ledger in ledgers.values():
        ledger.close()
    return max(spent.values()), max(sum(bytes_.values()) for bytes_ in outcome.communication.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ids", type=int, default=5000)
    parser.add_argument("--parties", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    rows = []
    for count in chosen.parties:
        seconds, allowed = [], []
        for _ in range(chosen.rounds):
            t_hash, t_multiply, t_add = operations()
            spent, travelled = linked(chosen.ids, count)
            many = count > 3
            floor = t_hash + (count + 1 + many) * t_multiply + (count - 1) * t_add * many
            seconds.append(spent / chosen.ids * 1e6)
            allowed.append(1.3 * floor * 1e6)
        row = {
            "parties": count,
            "ids": chosen.ids,
            "us per id": round(statistics.median(seconds), 1),
            "allowed us per id": round(statistics.median(allowed), 1),
            "of allowed": round(statistics.median(s / a for s, a in zip(seconds, allowed, strict=True)), 2),
            "bytes per id": round(travelled / chosen.ids, 1),
            "peak MB of the process": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        }
        print(row, flush=True)
        rows.append(row)
    if chosen.out:
        with chosen.out.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
