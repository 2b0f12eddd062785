"""Columns that a formula derives from declared ones: their bounds, what they read, and their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import starmap
from operator import and_, mul, or_
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from unpooled.errors import DataError
from unpooled.formula.interval import Interval, clipped
from unpooled.privacy.bounds import Coding, Column, Missing
from unpooled.privacy.table import as_column

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.formula.arithmetic import Expression
    from unpooled.formula.factors import Spline
    from unpooled.formula.splines import Basis

    Row = NDArray[np.float64]
    Mask = NDArray[np.bool_]

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
    if values.dtype == object:
        msg = f"column {column.name!r} holds text where a range is declared: declare categories or convert it (missing values are empty cells, not NA or nan)"
        raise DataError(msg).at(column=column.name)
    return clipped(values, Interval(*map(float, column.range)))
