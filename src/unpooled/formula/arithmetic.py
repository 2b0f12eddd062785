"""Arithmetic on columns inside a formula: each expression has a text, bounds and values.

Expressions are kept in a normal form: operands of sums and products are sorted, and equal factors are collected into a power. So one
expression has one text, and ``x * x`` on [-1, 3] has the bounds [0, 9] of a square. Values are computed by the operations that the
bounds follow, in the same order.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from functools import reduce
from operator import mul
from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import UsageError
from unpooled.formula.interval import LARGEST_POWER, Interval, NotDefinedError, integer_power

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    Row = NDArray[np.float64]
    Ranges = Mapping[str, "Interval"]

#: Numbers from here on are written with an exponent.
_LONG = 1e15
#: How tightly the parts of an expression bind.
_SUM, _PRODUCT, _POWER, _ATOM = range(4)


def quoted(name: str) -> str:
    """Return a column's name as a formula writes it: in backticks unless it is an identifier."""
    return name if re.fullmatch(r"[^\W\d]\w*", name) else f"`{name}`"


def number_text(value: float) -> str:
    """Return a number as a formula writes it."""
    return str(int(value)) if value.is_integer() and abs(value) < _LONG else repr(value)


class Expression(ABC):
    """A function of the columns of one row."""

    binds = _ATOM

    @property
    @abstractmethod
    def text(self) -> str:
        """Return the expression as a formula writes it."""

    @property
    @abstractmethod
    def parts(self) -> tuple[Expression, ...]:
        """Return the expressions that this one is made of."""

    @abstractmethod
    def _bounds(self, ranges: Ranges) -> Interval: ...

    @abstractmethod
    def values(self, columns: Mapping[str, Row]) -> Row:
        """Return the value of every row."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns that the expression reads, each once."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.columns))

    def bounds(self, ranges: Ranges) -> Interval:
        """Return the interval of the values, where each column lies in its range."""
        try:
            return self._bounds(ranges)
        except NotDefinedError as error:
            seen = "; ".join(f"{quoted(name)} is declared from {ranges[name]}" for name in self.columns)
            msg = f"{self.text} {error} ({seen})"
            raise UsageError(msg).at(column=self.columns[0] if self.columns else None) from None

    def within(self, binds: int) -> str:
        """Return the text, in parentheses where it binds less tightly than this."""
        return self.text if self.binds >= binds else f"({self.text})"


@dataclass(frozen=True, slots=True)
class Number(Expression):
    """A number that is written in the formula."""

    value: float

    @property
    def binds(self) -> int:  # type: ignore[override]  # of a class elsewhere, of an object here
        """Return how tightly it binds: as a sum if it has a sign."""
        return _SUM if self.value < 0 else _ATOM

    @property
    def text(self) -> str:
        """Return the number."""
        return number_text(self.value)

    @property
    def parts(self) -> tuple[Expression, ...]:
        """Return nothing: it has no parts."""
        return ()

    def _bounds(self, ranges: Ranges) -> Interval:  # noqa: ARG002 - the same for every expression
        return Interval(self.value, self.value)

    def values(self, columns: Mapping[str, Row]) -> Row:  # noqa: ARG002 - the same for every expression
        """Return the number, as an array without dimensions."""
        return np.array(self.value)


@dataclass(frozen=True, slots=True)
class Name(Expression):
    """A column of numbers."""

    name: str

    @property
    def text(self) -> str:
        """Return the column's name."""
        return quoted(self.name)

    @property
    def parts(self) -> tuple[Expression, ...]:
        """Return nothing: it has no parts."""
        return ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the column itself."""
        return (self.name,)

    def _bounds(self, ranges: Ranges) -> Interval:
        return ranges[self.name]

    def values(self, columns: Mapping[str, Row]) -> Row:
        """Return the column."""
        return columns[self.name]


@dataclass(frozen=True, slots=True)
class Sum(Expression):
    """Expressions that are added, or subtracted where the sign is -1. :func:`total` makes one."""

    summands: tuple[tuple[int, Expression], ...]
    binds = _SUM

    @property
    def text(self) -> str:
        """Return the summands and their signs."""
        (sign, first), *others = self.summands
        start = f"{'' if sign > 0 else '-'}{first.within(_PRODUCT)}"
        return start + "".join(f" {'+' if sign > 0 else '-'} {part.within(_PRODUCT)}" for sign, part in others)

    @property
    def parts(self) -> tuple[Expression, ...]:
        """Return the summands without their signs."""
        return tuple(part for _, part in self.summands)

    def _bounds(self, ranges: Ranges) -> Interval:
        (sign, first), *others = self.summands
        found = first.bounds(ranges) if sign > 0 else -first.bounds(ranges)
        for sign, part in others:
            found = found + (part.bounds(ranges) if sign > 0 else -part.bounds(ranges))
        return found

    def values(self, columns: Mapping[str, Row]) -> Row:
        """Return the sum of every row."""
        (sign, first), *others = self.summands
        found = first.values(columns) * sign
        for sign, part in others:
            found = found + part.values(columns) if sign > 0 else found - part.values(columns)
        return np.asarray(found)


@dataclass(frozen=True, slots=True)
class Product(Expression):
    """Whole powers of expressions, multiplied (``over``) and divided by (``under``). :func:`product` makes one."""

    over: tuple[tuple[Expression, int], ...]
    under: tuple[tuple[Expression, int], ...]

    @property
    def binds(self) -> int:  # type: ignore[override]  # of a class elsewhere, of an object here
        """Return how tightly it binds: as a power if it is a single one."""
        return _POWER if len(self.over) == 1 and not self.under else _PRODUCT

    @property
    def text(self) -> str:
        """Return the factors, then the divisors."""
        return (" * ".join(map(_power_text, self.over)) or "1") + "".join(f" / {_power_text(power)}" for power in self.under)

    @property
    def parts(self) -> tuple[Expression, ...]:
        """Return the bases of the powers."""
        return tuple(base for base, _ in self.over + self.under)

    def _bounds(self, ranges: Ranges) -> Interval:
        over, under = ([base.bounds(ranges).power(k) for base, k in powers] for powers in (self.over, self.under))
        found = reduce(mul, over) if over else Interval(1.0, 1.0)
        for divisor in under:
            found = found / divisor
        return found

    def values(self, columns: Mapping[str, Row]) -> Row:
        """Return the product of every row."""
        over, under = ([integer_power(base.values(columns), k) for base, k in powers] for powers in (self.over, self.under))
        found = reduce(mul, over) if over else np.array(1.0)
        for divisor in under:
            found = found / divisor
        return np.asarray(found)


def _power_text(power: tuple[Expression, int]) -> str:
    base, exponent = power
    return base.within(_POWER) if exponent == 1 else f"{base.within(_ATOM)}**{exponent}"


@dataclass(frozen=True, slots=True)
class Root(Expression):
    """A power whose exponent is not whole."""

    base: Expression
    exponent: float
    binds = _POWER

    @property
    def text(self) -> str:
        """Return the base and the exponent."""
        return f"{self.base.within(_ATOM)}**{number_text(self.exponent)}"

    @property
    def parts(self) -> tuple[Expression, ...]:
        """Return the base."""
        return (self.base,)

    def _bounds(self, ranges: Ranges) -> Interval:
        return self.base.bounds(ranges).root(self.exponent)

    def values(self, columns: Mapping[str, Row]) -> Row:
        """Return the power of every row."""
        return np.asarray(np.power(self.base.values(columns), self.exponent))


#: The functions of a formula: how values and how bounds are found.
FUNCTIONS: dict[str, tuple[Callable[[Row], Row], Callable[[Interval], Interval]]] = {
    "log": (np.log, Interval.log),
    "log1p": (np.log1p, Interval.log1p),
    "sqrt": (np.sqrt, Interval.sqrt),
    "exp": (np.exp, Interval.exp),
}


@dataclass(frozen=True, slots=True)
class Call(Expression):
    """One of the functions in :data:`FUNCTIONS` of an expression."""

    function: str
    argument: Expression

    @property
    def text(self) -> str:
        """Return the function and its argument."""
        return f"{self.function}({self.argument.text})"

    @property
    def parts(self) -> tuple[Expression, ...]:
        """Return the argument."""
        return (self.argument,)

    def _bounds(self, ranges: Ranges) -> Interval:
        return FUNCTIONS[self.function][1](self.argument.bounds(ranges))

    def values(self, columns: Mapping[str, Row]) -> Row:
        """Return the function's value of every row."""
        return np.asarray(FUNCTIONS[self.function][0](self.argument.values(columns)))


