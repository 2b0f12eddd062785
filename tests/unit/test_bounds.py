"""Declared bounds and the integer coding: no data value ever leaves [-grid, grid], or turns up in an error."""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from unpooled.errors import DataError, PrivacyLeakWarning, UsageError
from unpooled.privacy import bounds as module
from unpooled.privacy.bounds import Bounds, Coding, Column, check, integer_grid
from unpooled.privacy.table import Table

quick = settings(deadline=None, database=None, derandomize=True, max_examples=100)
GRID = 1 << 20
SENTINEL = 987654.321


def code(column: Column, values: object, grid: int = GRID, norm: float | None = None) -> tuple[np.ndarray, np.ndarray]:
    table = Table({column.name: values})
    return Coding((column,), grid, norm).code((table[column.name],))


# --- columns --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", [1 << 10, 1 << 20])
@pytest.mark.parametrize("norm", [1e-3, 1.0, 7.0])
def test_a_row_beyond_the_norm_keeps_its_direction(grid: int, norm: float) -> None:
    """C6: rows were clipped per column first, which turns them by tens of degrees."""
    rng = np.random.default_rng(3)
    for far in (1.0, 10.0, 1e6, 1e100):
        rows = rng.normal(size=(200, 6)) * norm * far
        coding = Coding(Bounds(norm=norm).columns(list("abcdef")), grid, norm)
        coded, real = coding.code(list(rows.T))[0], coding.real(list(rows.T))
        long = np.linalg.norm(rows / norm / far, axis=1) * far > 1
        for shortened, slack in ((real, 1e-7), (coded[long].astype(float), 20 / grid)):
            there = rows[long] if shortened is not real else rows
            cosine = (
                (shortened * (there / far)).sum(axis=1)
                / np.linalg.norm(shortened, axis=1)
                / np.linalg.norm(there / far, axis=1)
            )
            assert np.degrees(np.arccos(np.clip(cosine, -1, 1))).max() < np.degrees(slack) + 1e-5
        assert np.allclose(np.linalg.norm(real[long], axis=1), 1.0, atol=1e-9)
        assert ((coded.astype(object) ** 2).sum(axis=1) <= grid**2).all()
        inside = ~long
        assert np.array_equal(coded[inside], np.trunc(rows[inside] / norm * grid).astype(np.int64))


def test_declared_ranges_are_clipped_to_before_a_row_is_shortened() -> None:
    coding = Coding(Bounds(low=[-2, -1], high=[2, 9], norm=1.0).columns(["a", "b"]), GRID, 1.0)
    real = coding.real([np.array([100.0, 0.5]), np.array([7.0, 4.0])])
    wanted = np.array([[2.0, 3.0], [0.5, 0.0]])  # centres 0 and 4
    assert np.allclose(real, wanted / np.maximum(1, np.linalg.norm(wanted, axis=1, keepdims=True)), atol=1e-11)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [1e308, -1e308, np.inf, -np.inf, 5e-324, np.nan])
