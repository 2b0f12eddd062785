"""Labels are coded on their types and distinct values; every result and every error is that of a plain reading row by row."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unpooled.errors import DataError, UnpooledError, UsageError
from unpooled.models.pride.declared import Levels
from unpooled.privacy.bounds import Coding, Column, text_of, truth_words
from unpooled.privacy.classes import Classes
from unpooled.privacy.table import Table, _is_missing, as_column

examples = settings(deadline=None, database=None, derandomize=True, max_examples=300)


class Word(str):
    """A text of a type of its own, which may say that it is missing."""

    __slots__ = ()

    def __ne__(self, other: object) -> bool:
        return self == "gone" or str.__ne__(self, other)

    __hash__ = str.__hash__


class Count(int):
    """A whole number of a type of its own."""


class NAType:
    """What pandas writes for a missing value, by its name."""

    def __repr__(self) -> str:
        return "<NA>"


TEXTS = ["a", "b", "1", "1.0", "01", "0", "-0", "true", "True", "FALSE", "false", "nan", "inf", "None", "", " a", "é", "a\0"]
NUMBERS = [
    0,
    1,
    2,
    -1,
    1 << 60,
    0.0,
    -0.0,
    1.0,
    1.5,
    True,
    False,
    np.int64(1),
    np.float64(1.0),
    np.array([True])[0],
    Count(1),
]
ODD = [
    None,
    float("nan"),
    np.float64("nan"),
    NAType(),
    np.str_("a"),
    Word("a"),
    Word("gone"),
    Decimal("1.0"),
    Fraction(1),
    date(2026, 1, 1),
    b"a",
]
values = st.one_of(
    st.lists(st.sampled_from(TEXTS), min_size=2, max_size=8),
    st.lists(st.sampled_from(NUMBERS), min_size=2, max_size=8),
    st.lists(st.sampled_from([*TEXTS, None]), min_size=2, max_size=8),
    st.lists(st.sampled_from([*NUMBERS, None, float("nan")]), min_size=2, max_size=8),
    st.lists(st.sampled_from([*TEXTS, *NUMBERS, *ODD]), max_size=8),
)


def as_objects(rows: list[Any]) -> np.ndarray:
    column = np.empty(len(rows), dtype=object)
    column[:] = rows
    return column


held = st.sampled_from([as_objects, np.asarray, list])


def outcome(work: Callable[[], Any]) -> Any:
    """What a call gives, or its error: both as they can be compared."""
    try:
        found = work()
    except UnpooledError as error:
        return type(error), str(error)
    return found


def alike(first: Any, second: Any) -> bool:
    """Whether two outcomes are the same to the last bit and type."""
    if not isinstance(first, np.ndarray) or not isinstance(second, np.ndarray):
        return type(first) is type(second) and bool(first == second)
    if first.dtype != object or second.dtype != object:
        return first.dtype == second.dtype and first.tobytes() == second.tobytes()
    return first.tolist() == second.tolist() and list(map(type, first)) == list(map(type, second))


def plain_column(rows: Any) -> np.ndarray:
    """A column read row by row: every value is asked whether it is missing, and every text is made anew."""
    array = np.asarray(rows)
    if array.ndim != 1:
        raise DataError(f"column 'c' has {array.ndim} dimensions: give one value per row")  # noqa: EM102
    if array.dtype.kind in "biuf":
        found = array.astype(np.float64)
    elif array.dtype.kind in "OUT":
        gone = [_is_missing(value) for value in array.tolist()]
        there = [value for value, out in zip(array.tolist(), gone, strict=True) if not out]
        if not there or not all(isinstance(value, Real | np.bool_) for value in there):
            return as_objects([None if out else str(value) for value, out in zip(array.tolist(), gone, strict=True)])
        found = np.array([np.nan if out else value for value, out in zip(array.tolist(), gone, strict=True)]).astype(
            np.float64
        )
    else:
        raise DataError(f"column 'c' holds {array.dtype.name} values: give numbers or text")  # noqa: EM102
    if np.isinf(found).any():
        raise DataError("column 'c' holds an infinite value: replace it, or mark it as missing (nan)")
    return found


@pytest.mark.slow
@examples
@given(values, held)
def test_columns_are_those_of_a_reading_row_by_row(rows: list[Any], hold: Callable[[list[Any]], Any]) -> None:
    assert alike(outcome(lambda: as_column("c", hold(rows))), outcome(lambda: plain_column(hold(rows))))


@pytest.mark.parametrize("kind", [pl.Categorical, pl.String, pl.Enum(["b", "a", "c"])])
def test_categories_of_a_frame_are_their_texts(kind: Any) -> None:
    rows = ["a", None, "b", "a"]
    assert as_column("c", pl.Series(rows, dtype=kind)).tolist() == rows
    assert as_column("c", pl.Series(rows, dtype=kind).to_numpy()).tolist() == rows


def plain_code(column: Column, raw: np.ndarray, grid: int) -> tuple[np.ndarray, np.ndarray]:
    """The code of categories where every number is turned into text, and every text compared with every category."""
    assert column.categories is not None
    if raw.dtype != object:
        words = dict(zip((0.0, 1.0), truth_words(column.categories) or ("0", "1"), strict=True))
        raw = as_objects([None if np.isnan(value) else words.get(value, text_of(value)) for value in raw.tolist()])
    out = np.array([[grid * (text == category) for category in column.categories] for text in raw.tolist()], dtype=np.int64)
    present = out.any(axis=1)
    if column.missing == "refuse" and not present.all():
        raise DataError(
            "column 'c' holds a value outside its declared categories or missing, and its declaration does not say what becomes of it: for a table declare missing = 'complete' (such rows are left out: right unless missingness depends on the response), for predictions 'indicator', or clean the column"
        )
    return (np.column_stack([out, grid * ~present]) if column.missing == "indicator" else out), present[:, None]


@pytest.mark.slow
@examples
@given(
    values,
    st.lists(
        st.sampled_from([*TEXTS, "False", "TRUE", "2", "1.5", "1_0", "\u0661", "1e400"]), min_size=2, max_size=6, unique=True
    ),
    st.sampled_from(["refuse", "absent", "indicator"]),
)
def test_codes_are_those_of_a_reading_row_by_row(rows: list[Any], categories: list[str], missing: Any) -> None:
    raw = outcome(lambda: as_column("c", as_objects(rows)))
    if not isinstance(raw, np.ndarray) or not raw.size:
        return
    column = Column("c", categories=tuple(categories), missing=missing)
    found, wanted = outcome(lambda: Coding((column,), 8).code((raw,))), outcome(lambda: plain_code(column, raw, 8))
    assert len(found) == len(wanted) == 2
    assert all(alike(one, other) for one, other in zip(found, wanted, strict=True))


@pytest.mark.slow
@examples
@given(st.lists(st.sampled_from([*TEXTS, *NUMBERS, np.str_("a"), None]), min_size=2, max_size=8), st.data())
def test_responses_are_those_of_a_reading_row_by_row(rows: list[Any], data: st.DataObject) -> None:
    """Labels that equal a class become its text, whatever type they have."""
    y = data.draw(held)(rows)
    y = np.asarray(y)
    classes = data.draw(
        st.sampled_from(
            [["a", "b"], ["1", "a", "b"], [0, 1], [0, 1, 2], ["false", "true"], [1.0, 1.5], ["a", "b", "1", "é"]]
        )
    )
    for declared in (Classes.given(classes, several=True), Levels.declared(classes, ordered=False)):
        found = outcome(lambda declared=declared: declared.column(y))
        known = all(any(bool(value == label) for label in declared.labels.tolist()) for value in y.tolist())
        if isinstance(found, tuple):
            assert found[0] is DataError
            assert not known
            continue
        assert known
        if declared.labels.dtype.kind == "U":
            assert found.tolist() == [text_of(value) for value in y.tolist()]
            assert set(map(type, found.tolist())) == {str}
        else:
            assert found.astype(np.float64).tolist() == [float(value) for value in y.tolist()]


@examples
@given(values, held)
def test_sites_and_digests_are_those_of_a_reading_row_by_row(rows: list[Any], hold: Callable[[list[Any]], Any]) -> None:
    if len(rows) < 2:
        return
    labels = hold([row for row in rows for _ in range(2)])
    table = Table({"x": np.arange(2.0 * len(rows)), "g": [f"{k % 3}" if k % 4 else None for k in range(2 * len(rows))]})
    texts = [str(label) for label in np.asarray(labels).tolist()]

    def plainly() -> dict[str, list[float]]:
        if any(_is_missing(label) for label in np.asarray(labels).tolist()):
            raise UsageError("sites has a missing label: every row belongs to a site")
        own = np.array(texts)
        return {str(name): np.flatnonzero(own == name).tolist() for name in np.unique(own)}

    found = outcome(lambda: {name: part["x"].tolist() for name, part in table.by_site(labels).items()})
    assert found == outcome(plainly)
    encoded = msgspec.msgpack.encode([None if text is None else text.encode() for text in table["g"]])
    total = hashlib.sha256()
    for each in (b"x", b"f8", table["x"].tobytes(), b"g", b"text", encoded):
        total.update(len(each).to_bytes(8, "big") + each)
    assert table.digest == total.digest()
