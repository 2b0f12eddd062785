"""Vertices picked with noise (the exponential mechanism), most of whose noise is never drawn."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from unpooled.kernels.columns import column_square
from unpooled.kernels.compiled import njit
from unpooled.papers.frank_wolfe.problem import LEAST_SCALE
from unpooled.papers.frank_wolfe.search import ROUNDING, TILE, column_at, tile_top, vertices

if TYPE_CHECKING:
    from unpooled.kernels.columns import Index, Matrix, Vector

#: Columns that share one bound where a noisy pick looks closer.
_PART = 16


@njit(inline="always")
def _mixed(z: np.uint64) -> np.uint64:
    """SplitMix64's output function (Steele, Lea & Flood 2014)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(nogil=True)
def _race(  # noqa: C901, PLR0912 - a tile as a whole, then its parts
    moments: Vector,
    moved: Vector,
    scale: float,
    bounds: Vector,
    order: Index,
    edges: Index,
    begin: int,
    end: int,
    top: float,
    temperature: float,
    seed: np.uint64,
) -> tuple[int, float]:
    """Return a column and the sign of a score, with probability proportional to exp(sign * score / temperature), in these tiles.

    Every candidate has a clock that rings at exponential times, and a weight w = exp((sign * score - top) / temperature) <= 1:
    the least time / w wins. A tile is left once not even the weight that its bound allows could win. From the first ring
    in a tile on its parts are on their own. Random numbers belong to parts of tiles (SplitMix64), so the winner does not
    depend on the bounds, and stays the winner of this seed as long as scores change little.
    """
    first, stride, parts = begin, np.uint64(0x9E3779B97F4A7C15), np.empty(TILE // _PART)
    for b in range(begin, end):
        if bounds[b] > bounds[first]:
            first = b
    least, winner, side = np.inf, 0, 1.0
    for step in range(begin - 1, end):
        b = first if step < begin else step
        if step == first:
            continue
        low, high, start, best = edges[b], edges[b + 1], 0.0, 0
        for turn in range(-2, -(-(high - low) // _PART)):  # the tile as a whole, its best part, the others
            part = max(turn, best) if turn < 0 else turn
            if turn == best:
                continue
            here, there, limit = low, high, bounds[b]
            if turn >= -1:
                here, there, limit = low + part * _PART, min(low + (part + 1) * _PART, high), parts[part]
            most = math.exp((limit - top) / temperature)
            time, candidates = start, 2 * (there - here)
            state = _mixed(_mixed(seed + np.uint64(b)) + np.uint64(part if turn >= -1 else TILE))
            while time < least * most:
                state += stride
                time -= math.log((np.float64(_mixed(state) >> np.uint64(11)) + 0.5) * 2.0**-53) / candidates
                if not time < least * most:
                    break
                state += stride
                drawn = int(np.float64(_mixed(state) >> np.uint64(11)) * 2.0**-53 * candidates)
                j = column_at(order, here + (drawn >> 1))
                score = scale * moved[j] - moments[j]
                sign = 1.0 if drawn & 1 else -1.0
                weight = math.exp((sign * score - top) / temperature)
                if time < least * weight:
                    least, winner, side = time / weight, j, sign
                if turn < -1:
                    break
            if turn >= -1:
                continue
            if not time < least * most:
                break
            start, bounds[b] = time, 0.0
            for other in range(-(-(high - low) // _PART)):
                here = low + other * _PART
                there = min(here + _PART, high)
                parts[other] = tile_top(moved, moments, scale, order, here, there) * (1 + ROUNDING)
                best = other if parts[other] > bounds[b] else best
                bounds[b] = max(bounds[b], parts[other])
    return winner, side


@njit(nogil=True)
def noisy_vertices(
    moments: Vector,
    moved: Vector,
    scale: float,
    bounds: Vector,
    order: Index,
    edges: Index,
    ends: Index,
    radii: Vector,
    temperature: float,
    key: int,
    t: int,
    chosen: Index,
    weights: Vector,
) -> None:
    """Round t's noisy vertex of every block, whose bounds were made to stay below its best score."""
    begin, seed = 0, _mixed(np.uint64(key) + np.uint64(t))
    for k in range(radii.size):
        top = bounds[begin]
        for b in range(begin, ends[k]):
            top = max(top, bounds[b])
        j, sign = _race(moments, moved, scale, bounds, order, edges, begin, ends[k], top, temperature, seed)
        chosen[k], weights[k], begin = j, -sign * radii[k], ends[k]


@njit(nogil=True)
def foresee(
    data: Vector,
    products: Matrix,
    slots: Index,
    moments: Vector,
    moved: Vector,
    scale: float,
    order: Index,
    edges: Index,
    ends: Index,
    radii: Vector,
    temperature: float,
    key: int,
    t: int,
    rounds: int,
    found: Index,
) -> int:
    """Return columns of a dense matrix without a product that the next rounds will likely pick, with the noise of these rounds.

    Steps are standard ones, and a product that is missing is taken to be zero but for the column itself.
    """
    chosen, weights, count = np.empty(radii.size, dtype=np.int64), np.empty(radii.size), 0
    moved, bounds, none = moved.copy(), np.empty(edges.size - 1), np.empty(0, dtype=np.int64)
    n = data.size // moved.size
    for later in range(t, t + rounds):
        bounds[:] = np.inf
        vertices(moments, moved, scale, bounds, order, edges, ends, radii, chosen, weights)
        noisy_vertices(moments, moved, scale, bounds, order, edges, ends, radii, temperature, key, later, chosen, weights)
        gamma = 2.0 / (later + 2.0)
        scale *= 1.0 - gamma
        if scale < LEAST_SCALE:
            moved *= scale
            scale = 1.0
        for k in range(radii.size):
            j, pull = chosen[k], gamma * weights[k] / scale
            if slots[j] >= 0:
                moved += pull * products[slots[j]]
                continue
            moved[j] += pull * column_square(data, none, n, j)
            if not (found[:count] == j).any():
                if count == found.size:
                    return count
                found[count] = j
                count += 1
    return count
