"""Second moments of --rows x 20 numbers on a Dask cluster of this machine, two workers against one, and against this process alone.

A pass is what one step of a study asks for: every shard read, coded, clipped, every product of two columns summed exactly, and held against its
digests. The workers are started once each way and have opened their shards before the clock starts. Each worker is held to a core of its own,
as is this process when it works alone: otherwise one worker would use a second core for decoding, and two could not be faster. Ways take turns, and
the best of each counts, because two free cores are seldom free; beside it the CPU time of all workers in their best pass, which tells what there
is to gain where the cores are. Prints a table and writes it under experiments/results/scale.

    python benchmarks/clusters.py --rows 10000000
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from board import note, on_the_board, rounds

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]
os.environ.setdefault("OMP_NUM_THREADS", "1")

COLUMNS, ROUNDS, AIM = 20, rounds(12), 1.6
NAMES = tuple(f"x{j}" for j in range(COLUMNS))


def cpu(engine) -> float:
    """Seconds of all workers so far, or of this process."""
    if engine is None:
        return time.process_time()
    return sum(engine._client.run(time.process_time).values())  # noqa: SLF001 - nobody else asks


def main() -> None:  # noqa: C901, PLR0915 - one table
    import dask
    from distributed import LocalCluster
    from experiments.common import write_table
    from experiments.scale import write_rows

    from unpooled.models import load
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.plan import Card, Study
    from unpooled.protocol.context import Context
    from unpooled.study.cluster.section import EngineSection
    from unpooled.study.cluster.table import ClusterTable, DaskEngine
    from unpooled.study.cluster.work import ROW_NUMBER, file_address
    from unpooled.study.sources.table import Source, SourceTable

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--shard-rows", type=int, default=1_000_000)
    asked = parser.parse_args()
    columns = tuple(Column(name, -3.0, 3.0) for name in NAMES)
    found = []
    dask.config.set({"distributed.worker.memory.target": False, "distributed.worker.memory.spill": False})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        options = {"threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "memory_limit": 0}
        clusters = {n: LocalCluster(n_workers=n, local_directory=str(folder / str(n)), **options) for n in (1, 2)}
        cores = sorted(os.sched_getaffinity(0))
        for cluster in clusters.values():
            for k, worker in enumerate(cluster.workers.values()):
                os.sched_setaffinity(worker.process.pid, {cores[k]})  # before it starts threads of its own
        engines = {n: DaskEngine(EngineSection("dask", c.scheduler_address), "one", folder) for n, c in clusters.items()}
        for rows in asked.rows:
            path = folder / "rows.parquet"
            write_rows(path, rows, COLUMNS)
            card = Card("one", rows, columns)
            parameters = {"response": NAMES[-1], "method": "moments"}
            plan = load("bayes").compile(Study("bayes", (card,), 1.0, 1e-6, parameters=parameters, derived=()))
            statistic = (
                next(step for step in load("bayes").steps if step.name.startswith("moments")).answer.args[0].statistic
            )
            start = time.perf_counter()
            os.environ["UNPOOLED_THREADS"] = "1"
            tables = {"here": SourceTable(Source(f"SELECT * FROM '{path}'"), NAMES, declared=columns)}
            opened = {"here": time.perf_counter() - start}
            for n, engine in engines.items():
                start = time.perf_counter()
                tables[n] = ClusterTable(
                    file_address(path), NAMES, None, None, columns, engine, by=ROW_NUMBER, shard_rows=asked.shard_rows
                )
                opened[n] = time.perf_counter() - start
            times: dict[object, list[float]] = {way: [] for way in tables}
            spent: dict[object, list[float]] = {way: [] for way in tables}
            bits = set()
            for _ in range(ROUNDS):
                for way, table in tables.items():
                    os.sched_setaffinity(0, cores[:1] if way == "here" else cores)
                    before, start = cpu(engines.get(way)), time.perf_counter()
                    context = Context("one", table, plan, "moments", 0, object())
                    bits.add(context.added_up(statistic).tobytes())
                    times[way].append(time.perf_counter() - start)
                    spent[way].append(cpu(engines.get(way)) - before)
            os.sched_setaffinity(0, cores)
            assert len(bits) == 1
            best = {way: min(seconds) for way, seconds in times.items()}
            for way, label in (("here", "this process, one thread"), (1, "one worker"), (2, "two workers")):
                speed, extra = best[1] / best[way], best[way] - best["here"]
                if way == 2:
                    note(f"a pass over {rows:,} rows by two workers", "by one", speed, f"{AIM}", more_is_better=True)
                told = (opened[way], best[way], min(spent[way]), speed)
                found.append((str(rows), label, *(f"{number:.2f}" for number in told), f"{extra:+.2f}"))
        for n, engine in engines.items():
            engine.close()
            clusters[n].close()
    header = ("rows", "way", "open s", "pass s", "CPU s", "times one worker", "s more than here")
    if on_the_board():  # docs/sources.md quotes a run of its own
        print(*(" ".join(map(str, row)) for row in (header, *found)), sep="\n")
        return
    write_table(
        "scale/cluster",
        f"A pass over {COLUMNS} columns on a cluster of one machine",
        header,
        found,
        f"Best of {ROUNDS}, ways in turn; shards of {asked.shard_rows} rows; two cores. Aim of two workers: {AIM}.",
    )


if __name__ == "__main__":
    main()
