r"""Exact integer noise from random words: a fast floating-point path with a proven band, a slow exact path behind it.

Every sampler here inverts (or rejects from) an exact law. The fast path computes a candidate in double precision together
with a band that its error cannot leave; when no decision boundary lies inside the band the candidate IS the exact answer.
Otherwise the coordinate is flagged, and the slow path decides with :mod:`decimal`: 90 digits and 256 further random bits, and
where these leave a doubt (a tie, a tail that no such number of bits resolves) 256 more and as many digits, until there is none.
The result is therefore a function of the random bits alone: the same on every machine, for any chunking and thread count.

What remains inexact is a doubt after the last block of further bits: less than ``2**-16000`` per coordinate, which no float
holds, so that the law is right in ratio, not in sum only, out to tails of ``e**-10000``. Events carry ``TOTAL_VARIATION``, the
smallest float, in its place, and the accountant knows what it stands for.

The bands. ``_quantile`` is Wichura's AS 241 (PPND16, accurate to 1e-16 for its rational functions). All coefficients and
arguments are non-negative, so Horner's rule is relatively stable (Higham 2002, section 5.1): numerator, denominator, quotient and the
rounding of the argument together stay below ``2**-47``; the band is ``2**-44``, eight times that. The resolution of a
63-bit uniform moves the quantile by less than ``2**-49`` of itself while the tail exceeds ``2**-20``; smaller tails are flagged.
No function in this file knows what privacy is.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from decimal import Context, Decimal, getcontext, localcontext
from functools import lru_cache
from itertools import count
from statistics import NormalDist
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from unpooled.kernels.compiled import njit

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    #: ``more(j)``: the j-th further block of 256 random bits that belongs to one coordinate.
    MoreBits = Callable[[int], int]
    Words = NDArray[np.uint64]
    Integers = NDArray[np.int64]

#: Stands, in an event, for the distance of any sampler below from its ideal law, per coordinate: ``2**-16000`` (see the module's text).
TOTAL_VARIATION = 2.0**-1074
#: Largest scale whose discrete Gaussian is read from a cumulative table; beyond it, rejection from a rounded Gaussian.
TABLE_SCALE = 1024.0
#: Largest scale of a Laplace magnitude that is inverted in one piece; beyond it, high and low binary digits.
LAPLACE_SCALE = 2.0**20

T = TypeVar("T")
_SIGN = np.uint64(1 << 63)
_MAGNITUDE = np.uint64((1 << 63) - 1)
_GUIDE_BITS = 16
_EXACT = Context(prec=90)
#: Blocks of 256 further bits after which a doubt is left as it is.
_LAST = 64
#: Tails below this are beyond the standard library's quantile.
_SMALL = 1e-300
#: Relative error of a computed weight e^-x, per 1 + x: several times what the rounding of x and ``exp`` leave.
CHOICE_BAND = 2.0**-48
#: A weight of 1 in a choice is at most two to this power, and so many scores share one envelope.
CHOICE_POWER, CHOICE_TILE = 44, 64
#: Exponents from here on are not told apart in floating point: nothing but the exact path accepts a weight so small.
_FAR = 700.0
_LOG2_E_BELOW = math.log2(math.e) * (1 - 2.0**-48)


# --- the fast path --------------------------------------------------------------------------------------------------


@njit(inline="always")
def _quantile(v: np.uint64) -> float:
    """|z| with upper tail p = (v + 1/2) / 2^64, v < 2^63: Wichura (1988), AS 241, for p >= 2^-37."""
    q = np.float64(np.int64(0x7FFFFFFFFFFFFFFF) - np.int64(v)) * 2.0**-64
    if q <= 0.425:  # noqa: PLR2004 - the constants of AS 241
        r = 0.180625 - q * q
        # fmt: off
        a = ((((((2509.0809287301226727 * r + 33430.575583588128105) * r + 67265.770927008700853) * r
              + 45921.953931549871457) * r + 13731.693765509461125) * r + 1971.5909503065514427) * r
             + 133.14166789178437745) * r + 3.387132872796366608
        b = ((((((5226.495278852545925 * r + 28729.085735721942674) * r + 39307.89580009271061) * r
              + 21213.794301586595867) * r + 5394.1960214247511077) * r + 687.1870074920579083) * r
             + 42.313330701600911252) * r + 1.0
        # fmt: on
        return q * a / b
    s = math.sqrt(-math.log((np.float64(v) + 0.5) * 2.0**-64)) - 1.6
    # fmt: off
    c = ((((((7.7454501427834140764e-4 * s + 0.0227238449892691845833) * s + 0.241780725177450611770) * s
          + 1.27045825245236838258) * s + 3.64784832476320460504) * s + 5.7694972214606914055) * s
         + 4.6303378461565452959) * s + 1.42343711074968357734
    d = ((((((1.05075007164441684324e-9 * s + 5.475938084995344946e-4) * s + 0.0151986665636164571966) * s
          + 0.14810397642748007459) * s + 0.68976733498510000455) * s + 1.6763848301838038494) * s
         + 2.05319162663775882187) * s + 1.0
    # fmt: on
    return c / d


@njit(nogil=True)
def rounded_gaussian(words: Words, scale: float, out: Integers, flagged: Integers) -> int:
    """round(N(0, scale^2)) by inversion; returns how many coordinates were flagged for the exact path."""
    flags = 0
    for i in range(words.size):
        v = words[i] & _MAGNITUDE
        y = scale * _quantile(v)
        k = math.floor(y + 0.5)
        if abs(y + 0.5 - np.round(y + 0.5)) <= y * 2.0**-44 + scale * 2.0**-60 or v < np.uint64(1 << 44):
            flagged[flags] = i
            flags += 1
        out[i] = np.int64(-k) if words[i] & _SIGN else np.int64(k)
    return flags


@njit(nogil=True)
def discrete_gaussian_by_rejection(words: Words, accept: Words, scale: float, out: Integers, flagged: Integers) -> int:
    """Discrete Gaussian of a large scale: a rounded Gaussian k, kept with probability a(k) >= 1 - k^2 / (8 scale^4).

    a(k) = r(k) / r(0) with r(k) = exp(-k^2/2s^2) / P(rounded = k) = c / E_t[exp(-t^2/2s^2) cosh(k t / s^2)], t uniform
    on [-1/2, 1/2]; hence a(k) >= 1 / cosh(k / 2s^2). Whoever fails the bound is flagged and decided exactly.
    """
    gaussian_flags = rounded_gaussian(words, scale, out, flagged)
    flags, next_gaussian = 0, 0
    merged = np.empty(words.size, dtype=np.int64)
    for i in range(words.size):
        doubtful = next_gaussian < gaussian_flags and flagged[next_gaussian] == i
        if doubtful:
            next_gaussian += 1
        ratio = np.float64(out[i]) / (scale * scale)
        if doubtful or np.float64(accept[i]) * 2.0**-64 >= 1.0 - ratio * ratio / 8.0 - 2.0**-40:
            merged[flags] = i
            flags += 1
    flagged[:flags] = merged[:flags]
    return flags


@njit(nogil=True)
def from_table(words: Words, thresholds: Words, guide: NDArray[np.int16], out: Integers, flagged: Integers) -> int:
    """Magnitude m with thresholds[m-1] <= v < thresholds[m], a random sign; equality with a threshold is a tie."""
    flags = 0
    for i in range(words.size):
        v = words[i] & _MAGNITUDE
        m = np.int64(guide[v >> np.uint64(63 - _GUIDE_BITS)])
        while thresholds[m] < v:
            m += 1
        if thresholds[m] == v:
            flagged[flags] = i
            flags += 1
        out[i] = -m if words[i] & _SIGN else m
    return flags


@njit(nogil=True)
def discrete_laplace(words: Words, scale: float, shift: float, out: Integers, flagged: Integers) -> int:
    """Magnitude = the largest integer below scale * (shift - ln p); see :func:`discrete_laplace_shift` for shift."""
    flags = 0
    for i in range(words.size):
        v = words[i] & _MAGNITUDE
        y = scale * (shift - math.log((np.float64(v) + 0.5) * 2.0**-63))
        m = math.ceil(y) - 1
        if abs(y - np.round(y)) <= y * 2.0**-44 + scale * 2.0**-42 or v < np.uint64(1 << 43):
            flagged[flags] = i
            flags += 1
        out[i] = np.int64(-m) if words[i] & _SIGN else np.int64(m)
    return flags


@njit(nogil=True)
def discrete_laplace_by_digits(
    words: Words, low_words: Words, scale: float, bits: int, out: Integers, flagged: Integers
) -> int:
    """Geometric magnitude high * 2^bits + low, whose digits are independent; low is uniform, kept w.p. exp(-low/scale)."""
    flags, high_scale = 0, scale / 2.0**bits
    for i in range(words.size):
        v = words[i] & _MAGNITUDE
        y = -high_scale * math.log((np.float64(v) + 0.5) * 2.0**-63)
        high = np.int64(math.floor(y))
        low = np.int64(low_words[i] >> np.uint64(64 - bits))
        kept = np.float64(low_words[i] << np.uint64(bits)) * 2.0**-64
        magnitude = (high << bits) + low
        if (
            abs(y - np.round(y)) <= y * 2.0**-44 + high_scale * 2.0**-42
            or v < np.uint64(1 << 43)
            or kept >= 1.0 - np.float64(low) / scale - 2.0**-40
            or magnitude == 0
        ):
            flagged[flags] = i
            flags += 1
        out[i] = -magnitude if words[i] & _SIGN else magnitude
    return flags


# --- a choice: rejection from envelopes of tiles --------------------------------------------------------------------


@njit(inline="always")
def _magnitude(score: np.int64) -> np.uint64:
    return np.uint64(score) if score >= 0 else ~np.uint64(score) + np.uint64(1)


@njit(inline="always")
def _envelope(distance: np.uint64, rate: float, power: int) -> np.uint64:
    """An integer of at least 2^power e^(-rate distance) and little more: 2^-y is below its chords between whole y.

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
    """How far a candidate is below the best; the far sign of a score has an odd place. At most 2^64 - 1 is told."""
    if not signed:
        return best - (np.uint64(scores[place]) ^ _SIGN)
    magnitude = _magnitude(scores[place >> 1])
    if (place & 1) == (scores[place >> 1] >= 0):
        far = best + magnitude
        return far if far >= best else ~np.uint64(0)
    return best - magnitude


