"""Rows as shards: the same bits whoever adds them up, and refusals that name the engine or the shard, before anything is debited."""

from __future__ import annotations

import asyncio
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import polars as pl
import pytest
from asked import bits, frame, shuffled
from clusters import COLUMNS, NAMES, Here, agreed, in_shards, party_of, rows_file, rows_of_a_file, spent

from unpooled.errors import ClusterError, DataError, RowsError, SourceError, StudyError
from unpooled.privacy.bounds import AsDeclared, Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import BoundedTable, Table
from unpooled.protocol.messages import Nothing, encode
from unpooled.study.cluster import section, table, work
from unpooled.study.cluster import table as scheduler
from unpooled.study.cluster.section import EngineSection
from unpooled.study.cluster.table import ClusterTable, DaskEngine
from unpooled.study.cluster.work import ROW_NUMBER, Shard, ShardAnswer, ShardTask, cut, file_address, serve
from unpooled.study.files import read_party
from unpooled.study.party import open_party
from unpooled.study.sources.table import BLOCK, Source, SourceTable

#: Studies, and which of their passes go to the workers.
PASSES = {
    "describe": {"_sums"},
    "tables": {"_cells"},
    "tables, numbers": {"_cells"},
    "describe, arms": {"_arms"},
    "survival": {"_exits"},
    "bayes": {"_deviations", "_moments", "_square"},
    "bayes, robust": {"scales", "descent", "spread", "_cells", "_residual", "_meat"},
    "bayes, focus": {"scales", "descent", "_cells", "_cross", "_residual", "_meat"},
    "glm": {"_base", "_scales", "_descent", "_cells", "_score", "_information"},
    "glm, poisson robust": {"_base", "_scales", "_descent", "_cells", "_score", "_information", "_meat"},
    "glm, direction": {"_base", "_scales", "_descent", "_probabilities"},
    "glm, survival": {"_base", "_scales", "_descent", "_cells", "_score", "_information"},
    "pls": {"_moments"},
    "diagnose": {"_cells"},
    "diagnose, classes": {"_cells"},
    "pride": {"_sketched"},
    "pride, cox": {"_sketched"},
    "lasso": set(),
    "stacking": set(),
    "stacking, ranked": set(),
    "stacking, probabilities": set(),
}


@pytest.fixture(scope="module")
def cases():
    sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))
    from cases import CASES

    return CASES


# --- the same bits ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.minutes
@pytest.mark.parametrize("name", PASSES)
def test_releases_are_the_same_bits_in_memory_and_in_shards(name: str, cases, tmp_path: Path) -> None:
    case, engine = cases[name](), Here()
    ordered = bool({"pride", "lasso", "stacking"} & set(name.split(", ")))
    tables = {n: t if ordered else shuffled(t, 5) for n, t in case.tables.items()}
    shards = {n: in_shards(t, n, tmp_path, engine, columns=case.study.card(n).columns) for n, t in tables.items()}
    assert bits(case.study, shards) == bits(case.study, case.tables)
    asked = [task.work for task in engine.tasks if task.work is not None]
    assert {one.statistic.__name__ for one in asked if not isinstance(one, AsDeclared)} == PASSES[name]
    for n, t in case.tables.items():  # every shard is part of every pass
        assert shards[n].n_rows == t.n_rows
    assert len({task.shard.number for task in engine.tasks}) > 2


@pytest.mark.guarantee
def test_a_statistic_that_counts_a_shard_twice_is_found_by_these_tests(cases, tmp_path: Path, monkeypatch) -> None:
    """The control: one shard counts double."""
    case, engine = cases["describe"](), Here()
    run = Here.run

    def twice(self, tasks):
        for place, answer in run(self, tasks):
            double = answer.values is not None and place == 1
            yield place, ShardAnswer(values=2 * answer.values) if double else answer

    monkeypatch.setattr(Here, "run", twice)
    shards = {n: in_shards(t, n, tmp_path, engine, columns=case.study.card(n).columns) for n, t in case.tables.items()}
    assert bits(case.study, shards) != bits(case.study, case.tables)


