"""Queries as data: the same bits as in memory, exact numbers or none, refusals that name the source and hold no value, no passwords anywhere."""

from __future__ import annotations

import http.server
import os
import re
import sys
import threading
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from asked import WAYS, asked, bits, frame, in_parquet, shuffled

import unpooled
from unpooled.errors import DataError, SourceError, StudyError
from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Study
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Split, Target
from unpooled.protocol.conversation import OpenRequest
from unpooled.protocol.messages import Nothing, encode
from unpooled.study.files import read_party
from unpooled.study.party import create_party, open_party
from unpooled.study.sources import connection as engine_room
from unpooled.study.sources.query import looked_at
from unpooled.study.sources.table import BLOCK, Snapshot, Source, SourceTable, words_of

#: Stands in every file and every query of a test that must not find it in an error.
VALUE = 4711.25


def table(query: str, names: tuple[str, ...] = (), **options) -> SourceTable:
    return SourceTable(Source(query, **options), names)


# --- the same bits -----------------------------------------------------------------------------------------------------------


sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))
from cases import CASES, FIRST  # noqa: E402

MODELS = sorted(FIRST.values())


def rows_are_split(name: str) -> bool:
    study = CASES[name]().study
    return load(study.row).compile(study).split is Split.HORIZONTAL


@pytest.fixture(scope="module")
def cases():
    return {name: CASES[name]() for name in MODELS}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["describe", "bayes", "glm", "pride"])
def test_a_table_is_the_same_bits_as_in_memory(name: str, way: str, cases, tmp_path: Path) -> None:
    case = cases[name]
    for card in case.study.parties:
        inside = case.tables[card.name]
        outside = asked(WAYS[way](frame(inside), f"{case.name}-{card.name}", tmp_path), inside, card.columns)
        assert outside.n_rows == inside.n_rows
        for column in inside.names:
            assert outside[column].dtype == inside[column].dtype
            if inside[column].dtype == object:
                assert outside[column].tolist() == inside[column].tolist()
            else:
                assert outside[column].tobytes() == inside[column].tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["in_parquet", "in_sqlite"])
@pytest.mark.parametrize("name", MODELS)
def test_releases_are_the_same_bits_as_in_memory(name: str, way: str, cases, tmp_path: Path) -> None:
    case = cases[name]
    tables = {
        card.name: asked(WAYS[way](frame(case.tables[card.name]), card.name, tmp_path), case.tables[card.name], card.columns)
        for card in case.study.parties
    }
    assert bits(case.study, tables) == bits(case.study, case.tables)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in MODELS if rows_are_split(name)])
def test_permuted_rows_are_the_same_bits_where_rows_are_split(name: str, cases, tmp_path: Path) -> None:
    case = cases[name]
    other = {
        card.name: asked(
            in_parquet(frame(shuffled(case.tables[card.name], 3)), card.name, tmp_path), case.tables[card.name], card.columns
        )
        for card in case.study.parties
    }
    assert bits(case.study, other) == bits(case.study, case.tables)


@pytest.mark.parametrize("rows", [1, 70, 1000, 65_536, 100_000])
def test_blocks_are_cut_anywhere_and_hold_the_same(rows: int) -> None:
    t = table("SELECT i::DOUBLE AS a, (i % 5)::VARCHAR AS b FROM range(150000) AS t(i) ORDER BY a", ("a", "b"))
    if rows == 1:
        assert [next(t.blocks(("a",), 1))[0].tolist()] == [[0.0]]
        return
    found = list(t.blocks(("a", "b"), rows))
    assert max(len(a) for a, _ in found) <= rows
    assert len(found) <= 150_000 / min(rows, BLOCK) + 3
    assert np.concatenate([a for a, _ in found]).tobytes() == np.arange(150_000.0).tobytes()
    assert np.concatenate([b for _, b in found]).tolist() == [str(i % 5) for i in range(150_000)]


