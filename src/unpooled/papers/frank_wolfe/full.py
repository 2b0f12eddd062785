"""Rounds over all columns, least squares: the gradient is kept, and what it needs of the matrix is made ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import numpy as np
from scipy.linalg import blas

from unpooled.kernels.columns import scores
from unpooled.kernels.compiled import njit
from unpooled.kernels.newton import Iterate
from unpooled.papers.frank_wolfe.noisy import foresee
from unpooled.papers.frank_wolfe.rounds import advance
from unpooled.papers.frank_wolfe.search import ROUNDING, TILE, tile_top

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.kernels.columns import Index, Places, Vector
    from unpooled.papers.frank_wolfe.problem import Problem

#: Products A^T a_j of a dense matrix: so many made in one pass, and so many numbers kept.
_AHEAD, _KEPT = 16, 1 << 25
#: The same where columns are picked with noise and foreseen.
_NOISY_AHEAD = 64
#: Rows of a sparse matrix: those of so many columns are listed in one pass, and all of them after so many passes.
_ROWS_AHEAD, _PASSES = 64, 8


@final
class Full:
    """All columns, least squares: the gradient is kept."""

    def __init__(self, problem: Problem, temperature: float = 0.0, key: int = 0) -> None:
        held, (n, d) = problem.columns, problem.columns.shape
        self._problem, self._t = problem, 0
        self._temperature, self._key = temperature, key
        self._moments = scores(held, None, problem.target)  # A^T y
        self._moved, self._x = np.zeros(d), np.zeros(d)  # A^T A x and x, both divided by the scale
        #: scale, |Ax|^2, y.Ax, |y|^2, n times the gap
        self._state = np.array([1.0, 0.0, 0.0, float(problem.target @ problem.target), np.inf])
        # Tiles are stretches of the columns in the order of their blocks, and never of two blocks.
        sizes = np.bincount(problem.owner)
        order, self._ends = np.argsort(problem.owner, kind="stable"), np.cumsum(-(-sizes // TILE))
        starts = [np.arange(end - size, end, TILE) for size, end in zip(sizes, np.cumsum(sizes), strict=True)]
        self._edges, home = np.concatenate([*starts, [d]]), np.empty(d, dtype=np.int32)
        home[order] = np.repeat(np.arange(self._ends[-1]), np.diff(self._edges))
        #: Columns by position, or none if they are in order already; and in which tile they are.
        self._order, self._home = order if (np.diff(order) < 0).any() else np.empty(0, dtype=np.int64), home
        self._tops = np.empty(self._ends[-1])
        for b in range(self._tops.size):
            self._tops[b] = tile_top(self._moved, self._moments, 1.0, self._order, self._edges[b], self._edges[b + 1])
        #: No score of a tile is larger in magnitude than its bound.
        self._bounds = self._tops * (1 + ROUNDING)
        self._chosen, self._weights = np.zeros(problem.radii.size, dtype=np.int64), np.zeros(problem.radii.size)
        self._work = np.zeros(n if held.sparse else 1)
        #: Where a column's product is kept, or that its rows are listed; -1: not yet.
        self._slots, self._passes = np.full(d, -1, dtype=np.int64), 0
        #: Rows that are listed: values, columns, where a row begins (-1: it is not listed) and ends.
        self._rows = np.zeros(0), np.zeros(0, dtype=np.int32), np.full(n, -1), np.full(n, -1)
        room = 0 if held.sparse else min(d, max(_KEPT // d, _NOISY_AHEAD * (problem.radii.size + 1)))
        self._products, self._kept = np.empty((room, d)), np.full(room, -1, dtype=np.int64)
        self._next = self._looked = 0

    def run(self, stop: int, limit: float) -> Iterate:
        """Go on to round ``stop``, or until the gap is at most the limit."""
        problem = self._problem
        held = problem.columns
        while True:
            self._t, missing = advance(
                held.data, held.rows, held.starts, *self._rows, self._products, self._slots,
                self._moments, self._moved, self._x, self._state, self._bounds, self._tops,
                self._order, self._home, self._edges, self._ends, problem.radii, self._chosen, self._weights, self._work,
                self._temperature, self._key, problem.descend, problem.search, self._t, stop, limit * held.shape[0],
            )  # fmt: skip
            if missing < 0:
                return self.point(self._t)
            self._make(missing)

    def _make(self, missing: int) -> None:
        """Prepare a column, and those most likely to be next, so that the gradient can follow them."""
        held = self._problem.columns
        promise = np.abs(self._state[0] * self._moved - self._moments)
        promise[self._slots >= 0] = -1.0
        promise[self._chosen] = np.where(self._slots[self._chosen] < 0, np.inf, -1.0)  # of this round
        promise[missing] = np.inf
        count = min(_ROWS_AHEAD if held.sparse else _AHEAD, promise.size)
        if self._temperature and not held.sparse:
            foreseen = self._foreseen()
            promise[foreseen] = np.inf
            count = min(max(count, foreseen.size + self._chosen.size), promise.size)
        likely = np.argpartition(promise, -count)[-count:]
        likely = likely[promise[likely] >= 0]
        if held.sparse:
            self._passes += 1
            # Noise picks ever new columns, which soon reach every row.
            few = self._passes < (2 if self._temperature else _PASSES)
            likely = likely if few else np.flatnonzero(self._slots < 0)
            self._rows = _list_rows(held.data, held.rows, held.starts, likely, *self._rows)
            self._slots[likely] = 0
            return
        places = (self._next + np.arange(likely.size)) % self._kept.size  # the oldest make room
        self._next = int(places[-1] + 1) % self._kept.size
        out = self._kept[places]
        self._slots[out[out >= 0]] = -1
        dense = held.dense()
        self._products[places] = blas.dgemm(1.0, dense, dense[:, likely], trans_a=True).T
        self._kept[places], self._slots[likely] = likely, places

    def _foreseen(self) -> Index:
        """Return columns that the next rounds will likely pick: for somewhat more rounds than the last such look was good for."""
        found = np.empty(_NOISY_AHEAD, dtype=np.int64)
        rounds, self._looked = self._t - self._looked + _AHEAD, self._t
        number = foresee(
            self._problem.columns.data, self._products, self._slots, self._moments, self._moved, self._state[0],
            self._order, self._edges, self._ends, self._problem.radii, self._temperature, self._key, self._t, rounds, found,
        )  # fmt: skip
        return found[:number]

    def point(self, t: int) -> Iterate:
        """Return the iterate, with its gap."""
        n = self._problem.columns.shape[0]
        scale, square, cross, total, gap = (float(value) for value in self._state)
        support = np.flatnonzero(self._x)
        objective = (square - 2 * cross + total) / (2 * n)
        return Iterate(support, scale * self._x[support], self._x.size, objective, gap / n, t)

    def gradient(self) -> Vector:
        """Return the gradient of f as it is kept."""
        found: Vector = (self._state[0] * self._moved - self._moments) / self._problem.columns.shape[0]
        return found


@njit(nogil=True)
def _list_rows(
    data: Vector,
    rows: Places,
    starts: Places,
    columns: Index,
    row_data: Vector,
    row_columns: NDArray[np.int32],
    begins: Index,
    ends: Index,
) -> tuple[Vector, NDArray[np.int32], Index, Index]:
    """Return the lists of rows, extended by the rows that these columns touch: one pass over the nonzeros."""
    new = np.zeros(begins.size, dtype=np.uint8)
    for j in columns:
        for e in range(starts[j], starts[j + 1]):
            new[rows[e]] = begins[rows[e]] < 0
    places, count = np.empty(rows.size + 1, dtype=rows.dtype), 0
    for e in range(rows.size):  # without a branch: an entry that does not count is written over
        places[count] = e
        count += int(new[rows[e]])
    for e in places[:count]:
        ends[rows[e]] += 1
    at = row_data.size
    for i in range(begins.size):
        if new[i]:
            begins[i], at = at, at + ends[i] + 1
            ends[i] = begins[i]
    values, owners = np.empty(at), np.empty(at, dtype=np.int32)
    values[: row_data.size], owners[: row_data.size] = row_data, row_columns
    j = 0
    for e in places[:count]:
        while starts[j + 1] <= e:
            j += 1
        values[ends[rows[e]]], owners[ends[rows[e]]] = data[e], j
        ends[rows[e]] += 1
    return values, owners, begins, ends
