r"""One penalised softmax fit of C classes, for rows that are read in products with matrices.

Minimises :math:`\sum_i (\log \sum_c e^{w_c\cdot x_i} - w_{y_i}\cdot x_i) + \langle B, W\rangle + \frac a2|W-U|^2` over W (C x d), by Newton
steps with a line search: solved directly where there are few numbers, else by conjugate gradients, preconditioned by every class's own curvature. The objective is strongly convex, so
the gradient's norm over a is the distance to the minimiser at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import log_softmax

from unpooled.kernels.threads import one_thread

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]
    Labels = NDArray[np.intp]

_STEPS, _INNER, _HALVINGS, _ARMIJO = 500, 100, 40, 1e-4
#: Up to so many numbers the Newton equations are solved directly, which no condition number disturbs; and up to so many where so few
#: steps of conjugate gradients were not enough.
_DIRECT, _LAST = 300, 4000
#: Two values of the objective this close to each other, relatively, are the same.
_NOISE = 1e-13
#: Rows of one product, so that probabilities of all rows are never copied twice.
_BLOCK = 1 << 14


@dataclass(frozen=True)
class _Objective:
    rows: Matrix
    labels: Labels
    linear: Matrix
    penalty: float
    centre: Matrix

    def value(self, w: Matrix) -> tuple[float, Matrix, Matrix]:
        """Return the objective, its gradient, and the probabilities (n x C)."""
        n = self.labels.size
        probabilities, loss, gradient = np.empty((n, w.shape[0])), 0.0, np.zeros_like(w)
        for at in range(0, n, _BLOCK):
            own, labels = slice(at, at + _BLOCK), self.labels[at : at + _BLOCK]
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
        for at in range(0, self.labels.size, _BLOCK):
            own = slice(at, at + _BLOCK)
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
    problem = _Objective(
        np.ascontiguousarray(rows),
        labels,
        zero if linear is None else linear,
        penalty,
        zero if centre is None else centre,
    )
    with one_thread():
        return _minimise(problem, tolerance * labels.size)


def _minimise(problem: _Objective, limit: float) -> Matrix:
    w = problem.centre.copy()
    value, gradient, probabilities = problem.value(w)
    norm = float(np.linalg.norm(gradient))
    for _ in range(_STEPS):
        if norm <= limit:
            break
        # As exact as quadratic convergence can use, and no more.
        step = _step(problem, probabilities, gradient, max(min(0.1, norm / max(problem.labels.size, 1)) * norm, limit / 10))
        slope, length = float((gradient * step).sum()), 1.0
        for _ in range(_HALVINGS):
            tried = w + length * step
            new_value, new_gradient, new_probabilities = problem.value(tried)
            new_norm = float(np.linalg.norm(new_gradient))
            lower = new_value <= value + _ARMIJO * length * slope
            # Near the minimum the decrease drowns in rounding, but the gradient does not.
            if lower or (new_value <= value + _NOISE * max(abs(value), 1.0) and new_norm < norm):
                break
            length /= 2
        else:
            break
        w, value, gradient, probabilities, norm = tried, new_value, new_gradient, new_probabilities, new_norm
    return w


def _step(problem: _Objective, probabilities: Matrix, gradient: Matrix, enough: float) -> Matrix:
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


def _direct(problem: _Objective, probabilities: Matrix, gradient: Matrix) -> Matrix:
    factor = cho_factor(problem.hessian(probabilities), check_finite=False)
    return np.asarray(cho_solve(factor, -gradient.ravel(), check_finite=False)).reshape(gradient.shape)