@njit(nogil=True)
def choice_tiles(scores: Integers, signed: bool, rate: float, power: int, masses: Words) -> np.uint64:
    """The best, and how much envelope every tile has if each of its candidates gets that of the tile's best.

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
        masses[b] = max(_magnitude(high), _magnitude(low)) if signed else np.uint64(high) ^ _SIGN
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


# --- the exact path -------------------------------------------------------------------------------------------------


def _settled(first: int, first_bits: int, more: MoreBits, decide: Callable[[Decimal], T | None]) -> T:
    """A step function of a uniform number whose leading bits are ``first``: further bits and digits until no doubt is left.

    With j + 1 blocks of further bits the number lies in an interval of 2^-256 (j + 1); the arithmetic of ``decide``, done with 90 + 78 j
    digits, is off by less than 10^-(70 + 77 j). Where it says the same at both ends of the interval, widened by that, it is right.
    """
    bits, width = first, first_bits
    for j in range(_LAST):
        bits, width = (bits << 256) | more(j), width + 256
        with localcontext(_EXACT, prec=_EXACT.prec + 78 * j):
            unit, error = Decimal(1 << width), Decimal(10) ** -(70 + 77 * j)
            low = decide(max(Decimal(0), Decimal(bits) / unit - error))
            if low is not None and low == decide(Decimal(bits + 1) / unit + error):
                return low
    with localcontext(_EXACT):  # reached with a probability below 2^-16000
        first = (first << 256) | more(0)
        left = decide(Decimal(max(first, 1 << max(first_bits, 1))) / Decimal(1 << (first_bits + 256)))
    assert left is not None
    return left


def _apart(more: MoreBits, block: int) -> MoreBits:
    """The further bits of one of several uniform numbers of a coordinate: its first block is ``block``, and no other number has its others."""
    return lambda j: more(block + (j << 32))


def _upper_tail(x: Decimal) -> Decimal:
    """P(N(0,1) > x) for x >= 0, but for the last 20 digits: 1/2 - phi(x) sum x^(2n+1) / (2n+1)!!, a series of positive terms."""
    digits = getcontext().prec
    term = total = x
    square, n = x * x, 1
    least = Decimal(10) ** (5 - digits)
    while term > least * total:
        n += 2
        term *= square / n
        total += term
    return Decimal("0.5") - (-square / 2).exp() * total / (2 * _pi(digits)).sqrt()


@lru_cache(maxsize=8)
def _pi(digits: int) -> Decimal:
    """Pi to so many digits and ten more, by Machin's formula 16 arctan(1/5) - 4 arctan(1/239)."""

    def arctan_of_inverse(n: int) -> Decimal:
        power = total = Decimal(1) / n
        for k in count(1):
            power = -power / (n * n)
            if abs(power) < Decimal(10) ** -(digits + 5):
                break
            total += power / (2 * k + 1)
        return total

    with localcontext(_EXACT, prec=digits + 10):
        return 16 * arctan_of_inverse(5) - 4 * arctan_of_inverse(239)


