"""Perturbed logistic objectives of two classes and of several, minimised to a stated residual."""

from __future__ import annotations

import math
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import blas, cho_factor, cho_solve
from scipy.special import log_softmax

from unpooled.kernels.compiled import njit
from unpooled.kernels.newton import Solution
from unpooled.kernels.threads import one_thread, processors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]
    Labels = NDArray[np.intp]


# --- Logistic --------------------------------------------------------------------------------------------------------------
# One penalised logistic fit, as fast as the rows can be read.
#
# Minimises :math:`\sum_i \log(1+e^{-y_i x_i\cdot w}) + b\cdot w + \frac a2|w-c|^2`. Where :mod:`.newton` serves paths of penalties, this is for a
# single one: limited-memory BFGS steps, preconditioned by the Hessian of a sample of rows that is taken anew where progress slows. A gradient
# is one fused pass over the rows (margin, probability and update while a row is in the cache); the sample's Hessian is a good enough metric that
# about ten passes reach rounding. Sums are taken over fixed blocks in fixed order: the bits do not depend on the number of threads.

#: Rows of one partial sum, and of the sample that the metric is taken from.
_BLOCK, _SAMPLE = 1 << 13, 1 << 14
_PASSES, _HALVINGS, _MEMORY, _ARMIJO = 400, 30, 8, 1e-4
#: Passes after which Newton's method takes over, with the Hessian of all rows in every step.
_PATIENCE = 60
#: A step that leaves more of the gradient than this asks for a new metric.
_SLOW = 0.2
#: Two values of the objective this close to each other, relatively, are the same.
_NOISE = 1e-12