@pytest.mark.parametrize("threads", [1, 2])
def test_no_thread_and_no_missing_order_changes_which_row_is_which(threads: int) -> None:
    """Columns that are read one after the other belong to the same rows, also where the engine may give rows in any order."""
    query = "SELECT (i * 7919) % 50000 AS a, ((i * 7919) % 50000) + 0.5 AS b FROM range(50000) AS t(i) GROUP BY ALL"
    t = table(query, settings={"threads": threads})
    assert np.array_equal(t["a"] + 0.5, t["b"])
    assert t["a"].tolist() == sorted(t["a"].tolist())


def test_files_need_no_sorting_and_everything_else_is_sorted(tmp_path: Path) -> None:
    pl.DataFrame({"a": [3.0, 1.0, 2.0], "b": ["x", "y", "z"]}).write_parquet(tmp_path / "a.parquet")
    assert table("SELECT a FROM 'a.parquet' WHERE a > 0", folder=tmp_path)["a"].tolist() == [3.0, 1.0, 2.0]
    grouped = table("SELECT a, count(*) AS n FROM 'a.parquet' GROUP BY a", id="a", folder=tmp_path)
    assert grouped["a"].tolist() == [1.0, 2.0, 3.0]
    t = table("SELECT a, b FROM 'a.parquet' ORDER BY b DESC", folder=tmp_path)
    assert t["a"].tolist() == [2.0, 1.0, 3.0]
    t = table("SELECT a FROM 'a.parquet' ORDER BY ALL", folder=tmp_path)
    assert t["a"].tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a FROM 'a.parquet' ORDER BY b",
        "SELECT a FROM 'a.parquet' ORDER BY -a",
        "SELECT a FROM 'a.parquet' ORDER BY 1",
    ],
)
def test_an_order_that_cannot_be_kept_is_refused(query: str, tmp_path: Path) -> None:
    pl.DataFrame({"a": [3.0, 1.0], "b": [1, 2]}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(SourceError, match=r"'query'.*ORDER BY names columns"):
        table(query, folder=tmp_path)


# --- exact numbers, or none ----------------------------------------------------------------------------------------------------

EXACT = {
    "a whole number": ("42::TINYINT", 42.0),
    "the last whole number": ("9007199254740992::BIGINT", 2.0**53),
    "a negative one": ("-9007199254740992::HUGEINT", -(2.0**53)),
    "a short decimal": ("1234567890.12345::DECIMAL(15,5)", 1234567890.12345),
    "a long decimal with few digits in it": ("0.1::DECIMAL(38,10)", 0.1),
    "a decimal at the edge": ("90071992547409.92::DECIMAL(18,2)", 90071992547409.92),
    "a single": ("0.1::FLOAT", float(np.float32(0.1))),
    "a truth value": ("true", 1.0),
}


@pytest.mark.parametrize("what", EXACT)
def test_numbers_are_what_they_are_in_the_database(what: str) -> None:
    text, number = EXACT[what]
    assert table(f"SELECT {text} AS a FROM range(3)")["a"].tolist() == [number] * 3


def test_decimals_of_every_length_are_rounded_once() -> None:
    """Against Python's own conversion of the same text."""
    rng = np.random.default_rng(0)
    for digits, places in ((15, 3), (16, 15), (18, 3), (18, 18), (38, 4), (38, 22)):
        most = min(10**digits, 2**53)
        texts = [f"{v // 10**places}.{v % 10**places:0{places}}" for v in rng.integers(0, most, 200).tolist()]
        rows = ", ".join(f"({k}, '{text}')" for k, text in enumerate(texts))
        t = table(f"SELECT k, a::DECIMAL({digits},{places}) AS a FROM (VALUES {rows}) AS t(k, a) ORDER BY k")
        assert t["a"].tolist() == [float(text) for text in texts]


REFUSED = {
    "9007199254740993::BIGINT": "more digits",
    "-9007199254740993::BIGINT": "more digits",
    "18446744073709551615::UBIGINT": "more digits",
    "170141183460469231731687303715884105727::HUGEINT": "more digits",
    "90071992547409.93::DECIMAL(18,2)": "more digits",
    "0.1::DECIMAL(38,30)": "more digits",
    "TIMESTAMPTZ '2020-01-01 00:00:00+00'": "with a zone",
    "INTERVAL 1 DAY": "neither a number, a date nor text",
    "[4711.25]": "neither a number, a date nor text",
    "'x'::BLOB": "neither a number, a date nor text",
    "{'a': 4711.25}": "neither a number, a date nor text",
    "'Infinity'::DOUBLE": "infinite",
}


@pytest.mark.parametrize("value", REFUSED)
def test_what_no_float64_equals_is_refused_without_its_value(value: str) -> None:
    with pytest.raises(DataError, match=REFUSED[value]) as caught:
        table(f"SELECT {value} AS a FROM range(3)")["a"]
    assert "'a'" in str(caught.value)
    assert not re.search(r"\d{4,}|4711", str(caught.value))


def test_dates_are_counted_as_those_of_files() -> None:
    source = Source("SELECT DATE '2020-01-03' AS d, TIMESTAMP '2020-01-03 12:00:00' AS m FROM range(2)")
    columns = tuple(Column(name, 0.0, 10.0, dates="days since 2020-01-01") for name in "dm")
    t = SourceTable(source, ("d", "m"), declared=columns)
    assert t["d"].tolist() == [2.0] * 2
    assert t["m"].tolist() == [2.5] * 2


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT 1 AS a WHERE false", "fewer than 2 rows"),
        ("SELECT 4711.25 AS a", "fewer than 2 rows"),
        ("SELEC 4711", "not written in"),
        ("SELECT a FROM nowhere", "a table or a function that is not there"),
        ("SELECT nope(4711) AS a", "not there"),
        ("SELECT a FROM 'missing.parquet'", "cannot be read"),
        ("SELECT 1 AS a; SELECT 2 AS a", "one SELECT"),
        ("DROP TABLE x", "one SELECT"),
        ("COPY (SELECT 1) TO 'out.csv'", "one SELECT"),
        ("SELECT 1 AS a, 2 AS a FROM range(3)", "same name"),
        ("SELECT ('x' || 4711.25)::INTEGER AS a FROM range(3)", "does not fit the type"),
        ("SELECT 1 AS b FROM range(3)", "no column 'a'"),
    ],
)
def test_whatever_is_wrong_is_said_with_the_source_and_without_a_value(query: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=words) as caught:
        table(query, ("a",), folder=tmp_path, name="ward")
    assert str(caught.value).startswith("source 'ward': ")
    assert "4711" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert not list(tmp_path.iterdir())


