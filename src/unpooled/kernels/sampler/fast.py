"""The fast path of the samplers: candidates in double precision, and a flag where only the exact path can decide."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from unpooled.kernels.compiled import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]
    Integers = NDArray[np.int64]

#: Largest scale whose discrete Gaussian is read from a cumulative table; beyond it, rejection from a rounded Gaussian.
TABLE_SCALE = 1024.0
#: Largest scale of a Laplace magnitude that is inverted in one piece; beyond it, high and low binary digits.
LAPLACE_SCALE = 2.0**20
#: The sign, and the rest, of a random word.
SIGN = np.uint64(1 << 63)
MAGNITUDE = np.uint64((1 << 63) - 1)
#: Leading bits of a word that a table's guide knows.
GUIDE_BITS = 16


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
        v = words[i] & MAGNITUDE
        y = scale * _quantile(v)
        k = math.floor(y + 0.5)
        if abs(y + 0.5 - np.round(y + 0.5)) <= y * 2.0**-44 + scale * 2.0**-60 or v < np.uint64(1 << 44):
            flagged[flags] = i
            flags += 1
        out[i] = np.int64(-k) if words[i] & SIGN else np.int64(k)
    return flags


@njit(nogil=True)
def discrete_gaussian_by_rejection(words: Words, accept: Words, scale: float, out: Integers, flagged: Integers) -> int:
    """Discrete Gaussian of a large scale: a rounded Gaussian k, kept with probability a(k) >= 1 - k^2 / (8 scale^4).

    a(k) = r(k) / r(0) with r(k) = exp(-k^2/2s^2) / P(rounded = k) = c / E_t[exp(-t^2/2s^2) cosh(k t / s^2)], t uniform
    on [-1/2, 1/2]; hence a(k) >= 1 / cosh(k / 2s^2). A candidate that fails the bound is flagged and decided exactly.
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
    """Return the magnitude m with thresholds[m-1] <= v < thresholds[m], a random sign; equality with a threshold is a tie."""
    flags = 0
    for i in range(words.size):
        v = words[i] & MAGNITUDE
        m = np.int64(guide[v >> np.uint64(63 - GUIDE_BITS)])
        while thresholds[m] < v:
            m += 1
        if thresholds[m] == v:
            flagged[flags] = i
            flags += 1
        out[i] = -m if words[i] & SIGN else m
    return flags


@njit(nogil=True)
def discrete_laplace(words: Words, scale: float, shift: float, out: Integers, flagged: Integers) -> int:
    """Return the magnitude = the largest integer below scale * (shift - ln p); see :func:`discrete_laplace_shift` for shift."""
    flags = 0
    for i in range(words.size):
        v = words[i] & MAGNITUDE
        y = scale * (shift - math.log((np.float64(v) + 0.5) * 2.0**-63))
        m = math.ceil(y) - 1
        if abs(y - np.round(y)) <= y * 2.0**-44 + scale * 2.0**-42 or v < np.uint64(1 << 43):
            flagged[flags] = i
            flags += 1
        out[i] = np.int64(-m) if words[i] & SIGN else np.int64(m)
    return flags


@njit(nogil=True)
def discrete_laplace_by_digits(
    words: Words, low_words: Words, scale: float, bits: int, out: Integers, flagged: Integers
) -> int:
    """Geometric magnitude high * 2^bits + low, whose digits are independent; low is uniform, kept w.p. exp(-low/scale)."""
    flags, high_scale = 0, scale / 2.0**bits
    for i in range(words.size):
        v = words[i] & MAGNITUDE
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
        out[i] = -magnitude if words[i] & SIGN else magnitude
    return flags


def discrete_laplace_shift(scale: float) -> float:
    """ln(2 / (1 + q)), q = exp(-1/scale): makes P(|X| >= m) = exp(shift - m/scale) for m >= 1."""
    return -math.log1p(math.expm1(-1 / scale) / 2)
