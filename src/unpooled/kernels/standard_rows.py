r"""Standardised rows in integers, and what one pass over them adds up: clipped gradients, squared residuals, shortened rows.

Every number here is a function of one record and of public values: whatever is rounded is computed element by element, in one order of
columns for every record, and what is added up over records are integers that float64 holds exactly. So no result depends on where a record
stands. A value is rounded toward zero on its grid, and lengths are checked on the integers, so every bound holds exactly.

Rows are column-major arrays of floats that hold integers; squared lengths stay below 2^53 (the caller's grid sees to it).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.kernels.compiled import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[Any]
    Floats = NDArray[Any]

#: Residuals of several responses together are at most this many steps: their squares stay below 2^53.
_MOST_STEPS = 1 << 26


@njit(nogil=True)
def standardise_rows(
    coded: Floats, middle: Floats, inverse: Floats, cap: float, one: float, grid: float, out: Floats
) -> None:
    """``out = trunc(clip((coded - middle) * inverse, -cap, cap) * grid)``, and last the constant where ``one`` is positive."""
    rows, columns = coded.shape
    for j in range(columns):
        centre, scale = middle[j], inverse[j]
        for i in range(rows):
            value = (coded[i, j] - centre) * scale
            out[i, j] = math.trunc(min(max(value, -cap), cap) * grid)
    if one > 0:
        for i in range(rows):
            out[i, columns] = math.trunc(one * grid)


@njit(nogil=True)
def ceil_root(square: float) -> int:
    """Return the smallest integer whose square is at least this integer, which is below 2^53."""
    whole = int(square)
    root = int(math.sqrt(square))
    while root * root < whole:
        root += 1
    while root > 0 and (root - 1) * (root - 1) >= whole:
        root -= 1
    return root


@njit(nogil=True)
def leave(rows: Floats, response: Floats, start: Floats, grid: float, residual: Floats, square: Floats) -> None:
    """Compute the residual of every response at ``start``, and the squared length of every row, in place."""
    leave_from(rows, 0, response, start, grid, residual, square)


@njit(nogil=True)
def leave_from(
    rows: Floats, first: int, response: Floats, start: Floats, grid: float, residual: Floats, square: Floats
) -> None:
    """Do the same for the rows of a block from ``first`` on, one row for each response.

    A block whose columns each lie in one piece is read four columns at a time.
    """
    for i in range(response.size):
        residual[i] = response[i]
        square[i] = 0.0
    columns = rows.shape[1]
    fours = columns - columns % 4
    for j in range(0, fours, 4):  # every row still takes the columns in their order, so no bit changes
        a, b, c, d = start[j] / grid, start[j + 1] / grid, start[j + 2] / grid, start[j + 3] / grid
        for i in range(response.size):
            at = first + i
            p, q, r, s = rows[at, j], rows[at, j + 1], rows[at, j + 2], rows[at, j + 3]
            residual[i] = residual[i] - p * a - q * b - r * c - s * d
            square[i] = square[i] + p * p + q * q + r * r + s * s
    for j in range(fours, columns):
        slope = start[j] / grid
        for i in range(response.size):
            value = rows[first + i, j]
            residual[i] -= value * slope
            square[i] += value * value


@njit(nogil=True)
def cut_residuals(residual: Floats, square: Floats, fine: float, farthest: int, longest: int) -> None:
    """Residuals in integers, ``|r| <= farthest`` and ``|r||z| <= longest`` for rows of these squared lengths, in place."""
    for i in range(residual.size):
        step = int(min(max(residual[i] * fine, -float(farthest)), float(farthest)))
        length = ceil_root(square[i])
        most = min(farthest, longest // length) if length else farthest
        residual[i] = min(max(step, -most), most)


@njit(nogil=True)
def cut_together(residuals: Floats, square: Floats, fine: float, longest: int) -> None:
    """Residuals of several responses (a row of each) in integers, in place: together ``|r||z| <= longest`` for rows of these squared lengths.

    All responses of a record are shortened by one factor and rounded toward zero. Residuals that rounding left too long count as nothing.
    """
    count = residuals.shape[0]
    for i in range(square.size):
        length = ceil_root(square[i])
        most = float(min(longest // length, _MOST_STEPS)) if length else 0.0
        whole = 0.0
        for k in range(count):
            step = residuals[k, i] * fine
            whole += step * step
        factor = fine if whole <= most * most else fine * most / math.sqrt(whole) * (1 - 2.0**-40)
        cut = 0.0
        for k in range(count):
            residuals[k, i] = math.trunc(residuals[k, i] * factor)
            cut += residuals[k, i] * residuals[k, i]
        if cut > most * most:
            for k in range(count):
                residuals[k, i] = 0.0


@njit(nogil=True)
def shorten_rows(
    rows: Floats, residual: Floats, square: Floats, coarse: float, grid: float, radius: int, clip: int, out: Floats
) -> None:
    """Rows shortened to ``radius`` on a grid that is ``coarse`` times as fine, and their residuals by the same factor.

    A linear model stays what it is. A row that rounding left too long cannot be, and would count as nothing. ``out`` has a column more.
    """
    columns = rows.shape[1]
    far = float(radius) / coarse
    for i in range(residual.size):
        factor = 1.0 if square[i] <= far * far else far / math.sqrt(square[i]) * (1 - 2.0**-40)
        out[i, columns] = math.trunc(min(max(residual[i] * factor * grid, -float(clip)), float(clip)))
        square[i] = factor * coarse
    for j in range(columns):
        for i in range(residual.size):
            out[i, j] = math.trunc(rows[i, j] * square[i])
    for i in range(residual.size):
        square[i] = 0.0
    for j in range(columns):
        for i in range(residual.size):
            square[i] += out[i, j] * out[i, j]
    for i in range(residual.size):
        if square[i] > float(radius) * float(radius):
            for j in range(columns + 1):
                out[i, j] = 0.0


@njit(nogil=True)
def shorten_columns(rows: Floats, columns: int, far: float) -> None:
    """Shorten the first ``columns`` of every row to the length ``far`` in steps of the grid, rounded toward zero, in place.

    No bound rests on it: whatever is summed over such rows is cut by the length that they then have.
    """
    square = np.zeros(rows.shape[0])
    for j in range(columns):
        for i in range(square.size):
            square[i] += rows[i, j] * rows[i, j]
    for i in range(square.size):
        length = math.sqrt(square[i])
        square[i] = far / length if length > far else 1.0
    for j in range(columns):
        for i in range(square.size):
            if square[i] < 1:
                rows[i, j] = math.trunc(rows[i, j] * square[i])


@njit(nogil=True)
def add_squares(residual: Floats, steps: float, most: int) -> int:
    """Return the sum of every record's squared residual in ``steps`` a unit, rounded down and at most ``most``."""
    total = 0
    for i in range(residual.size):
        total += int(min(residual[i] * residual[i] * steps, float(most)))
    return total
