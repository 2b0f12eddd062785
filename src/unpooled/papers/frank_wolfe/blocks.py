"""Rounds over sampled columns of several blocks, or with the logistic loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import numpy as np

from unpooled.kernels.columns import add_column
from unpooled.kernels.compiled import njit
from unpooled.papers.frank_wolfe.sampled import Sampled, residual_scores

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.kernels.columns import Index, Places, Vector
    from unpooled.kernels.newton import Iterate
    from unpooled.papers.frank_wolfe.problem import Problem
    from unpooled.papers.frank_wolfe.sampled import Oracle
    from unpooled.papers.frank_wolfe.theory import Sampling

_NEWTON = 60


@final
class Blocks(Sampled):
    """Sampled columns of several blocks, or the logistic loss: predictions are changed through the support of each block."""

    def __init__(
        self, problem: Problem, law: Sampling, rng: np.random.Generator, oracle: Oracle | None, *, logistic: bool
    ) -> None:
        super().__init__(problem, law, rng, oracle)
        n, count = problem.target.size, problem.radii.size
        self._logistic = logistic
        self._predictions, self._direction = np.zeros(n), np.zeros(n)
        self._touched, self._mark = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.bool_)
        self._vertices, self._moving = np.full(count, -1, dtype=np.int64), np.zeros(count, dtype=np.int64)
        self._weights = np.zeros(count)

    def _pulls(self) -> Vector:
        target = self._problem.target
        if not self._logistic:
            return self._predictions - target
        return -target * np.exp(-np.logaddexp(0.0, target * self._predictions))

    def _round(self, columns: Index) -> None:
        problem, held = self._problem, self._problem.columns
        matrix = (held.data, held.rows, held.starts)
        # Least squares has residuals where they are asked for, without a pass over all rows.
        pulls, target = (
            (self._pulls(), np.zeros_like(problem.target)) if self._logistic else (self._predictions, problem.target)
        )
        slopes = residual_scores(*matrix, columns, pulls, target, 1.0)
        moving, touched, slope, length = _turn(
            *matrix, columns, slopes, self._chosen(columns, slopes), problem.owner, problem.radii, problem.descend,
            pulls, target, self._x, self._heads, self._links, self._vertices, self._weights, self._moving,
            self._direction, self._touched, self._mark,
        )  # fmt: skip
        gamma = problem.step(self._t)
        if gamma < 0:
            if slope >= 0:
                gamma = 0.0
            elif self._logistic:
                gamma = logistic_search(problem.target * self._predictions, problem.target * self._direction)
            else:
                gamma = min(-slope / length, 1.0) if length > 0 else 1.0
        _go(
            gamma, self._x, self._heads, self._links, self._vertices, self._weights, self._moving[:moving],
            self._predictions, self._direction, self._touched[:touched], self._mark,
        )  # fmt: skip

    def point(self, t: int) -> Iterate:
        """Return the iterate, with its gap."""
        target = self._problem.target
        if self._logistic:
            objective = float(np.logaddexp(0.0, -target * self._predictions).mean())
        else:
            objective = float(((self._predictions - target) ** 2).mean()) / 2
        return self._point(t, self._x.copy(), self._pulls(), objective)


@njit(nogil=True)
def _turn(  # noqa: C901 - one pass over blocks, one over their supports
    data: Vector,
    rows: Places,
    starts: Places,
    columns: Index,
    slopes: Vector,
    chosen: Vector,
    owner: Index,
    radii: Vector,
    descend: bool,
    pulls: Vector,
    target: Vector,
    x: Vector,
    heads: Index,
    links: Index,
    vertices: Index,
    weights: Vector,
    moving: Index,
    direction: Vector,
    touched: Index,
    mark: NDArray[np.bool_],
) -> tuple[int, int, float, float]:
    """Return the direction of the sampled blocks in predictions: how many blocks and rows move, n times the slope, squared length."""
    n, blocks = target.size, 0
    for i in range(columns.size):
        k = owner[columns[i]]
        if vertices[k] < 0:
            moving[blocks] = k
            blocks += 1
            vertices[k] = i
        elif abs(chosen[i]) > abs(chosen[vertices[k]]):
            vertices[k] = i
    kept, touches, slope = 0, 0, 0.0
    here = np.empty(1, dtype=np.int64)
    for b in range(blocks):
        k = moving[b]
        i = vertices[k]
        j = columns[i]
        weight = -radii[k] if chosen[i] > 0 else radii[k]
        change = weight * slopes[i]
        m = heads[k]
        while m >= 0:
            here[0] = m
            if x[m] != 0.0:
                change -= x[m] * residual_scores(data, rows, starts, here, pulls, target, 1.0)[0]
            m = links[m]
        if descend and change >= 0:
            vertices[k] = -1
            continue
        vertices[k], weights[k] = j, weight
        moving[kept] = k
        kept += 1
        slope += change
        touches = _aim(data, rows, starts, n, j, weight, direction, touched, mark, touches)
        m = heads[k]
        while m >= 0:
            if x[m] != 0.0:
                touches = _aim(data, rows, starts, n, m, -x[m], direction, touched, mark, touches)
            m = links[m]
    length = 0.0
    for e in range(touches):
        length += direction[touched[e]] ** 2
    return kept, touches, slope, length


@njit(nogil=True)
def _aim(
    data: Vector,
    rows: Places,
    starts: Places,
    n: int,
    j: int,
    weight: float,
    direction: Vector,
    touched: Index,
    mark: NDArray[np.bool_],
    touches: int,
) -> int:
    """Add weight * a_j to the direction; rows met for the first time join the list of touched ones."""
    add_column(data, rows, starts, n, j, weight, direction)
    if starts.size:
        for e in range(starts[j], starts[j + 1]):
            if not mark[rows[e]]:
                mark[rows[e]] = True
                touched[touches] = rows[e]
                touches += 1
    elif touches == 0:
        for i in range(n):
            touched[i] = i
        touches = n
    return touches


@njit(nogil=True)
def _go(
    gamma: float,
    x: Vector,
    heads: Index,
    links: Index,
    vertices: Index,
    weights: Vector,
    moving: Index,
    predictions: Vector,
    direction: Vector,
    touched: Index,
    mark: NDArray[np.bool_],
) -> None:
    """Move by gamma, and leave the workspace clean."""
    for k in moving:
        m = heads[k]
        while m >= 0:
            x[m] *= 1.0 - gamma
            m = links[m]
        j = vertices[k]
        if links[j] == -2:  # noqa: PLR2004 - not in the chain
            links[j] = heads[k]
            heads[k] = j
        x[j] += gamma * weights[k]
        vertices[k] = -1
    for i in touched:
        predictions[i] += gamma * direction[i]
        direction[i] = 0.0
        mark[i] = False


def logistic_search(margins: Vector, change: Vector) -> float:
    """Return the minimum over [0, 1] of the logistic loss at margins + gamma * change: Newton, bisection where that leaves it."""
    low, high, gamma = 0.0, 1.0, 1.0
    for _ in range(_NEWTON):
        miss = np.exp(-np.logaddexp(0.0, margins + gamma * change))
        slope = -float(change @ miss)
        if slope > 0:
            high = gamma
        elif gamma >= 1.0:
            return 1.0
        else:
            low = gamma
        bend = float(change**2 @ (miss * (1.0 - miss)))
        tried = gamma - slope / bend if bend > 0 else -1.0
        if not low < tried < high:
            tried = (low + high) / 2
        if abs(tried - gamma) <= 1e-15 * gamma:
            break
        gamma = tried
    return gamma