# --- nothing is downloaded, nothing is written, nothing is looked up elsewhere ------------------------------------------------


def test_the_engine_is_locked(monkeypatch) -> None:
    opened = Source("SELECT 1 AS a", settings={"threads": 1}).connection()
    opened.lock()
    settings = dict(opened.raw.execute("SELECT name, value FROM duckdb_settings()").fetchall())
    for name in (
        "autoinstall_known_extensions",
        "autoload_known_extensions",
        "allow_community_extensions",
        "allow_persistent_secrets",
        "python_enable_replacements",
    ):
        assert settings[name] == "false", name
    assert settings["lock_configuration"] == "true"
    assert settings["threads"] == "1"
    import duckdb

    with pytest.raises(duckdb.Error):
        opened.raw.execute("SET autoinstall_known_extensions = true")
    with pytest.raises(duckdb.Error):
        opened.raw.execute("SELECT ST_Point(1, 2)")  # an extension that the engine would fetch if it might
    folder = Path(settings["temp_directory"])
    assert folder.stat().st_mode & 0o077 == 0
    opened.close()
    assert not folder.exists()


def test_a_variable_of_the_program_is_no_table() -> None:
    rows = pl.DataFrame({"a": [1.0, 2.0]})
    assert len(rows) == 2
    with pytest.raises(SourceError, match="not there"):
        table("SELECT * FROM rows")


