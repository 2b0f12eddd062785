r"""Stochastic dual coordinate ascent (Shalev-Shwartz & Zhang 2013) with the duality gap as certificate.

Primal :math:`P(b) = \sum_i f_i(x_i b) + \frac\alpha2 |b|^2`, dual :math:`D(a) = -\sum_i f_i^*(a_i) - |X^T a|^2 / 2\alpha`,
joined by :math:`b = -X^T a / \alpha` (the paper's J times n, :math:`\alpha = n\lambda`). Squared loss
:math:`f = (y - u)^2 / 2` has :math:`f^*(a) = a^2/2 + ay`; logistic loss :math:`f = \log(1 + e^{-yu})` has the negative
entropy of :math:`s = -ya \in [0, 1]`.

With that b the gap is a sum of Fenchel-Young terms, :math:`P(b) - D(a) = \sum_i f_i(u_i) + f_i^*(a_i) - a_i u_i`, each
non-negative and computed here without cancellation: :math:`(u - y - a)^2 / 2`, and the Kullback-Leibler divergence from
:math:`1/(1 + e^{yu})` to s. It stays meaningful far below the rounding of P itself, and bounds the coefficients:
:math:`|b - b^*|^2 \le 2\,\mathrm{gap} / \alpha`.

There is no intercept: unpenalised, it would tie all dual variables together (:math:`\sum a_i = 0`) and no single one could
move. For squared loss centring design and target is exact; for logistic loss use :mod:`unpooled.kernels.newton`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np

from unpooled.kernels.compiled import njit
from unpooled.kernels.newton import Solution

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]

#: Epochs between two evaluations of the gap: an evaluation costs as much as an epoch, the coefficients are rebuilt on the
#: way.
_EPOCHS_PER_CHECK = 8


@njit(inline="always")
def _sigmoid(t: float) -> float:
    """1 / (1 + e^-t) to full relative precision on both sides."""
    if t >= 0:
        return 1.0 / (1.0 + math.exp(-t))
    e = math.exp(t)
    return e / (1.0 + e)


@njit(inline="always")
def _excess(x: float) -> float:
    """Return x - log(1 + x) for x >= -1, accurate near 0."""
    if abs(x) < 1e-2:  # noqa: PLR2004 - the series' next term is below 1e-18 of the first
        return x * x * (1 / 2 - x * (1 / 3 - x * (1 / 4 - x * (1 / 5 - x * (1 / 6 - x * (1 / 7 - x * (1 / 8 - x / 9)))))))
    return x - math.log1p(x)


@njit(nogil=True)
def _logistic_step(t: float, margin: float, curvature: float) -> float:
    """Return the root of h(t') = t' - margin - curvature (s(t') - s(t)), s(t) = 1/(1 + e^t); dual variables live as t = log((1-s)/s).

    The derivative is at least 1 and the root lies within [margin - curvature s, margin + curvature (1 - s)]: Newton steps,
    bisection where they leave it.
    """
    s = _sigmoid(-t)
    low, high = margin - curvature * s, margin + curvature * _sigmoid(t)
    root, before = min(max(t, low), high), high - low
    for _ in range(200):
        moved = _sigmoid(-root)
        h = root - margin - curvature * (moved - s)
        if h > 0:
            high = root
        else:
            low = root
        following = root - h / (1.0 + curvature * moved * _sigmoid(root))
        # Bisection also where steps do not shrink: Newton alone can go back and forth between two points for ever.
        if not low <= following <= high or abs(following - root) > 0.5 * before:
            following = 0.5 * (low + high)
        before = abs(following - root)
        root = following
        if before <= 4e-16 * (1.0 + abs(root)):
            break
    return root


@njit(inline="always")
def _softplus(t: float) -> float:
    """Log(1 + e^t)."""
    return max(t, 0.0) + math.log1p(math.exp(-abs(t)))


@njit(nogil=True)
def _divergence(t: float, m: float) -> float:
    """Kullback-Leibler divergence from s(m) to s(t), s(t) = 1/(1 + e^t), to full relative precision."""
    s, rest = _sigmoid(-t), _sigmoid(t)
    if abs(t - m) > 1.0:
        return s * (_softplus(m) - _softplus(t)) + rest * (_softplus(-m) - _softplus(-t))
    # s e(d/s) + (1-s) e(-d/(1-s)) with e(x) = x - log(1+x), d = s(m) - s: the linear terms cancel on paper.
    d = _sigmoid(-m) - s if t > 0 else rest - _sigmoid(m)
    return (s * _excess(d / s) if s > 0.0 else 0.0) + (rest * _excess(-d / rest) if rest > 0.0 else 0.0)


@njit(nogil=True)
def _rebuild(design: Matrix, target: Vector, alpha: float, logistic: bool, state: Vector, b: Vector) -> tuple[float, float]:
    """Return coefficients from the dual variables; the gap and the primal value there."""
    b[:] = 0.0
    for i in range(target.size):
        a = -target[i] * _sigmoid(-state[i]) if logistic else state[i]
        for j in range(b.size):
            b[j] -= a / alpha * design[i, j]
    gap, primal = 0.0, 0.5 * alpha * np.dot(b, b)
    for i in range(target.size):
        u = np.dot(design[i], b)
        if logistic:
            m = target[i] * u
            gap += _divergence(state[i], m)
            primal += _softplus(-m)
        else:
            gap += 0.5 * (u - target[i] - state[i]) ** 2
            primal += 0.5 * (u - target[i]) ** 2
    return gap, primal


@njit(nogil=True)
def _epoch(
    design: Matrix,
    target: Vector,
    alpha: float,
    logistic: bool,
    norms: Vector,
    order: NDArray[np.int64],
    state: Vector,
    b: Vector,
) -> None:
    """One exact maximisation over every dual variable, in this order."""
    for i in order:
        u, curvature = np.dot(design[i], b), norms[i] / alpha
        if logistic:
            moved = _logistic_step(state[i], target[i] * u, curvature)
            change = -target[i] * (_sigmoid(-moved) - _sigmoid(-state[i]))
        else:
            change = (u - target[i] - state[i]) / (1.0 + curvature)
            moved = state[i] + change
        state[i] = moved
        for j in range(b.size):
            b[j] -= change / alpha * design[i, j]


def sdca(
    design: Matrix,
    target: Vector,
    alpha: float,
    *,
    loss: Literal["squared", "logistic"] = "squared",
    tolerance: float = 1e-12,
    max_epochs: int = 100_000,
    seed: int = 0,
) -> Solution:
    """Minimise sum f_i(x_i b) + alpha/2 |b|^2, alpha > 0, without intercept (see the module).

    Stops at a gap of at most ``tolerance * max(1, P)`` or after ``max_epochs``, whichever comes first; ``converged`` says
    which. The certificate is the duality gap, ``dual`` is a, and an iteration is an epoch. The order of the samples is a fresh random permutation per epoch, a function of the public ``seed`` alone. For
    logistic loss the target is -1 or 1.
    """
    if not alpha > 0:
        raise ValueError("alpha must be positive: without a penalty the dual has no solution to certify")
    if loss not in {"squared", "logistic"}:
        msg = f"unknown loss {loss!r}: squared or logistic"
        raise ValueError(msg)
    logistic = loss == "logistic"
    if logistic and not np.isin(target, (-1.0, 1.0)).all():
        raise ValueError("the target of a logistic loss is -1 or 1")
    design = np.ascontiguousarray(design, dtype=np.float64)
    target = np.ascontiguousarray(target, dtype=np.float64)
    norms = np.einsum("ij,ij->i", design, design)
    # Squared loss keeps a itself; logistic loss the log odds t of s = -ya, which represent s near 0 and near 1 alike.
    state, b = np.zeros(target.size), np.zeros(design.shape[1])
    generator, epochs = np.random.default_rng(seed), 0
    while True:
        gap, primal = _rebuild(design, target, alpha, logistic, state, b)
        if gap <= tolerance * max(1.0, primal) or epochs >= max_epochs:
            break
        for _ in range(min(_EPOCHS_PER_CHECK, max_epochs - epochs)):
            _epoch(design, target, alpha, logistic, norms, generator.permutation(target.size), state, b)
            epochs += 1
    dual = -target / (1 + np.exp(np.minimum(state, 700.0))) if logistic else state
    return Solution(b, primal, gap, epochs, gap <= tolerance * max(1.0, primal), dual=dual)