def studied(tables: dict[str, Table], model: str = "describe", parameters=None) -> bytes:
    cards = tuple(Card(name, t.n_rows, COLUMNS) for name, t in tables.items())
    return bits(Study(model, cards, 1.0, 1e-6, parameters=parameters or {}, simulation_seed=3, derived=()), tables)


@pytest.mark.slow
def test_a_parquet_file_is_cut_by_its_rows_and_has_the_digest_of_the_whole(tmp_path: Path) -> None:
    path = rows_file(tmp_path)
    parts = rows_of_a_file(path, NAMES, rows=BLOCK, columns=COLUMNS)
    whole = SourceTable(Source(f"SELECT * FROM '{path}'"), NAMES, declared=COLUMNS)
    assert len(parts._shards) == 3
    assert parts.digest == whole.digest
    assert not parts.unordered
    inside = Table({name: whole[name] for name in NAMES})
    for name in NAMES:
        assert parts[name].tobytes() == whole[name].tobytes()
    assert max(len(a) for (a,) in parts.blocks(("a",), 1000)) == 1000
    one = studied({"one": inside})
    assert studied({"one": parts}) == one == studied({"one": whole})
    for rows in (1, 2 * BLOCK, 10**6):
        assert studied({"one": rows_of_a_file(path, NAMES, rows=rows, columns=COLUMNS)}) == one


@pytest.mark.slow_but("word-cuts2", "share-cuts4")
@pytest.mark.parametrize(
    ("by", "cuts"), [("k", ()), ("k", ("-3", "0", "7")), ("word", ()), ("day", ()), ("share", ("0.5",))]
)
def test_every_row_is_in_one_shard_whatever_rows_are_cut_by(by: str, cuts, tmp_path: Path) -> None:
    query = (
        "SELECT sin(i) * 2 AS a, cos(i) AS b, i % 7 AS y, CASE WHEN i % 11 > 0 THEN i % 13 - 5 END AS k, "
        "CASE WHEN i % 5 > 0 THEN 'it''s ' || (i % 9) END AS word, DATE '2020-01-01' + (i % 40)::INT AS day, "
        "((i % 10) / 10)::DECIMAL(4, 2) AS share FROM range(500) AS t(i)"
    )
    source = Source(query, folder=tmp_path)
    parts = ClusterTable(source, NAMES, None, None, COLUMNS, Here(), by=by, cuts=cuts, shard_rows=100)
    assert len(parts._shards) > 1
    assert parts.n_rows == 500
    whole = SourceTable(source, NAMES, declared=COLUMNS)
    assert studied({"one": parts}) == studied({"one": whole})
    assert "the order of rows says who is who" in parts.unordered


