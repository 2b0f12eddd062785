"""Second moments of --rows x 20 numbers on disk, read through a query and as a file, against DuckDB summing each of the columns.

Every contender runs in a process of its own, in turn, so that peak memory is its own. The moments are those of one pass: coded, clipped, every
product of two columns summed exactly, and every block held against the snapshot; the sums are one query per column on one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from board import note, rounds

COLUMNS, ROUNDS = 20, rounds(3)
NAMES = tuple(f"x{j}" for j in range(COLUMNS))
AIM, MEMORY = 1.5, 2.0


def write(path: Path, rows: int) -> None:
    import duckdb

    with duckdb.connect(config={"memory_limit": "1GB", "threads": 2, "temp_directory": str(path.parent)}) as engine:
        engine.execute("SELECT setseed(0.5)")
        columns = ", ".join(f"random() * 6 - 3 AS {name}" for name in NAMES)
        engine.execute(f"COPY (SELECT {columns} FROM range({rows})) TO '{path}' (FORMAT parquet, COMPRESSION uncompressed)")


def sums(path: Path) -> float:
    import duckdb

    with duckdb.connect(config={"threads": 1}) as engine:
        engine.execute("SET enable_progress_bar = false")
        start = time.perf_counter()
        for name in NAMES:
            engine.execute(f"SELECT sum({name}) FROM '{path}'").fetchall()
        return time.perf_counter() - start


def moments(path: Path, rows: int, way: str) -> dict[str, float]:
    from unpooled.linear.layout import MomentsLayout
    from unpooled.privacy.bounds import Column
    from unpooled.study.data import read_table
    from unpooled.study.sources.table import Source

    layout = MomentsLayout.of(tuple(Column(name, -3.0, 3.0) for name in NAMES), NAMES[-1], 4 * rows)
    layout.statistic(read_table(path.with_name("small.parquet"), NAMES))  # compiles
    start = time.perf_counter()
    table = read_table(path if way == "file" else Source(f"SELECT * FROM '{path}'"), NAMES)
    opened, before = time.perf_counter(), time.process_time()
    layout.statistic(table)
    seconds, cpu = time.perf_counter() - opened, time.process_time() - before
    return {"open": opened - start, "seconds": seconds, "cpu": cpu}


def child(path: Path, rows: int, way: str, threads: int) -> dict[str, float]:
    code = (
        "import json, resource, sys; from pathlib import Path; from benchmarks import sources as b\n"
        f"path = Path({str(path)!r})\n"
        f"told = {{'seconds': b.sums(path)}} if {way!r} == 'sums' else b.moments(path, {rows}, {way!r})\n"
        "print(json.dumps(told | {'peak': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}))"
    )
    environment = os.environ | {"UNPOOLED_THREADS": str(threads), "POLARS_MAX_THREADS": str(threads)}
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    return json.loads(answer.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10**8)
    parser.add_argument(
        "--folder", type=Path, default=None, help="where the file is written, and deleted (8 bytes per value)"
    )
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        path = Path(folder) / "rows.parquet"
        write(path.with_name("small.parquet"), 10_000)
        write(path, asked.rows)
        contenders = [("sums", 1), ("query", 1), ("query", 2), ("file", 1), ("file", 2)]
        found: dict[tuple[str, int], list[dict[str, float]]] = {one: [] for one in contenders}
        for _ in range(ROUNDS):
            for one in contenders:
                found[one].append(child(path, asked.rows, *one))
    floor = statistics.median(told["seconds"] for told in found["sums", 1])
    print(f"{asked.rows} x {COLUMNS}: medians of {ROUNDS}; sums of each column, one thread: {floor:.2f} s")
    for (way, threads), told in found.items():
        if way == "sums":
            continue
        seconds, peak = statistics.median(one["seconds"] for one in told), max(one["peak"] for one in told)
        opened, cpu = (statistics.median(one[key] for one in told) for key in ("open", "cpu"))
        note(
            f"moments from a {way}, {threads} thread(s)",
            "DuckDB's sums of each column",
            seconds / floor,
            f"{AIM}" if threads > 1 else "",
        )
        print(
            f"  moments from a {way:<5} on {threads} thread(s) {seconds:7.2f} s  {seconds / floor:5.2f} x the sums (aim: {AIM} on two)  cpu {cpu:.2f} s  "
            f"peak {peak:.2f} GB (aim: below {MEMORY:g})  opened in {opened:.2f} s"
        )


if __name__ == "__main__":
    main()
