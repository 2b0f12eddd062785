"""What grows how: one secure sum of up to 200 parties, and one pass over up to ten million rows, each measured in a process of its own.

Run as ``python -m experiments.scale [--full]``; writes the tables of docs/sources.md under ``results/scale``. Reduced: fewer parties and rows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
from experiments.common import run, write_table
from experiments.secure_sum_bytes import SecureSum

ROWS_EACH = 30
#: (parties, tolerated, features)
SUMS = [(12, 0, 20), (50, 0, 20), (200, 0, 20), (200, 20, 20), (200, 0, 100)]
SUMS_REDUCED = [(12, 0, 20), (50, 5, 20)]
#: (rows, columns)
PASSES = [(100_000, 20), (1_000_000, 5), (1_000_000, 20), (1_000_000, 50), (10_000_000, 20)]
#: (parties, nodes, features), on paper.
PAPER = [
    (12, 2, 20),
    (200, 2, 20),
    (1000, 2, 20),
    (1000, 11, 20),
    (1000, 101, 20),
    (1000, 1000, 20),
    (1000, 2, 200),
    (1000, 2, 700),
]
PASSES_REDUCED = [(100_000, 5), (100_000, 20)]
REPEATS = 3


def peak() -> float:
    """Megabytes: the most memory that this process has had."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024


def secure_sum(parties: int, tolerate: int, features: int) -> dict[str, float]:
    """The moments of a regression over so many parties of this process: seconds and bytes of the one sum."""
    from unpooled.models import load
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.ledger import Ledger
    from unpooled.privacy.noise import KeySource
    from unpooled.privacy.plan import Card, Study
    from unpooled.privacy.policy import Policy
    from unpooled.privacy.table import Table
    from unpooled.protocol.local import drive, in_process
    from unpooled.protocol.party import Party

    names, rng = [f"site{k:03}" for k in range(parties)], np.random.default_rng(0)
    columns = tuple(Column(f"x{j}", -3.0, 3.0) for j in range(features + 1))
    cards = tuple(Card(name, ROWS_EACH, columns) for name in names)
    parameters = {"response": "x0", "method": "moments", "tolerate": tolerate}
    study = Study("bayes", cards, 1.0, 1e-6, parameters=parameters, derived=())
    model = load("bayes")
    began = time.perf_counter()
    plan = model.compile(study)
    compiled = time.perf_counter() - began
    opened, shared = {}, replace(model, compile_plan=lambda _: plan)  # each party would compile it: that is timed once
    for card in cards:
        ledger = Ledger.in_memory()
        table = Table({c.name: rng.normal(size=ROWS_EACH) for c in columns})
        opened[card.name] = Party(
            card.name, table, card, ledger, KeySource(ledger.root_key), Policy.in_process(), lambda _: shared
        )
    exchange, sent, seconds = in_process(opened), Counter(), Counter()
    before = peak()

    def watched(batch):
        start = time.perf_counter()
        answers = exchange(batch)
        step = batch[0][0].step
        seconds[step] += time.perf_counter() - start
        sent[step] += sum(len(request) + len(answer) for (_, request), answer in zip(batch, answers, strict=True))
        return answers

    drive(model, plan, watched)
    steps = ("moments-fragment", "moments-agree", "moments-total")
    size = plan.release(names[0], "moments").size
    return {
        "compile": compiled,
        "fragment": seconds[steps[0]] / parties,
        "node": seconds[steps[2]] / max(2, tolerate + 1),
        "all": sum(seconds[step] for step in steps),
        "bytes": sum(sent[step] for step in steps),
        "formula": SecureSum("moments", names, max(2, tolerate + 1), size).whole,
        "open": sent["open"],
        "numbers": size,
        "memory": peak() - before,
    }


def one_pass(path: str, columns: int) -> dict[str, float]:
    """Second moments of the columns of a file, read by a query on one thread."""
    from unpooled.linear.layout import MomentsLayout
    from unpooled.privacy.bounds import Column
    from unpooled.study.sources.table import Source, SourceTable

    names = tuple(f"x{j}" for j in range(columns))
    layout = MomentsLayout.of(tuple(Column(name, -3.0, 3.0) for name in names), names[-1], 1 << 28)
    layout.statistic(SourceTable(Source(f"SELECT * FROM '{path}' LIMIT 1000"), names))  # noqa: S608 - a file of our own; compiles
    start = time.perf_counter()
    table = SourceTable(Source(f"SELECT * FROM '{path}'"), names)  # noqa: S608 - as above
    opened, before = time.perf_counter(), peak()
    statistic = layout.statistic(table)
    return {
        "open": opened - start,
        "pass": time.perf_counter() - opened,
        "numbers": statistic.size,
        "memory": peak(),
        "before": before,
    }