@pytest.mark.parametrize("norm", [1e-300, 1.0, 1e300])
def test_no_value_however_wild_leaves_the_ball(norm: float, value: float) -> None:
    for bounds in (Bounds(norm=norm, missing="indicator"), Bounds(low=-1e308, high=1e307, norm=norm, missing="indicator")):
        coding = Coding(bounds.columns(["a", "b", "c"]), GRID, norm)
        block = [np.array([value, 0.1]), np.array([value, -1e308]), np.array([0.3 * norm, 1e-5])]
        coded, real = coding.code(block)[0], coding.real(block)
        assert np.isfinite(real).all()
        assert (np.linalg.norm(real, axis=1) <= 1).all()
        assert ((coded.astype(object) ** 2).sum(axis=1) <= GRID**2).all()


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "no bounds"),
        ({"low": 0.0}, "no bounds"),
        ({"high": 0.0}, "no bounds"),
        ({"low": 1.0, "high": 1.0}, "low must be smaller"),
        ({"low": 2.0, "high": 1.0}, "low must be smaller"),
        ({"low": 0.0, "high": math.inf}, "finite"),
        ({"low": math.nan, "high": 1.0}, "finite"),
        ({"categories": ("a",)}, "at least two"),
        ({"categories": ("a", "a")}, "each once"),
        ({"categories": ("a", "b"), "low": 0.0}, "not both"),
        ({"categories": ("a", "b"), "high": 0.0}, "not both"),
        ({"low": 0.0, "high": 1.0, "missing": "zero"}, "refuse, complete, model, absent, indicator"),
    ],
)
def test_a_declaration_that_bounds_nothing_is_refused_and_named(arguments: dict, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        Column("age", **arguments)
    assert "'age'" in str(caught.value)


@pytest.mark.guarantee
def test_a_column_knows_its_middle_and_half_width() -> None:
    column = Column("age", -10.0, 50.0)
    assert (column.range, column.centre, column.half_width, column.may_be_absent) == ((-10.0, 50.0), 20.0, 30.0, False)
    assert Column("age", 0.0, 1.0, missing="absent").may_be_absent
    with pytest.raises(UsageError, match="categories, not a range"):
        _ = Column("sex", categories=("f", "m")).range


def test_a_range_too_narrow_for_a_float_is_refused() -> None:
    with pytest.raises(UsageError):
        Column("x", 0.0, 5e-324)


def test_a_range_whose_middle_overflows_is_refused_or_coded() -> None:
    with suppress(UsageError):
        assert math.isfinite(Column("x", 1e308, 1.7e308).centre)


# --- Bounds ---------------------------------------------------------------------------------------------------------------


def test_scalars_serve_every_column_and_lists_their_own() -> None:
    first, second = Bounds(low=0, high=[1, 10]).columns(["dose", "age"])
    assert (first, second) == (Column("dose", 0.0, 1.0), Column("age", 0.0, 10.0))
    assert type(first.low) is float


def test_a_norm_alone_implies_ranges_and_a_range_wins_over_it() -> None:
    assert Bounds(norm=2).columns(["a"])[0].range == (-2.0, 2.0)
    assert Bounds(low=0, norm=2).columns(["a"])[0].range == (0.0, 2.0)
    assert Bounds(high=1, norm=2).columns(["a"])[0].range == (-2.0, 1.0)


def test_categories_and_missing_rules_by_name_or_index() -> None:
    bounds = Bounds(0, 1, categories={"sex": ["f", "m"], 2: [1, 2]}, missing={0: "absent", "site": "indicator"})
    dose, sex, site = bounds.columns(["dose", "sex", "site"])
    assert (dose.missing, sex.missing, site.missing) == ("absent", "refuse", "indicator")
    assert (dose.range, sex.categories, site.categories) == ((0.0, 1.0), ("f", "m"), ("1", "2"))
    assert all(c.missing == "absent" for c in Bounds(0, 1, missing="absent").columns(["a", "b"]))


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        (Bounds(), "no bounds"),
        (Bounds(low=0), "no bounds"),
        (Bounds(0, 1, categories={"sec": ["f", "m"]}), "'sec', which is not among dose, sex"),
        (Bounds(0, 1, missing={7: "absent"}), "7, which is not among"),
        (Bounds(0, 1, missing={"dose": "drop"}), "unknown rule"),
        (Bounds([0, 0, 0], 1), r"low has shape \(3,\): give one number, or one for each of the 2"),
        (Bounds(0, [[1, 1]]), r"high has shape \(1, 2\)"),
        (Bounds("a", 1), "low must be finite"),
        (Bounds(0, [1, None]), "high must be finite"),
        (Bounds(0, [1, math.nan]), "high must be finite"),
        (Bounds(low=False, high=True), "low must be finite"),
        (Bounds(norm=0), "norm must be a positive"),
        (Bounds(norm=-1), "norm must be a positive"),
        (Bounds(norm=math.inf), "norm must be a positive"),
        (Bounds(norm=math.nan), "norm is nan"),
        (Bounds(norm=True), "norm must be a number"),
        (Bounds(norm=1, categories={"sex": ["f", "m"]}), "not both"),
    ],
)
def test_bounds_that_do_not_fit_are_refused(bounds: Bounds, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        bounds.columns(["dose", "sex"])


def test_bounds_read_off_the_data_warn_and_cover_them() -> None:
    data = {
        "x": [3.0, np.nan, -1.5],
        "flat": [2.0, 2.0, 2.0],
        "none": [np.nan] * 3,
        "sex": ["m", None, "f"],
        "one": ["a", "a", None],
        "empty": np.array([None] * 3, dtype=object),
    }
    table = Table(data)
    with pytest.warns(PrivacyLeakWarning, match="no privacy guarantee|carries no"):
        bounds = Bounds.from_data(table)
    columns = {c.name: c for c in bounds.columns(table.names)}
    assert columns["x"].range == (-1.5, 3.0)
    assert columns["flat"].range[0] == 2.0 < columns["flat"].range[1]
    assert columns["none"].range == (0.0, 1.0)
    assert columns["sex"].categories == ("f", "m")
    assert columns["one"].categories == ("a", "(other)")
    assert columns["empty"].categories == ("(other)", "(none)")
    assert {c.missing for c in columns.values()} == {"absent"}
    Coding(bounds.columns(table.names), GRID).code(next(table.blocks(table.names)))


@pytest.mark.guarantee
@pytest.mark.parametrize(
    "values",
    [
        [1e300, 1e300],
        ["(other)", "(other)"],
    ],
)
def test_bounds_can_be_read_off_any_table(values: list) -> None:
    table = Table({"x": values})
    with pytest.warns(PrivacyLeakWarning):
        assert len(Bounds.from_data(table).columns(["x"])) == 1


# --- numeric coding -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high"), [(-1.0, 1.0), (-10.0, 50.0), (0.0, 1e-9), (1e6, 1e6 + 1), (-3.0, -2.0), (-1e300, 1e300)]
)
def test_the_ends_code_to_plus_and_minus_the_grid_and_the_middle_to_zero(low: float, high: float) -> None:
    coded, present = code(Column("x", low, high), [low, (low + high) / 2, high])
    assert coded[:, 0].tolist() == [-GRID, 0, GRID]
    assert present.all()


