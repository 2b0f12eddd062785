"""Columns that a formula derives from declared ones: their bounds, what they read, their values, and spline bases with declared knots."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import pairwise, starmap
from itertools import product as every
from operator import and_, mul, or_
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.polynomial import polynomial

from unpooled.errors import DataError, UsageError, listed
from unpooled.formula.arithmetic import Expression, Interval, Name, clipped, product, total
from unpooled.formula.terms import (
    Category,
    Factor,
    FormulaTerm,
    Numeric,
    Plain,
    Spline,
    term_of,
)
from unpooled.privacy.bounds import Bounds, Coding, Column, Missing, numbers_of, text_of
from unpooled.privacy.table import as_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Row = NDArray[np.float64]
    Mask = NDArray[np.bool_]


# --- Splines ---------------------------------------------------------------------------------------------------------------
# Spline bases with declared knots: B-splines, and natural cubic splines, as piecewise polynomials with exact bounds.
#
# The boundary knots are the ends of the column's declared range, so no basis is a function of the data.

#: Bounds are widened by this part of the sum of the coefficients' sizes: far more than a polynomial of degree 5 errs by, in its values
#: and at its critical points (where the derivative is zero, an error of the point changes the value by its square only).
_MARGIN = 2.0**-42


@dataclass(frozen=True, eq=False)
class Basis:
    """Several piecewise polynomials over the same pieces.

    ``breaks`` has one more number than there are pieces. ``coefficients[i, j, k]`` belongs to t**k of function j on piece i, where t runs
    from 0 to 1. A B-spline is also known to lie in [0, 1] (``shares``). All functions add up to 1, so one is left out, with whose place the
    curve is compared. ``numbers`` are those of the others, counted from 0.
    """

    breaks: Array
    coefficients: Array
    shares: bool = False
    numbers: tuple[int, ...] = ()

    @cached_property
    def bounds(self) -> tuple[Interval, ...]:
        """Return the interval of every function, from its values at the ends of the pieces and at its critical points."""
        return tuple(self._interval(self.coefficients[:, j]) for j in range(self.coefficients.shape[1]))

    def _interval(self, pieces: Array) -> Interval:
        low, high, size = np.inf, -np.inf, 0.0
        for piece in pieces:
            found = polynomial.polyval(np.concatenate([[0.0, 1.0], _critical(piece)]), piece)
            low, high, size = min(low, found.min()), max(high, found.max()), max(size, np.abs(piece).sum())
        low, high = float(low - _MARGIN * size), float(high + _MARGIN * size)
        return Interval(max(low, 0.0), min(high, 1.0)) if self.shares else Interval(low, high)

    def values(self, column: Array) -> Array:
        """Return the functions' values: a row for each row of the column, a column for each function; nan where the column is."""
        piece = np.searchsorted(self.breaks[1:-1], column, side="right")
        left, right = self.breaks[piece], self.breaks[piece + 1]
        t = np.clip((column - left) / (right - left), 0.0, 1.0)[:, None]
        found: Array = self.coefficients[piece, :, -1].copy()
        for k in range(self.coefficients.shape[2] - 2, -1, -1):
            found = found * t + self.coefficients[piece, :, k]
        return found


def _critical(piece: Array) -> Array:
    """Return the places in [0, 1] where the polynomial may be extreme, among them all zeros of its derivative there."""
    slope = polynomial.polyder(piece) if piece.size > 1 else np.zeros(1)
    slope = np.where(np.abs(slope) > np.abs(slope).max() * 1e-14, slope, 0.0)
    roots = polynomial.polyroots(np.trim_zeros(slope, "b")) if np.any(slope[1:]) else np.zeros(0)
    return np.asarray(np.clip(np.real(roots), 0.0, 1.0), dtype=np.float64)