def _gaussian_magnitude(tail: Decimal, scale: Decimal) -> int | None:
    """The k >= 0 with P(N > (k + 1/2)/scale) <= tail < P(N > (k - 1/2)/scale); none has a tail of 0."""
    if not tail:
        return None
    near = float(tail)
    guess = -NormalDist().inv_cdf(near) if near > _SMALL else math.sqrt(-2 * float(tail.ln()))
    half = Decimal("0.5")

    def beyond(k: int) -> bool:
        return tail >= _upper_tail((k + half) / scale)

    high = max(0, math.floor(guess * float(scale) + 0.5))
    low, step = high - 1, 1
    while not beyond(high):
        low, high, step = high, high + step, 2 * step
    while low >= 0 and beyond(low):
        low, high, step = max(-1, low - step), low, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if beyond(middle) else (middle, high)
    return high


def exact_rounded_gaussian(word: int, more: MoreBits, scale: float) -> int:
    """What :func:`rounded_gaussian` must return for this word."""
    k = _settled(word & int(_MAGNITUDE), 64, more, lambda tail: _gaussian_magnitude(tail, Decimal(scale)))
    return -k if word >> 63 else k


def exact_discrete_gaussian(word: int, accept: int, more: MoreBits, scale: float) -> int:
    """What :func:`discrete_gaussian_by_rejection` must return; a rejected value is drawn anew from further blocks."""
    s, half = Decimal(scale), Decimal("0.5")

    def ratio(k: int) -> Decimal:
        square = Decimal(k * k) / (2 * s * s)
        with localcontext(
            prec=getcontext().prec + 10 + int(square)
        ):  # a small mass is a difference: digits for its smallness
            mass = _upper_tail((k - half) / s) - _upper_tail((k + half) / s) if k else 1 - 2 * _upper_tail(half / s)
            return (-square).exp() / mass

    for block in count(step=3):
        k = _settled(word & int(_MAGNITUDE), 64, _apart(more, block), lambda tail: _gaussian_magnitude(tail, s))
        if _settled(accept, 64, _apart(more, block + 1), lambda u, k=k: u * ratio(0) < ratio(k)):  # type: ignore[misc]
            return -k if word >> 63 else k
        word, accept = divmod(more(block + 2) & ((1 << 128) - 1), 1 << 64)
    raise AssertionError  # pragma: no cover - the loop has no other end