def test_rows_that_belong_together_are_bounded_here_and_still_the_same(tmp_path: Path) -> None:
    path = rows_file(tmp_path, 300)
    names = (*NAMES, "i")
    parts, whole = rows_of_a_file(path, names, columns=COLUMNS), SourceTable(Source(f"SELECT * FROM '{path}'"), names)
    owners = np.array([str(k // 3) for k in range(300)], dtype=object)
    bounded = [BoundedTable(t, owners, 2, "i") for t in (parts, whole)]
    assert len({studied({"one": Table({n: t[n] for n in NAMES})}) for t in bounded}) == 1
    bounded[0].close()
    assert parts._engine.closed


def test_ids_are_in_the_order_of_shards(tmp_path: Path) -> None:
    inside = Table({"a": np.arange(30.0)})
    parts = in_shards(inside, "one", tmp_path)
    assert parts.ids() == frame(inside)["row_id"].to_list()
    assert not parts.unordered
    with pytest.raises(DataError, match="declares no id column"):
        rows_of_a_file(rows_file(tmp_path, 100), NAMES).ids()


# --- shards that are not what they were ------------------------------------------------------------------------------------------


@pytest.fixture
def here(monkeypatch) -> Here:
    engine = Here()
    monkeypatch.setattr(table, "DaskEngine", lambda *_: engine)
    return engine


def test_a_party_file_names_its_engine_and_answers(here: Here, tmp_path: Path) -> None:
    with open_party(party_of(tmp_path)) as party:
        party.answer(encode(agreed(party), "sums", 0, Nothing()))
        assert spent(party) == 1
        assert not here.closed
    assert here.closed
    assert {type(task.work).__name__ for task in here.tasks} == {"NoneType", "AsDeclared", "Sent"}


@pytest.mark.parametrize("change", ["a value", "a row more", "a row less", "gone"])
def test_a_shard_that_changed_is_refused_and_nothing_is_debited(change: str, here: Here, tmp_path: Path) -> None:
    with open_party(party_of(tmp_path)) as party:
        plan = agreed(party)
        rows = pl.read_parquet(tmp_path / "rows.parquet")
        if change == "a value":
            rows = rows.with_columns(a=pl.when(pl.col("i") == 7).then(1.25).otherwise(pl.col("a")))
        if change == "gone":
            (tmp_path / "rows.parquet").unlink()
        else:
            rows = rows if change == "a value" else rows[:-1] if change == "a row less" else pl.concat([rows, rows[:1]])
            rows.write_parquet(tmp_path / "rows.parquet")
        work._HELD.clear()
        with pytest.raises(SourceError, match=re.escape("rows.parquet, shard 1 of 1")) as caught:
            party.answer(encode(plan, "sums", 0, Nothing()))
        assert "1.25" not in str(caught.value)
        assert spent(party) == 0


def test_what_a_worker_kept_is_held_against_the_shard_too(tmp_path: Path) -> None:
    t = rows_of_a_file(rows_file(tmp_path, 100), NAMES)
    t.verify()
    t.passed(AsDeclared(COLUMNS))
    t.verify()  # was read for that
    rows_file(tmp_path, 100, seed=1)
    with pytest.raises(SourceError, match="has changed since this party opened it"):
        t.verify()
    with pytest.raises(SourceError, match="has changed since this party opened it"):
        t["a"]


@pytest.mark.guarantee
def test_another_number_of_rows_than_the_card_has_is_refused(here: Here, tmp_path: Path) -> None:
    with open_party(party_of(tmp_path)) as party:
        card = msgspec.structs.replace(party.card, rows=199)
        with pytest.raises(Exception, match="differ in rows"):
            agreed(party, card)
        assert spent(party) == 0
        object.__setattr__(party, "card", card)
        with pytest.raises(DataError, match="its card declares 199 rows, its data have 200"):
            agreed(party, card)
        assert spent(party) == 0


def test_shards_that_overlap_or_leave_rows_out_are_refused(tmp_path: Path, monkeypatch) -> None:
    def other(*asked):
        query, shards, counted = cut(*asked)
        return query, (*shards[:-1], Shard(1, 2, f"{ROW_NUMBER} >= {where}")), counted

    path = rows_file(tmp_path, 2 * BLOCK)
    monkeypatch.setattr(table, "cut", other)
    for where in (BLOCK - 1, BLOCK + 1):
        with pytest.raises(
            ClusterError, match=f"2 shards have {3 * BLOCK - where} rows together, the query has {2 * BLOCK}"
        ):
            rows_of_a_file(path, NAMES, rows=BLOCK)


@pytest.mark.guarantee
def test_values_that_no_declaration_allows_are_refused_by_the_worker(tmp_path: Path) -> None:
    strict = (COLUMNS[0], Column("b", -3.0, 3.0), COLUMNS[2])
    t = rows_of_a_file(rows_file(tmp_path, 100), NAMES, columns=strict)
    with pytest.raises(SourceError, match="shard 1 of 1': column 'b' holds NULL"):
        t.passed(AsDeclared(strict))
    with pytest.raises(DataError, match="'b' holds a missing value"):
        rows_of_a_file(rows_file(tmp_path, 100), NAMES).passed(AsDeclared(strict))


# --- workers that are not what they must be --------------------------------------------------------------------------------------


def test_a_worker_of_another_version_is_refused(tmp_path: Path, monkeypatch) -> None:
    path = rows_file(tmp_path, 100)
    monkeypatch.setattr(table, "versions", lambda: (*work.versions()[:-1], "duckdb 0.9"))
    with pytest.raises(
        ClusterError, match=r"shard 1 of 1: a worker has another version than this party \(duckdb .* instead of duckdb 0.9\)"
    ):
        rows_of_a_file(path, NAMES)


@pytest.mark.guarantee
def test_a_worker_that_compiles_another_plan_is_refused(tmp_path: Path) -> None:
    engine = Here()
    t = rows_of_a_file(rows_file(tmp_path, 100), NAMES, engine, columns=COLUMNS)
    studied({"one": t})
    sent = next(task.work for task in engine.tasks if isinstance(task.work, work.Sent))
    with pytest.raises(ClusterError, match="a worker compiles another plan"):
        replace(sent, plan=sent.plan[1:] + "0").over(t)


class Broken:
    """Work that fails and quotes a value."""

    joined = False

    def over(self, table):
        raise ValueError("the value 4711.25")


class Rows:
    joined = False

    def over(self, table):
        raise RowsError("row 17", "some rows")


def test_whatever_fails_on_a_worker_is_told_without_a_value_and_nothing_is_raised_there(tmp_path: Path) -> None:
    t = rows_of_a_file(rows_file(tmp_path, 100), NAMES)
    shard, known = t._shards[0]
    answer = serve(ShardTask(t._versions, t._reading, shard, known, Broken()))
    assert answer.refused == ("ClusterError", "engine 'dask', shard 1 of 1: it cannot be worked on (ValueError)")
    with pytest.raises(DataError, match="some rows") as caught:
        serve(ShardTask(t._versions, t._reading, shard, known, Rows())).or_refuse()
    assert "17" not in str(caught.value)
    for kind in ("listed", "RowsError", "nothing"):  # whatever a worker calls it
        with pytest.raises(ClusterError, match="words"):
            ShardAnswer(refused=(kind, "words")).or_refuse()


@pytest.mark.parametrize("bad", ["spill", "target", "folder", None])
def test_a_worker_that_would_leave_results_on_a_disk_is_refused(bad: str | None, tmp_path: Path, monkeypatch) -> None:
    import distributed

    tmp_path.chmod(0o755 if bad == "folder" else 0o700)
    if bad == "folder":  # pytest's own folders are its user's alone
        monkeypatch.setattr(work, "_OTHERS", 0o7777)
    memory = SimpleNamespace(
        memory_target_fraction=0.6 if bad == "target" else False, memory_spill_fraction=0.7 if bad == "spill" else False
    )
    monkeypatch.setattr(
        distributed, "get_worker", lambda: SimpleNamespace(memory_manager=memory, local_directory=str(tmp_path))
    )
    path = rows_file(tmp_path, 100)
    if bad is None:
        assert rows_of_a_file(path, NAMES).n_rows == 100
        assert not list(tmp_path.glob("unpooled-*")) or all(
            p.stat().st_mode & 0o077 == 0 for p in tmp_path.glob("unpooled-*")
        )
        return
    words = "mode 700" if bad == "folder" else r"memory\.target and \.spill to false"
    with pytest.raises(ClusterError, match=words):
        rows_of_a_file(path, NAMES)


def test_a_worker_keeps_small_shards_open_and_not_too_many(tmp_path: Path, monkeypatch) -> None:
    work._HELD.clear()
    path = rows_file(tmp_path, 4 * BLOCK)
    rows_of_a_file(path, NAMES, rows=BLOCK)
    assert len(work._HELD) == 4
    monkeypatch.setattr(work, "_OPEN", 2)
    rows_of_a_file(path, NAMES, rows=BLOCK)
    assert len(work._HELD) == 2
    monkeypatch.setattr(work, "KEPT", 3 * BLOCK - 1)
    rows_of_a_file(path, NAMES, rows=BLOCK)
    assert not work._HELD


# --- what a party file says ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"name": "spark"}, 'name = "dask" is the only engine'),
        ({"name": ""}, 'name = "dask" is the only engine'),
        ({"scheduler": "tcp://10.0.0.5:8786"}, 'plain "tcp://" is for 127.0.0.1 alone'),
        ({"scheduler": "tcp://127.0.0.1.evil.example:8786"}, 'plain "tcp://" is for 127.0.0.1 alone'),
        ({"scheduler": ""}, 'scheduler is "tls://HOST:PORT"'),
        ({"scheduler": "tls://10.0.0.5:8786", "ca": "ca.pem"}, "needs `ca`, `certificate` and `key`"),
        ({"shard_rows": 0}, "are positive"),
        ({"patience": 0.0}, "are positive"),
        ({"cuts": ("1",)}, "cuts are values of the column"),
        ({"by": "i"}, "a Parquet file is cut by its rows"),
    ],
)
def test_a_section_that_cannot_work_is_refused(said: dict, words: str, tmp_path: Path) -> None:
    config = party_of(tmp_path, said=said)
    with pytest.raises(StudyError, match=re.escape(words)), open_party(config):
        pass


def test_the_page_s_party_file_is_one(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "sources.md").read_text().partition("\n## Rows on a cluster")[2]
    (example,) = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    rest = '[[columns]]\nname = "systolic"\nlow = 60.0\nhigh = 250.0\n[policy]\nepsilon = 1.0\ndelta = 1e-6\n'
    (tmp_path / "party.toml").write_text(f"{example}\n{rest}")
    said = read_party(tmp_path / "party.toml").engine
    said.check("north")
    keys = re.findall(
        r"^\| ((?:`\w+`(?:, )?)+) \|", page.partition("| key | what |")[2].partition("\n\n")[0], flags=re.MULTILINE
    )
    told = {key for row in keys for key in re.findall(r"`(\w+)`", row)}
    assert told == {field.name for field in msgspec.structs.fields(said)}
    defaults = {field.name: field.default for field in msgspec.structs.fields(said)}
    assert (defaults["shard_rows"], defaults["patience"]) == (1_000_000, 60)


def test_an_unknown_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="workers"):
        read_party(party_of(tmp_path, said={"workers": 4}))


