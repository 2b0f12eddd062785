r"""Contribution of one record to a multinomial model: its pull on the linear predictors of all classes, and its weights of pairs of classes.

With p the probabilities of the C classes the pull is e_y - p and the weight diag p - pp' = sum over pairs a < b of p_a p_b (e_a - e_b)(e_a - e_b)'.
Pull and weights are multiplied by one factor of p and the row alone, so that the sum of pulls keeps its root. Element by element, record after
record, so no result depends on where a record stands.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.kernels.compiled import njit
from unpooled.kernels.standard_rows import ceil_root

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[Any]

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
def pulls(
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
def are_scaled_down(
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
