"""Data as people have them: separators, decimal commas, encodings, missing words, dates, Excel, Feather; faults by row; nothing leaks, nothing crashes."""

from __future__ import annotations

import json
import zipfile
from datetime import date
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from commands import command

from unpooled.errors import DataError, UnpooledError, UsageError
from unpooled.privacy.bounds import Coding, Column, check
from unpooled.privacy.classes import code
from unpooled.privacy.table import Table
from unpooled.study.data import inspect, read_table
from unpooled.study.files import read_card, read_party
from unpooled.study.party import open_party
from unpooled.study.reading import DataFormat
from unpooled.study.sniff import declared, read_or_words

GERMAN = "patient;alter;größe;raucher;aufnahme;krank\n" + "".join(
    f"{k:03d};{'NA' if k == 4 else f'{40 + k},5'};{150 + k},25;{('nie', 'früher')[k % 2]};{1 + k % 28:02d}.03.2020;{('ja', 'nein')[k % 2]}\n"
    for k in range(40)
)
COLUMNS = (
    Column("alter", 0.0, 120.0, missing="absent"),
    Column("größe", 100.0, 220.0),
    Column("raucher", categories=("nie", "früher")),
    Column("aufnahme", 0.0, 366.0, dates="days since 2020-01-01"),
)
NAMES = tuple(column.name for column in COLUMNS)


def table(path: Path, form: DataFormat, columns: tuple[Column, ...] = COLUMNS) -> Table:
    return read_table(path, tuple(column.name for column in columns), None, form, columns)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "windows-1252", "utf-16"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_file_of_a_german_spreadsheet_is_read_as_it_was_meant(tmp_path: Path, encoding: str, ending: str) -> None:
    path = tmp_path / "daten.csv"
    path.write_bytes((GERMAN + "\n\n").replace("\n", ending).encode(encoding))
    sniffed = read_or_words(path)
    form = sniffed.form
    assert (form.separator, form.decimal, form.nulls, form.dates) == (";", ",", ("NA",), "%d.%m.%Y")
    assert form.encoding == encoding.removesuffix("-sig")
    assert sniffed.kinds["patient"] == "whole numbers"
    assert (sniffed.kinds["alter"], sniffed.kinds["raucher"]) == ("numbers", "text, 2 different")
    assert sniffed.kinds["aufnahme"] == "dates"
    read = table(path, form)
    assert read.n_rows == 40  # blank lines at the end are no people
    assert np.isnan(read["alter"]).tolist() == [k == 4 for k in range(40)]
    assert read["alter"][:2].tolist() == [40.5, 41.5]
    assert read["größe"][1] == 151.25
    assert read["raucher"].tolist()[:2] == ["nie", "früher"]
    assert read["aufnahme"][:2].tolist() == [60.0, 61.0]  # 2020 is a leap year
    blocks = np.concatenate([block[0] for block in read.blocks(("größe",), 7)])
    assert (blocks == read["größe"]).all()
    check(read, COLUMNS)
    assert read_table(path, NAMES, "patient", form, COLUMNS).ids()[:2] == ["000", "001"]


def test_tabs_bars_quotes_and_what_is_said_beat_what_is_guessed(tmp_path: Path) -> None:
    path = tmp_path / "data.tsv"
    path.write_text("a\tb\n1\t'x\ty'\n2\t'z'\n3\t'z'\n")
    form = read_or_words(path).form
    assert (form.separator, form.quote) == ("\t", "'")
    assert read_table(path, ("a", "b"), None, form)["b"].tolist() == ["x\ty", "z", "z"]
    path.write_text("a|b\n1|2\n3|4\n")
    assert read_or_words(path).form.separator == "|"
    path.write_text("a;b\n1,5;2,5\n3,5;4,5\n")
    assert read_or_words(path, {"separator": ";", "decimal": ","}).form.decimal == ","
    path.write_text("a,b\n01/02/2020,1\n03/04/2021,2\n")
    sniffed = read_or_words(path)
    assert "day/month or month/day" in sniffed.notes[0]
    assert sniffed.form.dates == "%Y-%m-%d"
    assert read_or_words(path, {"dates": "%m/%d/%Y"}).kinds["a"] == "dates"
    path.write_text("a,b\n01/02/2020,1\n13/04/2021,2\n")
    assert read_or_words(path).form.dates == "%d/%m/%Y"


