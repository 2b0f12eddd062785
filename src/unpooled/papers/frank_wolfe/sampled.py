"""Rounds over sampled columns: what all of them share, and those of one ball with least squares."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, final

import numpy as np

from unpooled.kernels.columns import add_column, column_dot, column_square, scores
from unpooled.kernels.compiled import njit
from unpooled.kernels.newton import Iterate
from unpooled.papers.frank_wolfe.problem import LEAST_SCALE

if TYPE_CHECKING:
    from collections.abc import Callable

    from unpooled.kernels.columns import Index, Places, Vector
    from unpooled.papers.frank_wolfe.problem import Problem
    from unpooled.papers.frank_wolfe.theory import Sampling

    Oracle = Callable[[Index, Vector], Vector]


class Sampled(ABC):
    """The state and the methods that both engines for sampled columns share."""

    def __init__(self, problem: Problem, law: Sampling, rng: np.random.Generator, oracle: Oracle | None) -> None:
        d, count = problem.columns.shape[1], problem.radii.size
        self._problem, self._rng, self._oracle, self._t = problem, rng, oracle, 0
        self._draw = law.start()
        self._x = np.zeros(d)
        #: A chain of the support of every block: its first column, and the next of every column (-1: none, -2: not in it).
        self._heads, self._links = np.full(count, -1, dtype=np.int64), np.full(d, -2, dtype=np.int64)

    def run(self, stop: int, limit: float) -> Iterate:  # noqa: ARG002 - the gap is known to point() only
        """Go on to round ``stop``."""
        while self._t < stop:
            self._round(np.asarray(self._draw(self._rng, self._t), dtype=np.int64))
            self._t += 1
        return self.point(self._t)

    @abstractmethod
    def _round(self, columns: Index) -> None:
        """Search these columns, and step."""

    @abstractmethod
    def point(self, t: int) -> Iterate:
        """Return the iterate, with its gap."""

    def _chosen(self, columns: Index, slopes: Vector) -> Vector:
        return slopes if self._oracle is None else np.asarray(self._oracle(columns, slopes / self._problem.target.size))

    def _point(self, t: int, x: Vector, pulls: Vector, objective: float) -> Iterate:
        """Return the iterate at x, with its objective and duality gap, given n times the derivatives by predictions (``pulls``)."""
        problem, n = self._problem, self._problem.target.size
        support = np.flatnonzero(x)
        slopes = scores(problem.columns, None, pulls)
        tops = np.zeros(problem.radii.size)
        np.maximum.at(tops, problem.owner, np.abs(slopes))
        gap = float(x[support] @ slopes[support]) + float(problem.radii @ tops)
        return Iterate(support, x[support], x.size, objective, max(gap, 0.0) / n, t)


@final
class Ball(Sampled):
    """Sampled columns of one ball, least squares: predictions and coefficients share one lazy scale."""

    def __init__(self, problem: Problem, law: Sampling, rng: np.random.Generator, oracle: Oracle | None) -> None:
        super().__init__(problem, law, rng, oracle)
        self._predictions = np.zeros(problem.target.size)
        #: scale, |Ax|^2, y.Ax
        self._state = np.array([1.0, 0.0, 0.0])

    def _round(self, columns: Index) -> None:
        problem, held = self._problem, self._problem.columns
        step = problem.step(self._t)
        slopes = residual_scores(
            held.data, held.rows, held.starts, columns, self._predictions, problem.target, self._state[0]
        )
        _ball_step(
            held.data, held.rows, held.starts, columns, slopes, self._chosen(columns, slopes), problem.target,
            problem.radii[0], step, problem.descend, self._predictions, self._x, self._heads, self._links, self._state,
        )  # fmt: skip

    def point(self, t: int) -> Iterate:
        """Return the iterate, with its gap."""
        target = self._problem.target
        residuals = self._state[0] * self._predictions - target
        return self._point(t, self._state[0] * self._x, residuals, float(residuals @ residuals) / (2 * target.size))


@njit(nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _dense_residual(column: Vector, predictions: Vector, target: Vector, scale: float) -> float:
    total = 0.0
    for i in range(column.size):
        total += column[i] * (scale * predictions[i] - target[i])
    return total


@njit(nogil=True)
def residual_scores(
    data: Vector, rows: Places, starts: Places, columns: Index, predictions: Vector, target: Vector, scale: float
) -> Vector:
    """a_j . (scale * predictions - target)."""
    n, out = target.size, np.empty(columns.size)
    for k in range(columns.size):
        j = columns[k]
        if starts.size:
            total = 0.0
            for e in range(starts[j], starts[j + 1]):
                total += data[e] * (scale * predictions[rows[e]] - target[rows[e]])
            out[k] = total
        else:
            out[k] = _dense_residual(data[j * n : (j + 1) * n], predictions, target, scale)
    return out


@njit(nogil=True)
def _ball_step(
    data: Vector,
    rows: Places,
    starts: Places,
    columns: Index,
    slopes: Vector,
    chosen: Vector,
    target: Vector,
    radius: float,
    step: float,
    descend: bool,
    predictions: Vector,
    x: Vector,
    heads: Index,
    links: Index,
    state: Vector,
) -> None:
    if columns.size == 0:
        return
    scale, square, cross = state[0], state[1], state[2]
    best = 0
    for k in range(columns.size):
        if abs(chosen[k]) > abs(chosen[best]):
            best = k
    j, slope = columns[best], slopes[best]
    weight = -radius if chosen[best] > 0 else radius
    gap = square - cross - weight * slope
    if descend and gap <= 0:
        return
    towards = weight * column_dot(data, rows, starts, target.size, j, target)
    along = weight * slope + towards
    length = weight * weight * column_square(data, starts, target.size, j)
    gamma = step
    if gamma < 0:
        away = length - 2 * along + square
        gamma = min(max(gap / away, 0.0), 1.0) if away > 0 else (1.0 if gap > 0 else 0.0)
    keep = 1.0 - gamma
    state[1] = keep * keep * square + 2 * gamma * keep * along + gamma * gamma * length
    state[2] = keep * cross + gamma * towards
    scale *= keep
    if scale < LEAST_SCALE:
        k = heads[0]
        while k >= 0:
            x[k] *= scale
            k = links[k]
        predictions *= scale
        scale = 1.0
    state[0] = scale
    if links[j] == -2:  # noqa: PLR2004 - not in the chain
        links[j] = heads[0]
        heads[0] = j
    x[j] += gamma * weight / scale
    add_column(data, rows, starts, target.size, j, gamma * weight / scale, predictions)