@pytest.mark.parametrize("name", ["postgres_scanner", "sqlite_scanner", "httpfs"])
def test_extensions_are_of_the_engine_s_own_version_and_signed(name: str) -> None:
    import duckdb

    file = engine_room.extension(name)
    assert f"v{duckdb.__version__}" in str(file)
    with duckdb.connect(":memory:", config={"autoinstall_known_extensions": False}) as opened:
        opened.execute(f"LOAD '{file}'")  # refused if its signature were not the engine's
    with pytest.raises(StudyError, match=r"never downloaded by unpooled: pip install 'unpooled\[sql\]'"):
        engine_room.extension("spatial")


def test_without_the_extra_the_words_say_what_to_install(monkeypatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(StudyError, match=r"pip install 'unpooled\[sql\]'"):
        table("SELECT 1 AS a")


def test_a_database_is_opened_for_reading_only(tmp_path: Path, cases) -> None:
    source = WAYS["in_sqlite"](
        frame(
            cases["describe"].tables["harbour"]
            if "harbour" in cases["describe"].tables
            else next(iter(cases["describe"].tables.values()))
        ),
        "a",
        tmp_path,
    )
    opened = source.connection()
    import duckdb

    with pytest.raises(duckdb.Error, match="read-only"):
        opened.raw.execute("DELETE FROM file.rows")
    opened.close()


def test_an_object_store_is_read_through_the_engine_s_own_settings(tmp_path: Path) -> None:
    """A web server on loopback stands for the store; the extension comes from its package."""
    pl.DataFrame({"a": [1.0, 2.0, 3.0]}).write_parquet(tmp_path / "rows.parquet")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments) -> None:
            super().__init__(*arguments, directory=str(tmp_path))

        def log_message(self, *_) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            t = table(
                f"SELECT a FROM 'http://127.0.0.1:{server.server_port}/rows.parquet'", settings={"force_download": True}
            )
            assert t["a"].tolist() == [1.0, 2.0, 3.0]
            with pytest.raises(SourceError, match="cannot be read"):
                table(
                    f"SELECT a FROM 'http://127.0.0.1:{server.server_port}/nothing.parquet'",
                    settings={"force_download": True},
                )
        finally:
            server.shutdown()
            thread.join()


# --- credentials ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "postgres:host=x password=hunter2",
        "postgres:postgresql://me:hunter2@x/y",
        "postgres:host=x PASSWORD = hunter2",
        "postgres:host=x sslpassword=hunter2",
    ],
)
def test_a_password_in_an_address_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(StudyError, match="no place for one") as caught:
        Source("SELECT 1 AS a", attach={"clinic": address})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("attach", "settings"),
    [
        ({"Clinic": "sqlite:x"}, {}),
        ({"clinic": "mysql:x"}, {}),
        ({"clinic": "sqlite:"}, {}),
        ({}, {"s3_secret_access_key": "hunter2"}),
        ({}, {"autoinstall_known_extensions": True}),
        ({}, {"allow_unsigned_extensions": True}),
    ],
)
def test_other_databases_and_settings_are_refused(attach, settings) -> None:
    with pytest.raises(StudyError, match=r"\[source\]") as caught:
        Source("SELECT 1 AS a", attach=attach, settings=settings)
    assert "hunter2" not in str(caught.value)


def test_a_credentials_file_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text('[s3]\nkey_id = "me"\nsecret = "hunter2"\n')
    source = Source("SELECT * FROM 's3://bucket/x.parquet'", secrets="keys.toml", folder=tmp_path)
    for mode in (0o644, 0o640, 0o602):
        file.chmod(mode)
        with pytest.raises(StudyError, match="chmod 600") as caught:
            source.connection()
        assert "hunter2" not in str(caught.value)
    file.chmod(0o600)
    opened = source.connection()
    told = str(opened.raw.execute("FROM duckdb_secrets()").fetchall())
    assert "store_s3" in told
    assert "hunter2" not in told + repr(source) + repr(engine_room.Credentials(file))
    opened.close()