def test_data_that_cannot_be_cut_are_refused(tmp_path: Path, here: Here) -> None:
    config = party_of(tmp_path)
    text = config.read_text()
    pl.read_parquet(tmp_path / "rows.parquet").write_csv(tmp_path / "rows.csv")
    config.write_text(text.replace("rows.parquet", "rows.csv"))
    with pytest.raises(StudyError, match="store it as Parquet"), open_party(config):
        pass
    config.write_text(text.replace('"../rows.parquet"', "\"sql:SELECT * FROM '../rows.parquet'\""))
    with pytest.raises(StudyError, match="say `by`"), open_party(config):
        pass
    config.write_text(config.read_text().replace("[engine]", '[engine]\nby = "i"'))
    with open_party(config) as party:
        assert party.table.n_rows == 200
    for kind in ("true", "INTERVAL 1 DAY", "TIMESTAMPTZ '2020-01-01 00:00:00+00'", "[1]", "{'a': 1}"):
        with pytest.raises(ClusterError, match="numbers, text or dates: 'flag' is none"):
            cut(Source(f"SELECT {kind} AS flag"), "flag", (), 10)
    for by, words in (("nobody", "no column 'nobody' to be cut by"), ("flag", "'flag' is none")):
        with pytest.raises(ClusterError, match=words):
            cut(Source("SELECT true AS flag"), by, (), 10)
    with pytest.raises(SourceError, match="does not fit the type"):
        cut_table = Source("SELECT i FROM range(10) AS t(i)")
        ClusterTable(cut_table, ("i",), None, None, (), Here(), by="i", cuts=("monday",))
    with pytest.raises(ClusterError, match="no column 'z' among its 1"):
        ClusterTable(Source("SELECT i FROM range(10) AS t(i)"), ("z",), None, None, (), Here(), by="i")


