"""Many rounds over all columns in one compiled loop, until a column is chosen that is not made ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unpooled.kernels.columns import add_column, column_dot
from unpooled.kernels.compiled import njit
from unpooled.papers.frank_wolfe.noisy import noisy_vertices
from unpooled.papers.frank_wolfe.problem import LEAST_SCALE
from unpooled.papers.frank_wolfe.search import ROUNDING, vertices

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.kernels.columns import Index, Matrix, Places, Vector


@njit(nogil=True)
def _through_rows(
    rows: Places,
    starts: Places,
    row_data: Vector,
    row_columns: NDArray[np.int32],
    row_begins: Index,
    row_ends: Index,
    chosen: Index,
    work: Vector,
    factor: float,
    moved: Vector,
) -> None:
    """Add factor * A^T m to the products, m in the workspace, which is left clean."""
    for j in chosen:
        for e in range(starts[j], starts[j + 1]):
            i = rows[e]
            pull = factor * work[i]
            work[i] = 0.0  # blocks may share rows
            if pull != 0.0:
                for f in range(row_begins[i], row_ends[i]):
                    moved[row_columns[f]] += pull * row_data[f]


@njit(nogil=True)
def _raise_bounds(
    rows: Places,
    begin: int,
    end: int,
    row_columns: NDArray[np.int32],
    row_begins: Index,
    row_ends: Index,
    moved: Vector,
    moments: Vector,
    scale: float,
    home: NDArray[np.int32],
    bounds: Vector,
) -> None:
    """Let the bounds hold for the columns that share a row with a chosen one."""
    for e in range(begin, end):
        for f in range(row_begins[rows[e]], row_ends[rows[e]]):
            j = row_columns[f]
            value = abs(scale * moved[j] - moments[j]) * (1 + ROUNDING)
            bounds[home[j]] = max(bounds[home[j]], value)


@njit(nogil=True)
def advance(  # noqa: C901, PLR0912 - dense and sparse differ in three places
    data: Vector,
    rows: Places,
    starts: Places,
    row_data: Vector,
    row_columns: NDArray[np.int32],
    row_begins: Index,
    row_ends: Index,
    products: Matrix,
    slots: Index,
    moments: Vector,
    moved: Vector,
    x: Vector,
    state: Vector,
    bounds: Vector,
    tops: Vector,
    order: Index,
    home: NDArray[np.int32],
    edges: Index,
    ends: Index,
    radii: Vector,
    chosen: Index,
    weights: Vector,
    work: Vector,
    temperature: float,
    key: int,
    descend: bool,
    search: bool,
    t: int,
    stop: int,
    limit: float,
) -> tuple[int, int]:
    """Rounds from t to stop, or until n times the gap is at most the limit, or until a chosen column is not made ready (that one)."""
    sparse = starts.size > 0
    while True:
        scale, square, cross = state[0], state[1], state[2]
        downhill = vertices(moments, moved, scale, bounds, order, edges, ends, radii, chosen, weights)
        gap = square - cross - downhill
        state[4] = max(gap, 0.0)
        if t >= stop or gap <= limit:
            return t, -1
        if temperature > 0:
            noisy_vertices(moments, moved, scale, bounds, order, edges, ends, radii, temperature, key, t, chosen, weights)
        for j in chosen:
            if slots[j] < 0:
                return t, j  # and come back to this round, whose noise stays the same
        along, towards = 0.0, 0.0  # m . Ax, m . y
        for k in range(radii.size):
            along += weights[k] * scale * moved[chosen[k]]
            towards += weights[k] * moments[chosen[k]]
        if temperature > 0:
            gap = square - cross - (along - towards)
            if gap <= 0 and (descend or search):
                t += 1
                continue
        length = 0.0  # |m|^2
        if sparse:
            for k in range(radii.size):
                add_column(data, rows, starts, 0, chosen[k], weights[k], work)
            for k in range(radii.size):
                length += weights[k] * column_dot(data, rows, starts, 0, chosen[k], work)
        else:
            for k in range(radii.size):
                for other in range(radii.size):
                    length += weights[k] * weights[other] * products[slots[chosen[k]], chosen[other]]
        gamma = 2.0 / (t + 2.0)
        if search:
            away = length - 2 * along + square
            gamma = min(gap / away, 1.0) if away > 0 else 1.0
        keep = 1.0 - gamma
        state[1] = keep * keep * square + 2 * gamma * keep * along + gamma * gamma * length
        state[2] = keep * cross + gamma * towards
        scale *= keep
        if scale < LEAST_SCALE:
            moved *= scale
            x *= scale
            scale = 1.0
        state[0] = scale
        for k in range(radii.size):
            x[chosen[k]] += gamma * weights[k] / scale
        if sparse:
            # An entry that no chosen column reaches moves from g to keep * g - gamma * moment.
            for b in range(bounds.size):
                bounds[b] = (keep * bounds[b] + gamma * tops[b]) * (1 + ROUNDING)
            _through_rows(rows, starts, row_data, row_columns, row_begins, row_ends, chosen, work, gamma / scale, moved)
            for j in chosen:
                begin, end = starts[j], starts[j + 1]
                _raise_bounds(rows, begin, end, row_columns, row_begins, row_ends, moved, moments, scale, home, bounds)
        else:
            bounds[:] = np.inf
            for k in range(radii.size):
                pull, product = gamma * weights[k] / scale, products[slots[chosen[k]]]
                for j in range(moved.size):
                    moved[j] += pull * product[j]
        t += 1
