"""Every fitted coefficient belongs to a number, to levels of columns of categories, or to both. Some combinations of them no row can tell.

A column of categories is fitted with one coefficient per level, so that no level is singled out before the noise is drawn. The levels of a
column add up to the constant (or to the number that they multiply): along that direction no row varies, whatever the data are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.privacy.bounds import Column

    Matrix = NDArray[np.float64]

#: The level of a row without a value, where that has an indicator; and the factor of the intervals of a baseline hazard.
MISSING, TIME = "(missing)", "(time)"
_ZERO = 1e-9


@dataclass(frozen=True)
class Categories:
    """A column of categories and its levels."""

    name: str
    levels: tuple[str, ...]
    #: The level that others are compared with, where nothing else is asked.
    reference: str
    #: Whether every row has one of the levels.
    whole: bool = True


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
