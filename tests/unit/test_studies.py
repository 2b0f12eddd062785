"""study.toml, party.toml and cards; the commands; what a person reads when something is wrong."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
from commands import PARTIES, STUDY, approve, command, two_parties

from unpooled.errors import DataError, StudyError, UsageError
from unpooled.privacy.bounds import Column
from unpooled.privacy.mechanisms import GaussianRelease
from unpooled.privacy.plan import Card
from unpooled.privacy.unit import Target, Unit
from unpooled.study.data import read_table, write_sparse
from unpooled.study.files import read_card, read_party, read_study, write_card
from unpooled.study.finished import moment
from unpooled.study.party import DiskKeeper, create_party, open_party


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return two_parties(tmp_path)


@pytest.mark.slow
def test_a_study_from_plan_to_ledger(world: Path) -> None:
    planned = command(world, "plan", "study.toml")
    assert "Differentially private with epsilon = 1" in planned
    as_data = json.loads(command(world, "plan", "study.toml", "--json"))
    assert as_data["statement"]["holds"]
    assert len(as_data["releases"]) == 2
    refused = command(world, "run", "study.toml", *PARTIES, code=3)
    assert "not approved" in refused
    assert "Not approved" in command(world, "party", "check", "study.toml", "--config", "north/party.toml")
    approve(world)
    assert "already approved" in command(world, "party", "check", "study.toml", "--config", "north/party.toml")
    shown = command(world, "run", "study.toml", *PARTIES)
    assert "sex = f" in shown
    result = json.loads((world / "study.run/result.json").read_text())
    assert result["plan"] == as_data["plan"]
    again = json.loads(command(world, "run", "study.toml", *PARTIES, "--json", "--out", "other"))
    assert again["result"] == result["result"]  # another coordinator, the same stored releases
    account = json.loads(command(world, "party", "ledger", "--config", "north/party.toml", "--json"))
    assert account["spent_epsilon"] == pytest.approx(1.0)
    assert [entry["kind"] for entry in account["entries"]] == ["approval", "charge"]
    text = command(world, "party", "ledger", "--config", "north/party.toml")
    assert "spent: epsilon = 1 of 1" in text
    assert account["head"] in text
    (world / "study.toml").write_text(STUDY.replace('"describe"', '"describe"\nrun = 2'))
    over = command(world, "party", "check", "study.toml", "--config", "north/party.toml", code=3)
    assert "no room" in over


@pytest.mark.slow
def test_results_of_a_study_are_right(world: Path) -> None:
    (world / "study.toml").write_text(STUDY.replace('"describe"', '"describe"\nsimulation_seed = 1'))
    assert "seed" in command(world, "party", "check", "study.toml", "--config", "north/party.toml", code=3)
    for name in ("north", "south"):
        path = world / name / "party.toml"
        path.write_text(path.read_text().replace("allow_simulation = false", "allow_simulation = true"))
    approve(world)
    result = json.loads(command(world, "run", "study.toml", *PARTIES, "--json"))["result"]
    ages = np.concatenate(
        [pl.read_csv(world / "north/data.csv")["age"], pl.read_parquet(world / "south/data.parquet")["age"]]
    )
    pooled = next(r for r in result if r["source"] == "pooled" and r["column"] == "age")
    # The seed's noise follows the plan, hence the parties' fresh keys: five deviations, where the interval has two.
    assert abs(pooled["mean"]["value"] - ages.mean()) < 1.25 * (pooled["mean"]["high"] - pooled["mean"]["low"])
    twice = [r["count"]["value"] for r in result if r["source"] == "pooled" and r["column"] in ("sex", "old")]
    assert sum(twice) == pytest.approx(1000, abs=200)


@pytest.mark.guarantee
def test_approval_by_listed_hash_and_by_answer(world: Path, monkeypatch) -> None:
    plan = json.loads(command(world, "plan", "study.toml", "--json"))["plan"]
    path = world / "north/party.toml"
    path.write_text(path.read_text().replace('approval = "ask"', f'approval = ["{plan}"]'))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda _question: True)
    assert "Approved" in command(world, "party", "check", "study.toml", "--config", "south/party.toml")
    command(world, "run", "study.toml", *PARTIES)


@pytest.mark.slow
def test_init_writes_files_that_work(world: Path) -> None:
    made = command(
        world,
        "party",
        "init",
        "north/data.csv",
        "--name",
        "new",
        "--id",
        "id",
        "--column",
        "age=0:100;absent",
        "--column",
        "sex=f,m",
        "--folder",
        "new",
        "--epsilon",
        "2",
        "--new-budget",
    )
    assert "new.card.toml" in made
    card = read_card(world / "new/new.card.toml")
    assert (card.name, card.rows) == ("new", 300)
    assert card.columns[0] == Column("age", 0.0, 100.0, missing="absent")
    assert read_party(world / "new/party.toml").policy.epsilon == 2.0
    with open_party(world / "new/party.toml") as party:
        assert party.table.n_rows == 300
    assert oct((world / "new/new.ledger.key").stat().st_mode)[-3:] == "600"
    assert "exists already" in command(
        world, "party", "init", "north/data.csv", "--name", "new", "--column", "age=0:1", "--folder", "new", code=2
    )
    assert "declare at least one" in command(world, "party", "init", "north/data.csv", "--name", "x", code=2)
    for wrong in ("age", "age=1", "age=a:b", "age=5:1", "age=0:1;maybe", "weight=0:1", "id=0:1"):
        command(
            world, "party", "init", "north/data.csv", "--name", "y", "--id", "id", "--column", wrong, "--folder", "y", code=2
        )
    assert not (world / "y").exists()


STUDY_ERRORS = [
    ("epsilon = 1.0", "epsilonn = 1.0", "epsilonn"),
    ("epsilon = 1.0", "epsilon = nan", "nan"),
    ("epsilon = 1.0", "epsilon = -5", "epsilon"),
    ("epsilon = 1.0", "epsilon = true", "float"),
    ("epsilon = 1.0", "epsilon = 1e-400", "epsilon"),
    ("delta = 1e-6", "delta = 2", "delta"),
    ("delta = 1e-6", 'unit = "person"', "person"),
    ('"describe"', '"descibe"', "descibe"),
    ('"describe"', "3", "model"),
    ("north/north", "north/nowhere", "cannot be read"),
    ("[study]", "[study", "not a TOML"),
    ("south/south", "north/north", "each name once"),
]


@pytest.mark.slow_for("delta = 1e-6-delta = 2-delta")
@pytest.mark.parametrize(("old", "new", "words"), STUDY_ERRORS)
def test_errors_in_a_study_name_file_and_key(world: Path, old: str, new: str, words: str) -> None:
    (world / "study.toml").write_text(STUDY.replace(old, new))
    printed = command(world, "plan", "study.toml", code=2)
    assert words in printed
    assert "Traceback" not in printed


PARTY_ERRORS = [
    ("[policy]", "[polcy]", "polcy"),
    ("epsilon = 1.0", "epsilon = inf\nhidden = 1", "hidden"),
    ("epsilon = 1.0", "epsilon = nan", "nan"),
    ('"ask"', '"yes"', "approval"),
    ('"ask"', '["12"]', "64"),
    ('["sound"]', '["loud"]', "loud"),
    ("high = 100.0", "high = -1.0", "low must be smaller"),
    ("data.csv", "gone.csv", "no such data file"),
    ('name = "age"', 'name = "weight"', "no column 'weight'"),
    ('name = "age"', 'name = "id"', "id column"),
    ("north.ledger", "lost.ledger", "lost.ledger"),
]


@pytest.mark.parametrize(("old", "new", "words"), PARTY_ERRORS)
def test_errors_in_a_party_file_name_file_and_key(world: Path, old: str, new: str, words: str) -> None:
    path = world / "north/party.toml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    code = 3 if "lost" in words else 2
    printed = command(world, "party", "check", "study.toml", "--config", "north/party.toml", code=code)
    assert words in printed
    assert "Traceback" not in printed


def test_a_card_that_is_not_the_partys_own_is_refused(world: Path) -> None:
    path = world / "north/north.card.toml"
    path.write_text(path.read_text().replace("100.0", "200.0"))
    south = world / "south/south.card.toml"
    south.write_text(south.read_text().replace("100.0", "200.0"))
    assert "card" in command(world, "party", "check", "study.toml", "--config", "north/party.toml", code=3)


def test_a_run_without_a_partys_file_or_with_bad_data_is_refused(world: Path) -> None:
    assert "--party" in command(world, "run", "study.toml", "--party", "north/party.toml", code=2)
    approve(world)
    frame = pl.read_csv(world / "north/data.csv").with_columns(pl.lit(None, dtype=pl.Float64).alias("age"))
    frame.write_csv(world / "north/data.csv")
    printed = command(world, "run", "study.toml", *PARTIES, code=2)
    assert "'age'" in printed
    with open_party(world / "south/party.toml") as party:
        assert party.ledger.composition(Unit.RECORD).epsilon(1e-6) == 0


def test_default_delta_and_empty_parties(world: Path) -> None:
    (world / "study.toml").write_text(STUDY.replace("delta = 1e-6", ""))
    assert read_study(world / "study.toml").delta == 1e-5
    (world / "study.toml").write_text(STUDY.split("[[party]]", maxsplit=1)[0] + "")
    with pytest.raises(StudyError, match="party"):
        read_study(world / "study.toml")
    (world / "study.toml").write_text("party = []\n" + STUDY.split("[[party]]", maxsplit=1)[0])
    with pytest.raises(StudyError, match="no party"):
        read_study(world / "study.toml")


def test_data_files_that_cannot_be_read_give_no_content_away(tmp_path: Path) -> None:
    broken = tmp_path / "data.parquet"
    broken.write_bytes(b"SECRET not parquet")
    with pytest.raises(DataError) as caught:
        read_table(broken, ("a",))
    assert "SECRET" not in str(caught.value)


@pytest.mark.guarantee
def test_kept_values_are_private_files(tmp_path: Path) -> None:
    keeper = DiskKeeper(tmp_path / "kept")
    keeper.keep("a" * 64, "coef", np.arange(3.0))
    keeper.keep("a" * 64, "coef", np.arange(4.0))
    assert keeper.kept("a" * 64, "coef").tolist() == [0, 1, 2, 3]
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "kept").iterdir())
    with pytest.raises(UsageError, match="nothing named"):
        keeper.kept("b" * 64, "coef")
    with pytest.raises(UsageError, match="letters"):
        keeper.keep("a" * 64, "../x", np.zeros(1))


@pytest.mark.guarantee
def test_what_a_dead_process_left_is_in_nobodys_way_and_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes of a party may keep the same value at the same time: each writes under a name of its own."""
    keeper, folder = DiskKeeper(tmp_path / "kept"), tmp_path / "kept"
    real = np.save

    def interrupted(out: object, values: np.ndarray, **words: bool) -> None:
        DiskKeeper(folder).keep("a" * 64, "coef", values + 1)
        real(out, values, **words)

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", lambda *given, **words: (patch.setattr(np, "save", real), interrupted(*given, **words)))
        keeper.keep("a" * 64, "coef", np.arange(3.0))
    assert keeper.kept("a" * 64, "coef").tolist() == [0, 1, 2]
    assert [file.suffix for file in folder.iterdir()] == [".npy"]

    def full(*_: object, **__: bool) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", full)
        with pytest.raises(OSError, match="No space"):
            keeper.keep("a" * 64, "coef", np.arange(5.0))
    assert keeper.kept("a" * 64, "coef").tolist() == [0, 1, 2]
    assert [file.suffix for file in folder.iterdir()] == [".npy"]

    for plan in "ab":
        (folder / f"{plan * 32}-coef.xyz.tmp").touch()
    assert keeper.names("a" * 64) == ["coef"]
    assert keeper.forget("a" * 64) == ["coef"]
    assert [file.name[0] for file in folder.iterdir()] == ["b"]
    assert keeper.forget("b" * 64) == []
    assert list(folder.iterdir()) == []
    assert keeper.forget("b" * 64) == []


