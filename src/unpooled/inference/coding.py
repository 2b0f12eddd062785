"""Which column every fitted coefficient belongs to: numbers, levels of categories, products of both, and the columns that a formula makes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.errors import UsageError
from unpooled.formula import Formula
from unpooled.privacy.bounds import Column, Missing
from unpooled.privacy.table import BLOCK_ROWS, Table
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.formula import Derived, DerivedColumn

    Matrix = NDArray[np.float64]


# --- Coded terms -----------------------------------------------------------------------------------------------------------
# Every fitted coefficient belongs to a number, to levels of columns of categories, or to both. Some combinations of them no row can tell.
#
# A column of categories is fitted with one coefficient per level, so that no level is singled out before the noise is drawn. The levels of a
# column add up to the constant (or to the number that they multiply): along that direction no row varies, whatever the data are.

#: The name of the column of sites, in formulas and in tables.
SITE = "site"
#: The level of a row without a value, where that has an indicator; and the factor of the intervals of a baseline hazard.
MISSING, TIME = "(missing)", "(time)"
_ZERO = 1e-9
#: A reference is rare below this part of the commonest level's share, and that many deviations of a share's noise below it.
RARE, SURE = table("printed").rare_reference, table("printed").rare_surely


@dataclass(frozen=True)
class Categories:
    """A column of categories and its levels."""

    name: str
    levels: tuple[str, ...]
    #: The level that others are compared with, where nothing else is asked.
    reference: str
    #: Whether every row has one of the levels.
    whole: bool = True
    #: Whether a formula names the reference.
    chosen: bool = False


@dataclass(frozen=True)
class CodedTerm:
    """A fitted coefficient: of a number (empty: the constant 1) in the rows that have these levels."""

    name: str
    number: str = ""
    #: (column of categories, level)
    cells: tuple[tuple[str, str], ...] = ()
    #: The term of the model that it is a part of; empty for constants.
    term: str = ""

    @property
    def factors(self) -> frozenset[str]:
        """Return the columns of categories whose levels it is restricted to."""
        return frozenset(name for name, _ in self.cells)


@dataclass(frozen=True)
class CodedTerms:
    """All coefficients of one linear predictor, constants last, and the columns of categories."""

    terms: tuple[CodedTerm, ...]
    factors: tuple[Categories, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the coefficients."""
        return tuple(term.name for term in self.terms)

    @property
    def slopes(self) -> tuple[str, ...]:
        """Return the names of those that are no constants."""
        return tuple(term.name for term in self.terms if term.term)

    def of_levels(self, names: Sequence[str]) -> frozenset[str]:
        """Return those of these names, in the order of the terms, that belong to levels: one alone says nothing, and differences need second moments."""
        return frozenset(name for name, term in zip(names, self.terms, strict=True) if term.cells)

    def factor(self, name: str) -> Categories:
        """Return the column of this name."""
        return next(factor for factor in self.factors if factor.name == name)

    def with_constants(self, names: Sequence[str]) -> CodedTerms:
        """Return the same with a constant, or with the baselines of several intervals."""
        if len(names) <= 1:
            return CodedTerms((*self.terms, *map(CodedTerm, names)), self.factors)
        intervals = tuple(CodedTerm(name, cells=((TIME, name),)) for name in names)
        return CodedTerms((*self.terms, *intervals), (*self.factors, Categories(TIME, tuple(names), names[0])))

    @property
    def still(self) -> Matrix:
        """Orthonormal directions, a column each, that are 0 in every row that can be: the null space of the levels' second moments.

        Taken as independent and equally frequent, levels have moments that can be written down; what vanishes then, vanishes in every row.
        """
        groups: dict[str, list[int]] = {}
        for at, term in enumerate(self.terms):
            groups.setdefault(term.number, []).append(at)
        found = []
        for places in groups.values():
            gram = np.array([[self._moment(self.terms[i], self.terms[j]) for j in places] for i in places])
            values, vectors = np.linalg.eigh(gram)
            nothing = vectors[:, values < _ZERO * float(values[-1])]
            nothing = np.where(np.abs(nothing) < _ZERO, 0.0, nothing)  # rounding is no part of a direction
            whole = np.zeros((len(self.terms), nothing.shape[1]))
            whole[places] = nothing
            found.append(whole)
        return np.concatenate(found, axis=1) if found else np.empty((len(self.terms), 0))

    def _moment(self, one: CodedTerm, other: CodedTerm) -> float:
        levels = dict(one.cells)
        if any(levels.get(name, level) != level for name, level in other.cells):
            return 0.0
        sizes = (self.factor(name) for name in levels | dict(other.cells))
        return math.prod(1 / (len(factor.levels) + (not factor.whole)) for factor in sizes)


