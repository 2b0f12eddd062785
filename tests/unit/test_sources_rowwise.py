"""A query in which one person's rows can move somebody else's is refused by the name of what does it (FINDINGS V6)."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import unpooled
from unpooled.errors import SourceError
from unpooled.privacy.bounds import Column
from unpooled.privacy.unit import Target
from unpooled.study.party import create_party, open_party

REFUSED = {
    "SELECT id, x - avg(x) OVER () AS x FROM 't.parquet'": "window function",
    "SELECT id, (x - min(x) OVER ()) / (max(x) OVER () - min(x) OVER ()) AS x FROM 't.parquet'": "window function",
    "SELECT id, x FROM 't.parquet' QUALIFY row_number() OVER (ORDER BY x) < 9": "window function",
    "WITH a AS (SELECT id, rank() OVER (ORDER BY x) AS x FROM 't.parquet') SELECT id, x FROM a": "window function",
    "SELECT id, x - (SELECT avg(x) FROM 't.parquet') AS x FROM 't.parquet'": "scalar subquery",
    "SELECT id, x FROM 't.parquet' WHERE x < (SELECT median(x) FROM 't.parquet')": "scalar subquery",
    "SELECT id, x FROM 't.parquet' t WHERE EXISTS (SELECT 1 FROM 't.parquet' u WHERE u.w = t.w AND u.x > t.x)": "EXISTS",
    "SELECT id, x FROM 't.parquet' t WHERE NOT EXISTS (SELECT 1 FROM 't.parquet' u WHERE u.x > t.x)": "EXISTS",
    "SELECT id, x - m AS x FROM 't.parquet', (SELECT avg(x) AS m FROM 't.parquet')": "aggregate over the whole table",
    "WITH a AS (SELECT avg(x) AS m FROM 't.parquet') SELECT id, x - m AS x FROM 't.parquet' CROSS JOIN a": "aggregate over the whole table",
    "SELECT id, x FROM 't.parquet' WHERE x IN (SELECT max(x) FROM 't.parquet')": "aggregate over the whole table",
    "SELECT id, x - m AS x FROM 't.parquet', (SELECT geomean(x) AS m FROM 't.parquet')": "aggregate over the whole table",
    "SELECT id, x - m AS x FROM 't.parquet', (SELECT list_sum(list(x)) AS m FROM 't.parquet')": "aggregate over the whole table",
    "SELECT id, x - m AS x FROM 't.parquet', (SELECT 1 AS m FROM 't.parquet' HAVING max(x) > 3)": "aggregate over the whole table",
    "SELECT t.id, m AS x FROM 't.parquet' t JOIN LATERAL (SELECT max(x) AS m FROM 't.parquet' u WHERE u.id < t.id) ON true": "aggregate over the whole table",
    "SELECT id, x FROM 't.parquet' ORDER BY x LIMIT 5": "LIMIT",
    "SELECT id, x FROM (SELECT * FROM 't.parquet' ORDER BY x DESC LIMIT 50%)": "LIMIT",
    "SELECT id, x FROM 't.parquet' OFFSET 2": "LIMIT",
    "SELECT id, x FROM 't.parquet' USING SAMPLE 5": "a sample",
    "SELECT id, x FROM 't.parquet' TABLESAMPLE 50%": "a sample",
    "SELECT t.id, u.x FROM 't.parquet' t POSITIONAL JOIN (SELECT x FROM 't.parquet') u": "a positional join",
    "SELECT t.id, u.x FROM 't.parquet' t ASOF JOIN (SELECT x, w FROM 't.parquet') u ON t.x >= u.x": "an ASOF join",
}
ALLOWED = [
    "SELECT id, x FROM 't.parquet' WHERE x > 2",
    "SELECT id, CASE WHEN x > 2 THEN ln(x) ELSE NULL END AS x FROM 't.parquet'",
    "SELECT id, x FROM 't.parquet' WHERE id IN (SELECT id FROM 't.parquet' WHERE w = 1)",
    "SELECT t.id, u.x FROM 't.parquet' t JOIN 't.parquet' u USING (id)",
    "SELECT id, greatest(x, 2) AS x, list_max([x, w]) AS most FROM 't.parquet'",
    "SELECT id, x FROM 't.parquet' UNION ALL SELECT id + 100, x FROM 't.parquet'",
    "WITH a AS (SELECT id, max(x) AS m FROM 't.parquet' GROUP BY id) SELECT t.id, m AS x FROM 't.parquet' t JOIN a USING (id)",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pl.DataFrame({"id": range(12), "x": [float(i) for i in range(12)], "w": [i % 3 for i in range(12)]}).write_parquet(
        tmp_path / "t.parquet"
    )
    return tmp_path


@pytest.mark.parametrize("query", REFUSED)
def test_what_makes_rows_depend_on_each_other_is_refused_by_name(folder: Path, query: str) -> None:
    with pytest.raises(SourceError, match=REFUSED[query]) as error:
        unpooled.Source(query, folder=folder).read()
    assert "would move everybody else's" in str(error.value)


@pytest.mark.parametrize("query", ALLOWED)
def test_what_is_computed_row_by_row_is_read(folder: Path, query: str) -> None:
    assert len(unpooled.Source(query, folder=folder).read()) >= 4


def test_one_row_moves_no_other_one(folder: Path) -> None:
    """What is allowed is what it is allowed for: with one row changed, all others are read as before."""
    frame = pl.read_parquet(folder / "t.parquet")
    before = [unpooled.Source(query, folder=folder).read("id", "x").sort("id", "x") for query in ALLOWED]
    frame.with_columns(x=pl.when(pl.col("id") == 7).then(1e6).otherwise(pl.col("x"))).write_parquet(folder / "t.parquet")
    for query, was in zip(ALLOWED, before, strict=True):
        now = unpooled.Source(query, folder=folder).read("id", "x").sort("id", "x")
        mine = [7.0, 107.0]
        assert now.filter(~pl.col("id").is_in(mine)).equals(was.filter(~pl.col("id").is_in(mine)))


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT w, avg(x) AS x FROM 't.parquet' GROUP BY w", "group by 'id'"),
        (
            "SELECT id, m AS x FROM 't.parquet' JOIN (SELECT w, avg(x) AS m FROM 't.parquet' GROUP BY w) USING (w)",
            "group by 'id'",
        ),
        (
            "SELECT id, m AS x FROM 't.parquet' JOIN (SELECT w, avg(x) AS m FROM 't.parquet' GROUP BY ALL) USING (w)",
            "group by 'id'",
        ),
        (
            "SELECT id, m AS x FROM 't.parquet' JOIN (SELECT w, avg(x) AS m FROM 't.parquet' GROUP BY 1) USING (w)",
            "group by 'id'",
        ),
        ("SELECT id, max(x) AS x FROM 't.parquet' GROUP BY id ORDER BY id", None),
        ("SELECT id, max(x) AS x FROM 't.parquet' GROUP BY ALL ORDER BY id", None),
        ("SELECT id, max(x) AS x FROM 't.parquet' GROUP BY 1 ORDER BY id", None),
        ("SELECT id, x FROM 't.parquet' ORDER BY id", None),
    ],
)
def test_a_party_groups_by_its_people(folder: Path, query: str, words: str | None) -> None:
    def made() -> None:
        create_party(
            folder / "p", "p", unpooled.Source(query, folder=folder), (Column("x", 0.0, 12.0),), Target(1.0, 1e-6), "id"
        )

    if words is None:
        made()
        with open_party(folder / "p/party.toml") as party:
            assert party.table.n_rows == 12
        return
    with pytest.raises(SourceError, match=words):
        made()
    assert not list((folder / "p").glob("*.ledger")), "a refusal makes nothing"


def test_a_party_without_an_id_column_groups_by_nobody(folder: Path) -> None:
    query = "SELECT max(x) AS x FROM 't.parquet' GROUP BY id"
    with pytest.raises(SourceError, match="which the party file has to name"):
        create_party(folder / "p", "p", unpooled.Source(query, folder=folder), (Column("x", 0.0, 12.0),), Target(1.0, 1e-6))
