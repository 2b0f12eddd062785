r"""Contribution of one record to a generalised linear model: its pull on the linear predictor, its weight, and the factor that scales both down.

A record has a linear predictor u, a response y, and a row z of integers on a grid. Its pull r = dl/du and its weight w (the expected
-d^2 l/du^2) are functions of u and y, and q(u) bounds most of |r|. Both are multiplied by one factor of u and z alone, so the sum of pulls
keeps its root where it is: clipping a pull by itself would move it. Element by element, so no result depends on where a record stands.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from unpooled.kernels.compiled import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[Any]

LOGISTIC, POISSON, GAMMA, NEGATIVE_BINOMIAL = range(4)
#: A pull is rarely larger than 1 and two of its deviations (counts), or three times its mean (positive numbers).
_DEVIATIONS, _TIMES = 2.0, 3.0


@njit(nogil=True)
def pull(kind: int, dispersion: float, u: float, y: float) -> tuple[float, float, float]:
    """(r, w, q) of one record; ``dispersion`` of a negative binomial: its variance is m + dispersion m^2."""
    if kind == LOGISTIC:
        small = math.exp(-abs(u))  # one exponential and no branch: half the signs cannot be predicted
        p = (1.0 if u >= 0 else small) / (1.0 + small)
        return y - p, p * (1.0 - p), 1.0
    mean = math.exp(u)
    if kind == POISSON:
        return y - mean, mean, 1.0 + _DEVIATIONS * math.sqrt(mean)
    if kind == GAMMA:
        return (y - mean) / mean, 1.0, _TIMES
    weight = mean / (1.0 + dispersion * mean)
    return (y - mean) / (1.0 + dispersion * mean), weight, 1.0 + _DEVIATIONS * math.sqrt(weight)


@njit(nogil=True)
def pulls(
    family: tuple[int, float, float, float],
    left: Floats,
    response: Floats,
    square: Floats,
    grid: float,
    unit: float,
    longest: float,
    heaviest: float,
    weight: Floats,
) -> None:
    """Pulls in units of ``unit`` in the place of ``left`` (-u), and weights: both scaled down until q|z| and w|z|^2 are at most these.

    ``family`` is (kind, dispersion, lowest u, highest u). Endless bounds scale nothing.
    """
    kind, dispersion, low, high = family
    for i in range(left.size):
        r, w, q = pull(kind, dispersion, min(max(-left[i], low), high), response[i])
        length = math.sqrt(square[i]) / grid
        factor = 1.0
        if q * length > longest * unit:
            factor = longest * unit / (q * length)
        if w * length * length > heaviest:
            factor = min(factor, heaviest / (w * length * length))
        left[i] = factor * r / unit
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
