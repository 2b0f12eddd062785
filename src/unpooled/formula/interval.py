"""Interval arithmetic on closed ranges of numbers, rounded outward.

An interval holds every value that its expression takes, both the exact one and the one that floating point gives. Sums, products,
quotients and square roots round monotonically, so their ends are the exact ends rounded outward. An integer power is a sequence of
products, which is monotonic in the size of its base. NumPy's ``log``, ``log1p``, ``exp`` and fractional powers err by up to 4 units in
the last place; their ends move outward by twice that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

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