@pytest.mark.guarantee
def test_times_that_no_calendar_has_are_no_error() -> None:
    assert moment(0) == moment(-5.0) == moment(4e11) == moment(1e300) == ""
    assert moment(1.7e9) == "2023-11-14 22:13"


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.minutes
def test_the_demo_is_a_tour_that_ends_with_a_report(world: Path) -> None:
    shown = command(world, "demo", "--epsilon", "2", "--out", "tour")
    for words in ("1. Rows.", "2. Columns.", "3. Spectra.", "simulated with", "tour/rows/study.run/report.html"):
        assert words in shown
    text = (world / "tour/rows/study.run/report.html").read_text()
    assert "a tour of unpooled" in text
    assert "A guarantee holds for one person" in text
    age = re.search(r"^age, per year +([\d.]+) +([\d.]+) +0\.55", shown, flags=re.MULTILINE)
    assert abs(float(age[1]) - 0.55) < 5 * float(age[2])
    error, spread = (float(re.search(rf"{what} +([\d.]+)", shown)[1]) for what in ("400 new samples", "standard deviation"))
    assert error < spread
    ledger = command(world, "party", "ledger", "--config", "tour/columns/clinic/party.toml")
    assert "spent: epsilon = 5 of 5" in ledger
    assert "exists already" in command(world, "demo", "--out", "tour", code=2)