@pytest.mark.parametrize("text", ["not toml hunter2", "[clinic]\npassword = 3", "password = 'hunter2'"])
def test_a_damaged_credentials_file_is_refused_and_not_repeated(text: str, tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(StudyError, match="credentials are TOML tables") as caught:
        Source("SELECT 1 AS a", secrets=file).connection()
    assert "hunter2" not in str(caught.value)
    with pytest.raises(StudyError, match="cannot be read"):
        Source("SELECT 1 AS a", secrets=tmp_path / "none.toml").connection()


def test_the_environment_goes_before_the_file(tmp_path: Path, monkeypatch) -> None:
    file = tmp_path / "keys.toml"
    file.write_text('[clinic]\nuser = "u"\npassword = "file"\n')
    file.chmod(0o600)
    found = engine_room.Credentials(file)
    assert found.login("clinic") == {"user": "u", "password": "file"}
    monkeypatch.setenv("UNPOOLED_CLINIC_PASSWORD", "environment")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    assert found.login("clinic") == {"user": "u", "password": "environment"}
    assert found.store() == {"key_id": "k"}
    assert found.login("other") == {}


# --- snapshots -----------------------------------------------------------------------------------------------------------------


def test_every_change_of_a_block_changes_its_words_and_the_digest() -> None:
    base = pl.DataFrame({"a": [1.0, None, -0.0], "b": ["x", None, ""], "c": [True, None, False]})
    changes = [
        base.with_columns(pl.Series("a", [1.0, None, 0.0])),
        base.with_columns(pl.Series("a", [1.0, 0.0, -0.0])),
        base.with_columns(pl.Series("b", ["x", "", None])),
        base.with_columns(pl.Series("b", ["", None, "x"])),
        base.with_columns(pl.Series("c", [True, False, False])),
        base.reverse(),
        base[:2],
        base.rename({"a": "d"}),
        base.select("b", "a", "c"),
    ]
    digests = set()
    for one in (base, *changes):
        snapshot = Snapshot()
        snapshot.add(one)
        digests.add(snapshot.digest)
        assert snapshot.agrees(0, one)
        assert not snapshot.agrees(1, one)
    assert len(digests) == 1 + len(changes)
    snapshot = Snapshot()
    snapshot.add(base)
    for one in changes[:7]:
        assert not snapshot.agrees(0, one)
    for one in changes[7:8]:
        with pytest.raises(KeyError):
            snapshot.agrees(0, one)


def test_the_fingerprint_is_the_formula() -> None:
    from unpooled.kernels.fingerprint import CHUNK, KEYS, summed_up

    rng = np.random.default_rng(0)
    keys = rng.integers(0, 2**32, KEYS, dtype=np.uint64)
    words = rng.integers(0, 2**64 - 1, CHUNK + 5, dtype=np.uint64)
    found = np.frombuffer(summed_up(words, keys)[:-8], dtype=np.uint64)
    for chunk, part in enumerate((words[:CHUNK], words[CHUNK:])):
        for shift in (0, 2):
            total = sum(
                ((int(w) % 2**32 + int(keys[2 * i + shift])) % 2**32)
                * ((int(w) // 2**32 + int(keys[2 * i + 1 + shift])) % 2**32)
                for i, w in enumerate(part)
            )
            assert int(found[2 * chunk + shift // 2]) == total % 2**64


def test_one_nan_is_as_good_as_another() -> None:
    other = np.array([1.0, np.nan])
    other.view(np.uint64)[1] ^= 1
    assert words_of(pl.Series("a", other)).tolist() == words_of(pl.Series("a", [1.0, None])).tolist()


def test_a_query_that_says_something_else_each_time_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="the function 'random'"):
        table("SELECT random() AS a FROM range(10)")
    made = rows(tmp_path)
    t = table("SELECT a FROM 'rows.parquet'", folder=tmp_path)
    made.reverse().write_parquet(tmp_path / "rows.parquet")
    with pytest.raises(SourceError, match="has changed since this party opened it"):
        t["a"]
    with pytest.raises(SourceError, match="has changed"):
        t.verify()


# --- a party ---------------------------------------------------------------------------------------------------------------------

COLUMNS = (Column("a", -10.0, 10.0), Column("b", -10.0, 10.0))


def party_of(home: Path, query: str, columns=COLUMNS, **options) -> Path:
    options.setdefault("folder", home)
    config, _ = create_party(home / "home", "one", Source(query, name="one", **options), columns, Target(9.0, 1e-3))
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


def rows(folder: Path, seed: int = 0, n: int = 100) -> pl.DataFrame:
    values = np.random.default_rng(seed).uniform(-9, 9, (n, 2))
    made = pl.DataFrame({"a": values[:, 0], "b": values[:, 1]})
    made.write_parquet(folder / "rows.parquet")
    return made


def test_a_party_file_holds_the_query_and_answers(tmp_path: Path) -> None:
    rows(tmp_path)
    config = party_of(tmp_path, "SELECT a, b FROM 'rows.parquet'", settings={"threads": 1})
    text = read_party(config)
    assert text.party.data == "sql:SELECT a, b FROM 'rows.parquet'"
    assert text.source.settings == {"threads": 1}
    with open_party(config) as party:
        plan = opened(party)
        first = party.answer(encode(plan, "sums", 0, Nothing()))
        assert party.answer(encode(plan, "sums", 0, Nothing())) == first
        assert spent(party) == 1


def test_a_second_budget_for_the_same_query_is_refused(tmp_path: Path) -> None:
    rows(tmp_path)
    party_of(tmp_path, "SELECT a, b FROM 'rows.parquet'")
    (tmp_path / "other").mkdir()
    with pytest.raises(StudyError, match="is kept already"):
        party_of(tmp_path / "other", "SELECT a, b FROM 'rows.parquet'", folder=tmp_path)
    with pytest.raises(StudyError, match="is kept already"):  # other words for the same rows
        party_of(tmp_path / "other", "SELECT a, b FROM read_parquet('rows.parquet')", folder=tmp_path)
    config, _ = create_party(
        tmp_path / "other",
        "two",
        Source("SELECT a, b FROM 'rows.parquet'", folder=tmp_path),
        COLUMNS,
        Target(1.0, 1e-3),
        new_budget=True,
    )
    with open_party(config) as party:  # its paths start from where they did
        assert party.table.n_rows == 100


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r.with_columns(pl.when(pl.int_range(pl.len()) == 50).then(0.0).otherwise(pl.col("b")).alias("b")),
        lambda r: r[:99],
        lambda r: pl.concat([r, r[:1]]),
        lambda r: r.reverse(),
        lambda r: r.with_columns(pl.lit(None, dtype=pl.Float64).alias("a")),
        lambda r: r.select("a"),
        lambda r: r[:0],
    ],
)
def test_a_table_that_changes_is_refused_and_nothing_is_debited(change, tmp_path: Path) -> None:
    made = rows(tmp_path)
    with open_party(party_of(tmp_path, "SELECT a, b FROM 'rows.parquet'")) as party:
        plan = opened(party)
        change(made).write_parquet(tmp_path / "rows.parquet")
        for _ in range(2):
            with pytest.raises(SourceError, match="source 'one'"):
                party.answer(encode(plan, "sums", 0, Nothing()))
        assert spent(party) == 0
        made.write_parquet(tmp_path / "rows.parquet")
        party.answer(encode(plan, "sums", 0, Nothing()))
        assert spent(party) == 1


def test_a_statistic_that_is_remembered_is_still_held_against_the_source(tmp_path: Path) -> None:
    made = rows(tmp_path)
    t = SourceTable(Source("SELECT a, b FROM 'rows.parquet'", folder=tmp_path), ("a", "b"))
    assert t["a"].size == 100
    t.verify()
    t.verify()
    made.reverse().write_parquet(tmp_path / "rows.parquet")
    with pytest.raises(SourceError, match="has changed"):
        t.verify()


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT a, CASE WHEN b < 0 THEN NULL ELSE b END AS b FROM 'rows.parquet'", "'b' holds NULL"),
        ("SELECT a, 9007199254740993::BIGINT AS b FROM 'rows.parquet'", "more digits"),
        ("SELECT a, b FROM 'rows.parquet' WHERE a > 100", "fewer than 2 rows"),
        ("SELECT a, TIMESTAMPTZ '2020-01-01 00:00:00+00' AS b FROM 'rows.parquet'", "with a zone"),
    ],
)
def test_what_cannot_be_used_is_refused_and_nothing_is_debited(query: str, words: str, tmp_path: Path) -> None:
    rows(tmp_path)
    config = party_of(tmp_path, "SELECT a, b FROM 'rows.parquet'")
    text = config.read_text().replace("SELECT a, b FROM 'rows.parquet'", query)
    config.write_text(text)

    def answered() -> None:
        with open_party(config) as party:
            opened(party)

    with pytest.raises(SourceError, match=words) as caught:
        answered()
    assert "source 'one'" in str(caught.value)
    config.write_text(text.replace(query, "SELECT a, b FROM 'rows.parquet'"))
    with open_party(config) as party:
        assert spent(party) == 0


