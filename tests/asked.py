"""Tables of tests as files and databases, asked for by a query."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import msgspec
import numpy as np
import polars as pl

from unpooled.models import load
from unpooled.privacy.plan import Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.protocol.local import run_in_process
from unpooled.study.sources.table import Source, SourceTable


def frame(table: Table) -> pl.DataFrame:
    """The columns of a table with null for what is missing, and a row id in front."""
    columns = {"row_id": [f"r{k:05}" for k in range(table.n_rows)]}
    for name in table.names:
        values = table[name]
        columns[name] = values.tolist() if values.dtype == object else [None if np.isnan(v) else v for v in values.tolist()]
    return pl.DataFrame(columns, infer_schema_length=None)


def in_parquet(rows: pl.DataFrame, name: str, folder: Path) -> Source:
    rows.write_parquet(folder / f"{name}.parquet", row_group_size=7)
    return Source(f"SELECT * FROM '{name}.parquet' ORDER BY row_id", folder=folder)


def in_several_files(rows: pl.DataFrame, name: str, folder: Path) -> Source:
    for part, at in enumerate(range(0, len(rows), 9)):
        (folder / name / f"part={part}").mkdir(parents=True)
        rows[at : at + 9].write_parquet(folder / name / f"part={part}" / "rows.parquet")
    return Source(f"SELECT * EXCLUDE (part) FROM '{name}/*/*.parquet' ORDER BY row_id", folder=folder)


def in_json(rows: pl.DataFrame, name: str, folder: Path) -> Source:
    with (folder / f"{name}.ndjson").open("w") as out:
        for row in rows.iter_rows(named=True):
            out.write(json.dumps(row) + "\n")
    return Source(f"SELECT * FROM '{name}.ndjson' ORDER BY row_id", folder=folder)


def in_sqlite(rows: pl.DataFrame, name: str, folder: Path) -> Source:
    with sqlite3.connect(folder / f"{name}.sqlite") as opened:
        kinds = ", ".join(f'"{c}" {"TEXT" if t == pl.String else "REAL"}' for c, t in rows.schema.items())
        opened.execute(f"CREATE TABLE rows ({kinds})")
        opened.executemany(f"INSERT INTO rows VALUES ({', '.join('?' * rows.width)})", rows.rows())
    opened.close()
    return Source("SELECT * FROM file.rows ORDER BY row_id", attach={"file": f"sqlite:{name}.sqlite"}, folder=folder)


def in_the_engine(rows: pl.DataFrame, name: str, folder: Path) -> Source:
    import duckdb

    rows.write_parquet(folder / f"{name}.tmp.parquet")
    with duckdb.connect(str(folder / f"{name}.duckdb")) as opened:
        opened.execute(f"CREATE TABLE rows AS FROM '{folder / name}.tmp.parquet'")
    return Source("SELECT * FROM file.rows ORDER BY row_id", attach={"file": f"duckdb:{name}.duckdb"}, folder=folder)


WAYS = {way.__name__: way for way in (in_parquet, in_several_files, in_json, in_sqlite, in_the_engine)}


def asked(source: Source, like: Table, columns=()) -> SourceTable:
    return SourceTable(source, like.names, "row_id", declared=columns)


def bits(study: Study, tables: dict[str, Table]) -> bytes:
    """Everything that a study releases about these tables, its noise drawn from the study's simulation seed."""
    model = load(study.row)
    return msgspec.msgpack.encode(
        run_in_process(model, model.compile(study), tables, Policy.in_process(), load).outcome.result
    )


def shuffled(table: Table, seed: int) -> Table:
    return table.take(np.random.default_rng(seed).permutation(table.n_rows))