@njit(nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _pass(rows: Matrix, labels: Vector, w: Vector, gradient: Vector) -> float:
    """Return the losses of a block of rows; adds their gradient."""
    loss = 0.0
    for i in range(rows.shape[0]):
        margin = 0.0
        for j in range(w.size):
            margin += rows[i, j] * w[j]
        margin *= labels[i]
        small = math.exp(-abs(margin))
        loss += math.log1p(small) + max(-margin, 0.0)
        miss = (small if margin >= 0 else 1.0) / (1.0 + small)
        pull = -labels[i] * miss
        for j in range(w.size):
            gradient[j] += pull * rows[i, j]
    return loss


@dataclass(frozen=True)
class _Objective:
    rows: Matrix
    labels: Vector
    linear: Vector
    penalty: float
    centre: Vector
    #: ``map``, or a thread pool's.
    spread: Callable[..., Iterable[float]]

    def value(self, w: Vector) -> tuple[float, Vector]:
        """Return the objective and its gradient."""
        starts = range(0, self.rows.shape[0], _BLOCK)
        parts = np.zeros((len(starts), w.size))

        def block(k: int) -> float:
            at = starts[k]
            return float(_pass(self.rows[at : at + _BLOCK], self.labels[at : at + _BLOCK], w, parts[k]))

        losses = list(self.spread(block, range(len(starts))))
        away = w - self.centre
        gradient = parts.sum(axis=0) + self.linear + self.penalty * away
        return math.fsum(losses) + float(self.linear @ w) + self.penalty / 2 * float(away @ away), gradient

    def metric(self, w: Vector, *, exact: bool = False) -> tuple[Matrix, bool]:
        """Return Cholesky factor of the Hessian, estimated from evenly spaced rows, or from all of them."""
        stride = 1 if exact else max(1, self.rows.shape[0] // _SAMPLE)
        sample = self.rows[::stride]
        root = 0.5 / np.cosh(np.clip(sample @ w, -700, 700) / 2)  # sqrt of p (1 - p)
        scaled = sample * root[:, None]
        hessian = blas.dsyrk(self.rows.shape[0] / sample.shape[0], scaled.T, lower=1)
        hessian[np.diag_indices_from(hessian)] += self.penalty
        lift = 0.0
        while True:  # a penalty below the rounding of the rest may leave no positive matrix: the metric, not the minimum, is then lifted
            try:
                factor, lower = cho_factor(hessian + lift * np.eye(w.size), lower=True, check_finite=False)
            except np.linalg.LinAlgError:
                lift = max(100 * lift, 2.0**-50 * float(hessian.diagonal().max()))
            else:
                return factor, lower


def logistic_minimum(
    rows: Matrix,
    labels: Vector,
    penalty: float,
    *,
    linear: Vector | None = None,
    centre: Vector | None = None,
    tolerance: float = 1e-10,
    best: bool = False,
) -> Solution:
    """Return the minimiser, to a gradient of at most ``tolerance`` times the number of rows; its norm is the certificate, an iteration is a pass.

    Where rounding keeps the gradient above that: ArithmeticError, or with ``best`` the point of the smallest gradient that was found.
    """
    if not penalty > 0:
        raise ValueError("penalty must be positive: separable data have no minimum without one")
    n, d = rows.shape
    zero = np.zeros(d)
    workers = min(processors(), n // (2 * _BLOCK))  # a thread costs more than two blocks
    with ThreadPoolExecutor(max(1, workers)) as pool, one_thread():
        problem = _Objective(
            np.ascontiguousarray(rows, dtype=np.float64),
            np.ascontiguousarray(labels, dtype=np.float64),
            zero if linear is None else linear,
            penalty,
            zero if centre is None else centre,
            pool.map if workers > 1 else map,
        )
        return _minimise(problem, tolerance * n, best=best)


def _minimise(problem: _Objective, limit: float, *, best: bool) -> Solution:
    w = problem.centre.copy()
    value, gradient = problem.value(w)
    metric, passes, exact = problem.metric(w), 1, False
    pairs: deque[tuple[Vector, Vector]] = deque(maxlen=_MEMORY)
    norm = float(np.linalg.norm(gradient))
    while norm > limit and passes < _PASSES:
        step = -_two_loops(gradient, pairs, metric)
        slope = float(gradient @ step)
        length = 1.0
        for _ in range(_HALVINGS):
            tried = w + length * step
            new_value, new_gradient = problem.value(tried)
            passes += 1
            new_norm = float(np.linalg.norm(new_gradient))
            # Near the minimum the decrease drowns in rounding, but the gradient does not.
            if new_value <= value + _ARMIJO * length * slope or (
                new_norm < norm and new_value <= value + _NOISE * abs(value)
            ):
                break
            length /= 2
        else:
            if exact:
                break
            exact = True  # once more, by Newton's method with all rows
            metric = problem.metric(w, exact=True)
            pairs.clear()
            continue
        bent = float((tried - w) @ (new_gradient - gradient))
        if bent > 0 and not exact:  # convexity promises it, rounding may not keep it
            pairs.append((tried - w, new_gradient - gradient))
        slow = new_norm > _SLOW * norm
        w, value, gradient, norm = tried, new_value, new_gradient, new_norm
        exact = exact or passes > _PATIENCE
        if (slow or exact) and norm > limit:
            metric = problem.metric(w, exact=exact)
            pairs.clear()
    if norm > limit:
        w, value, norm, more = _by_gradient(problem, w, value, gradient, norm, limit)
        passes += more
    if norm > limit and not best:
        msg = f"a logistic fit stopped at a gradient of {norm:g} instead of {limit:g}: raise the penalty"
        raise ArithmeticError(msg)
    return Solution(w, value, norm, passes, norm <= limit)


def _by_gradient(
    problem: _Objective, w: Vector, value: float, gradient: Vector, norm: float, limit: float
) -> tuple[Vector, float, float, int]:
    """Newton steps that are halved until the gradient itself shrinks: where values drown in rounding, it still tells better from worse."""
    passes = 0
    while norm > limit and passes < _PASSES:
        step = -cho_solve(problem.metric(w, exact=True), gradient, check_finite=False)
        length = 1.0
        for _ in range(_HALVINGS):
            tried = w + length * step
            new_value, new = problem.value(tried)
            passes += 1
            if float(np.linalg.norm(new)) < norm * (1 - _ARMIJO * length):
                break
            length /= 2
        else:
            break
        w, value, gradient, norm = tried, new_value, new, float(np.linalg.norm(new))
    return w, value, norm, passes


def _two_loops(gradient: Vector, pairs: deque[tuple[Vector, Vector]], metric: tuple[Matrix, bool]) -> Vector:
    """Return the inverse Hessian times the gradient (Nocedal & Wright 2006, algorithm 7.4)."""
    direction, weights = gradient.copy(), []
    for moved, bent in reversed(pairs):
        weight = float(moved @ direction) / float(moved @ bent)
        weights.append(weight)
        direction -= weight * bent
    direction = cho_solve(metric, direction, check_finite=False)
    for (moved, bent), weight in zip(pairs, reversed(weights), strict=True):
        direction += (weight - float(bent @ direction) / float(moved @ bent)) * moved
    return direction


# --- Softmax ---------------------------------------------------------------------------------------------------------------
# One penalised softmax fit of C classes, for rows that are read in products with matrices.
#
# Minimises :math:`\sum_i (\log \sum_c e^{w_c\cdot x_i} - w_{y_i}\cdot x_i) + \langle B, W\rangle + \frac a2|W-U|^2` over W (C x d), by Newton
# steps with a line search: solved directly where there are few numbers, else by conjugate gradients, preconditioned by every class's own curvature. The objective is strongly convex, so
# the gradient's norm over a is the distance to the minimiser at most.

_STEPS, _INNER, _CLASS_HALVINGS, _CLASS_ARMIJO = 500, 100, 40, 1e-4
#: Up to so many numbers the Newton equations are solved directly, which no condition number disturbs; and up to so many where so few
#: steps of conjugate gradients were not enough.
_DIRECT, _LAST = 300, 4000
#: Two values of the objective this close to each other, relatively, are the same.
_CLASS_NOISE = 1e-13
#: Rows of one product, so that probabilities of all rows are never copied twice.
_CLASS_BLOCK = 1 << 14


@dataclass(frozen=True)
class _ClassObjective:
    rows: Matrix
    labels: Labels
    linear: Matrix
    penalty: float
    centre: Matrix

    def value(self, w: Matrix) -> tuple[float, Matrix, Matrix]:
        """Return the objective, its gradient, and the probabilities (n x C)."""
        n = self.labels.size
        probabilities, loss, gradient = np.empty((n, w.shape[0])), 0.0, np.zeros_like(w)
        for at in range(0, n, _CLASS_BLOCK):
            own, labels = slice(at, at + _CLASS_BLOCK), self.labels[at : at + _CLASS_BLOCK]
            logs = log_softmax(self.rows[own] @ w.T, axis=1)
            each = np.arange(labels.size)
            loss -= float(logs[each, labels].sum())
            probabilities[own] = np.exp(logs)
            pull = probabilities[own].copy()
            pull[each, labels] -= 1
            gradient += pull.T @ self.rows[own]
        away = w - self.centre
        gradient += self.linear + self.penalty * away
        return loss + float((self.linear * w).sum()) + self.penalty / 2 * float((away**2).sum()), gradient, probabilities

    def curved(self, probabilities: Matrix, v: Matrix) -> Matrix:
        """Return the Hessian times v: X' (P * (X v' - sum_c P (X v'))) + a v."""
        out = self.penalty * v
        for at in range(0, self.labels.size, _CLASS_BLOCK):
            own = slice(at, at + _CLASS_BLOCK)
            p = probabilities[own]
            moved = p * (self.rows[own] @ v.T)
            moved -= p * moved.sum(axis=1, keepdims=True)
            out += moved.T @ self.rows[own]
        return out

    def hessian(self, probabilities: Matrix) -> Matrix:
        """All of it, class by class: X' diag(p_a (1{a = b} - p_b)) X, and a."""
        classes, d = probabilities.shape[1], self.rows.shape[1]
        found = np.empty((classes, d, classes, d))
        for a in range(classes):
            for b in range(a + 1):
                weights = probabilities[:, a] * (float(a == b) - probabilities[:, b])
                found[a, :, b] = self.rows.T @ (weights[:, None] * self.rows)
                found[b, :, a] = found[a, :, b].T
        return found.reshape(classes * d, -1) + self.penalty * np.eye(classes * d)

    def metric(self, probabilities: Matrix) -> list[tuple[Matrix, bool]]:
        """Factors of every class's own block of the Hessian."""
        found = []
        for p in probabilities.T:
            root = np.sqrt(p * (1 - p))[:, None] * self.rows
            found.append(cho_factor(root.T @ root + self.penalty * np.eye(self.rows.shape[1]), check_finite=False))
        return found


def softmax_minimum(
    rows: Matrix,
    labels: Labels,
    classes: int,
    penalty: float,
    *,
    linear: Matrix | None = None,
    centre: Matrix | None = None,
    tolerance: float = 1e-10,
) -> Matrix:
    """Return the minimiser (classes x columns), to a gradient of at most ``tolerance`` times the number of rows, or as near as rounding allows."""
    if not penalty > 0:
        raise ValueError("penalty must be positive: separable data have no minimum without one")
    zero = np.zeros((classes, rows.shape[1]))
    problem = _ClassObjective(
        np.ascontiguousarray(rows),
        labels,
        zero if linear is None else linear,
        penalty,
        zero if centre is None else centre,
    )
    with one_thread():
        return _minimise_classes(problem, tolerance * labels.size)


def _minimise_classes(problem: _ClassObjective, limit: float) -> Matrix:
    w = problem.centre.copy()
    value, gradient, probabilities = problem.value(w)
    norm = float(np.linalg.norm(gradient))
    for _ in range(_STEPS):
        if norm <= limit:
            break
        # As exact as quadratic convergence can use, and no more.
        step = _step(problem, probabilities, gradient, max(min(0.1, norm / max(problem.labels.size, 1)) * norm, limit / 10))
        slope, length = float((gradient * step).sum()), 1.0
        for _ in range(_CLASS_HALVINGS):
            tried = w + length * step
            new_value, new_gradient, new_probabilities = problem.value(tried)
            new_norm = float(np.linalg.norm(new_gradient))
            lower = new_value <= value + _CLASS_ARMIJO * length * slope
            # Near the minimum the decrease drowns in rounding, but the gradient does not.
            if lower or (new_value <= value + _CLASS_NOISE * max(abs(value), 1.0) and new_norm < norm):
                break
            length /= 2
        else:
            break
        w, value, gradient, probabilities, norm = tried, new_value, new_gradient, new_probabilities, new_norm
    return w


def _step(problem: _ClassObjective, probabilities: Matrix, gradient: Matrix, enough: float) -> Matrix:
    """Return the Newton step, directly or by preconditioned conjugate gradients, to a residual of at most ``enough``."""
    if gradient.size <= _DIRECT:
        return _direct(problem, probabilities, gradient)
    factors = problem.metric(probabilities)

    def metric(v: Matrix) -> Matrix:
        return np.stack([cho_solve(factor, own, check_finite=False) for factor, own in zip(factors, v, strict=True)])

    step, residual = np.zeros_like(gradient), -gradient
    solved = metric(residual)
    direction, square = solved.copy(), float((residual * solved).sum())
    for _ in range(_INNER):
        if float(np.linalg.norm(residual)) <= enough:
            break
        curved = problem.curved(probabilities, direction)
        along = square / float((direction * curved).sum())
        step += along * direction
        residual = residual - along * curved
        solved = metric(residual)
        square, before = float((residual * solved).sum()), square
        direction = solved + square / before * direction
    else:
        if gradient.size <= _LAST:
            return _direct(problem, probabilities, gradient)
    return step


def _direct(problem: _ClassObjective, probabilities: Matrix, gradient: Matrix) -> Matrix:
    factor = cho_factor(problem.hessian(probabilities), check_finite=False)
    return np.asarray(cho_solve(factor, -gradient.ravel(), check_finite=False)).reshape(gradient.shape)
