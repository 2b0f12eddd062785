"""Tables of tests as shards: worked on in this process, as a worker would be given them, or by workers of Dask."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path

from asked import frame

from unpooled.privacy.table import Table
from unpooled.study.cluster.shards import ROW_NUMBER, file_address
from unpooled.study.cluster.table import ClusterTable
from unpooled.study.cluster.work import Answer, Task, serve
from unpooled.study.sources.source import Source


class Here:
    """An engine that does what a worker does, in the order in which no scheduler would: last shard first. Everything travels."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self.closed = False

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Answer]]:
        for place in reversed(range(len(tasks))):
            self.tasks.append(tasks[place])
            answer = pickle.loads(pickle.dumps(serve(pickle.loads(pickle.dumps(tasks[place])))))
            yield place, answer.or_refuse()

    def close(self) -> None:
        self.closed = True


def in_shards(table: Table, name: str, folder: Path, engine=None, rows: int = 7, columns=(), ids: str = "row_id") -> ClusterTable:
    """The rows of a table as a query over a Parquet file, cut by the row id."""
    frame(table).write_parquet(folder / f"{name}.parquet", row_group_size=5)
    source = Source(f"SELECT * FROM '{name}.parquet' ORDER BY row_id", folder=folder, name=name)
    return ClusterTable(
        source, tuple(table.names), ids, None, columns, engine or Here(), by="row_id", shard_rows=rows
    )


def rows_of_a_file(path: Path, names: tuple[str, ...], engine=None, rows: int = 1_000_000, columns=()) -> ClusterTable:
    return ClusterTable(file_address(path), names, None, None, columns, engine or Here(), by=ROW_NUMBER, shard_rows=rows)


def rows_file(folder: Path, n: int = 150_000, seed: int = 0, name: str = "rows.parquet") -> Path:
    """Three columns of numbers, one of them with gaps, and an id; several groups of rows."""
    import numpy as np
    import polars as pl

    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, n))
    rows = pl.DataFrame({"i": np.arange(n), "a": a, "b": np.where(rng.random(n) < 0.1, np.nan, b), "y": 0.5 * a + rng.normal(size=n)})
    rows.with_columns(pl.col("b").fill_nan(None)).write_parquet(folder / name, row_group_size=20_000)
    return folder / name
