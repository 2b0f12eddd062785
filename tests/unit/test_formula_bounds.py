"""Bounds of derived columns hold against brute force, are sharp where that is cheap, and wrong rules are caught."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from formulas import CATEGORIES, DECLARED, RANGES, Maker, Pair, derived_of, rows, violations
from world import sized

from unpooled.errors import UsageError
from unpooled.formula import Formula
from unpooled.formula.arithmetic import FUNCTIONS, Interval
from unpooled.formula.derived import Basis, b_splines, natural_splines

COUNT, BLOCK, ROWS = 200, 25, 10_000
RNG = np.random.default_rng(5)


@cache
def made(count: int, seed: int) -> list[Pair]:
    maker, found = Maker(seed), []
    while len(found) < count:
        pair = maker.formula()
        try:
            derived_of(pair)
        except UsageError:
            continue
        found.append(pair)
    return found


@pytest.mark.slow_for(
    "range(0, 25)", "range(50, 75)", "range(100, 125)", "range(25, 50)", "range(75, 100)", "range(125, 150)"
)
@pytest.mark.parametrize("block", [range(k, k + BLOCK) for k in range(0, COUNT, BLOCK)], ids=str)
def test_bounds_hold_before_anything_is_clipped(block: range) -> None:
    """10,000 rows, half of whose values lie at an end of a range, next to one, beyond one, or are infinite."""
    for place in block:
        columns = rows(np.random.default_rng(place), ROWS, edges=True)
        derived = derived_of(made(COUNT, 41)[place])
        assert violations(derived, columns) == []
        values = derived.matrix(columns)
        assert np.isfinite(values).all()
        assert (values >= derived.low).all()
        assert (values <= derived.high).all()


def test_bounds_hold_for_offsets() -> None:
    maker = Maker(6)
    for _ in range(sized(200, 40)):
        expression = maker.arithmetic()
        try:
            derived = Formula.parse(f"1 + offset({expression})").derive(DECLARED)
        except UsageError:
            continue
        columns = rows(RNG, 2000, edges=True)
        assert violations(derived, columns) == []
        low, high = derived.offset_bounds or (math.nan, math.nan)
        assert ((low <= derived.offset(columns)) & (derived.offset(columns) <= high)).all()


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("I(dose**2)", 0, 9),
        ("I(dose * dose)", 0, 9),
        ("dose:I(dose)", 0, 9),
        ("I(dose**3)", -1, 27),
        ("dose:I(dose**2)", -1, 27),
        ("I(dose**2 * dose**2)", 0, 81),
        ("I((dose**2)**2)", 0, 81),
        ("I((dose - 1)**2)", 0, 4),
        ("I((dose - 1) * (-1 + dose))", 0, 4),
        ("I(-dose)", -3, 1),
        ("I(2 - dose)", -1, 3),
        ("sqrt(dose + 1)", 0, 2),
        ("I(4 / (dose + 2))", 0.8, 4),
        ("I((dose + 1)**0.5)", 0, 2),
        ("exp(0 * dose + dose)", math.exp(-1), math.exp(3)),
        ("log(dose + 2)", 0, math.log(5)),
        ("log1p(share)", 0, math.log(2)),
        ("sqrt(log(dose + 2))", 0, math.sqrt(math.log(5))),
        ("dose:share", -1, 3),
        ("ward:dose", -1, 3),
        ("ward:age", 0, 90),
        ("ward:loss", -7.5, 0),
        ("ward", 0, 1),
        ("ward:arm", 0, 1),
        ("I(age - 18)", 0, 72),
        ("I((age - 50) / 10)", -3.2, 4),
    ],
)
def test_bounds_are_sharp(text: str, low: float, high: float) -> None:
    for column in Formula.parse(text).derive(DECLARED).columns:
        assert column.low == pytest.approx(low, rel=1e-14, abs=1e-300)
        assert column.high == pytest.approx(high, rel=1e-14)
        assert column.low <= low
        assert column.high >= high


def test_whole_numbers_stay_exact() -> None:
    (column,) = Formula.parse("I(dose**2)").derive({"dose": (-1, 3)}).columns
    assert (column.low, column.high) == (0.0, 9.0)


def test_ends_are_rounded_outward_and_by_no_more_than_one_place() -> None:
    for _ in range(sized(2000, 500)):
        a, b, c, d = (float(v) for v in RNG.normal(0, 10.0 ** RNG.integers(-8, 8), 4))
        one, other = Interval(min(a, b), max(a, b)), Interval(min(c, d), max(c, d))
        ends = [(Fraction(one.low), Fraction(one.high)), (Fraction(other.low), Fraction(other.high))]
        products = [x * y for x in ends[0] for y in ends[1]]
        for found, low, high in [
            (one + other, ends[0][0] + ends[1][0], ends[0][1] + ends[1][1]),
            (one * other, min(products), max(products)),
            (one.power(3), ends[0][0] ** 3, ends[0][1] ** 3),
        ]:
            assert Fraction(found.low) <= low
            assert Fraction(found.high) >= high
        tight = one * other
        assert Fraction(math.nextafter(tight.low, math.inf)) > min(products)
        assert Fraction(math.nextafter(tight.high, -math.inf)) < max(products)


@pytest.mark.parametrize("function", ["log", "log1p", "exp", "sqrt", "root"])
def test_functions_of_numpy_stay_inside_at_and_between_the_ends(function: str) -> None:
    """Also between close ends, where an error of a few units in the last place would show."""
    for _ in range(sized(2000, 300)):
        low = float(10 ** RNG.uniform(-6, 2))
        high = low
        for _ in range(int(RNG.integers(1, 40))):
            high = math.nextafter(high, math.inf)
        values = np.clip(RNG.uniform(low, high, 64), low, high)
        exponent = float(RNG.choice([0.5, -0.5, 1.5, 0.3]))
        found = Interval(low, high).root(exponent) if function == "root" else getattr(Interval(low, high), function)()
        computed = values**exponent if function == "root" else getattr(np, function)(values)
        assert (computed >= found.low).all()
        assert (computed <= found.high).all()


# --- splines ----------------------------------------------------------------------------------------------------------------


def bases(rng: np.random.Generator) -> Any:
    low = float(rng.normal(0, 50))
    high = low + float(10 ** rng.uniform(-3, 4))
    knots = sorted(low + (high - low) * rng.uniform(0.02, 0.98, int(rng.integers(0, 6))))
    yield low, high, b_splines(low, high, knots, int(rng.integers(1, 6)))
    yield low, high, natural_splines(low, high, knots)


@pytest.mark.slow
def test_bounds_of_splines_hold_and_are_reached() -> None:
    """Without the clipping that follows: to a part in 10^12 the bounds are the extremes."""
    for _ in range(sized(400, 80)):
        for low, high, basis in bases(RNG):
            x = np.concatenate([np.linspace(low, high, 20_001), basis.breaks])
            values = basis.values(x)
            lowest, highest = values.min(axis=0), values.max(axis=0)
            scale = max(1.0, float(np.abs(values).max()))
            assert (lowest >= [i.low - 1e-12 * scale for i in basis.bounds]).all()
            assert (highest <= [i.high + 1e-12 * scale for i in basis.bounds]).all()
            assert lowest == pytest.approx([i.low for i in basis.bounds], abs=1e-4 * scale)
            assert highest == pytest.approx([i.high for i in basis.bounds], abs=1e-4 * scale)


def test_b_splines_are_shares_of_one() -> None:
    for _ in range(50):
        low, high, basis = next(iter(bases(RNG)))
        total = basis.values(np.linspace(low, high, 999)).sum(axis=1)
        assert total.max() <= 1 + 1e-9
        assert all(0 <= i.low < i.high <= 1 for i in basis.bounds)


# --- what is broken on purpose ---------------------------------------------------------------------------------------------


def endpoints_only(self: Interval, exponent: int) -> Interval:
    ends = self.low**exponent, self.high**exponent
    return Interval(min(ends), max(ends))


def corners(self: Interval, other: Interval) -> Interval:
    ends = self.low * other.low, self.high * other.high
    return Interval(min(ends), max(ends))


def inward(self: Interval, other: Interval) -> Interval:
    return Interval(math.nextafter(self.low + other.low, math.inf), math.nextafter(self.high + other.high, -math.inf))


def at_knots(self: Basis) -> tuple[Interval, ...]:
    values = self.values(self.breaks)
    return tuple(Interval(float(column.min()), float(column.max())) for column in values.T)


BROKEN = [
    ("I(dose**2)", Interval, "power", endpoints_only),
    ("I(dose * dose)", Interval, "power", endpoints_only),
    ("dose:loss", Interval, "__mul__", corners),
    ("I(age + dose)", Interval, "__add__", inward),
    ("ward:age", Interval, "with_zero", lambda self: self),
    ("exp(dose)", FUNCTIONS, "exp", (np.exp, lambda x: Interval(math.exp(x.low), math.exp(x.low) + 1))),
    ("log(years)", FUNCTIONS, "log", (np.log, lambda x: Interval(math.log(x.low), math.log(x.low) + 1))),
]


@pytest.mark.parametrize(("text", "owner", "name", "rule"), BROKEN)
def test_a_wrong_rule_is_caught(text: str, owner: Any, name: str, rule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same look finds nothing wrong with the right rule, and the matrix keeps even to wrong bounds."""
    columns = rows(RNG, ROWS, edges=True)
    assert violations(Formula.parse(text).derive(DECLARED), columns) == []
    (monkeypatch.setitem if owner is FUNCTIONS else monkeypatch.setattr)(owner, name, rule)
    derived = Formula.parse(text).derive(DECLARED)
    assert violations(derived, columns) != []
    values = derived.matrix(columns)
    assert (values >= derived.low).all()
    assert (values <= derived.high).all()