def test_certificates_are_passed_on_and_a_key_that_others_can_read_is_not_used(tmp_path: Path, monkeypatch) -> None:
    import distributed

    said = EngineSection("dask", "tls://10.0.0.5:8786", "ca.pem", "own.pem", "own.key")
    for name in ("ca.pem", "own.pem", "own.key"):
        (tmp_path / name).write_text("")
    (tmp_path / "own.key").chmod(0o644)
    with pytest.raises(StudyError, match=r"others can read own.key \(mode 644\)"):
        said.files("one", tmp_path)
    (tmp_path / "own.key").chmod(0o600)
    asked = {}
    monkeypatch.setattr(distributed, "Client", lambda address, **more: asked.update(more, address=address))
    DaskEngine(said, "one", tmp_path)
    assert asked["address"] == "tls://10.0.0.5:8786"
    assert asked["security"].require_encryption
    assert asked["security"].tls_client_key == str(tmp_path / "own.key")
    assert asked["security"].tls_ca_file == str(tmp_path / "ca.pem")
    (tmp_path / "own.pem").unlink()
    with pytest.raises(StudyError, match=r"own\.pem cannot be read"):
        said.files("one", tmp_path)
    moved = said.moved(tmp_path, tmp_path / "deeper")
    assert (moved.ca, moved.key) == ("../ca.pem", "../own.key")
    assert EngineSection().moved(tmp_path, tmp_path / "deeper") == EngineSection()