def test_version_and_help(world: Path) -> None:
    assert "unpooled 0" in command(world, "--version")
    assert "Commands" in command(world, "--help")
    assert "nonsense" in command(world, "nonsense", code=2)


@pytest.mark.slow
def test_the_installed_command_runs(world: Path) -> None:
    script = Path(sys.executable).parent / "unpooled"
    done = subprocess.run(
        [script, "plan", "nothing.toml"], capture_output=True, text=True, cwd=world, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "cannot be read" in done.stderr
    assert done.stdout == ""


# --- files of sparse columns ----------------------------------------------------------------------------------------------

RNG = np.random.default_rng(5)
COUNTS = np.where(RNG.random((30, 8)) < 0.3, RNG.integers(1, 5, (30, 8)), 0).astype(float)
TERMS = ["the", "of/..", "Ünïcode", "d", "e", "f", "g", "path"]
IDS = [f"doc {i}" for i in range(30)]
DENSE = {
    "y": RNG.normal(size=30),
    "kind": np.array([*"abc" * 9, None, "", "None"], dtype=object),
    "id": IDS,
    "names": np.ones(30),
}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    write_sparse(tmp_path / "data.npz", sp.csr_array(COUNTS), TERMS, **DENSE)
    return tmp_path / "data.npz"


def test_sparse_columns_come_back_from_their_file(archive: Path) -> None:
    names = ("g", "y", "the", "kind", "path", "names")
    table = read_table(archive, names, "id")
    assert sorted(table.names) == sorted(names)
    assert set(table.sparse_names) == {"g", "the", "path"}
    assert table.n_rows == 30
    for name in names:
        expected = COUNTS[:, TERMS.index(name)] if name in TERMS else DENSE[name]
        assert table[name].tolist() == list(expected)
    assert table["kind"].tolist()[-3:] == [None, "", "None"]
    whole = read_table(archive, tuple(TERMS))
    assert np.array_equal(whole.sparse(TERMS).toarray(), COUNTS)
    assert read_table(archive, ("y",)).names == ("y",)


def test_the_digest_of_a_table_of_sparse_columns_is_that_of_its_file(archive: Path) -> None:
    table = read_table(archive, ("the",))
    assert table.digest == hashlib.sha256(archive.read_bytes()).digest()
    before = table.digest
    write_sparse(archive, sp.csr_array(2 * COUNTS), TERMS)
    assert table.digest == before  # it is what was read that counts
    assert read_table(archive, ("the",)).digest != before


@pytest.mark.guarantee
def test_row_ids_of_a_file_of_sparse_columns(archive: Path, tmp_path: Path) -> None:
    pl.DataFrame({"id": IDS, "y": DENSE["y"]}).write_csv(tmp_path / "other.csv")
    other = read_table(tmp_path / "other.csv", ("y",), "id")
    assert read_table(archive, ("the",), "id").ids_digest(b"k") == other.ids_digest(b"k")
    with pytest.raises(DataError, match="declares no id column"):
        read_table(archive, ("the",)).ids_digest(b"k")
    for name in ("y", "the"):
        with pytest.raises(DataError, match=f"id column '{name}' is not text"):
            read_table(archive, ("d",), name).ids_digest(b"k")
    with pytest.raises(StudyError, match="cannot be declared"):
        read_table(archive, ("the", "id"), "id")


def test_a_column_that_a_file_of_sparse_columns_lacks_is_named_as_in_any_file(archive: Path, tmp_path: Path) -> None:
    pl.DataFrame({"y": DENSE["y"]}).write_csv(tmp_path / "other.csv")
    for names, ids in ((("the", "lost"), None), (("the",), "lost")):
        with pytest.raises(DataError, match=r"data\.npz has no column 'lost' among its 12"):
            read_table(archive, names, ids)
        with pytest.raises(
            DataError, match=r"other\.csv has no column '(lost|the)' among its 1: is its first line a header"
        ):
            read_table(tmp_path / "other.csv", names, ids)
    with pytest.raises(StudyError, match="no such data file"):
        read_table(tmp_path / "gone.npz", ("the",))


def damaged(archive: Path) -> dict[str, bytes]:
    """What can have become of a file."""
    content = archive.read_bytes()

    def rewritten(**changes: object) -> bytes:
        out = io.BytesIO()
        with np.load(archive) as stored:
            parts = {key: stored[key] for key in stored.files} | changes
        np.savez(out, **{key: part for key, part in parts.items() if part is not None})
        return out.getvalue()

    objects = np.array([{"SECRET": 1}], dtype=object)
    out = io.BytesIO()
    np.save(out, COUNTS)
    return {
        "cut": content[: len(content) // 2],
        "cut late": content[:-30],
        "empty": b"",
        "no archive": b"SECRET, not an archive",
        "one array": out.getvalue(),
        "flipped": content.replace(b"doc", b"DOC").replace(IDS[3].encode("utf-32-le"), "SECRET".encode("utf-32-le")[:20]),
        "a part is lost": rewritten(indptr=None),
        "pickled": rewritten(data=objects),
        "indices beyond the rows": rewritten(indices=np.full(np.count_nonzero(COUNTS), 31)),
        "columns that run backwards": rewritten(indptr=np.array([0, 9, 3, 9, 9, 9, 9, 9, np.count_nonzero(COUNTS)])),
        "another shape": rewritten(shape=np.array([30, 7])),
        "no shape": rewritten(shape=np.array(["SECRET"])),
        "other names": rewritten(names=np.array(["the"])),
        "a name twice": rewritten(names=np.array([*TERMS[:7], "the"])),
        "values that are text": rewritten(data=np.array(["SECRET"] * np.count_nonzero(COUNTS))),
        "a shorter column": rewritten(column_0=np.ones(29)),
    }


@pytest.mark.guarantee
def test_a_damaged_file_of_sparse_columns_gives_no_content_away(archive: Path) -> None:
    for what, content in damaged(archive).items():
        broken = archive.with_name("broken.npz")
        broken.write_bytes(content)
        with pytest.raises(DataError) as caught:
            read_table(broken, ("y", "the"), "id")
        assert not any(word in str(caught.value) for word in ("SECRET", "doc", "31", "29 ")), what


def test_what_a_file_of_sparse_columns_cannot_hold_is_refused(tmp_path: Path) -> None:
    matrix, path = sp.csc_array(COUNTS), tmp_path / "data.npz"
    with pytest.raises(StudyError, match=r"stored in \.npz files"):
        write_sparse(tmp_path / "data.bin", matrix, TERMS)
    for names, columns in (
        (["a\0", *TERMS[1:]], {}),
        (TERMS, {"kind": np.array(["x\0"] * 30, dtype=object)}),
        (TERMS, {"y\0": np.ones(30)}),
    ):
        with pytest.raises(DataError, match="NUL"):
            write_sparse(path, matrix, names, **columns)
    with pytest.raises(DataError, match="7 names"):
        write_sparse(path, matrix, TERMS[:7])
    assert not path.exists()


@pytest.mark.guarantee
def test_a_party_of_sparse_columns_takes_part(world: Path) -> None:
    """One party's file is sparse, the other's is the same in CSV: refusals and results are those of any file."""
    columns = tuple(Column(name, -5.0, 5.0) for name in TERMS)
    for name in ("one", "two"):
        (world / name).mkdir()
    write_sparse(world / "one/data.npz", sp.csr_array(COUNTS), TERMS, id=IDS)
    pl.DataFrame({name: COUNTS[:, j] for j, name in enumerate(TERMS)} | {"id": IDS}).write_csv(world / "two/data.csv")
    create_party(world / "one", "one", world / "one/data.npz", columns, Target(90.0, 1e-6), "id")
    create_party(world / "two", "two", world / "two/data.csv", columns, Target(90.0, 1e-6), "id")
    text = STUDY.replace("north", "one").replace("south", "two")
    (world / "study.toml").write_text(text.replace("epsilon = 1.0", "epsilon = 9.0"))
    for name in ("one", "two"):
        command(world, "party", "check", "study.toml", "--config", f"{name}/party.toml", "--approve")
    shown = command(world, "run", "study.toml", "--party", "one/party.toml", "--party", "two/party.toml", "--json")
    found = [r["mean"] for r in json.loads(shown)["result"] if r["source"] == "pooled"]
    for mean, truth in zip(found, COUNTS.mean(axis=0), strict=True):
        assert mean["low"] - 1 < truth < mean["high"] + 1
    holed = sp.csr_array(COUNTS)
    holed.data[0] = np.nan
    write_sparse(world / "one/data.npz", holed, TERMS, id=IDS)
    for kind in ("low = -5.0", "low = 0.0"):  # coded sparse, and not
        path = world / "one/party.toml"
        path.write_text(path.read_text().replace("low = -5.0", kind))
        for card in (world / "one/one.card.toml", world / "two/two.card.toml"):
            card.write_text(card.read_text().replace("low = -5.0", kind))
        printed = command(world, "party", "check", "study.toml", "--config", "one/party.toml", code=2)
        assert (
            "holds a missing value, and its declaration does not say what becomes of it: for a table declare missing = 'complete'"
            in printed
        )
    made = ("party", "init", "one/data.npz", "--name", "new", "--folder", "new")
    assert "declare at least one column of data.npz" in command(world, *made, code=2)
    assert "new.card.toml" in command(world, *made, "--column", "the=-5:5", "--id", "id", "--new-budget")


@pytest.mark.long
@pytest.mark.slow
def test_a_study_is_audited_without_data(world: Path, monkeypatch) -> None:
    words = command(world, "audit", "study.toml", "--rows", "12", "--rounds", "1")
    assert "no violation" in words
    assert "of the declared bound" in words
    found = json.loads(command(world, "audit", "study.toml", "--rows", "12", "--rounds", "1", "--json"))
    assert found["passed"]
    assert 0.9 < max(entry["part_of_bound"] for entry in found["largest"]) <= 1 + 1e-9
    honest = GaussianRelease.change
    monkeypatch.setattr(GaussianRelease, "change", lambda self, one, other: 1.2 * honest(self, one, other))
    assert "VIOLATIONS" in command(world, "audit", "study.toml", "--rows", "12", "--rounds", "1", code=1)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.minutes
def test_a_run_becomes_a_page(world: Path) -> None:
    approve(world)
    command(world, "run", "study.toml", *PARTIES)
    words = command(world, "report", "study.run")
    assert "A guarantee holds" in words
    text = (world / "study.run" / "report.html").read_text()
    assert "The stored result is the recomputed one." in text
    (world / "study.run" / "result.json").write_text("{}")
    assert "WARNING" in command(world, "report", "study.run", "--out", "page.html")
    assert (world / "page.html").is_file()
    assert "no transcript" in command(world, "report", "north", code=2)


@pytest.mark.parametrize("purpose", ["\\u001b[31mred", "two\\nlines", "x" * 501])
def test_a_purpose_is_a_printable_line(world: Path, purpose: str) -> None:
    (world / "study.toml").write_text(STUDY.replace('"describe"', f'"describe"\npurpose = "{purpose}"'))
    said = command(world, "party", "check", "study.toml", "--config", "north/party.toml", code=2)
    assert "printable characters" in said
    assert "\x1b" not in said


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.minutes
def test_a_page_says_why_by_whom_when_and_what_is_left(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import getpass

    (world / "study.toml").write_text(
        STUDY.replace("epsilon = 1.0", "epsilon = 0.25").replace('"describe"', '"describe"\npurpose = "to plan beds"')
    )
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")
    assert "Purpose, as study.toml says" in command(world, "party", "check", "study.toml", "--config", "north/party.toml")
    approve(world)
    assert re.search(
        r"plan [0-9a-f]{16}  approval describe: to plan beds by ada for the data with digest [0-9a-f]{16}$",
        command(world, "party", "ledger", "--config", "north/party.toml", "--all"),
        re.MULTILINE,
    )
    command(world, "run", "study.toml", *PARTIES)
    about = json.loads((world / "study.run/about.json").read_text())
    assert (about["by"], about["purpose"]) == ("ada", "to plan beds")
    assert [(left["party"], round(left["spent"], 3), left["allowed"]) for left in about["budgets"]] == [
        ("north", 0.25, 1.0),
        ("south", 0.25, 1.0),
    ]
    monkeypatch.setattr(getpass, "getuser", lambda: (_ for _ in ()).throw(OSError))
    command(world, "run", "study.toml", *PARTIES)  # a run is described once, by whoever ran it
    assert json.loads((world / "study.run/about.json").read_text()) == about
    (world / "study.run/about.json").unlink()
    command(world, "run", "study.toml", *PARTIES)
    assert json.loads((world / "study.run/about.json").read_text())["by"] == ""
    command(world, "report", "study.run")
    text = (world / "study.run/report.html").read_text()
    for words in ("to plan beds", "an account without a name", "epsilon = 0.25 of 1 is spent", "Budget of south"):
        assert words in text
    command(world, "report", "study.toml", "--config", "north/party.toml")
    assert "to plan beds" in (world / "study.north.html").read_text()


def test_a_file_without_a_header_does_not_show_its_first_row(world: Path) -> None:
    lines = (world / "north" / "data.csv").read_text().splitlines()
    (world / "bare.csv").write_text("\n".join(lines[1:]))
    first = lines[1].split(",")
    made = ("party", "init", "bare.csv", "--name", "bare", "--folder", "bare", "--column", "age=0:100")
    words = command(world, *made, code=2)
    assert "is its first line a header" in words
    assert not any(value in words for value in first if len(value) > 3)
    (world / "twice.csv").write_text("age,sex,age\n1,f,2\n3,m,4\n")
    assert "bear the name of another" in command(world, "party", "init", "twice.csv", *made[3:], code=2)


def test_a_party_that_cannot_be_made_leaves_nothing_behind(world: Path) -> None:
    made = ("party", "init", "north/data.csv", "--name", "new", "--folder", "new", "--column", "age=0:100")
    assert "each name once" in command(world, *made, "--column", "age=0:90", code=2)
    assert not (world / "new").exists()
    assert "--new-budget" in command(world, *made, code=2)
    assert not (world / "new").exists()
    assert "new.card.toml" in command(world, *made, "--new-budget")


@pytest.mark.minutes
def test_a_card_whose_path_no_file_system_takes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(
        '[study]\nmodel = "describe"\n[privacy]\nepsilon = 1.0\n[[party]]\ncard = "\\u0000"\n'
    )
    with pytest.raises(StudyError, match="not the path of a file"):
        read_study(tmp_path / "study.toml")


@pytest.mark.long
@pytest.mark.slow
def test_the_file_systems_refusals_are_words(world: Path) -> None:
    approve(world)
    command(world, "run", "study.toml", *PARTIES)
    assert "check the path" in command(world, "report", "study.run", "--out", "north", code=2)
    assert "check the path" in command(world, "report", "study.run", "--out", "nowhere/page.html", code=2)
    assert "check the path" in command(world, "run", "study.toml", *PARTIES, "--out", "north/data.csv", code=2)
    assert "has run before" in command(world, "run", "study.toml", *PARTIES)


def test_an_unknown_parameter_is_told_the_known_ones(world: Path) -> None:
    study = world / "study.toml"
    study.write_text(study.read_text() + "\n[parameters]\nconfidenc = 0.9\n")
    said = command(world, "plan", "study.toml", code=2)
    assert "unknown field `confidenc`: model 'describe' takes no 'confidenc': did you mean 'confidence'?" in said
    study.write_text(study.read_text().replace("confidenc =", "wieght ="))
    assert "it takes columns, confidence, by, ranges" in command(world, "plan", "study.toml", code=2)


def test_a_card_with_a_control_character_in_a_name_can_be_read_back(tmp_path: Path) -> None:
    card = Card("one", 10, (Column("a\x7fb", 0.0, 1.0),), key="ab" * 32)
    (tmp_path / "card.toml").write_text(write_card(card))
    assert read_card(tmp_path / "card.toml") == card


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "study.toml"),
        ("audit", "study.toml"),
        ("dossier", "study.toml"),
        ("doctor", "--study", "study.toml"),
        ("party", "check", "study.toml", "--config", "north/party.toml", "--approve"),
        ("run", "study.toml", *PARTIES),
    ],
    ids=lambda words: words[0],
)
def test_a_card_file_without_a_key_is_refused_by_name(world: Path, words: tuple[str, ...]) -> None:
    """P19: replies of a member without a key carry no signature, so whoever keeps the transcript may edit them."""
    for name in ("north", "south"):  # all of them alike, which among parties of one process is a study
        path = world / name / f"{name}.card.toml"
        path.write_text(re.sub("^key = .*\n", "", path.read_text(), flags=re.MULTILINE))
    before = {path: path.read_bytes() for path in world.rglob("*") if path.is_file()}
    said = " ".join(command(world, *words, code=2).split())
    assert "north.card.toml: the card of 'north' holds no public key" in said
    assert "`unpooled party card`" in said
    assert {path: path.read_bytes() for path in world.rglob("*") if path.is_file()} == before


