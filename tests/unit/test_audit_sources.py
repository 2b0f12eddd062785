"""``unpooled audit STUDY --config party.toml`` attacks the party's own source, and says so where it cannot."""

from __future__ import annotations

import json
import random
import sqlite3
from pathlib import Path

import polars as pl
import pytest
from commands import command

import unpooled
from unpooled.audit import source as attack
from unpooled.privacy.bounds import Column
from unpooled.privacy.unit import Target
from unpooled.study.party import create_party
from unpooled.study.sources import query as looking

PEOPLE, VISITS = "'people.parquet'", "'visits.csv'"
AUDIT = ("audit", "study.toml", "--rows", "8", "--rounds", "1", "--config", "ward/party.toml")
#: Queries of which one person moves others, by what the attack must see.
BROKEN = {
    f"SELECT id, x - avg(x) OVER () AS x FROM {PEOPLE}": "a window",
    f"SELECT id, x - (SELECT median(x) FROM {PEOPLE}) AS x FROM {PEOPLE}": "a subquery",
    f"SELECT id, x FROM {PEOPLE} WHERE city IN (SELECT city FROM {PEOPLE} WHERE sick = 1)": "IN (SELECT)",
    f"SELECT a.id, max(b.x) AS x FROM {PEOPLE} a JOIN {PEOPLE} b ON a.city = b.city GROUP BY a.id": "a join on no id",
    f"SELECT a.id, a.x FROM {PEOPLE} a ANTI JOIN (SELECT * FROM {PEOPLE} WHERE sick = 1) b USING (city)": "an anti join",
    f"SELECT id, x FROM {PEOPLE} ORDER BY x DESC LIMIT 20": "LIMIT",
    f"SELECT p.id, v.v AS x FROM {PEOPLE} p JOIN (SELECT ward, max(v) AS v FROM {VISITS} GROUP BY ward) v ON v.ward = p.city": "GROUP BY no id",
    "SELECT person.id, x - m AS x FROM lab.person JOIN (SELECT city, avg(x) AS m FROM lab.person GROUP BY city) USING (city)": "SQLite",
}
FINE = [
    f"SELECT id, x FROM {PEOPLE} WHERE sick = 0 ORDER BY id",
    f"SELECT id, greatest(x, v) AS x FROM {PEOPLE} JOIN (SELECT id, avg(v) AS v FROM {VISITS} GROUP BY id) USING (id)",
    f"SELECT id, x + rank AS x FROM {PEOPLE} JOIN 'codes.csv' ON city = code",
    "SELECT patient AS id, x FROM 'renamed.parquet'",
    "SELECT person.id, x FROM lab.person WHERE age > 0",
]


@pytest.fixture
def world(tmp_path: Path) -> Path:
    rng = random.Random(4)
    rows = [
        {
            "id": f"p{k:02}",
            "city": rng.choice("abcdefgh"),
            "x": round(rng.uniform(-9, 9), 3),
            "sick": int(k % 7 == 0),
            "age": rng.randint(1, 90),
        }
        for k in range(40)
    ]
    people = pl.DataFrame(rows)
    people.write_parquet(tmp_path / "people.parquet")
    people.rename({"id": "patient"}).write_parquet(tmp_path / "renamed.parquet")
    visits = [
        {"id": row["id"], "v": round(rng.uniform(0, 9), 3), "ward": rng.choice("abcdefgh")}
        for row in rows
        for _ in range(rng.randint(1, 3))
    ]
    pl.DataFrame(visits).write_csv(tmp_path / "visits.csv")
    pl.DataFrame({"code": list("abcdefgh"), "rank": range(8)}).write_csv(tmp_path / "codes.csv")
    with sqlite3.connect(tmp_path / "lab.sqlite") as lab:
        lab.execute("CREATE TABLE person (id TEXT, city TEXT, x REAL, sick INTEGER, age INTEGER)")
        lab.executemany("INSERT INTO person VALUES (?, ?, ?, ?, ?)", people.rows())
    return tmp_path


def party(world: Path, query: str, ids: str | None = "id") -> None:
    source = unpooled.Source(
        query,
        folder=world,
        attach={"lab": "sqlite:lab.sqlite"} if "lab." in query else None,
        public=("codes.csv",) if "codes.csv" in query else (),
        name="ward",
        called=["patient"],
    )
    create_party(world / "ward", "ward", source, (Column("x", -20.0, 20.0),), Target(1.0, 1e-6), ids)
    (world / "study.toml").write_text(
        '[study]\nmodel = "describe"\n\n[privacy]\nepsilon = 0.9\n\n[[party]]\ncard = "ward/ward.card.toml"\n'
    )


