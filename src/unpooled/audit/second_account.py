r"""A second accountant, by another method than the first and without a line of ``privacy/``: each is evidence about the other.

The first one adds up parameters (mu, rho, epsilon) and converts the sums. This one composes the privacy losses themselves. Of independent losses
:math:`L_j` with :math:`K_j(s)=\log E\,e^{sL_j}` it computes, for any :math:`c>0` (Theorem F.28),

.. math:: \delta(\epsilon)=E(1-e^{\epsilon-L})_+=\frac1\pi\int_0^\infty \mathrm{Re}\,\frac{e^{K(c+it)-(c+it)\epsilon}}{(c+it)(c+it+1)}\,dt,

by the trapezoidal rule through the saddle point, so that the relative error is small however small delta is.

For each kind of event it takes a mechanism that the event allows. What it returns is the delta of a mechanism that exists: no accountant may
say less. Where that mechanism is the worst one (Gaussian releases, and releases of which only epsilon is known), it is the answer.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    Complex = NDArray[np.complex128]

#: The names of events, as ledgers export them.
GAUSSIAN, ZCDP, EXPONENTIAL, PURE, PERTURBED = "gaussian", "zcdp", "exponential", "pure", "perturbed"
#: The integrand is left out where it is below this part of its largest value, and computed at this number of points at most.
_NEGLIGIBLE, _POINTS = 1e-18, 1 << 16
#: Points per radian of the fastest oscillation, at least; steps of the search for the saddle point, and how far it goes.
_FINE, _STEPS, _FARTHEST = 3.0, 80, 1e12
#: The relative error that the integral states, and an absolute one below which no delta is compared.
RELATIVE, LEAST = 1e-9, 1e-280


@dataclass(frozen=True)
class ComposedLoss:
    """An event in plain words: its kind, its number, how often it was made, its distance from the ideal law, and its tails."""

    kind: str
    value: float
    count: int = 1
    total_variation: float = 0.0
    tails: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class _Sum:
    """The sum of all losses: a normal part, and two-valued parts as (size, count): size with chance 1 / (1 + e^-size), else minus it."""

    mu_squared: float
    two_valued: tuple[tuple[float, int], ...]

    def log_moment(self, s: Complex) -> Complex:
        """Return K(s) = log E e^{sL}."""
        total: Complex = self.mu_squared * (s + s * s) / 2
        for size, count in self.two_valued:
            likely = 1 / (1 + math.exp(-size))
            total = total + count * (s * size + np.log(likely + (1 - likely) * np.exp(-2 * size * s)))
        return total

    def slope(self, c: float) -> float:
        """Return K'(c)."""
        total = self.mu_squared * (1 + 2 * c) / 2
        for size, count in self.two_valued:
            unlikely = math.exp(-size) / (1 + math.exp(-size)) * math.exp(-min(2 * size * c, 700.0))
            likely = 1 / (1 + math.exp(-size))
            total += count * size * (likely - unlikely) / (likely + unlikely)
        return total


def _losses(events: Iterable[ComposedLoss]) -> _Sum:
    """Return the sum of the losses of mechanisms that these events allow."""
    squared, sizes = 0.0, dict[float, int]()
    for event in events:
        if event.kind == GAUSSIAN:
            squared += event.count * event.value**2
        elif event.kind == ZCDP:  # a Gaussian mechanism has rho = mu^2 / 2
            squared += event.count * 2 * event.value
        elif event.kind == PURE and event.value and event.count:
            sizes[event.value] = sizes.get(event.value, 0) + event.count
        elif event.kind == EXPONENTIAL and event.value and event.count:  # of two outcomes, whose losses differ by epsilon
            sizes[event.value / 2] = sizes.get(event.value / 2, 0) + event.count
        elif (
            event.kind == PERTURBED
        ):  # one of its tails is that of a normal loss; the rest of it is a loss of at most its constant
            squared += event.count * max(m for _, m in event.tails) ** 2
            if event.value and event.count:
                sizes[event.value] = sizes.get(event.value, 0) + event.count
        elif event.kind not in {PURE, EXPONENTIAL}:
            msg = f"the second accountant does not know events of kind {event.kind!r}"
            raise ValueError(msg)
    return _Sum(squared, tuple(sorted(sizes.items())))


def delta_of(events: Sequence[ComposedLoss], epsilon: float) -> float:
    """Return the delta, at this epsilon, of a mechanism that these events allow."""
    total = _losses(events)
    exact = _normal_and_two_valued(total, epsilon) if total.mu_squared else _two_valued(total, epsilon)
    apart = math.prod((1 - event.total_variation) ** event.count for event in events)
    return 1 - apart * (1 - exact) if apart < 1 else exact


def worst_delta(plans: Sequence[Mapping[str, Sequence[ComposedLoss]]], epsilon: float) -> float:
    """Return the largest delta over all people: of every plan, a person's row is in one of its parts, and nobody knows in which."""
    choices = [list(parts.values()) or [()] for parts in plans]
    return max(delta_of([*itertools.chain(*chosen)], epsilon) for chosen in itertools.product(*choices))


def _two_valued(total: _Sum, epsilon: float) -> float:
    """Return delta of losses with two values each: every sum that they can have, with its chance."""
    values, chances = np.zeros(1), np.ones(1)
    for size, count in total.two_valued:
        likely = 1 / (1 + math.exp(-size))
        k = np.arange(count + 1)
        logs = np.array([math.lgamma(count + 1) - math.lgamma(i + 1) - math.lgamma(count - i + 1) for i in range(count + 1)])
        own = np.exp(logs + k * math.log(likely) + (count - k) * (math.log(likely) - size))
        values = (values[:, None] + (2 * k - count) * size).ravel()
        chances = (chances[:, None] * own).ravel()
    above = values > epsilon
    return min(1.0, float(np.sum(chances[above] * -np.expm1(epsilon - values[above]))))


def _normal_and_two_valued(total: _Sum, epsilon: float) -> float:
    """Return delta by the integral, through the saddle point of the whole integrand."""
    low, high = 1e-9, 1.0
    while total.slope(high) - epsilon - 1 / high - 1 / (high + 1) < 0 and high < _FARTHEST:
        high *= 2
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if total.slope(middle) - epsilon - 1 / middle - 1 / (middle + 1) < 0 else (low, middle)
    c = high
    mu = math.sqrt(total.mu_squared)
    reach = math.sqrt(-2 * math.log(_NEGLIGIBLE)) / mu
    # The integrand turns as fast as the loss is spread around epsilon, and is as sharp as the distance of its poles.
    fastest = mu + sum(2 * size * math.sqrt(count) * 9 for size, count in total.two_valued) + 9 * mu + 1 / c
    points = int(min(_POINTS, max(256.0, _FINE * reach * fastest)))
    # The midpoint rule, which is the trapezoidal one shifted.
    s = np.asarray(c + 1j * (np.arange(points) + 0.5) * (reach / points), dtype=np.complex128)
    exponent = total.log_moment(s) - s * epsilon
    largest = float(total.log_moment(np.array([c + 0j]))[0].real - c * epsilon)
    value = float(np.sum((np.exp(exponent - largest) / (s * (s + 1))).real)) * (reach / points) / math.pi
    return min(1.0, max(0.0, value) * math.exp(min(largest, 700.0)))