def test_values_are_clipped_then_rounded_toward_zero() -> None:
    coded, _ = code(Column("x", -1.0, 3.0), [-7.0, 1.0 + 2 * 2.75 / 8, 1.0 - 2 * 2.75 / 8, 1.0 + 2 * 0.99 / 8, 99.0], grid=8)
    assert coded[:, 0].tolist() == [-8, 2, -2, 0, 8]


wide = st.floats(allow_nan=True, allow_infinity=False, width=64)


@quick
@given(
    st.tuples(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9)),
    st.lists(wide, min_size=2, max_size=8),
    st.sampled_from([1, 8, GRID, 1 << 30]),
)
def test_no_coded_value_leaves_the_grid_and_rounding_never_goes_outward(span: tuple, values: list, grid: int) -> None:
    column = Column("x", span[0], span[0] + span[1], missing="indicator")
    coded, present = code(column, values, grid)
    assert np.abs(coded).max() <= grid
    z = np.clip((np.clip(np.nan_to_num(values), *column.range) - column.centre) / column.half_width, -1, 1) * present[:, 0]
    assert (np.abs(coded[:, 0]) <= np.abs(z) * grid * (1 + 1e-12)).all()
    assert (np.abs(coded[:, 0] - z * grid) < 1 + np.abs(z) * grid * 1e-12).all()
    assert (coded[:, 1] == np.where(present[:, 0], 0, grid)).all()
    assert (present[:, 0] == ~np.isnan(values)).all()


