"""Tables: what they take, what they refuse without repeating it, and how they notice any change."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.sparse as sp

from unpooled.errors import DataError, UsageError, listed
from unpooled.privacy.table import BLOCK_ROWS, Table, is_complete


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({}, "no columns"),
        ({"a": [1.0, 2.0], "b": [1.0]}, "'b' has 1 rows where the first column has 2"),
        ({"a": []}, "at least 1 is needed"),
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


@pytest.mark.guarantee
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


@pytest.mark.guarantee
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


@pytest.mark.guarantee
def test_a_row_that_was_left_out_keeps_its_place_and_contributes_nothing() -> None:
    table = Table({"x": [1.0, 2.0, 3.0]})
    without = table.omit(1)
    assert without.whole(without["x"]).size == table.whole(table["x"]).size == 3
    assert without.whole(without["x"])[[0, 2]].tolist() == [1.0, 3.0]
    assert without.blank(np.ones((3, 2))).tolist() == [[1, 1], [0, 0], [1, 1]]
    assert without.blank(np.ones(2), np.array([1, 2])).tolist() == [0, 1]
    assert table.blank(np.ones(3)).tolist() == [1, 1, 1]


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


@pytest.mark.guarantee
def test_a_table_prints_no_value() -> None:
    table = Table({"a": [987654.321, 2.0], "b": ["SECRET", "x"]})
    assert repr(table) == str(table) == "Table(n_rows=2, columns=['a', 'b'])"


@pytest.mark.guarantee
def test_rows_are_divided_among_sites() -> None:
    table = Table({"a": [1.0, 2.0, 3.0, 4.0, 5.0], "b": list("uvwxy")})
    assert table.by_site(None) == {"all": table}
    sites = table.by_site([2, 10, 2, 10, 2])
    assert list(sites) == ["10", "2"]  # labels in the order of text
    assert (sites["2"]["a"].tolist(), sites["10"]["b"].tolist()) == ([1.0, 3.0, 5.0], ["v", "x"])
    assert {name: t.n_rows for name, t in sites.items()} == {"10": 2, "2": 3}
    with pytest.raises(UsageError, match="one label per row"):
        table.by_site(["x"] * 4)
    assert table.by_site(["x", "x", "x", "x", "alone"])["alone"].n_rows == 1  # a client may hold one record


# --- sparse columns -------------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(3)
VALUES = np.where(RNG.random((9, 6)) < 0.4, RNG.normal(size=(9, 6)), 0.0)
VALUES[4, 2], VALUES[:, 5] = np.nan, 0.0
TERMS = [f"t{j}" for j in range(6)]
OTHERS = {"y": RNG.normal(size=9), "g": np.array([*"uvwxyzab", None], dtype=object)}
SPARSE = Table(OTHERS, (TERMS, sp.csc_array(VALUES)))
TWIN = Table({**OTHERS, **{name: VALUES[:, j] for j, name in enumerate(TERMS)}})


def same(sparse: Table, dense: Table) -> None:
    assert sparse.names == dense.names
    assert sparse.n_rows == dense.n_rows
    assert repr(sparse) == repr(dense)
    for name in dense.names:
        assert sparse[name].dtype == dense[name].dtype
        np.testing.assert_array_equal(sparse[name], dense[name])


@pytest.mark.guarantee
def test_a_table_with_sparse_columns_is_the_table() -> None:
    same(SPARSE, TWIN)
    assert list(SPARSE.sparse_names) == TERMS
    assert not TWIN.sparse_names
    for rows in (1, 2, 4, 9, 100):
        names = ("t3", "y", "t2", "g")
        for mine, other in zip(SPARSE.blocks(names, rows), TWIN.blocks(names, rows), strict=True):
            for one, another in zip(mine, other, strict=True):
                np.testing.assert_array_equal(one, another)
    for rows in (np.array([7, 2, 4]), np.array([1, 1, 0]), np.arange(9) % 2 == 0):
        same(SPARSE.take(rows), TWIN.take(rows))
    for row in (0, 4, 8):
        same(SPARSE.omit(row), TWIN.omit(row))
    assert SPARSE.omit(4)["t2"].size == 8
    sites = list("abcabcabc")
    for name, table in SPARSE.by_site(sites).items():
        same(table, TWIN.by_site(sites)[name])
    with pytest.raises(ValueError, match="read-only"):
        SPARSE["t0"][0] = 1.0


@pytest.mark.guarantee
@pytest.mark.parametrize("row", [0, 4, -1])
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"y": 5.0},
        {"t1": 3.0},
        {"t0": 0.0, "t1": -2.0, "t2": 7.0, "t5": 1.0},
        {"t3": np.nan, "g": "new"},
        {"t3": None, "y": None, "g": None},
    ],
)
def test_a_row_of_sparse_columns_can_be_replaced(row: int, values: dict) -> None:
    same(SPARSE.replace(row, values), TWIN.replace(row, values))
    assert list(SPARSE.replace(row, values).sparse_names) == TERMS


@pytest.mark.guarantee
def test_a_neighbour_has_the_columns_of_its_table() -> None:
    for table in (SPARSE, TWIN):
        with pytest.raises(DataError, match="no column 'x'"):
            table.replace(0, {"x": 1.0})
    with pytest.raises(IndexError):
        SPARSE.replace(9, {"t0": 1.0})
    with pytest.raises(DataError, match="'t0' holds an infinite value"):
        SPARSE.replace(0, {"t0": math.inf})


@pytest.mark.guarantee
def test_sparse_columns_are_had_sparse_in_any_order() -> None:
    for names in (["t4"], ["t5", "t0", "t2"], TERMS[::-1], ["t1", "t1"]):
        matrix = SPARSE.sparse(names)
        np.testing.assert_array_equal(matrix.toarray(), VALUES[:, [TERMS.index(name) for name in names]])
        assert not any(array.flags.writeable for array in (matrix.data, matrix.indices, matrix.indptr))
    assert SPARSE.sparse(TERMS) is SPARSE.sparse(tuple(TERMS))
    assert SPARSE.sparse(["t0", "y"]) is None
    assert TWIN.sparse(["t0"]) is None
    for table in (SPARSE, TWIN):
        with pytest.raises(DataError, match="no column 'x'"):
            table.sparse(["t0", "x"])


def test_arrays_that_somebody_can_write_into_are_copied_and_others_shared() -> None:
    mine = sp.csc_array(VALUES)
    table = Table({}, (TERMS, mine))
    assert mine.data.flags.writeable
    before = table["t0"].tolist()
    mine.data[:] = 5.0
    assert table["t0"].tolist() == before
    held = table.sparse(TERMS)
    again = Table({"y": OTHERS["y"]}, (TERMS, held)).sparse(TERMS)
    assert all(np.shares_memory(getattr(again, part), getattr(held, part)) for part in ("data", "indices", "indptr"))


def forms() -> dict[str, object]:
    """One matrix, written down in many ways."""
    plain = sp.csc_array(VALUES)
    wide = sp.csc_array(VALUES)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    rows, columns = (axis.ravel() for axis in np.indices(VALUES.shape))
    backwards = sp.csc_array(plain)
    for start, stop in itertools.pairwise(backwards.indptr):
        for part in (backwards.indices, backwards.data):
            part[start:stop] = part[start:stop][::-1].copy()
    twice = [np.concatenate([part, part]) for part in (rows, columns)]
    still = plain.copy()
    still.data = np.append(still.data, 9.0)  # beyond the last column
    still.indices = np.append(still.indices, 0)
    return {
        "csc": plain,
        "old kind": sp.csc_matrix(VALUES),
        "csr": sp.csr_array(VALUES),
        "lil": sp.lil_array(VALUES),
        "wide indices": wide,
        "unsorted": sp.csc_array((backwards.data, backwards.indices, backwards.indptr), shape=(9, 6)),
        "written zeros": sp.csc_array(sp.coo_array((VALUES.ravel(), (rows, columns)), shape=(9, 6))),
        "negative zeros": sp.csc_array(
            sp.coo_array((np.where(VALUES == 0, -0.0, VALUES).ravel(), (rows, columns)), shape=(9, 6))
        ),
        "in halves": sp.coo_array((np.tile(VALUES.ravel() / 2, 2), tuple(twice)), shape=(9, 6)),
        "too long": still,
    }


@pytest.mark.parametrize("form", forms())
def test_equal_sparse_columns_have_one_digest(form: str) -> None:
    table = Table(OTHERS, (TERMS, forms()[form]))
    same(table, TWIN)
    assert table.digest == SPARSE.digest
    assert table.sparse(TERMS).data.all()


def test_the_digest_notices_every_change_of_sparse_columns() -> None:
    moved = VALUES.copy()
    moved[0, 5] = 1e-300
    tables = {
        "as it is": SPARSE,
        "no sparse columns": Table(OTHERS),
        "nothing else": Table({}, (TERMS, sp.csc_array(VALUES))),
        "another value": Table(OTHERS, (TERMS, sp.csc_array(moved))),
        "another name": Table(OTHERS, ([*TERMS[:-1], "t9"], sp.csc_array(VALUES))),
        "a boundary of names": Table(OTHERS, (["t0t1", "", *TERMS[2:]], sp.csc_array(VALUES))),
        "another order": Table(OTHERS, (TERMS[::-1], sp.csc_array(VALUES))),
        "one empty column less": Table(OTHERS, (TERMS[:-1], sp.csc_array(VALUES[:, :-1]))),
        "held dense": TWIN,
        "more empty rows": Table({}, (TERMS, sp.csc_array(np.vstack([VALUES, np.zeros((1, 6))])))),
    }
    assert len({table.digest for table in tables.values()}) == len(tables)


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("columns", "sparse", "words"),
    [
        ({"t0": np.zeros(9)}, (TERMS, sp.csc_array(VALUES)), "two columns 't0'"),
        ({}, ([*TERMS[:5], "t1"], sp.csc_array(VALUES)), "two columns 't1'"),
        ({"y": np.zeros(8)}, (TERMS, sp.csc_array(VALUES)), "'t0' has 9 rows where the first column has 8"),
        ({}, (TERMS[:5], sp.csc_array(VALUES)), "6 sparse columns and 5 names"),
        ({}, ([], sp.csc_array((9, 0))), "no columns"),
        ({}, (["a"], sp.csc_array((0, 1))), "at least 1 is needed"),
        ({}, (TERMS, VALUES), "scipy's sparse matrices"),
        ({}, (["a"], sp.csc_array([[1j], [987654.321]])), "of numbers"),
        ({}, (["a"], sp.coo_array([987654.321, 1.0])), "scipy's sparse matrices"),
        ({}, (["a", "b", "c"], sp.csc_array([[987654.321, 0.0, math.inf], [1.0, 0.0, 2.0]])), "'c' holds an infinite value"),
        (
            {},
            (["a", "b", "c"], sp.csc_array([[0.0, 0.0, 1.0], [-math.inf, 0.0, 987654.321]])),
            "'a' holds an infinite value",
        ),
    ],
)
def test_what_are_no_sparse_columns_is_refused_without_its_values(columns: dict, sparse: tuple, words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        Table(columns, sparse)
    assert "987654" not in repr(caught.value)


@pytest.mark.guarantee
def test_damaged_indices_are_refused() -> None:
    matrix = sp.csc_array(VALUES)
    matrix.indices[0] = 9876
    with pytest.raises(DataError, match="damaged") as caught:
        Table({}, (TERMS, matrix))
    assert "9876" not in repr(caught.value)


@pytest.mark.guarantee
def test_many_names_are_listed_by_the_first_few() -> None:
    names = [f"t{j}" for j in range(50_000)]
    assert listed(names[:5]) == "t0, t1, t2, t3, t4"
    assert listed(names) == "t0, t1, t2, t3, t4, ... (49,995 more)"
    table = Table({}, (names, sp.csc_array((2, 50_000))))
    with pytest.raises(DataError, match=r"no column 'x': the data have t0, t1, t2, t3, t4, \.\.\. \(49,995 more\)"):
        table["x"]
    assert repr(table) == "Table(n_rows=2, columns=['t0', 't1', 't2', 't3', 't4', ... (49,995 more)])"


def test_numpys_booleans_and_pandas_missing_values_stand_for_what_they_are() -> None:
    missing = type("NAType", (), {"__ne__": lambda *_: missing, "__hash__": None})()  # as pandas' own: of no truth value
    flags = Table({"smokes": np.array([np.bool_(1), missing, np.bool_(0)], dtype=object)})["smokes"]
    assert flags.dtype == np.float64
    assert flags.tolist()[::2] == [1.0, 0.0]
    assert np.isnan(flags[1])
    assert Table({"sex": np.array(["F", missing, np.nan], dtype=object)})["sex"].tolist() == ["F", None, None]


@pytest.mark.guarantee
@pytest.mark.parametrize("labels", [["a", None, "b", "b"], [1.0, math.nan, 1.0, 1.0]])
def test_a_row_without_a_site_is_refused(labels) -> None:
    with pytest.raises(UsageError, match="missing label"):
        Table({"x": [1.0, 2.0, 3.0, 4.0]}).by_site(labels)


def test_a_column_with_one_gap_is_not_complete() -> None:
    for gap, full in ((None, "x"), (math.nan, 1.0)):
        kind = object if gap is None else np.float64
        assert is_complete(np.array([full, full], dtype=kind))
        assert not is_complete(np.array([full, gap], dtype=kind))
        assert not is_complete(np.array([gap, gap], dtype=kind))