def test_spline_bounds_from_the_knots_alone_are_caught() -> None:
    basis = natural_splines(0.0, 10.0, [2.0, 5.0])
    values = basis.values(np.linspace(0, 10, 1001))
    assert (values.max(axis=0) > [i.high for i in at_knots(basis)]).any()
    assert (values.max(axis=0) <= [i.high for i in basis.bounds]).all()


def test_most_random_formulas_notice_a_broken_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the two hundred formulas are a test of the rules, not of a few lucky texts."""
    monkeypatch.setattr(Interval, "__mul__", corners)
    monkeypatch.setattr(Interval, "with_zero", lambda self: self)
    caught = 0
    for place, pair in enumerate(made(COUNT, 41)[:60]):
        try:
            derived = derived_of(pair)
        except UsageError:
            continue
        caught += bool(violations(derived, rows(np.random.default_rng(place), 1000, edges=True)))
    assert caught > 10


# --- what is clipped, and what is missing ----------------------------------------------------------------------------------


def test_sources_are_clipped_first() -> None:
    derived = Formula.parse("I(dose**2) + log(years)").derive(DECLARED)
    columns = {"dose": np.array([-9.0, 9.0, np.inf, -np.inf]), "years": np.array([-1.0, 0.0, np.inf, 1e300])}
    low, high = np.log(0.5), np.log(20.0)
    assert derived.matrix(columns) == pytest.approx(np.array([[1.0, low], [9.0, low], [9.0, high], [1.0, high]]))


def test_a_missing_number_is_nan_only_where_it_counts() -> None:
    derived = Formula.parse("ward*age + log(years)").derive({**DECLARED, "age": DECLARED["age"]})
    columns = {"ward": ["a", "b", None], "age": np.array([np.nan, 20.0, 30.0]), "years": [1.0, np.nan, 1.0]}
    found = dict(zip(derived.names, derived.matrix(columns).T.tolist(), strict=True))
    assert np.isnan(found["age"][0])
    assert np.isnan(found["age:ward[a]"][0])
    assert found["age:ward[b]"] == [0.0, 20.0, 0.0]
    assert found["age:ward[c]"] == [0.0, 0.0, 0.0]
    assert found["ward[a]"] == [1.0, 0.0, 0.0]
    assert np.isnan(found["log(years)"][1])


def test_values_that_arithmetic_loses_become_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    """No nan comes out of a row that has all its values, whatever the arithmetic does."""
    derived = Formula.parse("log(dose + 2)").derive(DECLARED)
    wrong = lambda x: np.where(x > 2, np.nan, np.where(np.isnan(x), x, np.inf))
    monkeypatch.setitem(FUNCTIONS, "log", (wrong, Interval.log))
    found = derived.matrix({"dose": np.array([-1.0, 3.0, np.nan])})[:, 0]
    (column,) = derived.columns
    assert found[:2].tolist() == [column.high, column.low / 2 + column.high / 2]
    assert np.isnan(found[2])


def test_the_ranges_of_the_tests_have_all_signs() -> None:
    signs = {(np.sign(low), np.sign(high)) for low, high in RANGES.values()}
    assert {(-1, 1), (1, 1), (0, 1), (-1, -1)} <= signs
    assert len(CATEGORIES) == 3
