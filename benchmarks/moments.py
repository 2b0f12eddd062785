"""Second moments of 1,000,000 x 50 from Parquet, against numpy's X.T @ X on data in memory plus decoding the same file.

Contenders run in turn, with a pause between them because BLAS threads spin for a while after their work. Peak memory is measured in
a process of its own, for 1 and for 4 million rows: it must not grow.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
from board import note, rounds

from unpooled.linear.layout import MomentsLayout
from unpooled.privacy.bounds import Column
from unpooled.study.data import read_table

ROWS, COLUMNS, ROUNDS = 1_000_000, 50, rounds(5)
NAMES = [*(f"x{j}" for j in range(COLUMNS - 1)), "y"]
DESIGN = MomentsLayout.of(tuple(Column(name, -3.0, 3.0) for name in NAMES), "y", 4 * ROWS)

PEAK = """
import resource, sys
from pathlib import Path
from benchmarks.moments import DESIGN, NAMES, read_table
DESIGN.statistic(read_table(Path(sys.argv[1]), tuple(NAMES)))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""


def write(path: Path, millions: int) -> None:
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(rng.normal(size=(ROWS, COLUMNS)), schema=NAMES)
    pl.concat([frame] * millions).write_parquet(path, compression="uncompressed", row_group_size=1 << 16)


def median(works: dict[str, object]) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            time.sleep(0.2)
            start = time.perf_counter()
            work()  # type: ignore[operator]
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one.parquet"
        write(path, 1)
        memory = pl.read_parquet(path).to_numpy()
        table = read_table(path, tuple(NAMES))
        DESIGN.statistic(table)  # compiles
        seconds = median(
            {
                "numpy X.T @ X in memory": lambda: memory.T @ memory,
                "decode (polars to columns)": lambda: [column.to_numpy() for column in pl.read_parquet(path)],
                "decode (our blocks)": lambda: [None for _ in table.blocks(tuple(NAMES))],
                "moments from Parquet": lambda: DESIGN.statistic(table),
            }
        )
        print(f"{ROWS} x {COLUMNS}: medians of {ROUNDS}")
        for name, value in seconds.items():
            print(f"  {name:<28}{value * 1000:8.0f} ms")
        decode = min(value for name, value in seconds.items() if name.startswith("decode"))
        floor = seconds["numpy X.T @ X in memory"] + decode
        note(
            f"moments of {ROWS:,} x {COLUMNS} from Parquet",
            "X'X in memory and decoding",
            seconds["moments from Parquet"] / floor,
            "1.6",
        )
        print(f"  ratio to X.T @ X + faster decoding {seconds['moments from Parquet'] / floor:8.2f}  (aim: at most 1.6)")
        peaks = []
        for millions in (1, 4):
            write(path, millions)
            answer = subprocess.run([sys.executable, "-c", PEAK, str(path)], check=True, capture_output=True, text=True)
            peaks.append(float(answer.stdout))
        print(f"  peak memory {peaks[0]:.2f} GB for 1 million rows, {peaks[1]:.2f} GB for 4")


if __name__ == "__main__":
    main()
