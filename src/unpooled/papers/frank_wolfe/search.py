"""The best vertex of every block, found without looking at most scores: tiles of columns share a bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.kernels.compiled import njit

if TYPE_CHECKING:
    from unpooled.kernels.columns import Index, Vector

#: Columns that share one bound in a search.
TILE = 256
#: Bounds are raised by this part, more than rounding can take from them.
ROUNDING = 1e-14


@njit(nogil=True, fastmath={"reassoc", "contract", "nsz", "nnan"})
def tile_top(moved: Vector, moments: Vector, scale: float, order: Index, low: int, high: int) -> float:
    """Return the largest score's magnitude at these positions."""
    top = 0.0
    if order.size:
        for j in order[low:high]:
            top = max(top, abs(scale * moved[j] - moments[j]))
        return top
    some, others = moved[low:high], moments[low:high]
    for j in range(some.size):
        top = max(top, abs(scale * some[j] - others[j]))
    return top


@njit(inline="always")
def column_at(order: Index, position: int) -> int:
    """Return the column at a position; columns are in order already where no order is given."""
    return order[position] if order.size else position


@njit(nogil=True)
def _largest(
    moved: Vector, moments: Vector, scale: float, bounds: Vector, order: Index, edges: Index, begin: int, end: int
) -> int:
    """Where |scale * moved - moments| is largest in these tiles; bounds are made exact where they are looked behind.

    So none of them stays above the largest score.
    """
    first = begin
    for b in range(begin, end):
        if bounds[b] > bounds[first]:
            first = b
    best, tile = -1.0, first
    for step in range(begin - 1, end):
        b = first if step < begin else step
        if bounds[b] <= best or step == first:
            continue
        bounds[b] = tile_top(moved, moments, scale, order, edges[b], edges[b + 1]) * (1 + ROUNDING)
        if bounds[b] > best:
            best, tile = bounds[b], b
    where, top = 0, -1.0
    for position in range(edges[tile], edges[tile + 1]):
        j = column_at(order, position)
        value = abs(scale * moved[j] - moments[j])
        if value > top:
            where, top = j, value
    return where


@njit(nogil=True)
def vertices(
    moments: Vector,
    moved: Vector,
    scale: float,
    bounds: Vector,
    order: Index,
    edges: Index,
    ends: Index,
    radii: Vector,
    chosen: Index,
    weights: Vector,
) -> float:
    """Return the best vertex of every block; n times the gradient times all of them."""
    downhill, begin = 0.0, 0
    for k in range(radii.size):
        j = _largest(moved, moments, scale, bounds, order, edges, begin, ends[k])
        slope = scale * moved[j] - moments[j]
        chosen[k], weights[k], begin = j, -radii[k] if slope > 0 else radii[k], ends[k]
        downhill += weights[k] * slope
    return downhill