def b_splines(low: float, high: float, knots: Sequence[float], degree: int) -> Basis:
    """Return the B-splines of a degree without the first one, as R's ``bs`` does: together with a constant they span all of them."""
    breaks = np.array([low, *knots, high])
    places = (breaks - low) / (high - low)
    full = np.concatenate([np.zeros(degree), places, np.ones(degree)])
    coefficients = np.zeros((places.size - 1, full.size - degree - 1, degree + 1))
    for i, (left, right) in enumerate(pairwise(places)):
        coefficients[i] = _on_piece(full, i + degree, left, right - left, degree)
    return _without(Basis(breaks, coefficients, shares=True), 0)


def middle_of(low: float, high: float, knots: Sequence[float]) -> float:
    """Return the place with which a curve is compared: the middle knot, for people put knots where the data are; without knots the middle of the range.

    >>> middle_of(0, 100, [40, 60, 65, 90]), middle_of(0, 100, [])
    (65, 50.0)
    """
    return knots[len(knots) // 2] if knots else (low + high) / 2


def _without(basis: Basis, place: int) -> Basis:
    """Return a basis without one of its functions."""
    kept = tuple(k for k in range(basis.coefficients.shape[1]) if k != place)
    return Basis(basis.breaks, basis.coefficients[:, kept], basis.shares, kept)


def _on_piece(full: Array, span: int, left: float, width: float, degree: int) -> Array:
    """Return the B-splines' polynomials in t on one piece, by the recursion of Cox and de Boor: a row each."""
    functions = np.zeros((full.size - 1, degree + 1))
    functions[span, 0] = 1.0
    for p in range(1, degree + 1):
        raised = np.zeros_like(functions)
        for j in range(max(span - p, 0), min(span + 1, full.size - 1 - p)):
            for other, start, sign, reach in (
                (j, full[j], 1.0, full[j + p] - full[j]),
                (j + 1, full[j + p + 1], -1.0, full[j + p + 1] - full[j + 1]),
            ):
                if reach > 0 and functions[other].any():
                    line = sign * np.array([left - start, width]) / reach
                    raised[j] += np.convolve(functions[other], line)[: degree + 1]
        functions = raised
    return functions[: full.size - degree - 1]


def natural_splines(low: float, high: float, knots: Sequence[float], *, compared: bool = True) -> Basis:
    """Return cubic splines that are straight at both ends, one for each knot and boundary but one: the middle knot, if any, where the curve is ``compared``.

    Function j is 1 at its own knot and 0 at all others. So its coefficient is the value of the curve there less the value at the place that is left
    out. If that were the lower end of the range, where often nobody is, the others would add up to 1 for everybody, and no noisy release would tell
    them from the constant.
    """
    breaks = np.array([low, *knots, high])
    h = np.diff((breaks - low) / (high - low))
    values = np.eye(breaks.size)
    bends = np.zeros_like(values)  # second derivatives at the knots
    if breaks.size > 2:  # noqa: PLR2004 - a straight line otherwise
        matrix = np.diag(2 * (h[:-1] + h[1:])) + np.diag(h[1:-1], 1) + np.diag(h[1:-1], -1)
        slopes = np.diff(values, axis=0) / h[:, None]
        bends[1:-1] = np.linalg.solve(matrix, 6 * np.diff(slopes, axis=0))
    here, there = bends[:-1], bends[1:]
    scale = (h**2 / 6)[:, None]
    parts = [values[:-1], np.diff(values, axis=0) - scale * (2 * here + there), 3 * scale * here, scale * (there - here)]
    return _without(Basis(breaks, np.stack(parts, axis=2)), 1 + len(knots) // 2 if knots and compared else 0)


# --- Derived ---------------------------------------------------------------------------------------------------------------
# Columns that a formula derives from declared ones: their bounds, what they read, and their values.

#: Which function of which spline.
SplinePart: TypeAlias = "tuple[Spline, int]"


@dataclass(frozen=True, slots=True)
class CategoryFactor:
    """A column of categories in a formula: its levels, each of which has an indicator, and the level that others are compared with."""

    column: str
    levels: tuple[str, ...]
    reference: str
    #: What its indicators are called before the level: the column, or C(column) where the column is declared as numbers.
    label: str
    #: Whether the formula names the reference.
    chosen: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Recipe:
    """The recipe of a derived column: the product of an expression, functions of splines, and indicators of levels."""

    expression: Expression | None = None
    splines: tuple[SplinePart, ...] = ()
    #: The category column and the place of its level.
    cells: tuple[tuple[str, int], ...] = ()
    #: The column whose missing values are marked by 1; then there is nothing else.
    marks: str = ""

    @property
    def numbers(self) -> tuple[str, ...]:
        """Return the columns that are read as numbers."""
        return (*(self.expression.columns if self.expression else ()), *(spline.name for spline, _ in self.splines))


@dataclass(frozen=True, slots=True)
class DerivedColumn:
    """One column of a derived matrix, as it can be declared: every value lies in [low, high]."""

    name: str
    low: float
    high: float
    #: The declared columns that it is a function of.
    sources: frozenset[str]
    #: The term of the formula that it belongs to.
    term: str
    #: The name of what is left of it without indicators of levels; empty if nothing is. Columns of a term that share it differ by levels.
    number: str = ""
    #: The category columns of which it holds one level each, and the levels.
    cells: tuple[tuple[str, str], ...] = ()
    #: The rule for a row in which a column of numbers is missing: its value is nan, and either refused or coded as the middle.
    missing: Missing = "refuse"
    recipe: Recipe = field(default=Recipe(), repr=False)

    @property
    def declared(self) -> Column:
        """Return the declaration of the derived column, as that of any other column."""
        return Column(self.name, self.low, self.high, missing=self.missing)

    @property
    def interval(self) -> Interval:
        """Return the declared range."""
        return Interval(self.low, self.high)


@dataclass(frozen=True, slots=True)
class Derived:
    """Columns that a formula derives from declared columns. :meth:`unpooled.formula.Formula.derive` makes one.

    The constant is no column here. A column of categories has an indicator for each level.
    """

    columns: tuple[DerivedColumn, ...]
    factors: tuple[CategoryFactor, ...]
    #: Whether the formula has a constant.
    constant: bool
    #: The sum of the offsets, which is a column without a coefficient; None if there are none.
    offset_column: DerivedColumn | None
    #: The declarations of the columns that are read.
    needs: tuple[Column, ...]
    bases: Mapping[Spline, Basis] = field(repr=False, compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the derived columns."""
        return tuple(column.name for column in self.columns)

    @property
    def terms(self) -> tuple[str, ...]:
        """Return the names of the terms, each once."""
        return tuple(dict.fromkeys(column.term for column in self.columns))

    @property
    def low(self) -> Row:
        """Return the lower bound of every derived column."""
        return np.array([column.low for column in self.columns])

    @property
    def high(self) -> Row:
        """Return the upper bound of every derived column."""
        return np.array([column.high for column in self.columns])

    @property
    def declared(self) -> tuple[Column, ...]:
        """Return the declarations of the derived columns."""
        return tuple(column.declared for column in self.columns)

    @property
    def sources(self) -> tuple[frozenset[str], ...]:
        """Return the declared columns that every derived column is a function of."""
        return tuple(column.sources for column in self.columns)

    @property
    def reach(self) -> dict[str, tuple[int, ...]]:
        """Return, for every declared column, the places of the derived columns that one value of it moves.

        Under the unit ``attribute`` all of them move together: the sensitivity is that of a change in all these places. The offset has
        sources of its own, in ``offset_column``.
        """
        found: dict[str, list[int]] = {source.name: [] for source in self.needs}
        for j, column in enumerate(self.columns):
            for name in column.sources:
                found[name].append(j)
        return {name: tuple(places) for name, places in found.items()}

    @property
    def offset_bounds(self) -> tuple[float, float] | None:
        """Return the ends of the range of the offset, or None if there is none."""
        return None if self.offset_column is None else (self.offset_column.low, self.offset_column.high)

    def matrix(self, columns: Mapping[str, Any]) -> Row:
        """Return the derived values: a row for each row of the columns, a column for each derived one.

        Sources are clipped to their ranges before anything is computed, and each value to its own range after everything. A level that
        is not declared, or is missing, gives 0 in all indicators of its column. A missing number gives nan, which the declared rule of the
        derived column then refuses or codes; no row is dropped. :func:`unpooled.privacy.bounds.check` over ``needs`` refuses what is
        missing or undeclared in the sources.
        """
        return self._within(columns, self.columns)

    def offset(self, columns: Mapping[str, Any]) -> Row:
        """Return the offset of every row: the sum of all offsets, 0 if there are none, clipped and missing as in :meth:`matrix`."""
        if self.offset_column is None:
            return np.zeros(_Rows(self, columns).count)
        return self._within(columns, (self.offset_column,))[:, 0]

    def _within(self, columns: Mapping[str, Any], wanted: tuple[DerivedColumn, ...]) -> Row:
        rows = _Rows(self, columns)
        found = np.empty((rows.count, len(wanted)), order="F")
        for j, column in enumerate(wanted):
            values = rows.computed(column.recipe)
            lost = np.isnan(values) & ~rows.missing(column.recipe)
            values[lost] = column.low / 2 + column.high / 2
            found[:, j] = clipped(values, column.interval)
        return found


class _Rows:
    """Columns of some rows, clipped to what is declared, and what several derived columns share."""

    def __init__(self, derived: Derived, columns: Mapping[str, Any]) -> None:
        self._derived, self._declared = derived, {column.name: column for column in derived.needs}
        self._raw = {name: _held(name, columns) for name in self._declared}
        given = self._raw or {name: np.asarray(values) for name, values in columns.items()}
        self.count = next(iter(given.values())).size if given else 0
        for name, values in given.items():
            if values.size != self.count:
                msg = f"column {name!r} has {values.size} rows where another one has {self.count}: give equal lengths"
                raise DataError(msg).at(column=name)
        self._numbers = {
            name: _number(column, self._raw[name]) for name, column in self._declared.items() if column.categories is None
        }
        self._indicators: dict[str, Mask] = {}
        self._splines: dict[Spline, Row] = {}
        self._factors = {factor.column: factor for factor in derived.factors}

    def computed(self, recipe: Recipe) -> Row:
        """Return the values of a derived column as its operations give them."""
        if recipe.marks:
            return self._absent(recipe.marks).astype(np.float64)
        masks = [self._indicator(name)[:, place] for name, place in recipe.cells]
        mask = reduce(and_, masks) if masks else np.True_
        values = [] if recipe.expression is None else [self._values(recipe.expression)]
        values += list(starmap(self._spline, recipe.splines))
        with np.errstate(all="ignore"):
            number = reduce(mul, values) if values else np.float64(1.0)
        return np.array(np.broadcast_to(np.where(mask, number, 0.0), self.count))

    def missing(self, recipe: Recipe) -> Mask:
        """Return where a number that the column reads is missing."""
        absent = [np.isnan(self._numbers[name]) for name in recipe.numbers]
        return np.asarray(reduce(or_, absent)) if absent else np.zeros(self.count, dtype=np.bool_)

    def _values(self, expression: Expression) -> Row:
        with np.errstate(all="ignore"):
            return expression.values(self._numbers)

    def _spline(self, spline: Spline, place: int) -> Row:
        if spline not in self._splines:
            self._splines[spline] = self._derived.bases[spline].values(self._numbers[spline.name])
        return clipped(self._splines[spline][:, place], self._derived.bases[spline].bounds[place])

    def _indicator(self, name: str) -> Mask:
        if name not in self._indicators:
            factor, column = self._factors[name], self._declared[name]
            if column.categories is None:
                self._indicators[name] = self._numbers[name][:, None] == np.array([float(level) for level in factor.levels])
            else:
                free = Column(name, categories=factor.levels, missing="absent")
                self._indicators[name] = Coding((free,), 1).code([self._raw[name]])[0] == 1
        return self._indicators[name]

    def _absent(self, name: str) -> Mask:
        column = self._declared[name]
        if column.categories is None:
            return np.isnan(self._numbers[name])
        free = Column(name, categories=column.categories, missing="absent")
        return ~Coding((free,), 1).code([self._raw[name]])[1][:, 0]


def _held(name: str, columns: Mapping[str, Any]) -> NDArray[Any]:
    """Return a column as tables hold it: numbers as floats, everything else as text."""
    if name not in columns:
        msg = f"there is no column {name!r}, which the formula needs: add it to the data, or leave it out of the formula"
        raise DataError(msg).at(column=name)
    values = columns[name]
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "biuf":
        return values.astype(np.float64, copy=False)
    return as_column(name, values)


def _number(column: Column, values: NDArray[Any]) -> Row:
    values = numbers_of(column, values)
    return clipped(values, Interval(*map(float, column.range)))


# --- Derivation ------------------------------------------------------------------------------------------------------------
# Turns the terms of a formula and the declarations of its columns into derived columns.

#: What a caller may declare columns by.
Declared: TypeAlias = "Mapping[str, Any] | Bounds | Iterable[Column]"
#: More derived columns than this are refused.
MOST_COLUMNS = 100_000


def declared_columns(declared: Declared) -> dict[str, Column]:
    """Return a declaration for every name.

    ``declared`` maps names to ranges (two numbers) or lists of categories, or is a :class:`~unpooled.privacy.bounds.Bounds` by name, or
    several :class:`~unpooled.privacy.bounds.Column`.
    """
    if isinstance(declared, Mapping):
        plain: dict[str | int, Any] = {str(name): said for name, said in declared.items() if not isinstance(said, Column)}
        made = {column.name: column for column in Bounds(plain).columns(tuple(map(str, plain)))} if plain else {}
        return {str(name): said if isinstance(said, Column) else made[str(name)] for name, said in declared.items()}
    if isinstance(declared, Bounds):
        if not declared.names:
            raise UsageError(
                "a formula names columns: declare them by name, as in Bounds({'age': (0, 110), 'ward': ['a', 'b']})"
            )
        return {column.name: column for column in declared.columns(declared.names)}
    return {column.name: column for column in declared}


def derive(
    terms: Sequence[FormulaTerm], offsets: Sequence[Expression], declared: Mapping[str, Column], *, constant: bool
) -> Derived:
    """Return the columns that these terms stand for."""
    needs = _needed(terms, offsets, declared)
    terms = _with_categories(terms, needs)
    factors = {factor.name: _category(factor, needs) for factor in _all(terms, Category)}
    bases = {
        spline: _basis(spline, needs[spline.name], compared=_compared(spline, terms, constant=constant))
        for spline in _all(terms, Spline)
    }
    maker = _Maker(needs, factors, bases)
    columns = [column for term in terms for column in maker.columns(term)]
    columns += [maker.mark(column) for column in needs.values() if column.missing == "indicator"]
    twice = [name for name, count in Counter(column.name for column in columns).items() if count > 1]
    if twice:
        msg = f"formula: two derived columns would be called {twice[0]}: rename a column or a level"
        raise UsageError(msg)
    offset = maker.offset(total((1, one) for one in offsets)) if offsets else None
    return Derived(tuple(columns), tuple(factors.values()), constant, offset, tuple(needs.values()), bases)


def _needed(
    terms: Sequence[FormulaTerm], offsets: Sequence[Expression], declared: Mapping[str, Column]
) -> dict[str, Column]:
    names = [name for term in terms for factor in term.factors for name in factor.columns]
    names = list(dict.fromkeys(names + [name for one in offsets for name in one.columns]))
    unknown = [name for name in names if name not in declared]
    if unknown:
        msg = f"formula: no range and no categories are declared for {listed(unknown)}. Declare them, or correct the names"
        raise UsageError(msg).at(column=unknown[0])
    return {name: declared[name] for name in names}


def _all(terms: Sequence[FormulaTerm], kind: type[Any]) -> list[Any]:
    """Return the factors of this kind, each once."""
    return list(dict.fromkeys(factor for term in terms for factor in term.factors if isinstance(factor, kind)))


def _with_categories(terms: Sequence[FormulaTerm], needs: Mapping[str, Column]) -> list[FormulaTerm]:
    """Return the terms with C(x) in the place of a column x that is declared to hold categories."""
    said = {factor.name: factor for factor in _all(terms, Category)}

    def read(factor: Factor) -> Factor:
        if isinstance(factor, Plain):
            categories = needs[factor.name].categories is not None
            return said.get(factor.name, Category(factor.name)) if categories else Numeric(Name(factor.name), marked=False)
        for name in factor.columns:
            if not isinstance(factor, Category) and needs[name].categories is not None:
                msg = f"{factor.text}: column {name!r} has categories, which cannot be computed with. Write C({name}), or declare a range"
                raise UsageError(msg).at(column=name)
        return factor

    return list(dict.fromkeys(term_of(tuple(map(read, term.factors))) for term in terms))


def _category(factor: Category, needs: Mapping[str, Column]) -> CategoryFactor:
    column = needs[factor.name]
    levels = _number_levels(factor, column) if column.categories is None else factor.levels or column.categories
    if column.categories is not None and set(levels) != set(column.categories):
        msg = f"{factor.text}: levels of a column of categories are the declared ones in any order: {listed(column.categories)}"
        raise UsageError(msg).at(column=column.name)
    reference = levels[0] if factor.reference is None else factor.reference
    if reference not in levels:
        msg = f"{factor.text}: the reference is none of the levels {listed(levels)}: choose one of them"
        raise UsageError(msg).at(column=column.name)
    label = factor.label if column.categories else f"C({factor.label})"
    return CategoryFactor(column.name, levels, reference, label, factor.reference is not None)


def _number_levels(factor: Category, column: Column) -> tuple[str, ...]:
    if not factor.levels:
        msg = (
            f"{factor.text}: column {column.name!r} is declared as numbers, so its levels would be read off the data. Declare its "
            "categories, or write C(x, levels=[1, 2, 3])"
        )
        raise UsageError(msg).at(column=column.name)
    low, high = column.range
    for level in factor.levels:
        try:
            number = float(level)
        except ValueError:
            number = math.nan
        if not low <= number <= high or text_of(number) != level:
            msg = f"{factor.text}: level {level!r} is no number in the declared range from {low:g} to {high:g}: correct one of them"
            raise UsageError(msg).at(column=column.name)
    return factor.levels


def _compared(spline: Spline, terms: Sequence[FormulaTerm], *, constant: bool) -> bool:
    """Return whether each term with this spline has its other factors in a term of their own: the model is then the same whichever function is left out."""
    alone = {term_of(tuple(f for f in term.factors if f != spline)) for term in terms if spline in term.factors}
    return alone <= {*terms, *([FormulaTerm(())] if constant else [])}


def _basis(spline: Spline, column: Column, *, compared: bool) -> Basis:
    """Return the functions of a spline but one: the first, or of a natural spline whose curve is ``compared`` with one of its places that of the middle knot."""
    low, high = column.range
    places = [low, *spline.knots, high]
    if not all(a < b and (b - a) / (high - low) > 1e-9 for a, b in pairwise(places)):  # noqa: PLR2004
        msg = f"{spline.text}: knots lie inside the declared range, which is from {low:g} to {high:g}, and apart from each other"
        raise UsageError(msg).at(column=column.name)
    return (
        natural_splines(low, high, spline.knots, compared=compared)
        if spline.kind == "ns"
        else b_splines(low, high, spline.knots, spline.degree)
    )


class _Maker:
    """Makes the derived columns of one term after the other."""

    def __init__(
        self, needs: Mapping[str, Column], factors: Mapping[str, CategoryFactor], bases: Mapping[Spline, Basis]
    ) -> None:
        self._needs, self._factors, self._bases = needs, factors, bases
        self._ranges = {
            name: Interval(*map(float, column.range)) for name, column in needs.items() if column.categories is None
        }
        self._labels = Counter(spline.label for spline in bases)
        self._made = 0

    def columns(self, term: FormulaTerm) -> list[DerivedColumn]:
        """Return a column for every combination of the factors' levels and spline functions, the last factor's first."""
        parts = [list(self._parts(factor)) for factor in term.factors]
        self._made += math.prod(map(len, parts))
        if self._made > MOST_COLUMNS:
            msg = f"formula: it derives more than {MOST_COLUMNS:,} columns: write fewer interactions"
            raise UsageError(msg)
        label = ":".join(self._label(factor) for factor in term.factors)
        return [self._column(term, label, chosen) for chosen in every(*parts)]

    def _label(self, factor: Factor) -> str:
        if isinstance(factor, Category):
            return self._factors[factor.name].label
        return factor.label if self._labels[factor.label] < 2 else factor.text  # noqa: PLR2004 - two splines of one column

    def _parts(self, factor: Factor) -> Iterable[tuple[str, Recipe]]:
        label = self._label(factor)
        if isinstance(factor, Category):
            for place, level in enumerate(self._factors[factor.name].levels):
                yield f"{label}[{level}]", Recipe(cells=((factor.name, place),))
        elif isinstance(factor, Spline):
            for place, number in enumerate(self._bases[factor].numbers):
                yield f"{label}[{number}]", Recipe(splines=((factor, place),))
        elif isinstance(factor, Numeric):
            yield label, Recipe(factor.expression)

    def _column(self, term: FormulaTerm, label: str, chosen: tuple[tuple[str, Recipe], ...]) -> DerivedColumn:
        recipes = [recipe for _, recipe in chosen]
        cells = tuple(cell for recipe in recipes for cell in recipe.cells)
        numbers = [recipe.expression for recipe in recipes if recipe.expression is not None]
        recipe = Recipe(
            product((number, 1) for number in numbers) if numbers else None,
            tuple(part for some in recipes for part in some.splines),
            cells,
        )
        name = ":".join(name for name, _ in chosen)
        low, high = self._bounds(name, recipe)
        return DerivedColumn(
            name,
            low,
            high,
            term.columns,
            label,
            ":".join(name for name, part in chosen if not part.cells),
            tuple((column, self._factors[column].levels[place]) for column, place in cells),
            self._missing(recipe),
            recipe,
        )

    def _bounds(self, name: str, recipe: Recipe) -> tuple[float, float]:
        intervals = [] if recipe.expression is None else [recipe.expression.bounds(self._ranges)]
        intervals += [self._bases[spline].bounds[place] for spline, place in recipe.splines]
        if not intervals:
            return 0.0, 1.0
        found = reduce(mul, intervals)
        if recipe.cells:
            found = found.with_zero()
        if not found.high / 2 - found.low / 2 > 0:
            msg = f"formula: {name} is the same number in every row: leave it out"
            raise UsageError(msg)
        return found.low, found.high

    def _missing(self, recipe: Recipe) -> Any:  # noqa: ANN401 - one of the words of `Missing`
        return "absent" if any(self._needs[name].may_be_absent for name in recipe.numbers) else "refuse"

    def mark(self, column: Column) -> DerivedColumn:
        """Return the column that says where another one is missing."""
        name = f"{column.name} missing"
        return DerivedColumn(name, 0.0, 1.0, frozenset({column.name}), name, name, recipe=Recipe(marks=column.name))

    def offset(self, expression: Expression) -> DerivedColumn:
        """Return the sum of all offsets."""
        for name in expression.columns:
            if self._needs[name].categories is not None:
                msg = f"offset({expression.text}): column {name!r} has categories, which cannot be computed with. Declare a range"
                raise UsageError(msg).at(column=name)
        recipe, name = Recipe(expression), f"offset({expression.text})"
        low, high = self._bounds(name, recipe)
        return DerivedColumn(name, low, high, frozenset(expression.columns), name, name, (), self._missing(recipe), recipe)