def commonest(levels: Sequence[str], shares: Sequence[float], reference: str, unsure: float) -> str | None:
    """Return the level (or class) with the largest released share, where the reference is rare against it; else None.

    A line about a rare reference has the error of the rare one, whatever it is compared with. Of two levels each is the other's line with another sign,
    so they stay as they are declared. ``unsure`` is the deviation of a share's noise: where it could make a level rare, the reference stays.

    >>> commonest(("other", "a", "b"), (0.02, 0.6, 0.38), "other", 0.01)
    'a'
    >>> commonest(("other", "a", "b"), (0.3, 0.4, 0.3), "other", 0.01) is None
    True
    """
    if len(levels) < 3 or not all(map(math.isfinite, (*shares, unsure))):  # noqa: PLR2004
        return None
    at = max(range(len(levels)), key=lambda k: shares[k])
    rare = shares[levels.index(reference)] + SURE * unsure < RARE * shares[at]
    return levels[at] if rare and levels[at] != reference else None


def commonest_levels(coded: CodedTerms, shares: Mapping[str, float], unsure: float) -> dict[str, str]:
    """Return the columns of categories whose declared reference is rare, with their commonest level; ``shares`` by the name of the level's coefficient."""
    found = {}
    for factor in coded.factors:
        own = {
            t.cells[0][1]: shares[t.name]
            for t in coded.terms
            if not t.number and len(t.cells) == 1 and factor.name in t.factors and t.name in shares
        }
        levels = tuple(level for level in factor.levels if level != MISSING)
        if factor.chosen or factor.name == TIME or not {*levels} <= {*own} or factor.reference not in levels:
            continue
        level = commonest(levels, [own[level] for level in levels], factor.reference, unsure)
        if level is not None:
            found[factor.name] = level
    return found


def coded_terms(features: Sequence[Column], *, whole: bool = True) -> CodedTerms:
    """Return the coefficients of declared columns, in the order in which they are coded; ``whole``: rows are not shortened."""
    terms: list[CodedTerm] = []
    factors: list[Categories] = []
    for column in features:
        name = column.name
        if column.categories is None:
            terms.append(CodedTerm(name, name, term=name))
            if column.missing == "indicator":
                terms.append(CodedTerm(f"{name} missing", f"{name} missing", term=name))
            continue
        terms += [CodedTerm(f"{name} = {level}", cells=((name, level),), term=name) for level in column.categories]
        levels = column.categories
        if column.missing == "indicator":
            terms.append(CodedTerm(f"{name} missing", cells=((name, MISSING),), term=name))
            levels = (*levels, MISSING)
        factors.append(Categories(name, levels, column.categories[0], whole and column.missing != "absent"))
    return CodedTerms(tuple(terms), tuple(factors))


# --- Formula columns -------------------------------------------------------------------------------------------------------
# The columns that a formula makes of declared ones, as a layout codes them: computed at a party, row by row, from its own columns.


@dataclass(frozen=True)
class Feature:
    """A declared column of the layout: its coefficients, and which derived columns it is (none: the column of categories itself)."""

    column: Column
    terms: tuple[CodedTerm, ...]
    #: The source that is coded as it is, or the place of the derived column.
    source: str = ""
    at: int = -1


def _as_it_is(column: DerivedColumn, declared: dict[str, Column]) -> Column:
    """Return the declaration of a derived column, with what is typical of it where it is a declared column as it is."""
    own = declared.get(column.name)
    same = own is not None and column.sources == {column.name} and (column.low, column.high) == (own.low, own.high)
    return msgspec.structs.replace(column.declared, typical=own.typical) if own is not None and same else column.declared