@pytest.mark.guarantee
def test_without_the_extra_the_words_say_what_to_install(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(StudyError, match=r"pip install 'unpooled\[dask\]'"), open_party(party_of(tmp_path)):
        pass


def test_a_scheduler_that_cannot_be_reached_is_refused(tmp_path: Path) -> None:
    config = party_of(tmp_path, said={"patience": 0.5})
    with pytest.raises(ClusterError, match="'one': engine 'dask': its scheduler cannot be reached"), open_party(config):
        pass


class Later:
    """A future whose worker was lost after it had finished; what it says next is in the list."""

    def __init__(self, *says) -> None:
        self.says = list(says)

    def result(self, timeout):
        said = self.says.pop(0)
        if isinstance(said, BaseException):
            raise said
        return said


def connected(workers: dict) -> DaskEngine:
    engine = DaskEngine.__new__(DaskEngine)
    engine._client = SimpleNamespace(status="running", scheduler_info=lambda n_workers: {"workers": workers})
    engine._patience = 0.0
    return engine


def test_what_was_finished_and_lost_is_waited_for(tmp_path: Path) -> None:
    t = rows_of_a_file(rows_file(tmp_path, 100), NAMES)
    task = ShardTask(t._versions, t._reading, t._shards[0][0])
    found = ShardAnswer(values=np.array([3]))
    assert connected({"one": {}})._answer(task, Later(TimeoutError(), TimeoutError(), found)) is found
    for said, words in (
        (TimeoutError(), "has no worker, and none came within 0 seconds"),
        (ValueError("4711.25"), r"shard 1 of 1: no worker could finish it \(ValueError\)"),
        (asyncio.CancelledError(), r"shard 1 of 1: no worker could finish it \(CancelledError\)"),
        ("something", "shard 1 of 1: a worker answered something else"),
    ):
        with pytest.raises(ClusterError, match=words) as caught:
            connected({})._answer(task, Later(said, TimeoutError()))
        assert "4711" not in str(caught.value)


def test_the_engine_is_left_where_the_data_cannot_be_used(tmp_path: Path, here: Here) -> None:
    config = party_of(tmp_path)
    rows_file(tmp_path, 0)
    with pytest.raises(DataError, match="0 row"), open_party(config):
        pass
    assert here.closed


def test_loopback_is_this_machine() -> None:
    assert all(address.endswith(":") for address in section._LOOPBACK)
    assert file_address(Path("it's.parquet")).query.count("''") == 1
    assert scheduler.ShardAnswer is ShardAnswer
