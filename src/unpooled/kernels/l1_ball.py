"""Convex quadratics over l1 balls or with an l1 penalty: an accelerated proximal gradient method with a duality gap."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

from unpooled.kernels.newton import Solution
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]


def nearest(x: Vector, radius: float) -> Vector:
    """Return the nearest point of the ball: a threshold, found by its defining equation on sorted magnitudes."""
    sizes = np.sort(np.abs(x))[::-1]
    threshold = float(((np.cumsum(sizes) - radius) / np.arange(1, sizes.size + 1)).max())
    return np.asarray(np.sign(x) * np.maximum(np.abs(x) - max(threshold, 0.0), 0))


def shrunk_by(x: Vector, amount: Vector) -> Vector:
    """Return x with every entry moved toward 0 by its amount, and no further than 0."""
    return np.asarray(np.sign(x) * np.maximum(np.abs(x) - amount, 0.0))


def quadratic_in_balls(
    gram: Matrix,
    linear: Vector,
    radius: float,
    blocks: Sequence[int] | None = None,
    *,
    tolerance: float = 1e-10,
    max_iterations: int = 20_000,
) -> Solution:
    r"""Minimise x.G x / 2 - b.x over :math:`|x|_1 \le` radius, or over a ball of this radius for each block of coordinates.

    FISTA (Beck & Teboulle 2009): steps of 1/L from a point ahead, L the largest eigenvalue of G, projected onto the balls. Momentum that
    points uphill is dropped (O'Donoghue & Candes 2015), which makes convergence linear where G is positive definite. With
    :math:`g = Gx - b` the certificate is the duality gap :math:`g\cdot x + r\sum_k \max_{j\in k}|g_j|`, at least f(x) - min f.

    Parameters
    ----------
    gram
        G, symmetric and positive semidefinite.
    linear
        b.
    radius
        Of every ball.
    blocks
        A label per coordinate; default: one ball.
    tolerance
        Stop at a gap of at most this times the gap at x = 0.
    max_iterations
        Stop after this number of iterations, with ``converged`` false.
    """
    labels = np.zeros(linear.size, dtype=np.int64) if blocks is None else np.asarray(blocks)
    balls = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    curvature = float(np.linalg.eigvalsh(gram)[-1]) or 1.0

    def projected(target: Vector) -> Vector:
        found = np.empty_like(target)
        for ball in balls:
            found[ball] = nearest(target[ball], radius)
        return found

    def gap(x: Vector, gradient: Vector) -> float:
        return float(gradient @ x) + radius * sum(float(np.abs(gradient[ball]).max()) for ball in balls)

    limit = tolerance * gap(np.zeros(linear.size), -linear)
    return _accelerated(gram, linear, curvature, (projected, gap), (limit, max_iterations))


def quadratic_with_penalty(
    gram: Matrix, linear: Vector, penalty: Vector, *, tolerance: float = 1e-10, max_iterations: int = 20_000
) -> Solution:
    r"""Minimise :math:`x'Gx/2 - b'x + \sum_j \lambda_j |x_j|`: the LASSO with a penalty for each coordinate.

    The method is that of :func:`quadratic_in_balls`, with soft thresholds in place of projections. The certificate is the gap between this
    objective and the dual one at the residuals, scaled until they are feasible: with y such that G = A'A and b = A'y, and
    :math:`r = y - Ax`, that is :math:`|r|^2/2 + \lambda\cdot|x| - s\,r\cdot y + s^2|r|^2/2`, s the best number for which
    :math:`|s|\le 1` and :math:`|s|\,|b - Gx|_j \le \lambda_j` for all j. The objective that is returned includes the penalty.

    Parameters
    ----------
    gram
        G, symmetric and positive semidefinite.
    linear
        b, a combination of the columns of G.
    penalty
        lambda, positive numbers, or all of them 0: then the minimum is solved for directly.
    tolerance
        Stop at a gap of at most this times y.y/2, the value of the objective at 0 where it counts from 0.
    max_iterations
        Stop after this number of iterations, with ``converged`` false.
    """
    values, vectors = np.linalg.eigh(gram)
    along = vectors.T @ linear
    seen = values > 1e-13 * float(values[-1])
    if not penalty.any():
        x = np.asarray(vectors[:, seen] @ (along[seen] / values[seen]))
        return Solution(x, -float(linear @ x) / 2, 0.0, 0, converged=True)
    square = float(np.square(along[seen]) @ (1 / values[seen]))

    def gap(x: Vector, gradient: Vector) -> float:
        bend, told = float((gradient + linear) @ x), float(linear @ x)
        residual, across = square - 2 * told + bend, square - told
        most = float((penalty / np.maximum(np.abs(gradient), penalty)).min())
        part = min(max(across / residual, -most), most) if residual > 0 else most
        return residual / 2 + float(penalty @ np.abs(x)) - part * across + part**2 * residual / 2

    curvature = float(values[-1]) or 1.0
    thresholds = penalty / curvature
    steps = (lambda target: shrunk_by(target, thresholds)), gap
    found = _accelerated(gram, linear, curvature, steps, (tolerance * square / 2, max_iterations))
    x = found.coefficients
    return Solution(x, found.objective + float(penalty @ np.abs(x)), found.certificate, found.iterations, found.converged)


def _accelerated(
    gram: Matrix,
    linear: Vector,
    curvature: float,
    part: tuple[Callable[[Vector], Vector], Callable[[Vector, Vector], float]],
    until: tuple[float, int],
) -> Solution:
    """Minimise x.G x / 2 - b.x plus a part that has a proximal step and a gap, until (the largest gap, iterations)."""
    (proximal, gap_of), (limit, max_iterations) = part, until
    x, product, moved, bent = (np.zeros(linear.size) for _ in range(4))  # bent = G moved, the last step
    speed, iteration = 1.0, 0
    while True:
        gradient = product - linear
        gap = gap_of(x, gradient)
        if gap <= limit or iteration == max_iterations:
            return Solution(x, float((gradient - linear) @ x) / 2, gap, iteration, gap <= limit)
        faster = (1 + math.sqrt(1 + 4 * speed**2)) / 2
        push = (speed - 1) / faster
        ahead = x + push * moved
        found = proximal(ahead - (gradient + push * bent) / curvature)
        moved = found - x
        speed = 1.0 if float((ahead - found) @ moved) > 0 else faster
        x, before, product = found, product, gram @ found
        bent, iteration = product - before, iteration + 1


# --- Logistic moments ------------------------------------------------------------------------------------------------------
# Logistic regression in an l1 ball from moments alone: the expected logistic loss where each class is normal.
#
# From a total covariance G of standardised columns, their covariance with the class and the share of the second class follow the two means and
# the covariance within classes, W. Along coefficients w a class's linear predictor is then normal, of variance w'Ww, and
#
# .. math:: L(w, b) = \pi E\,s(-(b + w\mu_1 + \tau Z)) + (1-\pi) E\,s(b + w\mu_0 + \tau Z),\quad s(t)=\log(1+e^t),\ \tau^2 = w'Ww,
#
# is convex: it is the expectation of a convex function over one fixed law. Without a bound its minimum is the linear discriminant W^{-1}(\mu_1-\mu_0).

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
#: The most of the class that columns may explain: noise can make it more than all, and then nothing is left within classes.
_MOST = table("frank_wolfe").explained_most
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
    return _accelerated_classes(classes, scale, (lambda x, _: nearest(x, radius)), lambda _: 0.0, max(radius, 1.0))


def logistic_with_penalty(classes: TwoClasses, penalty: Vector) -> tuple[Vector, float]:
    """Return (w, b) with the smallest expected loss plus penalty . |w|; the penalty has an entry for each column."""
    return _accelerated_classes(
        classes,
        np.ones(penalty.size),
        lambda w, step: shrunk_by(w, step * penalty),
        lambda w: float(penalty @ np.abs(w)),
        1.0,
    )


def _accelerated_classes(
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
