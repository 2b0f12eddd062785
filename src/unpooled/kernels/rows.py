"""What one record adds to a sum: standardised rows, pulls on a linear predictor, of several classes, over all rows of a person, and bounded directions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.kernels.compiled import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[Any]
    Floats = NDArray[Any]


# --- Standard rows ---------------------------------------------------------------------------------------------------------
# Standardised rows in integers, and what one pass over them adds up: clipped gradients, squared residuals, shortened rows.
#
# Every number here is a function of one record and of public values: whatever is rounded is computed element by element, in one order of
# columns for every record, and what is added up over records are integers that float64 holds exactly. So no result depends on where a record
# stands. A value is rounded toward zero on its grid, and lengths are checked on the integers, so every bound holds exactly.
#
# Rows are column-major arrays of floats that hold integers; squared lengths stay below 2^53 (the caller's grid sees to it).

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


# --- Glm rows --------------------------------------------------------------------------------------------------------------
# Contribution of one record to a generalised linear model: its pull on the linear predictor, its weight, and the factor that scales both down.
#
# A record has a linear predictor u, a response y, and a row z of integers on a grid. Its pull r = dl/du and its weight w (the expected
# -d^2 l/du^2) are functions of u and y that its family gives, and q(u) bounds most of |r|. Both are multiplied by one factor of u and z alone, so the sum of pulls
# keeps its root where it is: clipping a pull by itself would move it. Element by element, so no result depends on where a record stands.


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


# --- Class rows ------------------------------------------------------------------------------------------------------------
# Contribution of one record to a multinomial model: its pull on the linear predictors of all classes, and its weights of pairs of classes.
#
# With p the probabilities of the C classes the pull is e_y - p and the weight diag p - pp' = sum over pairs a < b of p_a p_b (e_a - e_b)(e_a - e_b)'.
# Pull and weights are multiplied by one factor of p and the row alone, so that the sum of pulls keeps its root. Element by element, record after
# record, so no result depends on where a record stands.

#: No pull of classes is longer.
LONGEST_PULL = math.sqrt(2.0)
#: A length computed in floating point that is shorter than a bound by this part of it is so in truth.
_MARGIN = 1 - 2.0**-40


@njit(nogil=True)
def probabilities(left: Floats, i: int, out: Floats) -> None:
    """``out`` = the probabilities of the classes of record ``i``, whose linear predictors are ``-left[:, i]``."""
    classes = left.shape[0]
    most = -left[0, i]
    for a in range(1, classes):
        most = max(most, -left[a, i])
    total = 0.0
    for a in range(classes):
        out[a] = math.exp(-left[a, i] - most)
        total += out[a]
    for a in range(classes):
        out[a] /= total


@njit(nogil=True)
def weight_norm(p: Floats) -> float:
    """Return the Frobenius norm of diag p - p p'."""
    total = 0.0
    for a in range(p.size):
        total += (p[a] * (1.0 - p[a])) ** 2
        for b in range(a + 1, p.size):
            total += 2.0 * (p[a] * p[b]) ** 2
    return math.sqrt(total)


@njit(nogil=True)
def class_pulls(
    left: Floats, label: Floats, square: Floats, grid: float, limits: tuple[float, float, float], p: Floats, weight: Floats
) -> None:
    """Pulls in units of ``limits[0]`` in the place of ``left`` (-u of every class), and the weights of pairs, both scaled down.

    ``limits`` are (unit, longest, heaviest): sqrt 2 times the row's length stays below longest units, the Frobenius norm of the weight times the
    length's square below heaviest. Endless ones scale nothing. ``p`` has a place for every class.
    """
    classes = left.shape[0]
    unit, longest, heaviest = limits
    for i in range(left.shape[1]):
        probabilities(left, i, p)
        length = math.sqrt(square[i]) / grid
        factor = 1.0
        if LONGEST_PULL * length > longest * unit:
            factor = longest * unit / (LONGEST_PULL * length)
        heavy = weight_norm(p) * length * length
        if heavy > heaviest:
            factor = min(factor, heaviest / heavy)
        place = 0
        for a in range(classes):
            told = 1.0 if int(label[i]) == a else 0.0
            left[a, i] = factor * (told - p[a]) / unit
            for b in range(a + 1, classes):
                weight[place, i] = factor * p[a] * p[b]
                place += 1


@njit(nogil=True)
def classes_are_scaled_down(
    left: Floats, square: Floats, grid: float, limits: tuple[float, float, float], p: Floats, scaled: Floats
) -> None:
    """Fill ``scaled`` with 1 for each record that :func:`pulls` would scale down at these limits, and with 0 for the others."""
    unit, longest, heaviest = limits
    for i in range(left.shape[1]):
        probabilities(left, i, p)
        length = math.sqrt(square[i]) / grid
        short = LONGEST_PULL * length > longest * unit or weight_norm(p) * length * length > heaviest
        scaled[i] = 1.0 if short else 0.0