def test_the_card_of_a_helper_without_a_key_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "guard.card.toml").write_text('name = "guard"\nrole = "helper"\n')
    with pytest.raises(StudyError, match="the card of 'guard' holds no public key"):
        read_card(tmp_path / "guard.card.toml")


def test_a_card_that_lost_its_key_is_written_anew_with_it(world: Path) -> None:
    path = world / "north/north.card.toml"
    whole = path.read_text()
    path.write_text(re.sub("^key = .*\n", "", whole, flags=re.MULTILINE))
    assert "wrote" in command(world, "party", "card", "--config", "north/party.toml")
    assert path.read_text() == whole
    assert "unchanged" in command(world, "party", "card", "--config", "north/party.toml")


@pytest.mark.parametrize("name", ["../../evil", "a/b", "a\\b", "..", ".", "", "a\nb", "x" * 101])
def test_a_partys_name_stays_in_its_folder(tmp_path: Path, name: str) -> None:
    """V11: `party init --name ../../evil` wrote outside its folder."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/data.csv").write_text("age\n" + "\n".join(map(str, range(20, 60))))
    before = sorted(tmp_path.rglob("*"))
    with contextlib.chdir(tmp_path / "in"):
        words = ("party", "init", "data.csv", "--name", name, "--column", "age=0:100", "--folder", "made")
        command(tmp_path / "in", *words, code=2)
    assert [path for path in sorted(tmp_path.rglob("*")) if path not in before] in ([], [tmp_path / "in/made"])


@pytest.mark.guarantee
def test_an_approval_says_who_and_why(world: Path) -> None:
    """Y6: the ledger's approval named no person. The reason is one line, whoever typed it."""
    (world / "study.toml").write_text(STUDY.replace('"describe"', '"describe"\npurpose = "to plan beds"'))
    check = ("party", "check", "study.toml", "--config", "north/party.toml", "--approve", "--by", "Ada Byron")
    assert "one line" in command(world, *check, "--reason", "a\nb", code=2)
    assert "Approved by Ada Byron" in command(world, *check, "--reason", "ethics vote 12/3")
    (study,) = json.loads(command(world, "party", "ledger", "--config", "north/party.toml", "--json"))["studies"]
    assert (study["by"], study["reason"], study["purpose"]) == ("Ada Byron", "ethics vote 12/3", "to plan beds")
    assert (study["state"], study["releases"], study["epsilon"]) == ("approved", 0, 0.0)
    every = command(world, "party", "ledger", "--config", "north/party.toml", "--all")
    assert "approval describe: to plan beds by Ada Byron ethics vote 12/3" in every
    command(world, "party", "ledger", "--config", "north/party.toml", "--export", "rows.json")
    assert "Ada Byron" in command(world, "party", "verify", "rows.json")


