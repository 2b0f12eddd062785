"""Turns the terms of a formula and the declarations of its columns into derived columns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import reduce
from itertools import pairwise
from itertools import product as every
from operator import mul
from typing import TYPE_CHECKING, Any, TypeAlias

from unpooled.errors import UsageError, listed
from unpooled.formula.arithmetic import Expression, Name, product, total
from unpooled.formula.derived import CategoryFactor, Derived, DerivedColumn, Recipe
from unpooled.formula.factors import Category, Factor, FormulaTerm, Numeric, Plain, Spline, term_of
from unpooled.formula.interval import Interval
from unpooled.formula.splines import Basis, b_splines, natural_splines
from unpooled.privacy.bounds import Bounds, Column, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    bases = {spline: _basis(spline, needs[spline.name]) for spline in _all(terms, Spline)}
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
    return CategoryFactor(column.name, levels, reference, factor.label if column.categories else f"C({factor.label})")


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


def _basis(spline: Spline, column: Column) -> Basis:
    low, high = column.range
    places = [low, *spline.knots, high]
    if not all(a < b and (b - a) / (high - low) > 1e-9 for a, b in pairwise(places)):  # noqa: PLR2004
        msg = f"{spline.text}: knots lie inside the declared range, which is from {low:g} to {high:g}, and apart from each other"
        raise UsageError(msg).at(column=column.name)
    return (
        natural_splines(low, high, spline.knots)
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
            for place in range(len(self._bases[factor].bounds)):
                yield f"{label}[{place + 1}]", Recipe(splines=((factor, place),))
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
