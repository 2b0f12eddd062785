r"""Contribution of one person to a piecewise exponential model: the totals over the intervals in which the person was followed.

Interval j has a width and a log hazard a_j; u = z.b is the person's part. To the time t of exit the hazards add up to L(t). A person is followed
until L reaches a public cap: a stopping time, so that the pull (event seen) - L keeps its expectation of 0. Pulls and weights are multiplied by
one factor of u and the row alone. Element by element, so no result depends on where a person stands.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from unpooled.kernels.compiled import njit
from unpooled.kernels.standard_rows import ceil_root

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[Any]

#: A length computed in floating point that is shorter than a bound by this part of it is so in truth.
_MARGIN = 1 - 2.0**-40
#: Events are 0 or 1.
_HALF = 0.5
#: Larger linear predictors are not told apart.
_FARTHEST = 40.0


@njit(nogil=True)
def exits(time: Floats, happened: Floats, ends: Floats, out: Floats) -> None:
    """The cell of every person: twice the interval of exit (ends belong to the interval before them), and 1 more for an event.

    A person who is there at the last end, without an event until then, is in a cell after all others.
    """
    last = ends.size - 1
    for i in range(time.size):
        place = 0
        while place < last and time[i] > ends[place]:
            place += 1
        seen = happened[i] > _HALF and time[i] <= ends[last]
        out[i] = 2 * place + (1 if seen else 0)
        if not seen and time[i] >= ends[last]:
            out[i] = 2 * last + 2


@njit(nogil=True)
def pulls(
    left: Floats,
    other: Floats,
    hazard: Floats,
    ends: Floats,
    square: Floats,
    grid: float,
    limits: tuple[float, float, float, float, float],
    pull: Floats,
    weight: Floats,
) -> None:
    """Compute the pull of every interval and person, in units of ``limits[0]``, and the weight, both scaled down.

    ``left`` is -u, ``other`` has columns of times and events, ``limits`` are (unit, longest, heaviest, cap, constant): with q the larger of 1 and
    the hazard that a person can meet, q times the length of (row, constant twice) stays below longest units, and that hazard times the squared
    length of (row, constant) below heaviest.
    """
    unit, longest, heaviest, cap, constant = limits
    intervals = ends.size
    whole = 0.0
    before = 0.0
    for j in range(intervals):
        whole += hazard[j] * (ends[j] - before)
        before = ends[j]
    for i in range(left.size):
        risk = math.exp(min(max(-left[i], -_FARTHEST), _FARTHEST))
        most = min(whole * risk, cap)
        q = max(1.0, most)
        row = square[i] / (grid * grid)
        length = math.sqrt(row + 2.0 * constant * constant)
        factor = 1.0
        if q * length > longest * unit:
            factor = longest * unit / (q * length)
        heavy = most * (row + constant * constant)
        if heavy > heaviest:
            factor = min(factor, heaviest / heavy)
        time, happened = max(other[i, 0], 0.0), other[i, 1] > _HALF and other[i, 0] <= ends[intervals - 1]
        met, before = 0.0, 0.0
        for j in range(intervals):
            pull[j, i] = 0.0
            weight[j, i] = 0.0
            if time > before or (j == 0 and time == 0.0):
                rate = hazard[j] * risk
                added = rate * (min(time, ends[j]) - before)
                stops = met + added >= cap
                if stops:
                    added = cap - met
                seen = 1.0 if happened and time <= ends[j] and not stops else 0.0
                met += added
                pull[j, i] = factor * (seen - added) / unit
                weight[j, i] = factor * added
                if stops:
                    time = -1.0
            before = ends[j]


@njit(nogil=True)
def are_scaled_down(
    left: Floats, whole: float, square: Floats, grid: float, limits: tuple[float, float, float, float, float], scaled: Floats
) -> None:
    """Fill ``scaled`` with 1 for each person whom :func:`pulls` would scale down at these limits, and with 0 for the others.

    ``whole`` is the hazard of all intervals together of a person whose linear predictor is 0.
    """
    unit, longest, heaviest, cap, constant = limits
    for i in range(left.size):
        most = min(whole * math.exp(min(max(-left[i], -_FARTHEST), _FARTHEST)), cap)
        row = square[i] / (grid * grid)
        long = max(1.0, most) * math.sqrt(row + 2.0 * constant * constant) > longest * unit
        scaled[i] = 1.0 if long or most * (row + constant * constant) > heaviest else 0.0


@njit(nogil=True)
def cut_totals(pull: Floats, square: Floats, fine: float, one: float, farthest: int, longest: int, whole: Floats) -> None:
    """Pulls of every interval in integers, rounded toward zero, so that (``one`` times each, their sum times the row) is at most ``longest`` long.

    ``whole`` is their sum. In place. A person who would still be too long after that, which cannot be, counts as nothing.
    """
    intervals = pull.shape[0]
    for i in range(square.size):
        factor = fine
        for attempts_left in (1.0, 1.0, 0.0):
            factor *= attempts_left
            total, squares = 0.0, 0.0
            for j in range(intervals):
                value = math.trunc(min(max(pull[j, i] * factor, -float(farthest)), float(farthest)))
                total += value
                squares += value * value
            far = math.sqrt(one * one * squares + total * total * square[i])
            if far <= longest * _MARGIN:
                break
            # Rounding may make a sum of both signs larger by a step for each interval: shorter by far more than that.
            factor *= longest / far * (1 - 2.0**-12)
        whole[i] = 0.0
        for j in range(intervals):
            pull[j, i] = math.trunc(min(max(pull[j, i] * factor, -float(farthest)), float(farthest)))
            whole[i] += pull[j, i]


@njit(nogil=True)
def cut_sums(pull: Floats, square: Floats, fine: float, farthest: int, longest: int, whole: Floats) -> None:
    """The sum of every person's pulls in integers, rounded toward zero and cut so that its row times it is at most ``longest`` long."""
    for i in range(square.size):
        total = 0.0
        for j in range(pull.shape[0]):
            total += pull[j, i]
        step = int(min(max(total * fine, -float(farthest)), float(farthest)))
        length = ceil_root(square[i])
        most = min(farthest, longest // length) if length else farthest
        whole[i] = min(max(step, -most), most)


@njit(nogil=True)
def weigh_totals(
    rows: Floats, weight: Floats, scale: float, fine: float, one: float, heaviest: float, whole: Floats
) -> None:
    """Rows on a coarser grid (``scale`` times theirs) and weights in integers, so that their sum times (row, ``one``) squared is below ``heaviest``.

    Both in place, rounded toward zero; ``whole`` is the sum of a person's weights.
    """
    intervals, columns = weight.shape[0], rows.shape[1]
    for i in range(rows.shape[0]):
        square = one * one
        for j in range(columns):
            rows[i, j] = math.trunc(rows[i, j] * scale)
            square += rows[i, j] * rows[i, j]
        factor = fine
        for attempts_left in (1.0, 1.0, 0.0):
            factor *= attempts_left
            whole[i] = 0.0
            for k in range(intervals):
                whole[i] += math.trunc(weight[k, i] * factor)
            if whole[i] * square <= heaviest:
                break
            factor *= heaviest / (whole[i] * square) * _MARGIN
        for k in range(intervals):
            weight[k, i] = math.trunc(weight[k, i] * factor)