@pytest.mark.slow
@pytest.mark.minutes
@quick
@given(
    hnp.arrays(np.float64, st.tuples(st.integers(2, 6), st.integers(1, 7)), elements=st.floats(-1e12, 1e12)),
    st.sampled_from([1, 8, 1000, GRID, 1 << 30]),
    st.sampled_from([1e-6, 0.5, 1.0, 3.0, 1e9]),
)
def test_no_row_is_longer_than_the_grid_when_a_norm_is_declared(data: np.ndarray, grid: int, norm: float) -> None:
    names = [f"x{j}" for j in range(data.shape[1])]
    coding = Coding(Bounds(norm=norm).columns(names), grid, norm)
    coded, _ = coding.code([data[:, j] for j in range(data.shape[1])])
    for row in coded.tolist():
        assert sum(v * v for v in row) <= grid * grid  # in Python integers: exact


def test_a_short_row_is_left_alone_and_a_long_one_keeps_its_direction() -> None:
    coding = Coding(Bounds(norm=5.0).columns(["a", "b"]), GRID, 5.0)
    coded, _ = coding.code([np.array([0.3, 30.0, 3.0]), np.array([0.4, 40.0, 4.0])])
    assert coded[0].tolist() == [int(0.06 * GRID), int(0.08 * GRID)]
    assert coded[1, 0] / coded[1, 1] == pytest.approx(0.75)
    assert np.hypot(*coded[1]) == pytest.approx(GRID, abs=2)
    assert np.hypot(*coded[2]) == pytest.approx(GRID, abs=2)


def test_forgetting_to_shorten_rows_is_caught() -> None:
    coded, _ = Coding(Bounds(norm=1.0).columns(["a", "b"]), 8).code([np.array([1.0]), np.array([1.0])])
    assert (coded[0] ** 2).sum() > 64


@pytest.mark.parametrize("degree", [1, 2, 4])
def test_integer_sums_cannot_overflow(degree: int) -> None:
    for n in (2, 3, 1000, 1 << 20, (1 << 20) + 1, 1 << 40):
        grid = integer_grid(n, degree)
        assert n * grid**degree <= 1 << 61
        assert grid == 1 << 20 or n * (2 * grid) ** degree > 1 << 60
    assert integer_grid(2, 1, largest=1 << 10) == 1 << 10


# --- categories and missing values ----------------------------------------------------------------------------------------


def test_a_category_is_one_hot() -> None:
    coded, present = code(Column("sex", categories=("f", "m", "x")), ["m", "f", "x"], grid=8)
    assert coded.tolist() == [[0, 8, 0], [8, 0, 0], [0, 0, 8]]
    assert present.all()


@pytest.mark.parametrize(
    ("missing", "wanted"), [("absent", [[8, 0], [0, 0], [0, 0]]), ("indicator", [[8, 0, 0], [0, 0, 8], [0, 0, 8]])]
)
def test_missing_and_unknown_categories_contribute_nothing(missing: str, wanted: list) -> None:
    coded, present = code(Column("sex", categories=("f", "m"), missing=missing), ["f", None, "?"], grid=8)
    assert coded.tolist() == wanted
    assert present[:, 0].tolist() == [True, False, False]


def test_missing_numbers_contribute_nothing() -> None:
    coded, present = code(Column("x", 10.0, 20.0, missing="absent"), [20.0, np.nan, 10.0], grid=8)
    assert coded[:, 0].tolist() == [8, 0, -8]
    assert present[:, 0].tolist() == [True, False, True]


@pytest.mark.parametrize(
    "declared",
    [
        [1, 2],
        ["1", "2"],
        [1.0, 2.0],
        np.array([1.0, 2.0]),
        [np.int64(1), np.int64(2)],
    ],
)
def test_categories_that_are_numbers_match_a_numeric_column(declared: object) -> None:
    column = Bounds(categories={"g": declared}).columns(["g"])[0]
    coded, _ = code(column, [2.0, 1.0], grid=1)
    assert coded.tolist() == [[0, 1], [1, 0]]


