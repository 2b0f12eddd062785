r"""Joint losses of a response with several classes: softmax (unordered) and proportional odds (ordered).

Softmax: logits :math:`L = (U + 1 s^T) Q^T`, Q an orthonormal basis (C x (C - 1)) of what sums to zero. A penalty on all C coefficients of a
column has its minimum where they sum to zero, so C - 1 decisions suffice: :math:`|B Q^T| = |B|`.

Proportional odds: :math:`P(y \le j) = \sigma(s_j - u)` with rising thresholds s.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit, log_softmax, softmax

from unpooled.kernels.ridge import product

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.kernels.joint_newton import JointLoss

    Vector = NDArray[np.float64]
    Array = NDArray[np.float64]
    Matrix = NDArray[np.float64]
    Index = NDArray[np.intp]


#: Thresholds carried to other rows lie between these, and so far apart at least.
_FAR, _ROOM = 30.0, 1e-6


def contrasts(classes: int) -> Matrix:
    """Q: orthonormal columns that sum to zero (Helmert's)."""
    found = np.zeros((classes, classes - 1))
    for j in range(classes - 1):
        found[: j + 1, j], found[j + 1, j] = 1.0, -(j + 1.0)
    return np.asarray(found / np.sqrt((found**2).sum(axis=0)), dtype=np.float64)


@dataclass(frozen=True)
class RowBend:
    """A loss of rows with m decisions each about a point: W is a block of m x m for every row."""

    pull: Matrix
    blocks: Array
    slope: Vector
    cross: Array
    square: Matrix

    def times(self, directions: Array) -> Array:
        """W V."""
        return self.blocks @ directions

    def _identity(self, t: float) -> Array:
        return np.eye(self.blocks.shape[1]) + t * self.blocks

    def damped(self, directions: Array, t: float) -> Array:
        """Return (I + t W)^-1 V, row by row."""
        return np.asarray(np.linalg.solve(self._identity(t), directions), dtype=np.float64) if t else directions

    def log_determinant(self, t: float) -> float:
        """Return log det(I + t W)."""
        return float(np.linalg.slogdet(self._identity(t))[1].sum())

    def curvature(self, features: Matrix, t: float) -> Matrix:
        """F' W R F, a weighted Gram matrix for every pair of decisions."""
        blocks = self.damped(self.blocks, t)  # R and W commute
        (n, size), m = features.shape, blocks.shape[1]
        assert n == blocks.shape[0]
        found = np.empty((m * size, m * size))
        for a in range(m):
            for b in range(a + 1):
                block = product(features.T, blocks[:, a, b][:, None] * features)
                found[a * size : (a + 1) * size, b * size : (b + 1) * size] = block
                found[b * size : (b + 1) * size, a * size : (a + 1) * size] = block.T
        return found


@dataclass(frozen=True)
class SoftmaxLoss:
    """-log p of classes 0 .. C - 1."""

    labels: Index
    classes: int
    fit_intercept: bool = True

    @cached_property
    def contrasts(self) -> Matrix:
        """Q."""
        return contrasts(self.classes)

    @property
    def width(self) -> int:
        """C - 1."""
        return self.classes - 1

    @property
    def rows(self) -> int:
        """N."""
        return int(self.labels.size)

    def start(self) -> Vector:
        """Return the classes' log frequencies, half a row more in each; nothing without intercepts."""
        if not self.fit_intercept:
            return np.empty(0)
        counts = np.bincount(self.labels, minlength=self.classes) + 0.5
        return np.asarray(self.contrasts.T @ np.log(counts / counts.sum()))

    def logits(self, decisions: Matrix, shared: Vector) -> Matrix:
        """All C of them."""
        return np.asarray((decisions + shared if shared.size else decisions) @ self.contrasts.T)

    def value(self, decisions: Matrix, shared: Vector) -> float:
        """Return the negative log likelihood."""
        return -float(log_softmax(self.logits(decisions, shared), axis=1)[np.arange(self.rows), self.labels].sum())

    def bend(self, decisions: Matrix, shared: Vector) -> RowBend:
        """Return derivatives about these decisions."""
        p = softmax(self.logits(decisions, shared), axis=1)
        truth = np.zeros_like(p)
        truth[np.arange(self.rows), self.labels] = 1.0
        q = self.contrasts
        pull, mean = (truth - p) @ q, p @ q
        blocks = np.einsum("nc,ca,cb->nab", p, q, q, optimize=True) - mean[:, :, None] * mean[:, None, :]
        if not shared.size:
            return RowBend(pull, blocks, np.empty(0), np.empty((self.rows, self.width, 0)), np.empty((0, 0)))
        return RowBend(pull, blocks, -pull.sum(axis=0), blocks, blocks.sum(axis=0))

    def of_rows(self, rows: Index) -> SoftmaxLoss:
        """Return the loss of some rows."""
        return SoftmaxLoss(self.labels[rows], self.classes, self.fit_intercept)

    def carried(self, fitted: JointLoss, shared: Vector) -> Vector:  # noqa: ARG002 - intercepts of all classes, whichever occur
        """Return the same intercepts."""
        return shared


@dataclass(frozen=True)
class ProportionalOdds:
    """-log P(y = j) = -log(sigma(s_j - u) - sigma(s_(j-1) - u)) of levels 0 .. J - 1."""

    labels: Index
    levels: int

    @property
    def width(self) -> int:
        """Return one decision a row."""
        return 1

    @property
    def rows(self) -> int:
        """N."""
        return int(self.labels.size)

    @cached_property
    def _present(self) -> tuple[Index, Index]:
        """Return the levels that occur, and the labels among them: nothing says where a level that does not occur ends."""
        found, places = np.unique(self.labels, return_inverse=True)
        return found, places.ravel()

    def start(self) -> Vector:
        """Cumulative log odds of the levels that occur."""
        counts = np.bincount(self._present[1])
        share = np.cumsum(counts)[:-1] / counts.sum()
        return np.asarray(np.log(share / (1 - share)))

    def thresholds(self, shared: Vector) -> Vector:
        """All J - 1: a level that does not occur takes up no room, or all that is left at the ends."""
        found = self._present[0]
        ends = np.searchsorted(found, np.arange(self.levels - 1), side="right") - 1  # the last level that occurs up to j
        padded = np.concatenate([[-np.inf], shared, [np.inf]])
        return padded[ends + 1]

    def _bounds(self, decisions: Matrix, shared: Vector) -> tuple[Vector, Vector]:
        padded, places = np.concatenate([[-np.inf], shared, [np.inf]]), self._present[1]
        return padded[places + 1] - decisions[:, 0], padded[places] - decisions[:, 0]

    def value(self, decisions: Matrix, shared: Vector) -> float:
        """Return the negative log likelihood; infinite where thresholds do not rise."""
        if (np.diff(shared) <= 0).any():
            return np.inf
        upper, lower = self._bounds(decisions, shared)
        return -float(_log_between(upper, lower).sum())

    def bend(self, decisions: Matrix, shared: Vector) -> RowBend:
        """Return derivatives about these decisions: with z = (upper, lower), -log(sigma(z_1) - sigma(z_2)), of which both end in u and one in each threshold."""
        upper, lower = self._bounds(decisions, shared)
        top, bottom = _upward(upper), _upward(-lower)  # 1 - sigma(upper), sigma(lower)
        # sigma(a) - sigma(b) = sigma(a) sigma(-b) (1 - e^(b - a)), so -log of it has three convex parts.
        with np.errstate(over="ignore"):
            gap = np.where(np.isfinite(upper) & np.isfinite(lower), 1 / np.expm1(np.maximum(upper - lower, 1e-300)), 0.0)
        first, second = -top - gap, bottom + gap  # derivatives of the loss by upper and lower
        bend_gap = gap * (1 + gap)
        squares = (top * (1 - top) + bend_gap, bottom * (1 - bottom) + bend_gap, -bend_gap)
        pull = (first + second)[:, None]  # u enters with -1
        blocks = (squares[0] + squares[1] + 2 * squares[2])[:, None, None]
        k, places, rows = shared.size, self._present[1], np.arange(self.rows)
        by_upper, by_lower = np.zeros((self.rows, k + 2)), np.zeros((self.rows, k + 2))
        by_upper[rows, places + 1], by_lower[rows, places] = 1.0, 1.0
        by_upper, by_lower = by_upper[:, 1:-1], by_lower[:, 1:-1]
        slope = by_upper.T @ first + by_lower.T @ second
        cross = -(by_upper * (squares[0] + squares[2])[:, None] + by_lower * (squares[1] + squares[2])[:, None])
        square = by_upper.T @ (by_upper * squares[0][:, None] + by_lower * squares[2][:, None])
        square += by_lower.T @ (by_lower * squares[1][:, None] + by_upper * squares[2][:, None])
        return RowBend(pull, blocks, slope, cross[:, None, :], square)

    def of_rows(self, rows: Index) -> ProportionalOdds:
        """Return the loss of some rows, with thresholds of the levels that occur among them."""
        return ProportionalOdds(self.labels[rows], self.levels)

    def carried(self, fitted: JointLoss, shared: Vector) -> Vector:
        """Return the thresholds that a fit of some rows says for these; a level that only these have is rare, and keeps a little room."""
        assert isinstance(fitted, ProportionalOdds)
        told = np.clip(fitted.thresholds(shared), -_FAR, _FAR)[self._present[0][:-1]]
        return np.maximum.accumulate(told + _ROOM * np.arange(told.size))


def _upward(z: Vector) -> Vector:
    """sigma(-z)."""
    return np.asarray(expit(-z))


def _log_between(upper: Vector, lower: Vector) -> Vector:
    """log(sigma(upper) - sigma(lower)) without cancellation, ends at infinity included."""
    inner = np.isfinite(upper) & np.isfinite(lower)
    gap = np.where(inner, upper - lower, np.inf)
    return np.asarray(-np.logaddexp(0.0, -upper) - np.logaddexp(0.0, lower) + np.log(-np.expm1(-gap)))
