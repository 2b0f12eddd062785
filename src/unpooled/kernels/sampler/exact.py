"""The exact path of the samplers: decimal arithmetic with all the random bits and digits that a decision needs, and tables."""

from __future__ import annotations

import math
from bisect import bisect_right
from decimal import Context, Decimal, getcontext, localcontext
from functools import lru_cache
from itertools import count
from statistics import NormalDist
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from unpooled.kernels.sampler.fast import GUIDE_BITS, MAGNITUDE

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from unpooled.kernels.sampler.fast import Words

    #: ``more(j)``: the j-th further block of 256 random bits that belongs to one coordinate.
    MoreBits = Callable[[int], int]

T = TypeVar("T")
_EXACT = Context(prec=90)
#: Blocks of 256 further bits after which a doubt is left as it is.
_LAST = 64
#: Tails below this are beyond the standard library's quantile.
_SMALL = 1e-300


def _settled(first: int, first_bits: int, more: MoreBits, decide: Callable[[Decimal], T | None]) -> T:
    """Return a step function of a uniform number whose leading bits are ``first``: further bits and digits until no doubt is left.

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
    """Return the further bits of one of several uniform numbers of a coordinate: its first block is ``block``, and no other number has its others."""
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
    """Return pi to ``digits`` digits and ten more, by Machin's formula 16 arctan(1/5) - 4 arctan(1/239)."""

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
    """Return the k >= 0 with P(N > (k + 1/2)/scale) <= tail < P(N > (k - 1/2)/scale); none has a tail of 0."""
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
    """Return the exact result of :func:`rounded_gaussian` for this word."""
    k = _settled(word & int(MAGNITUDE), 64, more, lambda tail: _gaussian_magnitude(tail, Decimal(scale)))
    return -k if word >> 63 else k


def exact_discrete_gaussian(word: int, accept: int, more: MoreBits, scale: float) -> int:
    """Return the exact result of :func:`discrete_gaussian_by_rejection`; a rejected value is drawn anew from further blocks."""
    s, half = Decimal(scale), Decimal("0.5")

    def ratio(k: int) -> Decimal:
        square = Decimal(k * k) / (2 * s * s)
        with localcontext(
            prec=getcontext().prec + 10 + int(square)
        ):  # a small mass is a difference: digits for its smallness
            mass = _upper_tail((k - half) / s) - _upper_tail((k + half) / s) if k else 1 - 2 * _upper_tail(half / s)
            return (-square).exp() / mass

    for block in count(step=3):
        k = _settled(word & int(MAGNITUDE), 64, _apart(more, block), lambda tail: _gaussian_magnitude(tail, s))
        if _settled(accept, 64, _apart(more, block + 1), lambda u, k=k: u * ratio(0) < ratio(k)):  # type: ignore[misc]
            return -k if word >> 63 else k
        word, accept = divmod(more(block + 2) & ((1 << 128) - 1), 1 << 64)
    raise AssertionError  # pragma: no cover - the loop has no other end


def exact_from_table(word: int, more: MoreBits, scale: float) -> int:
    """Return the exact result of :func:`from_table`: the m with P(|X| <= m - 1) <= u < P(|X| <= m)."""
    bits = word & int(MAGNITUDE)
    for j in range(_LAST):
        bits, cumulative = (bits << 256) | more(j), _cumulative(scale, j + 1)
        m = bisect_right(cumulative, bits)
        # An entry is off by less than one unit; the last one stands for all that follow.
        clear = m + 1 < len(cumulative) and bits + 2 < cumulative[m] and (m == 0 or bits - 2 >= cumulative[m - 1])
        if clear:
            break
    return -m if word >> 63 else m


def exact_discrete_laplace(word: int, more: MoreBits, scale: float) -> int:
    """Return the exact result of :func:`discrete_laplace`: the largest m with p < P(|X| >= m) = 2 q^m / (1 + q)."""
    s = Decimal(scale)

    def magnitude(p: Decimal) -> int | None:
        return max(0, math.ceil(s * ((2 / (1 + (-1 / s).exp())).ln() - p.ln())) - 1) if p else None

    m = _settled(word & int(MAGNITUDE), 63, more, magnitude)
    return -m if word >> 63 else m


def exact_discrete_laplace_by_digits(word: int, low_word: int, more: MoreBits, scale: float, bits: int) -> int:
    """Return the exact result of :func:`discrete_laplace_by_digits`; a minus zero or a rejected low part is drawn anew."""
    s, mask = Decimal(scale), (1 << (64 - bits)) - 1
    blocks = count()

    def digit(p: Decimal) -> int | None:
        return math.floor(-(s / (1 << bits)) * min(p, Decimal(1)).ln()) if p else None

    while True:
        high = _settled(word & int(MAGNITUDE), 63, _apart(more, next(blocks)), digit)
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
    """Return True if rest, with further bits behind its point, is below 2^power e^-(rate distance)."""
    return _settled(rest, 0, more, lambda u: u < (-Decimal(rate) * distance).exp() * (1 << power))


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
    prefixes = np.arange(1 << GUIDE_BITS, dtype=np.uint64) << np.uint64(63 - GUIDE_BITS)
    return cumulative, thresholds, np.searchsorted(thresholds, prefixes, side="left").astype(np.int16)
