"""Tables of tests as shards: worked on in this process, as a worker would be given them, or by workers of Dask."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from asked import frame

from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Study
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Target
from unpooled.protocol.conversation import OpenRequest
from unpooled.protocol.messages import encode
from unpooled.study.cluster.table import ClusterTable
from unpooled.study.cluster.work import ROW_NUMBER, ShardAnswer, ShardTask, file_address, serve
from unpooled.study.party import create_party
from unpooled.study.sources.table import Source

COLUMNS = (Column("a", -3.0, 3.0), Column("b", -3.0, 3.0, missing="absent"), Column("y", -9.0, 9.0))
NAMES = tuple(column.name for column in COLUMNS)


class Here:
    """An engine that does what a worker does, in the order in which no scheduler would: last shard first. Everything travels."""

    def __init__(self) -> None:
        self.tasks: list[ShardTask] = []
        self.closed = False

    def run(self, tasks: Sequence[ShardTask]) -> Iterator[tuple[int, ShardAnswer]]:
        for place in reversed(range(len(tasks))):
            self.tasks.append(tasks[place])
            answer = pickle.loads(pickle.dumps(serve(pickle.loads(pickle.dumps(tasks[place])))))
            yield place, answer.or_refuse()

    def close(self) -> None:
        self.closed = True


def in_shards(
    table: Table, name: str, folder: Path, engine=None, rows: int = 7, columns=(), ids: str = "row_id"
) -> ClusterTable:
    """The rows of a table as a query over a Parquet file, cut by the row id."""
    frame(table).write_parquet(folder / f"{name}.parquet", row_group_size=5)
    source = Source(f"SELECT * FROM '{name}.parquet' ORDER BY row_id", folder=folder, name=name)
    return ClusterTable(source, tuple(table.names), ids, None, columns, engine or Here(), by="row_id", shard_rows=rows)


def rows_of_a_file(path: Path, names: tuple[str, ...], engine=None, rows: int = 1_000_000, columns=()) -> ClusterTable:
    return ClusterTable(file_address(path), names, None, None, columns, engine or Here(), by=ROW_NUMBER, shard_rows=rows)


def rows_file(folder: Path, n: int = 150_000, seed: int = 0, name: str = "rows.parquet") -> Path:
    """Three columns of numbers, one of them with gaps, and an id; several groups of rows."""
    import numpy as np
    import polars as pl

    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, n))
    columns = {"i": np.arange(n), "a": a, "b": np.where(rng.random(n) < 0.1, np.nan, b), "y": 0.5 * a + rng.normal(size=n)}
    rows = pl.DataFrame(columns | {"n": rng.poisson(np.exp(a / 2)).astype(float)})
    rows.with_columns(pl.col("b").fill_nan(None)).write_parquet(folder / name, row_group_size=20_000)
    return folder / name


def party_of(home: Path, n: int = 200, said: dict | None = None, columns=COLUMNS) -> Path:
    config, _ = create_party(home / "home", "one", rows_file(home, n), columns, Target(9.0, 1e-3))
    engine = {"name": "dask", "scheduler": "tcp://127.0.0.1:1", **(said or {})}
    lines = "\n".join(f"{key} = {msgspec.json.encode(value).decode()}" for key, value in engine.items())
    text = config.read_text().replace('approval = "ask"', "approval = []")
    config.write_text(text.replace("[[columns]]", f"[engine]\n{lines}\n\n[[columns]]", 1))
    return config


def agreed(party, card=None) -> str:
    study = Study("describe", (card or party.card,), 1.0, 1e-6, derived=())
    plan = load("describe").compile(study)
    party.ledger.approve(plan.hash)
    party.answer(encode(plan.hash, "open", 0, OpenRequest(study)))
    return plan.hash


def spent(party) -> int:
    return len([entry for entry in party.ledger.entries() if entry.kind == "charge"])