@dataclass(frozen=True)
class FormulaColumns:
    """The features of a formula over declared columns."""

    derived: Derived
    #: Its right side in the canonical text, without a dot.
    text: str = ""

    @cached_property
    def features(self) -> tuple[Feature, ...]:
        """Return the features in the order of the formula; all levels of a column of categories are one feature."""
        found: list[Feature] = []
        declared = {column.name: column for column in self.derived.needs}
        labels = {factor.column: factor for factor in self.derived.factors}
        for at, column in enumerate(self.derived.columns):
            marks = column.recipe.marks
            whole = len(column.cells) == 1 and not column.number and not marks
            if not whole:
                found.append(Feature(_as_it_is(column, declared), (self._term(column),), at=at))
                continue
            ((name, level),) = column.cells
            if level != labels[name].levels[0]:
                continue  # the first level stands for all
            kind = declared[name]
            # A level that no source column declares is in none of them; what is missing and marked has a column of its own.
            rule: Missing = "refuse" if kind.categories == labels[name].levels and kind.missing == "refuse" else "absent"
            levels = [c for c in self.derived.columns if c.cells and c.cells[0][0] == name and c.term == column.term]
            own = Column(labels[name].label, categories=labels[name].levels, missing=rule)
            found.append(Feature(own, tuple(self._term(c) for c in levels), source=name))
        return tuple(found)

    def _term(self, column: DerivedColumn) -> CodedTerm:
        marks = column.recipe.marks
        if marks in {factor.column for factor in self.derived.factors}:
            return CodedTerm(column.name, cells=((marks, MISSING),), term=column.term)
        return CodedTerm(column.name, column.name if marks else column.number, column.cells, column.term)

    @property
    def factors(self) -> tuple[Categories, ...]:
        """Return the columns of categories."""
        declared = {column.name: column for column in self.derived.needs}
        marked = {column.recipe.marks for column in self.derived.columns}
        return tuple(
            Categories(
                f.column,
                (*f.levels, *([MISSING] if f.column in marked else [])),
                f.reference,
                declared[f.column].categories == f.levels and (declared[f.column].missing == "refuse" or f.column in marked),
                f.chosen,
            )
            for f in self.derived.factors
        )

    def terms(self, features: Sequence[Column]) -> CodedTerms:
        """Return what each coefficient of these features belongs to."""
        own = {feature.column.name: feature.terms for feature in self.features}
        return CodedTerms(tuple(term for column in features for term in own[column.name]), self.factors)

    def together(self, features: Sequence[Column]) -> tuple[tuple[int, ...], ...]:
        """Return the places of the features that one value of each source moves."""
        sources = {f.column.name: {f.source} if f.source else self.derived.columns[f.at].sources for f in self.features}
        names = [column.name for column in features]
        return tuple(tuple(k for k, name in enumerate(names) if need.name in sources[name]) for need in self.derived.needs)

    def gone(self, features: Sequence[Column]) -> float:
        """Return how far the coded row of these features moves, at most, where one value of a source goes missing (Theorem S.15).

        A row has one level of every column of categories, so of the derived columns that differ by levels alone one moves.
        """
        own = {feature.column.name: feature for feature in self.features}
        farthest = 0.0
        for need in self.derived.needs:
            moved: dict[tuple[str, ...], float] = {}
            for column in features:
                feature = own[column.name]
                if feature.source == need.name:
                    moved[(column.name,)] = 1.0  # the indicator of its level
                elif not feature.source and need.name in self.derived.columns[feature.at].sources:
                    made = self.derived.columns[feature.at]
                    key = (made.term, made.number, made.recipe.marks)
                    moved[key] = max(moved.get(key, 0.0), _moved(column, made, need.name))
            farthest = max(farthest, math.fsum(one**2 for one in moved.values()))
        return math.sqrt(farthest)

    def values(self, held: Mapping[str, NDArray[Any]], names: Iterable[str]) -> list[NDArray[Any]]:
        """Return features by name, made of a block of raw columns: those of categories as they are, others as numbers."""
        own = {feature.column.name: feature for feature in self.features}
        wanted = [own[name] for name in names]
        matrix = self.derived.matrix(held) if any(feature.at >= 0 for feature in wanted) else None
        return [held[feature.source] if matrix is None or feature.source else matrix[:, feature.at] for feature in wanted]

    def seen(self, table: Table) -> Table:
        """Return the table with the derived columns in the place of those that they are made of; a table that has them is left as it is."""
        shift = self.derived.offset_column
        names = [feature.column.name for feature in self.features] + ([] if shift is None else [shift.name])
        if isinstance(table, Seen) or all(name in table.names for name in names):
            return table
        # One view of a table, so that what is remembered of it in one round is found in the next. The table holds it: both go together.
        views: dict[int, Table] = vars(table).setdefault("_views", {})
        if id(self) not in views:
            views[id(self)] = Seen(table, self)  # which holds the formula, so that no other one gets its id
        return views[id(self)]


