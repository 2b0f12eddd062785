"""A sketch of 1,000,000 x 512 float32 values from Parquet, noise included, in bounded memory.

Prints wall time of each part, the share of noise drawing, peak memory, and the time of reading the file alone (the floor).
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
from board import note

from unpooled.models.pride.plan import SKETCH, compile_plan, parts_of
from unpooled.models.pride.rows import exact_sketch
from unpooled.privacy.bounds import Column
from unpooled.privacy.mechanisms import Vector
from unpooled.privacy.noise import KeySource
from unpooled.privacy.plan import Card, Study
from unpooled.study.data import read_table

ROWS, COLUMNS, BLOCK = 1_000_000, 512, 1 << 14


def write(path: Path, names: list[str]) -> None:
    """The file, written in a child process so that its memory does not count."""
    import subprocess

    code = (
        "import sys, numpy as np, polars as pl, glob, os\n"
        f"names = {names!r}\n"
        "rng = np.random.default_rng(0)\n"
        f"parts = [pl.DataFrame(rng.random(({ROWS} // 10, {COLUMNS}), dtype=np.float32), schema=names) for _ in range(10)]\n"
        f"pl.concat(parts).write_parquet({str(path)!r}, compression='uncompressed', row_group_size={BLOCK})\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def main() -> None:
    names = [f"x{j}" for j in range(COLUMNS)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.parquet"
        write(path, names)
        card = Card("a", ROWS, tuple(Column(name, 0.0, 1.0) for name in names), ("y",))
        other = Card("b", ROWS, (Column("z", 0.0, 1.0),), ("y",))  # who estimates from what the first one sends
        study = Study("pride", (card, other), 1.0, 1e-8, unit="attribute", parameters={"sketch_dim": 128}, derived=())
        plan, part = compile_plan(study), parts_of(study)[0]
        start = time.perf_counter()
        table = read_table(path, tuple(names))
        for _ in table.blocks(part.private.names, BLOCK):
            pass
        reading = time.perf_counter() - start
        start = time.perf_counter()
        statistic = exact_sketch(part, table, None, BLOCK).ravel()
        sketching = time.perf_counter() - start
        start = time.perf_counter()
        mechanism = plan.release("a", SKETCH).mechanism
        released = mechanism.draw(Vector(statistic), KeySource.secret().stream("benchmark"))
        noising = time.perf_counter() - start
    total = sketching + noising
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{ROWS} x {COLUMNS} float32 to {released.size // ROWS} columns")
    print(f"  read file only (floor)   {reading:8.2f} s")
    note("read, code and sketch a file", "reading it", sketching / reading)
    print(f"  read, code and sketch    {sketching:8.2f} s  ({sketching / reading:.2f} x the floor)")
    print(f"  noise                    {noising:8.2f} s  ({noising / total:.1%} of the total)")
    print(f"  peak memory              {peak:8.2f} GB  (aim: below 1.5)")
    print(f"  polars {pl.__version__}, numpy {np.__version__}")


if __name__ == "__main__":
    main()