def test_null_is_missing_where_a_declaration_says_so(tmp_path: Path) -> None:
    rows(tmp_path)
    columns = (Column("a", -10.0, 10.0), Column("b", -10.0, 10.0, missing="absent"))
    query = "SELECT a, CASE WHEN b < 0 THEN NULL ELSE b END AS b FROM 'rows.parquet'"
    with open_party(party_of(tmp_path, query, columns)) as party:
        assert np.isnan(party.table["b"]).sum() > 10
        party.answer(encode(opened(party), "sums", 0, Nothing()))


@pytest.mark.parametrize(
    ("query", "fine"),
    [
        ("SELECT row_id, x FROM 'SIDE.parquet'", False),
        ("SELECT row_id, x FROM 'SIDE.parquet' ORDER BY x", False),
        ("SELECT row_id, x FROM 'SIDE.parquet' ORDER BY ALL", False),
        ("SELECT row_id, x FROM 'SIDE.parquet' ORDER BY row_id", True),
        ("SELECT row_id, x FROM 'SIDE.parquet' AS t ORDER BY t.row_id ASC, x", True),
        ("SELECT row_id, x FROM 'SIDE.parquet' ORDER BY x, row_id", False),
        ("SELECT row_id, x FROM 'SIDE.parquet' ORDER BY row_id DESC", False),
    ],
)
def test_in_a_column_split_a_query_says_its_order(query: str, fine: bool, tmp_path: Path) -> None:
    (tmp_path / "a.parquet").touch()
    pl.DataFrame({"row_id": ["r1", "r2", "r3"], "x": [1.0, 2.0, 3.0]}).write_parquet(tmp_path / "SIDE.parquet")
    t = SourceTable(Source(query, folder=tmp_path, name="side"), ("x",), "row_id")
    assert (t.unordered == "") == fine
    if not fine:
        assert "source 'side'" in t.unordered
        assert "ORDER BY row_id" in t.unordered


