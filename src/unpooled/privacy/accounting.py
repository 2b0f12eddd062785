"""Compose privacy events to (epsilon, delta), calibrate the noise to a budget, and losses that are known by their tails."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cache, lru_cache, reduce
from operator import or_
from typing import TYPE_CHECKING

import numpy as np
from numpy.polynomial.legendre import leggauss

from unpooled.errors import AccountingError, UsageError
from unpooled.privacy.events import Event, Kind, Numbers
from unpooled.privacy.unit import check_delta, check_epsilon, real

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import ModuleType

    from numpy.typing import NDArray

    from unpooled.privacy.events import Tail

    Vector = NDArray[np.float64]


# --- Tails -----------------------------------------------------------------------------------------------------------------
# Losses that are known by their tails: the cost of perturbed objectives, alone and composed (THEORY F.21).
#
# A ``Tail`` is a bound :math:`P(X > z) \le \min(1, \sum_j n_j\,\Phi(m_j/2 - z/m_j))`, z >= 0, on a loss X >= 0, given as pairs
# :math:`(n_j, m_j)`. Of a sum of independent such X, each on a grid and rounded up to it, :class:`TailSum` knows the law: products of Fourier
# transforms of laws tilted by :math:`e^{\theta z}`, so that errors are small compared with the tail that is asked for. Every cut and every error
# is added.

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


# --- Accounting ------------------------------------------------------------------------------------------------------------
# Compose privacy events to (epsilon, delta), and calibrate the noise to a budget.
#
# An :class:`Event` is the privacy cost of a mechanism as a number; a :class:`Composition` of events answers
# ``delta(epsilon)`` and ``epsilon(delta)``. Rules, the tightest applicable one wins (THEORY 2 of the foundation,
# ``privacy/THEORY.md``):
#
# * losses that are known by their tails are added up, and the others' curve is averaged over the sum (THEORY F.21);
# * Gaussian events alone compose exactly, :math:`\mu^2=\sum\mu_j^2`, adaptively too (Dong, Roth & Su 2022), and
#   :math:`\delta(\epsilon;\mu)=\Phi(\mu/2-\epsilon/\mu)-e^{\epsilon}\Phi(-\mu/2-\epsilon/\mu)` is exact (Balle & Wang 2018);
# * pure events alone also add up;
# * any mixture composes in zCDP, :math:`\rho=\sum\rho_j`, and is converted by its best Rényi order
#   (Canonne, Kamath & Steinke 2020; THEORY F.23);
# * of several compositions of which one holds, the largest of each of these numbers covers all (THEORY F.22);
# * the distance of a sampler from its ideal law, ``total_variation``, costs :math:`(1+e^{\epsilon})` times itself in delta.
#
# Every delta is rounded up, and every calibrated noise with it, by a bound on the arithmetic's error (THEORY F.13).

#: Calibrated noise is this much larger than the exact solution, so that rounding never turns a fit into a misfit.
SAFETY = 2.0**-40
#: Rounding errors, in units of 2^-53, of the terms of a delta (THEORY F.13); and no computed delta of any noise is below this.
_ERRORS, _LEAST = 32.0, 1e-300
#: Relative error of a delta by way of Renyi orders.
_ORDERS_ERROR = 1e-11
#: log 2^-1022, below which a total variation stands for the samplers' own, and how much smaller that is: 2^-16000 for 2^-1074 (F.5).
_SUBNORMAL, _STANDS_FOR = -1022 * math.log(2), (16000 - 1074) * math.log(2)
#: How small the charge for a total variation is made, where an epsilon is large, by proving a smaller one.
_SMALL_CHARGE = math.log(1e-18)
_SQRT2, _MILLS = math.sqrt(2.0), math.sqrt(math.pi / 2)
_NODES, _WEIGHTS = (values.tolist() for values in leggauss(16))


# --- the Gaussian mechanism, exactly -------------------------------------------------------------------------------


@cache
def _special() -> ModuleType:
    """Return scipy's special functions, which take .2 s to import, when they are first needed."""
    import scipy.special

    return scipy.special


