"""Every table numbers the ids of its rows in the order of its blocks: sums of scores over an id depend on nothing else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from asked import bits
from clusters import Here

from unpooled.linear.layout import MomentsLayout
from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Household, Study
from unpooled.privacy.table import BoundedTable, Table
from unpooled.privacy.unit import Target
from unpooled.protocol.party import Party
from unpooled.study.cluster import table as cluster_tables
from unpooled.study.party import LinkedTable, create_party, open_party
from unpooled.study.sources.table import Source, SourceTable

ROWS, MOST = 400, 2
COLUMNS = (Column("a", 0.0, float(ROWS)), Column("b", -3.0, 3.0, missing="absent"), Column("y", -9.0, 9.0))


def rows_in(folder: Path) -> pl.DataFrame:
    """Rows whose ids do not lie together and are not sorted, in groups of a few rows; column ``a`` is the number of the row."""
    rng = np.random.default_rng(3)
    b, y = rng.normal(size=(2, ROWS))
    made = pl.DataFrame(
        {
            "a": np.arange(float(ROWS)),
            "b": np.where(rng.random(ROWS) < 0.1, np.nan, b),
            "y": y,
            "person": [f"p{k}" for k in rng.integers(0, 150, ROWS)],
        }
    ).with_columns(pl.col("b").fill_nan(None))
    made.write_parquet(folder / "rows.parquet", row_group_size=32)
    made.write_csv(folder / "rows.csv")
    return made


def party_in(folder: Path, data: Path | Source, engine: str = "") -> Path:
    together = {"household": "person", "household_rows": MOST}
    config, _ = create_party(folder / "home", "one", data, COLUMNS, Target(9.0, 1e-3), **together, new_budget=True)
    if engine:
        text = config.read_text().replace("[[columns]]", f"[engine]\n{engine}\n\n[[columns]]", 1)
        config.write_text(text)
    return config


def files(folder: Path, name: str) -> Path:
    return party_in(folder, folder / name)


def queried(folder: Path, query: str, engine: str = "") -> Path:
    return party_in(folder, Source(query, name="one", folder=folder), engine)


#: Ways to hold the rows, by name.
WAYS: dict[str, Callable[[Path], Path]] = {
    "parquet": lambda folder: files(folder, "rows.parquet"),
    "csv": lambda folder: files(folder, "rows.csv"),
    "query": lambda folder: queried(folder, "SELECT * FROM 'rows.parquet'"),
    "sorted query": lambda folder: queried(folder, "SELECT * FROM 'rows.parquet' ORDER BY y"),
    "cluster": lambda folder: queried(
        folder, "SELECT * FROM 'rows.parquet'", 'name = "dask"\nscheduler = "tcp://127.0.0.1:1"\nby = "a"\nshard_rows = 90'
    ),
}


@pytest.fixture(params=list(WAYS))
def held(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Party, list[str]]]:
    """A party on disk, and the ids of its rows by their number."""
    monkeypatch.setattr(cluster_tables, "DaskEngine", lambda *_: Here())
    ids = rows_in(tmp_path)["person"].to_list()
    with open_party(WAYS[request.param](tmp_path)) as party:
        yield party, ids


def agrees(table: Table, ids: list[str], name: str = "a") -> None:
    """Hold the numbers of ids against the ids of the rows as the blocks give them, whatever the size of a block."""
    for rows in (7, 64, 100_000):
        numbers = np.concatenate([block[0] for block in table.blocks((name,), rows)]).astype(int)
        owners = table.owners
        assert owners.shape == numbers.shape
        pairs = set(zip(owners.tolist(), [ids[k] for k in numbers], strict=True))
        assert len(pairs) == len({one for one, _ in pairs}) == len({one for _, one in pairs})
        assert set(owners.tolist()) == set(range(len(pairs)))


def test_owners_are_in_the_order_of_blocks_wherever_rows_are_read_from(held: tuple[Party, list[str]]) -> None:
    party, ids = held
    assert isinstance(party.table, BoundedTable)
    agrees(party.table, ids)
    assert np.bincount(party.table.owners).max() == MOST
    assert party.table.owners.size < ROWS  # some rows do not count


def test_a_formula_sees_the_owners_of_its_table(held: tuple[Party, list[str]]) -> None:
    party, ids = held
    layout = MomentsLayout.of(COLUMNS, "y", party.card.rows, formula="a + a:b")
    seen = layout.seen(party.table)
    assert seen is not party.table
    assert "a" in seen.names
    agrees(seen, ids)


@pytest.mark.slow
def test_the_same_scores_are_released_wherever_rows_are_read_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the order of rows nor the way they are held changes a bit of a clustered study, where every row of an id counts."""
    monkeypatch.setattr(cluster_tables, "DaskEngine", lambda *_: Here())
    ids = rows_in(tmp_path)["person"].to_list()
    most, found = max(map(ids.count, ids)), set()
    monkeypatch.setattr(sys.modules[__name__], "MOST", most)
    for name, make in WAYS.items():
        folder = tmp_path / name
        folder.mkdir()
        rows_in(folder)
        with open_party(make(folder)) as party:
            card = Card("one", party.card.rows, COLUMNS, household=Household("person", party.card.household.ids, most))
            asked = {"response": "y", "method": "refinement", "max_passes": 6, "formula": "a + a:b"}
            study = Study("bayes", (card,), 50.0, 1e-5, unit="household", parameters=asked, simulation_seed=4, derived=())
            assert "meat" in load("bayes").compile(study).design.totals
            found.add(bits(study, {"one": party.table}))
    assert len(found) == 1


def test_tables_without_ids_number_their_rows(tmp_path: Path) -> None:
    rows_in(tmp_path)
    table = Table({"a": np.arange(9.0), "b": np.arange(9.0)})
    source = SourceTable(Source("SELECT a, y FROM 'rows.parquet'", name="one", folder=tmp_path))
    linked = LinkedTable(table, np.array([4, 2, 7]), "map")
    for one, size in ((table, 9), (table.omit(3), 8), (table.take(np.array([1, 5])), 2), (source, ROWS), (linked, 3)):
        assert one.owners.tolist() == list(range(size))
        assert sum(block[0].size for block in one.blocks(one.names[:1])) == size


@pytest.mark.guarantee
def test_some_rows_of_ids_keep_their_ids_and_count_anew() -> None:
    table = BoundedTable(Table({"a": np.arange(6.0)}), ["x", "y", "x", "x", "z", "y"], 2)
    kept = table["a"].astype(int).tolist()
    some = table.take(np.array([len(kept) - 1, 0, 1]))
    assert isinstance(some, BoundedTable)
    assert some["a"].tolist() == [kept[-1], kept[0], kept[1]]
    assert (some.household, some.n_rows) == ((2, 2), 4)
    agrees(some, ["x", "y", "x", "x", "z", "y"])
