"""Random formulas give the columns that formulaic gives; natural splines span what its cubic splines span."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from formulas import CATEGORIES, DECLARED, RANGES, Maker, Pair, derived_of, rows

from unpooled.errors import UsageError
from unpooled.formula import Formula

pandas = pytest.importorskip("pandas")
formulaic = pytest.importorskip("formulaic")

COUNT, BLOCK = 200, 25
FUNCTIONS = {"sqrt": np.sqrt, "log": np.log, "log1p": np.log1p, "exp": np.exp}


def theirs(text: str, columns: dict[str, Any], *, full: bool) -> Any:
    frame = pandas.DataFrame(columns)
    for name, levels in CATEGORIES.items():
        frame[name] = pandas.Categorical(frame[name], categories=list(levels))
    found = formulaic.model_matrix(text, frame, ensure_full_rank=full, context=FUNCTIONS)
    return found.to_numpy(dtype=float)


@cache
def pairs() -> list[Pair]:
    """The first 200 formulas that are drawn and whose bounds exist."""
    maker, found = Maker(20260711), []
    while len(found) < COUNT:
        pair = maker.formula()
        try:
            derived_of(pair)
        except UsageError:
            continue
        found.append(pair)
    return found


#: The numbers of some formulas, which are drawn when the first test wants one.
blocks = pytest.mark.parametrize("block", [range(k, k + BLOCK) for k in range(0, COUNT, BLOCK)], ids=str)


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """The largest share of a column of ``one`` that is no combination of the columns of ``other``."""
    one, other = (m[:, np.abs(m).max(axis=0) > 0] for m in (one, other))
    one, other = (m / np.linalg.norm(m, axis=0) for m in (one, other))
    return float(np.linalg.norm(one - other @ np.linalg.lstsq(other, one, rcond=None)[0], axis=0).max(initial=0.0))


@pytest.mark.slow_for(
    "range(0, 25)", "range(25, 50)", "range(50, 75)", "range(75, 100)", "range(100, 125)", "range(125, 150)"
)
@blocks
def test_columns_equal_formulaic_s(block: range) -> None:
    """One by one: every column of ours is one of theirs, in the coding with all levels, and there are equally many."""
    for place in block:
        pair, columns = pairs()[place], rows(np.random.default_rng(place), 400)
        ours, other = derived_of(pair).matrix(columns), theirs(pair.theirs, columns, full=False)
        other = other[:, 1:] if not pair.ours.startswith("0 +") else other
        assert ours.shape == other.shape
        left = list(range(other.shape[1]))
        for column in ours.T:
            size = np.abs(column).max()
            near = [j for j in left if np.abs(column - other[:, j]).max() <= 1e-11 * size]
            assert near, pair
            left.remove(near[0])


@blocks
def test_column_spaces_equal_formulaic_s_of_full_rank(block: range) -> None:
    """Projections agree in both directions, with the constant that formulaic leaves levels out for."""
    for place in block:
        pair, columns = pairs()[place], rows(np.random.default_rng(place), 400)
        derived = derived_of(pair)
        ours, other = derived.matrix(columns), theirs(pair.theirs, columns, full=True)
        if derived.constant:
            ours = np.column_stack([np.ones(len(ours)), ours])
        assert apart(ours, other) < 1e-8
        assert apart(other, ours) < 1e-8


def test_the_formulas_are_of_all_kinds() -> None:
    texts = " + ".join(pair.ours for pair in pairs())
    for word in (
        "I(",
        "log(",
        "log1p(",
        "sqrt(",
        "exp(",
        "bs(",
        "C(",
        "ward",
        "`blood pressure`",
        "**",
        "/",
        ":",
        " * ",
        "0 +",
        "**0.5",
        "**-",
    ):
        assert word in texts, word
    assert len({pair.ours for pair in pairs()}) > 0.95 * COUNT


def test_two_columns_that_differ_a_little_are_told_apart() -> None:
    """The comparison of spaces can fail."""
    columns = rows(np.random.default_rng(0), 400)
    ours = Formula.parse("0 + age + I(age**2)").derive(DECLARED).matrix(columns)
    assert apart(ours, theirs("0 + age + I(age**2.001)", columns, full=True)) > 1e-6


@pytest.mark.parametrize("knots", [[30.0, 60.0], [25.0, 50.0, 85.0], [54.0]])
def test_natural_splines_span_those_of_formulaic(knots: list[float]) -> None:
    columns = rows(np.random.default_rng(1), 400)
    ours = Formula.parse(f"ns(age, knots={knots})").derive(DECLARED).matrix(columns)
    low, high = RANGES["age"]
    other = theirs(f"cr(age, knots={knots}, lower_bound={low}, upper_bound={high})", columns, full=False)
    ours = np.column_stack([np.ones(len(ours)), ours])
    assert ours.shape[1] == len(knots) + 2
    assert apart(ours, other) < 1e-10
    assert apart(other, ours) < 1e-10


def test_coefficients_of_a_natural_spline_are_values_of_the_curve_at_its_knots() -> None:
    """Less its value at the middle knot; at the lower end, where no term stands for the others."""
    at = np.array([18.0, 30.0, 60.0, 90.0])
    for words, left in (("ns(age, knots=[30, 60])", 2), ("0 + ns(age, knots=[30, 60])", 0)):
        derived = Formula.parse(words).derive({"age": (18, 90)})
        kept = [k for k in range(4) if k != left]
        assert derived.names == tuple(f"ns(age)[{k}]" for k in kept)
        assert derived.matrix({"age": at}) == pytest.approx(np.eye(4)[:, kept], abs=1e-12)


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("ns(age, knots=[40])", True),
        ("ns(age, knots=[40]) * ward", True),
        ("ns(age, knots=[40]):ward", False),
        ("0 + ns(age, knots=[40])", False),
        ("ns(age, knots=[40]) + ns(age, knots=[40]):ward", False),
    ],
)
def test_the_first_function_stands_where_leaving_out_another_is_the_same_model(words: str, first: bool) -> None:
    """R's columns without the first have the same span only where the terms without the spline are in the formula."""
    derived = Formula.parse(words).derive({"age": (18, 90), "ward": ["a", "b"]})
    assert any(name.startswith("ns(age)[0]") for name in derived.names) is first


def test_an_offset_equals_its_expression() -> None:
    columns = rows(np.random.default_rng(2), 50)
    derived = Formula.parse("age + offset(log(years)) + offset(dose)").derive(DECLARED)
    assert derived.offset(columns) == pytest.approx(np.log(columns["years"]) + columns["dose"])