class Seen(Table):
    """A table whose blocks hold derived columns: they are computed block by block, from the declared columns, and kept nowhere."""

    def __init__(self, table: Table, formula: FormulaColumns) -> None:
        self._raw, self._formula = table, formula
        self.names = tuple(feature.column.name for feature in formula.features)
        self.n_rows, self.household = table.n_rows, table.household

    @property
    def raw(self) -> Table:
        """Return the table of the declared columns."""
        return self._raw

    @property
    def owners(self) -> NDArray[Any]:
        """Return the numbers that the table gives to its ids."""
        return self._raw.owners

    def blocks(self, names: tuple[str, ...], rows: int = BLOCK_ROWS) -> Iterator[tuple[NDArray[Any], ...]]:
        """Derived columns by their names, and any others as the table has them."""
        derived, offset = self._formula.derived, self._formula.derived.offset_column
        features = {feature.column.name for feature in self._formula.features}
        shift = "" if offset is None else offset.name
        sources = tuple(column.name for column in derived.needs)
        own = [name for name in names if name in features]
        others = tuple(name for name in names if name not in features and name != shift)
        for block in self._raw.blocks((*sources, *others), rows):
            held = dict(zip(sources, block[: len(sources)], strict=True))
            plain = dict(zip(others, block[len(sources) :], strict=True))
            made = dict(zip(own, self._formula.values(held, own), strict=True))
            made |= {shift: derived.offset(held)} if shift in names else {}
            yield tuple(made[name] if name in made else plain[name] for name in names)


@lru_cache(maxsize=32)
def formula_columns(text: str, declared: tuple[Column, ...]) -> FormulaColumns:
    """Return the features of a formula over these columns."""
    closed = Formula.parse(text).closed(column.name for column in declared)
    derived = closed.derive(declared)
    names = {column.name for column in declared}
    for column in derived.columns:
        if column.name in names and column.sources != {column.name}:
            msg = f"formula: the term {column.name} is called like a declared column: rename that column, so that nobody takes one for the other"
            raise UsageError(msg).at(column=column.name)
    return FormulaColumns(derived, str(replace(closed, response=(), survival=False)))


def made_by(design: Any) -> FormulaColumns | None:  # noqa: ANN401 - the design of any model
    """Return what the formula of a study makes of its columns; None where there is no formula."""
    found: FormulaColumns | None = getattr(getattr(design, "layout", design), "made", None)
    return found


def coded_by(design: Any) -> tuple[Column, ...]:  # noqa: ANN401
    """Return the columns of a fit as they are coded: a missing value is the middle of their ranges, which is 0 without a constant."""
    found: tuple[Column, ...] = getattr(design, "layout", design).features
    return found


def _moved(column: Column, made: DerivedColumn, source: str) -> float:
    """Return how far a coded derived column moves where a value of this source goes missing."""
    if made.recipe.marks:
        return 1 / column.half_width  # from 0 to 1
    if any(name == source for name, _ in made.cells):
        return 1 + abs(column.centre) / column.half_width  # from anywhere to the number 0
    return 1.0  # from anywhere to the middle, as any number that is missing


def check_formula(text: str, response: tuple[str, ...]) -> None:
    """Refuse a formula whose left side, where it has one, is not the response of the study."""
    if text and Formula.parse(text).response not in {(), response}:
        left = " and ".join(Formula.parse(text).response)
        msg = f"the left side of the formula is {left}, and the study's response is {' and '.join(response)}: let them agree, or leave the left side out"
        raise UsageError(msg)