def exact_from_table(word: int, more: MoreBits, scale: float) -> int:
    """What :func:`from_table` must return: the m with P(|X| <= m - 1) <= u < P(|X| <= m)."""
    bits = word & int(_MAGNITUDE)
    for j in range(_LAST):
        bits, cumulative = (bits << 256) | more(j), _cumulative(scale, j + 1)
        m = bisect_right(cumulative, bits)
        # An entry is off by less than one unit; the last one stands for all that follow.
        clear = m + 1 < len(cumulative) and bits + 2 < cumulative[m] and (m == 0 or bits - 2 >= cumulative[m - 1])
        if clear:
            break
    return -m if word >> 63 else m


def exact_discrete_laplace(word: int, more: MoreBits, scale: float) -> int:
    """What :func:`discrete_laplace` must return: the largest m with p < P(|X| >= m) = 2 q^m / (1 + q)."""
    s = Decimal(scale)

    def magnitude(p: Decimal) -> int | None:
        return max(0, math.ceil(s * ((2 / (1 + (-1 / s).exp())).ln() - p.ln())) - 1) if p else None

    m = _settled(word & int(_MAGNITUDE), 63, more, magnitude)
    return -m if word >> 63 else m


def exact_discrete_laplace_by_digits(word: int, low_word: int, more: MoreBits, scale: float, bits: int) -> int:
    """What :func:`discrete_laplace_by_digits` must return; a minus zero or a rejected low part is drawn anew."""
    s, mask = Decimal(scale), (1 << (64 - bits)) - 1
    blocks = count()

    def digit(p: Decimal) -> int | None:
        return math.floor(-(s / (1 << bits)) * min(p, Decimal(1)).ln()) if p else None

    while True:
        high = _settled(word & int(_MAGNITUDE), 63, _apart(more, next(blocks)), digit)
        while True:
            low, own = low_word >> (64 - bits), _apart(more, next(blocks))
            if _settled(low_word & mask, 64 - bits, own, lambda u, low=low: u < (-Decimal(low) / s).exp()):  # type: ignore[misc]
                break
            low_word = more(next(blocks)) & ((1 << 64) - 1)
        magnitude = (high << bits) + low
        negative = word >> 63
        if magnitude or not negative:  # a geometric pair counts zero twice, with either sign: keep it once
            return -magnitude if negative else magnitude
        word, low_word = divmod(more(next(blocks)) & ((1 << 128) - 1), 1 << 64)