def _mills(x: float) -> float:
    """P(N > x) / phi(x)."""
    return _MILLS * float(_special().erfcx(x / _SQRT2))


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return the smallest delta of a Gaussian release with sensitivity / sigma = mu (Balle & Wang 2018, Theorem 8); never below it.

    With a, b = epsilon/mu -+ mu/2 and Mills' ratio R it is phi(a) (R(a) - R(b)) = phi(a) times the integral of 1 - t R(t) over
    [a, b], which cancels nothing where the interval is short.
    """
    if mu == 0:
        return 0.0
    if mu == math.inf:
        return 1.0
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    density = math.exp(-0.5 * a * a) / math.sqrt(2 * math.pi)
    if mu < 1:
        middle, half = epsilon / mu, mu / 2
        points = [middle + half * node for node in _NODES]
        value = density * half * math.fsum(w * (1 - t * _mills(t)) for w, t in zip(_WEIGHTS, points, strict=True))
    elif a < 0:
        value = float(_special().ndtr(-a)) - density * _mills(b)
    else:
        value = density * (_mills(a) - _mills(b))
    error = _ERRORS * 2.0**-53 * (1 + (1 + abs(a)) * (1 + b))
    return min(1.0, max(value * (1 + error), _LEAST))


def gaussian_curve(epsilons: Vector, mu: float) -> Vector:
    """:func:`gaussian_delta` at many epsilons; below 0 by the other direction, 1 - e^eps + e^eps delta(-eps)."""
    if mu == 0:
        return np.maximum(-np.expm1(epsilons), 0.0)
    e = np.abs(epsilons)
    a, b = e / mu - mu / 2, e / mu + mu / 2
    density = np.exp(-0.5 * a * a) / math.sqrt(2 * math.pi)
    if mu < 1:
        points = (e / mu)[:, None] + mu / 2 * np.array(_NODES)
        value = density * (mu / 2) * ((1 - points * _MILLS * _special().erfcx(points / _SQRT2)) @ np.array(_WEIGHTS))
    else:
        special = _special()
        above = density * _MILLS * special.erfcx(np.maximum(a, 0.0) / _SQRT2)
        value = np.where(a < 0, special.ndtr(-a), above) - density * _MILLS * special.erfcx(b / _SQRT2)
    error = _ERRORS * 2.0**-53 * (1 + (1 + np.abs(a)) * (1 + b))
    above = np.clip(value * (1 + error), _LEAST, 1.0)
    below = np.minimum(epsilons, 0.0)
    return np.asarray(np.minimum(np.where(epsilons < 0, np.exp(below) * above - np.expm1(below), above), 1.0))


def gaussian_epsilon(delta: float, mu: float) -> float:
    """Return the smallest epsilon >= 0 at which a Gaussian release with this mu is (epsilon, delta)-private; never below it."""
    if mu == 0 or gaussian_delta(0.0, mu) <= delta:
        return 0.0
    if delta == 0 or mu == math.inf:
        return math.inf
    high = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1e-9  # the zCDP bound, never below the answer
    return _proved(lambda eps: gaussian_delta(eps, mu), delta, high)


def _root(function: Callable[[float], float], low: float, high: float, xtol: float, rtol: float) -> float:
    """Return the root of a function between two ends of different signs, by Brent's method; imported late, for it takes .15 s."""
    from scipy.optimize import brentq

    return float(brentq(function, low, high, xtol=xtol, rtol=rtol))


def _proved(curve: Callable[[float], float], delta: float, high: float) -> float:
    """Return the smallest epsilon in [0, high] whose falling delta curve is at ``delta``, on the proved side of it."""
    root = _root(lambda eps: curve(eps) - delta, 0.0, high, 1e-20, 1e-15)
    step = 2.0**-51
    while curve(root) > delta:  # a bracket of a root may end on its wrong side
        root *= 1 + step
        step *= 2
    return root