@njit(nogil=True)
def cut_vectors(pull: Floats, square: Floats, fine: float, farthest: int, longest: int) -> None:
    """Pulls in integers, rounded toward zero, whose length times that of their row is at most ``longest``, in place."""
    classes = pull.shape[0]
    for i in range(pull.shape[1]):
        length = ceil_root(square[i])
        most = float(min(farthest, longest // length) if length else farthest)
        whole = 0.0
        for a in range(classes):
            pull[a, i] = math.trunc(min(max(pull[a, i] * fine, -float(farthest)), float(farthest)))
            whole += pull[a, i] * pull[a, i]
        if whole <= most * most * _MARGIN:
            continue
        factor = most / math.sqrt(whole) * _MARGIN
        whole = 0.0
        for a in range(classes):
            pull[a, i] = math.trunc(pull[a, i] * factor)
            whole += pull[a, i] * pull[a, i]
        if whole > most * most * _MARGIN:  # what rounding left too long cannot be, and would count as nothing
            for a in range(classes):
                pull[a, i] = 0.0


@njit(nogil=True)
def weigh_pairs(rows: Floats, weight: Floats, coarse: float, heaviest: float, out: Floats) -> None:
    """``out[k] = trunc(rows * sqrt(weight[k]) * coarse)`` for every pair k of classes, so short that their sum of products is.

    With s_ab the squared lengths of what is left, the Laplacian of the s_ab has a Frobenius norm of at most ``heaviest``; a record whose has not
    is shortened once, and where rounding left it too long, which cannot be, it counts as nothing. ``weight`` is used up.
    """
    pairs, columns = weight.shape[0], rows.shape[1]
    classes = int((1.0 + math.sqrt(1.0 + 8.0 * pairs)) / 2.0 + 0.5)
    scale, square = np.empty(rows.shape[0]), np.zeros(weight.shape)
    for k in range(pairs):
        for i in range(rows.shape[0]):
            scale[i] = math.sqrt(weight[k, i]) * coarse
        for j in range(columns):
            for i in range(rows.shape[0]):
                value = math.trunc(rows[i, j] * scale[i])
                out[k, i, j] = value
                square[k, i] += value * value
    for i in range(rows.shape[0]):
        found = laplacian(square, i, classes)
        shorter = 1.0
        for _ in range(2):
            if found <= heaviest * _MARGIN:
                break
            shorter = math.sqrt(heaviest / found) * (1 - 2.0**-30) if shorter == 1.0 else 0.0
            for k in range(pairs):
                square[k, i] = 0.0
                for j in range(columns):
                    out[k, i, j] = math.trunc(out[k, i, j] * shorter)
                    square[k, i] += out[k, i, j] * out[k, i, j]
            found = laplacian(square, i, classes)


@njit(nogil=True)
def laplacian(square: Floats, i: int, classes: int) -> float:
    """Return the Frobenius norm of the Laplacian whose weights are the squared lengths of record ``i`` under each pair."""
    total = 0.0
    for a in range(classes):
        degree = 0.0
        for b in range(classes):
            if a == b:
                continue
            low, high = min(a, b), max(a, b)
            own = square[low * classes - low * (low + 1) // 2 + high - low - 1, i]
            degree += own
            total += own * own
        total += degree * degree
    return math.sqrt(total)


# --- Person rows -----------------------------------------------------------------------------------------------------------
# Contribution of one person to a piecewise exponential model: the totals over the intervals in which the person was followed.
#
# Interval j has a width and a log hazard a_j; u = z.b is the person's part. To the time t of exit the hazards add up to L(t). A person is followed
# until L reaches a public cap: a stopping time, so that the pull (event seen) - L keeps its expectation of 0. Pulls and weights are multiplied by
# one factor of u and the row alone. Element by element, so no result depends on where a person stands.

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
def person_pulls(
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
def people_are_scaled_down(
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
        limit = min(farthest, longest // length) if length else farthest
        whole[i] = min(max(step, -limit), limit)


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


# --- Directions ------------------------------------------------------------------------------------------------------------
# Rows scaled to a bounded length on a grid, one record after the other.

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


# --- Focus rows ------------------------------------------------------------------------------------------------------------
# Pairs of rows of integers whose product is bounded, record by record.


@njit(nogil=True)
def shorten_products(first: Floats, second: Floats, most: int) -> None:
    """Shorten rows of ``first`` until their length times that of the row of ``second`` is at most ``most``, in place, rounded toward zero."""
    for i in range(first.shape[0]):
        own, other = 0.0, 0.0
        for j in range(first.shape[1]):
            own += first[i, j] * first[i, j]
        for j in range(second.shape[1]):
            other += second[i, j] * second[i, j]
        length = ceil_root(other)
        if length == 0:
            continue
        far = most // length
        if own <= float(far) * float(far):
            continue
        factor = float(far) / math.sqrt(own) * (1 - 2.0**-40)
        own = 0.0
        for j in range(first.shape[1]):
            first[i, j] = math.trunc(first[i, j] * factor)
            own += first[i, j] * first[i, j]
        if own > float(far) * float(far):  # which cannot be
            for j in range(first.shape[1]):
                first[i, j] = 0.0