def test_a_ledger_is_a_line_for_each_study(world: Path) -> None:
    """Y5: 103 lines a study, and columns that ran into each other."""
    (world / "study.toml").write_text(STUDY.replace("epsilon = 1.0", "epsilon = 0.25"))
    approve(world)
    command(world, "run", "study.toml", *PARTIES)
    head, line, total, last = command(world, "party", "ledger", "--config", "north/party.toml").splitlines()
    assert head.split() == ["date", "(UTC)", "plan", "state", "epsilon", "decided", "by", "data", "study"]
    assert [line[head.index(title) :].split("  ")[0] for title in ("state", "epsilon", "study")] == [
        "1 release",
        "0.25",
        "describe",
    ]
    assert total.startswith("spent: epsilon = 0.25 of 1 at delta = 1e-06 per record")
    assert last.startswith("head ")


@pytest.mark.guarantee
def test_what_parties_say_of_their_data_is_shown_to_who_approves(world: Path) -> None:
    config, card = world / "north/party.toml", world / "north/north.card.toml"
    said = {
        "collected": "routine care, 2020 to 2024",
        "legal_basis": "consent",
        "retention": "ten years",
        "contact": "dpo@north.example",
    }
    lines = "".join(f'{name} = "{words}"\n' for name, words in said.items())
    config.write_text(config.read_text().replace("[party]\n", f"[party]\n{lines}"))
    command(world, "party", "card", "--config", "north/party.toml")
    assert all(words in card.read_text() for words in said.values())
    (world / "study.toml").write_text(STUDY.replace("delta = 1e-6", 'delta = 1e-6\njustification = "as in the pilot"'))
    shown = command(world, "party", "check", "study.toml", "--config", "south/party.toml")
    assert (
        "north says of its data: collected: routine care, 2020 to 2024; legal basis: consent; retention: ten years" in shown
    )
    assert "why this epsilon: as in the pilot" in shown
    card.write_text(card.read_text().replace("ten years", "ten\\nyears"))
    assert "printable" in command(world, "plan", "study.toml", code=2)
