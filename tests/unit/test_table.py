"""Tables: what they take, what they refuse without repeating it, and how they notice any change."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from unpooled.errors import DataError, UsageError
from unpooled.privacy.table import BLOCK_ROWS, Table


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({}, "no columns"),
        ({"a": [1.0, 2.0], "b": [1.0]}, "'b' has 1 rows where the first column has 2"),
        ({"a": [987654.321]}, "at least 2"),
        ({"a": []}, "at least 2"),
        ({"a": [987654.321, math.inf]}, "'a' holds an infinite value"),
        ({"a": [-math.inf, 1.0]}, "infinite"),
        ({"a": [[987654.321, 2.0], [3.0, 4.0]]}, "'a' has 2 dimensions"),
        ({"a": 987654.321}, "'a' has 0 dimensions"),
        ({"a": [1j, 987654.321]}, "complex"),
        ({"a": [b"SECRET", b"x"]}, "give numbers or text"),
        ({"a": np.array(["2026-01-01", "2026-01-02"], dtype="datetime64[D]")}, "datetime64"),
    ],
)
def test_what_is_no_table_is_refused_without_its_values(columns: dict, words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        Table(columns)
    assert "987654" not in repr(caught.value)
    assert "SECRET" not in repr(caught.value)


@pytest.mark.parametrize("values", [[[1.0], [2.0, 3.0]], np.array([np.array([1.0, 2.0]), None], dtype=object)])
def test_ragged_columns_are_named(values: object) -> None:
    with pytest.raises(DataError, match="'a'"):
        Table({"a": values})


def test_numbers_become_floats_and_everything_else_text() -> None:
    table = Table(
        {
            "int": [1, 2, 3],
            "bool": [True, False, True],
            "nan": [1.5, np.nan, 2.0],
            "text": ["a", "b", "c"],
            "object": np.array(["a", None, np.nan], dtype=object),
            "new": np.array(["a", "b", "c"], dtype=np.dtypes.StringDType()),
        }
    )
    assert table["int"].dtype == table["bool"].dtype == np.float64
    assert table["object"].tolist() == ["a", None, None]
    assert table["text"].tolist() == table["new"].tolist() == ["a", "b", "c"]
    assert np.isnan(table["nan"][1])
    assert table.names == ("int", "bool", "nan", "text", "object", "new")
    assert table.n_rows == 3


def test_a_table_is_a_copy_that_cannot_be_written() -> None:
    mine = np.array([1.0, 2.0])
    table = Table({"a": mine})
    mine[0] = 9.0
    assert table["a"][0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        table["a"][0] = 3.0


def test_an_unknown_column_names_the_known_ones() -> None:
    with pytest.raises(DataError, match="no column 'c': the data have a, b"):
        Table({"a": [1.0, 2.0], "b": [1.0, 2.0]})["c"]


def test_blocks_cover_every_row_once_in_order() -> None:
    table = Table({"a": np.arange(10.0), "b": [str(i) for i in range(10)]})
    blocks = list(table.blocks(("b", "a"), 3))
    assert [b[0].size for b in blocks] == [3, 3, 3, 1]
    assert np.concatenate([b[1] for b in blocks]).tolist() == list(range(10))
    assert len(list(table.blocks(("a",)))) == 1
    assert BLOCK_ROWS > 10


def test_rows_can_be_taken() -> None:
    table = Table({"a": np.arange(4.0), "b": list("wxyz")}).take(np.array([3, 1]))
    assert table["a"].tolist() == [3.0, 1.0]
    assert table["b"].tolist() == ["z", "x"]


def test_neighbours_differ_in_one_row() -> None:
    table = Table({"a": np.arange(4.0), "b": list("wxyz")})
    other = table.replace(2, {"a": np.nan, "b": None})
    assert other["b"].tolist() == ["w", "x", None, "z"]
    assert np.isnan(other["a"][2])
    assert table["a"].tolist() == [0.0, 1.0, 2.0, 3.0]
    without = table.omit(1)
    assert without["a"].tolist() == [0.0, 2.0, 3.0]
    assert without.n_rows == 4
    assert len({table.digest, other.digest, without.digest}) == 3
    assert np.concatenate([b[0] for b in without.blocks(("a",), 2)]).tolist() == [0.0, 2.0, 3.0]


BASE = {"a": [1.0, 2.0, np.nan], "b": ["x", "y", None]}
CHANGES = {
    "nothing": BASE,
    "a number": {**BASE, "a": [1.0, 2.0 + 2**-50, np.nan]},
    "a missing number": {**BASE, "a": [1.0, 2.0, 0.0]},
    "a text": {**BASE, "b": ["x", "z", None]},
    "a missing text": {**BASE, "b": ["x", "y", ""]},
    "a missing text spelled out": {**BASE, "b": ["x", "y", "None"]},
    "the rows' order": {"a": [2.0, 1.0, np.nan], "b": ["y", "x", None]},
    "a name": {"A": BASE["a"], "b": BASE["b"]},
    "the columns' order": {"b": BASE["b"], "a": BASE["a"]},
    "a column less": {"a": BASE["a"]},
    "a kind": {**BASE, "a": np.array(["1.0", "2.0", None], dtype=object)},
    "a boundary of texts": {**BASE, "b": ["xy", "", None]},
    "a boundary of names": {"ab": BASE["a"], "": BASE["b"]},
}


def test_the_digest_changes_with_everything_and_with_nothing_else() -> None:
    digests = {name: Table(columns).digest for name, columns in CHANGES.items()}
    for one, other in itertools.combinations(CHANGES, 2):
        assert digests[one] != digests[other], f"{one} against {other}"
    assert Table(dict(BASE)).digest == digests["nothing"]
    assert len(digests["nothing"]) == 32


@pytest.mark.parametrize(("one", "other"), [(["a\0b", "c"], ["a", "b\0c"]), (["\x01", "c"], [None, "c"])])
def test_the_digest_separates_texts_that_hold_control_characters(one: list, other: list) -> None:
    assert Table({"a": np.array(one, dtype=object)}).digest != Table({"a": np.array(other, dtype=object)}).digest


def test_the_digest_takes_any_text() -> None:
    assert Table({"a": ["SECRET\ud800", "c"]}).digest != Table({"a": ["SECRET", "c"]}).digest


def test_a_table_prints_no_value() -> None:
    table = Table({"a": [987654.321, 2.0], "b": ["SECRET", "x"]})
    assert repr(table) == str(table) == "Table(n_rows=2, columns=['a', 'b'])"


def test_rows_are_divided_among_sites() -> None:
    table = Table({"a": [1.0, 2.0, 3.0, 4.0, 5.0], "b": list("uvwxy")})
    assert table.by_site(None) == {"all": table}
    sites = table.by_site([2, 10, 2, 10, 2])
    assert list(sites) == ["10", "2"]  # labels in the order of text
    assert (sites["2"]["a"].tolist(), sites["10"]["b"].tolist()) == ([1.0, 3.0, 5.0], ["v", "x"])
    assert {name: t.n_rows for name, t in sites.items()} == {"10": 2, "2": 3}
    with pytest.raises(UsageError, match="4 labels for 5 rows"):
        table.by_site(["x"] * 4)
    with pytest.raises(DataError, match="1 row"):
        table.by_site(["x", "x", "x", "x", "alone"])
