r"""Logistic regression in an l1 ball from moments alone: the expected logistic loss where each class is normal.

From a total covariance G of standardised columns, their covariance with the class and the share of the second class follow the two means and
the covariance within classes, W. Along coefficients w a class's linear predictor is then normal, of variance w'Ww, and

.. math:: L(w, b) = \pi E\,s(-(b + w\mu_1 + \tau Z)) + (1-\pi) E\,s(b + w\mu_0 + \tau Z),\quad s(t)=\log(1+e^t),\ \tau^2 = w'Ww,

is convex: it is the expectation of a convex function over one fixed law. Without a bound its minimum is the linear discriminant W^{-1}(\mu_1-\mu_0).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

from unpooled.kernels.l1_ball import nearest, shrunk_by

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
#: The most of the class that columns may explain: noise can make it more than all, and then nothing is left within classes.
_MOST = 0.9
_STEPS, _TOLERANCE = 5000, 1e-9


@dataclass(frozen=True)
class TwoClasses:
    """Two normal classes of standardised columns, in units in which the ball is |x|_1 <= radius: w = x / scale."""

    first: Vector
    second: Vector
    within: Matrix
    share: float

    @classmethod
    def of(cls, gram: Matrix, covariance: Vector, share: float) -> TwoClasses:
        """Return two classes with the columns' covariance, their covariance with a class of -1 or 1, and the share of the second class."""
        spread = 2 * math.sqrt(share * (1 - share))
        cross = covariance / spread
        explained = float(cross @ np.linalg.solve(gram, cross))
        cross = cross * math.sqrt(min(1.0, _MOST / explained)) if explained > 0 else cross
        apart = 2 * cross / spread
        return cls(-share * apart, (1 - share) * apart, gram - np.outer(cross, cross), share)

    def loss(self, w: Vector, b: float) -> tuple[float, Vector, float]:
        """Return (L, its gradient along w, along b)."""
        inner = self.within @ w
        deviation = math.sqrt(max(float(w @ inner), 0.0))
        value, slope, constant, bend = 0.0, np.zeros_like(w), 0.0, 0.0
        for mean, part, sign in ((self.first, 1 - self.share, 1.0), (self.second, self.share, -1.0)):
            u = b + float(w @ mean) + deviation * _NODES
            wrong = expit(sign * u)
            value += part * float(_WEIGHTS @ np.logaddexp(0.0, sign * u))
            pull = sign * part * float(_WEIGHTS @ wrong)
            slope, constant = slope + pull * mean, constant + pull
            bend += part * float(_WEIGHTS @ (wrong * (1 - wrong)))  # Stein's lemma: E Z s'(a + tZ) = t E s''
        return value, slope + bend * inner, constant


def logistic_in_ball(classes: TwoClasses, scale: Vector, radius: float) -> tuple[Vector, float]:
    """Return (x, b) with |x|_1 <= radius and the smallest expected loss at w = x / scale."""
    return _accelerated(classes, scale, (lambda x, _: nearest(x, radius)), lambda _: 0.0, max(radius, 1.0))


def logistic_with_penalty(classes: TwoClasses, penalty: Vector) -> tuple[Vector, float]:
    """Return (w, b) with the smallest expected loss plus penalty . |w|; the penalty has an entry for each column."""
    return _accelerated(
        classes,
        np.ones(penalty.size),
        lambda w, step: shrunk_by(w, step * penalty),
        lambda w: float(penalty @ np.abs(w)),
        1.0,
    )


def _accelerated(
    classes: TwoClasses,
    scale: Vector,
    proximal: Callable[[Vector, float], Vector],
    price: Callable[[Vector], float],
    size: float,
) -> tuple[Vector, float]:
    """Minimise the loss plus a price of x by FISTA with restarts; return x and the constant; ``size`` is what steps are small compared with."""
    base = math.log(classes.share / (1 - classes.share))
    if not classes.second.any():
        return np.zeros(scale.size), base
    total = classes.within + classes.share * (1 - classes.share) * np.outer(*[classes.second - classes.first] * 2)
    # Second moments of (w's columns / scale, 1) about any constant bound the curvature by a quarter.
    curvature = 0.25 * max(float(np.linalg.eigvalsh(total / np.outer(scale, scale))[-1]), 1e-12)
    x, b = np.zeros(scale.size), base
    ahead, lead, speed, last = x, b, 1.0, math.inf
    for _ in range(_STEPS):
        value, slope, constant = classes.loss(ahead / scale, lead)
        value += price(ahead)
        new = proximal(ahead - slope / scale / (2 * curvature), 1 / (2 * curvature))
        now = lead - 2 * constant
        if value > last:  # momentum points uphill: start again from here
            ahead, lead, speed, last = x, b, 1.0, math.inf
            continue
        faster = (1 + math.sqrt(1 + 4 * speed**2)) / 2
        push = (speed - 1) / faster
        moved = float(np.abs(new - x).max()) + abs(now - b)
        ahead, lead = new + push * (new - x), now + push * (now - b)
        x, b, speed, last = new, now, faster, value
        if moved < _TOLERANCE * size:
            break
    return x, b
