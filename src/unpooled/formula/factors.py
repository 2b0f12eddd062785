"""Factors of a term of a formula: columns, categories, arithmetic and splines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from unpooled.formula.arithmetic import Expression, number_text, quoted


class Factor(ABC):
    """A part of a term that reads its columns in one row."""

    @property
    @abstractmethod
    def text(self) -> str:
        """Return the factor as a formula writes it."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns that it reads."""

    @property
    def label(self) -> str:
        """Return a short name, by which the factors of a term are sorted."""
        return self.text


@dataclass(frozen=True, slots=True)
class Plain(Factor):
    """A column by its name: numbers or categories, whichever it is declared to hold."""

    name: str

    @property
    def text(self) -> str:
        """Return the column's name."""
        return quoted(self.name)

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the column."""
        return (self.name,)


@dataclass(frozen=True, slots=True)
class Rest(Factor):
    """The dot: all declared columns that are neither the response nor an offset."""

    @property
    def text(self) -> str:
        """Return the dot."""
        return "."

    @property
    def columns(self) -> tuple[str, ...]:
        """Return no column: the dot names none."""
        return ()


@dataclass(frozen=True, slots=True)
class Category(Factor):
    """A column of categories: one indicator for each level. ``levels`` is empty where the declared ones serve."""

    name: str
    reference: str | None = None
    levels: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return the column, its reference and its levels."""
        reference = [] if self.reference is None else [f"ref={_quoted_text(self.reference)}"]
        levels = [f"levels=[{', '.join(map(_quoted_text, self.levels))}]"] if self.levels else []
        return f"C({', '.join([quoted(self.name), *reference, *levels])})"

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the column."""
        return (self.name,)

    @property
    def label(self) -> str:
        """Return the column's name."""
        return quoted(self.name)


@dataclass(frozen=True, slots=True)
class Numeric(Factor):
    """Arithmetic on columns of numbers; ``marked`` where it is written inside ``I(...)``."""

    expression: Expression
    marked: bool = True

    @property
    def text(self) -> str:
        """Return the expression."""
        return f"I({self.expression.text})" if self.marked else self.expression.text

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns of the expression."""
        return self.expression.columns


@dataclass(frozen=True, slots=True)
class Spline(Factor):
    """A B-spline (``bs``) or natural spline (``ns``) of a column; ``degree`` is 3 for natural ones."""

    kind: str
    name: str
    knots: tuple[float, ...]
    degree: int = 3

    @property
    def text(self) -> str:
        """Return the kind, column, knots, and the degree unless it is 3."""
        degree = "" if self.degree == 3 else f", degree={self.degree}"  # noqa: PLR2004 - the default
        return f"{self.kind}({quoted(self.name)}, knots=[{', '.join(map(number_text, self.knots))}]{degree})"

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the column."""
        return (self.name,)

    @property
    def label(self) -> str:
        """Return the kind and the column."""
        return f"{self.kind}({quoted(self.name)})"


def _quoted_text(text: str) -> str:
    return f'"{text}"' if "'" in text else f"'{text}'"


@dataclass(frozen=True, slots=True)
class FormulaTerm:
    """A product of factors, sorted by their labels, each once. :func:`term_of` makes one."""

    factors: tuple[Factor, ...]

    @property
    def text(self) -> str:
        """Return the factors, separated by colons."""
        return ":".join(factor.text for factor in self.factors)

    @property
    def columns(self) -> frozenset[str]:
        """Return the columns that the term reads."""
        return frozenset(name for factor in self.factors for name in factor.columns)


def term_of(factors: tuple[Factor, ...]) -> FormulaTerm:
    """Return the term of these factors: the same for any order, and for factors that occur twice."""
    return FormulaTerm(tuple(sorted(set(factors), key=lambda factor: (factor.label, factor.text))))
