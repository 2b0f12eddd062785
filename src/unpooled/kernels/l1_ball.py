"""Convex quadratics over l1 balls: the projection onto a ball, and an accelerated projected gradient method with a duality gap."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from unpooled.kernels.solution import Solution

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]


def nearest(x: Vector, radius: float) -> Vector:
    """The nearest point of the ball: a threshold, found by its defining equation on sorted magnitudes."""
    sizes = np.sort(np.abs(x))[::-1]
    threshold = float(((np.cumsum(sizes) - radius) / np.arange(1, sizes.size + 1)).max())
    return np.asarray(np.sign(x) * np.maximum(np.abs(x) - max(threshold, 0.0), 0))


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
        Stop after so many iterations, with ``converged`` false.
    """
    labels = np.zeros(linear.size, dtype=np.int64) if blocks is None else np.asarray(blocks)
    balls = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    curvature = float(np.linalg.eigvalsh(gram)[-1]) or 1.0
    x, product, moved, bent = (np.zeros(linear.size) for _ in range(4))  # bent = G moved, the last step
    limit, speed, iteration = math.inf, 1.0, 0
    while True:
        gradient = product - linear
        gap = float(gradient @ x) + radius * sum(float(np.abs(gradient[ball]).max()) for ball in balls)
        limit = min(limit, tolerance * gap) if iteration == 0 else limit
        if gap <= limit or iteration == max_iterations:
            return Solution(x, float((gradient - linear) @ x) / 2, gap, iteration, gap <= limit)
        faster = (1 + math.sqrt(1 + 4 * speed**2)) / 2
        push = (speed - 1) / faster
        ahead = x + push * moved
        target = ahead - (gradient + push * bent) / curvature
        found = np.empty_like(x)
        for ball in balls:
            found[ball] = nearest(target[ball], radius)
        moved = found - x
        speed = 1.0 if float((ahead - found) @ moved) > 0 else faster
        x, before, product = found, product, gram @ found
        bent, iteration = product - before, iteration + 1