def test_boolean_categories_match_a_boolean_column() -> None:
    column = Bounds(categories={"g": [False, True]}).columns(["g"])[0]
    assert code(column, [True, False], grid=1)[0].tolist() == [[0, 1], [1, 0]]


def test_fractions_and_missing_values_in_a_numeric_category() -> None:
    column = Column("g", categories=("0.5", "2"), missing="absent")
    assert code(column, [0.5, 2.0, np.nan, 3.0], grid=1)[0].tolist() == [[1, 0], [0, 1], [0, 0], [0, 0]]


def test_coded_columns_know_their_attribute() -> None:
    coding = Coding(
        (
            Column("x", 0.0, 1.0, missing="indicator"),
            Column("sex", categories=("f", "m", "d"), missing="indicator"),
            Column("y", 0.0, 1.0),
        ),
        8,
    )
    assert coding.attribute == (0, 0, 1, 1, 1, 1, 2)
    assert coding.names == ("x", "sex", "y")


# --- errors never carry a value -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        (Column("x", 0.0, 1.0), [SENTINEL, np.nan], "a missing value"),
        (Column("x", 0.0, 1.0), ["SECRET", "b"], "text where a range"),
        (Column("x", categories=("f", "m")), ["f", "SECRET"], "outside its declared categories"),
        (Column("x", categories=("1", "2")), [1.0, SENTINEL], "outside its declared categories"),
    ],
)
def test_a_value_that_does_not_fit_is_never_repeated(column: Column, values: list, words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        code(column, values)
    assert "'x'" in str(caught.value)
    assert "SECRET" not in repr(caught.value)
    assert "9876" not in repr(caught.value)


# --- codes without rounding, and in the data's own units ------------------------------------------------------------------


MIXED = (
    Column("a", -1.0, 3.0, missing="absent"),
    Column("g", categories=("u", "v"), missing="indicator"),
    Column("b", 0.0, 10.0, missing="indicator"),
)


def test_the_real_code_is_the_code_before_rounding() -> None:
    rng = np.random.default_rng(1)
    block = [
        np.append(rng.normal(1, 3, 50), np.nan),
        np.append(rng.choice(np.array(["u", "v"], dtype=object), 50), None),
        np.append(rng.uniform(-2, 12, 50), np.nan),
    ]
    coding = Coding(MIXED, GRID)
    real, (integers, _) = coding.real(block), coding.code(block)
    assert real.shape == integers.shape == (51, 6)
    assert np.abs(real).max() <= 1
    gap = real * GRID - integers
    assert np.abs(gap).max() < 1
    assert (gap * np.sign(integers) >= 0).all()  # toward zero
    normed = Coding((MIXED[0], Column("c", 0.0, 10.0)), GRID, 2.0)
    assert np.linalg.norm(normed.real([block[0], np.full(51, 9.0)]), axis=1).max() <= 1
    into = np.empty((51, 2))
    assert np.array_equal(normed.code_into([block[0], np.full(51, 9.0)], into), normed.code([block[0], np.full(51, 9.0)])[1])


def test_natural_columns_keep_their_units_and_stand_in_for_the_missing() -> None:
    block = [np.array([2.5, np.nan]), np.array(["v", None], dtype=object), np.array([np.nan, 99.0])]
    assert Coding(MIXED, GRID).natural(block).tolist() == [[2.5, 0, 1, 0, 5.0, 1], [1.0, 0, 0, 1, 99.0, 0]]


@pytest.mark.guarantee
def test_bounds_are_what_was_given() -> None:
    table = Table({"a": [1.0, 2.0]})
    declared = Bounds(low=0, high=1)
    assert Bounds.given(declared, None) is declared
    assert Bounds.given((0, 1), None).columns(["a"]) == declared.columns(["a"])
    with pytest.raises(UsageError, match="a plan needs bounds"):
        Bounds.given(None, None)
    with pytest.warns(PrivacyLeakWarning):
        derived = Bounds.given(None, table)
    assert derived.columns(["a"])[0].range == (1.0, 2.0)
    assert Bounds.given(None, table, warn=False) == derived


# --- columns that are held sparse -----------------------------------------------------------------------------------------


def held(values: np.ndarray) -> sp.csc_array:
    """As a party holds them: only what is not zero is stored, minus zero too."""
    names = [str(j) for j in range(values.shape[1])]
    matrix = Table({}, (names, sp.csc_array(values))).sparse(names)
    assert matrix is not None
    return matrix


@pytest.mark.guarantee
@pytest.mark.minutes
@quick
@given(
    hnp.arrays(
        np.float64,
        st.tuples(st.integers(2, 12), st.integers(1, 6)),
        elements=st.one_of(st.just(0.0), st.just(-0.0), st.just(math.nan), st.floats(-30, 30), st.floats(-1e300, 1e300)),
    ),
    st.sampled_from([1, 8, 1000, GRID, 1 << 30]),
    st.data(),
)
def test_sparse_columns_are_coded_like_dense_ones(values: np.ndarray, grid: int, data: st.DataObject) -> None:
    ends = data.draw(st.lists(st.floats(1e-3, 1e3), min_size=values.shape[1], max_size=values.shape[1]))
    coding = Coding(tuple(Column(str(j), -end, end, missing="absent") for j, end in enumerate(ends)), grid)
    dense = np.empty(values.shape)
    coding.code_into(list(values.T), dense)
    coded = coding.code_sparse(held(values))
    assert coded.dtype == np.float64
    assert np.array_equal(coded.toarray(), dense)
    assert coded.data.all()
    assert coded.nnz == np.count_nonzero(dense)
    assert coded.has_canonical_format


def test_a_missing_value_of_a_sparse_column_is_refused_in_the_same_words() -> None:
    values = np.array([[0.0, SENTINEL, np.nan], [1.0, np.nan, np.nan], [0.0, 0.0, 0.0]])
    columns = (Column("a", -1.0, 1.0), Column("b", -1.0, 1.0, missing="absent"), Column("c", -1.0, 1.0))
    with pytest.raises(DataError) as caught:
        Coding(columns, 1).code_sparse(held(values))
    with pytest.raises(DataError) as dense:
        Coding(columns, 1).code(list(values.T))
    assert str(caught.value) == str(dense.value)
    assert "column 'c' holds a missing value" in str(caught.value)


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("column", "words"),
    [
        (Column("b", -1.0, 1.5), "declare low = -high"),
        (Column("b", 0.0, 1.0), "symmetric about zero, so that zeros stay zeros"),
        (Column("b", categories=("0", "1")), "declare low = -high"),
        (Column("b", -1.0, 1.0, missing="indicator"), "no indicator"),
    ],
)
def test_a_sparse_column_whose_zeros_would_not_stay_zeros_is_named(column: Column, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        Coding((Column("a", -1.0, 1.0), column), 8).code_sparse(held(np.eye(2)))
    assert "'b'" in str(caught.value)
    assert column.unfit_for_sparse


@pytest.mark.guarantee
def test_a_norm_needs_whole_rows() -> None:
    coding = Coding(Bounds(norm=1).columns(["a", "b"]), 8, 1.0)
    with pytest.raises(UsageError, match="declare no norm"):
        coding.code_sparse(held(np.eye(2)))


def test_many_sparse_columns_are_coded_at_once(monkeypatch) -> None:
    wide = sp.random_array((50, 50_000), density=1e-3, format="csc", rng=np.random.default_rng(0))
    coding, rounded, trunc = Coding(Bounds(-1, 1).columns([str(j) for j in range(50_000)]), 8), [], np.trunc
    monkeypatch.setattr(np, "trunc", lambda values: rounded.append(values.size) or trunc(values))
    assert np.array_equal(np.sort(coding.code_sparse(wide).data), np.sort((wide.data * 8).astype(int)[wide.data >= 1 / 8]))
    assert rounded == [wide.nnz]


# --- a table against its card ---------------------------------------------------------------------------------------------

CARD = (
    Column("a", -1.0, 1.0),
    Column("b", 0.0, 1.0),
    Column("c", categories=("0", "2"), missing="absent"),
    Column("d", -1.0, 1.0, missing="indicator"),
    Column("x", -1.0, 1.0),
    Column("g", categories=("u", "v")),
)
BESIDE = {"x": np.arange(5.0), "g": list("uvuvu")}


@pytest.mark.guarantee
@pytest.mark.parametrize("width", [1, 1 << 24])
@pytest.mark.parametrize("sparse", [True, False])
def test_a_table_is_held_against_its_card(sparse: bool, width: int, monkeypatch) -> None:
    def table(name: str = "", value: object = None) -> Table:
        values = {n: np.array([0.0, 2.0, 0.0, 0.0, 0.0]) for n in "abcd"}
        columns = {**values, **{n: np.array(v, dtype=object) for n, v in BESIDE.items()}}
        if name:
            columns[name][3] = value
        chosen = "abcd" if sparse else ""
        matrix = sp.csc_array(np.array([columns[n] for n in chosen]).T) if sparse else None
        rest = {n: column for n, column in columns.items() if n not in chosen}
        return Table(rest, None if matrix is None else (list(chosen), matrix))

    monkeypatch.setattr(module, "_READ", width)
    check(table(), CARD)
    check(table(), CARD[4:])
    check(table(), CARD[:1])
    check(table(), ())
    for name in "cd":
        check(table(name, np.nan), CARD)
    for name, value in {"a": np.nan, "b": np.nan, "x": np.nan, "g": "SECRET"}.items():
        with pytest.raises(DataError, match=f"column '{name}' holds a") as caught:
            check(table(name, value), CARD)
        assert "SECRET" not in repr(caught.value)


def test_checking_writes_out_a_bounded_number_of_values(monkeypatch) -> None:
    names = [str(j) for j in range(40)]
    table = Table({}, (names, sp.csc_array(np.eye(10, 40))))
    read = []
    blocks = Table.blocks
    monkeypatch.setattr(module, "_READ", 70)
    monkeypatch.setattr(Table, "blocks", lambda self, chosen: read.append(chosen) or blocks(self, chosen))
    check(table, Bounds(-1, 1).columns(names))
    assert read == []
    check(table, Bounds(0, 1).columns(names))
    assert [name for chosen in read for name in chosen] == names
    assert max(map(len, read)) == 7


def test_many_declarations_are_looked_up_not_searched() -> None:
    names = [f"t{j}" for j in range(20_000)]
    columns = Bounds(0, 1, missing=dict.fromkeys(names, "absent")).columns(names)
    assert all(column.may_be_absent for column in columns)
    with pytest.raises(UsageError, match=r"not among t0, t1, t2, t3, t4, \.\.\. \(19,995 more\)"):
        Bounds(0, 1, missing={"x": "absent"}).columns(names)


def test_bounds_by_name() -> None:
    bounds = Bounds({"age": (0, 120), "sex": ["F", "M"], "code": ["1", "2"]}, missing={"age": "absent"})
    sex, age, code = bounds.columns(["sex", "age", "code"])
    assert (sex.categories, age.range, age.missing, code.categories) == (("F", "M"), (0.0, 120.0), "absent", ("1", "2"))
    assert bounds.names == ("age", "sex", "code")
    assert Bounds(0, 1).names == ()
    assert Bounds({"a": (0, 1), "b": np.array([0.0, 2.0])}, norm=3.0).columns(["b", "a"])[0].range == (0.0, 2.0)
    assert Bounds(low={"a": 0, "b": -1}, high={"b": 2, "a": 1}).columns(["a", "b"])[1].range == (-1.0, 2.0)
    assert Bounds(low={"a": 0}, high=5).columns(["a"])[0].range == (0.0, 5.0)
    assert Bounds({1: (0, 1), 0: [False, True]}).columns(["a", "b"])[0].categories == ("0", "1")
    assert Bounds.given({"a": (0, 1)}, None) == Bounds({"a": (0, 1)})


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        (Bounds({"a": (0, 1), "c": (0, 1)}), "'c', which is not among a, b"),
        (Bounds({"a": (0, 1)}), "column b: no range"),
        (Bounds(low={"a": 0}), "column b: no range"),
        (Bounds(low={"a": 0, "b": 0}), "'a': no bounds"),
        (Bounds(0, high={"a": 1, "c": 1}), "'c', which is not among a, b"),
        (Bounds({"a": (0, 1), "b": "FM"}), "'b': declare two numbers"),
        (Bounds({"a": (0, 1), "b": {"F", "M"}}), "'b': declare two numbers"),
        (Bounds({"a": (0, 1), "b": (1, 0)}), "'b': low must be smaller"),
        (Bounds({"a": (0, 1), "b": ["x"]}), "'b': declare at least two categories"),
        (Bounds({"a": (0, 1), "b": ["x", "y"]}, norm=1.0), "categories or a row norm"),
        (Bounds({"a": (0, 1), "b": (0, 1)}, categories={"b": ["x", "y"]}), "'b' is declared twice"),
        (Bounds({"a": (0, 1), "b": ["x", "y"]}, high={"b": 3}), "'b' is declared twice"),
    ],
)
def test_bounds_by_name_that_make_no_sense_are_refused(bounds: Bounds, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        bounds.columns(["a", "b"])


@pytest.mark.guarantee
def test_one_missing_value_of_a_sparse_column_that_has_none_is_refused() -> None:
    columns = (Column("a", -1.0, 1.0, missing="absent"), Column("b", -1.0, 1.0))
    coding = Coding(columns, 1 << 10)
    coding.code_sparse(sp.csc_array(np.array([[math.nan, 0.5], [0.0, 1.0]])))
    with pytest.raises(DataError, match="'b'"):
        coding.code_sparse(sp.csc_array(np.array([[0.5, math.nan], [0.0, 1.0]])))


def test_one_missing_value_of_a_column_that_has_none_is_refused() -> None:
    for column, values in ((Column("a", -1.0, 1.0), [0.5, math.nan]), (Column("a", categories=("x", "y")), ["x", None])):
        kind = object if column.categories else np.float64
        with pytest.raises(DataError, match="'a'"):
            Coding((column,), 1).code((np.array(values, dtype=kind),))


@pytest.mark.guarantee
def test_booleans_are_the_words_that_are_declared_of_them() -> None:
    raw = np.array([0.0, 1.0, math.nan, 2.0])
    for words, wanted in (
        (("False", "True"), [0, 1, None, None]),
        (("0", "2"), [0, None, None, 1]),
        (("a", "b"), [None] * 4),
    ):
        coded = Coding((Column("a", categories=words, missing="absent"),), 1).code((raw,))[0]
        assert [row.index(1) if 1 in row else None for row in coded.tolist()] == wanted


@pytest.mark.guarantee
def test_under_a_norm_only_a_column_as_wide_as_the_norm_keeps_what_lies_beyond_it() -> None:
    """A row is shortened as a whole, which keeps its direction; a bound that was declared for the column itself is held."""
    coding = Coding((Column("own", -1.0, 1.0), Column("norm", -2.0, 2.0)), 1 << 10, 2.0)
    out = np.empty(3)
    for column, wanted in zip(coding.columns, ([0.5, -0.5, 0.25], [2.5, -2.5, 0.25]), strict=True):
        assert coding._code_number(column, np.array([5.0, -5.0, 0.5]), out, rounded=False).all()
        assert out == pytest.approx(wanted)
