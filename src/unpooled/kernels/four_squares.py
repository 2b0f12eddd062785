"""Four integers whose squares add up to a given integer, for arrays of integers.

A number that 8 divides is four times another, with roots twice as large. For the rest, one of the two largest possible first roots leaves 0 or a number
that is 1, 2, 3, 5 or 6 modulo 8, which is a sum of three squares by Legendre's theorem; the second root is the largest that leaves a sum of two squares.
So the search ends for every number (Theorem J.3), and what it tries shrinks like the fourth root.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import UsageError
from unpooled.kernels.compiled import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

#: Sums of two squares below this are looked up; the table stays in the first-level cache.
_TABLE = 1 << 14
#: The square roots of larger numbers would not be exact in double precision.
LARGEST = 1 << 52


@njit(inline="always")
def _root(number: Any) -> Any:  # noqa: ANN401 - an integer that numba types
    """Return the largest integer whose square is at most a number below 2^52."""
    return np.int64(np.sqrt(np.float64(number)))


@cache
def _first_roots() -> NDArray[np.int16]:
    """Return the larger root of each small sum of two squares, and -1 for numbers that are none."""
    table = np.full(_TABLE, -1, dtype=np.int16)
    for root in range(int(np.sqrt(_TABLE)) + 1):
        sums = root * root + np.arange(root + 1) ** 2
        table[sums[sums < _TABLE]] = root
    return table


@njit()
def _larger_root(number: Any, table: NDArray[np.int16]) -> Any:  # noqa: ANN401 - integers that numba types
    """Return a root r such that number - r^2 is a square, or -1."""
    if number < table.size:
        return np.int64(table[number])
    if number % 4 == 3:  # noqa: PLR2004 - no sum of two squares is 3 modulo 4
        return np.int64(-1)
    root = _root(number)
    while 2 * root * root >= number:
        rest = number - root * root
        other = _root(rest)
        if other * other == rest:
            return root
        root -= 1
    return np.int64(-1)


@njit()
def _search(numbers: Integers, table: NDArray[np.int16], out: Integers) -> None:
    for i in range(numbers.size):
        number, factor = numbers[i], np.int64(1)
        while number > 0 and number % 8 == 0:
            number //= 4
            factor *= 2
        first = _root(number)
        rest = number - first * first
        if rest > 0 and (rest % 4 == 0 or rest % 8 == 7):  # noqa: PLR2004 - not surely a sum of three squares
            first -= 1
            rest = number - first * first
        second = _root(rest)
        third = _larger_root(rest - second * second, table)
        while third < 0:
            second -= 1
            third = _larger_root(rest - second * second, table)
        fourth = _root(rest - second * second - third * third)
        out[i, 0], out[i, 1], out[i, 2], out[i, 3] = factor * first, factor * second, factor * third, factor * fourth


def four_squares(numbers: Integers) -> Integers:
    """Return, for n integers between 0 and 2^52, non-negative integers of shape (n, 4) whose squares add up to them."""
    if numbers.size and not 0 <= int(numbers.min()) <= int(numbers.max()) <= LARGEST:
        raise UsageError("four squares are found for integers between 0 and 2^52")
    out = np.empty((numbers.size, 4), dtype=np.int64)
    _search(np.ascontiguousarray(numbers, dtype=np.int64), _first_roots(), out)
    return out
