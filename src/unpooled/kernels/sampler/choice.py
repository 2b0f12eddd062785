"""A choice by the exponential mechanism: rejection from envelopes that tiles of scores share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from unpooled.kernels.compiled import njit
from unpooled.kernels.sampler.fast import SIGN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.kernels.sampler.fast import Integers, Words

#: Relative error of a computed weight e^-x, per 1 + x: several times what the rounding of x and ``exp`` leave.
CHOICE_BAND = 2.0**-48
#: A weight of 1 in a choice is at most two to this power, and so many scores share one envelope.
CHOICE_POWER, CHOICE_TILE = 44, 64
#: Exponents from here on are not told apart in floating point: nothing but the exact path accepts a weight so small.
_FAR = 700.0
_LOG2_E_BELOW = math.log2(math.e) * (1 - 2.0**-48)


@njit(inline="always")
def _magnitude(score: np.int64) -> np.uint64:
    return np.uint64(score) if score >= 0 else ~np.uint64(score) + np.uint64(1)


@njit(inline="always")
def _envelope(distance: np.uint64, rate: float, power: int) -> np.uint64:
    """Return an integer of at least 2^power e^(-rate distance) and little more: 2^-y is below its chords between whole y.

    Sums, products and shifts only: the same integer on every machine. Whatever is lost below 2^-48 of y and in the last
    place of the chord is less than the 2 that is added.
    """
    y = rate * np.float64(distance) * _LOG2_E_BELOW
    if y >= power:
        return np.uint64(1)
    whole = math.floor(y)
    return np.uint64((1.0 - (y - whole) / 2) * np.float64(np.int64(1) << (power - np.int64(whole)))) + np.uint64(2)


@njit(inline="always")
def _distance(place: int, scores: Integers, signed: bool, best: np.uint64) -> np.uint64:
    """Return the distance of a candidate below the best; the far sign of a score has an odd place. The result is at most 2^64 - 1."""
    if not signed:
        return best - (np.uint64(scores[place]) ^ SIGN)
    magnitude = _magnitude(scores[place >> 1])
    if (place & 1) == (scores[place >> 1] >= 0):
        far = best + magnitude
        return far if far >= best else ~np.uint64(0)
    return best - magnitude


@njit(nogil=True)
def choice_tiles(scores: Integers, signed: bool, rate: float, power: int, masses: Words) -> np.uint64:
    """Return the best, and how much envelope every tile has if each of its candidates gets that of the tile's best.

    The best is a magnitude, or without signs a score above -2^63, so that no difference overflows.
    """
    full = scores.size // CHOICE_TILE
    grid = scores[: full * CHOICE_TILE].reshape(full, CHOICE_TILE)  # loops over rows of a grid are vectorised best
    for b in range(masses.size):
        high = low = scores[b * CHOICE_TILE]
        if b < full:
            for i in range(CHOICE_TILE):
                high, low = max(high, grid[b, i]), min(low, grid[b, i])
        else:
            for score in scores[full * CHOICE_TILE :]:
                high, low = max(high, score), min(low, score)
        masses[b] = max(_magnitude(high), _magnitude(low)) if signed else np.uint64(high) ^ SIGN
    best: np.uint64 = masses.max()
    for b in range(masses.size):
        size = (min((b + 1) * CHOICE_TILE, scores.size) - b * CHOICE_TILE) * (2 if signed else 1)
        masses[b] = np.uint64(size) * _envelope(best - masses[b], rate, power)
    return best


@njit(nogil=True)
def choice_trials(
    words: Words,
    at: int,
    scores: Integers,
    signed: bool,
    rate: float,
    power: int,
    band: float,
    best: np.uint64,
    masses: Words,
    refined: NDArray[np.bool_],
) -> tuple[int, int, np.uint64, bool]:
    """Trials with words at, at + 1, ..: the place after the last one's word, its candidate (-1: words ran out), what was left, in doubt.

    A word is a uniform integer below the sum of all envelopes (or is passed over). It falls into a candidate's envelope;
    what is left, below that envelope, decides whether the candidate is taken: if, with further bits behind its point, it
    is below the candidate's weight. A tile whose candidate is not taken gets envelopes of its own for all its candidates.
    """
    factor, one = (2 if signed else 1), np.uint64(1)
    total = masses.sum()
    for t in range(at, words.size):
        if words[t] > ~np.uint64(0) - (~total + one) % total:  # beyond the last multiple of the total
            continue
        rest = words[t] % total
        tile = 0
        while rest >= masses[tile]:
            rest -= masses[tile]
            tile += 1
        low, high = factor * tile * CHOICE_TILE, factor * min((tile + 1) * CHOICE_TILE, scores.size)
        place = low
        if refined[tile]:
            envelope = _envelope(_distance(place, scores, signed, best), rate, power)
            while rest >= envelope:
                rest -= envelope
                place += 1
                envelope = _envelope(_distance(place, scores, signed, best), rate, power)
        else:
            envelope = masses[tile] // np.uint64(high - low)
            place += int(rest // envelope)
            rest %= envelope
        x = min(rate * np.float64(_distance(place, scores, signed, best)), _FAR)
        weight = math.exp(-x) * 2.0**power
        doubt = weight * (1.0 + x) * band + 2.0**-40
        if np.float64(rest) + 1.0 <= weight - doubt:
            return t + 1, place, rest, False
        if not refined[tile]:
            refined[tile] = True
            total -= masses[tile]
            masses[tile] = 0
            for other in range(low, high):
                masses[tile] += _envelope(_distance(other, scores, signed, best), rate, power)
            total += masses[tile]
        if np.float64(rest) < weight + doubt:
            return t + 1, place, rest, True
    return words.size, -1, np.uint64(0), False