def total(summands: Iterable[tuple[int, Expression]]) -> Expression:
    """Return a sum in normal form: columns before numbers, what is added before what is subtracted."""
    flat: list[tuple[int, Expression]] = []
    for sign, part in summands:
        if isinstance(part, Sum):
            flat += [(sign * inner, some) for inner, some in part.summands]
        elif isinstance(part, Number) and part.value < 0:
            flat.append((-sign, Number(-part.value)))
        else:
            flat.append((sign, part))
    flat.sort(key=lambda item: (-item[0], isinstance(item[1], Number), item[1].text))
    if len(flat) == 1:
        sign, only = flat[0]
        if sign > 0 or isinstance(only, Number):
            return Number(-only.value) if sign < 0 and isinstance(only, Number) else only
    return Sum(tuple(flat))


def product(factors: Iterable[tuple[Expression, int]]) -> Expression:
    """Return a product of whole powers (negative exponents divide) in normal form: equal bases collected, numbers first, no sign inside."""
    over: Counter[Expression] = Counter()
    under: Counter[Expression] = Counter()
    negative = False
    stack = [(base, exponent) for base, exponent in factors if exponent]
    while stack:
        base, exponent = stack.pop()
        if isinstance(base, Product):
            stack += [(some, k * exponent) for some, k in base.over] + [(some, -k * exponent) for some, k in base.under]
        elif (opposite := _opposite(base)) is not None:
            negative ^= exponent % 2 == 1
            stack.append((opposite, exponent))
        else:
            (over if exponent > 0 else under)[base] += abs(exponent)
    for power in (over | under).items():
        if power[1] > LARGEST_POWER:
            msg = f"{_power_text(power)}: whole powers up to {LARGEST_POWER} are worked out. Write a smaller one"
            raise UsageError(msg)
    found = _sorted_product(over, under)
    return total([(-1, found)]) if negative else found


def _sorted_product(over: Counter[Expression], under: Counter[Expression]) -> Expression:
    one = Number(1.0)
    if len(over) > 1 or under:
        del over[one]
    if under:
        del under[one]
    powers = [sorted(some.items(), key=lambda p: (not isinstance(p[0], Number), p[0].text)) for some in (over, under)]
    if len(over) == 1 and not under and powers[0][0][1] == 1:
        return powers[0][0][0]
    return Product(tuple(powers[0]), tuple(powers[1])) if over or under else one


def _opposite(part: Expression) -> Expression | None:
    """Return x of an expression that is -x, or None."""
    if isinstance(part, Number):
        return Number(-part.value) if part.value < 0 else None
    if isinstance(part, Sum) and len(part.summands) == 1:
        return part.summands[0][1]
    return None
