"""Single elements of the quadratic extension as pairs of Python integers, and polynomials by their values at 0, 1, 2 and so on."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from unpooled.kernels.field import MODULUS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

Pair = tuple[int, int]
ZERO: Pair = (0, 0)


def plus(a: Pair, b: Pair) -> Pair:
    """Return the sum of two elements."""
    return (a[0] + b[0]) % MODULUS, (a[1] + b[1]) % MODULUS


def minus(a: Pair, b: Pair) -> Pair:
    """Return the difference of two elements."""
    return (a[0] - b[0]) % MODULUS, (a[1] - b[1]) % MODULUS


def times(a: Pair, b: Pair) -> Pair:
    """Return the product of two elements."""
    return (a[0] * b[0] - a[1] * b[1]) % MODULUS, (a[0] * b[1] + a[1] * b[0]) % MODULUS


def pairs(words: NDArray[np.uint64]) -> list[Pair]:
    """Return the elements of an array of shape (n, 2)."""
    return [(int(real), int(imaginary)) for real, imaginary in words]


@cache
def _inverse(number: int) -> int:
    return pow(number, -1, MODULUS)


def value_at(values: Sequence[Pair], at: Pair) -> Pair:
    """Return the value of the polynomial that has these values at 0, 1, 2 and so on (Lagrange)."""
    out = ZERO
    for i, value in enumerate(values):
        for j in range(len(values)):
            if j != i:
                value = times(times(value, minus(at, (j, 0))), (_inverse(i - j), 0))  # noqa: PLW2901
        out = plus(out, value)
    return out
