"""The terms that a formula stands for, their operators, and their factors: columns, categories, arithmetic and splines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from unpooled.errors import UsageError
from unpooled.formula.arithmetic import Expression, number_text, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


# --- Factors ---------------------------------------------------------------------------------------------------------------
# Factors of a term of a formula: columns, categories, arithmetic and splines.


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


# --- Terms -----------------------------------------------------------------------------------------------------------------
# The operators of a formula, and the terms that they stand for.

#: A formula that stands for more terms is refused.
MOST_TERMS = 100_000

#: Terms in the order in which they first occur; the values say nothing.
Terms: TypeAlias = dict[FormulaTerm, None]
_ADDITION, _CROSSING, _INTERACTION, _POWER, _LEAF = range(5)


class Node(ABC):
    """An operator and what it is applied to."""

    binds = _LEAF

    @property
    @abstractmethod
    def text(self) -> str:
        """Return the operator and its operands as a formula writes them."""

    @abstractmethod
    def expanded(self, rest: Sequence[Factor]) -> Terms:
        """Return the terms; the dot stands for ``rest``."""

    @abstractmethod
    def leaves(self) -> Iterator[Factor]:
        """Yield all factors in the order in which they are written."""

    @abstractmethod
    def mapped(self, change: Callable[[Factor], Factor]) -> Node:
        """Return the same node over changed factors."""

    def within(self, binds: int) -> str:
        """Return the text, in parentheses where the operator binds less tightly than this."""
        return self.text if self.binds >= binds else f"({self.text})"


@dataclass(frozen=True, slots=True)
class Leaf(Node):
    """A factor."""

    factor: Factor

    @property
    def text(self) -> str:
        """Return the factor's text."""
        return self.factor.text

    def expanded(self, rest: Sequence[Factor]) -> Terms:
        """Return the factor as a term, or one term for each column that the dot stands for."""
        return {term_of((factor,)): None for factor in (rest if isinstance(self.factor, Rest) else [self.factor])}

    def leaves(self) -> Iterator[Factor]:
        """Yield the factor."""
        yield self.factor

    def mapped(self, change: Callable[[Factor], Factor]) -> Node:
        """Return the changed factor."""
        return Leaf(change(self.factor))


@dataclass(frozen=True, slots=True)
class Addition(Node):
    """Terms that are added, or taken away where the sign is -1."""

    summands: tuple[tuple[int, Node], ...]
    binds = _ADDITION

    @property
    def text(self) -> str:
        """Return the summands and their signs."""
        (sign, first), *others = self.summands
        start = f"{'' if sign > 0 else '-'}{first.within(_CROSSING)}"
        return start + "".join(f" {'+' if sign > 0 else '-'} {part.within(_CROSSING)}" for sign, part in others)

    def expanded(self, rest: Sequence[Factor]) -> Terms:
        """Return the terms that remain; taking away a term that is not there is refused."""
        found: Terms = {}
        for sign, part in self.summands:
            terms = part.expanded(rest)
            if sign > 0:
                found.update(terms)
                continue
            for term in terms:
                if term not in found:
                    msg = f"formula: {term.text} is taken away, but it is not among the terms before it: correct it or leave it out"
                    raise UsageError(msg)
                del found[term]
        return _checked(found)

    def leaves(self) -> Iterator[Factor]:
        """Yield the factors of all summands."""
        for _, part in self.summands:
            yield from part.leaves()

    def mapped(self, change: Callable[[Factor], Factor]) -> Node:
        """Return the sum of the changed summands."""
        return Addition(tuple((sign, part.mapped(change)) for sign, part in self.summands))


@dataclass(frozen=True, slots=True)
class Crossing(Node):
    """``a * b``: a, b and a:b. ``main`` is false for ``a:b`` alone."""

    parts: tuple[Node, ...]
    main: bool = True

    @property
    def binds(self) -> int:  # type: ignore[override]  # of a class elsewhere, of an object here
        """Return how tightly the operator binds."""
        return _CROSSING if self.main else _INTERACTION

    @property
    def text(self) -> str:
        """Return the operands between the operator."""
        return (" * " if self.main else ":").join(part.within(self.binds + 1) for part in self.parts)

    def expanded(self, rest: Sequence[Factor]) -> Terms:
        """Return the products of the operands' terms, after these terms themselves where ``main``."""
        found = self.parts[0].expanded(rest)
        for part in self.parts[1:]:
            right = part.expanded(rest)
            products = _products(found, right)
            found = _checked({**found, **right, **products} if self.main else products)
        return found

    def leaves(self) -> Iterator[Factor]:
        """Yield the factors of all operands."""
        for part in self.parts:
            yield from part.leaves()

    def mapped(self, change: Callable[[Factor], Factor]) -> Node:
        """Return the crossing of the changed operands."""
        return Crossing(tuple(part.mapped(change) for part in self.parts), self.main)


@dataclass(frozen=True, slots=True)
class Degree(Node):
    """``(a + b + c)**2``: all products of up to that number of different terms."""

    base: Node
    exponent: int
    binds = _POWER

    @property
    def text(self) -> str:
        """Return the base and the exponent."""
        return f"{self.base.within(_LEAF)}**{self.exponent}"

    def expanded(self, rest: Sequence[Factor]) -> Terms:
        """Return the products; each step multiplies by the base once more until nothing new comes."""
        base = self.base.expanded(rest)
        if len(base) == 1 and not any(isinstance(factor, Rest) for factor in self.base.leaves()):
            (only,) = base
            square = next(
                (f"I({factor.text}**{self.exponent})" for factor in only.factors if isinstance(factor, Plain)), "I(x**2)"
            )
            msg = f"formula: {self.text} crosses a single term with itself, which changes nothing. Write {square} for the power of its values"
            raise UsageError(msg)
        found = base
        for _ in range(self.exponent - 1):
            more = _checked({**found, **_products(found, base)})
            if len(more) == len(found):
                break
            found = more
        return found

    def leaves(self) -> Iterator[Factor]:
        """Yield the factors of the base."""
        yield from self.base.leaves()

    def mapped(self, change: Callable[[Factor], Factor]) -> Node:
        """Return the power of the changed base."""
        return Degree(self.base.mapped(change), self.exponent)


def _products(left: Terms, right: Terms) -> Terms:
    if len(left) * len(right) > 4 * MOST_TERMS:
        _too_many()
    return {term_of(one.factors + other.factors): None for one in left for other in right}


def _checked(terms: Terms) -> Terms:
    if len(terms) > MOST_TERMS:
        _too_many()
    return terms


def _too_many() -> None:
    msg = f"formula: it stands for more than {MOST_TERMS:,} terms: write fewer columns, or a lower degree"
    raise UsageError(msg)
