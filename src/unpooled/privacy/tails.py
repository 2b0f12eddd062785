r"""Losses that are known by their tails: the cost of perturbed objectives, alone and composed (THEORY F.21).

A ``Tail`` is a bound :math:`P(X > z) \le \min(1, \sum_j n_j\,\Phi(m_j/2 - z/m_j))`, z >= 0, on a loss X >= 0, given as pairs
:math:`(n_j, m_j)`. Of a sum of independent such X, each on a grid and rounded up to it, :class:`TailSum` knows the law: products of Fourier
transforms of laws tilted by :math:`e^{\theta z}`, so that errors are small compared with the tail that is asked for. Every cut and every error
is added.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from unpooled.privacy.events import Tail

    Vector = NDArray[np.float64]

#: Points of the grid, and the logarithm of what may lie beyond its end.
_POINTS, _BEYOND = 1 << 14, 80.0
#: Powers e^{theta z} that are tried, and the factor between those that laws are tilted by.
_POWERS = np.geomspace(1e-4, 1e7, 331)
#: A bound on the relative rounding error of everything but the transforms, and on that of one transform of so many points.
_ROUNDING, _TRANSFORM = 1e-10, 10 * 2.0**-53


def survival(tail: Tail, z: Vector) -> Vector:
    """Return the bound on P(X > z)."""
    from scipy.special import ndtr  # late, for it takes .2 s

    total = np.zeros_like(z)
    for times, m in tail:
        with np.errstate(over="ignore"):  # endless deviations away
            total += times * ndtr(m / 2 - z / m)
    return np.minimum(total, 1.0)


def log_moment(tail: Tail, powers: Vector) -> Vector:
    """Return a bound on log E e^{theta X}: 1 + sum n_j e^{(theta + theta^2) m_j^2 / 2}."""
    exponents = [math.log(times) + (powers + powers**2) * (m * m / 2) for times, m in tail]
    return np.asarray(np.logaddexp.reduce([np.zeros_like(powers), *exponents]))


@dataclass(frozen=True)
class TailSum:
    """The law of a sum on the points h, 2h, ..: ``tilted`` times e^{``moment`` - theta z}, and what no point holds."""

    values: Vector
    tilted: Vector
    theta: float
    moment: float
    beyond: float
    #: Absolute error of every tilted probability.
    error: float

    def above(self, epsilon: float) -> float:
        """Return E (1 - e^{epsilon - X})_+."""
        return self._mean(epsilon, lambda z: -np.expm1(epsilon - z))

    def beside(self, epsilon: float, curve: Callable[[Vector], Vector], edges: Vector) -> float:
        """Return E g(epsilon - X) for a falling curve g <= 1, X rounded up to the next of some rising edges, and g = 1 beyond them."""
        with np.errstate(over="ignore"):
            law = np.minimum(np.exp(self.moment - self.theta * self.values) * (self.tilted + self.error), 1.0)
        above = np.append(np.cumsum(law[::-1])[::-1], 0.0) * (1 + _ROUNDING) + self.beyond
        chances = np.minimum(above[np.searchsorted(self.values, edges, side="right")], 1.0)
        weights = -np.diff(chances, prepend=1.0)
        return min(1.0, float(weights @ curve(epsilon - edges)) * (1 + _ROUNDING) + float(chances[-1]))

    def _mean(self, start: float, weights: Callable[[Vector], Vector]) -> float:
        """E w(X) of weights between 0 and 1 that vanish up to ``start``, and are 1 beyond the grid; never below it."""
        first = int(np.searchsorted(self.values, start, side="right"))
        if first == self.values.size:
            return min(1.0, self.beyond)
        z = self.values[first:]
        law = (self.tilted[first:] + self.error) * weights(z) * np.exp(-self.theta * (z - z[0]))
        # The law's factor may be huge where the sum is tiny: they are multiplied as logarithms.
        inside = math.exp(min(self.moment - self.theta * float(z[0]) + math.log(max(float(law.sum()), 1e-300)), 0.0))
        return min(1.0, inside * (1 + _ROUNDING) + self.beyond)


def edges_of(epsilon: float, mu: float, points: int) -> Vector:
    """Where :meth:`TailSum.beside` may round to: evenly up to where a normal loss of this mu certainly exceeds what is left, then ever farther."""
    end = max(epsilon, 0.0) + 8 * mu + mu * mu
    return np.concatenate(
        [np.linspace(0.0, end, points), end + np.geomspace(1e-4 * (1 + end), 40.0 * (1 + end), points // 3)]
    )


def summed(tails: tuple[tuple[Tail, int], ...], epsilon: float, mu: float = 0.0) -> TailSum:
    """Return the law of a sum of independent X, with a count for every tail, accurate where it makes up ``epsilon`` with a normal loss of this mu."""
    moments = np.sum([count * log_moment(tail, _POWERS) for tail, count in tails], axis=0)
    moments = moments + (_POWERS + _POWERS**2) * (mu * mu / 2)
    return _law(tails, int(np.argmin(moments[:-1] - _POWERS[:-1] * max(epsilon, 0.0))))


@lru_cache(maxsize=256)
def _law(tails: tuple[tuple[Tail, int], ...], power: int) -> TailSum:
    theta = float(_POWERS[power])
    moments = np.sum([count * log_moment(tail, _POWERS) for tail, count in tails], axis=0)
    # What lies beyond the end comes back at its beginning, e^{theta z} times as heavy: by Markov's inequality at a higher power still nothing.
    end = float(((moments[power + 1 :] + _BEYOND) / (_POWERS[power + 1 :] - theta)).min())
    step = end / _POINTS
    values: Vector = step * np.arange(_POINTS, dtype=np.float64)
    transform, log_total, beyond, factors = np.ones(_POINTS // 2 + 1, dtype=complex), 0.0, math.exp(-_BEYOND), 0
    for tail, count in tails:
        chance = survival(tail, values)
        law = np.concatenate([[1 - chance[0]], np.maximum(-np.diff(chance), 0.0)])
        beyond += count * float(chance[-1])
        with np.errstate(divide="ignore"):
            weights = np.log(law) + theta * values
        top = float(weights.max())
        tilted = np.exp(weights - top)
        total = float(tilted.sum())
        transform *= np.fft.rfft(tilted / total) ** count
        log_total += count * (top + math.log(total))
        factors += count
    found = np.maximum(np.fft.irfft(transform, _POINTS), 0.0)
    return TailSum(values, found, theta, log_total, beyond, _TRANSFORM * math.log2(_POINTS) * (factors + 1))