@pytest.mark.guarantee
def test_a_column_split_study_refuses_a_query_without_an_order(cases, tmp_path: Path) -> None:
    case = cases["pride"]
    sources = {name: in_parquet(frame(inside), name, tmp_path) for name, inside in case.tables.items()}
    bare = {name: Source(source.query.replace(" ORDER BY row_id", ""), folder=tmp_path) for name, source in sources.items()}
    one, *others = case.study.parties
    tables = {card.name: asked(sources[card.name], case.tables[card.name], card.columns) for card in others}
    tables[one.name] = asked(bare[one.name], case.tables[one.name], one.columns)
    with pytest.raises(DataError, match="end the query with ORDER BY row_id"):
        bits(case.study, tables)


def test_ids_are_text_in_the_query_s_own_order(tmp_path: Path) -> None:
    pl.DataFrame({"n": [10, 9, 100], "x": [1.0, 2.0, 3.0]}).write_parquet(tmp_path / "a.parquet")
    t = SourceTable(Source("SELECT n, x FROM 'a.parquet' ORDER BY n", folder=tmp_path), ("x",), "n")
    assert t.ids() == ["9", "10", "100"]
    assert t["x"].tolist() == [2.0, 1.0, 3.0]
    same = Table({"x": [0.0, 0.0]})
    with pytest.raises(DataError, match="declares no id column"):
        SourceTable(Source("SELECT 1.0 AS x FROM range(2)"), ("x",)).ids()
    assert same.unordered == ""
    with pytest.raises(SourceError, match="neither text nor whole numbers"):
        SourceTable(Source("SELECT 1.5 AS n, 1.0 AS x FROM range(2)"), ("x",), "n")


