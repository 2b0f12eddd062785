r"""Contribution of one record to a generalised linear model: its pull on the linear predictor, its weight, and the factor that scales both down.

A record has a linear predictor u, a response y, and a row z of integers on a grid. Its pull r = dl/du and its weight w (the expected
-d^2 l/du^2) are functions of u and y that its family gives, and q(u) bounds most of |r|. Both are multiplied by one factor of u and z alone, so the sum of pulls
keeps its root where it is: clipping a pull by itself would move it. Element by element, so no result depends on where a record stands.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from unpooled.kernels.compiled import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[Any]


@njit(nogil=True)
def scale_down(
    pull: Floats, weight: Floats, usual: Floats, square: Floats, grid: float, unit: float, longest: float, heaviest: float
) -> None:
    """Turn pulls into units of ``unit``, and scale pulls and weights down until q|z| and w|z|^2 are at most these.

    ``usual`` is q, the bound on most pulls of each record. Infinite bounds scale nothing.
    """
    for i in range(pull.size):
        q, w = usual[i], weight[i]
        length = math.sqrt(square[i]) / grid
        factor = 1.0
        if q * length > longest * unit:
            factor = longest * unit / (q * length)
        if w * length * length > heaviest:
            factor = min(factor, heaviest / (w * length * length))
        pull[i] = factor * pull[i] / unit
        weight[i] = factor * w


@njit(nogil=True)
def weigh_rows(rows: Floats, square: Floats, weight: Floats, coarse: float, radius: int, out: Floats) -> None:
    """``out = trunc(rows * sqrt(weight) * coarse)``, no row longer than ``radius``; ``square`` and ``weight`` are used up.

    A row that rounding left too long cannot be, and would count as nothing.
    """
    far = float(radius) / coarse
    for i in range(square.size):
        factor = math.sqrt(weight[i])
        if factor * math.sqrt(square[i]) > far:
            factor = far / math.sqrt(square[i])
        weight[i] = factor * (1 - 2.0**-40) * coarse
        square[i] = 0.0
    for j in range(rows.shape[1]):
        for i in range(square.size):
            out[i, j] = math.trunc(rows[i, j] * weight[i])
            square[i] += out[i, j] * out[i, j]
    for i in range(square.size):
        if square[i] > float(radius) * float(radius):
            for j in range(rows.shape[1]):
                out[i, j] = 0.0


@njit(nogil=True)
def log_exposures(
    exposure: Floats, ends: tuple[float, float], offset: Floats, limits: tuple[float, float], out: Floats
) -> None:
    """``out = log(exposure) + offset``, each inside its declared range; an empty array is left out."""
    for i in range(out.size):
        value = 0.0
        if exposure.size:
            value = math.log(min(max(exposure[i], ends[0]), ends[1]))
        if offset.size:
            value += min(max(offset[i], limits[0]), limits[1])
        out[i] = value


@njit(nogil=True)
def add_base(response: Floats, high: float, offset: Floats, most: float, steps: int) -> tuple[int, int]:
    """Return the sums over records of y / high and of exp(offset - most), each at most 1, in units of 1 / ``steps``, rounded down."""
    responses, exposures = 0, 0
    for i in range(response.size):
        responses += int(min(max(response[i] / high, 0.0), 1.0) * steps)
        exposures += int(min(math.exp(offset[i] - most), 1.0) * steps)
    return responses, exposures