def largest(curve: Callable[[float], float], delta: float, low: float, high: float, what: str) -> float:
    """Return the largest parameter in [low, high] whose increasing delta curve stays at ``delta``, on the proved side of it."""
    if delta == 0:
        msg = f"{what} has no guarantee at delta = 0: ask for a positive delta"
        raise AccountingError(msg)

    # The logarithm of delta is close to a parabola in that of the parameter, which brentq likes.
    def excess(log_parameter: float) -> float:
        value = curve(math.exp(log_parameter))
        return (math.log(value) if value > 0 else -800.0) - math.log(delta)

    parameter = math.exp(_root(excess, math.log(low), math.log(high), 1e-14, 1e-14))
    step = 2.0**-50
    while curve(parameter) > delta:
        parameter *= 1 - step
        step *= 2
    return parameter


@lru_cache(maxsize=4096, typed=True)
def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu = sensitivity / sigma that is (epsilon, delta)-private: the inverse of :func:`gaussian_delta`."""
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    if epsilon == math.inf:
        return math.inf
    return largest(lambda mu: gaussian_delta(epsilon, mu), delta, 1e-12, 1e4, "Gaussian noise")


def budget_mu(epsilon: float, delta: float) -> float:
    """Return the mu to calibrate a plan's Gaussian releases to, so that rounding and total variation still fit the budget."""
    return gaussian_mu(epsilon, delta) * (1 - SAFETY)