@pytest.mark.long
@pytest.mark.slow_but("query4", f"SELECT id, x FROM {PEOPLE} ORDER BY x DESC LIMIT 20")
@pytest.mark.parametrize("query", BROKEN)
def test_a_source_whose_check_is_bypassed_is_caught(world: Path, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken control: the check of queries refuses nothing, and the attack sees others' rows move."""
    monkeypatch.setattr(looking, "must_be_rowwise", lambda *_: None)
    party(world, query)
    found = attack.attack_source(world / "ward/party.toml")
    assert found.violations
    assert "other people" in found.violations[0]


@pytest.mark.long
@pytest.mark.slow
def test_the_command_reports_a_violation_of_the_source(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "must_be_rowwise", lambda *_: None)
    party(world, next(iter(BROKEN)))
    said = command(world, *AUDIT, code=1)
    assert "VIOLATIONS" in said
    assert "source of party 'ward': VIOLATION" in said
    told = json.loads(command(world, *AUDIT, "--json", code=1))
    assert not told["passed"]
    assert "the source" in {one["where"] for one in told["violations"]}
    assert told["sources"][0]["violations"]
    assert not any(f"{number}" in said for number in pl.read_parquet(world / "people.parquet")["x"]), (
        "no value of a person is said"
    )


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("query", FINE)
def test_a_source_that_is_row_by_row_passes_an_attack_with_power(world: Path, query: str) -> None:
    party(world, query)
    found = attack.attack_source(world / "ward/party.toml")
    assert (found.violations, found.not_attacked) == ((), "")
    assert found.people >= 5
    assert found.changes >= 20
    before = pl.read_parquet(world / "people.parquet")
    assert attack.attack_source(world / "ward/party.toml") == found, "the same people are attacked whenever it runs"
    assert pl.read_parquet(world / "people.parquet").equals(before), "only copies are changed"


@pytest.mark.long
@pytest.mark.slow
def test_without_an_id_one_row_may_move(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    party(world, f"SELECT x FROM {PEOPLE} WHERE age > 10", None)
    assert attack.attack_source(world / "ward/party.toml").violations == ()
    monkeypatch.setattr(looking, "must_be_rowwise", lambda *_: None)
    config = world / "ward/party.toml"
    config.write_text(config.read_text().replace("WHERE age > 10", "UNION ALL SELECT x FROM 'people.parquet'"))
    assert "2 rows of the result" in attack.attack_source(config).violations[0]


@pytest.mark.long
@pytest.mark.slow
def test_the_command_says_that_a_source_passed(world: Path) -> None:
    party(world, FINE[1])
    said = command(world, *AUDIT)
    assert "in copies of its tables moved no other person's row" in said
    (told,) = json.loads(command(world, *AUDIT, "--json"))["sources"]
    assert (told["party"], told["violations"], told["not_attacked"]) == ("ward", [], "")


@pytest.mark.slow
def test_what_is_not_attacked_is_no_power_and_never_no_violation(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    party(world, FINE[0])
    monkeypatch.setattr(attack, "MOST_ROWS", 30)
    said = command(world, *AUDIT)
    (line,) = [line for line in said.splitlines() if "source of party" in line]
    assert "NOT attacked" in line
    assert "no power" in line
    assert "more than 30 rows" in line
    assert "no violation" not in line


@pytest.mark.slow
def test_a_query_that_no_change_moves_has_no_power(world: Path) -> None:
    party(world, f"SELECT id, 1.0 AS x FROM {PEOPLE} WHERE id IN ('p03', 'p05')")
    config = world / "ward/party.toml"
    found = attack.attack_source(config)
    assert "moved any row" in found.not_attacked or found.changes
    party_of_file = pl.read_parquet(world / "people.parquet")
    party_of_file.write_csv(world / "plain.csv")
    create_party(world / "file", "file", world / "plain.csv", (Column("x", -20.0, 20.0),), Target(1.0, 1e-6), "id")
    assert "read row by row" in attack.attack_source(world / "file/party.toml").not_attacked


def test_a_party_that_is_not_in_the_study_is_refused(world: Path) -> None:
    party(world, FINE[0])
    pl.read_parquet(world / "people.parquet").write_csv(world / "plain.csv")
    create_party(world / "file", "file", world / "plain.csv", (Column("x", -20.0, 20.0),), Target(1.0, 1e-6), "id")
    assert "is not in the study" in command(world, *AUDIT[:-1], "file/party.toml", code=2)
