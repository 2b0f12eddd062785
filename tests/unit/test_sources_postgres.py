"""A real PostgreSQL as a party's data: the same bits as in memory, and every way in which a server fails, refused in words before a debit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from asked import asked, bits, frame, shuffled
from servers import PASSWORD, READER, Postgres, postgres, why_not

from unpooled.errors import DataError, SourceError
from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Study
from unpooled.privacy.unit import Target
from unpooled.protocol.conversation import OpenRequest
from unpooled.protocol.messages import Nothing, encode
from unpooled.study.party import create_party, open_party
from unpooled.study.sources.table import Source, SourceTable

pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "a server is there"),
    pytest.mark.xdist_group("postgres"),  # one server
]


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


@pytest.fixture(autouse=True)
def _credentials(monkeypatch) -> None:
    monkeypatch.setenv("UNPOOLED_CLINIC_PASSWORD", PASSWORD)


def asking(server: Postgres, query: str, **options) -> Source:
    return Source(query, attach={"clinic": server.address}, **{"name": "ward", **options})


def stored(server: Postgres, rows: pl.DataFrame, name: str) -> None:
    """A table of these rows, scattered over the disk as updates leave them."""
    kinds = ", ".join(f'"{c}" {"text" if t == pl.String else "double precision"}' for c, t in rows.schema.items())
    lines = rows.write_csv(include_header=False, null_value="\\N", separator="\t", float_precision=None)
    server.run(f'DROP TABLE IF EXISTS "{name}"; CREATE TABLE "{name}" ({kinds});\nCOPY "{name}" FROM STDIN;\n{lines}\\.\n')
    server.run(f'UPDATE "{name}" SET "{rows.columns[0]}" = "{rows.columns[0]}" WHERE random() < 0.3;')


@pytest.fixture(scope="module")
def cases():
    import sys

    sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))
    from cases import CASES

    return {name: CASES[name]() for name in ("describe", "bayes", "pride", "stacking")}


# --- the same bits -----------------------------------------------------------------------------------------------------------


@pytest.mark.long_for("bayes-False", "describe-False", "describe-True")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "permuted"),
    [("describe", False), ("bayes", False), ("pride", False), ("stacking", False), ("describe", True), ("bayes", True)],
)
def test_releases_are_the_same_bits_as_in_memory(name: str, permuted: bool, server: Postgres, cases) -> None:
    case, tables = cases[name], {}
    for card in case.study.parties:
        inside = case.tables[card.name]
        stored(server, frame(shuffled(inside, 5) if permuted else inside), card.name)
        tables[card.name] = asked(asking(server, f"SELECT * FROM clinic.{card.name} ORDER BY row_id"), inside, card.columns)
        if not permuted:
            for column in inside.names:
                values = tables[card.name][column]
                same = (
                    values.tolist() == inside[column].tolist()
                    if values.dtype == object
                    else values.tobytes() == inside[column].tobytes()
                )
                assert same, column
    assert bits(case.study, tables) == bits(case.study, case.tables)


@pytest.mark.slow
def test_rows_without_an_order_are_given_one(server: Postgres) -> None:
    rows = pl.DataFrame({"a": np.random.default_rng(0).permutation(5000).astype(float)}).with_columns(b=pl.col("a") + 0.5)
    stored(server, rows, "heap")
    t = SourceTable(asking(server, "SELECT a, b FROM clinic.heap"))
    assert t["a"].tolist() == sorted(rows["a"].to_list())
    assert np.array_equal(t["a"] + 0.5, t["b"])
    before = t.digest
    server.run("UPDATE heap SET a = a WHERE a < 1000;")  # other places on the disk, the same rows
    assert SourceTable(asking(server, "SELECT a, b FROM clinic.heap")).digest == before
    t.verify()


@pytest.mark.slow
def test_kinds_of_columns(server: Postgres) -> None:
    server.run(
        "DROP TABLE IF EXISTS kinds; CREATE TABLE kinds (i int, b bigint, n numeric(10,3), f real, t text, v varchar(5), y boolean, d date, m timestamp, "
        "u uuid, free numeric, z timestamptz, j jsonb, by bytea, arr int[], iv interval);"
        "INSERT INTO kinds SELECT 7, 9007199254740992, 1234567.891, 0.1, 'x', 'y', true, '2020-01-02', '2020-01-02 03:04:05', "
        "'00000000-0000-0000-0000-000000000001', 0.1, now(), '{}', 'x', '{4711}', '1 day' FROM generate_series(1, 3);"
    )
    t = SourceTable(asking(server, "SELECT i, b, n, f, t, v, y, d, m, u, free FROM clinic.kinds"))
    told = {name: t[name][0] for name in t.names}
    assert told["i"] == 7.0
    assert told["b"] == 2.0**53
    assert told["n"] == 1234567.891
    assert told["f"] == float(np.float32(0.1))
    assert told["free"] == 0.1
    assert told["y"] == 1.0
    assert (told["t"], told["v"], told["d"]) == ("x", "y", "2020-01-02")
    for column, words in {"z": "with a zone", "by": "neither", "arr": "neither", "iv": "neither"}.items():
        with pytest.raises(SourceError, match=words) as caught:
            SourceTable(asking(server, f'SELECT "{column}" FROM clinic.kinds'))
        assert "4711" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("9007199254740993::bigint", "more digits"),
        ("123456789012345678.25::numeric(20,2)", "more digits"),
        ("'infinity'::float", "infinite"),
    ],
)
def test_numbers_that_no_float64_equals_are_refused(value: str, words: str, server: Postgres) -> None:
    server.run(f"DROP TABLE IF EXISTS big; CREATE TABLE big AS SELECT {value} AS a FROM generate_series(1, 3);")
    with pytest.raises(DataError, match=words) as caught:
        SourceTable(asking(server, "SELECT a FROM clinic.big"))["a"]
    assert "90071" not in str(caught.value)
    assert "12345" not in str(caught.value)


# --- who may read -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("password", ["wrong horse", None])
def test_wrong_credentials(password: str | None, server: Postgres, monkeypatch, capfd) -> None:
    if password is None:
        monkeypatch.delenv("UNPOOLED_CLINIC_PASSWORD")
    else:
        monkeypatch.setenv("UNPOOLED_CLINIC_PASSWORD", password)
    with pytest.raises(SourceError, match="source 'ward': the database refuses the user or the password") as caught:
        SourceTable(asking(server, "SELECT 1 AS a FROM clinic.heap"))
    written = "".join(capfd.readouterr()) + str(caught.value)
    assert "horse" not in written
    assert str(server.port) not in written


@pytest.mark.slow
def test_credentials_of_a_file(server: Postgres, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.delenv("UNPOOLED_CLINIC_PASSWORD")
    server.run("DROP TABLE IF EXISTS few; CREATE TABLE few AS SELECT g::float AS a FROM generate_series(1, 3) AS g;")
    file = tmp_path / "keys.toml"
    file.write_text(f'[clinic]\nuser = "{READER}"\npassword = "{PASSWORD}"\n')
    file.chmod(0o600)
    t = SourceTable(asking(server, "SELECT a FROM clinic.few", secrets=file))
    assert t["a"].tolist() == [1.0, 2.0, 3.0]


@pytest.mark.slow
def test_a_reader_cannot_write_and_a_missing_table_is_named_as_such(server: Postgres) -> None:
    opened = asking(server, "SELECT 1 AS a").connection()
    import duckdb

    with pytest.raises(duckdb.Error):
        opened.raw.execute("CREATE TABLE clinic.made (a INTEGER)")
    opened.close()
    with pytest.raises(SourceError, match="a table or a function that is not there"):
        SourceTable(asking(server, "SELECT a FROM clinic.no_such_table"))


def test_a_server_that_is_not_there() -> None:
    source = Source(
        "SELECT 1 AS a", attach={"clinic": "postgres:host=127.0.0.1 port=1 dbname=x connect_timeout=2"}, name="ward"
    )
    with pytest.raises(SourceError, match="source 'ward': the database cannot be reached"):
        SourceTable(source)


# --- servers fail and tables change ------------------------------------------------------------------------------------------

COLUMNS = (Column("a", 0.0, 5000.0), Column("b", -10.0, 10.0))


def party_of(server: Postgres, folder: Path, query: str) -> Path:
    source = asking(server, query, folder=folder, name="one")
    config, _ = create_party(folder / "home", "one", source, COLUMNS, Target(9.0, 1e-3))
    config.write_text(config.read_text().replace('approval = "ask"', "approval = []"))
    return config


def opened(party) -> str:
    study = Study("describe", (party.card,), 1.0, 1e-6, derived=())
    plan = load("describe").compile(study)
    party.ledger.approve(plan.hash)
    party.answer(encode(plan.hash, "open", 0, OpenRequest(study)))
    return plan.hash


def spent(party) -> int:
    return len([entry for entry in party.ledger.entries() if entry.kind == "charge"])


def fresh(server: Postgres) -> None:
    server.run(
        "DROP VIEW IF EXISTS fragile; DROP TABLE IF EXISTS visits, breaks; CREATE TABLE breaks (yes boolean);"
        "CREATE TABLE visits AS SELECT g::float AS a, (g % 7)::float AS b FROM generate_series(1, 5000) AS g;"
    )


def fragile(server: Postgres) -> None:
    """A view whose own connection is ended by the server in the middle of the rows, once `breaks` has a row."""
    fresh(server)
    server.run(
        """
        CREATE OR REPLACE FUNCTION broken(value float) RETURNS float LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS $$
        BEGIN
            IF value = 4000 AND EXISTS (SELECT FROM breaks) THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
            RETURN value;
        END $$;
        CREATE VIEW fragile AS SELECT broken(a) AS a, b FROM visits;
        """
    )


@pytest.mark.slow
def test_a_connection_that_breaks_in_the_middle_and_one_that_comes_back(server: Postgres, tmp_path: Path) -> None:
    fragile(server)
    with open_party(party_of(server, tmp_path, "SELECT a, b FROM clinic.fragile")) as party:
        plan = opened(party)
        server.run("INSERT INTO breaks VALUES (true);")
        for _ in range(2):
            with pytest.raises(SourceError, match="source 'one': the connection broke") as caught:
                party.answer(encode(plan, "sums", 0, Nothing()))
            assert "4000" not in str(caught.value)
        assert spent(party) == 0
        server.run("DELETE FROM breaks;")
        party.answer(encode(plan, "sums", 0, Nothing()))
        assert spent(party) == 1


CHANGES = {
    "a value": "UPDATE visits SET b = 6.5 WHERE a = 4321",
    "one row more": "INSERT INTO visits VALUES (4321.5, 1)",
    "one row fewer": "DELETE FROM visits WHERE a = 4321",
    "a missing value": "UPDATE visits SET b = NULL WHERE a = 4321",
    "no rows": "DELETE FROM visits",
    "another kind": "ALTER TABLE visits ALTER COLUMN b TYPE text USING 'x'",
    "no table": "DROP TABLE visits",
    "no right": f"REVOKE pg_read_all_data FROM {READER}",
}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_a_table_that_changes_is_refused_and_nothing_is_debited(change: str, server: Postgres, tmp_path: Path) -> None:
    fresh(server)
    try:
        with open_party(party_of(server, tmp_path, "SELECT a, b FROM clinic.visits")) as party:
            plan = opened(party)
            server.run(CHANGES[change])
            for _ in range(2):
                with pytest.raises(SourceError, match="source 'one'") as caught:
                    party.answer(encode(plan, "sums", 0, Nothing()))
                assert "4321" not in str(caught.value)
            assert spent(party) == 0
    finally:
        server.run(f"GRANT pg_read_all_data TO {READER};")


@pytest.mark.slow
def test_a_table_that_stays_is_answered_again(server: Postgres, tmp_path: Path) -> None:
    fresh(server)
    config = party_of(server, tmp_path, "SELECT a, b FROM clinic.visits")
    with open_party(config) as party:
        plan = opened(party)
        first = party.answer(encode(plan, "sums", 0, Nothing()))
    with open_party(config) as party:
        opened(party)
        assert party.answer(encode(plan, "sums", 0, Nothing())) == first
        assert spent(party) == 1
    assert PASSWORD not in "".join(
        path.read_text(errors="replace") for path in (tmp_path / "home").rglob("*") if path.is_file()
    )