def gaussian_sigma(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """Return the standard deviation that makes one Gaussian release of this L2 sensitivity (epsilon, delta)-private: the exact one, rounded up.

    >>> round(gaussian_sigma(1.0, 1e-5), 4)
    3.7306
    """
    sensitivity = real("sensitivity", sensitivity)
    if not 0 <= sensitivity < math.inf:
        msg = "sensitivity must be finite and >= 0"
        raise UsageError(msg)
    mu = gaussian_mu(epsilon, delta)
    if not sensitivity or mu == math.inf:
        return 0.0
    sigma = math.nextafter(sensitivity / mu, math.inf)
    if sigma == math.inf:
        msg = "sensitivity is too large: no float holds the noise that it needs"
        raise UsageError(msg)
    return sigma


# --- compositions ------------------------------------------------------------------------------------------------------

#: A total variation above this is no sampler's rounding but a delta of its own (S.12); golden sections of the epsilons it allows.
_MATERIAL, _SECTIONS, _GOLDEN = 1e-13, 60, (math.sqrt(5.0) - 1) / 2


#: Points of a mean over losses that are known by their tails, where a point is cheap and where it takes long.
_MANY, _FEW = 400, 24
#: How far below epsilon, in parts of it, the curve is asked for F.20.
_PARTS = tuple(0.01 * 1.4**k for k in range(13))


class Composition:
    """All events that touch one unit, composed (adaptively chosen events are covered by every rule used here)."""

    def __init__(self, events: Iterable[Event], one_of: Iterable[Sequence[Composition]] = ()) -> None:
        """These events, and one of each of these choices; of a choice, the most in every respect is counted (Theorem F.22)."""
        self.events = tuple(events)
        for event in self.events:
            if type(event) is not Event:
                msg = f"cannot account for a {type(event).__name__}: only Event has a known cost"
                raise AccountingError(msg)
        self.events = tuple(event for event in self.events if event.count > 0)
        self.one_of = tuple(one_of)
        #: What is known by its tails, so many of each.
        self.tails: Counter[Tail] = Counter()
        for event in self.events:
            if event.kind is Kind.PERTURBED:
                self.tails[event.tails] += event.count
        for choice in self.one_of:
            self.tails += reduce(or_, (one.tails for one in choice))
        most = (map(max, zip(*(one.numbers for one in choice), strict=True)) for choice in self.one_of)
        every = [Numbers(*[0.0] * len(Numbers._fields)), *map(Numbers.of, self.events), *map(Numbers._make, most)]
        self.numbers: Numbers = Numbers(*map(math.fsum, zip(*every, strict=True)))
        _, squared, self.pure_epsilon, self.rho, self._rho_only, self.total_variation, self._constants = self.numbers
        self.mu = math.sqrt(squared)
        self._unbounded = bool(self.numbers.unbounded)
        #: Whether anything pure is so only up to a total variation that counts.
        self.approximate: bool = any(e.kind is Kind.PURE and e.total_variation > _MATERIAL for e in self.events) or any(
            one.approximate for choice in self.one_of for one in choice
        )

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta that these rules prove at this epsilon."""
        epsilon = real("epsilon", epsilon)
        if epsilon == math.inf:
            return 0.0
        if self._unbounded or epsilon < 0:
            return 1.0
        # What holds for a smaller epsilon holds for this one: far out, the charge for a total variation would outgrow everything.
        charge = self._log_charge(0.0)
        proved = min(self._delta(epsilon), self._delta(min(epsilon, max(0.0, _SMALL_CHARGE - charge))))
        if self.approximate and self.pure_epsilon < epsilon:
            proved = min(proved, self._least_delta(epsilon))
        return proved

    def _least_delta(self, epsilon: float) -> float:
        """Return the smallest delta proved anywhere from the pure part up to here, by golden section: whatever is found there holds here."""
        if self._rho_only or self.tails:  # every point takes long: a few do
            return min(self._delta(self.pure_epsilon + (epsilon - self.pure_epsilon) * k / 8) for k in range(9))

        def proved(at: float) -> float:
            return gaussian_delta(max(at - self.pure_epsilon, 0.0), self.mu) + math.exp(min(self._log_charge(at), 0.0))

        low, high = self.pure_epsilon, epsilon
        found = proved(low)
        for _ in range(_SECTIONS if self.mu else 0):
            first, second = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
            one, other = proved(first), proved(second)
            found = min(found, one, other)
            low, high = (low, second) if one <= other else (first, high)
        return min(found, 1.0)

    def _log_charge(self, epsilon: float) -> float:
        """Logarithm of (1 + e^epsilon) times the total variation."""
        if not self.total_variation:
            return -math.inf
        log_tv = math.log(self.total_variation)
        # The smallest floats stand for the samplers' own distance, which no float holds (F.5).
        return math.log1p(math.exp(-epsilon)) + epsilon + log_tv - (_STANDS_FOR if log_tv < _SUBNORMAL else 0.0)

    def _delta(self, epsilon: float) -> float:
        options = []
        if self.tails:
            options.append(_tailed(tuple(sorted(self.tails.items())), epsilon - self._constants, self.numbers))
        elif self._rho_only == 0:
            # Exact for Gaussians alone; with pure events, one (pure_epsilon, 0) composed with the Gaussian curve.
            left = epsilon - self.pure_epsilon
            options.append(gaussian_delta(left, self.mu) if left >= 0 else 1.0)
        if not self.tails and (self.pure_epsilon or self._rho_only):
            options.append(zcdp_delta(epsilon, self.rho))
        return min(
            1.0, min(options) + max(math.exp(min(self._log_charge(epsilon), 0.0)), _LEAST * (self.total_variation > 0))
        )

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon that these rules prove at this delta (infinite when nothing is proved)."""
        delta = check_delta(delta)
        if self._unbounded:
            return math.inf
        if self.delta(0.0) <= delta:
            return 0.0
        if delta == 0:
            inexact = self.mu or self._rho_only or self.total_variation or self.tails
            return math.inf if inexact else self.pure_epsilon
        high = self.rho + 2 * math.sqrt(self.rho * math.log(1 / delta)) + self.pure_epsilon + 1e-9
        if self.tails:  # every one of them, and the rest, at a part of delta
            part = math.log(8 * self.tails.total() / delta)
            high += self._constants + self.rho + 2 * math.sqrt(self.rho * part)
            for tail, count in self.tails.items():
                high += count * max(m * m + 2 * m * math.sqrt(part + math.log(n * len(tail))) for n, m in tail)
        if self.delta(high) > delta:  # the samplers' total variation alone exceeds what was asked
            return math.inf
        return _proved(self.delta, delta, high)

    def within(self, epsilon: float, delta: float) -> bool:
        """Return True if (epsilon, delta) is proved; a ledger checks this before it debits."""
        return self.delta(epsilon) <= delta

    def failure(self, epsilon: float) -> float:
        """Return a bound on the probability that the loss exceeds epsilon: how often a belief moves farther than epsilon says (Theorem F.20)."""
        if self.delta(epsilon) == 0:
            return 0.0
        points = ((self.delta(epsilon * (1 - part)), -math.expm1(-epsilon * part)) for part in _PARTS)
        return min(1.0, *(delta / above if above else 1.0 for delta, above in points))

    def covers(self, other: Composition) -> bool:
        """Return True if this composition costs at least as much as the other in every respect, and so at every epsilon and delta."""
        return other.tails <= self.tails and all(
            mine >= theirs for mine, theirs in zip(self.respects, other.respects, strict=True)
        )

    @property
    def respects(self) -> tuple[float, ...]:
        """Return numbers in which every curve grows, of compositions whose tails are alike but for their size: for audits, which compare by these."""
        tails = self.tails.items()
        lengths = (math.fsum(count * max(m for _, m in tail) ** power for tail, count in tails) for power in (1, 2))
        return *self.numbers, *lengths

    def __add__(self, other: Composition) -> Composition:
        return Composition(self.events + other.events, self.one_of + other.one_of)


@lru_cache(maxsize=1 << 14)  # a page asks for the same points of the same curves again and again
def _tailed(tails: tuple[tuple[Tail, int], ...], left: float, others: Numbers) -> float:
    """With losses known by their tails: the mean, over those, of what the others cost (Theorem F.21)."""
    mu, rho = math.sqrt(others.gaussian), others.rho if others.rho_only else 0.0
    left -= 0.0 if rho else others.pure_epsilon
    # Releases known by zCDP: every point takes long, so there are few.
    width, points = (math.sqrt(2 * rho), _FEW) if rho else (mu, _MANY)

    def curve(epsilons: Vector) -> Vector:
        if not rho:
            return gaussian_curve(epsilons, mu)
        return np.array([zcdp_delta(e, rho) if e >= 0 else 1.0 for e in epsilons.tolist()])

    law = summed(tails, left, width)
    if width:
        return law.beside(left, curve, edges_of(left, width, points))
    if sum(count for _, count in tails) == 1 and left >= 0:  # alone: its theorem's own curve, without a grid
        return min(1.0, math.fsum(n * gaussian_delta(left, m) for n, m in tails[0][0]))
    return law.above(left)


# --- zero-concentrated differential privacy ------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 16, typed=True)  # the page of one study asks for ten thousand, a second time for the same
def zcdp_delta(epsilon: float, rho: float) -> float:
    """Return the smallest delta that is proved of rho-zCDP at this epsilon (Theorem F.23); never below it."""
    if rho == 0:
        return 0.0
    if rho == math.inf:
        return 1.0

    def slope(y: float) -> float:  # of the exponent at order 1 + e^y; it rises
        return (2 * math.exp(y) + 1) * rho - epsilon - max(-y, 0.0) - math.log1p(math.exp(-abs(y)))

    x = math.exp(_root(slope, -(3 * rho + 2), math.log1p((epsilon + 1) / (2 * rho)) + 1e-9, 1e-12, 1e-12))
    exponent = x * ((1 + x) * rho - epsilon - math.log1p(1 / x)) - math.log1p(x) if x > _LEAST else 0.0
    value = min(math.exp(exponent), math.sqrt(-math.expm1(-rho))) * (1 + _ORDERS_ERROR)
    return min(max(value, _LEAST), 1.0)


@lru_cache(maxsize=4096, typed=True)
def zcdp_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho whose zCDP guarantee implies (epsilon, delta)."""
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    if epsilon == math.inf:
        return math.inf
    low = epsilon**2 / (16 * (-math.log(delta or 1.0) + epsilon))  # from epsilon <= rho + 2 sqrt(rho log(1/delta))
    return largest(
        lambda rho: zcdp_delta(epsilon, rho), delta, low, 4 * epsilon + 16 * low + 100, "zero-concentrated privacy"
    )


def budget_rho(epsilon: float, delta: float) -> float:
    """Return the rho to calibrate a plan's mixed releases to, so that rounding and total variation still fit the budget."""
    return zcdp_rho(epsilon, delta) * (1 - SAFETY)
