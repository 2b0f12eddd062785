r"""Standardised rows in integers, and what one pass over them adds up: clipped gradients, squared residuals, shortened rows.

Every number here is a function of one record and of public values, computed one record after the other: no result depends on where a
record stands. A value is rounded toward zero on its grid, and lengths are checked on the integers, so every bound holds exactly.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from unpooled.kernels.compiled import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[Any]
    Floats = NDArray[Any]


@njit(nogil=True)
def standardise_rows(
    coded: Floats, middle: Floats, width: Floats, cap: float, one: float, grid: float, out: Floats
) -> None:  # the last column of ``out`` is the constant, where ``one`` is positive
    """``out = trunc(clip((coded - middle) / width, -cap, cap) * grid)``, and beside it the constant."""
    rows, columns = coded.shape
    for i in range(rows):
        for j in range(columns):
            value = (coded[i, j] - middle[j]) / width[j]
            out[i, j] = math.trunc(min(max(value, -cap), cap) * grid)
        if one > 0:
            out[i, columns] = math.trunc(one * grid)


@njit(nogil=True)
def ceil_root(square: int) -> int:
    """The smallest integer whose square is at least this one."""
    root = int(math.sqrt(float(square)))
    while root * root < square:
        root += 1
    while root > 0 and (root - 1) * (root - 1) >= square:
        root -= 1
    return root


@njit(nogil=True)
def squared_length(row: Floats) -> int:
    """The exact squared length of a row of integers."""
    total = 0
    for j in range(row.size):
        value = int(row[j])
        total += value * value
    return total


@njit(nogil=True)
def add_gradients(
    rows: Floats, response: Floats, start: Floats, grid: float, fine: float, farthest: int, longest: int, total: Ints
) -> None:
    """Add r z of every record, ``|r| <= farthest`` and ``|r||z| <= longest`` in integers: r is what ``start`` leaves of the response."""
    for i in range(rows.shape[0]):
        residual = response[i]
        for j in range(rows.shape[1]):
            residual -= rows[i, j] * start[j] / grid
        step = int(min(max(residual * fine, -float(farthest)), float(farthest)))
        length = ceil_root(squared_length(rows[i]))
        most = min(farthest, longest // length) if length else farthest
        step = min(max(step, -most), most)
        for j in range(rows.shape[1]):
            total[j] += step * int(rows[i, j])


@njit(nogil=True)
def shorten_rows(
    rows: Floats, response: Floats, start: Floats, grid: float, radius: int, clip: int, out: Floats
) -> None:  # ``out`` has a column more, for the residual
    """Rows of integers shortened to ``radius``, and their residuals by the same factor, which leaves a linear model what it is.

    Shortened again, by one part in so many, where rounding left a row too long: never an error.
    """
    columns = rows.shape[1]
    for i in range(rows.shape[0]):
        residual = response[i]
        for j in range(columns):
            residual -= rows[i, j] * start[j] / grid
        length = math.sqrt(float(squared_length(rows[i])))
        factor = 1.0 if length <= radius else radius / length
        for _ in range(64):
            for j in range(columns):
                out[i, j] = math.trunc(rows[i, j] * factor)
            if squared_length(out[i, :columns]) <= radius * radius:
                break
            factor *= 1 - 2.0**-20
        if squared_length(out[i, :columns]) > radius * radius:  # cannot be, and would break the bound
            out[i, :columns] = 0.0
        scaled = residual * factor * grid
        out[i, columns] = math.trunc(min(max(scaled, -float(clip)), float(clip)))


@njit(nogil=True)
def add_squares(rows: Floats, response: Floats, start: Floats, grid: float, steps: float, most: int) -> int:
    """The sum of every record's squared residual in ``steps`` a unit, rounded down and at most ``most``."""
    total = 0
    for i in range(rows.shape[0]):
        residual = response[i]
        for j in range(rows.shape[1]):
            residual -= rows[i, j] * start[j] / grid
        total += int(min(residual * residual * steps, float(most)))
    return total