def test_numbers_are_numbers_however_they_stand_there(tmp_path: Path) -> None:
    path, column = tmp_path / "a.csv", (Column("a", 0.0, 9.0, missing="absent"),)
    path.write_text("a,b\n 1,x\n2 ,x\n  ,x\n1e0,x\ntrue,x\n")
    with pytest.raises(DataError, match="holds text where a range"):
        check(table(path, DataFormat(), column), column)
    path.write_text("a,b\n 1,x\n2 ,x\n  ,x\n1e0,x\n")
    assert np.nan_to_num(table(path, DataFormat(), column)["a"], nan=-1.0).tolist() == [1, 2, -1, 1]
    path.write_text("a;b\n1,5;x\n1.5;x\n")  # in a file with decimal commas 1.500 may be a thousand and a half
    form = DataFormat(separator=";", decimal=",")
    with pytest.raises(DataError, match="holds text where a range"):
        check(table(path, form, column), column)
    path.write_text("a,b\ntrue,x\nfalse,x\n,x\n")
    assert np.nan_to_num(table(path, DataFormat(), column)["a"], nan=-1.0).tolist() == [1, 0, -1]


@pytest.mark.guarantee
@pytest.mark.parametrize("kind", ["csv", "parquet", "feather"])
def test_booleans_and_codes_are_categories_as_declared(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    frame = pl.DataFrame(
        {
            "w": [True, False, None],
            "z": [True, False, True],
            "c": ["01", "02", " 01"],
            "n": ["1.0", "2", "1"],
            "k": [1, 2, 1],
        }
    )
    if kind == "feather":
        frame.write_ipc(path)
    else:
        (frame.write_csv if kind == "csv" else frame.write_parquet)(path)
    columns = (
        Column("w", categories=("false", "true"), missing="absent"),
        Column("z", categories=("0", "1")),
        Column("c", categories=("01", "02")),
        Column("n", categories=("1", "2")),
        Column("k", categories=("1", "2")),
    )
    read = table(path, DataFormat(), columns)
    check(read, columns)
    coded = Coding(columns, 1).code(next(iter(read.blocks(tuple(c.name for c in columns)))))[0]
    assert coded.tolist() == [
        [0, 1, 0, 1, 1, 0, 1, 0, 1, 0],
        [1, 0, 1, 0, 0, 1, 0, 1, 0, 1],
        [0, 0, 0, 1, 1, 0, 1, 0, 1, 0],
    ]
    answers = read_table(path, ("z",))["z"]
    assert code(answers, ("false", "true"), "z").tolist() == [1, -1, 1]
    assert code(answers, (0, 1), "z").tolist() == [1, -1, 1]


@pytest.mark.guarantee
def test_columns_of_dates_are_counted_as_declared(tmp_path: Path) -> None:
    frame = pl.DataFrame({"d": [date(2020, 1, 1), date(2021, 1, 1), None], "x": [1, 2, 3]})
    frame = frame.with_columns(t=pl.col("d").cast(pl.Datetime("ms")) + pl.duration(hours=12))
    frame.write_parquet(tmp_path / "d.parquet")
    frame.write_csv(tmp_path / "d.csv")
    years = Column("d", 0.0, 50.0, dates="years since 2000-01-01", missing="absent")
    days = Column("t", 0.0, 9999.0, dates="days since 2020-01-01", missing="absent")
    for kind in ("csv", "parquet"):
        read = table(tmp_path / f"d.{kind}", DataFormat(), (years, days))
        assert np.nan_to_num(read["d"], nan=-1.0) == pytest.approx([7305 / 365.2425, 7671 / 365.2425, -1])
        assert np.nan_to_num(read["t"], nan=-1.0) == pytest.approx([0.5, 366.5, -1])
    (tmp_path / "d.csv").write_text("d,x\n2020-01-01,1\nyesterday,2\n")
    with pytest.raises(DataError, match=r"no date written as %Y-%m-%d"):
        table(tmp_path / "d.csv", DataFormat(), (years,))["d"]
    # A date is no number, and a number no date.
    with pytest.raises(DataError, match="holds text where a range"):
        check(
            table(tmp_path / "d.parquet", DataFormat(), (Column("d", 0.0, 1.0, missing="absent"),)),
            (Column("d", 0.0, 1.0, missing="absent"),),
        )
    for wrong in ("days", "days since 2020-13-01", "decades since 2020-01-01"):
        with pytest.raises(UsageError, match="dates are counted"):
            Column("d", 0.0, 1.0, dates=wrong)
    with pytest.raises(UsageError, match="dates are counted"):
        Column("d", categories=("a", "b"), dates="days since 2020-01-01")
    assert Column("d", 0.0, 1.0).calendar is None


def sheet(path: Path, rows: list[list[object]]) -> None:
    """The smallest workbook there is."""

    def cell(value: object) -> str:
        return f'<c t="inlineStr"><is><t>{value}</t></is></c>' if isinstance(value, str) else f"<c><v>{value}</v></c>"

    body = "".join(f"<row>{''.join(map(cell, row))}</row>" for row in rows)
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    with zipfile.ZipFile(path, "w") as book:
        book.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="{package}/content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            '<Default Extension="xml" ContentType="application/xml"/></Types>',
        )
        book.writestr(
            "_rels/.rels",
            f'<Relationships xmlns="{package}/relationships"><Relationship Id="a" Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        )
        book.writestr(
            "xl/workbook.xml",
            f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets><sheet name="people" sheetId="1" r:id="b"/></sheets></workbook>',
        )
        book.writestr(
            "xl/_rels/workbook.xml.rels",
            f'<Relationships xmlns="{package}/relationships"><Relationship Id="b" Type="{office}/worksheet" Target="worksheets/sheet1.xml"/></Relationships>',
        )
        book.writestr("xl/worksheets/sheet1.xml", f'<worksheet xmlns="{main}"><sheetData>{body}</sheetData></worksheet>')


def test_a_workbook_is_read(tmp_path: Path) -> None:
    pytest.importorskip("fastexcel")
    path = tmp_path / "book.xlsx"
    sheet(path, [["id", "a", "b"], ["p1", 1.5, "x"], ["p2", 2, "y"], ["p3", "?", "x"]])
    columns = (Column("a", 0.0, 9.0, missing="absent"), Column("b", categories=("x", "y")))
    form = read_or_words(path).form
    assert form.nulls == ("?",)
    read = read_table(path, ("a", "b"), "id", form, columns)
    assert np.nan_to_num(read["a"], nan=-1.0).tolist() == [1.5, 2, -1]
    assert read.ids() == ["p1", "p2", "p3"]
    check(read, columns)
    assert table(path, DataFormat(sheet="people", nulls=("?",)), columns).n_rows == 3
    with pytest.raises(DataError, match="no such sheet"):
        table(path, DataFormat(sheet="nobody"), columns)
    path.write_bytes(b"SECRET")
    with pytest.raises(DataError, match="cannot be read as an Excel file"):
        table(path, DataFormat(), columns)


def test_without_the_extra_a_workbook_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("fastexcel")

    monkeypatch.setattr(pl, "read_excel", missing)
    (tmp_path / "book.xlsx").write_bytes(b"PK")
    said = command(tmp_path, "party", "init", "book.xlsx", "--name", "a", "--column", "a=0:1", code=2)
    assert "unpooled[excel]" in said


FAULTY = "id,age,sex,seen,y\n" + "".join(
    f"{row}\n"
    for row in ("1,20,f,2020-01-01,1", "2,,f,2020-01-02,", "3,300,x,1999-01-01,3", "2,abc,,soon,4", ",-5,m,2020-02-02,5")
)


def test_init_lists_faults_by_row_and_makes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(FAULTY)
    made = ("party", "init", "a.csv", "--name", "a", "--id", "id", "--label", "y", "--folder", "a")
    strict = ("--column", "age=0:100", "--column", "sex=f,m", "--column", "seen=2020-01-01:2020-12-31")
    said = command(tmp_path, *made, *strict, code=2)
    for words in (
        "REFUSED  age: something that is no number in 1 row (5)",
        "REFUSED  age: a missing value, and the declaration refuses those in 1 row (3)",
        "REFUSED  sex: a category that is not declared in 1 row (4)",
        "REFUSED  sex: a missing value, and the declaration refuses those in 1 row (5)",
        "REFUSED  seen: something that is no date written as %Y-%m-%d in 1 row (5)",
        "REFUSED  y: a missing value of a label in 1 row (3)",
        "note     age: a value above the declared range, which is clipped in 1 row (4): 20.0% of the rows: is the range right?",
        "note     seen: a value below the declared range, which is clipped in 1 row (4)",
        "note     id: a blank id (refused where ids are compared) in 1 row (6)",
        "REFUSED  id: an id that another row has in 2 rows (3, 5)",
        "nothing was made",
    ):
        assert words in said
    assert not any(value in said for value in ("abc", "soon", "300", "1999"))
    assert not (tmp_path / "a").exists()
    told = json.loads(command(tmp_path, *made, *strict, "--json", code=2).split("\nerror:")[0])
    assert {"column": "age", "what": "something that is no number", "refused": True, "count": 1, "rows": [5]} in told[
        "findings"
    ]
    # Declared as they are, the same rows are accepted, and what that costs is noted.
    (tmp_path / "a.csv").write_text(FAULTY.replace("2,abc", "4,40").replace("soon", "").replace("02,\n", "02,2\n"))
    fine = ("--column", "age=0:100;absent", "--column", "sex=f,m;absent", "--column", "seen=2020-01-01:2020-12-31;indicator")
    said = command(tmp_path, *made, *fine)
    assert "note     sex: a category that is not declared, which counts as missing in 1 row (4)" in said
    assert "REFUSED" not in said
    card = read_card(tmp_path / "a/a.card.toml")
    assert card.columns[2] == Column("seen", 0.0, 365.0, missing="indicator", dates="days since 2020-01-01")
    with open_party(tmp_path / "a/party.toml") as party:
        assert party.table.n_rows == 5


def test_what_was_sniffed_is_shown_and_written_down(tmp_path: Path) -> None:
    (tmp_path / "daten.csv").write_bytes(GERMAN.encode("windows-1252"))
    made = ("party", "init", "daten.csv", "--name", "nord", "--id", "patient", "--folder", "nord")
    said = command(tmp_path, *made, code=2)
    assert "separator ';', decimal ',', encoding 'windows-1252', dates '%d.%m.%Y', nulls 'NA'" in said
    assert "--column 'alter=LOW:HIGH'" in said
    assert "--column 'raucher=A,B,C'" in said  # kinds are proposed, ranges and categories never
    assert "früher" not in said
    said = command(
        tmp_path, *made, "--column", "alter=0:120;absent", "--column", "raucher=nie,früher", "--column", "größe=100:220",
        "--column", "aufnahme=2020-01-01:2020-12-31", "--label", "krank",
    )  # fmt: skip
    text = read_party(tmp_path / "nord/party.toml")
    assert text.format == DataFormat(";", ",", "windows-1252", dates="%d.%m.%Y", nulls=("NA",))
    with open_party(tmp_path / "nord/party.toml") as party:
        assert party.table["krank"].tolist()[:2] == ["ja", "nein"]
        assert party.table["alter"][0] == 40.5
    again = json.loads(command(tmp_path, *made[:-1], "other", "--column", "größe=100:220", "--new-budget", "--json"))
    assert (again["rows"], again["findings"], again["format"]["decimal"]) == (40, [], ",")


def test_a_template_is_completed_by_hand(tmp_path: Path) -> None:
    (tmp_path / "daten.csv").write_bytes(GERMAN.encode("windows-1252"))
    made = (
        "party",
        "init",
        "daten.csv",
        "--name",
        "nord",
        "--id",
        "patient",
        "--label",
        "krank",
        "--folder",
        "nord",
        "--template",
    )
    assert "declare its columns there" in command(tmp_path, *made)
    assert "exists already" in command(tmp_path, *made, code=2)
    config = tmp_path / "nord/party.toml"
    text = config.read_text()
    assert 'name = "krank"' not in text
    assert text.count("# [[columns]]") == 4
    assert not any(value in text for value in ("früher", "40,5", "40.5"))
    complete = ("party", "init", "--config", "nord/party.toml")
    assert "columns" in command(tmp_path, *complete, code=2)  # nothing is declared yet
    config.write_text(
        text.replace(
            '# [[columns]]\n# name = "größe"    # numbers\n# low = 0.0\n# high = 1.0',
            '[[columns]]\nname = "größe"\nlow = 100.0\nhigh = 150.0',
        )
    )
    said = command(tmp_path, *complete)
    assert "which is clipped in 40 rows" in said
    assert read_card(tmp_path / "nord/nord.card.toml").columns == (Column("größe", 100.0, 150.0),)
    assert "exists already" in command(tmp_path, *complete, code=2)
    assert "alone" in command(tmp_path, *complete, "--template", code=2)
    assert "--name" in command(tmp_path, "party", "init", "daten.csv", code=2)
    (tmp_path / "nord/nord.card.toml").unlink()
    told = json.loads(command(tmp_path, *made[:-1], "--folder", "zwei", "--template", "--json"))
    assert told["kinds"]["aufnahme"] == "dates"


def test_many_columns_are_declared_at_once() -> None:
    names = ["nm400", "nm410", "fat", "a*"]
    columns = declared(["nm*=0:3", "nm410=0:2", "a*=0:1"], names)
    assert columns == (Column("nm400", 0.0, 3.0), Column("nm410", 0.0, 2.0), Column("a*", 0.0, 1.0))
    for texts, words in (
        (["x*=0:1"], "called like"),
        (["fat=0:1", "fat=0:2"], "each name once"),
        (["fat=1:2:3"], "is not NAME="),
    ):
        with pytest.raises(UsageError, match=words):
            declared(texts, names)


@pytest.mark.parametrize(
    "words",
    [
        {"separator": ";;"}, {"separator": "\n"}, {"decimal": ";"}, {"decimal": ","}, {"quote": "''"}, {"quote": ","},
        {"encoding": "klingon"}, {"encoding": "hex"},
    ],
)  # fmt: skip
def test_a_format_that_cannot_be_is_refused(words: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="format"):
        DataFormat(**words)


def test_a_sparse_file_is_listed_and_inspected(tmp_path: Path) -> None:
    from scipy.sparse import eye_array

    from unpooled.study.data import write_sparse

    write_sparse(tmp_path / "a.npz", eye_array(4), ["t1", "t2", "t3", "t4"], id=["a", "b", "c", "d"])
    made = ("party", "init", "a.npz", "--name", "a", "--id", "id", "--folder", "a")
    assert "--column 't1=LOW:HIGH'" in command(tmp_path, *made, code=2)
    command(tmp_path, *made, "--column", "t*=-1:1")
    assert len(read_card(tmp_path / "a/a.card.toml").columns) == 4


# Malformed files, and wrong declarations: words, never a traceback, never a value of the data.

CANARY, NUMBER, ARABIC = "canary77", "77177.25", "\u0667\u0667"
ROW = f"{CANARY},{NUMBER},{CANARY}x"
GOOD = f"id,age,word\n{ROW}\n{CANARY}2,{NUMBER},{CANARY}y\n"
FILES: dict[str, bytes] = {
    "empty": b"",
    "header": b"id,age,word\n",
    "one": f"id,age,word\n{ROW}\n".encode(),
    "blank": b"\n\n\n",
    "bare": f"{ROW}\n{ROW}\n{ROW}\n".encode(),
    "bare-numbers": f"1,{NUMBER}\n2,{NUMBER}\n3,{NUMBER}\n".encode(),
    "ragged": (GOOD + ROW + ",1,2\n").encode(),
    "short": (GOOD + f"{CANARY}3\n").encode(),
    "quote": (GOOD + f'"{CANARY},3,4\n5,6,7\n').encode(),
    "nul": GOOD.encode() + b"\0\0\0",
    "latin": GOOD.replace("canary", "cänary").encode("latin-1"),
    "utf16": GOOD.encode("utf-16"),
    "utf16-bare": GOOD.encode("utf-16-le"),
    "half-utf16": GOOD.encode("utf-16")[:-1],
    "utf32": GOOD.encode("utf-32"),
    "semicolon": GOOD.replace(",", ";").encode(),
    "tab": GOOD.replace(",", "\t").encode(),
    "space": GOOD.replace(",", " ").encode(),
    "mac": GOOD.replace("\n", "\r").encode(),
    "twice": GOOD.replace("word", "age").encode(),
    "comma": GOOD.replace(NUMBER, '"77177,25"').encode(),
    "infinite": GOOD.replace(NUMBER, "1e999").encode(),
    "nan": GOOD.replace(NUMBER, "nan").encode(),
    "mixed": (GOOD + f"a,{CANARY},b\n").encode(),
    "dates": (GOOD + "a,2020-01-01,b\n").encode(),
    "sqlite": b"SQLite format 3\0" + GOOD.encode(),
    "zip": b"PK\x03\x04" + GOOD.encode(),
    "gzip": b"\x1f\x8b" + GOOD.encode(),
    "random": np.random.default_rng(7).bytes(4000),
    "unicode-id": GOOD.replace("77", ARABIC).encode(),
    "long": f"id,age,word\n{CANARY},{NUMBER},{CANARY * 20000}\n{ROW}\n".encode(),
    "wide": (",".join(f"c{k}" for k in range(2000)) + "\n" + ",".join([NUMBER] * 2000) + "\n").encode(),
}
DECLARED = (
    ("age=0:1",), ("age=0:1;absent",), ("word=a,b",), ("word=a,b;absent",), ("age=a,b", "word=0:1"), ("age=2000-01-01:2001-01-01;absent",),
    ("id=0:1",), ("other=0:1",), ("*=0:1;absent",),
)  # fmt: skip


@pytest.mark.long_for("wide", "infinite", "mixed")
@pytest.mark.slow
@pytest.mark.minutes
@pytest.mark.parametrize("kind", FILES)
def test_no_file_crashes_and_no_message_holds_a_value(tmp_path: Path, kind: str) -> None:
    """288 wrong inputs."""
    inputs = 0
    for ending in ("csv", "parquet", "feather", "xlsx"):
        path = tmp_path / f"data.{ending}"
        path.write_bytes(FILES[kind])
        for k, texts in enumerate(DECLARED if ending == "csv" else DECLARED[:1]):
            columns = [word for text in texts for word in ("--column", text)]
            home = f"{ending}{k}"
            made = ("party", "init", path.name, "--name", "a", "--folder", home, "--id", "id", "--new-budget", *columns)
            said = command(tmp_path, *made, code=None)
            assert "error:" in said or "wrote" in said
            for value in (CANARY, "cänary", NUMBER, "77177", "7,25", ARABIC):
                assert value not in said, (ending, texts)
            inputs += 1
    assert inputs == len(DECLARED) + 3


@pytest.mark.guarantee
def test_messages_that_travel_hold_no_value_either(tmp_path: Path) -> None:
    """Any form, any declaration, straight into a table: what a party would say in a study."""
    columns = (
        Column("age", 0.0, 1.0),
        Column("age", categories=("a", "b")),
        Column("age", 0.0, 1.0, dates="days since 2000-01-01"),
    )
    columns += (
        Column("word", 0.0, 1.0),
        Column("word", categories=("a", "b")),
        Column("word", 0.0, 1.0, dates="days since 2000-01-01"),
    )
    forms = (DataFormat(), DataFormat(separator=";"), DataFormat(encoding="utf-16"), DataFormat(nulls=(CANARY,)))
    refused: list[tuple[str, str]] = []
    for kind, content in FILES.items():
        path = tmp_path / f"{kind}.csv"
        path.write_bytes(content)
        for column in columns:
            for form in forms:
                try:
                    read = read_table(path, (column.name,), "id", form, (column,))
                    read.ids_digest(b"k")
                    check(read, (column,))
                except UnpooledError as error:
                    refused.append((kind, str(error)))
    assert len(refused) > 500
    for kind, said in refused:
        assert not any(value in said for value in (CANARY, NUMBER, "77177", ARABIC)), kind


def test_faults_are_counted_over_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from unpooled.study import data

    monkeypatch.setattr(data.FileTable.frames, "__defaults__", (10,))
    path, column = tmp_path / "a.csv", Column("a", 0.0, 1.0)
    path.write_text("a,b\n" + "0.5,1\n" * 30 + ",1\n" * 7)
    read = read_table(path, ("a",), None, DataFormat(), (column,))
    found = inspect(path, (column,), None, (), DataFormat(), read)
    assert (found.refused[0].rows, found.refused[0].count) == ([32, 33, 34, 35, 36], 7)
    assert "and 2 more" in found.refused[0].words


def test_kinds_of_values_that_nobody_can_declare_are_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    odd = {"age": [[1], [2]], "word": pl.Series([1, 2]).cast(pl.Duration("ms")), "id": ["a", "b"]}
    pl.DataFrame(odd).write_parquet(path)
    for text in ("age=0:1", "word=a,b", "age=2000-01-01:2001-01-01"):
        said = command(tmp_path, "party", "init", "a.parquet", "--name", "a", "--folder", "a", "--column", text, code=2)
        assert "neither" in said or "no date" in said or "no number" in said
    assert "something that is neither a number, a date nor text" in command(
        tmp_path, "party", "init", "a.parquet", "--name", "a", code=2
    )


def test_a_reader_that_breaks_down_is_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damaged Parquet makes the reader panic, which Python does not count among its exceptions."""
    path = tmp_path / "a.csv"
    path.write_text("age,b\n1,2\n3,4\n")
    read = read_table(path, ("age",))

    def breaks(*_: object, **__: object) -> None:
        raise pl.exceptions.PanicException(CANARY)

    monkeypatch.setattr(pl.LazyFrame, "collect", breaks)
    for act in (lambda: read["age"], lambda: read_or_words(path)):
        with pytest.raises(DataError) as caught:
            act()
        assert CANARY not in str(caught.value)
