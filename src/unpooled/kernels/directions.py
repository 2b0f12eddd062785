"""Rows scaled to a bounded length on a grid, one record after the other."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from unpooled.kernels.compiled import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[Any]

#: Rows shorter than this have no direction.
NOTHING = 1e-100


@njit(nogil=True)
def scaled_rows(coded: Floats, longest: float, unit: bool, constant: float, grid: int, out: Floats) -> None:
    """Shorten rows to ``longest`` (``unit``: scale all to it), divide them by it, append a constant, and scale both to length 1 in all.

    In integers on the grid, rounded toward zero; a row that rounding left too long cannot be, and would count as nothing.
    """
    rows, columns = coded.shape
    share = (1 - 2.0**-40) / math.sqrt(1 + constant * constant)
    for i in range(rows):
        square = 0.0
        for j in range(columns):
            square += coded[i, j] * coded[i, j]
        length = math.sqrt(square)
        factor = share / longest
        if length > longest or (unit and length > NOTHING):
            factor = share / length
        whole = 0.0
        for j in range(columns):
            out[i, j] = math.trunc(coded[i, j] * factor * grid)
            whole += out[i, j] * out[i, j]
        if constant > 0:
            out[i, columns] = math.trunc(constant * share * grid)
            whole += out[i, columns] * out[i, columns]
        if whole > float(grid) * float(grid):
            for j in range(out.shape[1]):
                out[i, j] = 0.0