def exact_acceptance(rest: int, more: MoreBits, rate: float, distance: int, power: int) -> bool:
    """Whether rest, with further bits behind its point, is below 2^power e^-(rate distance)."""
    return _settled(rest, 0, more, lambda u: u < (-Decimal(rate) * distance).exp() * (1 << power))


# --- tables and constants ---------------------------------------------------------------------------------------------


@lru_cache(maxsize=32)
def _cumulative(scale: float, blocks: int) -> tuple[int, ...]:
    """P(|X| <= m) for m = 0, 1, .. of a discrete Gaussian, as integers of 63 + 256 ``blocks`` bits, rounded down.

    Weights by the recurrence w(m+1) = w(m) q^(2m+1), q = exp(-1/2s^2), in fixed point of 81 further bits: no rounding above 2^-60 of a unit.
    """
    precision = 144 + 256 * blocks
    with localcontext(_EXACT, prec=52 + 78 * blocks):
        q = int((-1 / (2 * Decimal(scale) ** 2)).exp() * (1 << precision))
    weight, ratio, square = 1 << precision, q, (q * q) >> precision
    weights = [weight]
    while weight >> 70:  # stop when what is left is below 2^-11 of a unit
        weight = (weight * ratio) >> precision
        ratio = (ratio * square) >> precision
        weights.append(2 * weight)
    total, running, cumulative = sum(weights), 0, []
    for w in weights:
        running += w
        cumulative.append((running << (63 + 256 * blocks)) // total)
    return tuple(cumulative)


@lru_cache(maxsize=32)
def discrete_gaussian_table(scale: float) -> tuple[tuple[int, ...], Words, NDArray[np.int16]]:
    """P(|X| <= m) * 2^319 for m = 0, 1, .., its leading 63 bits, and where a search for a given prefix may begin."""
    cumulative = _cumulative(scale, 1)
    # A magnitude m is chosen when v < thresholds[m]; equality of the leading bits is the tie that needs the rest.
    thresholds = np.array([min(c >> 256, (1 << 63) - 1) for c in cumulative], dtype=np.uint64)
    prefixes = np.arange(1 << _GUIDE_BITS, dtype=np.uint64) << np.uint64(63 - _GUIDE_BITS)
    return cumulative, thresholds, np.searchsorted(thresholds, prefixes, side="left").astype(np.int16)


def discrete_laplace_shift(scale: float) -> float:
    """ln(2 / (1 + q)), q = exp(-1/scale): makes P(|X| >= m) = exp(shift - m/scale) for m >= 1."""
    return -math.log1p(math.expm1(-1 / scale) / 2)
