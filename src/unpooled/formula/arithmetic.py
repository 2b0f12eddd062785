"""Arithmetic on columns inside a formula: each expression has a text, bounds by interval arithmetic rounded outward, and values."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from operator import mul
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    Row = NDArray[np.float64]
    Ranges = Mapping[str, "Interval"]


# --- Interval --------------------------------------------------------------------------------------------------------------
# Interval arithmetic on closed ranges of numbers, rounded outward.
#
# An interval holds every value that its expression takes, both the exact one and the one that floating point gives. Sums, products,
# quotients and square roots round monotonically, so their ends are the exact ends rounded outward. An integer power is a sequence of
# products, which is monotonic in the size of its base. NumPy's ``log``, ``log1p``, ``exp`` and fractional powers err by up to 4 units in
# the last place; their ends move outward by twice that.

#: Units in the last place by which an end of a function moves outward: the error of NumPy's value at the end, and at a value near it.
_ULPS = 8
#: Larger exponents are refused: exact powers of the ends would take long, and no model needs them.
LARGEST_POWER = 64


class NotDefinedError(ArithmeticError):
    """An operation is not defined on every value of its intervals. The text says what the operation needs, as "needs ...: do ..."."""


@dataclass(frozen=True, slots=True)
class Interval:
    """All numbers from ``low`` to ``high``, ends included. Ends that are not finite raise :class:`NotDefinedError`."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            raise NotDefinedError("grows beyond the largest number: declare a narrower range")

    def __add__(self, other: Interval) -> Interval:
        """Return the interval of x + y."""
        return _hull([Fraction(self.low) + Fraction(other.low), Fraction(self.high) + Fraction(other.high)])

    def __neg__(self) -> Interval:
        """Return the interval of -x, which is exact."""
        return Interval(-self.high, -self.low)

    def __mul__(self, other: Interval) -> Interval:
        """Return the interval of x * y for x and y that vary independently."""
        return _hull(Fraction(a) * Fraction(b) for a in (self.low, self.high) for b in (other.low, other.high))

    def __truediv__(self, other: Interval) -> Interval:
        """Return the interval of x / y; an interval y that holds 0 is refused."""
        if other.low <= 0 <= other.high:
            raise NotDefinedError("needs a divisor that is never 0: declare a range that excludes 0 for it")
        return _hull(Fraction(a) / Fraction(b) for a in (self.low, self.high) for b in (other.low, other.high))

    def power(self, exponent: int) -> Interval:
        """Return the interval of x**exponent for a positive whole exponent; an even power of a range around 0 begins at 0."""
        ends = [self.low, self.high]
        if exponent % 2 == 0 and self.low < 0 < self.high:
            ends.append(0.0)
        exact = _hull(Fraction(end) ** exponent for end in ends)
        computed = [float(integer_power(np.float64(end), exponent)) for end in ends]
        return Interval(min(exact.low, *computed), max(exact.high, *computed))

    def root(self, exponent: float) -> Interval:
        """Return the interval of x**exponent for an exponent that is not whole; x must not be negative, nor 0 if the exponent is."""
        if self.low < 0:
            raise NotDefinedError("needs values of 0 or more: declare a lower bound of 0 or more, or use a whole power")
        if exponent < 0 and self.low == 0:
            raise NotDefinedError("needs values above 0: declare a lower bound above 0")
        return self._monotonic(lambda x: x**exponent).at_least(0.0)

    def sqrt(self) -> Interval:
        """Return the interval of the square root."""
        if self.low < 0:
            raise NotDefinedError("needs values of 0 or more: declare a lower bound of 0 or more")
        low, high = math.sqrt(self.low), math.sqrt(self.high)
        return Interval(
            _outward(low, Fraction(low) ** 2 - Fraction(self.low), -1),
            _outward(high, Fraction(high) ** 2 - Fraction(self.high), 1),
        )

    def log(self) -> Interval:
        """Return the interval of the natural logarithm."""
        if self.low <= 0:
            raise NotDefinedError(
                "needs values above 0: declare a lower bound above 0, or use log1p where values of 0 occur"
            )
        return self._monotonic(np.log).signed(self.low >= 1, self.high <= 1)

    def log1p(self) -> Interval:
        """Return the interval of log(1 + x)."""
        if self.low <= -1:
            raise NotDefinedError("needs values above -1: declare a lower bound above -1")
        return self._monotonic(np.log1p).signed(self.low >= 0, self.high <= 0)

    def exp(self) -> Interval:
        """Return the interval of the exponential function."""
        return self._monotonic(np.exp).at_least(1.0 if self.low >= 0 else 0.0)

    def at_least(self, low: float) -> Interval:
        """Return the part of the interval that is not below ``low``."""
        return Interval(max(self.low, low), max(self.high, low))

    def signed(self, positive: bool, negative: bool) -> Interval:
        """Return the part that is not below 0 if ``positive``, and not above 0 if ``negative``."""
        return Interval(max(self.low, 0.0) if positive else self.low, min(self.high, 0.0) if negative else self.high)

    def with_zero(self) -> Interval:
        """Return the smallest interval that also holds 0."""
        return Interval(min(self.low, 0.0), max(self.high, 0.0))

    def _monotonic(self, function: Callable[[Any], Any]) -> Interval:
        with np.errstate(all="ignore"):
            ends = sorted((float(function(np.float64(self.low))), float(function(np.float64(self.high)))))
        low, high = ends
        for _ in range(_ULPS):
            low, high = math.nextafter(low, -math.inf), math.nextafter(high, math.inf)
        return Interval(low, high)

    def __str__(self) -> str:
        """Return both ends in words for a message."""
        return f"{self.low:g} to {self.high:g}"


def integer_power(values: Any, exponent: int) -> Any:  # noqa: ANN401 - a NumPy number or array, and the same again
    """Return values**exponent by squaring: each product is rounded, so the size of the result grows with the size of the value."""
    result, base = None, values
    with np.errstate(all="ignore"):
        while exponent:
            if exponent & 1:
                result = base if result is None else result * base
            exponent >>= 1
            base = base * base if exponent else base
    return result


def clipped(values: NDArray[np.float64], interval: Interval) -> NDArray[np.float64]:
    """Return the values moved into the interval, infinite ones too; nan stays nan."""
    return np.asarray(np.clip(values, interval.low, interval.high))


def _hull(exact: Iterable[Fraction]) -> Interval:
    """Return the smallest interval with floating-point ends that holds these exact numbers."""
    numbers = list(exact)
    return Interval(_rounded(min(numbers), -1), _rounded(max(numbers), 1))


def _rounded(exact: Fraction, side: int) -> float:
    """Return the floating-point number nearest to an exact one on this side: -1 for below, 1 for above."""
    try:
        found = float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf
    return _outward(found, Fraction(found) - exact, side)


def _outward(found: float, error: Fraction, side: int) -> float:
    """Return ``found``, or its neighbour on this side where its error (found minus exact) points to the other side."""
    return found if error * side >= 0 else math.nextafter(found, side * math.inf)


# --- Arithmetic ------------------------------------------------------------------------------------------------------------
# Arithmetic on columns inside a formula: each expression has a text, bounds and values.
#
# Expressions are kept in a normal form: operands of sums and products are sorted, and equal factors are collected into a power. So one
# expression has one text, and ``x * x`` on [-1, 3] has the bounds [0, 9] of a square. Values are computed by the operations that the
# bounds follow, in the same order.

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