def write_rows(path: Path, rows: int, columns: int) -> None:
    """Random numbers as a Parquet file."""
    import duckdb

    with duckdb.connect(config={"memory_limit": "1GB", "threads": 2, "temp_directory": str(path.parent)}) as engine:
        told = ", ".join(f"random() * 6 - 3 AS x{j}" for j in range(columns))
        engine.execute(f"COPY (SELECT {told} FROM range({rows})) TO '{path}' (FORMAT parquet, COMPRESSION uncompressed)")  # noqa: S608


def on_paper() -> None:
    """What the formula says of sums that nobody has run."""
    rows = []
    for parties, nodes, features in PAPER:
        size = (features + 1) * (features + 2) // 2 + features + 1
        told = SecureSum("moments", [f"site{k:04}" for k in range(parties)], nodes, size)
        sealed = 2 * sum(map(told.sealed, range(nodes - 1)))
        rows.append(
            (
                str(parties),
                str(nodes),
                str(size),
                f"{told.whole / 1e6:.1f}",
                f"{2 * parties * 8 * size / told.whole:.2f}",
                f"{parties * told.sealed(nodes - 1) / 1e6:.1f}",
                f"{sealed:.0f}",
            )
        )
    write_table(
        "scale/paper",
        "Secure sums by the formula",
        (
            "parties",
            "nodes",
            "numbers",
            "MB in all",
            "of that vectors",
            "MB to the last node",
            "bytes of seeds per party, twice",
        ),
        rows,
    )


def child(call: str) -> dict[str, float]:
    """What a function of this module says, asked in a process of its own on one thread."""
    code = f"import json; from experiments import scale; print(json.dumps(scale.{call}))"
    environment = os.environ | {"UNPOOLED_THREADS": "1", "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)  # noqa: S603
    return json.loads(answer.stdout.splitlines()[-1])


def best(found: list[dict[str, float]]) -> dict[str, float]:
    """The least of each figure: others work on the same machine."""
    return {key: min(one[key] for one in found) for key in found[0]}


def main(full: bool) -> None:
    """The tables."""
    on_paper()
    rows = []
    for parties, tolerate, features in SUMS if full else SUMS_REDUCED:
        told = best([child(f"secure_sum({parties}, {tolerate}, {features})") for _ in range(REPEATS if full else 1)])
        rows.append(
            (
                str(parties),
                str(max(2, tolerate + 1)),
                f"{told['numbers']:.0f}",
                f"{1000 * told['fragment']:.1f}",
                f"{1000 * told['node']:.0f}",
                f"{told['all']:.2f}",
                f"{told['bytes']:.0f}",
                f"{told['formula']:.0f}",
                f"{told['bytes'] / parties / 1000:.1f}",
                f"{told['memory']:.0f}",
                f"{told['compile']:.2f}",
                f"{told['open']:.0f}",
            )
        )
        assert told["bytes"] == told["formula"]
    write_table(
        "scale/parties",
        "One secure sum in one process",
        (
            "parties",
            "nodes",
            "numbers",
            "ms per party",
            "ms per node",
            "seconds in all",
            "bytes",
            "formula",
            "kB per party",
            "MB more",
            "s to compile",
            "bytes to open",
        ),
        rows,
        f"Best of {REPEATS if full else 1}. All parties and the coordinator in one process on one thread, one after the other.",
    )
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for count, columns in PASSES if full else PASSES_REDUCED:
            path = Path(folder) / "rows.parquet"
            write_rows(path, count, columns)
            told = best([child(f"one_pass({str(path)!r}, {columns})") for _ in range(REPEATS if full else 1)])
            rows.append(
                (
                    str(count),
                    str(columns),
                    f"{told['open']:.2f}",
                    f"{told['pass']:.2f}",
                    f"{1e9 * told['pass'] / count / columns:.2f}",
                    f"{told['numbers']:.0f}",
                    f"{told['memory']:.0f}",
                )
            )
    write_table(
        "scale/rows",
        "One pass of second moments over a Parquet file behind a query",
        ("rows", "columns", "open s", "pass s", "ns per value", "numbers", "peak MB"),
        rows,
        f"Best of {REPEATS if full else 1}, each in a process of its own on one thread.",
    )


if __name__ == "__main__":
    run(main)