def test_source_belongs_to_a_query(tmp_path: Path) -> None:
    rows(tmp_path)
    config = party_of(tmp_path, "SELECT a, b FROM 'rows.parquet'", settings={"threads": 1})
    config.write_text(config.read_text().replace("sql:SELECT a, b FROM 'rows.parquet'", "rows.parquet"))
    with pytest.raises(StudyError, match=r"\[source\] belongs to data"), open_party(config):
        pass


def test_the_public_class() -> None:
    source = unpooled.Source("SELECT i AS a, i % 2 AS b FROM range(10) AS t(i)", name="made up")
    assert source.read().columns == ["a", "b"]
    assert source.read("b")["b"].sum() == 5
    assert repr(source) == "Source('made up')"
    with pytest.raises(StudyError, match="empty"):
        unpooled.Source("  ")
    with source.connection().raw.cursor() as raw:
        assert looked_at(source, raw).keys == ()
    assert os.environ.get("UNPOOLED_CLINIC_PASSWORD") is None


@pytest.mark.guarantee
def test_the_command_line_sets_up_a_party_of_a_query_and_the_doctor_looks_at_it(tmp_path: Path, monkeypatch) -> None:
    from typer.testing import CliRunner

    from unpooled.cli.main import app
    from unpooled.network.processes import examine

    rows(tmp_path)
    monkeypatch.chdir(tmp_path)
    query = "sql:SELECT a, b FROM 'rows.parquet'"
    proposed = CliRunner().invoke(app, ["party", "init", query, "--name", "ward"])
    assert "--column 'a=LOW:HIGH'" in proposed.output
    made = CliRunner().invoke(
        app, ["party", "init", query, "--name", "ward", "--column", "a=-10:10", "--column", "b=-10:10"]
    )
    assert made.exit_code == 0, made.output
    assert read_party(tmp_path / "party.toml").party.data == query
    config = tmp_path / "party.toml"
    (party,) = [finding for finding in examine(None, config, None) if finding.what == "party"]
    assert party.fine, party.words
    (tmp_path / "rows.parquet").unlink()
    (party,) = [finding for finding in examine(None, config, None) if finding.what == "party"]
    assert not party.fine
    assert party.words.startswith("source 'ward': it cannot be read")


def test_a_party_file_that_somebody_wrote_is_completed(tmp_path: Path) -> None:
    rows(tmp_path)
    first = party_of(tmp_path, "SELECT a, b FROM 'rows.parquet' WHERE a > 0")
    home = tmp_path / "written"
    home.mkdir()
    text = first.read_text().replace('"one.ledger"', '"two.ledger"').replace('name = "one"', 'name = "two"')
    (home / "party.toml").write_text(text)
    from unpooled.study.party import complete_party

    complete_party(home / "party.toml", new_budget=True)
    with open_party(home / "party.toml") as party:
        assert 2 <= party.table.n_rows < 100


def test_what_a_study_would_refuse_is_listed_with_its_rows(tmp_path: Path) -> None:
    from unpooled.study.data import inspect
    from unpooled.study.reading import DataFormat

    source = Source("SELECT CASE i WHEN 3 THEN NULL ELSE i END AS a FROM range(10) AS t(i) ORDER BY ALL", name="ward")
    columns = (Column("a", 0.0, 8.0),)
    found = inspect(source, columns, None, (), DataFormat(), SourceTable(source, ("a",), declared=columns))
    told = {fault.what: fault.count for fault in found.faults}
    assert told["a missing value, and the declaration refuses those"] == 1
    assert told["a value above the declared range, which is clipped"] == 1
    assert found.counted == "from 1"
